//! The API as an OpenAPI 3.1 document, made of the table of routes.

use crate::question::PARAMETERS;
use scope_answer::By;
use scope_api::PREFIX;
use scope_api::problem::MEDIA_TYPE;
use scope_api::routes::{Action, ROUTES, Route};
use serde_json::{Map, Value, json};

/// The document.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(format!("{PREFIX}/{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Wirescope",
            "version": "1",
            "description": "Ask and order a running instance. Who may what: x-role names the weakest role that may ask.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://localhost", "description": "the instance's Unix socket"}],
        "paths": paths,
        "components": {"schemas": {"Problem": problem(), "Fire": fire(), "Trigger": trigger(), "Hold": hold(), "Alerts": alerts()}},
    })
}

fn operation(route: &Route) -> Value {
    let named =
        |name: &str, kind: Value| json!({"name": name, "in": "path", "required": true, "schema": kind});
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        parameters.push(named("id", json!({"type": "integer", "minimum": 1})));
    }
    if route.path.contains("{name}") {
        parameters.push(named("name", json!({"type": "string"})));
    }
    let asked =
        |name: &str, kind: Value| json!({"name": name, "in": "query", "required": false, "schema": kind});
    match route.action {
        Action::Dumps => parameters.extend([
            asked("limit", json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 100})),
            asked("after", json!({"type": "integer", "minimum": 0})),
            asked("trigger", json!({"type": "string"})),
            asked("complete", json!({"type": "boolean"})),
        ]),
        Action::Losses => {
            parameters.extend(["from", "to", "step"].map(|name| asked(name, json!({"type": "string"}))));
        }
        Action::Packets => parameters.extend(packets().map(|(name, kind)| asked(name, kind))),
        Action::DumpFile => parameters.push(asked("link_type", json!({"type": "string"}))),
        _ => {}
    }
    let object = json!({"application/json": {"schema": {"type": "object"}}});
    let kind = match route.action {
        Action::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        Action::Metrics => {
            let text = json!({"schema": {"type": "string"}});
            json!({"text/plain": text, "application/openmetrics-text": text})
        }
        Action::Packets => {
            let bytes = json!({"schema": {"type": "string", "format": "binary"}});
            json!({
                "application/x-pcapng": bytes, "application/vnd.tcpdump.pcap": bytes,
                "application/jsonl": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}},
            })
        }
        Action::Audit => json!({"application/jsonl": {"schema": {"type": "string"}}}),
        Action::DumpFile => {
            let bytes = json!({"schema": {"type": "string", "format": "binary"}});
            json!({"application/x-pcapng": bytes, "application/vnd.tcpdump.pcap": bytes})
        }
        _ => object.clone(),
    };
    let statuses: &[&str] = match route.action {
        Action::Fire | Action::FireTrigger => &["200", "202"],
        Action::AddTrigger | Action::AddHold => &["201"],
        Action::Reload | Action::HookAlertmanager | Action::HookJson => &["202"],
        Action::DumpFile => &["200", "206", "304"],
        Action::Ready => &["200", "503"],
        _ => &["200"],
    };
    let mut responses: Map<String, Value> = statuses
        .iter()
        .map(|status| (status.to_string(), json!({"description": route.what, "content": kind})))
        .collect();
    let problem = json!({MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}});
    responses
        .insert("default".to_string(), json!({"description": "Why there is no answer.", "content": problem}));
    let mut operation = json!({
        "operationId": format!("{:?}", route.action),
        "summary": route.what,
        "x-role": route.role.word(),
        "parameters": parameters,
        "responses": responses,
    });
    if matches!(route.action, Action::Fire | Action::FireTrigger) {
        let schema = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Fire"}}});
        operation["requestBody"] = json!({"required": false, "content": schema});
    }
    if matches!(route.action, Action::AddTrigger | Action::ChangeTrigger) {
        let schema = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Trigger"}}});
        operation["requestBody"] = json!({"required": true, "content": schema});
    }
    if route.action == Action::HookAlertmanager {
        let schema = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Alerts"}}});
        operation["requestBody"] = json!({"required": true, "content": schema});
    }
    if route.action == Action::HookJson {
        operation["requestBody"] = json!({"required": true, "content": object});
    }
    if route.action == Action::AddHold {
        let schema = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Hold"}}});
        operation["requestBody"] = json!({"required": true, "content": schema});
    }
    operation
}

/// The parameters of a question for packets.
fn packets() -> [(&'static str, Value); 15] {
    let text = |what: &str| json!({"type": "string", "description": what});
    let word = |words: &[&str]| json!({"type": "string", "enum": words});
    let is_set = |what: &str| json!({"type": "boolean", "default": false, "description": what});
    PARAMETERS.map(|name| {
        let kind = match name {
            "filter" => text("which packets, in the language of tcpdump; missing: all"),
            "from" => text("from this time on, such as 2026-11-20T20:31:05Z, -5m or @1795206665.5"),
            "to" => text("up to this time, which belongs to the span; missing: now"),
            "at" => text("around this time, by within"),
            "within" => text("so long before and after at, such as 30s"),
            "around" => text("only packets near to one of the span that this filter matches"),
            "before" => text("how long before each packet of around; missing: 30s"),
            "after" => text("how long behind it; missing: 10s"),
            "format" => word(&["pcapng", "pcap", "json"]),
            "limit" => {
                let what = "packets, or lines of a top list, at most";
                json!({"type": "integer", "minimum": 1, "description": what})
            }
            "link_type" => word(&["all"]),
            "count" => is_set("only what the packets come to"),
            "top" => word(&By::WORDS),
            "timeline" => is_set("packets and bytes by steps of time, with what is missing in each"),
            _ => text("the length of a step, such as 1s; missing: about 20 steps"),
        };
        (name, kind)
    })
}

fn problem() -> Value {
    let text = json!({"type": "string"});
    let fault = json!({"type": "object", "required": ["cause"],
        "properties": {"place": text, "cause": text, "remedy": text}});
    json!({
        "type": "object", "required": ["type", "title", "status", "detail", "faults"],
        "properties": {
            "type": text, "title": text, "status": {"type": "integer"}, "detail": text,
            "faults": {"type": "array", "items": fault},
        },
    })
}

fn trigger() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    json!({
        "type": "object", "additionalProperties": false, "required": ["filter"],
        "properties": {
            "name": text("its name; with PUT that of the path"),
            "filter": text("what it fires at, in the language of tcpdump"),
            "dump": text("what its dumps keep: a filter, or a template such as host $srcIP"),
            "before": text("how far back they reach, such as 30s"),
            "after": text("how far on"),
            "holdoff": text("how long behind a fire it starts no new dump"),
            "holdoff_key": text("for hits with the same of these values, such as $srcIP"),
            "single": {"type": "boolean", "description": "disarmed after its first fire"},
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

    #[test]
    fn the_document_has_each_route_with_its_role_and_no_other() {
        let document = openapi();
        let paths = document["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, ROUTES.len());
        for route in ROUTES {
            let operation = &paths[&format!("{PREFIX}/{}", route.path)][route.method.to_lowercase()];
            assert_eq!(operation["x-role"], route.role.word(), "{route}");
            let named = operation["parameters"].as_array().unwrap();
            let in_path = named.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, route.path.matches('{').count(), "{route}");
        }
    }
}
