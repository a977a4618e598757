//! Members of groups beside a writer: who gets what, what is missed, and that all of it adds up.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_group::group::GroupCounts;
use scope_group::rules::{Rule, RuleSet, Test};
use scope_group::seat::MEMORY_BYTES_MIN;
use scope_group::{Group, GroupPlan, Newcomer, Phase, Seat, Settings, Sharer, Sharing};
use scope_machine::cpus::Pinning;
use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{Append, Begin, LaneWriter, OutsideReader, Ring, RingConfig};
use scope_share::Progress;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bounds of what is waited for: a slow machine, not a broken one.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run: a ring with a writer, groups, and their threads.
struct Run {
    ring: Arc<Ring>,
    lane: LaneWriter,
    port: usize,
    groups: Vec<Arc<Group>>,
    sharing: Sharing,
    is_live: bool,
    written: u64,
}

/// A program.
struct Member {
    seat: Arc<Seat>,
    reader: OutsideReader,
    /// Numbers of the packets that it got.
    got: Vec<u32>,
    /// What its packets say of flows: flow, by number.
    flows: BTreeMap<u32, u16>,
    gaps: u64,
    _other: OwnedFd,
}

fn plan(name: &str, filter: &str, steer: &str) -> GroupPlan {
    let filter = Filter::compile(filter, VlanRule::default(), &[]).unwrap();
    GroupPlan {
        name: name.to_string(),
        settings: Settings {
            filter,
            interface: None,
            steer: steer.parse().unwrap(),
            rules: Default::default(),
        },
        memory_bytes: MEMORY_BYTES_MIN,
        members_max: 6,
        members: 0,
        stuck: None,
    }
}

/// An Ethernet frame of a flow, whichever way it goes, with its number.
fn frame(flow: u16, number: u32) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    let (here, there) = ([10, 0, high, low], [192, 0, 2, 1]);
    let (here_port, there_port) = (1000 + flow % 7, 53);
    let is_back = number.is_multiple_of(2);
    let ((from, from_port), (to, to_port)) = match is_back {
        true => ((there, there_port), (here, here_port)),
        false => ((here, here_port), (there, there_port)),
    };
    let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    data.extend(from);
    data.extend(to);
    data.extend([from_port, to_port, 26, 0].iter().flat_map(|word: &u16| word.to_be_bytes()));
    data.extend(number.to_be_bytes());
    data.extend(flow.to_be_bytes());
    data.resize(60 + usize::from(flow % 5), 0);
    data
}

impl Run {
    fn new(plans: &[GroupPlan], is_live: bool) -> Run {
        let ring = Ring::create(&RingConfig {
            ring_bytes: 4 << 20,
            segment_bytes: Some(64 << 10),
            workers: 1,
            lanes: 1,
            run_id: [7; 16],
        });
        let ring = ring.unwrap();
        let mut lane = ring.open_lane(0, LinkType::ETHERNET).unwrap();
        let interface = |name: &str| Interface {
            name: name.to_string(),
            description: String::new(),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            timestamps: TimestampSource::Generator,
            part: 0,
        };
        ring.register(0, &interface("other0")).unwrap();
        let port = lane.add_interface(ring.register(0, &interface("test0")).unwrap());
        let groups: Vec<Arc<Group>> =
            plans.iter().map(|plan| Arc::new(Group::create(plan, ring.run_id()).unwrap())).collect();
        let sharing = Sharing::start(&Sharer {
            ring: ring.clone(),
            groups: groups.clone(),
            threads: 2,
            pinning: Pinning::Anywhere,
            is_live,
            engine: FilterEngine::default(),
        });
        Run { ring, lane, port, groups, sharing: sharing.unwrap(), is_live, written: 0 }
    }

    fn join(&self, group: usize, weight: u16) -> Member {
        self.join_as(group, weight, "")
    }

