//! What a capture file says itself that it lacks: damage, its own counts of drops, times that can't be
//! stored.

mod file_support;

use std::io::{self, Cursor, Read};

use file_support::{Collect, MICRO, Ng, Pcap, read_all, read_bytes};
use scope_packet::{Gap, GapReason};
use scope_source::file::{FileOptions, FileSource};
use scope_source::spec::FileForm;
use scope_source::{Polled, Source};

const DATA: [u8; 20] = [7; 20];
const S: i64 = 1_000_000_000;

fn gap(from_ns: i64, to_ns: i64, reason: GapReason, lost: Option<u64>) -> Gap {
    Gap { from_ns, to_ns, reason, lost_min: lost.unwrap_or(0), lost_max: lost }
}

/// Gaps of a capture, each with its interface.
fn check(what: &str, bytes: &[u8], expected: &[(u32, Gap)]) {
    assert_eq!(gaps(&read_bytes(bytes).unwrap()), expected, "{what}");
}

fn gaps(read: &file_support::Read) -> Vec<(u32, Gap)> {
    read.sink.gaps.iter().map(|(_, interface, gap)| (*interface, *gap)).collect()
}

#[test]
fn from_the_last_packet_before_a_damage_on_everything_may_be_missing() {
    let unreadable = |from_ns| gap(from_ns, i64::MAX, GapReason::Unreadable, None);
    let mut pcap = Pcap::new(false, MICRO, 4, 65_535, 1);
    let whole = pcap.packet(S, &DATA).packet(2 * S, &DATA).packet(3 * S, &DATA).done();
    check("whole", &whole, &[]);
    check("cut in a packet", &whole[..whole.len() - 1], &[(0, unreadable(2 * S))]);
    check("cut in a head", &whole[..whole.len() - DATA.len() - 1], &[(0, unreadable(2 * S))]);
    check("cut in the first packet", &whole[..30], &[(0, unreadable(0))]);
    let mut damaged = whole.clone();
    damaged[24 + 36 + 8..][..4].copy_from_slice(&[255; 4]);
    check("a length that can't be", &damaged, &[(0, unreadable(S))]);
    damaged[24 + 8..][..4].copy_from_slice(&[255; 4]);
    check("no packet at all, told once", &damaged, &[(0, unreadable(0))]);

    let mut ng = Ng::new(true);
    ng.interface(1, 0, &[]).interface(101, 0, &[]);
    let whole = ng.packet(0, 1_000_000, &DATA).packet(1, 2_000_000, &DATA).packet(0, 3_000_000, &DATA).done();
    check("whole", &whole, &[]);
    check("cut", &whole[..whole.len() - 6], &[(1, unreadable(2 * S))]);
    check("zeros at the end", &[&whole[..], &[0; 64]].concat(), &[(0, unreadable(3 * S))]);
}

#[test]
fn a_gap_is_told_before_the_packets_behind_it() {
    const PACKETS: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, packets: std::ops::Range<usize>, cut: usize| {
        let mut pcap = Pcap::new(false, MICRO, 4, 65_535, 1);
        for n in packets {
            pcap.packet(n as i64 * S, &DATA);
        }
        let bytes = pcap.done();
        std::fs::write(path(name), &bytes[..bytes.len() - cut]).unwrap();
    };
    write("whole", 0..PACKETS, 0);
    write("cut", 0..PACKETS / 2, 3);
    let options = || FileOptions { paths: vec![path("cut"), path("whole")], ..FileOptions::default() };
    let read = read_all(FileSource::open(options()).unwrap()).unwrap();
    let last_ns = (PACKETS as i64 / 2 - 2) * S;
    let [(before, 0, found)] = read.sink.gaps[..] else { panic!("{:?}", read.sink.gaps) };
    assert_eq!(found, gap(last_ns, i64::MAX, GapReason::Unreadable, None));
    assert!(
        read.sink.packets[..before].iter().all(|packet| packet.time_ns <= last_ns),
        "told behind {before} packets"
    );

    // Of several workers one tells it, and counts it.
    let shares: Vec<_> = (0..3)
        .map(|index| {
            read_all(FileSource::open(FileOptions { share: Some((index, 3)), ..options() }).unwrap()).unwrap()
        })
        .collect();
    assert_eq!(shares.iter().map(|read| read.sink.gaps.len()).sum::<usize>(), 1);
    assert_eq!(shares.iter().map(|read| read.counters.unreadable).sum::<u64>(), 1);
}

/// Gives its bytes, then fails.
struct Fails(Cursor<Vec<u8>>);

impl Read for Fails {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::Error::other("broken")),
            read => Ok(read),
        }
    }
}

