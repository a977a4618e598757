//! Values without functions, that go from one script's state into another's, and facts that a script is told.

use mlua::{Lua, Value};

/// A table deeper than this is no plain value: it may hold itself.
const DEPTH_MAX: usize = 16;
/// Entries of all tables together.
const ENTRIES_MAX: usize = 1 << 20;

/// A value that any Lua state can hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Plain {
    /// Nothing.
    #[default]
    Nil,
    /// true or false.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string of bytes.
    Text(Vec<u8>),
    /// A table: keys and values.
    Table(Vec<(Plain, Plain)>),
}

impl From<&str> for Plain {
    fn from(text: &str) -> Plain {
        Plain::Text(text.as_bytes().to_vec())
    }
}

impl From<f64> for Plain {
    fn from(number: f64) -> Plain {
        Plain::Number(number)
    }
}

impl From<bool> for Plain {
    fn from(value: bool) -> Plain {
        Plain::Bool(value)
    }
}

impl Plain {
    /// Out of a Lua state. Functions and whatever else isn't plain are left out, with their keys.
    ///
    /// # Errors
    /// Says why there is too much of it.
    pub(crate) fn from_lua(value: &Value) -> Result<Plain, String> {
        let mut entries = 0;
        Plain::read(value, 0, &mut entries).map(Option::unwrap_or_default)
    }

    fn read(value: &Value, depth: usize, entries: &mut usize) -> Result<Option<Plain>, String> {
        Ok(Some(match value {
            Value::Nil => Plain::Nil,
            Value::Boolean(value) => Plain::Bool(*value),
            Value::Integer(value) => Plain::Number(*value as f64),
            Value::Number(value) => Plain::Number(*value),
            Value::String(text) => Plain::Text(text.as_bytes().to_vec()),
            Value::Table(_) if depth == DEPTH_MAX => {
                return Err(format!("wirescope.state is deeper than {DEPTH_MAX} tables"));
            }
            Value::Table(table) => {
                let mut plain = Vec::new();
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair.map_err(|error| error.to_string())?;
                    *entries += 1;
                    if *entries > ENTRIES_MAX {
                        return Err(format!("wirescope.state has more than {ENTRIES_MAX} entries"));
                    }
                    let key = Plain::read(&key, depth + 1, entries)?;
                    let value = Plain::read(&value, depth + 1, entries)?;
                    plain.extend(key.zip(value));
                }
                Plain::Table(plain)
            }
            _ => return Ok(None),
        }))
    }

    /// Into a Lua state.
    pub(crate) fn to_lua(&self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Plain::Nil => Value::Nil,
            Plain::Bool(value) => Value::Boolean(*value),
            Plain::Number(value) => Value::Number(*value),
            Plain::Text(text) => Value::String(lua.create_string(text)?),
            Plain::Table(entries) => {
                let table = lua.create_table()?;
                for (key, value) in entries {
                    table.raw_set(key.to_lua(lua)?, value.to_lua(lua)?)?;
                }
                Value::Table(table)
            }
        })
    }
}
