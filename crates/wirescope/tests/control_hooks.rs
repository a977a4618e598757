//! Hooks at the control socket: other programs tell of something, and a trigger fires with their values.

mod run;

use run::asking::{Heard, Running};
use run::{Place, wait_until};
use serde_json::{Value, json};

/// A run with two triggers, of which neither fires by itself, and labels of its own choice.
fn running(more: &[&str]) -> Running {
    let place = Place::new();
    let config = place.path("run.toml");
    let text = "[[trigger]]\nname = \"scan\"\nexpr = \"tcp port 1\"\ndump = \"host $srcIP\"\n\
                [[trigger]]\nname = \"port\"\nexpr = \"tcp port 2\"\ndump = \"udp port $dstPort ?: udp\"\n\
                [[trigger]]\nname = \"plain\"\nexpr = \"tcp port 3\"\ndump = \"udp\"\n\
                [[trigger]]\nname = \"hosts\"\nexpr = \"tcp port 4\"\n";
    std::fs::write(&config, text).unwrap();
    let own = ["--source", "synth:rate=2k", "--before", "20ms", "--after", "0s", "--holdoff", "1h"];
    let config = ["--config", config.to_str().unwrap()];
    Running::bare(place, &[&own[..], &config, more].concat())
}

fn alert(status: &str, labels: Value) -> Value {
    json!({"status": status, "labels": labels, "annotations": {}, "startsAt": "2026-11-20T20:31:05Z",
           "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://x/", "fingerprint": "0a"})
}

/// Alertmanager's own body.
fn body(alerts: &[Value]) -> String {
    json!({
        "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "wirescope",
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://x/", "alerts": alerts,
    })
    .to_string()
}

fn place_of(heard: &Heard) -> &str {
    heard.body["faults"][0]["place"].as_str().unwrap_or_default()
}

#[test]
fn alerts_fire_the_triggers_that_they_name_with_their_labels_as_values() {
    let running = running(&["--hook-label", "srcIP=instance", "--hook-label", "dstPort=port"]);
    let alerts = [
        alert(
            "firing",
            json!({"alertname": "scan", "instance": "10.1.2.3", "severity": "or udp", "srcIP": "x"}),
        ),
        alert("resolved", json!({"alertname": "scan", "instance": "10.1.2.4"})),
        alert("firing", json!({"alertname": "port", "port": "60000"})),
        alert("firing", json!({"alertname": "port"})),
        alert("firing", json!({"alertname": "plain"})),
    ];
    let heard = running.post("hooks/alertmanager", &body(&alerts));
    assert_eq!((heard.status, &heard.body["resolved"]), (202, &json!(1)), "{heard:?}");
    let fired = heard.body["fired"].as_array().unwrap();
    assert!(fired.iter().all(|fired| fired["verdict"] == "fired"), "{heard:?}");
    assert_eq!(fired.iter().map(|fired| &fired["alert"]).collect::<Vec<_>>(), [0, 2, 3, 4]);
    for (fired, filter) in fired.iter().zip(["host 10.1.2.3", "udp port 60000", "udp", "udp"]) {
        let route = format!("dumps/{}", fired["dump"]);
        wait_until("the dump", || running.get(&route).body["state"] == "finished");
        let dump = running.get(&route).body;
        assert_eq!((&dump["filter"], &dump["trigger"]), (&json!(filter), &fired["trigger"]), "{dump}");
    }
    let file = running.get(&format!("dumps/{}/file", fired[0]["dump"])).bytes;
    assert!(String::from_utf8_lossy(&file).contains("by a hook: alert scan"));
    // Alertmanager tells of it again and again: that is the same occurrence, which its holdoff holds off; another value is another.
    let again = |instance: &str| {
        let alert = alert("firing", json!({"alertname": "scan", "instance": instance}));
        running.post("hooks/alertmanager", &body(&[alert])).body["fired"][0]["verdict"].clone()
    };
    assert_eq!((again("10.1.2.3"), again("10.1.2.5")), (json!("held_off"), json!("fired")));
    wait_until("the count", || running.get("triggers/scan").body["hits"]["fired"] == 2);
    assert_eq!(running.get("triggers/scan").body["hits"]["held_off"], 1);
    assert_eq!(running.post("hooks/alertmanager", &body(&[])).body["fired"], json!([]));
    running.end();
}

