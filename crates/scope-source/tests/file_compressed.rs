//! Compressed captures: what gzip, zstd and lz4 made of them reads as the captures themselves, and nothing that
//! is damaged, hostile or slow does harm.

mod file_support;

use std::fs;
use std::io::{Cursor, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use file_support::{Collect, Got, NANO, Ng, Pcap, Read, odd, read_all, read_bytes};
use scope_packet::{Gap, LinkType};
use scope_source::file::{FileOptions, FileSource};
use scope_source::spec::FileForm;
use scope_source::{Polled, Source};

/// Every way in which the tools write what we read.
const WAYS: [&[&str]; 13] = [
    &["gzip", "-1"],
    &["gzip", "-9"],
    &["zstd", "-1"],
    &["zstd", "-19", "--no-check"],
    &["zstd", "--ultra", "-22", "--long=27"],
    &["zstd", "--format=lz4"],
    &["zstd", "--format=gzip"],
    &["lz4", "-1"],
    &["lz4", "-9", "-B4", "-BD", "-BX"],
    &["lz4", "-B5", "-BI"],
    &["lz4", "-B6", "-BD", "--content-size"],
    &["lz4", "-B7", "--no-frame-crc"],
    &["lz4", "-B4", "-BD", "--no-frame-crc", "--favor-decSpeed", "-12"],
];

/// What a tool makes of bytes.
fn packed(way: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut tool = Command::new(way[0])
        .args(&way[1..])
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}: scripts/install-missing.sh test installs it", way[0]));
    let (mut into, bytes) = (tool.stdin.take().unwrap(), bytes.to_vec());
    let writer = std::thread::spawn(move || into.write_all(&bytes));
    let output = tool.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{way:?}");
    output.stdout
}

/// Gives its bytes in pieces of odd sizes.
struct Dribble(Cursor<Vec<u8>>, usize);

impl std::io::Read for Dribble {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 * 5 % 97 + 1;
        let len = self.1.min(into.len());
        self.0.read(&mut into[..len])
    }
}

fn dribbled(bytes: &[u8]) -> Result<Read, scope_source::SourceError> {
    let reader = Dribble(Cursor::new(bytes.to_vec()), bytes.len() % 97);
    read_all(FileSource::from_reader("test", Box::new(reader), FileForm::Detected)?)
}

/// As files, so that a thread reads ahead.
fn read_file(path: &Path, bytes: &[u8]) -> Result<Read, scope_source::SourceError> {
    fs::write(path, bytes).unwrap();
    let paths = vec![path.display().to_string()];
    read_all(FileSource::open(FileOptions { paths, ..FileOptions::default() })?)
}

/// What counts of a reading: link types, packets, gaps, packets offered and unreadable, warnings without the name.
type Essence = (Vec<LinkType>, Vec<Got>, Vec<(u32, Gap)>, u64, u64, Vec<Option<String>>);

fn essence(read: Result<Read, scope_source::SourceError>) -> Option<Essence> {
    let read = read.ok()?;
    let links: Vec<_> = read.sink.interfaces.iter().map(|interface| interface.link_type).collect();
    let within = |text: &String| text.replace(" of what it decompresses to", "");
    let unnamed = |text: &String| within(text).split_once(": ").map(|(_, text)| text.to_string());
    let warnings: Vec<_> = read.warnings.iter().map(unnamed).collect();
    let gaps: Vec<_> = read.sink.gaps.iter().map(|(_, interface, gap)| (*interface, *gap)).collect();
    Some((links, read.sink.packets, gaps, read.counters.offered, read.counters.unreadable, warnings))
}

/// A capture of some MiB, with packets of many lengths, which compresses a bit.
fn long_capture() -> Vec<u8> {
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let mut noise = 1u64;
    for n in 0..2500i64 {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let len = 60 + (noise >> 40) as usize % 1400;
        let data: Vec<u8> =
            (0..len).map(|at| if at % 3 == 0 { (noise >> (at % 57)) as u8 } else { at as u8 }).collect();
        pcap.packet(1_700_000_000_000_000_000 + n * 1_000_000, &data);
    }
    pcap.done()
}

#[test]
fn every_capture_gives_the_same_packets_compressed() {
    let folder = tempfile::tempdir().unwrap();
    for (number, odd) in odd::all().into_iter().enumerate() {
        if odd.name.ends_with(".gz") {
            continue; // twice compressed is refused
        }
        let plain = essence(read_bytes(&odd.bytes));
        for way in [WAYS[number % WAYS.len()], WAYS[(number + 5) % WAYS.len()]] {
            let bytes = packed(way, &odd.bytes);
            assert_eq!(essence(read_bytes(&bytes)), plain, "{} by {way:?}", odd.name);
            assert_eq!(essence(dribbled(&bytes)), plain, "{} by {way:?}, in pieces", odd.name);
            let path = folder.path().join("test");
            assert_eq!(essence(read_file(&path, &bytes)), plain, "{} by {way:?}, a file", odd.name);
        }
    }
}

