//! The simulated disk: acts that take their time, stand still for a while, or fail.

use crate::dice::Dice;
use crate::stage::Stage;
use scope_dump::Disk;
use scope_folder::Folder;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// What a disk does to who writes to it.
#[derive(Clone, Debug)]
pub(crate) struct DiskBehaviour {
    /// One act takes up to so long, ns.
    pub act_ns: i64,
    /// Nothing makes progress from here to there.
    pub frozen_ns: Option<(i64, i64)>,
    /// It is full after so many bytes.
    pub bytes_max: Option<u64>,
    /// From here to there nothing can be made, synced or named.
    pub read_only_ns: Option<(i64, i64)>,
    /// So many of a hundred syncs fail.
    pub failing_syncs: u64,
    /// A pipe's reader goes away here.
    pub reader_gone_ns: Option<i64>,
}

/// One run's disk.
#[derive(Debug)]
pub(crate) struct StageDisk {
    stage: Arc<Stage>,
    manner: DiskBehaviour,
    state: Mutex<(Dice, u64)>,
}

impl StageDisk {
    pub(crate) fn new(stage: &Arc<Stage>, manner: DiskBehaviour, dice: Dice) -> StageDisk {
        StageDisk { stage: stage.clone(), manner, state: Mutex::new((dice, 0)) }
    }

    /// Takes the time of one act.
    fn act(&self) {
        let took_ns = {
            let dice = &mut self.state.lock().expect("no panic while held").0;
            if dice.chance(5) {
                dice.within(0..10 * self.manner.act_ns)
            } else {
                dice.within(0..self.manner.act_ns)
            }
        };
        self.stage.pause(took_ns);
        let now_ns = self.stage.now_ns();
        if let Some((from_ns, to_ns)) = self.manner.frozen_ns
            && (from_ns..to_ns).contains(&now_ns)
        {
            self.stage.pause(to_ns - now_ns);
        }
    }

    fn expect_writable(&self) -> io::Result<()> {
        let now_ns = self.stage.now_ns();
        match self.manner.read_only_ns {
            Some((from_ns, to_ns)) if (from_ns..to_ns).contains(&now_ns) => {
                Err(ErrorKind::ReadOnlyFilesystem.into())
            }
            _ => Ok(()),
        }
    }

    /// How many of `bytes` more there is room for.
    fn room(&self, bytes: usize) -> usize {
        let Some(most) = self.manner.bytes_max else { return bytes };
        let used = &mut self.state.lock().expect("no panic while held").1;
        let room = (most.saturating_sub(*used) as usize).min(bytes);
        *used += room as u64;
        room
    }
}

impl Disk for StageDisk {
    fn unnamed(&self, folder: &Folder) -> io::Result<File> {
        self.act();
        self.expect_writable()?;
        folder.unnamed()
    }

    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        self.act();
        if self.manner.reader_gone_ns.is_some_and(|gone_ns| self.stage.now_ns() >= gone_ns) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let room = self.room(bytes.len());
        file.write_all(&bytes[..room])?;
        if room < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.act();
        file.write_all_at(bytes, at)
    }

    fn sync(&self, _file: &File) -> io::Result<()> {
        self.act();
        self.expect_writable()?;
        let fails = self.state.lock().expect("no panic while held").0.chance(self.manner.failing_syncs);
        if fails { Err(io::Error::other("input/output error")) } else { Ok(()) }
    }

    fn give_name(&self, folder: &Folder, file: &File, name: &OsStr) -> io::Result<()> {
        self.act();
        self.expect_writable()?;
        folder.give_name(file, name)
    }
}
