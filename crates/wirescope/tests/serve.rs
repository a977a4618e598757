//! The door to the network: who gets in by which token, what each may ask, and what becomes of it when runs, tokens and
//! certificates come and go.

mod door;
mod run;

use door::{Running, Serving, address, status_of, token};
use run::{LIMIT, Place, Started, finish, is_root, wait_until, wirescope};
use scope_api::Role;
use scope_api::routes::{Action, ROUTES};
use scope_testkit::oracle;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const VIEWER: [&str; 4] = ["--role", "viewer", "--name", "eye"];
const ANALYST: [&str; 4] = ["--role", "analyst", "--name", "ana"];
const ADMIN: [&str; 4] = ["--role", "admin", "--name", "boss"];
/// Sees only the packet of the trigger.
const BOUND: [&str; 6] = ["--role", "analyst", "--name", "shop", "--filter", "udp port 60000"];

#[test]
fn a_token_gets_in_and_the_run_knows_for_whom_it_is_asked() {
    let running = Running::new(&[]);
    let [viewer, admin] = [&VIEWER[..], &ADMIN].map(|words| running.token(words));
    let serving = running.serve(&[]);
    wait_until("a first second", || serving.get(&viewer, "status").body["elapsed_s"].is_number());
    let instances = serving.get(&viewer, "instances").body;
    assert_eq!(instances["instances"], json!([{"name": "wirescope", "answers": true}]));
    // What a client says of itself is worth nothing.
    let head =
        "GET /api/v1/dumps HTTP/1.1\r\nhost: localhost\r\nwirescope-name: boss\r\nwirescope-role: admin";
    assert_eq!(serving.ask(head, "").status, 401);
    let said = format!("{head}\r\nauthorization: Bearer {viewer}");
    assert_eq!(serving.ask(&said, "").status, 403);
    // No more than the run grants a door.
    assert_eq!(serving.get(&admin, "config").status, 403);
    let fired = serving.post(&admin, "instances/wirescope/fire", r#"{"before": "1m", "wait": true}"#);
    assert_eq!(fired.status, 200, "{fired:?}");
    let id = fired.body["id"].as_u64().unwrap();
    assert!(fired.head.contains(&format!("location: /api/v1/instances/wirescope/dumps/{id}")), "{fired:?}");
    let file = serving.get(&admin, &format!("instances/wirescope/dumps/{id}/file"));
    let packets = oracle::parse(&file.bytes).unwrap().capture.packets.len() as u64;
    assert_eq!(Some(packets), fired.body["packets"].as_u64());
    assert_eq!(serving.post(&viewer, "fire", "{}").status, 403);
    let lines: Vec<(Value, Value, Value)> = running
        .audit()
        .into_iter()
        .map(|mut line| (line["name"].take(), line["role"].take(), line["status"].take()))
        .collect();
    let line = |name: &str, role: &str, status: u16| (json!(name), json!(role), json!(status));
    assert_eq!(
        lines,
        [line("boss", "operator", 200), line("boss", "operator", 200), line("eye", "viewer", 403)]
    );
    assert!(serving.end().stderr.contains("401"));
    running.end();
}

/// What asks a route in a form that is understood, and harms nothing.
fn example(path: &str, action: Action) -> (String, &'static str) {
    let path = path.replace("{id}", "77").replace("{name}", "none");
    let body = match action {
        Action::Fire => r#"{"before": "1s"}"#,
        Action::AddTrigger | Action::ChangeTrigger => r#"{"name": "none"}"#,
        Action::StatsSql => r#"{"sql": "SELECT count(*) FROM flows"}"#,
        _ => "",
    };
    (path, body)
}

#[test]
fn each_route_answers_each_role_as_the_table_says() {
    let place = Place::new();
    let db = place.path("x.sqlite").display().to_string();
    let running = Running::at(place, &["--serve-role", "admin", "--db", &db, "--db-interval", "1s"]);
    let mut askers: Vec<(String, Option<Role>, bool)> = Role::ALL
        .into_iter()
        .map(|role| (running.token(&["--role", role.word(), "--name", role.word()]), Some(role), false))
        .collect();
    askers.push((running.token(&BOUND), Some(Role::Analyst), true));
    let viewing = ["--role", "viewer", "--name", "bound-eye", "--filter", "udp"];
    askers.push((running.token(&viewing), Some(Role::Viewer), true));
    let gone = running.token(&["--role", "admin", "--name", "gone"]);
    let expired = running.token(&["--role", "admin", "--name", "old", "--expires", "1ms"]);
    let elsewhere = running.token(&["--role", "admin", "--name", "other", "--instance", "dmz"]);
    let mut revoke = wirescope(&["token", "revoke", "gone", "--tokens"]);
    revoke.arg(running.tokens());
    assert_eq!(finish(revoke).code(), Some(0));
    let serving = running.serve(&["--requests-per-s", "10000"]);
    let ask = |token: &str, at: usize| {
        let route = &ROUTES[at];
        let (path, body) = example(route.path, route.action);
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let bearer =
            if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let (method, len) = (route.method, body.len());
        let head = format!("{method} /api/v1/{path} HTTP/1.1\r\nhost: localhost\r\n{bearer}{kind}");
        status_of(
            &serving.address,
            &format!("{head}content-length: {len}\r\nconnection: close\r\n\r\n{body}"),
        )
    };
    for (at, route) in ROUTES.iter().enumerate() {
        for (token, role, is_bound) in &askers {
            let answers_bound = matches!(
                route.path,
                "health/live"
                    | "health/ready"
                    | "version"
                    | "fire"
                    | "dumps"
                    | "dumps/{id}"
                    | "dumps/{id}/file"
                    | "packets"
            ) && route.method != "DELETE";
            let may = role.is_some_and(|role| role >= route.role) && (!is_bound || answers_bound);
            let status = ask(token, at);
            assert_eq!(status != 403, may, "{route} by {role:?}, bound {is_bound}: {status}");
            assert!(status != 401 && status < 500, "{route} by {role:?}: {status}");
        }
        for token in ["", "x", &gone, &expired] {
            assert_eq!(ask(token, at), 401, "{route}");
        }
        assert_eq!(ask(&elsewhere, at), 403, "{route}");
    }
    drop(serving);
    running.started.signal(libc::SIGINT);
}

#[test]
fn who_sees_only_packets_of_a_filter_gets_what_matches_both_filters_and_no_dump_of_others() {
    let running = Running::new(&[]);
    let [bound, analyst] = [&BOUND[..], &ANALYST].map(|words| running.token(words));
    let serving = running.serve(&[]);
    wait_until("the packet", || {
        serving.get(&analyst, "triggers/probe").body["hits"]["fired"].as_u64() == Some(1)
    });
    wait_until("its dump", || serving.get(&analyst, "dumps/1").body["state"] == "finished");
    let fire = |token: &str, filter: &str| {
        let order = json!({"filter": filter, "before": "1m", "wait": true}).to_string();
        let fired = serving.post(token, "fire", &order);
        assert_eq!(fired.status, 200, "{fired:?}");
        fired.body
    };
    let all = fire(&analyst, "");
    assert!(all["packets"].as_u64().unwrap() > 1000, "{all}");
    for (filter, packets) in
        [("", 1), ("udp", 1), ("tcp", 0), ("not udp port 60000", 0), ("ip or ip6 or arp", 1)]
    {
        let fired = fire(&bound, filter);
        assert_eq!(fired["packets"], json!(packets), "{filter}: {fired}");
        assert!(fired.get("counters").is_none() && all.get("counters").is_some(), "{fired}");
        let id = &fired["id"];
        let file = serving.get(&bound, &format!("dumps/{id}/file"));
        let capture = oracle::parse(&file.bytes).unwrap().capture;
        assert_eq!(capture.packets.len() as u64, packets, "{filter}");
        assert!(!String::from_utf8_lossy(&file.bytes).contains("counters of"), "all packets count there");
    }
    for (filter, packets) in
        [("", 1), ("filter=udp&", 1), ("filter=tcp&", 0), ("filter=not+udp+port+60000&", 0)]
    {
        let count = serving.get(&bound, &format!("packets?{filter}count=true")).body;
        assert_eq!(count["packets"], json!(packets), "{filter}: {count}");
        let file = serving.get(&bound, &format!("packets?{filter}limit=1000"));
        let capture = oracle::parse(&file.bytes).unwrap().capture;
        assert_eq!(capture.packets.len() as u64, packets, "{filter}");
    }
    assert!(serving.get(&analyst, "packets?count=true").body["packets"].as_u64().unwrap() > 1000);
    // Two texts that would mean something else if they were one.
    for filter in ["tcp) or (ip", "udp) or (udp", "tcp or (", "\" or ip"] {
        let order = json!({"filter": filter}).to_string();
        assert_eq!(serving.post(&bound, "fire", &order).status, 400, "{filter}");
    }
    let ids = |token: &str| {
        let listed = serving.get(token, "dumps").body;
        let dumps = listed["dumps"].as_array().unwrap().clone();
        dumps.iter().map(|dump| dump["id"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    assert_eq!(ids(&bound), [3, 4, 5, 6, 7]);
    assert_eq!(ids(&analyst), [1, 2, 3, 4, 5, 6, 7]);
    for route in ["dumps/1", "dumps/2", "dumps/1/file", "dumps/2/file", "dumps/99"] {
        assert_eq!(serving.get(&bound, route).status, 404, "{route}");
    }
    // The same name with another filter is somebody else.
    let mut revoke = wirescope(&["token", "revoke", "shop", "--tokens"]);
    revoke.arg(running.tokens());
    assert_eq!(finish(revoke).code(), Some(0));
    assert_eq!(serving.get(&bound, "dumps").status, 401, "with the next request");
    let other = running.token(&["--role", "analyst", "--name", "shop", "--filter", "tcp"]);
    assert_eq!(ids(&other), [0u64; 0]);
    serving.end();
    running.end();
}

#[test]
fn a_run_that_is_gone_is_told_and_met_again_when_it_is_back() {
    let running = Running::new(&[]);
    let viewer = running.token(&VIEWER);
    let serving = running.serve(&[]);
    assert_eq!(serving.get(&viewer, "health/live").status, 200);
    running.started.signal(libc::SIGKILL);
    let Running { place, started } = running;
    started.finish(LIMIT);
    let gone = serving.get(&viewer, "status");
    assert_eq!((gone.status, &gone.body["faults"][0]["place"]), (502, &json!("wirescope")), "{gone:?}");
    assert!(gone.body["detail"].as_str().unwrap().contains("Connection refused"), "{gone:?}");
    assert!(gone.head.contains("application/problem+json"), "{gone:?}");
    assert_eq!(serving.get(&viewer, "instances").body["instances"][0]["answers"], false);
    let again = Running::at(place, &[]);
    wait_until("the run to be met", || serving.get(&viewer, "health/ready").status == 200);
    serving.end();
    again.end();
}

#[test]
fn several_runs_are_told_apart_by_their_names() {
    let [one, two] = [Running::new(&[]), Running::new(&[])];
    let viewer = one.token(&VIEWER);
    let only = one.token(&["--role", "viewer", "--name", "dmz-eye", "--instance", "dmz"]);
    let controls = [format!("lan={}", one.control()), format!("dmz={}", two.control())];
    let serving = Serving::new(&one.tokens(), &controls, &[]);
    let run = |token: &str, route: &str| serving.get(token, route).body["run"].clone();
    let [lan, dmz] = ["lan", "dmz"].map(|name| run(&viewer, &format!("instances/{name}/version")));
    assert!(lan.is_string() && dmz.is_string() && lan != dmz);
    let unnamed = serving.get(&viewer, "version");
    assert!(
        unnamed.status == 404 && unnamed.body["detail"].as_str().unwrap().contains("lan, dmz"),
        "{unnamed:?}"
    );
    // Who may ask one of them only needn't name it.
    assert_eq!(run(&only, "version"), dmz);
    assert_eq!(serving.get(&only, "instances/lan/version").status, 403);
    assert_eq!(serving.get(&only, "instances").body["instances"], json!([{"name": "dmz", "answers": true}]));
    for route in
        ["instances/none/version", "instances/lan", "instances//version", "instances/lan/../dmz/version"]
    {
        assert_eq!(serving.get(&viewer, route).status, 404, "{route}");
    }
    // Named twice.
    let mut command = wirescope(&["serve", "--listen", "127.0.0.1:0", "--control"]);
    command.arg(one.control()).arg("--control").arg(two.control()).arg("--tokens").arg(one.tokens());
    let done = finish(command);
    assert!(
        done.code() == Some(2) && done.stderr.contains("two instances are called wirescope"),
        "{}",
        done.stderr
    );
    serving.end();
    one.end();
    two.end();
}

#[test]
fn tokens_are_made_listed_and_revoked_in_a_file_that_is_closed_to_others() {
    let running = Running::new(&[]);
    let viewer = running.token(&[&VIEWER[..], &["--expires", "30d"]].concat());
    let tokens = running.tokens();
    assert_eq!(tokens.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(!std::fs::read_to_string(&tokens).unwrap().contains(&viewer));
    let serving = running.serve(&[]);
    assert_eq!(serving.get(&viewer, "health/live").status, 200);
    let later = running.token(&ANALYST);
    assert_eq!(serving.get(&later, "dumps").status, 200, "with the next request");
    serving.end();
    let list = |more: &[&str]| {
        let mut command = wirescope(&["token", "list", "--tokens"]);
        command.arg(&tokens).args(more);
        finish(command).stdout
    };
    let listed: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert_eq!(
        (&listed["tokens"][0]["name"], &listed["tokens"][0]["expired"]),
        (&json!("eye"), &json!(false))
    );
    assert!(
        listed["tokens"][0]["last_use"].is_string() && listed["tokens"][0].get("hash").is_none(),
        "{listed}"
    );
    assert!(list(&[]).starts_with("eye: viewer, expires 20"), "{}", list(&[]));
    let before = std::fs::read(&tokens).unwrap();
    for (words, told) in [
        (&["add", "--role", "root", "--name", "a"][..], "is no role"),
        (&["add", "--role", "viewer", "--name", "../a"], "can't be a name"),
        (&["add", "--role", "viewer", "--name", "eye"], "there is a token 'eye' already"),
        (&["add", "--role", "viewer", "--name", "a", "--expires", "yesterday"], "--expires"),
        (
            &["add", "--role", "viewer", "--name", "a", "--expires", "2020-01-01T00:00:00Z"],
            "that is over already",
        ),
        (&["add", "--role", "viewer", "--name", "a", "--filter", "prot 80"], "--filter"),
        (&["add", "--role", "viewer", "--name", "a", "--filter", " "], "it is empty"),
        (&["add", "--role", "operator", "--name", "a", "--filter", "udp"], "an analyst at most"),
        (&["add", "--role", "viewer", "--name", "a", "--instance", "a b"], "can't be a name"),
        (&["revoke", "none"], "there is no token 'none'"),
    ] {
        let mut command = wirescope(&[&["token"], words].concat());
        command.arg("--tokens").arg(&tokens);
        let done = finish(command);
        assert!(done.code() == Some(2) && done.stderr.contains(told), "{words:?}: {}", done.stderr);
    }
    assert_eq!(std::fs::read(&tokens).unwrap(), before);
    running.end();
}

#[test]
fn the_command_line_asks_and_orders_through_a_door() {
    let running = Running::new(&[]);
    let file = running.token_file(&["--role", "operator", "--name", "op"]);
    let serving = running.serve(&[]);
    let done = |words: &[&str], code: i32| {
        let done = serving.command(&file, words);
        assert_eq!(done.code(), Some(code), "{words:?}: {}{}", done.stdout, done.stderr);
        done
    };
    wait_until("a dump", || done(&["status"], 0).stdout.contains("dumps: 1 finished"));
    assert!(done(&["triggers", "list"], 0).stdout.contains("probe"));
    assert!(done(&["triggers", "disarm", "probe"], 0).stdout.contains("probe"));
    let dump = running.place.path("mine.pcapng");
    done(&["fire", "--filter", "udp port 60000", "--before", "200ms", "-w", dump.to_str().unwrap()], 0);
    assert!(oracle::parse(&std::fs::read(&dump).unwrap()).is_ok());
    assert!(done(&["dumps", "list", "--json"], 0).stdout.contains("manual"));
    done(&["dumps", "delete", "1"], 0);
    assert!(done(&["losses"], 0).stdout.contains("dropped: nothing"));
    assert!(done(&["dumps", "show", "99"], 2).stderr.contains("no dump 99"));
    std::fs::write(&file, "wirescope_0").unwrap();
    assert!(done(&["status"], 2).stderr.contains("the token isn't known"));
    for url in ["http://192.0.2.1:8080", "localhost:8080", "https://a/b"] {
        let mut command = wirescope(&["status", "--url", url, "--token-file"]);
        command.arg(&file);
        let done = finish(command);
        assert!(done.code() == Some(2) && done.stderr.contains("--url"), "{}", done.stderr);
    }
    serving.end();
    running.end();
}

/// Writes a certificate for this machine, and its key.
fn certify(folder: &Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = ["localhost".to_string(), "127.0.0.1".to_string()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

#[test]
fn it_speaks_new_versions_of_tls_only_and_takes_certificates_up_again() {
    let running = Running::new(&[]);
    let file = running.token_file(&VIEWER);
    let folder = running.place.root();
    certify(folder);
    let [cert, key, old] = ["cert.pem", "key.pem", "old.pem"].map(|name| folder.join(name));
    let [cert_text, key_text] = [&cert, &key].map(|path| path.to_str().unwrap());
    let serving = running.serve(&["--tls-cert", cert_text, "--tls-key", key_text]);
    let status = |ca: &Path| {
        let mut command =
            wirescope(&["status", "--url", &format!("https://{}", serving.address), "--token-file"]);
        command.arg(&file).arg("--tls-ca").arg(ca);
        finish(command)
    };
    let done = status(&cert);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    std::fs::copy(&cert, &old).unwrap();
    certify(folder);
    serving.started.signal(libc::SIGHUP);
    wait_until("the new certificate", || status(&cert).code() == Some(0));
    let done = status(&old);
    assert!(done.code() == Some(2) && done.stderr.contains("certificate"), "{}", done.stderr);
    std::fs::write(&key, "mine").unwrap();
    serving.started.signal(libc::SIGHUP);
    wait_until("a warning", || serving.started.words().contains("stay in force"));
    assert_eq!(status(&cert).code(), Some(0));
    // TLS 1.1, without a word of newer ones: an alert, or nothing, and no handshake.
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    let heard = serving.raw(&hello);
    assert!(heard.is_empty() || heard[0] == 0x15, "{heard:?}");
    let heard = serving.raw(b"GET /api/v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(!heard.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&heard));
    serving.end();
    // What may not be, and what doesn't fit together.
    for (words, told) in [
        (&["--listen", "0.0.0.0:0"][..], "only by TLS"),
        (&["--listen", "[::]:0"], "only by TLS"),
        (&["--listen", "here"], "is no address with a port"),
        (&["--listen", "127.0.0.1:0", "--tls-cert", cert_text], "it has no key"),
        (&["--listen", "127.0.0.1:0", "--tls-cert", cert_text, "--tls-key", key_text], "it is no key"),
        (&["--listen", "127.0.0.1:0", "--host", "a/b"], "is no name of a host"),
        (&["--listen", "127.0.0.1:0", "--connections", "0"], "--connections"),
        (&["--listen", "127.0.0.1:0", "--user", "nobody"], "nobody"),
    ] {
        let mut command = wirescope(&[&["serve", "--control", &running.control()], words].concat());
        command.arg("--tokens").arg(running.tokens());
        let done = finish(command);
        assert!(done.code() == Some(2) && done.stderr.contains(told), "{words:?}: {}", done.stderr);
    }
    running.end();
}

#[test]
fn a_door_has_no_rights_and_only_its_user_is_believed() {
    if !is_root() {
        return eprintln!("skipped: it needs root");
    }
    let place = Place::new();
    place.open_to_all();
    let running = Running::at(place, &["--serve-user", "12345:12345"]);
    let viewer = running.token(&VIEWER);
    let serving = running.serve(&["--user", "12345:12345"]);
    assert_eq!(serving.get(&viewer, "health/live").status, 200);
    for status in serving.started.threads() {
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(value("Uid:"), "12345 12345 12345 12345");
        assert_eq!(value("Gid:"), "12345 12345 12345 12345");
        for key in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(value(key), "0000000000000000", "{key}");
        }
        assert_eq!((value("NoNewPrivs:"), value("Seccomp:")), ("1".to_string(), "2".to_string()));
    }
    serving.end();
    // Tried from inside.
    let mut command =
        wirescope(&["serve", "--listen", "127.0.0.1:0", "--user", "12345:12345", "--rights-selftest"]);
    command.arg("--control").arg(running.control()).arg("--tokens").arg(running.tokens());
    let done = finish(command);
    let facts: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((done.code(), &facts["passed"]), (Some(0), &json!(true)), "{facts}");
    for key in ["read_file", "write_file", "new_socket", "new_packet_socket", "others_memory", "exec", "fork"]
    {
        assert!(facts[key].as_str().unwrap().starts_with("errno "), "{facts}");
    }
    // The run's user, root, is not that door.
    let own = running.serve(&["--user", "root"]);
    let refused = own.get(&viewer, "health/live");
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(
        refused.body["detail"].as_str().unwrap().contains("may not ask for somebody else"),
        "{refused:?}"
    );
    own.end();
    running.end();
}

#[test]
fn a_run_begins_a_door_that_ends_with_it_and_goes_on_without_it() {
    let place = Place::new();
    let tokens = place.path("tokens");
    let viewer = token(&tokens, &VIEWER);
    let listen = ["--listen", "127.0.0.1:0", "--tokens", tokens.to_str().unwrap()];
    let running = Running::at(place, &listen);
    wait_until("the door to answer", || address(&running.started.words()).is_some());
    let at = |running: &Running| address(&running.started.words()).unwrap();
    let live = |address: &str| {
        let request = format!(
            "GET /api/v1/health/live HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {viewer}\r\nconnection: close\r\n\r\n"
        );
        door::Heard::of(&door::raw(address, request.as_bytes())).status
    };
    wait_until("the run to answer", || live(&at(&running)) == 200);
    let address_of_first = at(&running);
    // A signal to all processes of a service is the run's alone.
    let child = child_of(running.started.id());
    kill(child, libc::SIGTERM);
    assert_eq!(live(&address_of_first), 200);
    let (place, done) = running.end();
    assert_eq!(done.code(), Some(0));
    assert_eq!(live(&address_of_first), 0);
    // It dies: the run says so, goes on, and has not done all that it promised.
    let running = Running::at(place, &listen);
    wait_until("the door to answer", || address(&running.started.words()).is_some());
    kill(child_of(running.started.id()), libc::SIGKILL);
    wait_until("words", || running.started.words().contains("the door to the network has ended"));
    wait_until("an answer of the run", || {
        let mut command = wirescope(&["status", "--control"]);
        command.arg(running.socket());
        finish(command).code() == Some(0)
    });
    let log = running.place.out().join("wirescope.jsonl");
    wait_until("a line of the log", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.matches("\"event\":\"door_ended\"").count() == 1
    });
    running.started.signal(libc::SIGINT);
    let Running { place, started } = running;
    let done = started.finish(LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    // It can't begin: nor does the run.
    for (more, told) in [
        (&["--listen", "127.0.0.1:0"][..], "needs a file of tokens"),
        (&["--listen", "0.0.0.0:0", "--tokens", tokens.to_str().unwrap()], "only by TLS"),
        (&["--listen", "127.0.0.1:0", "--tokens", "/nonexistent/tokens"], "No such file"),
        (&["--tokens", tokens.to_str().unwrap()], "there is no door to the network"),
        (&["--serve-user", "nobody"], "whom no run believes"),
        (&["--serve-role", "root"], "is no role"),
    ] {
        let done = Started::new(place.command(&[&door::RUN[..], more].concat())).finish(LIMIT);
        assert!(done.code() == Some(2) && done.stderr.contains(told), "{more:?}: {}", done.stderr);
    }
}

/// The door that a process has begun.
fn child_of(parent: u32) -> i32 {
    let text = |path: &Path| std::fs::read(path).unwrap_or_default();
    let found = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = String::from_utf8_lossy(&text(&entry.path().join("status"))).into_owned();
        let is_child = status.lines().any(|line| line == format!("PPid:\t{parent}"));
        let is_door = String::from_utf8_lossy(&text(&entry.path().join("cmdline"))).contains("--beside-run");
        (is_child && is_door).then_some(number)
    });
    found.expect("a door")
}

fn kill(process: i32, signal: i32) {
    // SAFETY: takes numbers only; the process is a child of one that this test has started, and not waited for.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}
