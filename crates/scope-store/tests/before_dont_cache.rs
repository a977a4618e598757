//! Reads where the kernel doesn't know `RWF_DONTCACHE`, in a process of their own: from its begin they are as on Linux
//! before 6.14.

use scope_store::fetch::{self, Fetch, Read};
use scope_testkit::oracle;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

const FILE_BYTES: usize = (24 << 20) + 1003;
/// As a segment's.
const READ_BYTES: usize = 2 << 20;
/// Names the file in the process that gives up its rights.
const FILE: &str = "FILE_TO_READ";

/// Held by a test whose reads are counted, and by one that has a child read.
static READING: Mutex<()> = Mutex::new(());

fn byte(at: usize) -> u8 {
    ((at as u32 / 3).wrapping_mul(2_654_435_761) >> 24) as u8
}

/// Bytes of a file that lie in memory, as the kernel says.
fn cached_bytes(path: &Path) -> usize {
    let output = Command::new("fincore").args(["-b", "-n", "-r", "-o", "RES"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: takes numbers only; the file is open.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
}

/// Bytes that this process has had read from disks, and its children that have ended.
fn from_disks() -> usize {
    let figures = fs::read_to_string("/proc/self/io").unwrap();
    let line = figures.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.unwrap().parse().unwrap()
}

/// Reads these places, bytes and offsets, and compares.
fn reads(fetch: &mut Fetch, file: &Arc<File>, places: impl Iterator<Item = (usize, usize)>) {
    let places: Vec<(usize, usize)> = places.collect();
    for (token, &(offset, len)) in places.iter().enumerate() {
        fetch.begin(Read { token, file: file.clone(), offset: offset as u64, buffer: vec![0; len] });
    }
    let mut left = places.len();
    while let Some(fetched) = fetch.finish() {
        fetched.result.unwrap();
        let (offset, len) = places[fetched.token];
        assert_eq!((fetched.offset, fetched.buffer.len()), (offset as u64, len));
        let differs = fetched.buffer.iter().zip(offset..).find(|(read, at)| **read != byte(*at));
        assert_eq!(differs, None, "{}: {len} bytes at {offset}", fetch.name());
        left -= 1;
    }
    assert_eq!(left, 0);
}

fn everything() -> impl Iterator<Item = (usize, usize)> {
    (0..FILE_BYTES).step_by(READ_BYTES).map(|at| (at, READ_BYTES.min(FILE_BYTES - at)))
}

fn scattered() -> impl Iterator<Item = (usize, usize)> {
    (0..200)
        .map(|number| (number * 104_729, 1 + number * number * 7))
        .take_while(|(at, len)| at + len <= FILE_BYTES)
}

/// All that is promised of these reads; `is_kept`: the file system lets go of pages.
fn check(path: &Path, fetches: impl Iterator<Item = Fetch>, is_kept: bool) {
    let file = Arc::new(File::open(path).unwrap());
    for mut fetch in fetches {
        if !is_kept {
            forget(path);
        }
        reads(&mut fetch, &file, everything());
        reads(&mut fetch, &file, scattered());
        let mut read = vec![0; 5000];
        fetch::read_exact(&file, 4095, &mut read).unwrap();
        assert!(read.iter().zip(4095..).all(|(read, at)| *read == byte(at)));
        let end = fetch::read_exact(&file, FILE_BYTES as u64 - 4999, &mut read).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        let token = 7;
        fetch.begin(Read { token, file: file.clone(), offset: FILE_BYTES as u64 - 7, buffer: vec![0; 8] });
        assert_eq!(fetch.finish().unwrap().result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        if is_kept {
            continue;
        }
        assert_eq!(cached_bytes(path), 0, "{}", fetch.name());
        // What is there stays, and is used.
        let begun = from_disks();
        let part = READ_BYTES * 3;
        reads(&mut fetch, &file, std::iter::once((READ_BYTES, part)));
        let cold = from_disks() - begun;
        assert!(cold >= part, "{}: {cold} bytes", fetch.name());
        drop(fs::read(path).unwrap());
        let begun = from_disks();
        reads(&mut fetch, &file, everything());
        reads(&mut fetch, &file, scattered());
        // But for what the kernel takes back by itself.
        let warm = from_disks() - begun;
        assert!(warm < part, "{}: {warm} bytes", fetch.name());
        assert!(cached_bytes(path) > FILE_BYTES / 2, "{}", fetch.name());
    }
}

fn both() -> impl Iterator<Item = Fetch> {
    [Fetch::best(), Fetch::plain()].into_iter()
}

fn written(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("file");
    let bytes: Vec<u8> = (0..FILE_BYTES).map(byte).collect();
    File::create(&path).unwrap().write_all(&bytes).unwrap();
    path
}

#[test]
fn what_is_not_cached_is_read_past_the_page_cache_and_what_is_cached_from_there() {
    let _alone = READING.lock().unwrap_or_else(PoisonError::into_inner);
    fetch::as_before_dont_cache();
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    if !oracle::have("fincore") {
        return;
    }
    forget(&path);
    let is_kept = cached_bytes(&path) > 0;
    if is_kept {
        eprintln!("skipped in part: this file system keeps its pages in memory");
    }
    check(&path, both(), is_kept);
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        check(&written(memory.path()), both(), true);
    }
}

/// Only where `FILE` says so: there is no way back.
#[test]
fn inside_the_rights_that_a_question_keeps() {
    fetch::as_before_dont_cache();
    let Some(path) = std::env::var_os(FILE) else { return };
    let path = Path::new(&path);
    let fetches = both().collect::<Vec<_>>();
    scope_rights::keep_to_reading(&[path.parent().unwrap()]).unwrap();
    let file = Arc::new(File::open(path).unwrap());
    for mut fetch in fetches {
        reads(&mut fetch, &file, everything());
        reads(&mut fetch, &file, scattered());
    }
}

#[test]
fn it_is_the_same_inside_the_rights_that_a_question_keeps() {
    let _alone = READING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    if !oracle::have("fincore") {
        return;
    }
    forget(&path);
    if cached_bytes(&path) > 0 {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", "inside_the_rights_that_a_question_keeps"])
        .env(FILE, &path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(cached_bytes(&path), 0);
}
