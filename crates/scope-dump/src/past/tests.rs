//! What is said of the past is the same whether all files are looked into or those that a window needs.

use super::*;
use crate::walk::gap;
use scope_filter::VlanRule;
use scope_packet::pcapng::PacketHead;
use scope_packet::segment::{FileLosses, Foot, LeftOut, SEGMENT_BYTES_MIN};
use scope_packet::{Drops, Gap, Headers, Interface, KeyEntry, SystemClock};
use scope_ring::search::Column;
use scope_ring::{Append, RingConfig, Summary};
use scope_store::Hash;
use scope_store::head::Head;
use scope_store::index::{self, Entry};
use scope_store::name::FileName;
use scope_store::volume::{Place, Volume, VolumeId};
use scope_testkit::dice::Dice;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SEGMENT: u64 = 64 << 10;
const RUN: [u8; 16] = [5; 16];
const EARLIER: [u8; 16] = [4; 16];
const VOLUMES: [[u8; 16]; 2] = [[8; 16], [9; 16]];
const BEGIN_NS: i64 = 1_763_700_000_000_000_000;
const LEN: usize = 3000;

/// A ring that has turned: of each lane the times of all packets that ever came.
fn turned(dice: &mut Dice, lanes: u32) -> (Arc<Ring>, Vec<Vec<i64>>) {
    let (ring_bytes, segment_bytes) = (16 * SEGMENT * u64::from(lanes), Some(SEGMENT));
    let config = RingConfig { ring_bytes, segment_bytes, workers: lanes, lanes: 1, run_id: RUN };
    let ring = Ring::create(&config).unwrap();
    let mut came = Vec::new();
    for worker in 0..lanes {
        let mut writer = ring.open_lane(worker, LinkType::ETHERNET).unwrap();
        let interface = Interface {
            name: format!("if{worker}"),
            description: String::new(),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            timestamps: TimestampSource::File,
            part: 0,
        };
        let number = ring.register(writer.lane(), &interface).unwrap();
        writer.add_interface(number);
        ring.begin_listening(worker, 1, GapReason::NotStarted);
        let (mut now_ns, mut times) = (BEGIN_NS, Vec::new());
        for _ in 0..500 + dice.below(1500) {
            // Sometimes a little back.
            now_ns += if dice.below(30) == 0 { -(dice.below(4000) as i64) } else { dice.below(300) as i64 };
            let len = LEN as u32;
            let head =
                PacketHead { time_ns: now_ns, captured_len: len, original_len: len, ..PacketHead::default() };
            let data = vec![0xee; LEN];
            let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
            while writer.append(0, &head, key, &data) == Append::NeedsSegment {
                assert!(writer.claim());
            }
            times.push(now_ns);
        }
        writer.commit();
        came.push(times);
    }
    (ring, came)
}

fn foot(run_id: [u8; 16], lane: u32, sequence: u64, first_packet: u64, times: &[i64]) -> Foot {
    let packets = times.len() as u32;
    Foot {
        run_id,
        lane,
        link_type: LinkType::ETHERNET,
        unordered: false,
        sequence,
        first_packet,
        packets,
        block_bytes: packets * 60,
        first_ns: times[0],
        last_ns: times[times.len() - 1],
        min_ns: *times.iter().min().unwrap(),
        max_ns: *times.iter().max().unwrap(),
        bytes_before: 0,
        drops_before: Drops::default(),
        left_out: LeftOut::default(),
        file_losses: FileLosses::default(),
    }
}

