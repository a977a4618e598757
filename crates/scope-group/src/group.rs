//! A group: what it takes of the ring's packets, how they are shared out, its seats, and its figures.

use crate::MEMBERS_MAX;
use crate::rules::{Dropped, RuleSet};
use crate::seat::Seat;
use crate::steer::Steer;
use scope_filter::Filter;
use scope_ring::RingError;
use scope_share::Progress;
use scope_share::page::Standing;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What may change while the run goes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Only packets that it matches are taken.
    pub filter: Filter,
    /// Only packets that came by this interface are; `None`: by any.
    pub interface: Option<String>,
    /// Who gets which of them.
    pub steer: Steer,
    /// What becomes of single ones.
    pub rules: Arc<RuleSet>,
}

impl Settings {
    /// Whether they say the same.
    pub fn is_same(&self, other: &Settings) -> bool {
        self.filter.text() == other.filter.text()
            && self.interface == other.interface
            && self.steer == other.steer
            && self.rules.text() == other.rules.text()
    }
}

/// A group as meant.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// Its name.
    pub name: String,
    /// What may change.
    pub settings: Settings,
    /// Memory of each member, bytes.
    pub memory_bytes: u64,
    /// Members at once at most.
    pub members_max: u32,
    /// Members that a run which loses nothing waits for before it begins.
    pub members: u32,
    /// A member that hasn't read for so long loses its flows to the others; `None`: it keeps them.
    pub stuck: Option<Duration>,
}

/// Packets of a group: `published = idle + seen + missed + behind`, `seen = filtered + dropped + unclaimed + taken`, and the sum
/// that all members were given is `taken + doubled + copied_in`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Committed to the ring since the run began.
    pub published: u64,
    /// Of these, those that came while it had no member.
    pub idle: u64,
    /// Looked at for it.
    pub seen: u64,
    /// Recycled before the thread had them.
    pub missed: u64,
    /// Still to be looked at.
    pub behind: u64,
    /// That its filter doesn't match, or that came by another interface.
    pub filtered: u64,
    /// That no member wanted.
    pub unclaimed: u64,
    /// Given to a member.
    pub taken: u64,
    /// Given to further ones.
    pub doubled: u64,
    /// That rules took away, by rule.
    pub dropped: BTreeMap<String, u64>,
    /// That rules of other groups gave to members.
    pub copied_in: u64,
}

/// Members that are gone, as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// How many.
    pub members: u64,
    /// What they were given until they went.
    pub standing: Standing,
}

impl Gone {
    /// One more.
    pub fn add(&mut self, standing: Standing) {
        let sum = &mut self.standing;
        sum.given = sum.given.saturating_add(standing.given);
        sum.read = sum.read.saturating_add(standing.read);
        sum.missed = sum.missed.saturating_add(standing.missed);
        sum.behind = sum.given.saturating_sub(sum.read).saturating_sub(sum.missed);
        self.members += 1;
    }
}

/// See the module.
pub struct Group {
    name: String,
    memory_bytes: u64,
    members: u32,
    pub(crate) stuck: Option<Duration>,
    settings: Mutex<Arc<Settings>>,
    /// Rises with each change of the settings.
    version: AtomicU64,
    seats: Vec<Arc<Seat>>,
    figures: Mutex<Figures>,
}

/// A member as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCounts {
    /// Its seat.
    pub seat: u32,
    /// What it was given, and what became of that.
    pub standing: Standing,
    /// It waits for more.
    pub waits: bool,
    /// It stands still, and others have its flows.
    pub is_stuck: bool,
}

/// A group as it stands, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Of the group.
    pub counts: Counts,
    /// Of its members.
    pub members: Vec<MemberCounts>,
    /// Of those that are gone.
    pub gone: Gone,
}

/// What the thread knows of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    /// Packets that fell to it.
    pub given: u64,
    /// Of these, those that found no room.
    pub missed: u64,
}

impl Given {
    /// What became of them, by what its page says: whatever that is, no more is read than was given.
    pub fn standing(&self, said: &Progress) -> Standing {
        let Given { given, missed } = *self;
        let read = said.read.min(given.saturating_sub(missed));
        Standing { given, read, missed, behind: given.saturating_sub(missed).saturating_sub(read) }
    }
}

