//! Statistics as meant: where rows go, how long an interval is, which addresses are local.

use super::faults::{Faults, add, bad, such_as};
use super::{Look, count, duration, min_free};
use crate::args::RunArgs;
use scope_engine::StatsPlan;
use scope_fault::{Fault, Part, Setting, sentence};
use scope_flow::local::{Net, Rule};
use scope_spelling::values::{parse_duration_ns, parse_size};
use scope_stats::ipfix;
use scope_stats::place::Every;
use std::net::IpAddr;

/// Bounds of flows and rows.
const FLOWS_MAX: u64 = 1 << 26;
const ROWS_MAX: u64 = 1 << 24;
/// Longest silence within a record, and longest record, ns.
const FLOW_NS: i64 = scope_stats::asking::flows::FLOW_NS_MAX;

/// A length that an interval may have, ns.
const INTERVAL_NS: i64 = 10_000_000_000;

/// What needs statistics, each with an example.
const DB: (&str, &str) = ("db", "PATH");
const IPFIX: (&str, &str) = ("ipfix", "ADDR:PORT");
/// A trigger may have it in its table, too.
const WHEN: (&str, &str) = ("when", "COND");
/// Settings, and by which others they are used: alone they say nothing.
const USERS: [(&str, &[(&str, &str)]); 11] = [
    ("db-interval", &[DB]),
    ("db-every", &[DB]),
    ("db-keep", &[DB]),
    ("db-budget", &[DB]),
    ("db-min-free", &[DB]),
    ("no-flow-rows", &[DB]),
    ("traffic-rows", &[DB]),
    ("local", &[DB]),
    ("flows-max", &[DB, IPFIX, WHEN]),
    ("flow-idle", &[DB, IPFIX, WHEN]),
    ("flow-active", &[DB, IPFIX, WHEN]),
];

/// The statistics of a run, if it has some. `asks_flows`: a trigger needs the flow table.
pub fn plan(args: &RunArgs, asks_flows: bool, look: Look<'_>, faults: &mut Faults<'_>) -> Option<StatsPlan> {
    let stats = &args.stats;
    let length_ns = interval(&stats.db_interval, faults);
    let plan = StatsPlan {
        db: db(args, length_ns, look, faults),
        length_ns,
        flows_max: count("flows-max", &stats.flows_max, FLOWS_MAX, faults) as usize,
        idle_ns: span("flow-idle", &stats.flow_idle, faults),
        active_ns: span("flow-active", &stats.flow_active, faults),
        rows_max: count("traffic-rows", &stats.traffic_rows, ROWS_MAX, faults) as usize,
        local_text: stats.local.clone().unwrap_or_default(),
        local: stats.local.as_ref().map(|text| local(text, faults)).unwrap_or_default(),
        ipfix: stats
            .ipfix
            .as_ref()
            .and_then(|text| ipfix::collector(text).map_err(|fault| faults.add(fault)).ok()),
    };
    // Of statistics without a place everything is said by that.
    if stats.are_wanted() || !args.is_stats {
        add_unused(args, asks_flows, faults);
    }
    (stats.are_wanted() || asks_flows).then_some(plan)
}

/// Settings that say something else than what holds anyway, and of whose users none was given.
fn add_unused(args: &RunArgs, asks_flows: bool, faults: &mut Faults<'_>) {
    let is_given = |key: &str| args.settings.is_changed(key);
    for (key, users) in USERS {
        let is_used = users.iter().any(|&user| is_given(user.0) || user == WHEN && asks_flows);
        if !is_given(key) || is_used {
            continue;
        }
        let mut remedy = sentence![add()];
        for &(user, example) in users {
            remedy.0.extend([Setting::of(user).example(example).into(), Part::from(", or ")]);
        }
        remedy.0.push("omit it".into());
        let cause = if users.len() == 1 { "there is no database" } else { "no flows are followed" };
        faults.add(Fault::of(key).cause(cause).remedy(remedy));
    }
}

/// A time that isn't 0.
fn span(key: &'static str, text: &str, faults: &mut Faults<'_>) -> i64 {
    let before = faults.is_empty();
    let ns = duration(Fault::of(key), key, text, faults);
    if ns == 0 && (faults.is_empty() || !before) {
        faults.add(Fault::of(key).value(text, "is no time").remedy(such_as(key, "30s")));
    }
    if ns > FLOW_NS {
        faults.add(Fault::of(key).value(text, "is longer than a day").remedy(such_as(key, "1h")));
    }
    ns
}

fn local(text: &str, faults: &mut Faults<'_>) -> Rule {
    if text == "any" {
        return Rule::Any;
    }
    let nets = text.split(',').map(str::trim).filter_map(|part| {
        let fault = Fault::of("local");
        faults.add(match net(part) {
            None => {
                let fault = fault.value(part, "is no network");
                fault.remedy("write any, or networks such as 10.0.0.0/8,2001:db8::/32")
            }
            Some(net) if net.address != net.first() => {
                let fault = fault.value(part, format!("is an address within a network of {} bits", net.bits));
                fault.remedy(format!("write {}/{}, or {}", net.first(), net.bits, net.address))
            }
            Some(net) => return Some(net),
        });
        None
    });
    Rule::Nets(nets.collect())
}

fn net(text: &str) -> Option<Net> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
    (bits <= most).then_some(Net { address, bits })
}

fn db(
    args: &RunArgs,
    length_ns: i64,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Option<scope_stats::Options> {
    let stats = &args.stats;
    let size = |key: &'static str, text: &String, faults: &mut Faults<'_>| {
        let wrong = |cause| faults.add(bad(Fault::of(key), cause).remedy(such_as(key, "50GiB")));
        parse_size(text).map_err(wrong).ok()
    };
    let options = scope_stats::Options {
        db: stats.db.clone()?,
        every: stats.db_every.as_deref().and_then(|word| every(word, faults)),
        interval_ns: length_ns,
        keep: stats.db_keep.as_ref().map(|text| count("db-keep", text, u32::MAX.into(), faults) as u32),
        budget: stats.db_budget.as_ref().and_then(|text| size("db-budget", text, faults)),
        min_free: stats.db_min_free.as_ref().and_then(|text| min_free("db-min-free", text, faults)),
        flow_rows: !stats.no_flow_rows,
    };
    if look == Look::Machine {
        scope_stats::check(&options).into_iter().for_each(|fault| faults.add(fault));
    } else if let Some(fault) = scope_stats::check_interval(length_ns) {
        faults.add(fault);
    }
    Some(options)
}

/// The length of an interval, ns; of what is no time, or none that is meant, one of which nothing more is to be said.
fn interval(text: &str, faults: &mut Faults<'_>) -> i64 {
    let length_ns = duration(Fault::of("db-interval"), "db-interval", text, faults);
    if parse_duration_ns(text).is_ok_and(|ns| ns == length_ns) { length_ns } else { INTERVAL_NS }
}

fn every(word: &str, faults: &mut Faults<'_>) -> Option<Every> {
    let every = Every::of(word);
    if every.is_none() {
        let fault = Fault::of("db-every").value(word, "is no span of a file");
        faults.add(fault.remedy("write month, day or hour"));
    }
    every
}
