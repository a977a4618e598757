//! What a script costs per packet, in one process and on packets that are in the caches: against calls from Rust,
//! against a native filter, and with the published example.
//!
//! | row | ours | peer |
//! |---|---|---|
//! | `script_batch_vs_call` | a script that reads five bytes of payload, by batches | the same function, called from Rust for each packet with a view that Rust has filled |
//! | `script_vs_native` | a script that does what `udp port 60000` does | that filter as machine code, in batches of 64 |
//! | `script_packet_library_ns` | the published example | |
//!
//! Ours takes packets as they lie in a ring and finds their layers for each. A filter's peer is given that, as in the
//! part `filter`; a reader of the ring that evaluates it parses first, which is a row of its own. Every go checks
//! the number of its hits.

use crate::table::Table;
use mlua::{Function, LightUserData, Lua, LuaOptions, StdLib};
use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterEngine, FilterInput, VlanRule};
use scope_packet::{Headers, KeyEntry, LinkType};
use scope_script::{EXAMPLES, Lent, Options, Script};
use scope_testkit::traffic::Random;
use std::hint::black_box;
use std::time::Instant;

/// Rows, and what they are of.
pub const BATCH: &str = "script_batch_vs_call";
pub const BY_BATCH: &str = "ours, by batch";
pub const CALLS: &str = "a call from Rust per packet";
pub const NATIVE: &str = "script_vs_native";
pub const SCRIPT: &str = "script";
pub const FILTER: &str = "native filter";
const WITH_PARSE: &str = "native filter, with the parse";
pub const LIBRARY: &str = "script_packet_library_ns";
pub const PAYLOADS: [&str; 2] = ["payloads of few kinds", "random payloads"];
const PARTS: &str = "script_parts_ns";

/// Packets of a go, goes of each way in a round, and how often a go goes over its packets. The best go counts: a hot
/// loop has no reason of its own to be slower now and then.
const PACKETS: usize = 4096;
const GOES: usize = 15;
const TURNS: usize = 20;
/// Of so many packets one hits.
const HIT_EVERY: usize = 16;
/// Where the payload of a UDP packet over IPv4 begins.
const PAYLOAD_AT: usize = 42;

const FIVE_BYTES: &str = "return function(pkt)
    local p = pkt.payload.uint8
    return p[0] == 72 and p[1] == 69 and p[2] == 76 and p[3] == 76 and p[4] == 79
end";
/// The same for the peer: a view that lies in Rust's memory.
const FIVE_BYTES_OF_A_VIEW: &str = "local ffi = require 'ffi'
ffi.cdef 'typedef struct { const uint8_t *data; uint32_t payload_at, payload_end; } bench_view;'
local cast, view_p = ffi.cast, ffi.typeof('const bench_view *')
return function(address)
    local view = cast(view_p, address)
    if view.payload_end - view.payload_at < 5 then return false end
    local p = view.data + view.payload_at
    return p[0] == 72 and p[1] == 69 and p[2] == 76 and p[3] == 76 and p[4] == 79
end";
const PORT: &str = "return function(pkt)
    return pkt.udp:getDstPort() == 60000 or pkt.udp:getSrcPort() == 60000
end";
const FLOWS: &str = "return wirescope.flows { state = 'struct { uint32_t packets; }', max = 65536,
    packet = function(key, state) state.packets = state.packets + 1 end }";

/// Every row once.
pub fn round(table: &mut Table) {
    batch(table);
    native(table);
    library(table);
    parts(table);
}

/// Goes over all packets once, and counts its hits.
type Way<'a> = (&'static str, Box<dyn FnMut() -> Result<usize, String> + 'a>);

/// Puts the best ns per packet of each of `ways`, which go by turns.
fn race(row: &'static str, table: &mut Table, mut ways: Vec<Way<'_>>, expected: usize) {
    let mut best = vec![Ok(f64::MAX); ways.len()];
    // The first go compiles.
    for go in 0..=GOES {
        for ((_, way), best) in ways.iter_mut().zip(&mut best) {
            let begun = Instant::now();
            let hits: Result<usize, String> = (0..TURNS).map(|_| way()).sum();
            let ns = begun.elapsed().as_nanos() as f64 / (TURNS * PACKETS) as f64;
            match hits {
                Err(fault) => *best = Err(fault),
                Ok(hits) if hits != expected * TURNS => {
                    *best = Err(format!("{hits} hits in {TURNS} turns, not {} in each", expected));
                }
                Ok(_) if go > 0 => *best = best.clone().map(|best| best.min(ns)),
                Ok(_) => {}
            }
        }
    }
    for ((of, _), best) in ways.iter().zip(best) {
        table.put(row, of, "ns", best);
    }
}

