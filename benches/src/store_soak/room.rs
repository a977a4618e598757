//! The room that a folder takes of its disk, from outside.

use std::fs::read_dir;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What `st_blocks` counts in, bytes.
const BLOCK_BYTES: u64 = 512;
/// A file that went while others were looked at was counted, too: then it is looked again.
const LOOKS: usize = 5;

/// Bytes that all files below `folder` take, what is reserved for them included. Looked at again, and the least
/// of it, while it is more than `budget`.
pub fn taken(folder: &Path, budget: u64) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..LOOKS {
        least = least.min(look(folder));
        if least <= budget {
            break;
        }
    }
    least
}

fn look(folder: &Path) -> u64 {
    let entries = read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(facts) if facts.is_dir() => look(&entry.path()),
        Ok(facts) => facts.blocks() * BLOCK_BYTES,
        Err(_) => 0, // gone meanwhile
    };
    entries.map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir};
    use std::io::Write;

    #[test]
    fn all_files_below_a_folder_count_with_what_they_take() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(taken(&folder.path().join("none"), 0), 0);
        create_dir(folder.path().join("day")).unwrap();
        for name in ["a", "day/b"] {
            let mut file = File::create(folder.path().join(name)).unwrap();
            file.write_all(&[1; 100_000]).unwrap();
            file.sync_all().unwrap();
        }
        let found = taken(folder.path(), u64::MAX);
        assert!((200_000..300_000).contains(&found), "{found}");
    }
}
