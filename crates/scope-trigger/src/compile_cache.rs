//! What one trigger knows of which hits make a dump filter, so that a hostile sender can't make it compile
//! the same failure again and again.
//!
//! ```text
//! shape known        the outcome is kept: some 100 ns
//! shape not known    the text is compiled, up to a millisecond, and the outcome kept
//!                    at most FAILURES_AT_ONCE such texts in a row fail, then FAILURES_PER_S in a second of capture time:
//!                    beyond that a hit of a shape that isn't known counts as one that makes no filter
//! ```
//! Only templates whose values, not only their kinds, decide have more shapes than that: see [`Shape`]. A
//! worker that can wait compiles every text: nothing read from a file is decided by speed.

use scope_filter::Shape;
use std::collections::{HashMap, VecDeque};

/// Outcomes that one trigger keeps; of more, the latest.
pub const OUTCOMES_MAX: usize = 256;
/// Texts that may fail one after another before failures are rationed.
pub const FAILURES_AT_ONCE: u32 = 32;
/// Texts that may fail in a second of capture time from then on.
pub const FAILURES_PER_S: u32 = 10;

/// What compiling has shown of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its values make a filter.
    Fits,
    /// They make none; the name of the first.
    Unfilled(&'static str),
    /// Its link type has no such filter; why.
    Uncompiled(String),
}

/// What is to be done about a hit whose filter is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Compile, and report to [`CompileCache::record`].
    Compile,
    /// Too many have failed lately to compile another that isn't known to fit.
    Rationed,
}

/// The outcomes of one trigger, and how many failures it may still find.
#[derive(Debug)]
pub struct CompileCache {
    outcomes: HashMap<Shape, Outcome>,
    /// Their shapes, oldest first.
    order: VecDeque<Shape>,
    failures_left: u32,
    /// Capture time up to which failures have been given back, ns.
    given_ns: i64,
    rationed: u64,
}

impl Default for CompileCache {
    fn default() -> CompileCache {
        let (outcomes, order) = (HashMap::new(), VecDeque::new());
        CompileCache { outcomes, order, failures_left: FAILURES_AT_ONCE, given_ns: i64::MIN, rationed: 0 }
    }
}

impl CompileCache {
    /// What is known of a shape. One look-up.
    pub fn known(&self, shape: &Shape) -> Option<&Outcome> {
        self.outcomes.get(shape)
    }

    /// Whether a filter may be compiled for a hit of `shape` at the worker's clock; `waits`: the worker can
    /// wait.
    pub fn admit(&mut self, shape: &Shape, clock_ns: i64, waits: bool) -> Next {
        if waits || self.outcomes.get(shape) == Some(&Outcome::Fits) || self.may_fail(clock_ns) {
            return Next::Compile;
        }
        self.rationed += 1;
        Next::Rationed
    }

    /// Keeps the outcome of compiling.
    pub fn record(&mut self, shape: &Shape, outcome: Outcome) {
        if outcome != Outcome::Fits {
            self.failures_left = self.failures_left.saturating_sub(1);
        }
        if self.outcomes.insert(*shape, outcome).is_none() {
            self.order.push_back(*shape);
        }
        if self.order.len() > OUTCOMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
    }

    /// Hits that were counted as making no filter unexamined, because too many had failed.
    pub fn rationed(&self) -> u64 {
        self.rationed
    }

    /// Failures that may be found at once.
    #[cfg(test)]
    pub(crate) fn failures_left(&self) -> u32 {
        self.failures_left
    }

    fn may_fail(&mut self, clock_ns: i64) -> bool {
        const STEP_NS: i64 = 1_000_000_000 / FAILURES_PER_S as i64;
        let passed_ns = clock_ns.saturating_sub(self.given_ns);
        if !(0..STEP_NS).contains(&passed_ns) {
            // A clock that stepped back gives nothing back, and starts again there.
            let back = u32::try_from((passed_ns / STEP_NS).max(0)).unwrap_or(u32::MAX);
            self.failures_left = self.failures_left.saturating_add(back).min(FAILURES_AT_ONCE);
            self.given_ns = clock_ns;
        }
        self.failures_left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_filter::Template;
    use scope_packet::{Headers, LinkType};

    const S: i64 = 1_000_000_000;

    /// The shape of a packet from port `port`, for a template whose values decide.
    fn shape(port: u16) -> Shape {
        let mut data = vec![
            2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1,
        ];
        data.extend([10, 0, 0, 2, 0, 0, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
        data[34..36].copy_from_slice(&port.to_be_bytes());
        let headers = Headers::parse(LinkType::ETHERNET, &data);
        Template::parse("port 1{srcPort}").unwrap().shape(&headers, LinkType::ETHERNET, &data).unwrap()
    }

    const UNFIT: Outcome = Outcome::Unfilled("$srcPort");

    #[test]
    fn an_outcome_is_kept() {
        let mut cache = CompileCache::default();
        assert_eq!(cache.known(&shape(1)), None);
        assert_eq!(cache.admit(&shape(1), S, false), Next::Compile);
        cache.record(&shape(1), UNFIT);
        cache.record(&shape(2), Outcome::Fits);
        assert_eq!(
            [1, 2, 3].map(|port| cache.known(&shape(port)).cloned()),
            [Some(UNFIT), Some(Outcome::Fits), None]
        );
        assert_eq!((cache.failures_left(), cache.rationed()), (FAILURES_AT_ONCE - 1, 0));
    }

    #[test]
    fn failures_are_rationed_for_a_worker_that_can_not_wait_and_what_is_known_to_fit_still_fits() {
        let mut cache = CompileCache::default();
        cache.record(&shape(7), Outcome::Fits);
        let mut fail = |at_ns: i64, ports: std::ops::Range<u16>, waits| {
            let mut compiled = 0;
            for port in ports {
                if cache.admit(&shape(port), at_ns, waits) == Next::Compile {
                    compiled += 1;
                    cache.record(&shape(port), UNFIT);
                }
            }
            (compiled, cache.admit(&shape(7), at_ns, waits), cache.rationed())
        };
        assert_eq!(fail(S, 100..200, false), (FAILURES_AT_ONCE, Next::Compile, 68));
        assert_eq!(
            fail(2 * S, 200..300, false),
            (FAILURES_PER_S, Next::Compile, 158),
            "some are given back in a second"
        );
        assert_eq!(
            fail(S, 300..310, false),
            (0, Next::Compile, 168),
            "a clock that stepped back gives nothing back"
        );
        assert_eq!(
            fail(S, 310..330, true),
            (20, Next::Compile, 168),
            "a worker that can wait compiles \
            them all"
        );
    }

    #[test]
    fn the_outcomes_are_bounded_and_the_latest_are_kept() {
        let mut cache = CompileCache::default();
        for port in 0..1000 {
            cache.record(&shape(port), Outcome::Fits);
        }
        assert_eq!((cache.outcomes.len(), cache.order.len()), (OUTCOMES_MAX, OUTCOMES_MAX));
        assert_eq!((cache.known(&shape(999)), cache.known(&shape(0))), (Some(&Outcome::Fits), None));
    }
}
