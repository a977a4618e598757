//! When each token was used last: in a file beside that of the tokens, which the door has open and the tokens' file itself
//! never has to be written for.
//!
//! ```text
//! 5d0c11a90be27f33 1795206665000000000      one line for each id: the time, ns since the epoch
//! ```
//! It is written in place, under a lock that readers and other doors take as well. Where it is lost nothing is lost but
//! these times.

use rustix::fs::{Mode, OFlags, fchmod, open};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What the file's name has behind that of the tokens' file.
const ENDING: &str = ".used";
/// Its bytes at most; what stands behind is not looked at.
const BYTES_MAX: u64 = 1 << 20;

/// By the id of a token.
pub type LastUses = BTreeMap<String, i64>;

/// The file beside this file of tokens.
pub fn path(tokens: &Path) -> PathBuf {
    let mut name = OsString::from(tokens);
    name.push(ENDING);
    name.into()
}

/// Opens it, or makes it.
///
/// # Errors
/// The system's.
pub fn open_or_make(tokens: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC
        | OFlags::NOCTTY;
    let file = File::from(open(path(tokens), flags, Mode::from_raw_mode(0o600))?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    fchmod(&file, Mode::from_raw_mode(0o600))?;
    Ok(file)
}

/// What it says; nothing where it isn't there, or can't be read.
pub fn read(tokens: &Path) -> LastUses {
    let read = || -> io::Result<LastUses> {
        let mut file = File::open(path(tokens))?;
        file.lock_shared()?;
        lines(&mut file)
    };
    read().unwrap_or_default()
}

/// Adds these uses to those that it has; an id that is in neither `tokens` is forgotten.
///
/// # Errors
/// The system's.
pub(crate) fn add(mut file: &File, uses: &LastUses, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
    file.lock()?;
    let added = (|| {
        let mut all = lines(&mut file)?;
        for (id, &used_ns) in uses {
            let newest = all.entry(id.clone()).or_default();
            *newest = used_ns.max(*newest);
        }
        all.retain(|id, _| is_known(id));
        let text: String = all.iter().map(|(id, used_ns)| format!("{id} {used_ns}\n")).collect();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    })();
    file.unlock()?;
    added
}

fn lines(file: &mut (impl Read + Seek)) -> io::Result<LastUses> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    let line = |line: &str| {
        let (id, used_ns) = line.split_once(' ')?;
        Some((id.to_string(), used_ns.parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_use_of_each_is_kept_whoever_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        assert!(read(&tokens).is_empty());
        let [one, other] = [(); 2].map(|()| open_or_make(&tokens).unwrap());
        let uses = |list: &[(&str, i64)]| -> LastUses {
            list.iter().map(|(id, used_ns)| (id.to_string(), *used_ns)).collect()
        };
        add(&one, &uses(&[("a", 5), ("b", 1_000_000)]), |_| true).unwrap();
        add(&other, &uses(&[("a", 4), ("c", 7)]), |_| true).unwrap();
        assert_eq!(read(&tokens), uses(&[("a", 5), ("b", 1_000_000), ("c", 7)]));
        add(&one, &uses(&[("a", 6)]), |id| id != "b").unwrap();
        assert_eq!(read(&tokens), uses(&[("a", 6), ("c", 7)]));
        std::fs::write(path(&tokens), "half a li\n\u{0}\nd 8").unwrap();
        add(&other, &uses(&[("a", 9)]), |_| true).unwrap();
        assert_eq!(read(&tokens), uses(&[("a", 9), ("d", 8)]));
    }
}
