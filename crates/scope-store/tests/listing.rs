//! A listing for a span says the same of it as one of everything, and reads less.

use proptest::prelude::*;
use scope_packet::segment::{FileLosses, Foot, LeftOut, SEGMENT_BYTES_MIN};
use scope_packet::{DropReason, Drops, Gap, KeyEntry, LinkType};
use scope_ring::{Column, KeyTest, Summary, SummaryForm, Timeline};
use scope_store::Hash;
use scope_store::head::{Head, HeadInterface};
use scope_store::index::{self, Entry};
use scope_store::lanes::Partial;
use scope_store::listing::{self, Wanted};
use scope_store::name::FileName;
use scope_store::sift::Everything;
use scope_store::timeline::{Damaged, Means, Span, StoreTimeline};
use scope_store::volume::{Place, Store, Volume, VolumeId};
use scope_testkit::dice::Dice;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const SECOND: i64 = 1_000_000_000;
const BEGIN: i64 = 1_763_700_000 * SECOND;

/// A segment as a foot says it; nothing else of it is ever read here.
fn foot(
    run_id: [u8; 16],
    lane: u32,
    (sequence, first_packet, packets): (u64, u64, u32),
    begin_ns: i64,
    end_ns: i64,
    lost: u64,
    file_losses: FileLosses,
) -> Foot {
    let mut drops_before = Drops::default();
    drops_before.add(DropReason::Kernel, lost);
    drops_before.add(DropReason::File, lost / 3);
    Foot {
        run_id,
        lane,
        link_type: LinkType::ETHERNET,
        unordered: false,
        sequence,
        first_packet,
        packets,
        block_bytes: packets * 60,
        first_ns: begin_ns,
        last_ns: end_ns,
        min_ns: begin_ns,
        max_ns: end_ns,
        bytes_before: 0,
        drops_before,
        left_out: LeftOut::default(),
        file_losses,
    }
}

