//! The API as an OpenAPI 3.1 document, made of the table of routes, that of their parameters, and the schemas of their answers.

use crate::schemas;
use scope_api::PREFIX;
use scope_api::parameters::{Kind, Place, headers, parameters};
use scope_api::problem::MEDIA_TYPE;
use scope_api::routes::{Action, ROUTES, Route};
use serde_json::{Map, Value, json};

const DESCRIPTION: &str = "Ask and order a running instance. Who may what: x-role names the weakest role that may ask. HEAD is \
answered wherever GET is, without a body. Of the refusals, 401, 411, 421 and 502 come only from a door to the network (wirescope \
serve). x-trailers stand behind the body, for who sends TE: trailers.";

/// The document.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(format!("{PREFIX}/{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation(route);
        if route.action == Action::Packets {
            path["head"] = head(route);
        }
    }
    let bodies = [
        ("Problem", problem()),
        ("Fire", fire()),
        ("Trigger", trigger()),
        ("Hold", hold()),
        ("Sql", sql()),
        ("Alerts", alerts()),
    ];
    let mut shared: Map<String, Value> = bodies
        .into_iter()
        .chain(schemas::shared())
        .map(|(name, schema)| (name.to_string(), schema))
        .collect();
    for route in ROUTES {
        for (status, schema) in named_answers(route) {
            shared.insert(answer_name(route, status), schema);
        }
    }
    let responses: Map<String, Value> = REFUSALS.iter().map(|refusal| refusal.response()).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Wirescope", "version": "1", "description": DESCRIPTION,
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://localhost", "description": "the instance's Unix socket"}],
        "paths": paths,
        "components": {"schemas": shared, "responses": responses},
    })
}

/// Answers of a route that get a name of their own, since none is shared.
fn named_answers(route: &Route) -> impl Iterator<Item = (u16, Value)> {
    schemas::answers(route.action).into_iter().filter(|(_, schema)| schema.get("$ref").is_none())
}

fn answer_name(route: &Route, status: u16) -> String {
    let status = if status == 503 { "503" } else { "" };
    format!("{:?}Answer{status}", route.action)
}

/// A refusal that several routes have.
struct Refusal {
    status: u16,
    what: &'static str,
    /// Whether it says when it may be tried again.
    retries: bool,
    /// Which routes have it.
    of: fn(&Route) -> bool,
}

const fn refusal(status: u16, what: &'static str, of: fn(&Route) -> bool) -> Refusal {
    Refusal { status, what, retries: false, of }
}

const fn later(status: u16, what: &'static str) -> Refusal {
    Refusal { status, what, retries: true, of: |_| true }
}

#[rustfmt::skip]
const REFUSALS: &[Refusal] = &[
    refusal(400, "What is asked can't be meant.", |_| true),
    refusal(401, "At a door to the network: there is no good token.", |_| true),
    refusal(403, "Whoever asks may not.", |_| true),
    refusal(404, "There is no such thing.", |route| {
        let has_none = matches!(route.action, Action::Audit | Action::Doctor | Action::Flows);
        has_none || route.path.contains('{') || route.path.starts_with("stats")
    }),
    refusal(408, "The body doesn't come.", takes_body),
    refusal(409, "It doesn't fit how things stand.", |route| matches!(
        route.action,
        Action::AddTrigger | Action::Fire | Action::FireTrigger | Action::Reload | Action::DumpFile | Action::DeleteDump | Action::EndDump
    )),
    refusal(411, "At a door to the network: the body has no Content-Length.", takes_body),
    refusal(412, "The file has none of the tags of If-Match.", is_file),
    refusal(413, "The body is too long.", takes_body),
    refusal(415, "The body is no application/json, or is coded.", takes_body),
    refusal(416, "The file has no such range.", is_file),
    refusal(421, "At a door to the network: Host is no name of it.", |_| true),
    refusal(422, "A value isn't what its name is, or doesn't fit the trigger.", |route| {
        matches!(route.action, Action::HookAlertmanager | Action::HookJson)
    }),
    later(429, "Too many requests, or questions at once."),
    refusal(431, "The head is too long, or has too many headers.", |_| true),
    refusal(501, "The body has a transfer coding other than chunked.", takes_body),
    refusal(502, "At a door to the network: the run doesn't answer.", |_| true),
    later(503, "Too many connections or orders are under way, or the run ends."),
    refusal(507, "There is no room for the dump, or for the copy.", |route| {
        matches!(route.action, Action::Fire | Action::FireTrigger | Action::StatsFile)
    }),
];

