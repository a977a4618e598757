//! What a signal measures, and how amounts of it are written and compared.
//!
//! | measure | of its packets | unit |
//! |---|---|---|
//! | `pps` | packets | `/s` |
//! | `bps` | bits on the wire | `bit/s` |
//! | `size` | mean length on the wire | `B` |
//! | `share` | their part of all packets, or of another signal | `%` |
//! | `hosts`, `flows` | distinct sources, distinct flows in a second; estimated | `/s` |
//! | `gap` | the bins without any, one after another, up to now | `ms` |
//! | `drops` | packets that the run lost | `/s` |
//! | `burst` | the largest bin of a second, scaled to a second | `/s` |
//!
//! Amounts are fractions of whole numbers, so that comparing them is exact: a level fires at the same bin
//! whatever the machine.

use scope_spelling::values::parse_duration_ns;
use std::cmp::Ordering;

/// A bin, ns of capture time. Bin `n` has the times `n` ms to `n + 1` ms since the epoch, without its end.
pub const BIN_NS: i64 = 1_000_000;
/// Bins of a second.
pub const BINS_PER_SECOND: i64 = 1000;
/// Levels are written with up to nine decimals.
const NANO: u128 = 1_000_000_000;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Packets per second.
    Packets,
    /// Bits per second.
    Bits,
    /// Mean length.
    Size,
    /// Part of a whole.
    Share,
    /// Distinct sources in a second.
    Hosts,
    /// Distinct flows in a second.
    Flows,
    /// Time without a packet.
    Gap,
    /// Packets lost per second.
    Drops,
    /// Packets of the largest bin of a second.
    Burst,
}

impl Measure {
    /// All, in the order in which they are shown.
    pub const ALL: [Measure; 9] = [
        Measure::Packets,
        Measure::Bits,
        Measure::Size,
        Measure::Share,
        Measure::Hosts,
        Measure::Flows,
        Measure::Gap,
        Measure::Drops,
        Measure::Burst,
    ];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Packets => "pps",
            Measure::Bits => "bps",
            Measure::Size => "size",
            Measure::Share => "share",
            Measure::Hosts => "hosts",
            Measure::Flows => "flows",
            Measure::Gap => "gap",
            Measure::Drops => "drops",
            Measure::Burst => "burst",
        }
    }

    /// The one of that word.
    pub fn named(word: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|measure| measure.name() == word)
    }

    /// Its unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Measure::Bits => "bit/s",
            Measure::Size => "B",
            Measure::Share => "%",
            Measure::Gap => "ms",
            Measure::Packets | Measure::Hosts | Measure::Flows | Measure::Drops | Measure::Burst => "/s",
        }
    }

    /// An amount, as somebody would write it.
    pub const fn example(self) -> &'static str {
        match self {
            Measure::Bits => "8Mbit/s",
            Measure::Size => "128B",
            Measure::Share => "5%",
            Measure::Gap => "10ms",
            Measure::Packets | Measure::Drops | Measure::Burst => "5000/s",
            Measure::Hosts | Measure::Flows => "200/s",
        }
    }

    /// Whether a second has one value of it, which is known once the second is over.
    pub const fn is_per_second(self) -> bool {
        matches!(self, Measure::Hosts | Measure::Flows | Measure::Burst)
    }

    /// What one of a unit's spelling is worth, in billionths; `None`: it is no unit of this measure.
    fn worth(self, unit: &str) -> Option<u128> {
        let of_time = |unit: &str| match unit {
            "ms" => Some(NANO),
            "us" => Some(NANO / 1_000),
            "s" => Some(NANO * 1_000),
            "min" => Some(NANO * 60_000),
            "h" => Some(NANO * 3_600_000),
            _ => None,
        };
        let scaled = |unit: &str, base: &str| {
            let prefix = unit.strip_suffix(base)?;
            let factor = match prefix {
                "" => 1,
                "k" => 1_000,
                "M" => 1_000_000,
                "G" => 1_000_000_000,
                "T" => 1_000_000_000_000,
                _ => return None,
            };
            Some(NANO * factor)
        };
        match self {
            Measure::Gap => of_time(unit),
            _ => scaled(unit, self.unit()),
        }
    }

    /// Reads an amount from its number and its unit.
    ///
    /// # Errors
    /// The number is none, or the unit is not one of this measure: the cause, in words that follow the amount.
    pub fn read(self, number: &str, unit: &str) -> Result<Amount, String> {
        let nano = decimal_nano(number).ok_or("is not a number with at most nine decimals")?;
        let worth = match unit {
            "" if nano == 0 => NANO, // nothing is nothing, in whatever unit
            unit => self.worth(unit).ok_or_else(|| match unit {
                "" => format!("has no unit: {} is measured in {}", self.name(), self.unit()),
                unit => {
                    format!("'{unit}' is no unit of {}, which is measured in {}", self.name(), self.unit())
                }
            })?,
        };
        let amount = nano.checked_mul(worth).ok_or("is too large")?;
        Ok(Amount::new(amount, NANO * NANO))
    }

    /// An amount in words: `6000/s`, `8.1 Mbit/s`.
    pub fn shown(self, amount: Amount) -> String {
        let value = amount.to_f64();
        let text = match self {
            Measure::Bits => return scope_spelling::figures::bit_rate(value),
            Measure::Size | Measure::Share => format!("{value:.1}"),
            _ => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_string(),
        };
        text + self.unit()
    }
}