/// A UDP or TCP packet of `bytes` bytes over IPv4; ports of its source, addresses and what `payload` leaves are
/// random.
fn packet(random: &mut Random, bytes: usize, is_udp: bool, to_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut data = random.bytes(bytes);
    data[12..14].copy_from_slice(&[8, 0]);
    data[14..18].copy_from_slice(&[0x45, 0, ((bytes - 14) >> 8) as u8, (bytes - 14) as u8]);
    data[20..22].copy_from_slice(&[0, 0]);
    data[23] = if is_udp { 17 } else { 6 };
    data[34] = 4; // no port of a source is the one looked for
    data[36..38].copy_from_slice(&to_port.to_be_bytes());
    if is_udp {
        data[38..40].copy_from_slice(&((bytes - 34) as u16).to_be_bytes());
    } else {
        data[46] = 0x50;
    }
    let payload_at = if is_udp { PAYLOAD_AT } else { 54 };
    let len = payload.len().min(bytes - payload_at);
    data[payload_at..payload_at + len].copy_from_slice(&payload[..len]);
    data
}

fn lend(packets: &[Vec<u8>]) -> Vec<Lent<'_>> {
    packets
        .iter()
        .zip(0..)
        .map(|(data, number)| Lent {
            data,
            original_len: data.len() as u32,
            time_ns: number * 1000,
            interface: 0,
            flags: 0,
            link_type: LinkType::ETHERNET,
        })
        .collect()
}

/// A script, run in batches as a reader of segments does.
fn script<'a>(name: &'static str, text: &str, lent: &'a [Lent<'a>]) -> Way<'a> {
    let loaded = Script::load(text, &Options::named("measured.lua")).map_err(|error| error.to_string());
    let way = match loaded {
        Ok(mut script) => Box::new(move || {
            let hits = script.run(lent).map(<[_]>::len).map_err(|ended| format!("{ended:?}"))?;
            let errors = script.counts().errors;
            if errors == 0 { Ok(hits) } else { Err(format!("{errors} errors of the script")) }
        }) as Box<dyn FnMut() -> Result<usize, String> + 'a>,
        Err(fault) => Box::new(move || Err(fault.clone())),
    };
    (name, way)
}

fn batch(table: &mut Table) {
    let mut random = Random::new(7);
    let packets: Vec<Vec<u8>> = (0..PACKETS)
        .map(|number| {
            let payload: &[u8] = if number.is_multiple_of(HIT_EVERY) { b"HELLO" } else { b"WORLD" };
            packet(&mut random, 64, true, 60_000, payload)
        })
        .collect();
    let lent = lend(&packets);
    // SAFETY: the script below is this program's own.
    let lua = unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::new()) };
    let called = match lua.load(FIVE_BYTES_OF_A_VIEW).eval::<Function>() {
        Ok(function) => function,
        Err(error) => return table.put(BATCH, CALLS, "ns", Err(error.to_string())),
    };
    let calls = Box::new(|| lent.iter().map(|packet| call(&called, packet).map(usize::from)).sum());
    race(BATCH, table, vec![script(BY_BATCH, FIVE_BYTES, &lent), (CALLS, calls)], PACKETS / HIT_EVERY);
}

/// A packet as the peer's function sees it.
#[repr(C)]
struct View {
    data: *const u8,
    payload_at: u32,
    payload_end: u32,
}

/// Finds the layers of one packet, as our records do, and calls the function for it.
fn call(function: &Function, packet: &Lent<'_>) -> Result<bool, String> {
    let headers = Headers::parse(packet.link_type, packet.data);
    let payload_at = headers.ports().map_or(packet.data.len(), |_| PAYLOAD_AT) as u32;
    let view = View { data: packet.data.as_ptr(), payload_at, payload_end: packet.data.len() as u32 };
    let address = LightUserData((&raw const view).cast_mut().cast());
    function.call::<bool>(address).map_err(|error| error.to_string())
}

