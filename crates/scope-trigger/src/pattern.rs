//! Conditions on several packets, read from text: counts and sequences.
//!
//! ```text
//! count(EXPR [by KEY]) > N in T         N matches and one more of one key in T; >= N: N matches
//! EXPR then EXPR [then EXPR ...] within T [by KEY]
//! ```
//! EXPR is a filter; of a count it may be empty, which is every packet. KEY is one name or several of those that
//! templates know: `$srcIP`, `$flow`, `$srcIP $dstPort`. Without it there is one count, or one sequence, for all
//! packets. T has a unit. Words are known in any case, and spaces may stand in front of a parenthesis. What a
//! count and a sequence mean, [`crate::count`] and [`crate::sequence`] say.

mod error;
mod words;

use crate::level::is_level;
use crate::response::DURATION_NS_MAX;
use crate::sequence::STEPS_MAX;
pub use error::PatternError;
use error::Wrong;
use scope_filter::{Filter, Template, VlanRule};
use scope_packet::LinkType;
use scope_spelling::values::{parse_count, parse_duration_ns};
use words::{Word, closing, words};

/// Largest number that is counted to: a key takes 8 bytes for each.
pub const COUNT_MAX: u64 = 1_000_000;

/// A count or a sequence.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    filters: Vec<Filter>,
    key: Option<Template>,
    span_ns: i64,
    rule: Rule,
}

/// How matches make a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// By their number.
    Count {
        /// So many in the span.
        needed: usize,
    },
    /// By their order: one of each filter.
    Sequence,
}

/// Whether a text is a count or a sequence, or was meant as one: it says `count(`, or `then` outside brackets. No
/// filter does. A text that begins with `signal(` or `(signal(` is a level.
pub fn is_pattern(text: &str) -> bool {
    let words = words(text);
    !is_level(text) && words.iter().any(|word| is_count(word) || is_then(word))
}

fn is_count(word: &Word<'_>) -> bool {
    word.is("count") && word.calls
}

fn is_then(word: &Word<'_>) -> bool {
    word.is("then") && word.depth == 0
}

impl Pattern {
    /// Reads a text and compiles its filters, as [`Filter::compile`] does.
    ///
    /// # Errors
    /// Says what is wrong, where in the whole text, and what helps.
    pub fn parse(text: &str, vlan: VlanRule, link_types: &[LinkType]) -> Result<Pattern, PatternError> {
        let words = words(text);
        let reader = Reader { text, vlan, link_types };
        let count = words.iter().find(|word| is_count(word));
        match (count, words.iter().any(is_then)) {
            (Some(count), true) => reader.refuse(count.at, Wrong::CountInSequence),
            (Some(count), false) if count.at == words[0].at && count.depth == 0 => reader.count(*count),
            (Some(count), false) => reader.refuse(count.at, Wrong::Mixed),
            (None, true) => reader.sequence(&words),
            (None, false) => reader.refuse(0, Wrong::Neither),
        }
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What packets are tested for: the filter of a count, or those of a sequence's steps in their order.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// What a packet is counted by: [`Template::values`] of it is the key of its match. `None`: all by one.
    pub fn key(&self) -> Option<&Template> {
        self.key.as_ref()
    }

    /// Matches that are further apart have nothing to do with each other, ns.
    pub fn span_ns(&self) -> i64 {
        self.span_ns
    }

    /// How matches make a hit.
    pub fn rule(&self) -> Rule {
        self.rule
    }
}

/// What a pattern is read with.
struct Reader<'a> {
    text: &'a str,
    vlan: VlanRule,
    link_types: &'a [LinkType],
}

impl<'a> Reader<'a> {
    fn refuse<T>(&self, at: usize, wrong: Wrong) -> Result<T, PatternError> {
        Err(PatternError::new(self.text, at, wrong))
    }

    /// The word without spaces from `from` on, where it begins, and what is behind it; both at the end: none.
    fn word(&self, from: usize) -> (usize, &'a str) {
        let rest = &self.text[from..];
        let at = from + rest.len() - rest.trim_start().len();
        let word = self.text[at..].split(char::is_whitespace).next().unwrap_or("");
        (at, word)
    }

