//! Figures out of measured values: medians, percentiles, and times as logs spell them.

use anyhow::{Context, Result};

/// The value below or at which `percent` of `values` lie (nearest rank); `None` without values.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The middle value, or the mean of the two middle ones; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Smallest and largest; `None` without values.
pub fn span(values: &[f64]) -> Option<(f64, f64)> {
    let min = values.iter().copied().min_by(f64::total_cmp)?;
    Some((min, values.iter().copied().max_by(f64::total_cmp)?))
}

/// A time such as `2026-11-20T20:31:05.123456789Z`, ns since the epoch.
///
/// # Errors
/// Where `text` is none.
pub fn time_ns(text: &str) -> Result<i64> {
    let time: jiff::Timestamp = text.parse().with_context(|| format!("'{text}' is no time"))?;
    Ok(i64::try_from(time.as_nanosecond())?)
}

/// Milliseconds from ns.
pub fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let check = |percent, expected| assert_eq!(percentile(&values, percent), Some(expected), "{percent}");
        check(0.0, 1.0);
        check(50.0, 100.0);
        check(99.0, 198.0);
        check(100.0, 200.0);
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&[], 99.0), None);
    }

    #[test]
    fn the_median_stands_in_the_middle() {
        let check = |values: &[f64], expected| assert_eq!(median(values), expected, "{values:?}");
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0, 5.0], Some(5.0));
        check(&[4.0, 1.0, 9.0, 2.0], Some(3.0));
    }

    #[test]
    fn the_span_is_that_of_the_values() {
        assert_eq!(span(&[2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
        assert_eq!(span(&[]), None);
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        assert_eq!(time_ns("1970-01-01T00:00:01.000000007Z").unwrap(), 1_000_000_007);
        assert!(time_ns("yesterday").is_err());
        assert_eq!(ms(1_500_000), 1.5);
    }
}
