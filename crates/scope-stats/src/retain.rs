//! Which files of a folder go, so that it stays within its bounds: decided here, carried out by the writer.
//!
//! ```text
//! files, oldest first
//!   open        stays, and counts
//!   else        goes while there are more than may be kept, or they take more than the budget, or too little
//!               is free; the first one that needn't go ends it
//! ```
//! Where others fill the disk, all go that may: the room is needed for what is new. A bound that no disk of this size
//! can keep is refused before anything starts.

use scope_machine::disk::Disk;
use scope_spelling::values::SizeOrShare;

/// The bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// So many files stay.
    pub keep: Option<u32>,
    /// What they may take, bytes.
    pub budget: Option<u64>,
    /// What stays free.
    pub min_free: Option<SizeOrShare>,
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it takes.
    pub bytes: u64,
    /// It is being written.
    pub is_open: bool,
}

impl Bounds {
    /// The places in the list of those that go, where the file system is so full; unknown, it isn't asked.
    pub fn go(&self, files: &[Kept], disk: Option<Disk>) -> Vec<usize> {
        let wanted = |disk: Disk| self.min_free.map_or(0, |free| free.bytes_of(disk.bytes));
        let lacking = |disk: Disk| wanted(disk).saturating_sub(disk.free_bytes);
        let (mut count, mut taken) = (files.len() as u64, files.iter().map(|file| file.bytes).sum::<u64>());
        let mut lack = disk.map_or(0, lacking);
        let mut go = Vec::new();
        for (place, file) in files.iter().enumerate().filter(|(_, file)| !file.is_open) {
            let is_too_many = self.keep.is_some_and(|keep| count > u64::from(keep));
            let is_too_much = self.budget.is_some_and(|budget| taken > budget);
            if !is_too_many && !is_too_much && lack == 0 {
                break;
            }
            go.push(place);
            (count, taken, lack) = (count - 1, taken - file.bytes, lack.saturating_sub(file.bytes));
        }
        go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of so many bytes, `true`: open.
    fn check(bounds: Bounds, files: &[(u64, bool)], free: u64, expected: &[usize]) {
        let files: Vec<Kept> = files.iter().map(|&(bytes, is_open)| Kept { bytes, is_open }).collect();
        let disk = Disk { free_bytes: free, bytes: 1000, read_only: false };
        assert_eq!(bounds.go(&files, Some(disk)), expected, "{bounds:?} {files:?}");
    }

    #[test]
    fn the_oldest_go_until_every_bound_is_met_and_those_that_are_open_never() {
        let files = [(10, false), (20, false), (30, true), (40, false), (50, true)];
        let none = Bounds::default();
        check(none, &files, 0, &[]);
        check(Bounds { keep: Some(5), ..none }, &files, 0, &[]);
        check(Bounds { keep: Some(4), ..none }, &files, 0, &[0]);
        check(Bounds { keep: Some(2), ..none }, &files, 0, &[0, 1, 3]);
        check(Bounds { keep: Some(1), ..none }, &files, 0, &[0, 1, 3]);
        check(Bounds { budget: Some(150), ..none }, &files, 0, &[]);
        check(Bounds { budget: Some(149), ..none }, &files, 0, &[0]);
        check(Bounds { budget: Some(120), ..none }, &files, 0, &[0, 1]);
        check(Bounds { budget: Some(1), ..none }, &files, 0, &[0, 1, 3]);
        check(Bounds { budget: Some(149), keep: Some(3), ..none }, &files, 0, &[0, 1]);
    }

    #[test]
    fn for_free_space_the_oldest_go_also_where_others_fill_the_disk() {
        let files = [(10, false), (20, false), (30, true), (40, false)];
        let free = |bytes| Bounds { min_free: Some(SizeOrShare::Bytes(bytes)), ..Bounds::default() };
        check(free(100), &files, 100, &[]);
        check(free(100), &files, 95, &[0]);
        check(free(100), &files, 85, &[0, 1]);
        check(free(100), &files, 30, &[0, 1, 3]);
        check(free(100), &files, 29, &[0, 1, 3]);
        let tenth = Bounds { min_free: Some(SizeOrShare::Ppm(100_000)), ..Bounds::default() };
        check(tenth, &files, 95, &[0]);
        let files = [Kept { bytes: 10, is_open: false }];
        assert!(tenth.go(&files, None).is_empty(), "what is unknown isn't lacking");
    }
}