    fn count(&self, count: Word<'_>) -> Result<Pattern, PatternError> {
        let open = count.end() + self.text[count.end()..].find('(').unwrap_or(0);
        let Some(close) = closing(self.text, open) else { return self.refuse(open, Wrong::NotClosed) };
        let inside = words(&self.text[open + 1..close]);
        if let Some(other) = inside.iter().find(|word| is_count(word)) {
            return self.refuse(open + 1 + other.at, Wrong::Mixed);
        }
        let by = inside.iter().rfind(|word| word.is("by") && word.depth == 0);
        let expr_end = by.map_or(close, |by| open + 1 + by.at);
        let (needed, at) = self.bound(close + 1)?;
        let (span_ns, at) = self.span(at)?;
        self.end(at)?;
        let key = match by {
            Some(by) => Some(self.key(open + 1 + by.end(), close)?),
            None => None,
        };
        let filter = self.filter(open + 1, expr_end)?;
        Ok(self.pattern(vec![filter], key, span_ns, Rule::Count { needed }))
    }

    fn pattern(&self, filters: Vec<Filter>, key: Option<Template>, span_ns: i64, rule: Rule) -> Pattern {
        Pattern { text: self.text.into(), filters, key, span_ns, rule }
    }

    /// `> N in`, from `from` on: how many matches are needed, and where it ends.
    fn bound(&self, from: usize) -> Result<(usize, usize), PatternError> {
        let (at, word) = self.word(from);
        let (sign, or_equal) = match word {
            _ if word.starts_with(">=") => (2, true),
            _ if word.starts_with('>') => (1, false),
            _ if word.eq_ignore_ascii_case("by") => return self.refuse(at, Wrong::ByOutside),
            _ if joins(word) => return self.refuse(at, Wrong::Mixed),
            _ => return self.refuse(at, Wrong::NotAbove(word.into())),
        };
        let (at, word) = self.word(at + sign);
        let number = match parse_count(word) {
            Ok(0) => return self.refuse(at, Wrong::Zero),
            Ok(number) if number > COUNT_MAX => return self.refuse(at, Wrong::TooMany(COUNT_MAX)),
            Ok(number) => number as usize,
            Err(_) if word.is_empty() || word.eq_ignore_ascii_case("in") => {
                return self.refuse(at, Wrong::Number("there is no number".into()));
            }
            Err(bad) => return self.refuse(at, Wrong::Number(bad.cause)),
        };
        let (at, word) = self.word(at + word.len());
        if !word.eq_ignore_ascii_case("in") {
            return self.refuse(at, Wrong::NoIn(word.into()));
        }
        Ok((number + usize::from(!or_equal), at + word.len()))
    }

    /// A time from `from` on, and where it ends.
    fn span(&self, from: usize) -> Result<(i64, usize), PatternError> {
        let (at, word) = self.word(from);
        let has_unit = !word.ends_with(|letter: char| letter.is_ascii_digit() || letter == '.');
        match parse_duration_ns(word) {
            _ if word.is_empty() => self.refuse(at, Wrong::Span("there is no time".into())),
            Ok(_) if !has_unit => self.refuse(at, Wrong::NoUnit(word.into())),
            Ok(0) => self.refuse(at, Wrong::ZeroSpan),
            Ok(span_ns) if span_ns > DURATION_NS_MAX => self.refuse(at, Wrong::LongSpan),
            Ok(span_ns) => Ok((span_ns, at + word.len())),
            Err(bad) => self.refuse(at, Wrong::Span(bad.cause)),
        }
    }

    /// Nothing stands from `from` on.
    fn end(&self, from: usize) -> Result<(), PatternError> {
        match self.word(from) {
            (_, "") => Ok(()),
            (at, word) if word.eq_ignore_ascii_case("by") => self.refuse(at, Wrong::ByOutside),
            (at, word) if joins(word) => self.refuse(at, Wrong::Mixed),
            (at, word) => self.refuse(at, Wrong::Trailing(word.into())),
        }
    }

