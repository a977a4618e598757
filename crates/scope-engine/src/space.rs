//! Whether there is room for dumps: looks at their budget and their folder while a run goes, and says what
//! changes.

use crate::folder_watch::{FolderWatch, Notice};
use scope_dump::budget::{Change, Usage};
use scope_dump::{Budget, DumpOutput, Limits};
use scope_events::Events;
use scope_events::counts::DumpSpace;
use scope_events::event::{Alarm, Deleted};
use scope_events::fact::Rare;
use scope_spelling::values::SizeOrShare;
use std::sync::Arc;

/// Name of the alarm in `wirescope.jsonl`.
const ALARM: &str = "dump_space";

/// What dumps took at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct SpaceSummary {
    /// Where the budget stands.
    pub usage: Usage,
    /// Bytes that dumps may take.
    pub bytes_max: Option<u64>,
    /// Free space that is kept, as it was asked for.
    pub free_min: Option<SizeOrShare>,
}

impl SpaceSummary {
    /// As the summary has it.
    pub(crate) fn facts(&self) -> DumpSpace {
        let Usage { used, free, full, deleted } = self.usage;
        let (bytes, percent) = match self.free_min {
            Some(SizeOrShare::Bytes(bytes)) => (Some(bytes), None),
            Some(SizeOrShare::Ppm(ppm)) => (None, Some(f64::from(ppm) / 1e4)),
            None => (None, None),
        };
        DumpSpace {
            used,
            budget: self.bytes_max,
            free,
            min_free: bytes,
            min_free_percent: percent,
            full,
            deleted,
        }
    }
}

/// Watches the folder of a run's dumps, and its budget, if it has one.
pub(crate) struct Space {
    folder: FolderWatch,
    budget: Option<Arc<Budget>>,
}

impl Space {
    pub(crate) fn new(output: &Arc<DumpOutput>) -> Space {
        Space { folder: FolderWatch::new(output), budget: output.budget.clone() }
    }

    /// Looks; logs what has changed, and gives it back in words.
    pub(crate) fn look(&self, events: &Events) -> Vec<Notice> {
        let of_budget = |budget: &Arc<Budget>| -> Vec<Notice> {
            budget.look().into_iter().map(|change| tell(change, budget, events)).collect()
        };
        self.folder.look(events).into_iter().chain(self.budget.iter().flat_map(of_budget)).collect()
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        self.budget.as_ref().map(|budget| budget.usage())
    }

    pub(crate) fn summary(&self) -> Option<SpaceSummary> {
        let budget = self.budget.as_ref()?;
        let limits = budget.limits();
        Some(SpaceSummary { usage: budget.usage(), bytes_max: limits.bytes_max, free_min: limits.free_min })
    }
}

/// What gives dumps room under these limits. Where the smaller budget of another run `is_another_s`, that one
/// has to change.
pub(crate) fn remedy(limits: &Limits, is_another_s: bool) -> String {
    let (raise, rotate) = match is_another_s {
        true => ("raise --dump-budget of the other run in this folder", "add --dump-rotate to both runs"),
        false => ("raise --dump-budget", "add --dump-rotate"),
    };
    let mut remedies = vec!["move finished dumps away"];
    remedies.extend(limits.bytes_max.is_some().then_some(raise));
    remedies.extend(limits.free_min.is_some().then_some("lower --dump-min-free"));
    remedies.extend((!limits.rotate).then_some(rotate));
    let last = remedies.pop().filter(|_| !remedies.is_empty());
    let first = remedies.join(", ");
    match last {
        Some(last) => format!("{first}, or {last}"),
        None => "move finished dumps away".to_string(),
    }
}

fn tell(change: Change, budget: &Budget, events: &Events) -> Notice {
    let alarm = |state: &str, why: Option<&str>| {
        let Usage { used, free, .. } = budget.usage();
        events.log(Alarm {
            alarm: ALARM.into(),
            state: state.into(),
            why: why.map(String::from),
            used: Rare(Some(used)),
            free: Rare(Some(free)),
        });
    };
    match change {
        Change::Full(why) => {
            alarm("raised", Some(&why));
            let remedy = remedy(budget.limits(), budget.is_bounded_by_another());
            Notice::Warning(format!(
                "no space for dumps: {why}; new ones are refused until there is room: {remedy}"
            ))
        }
        Change::Room => {
            alarm("cleared", None);
            Notice::Note("there is space for dumps again".to_string())
        }
        Change::Alone(why) => Notice::Warning(format!(
            "this run keeps --dump-budget alone: dumps that other runs are writing into this folder are not \
            counted: {why}"
        )),
        Change::Deleted { names, bytes } => {
            events.log(Deleted { files: names.clone(), bytes, why: "--dump-rotate".into() });
            Notice::Note(format!("deleted to make room: {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_run_whose_budget_holds() {
        let limits = Limits { bytes_max: Some(5 << 20), ..Limits::default() };
        assert_eq!(
            remedy(&limits, false),
            "move finished dumps away, raise --dump-budget, or add --dump-rotate"
        );
        let said = remedy(&limits, true);
        assert!(
            said.ends_with(
                ", raise --dump-budget of the other run in this folder, or add --dump-rotate to both runs"
            ),
            "{said}"
        );
    }
}
