//! A hold of a store, as answers and `wirescope hold list --json` have it.
//!
//! ```json
//! {"id": 1, "from": "2026-11-20T14:00:00.000000000Z", "to": "...", "note": "incident 4711", "made": "..."}
//! ```

use serde_json::{Value, json};

/// A hold in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its number in its volume.
    pub id: u64,
    /// Its begin.
    pub from: String,
    /// Its end, which belongs to it.
    pub to: String,
    /// What it is for.
    pub note: String,
    /// When it was made.
    pub made: String,
}

impl Hold {
    /// As an object.
    pub fn json(&self) -> Value {
        let Hold { id, from, to, note, made } = self;
        json!({"id": id, "from": from, "to": to, "note": note, "made": made})
    }
}