    /// The names between `from` and `to`.
    fn key(&self, from: usize, to: usize) -> Result<Template, PatternError> {
        let mut at = from;
        loop {
            let rest = &self.text[at..to];
            at += rest.len() - rest.trim_start().len();
            let name = name_at(&self.text[at..to]);
            if name.is_empty() {
                break;
            }
            match Template::parse(name) {
                Ok(template) if template.has_names() => at += name.len(),
                Ok(_) => return self.refuse(at, Wrong::NotAName(name.into())),
                Err(error) => return self.refuse(at, Wrong::Name(error)),
            }
        }
        let names = self.text[from..at].trim();
        let rest = self.text[at..to].split(char::is_whitespace).next().unwrap_or("");
        match (names, rest) {
            (_, rest) if !rest.is_empty() => self.refuse(at, Wrong::NotAName(rest.into())),
            ("", _) => self.refuse(at.min(to), Wrong::NoKey),
            _ => Template::parse(names).or_else(|error| self.refuse(from, Wrong::Name(error))),
        }
    }

    /// The filter between `from` and `to`.
    fn filter(&self, from: usize, to: usize) -> Result<Filter, PatternError> {
        let text = self.text[from..to].trim();
        let at = from + self.text[from..to].len() - self.text[from..to].trim_start().len();
        Filter::compile(text, self.vlan, self.link_types)
            .or_else(|error| self.refuse(at, Wrong::Filter(error.within(self.text, at))))
    }

