//! Values as operators write them: sizes, counts, durations, shares, times. The command line uses them, too.
//!
//! All arithmetic is in integers: what is written is what is meant, and what doesn't fit is refused with the
//! reason.

use jiff::Timestamp;

/// Parts per million in a whole.
pub const PPM: u32 = 1_000_000;

/// Digits behind the point at most.
const FRACTION_DIGITS_MAX: usize = 18;

/// Why a text is no value of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct BadValue {
    /// The text.
    pub value: String,
    /// What is wrong, in words that name it.
    pub cause: String,
}

impl BadValue {
    /// Of `value`, what it is: `'-5' is negative`.
    pub fn new(value: &str, is: impl std::fmt::Display) -> BadValue {
        BadValue { value: value.to_string(), cause: format!("'{value}' {is}") }
    }
}

/// A decimal number as written, and the unit behind it.
struct Decimal<'a> {
    /// All digits, without the point.
    digits: u128,
    /// 10 to the number of digits behind the point.
    scale: u128,
    unit: &'a str,
}

impl Decimal<'_> {
    fn read(text: &str) -> Result<Decimal<'_>, BadValue> {
        let text = text.trim();
        let number_bytes = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(number_bytes);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if text.starts_with('-') {
            return Err(BadValue::new(text, "is negative"));
        }
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(BadValue::new(text, "is not a number"));
        }
        if fraction.len() > FRACTION_DIGITS_MAX {
            return Err(BadValue::new(
                text,
                format!("has more than {FRACTION_DIGITS_MAX} digits behind the point"),
            ));
        }
        let scale = 10u128.pow(fraction.len() as u32);
        // A u64 has 20 digits; with 18 more behind the point they still fit.
        let whole = whole.trim_start_matches('0');
        let digits = if whole.len() <= 20 { format!("0{whole}{fraction}").parse().ok() } else { None };
        let digits = digits.ok_or_else(|| too_large(text))?;
        Ok(Decimal { digits, scale, unit: unit.trim_start() })
    }

    /// The value in units of which `factor` make one of the written unit; the flag says whether it is whole.
    fn times(&self, factor: u64) -> Option<(u128, bool)> {
        let product = self.digits.checked_mul(u128::from(factor))?;
        Some((product / self.scale, product % self.scale == 0))
    }
}

fn too_large(text: &str) -> BadValue {
    BadValue::new(text, "is too large")
}

fn unknown_unit(text: &str, unit: &str, known: &str) -> BadValue {
    let cause = format!("'{text}': unknown unit '{unit}'; known are {known}");
    BadValue { value: text.to_string(), cause }
}

/// Reads a size in bytes: `128`, `64KiB`, `1.5GiB`, `2M`. K, M, G, T with or without `iB` are powers of 1024;
/// kB, MB, GB, TB powers of 1000. A fraction of a byte under a larger unit is dropped.
pub fn parse_size(text: &str) -> Result<u64, BadValue> {
    let decimal = Decimal::read(text)?;
    let factor = match decimal.unit {
        "" | "B" => 1,
        "K" | "k" | "Ki" | "KiB" | "kiB" => 1 << 10,
        "M" | "Mi" | "MiB" => 1 << 20,
        "G" | "Gi" | "GiB" => 1 << 30,
        "T" | "Ti" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        unit => {
            return Err(unknown_unit(
                text,
                unit,
                "B, K, M, G, T and KiB, MiB, GiB, TiB (x 1024), kB, MB, GB, TB (x 1000)",
            ));
        }
    };
    let (value, whole) = decimal.times(factor).ok_or_else(|| too_large(text))?;
    if factor == 1 && !whole {
        return Err(BadValue::new(text, "is no whole number of bytes"));
    }
    u64::try_from(value).map_err(|_| too_large(text))
}

