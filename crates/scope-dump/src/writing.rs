//! Writing: the packets of a selection into a dump's files, one for each link type, or into the spool of all
//! windows; and what could not be written.

use crate::buffers::Buffers;
use crate::evidence::Evidence;
use crate::gaps::Gaps;
use crate::header::{fired_comment, intro};
use crate::merge::Position;
use crate::order::{Dump, HitPacket};
use crate::output::{OutFile, publish};
use crate::progress::Progress;
use crate::report::DumpReport;
use crate::select::Consumer;
use crate::spool::Gathering;
use crate::tally::Tally;
use crate::target::DumpOutput;
use scope_packet::{Gap, GapReason, LinkType};
use scope_ring::Interfaces;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// What one dump writes.
pub(crate) struct Writing<'a> {
    interfaces: &'a dyn Interfaces,
    hit: Option<HitPacket>,
    /// It keeps every packet.
    everything: bool,
    /// It is for somebody who may see only packets of a second filter.
    bound: bool,
    output: Arc<DumpOutput>,
    /// What was known of the dump at its beginning.
    intro: DumpReport,
    progress: Arc<Progress>,
    evidence: Arc<Evidence>,
    buffers: Arc<Buffers>,
    files: BTreeMap<LinkType, OutFile>,
    /// In the place of files, where all windows become one.
    gathering: Option<Gathering>,
    /// A file couldn't be made, and so many packets weren't written.
    unopened: Option<(io::Error, u64)>,
    /// Packets of a second link type, which a pipe cannot hold, and the message about them.
    unfit: Option<(String, Tally)>,
}

impl Consumer for Writing<'_> {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        self.progress.wrote(block.len() as u64);
        let fired = self.hit.is_some_and(|hit| (hit.lane, hit.packet) == (position.lane, position.packet));
        if self.gathering.is_none()
            && let Some(words) = self.misfit(link_type)
        {
            let unfit = self.unfit.get_or_insert_with(|| (words, Tally::default()));
            return unfit.1.add(&Tally::of(position.time_ns, block, 0));
        }
        let mut comments = self.evidence.annexes.comments_of(position.lane, position.packet);
        if fired {
            comments.insert(0, fired_comment(&self.intro));
        }
        let interfaces = self.interfaces;
        if let Some(gathering) = &mut self.gathering {
            gathering.write(interfaces, position, link_type, block, &comments);
        } else if let Some(file) = self.file(link_type) {
            file.write(interfaces, position, block, &comments);
        } else if let Some((_, unwritten)) = &mut self.unopened {
            *unwritten += 1;
        }
    }

    fn between(&mut self) {
        for file in self.files.values_mut() {
            file.flush_full();
        }
    }
}

