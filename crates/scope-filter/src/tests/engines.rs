//! Both engines against libpcap's own `bpf_filter`.

use std::sync::Arc;

use scope_packet::{Headers, KeyEntry, LinkType};

use crate::bpf::{Instruction, Program};
use crate::choice::Choice;
use crate::input::FilterInput;
use crate::libpcap::{self, ByteOrder};
use crate::native::Native;
use crate::pieces::Pieces;
use crate::specimens::{self, LINKS, Random, damaged_packet, filter, list, packet};

/// One program in all engines.
pub(super) struct Engines {
    /// libpcap's interpreter doesn't clear its scratch memory, and some of its programs (`vlan` on 802.11)
    /// read cells that they never wrote. The oracle runs behind a preface that clears them.
    oracle: Vec<Instruction>,
    program: Arc<Program>,
    native: Native,
}

impl Engines {
    /// `None` where the program tests what isn't in a packet's bytes.
    pub fn new(instructions: &[Instruction]) -> Option<Engines> {
        Some(Engines::with(instructions, Program::new(instructions).ok()?))
    }

    /// With a program that was made in another way than the oracle's.
    fn with(instructions: &[Instruction], program: Program) -> Engines {
        let program = Arc::new(program);
        let native = Native::new();
        native.make(std::slice::from_ref(&program), Choice::Tags).unwrap();
        let store = |cell| Instruction { code: 0x02, jump_true: 0, jump_false: 0, k: cell };
        let oracle = (0..16).map(store).chain(instructions.iter().copied()).collect();
        Engines { oracle, program, native }
    }

    /// What all answer to a packet.
    pub fn answer(&self, data: &[u8], original_len: u32, message: &dyn Fn() -> String) -> bool {
        let expected = libpcap::accepts(&self.oracle, data, original_len);
        let input = FilterInput::new(&Headers::default(), KeyEntry::default(), data, original_len);
        let native = self.native.accepts(&[input], 1).map(|hits| hits != 0);
        let answers = (self.program.accepts(data, original_len), native);
        assert_eq!(
            answers,
            (expected, Some(expected)),
            "(interpreter, native) on {}: {data:02x?}, {original_len} B",
            message()
        );
        expected
    }

    /// As many packets of `link`, whole and damaged; how many match.
    fn answer_to_many(
        &self,
        random: &mut Random,
        link: LinkType,
        packets: u32,
        message: &dyn Fn() -> String,
    ) -> u32 {
        let one = |_| {
            let data = if random.one_in(2) { damaged_packet(random, link) } else { packet(random, link) };
            let original_len =
                data.len() as u32 + if random.one_in(4) { random.below(1500) as u32 } else { 0 };
            u32::from(self.answer(&data, original_len, message))
        };
        (0..packets).map(one).sum()
    }
}

/// Pairs of filter and packet, generated from `seed` on: every text optimised, plain, and in pieces where it
/// has such.
fn agree_on_pairs(seed: u64, pairs: u64) {
    let mut random = Random::new(seed);
    let (mut done, mut matched, mut in_pieces) = (0u64, 0u64, 0u64);
    while done < pairs {
        let link = random.pick(&LINKS);
        let depth = random.below(4) as u32;
        let text = if random.one_in(3) { list(&mut random) } else { filter(&mut random, depth) };
        let tags = random.below(3) as usize;
        let whole = if tags == 0 { text.clone() } else { format!("{}({text})", "vlan and ".repeat(tags)) };
        let order = random.pick(&[ByteOrder::Native, ByteOrder::Swapped]);
        let message = || format!("{whole} on {}", link.name());
        let mut engines = Vec::new();
        if text.len() <= libpcap::OPTIMISED_BYTES_MAX {
            engines.extend(
                libpcap::compile(&whole, link, order).ok().and_then(|optimised| Engines::new(&optimised)),
            );
        }
        let plain = libpcap::compile_plain(&whole, link, order);
        if let Ok(plain) = &plain {
            engines.extend(Engines::new(plain));
        }
        if let Some(program) = Pieces::of(&text).and_then(|pieces| pieces.program(tags, link, order)) {
            let plain = plain.unwrap_or_else(|cause| {
                panic!("libpcap refuses what is compiled in pieces: {}: {cause}", message())
            });
            engines.push(Engines::with(&plain, program));
            in_pieces += 1;
        }
        for engines in engines {
            matched += u64::from(engines.answer_to_many(&mut random, link, 100, &message));
            done += 100;
        }
    }
    assert!(matched > done / 20, "too few of the {done} pairs match: {matched}");
    assert!(in_pieces > done / 2000, "too few of the texts of {done} pairs are in pieces: {in_pieces}");
    println!(
        "{done} pairs of filter and packet, {matched} match, in bpf_filter, the interpreter and machine code"
    );
}

