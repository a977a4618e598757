//! The OpenAPI document against a run: what each route answers is what the document says of it, key by key.

mod door;
mod run;

use run::asking::{Heard, Running};
use run::{Place, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What of a schema says nothing of a value.
const WORDS: [&str; 3] = ["description", "default", "format"];

/// Where a value isn't as its schema says.
fn faults(document: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let fault = |what: String| format!("{place}: {what}");
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return faults(document, schema, value, place, found);
    }
    let is = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type: {other}"),
    };
    for (keyword, said) in schema.as_object().unwrap() {
        match keyword.as_str() {
            word if WORDS.contains(&word) => {}
            "type" => {
                let kinds: Vec<&str> = match said {
                    Value::String(kind) => vec![kind],
                    kinds => kinds.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect(),
                };
                if !kinds.into_iter().any(is) {
                    found.push(fault(format!("{value} is no {said}")));
                }
            }
            "enum" if !said.as_array().unwrap().contains(value) => {
                found.push(fault(format!("{value} is none of {said}")));
            }
            "minItems" if (value.as_array().unwrap().len() as u64) < said.as_u64().unwrap() => {
                found.push(fault("it is too short".to_string()));
            }
            "enum" | "minItems" => {}
            "required" => {
                let missing = |key: &&Value| value.is_object() && value.get(key.as_str().unwrap()).is_none();
                let missing: Vec<&Value> = said.as_array().unwrap().iter().filter(missing).collect();
                if !missing.is_empty() {
                    found.push(fault(format!("there is no {missing:?}")));
                }
            }
            "properties" => {
                for (key, schema) in said.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        faults(document, schema, value, &format!("{place}.{key}"), found);
                    }
                }
            }
            "additionalProperties" => {
                let known = |key: &String| schema["properties"].get(key).is_some();
                for (key, value) in value.as_object().into_iter().flatten().filter(|(key, _)| !known(key)) {
                    match said {
                        Value::Bool(false) => found.push(fault(format!("the document has no {key}"))),
                        schema => faults(document, schema, value, &format!("{place}.{key}"), found),
                    }
                }
            }
            "items" => {
                for (at, value) in value.as_array().into_iter().flatten().enumerate() {
                    faults(document, said, value, &format!("{place}[{at}]"), found);
                }
            }
            "anyOf" | "oneOf" => {
                let of = |schema: &Value| {
                    let mut found = Vec::new();
                    faults(document, schema, value, place, &mut found);
                    found
                };
                let each: Vec<Vec<String>> = said.as_array().unwrap().iter().map(of).collect();
                let fits = each.iter().filter(|faults| faults.is_empty()).count();
                if fits == 0 || keyword == "oneOf" && fits > 1 {
                    let nearest = each.into_iter().min_by_key(Vec::len).unwrap_or_default();
                    found.push(fault(format!("it fits {fits} of {keyword}; {}", nearest.join("; "))));
                }
            }
            other => panic!("the test knows no {other}"),
        }
    }
}

/// A run, what its document says, and which answers were held against it.
struct Held {
    running: Running,
    document: Value,
    asked: BTreeSet<String>,
}

impl Held {
    /// Asks by HTTP/1.0, which has no chunks, and holds the answer against what the document says of this method and path.
    fn ask(&mut self, method: &str, path: &str, route: &str, body: &str) -> Heard {
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let len = body.len();
        let heard = self
            .running
            .ask(&format!("{method} /api/v1/{route} HTTP/1.0\r\n{kind}content-length: {len}\r\n\r\n{body}"));
        let operation = &self.document["paths"][format!("/api/v1/{path}")][method.to_lowercase()];
        assert!(operation.is_object(), "the document has no {method} {path}");
        let mut response = &operation["responses"][heard.status.to_string()];
        assert!(response.is_object(), "{method} {route}: the document has no {}: {heard:?}", heard.status);
        if let Some(reference) = response["$ref"].as_str() {
            response = self.document.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        }
        let kind = heard.head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or("none");
        let kind = kind.split(';').next().unwrap().trim();
        let schema = &response["content"][kind]["schema"];
        assert!(schema.is_object(), "{method} {route}: the document has no {kind} of {}", heard.status);
        if kind.ends_with("json") {
            let mut found = Vec::new();
            faults(&self.document, schema, &heard.body, "", &mut found);
            assert!(found.is_empty(), "{method} {route}: {found:#?}\n{heard:?}");
        }
        self.asked.insert(format!("{method} {path} {}", heard.status));
        heard
    }

    fn get(&mut self, path: &str, more: &str) -> Heard {
        self.ask("GET", path, &format!("{path}{more}"), "")
    }
}

