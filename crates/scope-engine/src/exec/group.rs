//! Which process groups still have somebody alive in them, zombies not counted: a signal to a group can't
//! tell while its leader is still to be waited for.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string};

/// Where the number of a process's group stands behind its name in `/proc/PID/stat`, from 0 (proc(5)).
const GROUP_AT: usize = 2;
/// And the number of its threads.
const THREADS_AT: usize = 17;

/// Groups of all processes that live; `None` where `/proc` can't tell.
pub(super) fn living() -> Option<BTreeSet<i32>> {
    let mut groups = BTreeSet::new();
    for entry in read_dir("/proc").ok()?.flatten() {
        if entry.file_name().to_string_lossy().parse::<u32>().is_err() {
            continue;
        }
        // One that has ended meanwhile has no file any more.
        groups.extend(read_to_string(entry.path().join("stat")).ok().as_deref().and_then(living_in));
    }
    (!groups.is_empty()).then_some(groups)
}

/// The group of a process by its `stat`, if it lives.
pub(crate) fn living_in(stat: &str) -> Option<i32> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let words: Vec<&str> = behind_name.split_whitespace().collect();
    let group = words.get(GROUP_AT)?.parse().ok()?;
    let threads: u32 = words.get(THREADS_AT)?.parse().ok()?;
    // A zombie with further threads is a process whose first thread has ended.
    let dead = matches!(words[0], "Z" | "X") && threads <= 1;
    (!dead).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_is_told_by_state_and_threads_whatever_its_name_is() {
        let check = |state: &str, threads: u32, expected| {
            let stat =
                format!("7 (a) Z 1 2 (b) {state} 1 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 {threads} 0 99\n");
            assert_eq!(living_in(&stat), expected, "{stat}");
        };
        check("S", 1, Some(42));
        check("R", 5, Some(42));
        check("Z", 1, None);
        check("X", 0, None);
        check("Z", 2, Some(42));
        assert_eq!(living_in(""), None);
        assert_eq!(living_in("7 (a) S 1"), None);
    }

    #[test]
    fn the_group_of_this_process_lives() {
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        assert!(living().unwrap().contains(&own));
    }
}
