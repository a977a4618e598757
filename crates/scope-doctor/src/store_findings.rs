//! Findings about the store: packets that its disks could not take in time, and what refused them.

use super::facts::{Facts, VolumeFacts};
use super::finding::{Finding, Stage, Sureness};

/// Adds everything about the store.
pub(super) fn add(facts: &Facts, found: &mut Vec<Finding>) {
    for volume in &facts.volumes {
        refused(volume, found);
        slow(volume, found);
    }
}

/// A disk that failed, or had no room.
fn refused(volume: &VolumeFacts, found: &mut Vec<Finding>) {
    let Some(text) = &volume.refused else { return };
    let now = if volume.state == "writing" { ", and writes again now" } else { "" };
    let cause = format!("the store in {} could not write{now}: {text}", volume.path);
    let why = volume.error.as_deref().unwrap_or(text);
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign) || why.contains(sign));
    let (kind, remedies): (_, &[&str]) = if has(&["hold"]) {
        (
            "store_held",
            &[
                "Remove a hold that is no longer needed: wirescope hold list --store DIR",
                "Raise --store-budget",
            ],
        )
    } else if has(&["lower --store-min-free"]) {
        (
            "store_full",
            &[
                "Let the store fill more of the file system: lower --store-min-free",
                "Delete what others keep there, or move the store to another disk.",
            ],
        )
    } else if has(&["raise --store-budget"]) {
        ("store_full", &["Raise --store-budget, or write shorter files: a lower --store-file"])
    } else if has(&["os error 28", "os error 122", "No space", "no room"]) {
        (
            "store_full",
            &[
                "Let the store leave more room, and delete what others keep there: --store-min-free 10%",
                "Lower --store-budget below what the file system can give, or move the store to another disk.",
            ],
        )
    } else if has(&["has not answered"]) {
        (
            "store_stalled",
            &[
                "Look at what the disk waits for: cat /proc/pressure/io; dmesg | tail -50",
                "Store on a second disk as well, which takes its share: --store DIR2",
            ],
        )
    } else if has(&["isn't at its path"]) {
        ("store_gone", &["Mount the disk again, or move the folder back: the run goes on there by itself."])
    } else {
        (
            "store_failing",
            &[
                "Look at what the kernel says of the disk: dmesg | tail -50",
                "Store on a second disk as well, which takes its share: --store DIR2",
            ],
        )
    };
    if volume.missed > 0 {
        found.push(Finding::loss(kind, Stage::Store, Sureness::Certain, volume.missed, cause, remedies));
    } else {
        found.push(Finding::note(kind, Stage::Store, Sureness::Certain, cause, remedies));
    }
}

/// A disk that was slower than the packets came.
fn slow(volume: &VolumeFacts, found: &mut Vec<Finding>) {
    if volume.missed == 0 || volume.refused.is_some() {
        return;
    }
    let share = 100.0 * volume.missed as f64 / (volume.missed + volume.stored).max(1) as f64;
    let cause = format!(
        "the disk of the store in {} was too slow or stalled: the ring recycled {} packets ({share:.1}%) before \
         they were written ({})",
        volume.path, volume.missed, volume.way
    );
    let remedies = [
        "Store on several disks, which share the load: --store DIR1 --store DIR2",
        "Record less: --prefilter EXPR, or --snap-len 128",
        "Bridge short stalls with more memory: a larger --ring, or --store-behind 50%",
    ];
    found.push(Finding::loss("store_slow", Stage::Store, Sureness::Certain, volume.missed, cause, &remedies));
}
