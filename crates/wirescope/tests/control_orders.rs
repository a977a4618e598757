//! Orders to a running instance hold from the moment they are answered: changes of triggers, and fires that belong to a dump
//! that is open already.

mod run;

use run::asking::Running;
use run::{LIMIT, wait_until};
use serde_json::json;

#[test]
fn a_change_holds_when_it_is_answered_and_leaves_what_it_does_not_name() {
    let running = Running::new(&[]);
    let ordered = |words: &[&str]| {
        let done = running.command(words);
        assert_eq!(done.code(), Some(0), "{words:?}: {}", done.stderr);
    };
    ordered(&["triggers", "change", "probe", "--before", "7s"]);
    ordered(&["triggers", "change", "probe", "--after", "3s"]);
    let probe = running.get("triggers/probe").body;
    assert_eq!(
        (&probe["before_ns"], &probe["after_ns"]),
        (&json!(7_000_000_000i64), &json!(3_000_000_000i64))
    );
    ordered(&["triggers", "add", "t1", "--filter", "tcp port 80"]);
    ordered(&["triggers", "change", "t1", "--filter", "tcp port 81"]);
    assert_eq!(running.get("triggers/t1").body["filter"], "tcp port 81");
    ordered(&["triggers", "remove", "t1"]);
    assert_eq!(running.get("triggers/t1").status, 404);
    running.end();
}

#[test]
fn a_trigger_that_was_disarmed_stays_so_when_it_is_changed() {
    let running = Running::new(&[]);
    for words in [&["triggers", "disarm", "probe"][..], &["triggers", "change", "probe", "--before", "9s"]] {
        assert_eq!(running.command(words).code(), Some(0));
    }
    let probe = running.get("triggers/probe").body;
    assert_eq!((&probe["before_ns"], &probe["armed"]), (&json!(9_000_000_000i64), &json!(false)));
    assert_eq!(running.post("triggers/probe/fire", "").status, 409);
    assert_eq!(running.command(&["triggers", "arm", "probe"]).code(), Some(0));
    assert_eq!(running.get("triggers/probe").body["armed"], true);
    running.end();
}