/// Reads a count: `1000`, `100k`, `1M`, `1.5M`, `2G`; k, M, G are powers of 1000.
pub fn parse_count(text: &str) -> Result<u64, BadValue> {
    let decimal = Decimal::read(text)?;
    let factor = match decimal.unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        unit => return Err(unknown_unit(text, unit, "k, M, G (x 1000)")),
    };
    match decimal.times(factor) {
        Some((_, false)) => Err(BadValue::new(text, "is no whole number")),
        Some((value, true)) => u64::try_from(value).map_err(|_| too_large(text)),
        None => Err(too_large(text)),
    }
}

/// Reads a duration in ns: `30s`, `10` (seconds), `250ms`, `1.5s`, `20us`, `100ns`, `5m`, `1h`, `2d`.
pub fn parse_duration_ns(text: &str) -> Result<i64, BadValue> {
    let decimal = Decimal::read(text)?;
    let factor = match decimal.unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        unit => {
            return Err(unknown_unit(
                text,
                unit,
                "ns, us, ms, s, min (or m), h, d; a bare number is seconds",
            ));
        }
    };
    match decimal.times(factor) {
        Some((_, false)) => Err(BadValue::new(text, "is no whole number of nanoseconds")),
        Some((value, true)) => i64::try_from(value).map_err(|_| too_large(text)),
        None => Err(too_large(text)),
    }
}

/// Reads a share, `10%`, `0.5%`, `10`, into parts per million.
pub fn parse_percent(text: &str) -> Result<u32, BadValue> {
    let decimal = Decimal::read(text)?;
    if !matches!(decimal.unit, "" | "%") {
        return Err(unknown_unit(text, decimal.unit, "%"));
    }
    match decimal.times(u64::from(PPM) / 100) {
        Some((value, true)) if value <= u128::from(PPM) => Ok(value as u32),
        Some((value, false)) if value < u128::from(PPM) => Err(BadValue::new(text, "is finer than 0.0001%")),
        _ => Err(BadValue::new(text, "is more than 100%")),
    }
}

/// A size, or a share of something larger: `50GiB`, `10%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOrShare {
    /// Bytes.
    Bytes(u64),
    /// Parts per million of the whole, at most [`PPM`].
    Ppm(u32),
}

impl SizeOrShare {
    /// Bytes where the whole has `whole`; a fraction of a byte is dropped.
    pub fn bytes_of(self, whole: u64) -> u64 {
        match self {
            SizeOrShare::Bytes(bytes) => bytes,
            // At most `whole`.
            SizeOrShare::Ppm(ppm) => (u128::from(whole) * u128::from(ppm.min(PPM)) / u128::from(PPM)) as u64,
        }
    }
}

/// Reads a size as [`parse_size`] does, or, with a `%` at its end, a share as [`parse_percent`] does.
pub fn parse_size_or_share(text: &str) -> Result<SizeOrShare, BadValue> {
    match text.trim_end().ends_with('%') {
        true => parse_percent(text).map(SizeOrShare::Ppm),
        false => parse_size(text).map(SizeOrShare::Bytes),
    }
}

/// Reads a time, ISO 8601 with a zone (`2026-11-20T20:31:05.123456789Z`) or seconds since the epoch
/// (`1795206665.123456789`), into ns since the epoch.
pub fn parse_time_ns(text: &str) -> Result<i64, BadValue> {
    let text = text.trim();
    if !text.contains([':', 'T']) {
        return parse_epoch_seconds(text);
    }
    if text.split_once('.').is_some_and(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count() > 9) {
        return Err(BadValue::new(text, "is finer than 1 ns"));
    }
    let timestamp: Timestamp = text
        .parse()
        .map_err(|_| BadValue::new(text, "is no time; write it like 2026-11-20T20:31:05.123456789Z"))?;
    match i64::try_from(timestamp.as_nanosecond()) {
        Ok(ns) if ns >= 0 => Ok(ns),
        _ => Err(BadValue::new(text, "lies outside 1970 to 2262")),
    }
}

