//! The forms of writing: each leaves the same bytes, rewrites nothing that was committed, and reads nothing
//! beyond a packet.

mod stand;

use proptest::prelude::*;
use scope_packet::KeyEntry;
use scope_packet::pcapng::PacketHead;
use scope_packet::segment::kept_bytes_max;
use scope_ring::{Append, Arrivals, Form, Incoming, LaneWriter, Pinned, Ring, RingConfig};
use stand::{Dice, KIB, account, bytes_of, head};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEGMENT_BYTES: u64 = 64 * KIB;

fn supported() -> impl Iterator<Item = Form> {
    Form::ALL.into_iter().filter(|form| form.is_supported())
}

fn lane_in(form: Form, segments: u64) -> (Arc<Ring>, LaneWriter) {
    let config = RingConfig {
        ring_bytes: segments * SEGMENT_BYTES,
        segment_bytes: Some(SEGMENT_BYTES),
        workers: 1,
        lanes: 1,
        run_id: stand::RUN_ID,
    };
    let ring = Ring::create_with_form(&config, form).expect("a small ring");
    assert_eq!(ring.form(), form);
    let writer = stand::lane(&ring, 0);
    (ring, writer)
}

fn append(writer: &mut LaneWriter, head: PacketHead, key: KeyEntry, data: &[u8]) {
    while writer.append(0, &head, key, data) == Append::NeedsSegment {
        assert!(writer.claim());
    }
}

/// What a reader has seen of one segment: it may grow, and nothing of it may change.
struct Watched {
    pinned: Pinned,
    blocks: Vec<u8>,
    entries: Vec<KeyEntry>,
}

impl Watched {
    fn new(ring: &Arc<Ring>, sequence: u64) -> Option<Watched> {
        Some(Watched {
            pinned: ring.pin(ring.segment_id(0, sequence))?,
            blocks: Vec::new(),
            entries: Vec::new(),
        })
    }

    fn look(&mut self) {
        let committed = self.pinned.committed();
        let blocks = self.pinned.blocks(0, committed.bytes).bytes();
        assert!(blocks.starts_with(&self.blocks), "a committed block changed");
        self.blocks.extend(&blocks[self.blocks.len()..]);
        let entries: Vec<KeyEntry> = (0..committed.packets).map(|index| self.pinned.entry(index)).collect();
        assert!(entries.starts_with(&self.entries), "a committed entry changed");
        self.entries = entries;
        assert_eq!(self.pinned.blocks(0, committed.bytes).count(), committed.packets as usize);
    }
}

/// One step of a run: a packet, then perhaps a commit.
#[derive(Clone, Copy, Debug)]
struct Step {
    len: usize,
    flags: u32,
    lost_before: u64,
    time_ns: i64,
    key: [u8; 16],
    commits: bool,
}

/// Commits by one chance for the whole run: large ones are streamed, small ones not.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![8 => 0usize..200, 4 => 200usize..1600, 1 => 1600..=kept_bytes_max(SEGMENT_BYTES as usize)];
    let lost = prop_oneof![6 => Just(0u64), 1 => any::<u64>()];
    let flags = prop_oneof![2 => Just(0u32), 1 => 1..=u32::MAX];
    let packet = (len, flags, lost, 0..i64::MAX, any::<[u8; 16]>(), 0u32..1000);
    (prop_oneof![Just(0u32), Just(5), Just(30), Just(300), Just(1000)], prop::collection::vec(packet, 1..700))
        .prop_map(|(chance, packets)| {
            let step = |(len, flags, lost_before, time_ns, key, dice)| Step {
                len,
                flags,
                lost_before,
                time_ns,
                key,
                commits: dice < chance,
            };
            packets.into_iter().map(step).collect()
        })
}

/// Packets to append together.
#[derive(Default)]
struct Together(Vec<(PacketHead, KeyEntry, Vec<u8>)>);

impl Arrivals for Together {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn packet(&self, index: usize) -> Incoming<'_> {
        let (head, key, data) = &self.0[index];
        Incoming { head: *head, key, data }
    }
}

impl Together {
    fn append(&mut self, writer: &mut LaneWriter) {
        let mut stored = 0;
        while stored < self.count() {
            stored += writer.append_batch(0, self, stored);
            assert!(writer.claim());
        }
        self.0.clear();
    }
}

