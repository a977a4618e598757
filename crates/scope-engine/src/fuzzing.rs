//! Doors for the fuzz targets, and for them alone (feature `fuzzing`), to parsers that nobody else calls from outside of this crate.

use std::path::Path;

use crate::exec;
use crate::{doctor, throttle};

/// What a run and its helper process tell each other: what is understood is understood again as it would be sent.
pub fn orders(data: &[u8]) {
    exec::round_trip(data);
}

/// Texts of `/proc` and of control groups.
pub fn system_texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let seconds = throttle::parse(&text).seconds;
    assert!(seconds.is_finite() && seconds >= 0.0);
    for file in throttle::group_files(&text, Path::new("/g"), "cpu", "cpu.stat") {
        assert!(file.starts_with("/g") && !file.components().any(|part| part.as_os_str() == ".."), "{file:?}");
    }
    let _group = exec::living_in(&text);
    let _folder = doctor::system::folder_in(data);
}
