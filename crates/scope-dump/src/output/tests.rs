//! A dump's files, block by block and through the programs of others: descriptions first, whatever comes late
//! or is new.

use super::*;
use crate::header::HEADER_BYTES;
use scope_packet::pcapng::PacketHead;
use scope_packet::{Interface, TimestampSource};
use scope_ring::RingConfig;
use scope_testkit::oracle::{self, every_tool_copies};

/// A ring that knows interfaces of one link type.
struct Bench {
    ring: Arc<Ring>,
    lane: u32,
    link_type: LinkType,
    known: u32,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(link_type: LinkType) -> Bench {
        let config = RingConfig {
            ring_bytes: 16 * (64 << 10),
            segment_bytes: Some(64 << 10),
            workers: 1,
            lanes: 1,
            run_id: [3; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let lane = ring.open_lane(0, link_type).unwrap().lane();
        Bench { ring, lane, link_type, known: 0, folder: tempfile::tempdir().unwrap() }
    }

    fn meet(&mut self) -> u32 {
        let interface = Interface {
            name: format!("port{}", self.known),
            description: "a port of the test".to_string(),
            link_type: self.link_type,
            snap_len: 0,
            timestamps: TimestampSource::File,
            part: 0,
        };
        self.known += 1;
        self.ring.register(self.lane, &interface).unwrap()
    }

    fn file(&self, output: &Arc<DumpOutput>) -> OutFile {
        OutFile::create(output, &*self.ring, self.link_type, &Arc::default(), &Arc::default(), "").unwrap()
    }

    fn folder(&self) -> Arc<DumpOutput> {
        DumpOutput::in_folder(self.folder.path()).unwrap()
    }

    /// Writes a packet of `interface` with this time, in s after the epoch.
    fn write(&self, file: &mut OutFile, interface: u32, time_s: i64, comment: &str) {
        let time_ns = time_s * 1_000_000_000;
        let head =
            PacketHead { interface, time_ns, captured_len: 60, original_len: 60, ..PacketHead::default() };
        let mut block = vec![0; head.block_bytes()];
        let mut data = [0x45; 60];
        data[0] = time_s as u8;
        head.write(&mut block, &data);
        let comments: Vec<String> =
            [comment].into_iter().filter(|comment| !comment.is_empty()).map(String::from).collect();
        file.write(&*self.ring, Position { time_ns, lane: self.lane, packet: 0 }, &block, &comments);
    }

    fn publish(&self, mut file: OutFile, stem: &str) -> Option<PathBuf> {
        file.finish_packets(&*self.ring, self.ring.interface_of(self.link_type), (0, 0), 100 * 1_000_000_000);
        assert_eq!(file.failure(), None);
        let report =
            DumpReport { id: 7, trigger: "hit".into(), why: "by a test".into(), ..DumpReport::default() };
        file.publish(&report, stem, None).unwrap()
    }
}

/// Types of the blocks of a file, in order.
fn kinds(path: &Path) -> Vec<u32> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut kinds) = (0, Vec::new());
    while at < bytes.len() {
        kinds.push(pcapng::le32(&bytes, at));
        at += pcapng::le32(&bytes, at + 4) as usize;
    }
    kinds
}

fn times(path: &Path) -> Vec<(i64, String)> {
    let capture = oracle::read(path).unwrap().capture;
    let named = |packet: &scope_testkit::traffic::Record| {
        (packet.time_ns / 1_000_000_000, capture.interfaces[packet.interface].name.clone())
    };
    capture.packets.iter().map(named).collect()
}

