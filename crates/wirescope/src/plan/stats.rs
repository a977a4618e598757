//! Statistics as meant: where rows go, how long an interval is, which addresses are local.

use super::faults::{Faults, bad, such_as};
use super::{Look, count, duration};
use crate::args::RunArgs;
use scope_config::Origin;
use scope_engine::StatsPlan;
use scope_fault::{Fault, Setting, sentence};
use scope_flow::local::{Net, Rule};
use scope_spelling::values::{SizeOrShare, parse_size, parse_size_or_share};
use scope_stats::ipfix;
use scope_stats::place::Every;
use std::net::IpAddr;

/// Bounds of flows and rows.
const FLOWS_MAX: u64 = 1 << 26;
const ROWS_MAX: u64 = 1 << 24;
/// What is nothing where nothing is counted. Others have values by themselves.
const OF_STATISTICS: [&str; 5] = ["db-every", "db-keep", "db-budget", "db-min-free", "local"];

/// The statistics of a run, if it has some. `asks_flows`: a trigger needs the flow table.
pub fn plan(args: &RunArgs, asks_flows: bool, look: Look<'_>, faults: &mut Faults<'_>) -> Option<StatsPlan> {
    let stats = &args.stats;
    let length_ns = duration(Fault::of("db-interval"), "db-interval", &stats.db_interval, faults);
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
    if !stats.are_wanted() {
        let is_given =
            |key: &&&str| args.settings.values(key).iter().any(|value| value.origin != Origin::Default);
        for key in OF_STATISTICS.iter().filter(is_given) {
            let fault = Fault::of(*key).cause("there are no statistics");
            faults.add(fault.remedy(sentence!["add ", Setting::of("db").example("PATH"), ", or omit it"]));
        }
    }
    (stats.are_wanted() || asks_flows).then_some(plan)
}

/// A time that isn't 0.
fn span(key: &'static str, text: &str, faults: &mut Faults<'_>) -> i64 {
    let before = faults.is_empty();
    let ns = duration(Fault::of(key), key, text, faults);
    if ns == 0 && (faults.is_empty() || !before) {
        faults.add(Fault::of(key).value(text, "is no time").remedy(such_as(key, "30s")));
    }
    ns
}

fn local(text: &str, faults: &mut Faults<'_>) -> Rule {
    if text == "any" {
        return Rule::Any;
    }
    let nets = text.split(',').filter_map(|part| match net(part.trim()) {
        Some(net) => Some(net),
        None => {
            let fault = Fault::of("local").value(part, "is no network");
            faults.add(fault.remedy("write any, or networks such as 10.0.0.0/8,2001:db8::/32"));
            None
        }
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
        every: stats.db_every.as_deref().and_then(Every::of),
        interval_ns: length_ns,
        keep: stats.db_keep.as_ref().map(|text| count("db-keep", text, u32::MAX.into(), faults) as u32),
        budget: stats.db_budget.as_ref().and_then(|text| size("db-budget", text, faults)),
        min_free: stats.db_min_free.as_ref().and_then(|text| min_free(text, faults)),
        flow_rows: !stats.no_flow_rows,
    };
    if look == Look::Machine {
        for fault in scope_stats::check(&options) {
            faults.add(fault);
        }
    } else if let Some(fault) = scope_stats::check_interval(length_ns) {
        faults.add(fault);
    }
    Some(options)
}

fn min_free(text: &str, faults: &mut Faults<'_>) -> Option<SizeOrShare> {
    match parse_size_or_share(text) {
        Ok(SizeOrShare::Ppm(ppm)) if ppm >= 1_000_000 => {
            let fault = Fault::of("db-min-free").value(text, "is the whole file system");
            faults.add(fault.remedy("write less than 100%"));
            None
        }
        Ok(free) => Some(free),
        Err(cause) => {
            faults.add(bad(Fault::of("db-min-free"), cause).remedy(such_as("db-min-free", "10%")));
            None
        }
    }
}