fn is_file(route: &Route) -> bool {
    matches!(route.action, Action::DumpFile | Action::Audit)
}

fn takes_body(route: &Route) -> bool {
    body(route.action).is_some()
}

impl Refusal {
    fn name(&self) -> String {
        format!("Refused{}", self.status)
    }

    fn response(&self) -> (String, Value) {
        let content = json!({MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}});
        let mut response = json!({"description": self.what, "content": content});
        if self.retries {
            let what = "seconds until it may be tried again; missing: that helps nothing";
            response["headers"] =
                json!({"Retry-After": {"description": what, "schema": {"type": "integer"}}});
        }
        (self.name(), response)
    }
}

/// The parameters and the headers of a request.
fn request_parameters(route: &Route) -> Vec<Value> {
    let one = |name: &str, place: &str, kind: Value, what: &str| json!({"name": name, "in": place, "required": place == "path", "schema": kind, "description": what});
    let mut all = Vec::new();
    if route.action == Action::StatsFile {
        all.push(one("id", "path", json!({"type": "string"}), "its id, as the list of files has it"));
    } else if route.path.contains("{id}") {
        all.push(one("id", "path", json!({"type": "integer", "minimum": 1}), "its number"));
    }
    if route.path.contains("{name}") {
        all.push(one("name", "path", json!({"type": "string"}), "its name"));
    }
    for parameter in parameters(route.action) {
        let kind = match parameter.kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Word(words) => json!({"type": "string", "enum": words}),
            Kind::Flag(default) => with(json!({"type": "boolean"}), "default", default.map(Value::from)),
            Kind::Number(least, most, default) => {
                let kind =
                    with(json!({"type": "integer", "minimum": least}), "maximum", most.map(Value::from));
                with(kind, "default", default.map(Value::from))
            }
        };
        all.push(one(parameter.name, "query", kind, parameter.what));
    }
    // OpenAPI has Accept by the media types of answers.
    let own = headers(route.action)
        .iter()
        .filter(|header| header.place == Place::Request && header.name != "Accept");
    all.extend(own.map(|header| one(header.name, "header", json!({"type": "string"}), header.what)));
    all
}

fn with(mut schema: Value, key: &str, value: Option<Value>) -> Value {
    if let (Some(object), Some(value)) = (schema.as_object_mut(), value) {
        object.insert(key.to_string(), value);
    }
    schema
}

/// The headers of an answer that stand at one of these places.
fn answer_headers(route: &Route, places: &[Place]) -> Map<String, Value> {
    let own = headers(route.action).iter().filter(|header| places.contains(&header.place));
    own.map(|header| {
        (header.name.to_string(), json!({"description": header.what, "schema": {"type": "string"}}))
    })
    .collect()
}

/// The media types of answers that are no JSON, or not only that.
fn other_content(action: Action) -> Map<String, Value> {
    let text = json!({"schema": {"type": "string"}});
    let bytes = json!({"schema": {"type": "string", "format": "binary"}});
    let kinds = match action {
        Action::Events => vec![("text/event-stream", text)],
        Action::Metrics => vec![("text/plain", text.clone()), ("application/openmetrics-text", text)],
        Action::Packets => vec![
            ("application/x-pcapng", bytes.clone()),
            ("application/vnd.tcpdump.pcap", bytes),
            ("application/jsonl", text),
        ],
        Action::Audit => vec![("application/jsonl", text)],
        Action::Flows => vec![("application/jsonl", text.clone()), ("text/csv", text)],
        Action::StatsFile => vec![("application/vnd.sqlite3", bytes)],
        Action::DumpFile => {
            vec![("application/x-pcapng", bytes.clone()), ("application/vnd.tcpdump.pcap", bytes)]
        }
        _ => Vec::new(),
    };
    kinds.into_iter().map(|(kind, schema)| (kind.to_string(), schema)).collect()
}