#[test]
fn a_late_packet_of_a_new_interface_stands_behind_all_descriptions() {
    for link_type in [LinkType::ETHERNET, LinkType::RAW] {
        let mut bench = Bench::new(link_type);
        let (first, second) = (bench.meet(), bench.meet());
        let mut file = bench.file(&bench.folder());
        bench.write(&mut file, first, 10, "");
        bench.write(&mut file, first, 20, "");
        bench.write(&mut file, second, 15, "");
        bench.write(&mut file, second, 30, "");
        let path = bench.publish(file, "late").unwrap();
        let port = |number: u32| format!("port{number}");
        assert_eq!(times(&path), [(10, port(0)), (15, port(1)), (20, port(0)), (30, port(1))]);
        assert_eq!(
            kinds(&path)[..5],
            [pcapng::SECTION_HEADER, pcapng::INTERFACE, pcapng::INTERFACE, pcapng::PADDING, pcapng::PACKET]
        );
        every_tool_copies(&path).unwrap();
    }
}

#[test]
fn interfaces_that_the_head_has_no_room_for_are_described_in_front_of_all_packets_as_well() {
    let mut bench = Bench::new(LinkType::ETHERNET);
    let mut interfaces = vec![bench.meet()];
    let mut file = bench.file(&bench.folder());
    interfaces.extend((0..99).map(|_| bench.meet()));
    for (at, interface) in interfaces.iter().enumerate() {
        bench.write(&mut file, *interface, 10 + at as i64, "");
    }
    let path = bench.publish(file, "many").unwrap();
    let kinds = kinds(&path);
    let last = kinds.iter().rposition(|kind| *kind == pcapng::INTERFACE).unwrap();
    assert_eq!((last, kinds[last + 1], kinds[last + 2]), (100, pcapng::PADDING, pcapng::PACKET));
    assert_eq!(times(&path).len(), 100);
    every_tool_copies(&path).unwrap();
    let mut file = bench.file(&bench.folder());
    for interface in &interfaces {
        bench.write(&mut file, *interface, 10, "");
    }
    assert!(
        file.head_bytes > HEADER_BYTES as u64 && file.described_within.is_none(),
        "known beforehand: nothing is written anew"
    );
    every_tool_copies(&bench.publish(file, "known").unwrap()).unwrap();
}

#[test]
fn a_pipe_begins_with_all_interfaces_that_are_known() {
    for link_type in [LinkType::ETHERNET, LinkType::RAW] {
        let mut bench = Bench::new(link_type);
        let (first, second) = (bench.meet(), bench.meet());
        let path = bench.folder.path().join("piped.pcapng");
        let target = Target::Stream(File::create(&path).unwrap());
        let output = Arc::new(DumpOutput {
            format: DumpFormat::Pcapng,
            target,
            budget: None,
            disk: Arc::new(crate::disk::SystemDisk),
            spool: None,
        });
        let mut file = bench.file(&output);
        bench.write(&mut file, first, 10, "");
        bench.write(&mut file, second, 20, "fired");
        assert_eq!(bench.publish(file, "piped"), None);
        assert_eq!(
            kinds(&path)[..4],
            [pcapng::SECTION_HEADER, pcapng::INTERFACE, pcapng::INTERFACE, pcapng::PACKET]
        );
        every_tool_copies(&path).unwrap();
        assert_eq!(oracle::read(&path).unwrap().packet_comments, [(1, "fired".to_string())]);
    }
}

#[test]
fn the_comment_of_the_packet_that_fired_stays_with_it_when_it_comes_late() {
    let mut bench = Bench::new(LinkType::ETHERNET);
    let interface = bench.meet();
    let mut file = bench.file(&bench.folder());
    bench.write(&mut file, interface, 10, "");
    bench.write(&mut file, interface, 20, "");
    bench.write(&mut file, interface, 15, "the packet that fired");
    let path = bench.publish(file, "late").unwrap();
    assert_eq!(oracle::read(&path).unwrap().packet_comments, [(1, "the packet that fired".to_string())]);
    every_tool_copies(&path).unwrap();
}

#[test]
fn a_file_that_could_not_be_written_on_describes_what_its_packets_came_by() {
    let mut bench = Bench::new(LinkType::ETHERNET);
    let (first, second) = (bench.meet(), bench.meet());
    let mut file = bench.file(&bench.folder());
    bench.write(&mut file, first, 10, "");
    file.flush().unwrap();
    bench.write(&mut file, second, 20, "");
    file.fail(io::Error::other("the disk is full"));
    let path = file.publish(&DumpReport::default(), "broken", None).unwrap().unwrap();
    assert_eq!(times(&path), [(10, "port0".to_string())]);
    every_tool_copies(&path).unwrap();
}

