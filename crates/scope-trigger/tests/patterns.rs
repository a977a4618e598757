//! Counts and sequences fire exactly where a naive reading of all matches says, however many workers had them;
//! at the bound of their memory they say so.

use proptest::prelude::*;
use scope_filter::{Template, Values, VlanRule};
use scope_packet::{Headers, LinkType, Moment};
use scope_trigger::{Held, Match, Merger, Pattern, PatternState};
use std::collections::BTreeMap;

const ROOM: usize = 1 << 20;
const SEED: [u64; 2] = [0x1234_5678_9abc_def0, 42];

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text, VlanRule::Transparent, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Values of their own for each number.
fn key(number: u32) -> Values {
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(number.to_be_bytes());
    packet.extend([10, 0, 0, 1, 0, 0, 0, 0]);
    let headers = Headers::parse(LinkType::RAW, &packet);
    Template::parse("$srcIP").unwrap().values(&headers, LinkType::RAW, &packet).unwrap()
}

/// A match as traces have it.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: Moment,
    key: u32,
    step: u8,
    worker: usize,
}

impl Event {
    fn in_lane(&self, lane: u32, packet: u64) -> Match {
        Match { at: self.at, key: key(self.key), packet, handle: u64::from(self.key), lane, step: self.step }
    }
}

/// When a pattern fires, and for which key.
type Fires = Vec<(Moment, u32)>;

/// For each match: how many of its key there are in (t - T, t], up to it.
fn naive_counts(trace: &[Event], needed: usize, span_ns: i64) -> Fires {
    let mut fires = Vec::new();
    for (index, one) in trace.iter().enumerate() {
        let counted = trace[..=index].iter().filter(|other| {
            other.key == one.key && other.at.era == one.at.era && other.at.time_ns > one.at.time_ns - span_ns
        });
        if counted.count() == needed {
            fires.push((one.at, one.key));
        }
    }
    fires.sort();
    fires
}

/// Whether the steps before `step` were matched one after the other before `before_ns`, the first not before
/// `from_ns`.
fn chain(of_key: &[Event], step: u8, before_ns: i64, from_ns: i64) -> bool {
    let mut earlier = of_key.iter().filter(|one| one.step + 1 == step && one.at.time_ns < before_ns);
    earlier.any(|one| match one.step {
        0 => one.at.time_ns >= from_ns,
        step => chain(of_key, step, one.at.time_ns, from_ns),
    })
}

fn naive_sequences(trace: &[Event], steps: u8, within_ns: i64) -> Fires {
    let mut by_key: BTreeMap<(u64, u32), Vec<Event>> = BTreeMap::new();
    for one in trace {
        by_key.entry((one.at.era, one.key)).or_default().push(*one);
    }
    let mut fires = Vec::new();
    for ((_, key), events) in by_key {
        let mut fired_ns = i64::MIN;
        for last in events.iter().filter(|one| one.step + 1 == steps) {
            let now_ns = last.at.time_ns;
            if now_ns != fired_ns && chain(&events, steps - 1, now_ns, fired_ns.max(now_ns - within_ns)) {
                fired_ns = now_ns;
                fires.push((last.at, key));
            }
        }
    }
    fires.sort();
    fires
}