/// The answers of a route, by status.
fn responses(route: &Route) -> Map<String, Value> {
    let mut responses = Map::new();
    for refusal in REFUSALS.iter().filter(|refusal| (refusal.of)(route)) {
        let name = refusal.name();
        responses
            .insert(refusal.status.to_string(), json!({"$ref": format!("#/components/responses/{name}")}));
    }
    let answers = schemas::answers(route.action);
    let statuses: Vec<u16> = match answers[..] {
        [] if is_file(route) => vec![200, 206],
        [] => vec![200],
        _ => answers.iter().map(|(status, _)| *status).collect(),
    };
    for status in statuses {
        let mut content = other_content(route.action);
        if let Some((_, schema)) = answers.iter().find(|(other, _)| *other == status) {
            let schema = match schema.get("$ref") {
                Some(_) => schema.clone(),
                None => json!({"$ref": format!("#/components/schemas/{}", answer_name(route, status))}),
            };
            content.insert("application/json".to_string(), json!({"schema": schema}));
        }
        if status == 503 {
            let problem = json!({"schema": {"$ref": "#/components/schemas/Problem"}});
            content.insert(MEDIA_TYPE.to_string(), problem);
        }
        let mut headers = answer_headers(route, &[Place::Answer]);
        let location = match route.action {
            Action::Fire | Action::FireTrigger => Some("the dump that began; missing: none did"),
            Action::AddTrigger | Action::ChangeTrigger => Some("the trigger"),
            Action::AddHold => Some("the hold"),
            _ => None,
        };
        let location = location.map(|what| json!({"description": what, "schema": {"type": "string"}}));
        headers.extend(location.map(|location| ("Location".to_string(), location)));
        let mut answer = json!({"description": route.what, "content": content});
        for (key, own) in [("headers", headers), ("x-trailers", answer_headers(route, &[Place::Trailer]))] {
            if !own.is_empty() {
                answer[key] = Value::Object(own);
            }
        }
        responses.insert(status.to_string(), answer);
    }
    if is_file(route) {
        let what = "The file has one of the tags of If-None-Match.";
        responses.insert("304".to_string(), json!({"description": what}));
    }
    let problem = json!({MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}});
    let what = "Why there is no answer.";
    responses.insert("default".to_string(), json!({"description": what, "content": problem}));
    responses
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": format!("{:?}", route.action),
        "summary": route.what,
        "x-role": route.role.word(),
        "parameters": request_parameters(route),
        "responses": responses(route),
    });
    if let Some((is_required, schema)) = body(route.action) {
        operation["requestBody"] =
            json!({"required": is_required, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

/// How much there may be, without any of it.
fn head(route: &Route) -> Value {
    let mut head = operation(route);
    head["operationId"] = json!(format!("{:?}Head", route.action));
    head["summary"] = json!("How much there may be of it, whatever the filter is.");
    let headers = answer_headers(route, &[Place::Answer, Place::Head]);
    head["responses"]["200"] = json!({"description": head["summary"], "headers": headers});
    head
}

/// What a request's body is: whether it must be there, and its schema.
pub(crate) fn body(action: Action) -> Option<(bool, Value)> {
    let named = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    match action {
        Action::Fire | Action::FireTrigger => Some((false, named("Fire"))),
        Action::AddTrigger | Action::ChangeTrigger => Some((true, named("Trigger"))),
        Action::HookAlertmanager => Some((true, named("Alerts"))),
        Action::HookJson => Some((true, json!({"type": "object"}))),
        Action::AddHold => Some((true, named("Hold"))),
        Action::StatsSql => Some((true, named("Sql"))),
        _ => None,
    }
}

fn problem() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    let fault = json!({
        "type": "object", "additionalProperties": false, "required": ["place", "cause", "remedy"],
        "properties": {
            "place": text("a parameter, a key, a header, or a part of the request"),
            "cause": text("what is wrong"), "remedy": text("what helps"),
        },
    });
    json!({
        "type": "object", "additionalProperties": false,
        "required": ["type", "title", "status", "detail", "faults"],
        "properties": {
            "type": text("about:blank"), "title": text("the status in words"),
            "status": {"type": "integer", "description": "the HTTP status"},
            "detail": text("all faults in a line"),
            "faults": {"type": "array", "minItems": 1, "items": fault},
        },
    })
}

fn trigger() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    json!({
        "type": "object", "additionalProperties": false, "required": ["filter"],
        "properties": {
            "name": text("its name; with PUT that of the path"),
            "filter": text("what it fires at: a filter in the language of tcpdump, or a condition on signals or several packets; of a trigger that a script fires the script's file, as it is"),
            "when": text("of a filter's packets: what has to hold for their flow, for the first time, such as rtt > 200ms"),
            "dump": text("what its dumps keep: a filter, or a template such as host $srcIP"),
            "before": text("how far back they reach, such as 30s"),
            "after": text("how far on"),
            "holdoff": text("how long behind a fire it starts no new dump"),
            "holdoff_key": text("for hits with the same of these values, such as $srcIP"),
            "single": {"type": "boolean", "description": "disarmed after its first fire"},
            "auto": text("it fires by itself where nothing has fired it for so long"),
        },
    })
}

fn hold() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    json!({
        "type": "object", "additionalProperties": false, "required": ["from", "to"],
        "properties": {
            "from": text("its begin, such as 2026-11-20T14:00:00Z or -1h"),
            "to": text("its end, which belongs to it"),
            "note": text("what it is for"),
        },
    })
}

