//! Closed files that their run, which died, didn't come to give a line in the chain.
//!
//! A file gets its line after its name, and its hash takes time: whoever is killed leaves some files without one.
//! Only runs that left growing files, that of the chain's last line, and those of which the chain has lines and not all can
//! have been killed so: the last ones while a later run gave them theirs, and was killed itself.

use crate::chain::Chain;
use crate::chaining::Whole;
use crate::closing::Holds;
use crate::disk::{Disk, Standing};
use crate::inventory::read_totals;
use crate::name::{FileName, begin_of_run};
use crate::recover;
use crate::volume::CHAIN_FILE;
use scope_folder::Folder;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Of a run without any line nobody knows whether it kept the chain. With at most so many bytes in closed files
/// it was killed soon after its begin, and all of them get their lines; with more none does.
const UNKNOWN_BYTES_MAX: u64 = 16 << 30;

/// What is to be done for dead runs.
#[derive(Default)]
pub(crate) struct Unchained {
    /// Runs whose files belong into the chain, those that recovery closes included.
    pub runs: BTreeSet<[u8; 16]>,
    /// Closed files that have no line, in the order of their numbers.
    pub files: Vec<Whole>,
}

impl Unchained {
    /// Of the volume in `folder`, in which dead runs left the files `growing`. `wanted`: who writes it now keeps
    /// the chain.
    ///
    /// # Errors
    /// The system's.
    pub fn look(
        disk: &mut dyn Disk,
        folder: &Folder,
        growing: &[Standing],
        wanted: bool,
    ) -> io::Result<Unchained> {
        let chain = match folder.existing(OsStr::new(CHAIN_FILE), false)? {
            Some(file) => Chain::read_file(&file)?,
            None => Chain::default(),
        };
        let left: BTreeSet<[u8; 16]> =
            growing.iter().filter_map(|left| Some(recover::head_of(disk, left).ok()?.run_id)).collect();
        let last = chain.links.last().map(|link| link.file.run_id);
        let mut found = Unchained::default();
        if last.is_none() && (left.is_empty() || !wanted) {
            return Ok(found);
        }
        let standing = disk.list()?;
        let in_part = in_part(&chain, &standing);
        for run in left.iter().copied().chain(last).chain(in_part).collect::<BTreeSet<_>>() {
            let names: BTreeSet<PathBuf> = chain
                .links
                .iter()
                .filter(|link| link.file.run_id == run)
                .map(|link| link.file.name.clone().into())
                .collect();
            let mut closed: Vec<(u32, &Standing)> = Vec::new();
            for file in &standing {
                let name = FileName::read(&file.name).filter(|name| !name.is_growing());
                closed.extend(
                    name.filter(|name| name.run() == begin_of_run(&run)).map(|name| (name.number(), file)),
                );
            }
            closed.retain(|(_, file)| recover::head_of(disk, file).is_ok_and(|head| head.run_id == run));
            let bytes = closed.iter().fold(0_u64, |sum, (_, file)| sum.saturating_add(file.len));
            if names.is_empty() && (!wanted || bytes > UNKNOWN_BYTES_MAX) {
                continue;
            }
            found.runs.insert(run);
            closed.retain(|(_, file)| !names.contains(&file.name));
            closed.sort_unstable_by_key(|(number, _)| *number);
            for (_, file) in closed {
                let totals = read_totals(disk, &file.name, file.len).unwrap_or_default();
                let holds = Holds {
                    segments: totals.segments,
                    packets: totals.packets,
                    block_bytes: totals.block_bytes,
                    span: totals.span_ns,
                };
                let name = file.name.clone();
                found.files.push(Whole { name, holds, bytes: file.len, cut_off: None, run_id: run });
            }
        }
        Ok(found)
    }
}

/// Runs of which the chain has lines, but not of every closed file that stands here.
fn in_part(chain: &Chain, standing: &[Standing]) -> BTreeSet<[u8; 16]> {
    let lines: BTreeSet<&Path> = chain.links.iter().map(|link| Path::new(&link.file.name)).collect();
    let lacking = standing.iter().filter(|file| !lines.contains(&*file.name));
    let names = lacking.filter_map(|file| FileName::read(&file.name)).filter(|name| !name.is_growing());
    let begins: BTreeSet<[u8; 4]> = names.map(|name| name.run()).collect();
    let runs = chain.links.iter().map(|link| link.file.run_id);
    runs.filter(|run| begins.contains(&begin_of_run(run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{ChainedFile, Digest, Link};
    use scope_packet::LinkType;

    #[test]
    fn a_run_that_was_given_its_lines_in_part_is_known() {
        let name =
            |run: u8, number| FileName::growing(9, &[run; 16], LinkType::ETHERNET, number).closed().path();
        let standing: Vec<Standing> = [(1, 1), (1, 2), (2, 1), (3, 1)]
            .map(|(run, number)| Standing { name: name(run, number), len: 1, taken: 1 })
            .to_vec();
        let link = |run: u8, number| {
            let name = name(run, number).to_string_lossy().into_owned();
            let (run_id, hash) = ([run; 16], Digest([0; 32]));
            Link::new(ChainedFile { run_id, name, span: (0, 0), packets: 0, bytes: 1, hash }, Digest([0; 32]))
        };
        // Of the first run a file lacks its line, of the second none does, and of the third nothing is known.
        let mut chain = Chain::default();
        chain.links.extend([link(1, 1), link(2, 1)]);
        assert_eq!(in_part(&chain, &standing), BTreeSet::from([[1; 16]]));
    }
}
