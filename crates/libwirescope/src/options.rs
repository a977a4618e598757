//! What a program asks for, as it writes it: `name=x,weight=2,part=1/4,past=30s`.

use scope_share::RING;
use scope_share::message::{HOLD_WHOLE, NAME_BYTES_MAX, WEIGHTS, is_name};
use scope_spelling::values::parse_duration_ns;

/// Parts that the packets of a ring can be divided into: as many as there can be members.
pub const PARTS_MAX: u32 = 64;
/// How a program is called whose own name is none.
const NAME: &str = "program";
/// All keys.
const KEYS: &str = "name, weight, class, part, past, hold";

/// What a program asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How it is called.
    pub name: String,
    /// Its share of the packets of a group, against that of others: 1 to 100.
    pub weight: u16,
    /// What rules of the group call the packets that it wants; empty: those that have no class.
    pub class: String,
    /// Of the group `ring`: only the packets whose flow falls to this part, from 1, of so many.
    pub part: Option<(u32, u32)>,
    /// Of the group `ring`: begin with what came in so many ns before.
    pub past_ns: Option<i64>,
    /// Of the group `ring`: so much of it is held for this program, hundredths of a percent; 0: nothing.
    pub hold: u16,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: own_name(), weight: 1, class: String::new(), part: None, past_ns: None, hold: 0 }
    }
}

/// One option that can't be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("options: {option}: {cause}; {remedy}")]
pub struct OptionFault {
    /// As it was written.
    pub option: String,
    /// What is wrong.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

impl OptionFault {
    fn new(option: &str, cause: impl Into<String>, remedy: impl Into<String>) -> OptionFault {
        // What a program hands over may be anything, and is shown to people.
        let option = option.chars().take(NAME_BYTES_MAX).map(|c| if c.is_control() { '?' } else { c });
        OptionFault { option: option.collect(), cause: cause.into(), remedy: remedy.into() }
    }
}

/// What the kernel calls this program.
fn own_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let name = name.trim_end();
    if is_name(name) { name.to_string() } else { NAME.to_string() }
}

/// A part of the ring, in hundredths of a percent: `5%`, `0.25%`.
fn parse_hold(text: &str) -> Option<u16> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.strip_suffix('%')?.trim_end();
    let (whole, hundredths) = number.split_once('.').unwrap_or((number, "0"));
    if !is_number(whole) || !is_number(hundredths) || hundredths.len() > 2 {
        return None;
    }
    let hundredths = format!("{hundredths:0<2}").parse::<u32>().ok()?;
    let hold = whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)?;
    u16::try_from(hold).ok().filter(|hold| (1..=HOLD_WHOLE).contains(hold))
}

