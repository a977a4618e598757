//! The part `filter`: machine code of filters against libpcap's own interpreter and against hand-written
//! Rust, long lists, compiling, many filters at once, a dump that is screened, triggers in a worker, many
//! open dumps, and a storm of hits.
//!
//! Every round runs every row once, and compared rows change places from round to round. Packets are
//! evaluated in batches of 64, as in workers; what a worker has at hand anyway, the parse of the headers, is
//! not measured.

mod bars;
mod compile_rows;
mod dump_rows;
mod libpcap;
mod live_rows;
mod many_rows;
mod rust;
mod small_rows;
mod storm_rows;
mod trigger_rows;

use crate::Scale;
use crate::record::Record;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use libpcap::BpfFilter;
use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterInput, Predicate, VlanRule};
use scope_measure::{Packets, Sizes};
use scope_packet::{Headers, KeyEntry, LinkType};

/// Packets that stay in a core's cache.
const HOT_PACKETS: u64 = 256;

/// A small filter, and the same as one would write it by hand.
struct Small {
    name: &'static str,
    text: &'static str,
    by_hand: fn(&[u8]) -> bool,
}

const SMALL: [Small; 4] = [
    Small { name: "port", text: "port 4000", by_hand: rust::port_4000 },
    Small { name: "host", text: "host 10.0.7.7", by_hand: rust::host_10_0_7_7 },
    Small { name: "tcp flags", text: "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0", by_hand: rust::syn_or_fin },
    Small {
        name: "net, 3 ports, not vlan",
        text: "net 10.0.0.0/8 and (port 1500 or port 4043 or port 8080) and not vlan",
        by_hand: rust::net_and_ports,
    },
];

/// Hosts of the long list.
const HOSTS: u32 = 100;

/// A hundred hosts, none of them in the packets: every look-up must go through.
fn hosts() -> String {
    (0..HOSTS).map(|n| format!("host 10.1.{}.{}", n / 7, n)).collect::<Vec<_>>().join(" or ")
}

/// A filter as a worker has it, in machine code.
fn native(text: &str) -> Result<Predicate> {
    let filter = Filter::compile(text, VlanRule::Transparent, &[LinkType::ETHERNET])
        .context("a filter of the bench")?;
    filter.make_native()?;
    Ok(filter.for_link(LinkType::ETHERNET))
}

/// Packets as a worker evaluates them.
fn inputs<'a>(frames: &[&'a [u8]]) -> Vec<FilterInput<'a>> {
    let one = |frame: &&'a [u8]| {
        let headers = Headers::parse(LinkType::ETHERNET, frame);
        FilterInput::new(&headers, KeyEntry::new(&headers), frame, frame.len() as u32)
    };
    frames.iter().map(one).collect()
}

/// How many of the packets match.
fn matches(predicate: &Predicate, inputs: &[FilterInput<'_>]) -> u64 {
    inputs
        .chunks(FILTER_INPUTS_MAX)
        .map(|batch| u64::from(predicate.matches_batch(batch, u64::MAX).count_ones()))
        .sum()
}

/// Whether a row counted what it must.
fn expect(found: u64, expected: u64) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found} packets match, not {expected}")) }
}

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, and filters that don't compile. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    let packets = Packets::new(Sizes::Imix);
    let hot: Vec<&[u8]> = (0..HOT_PACKETS).map(|number| packets.frame(number)).collect();
    let mut cold = small_rows::Cold::new(&packets, scale.file_bytes)?;
    let full = dump_rows::Full::new(scale.ring_bytes)?;
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        small_rows::hot(&hot, &mut table)?;
        small_rows::hosts(&hot, &mut table)?;
        cold.round(&mut table)?;
        compile_rows::round(&mut table)?;
        many_rows::round(&hot, &mut table)?;
        full.round(workspace, &mut table)?;
        trigger_rows::round(workspace, scale, &mut table);
        live_rows::round(workspace, scale, &mut table);
    }
    storm_rows::round(workspace, scale, &mut table);
    record.bars.extend(bars::bars(&table));
    table.finish(record);
    Ok(())
}