    fn join_as(&self, group: usize, weight: u16, class: &str) -> Member {
        let (connection, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let free = self.groups[group].seats().iter().find(|seat| seat.phase() == Phase::Free);
        let seat = free.expect("a free seat").clone();
        assert!(seat.enter(Newcomer { weight, class: class.to_string(), connection }));
        let reader = OutsideReader::map(seat.memory().sealed_files().unwrap(), Begin::Now).unwrap();
        let mut member =
            Member { seat, reader, got: Vec::new(), flows: BTreeMap::new(), gaps: 0, _other: other };
        member.say(false);
        self.sharing.ring();
        until(|| member.seat.phase() == Phase::Active);
        member
    }

    /// Writes packets of so many flows; one after another.
    fn write(&mut self, packets: u32, flows: u16) {
        for _ in 0..packets {
            let number = self.written as u32;
            let data = frame((number.wrapping_mul(2_654_435_761) >> 7) as u16 % flows, number);
            let len = data.len() as u32;
            let head = PacketHead {
                time_ns: i64::from(number) + 1,
                captured_len: len,
                original_len: len,
                ..PacketHead::default()
            };
            let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
            while self.lane.append(self.port, &head, key, &data) == Append::NeedsSegment {
                self.claim();
            }
            self.written += 1;
            if self.written.is_multiple_of(37) {
                self.lane.commit();
            }
        }
        self.lane.commit();
        self.ring.set_clock(0, self.written as i64);
    }

    fn claim(&mut self) {
        if self.is_live {
            assert!(self.lane.claim());
            return;
        }
        until(|| !self.ring.must_wait(self.lane.lane()) && self.lane.claim_unneeded());
    }

    fn status(&self, group: usize) -> GroupCounts {
        let published = self.ring.counters().lanes.iter().map(|lane| lane.packets).sum();
        let status = self.groups[group].status(published);
        adds_up(&status);
        status
    }

    /// Waits until the thread has looked at all.
    fn settle(&self) {
        until(|| (0..self.groups.len()).all(|group| self.status(group).counts.behind == 0));
    }
}

fn until(mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "it never came");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The laws of a group.
fn adds_up(status: &GroupCounts) {
    let counts = &status.counts;
    assert_eq!(counts.published, counts.idle + counts.seen + counts.missed + counts.behind, "{status:?}");
    assert_eq!(
        counts.seen,
        counts.filtered + counts.dropped.values().sum::<u64>() + counts.unclaimed + counts.taken,
        "{status:?}"
    );
    let standings = status.members.iter().map(|member| member.standing).chain([status.gone.standing]);
    let mut given = 0;
    for standing in standings {
        assert_eq!(standing.given, standing.read + standing.missed + standing.behind, "{status:?}");
        given += standing.given;
    }
    assert_eq!(counts.taken + counts.doubled + counts.copied_in, given, "{status:?}");
}

impl Member {
    fn say(&mut self, waits: bool) {
        let counts = self.reader.counts();
        let done = self.reader.done();
        let said = Progress { began: counts.began, read: counts.read, missed: counts.missed, waits, done };
        self.seat.page().write(&said).unwrap();
    }

    /// Reads what is there.
    fn read(&mut self) {
        while let Some(batch) = self.reader.next_batch().unwrap() {
            self.gaps += batch.missed_before;
            for block in batch.blocks() {
                let data = block.data();
                let number = u32::from_be_bytes(data[42..46].try_into().unwrap());
                let flow = u16::from_be_bytes(data[46..48].try_into().unwrap());
                assert_eq!(data, frame(flow, number), "byte for byte");
                assert_eq!((block.interface(), block.time_ns()), (1, i64::from(number) + 1));
                self.got.push(number);
                self.flows.insert(number, flow);
            }
        }
        self.say(false);
    }
}

impl Member {
    /// Reads in a thread of its own, with a nap of some us where there is nothing, until the run says that it was all.
    fn read_to_the_end(mut self, nap_us: u64) -> std::thread::JoinHandle<Member> {
        std::thread::spawn(move || {
            let begun = Instant::now();
            loop {
                let is_over = self.reader.has_ended();
                let before = self.got.len();
                self.read();
                if self.got.len() == before {
                    if is_over {
                        return self;
                    }
                    assert!(begun.elapsed() < PATIENCE * 2, "the end never came");
                    std::thread::sleep(Duration::from_micros(nap_us + 100));
                }
            }
        })
    }
}

/// Each flow is at one member alone, in its order.
fn flows_are_whole(members: &[&Member]) {
    let mut owners: BTreeMap<u16, usize> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        assert!(member.got.is_sorted(), "the order of the ring");
        for flow in member.flows.values() {
            assert_eq!(*owners.entry(*flow).or_insert(at), at, "flow {flow} is at two members");
        }
    }
}