impl Options {
    /// Reads them; nothing is fine.
    ///
    /// # Errors
    /// All that can't be meant.
    pub fn parse(text: &str) -> Result<Options, Vec<OptionFault>> {
        let mut options = Options::default();
        let (mut faults, mut seen) = (Vec::new(), Vec::new());
        for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let Some((key, value)) = option.split_once('=') else {
                faults.push(OptionFault::new(
                    option,
                    "it has no value",
                    format!("write KEY=VALUE; keys are {KEYS}"),
                ));
                continue;
            };
            let (key, value) = (key.trim_end(), value.trim_start());
            if seen.contains(&key) {
                faults.push(OptionFault::new(option, format!("{key} stands twice"), "write it once"));
                continue;
            }
            seen.push(key);
            if let Err((cause, remedy)) = options.set(key, value) {
                faults.push(OptionFault::new(option, cause, remedy));
            }
        }
        if faults.is_empty() { Ok(options) } else { Err(faults) }
    }

    /// One option; why not, and what to do.
    fn set(&mut self, key: &str, value: &str) -> Result<(), (String, String)> {
        let said = |cause: &str, remedy: &str| Err((cause.to_string(), remedy.to_string()));
        match key {
            "name" | "class" if !is_name(value) => {
                let remedy = format!("write 1 to {NAME_BYTES_MAX} bytes of text");
                return Err((format!("it is no {key}"), remedy));
            }
            "name" => self.name = value.to_string(),
            "class" => self.class = value.to_string(),
            "weight" => match value.parse() {
                Ok(weight) if WEIGHTS.contains(&weight) => self.weight = weight,
                _ => {
                    let cause = format!("a weight is from {} to {}", WEIGHTS.start(), WEIGHTS.end());
                    return Err((cause, "write e.g. weight=2".to_string()));
                }
            },
            "part" => {
                let part = value
                    .split_once('/')
                    .and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
                match part {
                    Some((part, parts))
                        if (1..=PARTS_MAX).contains(&parts) && (1..=parts).contains(&part) =>
                    {
                        self.part = Some((part, parts));
                    }
                    _ => {
                        let cause = format!("a part is I/N, with I from 1 to N and N at most {PARTS_MAX}");
                        return Err((cause, "write e.g. part=1/4".to_string()));
                    }
                }
            }
            "past" => match parse_duration_ns(value) {
                Ok(past_ns) => self.past_ns = Some(past_ns),
                Err(error) => return Err((error.to_string(), "write e.g. past=30s".to_string())),
            },
            "hold" => match parse_hold(value) {
                Some(hold) => self.hold = hold,
                None => {
                    return said("it is no part of the ring from 0.01% to 100%", "write e.g. hold=5%");
                }
            },
            _ => return Err(("there is no such option".to_string(), format!("keys are {KEYS}"))),
        }
        Ok(())
    }

    /// What can't be had of a group.
    ///
    /// # Errors
    /// All of it.
    pub fn check_for(&self, group: &str) -> Result<(), Vec<OptionFault>> {
        let mut faults = Vec::new();
        let only_ring = format!("only the group {RING} has it");
        if let Some((part, parts)) = self.part.filter(|_| group != RING) {
            let remedy = "leave it out: a group divides its packets among its members";
            faults.push(OptionFault::new(&format!("part={part}/{parts}"), only_ring.clone(), remedy));
        }
        if self.past_ns.is_some_and(|_| group != RING) {
            faults.push(OptionFault::new("past", only_ring.clone(), "leave it out"));
        }
        if self.hold > 0 && group != RING {
            let remedy = "leave it out: what a member of a group hasn't read is kept";
            faults.push(OptionFault::new("hold", only_ring, remedy));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nothing_is_fine() {
        let check =
            |text: &str, expected: Options| assert_eq!(Options::parse(text), Ok(expected), "{text:?}");
        check("", Options::default());
        check(" , ", Options::default());
        let all = Options {
            name: "my tap".to_string(),
            weight: 2,
            class: "voip".to_string(),
            part: Some((1, 4)),
            past_ns: Some(30_000_000_000),
            hold: 500,
        };
        check("name=my tap,weight=2,class=voip,part=1/4,past=30s,hold=5%", all.clone());
        check(" past=30s , part=1/4,,class=voip, hold = 5.00%,name = my tap,weight=2", all);
        for (text, hold) in [("0.01%", 1), ("2.5%", 250), ("100%", 10_000), ("33.33%", 3_333)] {
            check(&format!("hold={text}"), Options { hold, ..Options::default() });
        }
        check("part=64/64", Options { part: Some((64, 64)), ..Options::default() });
        assert!(is_name(&Options::default().name));
    }

    #[test]
    fn each_mistake_is_told_with_place_cause_and_remedy_all_at_once() {
        let check = |text: &str, expected: &[&str]| {
            let faults = Options::parse(text).unwrap_err();
            let words: Vec<String> = faults.iter().map(OptionFault::to_string).collect();
            assert_eq!(words.len(), expected.len(), "{words:?}");
            for (words, expected) in words.iter().zip(expected) {
                assert!(words.contains(expected), "{words}");
            }
        };
        check("colour=red", &["options: colour=red: there is no such option; keys are name, weight"]);
        check("name", &["options: name: it has no value; write KEY=VALUE"]);
        check("name=", &["it is no name; write 1 to 64 bytes"]);
        check(&format!("class={}", "x".repeat(65)), &["it is no class"]);
        check("name=a\u{1b}[2J", &["options: name=a?[2J: it is no name"]);
        check("weight=2,weight=3", &["options: weight=3: weight stands twice; write it once"]);
        for value in ["0", "101", "-1", "x", "", "99999999999999999999"] {
            check(&format!("weight={value}"), &["a weight is from 1 to 100; write e.g. weight=2"]);
        }
        for value in ["", "1", "0/4", "5/4", "1/0", "1/65", "a/b", "1/4/2", "-1/4"] {
            check(&format!("part={value}"), &["a part is I/N"]);
        }
        for value in ["", "x", "-1s", "3parsecs", "99999999999999999999d"] {
            check(&format!("past={value}"), &["write e.g. past=30s"]);
        }
        for value in
            ["", "5", "0%", "0.001%", "100.01%", "-1%", "1.%", ".5%", "1e1%", "x%", "99999999999999999999%"]
        {
            check(&format!("hold={value}"), &["no part of the ring from 0.01% to 100%; write e.g. hold=5%"]);
        }
        check("a=1,weight=0,part=9", &["a=1", "weight=0", "part=9"]);
    }

    #[test]
    fn what_only_the_ring_has_is_refused_for_other_groups() {
        let options = Options::parse("part=1/2,past=1s,hold=1%").unwrap();
        assert_eq!(options.check_for("ring"), Ok(()));
        let words: Vec<_> =
            options.check_for("ids").unwrap_err().iter().map(OptionFault::to_string).collect();
        assert!(words[0].starts_with("options: part=1/2: only the group ring has it; "), "{words:?}");
        assert!(words[1].starts_with("options: past: only the group ring has it; "), "{words:?}");
        assert!(words[2].starts_with("options: hold: only the group ring has it; "), "{words:?}");
        assert_eq!(Options::default().check_for("ids"), Ok(()));
    }
}
