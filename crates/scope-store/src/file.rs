//! The store file: a head of k x 4 KiB, then segments as they lie in memory, so that every segment begins on
//! a 4 KiB boundary.
//!
//! ```text
//!  | SHB | IDB 0 | IDB 1 ... | padding to 4 KiB | segment | segment | ...
//! ```
//! A packet block names its interface by the run's number, so the head describes all interfaces of the run in
//! order. libpcap refuses a file whose interfaces differ in link type: an interface of another link type,
//! which has no packet here, stands in with this file's, and its description says so. Where there are
//! several, link types stand under the number that libpcap reads in such files ([`LinkType::alias`]).

use scope_folder::{Folder, with_suffix};
use scope_packet::{LinkType, SegmentId, pcapng};
use scope_ring::{Interfaces, Pinned, Ring};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The head is a multiple of this.
const HEAD_ALIGN: usize = 4096;

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
    for (index, link_type) in link_types.into_iter().enumerate() {
        let name =
            if index == 0 { PathBuf::from(name) } else { with_suffix(Path::new(name), &link_type.name()) };
        let path = folder.path().join(&name);
        write_file(ring, link_type, folder, name.as_os_str())
            .map_err(|cause| StoreError { path: path.display().to_string(), cause })?;
        paths.push(path);
    }
    Ok(paths)
}

fn write_file(ring: &Arc<Ring>, link_type: LinkType, folder: &Folder, name: &OsStr) -> io::Result<()> {
    let mut file = folder.draft(name)?;
    write_parts(ring, link_type, file.file())?;
    file.file().sync_data()?;
    file.publish()
}

fn write_parts(ring: &Arc<Ring>, link_type: LinkType, file: &mut File) -> io::Result<()> {
    file.write_all(&head(ring, link_type))?;
    let mut segments: Vec<(u64, SegmentId)> = Vec::new();
    for lane in (0..ring.lanes()).filter(|&lane| ring.lane_info(lane).link_type == link_type) {
        for id in ring.segment_ids(lane, 0) {
            let times = ring.pin(id).as_ref().and_then(Pinned::times);
            segments.extend(times.map(|times| (times.sealed_order, id)));
        }
    }
    segments.sort_unstable();
    for (_, id) in segments {
        if let Some(pinned) = ring.pin(id)
            && let Some(bytes) = pinned.whole()
        {
            file.write_all(bytes)?;
        }
    }
    Ok(())
}

/// Section header, all interfaces, padding.
fn head(ring: &Arc<Ring>, link_type: LinkType) -> Vec<u8> {
    let mut out = Vec::new();
    pcapng::section_header(&mut out, concat!("wirescope ", env!("CARGO_PKG_VERSION")), "");
    let interfaces = ring.interfaces_from(0);
    let number = if interfaces.len() > 1 { link_type.alias().unwrap_or(link_type) } else { link_type };
    for entry in &interfaces {
        if entry.link_type == link_type {
            pcapng::interface(&mut out, number, &entry.name, &entry.description);
        } else {
            let words = format!("no packets here: its link type is {}", entry.link_type.name());
            pcapng::interface(&mut out, number, &entry.name, &words);
        }
    }
    if interfaces.is_empty() {
        pcapng::interface(&mut out, link_type, "none", "no packet was received");
    }
    let used = out.len();
    let mut end = used.next_multiple_of(HEAD_ALIGN);
    if end != used && end - used < pcapng::BLOCK_BYTES_MIN {
        end += HEAD_ALIGN;
    }
    out.resize(end, 0);
    if end != used {
        pcapng::padding(&mut out[used..]);
    }
    out
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
