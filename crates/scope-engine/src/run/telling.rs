//! What comes up while a run goes, passed on: to who watches, to the log, and warnings to the summary too.

use super::Run;
use crate::folder_watch::Notice;
use crate::refused::{Bounds, Refused};
use crate::report::WorkerNews;
use crate::scripts::News;
use crate::status::{Status, StatusTaker};
use crate::watch::Watch;
use scope_events::event::{Interface, LongHold, Printed, Warning};
use scope_events::fact::Rare;
use scope_events::{EVENTS_FILE, Reopened};
use scope_source::{InterfaceEvent, InterfaceState};
use scope_spelling::figures::{counted, number};
use scope_spelling::printable::shell_word;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Warnings that the summary repeats; all are told when they come up.
const WARNINGS_MAX: usize = 1000;
/// Packets with an odd time that make no file one without order, and one in how many do.
const STRAYS_FEW: u64 = 3;
const STRAYS_PART: u64 = 100;
/// A dump that holds segments for longer than this without reading one to its end is named.
const LONG_HOLD: Duration = Duration::from_secs(5);

impl Run {
    /// Passes on what has come up: warnings, finished dumps.
    pub(super) fn tell(&self, taker: &mut StatusTaker, watch: &dyn Watch, warnings: &mut Vec<String>) {
        for (news, lost) in taker.news() {
            for news in news {
                match news {
                    WorkerNews::Interface(news) => self.tell_of_interface(news, watch, warnings),
                    WorkerNews::Warning(warning) => self.warn(warning, watch, warnings),
                }
            }
            if lost > 0 {
                let text = "lines of workers came faster than they could be printed, and are lost: does \
                anybody read standard error?";
                self.warn(format!("{lost} {text}"), watch, warnings);
            }
        }
        for report in &self.shared.dumps.news() {
            watch.dump(report);
        }
        for news in self.shared.scripts.take_news() {
            match news {
                News::Warning(warning) => self.warn(warning, watch, warnings),
                News::Printed { trigger, file, line } => {
                    watch.note(&format!("script {file} of {trigger}: {line}"));
                    self.shared.events.log(Printed { trigger, file, line });
                }
            }
        }
        let statistics = self.shared.statistics.iter();
        for text in statistics.flat_map(|statistics| statistics.take_news()) {
            self.warn(text, watch, warnings);
        }
        for notice in self.space.look(&self.shared.events) {
            self.pass_on(notice, watch, warnings);
        }
        for news in self.shared.events.take_reopened() {
            match news {
                Reopened::Moved => {
                    watch.note(&format!("the log was moved; it continues in a new {EVENTS_FILE}"))
                }
                Reopened::Failed(error) => {
                    let words = "can't be reopened, so the log continues in the moved file";
                    self.warn(format!("{EVENTS_FILE}: {words}: {error}"), watch, warnings);
                }
            }
        }
        self.tell_of_commands(watch, warnings);
        for removal in self.shared.attach.iter().flat_map(|attach| attach.take_removals()) {
            self.warn(removal, watch, warnings);
        }
    }

    /// Looks whether the system's clock was set, and passes that on.
    pub(super) fn tell_of_steps(&self, watch: &dyn Watch, warnings: &mut Vec<String>) {
        self.shared.steps.look(&*self.shared.clock);
        let (steps, more) = self.shared.steps.news();
        for step in steps {
            self.shared.events.log(step.event());
            self.warn(step.text(), watch, warnings);
        }
        if more > 0 {
            self.warn(format!("the system's clock was set {more} more times"), watch, warnings);
        }
    }

    /// Passes on what became of commands after dumps.
    pub(super) fn tell_of_commands(&self, watch: &dyn Watch, warnings: &mut Vec<String>) {
        for news in self.exec.iter().flat_map(|exec| exec.news()) {
            self.shared.events.log(news.event());
            if let Some(warning) = news.complaint() {
                self.warn(warning, watch, warnings);
            }
        }
    }

    /// Logs what the volumes of the store have to tell, and tells people what they should know.
    pub(super) fn tell_of_stores(&self, watch: &dyn Watch, warnings: &mut Vec<String>) {
        let Some(stores) = &self.shared.stores else { return };
        if self.shared.stop.load(Ordering::Relaxed) {
            stores.let_workers_go();
        }
        for notice in stores.log_news(&self.shared.events) {
            self.pass_on(notice, watch, warnings);
        }
    }

    fn pass_on(&self, notice: Notice, watch: &dyn Watch, warnings: &mut Vec<String>) {
        match notice {
            Notice::Warning(warning) => self.warn(warning, watch, warnings),
            Notice::Note(note) => watch.note(&note),
        }
    }

    pub(super) fn warn(&self, warning: impl Into<Warning>, watch: &dyn Watch, warnings: &mut Vec<String>) {
        let warning = warning.into();
        watch.warning(&warning.text);
        self.shared.events.log(warning.clone());
        match warnings.len() {
            ..WARNINGS_MAX => warnings.push(warning.text),
            WARNINGS_MAX => warnings.push("further warnings are in the log only".to_string()),
            _ => {}
        }
    }

    /// Says once that the audit can't be written: what is ordered is obeyed all the same.
    pub(super) fn tell_of_audit(&self, watch: &dyn Watch, warnings: &mut Vec<String>) {
        if let Some(cause) = self.shared.events.audit().take_failure() {
            let text = format!(
                "audit.jsonl can't be written, so orders and looks at packets stand in no audit: {cause}; make room, or \
                 remove what stands in its place"
            );
            self.warn(text, watch, warnings);
        }
    }

