//! Questions to stores whose disk fails: what can be read is given, in order and unchanged, the rest is stated.
//!
//! Needs root and loop devices; says so and passes without, except in CI.

mod run;

use run::questions::{forget, query};
use run::{Place, is_root, skip};
use scope_testkit::lab::disk::{self, DATA_FROM_MIB, Disk, Kind, own_mounts};
use scope_testkit::oracle;
use scope_testkit::traffic::{Capture, Conversations};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;

/// MiB of the disk that can be read, behind what the file system has for itself.
const READABLE_MIB: u64 = 9;

/// How often each packet occurs.
fn counts(capture: &Capture) -> HashMap<(i64, Vec<u8>), usize> {
    let mut counts = HashMap::new();
    for packet in &capture.packets {
        *counts.entry((packet.time_ns, packet.data.clone())).or_default() += 1;
    }
    counts
}

#[test]
fn blocks_that_the_disk_refuses_take_the_packets_in_them_and_no_others() {
    if !is_root() {
        return skip("needs root");
    }
    if let Some(lacking) = disk::lacks() {
        return skip(lacking);
    }
    own_mounts().unwrap();
    let place = Place::new();
    place.open_to_all();
    fs::create_dir(place.path("disk")).unwrap();
    let disk = Disk::mount(Kind::Own(96), &place.path("disk")).unwrap();
    let input =
        Conversations { packets: 30_000, seed: 5, payload_max: 1200, ..Conversations::default() }.capture();
    let (source, store) = (place.source(&input), place.path("disk/store"));
    let store_options =
        ["--store", store.to_str().unwrap(), "--store-file", "8MiB", "--store-budget", "60MiB"];
    place.summary(
        &[&["--source", &source, "--segment", "64KiB", "--ring", "16MiB"], &store_options[..]].concat(),
    );
    let ask = |arguments: &[&str]| query(&place, &[&["--store", "disk/store"], arguments].concat());
    let whole = ask(&["-w", "whole.pcapng"]);
    assert_eq!(whole.code(), Some(0), "{}", whole.stderr);

    forget(&store);
    disk.end_at(Some(DATA_FROM_MIB + READABLE_MIB)).unwrap();
    for filter in ["", "tcp", "host 10.0.0.3"] {
        forget(&store);
        let _ = fs::remove_file(place.path("part.pcapng"));
        let done = ask(&[filter, "-w", "part.pcapng"]);
        assert_eq!(done.code(), Some(1), "'{filter}': {}", done.stderr);
        let found = oracle::read(place.path("part.pcapng")).unwrap().capture;
        let expected = counts(&input);
        assert!(
            counts(&found).iter().all(|(packet, count)| expected.get(packet).is_some_and(|of| count <= of))
        );
        assert!(found.packets.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));

        let count = ask(&[filter, "--count", "--json", "--from", "@0"]);
        let count: Value = serde_json::from_str(&count.stdout).unwrap();
        let missing = count["missing"].as_array().unwrap();
        assert!(missing.iter().any(|gap| gap["reason"] == "unreadable"), "{missing:?}");
        if filter.is_empty() {
            assert!(!found.packets.is_empty() && found.packets.len() < input.packets.len());
            let most = missing.iter().try_fold(0, |sum, gap| Some(sum + gap["lost_max"].as_u64()?));
            let lacking = (input.packets.len() - found.packets.len()) as u64;
            assert!(most.is_none_or(|most| most >= lacking), "{lacking} are missing: {missing:?}");
        }
    }
    disk.end_at(None).unwrap();
    let again = ask(&["-w", "again.pcapng"]);
    assert_eq!(again.code(), Some(0), "{}", again.stderr);
}
