//! Random packets, written in every variant of both formats, come back as they were; several files come in
//! order of time.

mod file_support;

use std::fs;

use file_support::{Collect, Got, MICRO, MODIFIED, NANO, Ng, Pcap, read_all, read_bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use scope_packet::{Gap, Interface, LinkType, Packet, Sink, TimestampSource, Turn};
use scope_source::file::{FileOptions, FileSource};
use scope_source::spec::FileForm;
use scope_source::{Polled, Source, SourceCounters};

/// Times and bytes of a few packets.
fn packets() -> impl Strategy<Value = Vec<(i64, Vec<u8>)>> {
    vec((0..4_000_000_000_000_000_000i64, vec(any::<u8>(), 0..300)), 0..200)
}

fn options(paths: Vec<String>) -> FileOptions {
    FileOptions { paths, ..FileOptions::default() }
}

/// Link types whose bytes are handed on as they are: headers that a capturing host writes in its own byte
/// order are turned.
fn as_captured() -> impl Strategy<Value = u16> {
    (0u16..300).prop_filter("turned", |link| ![113, 189, 220, 239].contains(link))
}

/// What a sink got, with the turns of time in between.
#[derive(Default)]
struct InOrder {
    collect: Collect,
    turns: Vec<(usize, Turn)>,
}

impl Sink for InOrder {
    fn interface(&mut self, interface: &Interface) {
        self.collect.interface(interface);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        self.collect.batch(packets);
    }

    fn lost(&mut self, interface: u32, packets: u64, from_ns: i64, to_ns: i64) {
        self.collect.lost(interface, packets, from_ns, to_ns);
    }

    fn gap(&mut self, interface: u32, gap: Gap) {
        self.collect.gap(interface, gap);
    }

    fn idle(&mut self, clock_ns: i64) {
        self.collect.idle(clock_ns);
    }

    fn turn(&mut self, turn: Turn) {
        self.turns.push((self.collect.packets.len(), turn));
    }
}

/// Reads one file to its end. `share`: by the way that looks at each packet alone.
fn read_in_order(path: &str, share: bool, snap_len: Option<u32>) -> (InOrder, SourceCounters, Vec<String>) {
    let share = share.then_some((0, 1));
    let mut source =
        FileSource::open(FileOptions { share, snap_len, ..options(vec![path.to_string()]) }).unwrap();
    let mut sink = InOrder::default();
    while source.poll(&mut sink).unwrap() != Polled::Ended {}
    (sink, source.counters(), source.warnings())
}

/// Steps of time from packet to packet, ns: mostly small ones, also back, and a few that aren't believed or
/// set the clock.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![
        20 => 0..50_000_000i64,
        4 => -300_000_000..0i64,
        1 => -40_000_000_000..40_000_000_000i64,
    ];
    vec(step, 0..600)
}

