//! What a store has, looked at cheaply: names, heads, indexes; segments only where a file isn't closed.
//!
//! ```text
//! folders of days ─► names of the store ─► head (whose file) ─► index: facts of each segment
//!                                                           no index: feet, and open slots as far as flushed
//! ```
//! Nothing is changed and no lock is taken. A file that can't be read is listed with the reason. The list is that
//! of one moment: files of a live run grow and change their names behind it.

use crate::checks::Hash;
use crate::head::HeadInterface;
use crate::index::IndexError;
use crate::name::{FileName, is_day};
use crate::salvage::{self, Proof};
pub use crate::stored::Keys;
use crate::stored::{HeadDamage, State, StoredError, StoredFile};
use crate::volume::{Foreign, Store, VolumeId, is_foreign};
use scope_folder::Folder;
use scope_folder::folder::EntryKind;
use scope_packet::LinkType;
use scope_packet::segment::Foot;
use scope_ring::KeyTest;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A slot of a file that grows is looked at again so often, where a write may have been under way.
const LOOKS_MAX: u32 = 5;

/// What a store has.
#[derive(Debug)]
pub struct Listing {
    /// Whose it is.
    pub volume: VolumeId,
    /// Whether a run writes it now.
    pub is_written: bool,
    /// Its files, by name.
    pub files: Vec<Listed>,
    /// What else stands there.
    pub foreign: Foreign,
    /// Folders of days that can't be read, below the store's folder.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// One file.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: FileName,
    /// Its length.
    pub bytes: u64,
    /// How it stands.
    pub standing: Standing,
    /// What it holds, or why that can't be read.
    pub contents: Result<Contents, StoredError>,
}

/// How a file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is whole and never changes.
    Closed,
    /// A run writes it.
    Growing,
    /// Its run died: the next run that writes this store recovers it.
    Left,
}

impl Standing {
    /// The word for people and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Standing::Closed => "closed",
            Standing::Growing => "growing",
            Standing::Left => "to be recovered",
        }
    }
}

/// What a file holds.
#[derive(Debug)]
pub struct Contents {
    /// The run that wrote it.
    pub run_id: [u8; 16],
    /// The volume that it was written into.
    pub volume: [u8; 16],
    /// All volumes of the run; empty: the head doesn't say them.
    pub volumes: Vec<[u8; 16]>,
    /// Number of the file in its run and volume.
    pub number: u32,
    /// Link type of its packets.
    pub link_type: LinkType,
    /// The store filter that its packets passed; empty: none.
    pub filter: String,
    /// Bytes of a packet that it keeps at most; 0: as many as the ring.
    pub snap: u32,
    /// Its interfaces, in the order of their numbers.
    pub interfaces: Vec<HeadInterface>,
    /// Its segments, in the order of the file.
    pub segments: Vec<SegmentFacts>,
    /// What is wrong with its head, though its segments are listed.
    pub head: Option<HeadDamage>,
    /// What is wrong with its index, if that can't be read though the file is closed.
    pub index: Option<IndexError>,
    /// Slots with bytes in them that prove nothing.
    pub unread: u64,
}

/// What is known of a segment before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Its size, bytes.
    pub bytes: usize,
    /// It is open: as many packets as its foot says are proven, and more may be by now.
    pub is_open: bool,
    /// Its foot; of an open one, as if it ended with what is proven.
    pub foot: Foot,
    /// Its hash; [`Hash::NONE`] of an open one, and of one from before there were any.
    pub hash: Hash,
    /// Whether a packet that is searched for may be in it.
    pub may_match: bool,
}

impl Contents {
    /// Packets.
    pub fn packets(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.foot.packets)).sum()
    }

    /// Packets of its lanes that the store's filter left out.
    pub fn left_out(&self) -> u64 {
        self.segments.iter().map(|segment| segment.foot.left_out.packets).sum()
    }

    /// Smallest and largest time of its packets, ns; `None`: it has none.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let with_packets = self.segments.iter().map(|segment| &segment.foot).filter(|foot| foot.packets > 0);
        let spans = with_packets.map(|foot| (foot.min_ns, foot.max_ns));
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

/// Looks at all files of a store.
///
/// # Errors
/// The system's: the store's folder can't be listed.
pub fn list(store: &Store) -> io::Result<Listing> {
    list_for(store, &|_| KeyTest::all())
}

/// The link types that the names of a store's files tell, without a look into them.
///
/// # Errors
/// As [`list`]. A day's folder that can't be read tells none.
pub fn link_types(store: &Store) -> io::Result<BTreeSet<LinkType>> {
    let mut types = BTreeSet::new();
    for entry in store.folder().entries()? {
        let day = Path::new(&entry.name);
        if entry.kind == EntryKind::Folder && entry.name.to_str().is_some_and(is_day) {
            let names = store.folder().below(day.as_os_str()).and_then(|folder| folder.entries());
            let read = |name| FileName::read(&day.join(name)).and_then(|name| name.link_type());
            types.extend(names.into_iter().flatten().filter_map(|entry| read(entry.name)));
        }
    }
    Ok(types)
}

