//! Wireshark's display filters in tcpdump's words, as far as these go.

use super::fields::{FLAGS, NUMBERS, QUALIFIERS, SAME, as_named, is_field};
use super::{known, protocols, values};

/// Whether a text is a display filter: it has a field, `contains` or `matches`, and no word that only
/// tcpdump's language has.
pub(super) fn is_one(text: &str) -> bool {
    const TCPDUMPS: [&str; 7] = ["host", "net", "gateway", "src", "dst", "port", "portrange"];
    let words = split(text);
    let is_its = |(at, word): (usize, &String)| {
        is_field(word) || (at > 0 && matches!(word.as_str(), "contains" | "matches"))
    };
    words.iter().enumerate().any(is_its) && !words.iter().any(|word| TCPDUMPS.contains(&word.as_str()))
}

/// The first field of a display filter in a text that is none.
pub(super) fn field(text: &str) -> Option<String> {
    let is_known = |word: &String| {
        [&QUALIFIERS[..], &NUMBERS, &FLAGS].iter().any(|table| known(table, &as_named(word)).is_some())
    };
    split(text).into_iter().find(is_known)
}

/// Whether a display filter tests what is computed, searched for, or stands in a stream of bytes.
pub(super) fn is_out_of_reach(text: &str) -> bool {
    const SEARCHED: [&str; 8] =
        ["_ws.", "http.", "http2.", "http3.", "tls.", "ssl.", "tcp.analysis.", "tcp.stream"];
    let is_out = |word: &String| {
        matches!(word.as_str(), "contains" | "matches")
            || SEARCHED.iter().any(|begin| word.starts_with(begin))
    };
    split(text).iter().any(is_out)
}

/// The text in tcpdump's words; `None` where something in it has no counterpart.
pub(super) fn in_words_of_tcpdump(text: &str) -> Option<String> {
    let mut reader = Reader { words: split(text), at: 0, negations: 0 };
    let said = reader.either()?;
    (reader.at == reader.words.len()).then_some(said.text)
}

/// An expression in tcpdump's words, and what joins its parts: nothing where it is one.
struct Translated {
    text: String,
    joint: &'static str,
}

impl Translated {
    fn one(text: String) -> Translated {
        Translated { text, joint: "" }
    }

    /// As a part of what `joint` joins.
    fn part_of(&self, joint: &str) -> String {
        if self.joint.is_empty() || self.joint == joint {
            self.text.clone()
        } else {
            format!("({})", self.text)
        }
    }
}

/// Reads a display filter, in which `or` binds loosest, then `and`, then `not`. In tcpdump's language `and`
/// and `or` bind alike, from the left: an `and` behind an `or` gets parentheses.
struct Reader {
    words: Vec<String>,
    at: usize,
    /// How many `not` the place is under.
    negations: usize,
}

impl Reader {
    fn word(&self, ahead: usize) -> &str {
        self.words.get(self.at + ahead).map_or("", String::as_str)
    }

    fn joint(&self) -> &'static str {
        match self.word(0) {
            "and" | "&&" => "and",
            "or" | "||" => "or",
            _ => "",
        }
    }

    fn either(&mut self) -> Option<Translated> {
        self.chain("or", Reader::both)
    }

    fn both(&mut self) -> Option<Translated> {
        self.chain("and", Reader::term)
    }

    fn chain(
        &mut self,
        joint: &'static str,
        part: fn(&mut Reader) -> Option<Translated>,
    ) -> Option<Translated> {
        let is_tag = |said: &Translated| said.text.starts_with("vlan");
        let mut all = part(self)?;
        while self.joint() == joint {
            self.at += 1;
            let next = part(self)?;
            // A tag shifts what stands behind it, and goes first.
            let swap = joint == "and" && is_tag(&next) && !is_tag(&all);
            let (first, last) = if swap { (next, all) } else { (all, next) };
            all = Translated { text: format!("{} {joint} {}", first.text, last.part_of(joint)), joint };
        }
        Some(all)
    }

    fn term(&mut self) -> Option<Translated> {
        match self.word(0) {
            "not" | "!" => {
                self.at += 1;
                self.negations += 1;
                let negated = self.term()?;
                self.negations -= 1;
                Some(Translated::one(format!("not {}", negated.part_of(""))))
            }
            "(" => {
                self.at += 1;
                let inside = self.either()?;
                let is_closed = self.word(0) == ")";
                self.at += 1;
                is_closed.then(|| Translated::one(format!("({})", inside.text)))
            }
            _ => self.operand(),
        }
    }

    /// A field with its comparison, or a protocol.
    fn operand(&mut self) -> Option<Translated> {
        let field = as_named(self.word(0));
        let compared = relation(self.word(1)).zip(value(self.word(2)));
        let (said, used) = if let Some(qualifier) = known(&QUALIFIERS, &field) {
            if self.word(1) == "in" {
                let (values, used) = set(self.words.get(self.at + 2..)?)?;
                (one_of(qualifier, &values)?, 2 + used)
            } else {
                let (relation, value) = compared?;
                (against(&field, qualifier, relation, value)?, 3)
            }
        } else if let Some(number) = known(&NUMBERS, &field) {
            let (relation, value) =
                compared.filter(|(_, value)| value.starts_with(|c: char| c.is_ascii_digit()))?;
            (Translated::one(format!("{number} {relation} {value}")), 3)
        } else if let Some(flag) = known(&FLAGS, &field) {
            match compared {
                Some((relation, value)) => (of_flag(flag, relation, value)?, 3),
                None if self.negations > 0 => return None, // in Wireshark: there is no such field
                None => (Translated::one(format!("tcp[tcpflags] & {flag} != 0")), 1),
            }
        } else {
            let same = || SAME.into_iter().find(|word| *word == field);
            (Translated::one(protocols::meaning(&field).or_else(same)?.to_string()), 1)
        };
        self.at += used;
        Some(said)
    }
}

