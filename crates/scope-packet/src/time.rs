//! Time inside Wirescope: i64 nanoseconds since the Unix epoch, UTC, everywhere.

/// Nanoseconds in one second.
pub const NS_PER_SECOND: i64 = 1_000_000_000;

/// Clamps a time that may lie outside what is stored (0..=`i64::MAX` ns since the epoch); the flag says that it did.
pub fn clamp_ns(time_ns: i128) -> (i64, bool) {
    match i64::try_from(time_ns) {
        Ok(ns) if ns >= 0 => (ns, false),
        Ok(_) => (0, true),
        Err(_) if time_ns < 0 => (0, true),
        Err(_) => (i64::MAX, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_is_clamped_and_said() {
        let check = |input: i128, expected| assert_eq!(clamp_ns(input), expected, "{input}");
        check(0, (0, false));
        check(-1, (0, true));
        check(i64::MAX as i128, (i64::MAX, false));
        check(i64::MAX as i128 + 1, (i64::MAX, true));
        check(i128::MIN, (0, true));
    }
}
