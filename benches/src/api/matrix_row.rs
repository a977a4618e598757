//! Who may what: each route is asked by each role, and those who are bound to a filter ask 10,000 questions, of whose answers
//! a naive model knows what they must be.
//!
//! ```text
//! packets that were drawn ─► a run ◄── wirescope serve ◄── a token of filter A asks for filter B
//! the model: of the drawn packets those that match A and B
//! ```

use super::door::{Door, Tokens};
use crate::table::Table;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use crate::{Scale, main_part};
use anyhow::{Context, Result, ensure};
use http::Method;
use scope_api::client::{AskError, Credentials};
use scope_api::routes::{Action, ROUTES, Route};
use scope_api::{Client, Role, Trust};
use scope_testkit::lab::{Lab, RawSender};
use scope_testkit::traffic::Random;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The row, and what it is of.
pub const ROW: &str = "role_matrix";
pub const TRUE: &str = "1 if each route answered each role as it must, and nobody saw beyond a filter";
const ASKED: &str = "requests to routes";
const QUESTIONS: &str = "questions of bound identities";
pub const RIGHTS: &str = "rights_serve";
pub const HELD: &str = "1 if a door can do nothing that it needn't";
const PACKETS: usize = 600;
/// Identities that are bound to a filter each.
const BOUND: usize = 20;
const SEED: u64 = 16;
const END_LIMIT: Duration = Duration::from_secs(60);
/// All packets have to be there by then.
const HEARD_LIMIT: Duration = Duration::from_secs(60);
/// Of the tests from inside, those that must have been tried, and refused.
const REFUSED: [&str; 7] =
    ["read_file", "write_file", "new_socket", "new_packet_socket", "others_memory", "exec", "fork"];

/// Once.
pub fn measure(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let lab = main_part::lab();
    let outcome = match &lab {
        Ok(lab) => both(workspace, lab, scale.api_questions).map_err(|error| format!("{error:#}")),
        Err(why) => Err(why.clone()),
    };
    let figure =
        |figure: &dyn Fn(&(usize, usize)) -> f64| outcome.as_ref().map(figure).map_err(String::clone);
    table.put(ROW, TRUE, "", figure(&|_| 1.0));
    table.put(ROW, ASKED, "", figure(&|(asked, _)| *asked as f64));
    table.put(ROW, QUESTIONS, "", figure(&|(_, questions)| *questions as f64));
    table.put(RIGHTS, HELD, "", rights(workspace).map(|()| 1.0).map_err(|error| format!("{error:#}")));
}

/// How many requests and questions there were, all answered as they must be.
fn both(workspace: &Workspace, lab: &Lab, questions: usize) -> Result<(usize, usize)> {
    let mut random = Random::new(SEED);
    let packets: Vec<Packet> = (0..PACKETS).map(|_| Packet::drawn(&mut random)).collect();
    let arguments =
        ["-i", "vb", "--ring", "64MiB", "--trigger", "none=udp dst port 9", "--serve-user", "root"];
    let more = ["--serve-role", "admin", "--control-rate", "1000000"];
    let statistics = workspace.out_folder()?;
    let db = statistics.path().join("x.sqlite");
    let db = ["--db", db.to_str().context("the folder's path is no UTF-8")?, "--db-interval", "1s"];
    let mut run = Run::start(workspace, Some(lab.b()), &[&arguments[..], &more, &db].concat())?;
    run.wait_started()?;
    let frames: Vec<Vec<u8>> = packets.iter().map(Packet::frame).collect();
    let sender = RawSender::open(lab.a(), "va")?;
    lab.a().enter(|| sender.send_paced(&frames, 5000))?;
    let tokens = Tokens::new(workspace)?;
    let asked = {
        let door = open(workspace, &run, &tokens)?;
        let drawn = questions_of_bound(&door, &tokens, &packets, &mut random, questions)?;
        ensure!(drawn == questions, "only {drawn} questions");
        routes(&door, &tokens)?
    };
    run.stop(END_LIMIT)?;
    Ok((asked, questions))
}