/// Plays the steps in one form, `together` packets at a time, watching every segment at every commit; every
/// sealed segment as it lies in memory.
fn play(form: Form, steps: &[Step], together: usize) -> Vec<Vec<u8>> {
    let (ring, mut writer) = lane_in(form, 160);
    let mut batch = Together::default();
    let mut watched: Vec<Watched> = Vec::new();
    let mut look = |ring: &Arc<Ring>| {
        while let Some(segment) = Watched::new(ring, watched.len() as u64) {
            watched.push(segment);
        }
        let from = watched.len().saturating_sub(2);
        for watched in &mut watched[from..] {
            watched.look();
        }
    };
    for (number, step) in steps.iter().enumerate() {
        let Step { flags, lost_before, .. } = *step;
        let head =
            PacketHead { flags, lost_before, original_len: number as u32, ..head(step.len, step.time_ns) };
        batch.0.push((head, KeyEntry::from_bytes(&step.key), bytes_of(0, number as u64, step.len)));
        if step.commits || batch.count() >= together {
            batch.append(&mut writer);
        }
        if step.commits {
            writer.commit();
            look(&ring);
        }
    }
    batch.append(&mut writer);
    drop(writer);
    look(&ring);
    for watched in watched.iter_mut() {
        watched.look();
    }
    let whole = |segment: &Watched| segment.pinned.whole().expect("sealed").to_vec();
    watched.iter().map(whole).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_form_writes_the_same_bytes_and_rewrites_none(steps in steps(), together in 1usize..200) {
        let plain = play(Form::Plain, &steps, 1);
        let packets: usize = plain.iter().map(|segment| account(segment).packets.len()).sum();
        prop_assert_eq!(packets, steps.len());
        for form in supported() {
            prop_assert!(play(form, &steps, together) == plain, "{:?}", form);
        }
    }
}

#[test]
fn every_length_at_every_place_in_a_line_is_written_alike() {
    for base in (0..300).step_by(4) {
        let step =
            |len| Step { len, flags: 0, lost_before: 0, time_ns: 7, key: [len as u8; 16], commits: false };
        let steps: Vec<Step> = std::iter::once(base).chain(0..200).map(step).collect();
        let plain = play(Form::Plain, &steps, 1);
        for form in supported() {
            assert!(play(form, &steps, steps.len()) == plain, "{form:?} behind a packet of {base} bytes");
        }
    }
}

#[test]
fn a_follower_of_the_open_segment_never_sees_a_byte_change() {
    for form in supported() {
        let (ring, mut writer) = lane_in(form, 64);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let Some(mut newest) = Watched::new(&ring, ring.lane_next(0).saturating_sub(1)) else {
                        continue;
                    };
                    while !newest.pinned.committed().sealed && !stop.load(Ordering::Acquire) {
                        newest.look();
                    }
                    newest.look();
                    let first = newest.pinned.first_packet();
                    for (number, block) in
                        (first..).zip(newest.pinned.blocks(0, newest.pinned.committed().bytes))
                    {
                        assert!(
                            block.data() == bytes_of(0, number, block.data().len()),
                            "{form:?}: packet {number}"
                        );
                    }
                }
            });
            let mut dice = Dice(3);
            while ring.lane_next(0) < 400 {
                let large = dice.one_in(2);
                for _ in 0..if large { 256 } else { 1 + dice.below(8) } {
                    let len = if dice.one_in(4) { dice.below(1518) } else { dice.below(130) } as usize;
                    let data = bytes_of(0, writer.next_packet(), len);
                    append(&mut writer, head(len, 1), KeyEntry::default(), &data);
                }
                writer.commit();
            }
            stop.store(true, Ordering::Release);
        });
    }
}

/// Turns over every bit of `bytes`, which lie in a ring's shared memory.
fn scribble(bytes: &[u8]) {
    let (from, len) = (bytes.as_ptr().cast_mut(), bytes.len());
    for at in 0..len {
        // SAFETY: the ring's mapping may be written; nobody else reads or writes it, and no borrowed byte is
        // used again.
        unsafe { from.add(at).write_volatile(!from.add(at).read_volatile()) };
    }
}