/// A qualifier's field held against a value. What isn't of the protocol at all has no such field in
/// Wireshark.
fn against(field: &str, qualifier: &str, relation: &str, value: &str) -> Option<Translated> {
    let protocol = match field.split('.').next()? {
        "eth" => "",
        "ipv6" => "ip6",
        protocol => protocol,
    };
    match relation {
        "=" => Some(Translated::one(qualified(qualifier, value)?)),
        "!=" if protocol.is_empty() => Some(Translated::one(format!("not {}", qualified(qualifier, value)?))),
        "!=" => Some(Translated {
            text: format!("{protocol} and not {}", qualified(qualifier, value)?),
            joint: "and",
        }),
        _ if qualifier.ends_with("port") => {
            Some(Translated::one(format!("{qualifier}range {}", values::ports(relation, value)?)))
        }
        _ => None,
    }
}

fn of_flag(flag: &str, relation: &str, value: &str) -> Option<Translated> {
    let is_set = match value {
        "1" | "True" | "true" => true,
        "0" | "False" | "false" => false,
        _ => return None,
    };
    let test = match relation {
        "=" if is_set => "!=",
        "!=" if !is_set => "!=",
        "=" | "!=" => "=",
        _ => return None,
    };
    Some(Translated::one(format!("tcp[tcpflags] & {flag} {test} 0")))
}

/// A qualifier with each of several values.
fn one_of(qualifier: &str, values: &[String]) -> Option<Translated> {
    let each: Vec<String> = values.iter().map(|value| qualified(qualifier, value)).collect::<Option<_>>()?;
    Some(Translated::one(if each.len() > 1 { format!("({})", each.join(" or ")) } else { each.concat() }))
}

/// A qualifier with a value: networks have a word of their own, and so have ranges of ports (`80..90`).
fn qualified(qualifier: &str, value: &str) -> Option<String> {
    match value.split_once("..") {
        _ if value.contains('/') => Some(format!("{} {value}", qualifier.replace("host", "net"))),
        Some((from, to)) if qualifier.ends_with("port") => Some(format!("{qualifier}range {from}-{to}")),
        Some(_) => None,
        None => Some(format!("{qualifier} {value}")),
    }
}

/// A word that may be a value.
fn value(word: &str) -> Option<&str> {
    word.starts_with(|c: char| c.is_ascii_alphanumeric() || ":\"${".contains(c)).then_some(word)
}

/// The values of a set, `{80, 443 1000..2000}`, and of how many words it is.
fn set(words: &[String]) -> Option<(Vec<String>, usize)> {
    let used = words.iter().position(|word| word.ends_with('}'))? + 1;
    let written = words[..used].join(" ");
    let inside = written.strip_prefix('{')?.strip_suffix('}')?;
    let values: Vec<String> =
        inside.split([',', ' ']).filter(|value| !value.is_empty()).map(str::to_string).collect();
    (!values.is_empty()).then_some((values, used))
}

/// A comparison in tcpdump's signs.
fn relation(word: &str) -> Option<&'static str> {
    Some(match word {
        "==" | "=" | "eq" => "=",
        "!=" | "ne" => "!=",
        ">" | "gt" => ">",
        "<" | "lt" => "<",
        ">=" | "ge" => ">=",
        "<=" | "le" => "<=",
        _ => return None,
    })
}

/// Splits a text into words, signs and brackets; what stands in quotes stays one.
fn split(text: &str) -> Vec<String> {
    let is_sign = |c: char| "=!<>&|".contains(c);
    let mut words: Vec<String> = Vec::new();
    let (mut glue, mut quoted) = (false, false); // whether the last word may go on, and must
    for c in text.chars() {
        let goes_on = glue
            && words.last().is_some_and(|last| match last.starts_with(is_sign) {
                true => is_sign(c) && last.len() < 2 && (c == '=' || last.starts_with(c)),
                false => !is_sign(c) && c != '(' && c != ')',
            });
        let is_blank = c.is_whitespace() && !quoted;
        match words.last_mut() {
            _ if is_blank => {}
            Some(last) if quoted || (goes_on && !matches!(last.as_str(), "(" | ")")) => last.push(c),
            _ => words.push(c.to_string()),
        }
        quoted ^= c == '"';
        glue = !is_blank;
    }
    words
}