fn running() -> Running {
    let place = Place::new();
    let config = place.path("run.toml");
    let text = "[[trigger]]\nname = \"probe\"\nexpr = \"udp port 60000\"\n\
                [[trigger]]\nname = \"scan\"\nexpr = \"tcp port 1\"\ndump = \"host $srcIP\"\nholdoff = \"1h\"\n";
    std::fs::write(&config, text).unwrap();
    let store = place.path("store");
    let (store, config) = (store.to_str().unwrap().to_string(), config.to_str().unwrap().to_string());
    let own = ["--source", "synth:rate=5k,trigger-at=1s", "--before", "200ms", "--after", "100ms"];
    let db = place.path("x.sqlite").to_str().unwrap().to_string();
    let statistics = ["--db", &db, "--db-interval", "1s"];
    let attach = place.path("attach").to_str().unwrap().to_string();
    let attach = ["--attach", &attach, "--attach-ring", "root"];
    let more = ["--store", &store, "--config", &config, "--status-every", "1s"];
    let more = [&more[..], &attach].concat();
    let more = [&more[..], &statistics].concat();
    Running::bare(place, &[&own[..], &more].concat())
}

#[test]
fn what_a_run_answers_is_as_its_document_says() {
    let running = running();
    let document = running.get("openapi.json").body;
    let mut held = Held { running, document, asked: BTreeSet::new() };
    wait_until("the first dump", || held.running.get("dumps/1").body["state"] == "finished");
    wait_until("the log", || held.running.get("doctor").status == 200);
    for path in [
        "health/live",
        "health/ready",
        "status",
        "sources",
        "ring",
        "stores",
        "groups",
        "holds",
        "losses",
        "devices",
        "doctor",
        "config",
        "version",
        "triggers",
        "signals",
        "dumps",
        "packets",
        "metrics",
        "openapi.json",
        "instances",
    ] {
        assert_eq!(held.get(path, "").status, 200, "{path}");
    }
    held.get("losses", "?from=-10s&step=1s");
    held.get("dumps", "?limit=1");
    for form in ["count=true", "top=host", "top=port", "top=pair", "top=proto", "timeline=true&step=1s"] {
        assert_eq!(held.get("packets", &format!("?{form}&from=-2s")).status, 200, "{form}");
    }
    for form in ["format=pcap", "format=json&limit=1"] {
        assert_eq!(held.get("packets", &format!("?{form}&from=-2s")).status, 200, "{form}");
    }
    // Statistics.
    wait_until("an interval", || held.running.get("stats/top").status == 200);
    for path in ["stats", "stats/files", "stats/top", "flows"] {
        assert_eq!(held.get(path, "").status, 200, "{path}");
    }
    for form in ["by=flows&dim=port", "dim=pair", "dim=vlan", "by=packets&limit=1"] {
        assert_eq!(held.get("stats/top", &format!("?{form}")).status, 200, "{form}");
    }
    assert_eq!(held.get("flows", "?format=csv").status, 200);
    assert_eq!(held.ask("GET", "stats/files/{id}", "stats/files/x.sqlite", "").status, 200);
    assert_eq!(held.ask("GET", "stats/files/{id}", "stats/files/77", "").status, 404);
    for statement in ["SELECT * FROM intervals", "SELECT 1.5, NULL, 'x'"] {
        let body = json!({"sql": statement}).to_string();
        assert_eq!(held.ask("POST", "stats/sql", "stats/sql", &body).status, 200, "{statement}");
    }
    assert_eq!(held.ask("POST", "stats/sql", "stats/sql", r#"{"sql": "DELETE FROM flows"}"#).status, 400);
    // Orders.
    held.ask("GET", "triggers/{name}", "triggers/scan", "");
    assert_eq!(held.ask("GET", "signals/{name}", "signals/pps?step=1s", "").status, 200);
    held.ask("GET", "dumps/{id}", "dumps/1", "");
    held.ask("GET", "dumps/{id}/file", "dumps/1/file", "");
    let fire = r#"{"filter": "udp", "before": "10ms", "after": "100ms"}"#;
    let fired = held.ask("POST", "fire", "fire", fire);
    assert_eq!(fired.status, 202);
    held.ask("GET", "dumps/{id}", &format!("dumps/{}", fired.body["dump"]), "");
    let fired = held.ask("POST", "fire", "fire", r#"{"filter": "udp", "before": "10ms", "wait": true}"#);
    assert_eq!(fired.status, 200);
    held.ask("DELETE", "dumps/{id}", &format!("dumps/{}", fired.body["id"]), "");
    held.ask("GET", "dumps/{id}/file", &format!("dumps/{}/file", fired.body["id"]), "");
    let open = held.ask("POST", "fire", "fire", r#"{"filter": "udp", "after": "300d"}"#).body["dump"].clone();
    assert_eq!(held.ask("POST", "dumps/{id}/end", &format!("dumps/{open}/end"), "").status, 202);
    let probe = "triggers/{name}/fire";
    assert_eq!(held.ask("POST", probe, "triggers/probe/fire", r#"{"wait": true}"#).status, 200);
    for order in ["disarm", "arm"] {
        let path = format!("triggers/{{name}}/{order}");
        assert_eq!(held.ask("POST", &path, &format!("triggers/scan/{order}"), "").status, 200);
    }
    let trigger = r#"{"name": "more", "filter": "tcp port 2"}"#;
    for status in [201, 409] {
        assert_eq!(held.ask("POST", "triggers", "triggers", trigger).status, status);
    }
    let change = r#"{"filter": "tcp port 3", "dump": "host $srcIP"}"#;
    assert_eq!(held.ask("PUT", "triggers/{name}", "triggers/more", change).status, 200);
    held.get("triggers", "");
    for status in [200, 404] {
        assert_eq!(held.ask("DELETE", "triggers/{name}", "triggers/more", "").status, status);
    }
    let hold = held.ask("POST", "holds", "holds", r#"{"from": "-1h", "to": "now", "note": "x"}"#);
    assert_eq!(hold.status, 201);
    held.get("holds", "");
    assert_eq!(held.ask("DELETE", "holds/{id}", &format!("holds/{}", hold.body["id"]), "").status, 200);
    assert_eq!(held.ask("POST", "reload", "reload", "").status, 202);
    let json = "hooks/json/{name}";
    assert_eq!(held.ask("POST", json, "hooks/json/scan", r#"{"srcIP": "10.0.0.1"}"#).status, 202);
    assert_eq!(held.ask("POST", json, "hooks/json/scan", r#"{"srcIP": "x"}"#).status, 422);
    let alerts = json!({"version": "4", "alerts": [
        {"status": "firing", "labels": {"alertname": "scan", "srcIP": "10.0.0.2"}}, {"status": "resolved", "labels": {}},
    ]});
    assert_eq!(held.ask("POST", "hooks/alertmanager", "hooks/alertmanager", &alerts.to_string()).status, 202);
    held.get("audit", "");
    // Refusals are in it as well.
    for (method, path, route, body, status) in [
        ("GET", "dumps", "dumps?limit=0", "", 400),
        ("GET", "dumps/{id}", "dumps/77", "", 404),
        ("POST", "fire", "fire", "{", 400),
        ("POST", "reload", "reload?x=1", "", 400),
    ] {
        assert_eq!(held.ask(method, path, route, body).status, status, "{route}");
    }
    // Each route but the events, which don't end, was asked.
    for (path, operations) in held.document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().filter(|method| *method != "head") {
            let begin = format!("{} {} 2", method.to_uppercase(), path.strip_prefix("/api/v1/").unwrap());
            let is_asked = held.asked.iter().any(|asked| asked.starts_with(&begin));
            assert!(is_asked || path.ends_with("/events"), "{begin}: {:?}", held.asked);
        }
    }
    held.running.end();
}

#[test]
fn the_document_has_the_headers_and_trailers_that_a_run_sends_and_none_else() {
    let running = Running::new(&[]);
    let operations = running.get("openapi.json").body["paths"]["/api/v1/packets"].clone();
    let named = |value: &Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().filter(|key| key.starts_with("wirescope-")).cloned().collect()
    };
    let told = |text: &str| -> BTreeSet<String> {
        let names = text.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_string()));
        names.filter(|name| name.starts_with("wirescope-")).collect()
    };
    let ask = |method: &str| {
        running.ask(&format!(
            "{method} /api/v1/packets?from=-1s HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: close\r\n\r\n"
        ))
    };
    let head = ask("HEAD");
    assert_eq!((head.status, head.bytes.len()), (200, 0), "{head:?}");
    assert_eq!(told(&head.head), named(&operations["head"]["responses"]["200"]["headers"]));
    let got = ask("GET");
    let response = &operations["get"]["responses"]["200"];
    assert_eq!(told(&got.head), named(&response["headers"]));
    assert_eq!(told(&got.trailers), named(&response["x-trailers"]), "{}", got.trailers);
    running.end();
}

#[test]
fn what_a_door_to_the_network_answers_itself_is_as_the_document_says() {
    let running = Running::new(&[]);
    let tokens = running.place.path("tokens");
    let token = door::token(&tokens, &["--role", "viewer", "--name", "v"]);
    let serving = door::Serving::new(&tokens, &[running.socket().display().to_string()], &[]);
    let document = serving.get(&token, "openapi.json").body;
    let heard = serving.get(&token, "instances");
    assert_eq!(heard.status, 200, "{heard:?}");
    let schema = &document["paths"]["/api/v1/instances"]["get"]["responses"]["200"]["content"]["application/json"]
        ["schema"];
    let mut found = Vec::new();
    faults(&document, schema, &heard.body, "", &mut found);
    assert!(found.is_empty(), "{found:#?}\n{heard:?}");
    serving.end();
    running.end();
}
