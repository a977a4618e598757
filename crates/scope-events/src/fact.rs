//! Facts: values that a line of the log holds, written as JSON and read back from it.
//!
//! Example: [`facts!`](crate::facts) makes of
//!
//! ```text
//!  /// A command has ended.
//!  Exec { /// The dump that it followed. dump: u64, /// Its exit code. code: Option<i64> }
//! ```
//! a struct with these fields, its writer (`{"code":0,"dump":7}`), its reader, and the rows of its page. One
//! declaration, so that none of them can differ from the others.
//!
//! Reading is lenient, since logs are damaged, foreign or of another version: a key that is missing, or holds
//! another kind of value, reads as the type's default (0, empty, `None`), and the others stay.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A key of an object, as the page describes it.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it means: a phrase.
    pub what: &'static str,
    /// Keys of the object, or objects, that it holds.
    pub inner: fn() -> Vec<Key>,
    /// Its own keys stand in its place: it has no name in the line.
    pub is_flat: bool,
}

/// A value that can be written as JSON and read from it.
pub trait Fact: Default {
    /// As JSON.
    fn write(&self) -> Value;

    /// From JSON; `None` where it is no such value.
    fn read(value: &Value) -> Option<Self>;

    /// Puts it into `object` under `key`.
    fn put(&self, key: &str, object: &mut Map<String, Value>) {
        object.insert(key.to_string(), self.write());
    }

    /// Takes what is under `key` in `object`; the default where nothing is, or nothing like it.
    fn take(key: &str, object: &Map<String, Value>) -> Self {
        object.get(key).and_then(Self::read).unwrap_or_default()
    }

    /// Keys of the object that it is, or that it holds; for the page.
    fn keys() -> Vec<Key> {
        Vec::new()
    }

    /// What it looks like as JSON, as JSON Schema has it; for the document of the API.
    fn schema() -> Value;

    /// Whether its keys stand among those around it.
    const IS_FLAT: bool = false;

    /// Whether its key may be missing.
    const IS_RARE: bool = false;
}

/// The schema of an object: its keys with what they mean, their schemas, whether they are flat, and whether they are rare.
pub fn object_schema(keys: Vec<(&str, &str, Value, bool, bool)>) -> Value {
    let (mut properties, mut required, mut others) = (Map::new(), Vec::new(), json!(false));
    for (name, what, mut schema, is_flat, is_rare) in keys {
        if is_flat {
            // An object among the keys, or counters of any name.
            if let Some(Value::Object(inner)) = schema.get_mut("properties").map(Value::take) {
                properties.extend(inner);
            }
            if let Some(Value::Array(inner)) = schema.get_mut("required").map(Value::take) {
                required.extend(inner);
            }
            match schema.get_mut("additionalProperties").map(Value::take) {
                None | Some(Value::Bool(false)) => {}
                Some(counters) => others = counters,
            }
            continue;
        }
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".to_string(), json!(what.trim()));
        }
        properties.insert(name.to_string(), schema);
        if !is_rare {
            required.push(json!(name));
        }
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": others})
}

/// The schema of what may also be null.
pub fn nullable(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(kind @ Value::String(_)) => {
            *kind = json!([kind.take(), "null"]);
            schema
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// A fact whose key is omitted where there is nothing to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rare<T>(pub Option<T>);

/// Facts whose keys stand among those around them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flat<T>(pub T);

/// Counters whose names others give (a kernel, a driver): they stand among the keys around them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters(pub BTreeMap<String, u64>);

macro_rules! plain {
    ($type:ty, $kind:literal, $read:expr) => {
        impl Fact for $type {
            fn write(&self) -> Value {
                self.clone().into()
            }

            fn read(value: &Value) -> Option<Self> {
                $read(value)
            }

            fn schema() -> Value {
                json!({"type": $kind})
            }
        }
    };
}

plain!(bool, "boolean", Value::as_bool);
plain!(u64, "integer", Value::as_u64);
plain!(i64, "integer", Value::as_i64);
plain!(f64, "number", Value::as_f64);
plain!(String, "string", |value: &Value| value.as_str().map(String::from));

impl<T: Fact> Fact for Option<T> {
    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, Fact::write)
    }

    fn read(value: &Value) -> Option<Self> {
        T::read(value).map(Some)
    }

    fn schema() -> Value {
        nullable(T::schema())
    }

    fn keys() -> Vec<Key> {
        T::keys()
    }
}

