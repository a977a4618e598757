//! Where a run writes: folders that are opened once, before rights are given up, and written to under these
//! handles.

use crate::error::EngineError;
use crate::plan::{RunPlan, SingleDump};
use scope_dump::budget::TABLE_FILE;
use scope_dump::{Budget, DumpOutput, Spool, SystemDisk, Target};
use scope_events::{EVENTS_FILE, Events};
use scope_folder::Folder;
use scope_rights::{FolderUse, Writable};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The open folders of a run.
pub struct Outputs {
    /// For the log; a run with a single dump elsewhere may do without.
    log: Option<Arc<Folder>>,
    /// Where dumps go.
    pub dump: Arc<DumpOutput>,
    /// For the whole ring at the end, and the name that it gets there.
    pub ring_out: Option<(Folder, OsString)>,
    /// Folders of the store that are there.
    volumes: Vec<Folder>,
}

impl Outputs {
    /// Opens them; nothing is made in them.
    pub fn open(plan: &RunPlan) -> Result<Outputs, EngineError> {
        let log = plan.fixed.folder.as_deref().map(open).transpose()?.map(Arc::new);
        let ring_out = plan.fixed.ring_out.as_deref().map(open_parent).transpose()?;
        let mut budget = None;
        let target = match &plan.fixed.dump.single {
            Some(SingleDump::Stdout) => Target::Stream(stdout().map_err(fault("standard output"))?),
            Some(SingleDump::File(path)) => {
                let (folder, name) = open_parent(path)?;
                Target::File { folder: Arc::new(folder), name }
            }
            None => {
                let folder = log.clone().map_or_else(|| open(Path::new(".")).map(Arc::new), Ok)?;
                let limits = plan.fixed.dump.limits;
                let opened = limits.any().then(|| Budget::open(limits, &folder)).transpose();
                budget = opened.map_err(fault(&folder.path().display().to_string()))?;
                Target::Folder(folder)
            }
        };
        if let Target::Folder(folder) | Target::File { folder, .. } = &target
            && (plan.fixed.dump.single.is_some() || !plan.live.triggers.is_empty())
            && !folder.makes_unnamed()
        {
            let words = "its file system has no files without a name (O_TMPFILE), which dumps need; choose \
            a folder on another one (ext4, XFS, Btrfs, tmpfs), e.g. with --out";
            return Err(fault(&folder.path().display().to_string())(io::Error::new(
                io::ErrorKind::Unsupported,
                words,
            )));
        }
        let disk = Arc::new(SystemDisk);
        let spool = plan.fixed.dump.all.then(|| open_spool(&target, log.as_deref())).transpose()?;
        let spool = spool.map(|file| Spool::new(file, disk.clone()));
        let dump = DumpOutput { format: plan.fixed.dump.format, target, budget, disk, spool };
        let volumes = plan.fixed.store.iter().flat_map(|store| &store.volumes);
        let volumes = volumes.filter(|volume| volume.folder.is_dir()).map(|volume| open(&volume.folder));
        Ok(Outputs { log, dump: Arc::new(dump), ring_out, volumes: volumes.collect::<Result<_, _>>()? })
    }

    /// The folders of the store that are there already: who the run becomes must be able to write there.
    pub fn volumes(&self) -> &[Folder] {
        &self.volumes
    }

    /// Opens the log for the run `run_id`, if there is a folder for it.
    pub fn open_events(&self, run_id: &[u8; 16]) -> Result<Events, EngineError> {
        let Some(folder) = &self.log else { return Ok(Events::nowhere()) };
        Events::open(folder, run_id).map_err(fault(&folder.path().join(EVENTS_FILE).display().to_string()))
    }

    /// Keeps the budget together with other runs of the folder from here on, if there is one.
    pub fn join_budget(&self) -> Result<(), EngineError> {
        let Some((budget, folder)) = self.dump.budget.as_ref().zip(self.log.as_ref()) else { return Ok(()) };
        budget.join().map_err(fault(&folder.path().join(TABLE_FILE).display().to_string()))
    }

    /// What stays writable, the dump folder first.
    pub fn writable(&self) -> Vec<Writable<'_>> {
        let own = FolderUse::Own;
        let log =
            self.log.iter().map(|folder| Writable { folder, file: OsStr::new(EVENTS_FILE), folder_use: own });
        let budget = self.dump.budget.as_ref().filter(|budget| budget.limits().bytes_max.is_some());
        let table = self.log.iter().filter(|_| budget.is_some());
        let table = table.map(|folder| Writable { folder, file: OsStr::new(TABLE_FILE), folder_use: own });
        let single = match &self.dump.target {
            Target::File { folder, name } => {
                Some(Writable { folder, file: name, folder_use: FolderUse::NewName })
            }
            Target::Folder(_) | Target::Stream(_) => None,
        };
        let ring_out = self.ring_out.iter();
        let ring_out =
            ring_out.map(|(folder, name)| Writable { folder, file: name, folder_use: FolderUse::NewName });
        log.chain(table).chain(single).chain(ring_out).collect()
    }

    /// The folder that dumps go to, and whether it is theirs alone; `None`: they go into a pipe.
    pub fn dumps(&self) -> Option<(PathBuf, bool)> {
        match &self.dump.target {
            Target::Folder(folder) => Some((folder.path().to_path_buf(), true)),
            Target::File { folder, .. } => Some((folder.path().to_path_buf(), false)),
            Target::Stream(_) => None,
        }
    }
}

/// A file without a name for what all windows gather: where their file will be; for a pipe beside the log, or
/// where temporary files are. It is opened before rights are given up, and nothing else is opened for it
/// later.
fn open_spool(target: &Target, log: Option<&Folder>) -> Result<File, EngineError> {
    let temporary = std::env::temp_dir();
    let opened = match target {
        Target::File { folder, .. } | Target::Folder(folder) => folder.unnamed(),
        Target::Stream(_) => match log {
            Some(folder) => folder.unnamed(),
            None => Folder::open(&temporary).and_then(|folder| folder.unnamed()),
        },
    };
    let place = match target {
        Target::File { folder, .. } | Target::Folder(folder) => folder.path(),
        Target::Stream(_) => log.map_or(&*temporary, Folder::path),
    };
    opened.map_err(fault(&format!("{}, where windows are gathered", place.display())))
}

fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

fn open(path: &Path) -> Result<Folder, EngineError> {
    Folder::open(path).map_err(fault(&path.display().to_string()))
}

/// The folder of a file that will be made, and the file's name.
fn open_parent(path: &Path) -> Result<(Folder, OsString), EngineError> {
    Ok((open(path.parent().unwrap_or(Path::new("/")))?, path.file_name().unwrap_or_default().to_os_string()))
}

fn fault(place: &str) -> impl FnOnce(io::Error) -> EngineError {
    let place = place.to_string();
    move |cause| EngineError::System { place, cause }
}
