//! A thousand exact filters at once, as dumps have them, against one: by the table of keys that they share,
//! and alone without it.

use super::{expect, inputs, matches, native};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterInput, KeyTable, Predicate, VlanRule};
use scope_packet::LinkType;
use std::hint::black_box;
use std::time::Instant;

/// Filters at once.
const MANY: u32 = 1000;
/// Turns over the packets of one go, and goes: the best counts.
const TURNS: u32 = 400;
const GOES: usize = 15;

/// The first so many connections' filters as dumps have them: one look-up of a packet's key in what they
/// share, and each one's own program for what that leaves open.
struct Filters {
    keys: KeyTable,
    programs: Vec<Predicate>,
}

impl Filters {
    fn new(count: u32) -> Result<Filters> {
        let mut filters = Filters { keys: KeyTable::default(), programs: Vec::new() };
        for n in 0..count {
            let filter = Filter::compile(&flow(n), VlanRule::Transparent, &[LinkType::ETHERNET])
                .context("a dump's filter")?;
            filter.make_native()?;
            ensure!(filters.keys.insert(n.into(), &filter), "no key says anything of filter {n}");
            filters.programs.push(filter.for_link(LinkType::ETHERNET));
        }
        Ok(filters)
    }

    /// Calls `found` with the number of each filter that matches a packet, once for each of its packets.
    fn evaluate(&self, batch: &[FilterInput<'_>], mut found: impl FnMut(u64)) {
        let mut maybe = self.keys.maybe(batch.len(), |at| *batch[at].key());
        while maybe != 0 {
            let packet = &batch[maybe.trailing_zeros() as usize];
            maybe &= maybe - 1;
            self.evaluate_open(packet, &mut found);
        }
    }

    /// Evaluates the filters that the table leaves open.
    #[cold]
    fn evaluate_open(&self, packet: &FilterInput<'_>, found: &mut dyn FnMut(u64)) {
        let mut evaluate = |n: u64| {
            if self.programs[n as usize].matches_batch(&[*packet], 1) != 0 {
                found(n);
            }
        };
        if packet.key().partial() {
            for n in 0..self.programs.len() as u64 {
                evaluate(n);
            }
        } else {
            self.keys.each(packet.key(), &mut evaluate);
        }
    }
}

/// The filter of connection `n`, as `$flow` spells it.
fn flow(n: u32) -> String {
    let (a, b) = (format!("10.2.{}.{}", n / 250, n % 250 + 1), "10.0.9.9");
    let (p, q) = (1024 + n, 443);
    format!(
        "(tcp and ((src host {a} and src port {p} and dst host {b} and dst port {q}) or \
         (src host {b} and src port {q} and dst host {a} and dst port {p})))"
    )
}

/// A packet of connection `n`.
fn frame(n: u32) -> Vec<u8> {
    let mut bytes =
        vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 6, 0, 0];
    bytes.extend([10, 2, (n / 250) as u8, (n % 250) as u8 + 1, 10, 0, 9, 9]);
    bytes.extend((1024 + n as u16).to_be_bytes());
    bytes.extend(443u16.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    bytes
}

/// One filter and a thousand on packets of which one in 16 is of a connection that both know.
///
/// # Errors
/// A filter that doesn't compile.
pub fn round(background: &[&[u8]], table: &mut Table) -> Result<()> {
    let known = frame(0);
    let frames: Vec<&[u8]> = background
        .iter()
        .enumerate()
        .map(|(at, &frame)| if at % 16 == 0 { &known[..] } else { frame })
        .collect();
    let inputs = inputs(&frames);
    let expected = vec![0; frames.len().div_ceil(16)];
    alone(&inputs, expected.len() as u64, table)?;
    for count in [1, MANY] {
        let filters = Filters::new(count)?;
        let mut best = f64::MAX;
        let mut found = Vec::new();
        for _ in 0..GOES {
            let begun = Instant::now();
            for _ in 0..TURNS {
                found.clear();
                for batch in inputs.chunks(FILTER_INPUTS_MAX) {
                    filters.evaluate(batch, |n| found.push(n));
                }
                black_box(&found);
            }
            best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(TURNS) / inputs.len() as f64);
        }
        let outcome = if found == expected {
            check_all(&filters, count).map(|()| best)
        } else {
            Err(format!("found {found:?}"))
        };
        table.put("dumps_1000", &format!("{count} 5-tuple filters"), "ns", outcome);
    }
    Ok(())
}

/// One filter without a table, as a dump that runs alone has it.
fn alone(inputs: &[FilterInput<'_>], expected: u64, table: &mut Table) -> Result<()> {
    let predicate = native(&flow(0))?;
    let mut best = f64::MAX;
    let mut found = 0;
    for _ in 0..GOES {
        let begun = Instant::now();
        for _ in 0..TURNS {
            found = black_box(matches(&predicate, inputs));
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(TURNS) / inputs.len() as f64);
    }
    table.put(
        "dumps_1000",
        "1 5-tuple filter, without a table",
        "ns",
        expect(found, expected).map(|()| best),
    );
    Ok(())
}

/// Each filter is found by its own packet, and no other is.
fn check_all(filters: &Filters, count: u32) -> Result<(), String> {
    for n in 0..count {
        let bytes = frame(n);
        let mut found = Vec::new();
        filters.evaluate(&inputs(&[&bytes]), |n| found.push(n));
        if found != [u64::from(n)] {
            return Err(format!("the packet of connection {n} finds {found:?}"));
        }
    }
    Ok(())
}
