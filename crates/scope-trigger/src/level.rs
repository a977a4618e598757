//! Levels: conditions on signals, as written. What they come to bin by bin stands in `level_state.rs`.
//!
//! ```text
//! signal(syn) > 5000/s for 200ms
//! signal(pps, 100ms) > 4x mean(10min) and signal(heartbeat) == 0 for 3s
//! signal(bps) > 8Mbit/s until < 2Mbit/s
//!
//! CONDITION = ALL { "or" ALL }
//! ALL       = PART { "and" PART }
//! PART      = "(" CONDITION ")" | LEVEL [ "for" T ] [ "until" OP V ]
//! LEVEL     = "signal(" NAME [ "," T ] ")" ( OP V | "rises-through" V | "falls-through" V | "outside" A ".." B )
//! OP        = ">" | ">=" | "<" | "<=" | "=="
//! V         = an amount of the signal's measure | FACTOR "x mean(" T ")"
//! ```

use crate::measure::{Amount, BINS_PER_SECOND, Measure, bins, factor};
use crate::signal::SignalSet;
use scope_fault::Fault;
use scope_filter::excerpt;

/// Bytes of a condition at most.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Levels of one condition at most.
pub const LEVELS_MAX: usize = 64;
/// Parentheses in each other at most.
const NESTING_MAX: usize = 32;
/// Longest time over which a level takes a mean, bins: what is remembered in bins.
pub const WINDOW_BINS_MAX: i64 = 60 * BINS_PER_SECOND;
/// Longest time of `mean(T)`, seconds: what is remembered in seconds.
pub const MEAN_SECONDS_MAX: i64 = 3600;
/// Longest `for`, bins: a day.
const HOLD_BINS_MAX: i64 = 86_400 * BINS_PER_SECOND;

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
}

/// What a value is compared with.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// An amount.
    Fixed(Amount),
    /// A factor of the signal's mean over so many whole seconds, up to the begin of this one.
    OfMean {
        /// The factor.
        factor: Amount,
        /// Seconds.
        seconds: i64,
    },
}

/// What is asked of a signal's value.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// It compares so.
    Is(Op, Bound),
    /// It was less in the bin before, and is not any more.
    Rises(Bound),
    /// It was more in the bin before, and is not any more.
    Falls(Bound),
    /// It is less than the first, or more than the second.
    Outside(Amount, Amount),
}

/// One level of a condition.
#[derive(Clone, Debug)]
pub struct Level {
    /// Place of its signal in the run's set.
    pub signal: usize,
    /// What that measures.
    pub measure: Measure,
    /// Its value is the mean of so many bins.
    pub window_bins: i64,
    /// What is asked of it.
    pub test: Test,
    /// For so many bins one after another; 1: at once.
    pub hold_bins: i64,
    /// Once it holds, it holds until the value compares so.
    pub until: Option<(Op, Bound)>,
}

/// How levels are joined; numbers are places in [`LevelCondition::levels`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// One level.
    Level(usize),
    /// All of these hold.
    All(Vec<Joined>),
    /// At least one holds.
    Any(Vec<Joined>),
}

/// A condition on signals.
#[derive(Clone, Debug)]
pub struct LevelCondition {
    /// As written.
    pub text: String,
    /// Its levels, in the order of the text.
    pub levels: Vec<Level>,
    /// How they are joined.
    pub joined: Joined,
    /// The filter of its signals' packets, which dumps with names of fields keep; empty: everything.
    pub filter_text: String,
}

/// Whether a text is meant as a condition on signals, and not as a filter.
pub fn is_level(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    text.strip_prefix("signal").is_some_and(|rest| rest.trim_start().starts_with('('))
}

impl LevelCondition {
    /// Reads a condition on these signals.
    ///
    /// # Errors
    /// What is wrong, where, and what to write instead; of which setting says who has it.
    pub fn parse(text: &str, signals: &SignalSet) -> Result<LevelCondition, Fault> {
        if text.len() > TEXT_BYTES_MAX {
            let cause = format!("{} bytes are too long, the maximum is {TEXT_BYTES_MAX}", text.len());
            return Err(Fault::whole(cause).remedy("write several triggers instead of 'or'"));
        }
        let mut reader = Reader { text, at: 0, signals, levels: Vec::new(), nesting: 0 };
        let joined = reader.condition().and_then(|joined| match reader.rest().is_empty() {
            true => Ok(joined),
            false => Err(reader.trailing()),
        });
        let joined = joined.map_err(|bad| bad.fault(text))?;
        let mut texts: Vec<&str> =
            reader.levels.iter().map(|level| signals.filter_text(level.signal)).collect();
        texts.sort_unstable();
        texts.dedup();
        let filter_text = match texts[..] {
            [one] => one.to_string(),
            _ if texts.contains(&"") => String::new(),
            _ => texts.iter().map(|text| format!("({text})")).collect::<Vec<_>>().join(" or "),
        };
        Ok(LevelCondition { text: text.trim().to_string(), levels: reader.levels, joined, filter_text })
    }
}

