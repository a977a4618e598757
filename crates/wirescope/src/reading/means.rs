//! What a question may take of the machine: threads, memory, and a folder for what doesn't fit into that.

use crate::plan::faults::{Faults, bad, omit_it, such_as};
use crate::words::size;
use scope_fault::{Fault, Setting, sentence};
use scope_folder::Folder;
use scope_machine::limits;
use scope_spelling::values::{parse_count, parse_size};
use scope_store::fetch::{DEPTH, Fetch};
use scope_store::spill::SpillFile;
use scope_store::timeline;
use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Threads that read at most.
const THREADS_MAX: u64 = 64;
/// Memory, unless another amount is given, and at least.
const MEMORY_BYTES: u64 = timeline::MEMORY_BYTES as u64;
const MEMORY_BYTES_MIN: u64 = timeline::MEMORY_BYTES_MIN as u64;
/// The folder for temporary files where TMPDIR names none.
const TMP: &str = "/tmp";

/// The same as written.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeansWords<'a> {
    /// `--threads`.
    pub threads: Option<&'a str>,
    /// `--memory`.
    pub memory: Option<&'a str>,
    /// `--tmp`.
    pub tmp: Option<&'a Path>,
}

/// What a question may take.
#[derive(Debug)]
pub struct Means {
    /// Threads that read.
    pub threads: usize,
    /// Bytes of memory for packets on their way.
    pub memory_bytes: u64,
    /// Where files without a name may be made; `None`: nobody named a folder, and the usual one can't be opened.
    pub tmp: Option<Folder>,
    /// What each reading of the stores uses.
    pub readings: Vec<timeline::Means>,
}

impl Default for Means {
    /// What is taken unless something else is said.
    fn default() -> Means {
        let folder = env::var_os("TMPDIR").filter(|text| !text.is_empty()).map_or(TMP.into(), PathBuf::from);
        Means {
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX as usize),
            memory_bytes: MEMORY_BYTES,
            tmp: Folder::open(&folder).ok(),
            readings: Vec::new(),
        }
    }
}

impl MeansWords<'_> {
    /// What they mean.
    pub fn read(&self, faults: &mut Faults<'_>) -> Means {
        let mut means = Means::default();
        if let Some(text) = self.threads {
            match parse_count(text) {
                Ok(threads @ 1..=THREADS_MAX) => means.threads = threads as usize,
                Ok(_) => {
                    let fault = Fault::of("threads").value(text, format!("is not from 1 to {THREADS_MAX}"));
                    faults.add(fault.remedy(sentence!["write e.g. 2, or ", omit_it()]));
                }
                Err(wrong) => {
                    faults.add(bad(Fault::of("threads"), wrong).remedy(such_as("threads", "2")));
                }
            }
        }
        if let Some(text) = self.memory {
            match parse_size(text) {
                Ok(bytes) if bytes < MEMORY_BYTES_MIN => {
                    let is = format!("is less than {}", size(MEMORY_BYTES_MIN));
                    faults.add(Fault::of("memory").value(text, is).remedy(such_as("memory", "256MiB")));
                }
                Ok(bytes) => means.memory_bytes = bytes,
                Err(wrong) => {
                    faults.add(bad(Fault::of("memory"), wrong).remedy(such_as("memory", "256MiB")));
                }
            }
        }
        if let Some(path) = self.tmp {
            let tried = Folder::open(path).and_then(|folder| unnamed(&folder).map(|_| folder));
            match tried {
                Ok(folder) => means.tmp = Some(folder),
                Err(error) => {
                    let cause = format!("{}: no file can be made in it: {error}", path.display());
                    let fault = Fault::of("tmp").with_value(path.to_string_lossy()).cause(cause);
                    faults.add(fault.remedy("name a folder that exists and that you may write to"));
                }
            }
        }
        means
    }
}

impl Means {
    /// Makes what so many readings of stores use, before rights are given up. From now on this process stands back
    /// behind others.
    pub fn ready(mut self, readings: usize) -> Means {
        limits::stand_back();
        // Where a read has to go past the page cache it opens its file once more.
        limits::allow_files((readings * self.threads * DEPTH) as u64);
        let threads = || (0..self.threads).map(|_| Fetch::best()).collect();
        // Without a file what has no room in memory ends the answer, and says so.
        let reading = |_| timeline::Means {
            fetches: threads(),
            memory_bytes: self.memory_bytes as usize,
            spill: self.spill().map_or(SpillFile::None, SpillFile::Open),
            ..timeline::Means::default()
        };
        self.readings = (0..readings).map(reading).collect();
        self
    }

    /// A file without a name, for what doesn't fit into memory: to be opened while files can be made.
    ///
    /// # Errors
    /// There is no folder for it, or it can't be made.
    pub fn spill(&self) -> Result<File, Fault> {
        let remedy = || sentence!["name a folder: ", Setting::of("tmp").example("DIR")];
        let Some(folder) = &self.tmp else {
            return Err(Fault::of("tmp")
                .cause("no folder for temporary files can be opened")
                .remedy(remedy()));
        };
        unnamed(folder).map_err(|error| {
            let cause = format!("{}: no file can be made in it: {error}", folder.path().display());
            Fault::of("tmp").cause(cause).remedy(remedy())
        })
    }
}

/// A file that is gone when it is closed.
fn unnamed(folder: &Folder) -> io::Result<File> {
    if folder.makes_unnamed() {
        return folder.unnamed();
    }
    let name = format!(".wirescope-{}", std::process::id());
    let file = folder.shared(OsStr::new(&name))?;
    folder.remove(OsStr::new(&name))?;
    Ok(file)
}
