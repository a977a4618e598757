//! How much may still be written under each bound, below nothing included: what is over a bound must be made
//! good first.

use super::Limits;

/// What deleting gives, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gain {
    /// Of what dumps take: the blocks that they have.
    pub bytes: u64,
    /// On the file system: the same, and nothing for a file that has a second name.
    pub disk: u64,
}

impl Gain {
    pub(super) fn and(self, other: Gain) -> Gain {
        Gain { bytes: self.bytes.saturating_add(other.bytes), disk: self.disk.saturating_add(other.disk) }
    }
}

/// Room under each bound, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    of_budget: Option<i128>,
    /// The budget that this is the room of, and whether it is another run's.
    budget: u64,
    is_of_another_run: bool,
    of_disk: Option<i128>,
    used: u64,
    free: u64,
    free_min: u64,
}

impl Room {
    /// Where dumps take `used` bytes, and the file system has `space`: free bytes, and all. Where that is
    /// unknown, writing shows what is wrong.
    pub(super) fn new(limits: &Limits, used: u64, space: Option<(u64, u64)>) -> Room {
        let of_budget = limits.bytes_max.map(|max| i128::from(max) - i128::from(used));
        let bound = limits.free_min.zip(space).map(|(min, (free, total))| (free, min.bytes_of(total)));
        let of_disk = bound.map(|(free, min)| i128::from(free) - i128::from(min));
        let (free, free_min) = bound.unwrap_or_default();
        Room {
            of_budget,
            budget: limits.bytes_max.unwrap_or_default(),
            is_of_another_run: false,
            of_disk,
            used,
            free,
            free_min,
        }
    }

    /// Beside another run that keeps a budget of `bytes_max` for the same folder: the smaller one holds.
    pub(super) fn beside(mut self, bytes_max: Option<u64>) -> Room {
        if let Some(budget) =
            bytes_max.filter(|bytes_max| self.of_budget.is_some() && *bytes_max < self.budget)
        {
            (self.budget, self.is_of_another_run) = (budget, true);
            self.of_budget = Some(i128::from(budget) - i128::from(self.used));
        }
        self
    }

    /// Whether the budget is another run's.
    pub(super) fn is_of_another_run(&self) -> bool {
        self.is_of_another_run
    }

    /// After so much was deleted.
    pub(super) fn after(mut self, gain: Gain) -> Room {
        self.of_budget = self.of_budget.map(|room| room + i128::from(gain.bytes));
        self.of_disk = self.of_disk.map(|room| room + i128::from(gain.disk));
        self
    }

    /// Whether `bytes` more may be written.
    pub(super) fn has(&self, bytes: u64) -> bool {
        let has = |room: Option<i128>| room.is_none_or(|room| room >= i128::from(bytes));
        has(self.of_budget) && has(self.of_disk)
    }

    /// Whether `gain` helps where `bytes` can't be written.
    pub(super) fn is_helped(&self, gain: Gain, bytes: u64) -> bool {
        let helped = |room: Option<i128>, gain| gain > 0 && room.is_some_and(|room| room < i128::from(bytes));
        helped(self.of_budget, gain.bytes) || helped(self.of_disk, gain.disk)
    }

    /// Whether, since `before`, there came at least half of what was `promised` under each bound. Others may
    /// have written meanwhile.
    pub(super) fn has_gained(&self, before: &Room, promised: Gain) -> bool {
        let gained = |now: Option<i128>, before: Option<i128>, promised: u64| {
            promised == 0
                || now.zip(before).is_none_or(|(now, before)| now - before >= i128::from(promised / 2))
        };
        gained(self.of_budget, before.of_budget, promised.bytes)
            && gained(self.of_disk, before.of_disk, promised.disk)
    }

    /// The nearer bound, in words.
    pub(super) fn why(&self) -> String {
        match (self.of_budget, self.of_disk) {
            (Some(of_budget), of_disk) if of_disk.is_none_or(|of_disk| of_budget <= of_disk) => format!(
                "the dumps in this folder use {} of the {} of --dump-budget{}",
                size(self.used),
                size(self.budget),
                if self.is_of_another_run { ", the smaller budget of another run here" } else { "" }
            ),
            (_, Some(_)) => {
                format!(
                    "{} are free on the file system, and --dump-min-free reserves {}",
                    size(self.free),
                    size(self.free_min)
                )
            }
            _ => String::new(),
        }
    }
}

/// Bytes in words.
pub(super) fn size(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
