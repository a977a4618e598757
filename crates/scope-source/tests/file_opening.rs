//! What can't be opened says place, cause and remedy; pipes and paces keep a source waiting without holding
//! it up.

mod file_support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use file_support::{Collect, MICRO, NANO, Ng, Pcap, read_all};
use scope_packet::LinkType;
use scope_source::file::{FILES_MAX, FileOptions, FileSource, Follow, check_begin};
use scope_source::spec::FileForm;
use scope_source::{Polled, Source, Timing};

fn options(paths: &[&Path]) -> FileOptions {
    FileOptions {
        paths: paths.iter().map(|path| path.display().to_string()).collect(),
        ..FileOptions::default()
    }
}

fn refusal(options: FileOptions) -> String {
    FileSource::open(options).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn each_refusal_names_the_file_and_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it");
    let check = |bytes: Option<&[u8]>, cause: &str| {
        if let Some(bytes) = bytes {
            fs::write(&path, bytes).unwrap();
        }
        let text = refusal(options(&[&path]));
        assert!(text.starts_with(&path.display().to_string()) && text.contains(cause), "{cause}: {text}");
    };
    check(None, "no such file; check the path");
    check(Some(b""), "is empty");
    check(Some(b"ab"), "is no capture file: 2 bytes");
    check(Some(b"This is no capture"), "is no capture file: it begins with 54 68 69 73");
    check(Some(b"BZh9"), "compressed with bzip2; decompress it first");
    check(Some(&[0x1f, 0x8b, 8, 0, 0]), "no packet of it can be read: its gzip data end too early");
    check(Some(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]), "truncated inside its header: it has 8 of 24 bytes");
    check(Some(&Pcap::new(false, MICRO, 5, 0, 1).done()), "version 2.5");
    check(Some(&Ng::new(false).done()[..16]), "no packet of it can be read");
    let text = refusal(options(&[folder.path()]));
    assert!(text.contains("is a folder"), "{text}");
}

#[test]
fn a_file_without_permission_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked.pcap");
    fs::write(&path, Pcap::new(false, MICRO, 4, 0, 1).done()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        println!("skipped: root reads everything");
        return;
    }
    assert!(refusal(options(&[&path])).contains("no permission to read it"));
}

#[test]
fn contradictory_options_are_refused_all_at_once() {
    let text = refusal(FileOptions {
        paths: vec!["-".into(), "-".into()],
        pace: Some(0.0),
        share: Some((2, 2)),
        ..FileOptions::default()
    });
    for cause in ["standard input twice", "pace must be", "share must lie below"] {
        assert!(text.contains(cause), "{text}");
    }
    assert!(refusal(FileOptions::default()).contains("names no file"));
    let many = FileOptions { paths: vec!["x".into(); FILES_MAX + 1], ..FileOptions::default() };
    assert!(refusal(many).contains("at most 1024"));
}

#[test]
fn link_types_of_all_files_are_known_at_opening() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    fs::write(&a, Pcap::new(true, NANO, 4, 0, 113).done()).unwrap();
    let mut ng = Ng::new(false);
    fs::write(
        &b,
        ng.interface(101, 0, &[]).interface(1, 0, &[]).packet(0, 0, b"x").interface(9, 0, &[]).done(),
    )
    .unwrap();
    let source = FileSource::open(options(&[&a, &b])).unwrap();
    assert_eq!(source.link_types(), [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL]);
    assert_eq!((source.timing(), source.grace_ns()), (Timing::Waits, 1_000_000_000));
    let read = read_all(source).unwrap();
    let links: Vec<_> = read.sink.interfaces.iter().map(|interface| interface.link_type.0).collect();
    assert_eq!(links, [113, 101, 1, 9]);
}

/// Keeps what it hears.
#[derive(Debug, Default)]
struct Heard {
    bytes: Mutex<Vec<u8>>,
    ends: Mutex<Vec<(u64, bool)>>,
    end_seen: AtomicBool,
}

