//! A copy of a store in which bits are flipped, and what of it is still proven: read naively, by docs/FORMAT.md alone.
//!
//! ```text
//!  slot  | page | page | page | column's pages | foot's page |
//!           ^ damaged: its packets are gone      ^ damaged: nobody has to find the slot's packets
//! ```
//! Head and index stay whole.

use super::scene::Scene;
use crate::oracle;
use crate::traffic::{Capture, Random, Record};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE_BYTES: usize = 4096;
const PACKET: u32 = 6;
const KEY_COLUMN: u32 = 0x8000_0002;
const HEAD: u32 = 0x8000_0003;

/// A packet by its time, bytes and length.
type Identity = (i64, Vec<u8>, u32);

/// How a packet of the store stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing of its slot is damaged.
    Sound,
    /// Its pages, the column and the foot of its slot are whole.
    Proven,
    /// Its own pages are whole.
    Whole,
    /// A page of it is damaged.
    Gone,
}

/// A damaged copy.
pub struct Damaged {
    /// Its folder.
    pub folder: PathBuf,
    standings: HashMap<Identity, Vec<Standing>>,
}

impl Damaged {
    /// Copies a store to `folder` and damages some pages of it.
    ///
    /// # Errors
    /// The system's, and a file that isn't what docs/FORMAT.md says.
    pub fn make(scene: &Scene, store: usize, folder: &Path, random: &mut Random) -> Result<Damaged, String> {
        let from = &scene.stores[store].folder;
        let mut damaged = Damaged { folder: folder.to_path_buf(), standings: HashMap::new() };
        let mut files = Vec::new();
        copy(from, folder, &mut files).map_err(|error| format!("{}: {error}", from.display()))?;
        files.sort();
        for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "pcapng")) {
            damaged.flip(file, random).map_err(|fault| format!("{}: {fault}", file.display()))?;
        }
        Ok(damaged)
    }

    /// Those of `packets`, all of them of this store, that an answer must have.
    ///
    /// # Errors
    /// Where one isn't in the store.
    pub fn proven(&self, packets: &Capture) -> Result<Capture, String> {
        self.standing(packets, |standing| match standing {
            Standing::Sound | Standing::Proven => true,
            Standing::Whole | Standing::Gone => false,
        })
    }

    /// Those that it may have.
    ///
    /// # Errors
    /// As [`Damaged::proven`].
    pub fn whole(&self, packets: &Capture) -> Result<Capture, String> {
        self.standing(packets, |standing| standing != Standing::Gone)
    }

    fn standing(&self, packets: &Capture, admits: impl Fn(Standing) -> bool) -> Result<Capture, String> {
        let mut met: HashMap<Identity, usize> = HashMap::new();
        let mut admitted = Vec::new();
        for (at, packet) in packets.packets.iter().enumerate() {
            let identity = identity(packet);
            let known = self.standings.get(&identity).ok_or("a packet isn't in the store")?;
            // Of the same packet twice any may be the damaged one: they are alike.
            let turn = met.entry(identity).or_default();
            let standing = *known.get(*turn).ok_or("a packet isn't in the store as often as it came")?;
            *turn += 1;
            if admits(standing) {
                admitted.push(at);
            }
        }
        Ok(packets.subset(&admitted))
    }

    /// Flips a bit in some pages of a file, and notes how its packets stand.
    fn flip(&mut self, path: &Path, random: &mut Random) -> Result<(), String> {
        let mut bytes = fs::read(path).map_err(|error| error.to_string())?;
        let packets = oracle::parse(&bytes)?.capture.packets;
        let layout = Layout::of(&bytes)?;
        if layout.packets.len() != packets.len() {
            return Err(format!("{} packet blocks and {} packets", layout.packets.len(), packets.len()));
        }
        let mut damaged: BTreeSet<usize> = BTreeSet::new();
        for slot in &layout.slots {
            if !random.chance(40) {
                continue;
            }
            for _ in 0..1 + random.below(2) {
                let page = match random.below(6) {
                    0 => slot.end / PAGE_BYTES - 1,
                    1 => slot.column / PAGE_BYTES,
                    _ => (slot.start + random.below((slot.blocks - slot.start) as u64) as usize) / PAGE_BYTES,
                };
                let at = page * PAGE_BYTES + random.below(PAGE_BYTES as u64 - 4) as usize;
                // Twice in one page might undo it.
                if damaged.insert(page) {
                    bytes[at] ^= 1 << random.below(8);
                }
            }
        }
        let is_damaged = |from: usize, to: usize| {
            damaged.range(from / PAGE_BYTES..to.div_ceil(PAGE_BYTES)).next().is_some()
        };
        for (block, packet) in layout.packets.iter().zip(&packets) {
            let slot = layout.slots.iter().find(|slot| (slot.start..slot.end).contains(&block.0));
            let slot = slot.ok_or("a packet outside of all slots")?;
            let standing = if is_damaged(block.0, block.1) {
                Standing::Gone
            } else if is_damaged(slot.column, slot.end) {
                Standing::Whole
            } else if is_damaged(slot.start, slot.end) {
                Standing::Proven
            } else {
                Standing::Sound
            };
            self.standings.entry(identity(packet)).or_default().push(standing);
        }
        fs::write(path, bytes).map_err(|error| error.to_string())
    }
}

fn identity(packet: &Record) -> Identity {
    (packet.time_ns, packet.data.clone(), packet.original_len)
}

/// Where everything is in a file.
struct Layout {
    slots: Vec<Slot>,
    /// From and to of each packet block.
    packets: Vec<(usize, usize)>,
}

/// A slot, offsets in the file.
struct Slot {
    start: usize,
    /// Where its packet blocks end.
    blocks: usize,
    column: usize,
    end: usize,
}

impl Layout {
    fn of(bytes: &[u8]) -> Result<Layout, String> {
        let mut layout = Layout { slots: Vec::new(), packets: Vec::new() };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (mut at, mut slot_bytes, mut blocks) = (0, 0, 0);
        while at + 12 <= bytes.len() {
            let (kind, total) = (word(at), word(at + 4) as usize);
            let end = at + total;
            if total < 12 || end > bytes.len() {
                return Err(format!("a block of {total} bytes at {at}"));
            }
            match kind {
                HEAD => slot_bytes = word(at + 52) as usize,
                PACKET => {
                    layout.packets.push((at, end));
                    blocks = end;
                }
                KEY_COLUMN => {
                    let start = end.checked_sub(slot_bytes).ok_or("a column in front of all slots")?;
                    let blocks = blocks.max(start + 1);
                    layout.slots.push(Slot { start, blocks, column: at, end });
                }
                _ => {}
            }
            at = end;
        }
        Ok(layout)
    }
}

/// Copies a folder with all that is in it; the files that came.
fn copy(from: &Path, to: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, files)?;
        } else {
            fs::copy(entry.path(), &target)?;
            files.push(target);
        }
    }
    Ok(())
}
