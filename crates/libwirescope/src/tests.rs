//! A member of a run that is played here, by the Rust and the C interface.

use crate::c;
use crate::{BATCH_PACKETS_MAX, Counts, Member, Next, OpenError, Options};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};
use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{Append, LaneWriter, Ring, RingConfig, Steering};
use scope_share::message::{Greeting, news};
use scope_share::passing::{Heard, hear, say};
use scope_share::{Answer, Page, Refusal};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SEGMENT_BYTES: usize = 64 << 10;

fn ring(segments: u64) -> (Arc<Ring>, LaneWriter) {
    let ring = Ring::create(&RingConfig {
        ring_bytes: segments * SEGMENT_BYTES as u64,
        segment_bytes: Some(SEGMENT_BYTES as u64),
        workers: 1,
        lanes: 1,
        run_id: [9; 16],
    })
    .unwrap();
    let mut lane = ring.open_lane(0, LinkType::ETHERNET).unwrap();
    let interface = Interface {
        name: "eth0".to_string(),
        description: String::new(),
        link_type: LinkType::ETHERNET,
        snap_len: 0,
        timestamps: TimestampSource::Generator,
        part: 0,
    };
    let number = ring.register(lane.lane(), &interface).unwrap();
    lane.add_interface(number);
    (ring, lane)
}

