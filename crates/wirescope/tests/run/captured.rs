//! Capture files as tests compare them: made by a run, read by this project's oracle.

use super::{finish, wirescope};
use scope_testkit::oracle;
use scope_testkit::traffic::Record;
use std::path::{Path, PathBuf};

/// The packets of a file.
pub fn packets(path: &Path) -> Vec<Record> {
    oracle::read(path).unwrap_or_else(|error| panic!("{}: {error:?}", path.display())).capture.packets
}

/// All that files of both forms say of each packet, sorted.
pub fn sorted<'a>(packets: impl IntoIterator<Item = &'a Record>) -> Vec<(i64, u32, Vec<u8>)> {
    let mut all: Vec<_> =
        packets.into_iter().map(|it| (it.time_ns, it.original_len, it.data.clone())).collect();
    all.sort();
    all
}

/// A capture file of this generated traffic, in a folder.
pub fn capture(folder: &Path, source: &str) -> PathBuf {
    let file = folder.join("in.pcapng");
    let mut command = wirescope(&["run", "--source", source, "--summary", "json", "--ring", "64MiB"]);
    command.arg("--ring-out").arg(&file).arg("--out").arg(folder);
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    file
}