impl Follow for Heard {
    fn bytes(&self, bytes: &[u8]) {
        assert!(!self.end_seen.swap(bytes.is_empty(), Ordering::Relaxed) || bytes.is_empty());
        self.bytes.lock().unwrap().extend_from_slice(bytes);
    }

    fn ended(&self, packets: u64, is_whole: bool) {
        self.ends.lock().unwrap().push((packets, is_whole));
    }
}

#[test]
fn what_is_opened_is_not_read_before_it_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let bytes = (0..30_000).fold(&mut pcap, |pcap, n| pcap.packet(n, &[n as u8; 60])).done();
    fs::write(&whole, &bytes).unwrap();
    let cut = folder.path().join("cut");
    fs::write(&cut, &bytes[..bytes.len() - 7]).unwrap();
    let packed = folder.path().join("packed");
    let output = Command::new("gzip").arg("-c").arg(&whole).output().unwrap();
    fs::write(&packed, output.stdout).unwrap();
    let files = [&*whole, &*cut, &*packed];
    let heard: Vec<Arc<Heard>> = files.iter().map(|_| Arc::default()).collect();
    let follows: Vec<Option<Arc<dyn Follow>>> = heard.iter().map(|heard| Some(heard.clone() as _)).collect();
    let mut source = FileSource::unread(options(&files), &follows).unwrap();
    assert!(heard.iter().all(|heard| heard.bytes.lock().unwrap().is_empty()));
    source.begin().unwrap();
    assert!(heard.iter().all(|heard| !heard.bytes.lock().unwrap().is_empty()));
    assert!(heard.iter().all(|heard| heard.ends.lock().unwrap().is_empty()));
    assert_eq!(read_all(source).unwrap().sink.packets.len(), 3 * 30_000 - 1);
    for (heard, (path, end)) in
        heard.iter().zip(files.iter().zip([(30_000, true), (29_999, false), (30_000, true)]))
    {
        assert!(*heard.bytes.lock().unwrap() == fs::read(path).unwrap(), "{}: as it stands", path.display());
        assert_eq!(*heard.ends.lock().unwrap(), [end], "{}", path.display());
        assert!(heard.end_seen.load(Ordering::Relaxed));
    }
}

#[test]
fn the_first_bytes_of_a_file_say_whether_it_can_be_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let said = |bytes: &[u8], form| {
        fs::write(&path, bytes).unwrap();
        check_begin(path.to_str().unwrap(), form).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let detected = FileForm::Detected;
    // Nothing behind the first word is looked at.
    for good in [&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0xd4, 0xc3, 0xb2, 0xa1, 9], &[0x1f, 0x8b, 8, 0]] {
        assert_eq!(said(good, detected), "", "{good:?}");
    }
    assert!(said(b"", detected).contains("is empty"));
    assert!(said(b"ab", detected).contains("too few for any"));
    assert!(said(b"text", detected).contains("is no capture file"));
    assert!(said(b"BZh9", detected).contains("bzip2"));
    assert_eq!(said(b"text", FileForm::Hpcap(LinkType::ETHERNET)), "");
    assert!(check_begin("/nowhere/x", detected).unwrap_err().to_string().contains("no such file"));
    assert!(check_begin("/dev/null", detected).is_ok(), "what can be read only once is left alone");
}

#[test]
fn a_silent_pipe_does_not_hold_up_a_poll() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let writer_path = path.clone();
    let (go, wait) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
        let bytes = pcap.packet(5_000, b"first").packet(6_000, b"second").done();
        let mut pipe = fs::OpenOptions::new().write(true).open(writer_path).unwrap();
        pipe.write_all(&bytes[..50]).unwrap(); // the header, the first packet and a bit
        wait.recv_timeout(Duration::from_secs(120)).unwrap(); // a poll that waits for more would see that
        pipe.write_all(&bytes[50..]).unwrap();
    });
    let mut source = FileSource::open(options(&[&path])).unwrap();
    let mut sink = Collect::default();
    while sink.packets.is_empty() {
        source.poll(&mut sink).unwrap();
    }
    assert_eq!(
        source.poll(&mut sink).unwrap(),
        Polled::Nothing,
        "nothing more comes before the writer is told to go on"
    );
    assert_eq!(sink.idle.last(), Some(&5_000));
    assert_eq!(source.next_time_ns(), None);
    go.send(()).unwrap();
    while source.poll(&mut sink).unwrap() != Polled::Ended {}
    assert_eq!(sink.packets.len(), 2);
    writer.join().unwrap();
    let share = FileOptions { share: Some((0, 2)), ..options(&[Path::new("/dev/null")]) };
    assert!(refusal(share).contains("several workers can't share it"));
}

