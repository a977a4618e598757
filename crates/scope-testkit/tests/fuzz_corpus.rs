//! The fuzz targets and their kept inputs belong together: `make fuzz` builds and runs them, this looks at
//! the files alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of all kept inputs: a repository isn't the place for more.
const CORPUS_BYTES_MAX: u64 = 2 << 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn every_fuzz_target_has_kept_inputs_and_every_folder_of_inputs_is_a_target() {
    let text = fs::read_to_string(folder().join("src/targets.rs")).unwrap();
    let table = text.split_once("pub const ALL").and_then(|(_, rest)| rest.split_once("];")).unwrap().0;
    let names: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.trim().strip_prefix("(\"")?.split('"').next().map(String::from))
        .collect();
    let mut folders = BTreeSet::new();
    let mut bytes = 0;
    for entry in fs::read_dir(folder().join("corpus")).unwrap() {
        let entry = entry.unwrap();
        let inputs: Vec<_> = fs::read_dir(entry.path())
            .unwrap()
            .map(|input| input.unwrap().metadata().unwrap().len())
            .collect();
        assert!(inputs.len() >= 4, "{:?} has {} inputs", entry.path(), inputs.len());
        bytes += inputs.iter().sum::<u64>();
        folders.insert(entry.file_name().into_string().unwrap());
    }
    assert!(names.len() >= 10, "{names:?}");
    assert_eq!(names, folders);
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes");
}