    fn sequence(&self, words: &[Word<'_>]) -> Result<Pattern, PatternError> {
        let outside = |word: &&Word<'_>| word.depth == 0;
        let thens: Vec<&Word<'_>> = words.iter().filter(|word| is_then(word)).collect();
        if let Some(then) = thens.get(STEPS_MAX - 1) {
            return self.refuse(then.at, Wrong::Steps(STEPS_MAX));
        }
        let last = thens.last().map_or(0, |then| then.at);
        let within = words.iter().filter(outside).find(|word| word.is("within"));
        let within = match within {
            None => return self.refuse(self.text.trim_end().len(), Wrong::NoWithin),
            Some(within) if within.at < last => return self.refuse(within.at, Wrong::WithinEarly),
            Some(within) => within,
        };
        let by = words.iter().filter(outside).find(|word| word.is("by"));
        if let Some(by) = by.filter(|by| by.at < within.at) {
            return self.refuse(by.at, Wrong::ByEarly);
        }
        let (span_ns, at) = self.span(within.end())?;
        let key = match self.word(at) {
            (at, word) if word.eq_ignore_ascii_case("by") => {
                Some(self.key(at + word.len(), self.text.len())?)
            }
            _ => None,
        };
        if key.is_none() {
            self.end(at)?;
        }
        let begins = std::iter::once(0).chain(thens.iter().map(|then| then.end()));
        let ends = thens.iter().map(|then| then.at).chain([within.at]);
        let filters = begins.zip(ends).map(|(from, to)| match self.text[from..to].trim() {
            "" => self.refuse(self.word(from).0.min(to), Wrong::EmptyStep),
            _ => self.filter(from, to),
        });
        let filters = filters.collect::<Result<Vec<_>, _>>()?;
        Ok(self.pattern(filters, key, span_ns, Rule::Sequence))
    }
}

/// Whether a word joins filters.
fn joins(word: &str) -> bool {
    ["and", "or", "not", "&&", "||", "!"].iter().any(|join| word.eq_ignore_ascii_case(join))
}

/// The name with which `rest` begins: `$name`, `{name}` or `${name}`; else empty.
fn name_at(rest: &str) -> &str {
    let dollar = usize::from(rest.starts_with('$'));
    let braces = usize::from(rest[dollar..].starts_with('{'));
    let word = &rest[dollar + braces..];
    let len =
        word.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(word.len());
    let closes = braces == 0 || word[len..].starts_with('}');
    if dollar + braces > 0 && len > 0 && closes { &rest[..dollar + braces + len + braces] } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Pattern, PatternError> {
        Pattern::parse(text, VlanRule::Transparent, &[])
    }

    #[test]
    fn counts_are_read() {
        let check = |text: &str, filter: &str, key: Option<&str>, needed, span_ns| {
            let pattern = read(text).unwrap_or_else(|error| panic!("{error}"));
            assert!(is_pattern(text), "{text}");
            let filters: Vec<&str> = pattern.filters().iter().map(Filter::text).collect();
            assert_eq!(filters, [filter], "{text}");
            assert_eq!(pattern.key().map(Template::text), key, "{text}");
            assert_eq!((pattern.rule(), pattern.span_ns()), (Rule::Count { needed }, span_ns), "{text}");
        };
        const S: i64 = 1_000_000_000;
        let syn = "tcp[tcpflags] & tcp-syn != 0";
        check("count(tcp[tcpflags] & tcp-syn != 0 by $srcIP) > 20 in 10s", syn, Some("$srcIP"), 21, 10 * S);
        check("count(udp)>=1k in 250ms", "udp", None, 1000, S / 4);
        check(
            " Count ( udp and (port 53) BY {srcIP} $DSTPORT ) > 1 IN 1min ",
            "udp and (port 53)",
            Some("{srcIP} $DSTPORT"),
            2,
            60 * S,
        );
        check("count() >= 1000000 in 1s", "", None, 1_000_000, S);
        check("count(by $flow) > 3 in 1ms", "", Some("$flow"), 4, S / 1000);
        check("count(by $srcIP$dstIP) > 3 in 366d", "", Some("$srcIP$dstIP"), 4, DURATION_NS_MAX);
    }

    #[test]
    fn sequences_are_read() {
        let check = |text: &str, filters: &[&str], key: Option<&str>, span_ns| {
            let pattern = read(text).unwrap_or_else(|error| panic!("{error}"));
            assert!(is_pattern(text), "{text}");
            assert_eq!(pattern.filters().iter().map(Filter::text).collect::<Vec<_>>(), filters, "{text}");
            assert_eq!(pattern.key().map(Template::text), key, "{text}");
            assert_eq!((pattern.rule(), pattern.span_ns()), (Rule::Sequence, span_ns), "{text}");
        };
        check("udp then tcp within 2s by $flow", &["udp", "tcp"], Some("$flow"), 2_000_000_000);
        check("(udp)then(tcp)Then icmp within 5ms", &["(udp)", "(tcp)", "icmp"], None, 5_000_000);
        check(
            "tcp[13] & 2 != 0 then arp within 1us by $srcMAC $vlan",
            &["tcp[13] & 2 != 0", "arp"],
            Some("$srcMAC $vlan"),
            1000,
        );
    }

    #[test]
    fn what_is_a_pattern_and_what_is_none() {
        for text in [
            "udp",
            "",
            "signal(x) > 5/s",
            "(signal(x) > 5/s) and count(udp) > 1 in 1s",
            "count",
            "(udp then tcp)",
            "host then.example",
        ] {
            assert!(!is_pattern(text), "{text}");
        }
        for text in ["count(", "a then b", "udp and count(x)", "then", "(count(udp) > 1 in 1s)"] {
            assert!(is_pattern(text), "{text}");
        }
    }

    #[test]
    fn a_refused_text_says_what_is_wrong_where_and_what_helps() {
        // The place is that of the mark.
        let check = |marked: &str, cause: &str| {
            let at = marked.find('^').expect("a mark");
            let text = marked.replacen('^', "", 1);
            let error = read(&text).expect_err(&text);
            let fault = error.fault();
            assert_eq!(error.at(), at, "{error}");
            assert!(error.to_string().contains(cause), "{error}");
            assert!(fault.remedy.is_some() || !fault.hints.is_empty(), "{error}");
            let shown = fault.shown.clone().expect("the text");
            let caret = shown.lines().nth(1).and_then(|line| line.find('^'));
            assert_eq!(caret.map(|caret| caret - 2), Some(text[..at].chars().count()), "{shown}");
        };
        check("^udp", "no count and no sequence");
        check("count^(udp by $srcIP > 20 in 10s", "not closed");
        check("count(udp)^", "the text ends");
        check("count(udp) ^< 5 in 1s", "by > or >=");
        check("count(udp) ^== 5 in 1s", "by > or >=");
        check("count(udp) > ^", "no number");
        check("count(udp) > ^in 10s", "no number");
        check("count(udp) > ^-3 in 10s", "negative");
        check("count(udp) > ^x in 10s", "not a number");
        check("count(udp) > ^1.5 in 10s", "whole");
        check("count(udp) >= ^0 in 10s", "0 packets");
        check("count(udp) > ^0 in 10s", "0 packets");
        check("count(udp) > ^1000001 in 10s", "above 1000000");
        check("count(udp) > ^99999999999999999999999 in 10s", "too large");
        check("count(udp) > 5^", "'in' is expected");
        check("count(udp) > 5 ^within 10s", "'in' is expected");
        check("count(udp) > 5 in^", "no time");
        check("count(udp) > 5 in ^10", "no unit");
        check("count(udp) > 5 in ^0s", "time of 0");
        check("count(udp) > 5 in ^10parsec", "unknown unit");
        check("count(udp) > 5 in ^-1s", "negative");
        check("count(udp) > 5 in ^367d", "longer than 366 days");
        check("count(udp) > 5 in ^99999999999d", "too large");
        check("count(udp) > 5 in 1s ^and udp", "doesn't mix");
        check("count(udp) > 5 in 1s ^and count(tcp) > 5 in 1s", "doesn't mix");
        check("count(^count(udp) > 1 in 1s) > 5 in 1s", "doesn't mix");
        check("count(udp) ^and udp", "doesn't mix");
        check("udp and ^count(udp) > 5 in 1s", "doesn't mix");
        check("(^count(udp) > 5 in 1s)", "doesn't mix");
        check("count(udp) > 5 in 1s ^please", "behind the end");
        check("count(udp) > 5 in 1s ^by $srcIP", "behind the parentheses");
        check("count(udp) ^by $srcIP > 5 in 1s", "behind the parentheses");
        check("count(udp by ^$srcIq) > 5 in 1s", "; did you mean '$srcIP'? there are");
        check("count(udp by $srcIP ^$quux) > 5 in 1s", "unknown name");
        check("count(udp by ^$a1) > 5 in 1s", "not a name");
        check("count(udp by ^srcIP) > 5 in 1s", "'srcIP' is not a name");
        check("count(udp by $srcIP^, $dstIP) > 5 in 1s", "',' is not a name");
        check("count(udp by ^) > 5 in 1s", "without a name");
        check(
            "count(upd^ and by $srcIP) > 5 in 1s".replace('^', "").replacen("upd", "^upd", 1).as_str(),
            "filter:",
        );
        check("count(udp and ^prot 5) > 5 in 1s", "filter:");
        check("count(udp and host ^example.org) > 5 in 1s", "filter:");
        check("^ then udp within 1s".replacen("^ ", " ^", 1).as_str(), "no filter");
        check("udp then ^then tcp within 1s", "no filter");
        check("udp then ^within 1s", "no filter");
        check("udp then tcp^", "needs 'within'");
        check("udp ^within 1s then tcp", "in front of a 'then'");
        check("udp then tcp ^by $flow within 1s", "in front of 'within'");
        check("udp then tcp within^", "no time");
        check("udp then tcp within ^2", "no unit");
        check("udp then tcp within 2s ^for 3s", "behind the end");
        check("udp then tcp within 2s by^", "without a name");
        check("udp then tcp within 2s by $flow ^now", "'now' is not a name");
        check("udp then ^count(udp) > 5 in 1s within 2s", "no step");
        check("udp then tcp and ^prot 5 within 2s", "filter:");
        check(
            "ip then ip then ip then ip then ip then ip then ip then ip ^then ip within 1s",
            "more than 8 steps",
        );
    }

    /// A text is read or refused, with a place inside of it; what is read is known as a pattern.
    fn is_read_or_refused(text: &str) {
        match Pattern::parse(text, VlanRule::Transparent, &[]) {
            Ok(pattern) => {
                assert!(is_pattern(text), "{text}");
                assert!(!pattern.filters().is_empty() && pattern.span_ns() > 0, "{text}");
                assert!(
                    pattern.key().is_none_or(|key| key.has_names() && key.fallback().is_none()),
                    "{text}"
                );
            }
            Err(error) => {
                assert!(error.at() <= text.len(), "{text}: {}", error.at());
                assert!(!error.to_string().is_empty());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            is_read_or_refused(&text);
        }

        #[test]
        fn nor_do_its_own_words(words in prop::collection::vec(prop::sample::select(vec![
            "count(", "count", "(", ")", " ", " by ", "$srcIP", "$flow", "{", "$", " then ", " within ", " in ", " > ", ">=",
            "2s", "10", "-1", "udp", "tcp port 80", "[", "]", "ä", "\u{2003}", "\0", "and", "signal(",
        ]), 0..14)) {
            is_read_or_refused(&words.concat());
        }
    }
}