fn together(members: &[&Member]) -> Vec<u32> {
    let mut all: Vec<u32> = members.iter().flat_map(|member| member.got.iter().copied()).collect();
    all.sort_unstable();
    all
}

#[test]
fn members_together_have_each_packet_once_and_flows_are_whole() {
    let mut run = Run::new(&[plan("flows", "", "flow"), plan("dns", "udp src port 53", "ip")], true);
    run.write(500, 50);
    let mut members: Vec<Member> = [1, 2, 3].map(|weight| run.join(0, weight)).into();
    let mut alone = run.join(1, 1);
    let idle = run.status(0).counts.idle;
    assert_eq!(idle, 500);
    for _ in 0..20 {
        run.write(500, 200);
        run.settle();
        members.iter_mut().for_each(Member::read);
        alone.read();
    }
    let all: Vec<&Member> = members.iter().collect();
    assert_eq!(together(&all), (500..10_500).collect::<Vec<u32>>());
    flows_are_whole(&all);
    assert_eq!(alone.got, (500..10_500).filter(|number| number % 2 == 0).collect::<Vec<u32>>());
    let (status, dns) = (run.status(0), run.status(1));
    assert_eq!((status.counts.taken, status.counts.filtered, status.counts.doubled), (10_000, 0, 0));
    assert_eq!((dns.counts.taken, dns.counts.filtered, dns.counts.seen), (5_000, 5_000, 10_000));
    assert!(status.members.iter().all(|member| member.standing.behind == 0 && member.standing.missed == 0));
    let share = members[2].got.len() as f64 / 10_000.0;
    assert!((0.4..0.6).contains(&share), "half of the weight, of 200 flows: {share}");
}

#[test]
fn when_somebody_goes_the_others_have_its_flows_and_keep_their_own() {
    let mut run = Run::new(&[plan("flows", "", "flow")], true);
    let mut members: Vec<Member> = [1, 1, 1].map(|weight| run.join(0, weight)).into();
    run.write(3000, 300);
    run.settle();
    members.iter_mut().for_each(Member::read);
    let before: Vec<BTreeMap<u32, u16>> = members.iter().map(|member| member.flows.clone()).collect();
    let gone = members.remove(1);
    gone.seat.leave();
    run.sharing.ring();
    until(|| gone.seat.phase() == Phase::Free);
    members.iter_mut().for_each(|member| member.flows.clear());
    run.write(3000, 300);
    run.settle();
    members.iter_mut().for_each(Member::read);
    for (member, before) in members.iter().zip([&before[0], &before[2]]) {
        let flows =
            |flows: &BTreeMap<u32, u16>| flows.values().copied().collect::<std::collections::BTreeSet<u16>>();
        assert!(flows(&member.flows).is_superset(&flows(before)), "its own flows stay");
    }
    flows_are_whole(&members.iter().collect::<Vec<_>>());
    let mut all: Vec<u32> = together(&members.iter().chain([&gone]).collect::<Vec<_>>());
    all.dedup();
    assert_eq!(all, (0..6000).collect::<Vec<u32>>());
    let status = run.status(0);
    assert_eq!((status.gone.members, status.gone.standing.given), (1, gone.got.len() as u64));
    // The seat serves the next one, who sees nothing of before.
    let mut next = run.join(0, 1);
    run.write(600, 300);
    run.settle();
    next.read();
    assert!(!next.got.is_empty() && next.got.iter().all(|number| *number >= 6000) && next.gaps == 0);
}

