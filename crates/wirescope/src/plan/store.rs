//! The store as meant: its volumes, what each may take, what goes into them.

use super::faults::{Faults, bad, such_as};
use super::{Look, duration, min_free};
use crate::args::RunArgs;
use scope_engine::{StorePlan, VolumePlan};
use scope_fault::{Fault, Setting, Subject, sentence};
use scope_filter::{Filter, VlanRule};
use scope_machine::Machine;
use scope_packet::LinkType;
use scope_packet::segment::KEPT_BYTES_MAX;
use scope_ring::{MemoryOptions, RingConfig};
use scope_spelling::figures::{counted, size};
use scope_spelling::values::{SizeOrShare, parse_size, parse_size_or_share};
use scope_store::compose;
use scope_store::head::{FILTER_BYTES_MAX, VOLUMES_MAX};
use scope_store::retain::{Bounds, FILE_BYTES_MIN};
use scope_store::volume::Place;
use std::path::Path;
use std::time::Duration;

/// Shortest and longest time between two flushes.
const FLUSH_NS: std::ops::RangeInclusive<i64> = 10_000_000..=3_600_000_000_000;
/// Largest file of a volume.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// All about the store; `None`: the run has none.
pub fn plan(
    args: &RunArgs,
    ring: &RingConfig,
    (link_types, vlan): (&[LinkType], VlanRule),
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> (Option<StorePlan>, Vec<Bounds>) {
    let bounds = bounds(args, faults);
    let flush_ns = duration(Fault::of("store-flush"), "store-flush", &args.store_flush, faults);
    if !FLUSH_NS.contains(&flush_ns) && faults.is_empty() {
        let fault = Fault::of("store-flush").value(&args.store_flush, "is not a time between two flushes");
        faults.add(fault.remedy("write 10ms to 1h"));
    }
    let behind = behind(&args.store_behind, ring, faults);
    if args.store.is_empty() {
        without_a_store(args, faults);
        return (None, Vec::new());
    }
    if args.store.len() > VOLUMES_MAX {
        let fault = Fault::of("store").cause(format!("{} volumes are too many", args.store.len()));
        faults.add(fault.remedy(format!("at most {VOLUMES_MAX}")));
    }
    let filters: Vec<_> =
        args.store_filter.iter().map(|text| filter(text, link_types, vlan, faults)).collect();
    let snaps: Vec<_> = args.store_snap.iter().map(|text| snap(text, faults)).collect();
    let places: Vec<Option<Place>> = args.store.iter().map(|path| place(path, look, faults)).collect();
    let known: Vec<Place> = places.iter().flatten().cloned().collect();
    let looks = matches!(look, Look::Machine | Look::Here);
    for fault in Place::faults_together(&known, args.out.as_deref().filter(|_| looks)) {
        faults.add(fault);
    }
    let mut volumes = Vec::new();
    for (index, (typed, place)) in args.store.iter().zip(&places).enumerate() {
        let folder = place.as_ref().map_or(typed.clone(), |place| place.path().to_path_buf());
        let total = place.as_ref().and_then(total_of).unwrap_or(u64::MAX);
        let bounds = bounds.get(index).copied().unwrap_or_default();
        let file_bytes = file_bytes(args, index, faults).unwrap_or_else(|| default_file(&bounds, total));
        if faults.is_empty() {
            for fault in bounds.faults(&folder, file_bytes, total) {
                faults.add(fault);
            }
        }
        let (filter, snap) = (nth(&filters, index).cloned().flatten(), nth(&snaps, index).copied().flatten());
        volumes.push(VolumePlan { folder, file_bytes, filter, snap });
    }
    let plan = StorePlan {
        volumes,
        flush: Duration::from_nanos(flush_ns.max(0) as u64),
        behind,
        chain: args.store_chain,
    };
    (Some(plan), bounds)
}

/// What volumes that keep less than the ring compose in takes memory beside the ring: both must be there. Its bytes.
pub fn memory(
    plan: &StorePlan,
    ring: &RingConfig,
    segment_bytes: u64,
    options: &MemoryOptions,
    machine: &Machine,
    faults: &mut Faults<'_>,
) -> u64 {
    let composes = |volume: &&VolumePlan| volume.filter.is_some() || volume.snap.is_some();
    let composing: Vec<&VolumePlan> = plan.volumes.iter().filter(composes).collect();
    let each = compose::memory_bytes(ring.ring_bytes, segment_bytes, ring.workers);
    let bytes = each.saturating_mul(composing.len() as u64);
    let fits = |bytes: u64| options.have_room(ring.ring_bytes, bytes, machine);
    if composing.is_empty() || !fits(0) || fits(bytes) {
        return bytes; // a ring that doesn't fit by itself is refused as such
    }
    let key =
        if composing.iter().any(|volume| volume.filter.is_some()) { "store-filter" } else { "store-snap" };
    let (available, limit) = machine.available(options.node);
    let cause = format!(
        "what is kept is composed in {} beside the ring of {}: that is more than there is, {} of memory is \
        available ({limit}), and some of it must stay free",
        size(bytes),
        size(ring.ring_bytes),
        size(available)
    );
    faults.add(Fault::of(key).cause(cause).remedy(sentence!["choose a smaller ", Setting::of("ring")]));
    bytes
}

/// Settings that mean nothing without a store.
fn without_a_store(args: &RunArgs, faults: &mut Faults<'_>) {
    let given = [
        ("store-budget", !args.store_budget.is_empty()),
        ("store-age", !args.store_age.is_empty()),
        ("store-min-free", !args.store_min_free.is_empty()),
        ("store-file", !args.store_file.is_empty()),
        ("store-filter", !args.store_filter.is_empty()),
        ("store-snap", !args.store_snap.is_empty()),
        ("store-chain", args.store_chain),
    ];
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        let remedy = sentence!["add ", Setting::of("store").example("DIR"), ", or omit it"];
        faults.add(Fault::of(*key).cause("there is no store").remedy(remedy));
    }
}

