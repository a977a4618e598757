//! Whether the lines of an audit follow each other: a line that was changed, removed or added since it was written shows.

use crate::audit::hash;
use scope_spelling::printable::json_line;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Runs whose lines are told apart; further ones are a fault.
pub const RUNS_MAX: usize = 1 << 16;

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// It isn't as a run writes a line.
    Torn,
    /// It doesn't follow the line of its run that was read before it.
    Breaks,
    /// There are more runs than [`RUNS_MAX`].
    Runs,
}

impl fmt::Display for LineFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineFault::Torn => out.write_str("not as a run writes it: it was changed, or its run ended while it wrote it"),
            LineFault::Breaks => out.write_str("does not follow its run's line before: it or one in front of it was changed, removed or added"),
            LineFault::Runs => write!(out, "of more than {RUNS_MAX} runs"),
        }
    }
}

/// What is known of the lines of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Lines of it.
    pub lines: u64,
    /// The hash of the newest one, 64 hexadecimal digits.
    pub head: String,
    /// Its first line isn't there: the first that is follows another one.
    pub lacks_begin: bool,
}

/// The lines of an audit, one behind the other; of one that was moved away and went on elsewhere, the older file's first.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// By the run's id.
    pub runs: BTreeMap<String, Run>,
}

impl Proof {
    /// Reads the next line. Returns its hash.
    ///
    /// # Errors
    /// It isn't as it was written, or one in front of it isn't.
    pub fn read(&mut self, line: &str) -> Result<String, LineFault> {
        let Ok(Value::Object(mut object)) = serde_json::from_str(line) else { return Err(LineFault::Torn) };
        // Written otherwise, or with a key twice, it says the same to us and perhaps something else to others.
        if json_line(&Value::Object(object.clone()).to_string()) != line.strip_suffix('\n').unwrap_or(line) {
            return Err(LineFault::Torn);
        }
        let (Some(Value::String(said)), Some(Value::String(run))) =
            (object.remove("chain"), object.get("run").cloned())
        else {
            return Err(LineFault::Torn);
        };
        let is_known = self.runs.contains_key(&run);
        if !is_known && self.runs.len() == RUNS_MAX {
            return Err(LineFault::Runs);
        }
        let known = self.runs.entry(run).or_default();
        let follows = hash(&object, &known.head) == said;
        known.lines += 1;
        known.lacks_begin |= !is_known && !follows;
        known.head.clone_from(&said);
        // Of a first line that follows another one nobody can tell whether it was changed.
        if follows || !is_known { Ok(said) } else { Err(LineFault::Breaks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_line_is_told_and_the_lines_around_it_are_read() {
        let mut proof = Proof::default();
        for torn in ["", "{\"action\":\"Fi", "[]", "{}", "{\"chain\":\"00\"}", "{\"chain\":1,\"run\":\"a\"}"]
        {
            assert_eq!(proof.read(torn), Err(LineFault::Torn), "{torn}");
        }
        assert!(proof.runs.is_empty());
    }
}
