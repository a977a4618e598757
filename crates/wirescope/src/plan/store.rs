//! The store as meant: its volumes, what each may take, what goes into them.

use super::faults::{Faults, bad, such_as};
use super::places::writable_folder;
use super::{Look, duration};
use crate::args::RunArgs;
use scope_engine::{StoreLimits, StorePlan, VolumePlan};
use scope_fault::{Fault, Setting, Subject, sentence};
use scope_filter::{Filter, VlanRule};
use scope_packet::LinkType;
use scope_packet::segment::SEGMENT_BYTES_MAX;
use scope_ring::RingConfig;
use scope_spelling::values::{SizeOrShare, parse_size, parse_size_or_share};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Volumes of one run at most.
const VOLUMES_MAX: usize = 64;
/// Shortest and longest time between two flushes.
const FLUSH_NS: std::ops::RangeInclusive<i64> = 10_000_000..=3_600_000_000_000;
/// Smallest and largest file of a volume.
const FILE_BYTES_MIN: u64 = 4 * SEGMENT_BYTES_MAX as u64;
const FILE_BYTES_MAX: u64 = 1 << 40;
/// A volume may take at least so much: four files of the smallest kind, and what isn't a file's.
const BUDGET_MIN: u64 = 4 * FILE_BYTES_MIN + (1 << 20);
/// Default of `--store-file`.
const FILE_BYTES: u64 = 1 << 30;

/// All about the store; `None`: the run has none.
pub fn plan(
    args: &RunArgs,
    ring: &RingConfig,
    vlan: VlanRule,
    link_types: &[LinkType],
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> (Option<StorePlan>, Vec<StoreLimits>) {
    let limits = limits(args, faults);
    let flush_ns = duration(Fault::of("store-flush"), "store-flush", &args.store_flush, faults);
    if !FLUSH_NS.contains(&flush_ns) && faults.is_empty() {
        let fault = Fault::of("store-flush").value(&args.store_flush, "is not a time between two flushes");
        faults.add(fault.remedy("write 10ms to 1h"));
    }
    let behind = behind(&args.store_behind, ring, faults);
    let filter = args.store_filter.as_ref().and_then(|text| filter(text, vlan, link_types, faults));
    let snap = args.store_snap.as_ref().map_or(0, |text| snap(text, faults));
    if args.store.is_empty() {
        without_a_store(args, faults);
        return (None, Vec::new());
    }
    if args.store.len() > VOLUMES_MAX {
        let fault = Fault::of("store").cause(format!("{} volumes are too many", args.store.len()));
        faults.add(fault.remedy(format!("at most {VOLUMES_MAX}")));
    }
    let folders = args.store.iter().map(|path| folder(path, look, faults));
    let folders: Vec<Option<PathBuf>> = folders.collect();
    let sizes = files(args, &limits, faults);
    let volumes = folders.into_iter().zip(&sizes);
    let volumes =
        volumes.filter_map(|(folder, file)| Some(VolumePlan { folder: folder?, file_bytes: *file }));
    let plan = StorePlan {
        volumes: volumes.collect(),
        flush: Duration::from_nanos(flush_ns.max(0) as u64),
        behind,
        filter,
        snap,
        chain: args.store_chain,
    };
    (Some(plan), limits)
}

/// Settings that mean nothing without a store.
fn without_a_store(args: &RunArgs, faults: &mut Faults<'_>) {
    let given = [
        ("store-budget", !args.store_budget.is_empty()),
        ("store-age", !args.store_age.is_empty()),
        ("store-min-free", !args.store_min_free.is_empty()),
        ("store-file", !args.store_file.is_empty()),
        ("store-filter", args.store_filter.is_some()),
        ("store-snap", args.store_snap.is_some()),
        ("store-chain", args.store_chain),
    ];
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        let remedy = sentence!["add ", Setting::of("store").example("DIR"), ", or omit it"];
        faults.add(Fault::of(*key).cause("there is no store").remedy(remedy));
    }
}

/// The folder of a volume. It needn't exist: then its parent must.
fn folder(path: &Path, look: Look<'_>, faults: &mut Faults<'_>) -> Option<PathBuf> {
    if look != Look::Machine {
        return Some(path.to_path_buf());
    }
    writable_folder(path, "store", look, faults)
}

/// The n-th value of a list that has one for each volume, or one for all.
fn nth(values: &[String], index: usize) -> Option<&String> {
    if values.len() == 1 { values.first() } else { values.get(index) }
}

/// What each volume may take.
fn limits(args: &RunArgs, faults: &mut Faults<'_>) -> Vec<StoreLimits> {
    let lists = [
        ("store-budget", &args.store_budget),
        ("store-age", &args.store_age),
        ("store-min-free", &args.store_min_free),
        ("store-file", &args.store_file),
    ];
    for (key, list) in lists {
        if !args.store.is_empty() && list.len() > 1 && list.len() != args.store.len() {
            let (given, volumes) = (list.len(), args.store.len());
            let cause = format!("{given} values for {volumes} volumes");
            let remedy = sentence!["write one for all, or one for each ", Setting::of("store")];
            faults.add(Fault::of(key).cause(cause).remedy(remedy));
        }
    }
    let budgets: Vec<_> = args.store_budget.iter().map(|text| budget(text, faults)).collect();
    let free: Vec<_> = args.store_min_free.iter().map(|text| min_free(text, faults)).collect();
    let ages: Vec<_> = args.store_age.iter().map(|text| age(text, faults)).collect();
    let of = |values: &[Option<SizeOrShare>], index: usize| {
        if values.len() == 1 { values[0] } else { values.get(index).copied().flatten() }
    };
    let age_of = |index: usize| if ages.len() == 1 { ages[0] } else { ages.get(index).copied().flatten() };
    (0..args.store.len())
        .map(|index| StoreLimits {
            budget: of(&budgets, index),
            age_ns: age_of(index),
            min_free: of(&free, index),
        })
        .collect()
}