#[test]
fn a_fire_into_an_open_dump_names_it_and_can_be_waited_for() {
    let running = Running::new(&[]);
    let body = r#"{"name": "long", "filter": "udp port 60000", "dump": "udp port 60000", "after": "4s"}"#;
    assert_eq!(running.post("triggers", body).status, 201);
    let first = running.post("triggers/long/fire", "");
    assert_eq!((first.status, &first.body["verdict"]), (202, &json!("fired")), "{first:?}");
    let second = running.post("triggers/long/fire", "");
    assert_eq!((second.status, &second.body["verdict"]), (202, &json!("extended")), "{second:?}");
    assert_eq!(second.body["dump"], first.body["dump"]);
    assert!(second.head.contains(&format!("location: /api/v1/dumps/{}", first.body["dump"])), "{second:?}");
    let waited = running.post("triggers/long/fire", r#"{"wait": true}"#);
    assert_eq!((waited.status, &waited.body["id"]), (200, &first.body["dump"]), "{waited:?}");
    let again = running.post("triggers/long/fire", "");
    assert_eq!((again.status, &again.body["verdict"]), (202, &json!("fired")), "{again:?}");
    let got = running.command(&["fire", "long", "-w", "long.pcapng"]);
    assert_eq!(got.code(), Some(0), "{}", got.stderr);
    assert!(running.place.path("long.pcapng").metadata().unwrap().len() > 0);
    running.end();
}

#[test]
fn an_open_dump_can_be_ended() {
    let running = Running::new(&[]);
    let fired = running.post("fire", r#"{"filter": "udp", "before": "1ms", "after": "300d"}"#);
    let id = fired.body["dump"].as_u64().unwrap();
    wait_until("it to be open", || running.get(&format!("dumps/{id}")).body["state"] == "open");
    assert_eq!(running.delete(&format!("dumps/{id}")).status, 409);
    let done = running.command(&["dumps", "end", &id.to_string()]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    wait_until("it to be finished", || running.get(&format!("dumps/{id}")).body["state"] == "finished");
    let dump = running.get(&format!("dumps/{id}")).body;
    assert_eq!((&dump["complete"], dump["packets"].as_u64() > Some(0)), (&json!(true), true), "{dump}");
    assert_eq!(running.post(&format!("dumps/{id}/end"), "").status, 409);
    assert_eq!(running.post("dumps/77/end", "").status, 404);
    running.end();
}

#[test]
fn what_is_refused_leaves_no_file() {
    let running = Running::new(&[]);
    for (words, file) in [
        (&["fire", "none"][..], "a.pcapng"),
        (&["fire", "--filter", "udp port"], "b.pcapng"),
        (&["dumps", "get", "77"], "c.pcapng"),
    ] {
        let done = running.command(&[words, &["-w", file]].concat());
        assert_eq!(done.code(), Some(2), "{words:?}: {}", done.stderr);
        assert!(!running.place.path(file).exists(), "{words:?}");
    }
    running.end();
}

#[test]
fn a_filter_with_a_character_that_cannot_be_seen_is_refused() {
    let running = Running::new(&[]);
    for body in [r#"{"filter": "\u0000"}"#, r#"{"filter": "udp\u0000"}"#, r#"{"filter": "udp \u001b"}"#] {
        let heard = running.post("fire", body);
        assert_eq!((heard.status, &heard.body["faults"][0]["place"]), (400, &json!("filter")), "{heard:?}");
    }
    let heard = running.get("packets?filter=udp%00&count=true");
    assert_eq!((heard.status, &heard.body["faults"][0]["place"]), (400, &json!("filter")), "{heard:?}");
    // Ends of lines are blanks, as in a file of filters.
    assert_eq!(running.get("packets?filter=udp%0Aport%0960000&count=true").status, 200);
    running.end();
}

#[test]
fn a_file_of_a_dump_is_asked_for_by_its_link_type() {
    let running = Running::new(&[]);
    let fired = running.post("fire", r#"{"wait": true}"#);
    assert_eq!(fired.status, 200, "{fired:?}");
    let file =
        |link_type: &str| running.get(&format!("dumps/{}/file?link_type={link_type}", fired.body["id"]));
    let whole = running.get(&format!("dumps/{}/file", fired.body["id"]));
    for link_type in ["ETHERNET", "ethernet"] {
        assert_eq!(
            (file(link_type).status, file(link_type).bytes),
            (200, whole.bytes.clone()),
            "{link_type}"
        );
    }
    assert_eq!(file("RAW").status, 404);
    for link_type in ["", "1x", "..%2Fx", "%00"] {
        let heard = file(link_type);
        assert_eq!(
            (heard.status, &heard.body["faults"][0]["place"]),
            (400, &json!("link_type")),
            "{heard:?}"
        );
    }
    running.end();
}

#[test]
fn events_of_another_run_are_followed_from_the_first_of_this_one() {
    let running = Running::new(&[]);
    let request = "GET /api/v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: 99999999\r\n\r\n";
    let heard = std::thread::scope(|scope| {
        let heard = scope.spawn(|| running.raw(request.as_bytes()));
        wait_until("the run to have told something", || running.place.log().contains("\"status\""));
        running.started.signal(libc::SIGINT);
        heard.join().unwrap()
    });
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.contains("event: start\n") && heard.contains("event: end\n"), "{heard}");
    assert_eq!(running.started.finish(LIMIT).code(), Some(0));
}

#[test]
fn a_run_without_a_store_says_that_its_ring_has_recycled() {
    let place = run::Place::new();
    let flags = ["--source", "synth:rate=50k,size=1000", "--ring", "16MiB", "--trigger", "udp port 60000"];
    let running = Running::bare(place, &flags);
    let missing = || running.get("packets?from=-1h&count=true").body["missing"].clone();
    let reasons = || -> Vec<String> {
        let missing = missing();
        missing
            .as_array()
            .into_iter()
            .flatten()
            .map(|gap| gap["reason"].as_str().unwrap().to_string())
            .collect()
    };
    wait_until("the ring to turn", || reasons().iter().any(|reason| reason == "evicted"));
    assert!(!reasons().iter().any(|reason| reason == "deleted"), "{:?}", reasons());
    running.started.signal(libc::SIGINT);
    running.started.finish(LIMIT);
}
