//! Times as people and file names spell them: UTC, ISO 8601, nanoseconds.

/// `2026-11-20T20:31:05.123456789Z`.
pub fn iso(time_ns: i64) -> String {
    timestamp(time_ns).strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

/// A span for people, without zeros at the end of a second: `2026-11-20T20:31:05.1Z WORD 20:31:06Z`, its
/// second time with its date only where that is another one.
pub fn between(from_ns: i64, word: &str, to_ns: i64) -> String {
    match to_ns {
        i64::MAX => format!("{} {word} the end", short(from_ns)),
        to_ns => format!("{} {word} {}", short(from_ns), without_date_of(from_ns, &short(to_ns))),
    }
}

/// Without zeros at the end.
fn short(time_ns: i64) -> String {
    let text = iso(time_ns);
    let digits = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
    format!("{digits}Z")
}

/// `text`, which begins with a date, without it where that is the one of `before_ns`.
pub fn without_date_of(before_ns: i64, text: &str) -> &str {
    const DATE: usize = "2026-11-20T".len();
    let before = iso(before_ns);
    if before.get(..DATE) == text.get(..DATE) { text.get(DATE..).unwrap_or(text) } else { text }
}

/// `2026-11-20T20-31-05.123456789Z`, as file names have it.
pub fn for_file_name(time_ns: i64) -> String {
    timestamp(time_ns).strftime("%Y-%m-%dT%H-%M-%S.%9fZ").to_string()
}

/// The time of a text that [`for_file_name`] has written, and of no other.
pub fn from_file_name(text: &str) -> Option<i64> {
    let (day, clock) = text.split_once('T')?;
    let time: jiff::Timestamp = format!("{day}T{}", clock.replace('-', ":")).parse().ok()?;
    let time_ns = i64::try_from(time.as_nanosecond()).ok()?;
    (for_file_name(time_ns) == text).then_some(time_ns)
}

fn timestamp(time_ns: i64) -> jiff::Timestamp {
    // i64 nanoseconds reach to the year 2262: always inside jiff's range.
    jiff::Timestamp::from_nanosecond(time_ns as i128).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nine_digits_are_there() {
        assert_eq!(iso(1_795_206_665_123_456_789), "2026-11-20T20:31:05.123456789Z");
        assert_eq!(iso(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(between(0, "to", 1_500_000_000), "1970-01-01T00:00:00Z to 00:00:01.5Z");
        assert_eq!(
            between(10_000_000_000, "and", 86_400_000_000_001),
            "1970-01-01T00:00:10Z and 1970-01-02T00:00:00.000000001Z"
        );
        assert_eq!(for_file_name(i64::MAX), "2262-04-11T23-47-16.854775807Z");
    }

    #[test]
    fn a_time_in_a_file_name_is_read_back_and_nothing_else_is_one() {
        for time_ns in [0, 1, 1_795_206_665_123_456_789, i64::MAX] {
            assert_eq!(from_file_name(&for_file_name(time_ns)), Some(time_ns));
        }
        for text in [
            "",
            "T",
            "2026-11-20T20:31:05.123456789Z",
            "2026-11-20T20-31-05.12345678Z",
            "2026-11-20T20-31-05.1234567890Z",
            "2026-11-20t20-31-05.123456789z",
            "2026-11-20T20-31-05.123456789+00",
            "2026-02-30T20-31-05.123456789Z",
            "2026-11-20T24-00-00.000000000Z",
            "2026-11-20T23-59-60.000000000Z",
            "9999-11-20T20-31-05.123456789Z",
        ] {
            assert_eq!(from_file_name(text), None, "{text}");
        }
    }
}
