//! Whole capture files, odd and damaged ones: packet counts agree with tcpdump or capinfos, and no mutant
//! does harm.

mod file_support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use file_support::odd::{self, Expected};
use file_support::{Collect, Got, read_all, read_bytes};
use scope_source::file::{BUFFER_BYTES_MAX, FileOptions, FileSource};
use scope_source::spec::FileForm;
use scope_source::{Polled, Source, SourceError};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

fn open(path: &Path) -> Result<FileSource, SourceError> {
    FileSource::open(FileOptions { paths: vec![path.display().to_string()], ..FileOptions::default() })
}

/// Reads a file as far as it goes: packets and warnings, or the error at opening.
fn count(path: &Path) -> Result<(u64, u64, Vec<String>), String> {
    let read = open(path).and_then(read_all).map_err(|error| error.to_string())?;
    Ok((read.counters.received, read.counters.unreadable, read.warnings))
}

/// What a tool said of a file.
struct Told {
    packets: Option<u64>,
    complaint: String,
}

/// The last number that a tool prints, and the last line of its complaints.
fn tool_count(command: &mut Command) -> Told {
    let output = command.output().unwrap();
    let numbers = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    Told {
        packets: numbers.split_whitespace().filter_map(|word| word.parse().ok()).next_back(),
        complaint: complaints
            .lines()
            .rfind(|line| !line.starts_with("reading from"))
            .unwrap_or_default()
            .to_string(),
    }
}

fn tcpdump_count(path: &Path) -> Told {
    tool_count(Command::new("tcpdump").args(["-nr", "-", "--count"]).stdin(File::open(path).unwrap()))
}

fn capinfos_count(path: &Path) -> Told {
    tool_count(Command::new("capinfos").args(["-c", "-M", "-T", "-r"]).arg(path))
}

fn installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

/// What libpcap refuses to read on at, although it is clear and valid: there capinfos is the judge.
const CLEAR_BUT_REFUSED: [&str; 4] = [
    "an interface has a type",         // interfaces of several link types
    "bigger than snaplen of",          // a packet longer than its pcapng interface's snap length
    "pcapng block size 469762048",     // 28 read the wrong way round: a section in the other byte order
    "no Interface Description Blocks", // a section without interfaces and packets
];