/// Makes a closed file of these segments, whose bytes are holes.
fn make_file(store: &Path, head: &Head, feet: &[Foot], form: SummaryForm) -> PathBuf {
    let name = FileName::growing(feet[0].first_ns, &head.run_id, LinkType::ETHERNET, head.number).closed();
    let path = store.join(name.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let begin = head.write();
    let summary = match form {
        SummaryForm::First => Summary::read(form, &vec![0; form.bytes_of(SEGMENT_BYTES_MIN)]).unwrap(),
        SummaryForm::Second => Summary::new(Column::new(&KeyEntry::default().to_bytes()), SEGMENT_BYTES_MIN),
    };
    let entry = |(number, foot): (usize, &Foot)| Entry {
        offset: (begin.len() + number * SEGMENT_BYTES_MIN) as u64,
        foot: *foot,
        hash: Hash([number as u8 + 1; 16]),
        summary: summary.clone(),
    };
    let entries: Vec<Entry> = feet.iter().enumerate().map(entry).collect();
    let file = File::create(&path).unwrap();
    file.write_all_at(&begin, 0).unwrap();
    file.write_all_at(&index::write(&entries), (begin.len() + feet.len() * SEGMENT_BYTES_MIN) as u64)
        .unwrap();
    path
}

fn head(run_id: [u8; 16], volume: [u8; 16], volumes: &[[u8; 16]], number: u32) -> Head {
    let interface =
        HeadInterface { name: "eth0".to_string(), description: String::new(), link_type: LinkType::ETHERNET };
    Head {
        run_id,
        volume,
        volumes: volumes.to_vec(),
        number,
        segment_bytes: SEGMENT_BYTES_MIN as u32,
        link_type: LinkType::ETHERNET,
        filter: if number.is_multiple_of(2) { String::new() } else { "ip".to_string() },
        snap: 0,
        interfaces: vec![interface],
    }
}

/// A store's folder with its mark.
fn make_store(folder: &Path, id: [u8; 16]) {
    drop(Volume::open(&Place::find(folder).unwrap(), VolumeId(id), None).unwrap());
}

/// Fills stores with files of a few runs, some of them gone or damaged; when the last packet came.
fn fill(dice: &mut Dice, stores: &[(PathBuf, [u8; 16])]) -> i64 {
    let mut now_ns = BEGIN;
    for run in 0..1 + dice.below(3) {
        let run_id = [run as u8 + 1; 16];
        let volumes: Vec<[u8; 16]> = match dice.one_in(3) {
            true => vec![stores[0].1],
            false => stores.iter().map(|(_, id)| *id).chain(dice.one_in(4).then_some([99; 16])).collect(),
        };
        let lanes = 1 + dice.below(3) as u32;
        let mut at: BTreeMap<u32, (u64, u64, u64, FileLosses)> = BTreeMap::new();
        let tells = dice.one_in(2);
        let mut growing: BTreeMap<usize, (u32, Vec<Foot>)> = BTreeMap::new();
        let steps = dice.one_in(3);
        for _ in 0..dice.below(60) {
            let lane = dice.below(lanes.into()) as u32;
            let (sequence, first_packet, lost, file_losses) = at.entry(lane).or_default();
            if tells && dice.one_in(8) {
                file_losses.add(dice.below(3), dice.below(2) as u32);
            }
            let packets = 1 + dice.below(50) as u32;
            now_ns += dice.below(3 * SECOND as u64) as i64;
            if steps && dice.one_in(12) {
                now_ns += (dice.below(60) as i64 - 30) * SECOND;
            }
            let begin_ns = now_ns.max(BEGIN);
            let made = foot(
                run_id,
                lane,
                (*sequence, *first_packet, packets),
                begin_ns,
                begin_ns + dice.below(2 * SECOND as u64) as i64,
                *lost,
                *file_losses,
            );
            *sequence += 1;
            *first_packet += u64::from(packets);
            if dice.one_in(10) {
                *lost += 1 + dice.below(9);
            }
            let volume = dice.below(volumes.len() as u64) as usize;
            // What went to a volume that isn't here, or was missed, is nowhere.
            if volume >= stores.len() || dice.one_in(15) {
                continue;
            }
            let (number, feet) = growing.entry(volume).or_insert((1, Vec::new()));
            feet.push(made);
            if feet.len() as u64 > dice.below(6) {
                close(dice, &stores[volume], (run_id, &volumes), *number, feet);
                *number += 1;
                feet.clear();
            }
        }
        for (volume, (number, feet)) in &growing {
            if !feet.is_empty() {
                close(dice, &stores[*volume], (run_id, &volumes), *number, feet);
            }
        }
        now_ns += dice.below(20 * SECOND as u64) as i64;
    }
    now_ns
}

fn close(
    dice: &mut Dice,
    store: &(PathBuf, [u8; 16]),
    (run_id, volumes): ([u8; 16], &[[u8; 16]]),
    number: u32,
    feet: &[Foot],
) {
    if dice.one_in(12) {
        return; // it was deleted
    }
    let form = if dice.one_in(10) { SummaryForm::First } else { SummaryForm::Second };
    let path = make_file(&store.0, &head(run_id, store.1, volumes, number), feet, form);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let index_at = (4096 + feet.len() * SEGMENT_BYTES_MIN) as u64;
    match dice.below(60) {
        0 => file.set_len(index_at).unwrap(),
        1 => file.write_all_at(&[0x55], index_at + 70).unwrap(), // in the card
        2 => fs::rename(&path, path.with_extension("pcapng.part")).unwrap(),
        3 => file.write_all_at(&[0x55], 60).unwrap(), // in the head
        _ => {}
    }
}

/// What an answer says beside its packets.
type Said = (Vec<Gap>, Vec<(Partial, u64)>, Vec<Damaged>, Option<(i64, i64)>, u64);

fn said(paths: &[PathBuf], span: Span, is_short: bool, threads: usize) -> (Said, u64) {
    let stores: Vec<Store> = paths.iter().map(|path| Store::look(path).unwrap()).collect();
    let open: Vec<&Store> = stores.iter().collect();
    let keys = |_| KeyTest::all();
    let span_ns = is_short.then_some((span.from_ns, span.to_ns));
    let (listings, work) = listing::list_for(&open, &Wanted { keys: &keys, span_ns, threads }).unwrap();
    let stores = stores.into_iter().zip(listings).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let timeline = StoreTimeline::new(stores, span, Arc::new(Everything), Means::default(), stop);
    let said = (
        timeline.missing(i64::MAX),
        timeline.partial().to_vec(),
        timeline.damages().to_vec(),
        timeline.heard(),
        timeline.packets_max(),
    );
    (said, work.passed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn what_is_missing_in_a_span_is_the_same_whether_all_files_are_looked_into_or_few(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let place = tempfile::tempdir().unwrap();
        let stores: Vec<(PathBuf, [u8; 16])> =
            (0..1 + dice.below(2) as u8).map(|number| (place.path().join(format!("store{number}")), [number + 50; 16])).collect();
        for (path, id) in &stores {
            make_store(path, *id);
        }
        let end_ns = fill(&mut dice, &stores);
        let paths: Vec<PathBuf> = stores.iter().map(|(path, _)| path.clone()).collect();
        for _ in 0..8 {
            let from_ns = BEGIN - SECOND + dice.below((end_ns - BEGIN + 2 * SECOND) as u64) as i64;
            let span = Span { from_ns, to_ns: from_ns + dice.below(10 * SECOND as u64) as i64 };
            let given = &paths[..1 + dice.below(paths.len() as u64) as usize];
            let (full, _) = said(given, span, false, 1);
            let (short, _) = said(given, span, true, 1 + dice.below(3) as usize);
            prop_assert_eq!(&short, &full, "{:?}", span);
        }
    }
}

#[test]
fn of_many_files_only_those_that_a_span_needs_are_looked_into() {
    let place = tempfile::tempdir().unwrap();
    let (path, id) = (place.path().join("store"), [7; 16]);
    make_store(&path, id);
    for number in 0..300 {
        let feet: Vec<Foot> = (0..2)
            .map(|lane| {
                let begin_ns = BEGIN + i64::from(number) * SECOND;
                foot(
                    [1; 16],
                    lane,
                    (u64::from(number), u64::from(number) * 10, 10),
                    begin_ns,
                    begin_ns + SECOND - 1,
                    0,
                    FileLosses::default(),
                )
            })
            .collect();
        make_file(&path, &head([1; 16], id, &[id], number + 1), &feet, SummaryForm::Second);
    }
    for threads in [1, 3] {
        let span = Span { from_ns: BEGIN + 100 * SECOND, to_ns: BEGIN + 110 * SECOND - 1 };
        let ((gaps, _, damages, heard, packets), passed) =
            said(std::slice::from_ref(&path), span, true, threads);
        assert_eq!((gaps, damages, packets), (Vec::new(), Vec::new(), 200));
        assert_eq!(heard, Some((BEGIN, BEGIN + 300 * SECOND - 1)));
        assert_eq!(passed, 300 - 12, "ten, and one to each side");
    }
}

/// A store of holes with real indexes: 4096 segments of 2 MiB of skewed traffic; then 100,000 files of one segment each.
#[test]
#[ignore = "a measurement"]
fn what_a_listing_costs() {
    let place = tempfile::tempdir().unwrap();
    let (path, id) = (place.path().join("store"), [7; 16]);
    make_store(&path, id);
    let mut dice = Dice(3);
    let segment_bytes = 2 << 20;
    for file in 0..8_u32 {
        let head = Head { segment_bytes: segment_bytes as u32, ..head([1; 16], id, &[id], file + 1) };
        let begin = head.write();
        let mut entries = Vec::new();
        for number in 0..512_u64 {
            let at = u64::from(file) * 512 + number;
            let mut column = Vec::new();
            for _ in 0..3800 {
                let mut address = || {
                    let (a, b) = (dice.below(20_000), dice.below(20_000));
                    let host = a * b / 20_000; // skewed
                    [10, (host / 250 % 250) as u8, (host / 7919) as u8, (host % 250) as u8]
                };
                let (source, destination) = (address(), address());
                let source_port = 32_768 + dice.below(28_000) as u16;
                let entry =
                    KeyEntry { source, destination, source_port, destination_port: 443, word: 6 | 1 << 8 };
                column.extend(entry.to_bytes());
            }
            let begin_ns = BEGIN + at as i64 * SECOND;
            entries.push(Entry {
                offset: begin.len() as u64 + number * segment_bytes as u64,
                foot: foot(
                    [1; 16],
                    0,
                    (at, at * 3800, 3800),
                    begin_ns,
                    begin_ns + SECOND - 1,
                    0,
                    FileLosses::default(),
                ),
                hash: Hash([1; 16]),
                summary: Summary::new(Column::new(&column), segment_bytes),
            });
        }
        let name = FileName::growing(entries[0].foot.first_ns, &head.run_id, LinkType::ETHERNET, head.number)
            .closed();
        fs::create_dir_all(path.join(name.day())).unwrap();
        let out = File::create(path.join(name.path())).unwrap();
        out.write_all_at(&begin, 0).unwrap();
        out.write_all_at(&index::write(&entries), begin.len() as u64 + 512 * segment_bytes as u64).unwrap();
    }
    let store = Store::look(&path).unwrap();
    let keys = |_| KeyTest::host([10, 3, 1, 7]);
    let measure = |store: &Store, span_ns: Option<(i64, i64)>, threads: usize| {
        let mut times = Vec::new();
        for _ in 0..9 {
            let begun = std::time::Instant::now();
            let (listings, work) =
                listing::list_for(&[store], &Wanted { keys: &keys, span_ns, threads }).unwrap();
            times.push((begun.elapsed().as_micros(), work));
            drop(listings);
        }
        times.sort_by_key(|(us, _)| *us);
        println!("{threads} threads: {} us, at best {}: {:?}", times[4].0, times[0].0, times[0].1);
    };
    for threads in [1, 2] {
        measure(&store, Some((0, i64::MAX)), threads);
        measure(&store, Some((BEGIN + 1000 * SECOND, BEGIN + 1010 * SECOND)), threads);
    }
    let path = place.path().join("many");
    make_store(&path, id);
    for number in 0..100_000 {
        let begin_ns = BEGIN + i64::from(number) * SECOND;
        let feet = [foot(
            [1; 16],
            0,
            (u64::from(number), u64::from(number) * 10, 10),
            begin_ns,
            begin_ns + SECOND - 1,
            0,
            FileLosses::default(),
        )];
        make_file(&path, &head([1; 16], id, &[id], number + 1), &feet, SummaryForm::Second);
    }
    let store = Store::look(&path).unwrap();
    for threads in [1, 2] {
        measure(&store, Some((BEGIN + 1000 * SECOND, BEGIN + 1010 * SECOND)), threads);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
}