/// A disk with room for files of so many bytes; what is too much is written as far as it fits.
#[derive(Debug)]
struct SmallDisk(u64);

impl crate::disk::Disk for SmallDisk {
    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        use std::io::Write;
        let room = self.0.saturating_sub(file.stream_position()?);
        let part = bytes.len().min(room as usize);
        file.write_all(&bytes[..part])?;
        if part < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[test]
fn on_a_full_disk_a_file_has_what_there_was_room_for() {
    const ROOM: u64 = 300 << 10;
    const PACKETS: i64 = 5000;
    let mut bench = Bench::new(LinkType::ETHERNET);
    let interface = bench.meet();
    let mut output = bench.folder();
    Arc::get_mut(&mut output).unwrap().disk = Arc::new(SmallDisk(ROOM));
    let mut file = bench.file(&output);
    for time_s in 1..=PACKETS {
        bench.write(&mut file, interface, time_s, "");
    }
    let error = file.flush().unwrap_err();
    file.fail(error);
    let packets = file.packets;
    assert_eq!(packets + file.unwritten.packets, PACKETS as u64);
    let path = file.publish(&DumpReport::default(), "small", None).unwrap().unwrap();
    let size = path.metadata().unwrap().len();
    assert!((ROOM - 2 * PIECE_BYTES as u64..=ROOM).contains(&size), "{size} bytes of {ROOM}");
    let expected: Vec<_> = (1..=packets as i64).map(|time_s| (time_s, "port0".to_string())).collect();
    assert_eq!(times(&path), expected);
    every_tool_copies(&path).unwrap();
}

#[test]
fn a_pipe_has_the_names_of_the_files_that_its_packets_come_from_and_of_no_others() {
    let mut bench = Bench::new(LinkType::ETHERNET);
    let (near, far) = (bench.meet(), bench.meet());
    let evidence = Arc::<Evidence>::default();
    for (number, part, name) in [(near, 0, "near"), (far, 1, "farther")] {
        evidence.annexes.interface(number, (0, part));
        let mut block = Vec::new();
        pcapng::block(&mut block, pcapng::NAMES, name.as_bytes());
        evidence.annexes.block((0, part), &block);
    }
    let path = bench.folder.path().join("piped.pcapng");
    let target = Target::Stream(File::create(&path).unwrap());
    let output = Arc::new(DumpOutput {
        format: DumpFormat::Pcapng,
        target,
        budget: None,
        disk: Arc::new(crate::disk::SystemDisk),
        spool: None,
    });
    let mut file =
        OutFile::create(&output, &*bench.ring, bench.link_type, &evidence, &Arc::default(), "").unwrap();
    bench.write(&mut file, near, 10, "");
    assert_eq!(bench.publish(file, "piped"), None);
    let found = oracle::read(&path).unwrap();
    assert_eq!((found.capture.interfaces.len(), found.names_and_secrets), (2, vec![(4, b"near".to_vec())]));
    // Whoever may see some packets only gets none of them.
    let bound = File::create(&path).unwrap();
    let output = Arc::new(DumpOutput {
        format: DumpFormat::Pcapng,
        target: Target::Stream(bound),
        budget: None,
        disk: Arc::new(crate::disk::SystemDisk),
        spool: None,
    });
    let file =
        OutFile::create(&output, &*bench.ring, bench.link_type, &evidence, &Arc::default(), "").unwrap();
    let mut file = file.without_annexes();
    bench.write(&mut file, near, 10, "");
    assert_eq!(bench.publish(file, "bound"), None);
    let found = oracle::read(&path).unwrap();
    assert_eq!((found.capture.packets.len(), found.names_and_secrets), (1, vec![]));
}
