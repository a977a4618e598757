//! Whether the folder for dumps is still there: its path is opened once, so one that is removed is gone for
//! this run.

use scope_dump::DumpOutput;
use scope_events::Events;
use scope_events::event::Alarm;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the alarm in `wirescope.jsonl`.
const ALARM: &str = "dump_folder";

/// What watchers of space, folder and store report.
pub(crate) enum Notice {
    /// Something is not done from now on.
    Warning(String),
    /// For the status output.
    Note(String),
}

/// Watches the folder that a run's dumps go into, if they go into one.
pub(crate) struct FolderWatch {
    output: Arc<DumpOutput>,
    /// It was when somebody looked last.
    removed: AtomicBool,
}

impl FolderWatch {
    /// It was there when it was opened.
    pub(crate) fn new(output: &Arc<DumpOutput>) -> FolderWatch {
        FolderWatch { output: output.clone(), removed: AtomicBool::new(false) }
    }

    /// Looks; logs what has changed, and gives it back in words.
    pub(crate) fn look(&self, events: &Events) -> Option<Notice> {
        self.turn(self.output.is_removed(), events)
    }

    /// From one state to the other. A network file system may bring back what its server had lost for a
    /// while; others never do.
    fn turn(&self, removed: bool, events: &Events) -> Option<Notice> {
        if self.removed.swap(removed, Ordering::Relaxed) == removed {
            return None;
        }
        let place = self.output.location();
        let state = if removed { "raised" } else { "cleared" };
        events.log(Alarm {
            alarm: ALARM.into(),
            state: state.into(),
            why: Some(place.clone()),
            ..Alarm::default()
        });
        Some(if removed {
            Notice::Warning(format!(
                "the folder {place} was removed: dumps fail from now on, and so does a log in it; make it \
                again with: mkdir -p {}, then restart the run",
                scope_spelling::printable::shell_word(&place)
            ))
        } else {
            Notice::Note(format!("the folder {place} is back: dumps can be written again"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_removed_is_told_once_and_so_is_its_coming_back() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("dumps");
        std::fs::create_dir(&path).unwrap();
        let (watch, events) = (FolderWatch::new(&DumpOutput::in_folder(&path).unwrap()), Events::nowhere());
        assert!(watch.look(&events).is_none());
        std::fs::remove_dir(&path).unwrap();
        std::fs::create_dir(&path).unwrap(); // another one
        let Some(Notice::Warning(warning)) = watch.look(&events) else { panic!("nothing was told") };
        assert!(warning.starts_with(&format!("the folder {} was removed: ", path.display())), "{warning}");
        assert!(warning.contains("mkdir -p"), "{warning}");
        assert!(watch.look(&events).is_none(), "once is enough");
        assert!(matches!(watch.turn(false, &events), Some(Notice::Note(note))
                if note.ends_with("is back: dumps can be written again")));
        assert!(watch.turn(false, &events).is_none());
    }
}
