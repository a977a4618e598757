//! The control socket of a run: who may ask it what, what it answers, and that no client does a run any harm.

mod run;

use run::asking::{Heard, Running};
use run::{LIMIT, NOBODY, Place, Started, finish, is_root, wait_until, wirescope};
use scope_testkit::oracle;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

#[test]
fn each_route_answers_and_the_document_names_them_all() {
    let place = Place::new();
    let db = place.path("x.sqlite").to_str().unwrap().to_string();
    let running = Running::at(place, &["--db", &db, "--db-interval", "1s"]);
    wait_until("the first interval", || running.get("stats/top").status == 200);
    wait_until("the first dump", || running.get("dumps/1").body["state"] == "finished");
    wait_until("its hit to be counted", || running.get("triggers/probe").body["hits"]["fired"] == 1);
    running.post("triggers/none/fire", ""); // so that there is an audit
    let document = running.get("openapi.json").body;
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        if operations["get"].is_null() || path.ends_with("/events") {
            continue;
        }
        let route = path
            .strip_prefix("/api/v1/")
            .unwrap()
            .replace("files/{id}", "files/x.sqlite")
            .replace("{id}", "1")
            .replace("signals/{name}", "signals/pps")
            .replace("{name}", "probe");
        let heard = running.get(&route);
        assert_eq!(heard.status, 200, "{route}: {heard:?}");
        asked += 1;
    }
    assert!(asked >= 15, "{asked}");
    let status = running.get("status").body;
    assert_eq!((&status["state"], &status["adds_up"]), (&json!("capturing"), &json!(true)));
    assert!(status["received"]["packets"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(running.get("version").body["run"], status["run"]);
    let trigger = running.get("triggers/probe").body;
    assert_eq!((&trigger["filter"], &trigger["hits"]["fired"]), (&json!("udp port 60000"), &json!(1)));
    assert_eq!(running.get("ring").body["lanes"][0]["link_type"], "ETHERNET");
    let steps = running.get("losses?from=-10s&step=1s").body;
    assert_eq!(steps["steps"].as_array().unwrap().len(), 11, "{steps}");
    assert!(steps["steps"].as_array().unwrap().iter().all(|step| step["lost"] == json!([])), "{steps}");
    let config = running.get("config").body;
    assert!(config["toml"].as_str().unwrap().contains("synth:rate=5k"), "{config}");
    let metrics = String::from_utf8(running.get("metrics").bytes).unwrap();
    assert!(
        metrics.contains("\nwirescope_trigger_hits_total{trigger=\"probe\",verdict=\"fired\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("\nwirescope_dropped_packets_total{source=\"synth:rate=5k,trigger-at=1s\",worker=\"0\",reason=\"kernel\"} 0\n"), "{metrics}");
    let head = running.ask("HEAD /api/v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!((head.status, head.bytes.len()), (200, 0), "{head:?}");
    let (place, _) = running.end();
    assert!(!place.out().join("wirescope.sock").exists(), "the socket goes with its run");
}

#[test]
fn a_fire_with_its_own_filter_is_a_dump_that_can_be_got_and_deleted() {
    let running = Running::new(&[]);
    wait_until("the packet", || running.get("triggers/probe").body["hits"]["fired"] == 1);
    let order = r#"{"filter": "udp\nport 60000", "before": "1m", "note": "ticket 7", "wait": true}"#;
    let fired = running.post("fire", order);
    assert_eq!(fired.status, 200, "{fired:?}");
    assert!(fired.head.contains("\r\nlocation: /api/v1/dumps/2"), "{fired:?}");
    // It begins before the run did, and lacks what nobody recorded.
    assert_eq!((&fired.body["packets"], &fired.body["complete"]), (&json!(1), &json!(false)));
    let file = running.get("dumps/2/file");
    assert_eq!(oracle::parse(&file.bytes).unwrap().capture.packets.len(), 1);
    assert!(String::from_utf8_lossy(&file.bytes).contains("by hand: ticket 7"));
    let etag = file.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_string();
    let with = |header: &str| {
        running.ask(&format!(
            "GET /api/v1/dumps/2/file HTTP/1.1\r\nhost: x\r\n{header}\r\nconnection: close\r\n\r\n"
        ))
    };
    let range = with("range: bytes=4-11");
    assert_eq!((range.status, &range.bytes[..]), (206, &file.bytes[4..12]), "{range:?}");
    assert!(range.head.contains(&format!("content-range: bytes 4-11/{}", file.bytes.len())), "{range:?}");
    assert_eq!(with("range: bytes=99999999-").status, 416);
    assert_eq!(with(&format!("if-none-match: {etag}")).status, 304);
    let without = running.post("fire", "");
    assert_eq!((without.status, &without.body["dump"]), (202, &json!(3)));
    assert_eq!(running.post("triggers/probe/fire", r#"{"wait": true}"#).body["trigger"], "probe");
    let listed = running.get("dumps?trigger=manual").body;
    let ids: Vec<u64> =
        listed["dumps"].as_array().unwrap().iter().map(|dump| dump["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [2, 3]);
    let deleted = running.ask("DELETE /api/v1/dumps/2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let name = deleted.body["removed"][0].as_str().unwrap().to_string();
    assert!(deleted.status == 200 && !running.place.out().join(&name).exists(), "{deleted:?}");
    assert_eq!(running.get("dumps/2/file").status, 404);
    running.end();
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place_and_a_remedy() {
    let running = Running::new(&[]);
    for (heard, status, place) in [
        (running.get("nothing"), 404, "path"),
        (running.get("dumps/77"), 404, "id"),
        (running.get("dumps/-1"), 404, "id"),
        (running.get("dumps/..%2f..%2fetc%2fpasswd/file"), 404, "id"),
        (running.get("dumps/%00"), 400, "path"),
        (running.get("dumps/../../../../etc/passwd"), 404, "path"),
        (running.get("triggers/none"), 404, "name"),
        (running.get("dumps?limit=0"), 400, "limit"),
        (running.get("dumps?what=1"), 400, "what"),
        (running.get("status?x=1"), 400, "x"),
        (running.get("losses?from=soon"), 400, "from"),
        (running.get("losses?step=0"), 400, "step"),
        (running.post("fire", r#"{"filter": "prot 80"}"#), 400, "filter"),
        (running.post("fire", r#"{"filter": "host $srcIP"}"#), 400, "filter"),
        (running.post("fire", r#"{"before": "-1s"}"#), 400, "before"),
        (running.post("fire", r#"{"filtre": "udp"}"#), 400, "filtre"),
        (running.post("fire", r#"{"note": "a\u0000b"}"#), 400, "note"),
        (running.post("fire", "{"), 400, "body"),
        (running.post("fire", "[]"), 400, "body"),
        (running.post("triggers/none/fire", ""), 404, "name"),
        (running.post("triggers/probe/fire", r#"{"filter": "udp"}"#), 400, "body"),
        (running.post("reload", ""), 409, "run"),
        (running.post("status", ""), 405, "method"),
        (running.post("fire", &format!("{{\"note\": \"{}\"}}", "x".repeat(70_000))), 413, "body"),
    ] {
        assert_eq!(heard.status, status, "{heard:?}");
        assert_eq!(heard.body["faults"][0]["place"].as_str().unwrap_or_default(), place, "{heard:?}");
        assert!(heard.head.contains("content-type: application/problem+json"), "{heard:?}");
        assert!(heard.body["faults"][0]["cause"].is_string(), "{heard:?}");
    }
    let request = |head: &str, body: &str| {
        let len = body.len();
        running.ask(&format!("{head}\r\nhost: x\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{body}"))
    };
    assert_eq!(request("POST /api/v1/fire HTTP/1.1", "{}").status, 415, "without a media type");
    let origin = "GET /api/v1/status HTTP/1.1\r\norigin: http://example.com";
    assert_eq!(request(origin, "").status, 403);
    // Nothing was fired by all that.
    assert_eq!(running.get("dumps?trigger=manual").body["dumps"], json!([]));
    running.end();
}

#[test]
fn broken_slow_and_too_many_clients_cost_their_own_connections() {
    let running = Running::new(&[]);
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /api/v1/status HTTP/9.9\r\n\r\n",
        b"POST /api/v1/fire HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\n{}{}",
        b"POST /api/v1/fire HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
        b"GET /api/v1/status\0 HTTP/1.1\r\nhost: x\r\n\r\n",
    ] {
        let heard = Heard::of(&running.raw(bytes));
        assert!(heard.status == 0 || (400..600).contains(&heard.status), "{heard:?}");
    }
    let long = format!("GET /api/v1/status HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(100_000));
    assert!((400..500).contains(&running.ask(&long).status));
    // A request behind another one, by a length that two readers would read differently: no answer to the second.
    let smuggled = "POST /api/v1/fire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                    content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /api/v1/config HTTP/1.1\r\nhost: x\r\n\r\n";
    let heard = running.raw(smuggled.as_bytes());
    assert!(!String::from_utf8_lossy(&heard).contains("toml"), "{}", String::from_utf8_lossy(&heard));
    // As many as there may be, each with half a request: one more is told to come again, until they are gone.
    let half: Vec<UnixStream> = (0..64)
        .map(|_| {
            let mut stream = UnixStream::connect(running.socket()).unwrap();
            stream.write_all(b"GET /api/v1/sta").unwrap();
            stream
        })
        .collect();
    wait_until("a refusal", || running.get("health/live").status == 503);
    drop(half);
    wait_until("places again", || running.get("health/live").status == 200);
    let metrics = String::from_utf8(running.get("metrics").bytes).unwrap();
    let refused =
        metrics.lines().find_map(|line| line.strip_prefix("wirescope_http_connections_refused_total "));
    assert!(refused.is_some_and(|number| number.parse::<u64>().unwrap() >= 1), "{metrics}");
    running.end();
}

#[test]
fn a_trigger_that_is_disarmed_fires_no_more_until_it_is_armed_or_the_configuration_is_read_again() {
    let place = Place::new();
    let config = place.path("run.toml");
    let write = |note: &str| {
        let text = format!(
            "# {note}\n[[trigger]]\nname = \"often\"\nexpr = \"udp\"\nholdoff = \"0s\"\nafter = \"0s\"\n"
        );
        std::fs::write(&config, text).unwrap();
    };
    write("first");
    let source = ["--source", "synth:rate=2k", "--before", "1ms", "--exit-after", "1000000000"];
    let more = ["--config", config.to_str().unwrap()];
    let started = Started::new(place.command(&[&source[..], &more].concat()));
    let running = Running { place, started };
    wait_until("the run", || running.get("triggers/often").status == 200);
    let fires = || running.get("triggers/often").body;
    let disarmed = running.post("triggers/often/disarm", "");
    assert_eq!((disarmed.status, &disarmed.body), (200, &json!({"trigger": "often", "armed": false})));
    wait_until("it to be disarmed", || fires()["armed"] == false);
    let before = fires()["hits"]["fired"].clone();
    wait_until("hits that start nothing", || fires()["hits"]["disarmed"].as_u64() > Some(1000));
    assert_eq!(fires()["hits"]["fired"], before);
    let done = running.command(&["triggers", "arm", "often"]);
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "often: armed\n"), "{}", done.stderr);
    wait_until("fires", || fires()["hits"]["fired"].as_u64() > before.as_u64());
    let done = running.command(&["triggers", "disarm", "often"]);
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "often: disarmed\n"), "{}", done.stderr);
    wait_until("it to be disarmed", || fires()["armed"] == false);
    write("second");
    assert_eq!(running.post("reload", "").status, 202);
    wait_until("the configuration's word", || fires()["armed"] == true);
    for route in ["triggers/none/arm", "triggers/manual/disarm"] {
        assert_eq!(running.post(route, "").status, 404, "{route}");
    }
    running.started.signal(libc::SIGINT);
    running.started.finish(LIMIT);
}

#[test]
fn triggers_are_added_changed_and_removed_while_the_run_goes() {
    let running = Running::new(&[]);
    let added = running
        .post("triggers", r#"{"name": "more", "filter": "udp", "dump": "host $srcIP", "after": "0s"}"#);
    assert_eq!((added.status, &added.body["trigger"]), (201, &json!("more")), "{added:?}");
    let toml = "[[trigger]]\nname = \"more\"\nexpr = \"udp\"\ndump = \"host $srcIP\"\nafter = \"0s\"\n";
    assert_eq!(added.body["toml"], toml);
    assert!(added.head.contains("location: /api/v1/triggers/more"), "{added:?}");
    wait_until("fires", || running.get("triggers/more").body["hits"]["fired"].as_u64() > Some(0));
    let more = running.get("triggers/more").body;
    // What it doesn't say is as the run was told.
    assert_eq!((&more["before_ns"], &more["after_ns"]), (&json!(200_000_000), &json!(0)));
    let put = |name: &str, body: &str| {
        let len = body.len();
        running.ask(&format!(
            "PUT /api/v1/triggers/{name} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {len}\r\nconnection: close\r\n\r\n{body}"
        ))
    };
    assert_eq!(put("more", r#"{"filter": "udp port 60000", "holdoff": "5s"}"#).status, 200);
    wait_until("the change", || running.get("triggers/more").body["filter"] == "udp port 60000");
    let delete = |name: &str| {
        running
            .ask(&format!("DELETE /api/v1/triggers/{name} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    };
    for (heard, status, place) in [
        (running.post("triggers", r#"{"name": "more", "filter": "udp"}"#), 409, "name"),
        (running.post("triggers", r#"{"name": "x", "filter": "prot 80"}"#), 400, "filter"),
        (running.post("triggers", r#"{"name": "manual", "filter": "udp"}"#), 400, "name"),
        (running.post("triggers", r#"{"name": "a b", "filter": "udp"}"#), 400, ""),
        (running.post("triggers", r#"{"name": "x", "filter": "udp", "dump": "host $nix"}"#), 400, "dump"),
        (running.post("triggers", r#"{"name": "x", "filter": "udp", "before": "soon"}"#), 400, "before"),
        (running.post("triggers", r#"{"name": "x", "filter": "udp", "exec": "sh"}"#), 400, "exec"),
        (running.post("triggers", ""), 400, "body"),
        (put("none", r#"{"filter": "udp"}"#), 404, "name"),
        (put("more", r#"{"filter": "udp", "name": "less"}"#), 400, "name"),
        (delete("none"), 404, "name"),
        (delete("manual"), 404, "name"),
    ] {
        assert_eq!(heard.status, status, "{heard:?}");
        if !place.is_empty() {
            assert_eq!(heard.body["faults"][0]["place"], place, "{heard:?}");
        }
    }
    assert_eq!(delete("more").status, 200);
    wait_until("it to be gone", || running.get("triggers/more").status == 404);
    let done = running.command(&["triggers", "add", "less", "--filter", "udp port 53", "--holdoff", "1s"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(
        done.stdout.contains("[[trigger]]\nname = \"less\"\nexpr = \"udp port 53\"\n"),
        "{}",
        done.stdout
    );
    wait_until("it", || running.get("triggers/less").status == 200);
    let done = running.command(&["triggers", "change", "less", "--before", "7ms"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    wait_until("the change", || running.get("triggers/less").body["before_ns"] == 7_000_000);
    assert_eq!(running.get("triggers/less").body["holdoff_ns"], 1_000_000_000);
    let done = running.command(&["triggers", "remove", "less"]);
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "less: removed\n"), "{}", done.stderr);
    running.started.signal(libc::SIGINT);
    let done = running.started.finish(LIMIT);
    assert!(matches!(done.code(), Some(0 | 1)), "{}", done.stderr); // hits of `more` may have been too many
    assert!(done.summary().hits["more"].fired > 0, "{}", done.stdout);
}

#[test]
fn spans_of_the_store_are_held_and_let_go() {
    let place = Place::new();
    let stores = ["a", "b"].map(|name| place.path(name));
    let [a, b] = [0, 1].map(|at: usize| stores[at].to_str().unwrap().to_string());
    let running = Running::at(place, &["--store", &a, "--store", &b]);
    assert_eq!(running.get("holds").body, json!({"holds": []}));
    let held = running.post("holds", r#"{"from": "@1700000000", "to": "@1700003600", "note": "incident 7"}"#);
    assert_eq!((held.status, &held.body["volumes"]), (201, &json!(2)), "{held:?}");
    let id = held.body["id"].as_u64().unwrap();
    assert_eq!(running.get("holds").body["holds"][0]["note"], "incident 7");
    for store in [&a, &b] {
        let listed = finish(wirescope(&["hold", "list", "--store", store]));
        assert!(listed.stdout.contains("incident 7"), "{}", listed.stdout);
    }
    let delete = |id: &str| {
        running.ask(&format!("DELETE /api/v1/holds/{id} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    };
    assert_eq!((delete("77").status, delete("x").status), (404, 404));
    assert_eq!(running.post("holds", r#"{"from": "@2", "to": "@1"}"#).status, 400);
    assert_eq!(delete(&id.to_string()).status, 200);
    assert_eq!(running.get("holds").body, json!({"holds": []}));
    running.end();
    let without = Running::new(&[]);
    assert_eq!(without.get("holds").body, json!({"holds": []}));
    let refused = without.post("holds", r#"{"from": "@1", "to": "@2"}"#);
    assert_eq!((refused.status, &refused.body["faults"][0]["cause"]), (400, &json!("this run has no store")));
    without.end();
}

#[test]
fn orders_and_looks_at_packets_are_lines_of_the_audit_refused_ones_too() {
    let running = Running::new(&["--status-every", "1s"]);
    let fired = running.post("fire", r#"{"filter": "udp port 60000", "wait": true}"#);
    assert_eq!(fired.status, 200);
    assert_eq!(running.get(&format!("dumps/{}/file", fired.body["id"])).status, 200);
    assert_eq!(running.post("fire", r#"{"filter": "prot 80"}"#).status, 400);
    assert_eq!(running.get("status").status, 200); // no line
    let audit = running.get("audit");
    assert_eq!(audit.status, 200);
    let text = std::fs::read_to_string(running.place.out().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<(&str, u64)> = lines
        .iter()
        .map(|line| (line["action"].as_str().unwrap(), line["status"].as_u64().unwrap()))
        .collect();
    assert_eq!(said, [("Fire", 200), ("DumpFile", 200), ("Fire", 400), ("Audit", 200)]);
    assert_eq!((&lines[0]["what"]["filter"], &lines[0]["role"]), (&json!("udp port 60000"), &json!("admin")));
    let newest = lines[3]["chain"].as_str().unwrap();
    wait_until("a status line with the newest hash", || {
        let log = running.place.log();
        log.lines().any(|line| line.contains("\"event\":\"status\"") && line.contains(newest))
    });
    running.end();
}

#[test]
fn events_go_on_where_a_client_was() {
    let running = Running::new(&[]);
    let read = |last: &str, until: &str| {
        let mut stream = UnixStream::connect(running.socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: x\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (mut heard, mut part) = (String::new(), [0; 4096]);
        while !heard.contains(until) {
            let bytes = stream.read(&mut part).unwrap();
            assert!(bytes > 0, "{heard}");
            heard.push_str(&String::from_utf8_lossy(&part[..bytes]));
        }
        heard
    };
    let whole = read("last-event-id: 0\r\n", "event: dump\n");
    assert!(
        whole.contains("content-type: text/event-stream") && whole.contains("id: 1\nevent: start\n"),
        "{whole}"
    );
    let rest = read("last-event-id: 1\r\n", "event: dump\n");
    assert!(rest.contains("id: 2\nevent: machine\n") && !rest.contains("event: start\n"), "{rest}");
    let refused = running
        .ask("GET /api/v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: x\r\nconnection: close\r\n\r\n");
    assert_eq!(refused.status, 400);
    // Who follows from now on gets what comes, and the end with the run.
    let (mut follower, heard) = (wirescope(&["watch", "--control"]), running.place.path("heard"));
    follower.arg(running.socket()).stdout(File::create(&heard).unwrap());
    let mut follower = follower.spawn().unwrap();
    wait_until("the follower's connection and an event", || {
        running.post("fire", r#"{"wait": true}"#);
        std::fs::read_to_string(&heard).unwrap().contains(" dump: ")
    });
    let (_place, _) = running.end();
    assert_eq!(follower.wait().unwrap().code(), Some(0));
}

#[test]
fn the_command_line_asks_and_orders() {
    let running = Running::new(&[]);
    wait_until("the packet", || running.get("triggers/probe").body["hits"]["fired"] == 1);
    let said = |words: &[&str], part: &str| {
        let done = running.command(words);
        assert_eq!(done.code(), Some(0), "{words:?}: {}", done.stderr);
        assert!(done.stdout.contains(part), "{words:?}: {}", done.stdout);
    };
    said(&["status"], ": capturing for ");
    said(&["status", "--json"], "\"state\":\"capturing\"");
    said(&["losses"], "dropped: nothing\n");
    said(&["triggers", "list"], "probe: armed, udp port 60000; 1 hit, 1 fired\n");
    // A dump that lacks something, as what was before the run, is exit code 1.
    let fired =
        running.command(&["fire", "--filter", "udp port 60000", "--before", "1m", "-w", "got.pcapng"]);
    assert_eq!(fired.code(), Some(1), "{}", fired.stderr);
    assert!(fired.stdout.contains("dump 2 of manual: 1 packet, "), "{}", fired.stdout);
    let got = oracle::read(running.place.path("got.pcapng")).unwrap();
    assert_eq!(got.capture.packets.len(), 1);
    said(&["fire", "probe", "--wait"], " of probe: ");
    said(&["dumps", "list"], "dump 2 of manual: 1 packet, ");
    said(&["dumps", "show", "2", "--json"], "\"id\":2");
    said(&["dumps", "get", "2", "-w", "again.pcapng"], "");
    let [one, other] =
        ["got.pcapng", "again.pcapng"].map(|name| std::fs::read(running.place.path(name)).unwrap());
    assert!(one == other);
    said(&["dumps", "delete", "2"], "removed ");
    let refused = |words: &[&str], code: i32, part: &str| {
        let done = running.command(words);
        assert_eq!(done.code(), Some(code), "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{words:?}: {}", done.stderr);
    };
    refused(&["dumps", "show", "77"], 2, "this run has no dump 77");
    refused(&["fire", "none"], 2, "there is no trigger 'none'");
    refused(&["fire", "--filter", "prot 80"], 2, "syntax error");
    refused(&["fire", "-w", "got.pcapng"], 2, "exists and is never overwritten");
    refused(&["dumps", "get", "2", "-w", "third.pcapng"], 2, "was removed or moved");
    assert!(!running.place.path("third.pcapng").exists());
    let nobody = finish(wirescope(&["status", "--control", "/nonexistent.sock"]));
    assert_eq!(nobody.code(), Some(2));
    assert!(
        nobody.stderr.contains("check the path, and whether the instance is running"),
        "{}",
        nobody.stderr
    );
    running.end();
}

#[test]
fn a_socket_that_cannot_be_had_stops_only_who_asked_for_it() {
    let running = Running::new(&[]);
    let socket = running.socket();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    let second = |arguments: &[&str]| {
        let source = ["--source", "synth:packets=1000,pace=max", "--summary", "json", "--ring", "64MiB"];
        let mut command = wirescope(&[&["run"], &source[..], arguments].concat());
        command.current_dir(running.place.root());
        finish(command)
    };
    let out = running.place.out();
    let done = second(&["--out", out.to_str().unwrap()]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("no control socket: --control: "), "{}", done.stderr);
    assert!(done.stderr.contains("another instance listens at it"), "{}", done.stderr);
    let done = second(&["--out", out.to_str().unwrap(), "--control-role", "operator"]);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("it is the role of a group, and none is given"), "{}", done.stderr);
    let given = |path: &Path| second(&["--out", out.to_str().unwrap(), "--control", path.to_str().unwrap()]);
    let done = given(&socket);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert_eq!(running.get("health/live").status, 200, "the first one goes on");
    std::fs::write(running.place.path("file"), "").unwrap();
    for (path, part) in [
        (running.place.path("file"), "it exists, and is no socket"),
        (running.place.path(&"x".repeat(110)), "a socket's path has at most 107 bytes"),
        (running.place.path("none/x.sock"), "there is no folder"),
    ] {
        let done = given(&path);
        assert_eq!(done.code(), Some(2), "{}", done.stderr);
        assert!(
            done.stderr.split_whitespace().collect::<Vec<_>>().join(" ").contains(part),
            "{}",
            done.stderr
        );
    }
    // One that is left over is replaced: also one that a run couldn't take away, in a folder that isn't its own.
    let left = running.place.path("left.sock");
    drop(UnixListener::bind(&left).unwrap());
    assert_eq!(given(&left).code(), Some(0));
    assert_eq!(given(&left).code(), Some(0));
    running.end();
    let off = Running::new(&["--control", "off"]);
    off.place.wait_for_start();
    assert!(!off.socket().exists());
    off.end();
}

#[test]
fn others_get_in_only_by_the_group_and_do_only_what_its_role_may() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let binary = place.binary_for_all();
    place.open_to_all();
    std::fs::set_permissions(place.out(), PermissionsExt::from_mode(0o755)).unwrap();
    // Neither the folder's owner, whom the run becomes, nor anybody else.
    let (user, group, stranger) = (64_010, 64_011, 64_012);
    chown(place.out(), Some(user), Some(user)).unwrap();
    let run_as = user.to_string();
    let group_text = group.to_string();
    let running =
        Running::at(place, &["--user", &run_as, "--control-group", &group_text, "--control-role", "analyst"]);
    assert!(std::fs::metadata(running.socket()).unwrap().file_type().is_socket());
    let as_user = |uid: u32, gid: u32, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_string()]);
        command.arg(&binary).args(words).arg("--control").arg(running.socket()).current_dir("/");
        finish(command)
    };
    assert_eq!(as_user(user, user, &["status"]).code(), Some(0), "the run's user");
    assert_eq!(as_user(stranger, group, &["status"]).code(), Some(0), "a member of the group");
    assert_eq!(as_user(stranger, group, &["fire", "--wait"]).code(), Some(0), "an analyst fires");
    let refused = as_user(stranger, group, &["dumps", "delete", "1"]);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("it needs the role operator"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--control-role operator"), "{}", refused.stderr);
    for uid in [stranger, NOBODY] {
        let refused = as_user(uid, uid, &["status"]);
        assert_eq!(refused.code(), Some(2));
        assert!(refused.stderr.contains("ask as root, or as the run's user"), "{}", refused.stderr);
    }
    // Also where a connection can be had: the mode of the socket isn't all that stands in the way.
    std::fs::set_permissions(running.socket(), PermissionsExt::from_mode(0o666)).unwrap();
    let refused = as_user(stranger, stranger, &["status"]);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("it needs the role viewer"), "{}", refused.stderr);
    running.end();
}

#[test]
fn a_client_that_goes_away_in_the_middle_and_one_that_reads_nothing_do_no_harm() {
    let running = Running::new(&["--ring", "256MiB"]);
    wait_until("packets of some megabytes", || {
        running.get("status").body["received"]["bytes"].as_u64() > Some(8_000_000)
    });
    let id = running.post("fire", r#"{"before": "1m", "wait": true}"#).body["id"].as_u64().unwrap();
    let request = format!("GET /api/v1/dumps/{id}/file HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut silent = Vec::new();
    for at in 0..40 {
        let mut stream = UnixStream::connect(running.socket()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut some = [0; 100];
        assert!(stream.read(&mut some).unwrap() > 0, "its answer has begun");
        if at % 2 == 0 {
            silent.push(stream); // more of them than there are threads for reads
        }
    }
    assert_eq!(running.get("status").body["adds_up"], true);
    // Whoever orders something, and whoever reads, is answered all the same.
    assert_eq!(running.post("fire", r#"{"before": "1ms", "wait": true}"#).status, 200);
    assert!(running.get(&format!("dumps/{id}/file")).bytes.len() > 2_000_000);
    drop(silent);
    // Who goes away behind an order has ordered it, also where it is gone before anybody looked at it.
    for at in 0..20 {
        let note = format!("gone-{at}.");
        let body = format!(r#"{{"note": "{note}", "after": "10ms", "before": "1ms", "wait": true}}"#);
        let (kind, len) = ("content-type: application/json\r\n", body.len());
        let head = format!("POST /api/v1/fire HTTP/1.1\r\nhost: x\r\n{kind}content-length: {len}\r\n\r\n");
        UnixStream::connect(running.socket()).unwrap().write_all((head + &body).as_bytes()).unwrap();
        wait_until("its line of the audit", || {
            std::fs::read_to_string(running.place.out().join("audit.jsonl")).unwrap().contains(&note)
        });
    }
    let (_, done) = running.end();
    assert!(done.summary().hits["probe"].fired > 0);
}
