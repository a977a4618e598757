//! The audit of a run: what breaks off, what is refused before it is understood, and where it stands.

mod run;

use run::asking::Running;
use run::{LIMIT, Place, finish, wait_until, wirescope};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("audit.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_answer_that_the_end_of_the_run_breaks_off_is_noted_with_what_went_out() {
    let flags = ["--source", "synth:rate=100k,size=1000", "--ring", "64MiB", "--trigger", "udp port 60000"];
    let running = Running::bare(Place::new(), &flags);
    wait_until("more than fits into a socket", || {
        let counted = running.get("packets?count=true");
        counted.body["packets"].as_u64() > Some(30_000)
    });
    let mut slow = UnixStream::connect(running.socket()).unwrap();
    slow.set_read_timeout(Some(LIMIT)).unwrap();
    slow.write_all(b"GET /api/v1/packets HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut some = [0; 65536];
    slow.read_exact(&mut some).unwrap(); // and no more
    running.started.signal(libc::SIGINT);
    let done = running.started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let noted = lines(&running.place.out());
    let given = &noted.last().unwrap()["given"];
    assert_eq!(given["result"], "the run ended", "{noted:?}");
    let (packets, bytes) = (given["packets"].as_u64().unwrap(), given["bytes"].as_u64().unwrap());
    assert!(packets > 0 && bytes == packets * 1000, "{given}");
    // No more than what a socket, and what waits in front of it, may hold.
    assert!(bytes < 8 << 20, "{given}");
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "whoever gets it takes it for a whole one");
    let log = running.place.log();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["audit"]), (&"end".into(), &noted.last().unwrap()["chain"]));
}

