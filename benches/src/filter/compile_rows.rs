//! From text to callable code, for packets with 0, 1 and 2 tags.

use super::{BpfFilter, hosts};
use crate::figures::median;
use crate::table::Table;
use anyhow::Result;
use scope_filter::{Filter, FilterInput, VlanRule};
use scope_packet::{Headers, KeyEntry, LinkType};
use std::time::Instant;

/// Compilations of one round: their median counts.
const TIMES: usize = 21;
/// Ethernet, IPv4, UDP, from 10.1.0.1 to port 60000: both filters match it.
const PACKET: [u8; 42] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 9,
    9, 9, 3, 0xe8, 0xea, 0x60, 0, 8, 0, 0,
];

/// A small filter and the long list.
///
/// # Errors
/// A filter that doesn't compile.
pub fn round(table: &mut Table) -> Result<()> {
    for (row, text, instructions) in [
        ("filter_compile_ms_small", "udp port 60000".to_string(), 20),
        ("filter_compile_ms_361", hosts(), 361),
    ] {
        let found = BpfFilter::new(&text)?.len();
        let outcome = if found == instructions {
            timed(&text)
        } else {
            Err(format!("libpcap makes {found} instructions of it"))
        };
        table.put(row, &format!("{instructions} instructions"), "ms", outcome);
    }
    Ok(())
}

fn timed(text: &str) -> Result<f64, String> {
    let headers = Headers::parse(LinkType::ETHERNET, &PACKET);
    let input = FilterInput::new(&headers, KeyEntry::new(&headers), &PACKET, PACKET.len() as u32);
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        let filter = Filter::compile(text, VlanRule::Transparent, &[LinkType::ETHERNET])
            .map_err(|error| error.to_string())?;
        filter.make_native().map_err(|error| error.to_string())?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        let predicate = filter.for_link(LinkType::ETHERNET);
        if !predicate.is_native() || predicate.matches_batch(&[input], 1) != 1 {
            return Err("the code doesn't match a packet that it must".to_string());
        }
    }
    median(&times).ok_or("nothing measured".to_string())
}
