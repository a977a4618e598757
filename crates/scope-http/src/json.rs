//! JSON of a request, in which no object has a key twice: who writes `filter` twice doesn't get one of both.

use http::StatusCode;
use scope_api::Problem;
use serde_core::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

/// Reads a body.
///
/// # Errors
/// It is no JSON, or has a key twice.
pub fn read(bytes: &[u8]) -> Result<Value, Problem> {
    let twice = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Reader { twice: &twice }.deserialize(&mut deserializer);
    let read = read.and_then(|value| deserializer.end().map(|()| value));
    read.map_err(|error| match twice.into_inner() {
        Some(key) => Problem::new(StatusCode::BAD_REQUEST, key, "it is given twice", "omit it once"),
        None => {
            let remedy = r#"send one JSON value, such as {"filter": "udp"}"#;
            Problem::new(StatusCode::BAD_REQUEST, "body", format!("it is no JSON: {error}"), remedy)
        }
    })
}

/// Reads one value, and notes a key that comes twice.
#[derive(Clone, Copy)]
struct Reader<'a> {
    twice: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                *self.twice.borrow_mut() = Some(key);
                return Err(A::Error::custom("a key is given twice"));
            }
            object.insert(key, members.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_stands_there() {
        for text in [
            "null",
            "true",
            "-7",
            "18446744073709551615",
            "1.5",
            r#""a\u00e4\n""#,
            r#"[1, [], {"a": {"b": null}}, {"a": 1}]"#,
            r#" {"filter": "udp", "wait": false} "#,
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes()), Ok(expected), "{text}");
        }
        assert!(read("[".repeat(1000).as_bytes()).is_err());
    }

    #[test]
    fn a_key_that_comes_twice_and_what_is_no_json_are_refused_with_place_and_remedy() {
        for (text, place) in [
            (r#"{"filter": "udp", "filter": "tcp"}"#, "filter"),
            (r#"{"filter": "udp", "\u0066ilter": "udp"}"#, "filter"),
            (r#"{"alerts": [{"labels": {"a": 1, "a": 1}}]}"#, "a"),
            ("{", "body"),
            ("{} {}", "body"),
            ("nan", "body"),
            ("", "body"),
        ] {
            let problem = read(text.as_bytes()).unwrap_err();
            let said = &problem.faults[0];
            assert_eq!((problem.status, &*said.place), (StatusCode::BAD_REQUEST, place), "{text}");
            assert!(!said.remedy.is_empty(), "{text}");
        }
    }
}
