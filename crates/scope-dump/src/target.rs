//! Where a run's dumps go: into a folder under names of their own, into one file of a given name, or into a
//! pipe.

use crate::budget::Budget;
use crate::disk::{Disk, SystemDisk};
use crate::form::DumpFormat;
use crate::spool::Spool;
use scope_folder::Folder;
use scope_folder::with_suffix;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where files go.
#[derive(Debug)]
pub enum Target {
    /// Into this folder, each under a name of its own.
    Folder(Arc<Folder>),
    /// A single dump, under this name.
    File {
        /// The folder of the file.
        folder: Arc<Folder>,
        /// Its name; a second link type's file is `NAME_LINKTYPE.EXT`.
        name: OsString,
    },
    /// A single dump, into a pipe or the like: written as it comes, nothing is corrected later. It holds one
    /// link type.
    Stream(File),
}

/// Where and how a run's dumps are written.
#[derive(Debug)]
pub struct DumpOutput {
    /// Their form.
    pub format: DumpFormat,
    /// Where they go.
    pub target: Target,
    /// The bound of their space, if there is one.
    pub budget: Option<Arc<Budget>>,
    /// How their files are made.
    pub disk: Arc<dyn Disk>,
    /// Gathers all windows, where they become one file at the run's end.
    pub spool: Option<Arc<Spool>>,
}

impl DumpOutput {
    /// pcapng files in a folder, without a bound.
    ///
    /// # Errors
    /// What the system says of the folder.
    pub fn in_folder(folder: &Path) -> io::Result<Arc<DumpOutput>> {
        let target = Target::Folder(Arc::new(Folder::open(folder)?));
        Ok(Arc::new(DumpOutput {
            format: DumpFormat::Pcapng,
            target,
            budget: None,
            disk: Arc::new(SystemDisk),
            spool: None,
        }))
    }

    /// The folder that files are made in; a stream has none.
    pub(crate) fn folder(&self) -> Option<&Arc<Folder>> {
        match &self.target {
            Target::Folder(folder) | Target::File { folder, .. } => Some(folder),
            Target::Stream(_) => None,
        }
    }

    /// Whether a dump goes into a pipe.
    pub fn is_stream(&self) -> bool {
        matches!(self.target, Target::Stream(_))
    }

    /// Whether the folder has been removed, so that nothing can be made in it.
    pub fn is_removed(&self) -> bool {
        self.folder().is_some_and(|folder| folder.is_removed())
    }

    /// Why something couldn't be written, and where: in a removed folder each file system fails differently.
    pub(crate) fn fault(&self, cause: String) -> String {
        match self.is_removed() {
            true => format!("the folder {} was removed", self.location()),
            false => format!("{}: {cause}", self.location()),
        }
    }

    /// The folder's path, for messages.
    pub fn location(&self) -> String {
        self.folder().map_or("the output".to_string(), |folder| folder.path().display().to_string())
    }

    /// Where the file of all windows will be, as far as that is known.
    pub(crate) fn path_of_all(&self) -> Option<PathBuf> {
        match &self.target {
            Target::File { folder, name } => Some(folder.path().join(name)),
            Target::Folder(_) | Target::Stream(_) => None,
        }
    }

    /// A file's name: of the dump `stem`, for the link type `suffix` unless it is the dump's main one, at the
    /// n-th attempt.
    pub(crate) fn file_name(&self, stem: &str, suffix: Option<&str>, attempt: u32) -> PathBuf {
        let mut name = match &self.target {
            Target::File { name, .. } => PathBuf::from(name),
            _ => PathBuf::from(format!("{stem}.{}", self.format.ending())),
        };
        if let Some(suffix) = suffix {
            name = with_suffix(&name, suffix);
        }
        numbered(&name, attempt)
    }
}

/// `x-2.pcapng` of `x.pcapng`; the first one stays as it is.
pub(crate) fn numbered(name: &Path, attempt: u32) -> PathBuf {
    if attempt == 1 {
        return name.to_path_buf();
    }
    let mut numbered = name.file_stem().unwrap_or_default().to_os_string();
    numbered.push(format!("-{attempt}"));
    if let Some(ending) = name.extension() {
        numbered.push(".");
        numbered.push(ending);
    }
    PathBuf::from(numbered)
}