/// The folder of a volume. It needn't exist: then the one above it must.
fn place(path: &Path, look: Look<'_>, faults: &mut Faults<'_>) -> Option<Place> {
    let above = || path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_here = || path.symlink_metadata().is_ok() || above().exists();
    match look {
        Look::Machine => {}
        Look::Here if is_here() => {}
        _ => return None,
    }
    Place::find(path).map_err(|fault| faults.add(fault)).ok()
}

/// Bytes of the file system that a volume is on.
fn total_of(place: &Place) -> Option<u64> {
    let there = place.path().ancestors().find(|path| path.exists())?;
    Some(scope_machine::disk::disk(there)?.bytes)
}

/// Length of a volume's files where none is given.
fn default_file(bounds: &Bounds, total: u64) -> u64 {
    bounds.file_bytes(total).max(FILE_BYTES_MIN)
}

/// The n-th value of a list that has one for each volume, or one for all.
fn nth<T>(values: &[T], index: usize) -> Option<&T> {
    if values.len() == 1 { values.first() } else { values.get(index) }
}

/// What each volume may take.
fn bounds(args: &RunArgs, faults: &mut Faults<'_>) -> Vec<Bounds> {
    let lists = [
        ("store-budget", &args.store_budget),
        ("store-age", &args.store_age),
        ("store-min-free", &args.store_min_free),
        ("store-file", &args.store_file),
        ("store-filter", &args.store_filter),
        ("store-snap", &args.store_snap),
    ];
    for (key, list) in lists {
        if !args.store.is_empty() && list.len() > 1 && list.len() != args.store.len() {
            let (given, volumes) = (list.len(), args.store.len());
            let volumes = counted(volumes as u64, "volume");
            let cause = format!("{given} values for {volumes}");
            let remedy = sentence!["write one for all, or one for each ", Setting::of("store")];
            faults.add(Fault::of(key).cause(cause).remedy(remedy));
        }
    }
    let budgets: Vec<_> = args.store_budget.iter().map(|text| budget(text, faults)).collect();
    let free: Vec<_> =
        args.store_min_free.iter().map(|text| min_free("store-min-free", text, faults)).collect();
    let ages: Vec<_> = args.store_age.iter().map(|text| age(text, faults)).collect();
    let of = |values: &[Option<SizeOrShare>], index: usize| {
        if values.len() == 1 { values[0] } else { values.get(index).copied().flatten() }
    };
    let age_of = |index: usize| if ages.len() == 1 { ages[0] } else { ages.get(index).copied().flatten() };
    (0..args.store.len())
        .map(|index| Bounds {
            budget: of(&budgets, index),
            age_ns: age_of(index),
            min_free: of(&free, index),
        })
        .collect()
}