/// The same, for a search: it says of each segment whether it may have what is searched for.
///
/// # Errors
/// As [`list`].
pub fn list_for(store: &Store, keys: Keys<'_>) -> io::Result<Listing> {
    let is_written = store.is_written()?;
    let mut listing = Listing {
        volume: store.id(),
        is_written,
        files: Vec::new(),
        foreign: Foreign::default(),
        unread: Vec::new(),
    };
    for entry in store.folder().entries()? {
        let day = Path::new(&entry.name);
        match entry.kind {
            EntryKind::Folder if entry.name.to_str().is_some_and(is_day) => {
                if let Err(error) = list_day(store.folder(), day, keys, &mut listing) {
                    listing.unread.push((day.to_path_buf(), error));
                }
            }
            EntryKind::File if !is_foreign(day) => {}
            _ => listing.foreign.add(day),
        }
    }
    listing.files.sort_by(|a, b| a.name.cmp(&b.name));
    // Who writes is the run that began last: the growing files of all others were left.
    let newest =
        listing.files.iter().filter(|file| file.name.is_growing()).max_by_key(|file| file.name.first_ns());
    let live =
        newest.filter(|_| is_written).and_then(|file| file.contents.as_ref().ok()).map(|file| file.run_id);
    for file in listing.files.iter_mut().filter(|file| file.standing == Standing::Left) {
        let run = file.contents.as_ref().ok().map(|contents| contents.run_id);
        if run.is_some() && run == live {
            file.standing = Standing::Growing;
        }
    }
    Ok(listing)
}

fn list_day(volume: &Folder, day: &Path, keys: Keys<'_>, listing: &mut Listing) -> io::Result<()> {
    let folder = match volume.below(day.as_os_str()) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
        folder => folder?,
    };
    for entry in folder.entries()? {
        let path = day.join(&entry.name);
        let name = FileName::read(&path).filter(|_| entry.kind == EntryKind::File);
        let Some(name) = name else {
            listing.foreign.add(&path);
            continue;
        };
        let mut contents = match open_in(&folder, &name) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue, // it was deleted meanwhile
            Err(error) => Err(error.into()),
            Ok(file) => contents(file, &name, listing.volume, keys),
        };
        if let Ok(read) = &contents
            && !name.agrees(&read.run_id, read.link_type, read.number)
        {
            if read.volume == [0; 16] {
                listing.foreign.add(&path);
                continue;
            }
            contents = Err(StoredError::Misnamed); // its packets may be those that seem to be missing
        }
        let standing = if name.is_growing() { Standing::Left } else { Standing::Closed };
        listing.files.push(Listed { name, bytes: entry.len, standing, contents });
    }
    Ok(())
}

/// Opens a file of the volume whose folder this is; one that grew also under the name that it has got.
pub(crate) fn open(volume: &Folder, name: &FileName) -> io::Result<File> {
    open_in(&volume.below(name.day().as_os_str())?, name)
}

fn open_in(day: &Folder, name: &FileName) -> io::Result<File> {
    let last = |path: PathBuf| path.file_name().map(OsStr::to_os_string).unwrap_or_default();
    match day.reading(&last(name.path())) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound && name.is_growing() => {
            day.reading(&last(name.closed().path()))
        }
        opened => opened,
    }
}

/// What an opened file of this name and volume has: where its head is damaged, these say whose it is.
fn contents(file: File, name: &FileName, volume: VolumeId, keys: Keys<'_>) -> Result<Contents, StoredError> {
    let stored = StoredFile::open_for(file, keys, &mut Vec::new())?;
    let bytes = stored.segment_bytes();
    let closed = stored.segments().iter();
    let mut segments: Vec<SegmentFacts> = closed
        .map(|facts| SegmentFacts {
            offset: facts.offset,
            bytes,
            is_open: false,
            foot: facts.foot,
            hash: facts.hash,
            may_match: facts.may_match,
        })
        .collect();
    let (mut unread, mut slot) = (0, Vec::new());
    for &offset in stored.unread() {
        match proven(|into| stored.read_slot(offset, into), &mut slot)? {
            Some(foot) => {
                let hash = Hash::NONE;
                segments.push(SegmentFacts { offset, bytes, is_open: true, foot, hash, may_match: true })
            }
            None => unread += u64::from(slot.iter().any(|&byte| byte != 0)),
        }
    }
    segments.retain(|segment| segment.foot.packets > 0 || segment.foot.left_out.packets > 0);
    segments.sort_by_key(|segment| segment.offset);
    let index = match stored.state() {
        State::Unclosed(cause) if !name.is_growing() => Some(cause),
        _ => None,
    };
    let head = stored.head();
    let (volume, number) = match stored.knows_head() {
        true => (head.volume, head.number),
        false => (volume.0, name.number()),
    };
    Ok(Contents {
        run_id: head.run_id,
        volume,
        volumes: head.volumes.clone(),
        number,
        link_type: head.link_type,
        filter: head.filter.clone(),
        snap: head.snap,
        interfaces: head.interfaces.clone(),
        segments,
        head: stored.head_damage().cloned(),
        index,
        unread,
    })
}

/// Reads a slot that isn't closed, and makes the segment that it proves of it; `None`: it proves nothing, also
/// not when it is looked at again.
pub(crate) fn proven(
    mut read: impl FnMut(&mut Vec<u8>) -> io::Result<()>,
    slot: &mut Vec<u8>,
) -> io::Result<Option<Foot>> {
    for _ in 0..LOOKS_MAX {
        read(slot)?;
        match salvage::look(slot).proof {
            Proof::Whole { foot, .. } => return Ok(Some(foot)),
            Proof::Beginning { foot, record } => {
                salvage::close(slot, &foot, record);
                return Ok(Some(foot));
            }
            Proof::Nothing if slot.iter().all(|&byte| byte == 0) => return Ok(None),
            Proof::Nothing => {}
        }
    }
    Ok(None)
}