#[test]
fn a_long_capture_reads_the_same_by_every_way_of_every_tool() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = long_capture();
    let plain = essence(read_bytes(&bytes));
    for way in WAYS {
        let packed = packed(way, &bytes);
        assert!(packed.len() < bytes.len() || way[0] == "lz4", "{way:?}");
        let path = folder.path().join("named-as-nothing-special");
        assert!(essence(read_file(&path, &packed)) == plain, "{way:?}");
        assert!(essence(dribbled(&packed)) == plain, "{way:?}, in pieces");
    }
}

#[test]
fn members_and_frames_behind_each_other_are_one_capture() {
    let bytes = long_capture();
    let plain = essence(read_bytes(&bytes));
    let skipped = |kind: u8, len: usize| {
        [&[0x50 | kind, 0x2a, 0x4d, 0x18], &(len as u32).to_le_bytes()[..], &vec![0xee; len]].concat()
    };
    let mut mixed = [skipped(0, 0), skipped(15, 100_000)].concat();
    for (number, part) in bytes.chunks(bytes.len() / 20 + 1).enumerate() {
        mixed.extend(packed(WAYS[number % WAYS.len()], part));
        if number % 3 == 0 {
            mixed.extend(skipped(3, number * 1000));
            mixed.extend(packed(WAYS[number % WAYS.len()], b""));
        }
    }
    assert!(essence(read_bytes(&mixed)) == plain, "of all kinds, with empty and skipped ones between");
    mixed.extend([0; 5000]);
    assert!(essence(dribbled(&mixed)) == plain, "filled up with zeros");
    for way in [WAYS[0], WAYS[2], WAYS[8]] {
        let many: Vec<u8> = bytes.chunks(50_000).flat_map(|part| packed(way, part)).collect();
        assert!(essence(read_bytes(&many)) == plain, "{way:?}");
    }
}

#[test]
fn what_stands_behind_the_compressed_data_is_told() {
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let bytes = pcap.packet(5, b"one").packet(6, b"two").done();
    for way in [WAYS[0], WAYS[2], WAYS[7]] {
        let with_rest = [packed(way, &bytes), b"and more".to_vec()].concat();
        let read = read_bytes(&with_rest).unwrap();
        assert_eq!((read.counters.received, read.counters.unreadable), (2, 0));
        let cause = "behind its compressed data stands something else: 61 6e 64 20";
        assert!(read.warnings.len() == 1 && read.warnings[0].contains(cause), "{:?}", read.warnings);
        assert!(
            read.warnings[0]
                .contains(&format!("in what begins at byte {} of the compressed file", with_rest.len() - 8))
        );
    }
}

#[test]
fn every_cut_of_a_compressed_capture_yields_the_packets_before_it_and_is_warned_of() {
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    for n in 0..40u8 {
        pcap.packet(1_000_000_000 + i64::from(n), &vec![n.wrapping_mul(37); usize::from(n) * 3]);
    }
    let bytes = pcap.done();
    let all = read_bytes(&bytes).unwrap().sink.packets;
    for way in WAYS {
        let whole = packed(way, &bytes);
        for len in 0..whole.len() {
            let Ok(read) = read_bytes(&whole[..len]) else { continue };
            let packets = read.sink.packets;
            assert_eq!(packets[..], all[..packets.len()], "{way:?} cut at {len}");
            assert!(read.counters.unreadable <= 1 && read.warnings.len() == 1, "{way:?} cut at {len}");
            assert!(read.warnings[0].contains("truncated after packet"), "{:?}", read.warnings);
            assert_eq!(read.sink.gaps.len(), 1, "{way:?} cut at {len}: what is missing is a gap");
        }
        // zstd and lz4 hand out nothing of their only block before it is whole.
        assert!(way[0] != "gzip" || read_bytes(&whole[..whole.len() - 1]).is_ok(), "{way:?}");
    }
}

#[test]
fn no_changed_byte_of_a_checked_capture_passes_unnoticed() {
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    for n in 0..20u8 {
        pcap.packet(1_000_000_000 + i64::from(n), &[n; 50]);
    }
    let bytes = pcap.done();
    let plain = essence(read_bytes(&bytes));
    for way in [WAYS[0], &["zstd", "--check"], WAYS[7], WAYS[8]] {
        let whole = packed(way, &bytes);
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            let Ok(read) = read_bytes(&changed) else { continue };
            let noticed = !read.warnings.is_empty();
            assert!(noticed || essence(Ok(read)) == plain, "{way:?}: byte {at}, bit {bit}");
        }
    }
}