impl<'a> Writing<'a> {
    /// `intro` is what is known of the dump by now.
    pub(crate) fn new(dump: &Dump, interfaces: &'a dyn Interfaces, intro: &DumpReport) -> Writing<'a> {
        let spool = dump.output.spool.as_ref();
        Writing {
            interfaces,
            hit: dump.hit,
            everything: dump.filter.is_everything() && dump.keep.is_none(),
            bound: dump.filter.is_of_two(),
            output: dump.output.clone(),
            intro: intro.clone(),
            progress: dump.progress.clone(),
            evidence: dump.evidence.clone(),
            buffers: dump.buffers.clone(),
            files: BTreeMap::new(),
            gathering: spool.map(|spool| Gathering::new(spool, &dump.progress)),
            unopened: None,
            unfit: None,
        }
    }

    /// A round has ended. Where it looked at no packet (`any`), the reader of a pipe gets what there is.
    pub(crate) fn end_round(&mut self, any: bool) {
        if self.files.values().any(OutFile::reader_gone) {
            self.progress.set_reader_gone();
        }
        if !any {
            for file in self.files.values_mut() {
                file.flush_to_pipe();
            }
        }
    }

    fn file(&mut self, link_type: LinkType) -> Option<&mut OutFile> {
        if !self.files.contains_key(&link_type) && self.unopened.is_none() {
            let intro = intro(&self.intro);
            let begin = || {
                OutFile::create(
                    &self.output,
                    self.interfaces,
                    link_type,
                    &self.evidence,
                    &self.buffers,
                    &intro,
                )
            };
            match self.progress.wait(begin) {
                Ok(file) => {
                    let file = if self.bound { file.without_annexes() } else { file };
                    drop(self.files.insert(link_type, file.with_progress(&self.progress)));
                }
                Err(error) => self.unopened = Some((error, 0)),
            }
        }
        self.files.get_mut(&link_type)
    }

    /// Why packets of a link type can't be written: a pipe holds one, that of the packet that fired, or the
    /// first.
    fn misfit(&self, link_type: LinkType) -> Option<String> {
        let taken = self.hit.map(|hit| hit.link_type).or(self.files.keys().next().copied())?;
        (self.output.is_stream() && taken != link_type).then(|| {
            let (taken, other) = (taken.name(), link_type.name());
            format!(
                "a pipe holds one link type, here {taken}: packets of {other} are omitted; write to a \
                folder: --out FOLDER"
            )
        })
    }

    /// All packets are there. The link type of the file without a suffix, which is made if there is none:
    /// that of the packet that fired, or the first one, or `fallback`, or Ethernet.
    pub(crate) fn end_packets(&mut self, fallback: Option<LinkType>) -> LinkType {
        let first = self.files.keys().next().copied();
        let main_type =
            self.hit.map(|hit| hit.link_type).or(first).or(fallback).unwrap_or(LinkType::ETHERNET);
        match &mut self.gathering {
            Some(gathering) => gathering.end(),
            None => drop(self.file(main_type)),
        }
        main_type
    }

    /// States the gaps, closes the files, gives them their names. `lacks` is what was not selected.
    pub(crate) fn finish(mut self, main_type: LinkType, lacks: &[Gap], report: &mut DumpReport) {
        let mut files = std::mem::take(&mut self.files);
        self.state(&files, report, lacks);
        for file in files.values_mut() {
            let fallback = self.interfaces.interface_of(file.link_type());
            file.finish_packets(self.interfaces, fallback, (report.lost_min, report.lost_max), report.to_ns);
        }
        let mut times: Vec<_> = files.values().flat_map(OutFile::times).collect();
        times.dedup();
        report.circumstances = self.evidence.around(report.from_ns, report.to_ns, times);
        if self.bound {
            report.circumstances.counters.clear(); // they count packets that whoever gets the dump may not see
        }
        self.state(&files, report, lacks);
        match &self.output.spool {
            Some(_) => report.paths.extend(self.output.path_of_all()),
            None => {
                let restate =
                    |files: &BTreeMap<_, _>, report: &mut DumpReport| self.state(files, report, lacks);
                publish(&self.output, &mut files, main_type, report, &restate);
            }
        }
    }

    /// States in the report what the dump has, and what it lacks: `lacks`, and what couldn't be written so far.
    fn state(&self, files: &BTreeMap<LinkType, OutFile>, report: &mut DumpReport, lacks: &[Gap]) {
        report.packets = files.values().map(|file| file.packets).sum();
        report.bytes = files.values().map(|file| file.bytes).sum();
        report.cut = files.values().map(|file| file.cut).sum();
        if let Some(Gathering { gathered, .. }) = &self.gathering {
            (report.packets, report.bytes, report.cut) = (gathered.packets, gathered.bytes, gathered.cut);
        }
        let spool =
            self.gathering.as_ref().and_then(|gathering| gathering.error.as_ref().map(ToString::to_string));
        let unopened = self.unopened.as_ref().map(|(error, _)| error.to_string());
        let unfit = self.unfit.as_ref().map(|(words, _)| words.clone());
        let failed = files.values().find_map(OutFile::failure).or(unopened).or(unfit).or(spool);
        report.error = failed.map(|error| self.output.fault(error));
        let mut gaps = Gaps::of(report.asked);
        for gap in lacks {
            gaps.add(*gap);
        }
        let gathered = self.gathering.iter().map(|gathering| &gathering.unwritten);
        let unfit = self.unfit.iter().map(|(_, unfit)| unfit);
        for unwritten in files.values().map(|file| &file.unwritten).chain(unfit).chain(gathered) {
            gaps.add_lost(GapReason::Disk, (unwritten.packets, unwritten.packets), unwritten.span_ns);
        }
        if let Some((_, packets)) = self.unopened {
            gaps.add_lost(GapReason::Disk, (packets, packets), Some((report.from_ns, report.to_ns)));
        }
        let stated = gaps.state(self.everything);
        (report.gaps, report.gaps_folded) = (stated.gaps, stated.folded);
        (report.lost_min, report.lost_max, report.missing) =
            (stated.lost_min, stated.lost_max, stated.span_ns);
        report.complete = report.gaps.is_empty() && report.error.is_none();
    }
}
