//! Doors for the fuzz targets, and for them alone (feature `fuzzing`), to parsers that nobody else calls from
//! outside of this crate.

use crate::exec;

/// What a run and its helper process tell each other: what is understood is understood again as it would be
/// sent.
pub fn orders(data: &[u8]) {
    exec::round_trip(data);
}

/// Texts of `/proc`.
pub fn system_texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _group = exec::living_in(&text);
}
