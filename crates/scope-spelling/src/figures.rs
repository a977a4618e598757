//! Figures as people read them: numbers, bytes, rates, spans of time.

/// A number with its thousands set apart: `1,234,567`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 packet`, `2 packets`.
pub fn counted(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", number(value), plural(value))
}

/// What stands behind a noun of so many things: `1 packet`, `2 packets`, for numbers that programs read.
pub fn plural(value: u64) -> &'static str {
    if value == 1 { "" } else { "s" }
}

/// Bytes: `64 KiB`, `1 GiB`, `1.5 MiB`, `100 B`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = (0..UNITS.len()).rev().find(|&step| bytes >> (10 * step) > 0).unwrap_or(0);
    format!("{} {}", digits(bytes as f64 / (1u64 << (10 * step)) as f64), UNITS[step])
}

/// Bits per second: `10 Gbit/s`.
pub fn bit_rate(bits_per_s: f64) -> String {
    const UNITS: [&str; 5] = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let step = (0..UNITS.len()).rev().find(|&step| bits_per_s >= 1000f64.powi(step as i32)).unwrap_or(0);
    format!("{} {}", digits(bits_per_s / 1000f64.powi(step as i32)), UNITS[step])
}

/// A span of time, ns: `250 ms`, `3.2 s`, `5 min 10 s`, `3 h 2 min`, `12 d 5 h`.
pub fn span(ns: i64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        ..0 => format!("-{}", span(ns.saturating_neg())),
        0 => "0 s".to_string(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} \u{b5}s", digits(seconds * 1e6)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(seconds * 1e3)),
        1_000_000_000..120_000_000_000 => format!("{} s", digits(seconds)),
        120_000_000_000..7_200_000_000_000 => {
            format!("{} min {} s", ns / 60_000_000_000, ns / 1_000_000_000 % 60)
        }
        7_200_000_000_000..172_800_000_000_000 => {
            format!("{} h {} min", ns / 3_600_000_000_000, ns / 60_000_000_000 % 60)
        }
        _ => format!("{} d {} h", ns / 86_400_000_000_000, ns / 3_600_000_000_000 % 24),
    }
}

/// Three digits that matter, without zeros at the end.
fn digits(value: f64) -> String {
    let decimals = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        let check = |said: String, expected| assert_eq!(said, expected);
        check(size(0), "0 B");
        check(size(1023), "1023 B");
        check(size(64 << 10), "64 KiB");
        check(size(1 << 30), "1 GiB");
        check(size(3 << 29), "1.5 GiB");
        check(size(u64::MAX), "16777216 TiB");
        check(bit_rate(10e9), "10 Gbit/s");
        check(bit_rate(0.0), "0 bit/s");
        check(bit_rate(356_789_000.0), "357 Mbit/s");
        check(number(0), "0");
        check(number(999), "999");
        check(number(1_234_567), "1,234,567");
        check(counted(1, "packet"), "1 packet");
        check(span(0), "0 s");
        check(span(250_000_000), "250 ms");
        check(span(858_993_459), "859 ms");
        check(span(3_210_000_000), "3.21 s");
        check(span(310_000_000_000), "5 min 10 s");
        check(span(100_000_000_000_000), "27 h 46 min");
        check(span(1_054_860_000_000_000), "12 d 5 h");
        check(span(i64::MIN), "-106751 d 23 h");
    }
}