fn budget(text: &str, faults: &mut Faults<'_>) -> Option<SizeOrShare> {
    match parse_size_or_share(text) {
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

/// Longest file of a volume, where it is given.
fn file_bytes(args: &RunArgs, index: usize, faults: &mut Faults<'_>) -> Option<u64> {
    let text = nth(&args.store_file, index)?;
    let fault = match parse_size(text) {
        Ok(bytes) if (FILE_BYTES_MIN..=FILE_BYTES_MAX).contains(&bytes) => {
            return Some(bytes - bytes % 4096); // whole pages
        }
        Ok(_) => {
            let fault = Fault::of("store-file").value(text, "is no length for a file of the store");
            fault.remedy("write 8MiB to 1TiB")
        }
        Err(cause) => bad(Fault::of("store-file"), cause).remedy(such_as("store-file", "1GiB")),
    };
    if index == 0 || args.store_file.len() > 1 {
        faults.add(fault); // a single one is all volumes'
    }
    None
}

/// Which packets a volume stores; `None`: all.
fn filter(text: &str, link_types: &[LinkType], vlan: VlanRule, faults: &mut Faults<'_>) -> Option<Filter> {
    let of = Subject::setting("store-filter");
    let filter = Filter::compile(text, vlan, link_types);
    let filter = filter.map_err(|error| faults.add(error.fault().of_subject(of))).ok()?;
    if filter.text().len() > FILTER_BYTES_MAX {
        let cause = format!("{} bytes of text are too long for the head of a file", filter.text().len());
        faults
            .add(Fault::of("store-filter").cause(cause).remedy(format!("at most {FILTER_BYTES_MAX} bytes")));
    }
    (!filter.is_everything()).then_some(filter)
}

/// Bytes of a packet that a volume stores at most.
fn snap(text: &str, faults: &mut Faults<'_>) -> Option<u32> {
    let fault = match parse_size(text) {
        Ok(bytes) if (1..=KEPT_BYTES_MAX as u64).contains(&bytes) => return Some(bytes as u32),
        Ok(0) => Fault::of("store-snap")
            .value(text, "leaves nothing of a packet")
            .remedy("omit it for whole packets"),
        Ok(_) => {
            let fault = Fault::of("store-snap").value(text, "is more than is ever kept of a packet");
            fault.remedy(format!("write at most {KEPT_BYTES_MAX}"))
        }
        Err(cause) => bad(Fault::of("store-snap"), cause).remedy(such_as("store-snap", "128")),
    };
    faults.add(fault);
    None
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

#[cfg(test)]
mod tests {
    use super::*;
    use scope_config::Settings;

    #[test]
    fn memory_that_volumes_compose_in_must_be_there_beside_the_ring() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let meminfo = "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n"; // 1 GiB
        std::fs::write(root.path().join("proc/meminfo"), meminfo).unwrap();
        let machine = Machine::under(root.path());
        let volume = |snap| VolumePlan { folder: "/s".into(), file_bytes: 1 << 30, filter: None, snap };
        let said = |ring_mib: u64, volumes: Vec<VolumePlan>| {
            let ring_bytes = ring_mib << 20;
            let ring = RingConfig {
                ring_bytes,
                segment_bytes: Some(1 << 20),
                workers: 1,
                lanes: 1,
                run_id: [0; 16],
            };
            let plan = StorePlan { volumes, flush: Duration::from_secs(1), behind: 1 << 20, chain: false };
            let settings = Settings::default();
            let mut faults = Faults::new(&settings);
            memory(&plan, &ring, 1 << 20, &MemoryOptions::default(), &machine, &mut faults);
            faults.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(said(960, vec![volume(None), volume(None)]), [""; 0], "they write what the ring has");
        assert_eq!(said(960, vec![volume(Some(96))]), [""; 0]);
        assert_eq!(said(2000, vec![volume(Some(96))]), [""; 0], "the ring itself is told");
        let two = said(960, vec![volume(Some(96)), volume(Some(96))]);
        let expected = "--store-snap: what is kept is composed in 64 MiB beside the ring of 960 MiB: that is more \
                        than there is, 1 GiB of memory is available (MemAvailable of this machine), and some of it \
                        must stay free; choose a smaller --ring";
        assert_eq!(two, [expected]);
    }
}
