//! What a script costs per packet: `cargo run --release -p scope-script --example measure`. Each figure is the
//! best of 15 rounds, in turns, since others use the machine, too; every round checks its own result.

use mlua::{Function, Lua, LuaOptions, StdLib};
use scope_filter::{Filter, FilterEngine, FilterInput, VlanRule};
use scope_packet::{Headers, KeyEntry, LinkType};
use scope_script::{EXAMPLES, Lent, Options, Script};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 15;
const PACKETS: usize = 4096;
const REPEATS: usize = 20;

/// A generator of numbers that is the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A UDP or TCP packet of `bytes` bytes with random ports, addresses and payload.
fn packet(numbers: &mut Numbers, bytes: usize, protocol: u8, to_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut data: Vec<u8> = (0..bytes).map(|_| numbers.next() as u8).collect();
    data[12..14].copy_from_slice(&[8, 0]);
    data[14..18].copy_from_slice(&[0x45, 0, ((bytes - 14) >> 8) as u8, (bytes - 14) as u8]);
    data[20..22].copy_from_slice(&[0, 0]);
    data[23] = protocol;
    data[34..38].copy_from_slice(&[4, numbers.next() as u8, (to_port >> 8) as u8, to_port as u8]);
    let payload_at = if protocol == 17 { 42 } else { 54 };
    if protocol == 17 {
        data[38..40].copy_from_slice(&((bytes - 34) as u16).to_be_bytes());
    } else {
        data[46] = 0x50;
    }
    let len = payload.len().min(bytes - payload_at);
    data[payload_at..payload_at + len].copy_from_slice(&payload[..len]);
    data
}

fn lend(packets: &[Vec<u8>]) -> Vec<Lent<'_>> {
    packets
        .iter()
        .zip(0..)
        .map(|(data, n)| Lent {
            data,
            original_len: data.len() as u32,
            time_ns: n * 1000,
            interface: 0,
            flags: 0,
            link_type: LinkType::ETHERNET,
        })
        .collect()
}

/// Goes over all packets once, and counts its hits.
type Way<'a> = Box<dyn FnMut() -> usize + 'a>;

/// The best ns per packet of each of `ways`, run in turns.
fn best_of<const N: usize>(mut ways: [(&str, Way<'_>); N], expected: usize) -> [f64; N] {
    let mut times: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for round in 0..=ROUNDS {
        for (at, (name, way)) in ways.iter_mut().enumerate() {
            let start = Instant::now();
            let mut hits = 0;
            for _ in 0..REPEATS {
                hits += way();
            }
            let ns = start.elapsed().as_nanos() as f64 / (REPEATS * PACKETS) as f64;
            assert_eq!(hits, expected * REPEATS, "{name} is wrong");
            if round > 0 {
                times[at].push(ns);
            }
        }
    }
    let best = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[0]
    });
    for ((name, _), ns) in ways.iter().zip(best) {
        println!("  {ns:8.1} ns per packet: {name}");
    }
    best
}

fn script(text: &str) -> Script {
    Script::load(text, &Options::named("measured.lua")).expect("it loads")
}

/// Runs a script in batches as a reader of segments would.
fn run(script: &mut Script, lent: &[Lent<'_>]) -> usize {
    script.run(lent).expect("it runs").len()
}

fn batch_against_calls() {
    let mut numbers = Numbers(7);
    let packets: Vec<Vec<u8>> = (0..PACKETS)
        .map(|n| packet(&mut numbers, 64, 17, 60000, if n % 16 == 0 { b"HELLO" } else { b"WORLD" }))
        .collect();
    let lent = lend(&packets);
    let mut ours = script(
        "return function(pkt)
            local p = pkt.payload.uint8
            return p[0] == 72 and p[1] == 69 and p[2] == 76 and p[3] == 76 and p[4] == 79
        end",
    );
    // What one would write first: a pointer and a length by a call for each packet.
    // SAFETY: the script below is this program's own.
    let lua = unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::new()) };
    let one: Function = lua
        .load(
            "local ffi = require 'ffi'
            local cast, u8p = ffi.cast, ffi.typeof('const uint8_t *')
            return function(address, bytes)
                local p = cast(u8p, address) + 42
                return bytes >= 47 and p[0] == 72 and p[1] == 69 and p[2] == 76 and p[3] == 76 and p[4] == 79
            end",
        )
        .eval()
        .expect("it loads");
    println!("five payload bytes, 64 B");
    let [ours, calls] = best_of(
        [
            ("by batch", Box::new(|| run(&mut ours, &lent))),
            (
                "a call from Rust per packet",
                Box::new(|| {
                    let hit = |packet: &&Lent<'_>| {
                        let address = mlua::LightUserData(packet.data.as_ptr().cast_mut().cast());
                        one.call::<bool>((address, packet.data.len())).expect("it runs")
                    };
                    lent.iter().filter(hit).count()
                }),
            ),
        ],
        PACKETS / 16,
    );
    println!("script_batch_vs_call {:.1} (bar >= 10)", calls / ours);
}