#[test]
fn what_is_committed_is_not_written_again_not_even_with_the_same_bytes() {
    for form in supported() {
        let (ring, mut writer) = lane_in(form, 200);
        let mut dice = Dice(17);
        // Blocks and entries of each segment that are scribbled over, bytes.
        let mut done: Vec<(Pinned, usize, usize)> = Vec::new();
        let mut number = 0;
        while number < 12_000 {
            let large = dice.one_in(2);
            for _ in 0..1 + dice.below(if large { 400 } else { 9 }) {
                let len = if dice.one_in(4) { dice.below(1518) } else { dice.below(130) } as usize;
                append(&mut writer, head(len, number), KeyEntry::from_bytes(&[0x55; 16]), &vec![0x55; len]);
                number += 1;
            }
            writer.commit();
            while let Some(pinned) = ring.pin(ring.segment_id(0, done.len() as u64)) {
                done.push((pinned, 0, 0));
            }
            let (pinned, blocks_done, entries_done) = done.last_mut().expect("a segment is open");
            let committed = pinned.committed();
            scribble(&pinned.blocks(0, committed.bytes).bytes()[*blocks_done..]);
            // Entries lie below one another in front of the foot; the segment's end is found from its first
            // block.
            let start = pinned.blocks(0, committed.bytes).bytes().as_ptr();
            let entries = committed.packets as usize * 16;
            let foot = SEGMENT_BYTES as usize - 4096;
            // SAFETY: inside the pinned segment; committed.
            scribble(unsafe {
                std::slice::from_raw_parts(start.add(foot - entries), entries - *entries_done)
            });
            (*blocks_done, *entries_done) = (committed.bytes as usize, entries);
        }
        drop(writer);
        assert!(done.len() > 10);
        for (pinned, blocks_done, entries_done) in &done {
            let whole = pinned.whole().expect("sealed");
            let mut turned = whole.to_vec();
            for byte in &mut turned[..*blocks_done] {
                *byte = !*byte;
            }
            let foot = SEGMENT_BYTES as usize - 4096;
            for byte in &mut turned[foot - entries_done..foot] {
                *byte = !*byte;
            }
            for (_, data) in account(&turned).packets {
                assert!(
                    data.iter().all(|&byte| byte == 0x55),
                    "{form:?}: a committed byte was written again"
                );
            }
            assert!(
                turned[foot - entries_done..foot].chunks_exact(16).all(|entry| entry[..12] == [0x55; 12]),
                "{form:?}"
            );
        }
    }
}

/// A page between two that may not be touched.
struct Fenced {
    base: *mut u8,
}

const PAGE: usize = 4096;

impl Fenced {
    /// Three pages, the outer two forbidden.
    fn new() -> Fenced {
        // SAFETY: a fresh private mapping of our own; two of its pages are then forbidden.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(
                std::ptr::null_mut(),
                3 * PAGE,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert!(base != libc::MAP_FAILED);
            let base = base.cast::<u8>();
            assert_eq!(libc::mprotect(base.cast(), PAGE, libc::PROT_NONE), 0);
            assert_eq!(libc::mprotect(base.add(2 * PAGE).cast(), PAGE, libc::PROT_NONE), 0);
            Fenced { base }
        }
    }

    fn page(&mut self) -> &mut [u8] {
        // SAFETY: the middle page, which may be read and written, borrowed from its only owner.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(PAGE), PAGE) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, borrowed by nobody.
        unsafe { libc::munmap(self.base.cast(), 3 * PAGE) };
    }
}

#[test]
fn nothing_is_read_before_or_behind_a_packet() {
    let mut fenced = Fenced::new();
    let page = fenced.page();
    for form in supported() {
        let (ring, mut writer) = lane_in(form, 400);
        let mut expected = Vec::new();
        for len in (0..=700).chain([1400, 1518, PAGE - 1, PAGE]) {
            for flags in [0, 2] {
                for at in [0, PAGE - len] {
                    let data = &mut page[at..at + len];
                    data.copy_from_slice(&bytes_of(0, expected.len() as u64, len));
                    append(&mut writer, PacketHead { flags, ..head(len, 1) }, KeyEntry::default(), data);
                    expected.push(len);
                }
            }
        }
        drop(writer);
        let found = stand::accounts(&ring, 0).into_iter().flat_map(|account| account.packets);
        for (number, (_, data)) in found.enumerate() {
            assert!(data == bytes_of(0, number as u64, expected[number]), "{form:?}: packet {number}");
        }
    }
}

#[test]
fn a_form_is_known_by_its_name_and_refused_where_the_processor_lacks_it() {
    assert!(Form::Plain.is_supported());
    for form in Form::ALL {
        assert_eq!(form.supported().is_ok(), form.is_supported());
        assert!(!form.name().is_empty());
    }
}
