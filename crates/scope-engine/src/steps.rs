//! Steps of the system's clock: seen by holding it against the monotonic clock, which nobody sets.
//!
//! ```text
//! wall - monotonic   ─────────┐ set back by 40 s: a new era                  ┌──── set forward: time goes on
//!                             └──────────────────────────────────────────────┘
//! ```
//! Eras of live capture are numbered here, for all workers of a run. Each of them enters a new one by itself,
//! at its first packet that was stamped after the step, or when nothing comes. Looked at by the run's main
//! thread every 10 ms, and by a worker that meets an odd time.

use scope_events::event;
use scope_packet::Clock;
use scope_packet::time::ERA_STEP_NS;
use scope_spelling::time::iso;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A step that is smaller, ns, is nobody's business.
const NOTED_NS: i64 = 10_000_000;
/// Both clocks are read within this time, or again.
const READ_WITHIN: Duration = Duration::from_millis(1);
/// Times that they are read at most for one look.
const READS_MAX: u32 = 10;
/// Steps that nobody has reported yet are kept; of more only the number.
const NEWS_MAX: usize = 64;
/// Eras that are over, of which the clock is remembered: a worker is never that many behind.
const PAST_MAX: usize = 16;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    /// What the clock showed after it, ns.
    pub to_ns: i64,
    /// How far it was set, ns; below 0: back.
    pub by_ns: i64,
    /// It is not the system's, but that of a card which stamps packets.
    pub of_card: bool,
}

impl ClockStep {
    /// As the log has it.
    pub(crate) fn event(self) -> event::ClockStep {
        let of = if self.of_card { "card" } else { "system" };
        event::ClockStep { to: iso(self.to_ns), by_ns: self.by_ns, of: of.into() }
    }

    /// In words.
    pub(crate) fn text(self) -> String {
        let seconds = self.by_ns.unsigned_abs() as f64 / 1e9;
        let to = iso(self.to_ns);
        match self.by_ns {
            _ if self.of_card => format!(
                "a card's clock, which stamps packets, is {seconds:.3} s behind the times so far, at {to}: \
                 open windows end there, new ones begin there"
            ),
            by_ns if by_ns <= -ERA_STEP_NS => format!(
                "the system's clock was set back by {seconds:.3} s, to {to}: open windows end there, new \
                ones begin there"
            ),
            ..0 => format!("the system's clock was set back by {seconds:.3} s, to {to}"),
            _ => {
                format!("the system's clock was set forward by {seconds:.3} s, to {to}, or the machine slept")
            }
        }
    }
}

/// What two clocks say at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall_ns: i64,
    monotonic_ns: i64,
}

impl Reading {
    /// Reads both near each other; `None` where this thread was interrupted again and again.
    fn of(clock: &dyn Clock) -> Option<Reading> {
        (0..READS_MAX).find_map(|_| {
            let before = clock.monotonic();
            let wall_ns = clock.wall_ns();
            let near = clock.monotonic().saturating_sub(before) <= READ_WITHIN;
            near.then_some(Reading { wall_ns, monotonic_ns: before.as_nanos() as i64 })
        })
    }
}

/// The steps of a run so far.
#[derive(Debug, Default)]
pub struct Steps {
    /// Eras begun so far.
    era: AtomicU64,
    state: Mutex<State>,
}

/// An era that is over.
#[derive(Clone, Copy, Debug)]
struct Past {
    era: u64,
    /// Wall clock less monotonic clock at its end, ns.
    ahead_ns: i64,
    /// What the clock showed when it was found to be over, ns.
    to_ns: i64,
}

#[derive(Debug, Default)]
struct State {
    /// Wall clock less monotonic clock at the last look, ns.
    ahead_ns: Option<i64>,
    /// The latest that the wall clock has shown in this era, ns: several small steps back are one large one.
    latest_ns: i64,
    /// Eras that are over, the latest last.
    past: VecDeque<Past>,
    news: Vec<ClockStep>,
    unkept: u64,
}

impl Steps {
    /// The era that live capture is in. One load.
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Looks at the clocks; the era by now.
    pub fn look(&self, clock: &dyn Clock) -> u64 {
        if let Some(reading) = Reading::of(clock) {
            self.take(reading);
        }
        self.era()
    }

    fn take(&self, reading: Reading) {
        let mut state = self.state.lock().expect("no panic while held");
        let ahead_ns = reading.wall_ns.saturating_sub(reading.monotonic_ns);
        let by_ns = ahead_ns.saturating_sub(*state.ahead_ns.get_or_insert(ahead_ns));
        // What it would show had nobody set it back.
        state.latest_ns = state.latest_ns.max(reading.wall_ns.saturating_sub(by_ns.min(0)));
        if by_ns.abs() < NOTED_NS {
            return; // what it drifts while it is slewed stays beneath this, or becomes one small step
        }
        let before_ns = state.ahead_ns.replace(ahead_ns).unwrap_or(ahead_ns);
        if state.latest_ns.saturating_sub(reading.wall_ns) >= ERA_STEP_NS {
            state.latest_ns = reading.wall_ns;
            if state.past.len() == PAST_MAX {
                state.past.pop_front();
            }
            state.past.push_back(Past { era: self.era(), ahead_ns: before_ns, to_ns: reading.wall_ns });
            self.era.fetch_add(1, Ordering::Release);
        }
        note(&mut state, ClockStep { to_ns: reading.wall_ns, by_ns, of_card: false });
    }

