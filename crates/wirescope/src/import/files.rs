//! The files of an import: which of them came before, and what comes of each while it is read.

use scope_engine::SourceEntry;
use scope_fault::{Fault, Setting, sentence};
use scope_source::file::{Follow, check_begin};
use scope_source::spec::FileForm;
use scope_spelling::time::iso;
use scope_store::chain::Digest;
use scope_store::imports::{Hashing, Imported, Imports, RunInName, runs_in};
use scope_store::volume::{MARK, Store};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All files of an import, in the order of its sources.
pub struct Files {
    files: Vec<Own>,
    known: Known,
}

/// One of them.
struct Own {
    name: String,
    /// What can be read again, with its length; `None`: a pipe.
    again: Option<(File, u64)>,
    following: Arc<Following>,
}

/// What came of a file.
#[derive(Clone, Debug, Default)]
pub struct Came {
    /// As it was given.
    pub name: String,
    /// Packets that came of it.
    pub packets: u64,
    /// Its length, as far as it was read.
    pub bytes: u64,
    /// Over all its bytes; `None`: not all of them were read, and they can't be read again.
    pub hash: Option<Digest>,
    /// It was read as far as it can be.
    pub has_ended: bool,
    /// And has no other packets.
    pub is_whole: bool,
}

impl Files {
    /// Looks at the files that `sources` read, and lets them be followed.
    ///
    /// # Errors
    /// One can't be read, begins like no capture, or was imported before (unless `again`).
    pub fn look(sources: &mut [SourceEntry], stores: &[PathBuf], again: bool) -> Result<Files, Vec<Fault>> {
        let (mut files, mut faults) = (Vec::new(), Vec::new());
        for entry in sources {
            let Some(plan) = entry.plan.file() else { continue };
            let following = Arc::new(Following::default());
            match Own::open(&plan.path, plan.form, following.clone()) {
                Ok(file) => files.push(file),
                Err(error) => faults.push(error.into_fault(&entry.spec)),
            }
            entry.follow = Some(following);
        }
        let known = Known::read(stores, again).map_err(|fault| faults.push(fault)).unwrap_or_default();
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut files = Files { files, known };
        if !again {
            faults = files.repeated();
        }
        if faults.is_empty() { Ok(files) } else { Err(faults) }
    }

    /// Of each file that came before, or comes twice, that it does.
    fn repeated(&mut self) -> Vec<Fault> {
        let lengths: Vec<Option<u64>> =
            self.files.iter().map(|file| file.again.as_ref().map(|(_, length)| *length)).collect();
        let mut hashed: Vec<(Digest, String)> = Vec::new();
        let mut faults = Vec::new();
        for (own, length) in self.files.iter_mut().zip(&lengths) {
            let Some(length) = *length else { continue };
            let is_alone = lengths.iter().filter(|other| **other == Some(length)).count() == 1;
            if is_alone && !self.known.has_length(length) {
                continue; // of another length than all that is known
            }
            let fault = |cause: String| {
                let remedy = sentence!["omit it, or add ", Setting::of("again")];
                Fault::of_thing(&*own.name).cause(cause).remedy(remedy)
            };
            let hash = match own.again.as_mut().map(|(file, _)| hash(file, 0, Hashing::default())) {
                Some(Ok(hash)) => hash,
                Some(Err(error)) => {
                    faults.push(Fault::of_thing(&*own.name).error(&error));
                    continue;
                }
                None => continue,
            };
            if let Some((_, other)) = hashed.iter().find(|(known, _)| *known == hash) {
                faults.push(fault(format!("it has the same bytes as {other}")));
            } else if let Some(before) = self.known.words(hash) {
                faults.push(fault(before));
            }
            hashed.push((hash, own.name.clone()));
        }
        faults
    }

    /// What is known of a file with this hash that was imported before.
    pub fn known_by_now(&self, hash: Digest) -> Option<String> {
        self.known.words(hash).filter(|_| !self.known.again)
    }

