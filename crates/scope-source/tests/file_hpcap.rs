//! HPCAP's raw records: against a naive reader, with padding anywhere, cut at every byte, compressed, and
//! damaged.

mod file_support;

use std::io::Cursor;
use std::process::{Command, Stdio};

use file_support::{Read, read_all};
use proptest::prelude::*;
use scope_packet::LinkType;
use scope_source::file::{FileOptions, FileSource};
use scope_source::spec::FileForm;

const FORM: FileForm = FileForm::Hpcap(LinkType::ETHERNET);

fn read(bytes: &[u8]) -> Result<Read, scope_source::SourceError> {
    read_all(FileSource::from_reader("raw", Box::new(Cursor::new(bytes.to_vec())), FORM)?)
}

fn record(seconds: u32, ns: u32, original: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = seconds.to_le_bytes().to_vec();
    bytes.extend(ns.to_le_bytes());
    bytes.extend((data.len() as u16).to_le_bytes());
    bytes.extend(original.to_le_bytes());
    bytes.extend(data);
    bytes
}

fn padding(len: u16) -> Vec<u8> {
    record(0, 0, len, &vec![0xaa; usize::from(len)])
}

/// What a file holds, as the text of the form says it: time, original length and bytes of each packet, and
/// whether it ends as it should.
type Packets = Vec<(i64, u32, Vec<u8>)>;

fn naively(mut bytes: &[u8]) -> (Packets, bool) {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        if bytes.len() < 12 {
            return (packets, false);
        }
        let number = |at: usize, len: usize| {
            bytes[at..at + len].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (seconds, ns, captured, original) = (number(0, 4), number(4, 4), number(8, 2), number(10, 2));
        let end = 12 + captured as usize;
        if ns >= 1_000_000_000 || end > bytes.len() {
            return (packets, false);
        }
        if seconds != 0 || ns != 0 {
            let time_ns = (seconds * 1_000_000_000 + ns) as i64;
            packets.push((time_ns, original as u32, bytes[12..end].to_vec()));
        }
        bytes = &bytes[end..];
    }
    (packets, true)
}

fn packets(read: &Read) -> Packets {
    read.sink.packets.iter().map(|got| (got.time_ns, got.original_len, got.data.clone())).collect()
}

#[test]
fn records_are_packets_of_the_link_type_given_and_padding_is_none() {
    let file = [
        padding(65_535),
        padding(0),
        record(1, 999_999_999, 60, b"first"),
        record(0, 1, 7, b""),
        padding(3),
        record(u32::MAX, 0, 65_535, &[7; 65_535]),
        padding(100),
    ]
    .concat();
    let read = read(&file).unwrap();
    let expected = vec![
        (1_999_999_999, 60, b"first".to_vec()),
        (1, 7, Vec::new()),
        (4_294_967_295_000_000_000, 65_535, vec![7; 65_535]),
    ];
    assert_eq!(packets(&read), expected);
    assert_eq!((read.warnings.len(), read.counters.unreadable), (0, 0));
    let interface = &read.sink.interfaces[0];
    assert_eq!(
        (interface.link_type, interface.name.as_str(), interface.snap_len),
        (LinkType::ETHERNET, "raw", 0)
    );
}

#[test]
fn a_file_of_padding_alone_has_no_packets_and_an_empty_one_is_refused() {
    assert_eq!(read(&padding(9)).unwrap().counters.offered, 0);
    assert!(read(&[0; 24]).unwrap().warnings.is_empty());
    let refused = read(&[]).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|text| text.contains("is empty")));
}

#[test]
fn every_cut_yields_the_records_before_it_and_counts_a_packet_that_had_begun() {
    let file =
        [padding(5), record(1, 2, 3, b"abc"), record(2, 0, 9, b"defghi"), padding(4), record(3, 0, 1, b"x")];
    let file = file.concat();
    for len in 1..file.len() {
        let (expected, whole) = naively(&file[..len]);
        let read = match read(&file[..len]) {
            Ok(read) => read,
            Err(error) => {
                assert!(
                    expected.is_empty() && error.to_string().contains("bytes too early"),
                    "{len}: {error}"
                );
                continue;
            }
        };
        assert_eq!(packets(&read), expected, "cut at {len}");
        assert_eq!(read.warnings.is_empty(), whole, "cut at {len}: {:?}", read.warnings);
        assert!(
            whole || read.warnings[0].contains("bytes too early; read to that place"),
            "{:?}",
            read.warnings
        );
        assert!(read.counters.unreadable <= u64::from(!whole), "cut at {len}");
    }
}