#[test]
fn one_that_stands_still_misses_its_own_packets_alone_and_learns_how_many() {
    let mut run = Run::new(&[plan("all", "", "all")], true);
    let (mut good, mut still) = (run.join(0, 1), run.join(0, 1));
    let mut kept = None;
    for round in 0..60 {
        run.write(1000, 100);
        run.settle();
        good.read();
        if round == 1 {
            still.read();
        }
        kept =
            kept.or_else(|| run.status(0).members.iter().find(|member| member.standing.missed > 0).copied());
    }
    assert_eq!(good.got, (0..60_000).collect::<Vec<u32>>());
    assert_eq!(good.gaps, 0);
    let first_missed = kept.expect("its memory is full");
    assert!(first_missed.standing.given > 5000, "{first_missed:?}");
    let status = run.status(0);
    let of = |seat: u32| status.members.iter().find(|member| member.seat == seat).unwrap().standing;
    assert_eq!((of(0).missed, of(0).given), (0, 60_000));
    // All that found room is there, whole; then a gap, then what comes when it has read.
    still.read();
    let before = still.got.len();
    assert_eq!(still.got, (0..before as u32).collect::<Vec<u32>>());
    assert_eq!(of(1).missed as usize, 60_000 - before);
    until(|| {
        run.write(100, 100);
        run.settle();
        std::thread::sleep(Duration::from_millis(2));
        still.read();
        still.got.len() > before
    });
    assert_eq!(still.gaps as usize + still.got.len(), run.written as usize);
    assert_eq!(u64::from(still.got[before]), before as u64 + still.gaps);
}

#[test]
fn one_that_keeps_up_is_given_packets_in_the_same_few_segments_again() {
    const MEMORY_BYTES: u64 = 16 << 20;
    let mut run = Run::new(&[GroupPlan { memory_bytes: MEMORY_BYTES, ..plan("all", "", "all") }], true);
    let mut member = run.join(0, 1);
    for _ in 0..100 {
        run.write(3000, 100);
        run.settle();
        member.read();
    }
    let given_bytes = run.status(0).members[0].standing.read * 60;
    assert!(given_bytes > MEMORY_BYTES, "more than its memory has room for");
    let [_, slots] = member.seat.memory().sealed_files().unwrap();
    let resident_bytes = rustix::fs::fstat(slots).unwrap().st_blocks as u64 * 512;
    assert!((1..MEMORY_BYTES / 2).contains(&resident_bytes), "{resident_bytes}");
}

#[test]
fn stuck_members_lose_their_flows_until_they_read_again() {
    let stuck = GroupPlan { stuck: Some(Duration::from_millis(100)), ..plan("stuck", "", "flow") };
    let mut run = Run::new(&[stuck], true);
    let (mut good, mut still) = (run.join(0, 1), run.join(0, 1));
    until(|| {
        run.write(100, 100);
        run.settle();
        good.read();
        still.seat.is_stuck()
    });
    let before = run.written as u32;
    run.write(1000, 100);
    run.settle();
    good.read();
    assert_eq!(good.got.iter().filter(|number| **number >= before).count(), 1000);
    still.read();
    until(|| !still.seat.is_stuck());
    let before = run.written as u32;
    until(|| {
        run.write(100, 100);
        run.settle();
        good.read();
        still.read();
        still.got.iter().any(|number| *number >= before)
    });
    flows_are_whole(&[&still]);
    assert_eq!(together(&[&good, &still]), (0..run.written as u32).collect::<Vec<u32>>());
}