/// A stray takes its turn at once: at the recorded pace, too, however far ahead its time lies.
#[test]
fn a_stray_does_not_hold_up_a_paced_file() {
    let mut pcap = Pcap::new(false, NANO, 4, 65_535, 101);
    for at in 0..200 {
        let stray_ns = if at == 100 { 3_600_000_000_000 } else { 0 };
        pcap.packet(1_000_000_000_000 + at * 1_000_000 + stray_ns, &[1; 60]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    fs::write(&path, pcap.done()).unwrap();
    let paced = FileOptions { pace: Some(1.0), ..options(vec![path.to_str().unwrap().to_string()]) };
    let (mut source, mut sink) = (FileSource::open(paced).unwrap(), InOrder::default());
    let began = std::time::Instant::now();
    while source.poll(&mut sink).unwrap() != Polled::Ended {
        assert!(began.elapsed() < std::time::Duration::from_secs(120), "it waits for the stray's time");
    }
    assert_eq!((sink.collect.packets.len(), sink.turns), (200, vec![(100, Turn::Stray)]));
}

proptest! {
    /// Plain packets of one file are gathered in one go, those of a share each alone: both are the same.
    #[test]
    fn the_short_way_and_the_long_way_are_the_same(
        steps in steps(),
        lens in vec(0usize..400, 1..20),
        snap_len in prop_oneof![Just(None), Just(Some(100))],
        (big, magic, missing) in (any::<bool>(), prop_oneof![Just(MICRO), Just(NANO)], 0usize..30),
    ) {
        let mut pcap = Pcap::new(big, magic, 4, 65_535, 101);
        let mut time_ns = 1_000_000_000_000;
        for (at, step) in steps.iter().enumerate() {
            time_ns += step;
            pcap.packet(time_ns, &vec![at as u8; lens[at % lens.len()]]);
        }
        let mut bytes = pcap.done();
        bytes.truncate(bytes.len().saturating_sub(missing).max(24)); // perhaps in the middle of a record
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        fs::write(&path, bytes).unwrap();
        let (short, counters, warnings) = read_in_order(path.to_str().unwrap(), false, snap_len);
        let (long, long_counters, long_warnings) = read_in_order(path.to_str().unwrap(), true, snap_len);
        prop_assert_eq!(short.collect.packets, long.collect.packets);
        prop_assert_eq!(short.turns, long.turns);
        prop_assert_eq!(short.collect.gaps, long.collect.gaps);
        prop_assert_eq!((counters, warnings), (long_counters, long_warnings));
    }

    #[test]
    fn a_pcap_comes_back_as_it_was(packets in packets(), big in any::<bool>(), magic in prop_oneof![Just(MICRO), Just(NANO), Just(MODIFIED)]) {
        let mut pcap = Pcap::new(big, magic, 4, 65_535, 101);
        for (time_ns, data) in &packets {
            pcap.packet(*time_ns, data);
        }
        let read = read_bytes(&pcap.done()).unwrap();
        let unit = if magic == NANO { 1 } else { 1000 };
        let expected: Vec<_> = packets.iter().map(|(time_ns, data)| Got {
            time_ns: time_ns / unit * unit, data: data.clone(), original_len: data.len() as u32, interface: 0, flags: 0, lost_before: 0,
        }).collect();
        prop_assert_eq!(read.sink.packets, expected);
        prop_assert_eq!(read.sink.interfaces.len(), 1);
        prop_assert!(read.warnings.is_empty());
    }

    #[test]
    fn a_pcapng_comes_back_as_it_was(
        sections in vec((any::<bool>(), vec((as_captured(), 0u8..10), 1..5), vec((any::<u8>(), 0..4_000_000_000_000_000_000i64, vec(any::<u8>(), 0..200), any::<u32>(), any::<u64>(), 0u8..4), 0..40)), 1..4),
    ) {
        let mut ng = Ng::new(sections[0].0);
        let (mut expected, mut links, mut base) = (Vec::new(), Vec::new(), 0);
        for (n, (big, interfaces, packets)) in sections.iter().enumerate() {
            if n > 0 {
                ng.section(*big);
            }
            for (link, digits) in interfaces {
                ng.interface(*link, 0, &[(2, format!("i{link}").as_bytes()), (9, &[*digits])]);
                links.push(*link);
            }
            for (interface, time_ns, data, flags, lost, kind) in packets {
                let local = usize::from(*interface) % interfaces.len();
                let unit = 10i64.pow(9 - u32::from(interfaces[local].1));
                let mut got = Got {
                    time_ns: time_ns / unit * unit, data: data.clone(), original_len: data.len() as u32 + 5,
                    interface: base + local as u32, flags: 0, lost_before: 0,
                };
                let stamp = (time_ns / unit) as u64;
                match kind {
                    0 => {
                        ng.simple_packet(data.len() as u32, data);
                        got = Got { time_ns: 0, interface: base, original_len: data.len() as u32, ..got };
                    }
                    1 => {
                        ng.old_packet(local as u16, (*lost as u16).min(65_534), stamp, data);
                        got = Got { lost_before: u64::from((*lost as u16).min(65_534)), original_len: data.len() as u32, ..got };
                    }
                    2 => { ng.packet_with(local as u32, stamp, data.len() as u32, data, got.original_len, &[]); }
                    _ => {
                        let (mut f, mut l) = (flags.to_le_bytes(), lost.to_le_bytes());
                        if *big { f.reverse(); l.reverse(); }
                        ng.packet_with(local as u32, stamp, data.len() as u32, data, got.original_len, &[(1, b"odd"), (4, &l), (2, &f)]);
                        got = Got { flags: *flags, lost_before: *lost, ..got };
                    }
                }
                expected.push(got);
                ng.block(0x8000_0002, &[9; 20]);
            }
            base += interfaces.len() as u32;
        }
        let read = read_bytes(&ng.done()).unwrap();
        prop_assert_eq!(read.sink.packets, expected);
        let names: Vec<_> = read.sink.interfaces.iter().map(|i| (i.link_type.0, i.name.clone())).collect();
        prop_assert_eq!(names, links.iter().map(|link| (scope_packet::LinkType(*link).canonical().0, format!("i{link}"))).collect::<Vec<_>>());
    }

    #[test]
    fn several_files_come_in_order_of_time_and_each_in_its_own(
        files in vec(vec((0i64..50, 0usize..2000), 0..150), 1..12), workers in 1u32..4) {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        let mut queues = Vec::new();
        for (f, packets) in files.iter().enumerate() {
            let mut pcap = Pcap::new(f % 2 == 0, NANO, 4, 65_535, 101);
            let queue: Vec<_> = packets.iter().enumerate().map(|(n, (time_ns, len))| {
                let mut data = vec![n as u8; *len];
                data.extend([f as u8, n as u8]);
                pcap.packet(*time_ns, &data);
                (*time_ns, f as u32, data)
            }).collect();
            let path = folder.path().join(format!("{f}.pcap"));
            fs::write(&path, pcap.done()).unwrap();
            paths.push(path.display().to_string());
            queues.push(queue);
        }
        // The model: again and again, of all files' next packets the one of the smallest time, then of the
        // first file.
        let mut heads = vec![0; queues.len()];
        let mut expected = Vec::new();
        while let Some((_, f)) = (0..queues.len()).filter_map(|f| Some((queues[f].get(heads[f])?.0, f))).min() {
            expected.push(queues[f][heads[f]].clone());
            heads[f] += 1;
        }
        let read = read_all(FileSource::open(options(paths.clone())).unwrap()).unwrap();
        let got: Vec<_> = read.sink.packets.iter().map(|p| (p.time_ns, p.interface, p.data.clone())).collect();
        prop_assert_eq!(&got, &expected);
        let mut newest = 0;
        let back = expected.iter().filter(|(time, ..)| { let back = *time < newest; newest = newest.max(*time); back }).count();
        prop_assert_eq!(read.counters.stepped_back, back as u64);

        let mut shared = Vec::new();
        for index in 0..workers {
            let share = FileOptions { share: Some((index, workers)), ..options(paths.clone()) };
            let part = read_all(FileSource::open(share).unwrap()).unwrap();
            shared.extend(part.sink.packets.iter().map(|p| (p.time_ns, p.interface, p.data.clone())));
        }
        shared.sort();
        expected.sort();
        prop_assert_eq!(shared, expected);
    }

    #[test]
    fn no_bytes_make_the_source_fail(mut bytes in vec(any::<u8>(), 0..600), kind in 0..4) {
        let head: &[u8] = match kind {
            0 => &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0],
            1 => &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 6, 0, 0, 0],
            _ => &[],
        };
        bytes.splice(0..0, head.iter().copied());
        let _ = read_bytes(&bytes);
    }
}