fn native(table: &mut Table) {
    let mut random = Random::new(9);
    // Simple IMIX: 7 of 64 B, 4 of 576 B, 1 of 1500 B.
    let sizes = [64, 64, 576, 64, 64, 576, 64, 1500, 64, 576, 64, 576];
    let packets: Vec<Vec<u8>> = (0..PACKETS)
        .map(|number| {
            let port = if number.is_multiple_of(64) { 60_000 } else { 1000 + random.below(50_000) as u16 };
            let is_udp = random.chance(50);
            packet(&mut random, sizes[number % sizes.len()], is_udp, port, b"")
        })
        .collect();
    let lent = lend(&packets);
    let is_hit = |data: &&Vec<u8>| data[23] == 17 && data[36..38] == 60_000u16.to_be_bytes();
    let expected = packets.iter().filter(is_hit).count();
    let filter = Filter::compile("udp port 60000", VlanRule::Transparent, &[LinkType::ETHERNET]);
    let filter = match filter.map(|filter| filter.prepare(FilterEngine::Native).map(|()| filter)) {
        Ok(Ok(filter)) => filter,
        Ok(Err(error)) => return table.put(NATIVE, FILTER, "ns", Err(error.to_string())),
        Err(error) => return table.put(NATIVE, FILTER, "ns", Err(error.to_string())),
    };
    let predicate = filter.for_link(LinkType::ETHERNET);
    let input = |packet: &Lent<'_>| {
        let headers = Headers::parse(packet.link_type, packet.data);
        (headers, KeyEntry::new(&headers))
    };
    let parsed: Vec<FilterInput<'_>> = lent
        .iter()
        .map(|packet| {
            let (headers, key) = input(packet);
            FilterInput::new(&headers, key, packet.data, packet.original_len)
        })
        .collect();
    let alone = || {
        let of_batch = |batch| predicate.matches_batch(black_box(batch), u64::MAX).count_ones() as usize;
        Ok(parsed.chunks(FILTER_INPUTS_MAX).map(of_batch).sum())
    };
    let with_parse = || {
        let mut inputs = [FilterInput::default(); FILTER_INPUTS_MAX];
        let mut hits = 0;
        for packets in lent.chunks(FILTER_INPUTS_MAX) {
            for (place, packet) in inputs.iter_mut().zip(packets) {
                let (headers, key) = input(packet);
                *place = FilterInput::new(&headers, key, packet.data, packet.original_len);
            }
            hits += predicate.matches_batch(&inputs[..packets.len()], u64::MAX).count_ones() as usize;
        }
        Ok(hits)
    };
    let ways: Vec<Way<'_>> =
        vec![script(SCRIPT, PORT, &lent), (FILTER, Box::new(alone)), (WITH_PARSE, Box::new(with_parse))];
    race(NATIVE, table, ways, expected);
}

fn library(table: &mut Table) {
    for name in PAYLOADS {
        let mut random = Random::new(11);
        let packets: Vec<Vec<u8>> = (0..PACKETS)
            .map(|number| {
                let payload: &[u8] = match number % 64 {
                    0 => b"EXAMPLE of a payload",
                    _ if name == PAYLOADS[1] => b"",
                    1..=31 => b"something else",
                    _ => b"quite another",
                };
                packet(&mut random, 64, true, 60_000, payload)
            })
            .collect();
        let lent = lend(&packets);
        race(LIBRARY, table, vec![script(name, EXAMPLES[0].text, &lent)], PACKETS / 64);
    }
}

/// What else a script's time is made of, without a bar.
fn parts(table: &mut Table) {
    let mut random = Random::new(13);
    let packets: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(&mut random, 64, true, 60_000, b"")).collect();
    let lent = lend(&packets);
    race(PARTS, table, vec![script("an empty script", "return function() end", &lent)], 0);
    race(PARTS, table, vec![script("wirescope.flows, each packet a flow", FLOWS, &lent)], 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_counts_wrong_has_no_time() {
        let mut table = Table::default();
        let ways: Vec<Way<'_>> = vec![("right", Box::new(|| Ok(3))), ("wrong", Box::new(|| Ok(4)))];
        race(BATCH, &mut table, ways, 3);
        assert!(table.median((BATCH, "right")).is_some() && table.median((BATCH, "wrong")).is_none());
        assert!(table.faults(&[(BATCH, "wrong")])[0].contains("not 3 in each"));
    }

    #[test]
    fn packets_are_what_their_headers_say() {
        let mut random = Random::new(1);
        for (bytes, is_udp) in [(64, true), (64, false), (1500, true)] {
            let data = packet(&mut random, bytes, is_udp, 60_000, b"HELLO");
            let headers = Headers::parse(LinkType::ETHERNET, &data);
            assert_eq!(headers.ports().map(|ports| ports.1), Some(60_000));
            assert_eq!(headers.protocol(), if is_udp { 17 } else { 6 });
            assert_eq!(data.len(), bytes);
            let at = if is_udp { PAYLOAD_AT } else { 54 };
            assert_eq!(&data[at..at + 5], b"HELLO");
        }
    }
}
