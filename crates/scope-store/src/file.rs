//! The ring as store files at the end of a run: one for each link type, whole at once.
//!
//! ```text
//!  | head | segment | segment | ... | index |
//! ```
//! A segment lies in the file as it lay in memory, but for the checks in its foot.

use crate::checks::{self, PAGE_BYTES};
use crate::head::{Head, HeadInterface};
use crate::index::{self, Entry};
use scope_folder::{Folder, with_suffix};
use scope_packet::segment::Foot;
use scope_packet::{LinkType, SegmentId};
use scope_ring::{Interfaces, Pinned, Ring, Summary};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A store file couldn't be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct StoreError {
    /// Which.
    pub path: String,
    /// The system's own words.
    #[source]
    pub cause: io::Error,
}

/// Writes all sealed segments of `ring` to the new file `name` in `folder`, oldest first by order of sealing;
/// a second link type gives a second file, `NAME_LINKTYPE.EXT`. Nothing that exists is overwritten, and a
/// file that has its name is whole. The writers are closed already, so nothing changes meanwhile.
pub fn write_ring(ring: &Arc<Ring>, folder: &Folder, name: &OsStr) -> Result<Vec<PathBuf>, StoreError> {
    let mut link_types: Vec<LinkType> = Vec::new();
    for lane in 0..ring.lanes() {
        let link_type = ring.lane_info(lane).link_type;
        if !link_types.contains(&link_type) {
            link_types.push(link_type);
        }
    }
    if link_types.is_empty() {
        link_types.push(LinkType::ETHERNET); // nothing was received: a file without packets
    }
    let mut paths = Vec::new();
    for (number, link_type) in (1..).zip(link_types) {
        let name =
            if number == 1 { PathBuf::from(name) } else { with_suffix(Path::new(name), &link_type.name()) };
        let path = folder.path().join(&name);
        write_file(ring, &head(ring, link_type, number), folder, name.as_os_str())
            .map_err(|cause| StoreError { path: path.display().to_string(), cause })?;
        paths.push(path);
    }
    Ok(paths)
}

fn write_file(ring: &Arc<Ring>, head: &Head, folder: &Folder, name: &OsStr) -> io::Result<()> {
    let mut file = folder.draft(name)?;
    write_parts(ring, head, file.file())?;
    file.file().sync_data()?;
    file.publish()
}

fn write_parts(ring: &Arc<Ring>, head: &Head, file: &mut File) -> io::Result<()> {
    let head_bytes = head.write();
    file.write_all(&head_bytes)?;
    let mut segments: Vec<(u64, SegmentId)> = Vec::new();
    for lane in (0..ring.lanes()).filter(|&lane| ring.lane_info(lane).link_type == head.link_type) {
        for id in ring.segment_ids(lane, 0) {
            let times = ring.pin(id).as_ref().and_then(Pinned::times);
            segments.extend(times.map(|times| (times.sealed_order, id)));
        }
    }
    segments.sort_unstable();
    let mut offset = head_bytes.len() as u64;
    let mut entries = Vec::new();
    for (_, id) in segments {
        let Some(pinned) = ring.pin(id) else { continue };
        entries.extend(write_segment(&pinned, offset, file)?);
        offset = head_bytes.len() as u64 + (entries.len() * ring.segment_bytes()) as u64;
    }
    file.write_all(&index::write(&entries))
}

/// Writes a sealed segment with its checks; what the index says of it.
fn write_segment(pinned: &Pinned, offset: u64, file: &mut File) -> io::Result<Option<Entry>> {
    let Some(bytes) = pinned.whole() else { return Ok(None) };
    let (body, foot_page) = bytes.split_at(bytes.len() - PAGE_BYTES);
    let Some(foot) = Foot::read(foot_page) else { return Ok(None) };
    let mut foot_page = foot_page.to_vec();
    let hash = checks::seal(body, &mut foot_page);
    file.write_all(body)?;
    file.write_all(&foot_page)?;
    let summary = Summary::new(pinned.column(0, foot.packets), bytes.len());
    Ok(Some(Entry { offset, foot, hash, summary }))
}

/// The head of the file with the packets of `link_type`.
pub(crate) fn head(ring: &Arc<Ring>, link_type: LinkType, number: u32) -> Head {
    let interfaces = ring.interfaces_from(0).into_iter().map(|entry| HeadInterface {
        name: entry.name,
        description: entry.description,
        link_type: entry.link_type,
    });
    Head {
        run_id: ring.run_id(),
        volume: [0; 16],
        volumes: Vec::new(),
        number,
        segment_bytes: ring.segment_bytes() as u32,
        link_type,
        filter: String::new(),
        snap: 0,
        interfaces: interfaces.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_was_held_for_turns_is_in_the_file() {
        use scope_packet::pcapng::PacketHead;
        use scope_packet::{Headers, KeyEntry};
        let config = scope_ring::RingConfig {
            ring_bytes: 16 * (64 << 10),
            segment_bytes: Some(64 << 10),
            workers: 1,
            lanes: 1,
            run_id: [1; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let mut writer = ring.open_lane(0, LinkType::ETHERNET).unwrap();
        writer.add_interface(0);
        let mut held = None;
        for number in 0..40u64 {
            assert!(writer.claim());
            let data = [number as u8 + 1; 900];
            let head =
                PacketHead { captured_len: 900, original_len: 900, time_ns: 1, ..PacketHead::default() };
            writer.append(0, &head, KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data)), &data);
            writer.commit();
            writer.seal();
            if number == 3 {
                held = ring.pin(ring.segment_id(0, 3));
            }
        }
        assert!(held.is_some() && ring.oldest_possible(0) > 3);
        let folder = tempfile::tempdir().unwrap();
        let opened = Folder::open(folder.path()).unwrap();
        let paths = write_ring(&ring, &opened, OsStr::new("ring.pcapng")).unwrap();
        let file = std::fs::read(&paths[0]).unwrap();
        let holds = |number: u8| file.windows(900).any(|bytes| bytes.iter().all(|&byte| byte == number + 1));
        assert!(holds(3) && holds(39) && !holds(4) && file.len() > 16 * (64 << 10));
        drop(held);
        assert!(ring.pin(ring.segment_id(0, 3)).is_some(), "until it is recycled");
        for _ in 0..2 {
            assert!(writer.claim());
            writer.seal();
        }
        assert!(
            ring.pin(ring.segment_id(0, 3)).is_none() && ring.segment_ids(0, 0).all(|id| id.sequence > 3)
        );
    }
}