impl<T: Fact> Fact for Vec<T> {
    fn write(&self) -> Value {
        self.iter().map(Fact::write).collect()
    }

    /// An element that is no such value reads as the default, so that the others keep their places.
    fn read(value: &Value) -> Option<Self> {
        Some(value.as_array()?.iter().map(|element| T::read(element).unwrap_or_default()).collect())
    }

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }

    fn keys() -> Vec<Key> {
        T::keys()
    }
}

impl<T: Fact> Fact for BTreeMap<String, T> {
    fn write(&self) -> Value {
        self.iter().map(|(name, fact)| (name.clone(), fact.write())).collect::<Map<_, _>>().into()
    }

    fn read(value: &Value) -> Option<Self> {
        let members = value.as_object()?.iter();
        Some(members.filter_map(|(name, value)| Some((name.clone(), T::read(value)?))).collect())
    }

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": T::schema()})
    }

    fn keys() -> Vec<Key> {
        T::keys()
    }
}

impl<T: Fact> Fact for Rare<T> {
    fn write(&self) -> Value {
        self.0.write()
    }

    fn read(value: &Value) -> Option<Self> {
        T::read(value).map(|fact| Rare(Some(fact)))
    }

    fn schema() -> Value {
        T::schema()
    }

    const IS_RARE: bool = true;

    fn put(&self, key: &str, object: &mut Map<String, Value>) {
        if let Some(fact) = &self.0 {
            fact.put(key, object);
        }
    }

    fn keys() -> Vec<Key> {
        T::keys()
    }
}

impl<T: Fact> Fact for Flat<T> {
    fn write(&self) -> Value {
        self.0.write()
    }

    fn read(value: &Value) -> Option<Self> {
        T::read(value).map(Flat)
    }

    fn schema() -> Value {
        T::schema()
    }

    fn put(&self, _key: &str, object: &mut Map<String, Value>) {
        if let Value::Object(facts) = self.0.write() {
            object.extend(facts);
        }
    }

    fn take(_key: &str, object: &Map<String, Value>) -> Self {
        T::read(&Value::Object(object.clone())).map(Flat).unwrap_or_default()
    }

    fn keys() -> Vec<Key> {
        T::keys()
    }

    const IS_FLAT: bool = true;
}

impl Fact for Counters {
    fn write(&self) -> Value {
        self.0.write()
    }

    fn read(value: &Value) -> Option<Self> {
        BTreeMap::read(value).map(Counters)
    }

    fn schema() -> Value {
        BTreeMap::<String, u64>::schema()
    }

    fn put(&self, _key: &str, object: &mut Map<String, Value>) {
        for (name, count) in &self.0 {
            object.insert(name.clone(), (*count).into());
        }
    }

    fn take(_key: &str, object: &Map<String, Value>) -> Self {
        Counters(object.iter().filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect())
    }

    const IS_FLAT: bool = true;
}