/// What a state says of a trace that `workers` workers had, in batches of `batch`.
fn merged(pattern: &Pattern, trace: &[Event], workers: usize, batch: usize) -> Fires {
    let mut lanes = vec![Vec::new(); workers];
    for one in trace {
        let lane = one.worker % workers;
        let packet = lanes[lane].len() as u64;
        lanes[lane].push(one.in_lane(lane as u32, packet));
    }
    let mut merger = Merger::new(workers, ROOM);
    let mut state = PatternState::new(pattern, ROOM, SEED);
    let (mut fires, mut hits, mut ready) = (Vec::new(), Vec::new(), Vec::new());
    let mut given = vec![0; workers];
    loop {
        for (worker, lane) in lanes.iter().enumerate() {
            // Each goes at its own pace.
            let from = given[worker];
            let to = lane.len().min(from + batch * (worker + 1));
            let settled = lane.get(to).map_or(Moment::END, |next| next.at);
            merger.push(worker, &lane[from..to], settled);
            given[worker] = to;
        }
        ready.clear();
        hits.clear();
        let settled = merger.release(&mut ready);
        state.feed(&ready, &mut hits);
        fires.extend(hits.iter().map(|hit| {
            assert!(matches!(hit.held, Held::Count { exact: true } | Held::Sequence { .. }));
            assert_eq!(hit.at, ready[hit.index].at);
            (hit.at, ready[hit.index].handle as u32)
        }));
        state.advance(settled);
        if settled == Moment::END {
            break;
        }
    }
    let report = state.report();
    assert_eq!((report.late, report.past, report.matches), (0, 0, trace.len() as u64));
    assert_eq!((merger.late(), merger.dropped(), merger.waiting()), (0, 0, 0));
    fires.sort();
    fires
}