#[test]
fn a_paced_file_is_never_early_and_tells_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("paced.pcap");
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let times = [1_000_000_000i64, 1_100_000_000, 1_050_000_000, 1_200_000_000];
    for time_ns in times {
        pcap.packet(time_ns, b"x");
    }
    fs::write(&path, pcap.done()).unwrap();
    let mut source = FileSource::open(FileOptions { pace: Some(2.0), ..options(&[&path]) }).unwrap();
    assert_eq!(source.next_time_ns(), Some(times[0]));
    let mut sink = Collect::default();
    let begin = Instant::now();
    loop {
        let polled = source.poll(&mut sink).unwrap();
        let passed = begin.elapsed().as_nanos() as i64 * 2;
        assert!(sink.packets.iter().all(|packet| packet.time_ns - times[0] <= passed));
        match polled {
            Polled::Nothing => assert!(*sink.idle.last().unwrap() <= source.next_time_ns().unwrap()),
            Polled::Packets => {}
            Polled::Ended => break,
        }
    }
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert_eq!(sink.packets.len(), times.len());
    assert_eq!(source.counters().stepped_back, 1);
    assert!(sink.idle.is_sorted() && !sink.idle.is_empty());
}

#[test]
fn a_cut_file_among_whole_ones_ends_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    let mut pcap = Pcap::new(false, NANO, 4, 0, 1);
    let bytes = pcap.packet(10, b"one").packet(20, b"two").packet(30, b"three").done();
    fs::write(&whole, &bytes).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    let read = read_all(FileSource::open(options(&[&cut, &whole])).unwrap()).unwrap();
    assert_eq!((read.counters.received, read.counters.unreadable, read.counters.offered), (5, 1, 6));
    let expected = format!("{}: truncated after packet 2 at byte {}: ", cut.display(), bytes.len() - 16 - 5);
    assert!(read.warnings.len() == 1 && read.warnings[0].starts_with(&expected), "{:?}", read.warnings);
    let second = FileOptions { share: Some((1, 2)), ..options(&[&cut, &whole]) };
    let read = read_all(FileSource::open(second).unwrap()).unwrap();
    assert_eq!((read.counters.offered, read.warnings.len()), (0, 0));
}

#[test]
fn what_is_read_again_is_what_was_there_at_the_begin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grows.pcap");
    let capture = |packets: u8| {
        let mut capture = Pcap::new(false, NANO, 4, 0, 1);
        for number in 1..=packets {
            capture.packet(i64::from(number) * 1_000, &[number; 60]);
        }
        capture.done()
    };
    fs::write(&path, capture(2)).unwrap();
    let source = FileSource::unread(options(&[&path]), &[]).unwrap();
    let first = source.again().unwrap();
    fs::write(&path, capture(3)).unwrap();
    let second = first.again().unwrap();
    let read = |mut source: FileSource| {
        source.begin().unwrap();
        assert!(source.again().is_none(), "it has begun");
        let packets = read_all(source).unwrap().sink.packets;
        packets.iter().map(|packet| packet.time_ns).collect::<Vec<_>>()
    };
    assert_eq!(read(second), [1_000, 2_000]);
    assert_eq!(read(first), [1_000, 2_000]);
    assert_eq!(read(source), [1_000, 2_000, 3_000]);
}

#[test]
fn a_pipe_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let _writer = fs::File::options().read(true).write(true).open(&path).unwrap();
    assert!(FileSource::unread(options(&[&path]), &[]).unwrap().again().is_none());
}