#[test]
fn an_answer_that_its_client_breaks_off_is_noted_with_what_went_out() {
    let flags = ["--source", "synth:rate=100k,size=1000", "--ring", "64MiB", "--trigger", "udp port 60000"];
    let running = Running::bare(Place::new(), &flags);
    wait_until("more than fits into a socket", || {
        running.get("packets?count=true").body["packets"].as_u64() > Some(40_000)
    });
    let mut client = UnixStream::connect(running.socket()).unwrap();
    client.write_all(b"GET /api/v1/packets HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 65536]).unwrap();
    drop(client);
    let is_gone = |line: &Value| line["given"]["result"] == "the client went away";
    wait_until("its line", || lines(&running.place.out()).iter().any(is_gone));
    let noted = lines(&running.place.out());
    let given = &noted.iter().find(|line| is_gone(line)).unwrap()["given"];
    let (packets, bytes) = (given["packets"].as_u64().unwrap(), given["bytes"].as_u64().unwrap());
    assert!(bytes == packets * 1000 && packets < 30_000, "{given}");
    running.started.signal(libc::SIGINT);
    running.started.finish(LIMIT);
}

#[test]
fn what_is_refused_for_its_rate_or_its_path_is_a_line_too() {
    let running = Running::new(&["--control-rate", "5"]);
    wait_until("a refusal for its rate", || running.post("fire", r#"{"filter": "udp"}"#).status == 429);
    let limited = lines(&running.place.out()).into_iter().filter(|line| line["status"] == 429).count();
    assert!(limited >= 1, "{:?}", lines(&running.place.out()));
    wait_until("to be asked again", || running.post("triggers/pro%00be/fire", "").status == 400);
    let noted = lines(&running.place.out());
    let bad =
        noted.iter().find(|line| line["path"] == "/api/v1/triggers/pro%00be/fire" && line["status"] == 400);
    assert!(bad.is_some(), "{noted:?}");
    running.started.signal(libc::SIGINT);
    running.started.finish(LIMIT);
}

#[test]
fn what_cannot_be_written_is_warned_of_once() {
    let place = Place::new();
    std::fs::create_dir(place.out().join("audit.jsonl")).unwrap();
    let running = Running::at(place, &[]);
    for _ in 0..3 {
        assert_eq!(running.post("fire", r#"{"filter": "udp port 60000", "wait": true}"#).status, 200);
    }
    let said = || {
        let log = running.place.log();
        let is_it = |line: &&str| line.contains("audit.jsonl can't be written");
        log.lines().filter(is_it).filter(|line| line.contains("\"event\":\"warning\"")).count()
    };
    wait_until("the warning", || said() == 1);
    running.started.signal(libc::SIGINT);
    running.started.finish(LIMIT);
    assert_eq!(said(), 1);
}

#[test]
fn a_run_with_a_single_dump_says_that_it_keeps_no_audit() {
    let place = Place::new();
    let socket = place.path("door.sock");
    let mut command = run::wirescope(&["run", "--source", "synth:rate=5k", "--trigger", "udp port 60000"]);
    command.arg("-w").arg(place.path("one.pcapng")).arg("--control").arg(&socket).current_dir(place.root());
    let started = run::Started::new(command);
    wait_until("the run to listen", || UnixStream::connect(&socket).is_ok());
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    assert!(
        done.stderr.contains("stand in no audit") && done.stderr.contains("--out DIR"),
        "{}",
        done.stderr
    );
    assert!(!place.path("audit.jsonl").exists());
}

#[test]
fn verify_says_which_lines_of_an_audit_were_changed_or_are_gone() {
    let running = Running::new(&[]);
    for number in 0..4 {
        assert_eq!(running.post("fire", &format!("{{\"filter\": \"port {number}\"}}")).status, 202);
    }
    let (place, _) = running.end();
    let audit = place.out().join("audit.jsonl");
    let text = std::fs::read_to_string(&audit).unwrap();
    let newest = lines(&place.out()).last().unwrap()["chain"].as_str().unwrap().to_string();
    let verify = |words: &[&str]| {
        let mut command = wirescope(&["verify"]);
        command.args(words).current_dir(place.out());
        finish(command)
    };
    let whole = verify(&["audit.jsonl", "--expect", &newest]);
    assert_eq!(whole.code(), Some(0), "{}{}", whole.stdout, whole.stderr);
    assert!(whole.stdout.starts_with("whole    audit.jsonl: audit, 4 lines\n"), "{}", whole.stdout);
    assert!(whole.stdout.contains(&newest) && whole.stdout.lines().all(|line| line.len() <= 80));
    let kept: Vec<&str> = text.lines().collect();
    let write = |lines: &[&str]| std::fs::write(&audit, lines.join("\n") + "\n").unwrap();
    // One is removed, one changed, one added.
    write(&[kept[0], kept[2], kept[3]]);
    let removed = verify(&["audit.jsonl"]);
    assert_eq!(removed.code(), Some(1));
    assert!(removed.stdout.contains("line 2: does not follow"), "{}", removed.stdout);
    let changed = kept[1].replace("port 1", "port 9");
    write(&[kept[0], &changed, kept[2], kept[3]]);
    assert!(verify(&["audit.jsonl"]).stdout.contains("line 2: "), "it is another line");
    write(&[kept[0], kept[1], "half a li", kept[2], kept[3]]);
    let torn = verify(&["audit.jsonl", "--json"]);
    let report: Value = serde_json::from_str(&torn.stdout).unwrap();
    assert_eq!((torn.code(), &report["verdict"]), (Some(1), &"damaged".into()));
    let faults = report["audit"]["files"][0]["faults"].as_array().unwrap();
    assert_eq!((faults.len(), &faults[0]["line"]), (1, &3.into()), "{report}");
    // What a line says first isn't what counts here, and it counts for whoever reads the first key.
    let twice = kept[1].replacen('{', "{\"status\":403,", 1);
    for other in [twice, kept[1].replacen(':', ": ", 1), format!("{}\r", kept[1])] {
        write(&[kept[0], &other, kept[2], kept[3]]);
        let verified = verify(&["audit.jsonl"]);
        assert!(
            verified.code() == Some(1) && verified.stdout.contains("line 2: "),
            "{other}: {}",
            verified.stdout
        );
    }
    // The tail is cut off: only who noted the newest hash sees it.
    write(&kept[..3]);
    assert_eq!(verify(&["audit.jsonl"]).code(), Some(0));
    let cut = verify(&["audit.jsonl", "--expect", &newest]);
    assert_eq!(cut.code(), Some(1), "{}", cut.stdout);
    // It was moved away meanwhile, and went on in another file.
    write(&kept[2..]);
    std::fs::write(place.out().join("audit.jsonl.1"), kept[..2].join("\n") + "\n").unwrap();
    let alone = verify(&["audit.jsonl"]);
    assert_eq!(alone.code(), Some(1));
    assert!(alone.stdout.contains("its first line follows none of these"), "{}", alone.stdout);
    assert_eq!(verify(&["audit.jsonl.1", "audit.jsonl", "--expect", &newest]).code(), Some(0));
    // Beside captures.
    let both = verify(&["audit.jsonl.1", "none.pcapng", "--json"]);
    assert_eq!(both.code(), Some(2), "{}", both.stdout);
}