/// What the thread counts of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub seen: u64,
    pub missed: u64,
    pub filtered: u64,
    pub unclaimed: u64,
    pub taken: u64,
    pub doubled: u64,
    pub copied_in: u64,
    /// Packets of the ring in front of where the thread is, if the group has members.
    pub position: Option<u64>,
    pub gone: Gone,
}

/// The thread hands all its figures on at once, so that they add up whenever somebody looks.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub sums: Sums,
    /// Of each seat that is given packets.
    pub given: Vec<Option<Given>>,
    /// Of each seat whose last member is gone, that one's.
    pub last: Vec<Option<Given>>,
    pub dropped: Dropped,
}

impl Group {
    /// A group without members, with the memory of all that it may have.
    ///
    /// # Errors
    /// The memory can't be had.
    pub fn create(plan: &GroupPlan, run_id: [u8; 16]) -> Result<Group, RingError> {
        let seat = |_| Seat::create(plan.memory_bytes, run_id).map(Arc::new);
        Ok(Group {
            name: plan.name.clone(),
            memory_bytes: plan.memory_bytes,
            members: plan.members,
            stuck: plan.stuck,
            settings: Mutex::new(Arc::new(plan.settings.clone())),
            version: AtomicU64::new(0),
            seats: (0..plan.members_max.min(MEMBERS_MAX)).map(seat).collect::<Result<_, _>>()?,
            figures: Mutex::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Members that a run which loses nothing waits for before it begins.
    pub fn members_wanted(&self) -> u32 {
        self.members
    }

    /// What can't change while a run goes, and is another there, as it is spelled.
    pub fn sizes_that_wait(&self, plan: &GroupPlan) -> impl Iterator<Item = &'static str> {
        let sizes = [
            ("memory=", self.memory_bytes != plan.memory_bytes),
            ("members-max=", self.seats.len() as u32 != plan.members_max),
            ("members=", self.members != plan.members),
            ("stuck=", self.stuck != plan.stuck),
        ];
        sizes.into_iter().filter(|(_, is_other)| *is_other).map(|(word, _)| word)
    }

    /// Its seats, by number.
    pub fn seats(&self) -> &[Arc<Seat>] {
        &self.seats
    }

    /// What holds now, and how often it has changed.
    pub fn settings(&self) -> (Arc<Settings>, u64) {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        (settings.clone(), self.version.load(Ordering::Acquire))
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// From the next batch on this holds.
    pub fn change(&self, settings: Settings) {
        let mut held = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(settings);
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What whoever sits on a seat was given, and what of it found no room; where nobody does, whoever sat there last.
    pub fn given(&self, seat: usize) -> (u64, u64) {
        let figures = self.figures();
        let of = |given: &Vec<Option<Given>>| given.get(seat).copied().flatten();
        let Given { given, missed } = of(&figures.given).or(of(&figures.last)).unwrap_or_default();
        (given, missed)
    }

    /// How it stands, of a ring with at least so many packets by now.
    pub fn status(&self, published: u64) -> GroupCounts {
        let figures = self.figures();
        let Sums { seen, missed, filtered, unclaimed, taken, doubled, copied_in, position, gone } =
            figures.sums;
        let dropped = figures.dropped.by_name();
        let published = published.max(position.unwrap_or(0)).max(seen + missed);
        let behind = position.map_or(0, |position| published - position.max(seen + missed));
        let idle = published - seen - missed - behind;
        let of_seat = |(seat, given): (u32, &Option<Given>)| {
            let place = self.seats.get(seat as usize)?;
            let said = place.page().read().unwrap_or_default();
            let standing = (*given)?.standing(&said);
            Some(MemberCounts { seat, standing, waits: said.waits, is_stuck: place.is_stuck() })
        };
        GroupCounts {
            counts: Counts {
                published,
                idle,
                seen,
                missed,
                behind,
                filtered,
                unclaimed,
                taken,
                doubled,
                dropped,
                copied_in,
            },
            members: (0..).zip(&figures.given).filter_map(of_seat).collect(),
            gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_page_says_the_sum_holds() {
        let given = Given { given: 10, missed: 4 };
        for read in [0, 3, 6, 7, u64::MAX] {
            let said = Progress { read, missed: u64::MAX, ..Progress::default() };
            let Standing { given, read, missed, behind } = given.standing(&said);
            assert_eq!((given, missed, given), (10, 4, read + missed + behind));
        }
    }
}