#[test]
fn what_can_t_be_decompressed_is_refused_with_its_cause() {
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let bytes = pcap.packet(5, b"one").done();
    let refusal = |bytes: &[u8]| read_bytes(bytes).err().map(|error| error.to_string()).unwrap_or_default();
    let check = |bytes: &[u8], words: &[&str]| {
        let text = refusal(bytes);
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    };
    check(&packed(WAYS[2], &packed(WAYS[0], &bytes)), &["is compressed twice", "decompress it once"]);
    check(&packed(WAYS[7], b""), &["is empty once it is decompressed"]);
    check(&packed(WAYS[0], b"text"), &["is no capture file: it begins with 74 65 78 74"]);
    check(
        &packed(WAYS[0], &bytes)[..20],
        &["no packet of it can be read", "gzip data end too early", "another copy"],
    );
    // A window of 2 GiB, without the length of its content.
    let wide = [&0xfd2f_b528u32.to_le_bytes()[..], &[0, 21 << 3, 1, 0, 0]].concat();
    check(&wide, &["Frame requires too much memory", "in what begins at byte 0"]);
    let dictionary = [0x04, 0x22, 0x4d, 0x18, 0x61, 0x40, 1, 0, 0, 0, 0xe3];
    check(&dictionary, &["its lz4 data"]);
    check(&[0x02, 0x21, 0x4c, 0x18, 1], &["compressed with lz4's legacy format", "lz4cat"]);
}

/// What a compressed capture costs beside the buffers of a plain one is not seen here but in the binary's
/// test; here, that little input can't make buffers grow.
#[test]
fn a_bomb_is_read_through_in_the_buffers_of_any_file() {
    let mut ng = Ng::new(false);
    ng.interface(1, 0, &[]).packet(0, 5, b"before");
    for _ in 0..20 {
        ng.block(0x0bad, &vec![0; 1 << 20]);
    }
    let bytes = ng.packet(0, 6, b"behind").done();
    for way in [WAYS[1], WAYS[4], WAYS[11]] {
        let bomb = packed(way, &bytes);
        assert!(bomb.len() < bytes.len() / 200, "{way:?}: {}", bomb.len());
        let mut source =
            FileSource::from_reader("bomb", Box::new(Cursor::new(bomb)), FileForm::Detected).unwrap();
        let mut sink = Collect::default();
        while source.poll(&mut sink).unwrap() != Polled::Ended {}
        assert_eq!(sink.packets.len(), 2, "{way:?}");
        assert!(source.buffer_bytes_max() <= 4 << 20, "{}", source.buffer_bytes_max());
    }
}

/// A pipe, what writes into it when told to, and its source.
fn piped(
    folder: &Path,
    parts: Vec<Vec<u8>>,
) -> (FileSource, std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let path: PathBuf = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let writer_path = path.clone();
    let (go, wait) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let mut pipe = fs::OpenOptions::new().write(true).open(writer_path).unwrap();
        for part in parts {
            pipe.write_all(&part).unwrap();
            wait.recv_timeout(Duration::from_secs(120)).unwrap();
        }
    });
    let paths = vec![path.display().to_string()];
    (FileSource::open(FileOptions { paths, ..FileOptions::default() }).unwrap(), go, writer)
}

#[test]
fn a_silent_pipe_of_compressed_data_does_not_hold_up_a_poll() {
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let bytes = pcap.packet(5_000, b"first").packet(6_000, b"second").done();
    for way in [WAYS[0], WAYS[2], WAYS[8]] {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (packed(way, &bytes[..50]), packed(way, &bytes[50..]));
        let (begun, rest) = second.split_at(9);
        let (mut source, go, writer) = piped(folder.path(), vec![[&first, begun].concat(), rest.to_vec()]);
        let mut sink = Collect::default();
        while sink.packets.is_empty() {
            source.poll(&mut sink).unwrap();
        }
        assert_eq!(source.poll(&mut sink).unwrap(), Polled::Nothing, "{way:?}");
        go.send(()).unwrap();
        go.send(()).unwrap();
        while source.poll(&mut sink).unwrap() != Polled::Ended {}
        assert_eq!((sink.packets.len(), source.warnings().len()), (2, 0), "{way:?}");
        writer.join().unwrap();
    }
}