/// Traces in order, with equal times, pauses and eras.
fn traces(steps: u8, keys: u32, len: usize) -> impl Strategy<Value = Vec<Event>> {
    let one = (prop_oneof![4 => 0i64..4, 1 => 0i64..40], 0..keys, 0..steps, 0usize..4, 0u32..60);
    prop::collection::vec(one, 0..len).prop_map(|steps| {
        let mut at = Moment::new(0, 100);
        let event = |(forward, key, step, worker, turn): (i64, u32, u8, usize, u32)| {
            at = match turn {
                0 => Moment::new(at.era + 1, 50),
                _ => at.plus(forward),
            };
            Event { at, key, step, worker }
        };
        steps.into_iter().map(event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn counts_fire_where_a_naive_reading_says(
        trace in traces(1, 4, 400), needed in 1usize..24, span_ns in 1i64..120, batch in 1usize..90,
    ) {
        let pattern = pattern(&format!("count(udp by $srcIP) >= {needed} in {span_ns}ns"));
        let expected = naive_counts(&trace, needed, span_ns);
        for workers in [1, 2, 4] {
            prop_assert_eq!(&merged(&pattern, &trace, workers, batch), &expected, "{} workers", workers);
        }
    }

    #[test]
    fn sequences_fire_where_a_naive_reading_says(
        (steps, trace) in (2u8..6).prop_flat_map(|steps| (Just(steps), traces(steps, 3, 120))),
        within_ns in 1i64..80, batch in 1usize..90,
    ) {
        let text = vec!["udp"; steps as usize].join(" then ");
        let pattern = pattern(&format!("{text} within {within_ns}ns by $srcIP"));
        let expected = naive_sequences(&trace, steps, within_ns);
        for workers in [1, 2, 4] {
            prop_assert_eq!(&merged(&pattern, &trace, workers, batch), &expected, "{} workers", workers);
        }
    }

    #[test]
    fn an_exact_hit_is_right_also_at_the_bound_of_memory(
        trace in traces(1, 300, 1500), needed in 1usize..12, span_ns in 1i64..900,
        bytes in prop_oneof![Just(0usize), 1usize..60_000],
    ) {
        let pattern = pattern(&format!("count(udp by $srcIP) >= {needed} in {span_ns}ns"));
        let mut state = PatternState::new(&pattern, bytes, SEED);
        let matches: Vec<Match> = trace.iter().zip(0..).map(|(one, packet)| one.in_lane(0, packet)).collect();
        let mut hits = Vec::new();
        for (number, batch) in matches.chunks(50).enumerate() {
            let from = hits.len();
            state.feed(batch, &mut hits);
            for hit in &mut hits[from..] {
                hit.index += number * 50;
            }
            // The least sketch is one line for each row.
            prop_assert!(state.report().bytes <= bytes.max(bytes - bytes / 8 + 256) as u64);
        }
        let naive = naive_counts(&trace, needed, span_ns);
        let exact = |held| held == Held::Count { exact: true };
        for hit in hits.iter().filter(|hit| exact(hit.held)) {
            prop_assert!(naive.contains(&(hit.at, trace[hit.index].key)));
        }
        if state.report().matches_sketched == 0 {
            prop_assert!(hits.len() == naive.len() && hits.iter().all(|hit| exact(hit.held)));
        }
    }
}

fn at(time_ns: i64, key: u32, step: u8) -> Match {
    Event { at: Moment::new(0, time_ns), key, step, worker: 0 }.in_lane(0, time_ns as u64)
}

/// The times of the matches with which `text` holds.
fn fires(text: &str, matches: &[Match]) -> Vec<i64> {
    let mut hits = Vec::new();
    PatternState::new(&pattern(text), ROOM, SEED).feed(matches, &mut hits);
    hits.iter().map(|hit| hit.at.time_ns).collect()
}

#[test]
fn a_match_that_is_as_old_as_the_window_is_long_counts_no_more() {
    let check = |times: &[i64], expected: &[i64]| {
        let matches: Vec<Match> = times.iter().map(|&time_ns| at(time_ns, 1, 0)).collect();
        assert_eq!(fires("count(udp by $srcIP) > 2 in 10ns", &matches), expected, "{times:?}");
    };
    check(&[1, 5, 10], &[10]);
    check(&[1, 5, 11], &[]);
    check(&[1, 5, 10, 10, 11], &[10]);
    check(&[1, 5, 10, 11], &[10, 11]);
    check(&[1, 5, 10, 30, 31, 32], &[10, 32]);
    check(&[7, 7, 7, 7], &[7]);
}

#[test]
fn a_sequence_needs_its_steps_one_after_the_other_and_uses_them_up() {
    let check = |steps: &[(i64, u8)], expected: &[i64]| {
        let matches: Vec<Match> = steps.iter().map(|&(time_ns, step)| at(time_ns, 1, step)).collect();
        assert_eq!(fires("udp then tcp within 10ns by $srcIP", &matches), expected, "{steps:?}");
    };
    check(&[(1, 0), (11, 1)], &[11]);
    check(&[(1, 0), (12, 1)], &[]);
    check(&[(1, 0), (9, 0), (12, 1)], &[12]);
    check(&[(1, 1), (2, 0)], &[]);
    check(&[(5, 0), (5, 1)], &[]);
    check(&[(5, 1), (5, 0), (6, 1)], &[6]);
    check(&[(1, 0), (2, 0), (3, 1), (4, 1)], &[3]);
    check(&[(1, 0), (3, 0), (3, 1), (4, 1)], &[3, 4]);
}

#[test]
fn a_new_era_begins_anew_and_an_old_one_counts_no_more() {
    let pattern = pattern("count(udp by $srcIP) >= 2 in 1s");
    let mut state = PatternState::new(&pattern, ROOM, SEED);
    let in_era = |era, time_ns| Match { at: Moment::new(era, time_ns), ..at(0, 1, 0) };
    let mut hits = Vec::new();
    state.feed(&[in_era(0, 10), in_era(1, 5), in_era(0, 11), in_era(1, 4)], &mut hits);
    let times: Vec<_> = hits.iter().map(|hit| (hit.index, hit.at)).collect();
    assert_eq!(times, [(3, Moment::new(1, 5))], "late, and counted at the time of what came before");
    let report = state.report();
    assert_eq!((report.matches, report.late, report.past), (3, 1, 1));
}

#[test]
fn keys_that_never_repeat_take_no_more_than_a_window_of_them() {
    let pattern = pattern("count(udp by $srcIP) > 3 in 10us");
    let mut state = PatternState::new(&pattern, 64 << 20, SEED);
    let mut hits = Vec::new();
    let mut most = 0;
    for number in 0..400_000u32 {
        state.feed(&[at(i64::from(number), number, 0)], &mut hits);
        most = most.max(state.report().keys);
    }
    let report = state.report();
    assert!(hits.is_empty() && report.degraded_since.is_none() && report.matches_sketched == 0);
    assert!((10_000..40_000).contains(&most), "{most} keys");
    assert!(report.bytes < 3 << 20, "{} bytes", report.bytes);
    for second in 1..100 {
        state.advance(Moment::new(0, second * 1_000_000_000));
    }
    assert_eq!(state.report().keys, 0, "what is over is forgotten without matches, too");
}

#[test]
fn what_has_no_room_is_counted_by_the_sketch_until_a_window_has_passed() {
    let pattern = pattern("count(udp by $srcIP) > 9 in 1ms");
    let bytes = 256 << 10;
    let mut state = PatternState::new(&pattern, bytes, SEED);
    let mut hits = Vec::new();
    let flood: Vec<Match> = (0..20_000).map(|number| at(i64::from(number), number, 0)).collect();
    state.feed(&flood, &mut hits);
    let report = state.report();
    assert!(
        hits.len() < 20 && hits.iter().all(|hit| hit.held == Held::Count { exact: false }),
        "{}",
        hits.len()
    );
    hits.clear();
    assert!(report.keys > 2000 && report.matches_sketched > 10_000, "{report:?}");
    assert!(report.bytes <= bytes as u64 && report.degraded_since.is_some(), "{report:?}");
    let sketched = report.matches_sketched as f64;
    assert!((report.keys_sketched as f64) > 0.02 * sketched, "{report:?}");
    // A key that comes only now is found among them; noise is a few matches.
    let scan: Vec<Match> = (0..200).map(|number| at(20_000 + number, 77_777, 0)).collect();
    state.feed(&scan, &mut hits);
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit.held == Held::Count { exact: false }), "{hits:?}");
    // After the flood all is exact again.
    hits.clear();
    let later: Vec<Match> = (0..11).map(|number| at(90_000_000 + number, 88_888, 0)).collect();
    state.feed(&later, &mut hits);
    let held: Vec<_> = hits.iter().map(|hit| (hit.index, hit.held)).collect();
    assert_eq!(held, [(9, Held::Count { exact: true })]);
    assert_eq!((state.report().degraded_since, state.report().keys_sketched), (None, 0));
}

#[test]
fn sequences_evict_the_oldest_keys_at_the_bound_and_count_them() {
    let pattern = pattern("udp then tcp within 1s by $srcIP");
    let bytes = 256 << 10;
    let mut state = PatternState::new(&pattern, bytes, SEED);
    let mut hits = Vec::new();
    let firsts: Vec<Match> = (0..20_000).map(|number| at(i64::from(number), number, 0)).collect();
    state.feed(&firsts, &mut hits);
    let report = state.report();
    assert!(report.evicted > 10_000 && report.keys + report.evicted == 20_000, "{report:?}");
    assert!(report.bytes <= bytes as u64, "{report:?}");
    let lasts: Vec<Match> = (19_000..20_000).map(|number| at(30_000, number, 1)).collect();
    state.feed(&lasts, &mut hits);
    assert_eq!(hits.len(), 1000, "the latest are still there");
    let mut none = PatternState::new(&pattern, 0, SEED);
    none.feed(&firsts, &mut hits);
    assert_eq!((none.report().evicted, none.report().bytes), (20_000, 0));
}

#[test]
fn both_directions_of_a_flow_are_one_key() {
    let template = pattern("udp then udp within 1s by $flow").key().cloned().expect("a key");
    let values = |source: [u8; 6], destination: [u8; 6]| {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(&source[..4]);
        packet.extend(&destination[..4]);
        packet.extend([source[4], source[5], destination[4], destination[5], 0, 8, 0, 0]);
        template.values(&Headers::parse(LinkType::RAW, &packet), LinkType::RAW, &packet).expect("a flow")
    };
    let (one, other) = ([10, 0, 0, 1, 4, 0], [10, 0, 0, 2, 0, 53]);
    assert_eq!(values(one, other), values(other, one));
    assert_ne!(values(one, other), values(one, [10, 0, 0, 2, 0, 54]));
}
