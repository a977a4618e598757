//! Batches of recorded packets are parsed as their packets one by one: the files of the folder that CAPTURES
//! names.

use scope_packet::{BATCH_PACKETS_MAX, Headers, KeyEntry, LinkType, Parsed};
use scope_testkit::oracle;
use std::path::PathBuf;

#[test]
fn batches_of_recorded_captures_are_parsed_as_their_packets_one_by_one() {
    let Some(folder) = std::env::var_os("CAPTURES") else {
        println!("skipped: CAPTURES names no folder");
        return;
    };
    let files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut parsed = Parsed::default();
    let mut packets = 0;
    for file in files {
        // Damaged files are the sources' business.
        let Ok(oracle::File { capture, .. }) = oracle::read(&file) else { continue };
        for records in capture.packets.chunks(BATCH_PACKETS_MAX) {
            for (at, record) in records.iter().enumerate() {
                let link_type = LinkType(capture.interfaces[record.interface].link_type);
                parsed.parse(link_type, 1 << at, |_| &record.data);
            }
            let first = LinkType(capture.interfaces[records[0].interface].link_type);
            let of_first = |interface: usize| LinkType(capture.interfaces[interface].link_type) == first;
            let which = records.iter().enumerate().filter(|(_, record)| of_first(record.interface));
            parsed.parse(first, which.map(|(at, _)| 1 << at).sum(), |at| &records[at].data);
            for (at, record) in records.iter().enumerate() {
                let headers =
                    Headers::parse(LinkType(capture.interfaces[record.interface].link_type), &record.data);
                let expected = (headers, headers.vlan_tags(), KeyEntry::new(&headers));
                assert_eq!(
                    (parsed.headers(at), parsed.vlan_tags(at), *parsed.key(at)),
                    expected,
                    "{}",
                    file.display()
                );
            }
            packets += records.len();
        }
    }
    println!("{packets} packets");
    assert!(packets > 0);
}