fn sql() -> Value {
    let what = "one SELECT on intervals, traffic, flows, losses, runs or their views";
    json!({
        "type": "object", "additionalProperties": false, "required": ["sql"],
        "properties": {"sql": {"type": "string", "description": what}},
    })
}

/// Alertmanager's own body, as far as it is looked at.
fn alerts() -> Value {
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let alert = json!({
        "type": "object", "required": ["status", "labels"],
        "properties": {"status": {"enum": ["firing", "resolved"]}, "labels": labels},
    });
    json!({
        "type": "object", "required": ["version", "alerts"],
        "properties": {"version": {"const": "4"}, "alerts": {"type": "array", "maxItems": 64, "items": alert}},
    })
}

fn fire() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "filter": text("which packets go into the dump, in the language of tcpdump; missing: all"),
            "before": text("how far back the window reaches, such as 30s"),
            "after": text("how far on"),
            "note": text("why, in one line"),
            "wait": {"type": "boolean", "description": "the answer comes when the dump is finished"},
        },
    })
}

#[cfg(test)]
mod page {
    use super::openapi;
    use std::path::Path;

    #[test]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
        let page = format!("{:#}\n", openapi());
        if std::env::var_os("WRITE_PAGES").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "docs/reference/openapi.json isn't what is served; write it by: make pages");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All references of a document.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|inner| references(inner, found));
            }
            Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
            _ => {}
        }
    }

    #[test]
    fn each_reference_leads_somewhere_and_each_object_of_an_answer_has_keys() {
        let document = openapi();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            let keys = ["properties", "anyOf", "oneOf", "required"];
            assert!(keys.iter().any(|key| schema.get(key).is_some()), "{name}: {schema}");
        }
    }

    #[test]
    fn each_route_has_its_refusals_and_its_headers() {
        let document = openapi();
        for route in ROUTES {
            let operation =
                &document["paths"][&format!("{PREFIX}/{}", route.path)][route.method.to_lowercase()];
            let responses = &operation["responses"];
            for status in ["400", "403", "429", "503", "default"] {
                assert!(responses[status].is_object(), "{route}: {status}");
            }
            assert_eq!(responses["413"].is_object(), operation["requestBody"].is_object(), "{route}");
            let named = operation["parameters"].as_array().unwrap();
            for header in headers(route.action).iter().filter(|header| header.name != "Accept") {
                let is_there = match header.place {
                    Place::Request => named.iter().any(|parameter| parameter["name"] == header.name),
                    Place::Answer => responses["200"]["headers"][header.name].is_object(),
                    Place::Trailer => responses["200"]["x-trailers"][header.name].is_object(),
                    Place::Head => true, // of another operation
                };
                assert!(is_there, "{route}: {}", header.name);
            }
        }
        let responses = &document["components"]["responses"];
        for status in [429, 503] {
            let refused = &responses[format!("Refused{status}")];
            assert!(refused["headers"]["Retry-After"].is_object(), "{status}");
        }
        let head = &document["paths"][format!("{PREFIX}/packets")]["head"]["responses"]["200"]["headers"];
        assert!(head["wirescope-packets-most"].is_object(), "{head}");
    }

    #[test]
    fn the_document_has_each_route_with_its_role_and_no_other() {
        let document = openapi();
        let paths = document["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, ROUTES.len() + 1, "and HEAD of packets");
        for route in ROUTES {
            let operation = &paths[&format!("{PREFIX}/{}", route.path)][route.method.to_lowercase()];
            assert_eq!(operation["x-role"], route.role.word(), "{route}");
            let named = operation["parameters"].as_array().unwrap();
            let in_path = named.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, route.path.matches('{').count(), "{route}");
            let statuses: Vec<&String> = operation["responses"].as_object().unwrap().keys().collect();
            let answers = ["200", "201", "202"];
            assert!(
                statuses.iter().any(|status| answers.contains(&status.as_str())),
                "{route}: {statuses:?}"
            );
        }
    }
}
