//! Members by the dozen, and all that can be sent to a door by those who mean no good.

use super::*;
use crate::plan::Allowed;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket_with};
use scope_packet::pcapng::PacketHead;
use scope_packet::{Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{Append, Begin, LaneWriter, OutsideReader, RingConfig};
use scope_share::{JoinError, Progress, ask, join};
use tempfile::TempDir;

/// A ring with a lane, and its open door.
struct Stand {
    _folder: TempDir,
    path: PathBuf,
    ring: Arc<Ring>,
    lane: LaneWriter,
    interface: usize,
    attach: Attach,
}

impl Stand {
    fn new(ring: Allowed) -> Stand {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("attach");
        let config = RingConfig {
            ring_bytes: 2 << 20,
            segment_bytes: Some(64 << 10),
            workers: 1,
            lanes: 1,
            run_id: [7; 16],
        };
        let made = Ring::create(&config).unwrap();
        let mut lane = made.open_lane(0, LinkType::ETHERNET).unwrap();
        let number = made.register(
            0,
            &Interface {
                name: "test0".to_string(),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::Generator,
                part: 0,
            },
        );
        let interface = lane.add_interface(number.unwrap());
        let prepared = Prepared::open(&AttachPlan::of_ring(path.clone(), ring), &made, None).unwrap();
        let attach = prepared.start(&made, true, FilterEngine::default()).unwrap();
        Stand { _folder: folder, path, ring: made, lane, interface, attach }
    }

    fn write(&mut self, packets: u64) {
        for _ in 0..packets {
            let time_ns = self.lane.next_packet() as i64;
            let data = [0x55; 60];
            let head = PacketHead { time_ns, captured_len: 60, original_len: 60, ..PacketHead::default() };
            while self.lane.append(self.interface, &head, KeyEntry::default(), &data) == Append::NeedsSegment
            {
                assert!(self.lane.claim());
            }
        }
        self.lane.commit();
    }

    /// Waits until the door has seen what was done.
    fn until(&self, is: impl Fn(&AttachStatus) -> bool) -> AttachStatus {
        let begun = Instant::now();
        loop {
            let status = self.attach.status();
            if is(&status) {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> OwnedFd {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&self.path).unwrap()).unwrap();
        socket
    }
}

fn me() -> Allowed {
    Allowed { users: vec![User::current()], groups: Vec::new() }
}

#[test]
fn a_member_reads_what_comes_and_is_seen_until_it_goes() {
    let mut stand = Stand::new(me());
    stand.write(10);
    let joined = join(&stand.path, &Greeting::new("ring", "reader")).unwrap();
    let mut reader = OutsideReader::map(joined.ring(), Begin::Now).unwrap();
    stand.write(5);
    let batch = reader.next_batch().unwrap().unwrap();
    assert_eq!((batch.first_packet, batch.packets, batch.blocks().count()), (10, 5, 5));
    assert_eq!(reader.interfaces().unwrap()[0].name, "test0");
    let counts = reader.counts();
    let said = Progress {
        began: counts.began,
        read: counts.read,
        missed: counts.missed,
        waits: true,
        ..Progress::default()
    };
    joined.page.write(&said).unwrap();
    stand.write(2);
    let status =
        stand.until(|status| status.groups[0].members.iter().any(|member| member.standing.given == 7));
    let member = &status.groups[0].members[0];
    assert_eq!(
        (member.name.as_str(), member.pid as u32, status.groups[0].counts.published),
        ("reader", std::process::id(), 17)
    );
    assert_eq!((member.standing.read, member.standing.missed, member.standing.behind), (5, 0, 2));
    assert!(!joined.is_over());
    drop(joined);
    let status = stand.until(|status| status.groups[0].gone.members == 1);
    assert_eq!((status.groups[0].members.len(), status.groups[0].gone.standing.given), (0, 7));
}

#[test]
fn so_much_of_the_ring_is_held_as_was_asked_for_where_its_reader_is() {
    let mut stand = Stand::new(me());
    let segments = stand.ring.segments() as u64;
    let holding = |hold: u16| Greeting { hold, ..Greeting::new("ring", "holder") };
    let of = |status: &AttachStatus| {
        status.groups[0].members.first().map(|it| (it.hold_bytes, it.held_bytes)).unwrap_or_default()
    };
    for (group, hold, words) in [
        ("ring", 2501, "of the ring 25.00% can still be held for members"),
        ("other", 1, "there is no group"),
    ] {
        let refused = join(&stand.path, &Greeting { hold, ..Greeting::new(group, "a") }).unwrap_err();
        assert!(refused.to_string().starts_with(words), "{refused}");
    }
    let joined = join(&stand.path, &holding(2500)).unwrap();
    let refused = join(&stand.path, &holding(1)).unwrap_err();
    assert!(refused.to_string().starts_with("of the ring 0.00% can still be held"), "{refused}");
    let mut reader = OutsideReader::map(joined.ring(), Begin::Now).unwrap();
    joined.page.write(&Progress { done: reader.done(), ..Progress::default() }).unwrap();
    let bytes = segments / 4 * stand.ring.segment_bytes() as u64;
    let in_segment = stand.ring.segment_bytes() as u64 / 140;
    stand.write(in_segment * segments / 2);
    let held = stand.until(|status| of(status) == (bytes, bytes));
    stand.write(in_segment * segments * 3); // several turns
    let mut packets = 0;
    while let Some(lent) = reader.lend(u32::MAX).unwrap() {
        assert!(reader.is_whole(&lent));
        if lent.missed_before > 0 {
            break;
        }
        packets += u64::from(lent.packets);
    }
    assert!(packets * 140 >= bytes / 2, "{packets} {held:?}");
    // What a page says that lies is held no longer, and no more than was asked for.
    joined.page.write(&Progress { done: [u64::MAX; _], ..Progress::default() }).unwrap();
    stand.until(|status| of(status) == (bytes, 0));
    joined.page.write(&Progress { done: [0; _], ..Progress::default() }).unwrap();
    drop(joined);
    stand.until(|_| stand.ring.budget().taken() == 0);
}

#[test]
fn nobody_gets_the_ring_who_was_not_named_and_is_told_why() {
    let stand = Stand::new(Allowed::default());
    let refused = join(&stand.path, &Greeting::new("ring", "reader")).unwrap_err();
    assert!(matches!(refused, JoinError::Refused { why: Refusal::NotAllowed, .. }), "{refused}");
    let stand = Stand::new(me());
    let refused = join(&stand.path, &Greeting::new("other", "reader")).unwrap_err();
    assert_eq!(refused.to_string(), "there is no group 'other'; there is ring");
}

#[test]
fn whoever_only_asks_is_answered_and_no_member() {
    let stand = Stand::new(me());
    ask(&stand.path, &Greeting::new("ring", "reader"), 1).unwrap();
    let refused = ask(&stand.path, &Greeting::new("other", "reader"), 1).unwrap_err();
    assert_eq!(refused.to_string(), "there is no group 'other'; there is ring");
    let status = stand.until(|_| true);
    assert_eq!((status.groups[0].members.len(), status.groups[0].gone.members), (0, 0));
    let stand = Stand::new(Allowed::default());
    let refused = ask(&stand.path, &Greeting::new("ring", "reader"), 1).unwrap_err();
    assert!(matches!(refused, JoinError::Refused { why: Refusal::NotAllowed, .. }), "{refused}");
}

#[test]
fn what_is_sent_to_it_can_t_disturb_it_and_is_counted() {
    let stand = Stand::new(me());
    let greeting = Greeting::new(RING, "a").to_bytes();
    let member = join(&stand.path, &Greeting::new("ring", "good")).unwrap();
    // Each on a connection of its own.
    let long = stand.connect();
    say(&long, &[7; 5000], &[]).unwrap();
    let with_file = stand.connect();
    let file = memfd_create(c"x", MemfdFlags::CLOEXEC).unwrap();
    say(&with_file, &greeting, &[file.as_fd()]).unwrap();
    let foreign = stand.connect();
    say(&foreign, b"GET / HTTP/1.1\r\n\r\n", &[]).unwrap();
    let mut other = greeting.clone();
    other[8] = 9;
    let newer = stand.connect();
    say(&newer, &other, &[]).unwrap();
    let _silent = stand.connect();
    let twice = stand.connect();
    say(&twice, &greeting, &[]).unwrap();
    let _ = say(&twice, &greeting, &[]);
    let status = stand.until(|status| {
        let DoorCounts { silent, too_long, with_files, unexpected, refused, .. } = status.counts;
        let of = |why: Refusal| refused[Refusal::ALL.iter().position(|other| *other == why).unwrap()];
        (silent, too_long, with_files, unexpected) == (1, 1, 1, 1)
            && (of(Refusal::BadMessage), of(Refusal::Version)) == (3, 1)
    });
    assert_eq!((status.groups[0].members.len(), status.groups[0].members[0].name.as_str()), (1, "good"));
    assert!(!member.is_over());
}

#[test]
fn a_thousand_connections_leave_a_member_as_it_was() {
    let mut stand = Stand::new(me());
    let member = join(&stand.path, &Greeting::new("ring", "good")).unwrap();
    let mut reader = OutsideReader::map(member.ring(), Begin::Now).unwrap();
    let flood: Vec<Option<OwnedFd>> = (0..1000)
        .map(|_| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            connect(&socket, &SocketAddrUnix::new(&stand.path).unwrap()).ok().map(|()| socket)
        })
        .collect();
    stand.write(3);
    assert_eq!(reader.next_batch().unwrap().unwrap().packets, 3);
    stand.until(|status| status.counts.silent + status.counts.connections > 0);
    drop(flood);
    // Those that took its places were sent away.
    let begun = Instant::now();
    while let Err(error) = join(&stand.path, &Greeting::new("ring", "late")) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!member.is_over());
}

#[test]
fn members_know_when_the_run_is_over_and_read_on_to_the_end() {
    let mut stand = Stand::new(me());
    let member = join(&stand.path, &Greeting::new("ring", "reader")).unwrap();
    let mut reader = OutsideReader::map(member.ring(), Begin::Now).unwrap();
    stand.write(4);
    stand.lane.seal();
    let Stand { path, lane, attach, .. } = stand;
    attach.end();
    assert!(member.is_over());
    drop((attach, lane)); // the run's own mapping is gone
    assert_eq!(reader.next_batch().unwrap().unwrap().packets, 4);
    assert!(reader.next_batch().unwrap().is_none() && !path.exists());
}
