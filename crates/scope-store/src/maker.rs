//! Makes the files of a volume: room first, then a number, a name and a head.

use crate::disk::Disk;
use crate::file::head;
use crate::file_writer::{FilePlan, FileWriter};
use crate::head::Head;
use crate::inventory::{Inventory, NoRoom};
use crate::name::FileName;
use crate::outgoing::Outgoing;
use crate::retain::Growing;
use crate::volume::Volume;
use scope_ring::{Ring, Summaries};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Room that is made by what is under way is asked for again after this, then after twice as long, and so on.
const WAIT_MIN: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// There is no room yet.
pub(crate) struct Waits {
    why: NoRoom,
    since: Instant,
    pause: Duration,
    again_at: Instant,
}

impl Waits {
    /// There is no room at `now` either: a pause is begun, behind `before`, unless that isn't over yet.
    fn go_on(before: Option<Waits>, why: NoRoom, now: Instant) -> Waits {
        let (since, pause) = match before {
            Some(before) if now < before.again_at => return before,
            Some(before) => (before.since, (before.pause * 2).min(WAIT_MAX)),
            None => (now, WAIT_MIN),
        };
        Waits { why, since, pause, again_at: now + pause }
    }

    /// Since when.
    pub fn since(&self) -> Instant {
        self.since
    }
}

/// Makes files.
pub(crate) struct Maker {
    pub volume: Volume,
    /// All volumes of the run.
    pub volumes: Vec<[u8; 16]>,
    pub ring: Arc<Ring>,
    /// Those of the ring that somebody else uses, too.
    pub summaries: Option<Arc<Summaries>>,
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
    /// There was no room for the last file, and what is under way may make some.
    pub waits: Option<Waits>,
    /// The files that grow now.
    pub growing: Vec<Growing>,
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
        // The one that comes before it is full.
        let of_link = self.growing.iter_mut().filter(|growing| growing.link == link_type.0);
        of_link.for_each(|growing| growing.ends = true);
        if let Err(no_room) = self.room_for_a_file(disk) {
            let error = io::Error::new(io::ErrorKind::StorageFull, no_room.words.clone());
            self.no_room = Some(no_room);
            return Err(error);
        }
        self.waits = None;
        self.number += 1;
        let name = FileName::growing(first_ns, &self.ring.run_id(), link_type, self.number);
        let head = Head {
            volume: self.volume.id().0,
            volumes: self.volumes.clone(),
            filter: self.filter.clone(),
            snap: self.snap,
            ..head(&self.ring, link_type, self.number)
        };
        let plan = FilePlan {
            name: name.closed().path(),
            head: &head,
            bytes_max: self.file_bytes,
            summaries: self.summaries.clone(),
        };
        let writer = FileWriter::create(disk, plan)?;
        self.inventory.begun(name, writer.reserve_bytes());
        self.fresh = true;
        self.begun.insert(link_type.0, Instant::now());
        Ok(writer)
    }

    /// Makes room for a file. Where that failed a moment ago, the file system isn't asked again yet.
    fn room_for_a_file(&mut self, disk: &mut dyn Disk) -> Result<(), NoRoom> {
        match &self.waits {
            Some(waits) if Instant::now() < waits.again_at => Err(waits.why.clone()),
            _ => self.make_room(disk, self.file_bytes),
        }
    }

    /// There was no room, and there will be, by what is under way: the file system is asked again after a pause
    /// that grows, or once `waits` is taken away.
    pub fn wait(&mut self, why: NoRoom) {
        self.waits = Some(Waits::go_on(self.waits.take(), why, Instant::now()));
    }

    /// Makes room for so many further bytes.
    pub fn make_room(&mut self, disk: &mut dyn Disk, bytes: u64) -> Result<(), NoRoom> {
        self.inventory.set_growing(&self.growing);
        self.inventory.make_room(disk, &self.volume, bytes)
    }

    /// Link types whose newest file has grown for as long as none may: with a bound on age a quarter of it,
    /// since a growing file is never deleted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::VolumeState;

    #[test]
    fn room_that_is_only_a_matter_of_time_is_asked_for_with_growing_pauses() {
        let begin = Instant::now();
        let no_room = || NoRoom { state: VolumeState::Full, words: "no room".to_string() };
        let (mut waits, mut asked) = (None, Vec::new());
        // A turn each 5 ms asks only where no pause lasts.
        for ms in (0..5000).step_by(5) {
            let now = begin + Duration::from_millis(ms);
            if waits.as_ref().is_none_or(|waits: &Waits| now >= waits.again_at) {
                asked.push(ms);
            }
            waits = Some(Waits::go_on(waits, no_room(), now));
        }
        assert_eq!(asked, [0, 10, 30, 70, 150, 310, 630, 1270, 2270, 3270, 4270]);
    }
}
