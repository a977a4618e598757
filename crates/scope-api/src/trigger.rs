//! A trigger, as the body of a request has it: with the words of a configuration file.
//!
//! ```json
//! {"name": "scan", "filter": "tcp port 23", "dump": "host $srcIP", "before": "2min", "after": "1min", "holdoff": "10min",
//!  "holdoff_key": "$srcIP", "single": false, "auto": "1h"}
//! ```
//! Only `filter` must be there, and where one is added `name`. What is missing is as the run was told for all triggers. No
//! key takes a command, a script or a path.

use crate::problem::Problem;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// A trigger in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// Its name.
    pub name: String,
    /// What it fires at: a filter, or a condition on signals.
    pub filter: String,
    /// Of a filter's packets: what has to hold for their flow.
    pub when: Option<String>,
    /// What its dumps keep: a filter, or a template.
    pub dump: Option<String>,
    /// How far back they reach.
    pub before: Option<String>,
    /// How far on.
    pub after: Option<String>,
    /// How long behind a fire it starts no new dump.
    pub holdoff: Option<String>,
    /// For hits with the same of these values.
    pub holdoff_key: Option<String>,
    /// Disarmed after its first fire.
    pub single: Option<bool>,
    /// It fires by itself where nothing has for so long.
    pub auto: Option<String>,
}

impl Trigger {
    /// Reads a body; `name` is the one in the path, if there is one.
    ///
    /// # Errors
    /// It has another form.
    pub fn read(body: &Value, name: Option<&str>) -> Result<Trigger, Problem> {
        let bad = |place: &str, cause: &str, remedy: &str| {
            Problem::new(StatusCode::BAD_REQUEST, place, cause, remedy)
        };
        let Value::Object(object) = body else {
            let remedy = r#"write e.g. {"name": "scan", "filter": "tcp port 23"}"#;
            return Err(bad("body", "it is no object", remedy));
        };
        let mut trigger = Trigger { name: name.unwrap_or_default().to_string(), ..Trigger::default() };
        for (key, value) in object {
            let no_text = || bad(key, "it is no text", "put it into quotation marks");
            let text = || value.as_str().map(str::to_string).ok_or_else(no_text);
            match key.as_str() {
                "name" if name.is_some_and(|name| value != name) => {
                    return Err(bad(key, "the path names another one", "omit it"));
                }
                "name" => trigger.name = text()?,
                "filter" => trigger.filter = text()?,
                "when" => trigger.when = Some(text()?),
                "dump" => trigger.dump = Some(text()?),
                "before" => trigger.before = Some(text()?),
                "after" => trigger.after = Some(text()?),
                "holdoff" => trigger.holdoff = Some(text()?),
                "holdoff_key" => trigger.holdoff_key = Some(text()?),
                "auto" => trigger.auto = Some(text()?),
                "single" => {
                    let neither = || bad(key, "it is neither true nor false", "write true, or omit it");
                    trigger.single = Some(value.as_bool().ok_or_else(neither)?);
                }
                _ => {
                    let known = "there are: name, filter, when, dump, before, after, holdoff, holdoff_key, single, auto";
                    return Err(bad(key, "there is no such key", known));
                }
            }
        }
        for (key, text, remedy) in [
            ("name", &trigger.name, r#"write e.g. "name": "scan""#),
            ("filter", &trigger.filter, r#"write e.g. "filter": "tcp port 23""#),
        ] {
            if text.is_empty() {
                return Err(bad(key, "it is missing", remedy));
            }
        }
        Ok(trigger)
    }

    /// As a body.
    pub fn json(&self) -> Value {
        let Trigger { name, filter, when, dump, before, after, holdoff, holdoff_key, single, auto } = self;
        let mut object =
            Map::from_iter([("name".to_string(), json!(name)), ("filter".to_string(), json!(filter))]);
        let texts = [
            ("when", when),
            ("dump", dump),
            ("before", before),
            ("after", after),
            ("holdoff", holdoff),
            ("holdoff_key", holdoff_key),
            ("auto", auto),
        ];
        for (key, text) in texts {
            object.extend(text.as_ref().map(|text| (key.to_string(), json!(text))));
        }
        object.extend(single.map(|single| ("single".to_string(), json!(single))));
        Value::Object(object)
    }

    /// As a table of a configuration file, which makes it last.
    pub fn toml(&self) -> String {
        let Trigger { name, filter, when, dump, before, after, holdoff, holdoff_key, single, auto } = self;
        // A JSON string is a basic string of TOML.
        let text = |text: &str| Value::from(text).to_string();
        let mut toml = format!("[[trigger]]\nname = {}\nexpr = {}\n", text(name), text(filter));
        let texts = [
            ("when", when),
            ("dump", dump),
            ("before", before),
            ("after", after),
            ("holdoff", holdoff),
            ("holdoff-key", holdoff_key),
            ("auto", auto),
        ];
        for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            toml.push_str(&format!("{key} = {}\n", text(value)));
        }
        if let Some(single) = single {
            toml.push_str(&format!("single = {single}\n"));
        }
        toml
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_taken() {
        let text = |text: &str| Some(text.to_string());
        let trigger = Trigger {
            name: "scan".to_string(),
            filter: "tcp port 23".to_string(),
            dump: text("host $srcIP"),
            holdoff: text("1s"),
            single: Some(true),
            ..Trigger::default()
        };
        assert_eq!(Trigger::read(&trigger.json(), None), Ok(trigger.clone()));
        assert_eq!(Trigger::read(&trigger.json(), Some("scan")), Ok(trigger.clone()));
        let toml = "[[trigger]]\nname = \"scan\"\nexpr = \"tcp port 23\"\ndump = \"host $srcIP\"\nholdoff = \"1s\"\nsingle = true\n";
        assert_eq!(trigger.toml(), toml);
        for (body, name, told) in [
            (json!(null), None, "body: it is no object"),
            (json!({"name": "a"}), None, "filter: it is missing"),
            (json!({"filter": "udp"}), None, "name: it is missing"),
            (json!({"name": "a", "filter": "udp"}), Some("b"), "name: the path names another one"),
            (json!({"filter": "udp", "exec": "sh"}), Some("b"), "exec: there is no such key"),
            (json!({"filter": 7}), Some("b"), "filter: it is no text"),
        ] {
            assert_eq!(Trigger::read(&body, name).unwrap_err().to_string(), told);
        }
    }
}