#[test]
fn where_reading_fails_the_rest_is_missing() {
    let mut pcap = Pcap::new(false, MICRO, 4, 65_535, 1);
    let bytes = pcap.packet(S, &DATA).packet(2 * S, &DATA).done();
    let mut source =
        FileSource::from_reader("broken", Box::new(Fails(Cursor::new(bytes))), FileForm::Detected).unwrap();
    let mut sink = Collect::default();
    let error = loop {
        match source.poll(&mut sink) {
            Ok(Polled::Ended) => panic!("it ended without an error"),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("broken"), "{error}");
    assert_eq!(sink.gaps, [(2, 0, gap(2 * S, i64::MAX, GapReason::Unreadable, None))]);
}

#[test]
fn packets_that_the_file_says_were_dropped_are_gaps_of_their_interface() {
    for big in [false, true] {
        let number = |n: u64| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut ng = Ng::new(big);
        ng.interface(1, 0, &[]).interface(1, 0, &[]);
        let len = DATA.len() as u32;
        ng.packet_with(0, 1_000_000, len, &DATA, len, &[(4, &number(3))]);
        ng.packet(1, 2_000_000, &DATA).packet(0, 3_000_000, &DATA);
        ng.packet_with(0, 5_000_000, len, &DATA, len, &[(4, &number(7))]);
        ng.packet_with(1, 6_000_000, len, &DATA, len, &[(4, &number(0))]);
        ng.old_packet(1, 9, 8_000_000, &DATA).old_packet(1, 0xffff, 9_000_000, &DATA);
        let file = |from_s, to_s, lost| gap(from_s * S, to_s * S, GapReason::File, Some(lost));
        let expected = [(0, file(0, 1, 3)), (0, file(3, 5, 7)), (1, file(6, 8, 9))];
        check("drop counts", &ng.done(), &expected);
    }
}

#[test]
fn what_statistics_count_beyond_the_packets_is_a_gap_and_a_warning() {
    for big in [false, true] {
        let number = |n: u64| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut ng = Ng::new(big);
        ng.interface(1, 0, &[(2, b"eth7")]);
        let time = |ng: &Ng, stamp: u64| {
            let mut body = file_support::Out::new(ng.out.big);
            body.u32((stamp >> 32) as u32).u32(stamp as u32);
            body.bytes
        };
        let statistics = |ng: &mut Ng, stamp: u64, options: &[(u16, &[u8])]| {
            let mut body = file_support::Out::new(ng.out.big);
            let (stamp, options) = (time(ng, stamp), ng.options(options));
            body.u32(0).raw(&stamp).raw(&options);
            ng.block(5, &body.bytes);
        };
        let len = DATA.len() as u32;
        ng.packet(0, 1_000_000, &DATA);
        ng.packet_with(0, 2_000_000, len, &DATA, len, &[(4, &number(5))]);
        statistics(&mut ng, 3_000_000, &[(5, &number(5))]); // what the packet said
        ng.packet(0, 4_000_000, &DATA);
        let begin = time(&ng, 2_500_000);
        statistics(&mut ng, 6_000_000, &[(2, &begin), (4, &number(9)), (5, &number(6)), (7, &number(10))]);
        statistics(&mut ng, 7_000_000, &[(5, &number(6)), (7, &number(10))]);
        let read = read_bytes(&ng.done()).unwrap();
        let file = |from_s, to_s, lost| gap(from_s * S, to_s * S, GapReason::File, Some(lost));
        assert_eq!(gaps(&read), [(0, file(1, 2, 5)), (0, file(3, 6, 11))]);
        let [warning] = &read.warnings[..] else { panic!("{:?}", read.warnings) };
        assert!(warning.contains("11 packets of interface 'eth7' were dropped"), "{warning}");
    }
}

#[test]
fn times_that_can_t_be_stored_are_warned_of_once() {
    let mut ng = Ng::new(false);
    ng.interface(1, 0, &[(9, &[0])]).packet(0, 1_700_000_000, &DATA);
    let read = read_bytes(&ng.packet(0, 9_300_000_000, &DATA).packet(0, u64::MAX, &DATA).done()).unwrap();
    assert_eq!((read.counters.time_clamped, read.warnings.len()), (2, 1));
    assert!(
        read.warnings[0].starts_with("test: packet 2 has a time after 2262-04-11"),
        "{:?}",
        read.warnings
    );
    let times: Vec<_> = read.sink.packets.iter().map(|packet| packet.time_ns).collect();
    assert_eq!(times, [1_700_000_000 * S, i64::MAX, i64::MAX]);
}

#[test]
fn an_interface_whose_times_could_only_be_guessed_is_refused_with_the_cause() {
    let refused = |options: &[(u16, &[u8])]| {
        let mut ng = Ng::new(false);
        match read_bytes(&ng.interface(1, 0, options).packet(0, 1, &DATA).done()) {
            Ok(_) => panic!("{options:?} was read"),
            Err(error) => error.to_string(),
        }
    };
    let twice = refused(&[(2, b"eth0"), (9, &[9]), (9, &[6])]);
    assert!(twice.contains("interface 'eth0' has its if_tsresol twice"), "{twice}");
    let long = refused(&[(9, &[9, 0])]);
    assert!(long.contains("if_tsresol in 2 bytes instead of 1"), "{long}");
    let short = refused(&[(14, &[0; 4])]);
    assert!(short.contains("if_tsoffset in 4 bytes instead of 8"), "{short}");
}
