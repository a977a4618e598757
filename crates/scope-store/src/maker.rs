//! Makes the files of a volume: room first, then a number, a name and a head.

use crate::disk::Disk;
use crate::file::head;
use crate::file_writer::{FilePlan, FileWriter};
use crate::head::Head;
use crate::inventory::{Inventory, NoRoom};
use crate::name::FileName;
use crate::outgoing::Outgoing;
use crate::volume::Volume;
use scope_ring::Ring;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes files.
pub(crate) struct Maker {
    pub volume: Volume,
    /// All volumes of the run.
    pub volumes: Vec<[u8; 16]>,
    pub ring: Arc<Ring>,
    pub inventory: Inventory,
    /// Most bytes of a file.
    pub file_bytes: u64,
    /// The filter whose packets are kept; empty: all are.
    pub filter: String,
    /// Bytes of a packet that are kept at most; 0: as many as in the ring.
    pub snap: u32,
    /// That of the newest file.
    pub number: u32,
    /// Why there was no room for the last file, if that is why there is none.
    pub no_room: Option<NoRoom>,
    /// A file was begun since the disk refused last.
    pub fresh: bool,
    /// When the newest file of each link type was begun.
    pub begun: BTreeMap<u16, Instant>,
}

impl Maker {
    /// Begins the file whose first segment is `first`.
    pub fn begin(&mut self, disk: &mut dyn Disk, first: &Outgoing) -> io::Result<FileWriter> {
        let link_type = self.ring.lane_info(first.lane()).link_type;
        let foot = first.sealed_foot().or_else(|| first.foot(first.committed()));
        let first_ns = foot.map_or(0, |foot| foot.first_ns);
        if let Err(no_room) = self.inventory.make_room(disk, &self.volume, self.file_bytes) {
            let error = io::Error::new(io::ErrorKind::StorageFull, no_room.words.clone());
            self.no_room = Some(no_room);
            return Err(error);
        }
        self.number += 1;
        let name = FileName::growing(first_ns, &self.ring.run_id(), link_type, self.number);
        let head = Head {
            volume: self.volume.id().0,
            volumes: self.volumes.clone(),
            filter: self.filter.clone(),
            snap: self.snap,
            ..head(&self.ring, link_type, self.number)
        };
        let plan = FilePlan { name: name.closed().path(), head: &head, bytes_max: self.file_bytes };
        let writer = FileWriter::create(disk, plan)?;
        self.inventory.begun(name, writer.reserve_bytes());
        self.fresh = true;
        self.begun.insert(link_type.0, Instant::now());
        Ok(writer)
    }

    /// Makes room for so many further bytes.
    pub fn make_room(&mut self, disk: &mut dyn Disk, bytes: u64) -> Result<(), NoRoom> {
        self.inventory.make_room(disk, &self.volume, bytes)
    }

    /// Link types whose newest file has grown for as long as none may: with a bound on age a quarter of it, since a
    /// growing file is never deleted.
    pub fn take_old(&mut self) -> Vec<u16> {
        let Some(age_ns) = self.inventory.bounds.age_ns else { return Vec::new() };
        let longest = Duration::from_nanos(age_ns.max(0) as u64 / 4);
        let now = Instant::now();
        let is_old = |began: &Instant| now.duration_since(*began) >= longest;
        let old: Vec<u16> =
            self.begun.iter().filter(|(_, began)| is_old(began)).map(|(link, _)| *link).collect();
        self.begun.retain(|link, _| !old.contains(link));
        old
    }
}
