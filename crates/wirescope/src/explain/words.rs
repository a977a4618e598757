//! The explanation of a filter as people read it.

use super::packets::{self, Cost, TAG_COUNTS, Tally};
use super::{OfLink, Report};
use crate::words::{counted, number};
use scope_filter::VlanRule;
use std::fmt::Write;

const TAGS: [&str; TAG_COUNTS] =
    ["without VLAN tags", "with one VLAN tag", "with two VLAN tags", "with more VLAN tags"];

/// The whole text.
pub fn report(report: &Report) -> String {
    let mut text = format!("Filter: {}\n", if report.text.is_empty() { "(empty)" } else { &report.text });
    section(
        &mut text,
        "Meaning, by libpcap",
        report.notes.iter().chain([&vlan(report)]).map(|note| format!("- {note}")),
    );
    if let Some(file) = &report.file
        && report.links.iter().all(|of_link| of_link.tally.is_none_or(|tally| tally.packets() == 0))
    {
        section(&mut text, &format!("Packets of {file}"), ["it has none".to_string()]);
    }
    for of_link in &report.links {
        link(&mut text, of_link, report);
    }
    if let (Some(file), 1..) = (&report.file, report.beyond) {
        let (packets, most) = (counted(report.beyond, "packet"), packets::LINKS_MAX);
        let line = format!(
            "{packets}: the filter was evaluated for the first {most} link types only; split the file by \
            link type"
        );
        section(&mut text, &format!("Packets of {file} of further link types"), [line]);
    }
    text
}

/// A headline and indented lines.
fn section(text: &mut String, title: &str, lines: impl IntoIterator<Item = String>) {
    let _ = writeln!(text, "\n{title}");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

/// What the VLAN rule makes of the filter.
fn vlan(report: &Report) -> String {
    let through = report.links.iter().any(|of_link| of_link.filter.looks_through_tags());
    match (report.vlan, through) {
        (VlanRule::Transparent, true) => {
            "VLAN rule 'transparent': in packets with one or two VLAN tags the filter looks behind the \
            tags, as if the text were 'vlan and (...)'; it finds nothing behind more tags"
                .into()
        }
        (VlanRule::Transparent, false) => {
            "VLAN rule: the text says 'vlan' itself, so it follows libpcap literally: what isn't behind a \
            'vlan' in the text is looked for in untagged packets only"
                .into()
        }
        (VlanRule::Exact, _) => {
            "VLAN rule 'exact', literally as in libpcap: what isn't behind a 'vlan' in the text is looked \
            for in untagged packets only"
                .into()
        }
    }
}

fn link(text: &mut String, of_link: &OfLink, report: &Report) {
    let (link, filter) = (of_link.link, &of_link.filter);
    let name = link.name();
    if !filter.compiles_for(link) {
        section(
            text,
            &format!("Link type {name}"),
            ["this link type lacks what the filter needs: it matches no packet".to_string()],
        );
    }
    for printed in filter.printed(link) {
        let (length, lines) = match printed.lines.len() as u64 {
            0 => (
                "too long to be shown".into(),
                vec!["the text was compiled piece by piece, and the pieces joined".into()],
            ),
            length => (counted(length, "instruction"), printed.lines),
        };
        section(text, &format!("Program for {} ({name}), {length}", printed.packets), lines);
    }
    let lines = match of_link.screen.is_everything() {
        true => vec!["the key entry decides nothing: the program is evaluated for every packet".to_string()],
        false => {
            let told = of_link.screen.to_string();
            let or =
                |(index, line): (usize, &str)| format!("{}{line}", if index == 0 { "   " } else { "or " });
            told.lines().enumerate().map(or).collect()
        }
    };
    section(
        text,
        &format!("Screening ({name}): by its key entry alone a packet is passed over unless it is"),
        lines,
    );
    if let (Some(tally), Some(file)) = (&of_link.tally, &report.file) {
        section(text, &format!("Packets of {file} ({name})"), counts(tally));
    }
    if let Some((cost, packets)) = &of_link.cost {
        let of = if of_link.tally.is_some() { "of the file's" } else { "generated" };
        let title = format!(
            "Time per packet ({name}, {} {of} packets in the processor's cache)",
            number(*packets as u64)
        );
        section(text, &title, cost.iter().map(cost_words));
    }
}

fn cost_words((engine, cost): &Cost) -> String {
    match cost {
        Ok(ns) => format!("{:<12} {ns:.1} ns", engine.name()),
        Err(reason) => format!("{:<12} not available: {reason}", engine.name()),
    }
}

fn counts(tally: &Tally) -> Vec<String> {
    let share = |part: u64| format!("{:.1} %", 100.0 * part as f64 / tally.packets().max(1) as f64);
    let counts = |what: &str, packets: u64, matched: u64| {
        format!("{what}: {}, {} matched", counted(packets, "packet"), number(matched))
    };
    let mut lines =
        vec![format!("{} ({})", counts("all", tally.packets(), tally.matched()), share(tally.matched()))];
    let tagged = tally.by_tags[1..].iter().any(|(packets, _)| *packets > 0);
    if tagged {
        let by_tags = TAGS.iter().zip(tally.by_tags).filter(|(_, (packets, _))| *packets > 0);
        lines.extend(by_tags.map(|(what, (packets, matched))| counts(what, packets, matched)));
    }
    lines.push(format!(
        "screening leaves {} to the program ({})",
        counted(tally.let_through, "packet"),
        share(tally.let_through)
    ));
    lines
}