fn open(workspace: &Workspace, run: &Run, tokens: &Tokens) -> Result<Door> {
    tokens.add(&["--role", "viewer", "--name", "first"])?; // a door needs a file of tokens
    Door::open(workspace, &run.socket(), &tokens.path(), &["--requests-per-s", "100000"])
}

fn client(door: &Door, token: &str) -> Result<Client> {
    Ok(Client::url(
        &format!("http://{}", door.address),
        Credentials::Token(token),
        &Trust::Signed(Vec::new()),
    )?)
}

/// The status of an answer, whose body isn't waited for.
fn status(client: &Client, route: &Route) -> Result<u16> {
    let method: Method = route.method.parse()?;
    let path = route.path.replace("{id}", "77").replace("{name}", "missing");
    let body = match route.action {
        Action::Fire => Some(json!({"before": "1s"})),
        Action::AddTrigger | Action::ChangeTrigger => Some(json!({"name": "missing"})),
        Action::StatsSql => Some(json!({"sql": "SELECT count(*) FROM flows"})),
        _ => None,
    };
    match client.ask(method, &path, body.as_ref()) {
        Ok(answer) => Ok(answer.status.as_u16()),
        Err(AskError::Refused(problem)) => Ok(problem.status.as_u16()),
        Err(error) => Err(error).with_context(|| route.path),
    }
}

/// Each route by everybody; how many requests that were.
fn routes(door: &Door, tokens: &Tokens) -> Result<usize> {
    let mut askers = Vec::new();
    for role in Role::ALL {
        let token = tokens.add(&["--role", role.word(), "--name", role.word()])?;
        askers.push((client(door, &token)?, role, false));
    }
    for role in [Role::Viewer, Role::Analyst] {
        let name = format!("bound-{}", role.word());
        let token = tokens.add(&["--role", role.word(), "--name", &name, "--filter", "udp"])?;
        askers.push((client(door, &token)?, role, true));
    }
    let revoked = tokens.add(&["--role", "admin", "--name", "revoked"])?;
    tokens.revoke("revoked")?;
    let expired = tokens.add(&["--role", "admin", "--name", "expired", "--expires", "1ms"])?;
    let foreign = tokens.add(&["--role", "admin", "--name", "foreign", "--instance", "other"])?;
    let strangers = [client(door, "wirescope_none")?, client(door, &revoked)?, client(door, &expired)?];
    let foreign = client(door, &foreign)?;
    let mut asked = 0;
    for route in ROUTES {
        for (client, role, is_bound) in &askers {
            let may = *role >= route.role && (!is_bound || route.answers_bound());
            let status = status(client, route)?;
            ensure!((status != 403) == may, "{route} by {role}, bound {is_bound}: {status}");
            ensure!(status != 401 && status < 500, "{route} by {role}: {status}");
        }
        for stranger in &strangers {
            let status = status(stranger, route)?;
            ensure!(status == 401, "{route} without a good token: {status}");
        }
        let status = status(&foreign, route)?;
        ensure!(status == 403, "{route} with a token of another instance: {status}");
        asked += askers.len() + strangers.len() + 1;
    }
    Ok(asked)
}