#[test]
fn an_object_of_any_program_fires_the_trigger_of_the_path() {
    let running = running(&["--hook-label", "srcIP=/event/src_ip", "--hook-label", "dstPort=dest"]);
    let object = r#"{"event": {"src_ip": "2001:DB8::1"}, "dest": 53, "dstIP": "not looked at"}"#;
    let heard = running.post("hooks/json/scan", object);
    assert_eq!((heard.status, &heard.body["fired"][0]["verdict"]), (202, &json!("fired")), "{heard:?}");
    let route = format!("dumps/{}", heard.body["fired"][0]["dump"]);
    assert_eq!(running.get(&route).body["trigger"], "scan");
    wait_until("the dump", || running.get(&route).body["filter"] == "host 2001:db8::1");
    let heard = running.post("hooks/json/port", r#"{"dest": 53}"#);
    let route = format!("dumps/{}", heard.body["fired"][0]["dump"]);
    wait_until("the dump", || running.get(&route).body["filter"] == "udp port 53");
    running.end();
}

#[test]
fn without_a_choice_each_name_has_the_label_that_is_called_so_and_two_hosts_are_a_dump_filter() {
    let running = running(&["--hook-trigger", "wirescope"]);
    let labels =
        json!({"alertname": "other", "wirescope": "hosts", "srcIP": "10.0.0.9", "dstIP": "10.0.0.1"});
    let heard = running.post("hooks/alertmanager", &body(&[alert("firing", labels)]));
    assert_eq!(heard.status, 202, "{heard:?}");
    let route = format!("dumps/{}", heard.body["fired"][0]["dump"]);
    wait_until("the dump", || running.get(&route).body["filter"] == "host 10.0.0.1 and host 10.0.0.9");
    running.end();
}

#[test]
fn nothing_fires_where_one_value_is_not_what_its_name_is() {
    let running = running(&["--hook-label", "srcIP=instance", "--hook-label", "dstPort=port"]);
    let good = alert("firing", json!({"alertname": "plain"}));
    let with = |labels: Value| body(&[good.clone(), alert("firing", labels)]);
    for value in ["10.0.0.1 or port 80", "10.0.0.1:9100", "10.0.0.0/8", "example.com", "", "$dstIP", "1\u{0}"]
    {
        let heard =
            running.post("hooks/alertmanager", &with(json!({"alertname": "scan", "instance": value})));
        assert_eq!(
            (heard.status, place_of(&heard)),
            (422, "alerts[1].labels.instance"),
            "{value}: {heard:?}"
        );
    }
    for (labels, place) in [
        (json!({"alertname": "scan"}), "alerts[1].labels.alertname"), // its template needs $srcIP
        (json!({"alertname": "none", "instance": "10.0.0.1"}), "alerts[1].labels.alertname"),
        (json!({"instance": "10.0.0.1"}), "alerts[1].labels.alertname"),
        (json!({"alertname": "port", "port": "99999"}), "alerts[1].labels.port"),
        (json!({"alertname": "port", "port": ["80"]}), "alerts[1].labels.port"),
    ] {
        let heard = running.post("hooks/alertmanager", &with(labels.clone()));
        assert_eq!((heard.status, place_of(&heard)), (422, place), "{labels}: {heard:?}");
    }
    for (route, sent, status, place) in [
        ("hooks/alertmanager", "", 400, "body"),
        ("hooks/alertmanager", "{}", 400, "version"),
        ("hooks/alertmanager", r#"{"version": "4", "alerts": [{"status": "lit"}]}"#, 400, "alerts[0].status"),
        ("hooks/json/scan", "[]", 400, "body"),
        ("hooks/json/scan", "", 400, "body"),
        ("hooks/json/scan", "{}", 422, "name"),
        ("hooks/json/none", "{}", 404, "name"),
        ("hooks/json/scan", r#"{"instance": {"exec": "sh"}}"#, 422, "instance"),
        ("hooks/json/scan", r#"{"instance": true}"#, 422, "instance"),
        ("hooks/json/..%2f..%2fetc", "{}", 404, "name"),
        ("hooks/json/%00", "{}", 400, "path"),
    ] {
        let heard = running.post(route, sent);
        assert_eq!((heard.status, place_of(&heard)), (status, place), "{route} {sent}: {heard:?}");
        assert!(heard.head.contains("content-type: application/problem+json"), "{heard:?}");
    }
    assert_eq!(running.get("dumps").body["dumps"], json!([]), "nothing was fired by all that");
    // Each is a line of the audit, with what was sent.
    let audit = std::fs::read_to_string(running.place.out().join("audit.jsonl")).unwrap();
    assert!(
        audit.contains("\"action\":\"HookAlertmanager\"") && audit.contains("10.0.0.1 or port 80"),
        "{audit}"
    );
    running.end();
}

#[test]
fn no_hook_and_no_trigger_takes_a_command_a_script_or_a_path() {
    let running = running(&[]);
    for key in ["exec", "script", "path", "out", "command", "store"] {
        let object = json!({"name": "x", "filter": "udp", key: "/bin/true"}).to_string();
        let heard = running.post("triggers", &object);
        assert_eq!((heard.status, place_of(&heard)), (400, key), "{heard:?}");
        // Keys that aren't chosen are not looked at.
        let heard = running.post("hooks/json/plain", &json!({key: "/bin/true"}).to_string());
        assert_eq!(heard.status, 202, "{heard:?}");
    }
    running.end();
}