    /// Their bytes; `None`: of a pipe nobody knows.
    pub fn bytes(&self) -> Option<u64> {
        self.files.iter().map(|file| file.again.as_ref().map(|(_, length)| *length)).sum()
    }

    /// The counters that progress is told by.
    pub fn followings(&self) -> Vec<Arc<Following>> {
        self.files.iter().map(|file| file.following.clone()).collect()
    }

    /// What came of each, once nobody reads any more.
    pub fn came(&self) -> Vec<Came> {
        self.files.iter().map(Own::came).collect()
    }
}

impl Own {
    fn open(path: &str, form: FileForm, following: Arc<Following>) -> Result<Own, scope_source::SourceError> {
        check_begin(path, form)?;
        let name = if path == "-" { "standard input" } else { path }.to_string();
        let again = match path {
            "-" => None,
            _ => Path::new(path)
                .metadata()
                .ok()
                .filter(|facts| facts.is_file())
                .and_then(|facts| Some((File::open(path).ok()?, facts.len()))),
        };
        Ok(Own { name, again, following })
    }

    fn came(&self) -> Came {
        let state = self.following.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = self.following.bytes.load(Ordering::Relaxed);
        let (packets, is_whole) = state.ended.unwrap_or_default();
        let mut came = Came {
            name: self.name.clone(),
            packets,
            bytes: read,
            hash: None,
            has_ended: state.ended.is_some(),
            is_whole,
        };
        if state.is_at_end {
            came.hash = Some(state.hashing.digest());
        } else if let Some((file, _)) = self.again.as_ref().filter(|_| came.has_ended) {
            // What stands behind the damage belongs to the file.
            came.hash = hash(file, read, state.hashing).ok();
            came.bytes = file.metadata().map_or(read, |facts| facts.len());
        }
        came
    }
}

/// The hash of a file whose bytes before `from` are hashed already.
fn hash(mut file: &File, from: u64, mut hashing: Hashing) -> io::Result<Digest> {
    file.seek(SeekFrom::Start(from))?;
    hashing.update_from(file)?;
    Ok(hashing.digest())
}

/// What was imported before, into any of the stores.
#[derive(Default)]
struct Known {
    imports: Vec<Imports>,
    /// The stores, with the runs that have files there.
    runs: Vec<([u8; 16], BTreeSet<RunInName>)>,
    /// It doesn't matter.
    again: bool,
}

impl Known {
    fn read(stores: &[PathBuf], again: bool) -> Result<Known, Fault> {
        let mut known = Known { again, ..Known::default() };
        for path in stores.iter().filter(|path| path.join(MARK).symlink_metadata().is_ok()) {
            let store = Store::look(path)?;
            match Imports::read(store.folder()) {
                Err(_) if again => {}
                imports => known.imports.push(imports?),
            }
            let runs = runs_in(store.folder());
            let runs =
                runs.map_err(|error| Fault::of("store").with_value(path.to_string_lossy()).error(&error));
            known.runs.push((store.id().0, runs?));
        }
        Ok(known)
    }

    fn has_length(&self, bytes: u64) -> bool {
        self.imports.iter().any(|imports| imports.has_length(bytes))
    }

    /// When and as what a file with this hash was imported, if anything of it can be left.
    fn words(&self, hash: Digest) -> Option<String> {
        let mut found = self.imports.iter().flat_map(|imports| imports.with(hash));
        let Imported { when_ns, name, run_id, .. } = found.find(|imported| !imported.is_gone(&self.runs))?;
        let run = format!("{:032x}", u128::from_be_bytes(*run_id));
        Some(format!("its bytes were imported at {} as {name}, by run {}", iso(*when_ns), &run[..8]))
    }
}

/// Follows the reading of one file.
#[derive(Debug, Default)]
pub struct Following {
    bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    hashing: Hashing,
    is_at_end: bool,
    /// Packets, and whether there are no others.
    ended: Option<(u64, bool)>,
}

impl Following {
    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Follow for Following {
    fn bytes(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_at_end |= bytes.is_empty();
        state.hashing.update(bytes);
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    fn ended(&self, packets: u64, is_whole: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = Some((packets, is_whole));
    }
}
