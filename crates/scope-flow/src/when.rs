//! Conditions on flows, as written: `new`, or what a flow has so far compared with a bound.
//!
//! ```text
//! rtt > 200ms
//! packets > 100 and duration > 10s
//!
//! CONDITION = TEST { "and" TEST }
//! TEST      = "new" | ("packets" | "resent" | "zero_windows") ">" N | "bytes" ">" SIZE | ("duration" | "rtt") ">" TIME
//! ```
//! What is compared is of the whole flow so far, both directions, with the packet at hand.

pub use crate::rounds::WHENS_MAX;
use crate::table::FlowNow;
use scope_fault::Fault;
use scope_spelling::values::{BadValue, parse_count, parse_duration_ns, parse_size};

/// Tests of one condition at most.
const TESTS_MAX: usize = 16;
/// The words that a test begins with.
const WORDS: [&str; 7] = ["new", "packets", "bytes", "duration", "resent", "zero_windows", "rtt"];

/// One test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    New,
    Packets(u64),
    Bytes(u64),
    Duration(i64),
    Resent(u64),
    ZeroWindows(u64),
    Rtt(i64),
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    text: String,
    tests: Vec<Test>,
}

impl When {
    /// Reads one.
    ///
    /// # Errors
    /// What can't be meant.
    pub fn parse(text: &str) -> Result<When, Fault> {
        let mut words = text.split_whitespace().flat_map(apart);
        let mut tests = Vec::new();
        loop {
            let Some(word) = words.next() else {
                let is = if tests.is_empty() { "there is no condition in it" } else { "'and' ends it" };
                return Err(Fault::default().with_value(text).cause(is).remedy(example()));
            };
            tests.push(test(&word, &mut words)?);
            if tests.len() > TESTS_MAX {
                let cause = format!("it has more than {TESTS_MAX} parts");
                return Err(Fault::default().with_value(text).cause(cause).remedy("omit some"));
            }
            match words.next() {
                None => break,
                Some(word) if word == "and" => {}
                Some(word) => {
                    let cause = format!("'{word}' follows a part of it");
                    return Err(Fault::default().with_value(text).cause(cause).remedy("join parts by 'and'"));
                }
            }
        }
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(When { text, tests })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds.
    pub fn holds(&self, flow: &FlowNow<'_>) -> bool {
        self.tests.iter().all(|test| match *test {
            Test::New => flow.is_new(),
            Test::Packets(bound) => flow.packets() > bound,
            Test::Bytes(bound) => flow.bytes() > bound,
            Test::Duration(bound) => flow.duration_ns() > bound,
            Test::Resent(bound) => flow.resent() > bound,
            Test::ZeroWindows(bound) => flow.zero_windows() > bound,
            Test::Rtt(bound) => flow.rtt_ns().is_some_and(|rtt_ns| rtt_ns > bound),
        })
    }
}

/// A word of the text, in which `>` stands for itself.
fn apart(word: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for (at, part) in word.split('>').enumerate() {
        if at > 0 {
            parts.push(">".to_string());
        }
        if !part.is_empty() {
            parts.push(part.to_string());
        }
    }
    parts
}

fn example() -> &'static str {
    "write e.g. 'rtt > 200ms', 'new', or 'packets > 100 and duration > 10s'"
}

fn test(word: &str, words: &mut impl Iterator<Item = String>) -> Result<Test, Fault> {
    if word == "new" {
        return Ok(Test::New);
    }
    if !WORDS.contains(&word) {
        let remedy = format!("write one of: {}", WORDS.join(", "));
        return Err(Fault::default().value(word, "is nothing that a flow has").remedy(remedy));
    }
    if words.next().as_deref() != Some(">") {
        let cause = format!("no '>' follows '{word}'");
        return Err(Fault::default().with_value(word).cause(cause).remedy(example()));
    }
    let Some(bound) = words.next() else {
        let cause = format!("no bound follows '{word} >'");
        return Err(Fault::default().with_value(word).cause(cause).remedy(example()));
    };
    let bad = |BadValue { value, cause }| Fault::default().with_value(value).cause(cause).remedy(example());
    match word {
        "packets" => parse_count(&bound).map(Test::Packets),
        "bytes" => parse_size(&bound).map(Test::Bytes),
        "duration" => parse_duration_ns(&bound).map(Test::Duration),
        "resent" => parse_count(&bound).map(Test::Resent),
        "zero_windows" => parse_count(&bound).map(Test::ZeroWindows),
        _ => parse_duration_ns(&bound).map(Test::Rtt),
    }
    .map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_with_and_without_spaces() {
        let check =
            |text: &str, expected: &[Test]| assert_eq!(When::parse(text).unwrap().tests, expected, "{text}");
        check("new", &[Test::New]);
        check("rtt > 200ms", &[Test::Rtt(200_000_000)]);
        check("rtt>200ms", &[Test::Rtt(200_000_000)]);
        check(" packets >100 and  duration> 10s ", &[Test::Packets(100), Test::Duration(10_000_000_000)]);
        check("bytes > 1MiB and new", &[Test::Bytes(1 << 20), Test::New]);
        check("resent > 0 and zero_windows > 3", &[Test::Resent(0), Test::ZeroWindows(3)]);
    }

    #[test]
    fn what_can_t_be_meant_is_refused_with_a_remedy() {
        let check = |text: &str, words: &str| {
            let said = When::parse(text).unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        };
        check("", "there is no condition in it");
        check("new and", "'and' ends it");
        check("rtt", "no '>' follows 'rtt'");
        check("rtt < 5ms", "no '>' follows 'rtt'");
        check("rtt >", "no bound follows");
        check("latency > 5ms", "is nothing that a flow has; write one of: new, packets");
        check("packets > many", "");
        check("new or rtt > 1s", "'or' follows");
        check(&vec!["new"; 20].join(" and "), "more than 16 parts");
    }
}
