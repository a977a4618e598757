//! Doors for the fuzz targets, and for them alone (feature `fuzzing`), to parsers that are not called from
//! outside of this crate.

use crate::groups;
use crate::nic::{counters::Softnet, peer};
use std::path::Path;

/// What the kernel's route socket answers about the other end of a pair.
pub fn other_end(datagram: &[u8]) {
    let _other_end = peer::parse(datagram);
}

/// Texts of `/proc` and of control groups.
pub fn system_texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _sums = Softnet::parse(&text);
    let seconds = groups::parse(&text).seconds;
    assert!(seconds.is_finite() && seconds >= 0.0);
    for file in groups::group_files(&text, Path::new("/g"), "cpu", "cpu.stat") {
        assert!(
            file.starts_with("/g") && !file.components().any(|part| part.as_os_str() == ".."),
            "{file:?}"
        );
    }
}
