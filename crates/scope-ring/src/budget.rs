//! The pin budget: it bounds how many segments dumps hold together, and shares them out.

use crate::lock::Mutex;
use std::sync::Arc;

/// How many segments dumps may hold together, and how it is shared out.
///
/// Every allowed dump has a share. A dump that begins may take all that is free, less one share for each
/// further dump that may still come; so none can starve the next. Where more dumps are allowed than there are
/// segments, the last ones get none, which is counted: they hold nothing ahead of their reading.
#[derive(Debug)]
pub struct PinBudget {
    /// Segments in all.
    segments: u64,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    taken: u64,
    /// Of these: by members.
    by_members: u64,
    holders: u64,
    /// Holders that got nothing, so far.
    refused: u64,
}

impl PinBudget {
    /// A budget of `segments`.
    pub fn new(segments: u64) -> PinBudget {
        PinBudget { segments, state: Mutex::default() }
    }

    /// Charges up to `wanted` segments for a new holder among at most `holders_max`: at least one where any
    /// is free.
    pub fn take(self: &Arc<Self>, wanted: u64, holders_max: u64) -> Allowance {
        let mut state = self.state.lock().expect("no panic while held");
        state.holders += 1;
        let share = (self.segments / holders_max.max(1)).max(1);
        let reserved = share * holders_max.saturating_sub(state.holders);
        let free = self.segments.saturating_sub(state.taken);
        let granted = free.saturating_sub(reserved).clamp(1, wanted.max(1)).min(free);
        state.taken += granted;
        state.refused += u64::from(granted == 0);
        Allowance { budget: self.clone(), segments: granted, is_dump: true }
    }

    /// Charges all of `wanted` segments for a member that reads the ring itself. All members together have at most half of
    /// the budget, so that dumps always have the rest.
    ///
    /// # Errors
    /// So many can't be had: how many could be.
    pub fn take_for_member(self: &Arc<Self>, wanted: u64) -> Result<Allowance, u64> {
        let mut state = self.state.lock().expect("no panic while held");
        let free = self.segments.saturating_sub(state.taken);
        let left = (self.segments / 2).saturating_sub(state.by_members).min(free);
        if wanted > left {
            return Err(left);
        }
        state.taken += wanted;
        state.by_members += wanted;
        Ok(Allowance { budget: self.clone(), segments: wanted, is_dump: false })
    }

    /// Segments that may be charged in all.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Holders that got nothing, so far.
    pub fn refused(&self) -> u64 {
        self.state.lock().expect("no panic while held").refused
    }

    /// Segments charged now.
    pub fn taken(&self) -> u64 {
        self.state.lock().expect("no panic while held").taken
    }
}

/// The segments that one dump, or one member, may hold at a time, charged until it is dropped.
#[derive(Debug)]
pub struct Allowance {
    budget: Arc<PinBudget>,
    segments: u64,
    is_dump: bool,
}

impl Allowance {
    /// Of nothing: whoever has it holds what it reads, and nothing ahead.
    pub fn none() -> Allowance {
        Allowance { budget: Arc::new(PinBudget::new(0)), segments: 0, is_dump: false }
    }

    /// Segments that may be held at a time; 0 where none was free.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Gives all of them back: nothing is held from now on.
    pub fn give_back(&mut self) {
        let mut state = self.budget.state.lock().expect("no panic while held");
        let segments = std::mem::take(&mut self.segments);
        state.taken -= segments;
        state.by_members -= if self.is_dump { 0 } else { segments };
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.give_back();
        if self.is_dump {
            self.budget.state.lock().expect("no panic while held").holders -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dump_leaves_a_share_for_each_that_may_come() {
        let budget = Arc::new(PinBudget::new(32));
        let first = budget.take(1000, 8);
        assert_eq!(first.segments(), 32 - 7 * 4);
        let second = budget.take(2, 8);
        assert_eq!(second.segments(), 2);
        let third = budget.take(1000, 8);
        assert_eq!(third.segments(), 32 - 4 - 2 - 5 * 4);
        drop(first);
        drop(third);
        drop(second);
        assert_eq!(budget.taken(), 0);
        let alone = budget.take(1000, 1);
        assert_eq!(alone.segments(), 32);
        let late = budget.take(5, 1);
        assert_eq!((late.segments(), budget.taken(), budget.refused()), (0, 32, 1), "a bound is a bound");
    }

    #[test]
    fn members_have_at_most_half_and_all_that_they_ask_for_or_nothing() {
        let budget = Arc::new(PinBudget::new(32));
        let first = budget.take_for_member(10).unwrap();
        assert_eq!(budget.take_for_member(7).unwrap_err(), 6);
        let second = budget.take_for_member(6).unwrap();
        assert_eq!(budget.take_for_member(1).unwrap_err(), 0);
        let dump = budget.take(1000, 1);
        assert_eq!((dump.segments(), budget.taken()), (16, 32));
        drop((first, second));
        assert_eq!(budget.take_for_member(17).unwrap_err(), 16);
        drop(dump);
        assert_eq!(budget.take_for_member(16).unwrap().segments(), 16);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn of_more_dumps_than_segments_each_gets_one_until_there_are_none() {
        let budget = Arc::new(PinBudget::new(4));
        let mut all: Vec<Allowance> = (0..6).map(|_| budget.take(u64::MAX, 6)).collect();
        assert_eq!(all.iter().map(Allowance::segments).collect::<Vec<_>>(), [1, 1, 1, 1, 0, 0]);
        assert_eq!((budget.taken(), budget.refused()), (4, 2));
        all[0].give_back();
        assert_eq!((all[0].segments(), budget.taken()), (0, 3));
    }
}
