//! A small file system of its own for the output, that can be full at will.

use anyhow::{Context, Result, ensure};
use std::ffi::CString;
use std::fs::{File, read_dir, remove_file};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Its size: the largest dump fits twice.
const OPTIONS: &std::ffi::CStr = c"size=192m,mode=0755";
/// The file that fills it up.
const FILLER: &str = "filler";
/// Bytes written at once.
const PIECE: usize = 64 << 10;

/// A mounted tmpfs; dropped, it is unmounted.
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts one at `path`.
    ///
    /// # Errors
    /// The system's.
    pub fn mount(path: &Path) -> Result<Disk> {
        let at = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: all texts are C strings that live through the call.
        let result = unsafe {
            libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, OPTIONS.as_ptr().cast())
        };
        ensure!(result == 0, "mounting a tmpfs at {}: {}", path.display(), std::io::Error::last_os_error());
        Ok(Disk { path: path.to_path_buf() })
    }

    /// Writes until it is full.
    ///
    /// # Errors
    /// Where the file can't be made.
    pub fn fill(&self) -> Result<()> {
        let mut filler = File::create(self.path.join(FILLER)).context("a file that fills the disk")?;
        while filler.write_all(&[0; PIECE]).is_ok() {}
        Ok(())
    }

    /// Makes room again.
    ///
    /// # Errors
    /// The system's.
    pub fn relieve(&self) -> Result<()> {
        remove_file(self.path.join(FILLER)).context("the file that fills the disk")
    }

    /// Deletes finished dumps.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(&self) -> Result<()> {
        for entry in read_dir(&self.path)?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "pcapng") {
                remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Ok(at) = CString::new(self.path.as_os_str().as_bytes()) {
            // SAFETY: the text is a C string that lives through the call.
            unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    #[test]
    fn a_filled_disk_takes_nothing_and_a_relieved_one_loses_its_dumps_only() {
        if crate::main_part::needs_root() {
            return eprintln!("skipped: needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::mount(folder.path()).unwrap();
        let path = |name: &str| folder.path().join(name);
        write(path("a.pcapng"), b"a dump").unwrap();
        disk.fill().unwrap();
        assert!(write(path("log"), [0; PIECE]).is_err());
        disk.relieve().unwrap();
        write(path("log"), [0; PIECE]).unwrap();
        disk.clear().unwrap();
        assert!(path("log").exists() && !path("a.pcapng").exists());
        drop(disk);
        assert!(!path("log").exists(), "it is unmounted");
    }
}
