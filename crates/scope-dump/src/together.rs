//! Every window of a run in one file: what the dumps gathered in the spool is merged, and written when the
//! run ends. A packet of several windows is written once.
use crate::evidence::Evidence;
use crate::gaps::Gaps;
use crate::header::intro;
use crate::output::{OutFile, publish};
use crate::report::DumpReport;
use crate::spool::{NAMES_MAX, Record, Spool};
use crate::tally::Tally;
use crate::target::{DumpOutput, Target};
use scope_packet::{GapReason, LinkType};
use scope_ring::Interfaces;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Spool {
    /// Writes the file: whose facts are those of all windows. `None` where there was no window.
    pub fn finish(
        &self,
        output: &Arc<DumpOutput>,
        interfaces: &dyn Interfaces,
        evidence: &Arc<Evidence>,
    ) -> Option<DumpReport> {
        let mut state = self.take();
        let mut report = state.report.take()?;
        report.trigger = match state.triggers.len() {
            0..=NAMES_MAX => state.triggers.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
            _ => "many triggers".to_string(),
        };
        report.why = format!("{} times: all windows of the run in one file", state.windows);
        let mut files = Files {
            output,
            interfaces,
            evidence,
            intro: intro(&report),
            files: BTreeMap::new(),
            refused: Tally::default(),
            error: None,
        };
        let read = self.merge(state.runs, |record| files.write(record));
        let Files { mut files, refused, mut error, .. } = files;
        // What of the spool wasn't read: several windows may have gathered the same packet.
        let mut unread = 0;
        if let Err(cause) = read {
            error.get_or_insert(format!("the spool (a temporary file) cannot be read: {cause}"));
            let read: u64 = files.values().map(|file| file.packets + file.unwritten.packets).sum();
            unread = state.packets.saturating_sub(read + refused.packets);
        }
        let main_type = files.keys().next().copied().unwrap_or(LinkType::ETHERNET);
        let (of_windows, lacks) = (report.clone(), state.lacks.gaps());
        let restate = |files: &BTreeMap<LinkType, OutFile>, report: &mut DumpReport| {
            let mut gaps = Gaps::of(of_windows.asked);
            for gap in &lacks {
                gaps.add(*gap);
            }
            let mut lost_max = of_windows.lost_max.saturating_add(unread);
            gaps.add_lost(GapReason::Disk, (0, unread), None);
            for lost in files.values().map(|file| &file.unwritten).chain([&refused]) {
                gaps.add_lost(GapReason::Disk, (lost.packets, lost.packets), lost.span_ns);
                lost_max = lost_max.saturating_add(lost.packets);
            }
            report.packets = files.values().map(|file| file.packets).sum();
            report.bytes = files.values().map(|file| file.bytes).sum();
            report.cut = files.values().map(|file| file.cut).sum();
            let failed = error
                .clone()
                .or_else(|| files.values().find_map(OutFile::failure))
                .map(|error| output.fault(error));
            report.error = of_windows.error.clone().or(failed);
            let stated = gaps.state(true);
            (report.gaps, report.gaps_folded, report.missing) = (stated.gaps, stated.folded, stated.span_ns);
            (report.lost_min, report.lost_max) = (stated.lost_min, lost_max);
            report.complete = of_windows.complete && report.gaps.is_empty() && report.error.is_none();
        };
        restate(&files, &mut report);
        for file in files.values_mut() {
            file.finish_packets(
                interfaces,
                interfaces.interface_of(file.link_type()),
                (report.lost_min, report.lost_max),
                report.to_ns,
            );
        }
        let times = files.values().flat_map(OutFile::times).collect();
        report.circumstances = evidence.around(report.from_ns, report.to_ns, times);
        restate(&files, &mut report);
        publish(output, &mut files, main_type, &mut report, &restate);
        Some(report)
    }
}

/// The files that are written in the end, one for each link type; into a pipe only the first.
struct Files<'a> {
    output: &'a Arc<DumpOutput>,
    interfaces: &'a dyn Interfaces,
    evidence: &'a Arc<Evidence>,
    intro: String,
    files: BTreeMap<LinkType, OutFile>,
    /// What has no file.
    refused: Tally,
    error: Option<String>,
}

impl Files<'_> {
    fn write(&mut self, record: &Record) {
        let Record { position, link_type, block, comments } = record;
        match self.file(*link_type) {
            Ok(()) => {}
            Err(error) => {
                self.error.get_or_insert(error);
                return self.refused.add(&Tally::of(position.time_ns, block, 0));
            }
        }
        if let Some(file) = self.files.get_mut(link_type) {
            file.write(self.interfaces, *position, block, comments);
        }
    }

    fn file(&mut self, link_type: LinkType) -> Result<(), String> {
        if self.files.contains_key(&link_type) {
            return Ok(());
        }
        if let Some(taken) =
            self.files.keys().next().filter(|_| matches!(self.output.target, Target::Stream(_)))
        {
            return Err(format!(
                "a pipe holds one link type, here {}: packets of {} are omitted; write to a file: -w FILE",
                taken.name(),
                link_type.name()
            ));
        }
        // The dumps are over: their buffers are free.
        let buffers = Arc::default();
        let created =
            OutFile::create(self.output, self.interfaces, link_type, self.evidence, &buffers, &self.intro);
        self.files.insert(link_type, created.map_err(|error| error.to_string())?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;
    use crate::merge::Position;
    use crate::spool::Gathering;
    use crate::target::Target;

    #[test]
    fn what_can_not_be_read_back_is_stated() {
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile().unwrap();
        let spool = Spool::new(file.try_clone().unwrap(), Arc::new(SystemDisk));
        let (ring_bytes, segment_bytes) = (16 * (64 << 10), Some(64 << 10));
        let ring = scope_ring::Ring::create(&scope_ring::RingConfig {
            ring_bytes,
            segment_bytes,
            workers: 1,
            lanes: 1,
            run_id: [3; 16],
        })
        .unwrap();
        let mut block = vec![0u8; 32];
        block[20] = 4;
        let mut gathering = Gathering::new(&spool, &Arc::default());
        for packet in 0..7u64 {
            let position = Position { time_ns: packet as i64, lane: 0, packet };
            gathering.write(&*ring, position, LinkType::ETHERNET, &block, &[]);
        }
        gathering.end();
        let window = DumpReport {
            packets: gathering.gathered.packets,
            asked: (0, 9),
            to_ns: 9,
            complete: true,
            ..DumpReport::default()
        };
        spool.add(&window);
        file.set_len(100).unwrap();
        let target = Target::Folder(Arc::new(scope_folder::Folder::open(folder.path()).unwrap()));
        let disk = Arc::new(SystemDisk);
        let output = Arc::new(DumpOutput {
            format: crate::DumpFormat::Pcapng,
            target,
            budget: None,
            disk,
            spool: None,
        });
        let report = spool.finish(&output, &*ring, &Arc::default()).unwrap();
        assert!(
            !report.complete && report.error.as_deref().is_some_and(|error| error.contains("spool")),
            "{report:?}"
        );
        assert_eq!((report.packets, report.lost_min, report.lost_max), (0, 0, 7));
        assert_eq!(
            report.gaps,
            [scope_packet::Gap {
                from_ns: 0,
                to_ns: 9,
                reason: GapReason::Disk,
                lost_min: 0,
                lost_max: Some(7)
            }]
        );
    }
}