/// A packet of UDP, whose number says which flow it is of, and how long it is.
fn data(packet: u64) -> Vec<u8> {
    let mut data = vec![0; 42 + (packet * 7919 % 1000) as usize];
    data[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    (data[22], data[23]) = (64, 17);
    data[26..34].copy_from_slice(&[10, 0, 0, (packet % 23) as u8, 10, 0, 1, 1]);
    data[34..38].copy_from_slice(&[0x80, (packet % 23) as u8, 0, 53]);
    data[38..40].copy_from_slice(&(packet as u16).to_be_bytes());
    data
}

fn key(data: &[u8]) -> KeyEntry {
    KeyEntry::new(&Headers::parse(LinkType::ETHERNET, data))
}

fn write(lane: &mut LaneWriter, packets: u64) {
    for _ in 0..packets {
        let number = lane.next_packet();
        let data = data(number);
        let (captured_len, original_len) = (data.len() as u32, data.len() as u32 + 4);
        let (flags, lost_before) = (u32::from(number.is_multiple_of(5)), number % 7 / 6 * 100);
        let head = PacketHead {
            interface: 0,
            time_ns: number as i64 + 1,
            captured_len,
            original_len,
            flags,
            lost_before,
        };
        while lane.append(0, &head, key(&data), &data) == Append::NeedsSegment {
            assert!(lane.claim());
        }
    }
    lane.commit();
}

/// What a run has of its one member.
struct Run {
    connection: OwnedFd,
    page: Page,
    greeting: Greeting,
}

/// A socket at which one member is let in, or not.
struct Door {
    folder: tempfile::TempDir,
    run: JoinHandle<Option<Run>>,
}

impl Door {
    fn new(answer: Answer, files: [OwnedFd; 2]) -> Door {
        let folder = tempfile::tempdir().unwrap();
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(folder.path().join("attach")).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        let run = std::thread::spawn(move || {
            let connection = accept(&socket).unwrap();
            let greeting = loop {
                match hear(&connection) {
                    Ok(Heard::Message(bytes)) => break Greeting::read(&bytes).unwrap(),
                    Ok(_) => return None,
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            let page = Page::create().unwrap();
            let all = [files[0].as_fd(), files[1].as_fd(), page.as_fd()];
            let is_joined = matches!(answer, Answer::Joined { .. });
            say(&connection, &answer.to_bytes(), if is_joined { &all } else { &[] }).unwrap();
            is_joined.then_some(Run { connection, page, greeting })
        });
        Door { folder, run }
    }

    fn of(ring: &Ring, is_kept: bool) -> Door {
        let files = ring.sealed_files().unwrap().map(|file| file.try_clone_to_owned().unwrap());
        Door::new(Answer::Joined { member: 3, is_kept }, files)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("attach")
    }

    fn join(self, group: &str, options: &str) -> (Member, Run) {
        let member = Member::open(Some(&self.path()), group, &Options::parse(options).unwrap()).unwrap();
        (member, self.run.join().unwrap().unwrap())
    }
}

const NO_WAIT: Option<Duration> = Some(Duration::ZERO);

/// Reads all that is there: packets, and how many were said to be missing.
fn read(member: &mut Member) -> (Vec<u64>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    while let Next::Packets(packets) = member.next(NO_WAIT).unwrap() {
        assert!(packets <= BATCH_PACKETS_MAX);
        let all: Vec<_> = member.packets().map(|it| (it.time_ns, it.data.to_vec(), it.lost_before)).collect();
        for index in (0..packets).rev().chain(0..packets) {
            let packet = member.packet(index).unwrap();
            assert_eq!(
                (packet.time_ns, packet.data.len()),
                (all[index as usize].0, all[index as usize].1.len())
            );
        }
        assert!(member.packet(packets).is_none() && member.is_whole());
        for (time_ns, bytes, lost_before) in all {
            let number = time_ns as u64 - 1;
            assert_eq!(bytes, data(number));
            numbers.push(number);
            lost += lost_before;
        }
    }
    (numbers, lost)
}

#[test]
fn a_member_sees_each_packet_once_as_it_was_written_to_the_end_of_the_run() {
    let (ring, mut lane) = ring(64);
    write(&mut lane, 10);
    let (mut member, run) = Door::of(&ring, false).join("ring", "name=mine,weight=2,class=voip");
    let expected = Greeting { weight: 2, class: "voip".to_string(), ..Greeting::new("ring", "mine") };
    assert_eq!((run.greeting, member.next(NO_WAIT)), (expected, Ok(Next::NoneYet)));
    write(&mut lane, 2500);
    let (numbers, lost) = read(&mut member);
    assert_eq!(numbers, (10..2510).collect::<Vec<_>>());
    assert_eq!(lost, (10..2510).map(|number| number % 7 / 6 * 100).sum::<u64>());
    assert_eq!(member.counts(), Counts { seen: 2500, missed: 0, behind: 0 });
    write(&mut lane, 5);
    assert_eq!(member.counts(), Counts { seen: 2500, missed: 0, behind: 5 });
    drop(run.connection);
    assert_eq!(member.next(None), Ok(Next::Packets(5)), "what it left is still read");
    assert_eq!((member.next(None), member.next(NO_WAIT)), (Ok(Next::Ended), Ok(Next::Ended)));
    assert!(member.packet(0).is_none() && member.packets().next().is_none());
    let said = run.page.read().unwrap();
    assert_eq!((said.began, said.read, said.missed, said.waits), (10, 2505, 0, false));
    let name = |it: Option<&crate::Interface>| it.map(|it| (it.name.clone(), it.link_type));
    assert_eq!(name(member.interface(0).unwrap()), Some(("eth0".to_string(), LinkType::ETHERNET)));
    assert_eq!(name(member.interface(1).unwrap()), None);
}

#[test]
fn a_member_that_the_run_removes_reads_the_rest_and_then_knows() {
    let (ring, mut lane) = ring(64);
    let (mut member, run) = Door::of(&ring, true).join("ids", "");
    write(&mut lane, 10);
    run.page.remove().unwrap();
    drop(run.connection);
    assert_eq!(member.next(None), Ok(Next::Packets(10)));
    let words = member.next(None).unwrap_err().to_string();
    assert!(words.contains("the run has removed this member"), "{words}");
}

#[test]
fn what_is_overrun_while_it_is_looked_at_is_told_counted_and_missing_before_the_next() {
    let (ring, mut lane) = ring(16);
    let (mut member, _run) = Door::of(&ring, false).join("ring", "");
    write(&mut lane, 10);
    assert_eq!((member.next(NO_WAIT), member.is_whole()), (Ok(Next::Packets(10)), true));
    write(&mut lane, 6000); // several turns
    let readable = member.packets().map(|packet| packet.data.to_vec().len()).sum::<usize>();
    assert!(readable <= SEGMENT_BYTES && !member.is_whole() && !member.is_whole());
    assert!(matches!(member.next(NO_WAIT), Ok(Next::Packets(_))));
    let first = member.packet(0).unwrap();
    let (number, lost_before) = (first.time_ns as u64 - 1, first.lost_before);
    assert_eq!(lost_before, number + number % 7 / 6 * 100);
    assert_eq!(member.counts().missed, number);
    read(&mut member);
    let counts = member.counts();
    assert_eq!((counts.seen + counts.missed, counts.behind), (6010, 0));
}

#[test]
fn parts_have_each_packet_once_and_flows_whole() {
    let (ring, mut lane) = ring(64);
    let parts: Vec<Member> =
        (1..=3).map(|part| Door::of(&ring, false).join("ring", &format!("part={part}/3")).0).collect();
    write(&mut lane, 3000);
    let mut all = Vec::new();
    for (part, mut member) in (0..).zip(parts) {
        let (numbers, _) = read(&mut member);
        assert!(!numbers.is_empty() && numbers.is_sorted());
        assert!(numbers.iter().all(|&number| Steering::new(part, 3).takes(&key(&data(number)))));
        assert_eq!(member.counts(), Counts { seen: 3000, missed: 0, behind: 0 });
        all.extend(numbers);
    }
    all.sort_unstable();
    assert_eq!(all, (0..3000).collect::<Vec<_>>());
}

#[test]
fn the_past_begins_where_it_was_asked_for() {
    let (ring, mut lane) = ring(64);
    write(&mut lane, 3000); // at 1 to 3000 ns
    let (mut member, _run) = Door::of(&ring, false).join("ring", "past=700ns");
    write(&mut lane, 10);
    assert_eq!(read(&mut member).0, (2299..3010).collect::<Vec<_>>());
    let (mut half, _run) = Door::of(&ring, false).join("ring", "past=1h,part=1/2");
    let (mut other, _other_run) = Door::of(&ring, false).join("ring", "past=1h,part=2/2");
    assert_eq!(read(&mut half).0.len() + read(&mut other).0.len(), 3010);
}

fn is_readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

#[test]
fn a_member_of_a_group_says_that_it_waits_and_is_woken() {
    let (ring, mut lane) = ring(64);
    let (mut member, run) = Door::of(&ring, true).join("ids", "");
    assert!(member.is_kept());
    let said = || run.page.read().unwrap();
    assert_eq!((said().began, said().waits), (0, false), "said before anything came");
    assert_eq!((member.next(NO_WAIT), said().waits), (Ok(Next::NoneYet), true));
    let connection = || run.connection.as_fd();
    assert!(!is_readable(member.poll_fd().unwrap(), Duration::ZERO));
    write(&mut lane, 300);
    say(connection(), &news(), &[]).unwrap();
    assert!(is_readable(member.poll_fd().unwrap(), Duration::from_secs(9)));
    assert_eq!(read(&mut member).0.len(), 300);
    let before = said().done[0];
    lane.seal();
    write(&mut lane, 1);
    assert!(matches!(member.next(NO_WAIT), Ok(Next::Packets(1))));
    assert_eq!((said().waits, said().done[0]), (false, before + 1), "said with the segment's end");
    assert_eq!(member.next(NO_WAIT), Ok(Next::NoneYet));
    // It sleeps until there is news.
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            write(&mut lane, 2);
            say(connection(), &news(), &[]).unwrap();
        });
        assert_eq!(member.next(None), Ok(Next::Packets(2)));
    });
    assert!(began.elapsed() >= Duration::from_millis(30));
    drop(run.connection);
    assert!(is_readable(member.poll_fd().unwrap(), Duration::from_secs(9)));
    assert_eq!(member.next(NO_WAIT), Ok(Next::Ended));
}