fn parse_epoch_seconds(text: &str) -> Result<i64, BadValue> {
    let decimal = Decimal::read(text)?;
    if !matches!(decimal.unit, "" | "s") {
        return Err(BadValue::new(
            text,
            "is no time; write it like 2026-11-20T20:31:05Z or as seconds since 1970",
        ));
    }
    match decimal.times(1_000_000_000) {
        Some((_, false)) => Err(BadValue::new(text, "is finer than 1 ns")),
        Some((ns, true)) => i64::try_from(ns).map_err(|_| BadValue::new(text, "lies outside 1970 to 2262")),
        None => Err(too_large(text)),
    }
}

/// Highest number of a CPU that can be named, and one more.
pub const CPUS_MAX: u32 = 1024;

/// Reads a list of CPUs as the system writes them: `2-3`, `0,4-7`. Sorted, each once.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, BadValue> {
    let number = |part: &str| match part.trim().parse::<u32>() {
        Ok(cpu) if cpu < CPUS_MAX => Ok(cpu),
        Ok(_) => {
            Err(BadValue::new(part, format!("is too large for a CPU's number; at most {}", CPUS_MAX - 1)))
        }
        Err(_) => Err(BadValue::new(text, "is no list of CPUs such as 2-3")),
    };
    let mut cpus = std::collections::BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(BadValue::new(part, "runs backwards"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into_iter().collect())
}