#[test]
fn the_engines_agree_with_libpcap_on_generated_filters_and_packets() {
    agree_on_pairs(1, 60_000);
}

#[test]
#[ignore = "make fuzz-filters"]
fn the_engines_agree_with_libpcap_for_as_long_as_is_asked() {
    agree_on_pairs(specimens::asked_for("SEED", 1), specimens::asked_for("PAIRS", 10_000_000));
}

#[test]
fn what_is_taken_in_pieces_means_what_libpcap_makes_of_the_whole() {
    let mut random = Random::new(6);
    let parts = [
        "host 10.0.0.1",
        "port 80",
        "10.0.0.2",
        "443",
        "tcp",
        "less 60",
        "not",
        "(",
        ")",
        "and",
        "or",
        "src",
        "dst",
        "net 10.0.0.0/8",
        "ip proto 6",
        "17",
        "ether host",
        "02:00:00:00:00:01",
        "src or dst port",
        "tcp[13] & 2 != 0",
        "http",
        "1-2",
        "arp",
    ];
    let mut compared = 0;
    for _ in 0..40_000 {
        let text: Vec<_> = (0..1 + random.below(12)).map(|_| random.pick(&parts)).collect();
        let text = text.join(" ");
        let tags = random.below(3) as usize;
        if crate::words::check(&text).is_err() {
            continue;
        }
        let (link, order) = (LinkType::ETHERNET, ByteOrder::Native);
        if let Some(program) = Pieces::of(&text).and_then(|pieces| pieces.program(tags, link, order)) {
            let whole = format!("{}({text})", "vlan and ".repeat(tags));
            let plain = libpcap::compile_plain(&whole, link, order);
            let plain = plain.unwrap_or_else(|cause| {
                panic!("libpcap refuses what is compiled in pieces: {whole}: {cause}")
            });
            Engines::with(&plain, program).answer_to_many(&mut random, link, 40, &|| whole.clone());
            compared += 1;
        }
    }
    assert!(compared > 1250, "{compared} texts with 40 packets each");
}

/// Every opcode, with operands that lie at and around the bounds.
fn random_instruction(random: &mut Random, room: u8) -> Instruction {
    const CODES: [u16; 45] = [
        0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x00, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
        0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
        0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x35, 0x45, 0x07, 0x87, 0x16,
    ];
    let code = if random.one_in(4) { random.pick(&[0x20, 0x28, 0x30, 0x50]) } else { random.pick(&CODES) };
    let k = match code {
        0x60 | 0x61 | 0x02 | 0x03 => random.below(16) as u32,
        0x64 | 0x74 => random.below(32) as u32,
        0x34 | 0x94 => 1 + random.below(9) as u32,
        0x05 => random.below(u64::from(room) + 1) as u32,
        0x20 | 0x28 | 0x30 | 0xb1 => random.pick(&[
            0,
            1,
            14,
            20,
            59,
            60,
            61,
            62,
            63,
            64,
            65,
            u32::MAX >> 1,
            u32::MAX - 1,
            u32::MAX,
            0xffff_f040,
            0xffff_efff,
        ]),
        _ if random.one_in(3) => random.pick(&[0, 1, u32::MAX, u32::MAX - 3, 0x8000_0000, 60, 63, 64]),
        _ => random.below(70) as u32,
    };
    let jump = |random: &mut Random| {
        if code & 7 == 5 && code != 5 { random.below(u64::from(room) + 1) as u8 } else { 0 }
    };
    Instruction { code, jump_true: jump(random), jump_false: jump(random), k }
}

