//! Questions to stores: packets into a store, `wirescope query`, and what its tests say of times and files.

use super::{Done, Place, finish, wirescope};
use scope_testkit::traffic::Capture;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Stores these packets in the place's store.
pub fn keep(place: &Place, capture: &Capture) {
    let (source, folder) = (place.source(capture), place.path("store"));
    let store = ["--store", folder.to_str().unwrap(), "--segment", "64KiB", "--ring", "16MiB"];
    place.summary(&[&["--source", &source], &store[..]].concat());
}

/// `wirescope query` in the place's folder.
pub fn query(place: &Place, arguments: &[&str]) -> Done {
    let mut command = wirescope(&["query"]);
    command.args(arguments).current_dir(place.root()).env("TZ", "UTC");
    finish(command)
}

/// The same of the place's store.
pub fn ask(place: &Place, arguments: &[&str]) -> Done {
    let store = place.path("store");
    query(place, &[&["--store", store.to_str().unwrap()], arguments].concat())
}

/// A time as it is typed.
pub fn at(time_ns: i64) -> String {
    format!("@{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

/// Words of a text, however its lines are broken.
pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Nothing of the files of this folder, or below it, is in memory any more.
pub fn forget(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            forget(&path);
            continue;
        }
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        // SAFETY: takes numbers only; the file is open.
        let done = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(done, 0, "{}", path.display());
    }
}