/// Makes a closed file of these segments, whose bytes are holes.
fn make_file(store: &Path, volume: [u8; 16], number: u32, feet: &[Foot]) {
    let run_id = feet[0].run_id;
    let name = FileName::growing(feet[0].first_ns, &run_id, LinkType::ETHERNET, number).closed();
    let path = store.join(name.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let head = Head {
        run_id,
        volume,
        volumes: VOLUMES.to_vec(),
        number,
        segment_bytes: SEGMENT_BYTES_MIN as u32,
        link_type: LinkType::ETHERNET,
        filter: String::new(),
        snap: 0,
        interfaces: Vec::new(),
    };
    let begin = head.write();
    let entry = |(at, foot): (usize, &Foot)| Entry {
        offset: (begin.len() + at * SEGMENT_BYTES_MIN) as u64,
        foot: *foot,
        hash: Hash([at as u8 + 1; 16]),
        summary: Summary::new(Column::new(&KeyEntry::default().to_bytes()), SEGMENT_BYTES_MIN),
    };
    let entries: Vec<Entry> = feet.iter().enumerate().map(entry).collect();
    let file = File::create(&path).unwrap();
    file.write_all_at(&begin, 0).unwrap();
    let end = begin.len() + feet.len() * SEGMENT_BYTES_MIN;
    file.write_all_at(&index::write(&entries), end as u64).unwrap();
}

/// Spreads the segments of lanes over the volumes, as files of a few each; some were never stored, some files are gone.
fn store(dice: &mut Dice, run_id: [u8; 16], came: &[Vec<i64>], stores: &[&Path; 2], is_lossy: bool) {
    let mut feet: Vec<Foot> = Vec::new();
    for (lane, times) in (0..).zip(came) {
        let (mut at, mut sequence) = (0, 0);
        while at < times.len() {
            let end = times.len().min(at + 1 + dice.below(40) as usize);
            feet.push(foot(run_id, lane, sequence, at as u64, &times[at..end]));
            (at, sequence) = (end, sequence + 1);
        }
    }
    feet.sort_by_key(|foot| (foot.min_ns, foot.lane));
    let (mut growing, mut numbers) = ([Vec::new(), Vec::new()], [1, 1]);
    let first_lost = dice.below(feet.len() as u64 + 1) as usize;
    for (at, foot) in feet.iter().enumerate() {
        if is_lossy && at >= first_lost && dice.below(12) == 0 {
            continue;
        }
        let volume = dice.below(2) as usize;
        growing[volume].push(*foot);
        if growing[volume].len() as u64 > 2 + dice.below(4) || at + 1 == feet.len() {
            let is_gone = is_lossy && dice.below(10) == 0;
            if !is_gone {
                make_file(stores[volume], VOLUMES[volume], numbers[volume], &growing[volume]);
            }
            growing[volume].clear();
            numbers[volume] += 1;
        }
    }
    for (volume, feet) in growing.iter().enumerate().filter(|(_, feet)| !feet.is_empty()) {
        make_file(stores[volume], VOLUMES[volume], numbers[volume], feet);
    }
}

type Said = (Vec<Gap>, Option<(Option<(i64, i64)>, Vec<Gap>)>, i64);

/// What a dump would state, and what it knows of earlier runs.
fn said(past: &Past, question: &Question<'_>, looked: (Answer<'_>, Listings)) -> Said {
    let (answer, earlier) = looked;
    let window = (question.from_ns, i64::MAX);
    let lost = |lane, span: &Range<u64>| past.ring.lost(lane, std::slice::from_ref(span), window)[0];
    let mut gaps: Vec<Gap> = answer
        .lacking
        .iter()
        .filter_map(|(lane, span, reason)| gap(lost(*lane, span), *reason))
        .chain(answer.parts.iter().flat_map(|part| part.missing(i64::MAX)))
        .collect();
    gaps.sort_by_key(|gap| (gap.from_ns, gap.to_ns, gap.reason, gap.lost_max));
    let part = past.earlier(question, BEGIN_NS, earlier);
    let of_earlier = part.map(|part| (part.heard(), part.missing(i64::MAX)));
    (gaps, of_earlier, past.earlier_until_ns.load(Ordering::Relaxed))
}

/// Whether fewer files said it, where they did.
fn check(seed: u64, lanes: u32, is_lossy: bool) -> Option<bool> {
    let mut dice = Dice(seed);
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("a"), folder.path().join("b")];
    for (path, id) in paths.iter().zip(VOLUMES) {
        fs::create_dir(path).unwrap();
        drop(Volume::open(&Place::find(path).unwrap(), VolumeId(id), None).unwrap());
    }
    let stores = [paths[0].as_path(), paths[1].as_path()];
    let (ring, came) = turned(&mut dice, lanes);
    let earlier: Vec<i64> = (0..dice.below(400) as i64).map(|at| BEGIN_NS - 200_000 + at * 300).collect();
    store(&mut dice, EARLIER, &[earlier], &stores, is_lossy);
    store(&mut dice, RUN, &came, &stores, is_lossy);
    let volumes = paths.iter().map(|path| Arc::new(Folder::open(path).unwrap())).collect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let past = Past::new(&ring, volumes, Duration::ZERO, &clock);
    let numbers: Vec<Numbers> = (0..lanes).map(|lane| Numbers::of(0..ring.recycled_before(lane))).collect();
    let recycled = &came[0][..ring.recycled_before(0) as usize];
    let (begin_ns, len) = (BEGIN_NS - 250_000, recycled.last().map_or(1, |last| last - BEGIN_NS + 250_000));
    let filter = scope_filter::Filter::compile("", VlanRule::default(), &[LinkType::ETHERNET]).unwrap();
    let terms = Terms::default();
    let question = Question {
        terms: &terms,
        from_ns: begin_ns + dice.below(len.max(1) as u64) as i64,
        numbers: &numbers,
        seams: None,
        earlier_before_ns: Some(BEGIN_NS),
        filter: &filter,
        by_keys: false,
    };
    let of_all = said(&past, &question, past.looked(&question, None).unwrap());
    let span_ns = Some((question.from_ns, i64::MAX));
    let of_span = said(&past, &question, past.looked(&question, span_ns)?);
    assert_eq!(of_all, of_span, "seed {seed}");
    let (own, earlier) = past.list(&question, span_ns);
    let passed = own.iter().chain(&earlier).map(|(_, listing)| listing.passed.len());
    Some(passed.sum::<usize>() > 0)
}

#[test]
fn files_of_the_window_say_what_all_say() {
    let mut counts = [0; 3];
    for seed in 0..90 {
        counts[match check(seed, 1 + seed as u32 % 2, seed % 3 == 0) {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        }] += 1;
    }
    println!("all files needed, all looked into, fewer: {counts:?}");
    assert!(counts[2] > 10, "{counts:?}");
}