/// Writes CPUs as [`parse_cpus`] reads them. They are sorted, each once.
pub fn format_cpus(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let written = runs.map(|run| match run {
        [] => String::new(),
        [cpu] => cpu.to_string(),
        [first, .., last] => format!("{first}-{last}"),
    });
    written.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::iso;
    use proptest::prelude::*;

    #[test]
    fn lists_of_cpus_are_read_and_written_as_the_system_does() {
        let check = |text: &str, cpus: &[u32], again: &str| {
            let read = parse_cpus(text).unwrap();
            assert_eq!((&read[..], format_cpus(&read).as_str()), (cpus, again), "{text}");
        };
        check("2-3", &[2, 3], "2-3");
        check("0", &[0], "0");
        check("7,0-2,1", &[0, 1, 2, 7], "0-2,7");
        check("5-5", &[5], "5");
        for text in ["", "x", "3-2", "1024", "0-99999999999", "1-", "-1", "1,,2"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_mean_what_is_written() {
        let check = |text, expected| assert_eq!(parse_size(text), Ok(expected), "{text}");
        check("128", 128);
        check("64KiB", 65_536);
        check("64 KiB", 65_536);
        check("1GiB", 1 << 30);
        check("2M", 2 << 20);
        check("2k", 2048);
        check("1.5GiB", 3 << 29);
        check("0.3K", 307);
        check("2MB", 2_000_000);
        check("1kB", 1000);
        check("18446744073709551615", u64::MAX);
    }

    #[test]
    fn counts_and_durations_and_shares_mean_what_is_written() {
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        assert_eq!(parse_count("1.5k"), Ok(1500));
        assert_eq!(parse_count("00000000000000000000000000042"), Ok(42));
        let check = |text, expected| assert_eq!(parse_duration_ns(text), Ok(expected), "{text}");
        check("30s", 30_000_000_000);
        check("10", 10_000_000_000);
        check("250ms", 250_000_000);
        check("5m", 300_000_000_000);
        check("1h", 3_600_000_000_000);
        check("1.5s", 1_500_000_000);
        check(".5", 500_000_000);
        check("7us", 7000);
        check("7µs", 7000);
        check("9ns", 9);
        assert_eq!(parse_percent("10%"), Ok(100_000));
        assert_eq!(parse_percent("0.5%"), Ok(5000));
        assert_eq!(parse_percent("100"), Ok(1_000_000));
    }

    #[test]
    fn a_size_or_a_share_is_told_by_its_percent_sign() {
        assert_eq!(parse_size_or_share("5GiB"), Ok(SizeOrShare::Bytes(5 << 30)));
        assert_eq!(parse_size_or_share("10"), Ok(SizeOrShare::Bytes(10)));
        assert_eq!(parse_size_or_share("12.5 % "), Ok(SizeOrShare::Ppm(125_000)));
        assert!(parse_size_or_share("101%").is_err() && parse_size_or_share("x").is_err());
        assert_eq!(SizeOrShare::Ppm(125_000).bytes_of(1001), 125);
        assert_eq!(SizeOrShare::Ppm(PPM).bytes_of(u64::MAX), u64::MAX);
        assert_eq!(SizeOrShare::Bytes(7).bytes_of(3), 7);
    }

    #[test]
    fn what_has_no_meaning_is_refused_with_the_reason() {
        let check = |result: Result<u64, BadValue>, part: &str| {
            let message = result.expect_err(part).cause;
            assert!(message.contains(part), "{message}");
        };
        check(parse_size("-1"), "negative");
        check(parse_size(""), "not a number");
        check(parse_size("."), "not a number");
        check(parse_size("1.2.3"), "not a number");
        check(parse_size("NaN"), "not a number");
        check(parse_size("inf"), "not a number");
        check(parse_size("1e9"), "unknown unit");
        check(parse_size("1.5"), "whole");
        check(parse_size("18446744073709551616"), "too large");
        check(parse_size("99999999999999999999T"), "too large");
        check(parse_size("999999999999999999999999999999999999999999999"), "too large");
        check(parse_count("1.5"), "whole");
        check(parse_count("1Ki"), "unknown unit");
        check(parse_duration_ns("1.5ns").map(|_| 0), "whole");
        check(parse_duration_ns("300000d").map(|_| 0), "too large");
        check(parse_duration_ns("5 minutes").map(|_| 0), "unknown unit");
        check(parse_percent("100.1%").map(|_| 0), "more than 100%");
        check(parse_percent("0.00001%").map(|_| 0), "finer");
        check(parse_time_ns("2026-11-20T20:31:05").map(|_| 0), "no time");
        check(parse_time_ns("2026-13-20T20:31:05Z").map(|_| 0), "no time");
        check(parse_time_ns("1969-12-31T23:59:59Z").map(|_| 0), "outside");
        check(parse_time_ns("2300-01-01T00:00:00Z").map(|_| 0), "outside");
        check(parse_time_ns("2026-11-20T20:31:05.1234567891Z").map(|_| 0), "finer");
        check(parse_time_ns("9223372037").map(|_| 0), "outside");
    }

    #[test]
    fn times_are_read_in_both_spellings() {
        let check = |text, expected| assert_eq!(parse_time_ns(text), Ok(expected), "{text}");
        check("1970-01-01T00:00:00Z", 0);
        check("2026-11-20T20:31:05.123456789Z", 1_795_206_665_123_456_789);
        check("2026-11-20T21:31:05.123456789+01:00", 1_795_206_665_123_456_789);
        check("2000-02-29T12:00:00.5Z", 951_825_600_500_000_000);
        check("1795206665.123456789", 1_795_206_665_123_456_789);
        check("0", 0);
    }

    proptest! {
        #[test]
        fn every_time_is_read_back_as_it_was_written(time_ns in 0..=i64::MAX) {
            let text = iso(time_ns);
            prop_assert_eq!(text.len(), 30);
            prop_assert_eq!(parse_time_ns(&text), Ok(time_ns));
        }

        #[test]
        fn every_number_is_read_back_as_it_was_written(n in any::<u64>(), ns in 0..=i64::MAX) {
            prop_assert_eq!(parse_size(&n.to_string()), Ok(n));
            prop_assert_eq!(parse_count(&n.to_string()), Ok(n));
            prop_assert_eq!(parse_duration_ns(&format!("{ns}ns")), Ok(ns));
            prop_assert_eq!(parse_duration_ns(&format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)), Ok(ns));
        }

        #[test]
        fn junk_never_panics(text in "\\PC{0,40}", numeric in "[-+0-9.eEkKMGTiBnsumhd%:TZ ]{0,30}") {
            for text in [text, numeric] {
                let _ = (parse_size(&text), parse_count(&text), parse_duration_ns(&text), parse_percent(&text), parse_time_ns(&text));
            }
        }
    }
}
