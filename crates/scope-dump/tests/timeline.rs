//! Selecting apart from writing: what a selection hands on of a timeline in memory, in which order, and what
//! it says of the rest, round by round.

mod memory;

use memory::{Memory, RUN};
use scope_dump::merge::Position;
use scope_dump::{Consumer, Round, Selection};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_packet::pcapng::{PacketBlock, PacketHead};
use scope_packet::{Gap, GapReason, LinkType, Moment, SegmentId};
use scope_ring::Timeline;
use std::sync::Arc;

const BEGIN_NS: i64 = 1_000_000_000_000;
const STEP_NS: i64 = 1_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 9) as i64 % below.max(1)
    }
}

/// Notes what it gets.
#[derive(Default)]
struct Notes {
    /// Time, lane, number.
    packets: Vec<(i64, u32, u64)>,
    pauses: u64,
}

impl Consumer for Notes {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        let block = PacketBlock::first(block).expect("a block");
        let number = u64::from_le_bytes(block.data()[..8].try_into().expect("8 bytes"));
        assert_eq!(
            (position.time_ns, position.packet, link_type),
            (block.time_ns(), number, LinkType::ETHERNET)
        );
        self.packets.push((position.time_ns, position.lane, position.packet));
    }

    fn between(&mut self) {
        self.pauses += 1;
    }
}