#[test]
fn a_run_that_loses_nothing_waits_for_the_slowest_until_its_end() {
    let mut run = Run::new(&[plan("slow", "", "all"), plan("fast", "", "round-robin")], false);
    let (slow, fast) = (run.join(0, 1), [run.join(1, 1), run.join(1, 3)]);
    let readers: Vec<_> = [slow].into_iter().chain(fast).zip([300, 0, 0]).collect();
    let threads: Vec<_> =
        readers.into_iter().map(|(member, nap_us)| member.read_to_the_end(nap_us)).collect();
    run.write(100_000, 500);
    run.lane.seal();
    run.sharing.finish();
    until(|| run.sharing.has_finished());
    let members: Vec<Member> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(members.iter().all(|member| member.gaps == 0));
    assert_eq!(members[0].got, (0..100_000).collect::<Vec<u32>>());
    assert_eq!(together(&[&members[1], &members[2]]), (0..100_000).collect::<Vec<u32>>());
    let (one, three) = (members[1].got.len(), members[2].got.len());
    assert!(one.abs_diff(25_000) < 300 && three.abs_diff(75_000) < 300, "{one} {three}");
    run.sharing.end();
    let status = run.status(0);
    assert_eq!((status.members.len(), status.gone.members, status.gone.standing.behind), (0, 1, 0));
}

#[test]
fn when_one_is_removed_from_a_run_that_loses_nothing_others_have_its_packets_at_once() {
    let mut run = Run::new(&[plan("turns", "", "round-robin")], false);
    let (still, good) = (run.join(0, 1), run.join(0, 1));
    let reader = good.read_to_the_end(0);
    // More than three times what has room.
    run.write(100_000, 500);
    run.lane.seal();
    run.sharing.finish();
    until(|| run.sharing.has_finished());
    let good = reader.join().unwrap();
    assert!(still.seat.is_removed());
    let status = run.status(0);
    let of_still = status.members.iter().find(|member| member.standing.read == 0).unwrap().standing;
    assert_eq!(good.got.len() as u64 + of_still.given, 100_000);
    assert!(of_still.missed <= 64, "what was in hand when it was given up: {of_still:?}");
    assert!(of_still.given < 30_000, "{of_still:?}");
}

#[test]
fn settings_change_between_two_batches() {
    let mut run = Run::new(&[plan("g", "", "all")], true);
    let mut member = run.join(0, 1);
    run.write(100, 10);
    run.settle();
    let filter = Filter::compile("udp src port 53", VlanRule::default(), &[]).unwrap();
    run.groups[0].change(Settings {
        filter,
        interface: None,
        steer: "flow".parse().unwrap(),
        rules: Default::default(),
    });
    run.write(100, 10);
    run.settle();
    member.read();
    let expected: Vec<u32> = (0..100).chain((100..200).filter(|number| number % 2 == 0)).collect();
    assert_eq!(member.got, expected);
    // What a rule has dropped stays counted when it goes.
    let everything = Filter::compile("", VlanRule::default(), &[]).unwrap();
    let with = |rules| Settings {
        filter: everything.clone(),
        interface: None,
        steer: "all".parse().unwrap(),
        rules,
    };
    run.groups[0].change(with(rules(&[("gone", "udp", &["drop"])])));
    run.write(50, 10);
    run.settle();
    run.groups[0].change(with(Arc::default()));
    run.write(50, 10);
    run.settle();
    assert_eq!(run.status(0).counts.dropped.get("gone"), Some(&50));
}