    /// What says more of losses, to be put behind a line.
    pub(super) fn doctors_words(&self) -> String {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
        let folder = self.fixed.folder.as_ref().and_then(|folder| folder.to_str());
        match folder.filter(|folder| folder.chars().all(plain)) {
            Some(folder) => format!("; to find the cause: wirescope doctor --out {folder}"),
            None => "; to find the cause: wirescope doctor".to_string(),
        }
    }

    /// Says of hits that started no dump when they first come; the summary says it again, with their number.
    pub(super) fn tell_of_refused(&self, refused: &mut Refused, watch: &dyn Watch) {
        for warning in refused.look(&self.shared.triggers, &self.bounds()) {
            watch.warning(&warning);
            self.shared.events.log(Warning::from(warning));
        }
    }

    /// What bounds the dumps of this run.
    pub(super) fn bounds(&self) -> Bounds {
        let (ring, budget) = (&self.shared.ring, self.outputs.dump.budget.as_ref());
        Bounds {
            dumps_max: self.shared.dumps.places().max(),
            pins: ring.budget().segments(),
            segment_bytes: ring.segment_bytes() as u64,
            limits: budget.map(|budget| *budget.limits()),
            budget_is_another_s: budget.is_some_and(|budget| budget.is_bounded_by_another()),
        }
    }

    /// Warns of files whose packets are not in order of time, once all are read: a dump lacks those of its
    /// window that stand elsewhere, and can state only what was known when it ended.
    pub(super) fn tell_of_disorder(&self, status: &Status, watch: &dyn Watch, warnings: &mut Vec<String>) {
        let (strays, packets) = (status.counts.stray_packets, status.counts.received_packets);
        let many = strays > STRAYS_FEW && strays.saturating_mul(STRAYS_PART) >= packets;
        let set_back: u64 = status.sources.iter().map(|source| source.counters.set_back).sum();
        if self.live || !many && set_back == 0 {
            return;
        }
        let files: Vec<String> = self
            .fixed
            .sources
            .iter()
            .filter_map(|entry| Some(shell_word(&entry.plan.file()?.path)))
            .collect();
        let file = match &files[..] {
            [one] if one != "-" => one,
            _ => "FILE",
        };
        let text = if many { disorder(strays, packets, set_back, file) } else { went_back(set_back, file) };
        self.warn(text, watch, warnings);
    }

    /// What became of an interface: an event, and a warning or just a line.
    fn tell_of_interface(&self, news: InterfaceEvent, watch: &dyn Watch, warnings: &mut Vec<String>) {
        if news.state == InterfaceState::Lost && !self.lost.note(&news.text) {
            return; // another of its workers has told it
        }
        let mut event = Interface {
            interface: news.interface.to_string(),
            state: news.state.name().to_string(),
            text: news.text.clone(),
            ..Interface::default()
        };
        match &news.state {
            InterfaceState::Mtu(bytes) => event.mtu = Rare(Some((*bytes).into())),
            InterfaceState::Spare(sockets) => event.sockets = Rare(Some(*sockets as u64)),
            InterfaceState::Renamed { from, to } => {
                (event.from, event.to) = (Rare(Some(from.to_string())), Rare(Some(to.to_string())));
            }
            _ => {}
        }
        self.shared.events.log(event);
        if news.state.warns() { self.warn(news.text, watch, warnings) } else { watch.note(&news.text) }
    }

    /// Names dumps that wait for their disk, or the reader of their pipe, and those that hold segments and
    /// don't get on.
    pub(super) fn tell_of_long_holds(&self, watch: &dyn Watch) {
        for dump in self.shared.dumps.open() {
            let waiting = dump.progress.waiting();
            if waiting > LONG_HOLD {
                let line = format!(
                    "dump {} of {} has waited for {:.0} s for {} to accept its data; meanwhile the ring \
                    keeps what it can",
                    dump.id,
                    dump.trigger,
                    waiting.as_secs_f64(),
                    if self.outputs.dump.is_stream() { "the reader of its pipe" } else { "its disk" }
                );
                let waiting_s = Rare(Some(waiting.as_secs_f64()));
                self.shared.events.log(LongHold { dump: dump.id, waiting_s, ..LongHold::default() });
                watch.warning(&line);
            } else if let Some((segments, held)) = dump.progress.long_hold(LONG_HOLD) {
                let line = format!(
                    "dump {} of {} has held {segments} segments of the ring for {:.0} s without progress: \
                    is its disk slow?",
                    dump.id,
                    dump.trigger,
                    held.as_secs_f64()
                );
                let segments = Rare(Some(segments));
                self.shared.events.log(LongHold { dump: dump.id, segments, ..LongHold::default() });
                watch.warning(&line);
            }
        }
    }
}

fn disorder(strays: u64, packets: u64, set_back: u64, file: &str) -> String {
    format!(
        "the packets are not in order of time: {} of {} have a time that no other packet confirms, and time \
        was set back {}; windows end at each step, so dumps lack most of their packets; sort the file, then \
        run on the result: reordercap {file} sorted.pcapng",
        number(strays),
        counted(packets, "packet"),
        counted(set_back, "time")
    )
}

fn went_back(set_back: u64, file: &str) -> String {
    format!(
        "the packets are not in order of time: time was set back {}; a dump has the packets of its window \
         from one place of the file only, and does not know of those that come later; sort the file, then run \
         on the result: reordercap {file} sorted.pcapng",
        counted(set_back, "time")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disorder_is_told_with_thousands_set_apart() {
        let said = disorder(1234, 56_789, 1, "a.pcap");
        assert!(said.contains(": 1,234 of 56,789 packets have a time "), "{said}");
        assert!(
            said.contains(" was set back 1 time;") && said.ends_with("reordercap a.pcap sorted.pcapng"),
            "{said}"
        );
    }
}