/// Packets with such numbers have 64 bytes, the others 200.
fn is_short(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// Some packets of some lanes, now and then up to `jitter_ns` late.
fn memory(dice: &mut Dice, lanes: u32, packets: i64, jitter_ns: i64, from_ns: i64) -> Memory {
    let mut memory = Memory::new(lanes, from_ns);
    let mut numbers = vec![0u64; lanes as usize];
    for n in 0..packets {
        let lane = dice.below(lanes.into()) as u32;
        let number = &mut numbers[lane as usize];
        let mut data = vec![0xee; if is_short(*number) { 64 } else { 200 }];
        data[..8].copy_from_slice(&number.to_le_bytes());
        let (time_ns, len) = (BEGIN_NS + n * STEP_NS - dice.below(jitter_ns + 1), data.len() as u32);
        let head = PacketHead { time_ns, captured_len: len, original_len: len, ..PacketHead::default() };
        memory.push(lane, *number / 20, &head, &data);
        *number += 1;
    }
    memory.grace_ns = jitter_ns;
    memory
}

fn selection(filter: &str, from_ns: i64, always: Option<(u32, u64)>) -> Selection {
    let filter = Filter::compile(filter, VlanRule::Exact, &[LinkType::ETHERNET]).expect("a filter");
    Selection::new(filter, FilterEngine::Interpreter, from_ns, always, &Arc::default())
}

/// One round up to `to_ns`; whether it was the last.
fn round(selection: &mut Selection, memory: &mut Memory, to_ns: i64, notes: &mut Notes) -> bool {
    let settled = memory.settle(to_ns).up_to;
    let last = settled > Moment::new(0, to_ns);
    selection.round(memory, Round { to_ns, settled_ns: settled.within(0), last }, notes);
    last
}

#[test]
fn a_selection_hands_on_what_the_filter_takes_in_order_and_the_packet_that_is_exempt() {
    let (mut dice, from_ns, to_ns) = (Dice(7), BEGIN_NS + 300 * STEP_NS, BEGIN_NS + 1500 * STEP_NS);
    for (lanes, jitter_ns) in [(1, 0), (3, 0), (3, 90 * STEP_NS)] {
        let mut memory = memory(&mut dice, lanes, 2000, jitter_ns, from_ns);
        memory.step = 70;
        let exempt = *memory
            .order
            .iter()
            .find(|packet| packet.0 > from_ns && is_short(packet.2))
            .expect("one of 64 bytes");
        let mut selection = selection("greater 100", from_ns, Some((exempt.1, exempt.2)));
        let mut notes = Notes::default();
        while !round(&mut selection, &mut memory, to_ns, &mut notes) {}
        let mut expected = memory.order.clone();
        expected.retain(|packet| {
            (from_ns..=to_ns).contains(&packet.0) && (!is_short(packet.2) || *packet == exempt)
        });
        expected.sort_unstable();
        assert!(notes.packets == expected && notes.pauses > 10);
        assert_eq!(selection.missing(&memory, to_ns), []);
    }
}

#[test]
fn a_span_grows_while_it_is_answered_and_each_round_says_what_is_missing_by_then() {
    let (mut dice, from_ns) = (Dice(3), BEGIN_NS + 200 * STEP_NS);
    let mut memory = memory(&mut dice, 2, 3000, 50 * STEP_NS, from_ns);
    memory.step = 40;
    let (mut selection, mut notes) = (selection("", from_ns, None), Notes::default());
    let (mut to_ns, mut rounds) = (from_ns, 0);
    loop {
        // Each round it grows a little more than what has come, up to its end.
        to_ns = (to_ns + 45 * STEP_NS).min(BEGIN_NS + 2500 * STEP_NS);
        let last = round(&mut selection, &mut memory, to_ns, &mut notes);
        rounds += 1;
        assert!(
            notes.packets.is_sorted()
                && notes.packets.iter().all(|packet| (from_ns..=to_ns).contains(&packet.0))
        );
        let unsettled = selection.missing(&memory, to_ns);
        if last {
            assert_eq!(unsettled, []);
            break;
        }
        let [Gap { reason: GapReason::Unsettled, from_ns: unsettled_ns, lost_max: None, .. }] = unsettled[..]
        else {
            panic!("{unsettled:?}")
        };
        // What is settled was handed on, all of it.
        let settled =
            |packet: &&(i64, u32, u64)| (from_ns..unsettled_ns - 1).contains(&packet.0) && packet.0 <= to_ns;
        assert!(notes.packets.len() >= memory.order.iter().filter(settled).count());
    }
    let mut expected = memory.order.clone();
    expected.retain(|packet| (from_ns..=to_ns).contains(&packet.0));
    expected.sort_unstable();
    assert!(rounds > 20 && notes.packets == expected, "{rounds} rounds");
}

#[test]
fn what_a_timeline_can_not_lend_any_more_is_missing_and_stated() {
    for seed in 1..=40 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let (from_ns, to_ns) =
            (BEGIN_NS + dice.below(500) * STEP_NS, BEGIN_NS + (500 + dice.below(900)) * STEP_NS);
        let jitter_ns = dice.below(2) * 30 * STEP_NS;
        let mut memory = memory(&mut dice, 3, 1500, jitter_ns, from_ns);
        memory.step = 1 + dice.below(400) as usize;
        for _ in 0..dice.below(6) {
            let (lane, sequence) = (dice.below(3) as u32, dice.below(25) as u64);
            memory.vanishing.insert(SegmentId { run: RUN, lane, sequence });
        }
        let (mut selection, mut notes) = (selection("", from_ns, None), Notes::default());
        while !round(&mut selection, &mut memory, to_ns, &mut notes) {}
        let id = |packet: &(i64, u32, u64)| SegmentId { run: RUN, lane: packet.1, sequence: packet.2 / 20 };
        let mut expected = memory.order.clone();
        expected.retain(|packet| (from_ns..=to_ns).contains(&packet.0));
        expected.sort_unstable();
        let (gone, there): (Vec<_>, Vec<_>) =
            expected.into_iter().partition(|packet| memory.vanishing.contains(&id(packet)));
        assert!(notes.packets == there, "run {seed}");
        let gaps = selection.missing(&memory, to_ns);
        assert_eq!(
            gaps.iter().map(|gap| gap.lost_min).sum::<u64>(),
            gone.len() as u64,
            "run {seed}: {gaps:?}"
        );
        let in_a_gap =
            |packet: &(i64, u32, u64)| gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&packet.0));
        assert!(gone.iter().all(in_a_gap), "run {seed}: {gaps:?}");
    }
}
