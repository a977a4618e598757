//! Where a run may write: its folder, and the file for the whole ring. Looked at only, nothing is created.

use super::Look;
use super::faults::{Faults, such_as};
use scope_engine::socket::PATH_BYTES_MAX;
use scope_fault::{Fault, Sentence, Setting, Subject, sentence};
use scope_spelling::printable::shell_word;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf, absolute};

/// Endings of compressed files.
const COMPRESSED: [&str; 7] = ["gz", "zst", "xz", "bz2", "lz4", "lzma", "zip"];
/// The word for standard output.
pub const STDOUT: &str = "-";

/// A socket of the run, absolute; `empty`: what helps whoever has named none.
pub fn socket(
    key: &'static str,
    text: &str,
    empty: Sentence,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Option<PathBuf> {
    let fault = || Fault::of(key).with_value(text);
    if text.trim().is_empty() {
        faults.add(fault().cause("it is empty").remedy(empty));
        return None;
    }
    let path = match absolute(text) {
        Ok(path) => path,
        Err(error) => {
            faults.add(fault().error(&error));
            return None;
        }
    };
    let (folder, bytes) = (path.parent().unwrap_or(Path::new("/")), path.as_os_str().len());
    if bytes > PATH_BYTES_MAX {
        let cause = format!("a socket's path has at most {PATH_BYTES_MAX} bytes, this one has {bytes}");
        let shorter = Setting::of(key).example("PATH");
        faults.add(fault().cause(cause).remedy(sentence!["choose a shorter one: ", shorter]));
        return None;
    }
    if look == Look::Machine && !folder.is_dir() {
        let cause = format!("there is no folder {}", folder.display());
        faults.add(fault().cause(cause).remedy("make it, or choose another path"));
        return None;
    }
    let facts = path.symlink_metadata().ok().filter(|_| look == Look::Machine);
    if facts.is_some_and(|facts| !facts.file_type().is_socket()) {
        let cause = format!("it exists, and is no socket: {}", path.display());
        faults.add(fault().cause(cause).remedy("choose another path"));
        return None;
    }
    Some(path)
}

/// The file for the whole ring, absolute. It must not exist: nothing is ever overwritten.
pub fn ring_out(given: Option<&Path>, look: Look<'_>, faults: &mut Faults<'_>) -> Option<PathBuf> {
    if given == Some(Path::new(STDOUT)) {
        let fault = Fault::of("ring-out").cause("the whole ring can't be written to standard output");
        faults.add(fault.remedy(such_as("ring-out", "ring.pcapng")));
        return None;
    }
    if let Some(path) = given {
        refuse_compressed(path, "ring-out", faults);
        refuse_pcap(path, "ring-out", faults);
    }
    new_file(given?, "ring-out", look, faults)
}

/// Whether a file's name ends in one of these, in any case.
pub fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    ending.is_some_and(|ending| endings.contains(&&*ending))
}

/// Refuses a name that implies compression: no file is compressed.
pub fn refuse_compressed(path: &Path, key: &'static str, faults: &mut Faults<'_>) {
    if has_ending(path, &COMPRESSED) {
        let plain = Setting::of(key).example(path.with_extension("").to_string_lossy());
        let path = path.display();
        let fault =
            Fault::of(key).with_value(path.to_string()).cause(format!("{path} would not be compressed"));
        faults.add(fault.remedy(sentence!["write ", plain, " and compress that file afterwards"]));
    }
}

/// Refuses `.pcap` for the whole ring: it is written as pcapng, so that it can be read again.
fn refuse_pcap(path: &Path, key: &'static str, faults: &mut Faults<'_>) {
    if has_ending(path, &["pcap"]) {
        let pcapng = Setting::of(key).example(path.with_extension("pcapng").to_string_lossy());
        let path = path.display();
        let cause = format!("{path} would be a pcapng file under the name of a pcap one");
        faults.add(
            Fault::of(key).with_value(path.to_string()).cause(cause).remedy(sentence!["write ", pcapng]),
        );
    }
}

/// A file that is to be made, absolute; `key` is the setting that names it.
pub fn new_file(path: &Path, key: &'static str, look: Look<'_>, faults: &mut Faults<'_>) -> Option<PathBuf> {
    let fault = || Fault::of(key).with_value(path.to_string_lossy());
    let named = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
    let Some(name) = named else {
        faults
            .add(fault().cause(format!("{} names no file", path.display())).remedy("write e.g. ring.pcapng"));
        return None;
    };
    if look != Look::Machine {
        return Some(path.to_path_buf());
    }
    if path.symlink_metadata().is_ok() {
        faults.add(taken(fault(), path));
        return None;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    writable_folder(parent, key, look, faults).map(|folder| folder.join(name))
}

/// Why no file can be made at `path`, where something is, in words that fit what it is.
fn taken(fault: Fault, path: &Path) -> Fault {
    let shown = path.display();
    let is_dump = fault.subject == Subject::setting("write");
    let to_stdout = || match is_dump {
        true => {
            let output = Setting::of("write").example(STDOUT);
            sentence!["a dump goes to standard output with ", output, ", and from there to wherever you like"]
        }
        false => sentence!["name a file that doesn't exist yet"],
    };
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            let file = path.join("new.pcapng");
            fault
                .cause(format!("{shown} is a folder"))
                .remedy(format!("name a file in it, e.g. {}", file.display()))
        }
        Ok(found) if !found.is_file() => {
            let what = match found.file_type() {
                kind if kind.is_fifo() => "a pipe",
                kind if kind.is_socket() => "a socket",
                _ => "a device",
            };
            fault.cause(format!("{shown} is {what}, not a file")).remedy(to_stdout())
        }
        _ if path.starts_with("/dev") || path.starts_with("/proc") => {
            fault.cause(format!("{shown} is what the process has open, not a new file")).remedy(to_stdout())
        }
        _ => fault
            .cause(format!("{shown} exists and is never overwritten"))
            .remedy("remove it or choose another name"),
    }
}

/// The folder `path`, absolute; `key` is the setting that names it.
pub fn writable_folder(
    path: &Path,
    key: &'static str,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Option<PathBuf> {
    if look != Look::Machine {
        return Some(path.to_path_buf());
    }
    let fault = |cause: String| {
        Fault::of(key).with_value(path.to_string_lossy()).cause(format!("{}: {cause}", path.display()))
    };
    faults.add(match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fault("no such folder".to_string()).remedy(format!("make it with: mkdir -p {}", shell_word(path)))
        }
        Err(error) => fault(error.to_string()).remedy("choose another folder"),
        Ok(folder) if !folder.is_dir() => {
            fault("is a file, not a folder".to_string()).remedy("choose a folder")
        }
        Ok(folder) => match may_create_in(&folder) {
            Ok(()) => return Some(folder),
            Err(error) => fault(format!("the folder is not writable: {error}"))
                .remedy("change its mode or choose another"),
        },
    });
    None
}

fn may_create_in(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: `path` is NUL-terminated and lives through the call; nothing is kept of it.
    let result =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