#[test]
fn workers_share_a_compressed_file_and_pace_and_merging_go_as_for_plain_ones() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = long_capture();
    let (plain, compressed) = (folder.path().join("plain"), folder.path().join("compressed"));
    fs::write(&plain, &bytes).unwrap();
    fs::write(&compressed, packed(WAYS[2], &bytes)).unwrap();
    let paths = |path: &Path, times| vec![path.display().to_string(); times];
    let read = |options| read_all(FileSource::open(options).unwrap()).unwrap().sink.packets;
    for index in 0..3 {
        let share =
            |path| FileOptions { paths: paths(path, 1), share: Some((index, 3)), ..FileOptions::default() };
        assert!(read(share(&plain)) == read(share(&compressed)), "worker {index}");
    }
    for files in [2, 9] {
        let merged = |path| FileOptions { paths: paths(path, files), ..FileOptions::default() };
        assert!(read(merged(&plain)) == read(merged(&compressed)), "{files} files");
    }
    let paced = |path| FileOptions { paths: paths(path, 1), pace: Some(1000.0), ..FileOptions::default() };
    assert!(read(paced(&plain)) == read(paced(&compressed)));
}

/// A run of empty members as long as you like is no reason to keep a worker: a poll looks at a bounded part.
#[test]
fn empty_members_without_end_do_not_hold_up_a_poll() {
    struct Empty {
        member: Vec<u8>,
        left: usize,
    }
    impl std::io::Read for Empty {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let members = (into.len() / self.member.len()).min(self.left);
            for (at, byte) in into[..members * self.member.len()].iter_mut().enumerate() {
                *byte = self.member[at % self.member.len()];
            }
            self.left -= members;
            Ok(members * self.member.len())
        }
    }
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let bytes = packed(WAYS[0], &pcap.packet(5_000, b"first").done());
    let empty = Empty { member: packed(WAYS[0], b""), left: 400_000 };
    let mut source =
        FileSource::from_reader("empty", Box::new(Cursor::new(bytes).chain(empty)), FileForm::Detected)
            .unwrap();
    let mut sink = Collect::default();
    let mut nothing = 0;
    loop {
        match source.poll(&mut sink).unwrap() {
            Polled::Nothing => nothing += 1,
            Polled::Packets => {}
            Polled::Ended => break,
        }
    }
    assert_eq!(sink.packets.len(), 1);
    assert!(nothing >= 5, "{nothing} polls came back without anything");
}

/// The length in a frame's header is held against what came out with the last block: that block is bad as a
/// whole, though zstd hands out its bytes one by one where they come one by one. Found by fuzzing.
#[test]
fn the_last_block_of_a_frame_with_a_wrong_length_is_left_out_whole() {
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let bytes = pcap.packet(5, b"one").packet(6, b"two").done();
    let stored =
        |last: u32, part: &[u8]| [&(((part.len() as u32) << 3) | last).to_le_bytes()[..3], part].concat();
    let (first, last) = bytes.split_at(43);
    let frame = [
        &0xfd2f_b528u32.to_le_bytes()[..],
        &[0xa0],                    // one segment, its length in 4 bytes
        &1280u32.to_le_bytes()[..], // which is wrong
        &stored(0, first),
        &stored(1, last),
    ]
    .concat();
    let read = read_bytes(&frame).unwrap();
    assert_eq!((read.counters.received, read.warnings.len()), (1, 1), "{:?}", read.warnings);
    assert_eq!(essence(Ok(read)), essence(dribbled(&frame)));
}

#[test]
fn a_thousand_cut_and_flipped_mutants_read_the_same_in_one_piece_and_in_small_ones() {
    let mut noise = 1u64;
    let mut below = |bound: usize| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 33) as usize % bound.max(1)
    };
    let captures: Vec<_> = odd::all().into_iter().filter(|odd| odd.bytes.len() > 60).collect();
    let (mut refused, mut damaged, mut whole) = (0, 0, 0);
    for mutant in 0..1000 {
        let (odd, way) = (&captures[mutant * 7 % captures.len()], WAYS[mutant % 4 + 5]);
        let half = odd.bytes.len() / 2;
        let mut bytes = [packed(way, &odd.bytes[..half]), packed(way, &odd.bytes[half..])].concat();
        for _ in 0..below(4) {
            let at = below(bytes.len());
            bytes[at] ^= 1 << below(8);
        }
        if below(3) == 0 {
            bytes.truncate(below(bytes.len() + 1));
        }
        let read = essence(read_bytes(&bytes));
        assert_eq!(read, essence(dribbled(&bytes)), "{} by {way:?}", odd.name);
        match read.map(|(.., warnings)| warnings.len()) {
            None => refused += 1,
            Some(0) => whole += 1,
            Some(_) => damaged += 1,
        }
    }
    assert!(refused > 0 && damaged > 0 && whole > 0, "{refused}, {damaged}, {whole}");
}