/// What is wrong with a text, and where.
struct Bad {
    at: usize,
    cause: String,
    remedy: String,
}

impl Bad {
    fn fault(self, text: &str) -> Fault {
        let cause = format!("condition: {} at byte {}", self.cause, self.at);
        Fault::whole(cause).with_value(text).showing(excerpt(text, self.at)).remedy(self.remedy)
    }
}

/// Words of the language, which are no amounts.
const COMPARISONS: [(&str, Op); 5] =
    [(">=", Op::AtLeast), ("<=", Op::AtMost), ("==", Op::Equal), (">", Op::Above), ("<", Op::Below)];

struct Reader<'a> {
    text: &'a str,
    at: usize,
    signals: &'a SignalSet,
    levels: Vec<Level>,
    nesting: usize,
}

impl<'a> Reader<'a> {
    /// What is still to be read, without the blanks in front of it.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn bad<T>(&self, cause: impl Into<String>, remedy: impl Into<String>) -> Result<T, Bad> {
        self.bad_at(self.at, cause, remedy)
    }

    fn bad_at<T>(&self, at: usize, cause: impl Into<String>, remedy: impl Into<String>) -> Result<T, Bad> {
        Err(Bad { at, cause: cause.into(), remedy: remedy.into() })
    }

    /// The word that stands next, as it is shown.
    fn word(&mut self) -> String {
        let rest = self.rest();
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',')).unwrap_or(rest.len());
        let word = if end == 0 { rest.chars().take(1).collect() } else { rest[..end].to_string() };
        if word.is_empty() { "the end".to_string() } else { format!("'{word}'") }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    /// Takes a word, which ends where no letter follows.
    fn takes_word(&mut self, word: &str) -> bool {
        let behind = self.rest().strip_prefix(word);
        let found = behind.is_some_and(|behind| {
            !behind.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        });
        if found {
            self.at += word.len();
        }
        found
    }

    fn expects(&mut self, sign: &str, remedy: &str) -> Result<(), Bad> {
        if self.takes(sign) {
            return Ok(());
        }
        let word = self.word();
        self.bad(format!("{word} stands where '{sign}' is expected"), remedy)
    }

    /// What follows a whole condition.
    fn trailing(&mut self) -> Bad {
        let word = self.word();
        let remedy = match word.as_str() {
            "'&&'" => "write and",
            "'||'" => "write or",
            _ => {
                "join levels by 'and', 'or' and parentheses; a filter belongs into a signal: --signal 'NAME=FILTER'"
            }
        };
        Bad { at: self.at, cause: format!("{word} is out of place"), remedy: remedy.to_string() }
    }

    fn condition(&mut self) -> Result<Joined, Bad> {
        let mut parts = vec![self.all()?];
        while self.takes_word("or") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Joined::Any(parts) })
    }

    fn all(&mut self) -> Result<Joined, Bad> {
        let mut parts = vec![self.part()?];
        while self.takes_word("and") {
            parts.push(self.part()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Joined::All(parts) })
    }

    fn part(&mut self) -> Result<Joined, Bad> {
        if self.rest().starts_with('(') {
            let at = self.at;
            self.at += 1;
            self.nesting += 1;
            if self.nesting > NESTING_MAX {
                let cause = format!("parentheses are nested deeper than {NESTING_MAX}");
                return self.bad_at(at, cause, "write several triggers");
            }
            let joined = self.condition()?;
            self.nesting -= 1;
            self.expects(")", "close the parenthesis")?;
            return Ok(joined);
        }
        let level = self.level()?;
        self.levels.push(level);
        if self.levels.len() > LEVELS_MAX {
            let cause = format!("more than {LEVELS_MAX} levels");
            return self.bad(cause, "write several triggers");
        }
        Ok(Joined::Level(self.levels.len() - 1))
    }

    fn level(&mut self) -> Result<Level, Bad> {
        const SUCH: &str = "write e.g. signal(pps) > 5000/s for 200ms";
        if !self.takes_word("signal") {
            let word = self.word();
            let cause = format!("{word} stands where a level is expected");
            let remedy =
                "a level begins with signal(NAME); a filter belongs into a signal: --signal 'NAME=FILTER'";
            return self.bad(cause, remedy);
        }
        self.expects("(", SUCH)?;
        let (at, name) = (self.at_word(), self.name());
        let Some(signal) = self.signals.place(name) else {
            let known: Vec<&str> = self.signals.signals.iter().map(|signal| &*signal.name).collect();
            let remedy = format!("there are: {}; add others by --signal 'NAME=FILTER'", known.join(", "));
            return self.bad_at(at, format!("there is no signal '{name}'"), remedy);
        };
        let measure = self.signals.signals[signal].measure;
        let window_bins = if self.takes(",") { self.window(measure)? } else { 1 };
        self.expects(")", "close the parenthesis: signal(NAME) or signal(NAME, 100ms)")?;
        let test = self.test(measure)?;
        let at_for = self.at_word();
        let hold_bins = if self.takes_word("for") { self.time("for 200ms")? } else { 1 };
        if hold_bins > HOLD_BINS_MAX {
            return self.bad_at(at_for, "it is longer than a day", "write less");
        }
        if hold_bins > 1 && matches!(test, Test::Rises(_) | Test::Falls(_)) {
            let remedy = "write '>' or '<' for a level that has to last";
            return self.bad_at(at_for, "a crossing lasts one millisecond", remedy);
        }
        let mut until = None;
        if self.takes_word("until") {
            let op = self.op()?;
            let Some(op) = op else {
                let word = self.word();
                let cause = format!("{word} stands where a comparison is expected");
                return self.bad(cause, format!("write e.g. until < {}", measure.example()));
            };
            until = Some((op, self.bound(measure)?));
        }
        Ok(Level { signal, measure, window_bins, test, hold_bins, until })
    }

    fn at_word(&mut self) -> usize {
        self.rest();
        self.at
    }

    fn name(&mut self) -> &'a str {
        let rest = self.rest();
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ')' | '(')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// The time over which a value is a mean.
    fn window(&mut self, measure: Measure) -> Result<i64, Bad> {
        let at = self.at_word();
        let window_bins = self.time("signal(NAME, 100ms)")?;
        if measure == Measure::Gap {
            let remedy = "write signal(NAME) without a time";
            return self.bad_at(at, "a gap has no mean", remedy);
        }
        if window_bins > WINDOW_BINS_MAX {
            let remedy = "at most 1min; for longer times compare with a factor of mean(10min)";
            return self.bad_at(at, "it is longer than what is kept in milliseconds", remedy);
        }
        if measure.is_per_second() && window_bins % BINS_PER_SECOND != 0 {
            let cause = format!("{} has one value for a second", measure.name());
            return self.bad_at(at, cause, "write whole seconds");
        }
        Ok(window_bins)
    }

    /// A time, in bins.
    fn time(&mut self, such: &str) -> Result<i64, Bad> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '\u{b5}')))
            .unwrap_or(rest.len());
        match bins(&rest[..end]) {
            Ok(bins) => {
                self.at += end;
                Ok(bins)
            }
            Err(cause) => self.bad(cause, format!("write e.g. {such}")),
        }
    }

    fn op(&mut self) -> Result<Option<Op>, Bad> {
        for (sign, op) in COMPARISONS {
            if self.takes(sign) {
                return Ok(Some(op));
            }
        }
        match self.rest() {
            rest if rest.starts_with('=') => self.bad("'=' is no comparison", "write =="),
            rest if rest.starts_with("!=") => self.bad("'!=' is no comparison", "write > or <"),
            _ => Ok(None),
        }
    }

    fn test(&mut self, measure: Measure) -> Result<Test, Bad> {
        if let Some(op) = self.op()? {
            return Ok(Test::Is(op, self.bound(measure)?));
        }
        if self.takes_word("rises-through") {
            return Ok(Test::Rises(self.bound(measure)?));
        }
        if self.takes_word("falls-through") {
            return Ok(Test::Falls(self.bound(measure)?));
        }
        if self.takes_word("outside") {
            let at = self.at_word();
            let least = self.amount(measure)?;
            self.expects("..", &format!("write e.g. outside {0}..{0}", measure.example()))?;
            let most = self.amount(measure)?;
            if least.compare(most).is_ge() {
                return self.bad_at(at, "the band is empty", "write the smaller amount first");
            }
            return Ok(Test::Outside(least, most));
        }
        let word = self.word();
        let remedy = "there are: >, >=, <, <=, ==, rises-through, falls-through, outside A..B";
        self.bad(format!("{word} stands where a comparison is expected"), remedy)
    }

    fn bound(&mut self, measure: Measure) -> Result<Bound, Bad> {
        let at = self.at_word();
        let (number, unit) = self.number_and_unit();
        if unit != "x" {
            return self.read_amount(at, measure, number, unit).map(Bound::Fixed);
        }
        let Some(factor) = factor(number) else {
            return self.bad_at(at, format!("'{number}' is no factor"), "write e.g. 4x mean(10min)");
        };
        const SUCH: &str = "write e.g. 4x mean(10min)";
        if !self.takes_word("mean") {
            let word = self.word();
            return self.bad(format!("{word} stands where 'mean(' is expected"), SUCH);
        }
        self.expects("(", SUCH)?;
        let at = self.at_word();
        let bins = self.time("mean(10min)")?;
        self.expects(")", SUCH)?;
        if measure == Measure::Gap {
            return self.bad_at(at, "a gap has no mean", format!("write e.g. {}", measure.example()));
        }
        if bins % BINS_PER_SECOND != 0 {
            return self.bad_at(at, "it is no whole number of seconds", SUCH);
        }
        let seconds = bins / BINS_PER_SECOND;
        if seconds > MEAN_SECONDS_MAX {
            return self.bad_at(at, "it is longer than what is kept in seconds", "at most 1h");
        }
        Ok(Bound::OfMean { factor, seconds })
    }

    fn amount(&mut self, measure: Measure) -> Result<Amount, Bad> {
        let at = self.at_word();
        let (number, unit) = self.number_and_unit();
        self.read_amount(at, measure, number, unit)
    }

    fn read_amount(&self, at: usize, measure: Measure, number: &str, unit: &str) -> Result<Amount, Bad> {
        let remedy = format!("write e.g. {}", measure.example());
        if number.is_empty() {
            let cause = match self.text[at..].chars().next() {
                Some(sign @ ('-' | '+')) => format!("'{sign}': an amount has no sign"),
                _ => "an amount is missing".to_string(),
            };
            return self.bad_at(at, cause, remedy);
        }
        measure.read(number, unit).or_else(|cause| {
            let written = if cause.starts_with('\'') { cause } else { format!("'{number}{unit}' {cause}") };
            self.bad_at(at, written, remedy)
        })
    }

    /// A number as far as it goes, and the unit right behind it. Two points are no part of a number.
    fn number_and_unit(&mut self) -> (&'a str, &'a str) {
        let rest = self.rest();
        let mut end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        end = rest[..end].find("..").unwrap_or(end);
        let behind = &rest[end..];
        let unit_end = behind
            .find(|c: char| !(c.is_ascii_alphabetic() || matches!(c, '/' | '%')))
            .unwrap_or(behind.len());
        self.at += end + unit_end;
        (&rest[..end], &behind[..unit_end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Written;
    use proptest::prelude::*;
    use scope_filter::VlanRule;
    use scope_packet::LinkType;

    pub(crate) fn signals() -> SignalSet {
        let texts = ["syn=tcp[tcpflags] == tcp-syn", "hb=udp port 9", "who:hosts=", "len:size=", "g:gap=udp"];
        let written = texts.map(Written::take_apart);
        SignalSet::read(&written, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap()
    }

    fn parse(text: &str) -> Result<LevelCondition, String> {
        LevelCondition::parse(text, &signals()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn conditions_are_told_from_filters() {
        for text in ["signal(a) > 1/s", "(signal(a) > 1/s)", " ( ( signal (a)", "signal("] {
            assert!(is_level(text), "{text}");
        }
        for text in ["", "udp", "signal", "signals(a)", "count(udp) > 1", "(udp)"] {
            assert!(!is_level(text), "{text}");
        }
    }

    #[test]
    fn a_condition_is_read_as_the_grammar_says() {
        let read = parse("signal(syn) > 5000/s for 200ms").unwrap();
        let level = &read.levels[0];
        assert_eq!((level.signal, level.window_bins, level.hold_bins), (3, 1, 200));
        assert!(matches!(level.test, Test::Is(Op::Above, Bound::Fixed(_))) && level.until.is_none());
        assert_eq!(read.filter_text, "tcp[tcpflags] == tcp-syn");
        let read = parse("signal(bps , 100ms)>=8Mbit/s until <2Mbit/s").unwrap();
        assert_eq!((read.levels[0].window_bins, read.filter_text.as_str()), (100, ""));
        assert!(matches!(read.levels[0].until, Some((Op::Below, _))));
        let read = parse("signal(pps) > 4x mean(10min)").unwrap();
        assert!(matches!(
            read.levels[0].test,
            Test::Is(Op::Above, Bound::OfMean { seconds: 600, factor }) if factor.to_f64() == 4.0
        ));
        let read = parse("signal(pps) outside 10/s..20.5/s").unwrap();
        assert!(matches!(read.levels[0].test, Test::Outside(_, most) if most.to_f64() == 20.5));
        assert!(matches!(parse("signal(len) rises-through 128B").unwrap().levels[0].test, Test::Rises(_)));
        assert!(matches!(parse("signal(g) > 10ms").unwrap().levels[0].test, Test::Is(..)));
        let read = parse("signal(hb) == 0 for 3s and (signal(syn) > 1/s or signal(who) > 5/s)").unwrap();
        assert_eq!(read.filter_text, "", "hosts of everything");
        let any = Joined::Any(vec![Joined::Level(1), Joined::Level(2)]);
        assert_eq!(read.joined, Joined::All(vec![Joined::Level(0), any]));
        let read = parse("signal(hb) == 0 or signal(syn) > 1/s").unwrap();
        assert_eq!(read.filter_text, "(tcp[tcpflags] == tcp-syn) or (udp port 9)");
    }

    #[test]
    fn faults_have_a_place_and_a_remedy() {
        let check = |text: &str, at: usize, words: &[&str]| {
            let said = parse(text).expect_err(text);
            assert!(said.contains(&format!("at byte {at}")), "{text}: {said}");
            words.iter().for_each(|word| assert!(said.contains(word), "{text}: no '{word}' in {said}"));
        };
        check("signal(nix) > 1/s", 7, &["no signal 'nix'", "pps, bps, drops, syn"]);
        check("signal(pps) > 1", 14, &["'1' has no unit", "5000/s"]);
        check("signal(pps) > -1/s", 14, &["an amount has no sign"]);
        check("signal(pps) > 1B", 14, &["'B' is no unit of pps"]);
        check("signal(pps) 5/s", 12, &["comparison is expected", "rises-through"]);
        check("signal(pps) = 5/s", 12, &["write =="]);
        check("signal(pps) outside 20/s..10/s", 20, &["the band is empty"]);
        check("signal(pps) outside 10/s..10/s", 20, &["the band is empty"]);
        check("signal(pps) > 1/s for", 21, &["for 200ms"]);
        check("signal(pps) > 1/s for 1us", 22, &["whole number of milliseconds"]);
        check("signal(pps) rises-through 1/s for 1s", 30, &["a crossing lasts one millisecond"]);
        check("signal(pps) > 1/s until 5/s", 24, &["comparison is expected"]);
        check("signal(pps) > 1/s and udp", 22, &["a level is expected", "--signal"]);
        check("signal(pps) > 1/s && signal(bps) > 1bit/s", 18, &["write and"]);
        check("(signal(pps) > 1/s", 18, &["the end", "')'"]);
        check("signal(pps) > 1/s)", 17, &["out of place"]);
        check("signal(who, 100ms) > 1/s", 12, &["whole seconds"]);
        check("signal(g, 100ms) > 1ms", 10, &["a gap has no mean"]);
        check("signal(pps, 2min) > 1/s", 12, &["at most 1min"]);
        check("signal(pps) > 4x", 16, &["mean("]);
        check("signal(pps) > 4x mean(1500ms)", 22, &["whole number of seconds"]);
        check("signal(pps) > 4x mean(2h)", 22, &["at most 1h"]);
        check(&format!("{}signal(pps) > 1/s", "(".repeat(40)), 32, &["nested deeper than 32"]);
        assert!(parse(&"signal(pps) > 1/s or ".repeat(500)).unwrap_err().contains("too long"));
        assert!(parse(&"signal(pps)>1/s or ".repeat(70)).unwrap_err().contains("more than 64 levels"));
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[ -~\u{b5}\u{e9}]{0,80}", head in "(signal\\(pps[,) ]{0,3})?") {
            let text = head + &text;
            if let Err(said) = parse(&text) {
                prop_assert!(!said.is_empty());
            }
        }
    }
}