    /// What the system's clock would show, ns, if it were still as it was in `era`, which is over: nothing of
    /// that era was stamped later.
    pub(crate) fn unset_ns(&self, era: u64, clock: &dyn Clock) -> Option<i64> {
        let state = self.state.lock().expect("no panic while held");
        let past = state.past.iter().rfind(|past| past.era == era)?;
        Some(past.ahead_ns.saturating_add(clock.monotonic().as_nanos() as i64))
    }

    /// What the system's clock showed, ns, when `era` was found to have begun by it: it may have begun a
    /// moment before, not later.
    pub(crate) fn begun_ns(&self, era: u64) -> Option<i64> {
        let state = self.state.lock().expect("no panic while held");
        state.past.iter().rfind(|past| past.era + 1 == era).map(|past| past.to_ns)
    }

    /// A clock other than the system's, which stamps packets, was set back to `to_ns`; the new era.
    pub(crate) fn begin_era(&self, step: ClockStep) -> u64 {
        let mut state = self.state.lock().expect("no panic while held");
        self.era.fetch_add(1, Ordering::Release);
        note(&mut state, step);
        self.era()
    }

    /// Steps since the last call, and how many more.
    pub(crate) fn news(&self) -> (Vec<ClockStep>, u64) {
        let mut state = self.state.lock().expect("no panic while held");
        (std::mem::take(&mut state.news), std::mem::take(&mut state.unkept))
    }
}

fn note(state: &mut State, step: ClockStep) {
    match state.news.len() {
        ..NEWS_MAX => state.news.push(step),
        _ => state.unkept += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn look(steps: &Steps, wall_ns: i64, monotonic_ns: i64) {
        steps.take(Reading { wall_ns, monotonic_ns });
    }

    #[test]
    fn a_step_back_begins_an_era_and_one_forward_is_told() {
        let steps = Steps::default();
        look(&steps, 1000 * S, S);
        look(&steps, 1001 * S, 2 * S);
        assert_eq!((steps.era(), steps.news()), (0, (Vec::new(), 0)));
        look(&steps, 962 * S, 3 * S);
        assert_eq!(
            (steps.era(), steps.news().0),
            (1, vec![ClockStep { to_ns: 962 * S, by_ns: -40 * S, of_card: false }])
        );
        look(&steps, 4963 * S, 4 * S);
        assert_eq!(
            (steps.era(), steps.news().0),
            (1, vec![ClockStep { to_ns: 4963 * S, by_ns: 4000 * S, of_card: false }])
        );
        look(&steps, 4964 * S - S / 2, 5 * S);
        assert_eq!((steps.era(), steps.news().0.len()), (1, 1), "too small for an era, and told");
    }

    #[test]
    fn news_are_bounded_and_eras_are_not_missed() {
        let steps = Steps::default();
        for n in 0..100 {
            look(&steps, 100_000 * S - n * 10 * S, n);
        }
        let (news, unkept) = steps.news();
        assert_eq!((steps.era(), news.len(), unkept), (99, NEWS_MAX, 99 - NEWS_MAX as u64));
        assert_eq!(steps.state.lock().expect("no panic").past.len(), PAST_MAX);
    }

    #[test]
    fn small_steps_back_that_add_up_begin_an_era() {
        let steps = Steps::default();
        look(&steps, 1000 * S, 0);
        look(&steps, 1000 * S - 4 * S / 10, S / 10);
        look(&steps, 1000 * S - 8 * S / 10, S / 5);
        assert_eq!((steps.era(), steps.news().0.len()), (0, 2));
        look(&steps, 1000 * S - 13 * S / 10, S * 3 / 10);
        assert_eq!(steps.era(), 1);
        // From then on it counts anew, and what the clock makes good counts no more.
        look(&steps, 1000 * S - 17 * S / 10, S * 4 / 10);
        look(&steps, 1010 * S, 12 * S);
        look(&steps, 1010 * S - S / 2, 12 * S + S / 10);
        assert_eq!(steps.era(), 1);
    }

    #[test]
    fn there_are_as_many_eras_as_the_clock_was_set_back_far_enough() {
        let mut dice = 7u64;
        let steps = Steps::default();
        let (mut wall_ns, mut monotonic_ns, mut back, mut all) = (1_000_000 * S, 0, 0, 0);
        let mut latest_ns = wall_ns;
        look(&steps, wall_ns, monotonic_ns);
        for _ in 0..10_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let by = (dice >> 33) as i64 % 50 - 25;
            (wall_ns, monotonic_ns) = (wall_ns + by * S / 10 + S / 100, monotonic_ns + S / 100);
            look(&steps, wall_ns, monotonic_ns);
            latest_ns = latest_ns.max(wall_ns).max(wall_ns - by * S / 10);
            let is_back = by < 0 && latest_ns - wall_ns >= ERA_STEP_NS;
            latest_ns = if is_back { wall_ns } else { latest_ns };
            (back, all) = (back + u64::from(is_back), all + u64::from(by != 0));
        }
        let (news, unkept) = steps.news();
        assert_eq!((steps.era(), news.len() as u64 + unkept), (back, all));
    }
}
