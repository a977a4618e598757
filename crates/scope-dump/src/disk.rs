//! What a dump does to its disk, as a parameter: the acts that can be slow or fail, so that a test can stand
//! in for a disk.

use scope_folder::Folder;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// The acts by which a dump's files are made. Each does what the system does unless a test says otherwise.
pub trait Disk: Debug + Send + Sync {
    /// A file that has no name yet.
    ///
    /// # Errors
    /// The system's, as for all of these.
    fn unnamed(&self, folder: &Folder) -> io::Result<File> {
        folder.unnamed()
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// A part of them may have been written.
    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Writes `bytes` over what stands at `at`.
    ///
    /// # Errors
    /// A part of them may have been written.
    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// Waits until the file's data are on the disk.
    ///
    /// # Errors
    /// They may not be.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Waits until the names that were given in the folder are on the disk.
    ///
    /// # Errors
    /// They may not be.
    fn sync_folder(&self, folder: &Folder) -> io::Result<()> {
        match folder.sync() {
            // Files can be made in it, and it can't be opened for that.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }

    /// Gives a file its name; fails where the name is taken.
    ///
    /// # Errors
    /// The file still has no name.
    fn give_name(&self, folder: &Folder, file: &File, name: &OsStr) -> io::Result<()> {
        folder.give_name(file, name)
    }
}

/// The system's.
#[derive(Debug)]
pub struct SystemDisk;

impl Disk for SystemDisk {}
