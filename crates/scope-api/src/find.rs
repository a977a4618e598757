//! The instances of this machine: listening Unix sockets that are called as theirs are, as `/proc/net/unix` lists them.
//!
//! ```text
//! Num       RefCount Protocol Flags    Type St Inode Path
//! 0000...0: 00000002 00000000 00010000 0001 01 28345 /var/lib/wirescope/dumps/wirescope.sock
//! ```

use crate::SOCKET_NAME;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What the kernel's list says of a socket that is listened at.
const LISTENING: &str = "00010000";
/// The folder of sockets that a service manager made.
const RUN_FOLDER: &str = "/run/wirescope/";

/// The sockets of instances that this user may talk to: those of its own, if there are any, else all others.
///
/// # Errors
/// The kernel's list can't be read.
pub fn instances() -> io::Result<Vec<PathBuf>> {
    let list = fs::read_to_string("/proc/net/unix")?;
    let open = |path: &PathBuf| UnixStream::connect(path).is_ok();
    let all: Vec<PathBuf> = listening(&list).into_iter().filter(open).collect();
    let me = fs::metadata("/proc/self").map(|facts| facts.uid()).ok();
    let is_own = |path: &PathBuf| fs::metadata(path).map(|facts| facts.uid()).ok() == me;
    let own: Vec<PathBuf> = all.iter().filter(|path| is_own(path)).cloned().collect();
    Ok(if own.is_empty() { all } else { own })
}

/// The paths of the list that may be an instance's, each once.
fn listening(list: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let mut words = line.splitn(8, ' ').skip(3);
        let (flags, path) = (words.next()?, line.split_once(" /")?.1);
        (flags == LISTENING).then(|| PathBuf::from(format!("/{path}")))
    };
    let mut paths: Vec<PathBuf> = list.lines().filter_map(path).filter(|path| is_called_so(path)).collect();
    paths.sort();
    paths.dedup();
    paths
}

fn is_called_so(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == SOCKET_NAME) || path.starts_with(RUN_FOLDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_with_such_a_name_are_found() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 28345 /a b/wirescope.sock\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 28346 /run/wirescope/lan.sock\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03 28347 /a b/wirescope.sock\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 28348 /run/dbus/socket\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 28349\n";
        assert_eq!(listening(list), [Path::new("/a b/wirescope.sock"), Path::new("/run/wirescope/lan.sock")]);
    }
}