#[test]
fn an_interface_keeps_its_name_description_and_snap_length() {
    let mut ng = Ng::new(true);
    ng.interface(1, 96, &[(2, b"eth7"), (3, b"the seventh")]).interface(101, 0, &[]).packet(0, 0, b"x");
    let read = read_bytes(&ng.done()).unwrap();
    let [first, second] = &read.sink.interfaces[..] else { panic!("{:?}", read.sink.interfaces) };
    assert_eq!(
        (first.name.as_str(), first.description.as_str(), first.snap_len),
        ("eth7", "the seventh", 96)
    );
    assert_eq!((second.name.as_str(), second.link_type, second.snap_len), ("test", LinkType::RAW, 0));
    assert_eq!(first.timestamps, TimestampSource::File);
}

#[test]
fn a_snap_length_cuts_bytes_and_keeps_original_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pcap");
    fs::write(&path, Pcap::new(false, MICRO, 4, 65_535, 1).packet(0, &[7; 500]).packet(0, &[8; 10]).done())
        .unwrap();
    let source =
        FileSource::open(FileOptions { snap_len: Some(64), ..options(vec![path.display().to_string()]) })
            .unwrap();
    assert_eq!(source.link_types(), [LinkType::ETHERNET]);
    let read = read_all(source).unwrap();
    let lens: Vec<_> = read.sink.packets.iter().map(|p| (p.data.len(), p.original_len)).collect();
    assert_eq!(lens, [(64, 500), (10, 10)]);
    assert_eq!((read.sink.interfaces[0].snap_len, read.sink.interfaces[0].name.as_str()), (64, "long.pcap"));
}

#[test]
fn long_packets_cross_the_buffers_end_whole() {
    let mut ng = Ng::new(false);
    ng.interface(1, 0, &[(9, &[9])]);
    for n in 0..60u64 {
        ng.packet(0, n, &vec![n as u8; 100_000 + n as usize]);
    }
    let read = read_bytes(&ng.done()).unwrap();
    assert_eq!(read.sink.packets.len(), 60);
    assert!(read.sink.packets.iter().enumerate().all(|(n, p)| p.data == vec![n as u8; 100_000 + n]));
}

#[test]
fn a_block_of_almost_16_mib_is_stepped_over_and_a_longer_one_is_damage() {
    let check = |body: usize, packets: usize, warnings: usize| {
        let mut ng = Ng::new(false);
        ng.interface(1, 0, &[])
            .packet(0, 0, b"before")
            .block(0x8000_0001, &vec![0; body])
            .packet(0, 0, b"after");
        let read = read_bytes(&ng.done()).unwrap();
        assert_eq!(
            (read.sink.packets.len(), read.warnings.len(), read.counters.unreadable),
            (packets, warnings, 0)
        );
    };
    check((16 << 20) - 12, 2, 0);
    check((16 << 20) - 8, 1, 1);
}

#[test]
fn a_poll_ends_after_some_thousand_packets() {
    let mut pcap = Pcap::new(false, MICRO, 4, 65_535, 1);
    for n in 0..20_000 {
        pcap.packet(n, b"short");
    }
    let mut source =
        FileSource::from_reader("many", Box::new(std::io::Cursor::new(pcap.done())), FileForm::Detected)
            .unwrap();
    let mut sink = Collect::default();
    assert_eq!(source.poll(&mut sink).unwrap(), Polled::Packets);
    assert!((4096..4160).contains(&sink.packets.len()), "{}", sink.packets.len());
    source.stop();
    assert_eq!(source.poll(&mut sink).unwrap(), Polled::Ended);
}