fn budget(text: &str, faults: &mut Faults<'_>) -> Option<SizeOrShare> {
    match parse_size_or_share(text) {
        Ok(SizeOrShare::Bytes(bytes)) if bytes < BUDGET_MIN => {
            let fault = Fault::of("store-budget").value(text, "is too little for four files");
            faults.add(fault.remedy("write at least 33MiB"));
            None
        }
        Ok(SizeOrShare::Ppm(0)) => {
            faults.add(Fault::of("store-budget").value(text, "is nothing").remedy("write more"));
            None
        }
        Ok(value) => Some(value),
        Err(cause) => {
            faults.add(bad(Fault::of("store-budget"), cause).remedy(such_as("store-budget", "500GiB")));
            None
        }
    }
}

fn min_free(text: &str, faults: &mut Faults<'_>) -> Option<SizeOrShare> {
    match parse_size_or_share(text) {
        Ok(SizeOrShare::Ppm(ppm)) if ppm >= scope_spelling::values::PPM => {
            let fault = Fault::of("store-min-free").value(text, "is the whole file system");
            faults.add(fault.remedy("write less than 100%"));
            None
        }
        Ok(value) => Some(value),
        Err(cause) => {
            let remedy = sentence!["write e.g. ", Setting::of("store-min-free").example("10%"), " or 50GiB"];
            faults.add(bad(Fault::of("store-min-free"), cause).remedy(remedy));
            None
        }
    }
}

/// How far back a volume may reach, ns.
fn age(text: &str, faults: &mut Faults<'_>) -> Option<i64> {
    match scope_spelling::values::parse_duration_ns(text) {
        Ok(ns) if ns > 0 => Some(ns),
        Ok(_) => {
            faults.add(Fault::of("store-age").value(text, "is no time at all").remedy("write more"));
            None
        }
        Err(cause) => {
            faults.add(bad(Fault::of("store-age"), cause).remedy(such_as("store-age", "7d")));
            None
        }
    }
}

/// Longest file of each volume.
fn files(args: &RunArgs, limits: &[StoreLimits], faults: &mut Faults<'_>) -> Vec<Option<u64>> {
    let of = |index: usize| {
        let text = nth(&args.store_file, index)?;
        match parse_size(text) {
            Ok(bytes) if (FILE_BYTES_MIN..=FILE_BYTES_MAX).contains(&bytes) => Some(Ok(bytes)),
            Ok(_) => Some(Err(Fault::of("store-file")
                .value(text, "is no length for a file of the store")
                .remedy("write 8MiB to 1TiB"))),
            Err(cause) => {
                Some(Err(bad(Fault::of("store-file"), cause).remedy(such_as("store-file", "1GiB"))))
            }
        }
    };
    let mut given = Vec::new();
    for (index, limits) in limits.iter().enumerate() {
        let file = match of(index) {
            Some(Ok(bytes)) => Some(bytes),
            Some(Err(fault)) => {
                if index == 0 || args.store_file.len() > 1 {
                    faults.add(fault);
                }
                None
            }
            None => None,
        };
        if let (Some(file), Some(SizeOrShare::Bytes(budget))) = (file, limits.budget)
            && budget < 4 * file + (1 << 20)
        {
            let text = nth(&args.store_budget, index).map_or("", |text| text);
            let fault = Fault::about(Subject::setting("store-budget"))
                .value(text, "is less than four files of --store-file");
            faults.add(fault.remedy(format!("write at least {} bytes", 4 * file + (1 << 20))));
        }
        given.push(file);
    }
    given
}

/// How many bytes of the ring the store may hold.
fn behind(text: &str, ring: &RingConfig, faults: &mut Faults<'_>) -> u64 {
    match parse_size_or_share(text) {
        Ok(value) => {
            let bytes = value.bytes_of(ring.ring_bytes);
            if bytes > ring.ring_bytes / 2 {
                let fault = Fault::of("store-behind").value(text, "is more than half the ring");
                faults.add(fault.remedy("write 50% or less: capture and dumps need the rest"));
            }
            bytes
        }
        Err(cause) => {
            faults.add(bad(Fault::of("store-behind"), cause).remedy(such_as("store-behind", "25%")));
            0
        }
    }
}

fn filter(text: &str, vlan: VlanRule, link_types: &[LinkType], faults: &mut Faults<'_>) -> Option<Filter> {
    super::triggers::filter(Subject::setting("store-filter"), text, text, vlan, link_types, faults)
}

fn snap(text: &str, faults: &mut Faults<'_>) -> u32 {
    match text.parse::<u32>() {
        Ok(bytes) => bytes,
        Err(_) => {
            let fault = Fault::of("store-snap").value(text, "is not a number of bytes");
            faults.add(fault.remedy(such_as("store-snap", "128")));
            0
        }
    }
}

/// Length of a file where `--store-file` says none.
pub const fn file_bytes_for(budget: Option<u64>) -> u64 {
    match budget {
        Some(budget) if budget / 8 < FILE_BYTES => {
            if budget / 8 < FILE_BYTES_MIN {
                FILE_BYTES_MIN
            } else {
                budget / 8
            }
        }
        _ => FILE_BYTES,
    }
}