#[test]
fn a_record_with_a_second_of_nanoseconds_ends_the_reading_and_is_counted_with_its_place() {
    let good = record(1, 0, 3, b"abc");
    let file = [good.clone(), good.clone(), record(2, 1_000_000_000, 3, b"bad"), good].concat();
    let read = read(&file).unwrap();
    assert_eq!((read.counters.received, read.counters.unreadable, read.counters.offered), (2, 1, 3));
    let expected = "raw: truncated after packet 2 at byte 30: a packet's time has 1000000000 nanoseconds";
    assert!(read.warnings.len() == 1 && read.warnings[0].starts_with(expected), "{:?}", read.warnings);
    assert_eq!(read.sink.gaps.len(), 1);
}

#[test]
fn raw_records_that_are_compressed_twice_are_refused_too() {
    let packed = |tool: &str, bytes: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        std::fs::write(&path, bytes).unwrap();
        Command::new(tool).args(["-c"]).arg(&path).stderr(Stdio::null()).output().unwrap().stdout
    };
    let twice = packed("zstd", &packed("gzip", &record(1_700_000_000, 0, 3, b"abc")));
    let refused = read(&twice).err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|text| text.contains("is compressed twice")), "{refused:?}");
}

#[test]
fn raw_records_are_read_compressed_too_and_side_by_side_with_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> = (1..2000).flat_map(|n| record(1_700_000_000 + n, n, 64, &[n as u8; 64])).collect();
    let plain = packets(&read(&file).unwrap());
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("raw"), &file).unwrap();
    for tool in ["gzip", "zstd", "lz4"] {
        let packed = Command::new(tool).args(["-c", &path("raw")]).stderr(Stdio::null()).output().unwrap();
        assert!(packed.status.success());
        std::fs::write(path(tool), packed.stdout).unwrap();
    }
    let mut pcap = file_support::Pcap::new(false, file_support::NANO, 4, 0, 101);
    std::fs::write(path("pcap"), pcap.packet(1_700_000_000_000_000_000, b"E").done()).unwrap();
    for tool in ["raw", "gzip", "zstd", "lz4"] {
        let options = FileOptions {
            paths: vec![path("pcap"), path(tool)],
            forms: vec![FileForm::Detected, FORM],
            ..FileOptions::default()
        };
        let read = read_all(FileSource::open(options).unwrap()).unwrap();
        assert_eq!(read.sink.interfaces.iter().map(|it| it.link_type.0).collect::<Vec<_>>(), [101, 1]);
        assert_eq!(packets(&read)[1..], plain, "{tool}");
    }
}

proptest! {
    #[test]
    fn whatever_the_bytes_are_the_packets_are_those_of_a_naive_reader(
        records in proptest::collection::vec(
            (prop_oneof![Just(0u32), 1u32..2_000_000_000], prop_oneof![Just(0u32), 0u32..1_000_000_100],
                proptest::collection::vec(any::<u8>(), 0..40), any::<u16>()), 0..20),
        cut in 0usize..30, noise in proptest::collection::vec(any::<u8>(), 0..20)) {
        let mut file: Vec<u8> = records.iter().flat_map(|(s, ns, data, len)| record(*s, *ns, *len, data)).collect();
        file.truncate(file.len().saturating_sub(cut));
        file.extend(noise);
        let (expected, whole) = naively(&file);
        match read(&file) {
            Ok(read) => {
                prop_assert_eq!(packets(&read), expected);
                prop_assert_eq!(read.warnings.is_empty(), whole, "{:?}", read.warnings);
            }
            Err(_) => prop_assert!(expected.is_empty()),
        }
    }
}