/// Why our count of a file is not as it should be.
fn disagreement(path: &Path) -> Option<String> {
    let (ours, tcpdump) = (count(path), tcpdump_count(path));
    let packets = ours.as_ref().ok().map(|(packets, ..)| *packets);
    if packets == tcpdump.packets {
        return None;
    }
    let capinfos = capinfos_count(path);
    let excused = CLEAR_BUT_REFUSED.iter().any(|reason| tcpdump.complaint.contains(reason))
        && packets == capinfos.packets;
    let (tcpdump, complaint) = (tcpdump.packets, tcpdump.complaint);
    (!excused).then(|| {
        format!("{path:?}: ours {ours:?}, tcpdump {tcpdump:?} ({complaint}), capinfos {:?}", capinfos.packets)
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|p| p.is_file()).collect();
    files.sort();
    files
}

/// Compares our counts with the tools' over a folder.
fn agrees_with_tools(folder: &Path) {
    if !installed("tcpdump") || !installed("capinfos") {
        println!("skipped: tcpdump or capinfos is not installed");
        return;
    }
    let files = files(folder);
    let wrong: Vec<_> = files.iter().filter_map(|path| disagreement(path)).collect();
    println!("{} files compared", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Bytes, times and original lengths as tcpdump writes them, as far as it reads.
fn same_bytes_as_tcpdump(folder: &Path) {
    if !installed("tcpdump") {
        println!("skipped: tcpdump is not installed");
        return;
    }
    let mut wrong = Vec::new();
    for path in files(folder) {
        let arguments = ["-nr", "-", "-w", "-", "--time-stamp-precision=nano"];
        let output =
            Command::new("tcpdump").args(arguments).stdin(File::open(&path).unwrap()).output().unwrap();
        let (Ok(ours), Ok(theirs)) = (open(&path).and_then(read_all), read_bytes(&output.stdout)) else {
            continue;
        };
        if ours.counters.time_clamped > 0 {
            continue; // before 1970: tcpdump writes a wrapped time, we clamp
        }
        let differ = |(_, (our, their)): &(usize, (&Got, &Got))| {
            // tcpdump writes 32 bits of seconds and of ns, and lets larger numbers wrap.
            let wrapped = (our.time_ns - their.time_ns) % (1 << 32) == 0;
            !wrapped || our.data != their.data || our.original_len != their.original_len
        };
        let both = ours.sink.packets.iter().zip(&theirs.sink.packets);
        if let Some((n, (our, their))) = both.enumerate().find(differ) {
            wrong.push(format!("{path:?}, packet {n}: ours {our:?}, tcpdump {their:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_committed_captures_are_what_the_table_makes_and_read_as_it_says() {
    for odd in odd::all() {
        let path = folder().join(&odd.name);
        assert!(fs::read(&path).is_ok_and(|bytes| bytes == odd.bytes), "{} is not as generated", odd.name);
        let expected = match odd.expected {
            Expected::Packets(packets) => Some((packets, 0, 0)),
            Expected::Warned(packets) => Some((packets, 0, 1)),
            Expected::Cut(packets, packet) => Some((packets, u64::from(packet), 1)),
            Expected::Refused => None,
        };
        let got = count(&path);
        let summary =
            got.as_ref().ok().map(|(packets, unreadable, warnings)| (*packets, *unreadable, warnings.len()));
        assert_eq!(summary, expected, "{}: {got:?}", odd.name);
        let text = match got {
            Ok((_, _, warnings)) => warnings.join(""),
            Err(text) => text,
        };
        assert!(text.is_empty() || text.starts_with(&path.display().to_string()), "{text}");
    }
}

/// Writes the committed captures anew:
/// `cargo test -p scope-source --test file_captures -- --ignored generate`.
#[test]
#[ignore = "writes into the source tree"]
fn generate() {
    fs::create_dir_all(folder()).unwrap();
    for odd in odd::all() {
        fs::write(folder().join(&odd.name), &odd.bytes).unwrap();
    }
}

#[test]
fn the_committed_captures_count_as_tcpdump_or_capinfos_counts() {
    agrees_with_tools(&folder());
}

#[test]
fn the_captures_of_a_given_folder_count_as_tcpdump_or_capinfos_counts() {
    match std::env::var_os("CAPTURES") {
        Some(folder) => agrees_with_tools(Path::new(&folder)),
        None => println!("skipped: CAPTURES names no folder"),
    }
}

#[test]
fn packets_are_byte_for_byte_what_tcpdump_writes() {
    same_bytes_as_tcpdump(&folder());
    if let Some(folder) = std::env::var_os("CAPTURES") {
        same_bytes_as_tcpdump(Path::new(&folder));
    }
}

/// A small deterministic generator of noise (splitmix64).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % bound.max(1) as u64) as usize
    }
}

/// Cuts a capture, flips bits in it, or both.
fn mutate(noise: &mut Noise, bytes: &mut Vec<u8>) {
    let way = noise.below(4);
    if way != 0 {
        for _ in 0..=noise.below(8) {
            let len = bytes.len();
            // Mostly near the beginning, where the lengths of small files are.
            let reach = if noise.below(2) == 0 { len } else { len.min(200) };
            if let Some(byte) = bytes.get_mut(noise.below(reach)) {
                *byte ^= 1 << noise.below(8);
            }
        }
    }
    if way < 2 {
        let len = noise.below(bytes.len() + 1);
        bytes.truncate(len);
    }
}

#[test]
fn two_thousand_cut_and_flipped_mutants_do_no_harm() {
    const MUTANTS: usize = 2000;
    let folder = std::env::var_os("CAPTURES").map_or_else(folder, PathBuf::from);
    let files = files(&folder);
    let mut noise = Noise(3);
    let (mut refused, mut cut, mut whole) = (0, 0, 0);
    for mutant in 0..MUTANTS {
        let mut bytes = fs::read(&files[mutant % files.len()]).unwrap();
        mutate(&mut noise, &mut bytes);
        let len = bytes.len();
        match FileSource::from_reader("mutant", Box::new(std::io::Cursor::new(bytes)), FileForm::Detected) {
            Err(error) => {
                assert!(error.to_string().starts_with("mutant: "), "{error}");
                refused += 1;
            }
            Ok(mut source) => {
                let mut sink = Collect::default();
                while source.poll(&mut sink).unwrap() != Polled::Ended {}
                let buffer_bytes = source.buffer_bytes_max();
                assert!(
                    buffer_bytes <= BUFFER_BYTES_MAX.min((2 * len).max(1 << 20)),
                    "{buffer_bytes} bytes for {len}"
                );
                let counters = source.counters();
                assert_eq!(counters.offered, counters.received + counters.unreadable);
                assert!(counters.received <= len as u64 / 16 && counters.unreadable <= 1);
                match source.warnings().is_empty() {
                    true => whole += 1,
                    false => cut += 1,
                }
            }
        }
    }
    println!(
        "{MUTANTS} mutants: {refused} refused, {cut} read to a damaged place, {whole} read to their end"
    );
    assert!(refused > 0 && cut > 0 && whole > 0);
}

#[test]
fn every_cut_of_a_capture_yields_the_packets_before_it() {
    for name in ["pcap-be-ns.pcap", "ng-be.pcapng", "simple-packets.pcapng", "pcap-le-modified.pcap"] {
        let bytes = fs::read(folder().join(name)).unwrap();
        let all = read_bytes(&bytes).unwrap().sink.packets;
        let mut before = 0;
        for len in 0..bytes.len() {
            let Ok(read) = read_bytes(&bytes[..len]) else { continue };
            assert_eq!(read.sink.packets[..], all[..read.sink.packets.len()], "{name} cut at {len}");
            assert!(read.sink.packets.len() >= before && read.counters.unreadable <= 1);
            before = read.sink.packets.len();
        }
        assert!(before + 1 >= all.len());
    }
}