fn against_native() {
    let mut numbers = Numbers(9);
    // Simple IMIX: 7 of 64 B, 4 of 576 B, 1 of 1500 B.
    let sizes = [64, 64, 576, 64, 64, 576, 64, 1500, 64, 576, 64, 576];
    let packets: Vec<Vec<u8>> = (0..PACKETS)
        .map(|n| {
            let protocol = if numbers.next().is_multiple_of(2) { 17 } else { 6 };
            let port = if n % 64 == 0 { 60000 } else { 1000 + (numbers.next() % 50000) as u16 };
            packet(&mut numbers, sizes[n % 12], protocol, port, b"")
        })
        .collect();
    let lent = lend(&packets);
    let port =
        |data: &Vec<u8>| data[23] == 17 && (data[34..36] == [0xea, 0x60] || data[36..38] == [0xea, 0x60]);
    let expected = packets.iter().filter(|data| port(data)).count();
    let mut ours = script(
        "return function(pkt)
            return pkt.udp:getDstPort() == 60000 or pkt.udp:getSrcPort() == 60000
        end",
    );
    let filter =
        Filter::compile("udp port 60000", VlanRule::Transparent, &[LinkType::ETHERNET]).expect("it compiles");
    filter.prepare(FilterEngine::Native).expect("machine code");
    let predicate = filter.for_link(LinkType::ETHERNET);
    let parsed: Vec<FilterInput<'_>> = lent
        .iter()
        .map(|packet| {
            let headers = Headers::parse(packet.link_type, packet.data);
            FilterInput::new(&headers, KeyEntry::new(&headers), packet.data, packet.original_len)
        })
        .collect();
    println!("udp port 60000, IMIX");
    let [ours, alone, parsing] = best_of(
        [
            ("script", Box::new(|| run(&mut ours, &lent))),
            (
                "native filter, packets parsed before",
                Box::new(|| {
                    parsed
                        .chunks(64)
                        .map(|batch| {
                            predicate.matches_batch(black_box(batch), u64::MAX).count_ones() as usize
                        })
                        .sum()
                }),
            ),
            (
                "native filter, with the parse",
                Box::new(|| {
                    let mut inputs = [FilterInput::default(); 64];
                    let mut hits = 0;
                    for packets in lent.chunks(64) {
                        for (input, packet) in inputs.iter_mut().zip(packets) {
                            let headers = Headers::parse(packet.link_type, packet.data);
                            let key = KeyEntry::new(&headers);
                            *input = FilterInput::new(&headers, key, packet.data, packet.original_len);
                        }
                        hits += predicate.matches_batch(&inputs, u64::MAX).count_ones() as usize;
                    }
                    hits
                }),
            ),
        ],
        expected,
    );
    println!(
        "script_vs_native {:.1} over the filter alone, {:.1} over parse and filter (bar <= 6)",
        ours / alone,
        ours / parsing
    );
}

fn published_example() {
    for (name, random) in [("payloads of few kinds", false), ("random payloads", true)] {
        let mut numbers = Numbers(11);
        let packets: Vec<Vec<u8>> = (0..PACKETS)
            .map(|n| {
                let payload: &[u8] = match n % 64 {
                    0 => b"EXAMPLE of a payload",
                    _ if random => b"",
                    1..=31 => b"something else",
                    _ => b"quite another",
                };
                packet(&mut numbers, 64, 17, 60000, payload)
            })
            .collect();
        let lent = lend(&packets);
        let mut example = script(EXAMPLES[0].text);
        println!("the published example, 64 B, {name}");
        let [ns] = best_of([("script", Box::new(|| run(&mut example, &lent)))], PACKETS / 64);
        println!("script_packet_library_ns {ns:.1} (bar <= 40)");
    }
}

fn parts() {
    let mut numbers = Numbers(13);
    let packets: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(&mut numbers, 64, 17, 60000, b"")).collect();
    let lent = lend(&packets);
    let mut empty = script("return function() end");
    println!("an empty script, 64 B");
    best_of([("script", Box::new(|| run(&mut empty, &lent)))], 0);
    let mut flows = script(
        "return wirescope.flows { state = 'struct { uint32_t packets; }', max = 65536,
            packet = function(key, state) state.packets = state.packets + 1 end }",
    );
    println!("wirescope.flows, {PACKETS} flows, 64 B");
    best_of([("script", Box::new(|| run(&mut flows, &lent)))], 0);
}

fn main() {
    println!("machine code: {}", scope_script::machine_code_works());
    parts();
    batch_against_calls();
    against_native();
    published_example();
}