/// Questions of identities that are bound to a filter; how many there were.
fn questions_of_bound(
    door: &Door,
    tokens: &Tokens,
    packets: &[Packet],
    random: &mut Random,
    questions: usize,
) -> Result<usize> {
    let all = tokens.add(&["--role", "analyst", "--name", "all"])?;
    let all = client(door, &all)?;
    let begun = Instant::now();
    let everything = format!("packets?count=true&filter={}", encoded(OURS));
    while count(&all.json(Method::GET, &everything, None)?)? < packets.len() as u64 {
        ensure!(begun.elapsed() < HEARD_LIMIT, "not all packets were heard");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut asked = 0;
    for identity in 0..BOUND {
        // One that matches something: others are refused.
        let own = loop {
            let own = Filter::drawn(random, 2);
            if packets.iter().any(|packet| own.matches(packet)) {
                break own;
            }
        };
        // What others send on the link is in nobody's filter.
        let text = format!("{OURS} and ({})", own.text());
        let name = format!("bound-{identity}");
        let token = tokens.add(&["--role", "analyst", "--name", &name, "--filter", &text])?;
        let bound = client(door, &token)?;
        while asked < questions * (identity + 1) / BOUND {
            let asks = Filter::drawn(random, 2);
            let matches = |packet: &&Packet| own.matches(packet) && asks.matches(packet);
            let expected: Vec<&Packet> = packets.iter().filter(matches).collect();
            let filter = encoded(&asks.text());
            if !packets.iter().any(|packet| asks.matches(packet)) && is_refused(&bound, &filter)? {
                continue; // libpcap sees that it matches nothing
            }
            if asked % 10 == 0 {
                let found = captured(&bound, &filter)?;
                let frames: Vec<Vec<u8>> = expected.iter().map(|packet| packet.frame()).collect();
                ensure!(found == frames, "'{}' bound to '{text}': other packets", asks.text());
            } else {
                let answer = bound.json(Method::GET, &format!("packets?count=true&filter={filter}"), None)?;
                let bytes: usize = expected.iter().map(|packet| packet.frame().len()).sum();
                ensure!(
                    (count(&answer)?, answer["bytes"].as_u64())
                        == (expected.len() as u64, Some(bytes as u64)),
                    "'{}' bound to '{text}': {} packets due: {answer}",
                    asks.text(),
                    expected.len()
                );
            }
            asked += 1;
        }
    }
    Ok(asked)
}

/// Whether a filter is refused since it can match nothing.
fn is_refused(client: &Client, filter: &str) -> Result<bool> {
    match client.ask(Method::GET, &format!("packets?count=true&filter={filter}"), None) {
        Err(AskError::Refused(problem)) if problem.to_string().contains("rejects all packets") => Ok(true),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(false),
    }
}

/// The packets of an answer, as a capture.
fn captured(client: &Client, filter: &str) -> Result<Vec<Vec<u8>>> {
    let mut answer = client.ask(Method::GET, &format!("packets?filter={filter}"), None)?;
    let mut bytes = Vec::new();
    while let Some(piece) = answer.next_piece()? {
        bytes.extend_from_slice(&piece);
    }
    let file = scope_testkit::oracle::parse(&bytes).map_err(anyhow::Error::msg)?;
    Ok(file.capture.packets.into_iter().map(|record| record.data).collect())
}

fn count(answer: &Value) -> Result<u64> {
    answer["packets"].as_u64().with_context(|| format!("no count: {answer}"))
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A door that tries from inside what it must not be able to do.
fn rights(workspace: &Workspace) -> Result<()> {
    let mut run = Run::start(workspace, None, &["-i", "lo", "--ring", "4MiB", "--serve-user", "root"])?;
    run.wait_started()?;
    let tokens = Tokens::new(workspace)?;
    tokens.add(&["--role", "viewer", "--name", "first"])?;
    let mut command = std::process::Command::new(&workspace.wirescope);
    command.args(["serve", "--listen", "127.0.0.1:0", "--user", "root", "--rights-selftest"]);
    let output = command.arg("--control").arg(run.socket()).arg("--tokens").arg(tokens.path()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let tried: Value = serde_json::from_str(&said)
        .with_context(|| format!("{said}{}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(output.status.success() && tried["passed"] == true, "{tried}");
    for key in REFUSED {
        let refused = tried[key].as_str().is_some_and(|word| word.starts_with("errno "));
        ensure!(refused, "{key} was not refused: {tried}");
    }
    // From outside: no capability in any thread.
    let door = Door::open(workspace, &run.socket(), &tokens.path(), &[])?;
    for thread in std::fs::read_dir(format!("/proc/{}/task", door.id()))? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        let found = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        for key in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            ensure!(found(key) == Some("0000000000000000"), "{key} {:?}", found(key));
        }
        ensure!(found("NoNewPrivs:") == Some("1") && found("Seccomp:") == Some("2"), "{status}");
    }
    drop(door);
    run.stop(END_LIMIT)
}

/// What was drawn, and nothing else that may be on the link.
const OURS: &str = "ip src net 10.77.0.0/16";

/// A packet: UDP or TCP over IPv4.
struct Packet {
    is_tcp: bool,
    from: u8,
    to: u8,
    from_port: u16,
    to_port: u16,
    payload: usize,
    number: u32,
}

impl Packet {
    fn drawn(random: &mut Random) -> Packet {
        Packet {
            is_tcp: random.below(2) == 0,
            from: random.below(6) as u8,
            to: random.below(6) as u8,
            from_port: 1000 + random.below(4) as u16,
            to_port: 1000 + random.below(4) as u16,
            payload: 4 + random.below(300) as usize,
            number: random.below(1 << 32) as u32,
        }
    }

    fn frame(&self) -> Vec<u8> {
        let head = if self.is_tcp { 20 } else { 8 };
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let total = (20 + head + self.payload) as u16;
        frame.extend([0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, if self.is_tcp { 6 } else { 17 }, 0, 0]);
        frame.extend([10, 77, 0, self.from, 10, 77, 1, self.to]);
        frame.extend(self.from_port.to_be_bytes());
        frame.extend(self.to_port.to_be_bytes());
        match self.is_tcp {
            true => frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]),
            false => {
                frame.extend((8 + self.payload as u16).to_be_bytes());
                frame.extend([0, 0]);
            }
        }
        let payload = frame.len();
        frame.extend(self.number.to_be_bytes());
        frame.resize(payload + self.payload, 7);
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

/// A filter with its meaning.
enum Filter {
    Tcp,
    Udp,
    From(u8),
    Host(u8),
    Port(u16),
    Greater(usize),
    Not(Box<Filter>),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
}

impl Filter {
    fn drawn(random: &mut Random, depth: usize) -> Filter {
        let one = |random: &mut Random| Box::new(Filter::drawn(random, depth.saturating_sub(1)));
        match random.below(if depth > 0 { 9 } else { 6 }) {
            0 => Filter::Tcp,
            1 => Filter::Udp,
            2 => Filter::From(random.below(6) as u8),
            3 => Filter::Host(random.below(6) as u8),
            4 => Filter::Port(1000 + random.below(4) as u16),
            5 => Filter::Greater(60 + random.below(300) as usize),
            6 => Filter::Not(one(random)),
            7 => Filter::And(one(random), one(random)),
            _ => Filter::Or(one(random), one(random)),
        }
    }

    fn text(&self) -> String {
        match self {
            Filter::Tcp => "tcp".to_string(),
            Filter::Udp => "udp".to_string(),
            Filter::From(host) => format!("src host 10.77.0.{host}"),
            Filter::Host(host) => format!("host 10.77.1.{host}"),
            Filter::Port(port) => format!("port {port}"),
            Filter::Greater(bytes) => format!("greater {bytes}"),
            Filter::Not(one) => format!("not ({})", one.text()),
            Filter::And(one, other) => format!("({}) and ({})", one.text(), other.text()),
            Filter::Or(one, other) => format!("({}) or ({})", one.text(), other.text()),
        }
    }

    fn matches(&self, packet: &Packet) -> bool {
        match self {
            Filter::Tcp => packet.is_tcp,
            Filter::Udp => !packet.is_tcp,
            Filter::From(host) => packet.from == *host,
            Filter::Host(host) => packet.to == *host,
            Filter::Port(port) => packet.from_port == *port || packet.to_port == *port,
            Filter::Greater(bytes) => packet.frame().len() >= *bytes,
            Filter::Not(one) => !one.matches(packet),
            Filter::And(one, other) => one.matches(packet) && other.matches(packet),
            Filter::Or(one, other) => one.matches(packet) || other.matches(packet),
        }
    }
}