/// Declares structs of facts: see [the room](crate::fact).
#[macro_export]
macro_rules! facts {
    ($($(#[doc = $what:literal])+ $name:ident { $($(#[doc = $key_what:literal])+ $key:ident: $type:ty,)* })+) => { $(
        $(#[doc = $what])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[doc = $key_what])+ pub $key: $type,)*
        }

        impl $crate::fact::Fact for $name {
            fn write(&self) -> serde_json::Value {
                let mut object = serde_json::Map::new();
                $($crate::fact::Fact::put(&self.$key, stringify!($key), &mut object);)*
                object.into()
            }

            fn read(value: &serde_json::Value) -> Option<Self> {
                let object = value.as_object()?;
                Some($name { $($key: $crate::fact::Fact::take(stringify!($key), object),)* })
            }

            fn schema() -> serde_json::Value {
                $crate::fact::object_schema(vec![$((
                    stringify!($key),
                    concat!($($key_what),+),
                    <$type as $crate::fact::Fact>::schema(),
                    <$type as $crate::fact::Fact>::IS_FLAT,
                    <$type as $crate::fact::Fact>::IS_RARE,
                ),)*])
            }

            fn keys() -> Vec<$crate::fact::Key> {
                vec![$($crate::fact::Key {
                    name: stringify!($key),
                    what: concat!($($key_what),+),
                    inner: <$type as $crate::fact::Fact>::keys,
                    is_flat: <$type as $crate::fact::Fact>::IS_FLAT,
                },)*]
            }
        }
    )+ };
}

#[cfg(test)]
mod tests {
    use super::*;

    facts! {
        /// A part.
        Part {
            /// A number.
            number: u64,
            /// Omitted where it is none.
            word: Rare<String>,
        }

        /// A whole.
        Whole {
            /// A list.
            parts: Vec<Option<Part>>,
            /// Among the keys.
            inline: Flat<Part>,
            /// A time.
            at: Option<f64>,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let part = Part { number: 7, word: Rare(Some("w".into())) };
        let whole = Whole { parts: vec![None, Some(part.clone())], inline: Flat(part), at: Some(1.5) };
        let written = whole.write();
        assert_eq!(
            written,
            json!({"parts": [null, {"number": 7, "word": "w"}], "number": 7, "word": "w", "at": 1.5})
        );
        assert_eq!(Whole::read(&written), Some(whole));
        assert_eq!(Whole::default().write(), json!({"parts": [], "number": 0, "at": null}));
    }

    #[test]
    fn the_schema_has_each_key_with_its_type_and_what_it_means() {
        let schema = Whole::schema();
        assert_eq!(schema["required"], json!(["parts", "number", "at"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        let properties = &schema["properties"];
        assert_eq!(properties["number"], json!({"type": "integer", "description": "A number."}));
        assert_eq!(properties["word"]["type"], "string");
        assert_eq!(properties["at"], json!({"type": ["number", "null"], "description": "A time."}));
        let part = &properties["parts"]["items"];
        assert_eq!((&part["type"], &part["required"]), (&json!(["object", "null"]), &json!(["number"])));
        let counters = object_schema(vec![("x", "", Counters::schema(), true, false)]);
        assert_eq!(counters["additionalProperties"], json!({"type": "integer"}));
    }

    #[test]
    fn what_is_missing_or_of_another_kind_reads_as_nothing_and_the_rest_stays() {
        let read =
            Whole::read(&json!({"parts": [1, {"number": "x"}], "number": 3, "at": "late", "more": [1]}))
                .unwrap();
        let part = |number| Part { number, word: Rare(None) };
        assert_eq!(read, Whole { parts: vec![None, Some(part(0))], inline: Flat(part(3)), at: None });
        assert_eq!(Whole::read(&json!([1])), None);
    }

    #[test]
    fn counters_stand_among_other_keys_and_take_numbers_only() {
        let object = json!({"rx_packets": 5, "driver": {"x": 1}, "rx_dropped": 0});
        let counters = Counters::take("", object.as_object().unwrap());
        assert_eq!(
            counters.0,
            BTreeMap::from([("rx_packets".to_string(), 5), ("rx_dropped".to_string(), 0)])
        );
        let mut again = Map::new();
        counters.put("", &mut again);
        assert_eq!(Value::from(again), json!({"rx_packets": 5, "rx_dropped": 0}));
    }
}