#[test]
fn the_engines_agree_with_libpcap_on_random_programs_of_every_opcode() {
    let mut random = Random::new(2);
    for _ in 0..6250 {
        let len = 2 + random.below(14) as u8;
        let mut instructions: Vec<_> =
            (0..len).map(|at| random_instruction(&mut random, len - 1 - at)).collect();
        instructions.push(Instruction {
            code: random.pick(&[0x06, 0x16]),
            jump_true: 0,
            jump_false: 0,
            k: 1,
        });
        let engines = Engines::new(&instructions).unwrap();
        for _ in 0..8 {
            let data: Vec<u8> = (0..60 + random.below(6)).map(|_| random.next() as u8).collect();
            engines.answer(&data, 1500, &|| format!("{instructions:x?}"));
        }
    }
}

#[test]
fn programs_that_leave_their_bounds_are_refused() {
    let accept = Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 1 };
    let refused = |code, jump_true, jump_false, k| {
        let found = Program::new(&[Instruction { code, jump_true, jump_false, k }, accept]);
        assert!(found.is_err(), "{code:#x} {jump_true} {jump_false} {k}");
    };
    refused(0x15, 1, 0, 0);
    refused(0x15, 0, 1, 0);
    refused(0x05, 0, 0, 1);
    refused(0x05, 0, 0, u32::MAX - 1);
    refused(0x60, 0, 0, 16);
    refused(0x02, 0, 0, 16);
    refused(0x34, 0, 0, 0);
    refused(0x94, 0, 0, 0);
    refused(0xff, 0, 0, 0);
    refused(0x20, 0, 0, 0xffff_f004);
    assert!(Program::new(&[]).is_err());
    assert!(Program::new(&[Instruction { code: 0x00, ..accept }]).is_err());
}

#[test]
fn a_program_that_jumps_back_for_ever_ends_with_a_rejection() {
    let back = Instruction { code: 0x05, jump_true: 0, jump_false: 0, k: u32::MAX };
    let accept = Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 1 };
    assert!(!Program::new(&[back, accept]).unwrap().accepts(&[], 0));
}

#[test]
fn a_filter_of_six_hundred_hosts_compiles() {
    let hosts: Vec<_> = (0..600u32).map(|n| format!("host 10.{}.{}.1", n / 256, n % 256)).collect();
    let filter =
        crate::Filter::compile(&hosts.join(" or "), crate::VlanRule::Exact, &[LinkType::RAW]).unwrap();
    let mut random = Random::new(3);
    let data = packet(&mut random, LinkType::RAW);
    let headers = scope_packet::Headers::parse(LinkType::RAW, &data);
    let _ = filter.for_link(LinkType::RAW).matches(&headers, &data, data.len() as u32);
}

#[test]
fn a_filter_of_two_matches_what_both_match() {
    use crate::{Filter, FilterEngine, VlanRule};
    let mut random = Random::new(28);
    let (mut pairs, mut both_match) = (0, 0);
    while pairs < 200 {
        let link = random.pick(&LINKS);
        let texts = [1, 2].map(|depth| filter(&mut random, depth));
        let compiled = texts.each_ref().map(|text| Filter::compile(text, VlanRule::Transparent, &[link]));
        let [Ok(one), Ok(other)] = compiled else { continue };
        let two = one.and(&other);
        let native = random.one_in(2);
        two.for_link(link);
        let _ = two.prepare(if native { FilterEngine::Native } else { FilterEngine::Interpreter });
        let screen = two.screen(link);
        for _ in 0..50 {
            let data = packet(&mut random, link);
            let headers = Headers::parse(link, &data);
            let matches = |filter: &Filter| filter.for_link(link).matches(&headers, &data, data.len() as u32);
            let expected = matches(&one) && matches(&other);
            assert_eq!(matches(&two), expected, "{texts:?} on {}: {data:02x?}", link.name());
            assert!(
                !expected || screen.may_match(&KeyEntry::new(&headers)),
                "{texts:?}: it is screened away"
            );
            both_match += u32::from(expected);
        }
        pairs += 1;
    }
    assert!(both_match > 100, "too few match both: {both_match}");
    let compile = |text: &str| Filter::compile(text, VlanRule::Transparent, &[]).unwrap();
    let everything = compile("").and(&compile(""));
    assert!(everything.is_everything() && everything.is_of_two());
    assert!(!compile("").and(&compile("udp")).is_everything());
    assert_eq!(compile("udp").and(&compile("tcp")).text(), "udp; of what matches: tcp");
}
