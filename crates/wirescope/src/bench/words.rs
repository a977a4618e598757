//! The figures as a table and a few sentences.

use super::{Figures, Row, middle};
use crate::words::{bit_rate, size, span};
use scope_measure::uses_avx512;
use std::fmt::Write;

/// From this share of what memory takes on, memory is the limit.
const MEMORY_SHARE: f64 = 0.8;
/// Below this share the core is.
const CORE_SHARE: f64 = 0.5;
/// Bytes that a line has between frames: preamble and gap.
const LINE_BYTES: f64 = 20.0;
/// A line to compare with, bits per second.
const LINE_BITS: f64 = 10e9;

/// All of it.
pub fn report(figures: &Figures) -> String {
    let mut text = String::new();
    let cores =
        if figures.workers == 1 { "1 core".to_string() } else { format!("{} cores", figures.workers) };
    let _ = writeln!(text, "{}, {cores} measured", figures.machine);
    let _ = writeln!(
        text,
        "ring of {}, segments of {}, made resident in {}; every result was checked\nits memory: {}",
        size(figures.ring_bytes),
        size(figures.segment_bytes),
        span(figures.prefault.as_nanos() as i64),
        figures.memory
    );
    let fill = if uses_avx512() { "AVX-512" } else { "no AVX-512" };
    let _ =
        writeln!(text, "memory takes {} from one core{} ({fill})", rate(figures.fill_one), from_all(figures));
    let _ = writeln!(text, "packets are stored in form {}\n", figures.form.name());
    let _ = writeln!(text, "packets  workers  reader     packets/s  traffic      of memory  what limits it");
    for row in &figures.rows {
        let _ = writeln!(text, "{}", line(row, figures));
    }
    let _ = write!(text, "\n{}", sentences(figures));
    text
}

fn rate(bytes_per_ns: f64) -> String {
    format!("{bytes_per_ns:.1} GB/s")
}

fn from_all(figures: &Figures) -> String {
    if figures.workers == 1 {
        String::new()
    } else {
        format!(", {} from {}", rate(figures.fill_all), figures.workers)
    }
}

impl Row {
    fn packets_per_s(&self) -> f64 {
        1e9 / middle(&self.ns)
    }

    /// What is stored per time, as a share of what memory takes from as many cores.
    fn of_memory(&self, figures: &Figures) -> f64 {
        let fill = if self.workers == 1 { figures.fill_one } else { figures.fill_all };
        figures.sources[self.packets].stored_bytes_mean() / middle(&self.ns) / fill
    }
}

fn line(row: &Row, figures: &Figures) -> String {
    let of_memory = row.of_memory(figures);
    let bits = row.packets_per_s() * figures.sources[row.packets].bytes_mean() * 8.0;
    let reader = match (row.reader, row.missed) {
        (false, _) => "-".to_string(),
        (true, 0.0) => "all seen".to_string(),
        (true, missed) => format!("{:.0} % seen", (100.0 * (1.0 - missed)).floor()),
    };
    let packets = format!("{:.1} M", row.packets_per_s() / 1e6);
    let share = format!("{:.0} %", 100.0 * of_memory);
    let words = limit(of_memory, row.reader);
    format!(
        "{:<8} {:>7}  {reader:<9}  {packets:>9}  {:<11}  {share:>9}  {words}",
        row.size,
        row.workers,
        bit_rate(bits)
    )
}

/// What a row is limited by.
fn limit(of_memory: f64, reader: bool) -> &'static str {
    match of_memory {
        MEMORY_SHARE.. => "memory: nothing can store faster here",
        CORE_SHARE.. if reader => "core and memory, which the reader shares",
        CORE_SHARE.. => "core and memory, about half each",
        _ if reader => "core: parse and copy; the reader takes some cache",
        _ => "core: parsing and copying each packet",
    }
}

/// What follows from the table for a line that somebody wants to record.
fn sentences(figures: &Figures) -> String {
    let one =
        |size: &str| figures.rows.iter().find(|row| row.size == size && row.workers == 1 && !row.reader);
    let mut text = String::new();
    for size in ["64 B", "IMIX"] {
        let Some(row) = one(size) else { continue };
        let per_line = LINE_BITS / 8.0 / (figures.sources[row.packets].bytes_mean() + LINE_BYTES);
        let times = row.packets_per_s() / per_line;
        let _ = writeln!(
            text,
            "A full 10 Gbit/s line of {size} packets is {:.1} M packets/s: one worker stores {times:.1} \
             times that.",
            per_line / 1e6
        );
    }
    text + "This is the ring alone, headers parsed and keyed; what kernel and card need to deliver packets \
        comes on top.\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_measure::{Packets, Sizes};
    use scope_ring::{Form, MemoryKind, RingMemory};
    use std::time::Duration;

    #[test]
    fn the_report_says_rates_and_what_limits_them() {
        let row = |packets, size, ns, reader, missed| Row {
            size,
            packets,
            workers: 1,
            reader,
            ns: vec![ns, ns, 2.0 * ns],
            missed,
        };
        let figures = Figures {
            machine: "Some CPU, kernel 6.1".to_string(),
            form: Form::Plain,
            ring_bytes: 1 << 30,
            segment_bytes: 2 << 20,
            prefault: Duration::from_millis(400),
            memory: RingMemory {
                kind: MemoryKind::Hugetlb { page_bytes: 2 << 20 },
                locked: false,
                node: None,
            },
            fill_one: 20.0,
            fill_all: 30.0,
            workers: 2,
            sources: vec![Packets::new(Sizes::Fixed(64)), Packets::new(Sizes::Fixed(1518))],
            rows: vec![row(0, "64 B", 20.0, false, 0.0), row(1, "1518 B", 80.0, true, 0.255)],
        };
        let text = report(&figures);
        for expected in [
            "Some CPU, kernel 6.1, 2 cores measured",
            "ring of 1 GiB, segments of 2 MiB, made resident in 400 ms; every result was checked\nits \
             memory: 2 MiB huge pages from hugetlbfs\n",
            "memory takes 20.0 GB/s from one core, 30.0 GB/s from 2",
            "packets are stored in form plain",
            "64 B           1  -             50.0 M  25.6 Gbit/s       28 %  core: parsing and copying each \
             packet",
            "1518 B         1  74 % seen     12.5 M  152 Gbit/s        98 %  memory: nothing can store \
             faster here",
            "A full 10 Gbit/s line of 64 B packets is 14.9 M packets/s: one worker stores 3.4 times that.",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
