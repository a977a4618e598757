//! How many requests an identity may send: a bucket for each, which fills by `rate` a second and holds two seconds of it.

use http::StatusCode;
use scope_api::Problem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Identities that have a bucket of their own; others share one.
const IDENTITIES_MAX: usize = 1024;
/// Seconds that fit into a bucket: so many requests may come at once.
const BURST_S: f64 = 2.0;

/// The buckets.
#[derive(Debug)]
pub(crate) struct Rates {
    /// Requests per second.
    rate: f64,
    /// By identity; the empty name is that of all those for whom there was no room.
    buckets: Mutex<HashMap<String, Bucket>>,
    refused: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Requests that may still come, at `at`.
    left: f64,
    at: Instant,
    /// The last request found none left.
    is_empty: bool,
}

/// A request that came too soon.
#[derive(Debug)]
pub(crate) struct TooSoon {
    pub problem: Problem,
    /// The one before it was answered.
    pub is_first: bool,
}

impl Rates {
    pub(crate) fn new(rate: u32) -> Rates {
        Rates { rate: f64::from(rate.max(1)), buckets: Mutex::default(), refused: AtomicU64::new(0) }
    }

    /// A request of `identity` comes at `now`.
    ///
    /// # Errors
    /// Too many came before: it isn't answered.
    pub(crate) fn admit(&self, identity: &str, now: Instant) -> Result<(), TooSoon> {
        let most = self.rate * BURST_S;
        let left = |bucket: &Bucket| {
            let since_s = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + since_s * self.rate).min(most)
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(identity) && buckets.len() >= IDENTITIES_MAX {
            buckets.retain(|_, bucket| left(bucket) < most); // a full one says no more than a new one
        }
        let has_room = buckets.contains_key(identity) || buckets.len() < IDENTITIES_MAX;
        let name = if has_room { identity } else { "" };
        let bucket =
            buckets.entry(name.to_string()).or_insert(Bucket { left: most, at: now, is_empty: false });
        *bucket = Bucket { left: left(bucket), at: now.max(bucket.at), ..*bucket };
        if bucket.left >= 1.0 {
            (bucket.left, bucket.is_empty) = (bucket.left - 1.0, false);
            return Ok(());
        }
        let is_first = !std::mem::replace(&mut bucket.is_empty, true);
        drop(buckets);
        self.refused.fetch_add(1, Ordering::Relaxed);
        let cause = format!("more than {} requests a second", self.rate);
        let remedy = "ask less often, or give the run a larger --control-rate";
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate", cause, remedy).retry_after(1);
        Err(TooSoon { problem, is_first })
    }

    /// Requests that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_identity_has_its_rate_and_no_other_one_pays_for_it() {
        let (rates, begin) = (Rates::new(10), Instant::now());
        let admitted = |name: &str, at: Instant| (0..100).filter(|_| rates.admit(name, at).is_ok()).count();
        assert_eq!(admitted("a", begin), 20);
        assert_eq!((admitted("b", begin), rates.refused()), (20, 160));
        assert_eq!(admitted("a", begin + Duration::from_millis(500)), 5);
        assert_eq!(admitted("a", begin), 0, "time that steps back gives nothing");
        assert_eq!(admitted("a", begin + Duration::from_secs(3600)), 20);
        let refused = rates.admit("a", begin + Duration::from_secs(3600)).unwrap_err();
        let TooSoon { problem, is_first } = refused;
        assert_eq!((problem.status, problem.retry_after_s), (StatusCode::TOO_MANY_REQUESTS, Some(1)));
        assert!(!is_first, "others were refused before it");
    }

    #[test]
    fn identities_beyond_the_bound_share_a_bucket_until_others_are_quiet() {
        let (rates, begin) = (Rates::new(1), Instant::now());
        for number in 0..IDENTITIES_MAX {
            assert!(rates.admit(&number.to_string(), begin).is_ok());
        }
        assert!(rates.admit("x", begin).is_ok() && rates.admit("y", begin).is_ok());
        assert!(rates.admit("z", begin).is_err());
        assert!(rates.buckets.lock().unwrap().len() <= IDENTITIES_MAX + 1);
        let later = begin + Duration::from_secs(60);
        assert!(rates.admit("z", later).is_ok() && rates.admit("z", later).is_ok());
        assert!(rates.buckets.lock().unwrap().len() <= 2);
    }
}