#[test]
fn the_descriptor_of_the_ring_is_readable_after_a_moment() {
    let (ring, mut lane) = ring(64);
    let (mut member, _run) = Door::of(&ring, false).join("ring", "");
    for _ in 0..3 {
        member.poll_fd().unwrap();
        assert_eq!(member.next(NO_WAIT), Ok(Next::NoneYet));
        assert!(is_readable(member.poll_fd().unwrap(), Duration::from_secs(9)));
        write(&mut lane, 1);
        assert_eq!(member.next(NO_WAIT), Ok(Next::Packets(1)));
    }
    let began = Instant::now();
    assert_eq!(member.next(Some(Duration::from_millis(20))), Ok(Next::NoneYet));
    assert!(began.elapsed() >= Duration::from_millis(20));
}

#[test]
fn refusals_and_sockets_of_others_are_told_with_what_helps() {
    let (ring, _lane) = ring(16);
    let files = || ring.sealed_files().unwrap().map(|file| file.try_clone_to_owned().unwrap());
    let words = |path: &std::path::Path, group: &str| {
        Member::open(Some(path), group, &Options::default()).unwrap_err().to_string()
    };
    for (why, said, expected) in [
        (
            Refusal::NotAllowed,
            "user 7 may not read group 'ids'",
            "may not read group 'ids'; start the run with --group ids,allow=USER:@GROUP",
        ),
        (
            Refusal::NoSuchGroup,
            "there is no such group",
            "group: ids: there is no such group; see: wirescope groups",
        ),
        (Refusal::Full, "64 members", "64 members; wait until another member ends"),
        (Refusal::Version, "version 9", "version 9; use the same version"),
    ] {
        let door = Door::new(Answer::Refused { why, words: said.to_string() }, files());
        let told = words(&door.path(), "ids");
        assert!(told.contains(expected), "{told}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(
        words(&folder.path().join("none"), "ring").contains("none: no run listens there; start the run with")
    );
    let [of_ring, of_group] = ["ring", "ids"].map(|group| words(&folder.path().join("none"), group));
    assert!(of_ring.ends_with("--attach SOCKET and --attach-ring USER:@GROUP"), "{of_ring}");
    assert!(of_group.ends_with("--attach SOCKET and --group ids"), "{of_group}");
    let _stream = std::os::unix::net::UnixListener::bind(folder.path().join("stream")).unwrap();
    assert!(words(&folder.path().join("stream"), "ring").contains("a socket of another kind"));
    assert!(words(&folder.path().join("x".repeat(200)), "ring").starts_with("socket: "));
    assert!(words(folder.path(), "").contains("group: '': it is no name of a group"));
    let unsealed =
        Door::new(Answer::Joined { member: 0, is_kept: false }, [file(&[0; 9999], false), file(&[], false)]);
    assert!(words(&unsealed.path(), "ring").contains("not sealed"));
    let short = Door::new(
        Answer::Joined { member: 0, is_kept: false },
        [file(&[0; 9999], true), file(&[0; 9999], true)],
    );
    assert!(words(&short.path(), "ring").contains("this is no ring, or a damaged one"));
    let error = Member::open(None, "ids", &Options::parse("part=1/2").unwrap()).unwrap_err();
    assert!(matches!(error, OpenError::Options(_)));
}

fn file(bytes: &[u8], is_sealed: bool) -> OwnedFd {
    let file = memfd_create(c"x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes.len() as u64).unwrap();
    for (at, part) in (0..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
        if part.iter().any(|&byte| byte != 0) {
            assert_eq!(rustix::io::pwrite(&file, part, at).unwrap(), part.len());
        }
    }
    if is_sealed {
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    }
    file
}

/// A copy of a ring's file, changed.
fn changed(of: BorrowedFd<'_>, change: impl FnOnce(&mut [u8])) -> OwnedFd {
    let mut bytes = vec![0; rustix::fs::fstat(of).unwrap().st_size as usize];
    assert_eq!(rustix::io::pread(of, &mut bytes, 0).unwrap(), bytes.len());
    change(&mut bytes);
    file(&bytes, true)
}

#[test]
fn a_ring_that_lies_is_given_up_and_nothing_outside_of_it_is_lent() {
    let (ring, mut lane) = ring(16);
    write(&mut lane, 400);
    let files = ring.sealed_files().unwrap();
    let mut next = 1u64;
    let mut random = move |below: u64| {
        next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (next >> 33) % below
    };
    let mut given_up = 0;
    for round in 0..60 {
        let slots = changed(files[1], |bytes| {
            for _ in 0..=round {
                let at = random((bytes.len() / 4) as u64) as usize * 4;
                let word = [u32::MAX, 0, 36, random(1 << 20) as u32][random(4) as usize];
                // Half of it in the first blocks.
                let at = if random(2) == 0 { at } else { at % 4096 };
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
        });
        // The lie of a segment about itself, too: the words in front of the interfaces.
        let tables = changed(files[0], |bytes| {
            for _ in 0..round / 20 {
                let at = random(24 << 10) as usize / 8 * 8 + 4096;
                bytes[at..at + 8].copy_from_slice(&random(1 << 34).to_le_bytes());
            }
        });
        let door = Door::new(Answer::Joined { member: 0, is_kept: round % 2 == 0 }, [tables, slots]);
        let (mut member, run) = door.join("ring", ["past=1h", "past=1h,part=1/2", ""][round as usize % 3]);
        drop(run);
        for _ in 0..200 {
            match member.next(NO_WAIT) {
                Ok(Next::Packets(packets)) => {
                    let lent: usize = member.packets().map(|packet| packet.data.to_vec().len()).sum();
                    let many = (0..packets).filter(|&index| member.packet(index).is_some()).count();
                    assert!(lent <= SEGMENT_BYTES * BATCH_PACKETS_MAX as usize && many <= packets as usize);
                }
                Ok(_) => break,
                Err(error) => {
                    assert_eq!(member.next(None), Err(error), "it stays like that");
                    given_up += 1;
                    break;
                }
            }
        }
    }
    assert!(given_up > 5, "{given_up}");
}

/// What `ws_open` says, with so much room for it.
fn opened(socket: &str, group: Option<&str>, options: Option<&str>, room: usize) -> (*mut c::ws, String) {
    let [socket, group, options] =
        [Some(socket), group, options].map(|text| text.map(|text| CString::new(text).unwrap()));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
    let mut error = vec![0x55u8; room + 8];
    // SAFETY: texts with their NUL, and as much room as is said; all outlive the call.
    let w = unsafe {
        c::ws_open(pointer(&socket), pointer(&group), pointer(&options), error.as_mut_ptr().cast(), room)
    };
    assert_eq!(error[room..], [0x55; 8], "nothing behind the room is written");
    let words = CStr::from_bytes_until_nul(&error).map(|words| words.to_str().unwrap().to_string());
    (w, if room > 0 { words.unwrap() } else { String::new() })
}

#[test]
fn c_programs_that_make_mistakes_get_an_answer() {
    for room in [0, 1, 2, 10, 40, 500] {
        let (w, words) = opened("/nowhere/ä", Some("ring"), Some("weight=0,ä=1"), room);
        assert!(w.is_null() && (words.len() < room || room == 0));
        assert!("options: weight=0: a weight is from".starts_with(&words) || room > 10);
    }
    for (group, options, expected) in [
        (None, None, "group: '': it is no name"),
        (Some("ring"), None, "no run listens there"),
        (Some("ring"), Some("x"), "options: x: it has no value"),
        (Some("ids"), Some("past=1s"), "only the group ring has it"),
    ] {
        let (w, words) = opened("/nowhere/attach", group, options, 500);
        assert!(w.is_null() && words.contains(expected), "{words}");
    }
    // SAFETY: NULL is refused everywhere, and texts that are no UTF-8 have their NUL.
    unsafe {
        assert!(c::ws_open(c"\xff".as_ptr(), null(), null(), null_mut(), 7).is_null());
        assert!(c::ws_open(null(), null(), null(), null_mut(), 0).is_null());
        assert_eq!((c::ws_next(null_mut(), -1), c::ws_packet(null_mut(), 0, null_mut())), (-2, -1));
        assert_eq!((c::ws_done(null_mut()), c::ws_fd(null_mut())), (0, -1));
        assert_eq!(
            (c::ws_counts(null_mut(), null_mut()), c::ws_interface(null_mut(), 0, null_mut())),
            (-1, -1)
        );
        assert_eq!((CStr::from_ptr(c::ws_error(null_mut())), c::ws_abi()), (c"", 1));
        c::ws_close(null_mut());
    }
}

/// A structure of the caller, with room behind it that is not to be written.
fn zeroed<T>() -> T {
    // SAFETY: the structures here are numbers and one pointer, for which zeros are fine.
    unsafe { std::mem::zeroed() }
}

#[test]
fn c_programs_read_in_place_whatever_size_their_structures_have() {
    let (ring, mut lane) = ring(64);
    let door = Door::of(&ring, false);
    let (w, words) = opened(door.path().to_str().unwrap(), Some("ring"), Some("name=c"), 100);
    assert!(!w.is_null() && words.is_empty());
    let run = door.run.join().unwrap().unwrap();
    write(&mut lane, 7);
    let full = size_of::<c::ws_packet>() as u32;
    // SAFETY: a ws of this thread, and structures that are as long as they say.
    unsafe {
        assert_eq!((c::ws_next(w, 0), c::ws_done(w)), (7, 0));
        let mut packet = c::ws_packet { size: full, ..zeroed() };
        for index in 0..7 {
            assert_eq!(c::ws_packet(w, index, &mut packet), 0);
            let number = index as u64;
            let bytes = std::slice::from_raw_parts(packet.data, packet.captured as usize);
            assert_eq!((bytes, packet.time_ns, packet.size), (&data(number)[..], index as i64 + 1, full));
            assert_eq!((packet.original, packet.interface), (packet.captured + 4, 0));
            assert_eq!(
                (packet.flags, packet.lost_before, packet.mark),
                (u32::from(number.is_multiple_of(5)), number / 6 * 100, 0)
            );
        }
        for index in [-1, 7, i32::MAX, i32::MIN] {
            assert_eq!(c::ws_packet(w, index, &mut packet), -1);
        }
        // One of an older header, of a newer one, and one that says that it is nothing.
        let mut older = c::ws_packet { size: 16, time_ns: 77, ..zeroed() };
        assert_eq!((c::ws_packet(w, 3, &mut older), older.captured as usize), (0, data(3).len()));
        assert_eq!((older.time_ns, older.size, older.data.is_null()), (77, 16, false));
        let mut newer =
            [c::ws_packet { size: full + 48, ..zeroed() }, c::ws_packet { original: 88, ..zeroed() }];
        assert_eq!((c::ws_packet(w, 3, newer.as_mut_ptr()), newer[0].time_ns, newer[1].original), (0, 4, 88));
        let mut nothing = c::ws_packet { size: 0, captured: 5, ..zeroed() };
        assert_eq!((c::ws_packet(w, 0, &mut nothing), nothing.captured), (-1, 5));
        let mut interface = c::ws_interface { size: size_of::<c::ws_interface>() as u32, ..zeroed() };
        assert_eq!((c::ws_interface(w, 0, &mut interface), interface.link_type), (0, 1));
        assert_eq!(&interface.name[..5], b"eth0\0");
        assert_eq!(c::ws_interface(w, 1, &mut interface), -1);
        let mut counts = c::ws_counts { size: size_of::<c::ws_counts>() as u32, ..zeroed() };
        write(&mut lane, 2);
        assert_eq!((c::ws_counts(w, &mut counts), counts.seen, counts.missed, counts.behind), (0, 7, 0, 2));
        assert_eq!((c::ws_next(w, 0), c::ws_next(w, 1), c::ws_fd(w) >= 0), (2, 0, true));
        assert_eq!(c::ws_packet(w, 0, &mut packet), -1, "those of the last batch are given back");
        drop(run.connection);
        assert_eq!((c::ws_next(w, -1), c::ws_next(w, 0), CStr::from_ptr(c::ws_error(w))), (-1, -1, c""));
        c::ws_close(w);
    }
    assert_eq!(run.page.read().unwrap().read, 9);
}
