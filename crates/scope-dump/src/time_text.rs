//! Times as people and file names spell them: UTC, ISO 8601, nanoseconds.

/// `2026-11-20T20:31:05.123456789Z`.
pub fn iso(time_ns: i64) -> String {
    timestamp(time_ns).strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

/// `2026-11-20T20-31-05.123456789Z`, as file names have it.
pub fn for_file_name(time_ns: i64) -> String {
    timestamp(time_ns).strftime("%Y-%m-%dT%H-%M-%S.%9fZ").to_string()
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
        assert_eq!(for_file_name(i64::MAX), "2262-04-11T23-47-16.854775807Z");
    }
}
