//! Where a run may write: its folder, and the file for the whole ring. Looked at only, nothing is created.

use super::outputs::{STDOUT, refuse_compressed, refuse_pcap};
use super::{Faults, Look};
use scope_spelling::printable::shell_word;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The file for the whole ring, absolute. It must not exist: nothing is ever overwritten.
pub fn ring_out(given: Option<&Path>, look: Look<'_>, faults: &mut Faults) -> Option<PathBuf> {
    if given == Some(Path::new(STDOUT)) {
        faults.add("--ring-out", "the whole ring doesn't go to standard output; write e.g. --ring-out ring.pcapng");
        return None;
    }
    if let Some(path) = given {
        refuse_compressed(path, "--ring-out", faults);
        refuse_pcap(path, "--ring-out", faults);
    }
    new_file(given?, "--ring-out", look, faults)
}

/// A file that is to be made, absolute; `place` is the flag that names it.
pub fn new_file(path: &Path, place: &str, look: Look<'_>, faults: &mut Faults) -> Option<PathBuf> {
    let named = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
    let Some(name) = named else {
        faults.add(place, format!("{} names no file; write e.g. ring.pcapng", path.display()));
        return None;
    };
    if look != Look::Machine {
        return Some(path.to_path_buf());
    }
    if path.symlink_metadata().is_ok() {
        faults.add(place, taken(path));
        return None;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    writable_folder(parent, place, look, faults).map(|folder| folder.join(name))
}

/// Why no file can be made at `path`, where something is, in words that fit what it is.
fn taken(path: &Path) -> String {
    let shown = path.display();
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            format!("{shown} is a folder; name a file in it, e.g. {}", path.join("new.pcapng").display())
        }
        Ok(found) if !found.is_file() => {
            let what = if found.file_type().is_fifo() { "a pipe" } else { "a device or socket" };
            format!("{shown} is {what}, no file; a dump goes to standard output with -w -")
        }
        _ if path.starts_with("/dev") || path.starts_with("/proc") => {
            format!("{shown} is what the process has open, no new file; a dump goes to standard output with -w -")
        }
        _ => format!("{shown} exists and is never overwritten; remove it or choose another name"),
    }
}

/// The folder `path`, absolute; `place` is the flag that names it.
pub fn writable_folder(path: &Path, place: &str, look: Look<'_>, faults: &mut Faults) -> Option<PathBuf> {
    if look != Look::Machine {
        return Some(path.to_path_buf());
    }
    let shown = path.display();
    let fault = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("{shown}: no such folder; make it with: mkdir -p {}", shell_word(path))
        }
        Err(error) => format!("{shown}: {error}; choose another folder"),
        Ok(folder) if !folder.is_dir() => format!("{shown}: is no folder but a file; choose a folder"),
        Ok(folder) => match may_create_in(&folder) {
            Ok(()) => return Some(folder),
            Err(error) => format!("{shown}: the folder is not writable: {error}; change its mode or choose another"),
        },
    };
    faults.add(place, fault);
    None
}

fn may_create_in(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: `path` is NUL-terminated and lives through the call; nothing is kept of it.
    let result = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