/// Reads `12`, `0.5`, in billionths.
fn decimal_nano(number: &str) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    if number.ends_with('.') || whole.len() > 18 {
        return None;
    }
    let fraction: u128 = format!("{fraction:0<9}").parse().ok()?;
    Some(whole.parse::<u128>().ok()? * NANO + fraction)
}

/// Reads a factor, `4` or `1.5`.
pub(crate) fn factor(number: &str) -> Option<Amount> {
    decimal_nano(number).map(|nano| Amount::new(nano, NANO))
}

/// Reads a time in whole bins.
///
/// # Errors
/// It is none: the cause, in words that follow it.
pub(crate) fn bins(text: &str) -> Result<i64, String> {
    let ns = parse_duration_ns(text).map_err(|bad| bad.cause)?;
    match ns {
        0 => Err(format!("'{text}' is no time")),
        ns if ns % BIN_NS != 0 => Err(format!("'{text}' is no whole number of milliseconds")),
        ns => Ok(ns / BIN_NS),
    }
}

/// An amount of a measure, in its unit: a fraction of whole numbers.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    num: u128,
    den: u128,
}

impl Amount {
    /// `num / den`; `den` is more than 0.
    pub const fn new(num: u128, den: u128) -> Amount {
        assert!(den > 0);
        Amount { num, den }
    }

    /// Nothing.
    pub const ZERO: Amount = Amount::new(0, 1);

    /// Both multiplied. Where that is too much for whole numbers, as near as a machine's fraction comes.
    #[must_use]
    pub fn times(self, other: Amount) -> Amount {
        let exact = self.num.checked_mul(other.num).zip(self.den.checked_mul(other.den));
        exact.map_or_else(
            || {
                let value = self.to_f64() * other.to_f64();
                Amount::new((value * 1e6) as u128, 1_000_000)
            },
            |(num, den)| Amount::new(num, den),
        )
    }

    /// How it compares; exact unless both sides have more than 38 digits.
    pub fn compare(self, other: Amount) -> Ordering {
        match self.num.checked_mul(other.den).zip(other.num.checked_mul(self.den)) {
            Some((own, other)) => own.cmp(&other),
            None => self.to_f64().total_cmp(&other.to_f64()),
        }
    }

    /// The nearest machine's fraction.
    pub fn to_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_measures_unit_and_nothing_else() {
        let check = |measure: Measure, number: &str, unit: &str, expected: f64| {
            assert_eq!(measure.read(number, unit).unwrap().to_f64(), expected, "{number}{unit}");
        };
        check(Measure::Packets, "5000", "/s", 5000.0);
        check(Measure::Packets, "5", "k/s", 5000.0);
        check(Measure::Packets, "0.5", "/s", 0.5);
        check(Measure::Packets, "0", "", 0.0);
        check(Measure::Bits, "8", "Mbit/s", 8e6);
        check(Measure::Size, "128", "B", 128.0);
        check(Measure::Share, "5", "%", 5.0);
        check(Measure::Gap, "10", "ms", 10.0);
        check(Measure::Gap, "1.5", "s", 1500.0);
        let refused = |measure: Measure, number: &str, unit: &str, words: &str| {
            let said = measure.read(number, unit).unwrap_err();
            assert!(said.contains(words), "{said}");
        };
        refused(Measure::Packets, "5", "", "has no unit: pps is measured in /s");
        refused(Measure::Packets, "5", "bit/s", "'bit/s' is no unit of pps");
        refused(Measure::Bits, "5", "B", "is measured in bit/s");
        refused(Measure::Gap, "5", "/s", "is measured in ms");
        refused(Measure::Packets, "1.0000000001", "/s", "nine decimals");
        refused(Measure::Packets, ".5", "/s", "not a number");
        refused(Measure::Packets, "9999999999999999999", "/s", "not a number");
        for measure in Measure::ALL {
            let at = measure.example().find(|c: char| !c.is_ascii_digit()).unwrap();
            let (number, unit) = measure.example().split_at(at);
            assert!(measure.read(number, unit).is_ok(), "{}", measure.name());
            assert_eq!(Measure::named(measure.name()), Some(measure));
        }
    }

    #[test]
    fn amounts_compare_exactly() {
        let third = Amount::new(1, 3);
        assert_eq!(third.compare(Amount::new(333_333_333, 1_000_000_000)), Ordering::Greater);
        assert_eq!(third.times(Amount::new(3, 1)).compare(Amount::new(1, 1)), Ordering::Equal);
        let huge = Amount::new(u128::MAX, 3);
        assert_eq!(huge.compare(Amount::new(u128::MAX, 2)), Ordering::Less);
        assert!(huge.times(huge).to_f64() > 0.0);
    }

    #[test]
    fn times_are_whole_bins() {
        assert_eq!(bins("200ms"), Ok(200));
        assert_eq!(bins("3"), Ok(3000));
        assert!(bins("0s").unwrap_err().contains("no time"));
        assert!(bins("1us").unwrap_err().contains("whole number of milliseconds"));
        assert!(bins("x").is_err());
    }
}
