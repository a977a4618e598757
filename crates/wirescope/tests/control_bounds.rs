//! Bounds at the control socket: how fast, how far back, which files; and what is known of host and losses without rights.

mod run;

use run::asking::Running;
use run::{NOBODY, Place, Started, finish, is_root, wait_until, wirescope};
use serde_json::{Value, json};
use std::os::unix::fs::chown;

#[test]
fn who_asks_too_often_is_told_to_come_again() {
    let place = Place::new();
    let started = Started::new(place.command(&["--source", "synth:rate=1k", "--control-rate", "1"]));
    let running = Running { place, started };
    wait_until("the run to listen", || running.socket().exists());
    let mut refused = None;
    wait_until("a refusal", || {
        refused = Some(running.get("version")).filter(|heard| heard.status == 429);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert!(refused.head.contains("\r\nretry-after: 1"), "{refused:?}");
    assert!(refused.head.contains("content-type: application/problem+json"), "{refused:?}");
    assert_eq!(refused.body["faults"][0]["cause"], "more than 1 requests a second");
    let mut counted = String::new();
    wait_until("another second", || {
        let heard = running.get("metrics");
        counted = String::from_utf8_lossy(&heard.bytes).into_owned();
        heard.status == 200
    });
    let line = counted.lines().find_map(|line| line.strip_prefix("wirescope_http_requests_limited_total "));
    assert!(line.is_some_and(|count| count.parse::<u64>().unwrap() >= 1), "{counted}");
    running.end();
}

#[test]
fn a_window_reaches_a_year_at_most() {
    let running = Running::new(&[]);
    for key in ["before", "after"] {
        let heard = running.post("fire", &format!("{{\"{key}\": \"367d\"}}"));
        assert_eq!((heard.status, &heard.body["faults"][0]["place"]), (400, &json!(key)), "{heard:?}");
        assert_eq!(heard.body["faults"][0]["cause"], "'367d' is more than a year");
    }
    running.end();
}

#[test]
fn a_file_is_deleted_only_where_it_says_that_it_is_of_the_dump() {
    let running = Running::new(&["--dump-format", "pcap"]);
    let fire =
        || running.post("fire", r#"{"filter": "udp", "before": "10ms", "wait": true}"#).body["id"].clone();
    // With the text that says whose it is.
    let first = fire();
    let deleted = running.delete(&format!("dumps/{first}"));
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let removed: Vec<&str> =
        deleted.body["removed"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(removed.len() == 2 && removed[1].ends_with(".txt"), "{removed:?}");
    assert!(!removed.iter().any(|name| running.place.out().join(name).exists()), "{removed:?}");
    running.end();

    let running = Running::new(&[]);
    let fire =
        || running.post("fire", r#"{"filter": "udp", "before": "10ms", "wait": true}"#).body["id"].clone();
    let second = fire();
    let third = fire();
    let [second_path, third_path] = [&second, &third]
        .map(|id| running.get(&format!("dumps/{id}")).body["path"].as_str().unwrap().to_string());
    // Somebody puts another file, and another dump, under its name.
    std::fs::copy(&third_path, &second_path).unwrap();
    let refused = running.delete(&format!("dumps/{second}"));
    assert_eq!((refused.status, &refused.body["faults"][0]["place"]), (409, &json!("file")), "{refused:?}");
    std::fs::write(&second_path, "somebody's own").unwrap();
    assert_eq!(running.delete(&format!("dumps/{second}")).status, 409);
    assert_eq!(std::fs::read_to_string(&second_path).unwrap(), "somebody's own");
    assert_eq!(running.delete(&format!("dumps/{third}")).status, 200);
    assert_eq!(running.delete(&format!("dumps/{third}")).status, 404);
    running.end();
}

#[test]
fn a_socket_in_a_folder_of_its_own_goes_with_its_run_although_that_gave_up_its_rights() {
    let place = Place::new();
    let folder = place.path("sockets");
    std::fs::create_dir(&folder).unwrap();
    let socket = folder.join("lan.sock");
    let mut flags = vec!["--source", "synth:rate=1k", "--control", socket.to_str().unwrap()];
    // As the service has it: the user that it becomes owns the folder.
    if is_root() {
        place.open_to_all();
        for folder in [folder.clone(), place.out()] {
            chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        flags.extend(["--user", "nobody"]);
    }
    let started = Started::new(place.command(&flags));
    wait_until("an answer", || {
        let mut command = wirescope(&["status", "--control"]);
        command.arg(&socket);
        finish(command).code() == Some(0)
    });
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(!socket.exists(), "the socket stays");
}

#[test]
fn devices_and_doctor_say_the_same_as_the_commands_with_their_age() {
    let running = Running::new(&["--status-every", "1s"]);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let told = finish(wirescope(&["devices", "--json"])).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    let heard = running.get("devices").body;
    let names = |value: &Value| {
        let devices = value["devices"].as_array().unwrap().iter();
        devices.map(|device| device["name"].clone()).collect::<Vec<_>>()
    };
    let is_there = |name: &Value| names(&heard).contains(name);
    assert!(is_there(&json!("lo")) && names(&told).contains(&json!("lo")), "{heard}");
    let lo = |value: &Value| {
        let mut devices = value["devices"].as_array().unwrap().iter();
        devices.find(|device| device["name"] == "lo").unwrap().clone()
    };
    let mut expected = keys(&lo(&told));
    expected.push("nic".to_string());
    expected.sort();
    assert_eq!(keys(&lo(&heard)), expected);
    assert!(heard["age_s"].as_f64().unwrap() > 0.0 && heard["counters_age_s"].is_number(), "{heard}");

    wait_until("the log", || running.place.log().contains("\"event\":\"status\""));
    let mut doctor = running.get("doctor");
    wait_until("an answer that knows the run", || {
        doctor = running.get("doctor");
        doctor.status == 200 && doctor.body["state"] == "running"
    });
    let done = finish({
        let mut command = wirescope(&["doctor", "--json", "--out"]);
        command.arg(running.place.out());
        command
    });
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    let mut expected = keys(&told);
    expected.push("age_s".to_string());
    expected.sort();
    assert_eq!(keys(&doctor.body), expected);
    assert_eq!(
        (&doctor.body["run_id"], &doctor.body["loses"]),
        (&told["run_id"], &json!(false)),
        "{doctor:?}"
    );
    assert_eq!(doctor.body["run_id"], running.get("version").body["run"]);
    running.end();
}