#[test]
fn a_seat_serves_again_however_soon_somebody_goes() {
    let mut run = Run::new(&[GroupPlan { members_max: 1, ..plan("g", "", "flow") }], true);
    for _ in 0..200 {
        let seat = &run.groups[0].seats()[0];
        let (connection, _other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        assert!(seat.enter(Newcomer { weight: 1, class: String::new(), connection }));
        seat.page().write(&Progress::default()).unwrap();
        run.sharing.ring();
        seat.leave();
        run.sharing.ring();
        until(|| seat.phase() == Phase::Free);
    }
    let mut member = run.join(0, 1);
    run.write(100, 10);
    run.settle();
    member.read();
    assert_eq!(member.got.len(), 100);
}

#[test]
fn one_that_stands_still_has_its_flows_again_when_nobody_else_is_left() {
    let stuck = GroupPlan { stuck: Some(Duration::from_millis(100)), ..plan("stuck", "", "flow") };
    let mut run = Run::new(&[stuck], true);
    let (mut good, still) = (run.join(0, 1), run.join(0, 1));
    until(|| {
        run.write(100, 100);
        run.settle();
        good.read();
        still.seat.is_stuck()
    });
    good.seat.leave();
    run.sharing.ring();
    until(|| good.seat.phase() == Phase::Free);
    let before = run.status(0);
    run.write(100, 100);
    run.settle();
    let behind = run.status(0);
    assert_eq!(behind.counts.unclaimed, 0);
    assert_eq!(behind.members[0].standing.given, before.members[0].standing.given + 100);
}

/// A rule of these words: name, filter, actions.
fn rules(rules: &[(&str, &str, &[&str])]) -> Arc<RuleSet> {
    let rule = |(name, when, actions): &(&str, &str, &[&str])| Rule {
        name: name.to_string(),
        test: Test {
            when: Some(Filter::compile(when, VlanRule::default(), &[]).unwrap()),
            ..Test::default()
        },
        actions: actions.iter().map(|action| action.parse().unwrap()).collect(),
    };
    Arc::new(RuleSet::new(rules.iter().map(rule).collect(), format!("{rules:?}")))
}

#[test]
fn rules_drop_mark_class_steer_and_copy_and_the_figures_add_up() {
    let mut first = plan("first", "", "all");
    first.settings.rules = rules(&[
        ("loud", "udp src port 53", &["copy other", "class loud"]),
        ("gone", "src net 10.0.0.0/25", &["drop"]),
        ("unwanted", "src net 10.0.0.128/26", &["class nobody"]),
    ]);
    let mut run = Run::new(&[first, plan("other", "ip6", "round-robin")], true);
    let mut plain = run.join(0, 1);
    let mut loud = run.join_as(0, 1, "loud");
    let (mut one, mut two) = (run.join(1, 1), run.join(1, 1));
    for _ in 0..10 {
        run.write(400, 256);
        run.settle();
        [&mut plain, &mut loud, &mut one, &mut two].into_iter().for_each(Member::read);
    }
    let (status, other) = (run.status(0), run.status(1));
    // Of both directions those with an even number come from port 53.
    let even: Vec<u32> = (0..4000).filter(|number| number % 2 == 0).collect();
    assert_eq!(loud.got, even);
    assert_eq!(together(&[&one, &two]), even);
    assert!(plain.flows.values().all(|flow| *flow >= 192) && plain.got.iter().all(|number| number % 2 == 1));
    let counts = &status.counts;
    assert_eq!(counts.taken, (plain.got.len() + loud.got.len()) as u64);
    assert_eq!(counts.dropped.keys().collect::<Vec<_>>(), ["gone", "loud", "unwanted"]);
    let gone = counts.dropped["gone"];
    assert!(gone > 0 && counts.unclaimed > 0);
    assert_eq!(gone + counts.unclaimed + counts.taken, 4000);
    assert_eq!((other.counts.copied_in, other.counts.taken, other.counts.filtered), (2000, 0, 4000));
}

#[test]
fn rules_keep_the_first_bytes_and_the_length_on_the_wire() {
    let mut group = plan("g", "", "all");
    group.settings.rules = rules(&[("short", "udp src port 53", &["keep 50", "mark 7"])]);
    let mut run = Run::new(&[group], true);
    let mut member = run.join(0, 1);
    run.write(100, 10);
    run.settle();
    let mut lengths = Vec::new();
    while let Some(batch) = member.reader.next_batch().unwrap() {
        for block in batch.blocks() {
            let number = u32::from_be_bytes(block.data()[42..46].try_into().unwrap());
            let flow = u16::from_be_bytes(block.data()[46..48].try_into().unwrap());
            assert_eq!(block.original_len() as usize, frame(flow, number).len());
            lengths.push((number % 2 == 0, block.data().len()));
        }
    }
    assert_eq!(lengths.len(), 100);
    assert!(lengths.iter().all(|(is_short, len)| if *is_short { *len == 50 } else { *len >= 60 }));
}
