//! How sources are captured, as meant: prefilters, own traffic, CPUs, and the kernel's rings, held against
//! the machine.

use super::Look;
use super::faults::{Faults, of_both, omit_it};
use super::rules::{self, Owner};
use super::sets::Sets;
use crate::args::RunArgs;
use scope_engine::SourceEntry;
use scope_fault::{Fault, Subject};
use scope_filter::{Filter, VlanRule};
use scope_machine::cpus::Pinning;
use scope_machine::cpus::Placement;
use scope_packet::LinkType;
use scope_source::afpacket::settings;
use scope_source::spec::SourcePlan;
use std::sync::Arc;

/// What a source's text says beside its plan.
pub struct Written {
    /// Its place among all that were written.
    pub at: usize,
    pub prefilter: Option<String>,
    /// The text of the tables of its rules.
    pub rules: Option<String>,
    pub placement: Placement,
}

/// Takes `--prefilter` and `--exclude-self`, and what each source says itself, its rules included, into `entries`.
pub fn plan(
    args: &RunArgs,
    entries: &mut [SourceEntry],
    sets: &Sets,
    (vlan, link_types): (VlanRule, &[LinkType]),
    written: &[Written],
    look: Look<'_>,
    faults: &mut Faults<'_>,
) {
    let of_all = args.prefilter.as_ref().and_then(|text| match text.trim().is_empty() {
        false => filter(Subject::setting("prefilter"), text, link_types, vlan, faults),
        true => {
            faults
                .add(Fault::of("prefilter").cause("it is empty, so it matches everything").remedy(omit_it()));
            None
        }
    });
    for (entry, written) in entries.iter_mut().zip(written) {
        entry.prefilter = match &written.prefilter {
            Some(text) => {
                filter(Subject::source(&entry.spec, Some("prefilter")), text, link_types, vlan, faults)
            }
            None => of_all.clone(),
        };
        if let Some(text) = &written.rules {
            match rules::read(Owner::Source(&entry.spec), text, sets, (vlan, link_types)) {
                Ok(rules) => entry.rules = Arc::new(rules),
                Err(found) => {
                    found.into_iter().for_each(|fault| faults.add_of_element("source", written.at, fault));
                }
            }
        }
        if look == Look::Machine {
            match Pinning::resolve(&written.placement, &entry.spec) {
                Ok(pinning) => entry.pinning = pinning,
                Err(found) => {
                    for fault in found {
                        faults.add(fault);
                    }
                }
            }
        }
    }
    if args.exclude_self {
        exclude_self(entries, faults);
    }
    check_files(entries, faults);
    check_shared(entries, faults);
}

fn filter(
    of: Subject,
    text: &str,
    link_types: &[LinkType],
    vlan: VlanRule,
    faults: &mut Faults<'_>,
) -> Option<Filter> {
    Filter::compile(text, vlan, link_types).map_err(|error| faults.add(error.fault().of_subject(of))).ok()
}

/// `--exclude-self`, for all live sources.
fn exclude_self(entries: &mut [SourceEntry], faults: &mut Faults<'_>) {
    let mut interfaces = 0;
    for entry in entries {
        interfaces += u32::from(entry.plan.exclude_self());
    }
    if interfaces == 0 {
        let cause = "no interface is captured, so there is nothing to exclude";
        faults.add(Fault::of("exclude-self").cause(cause).remedy(omit_it()));
    }
}

/// All files are fed by the same workers.
fn check_files(entries: &[SourceEntry], faults: &mut Faults<'_>) {
    let mut files = entries.iter().filter(|entry| entry.plan.file().is_some());
    let Some(first) = files.next() else { return };
    let text = |entry: &SourceEntry| entry.prefilter.as_ref().map(|filter| filter.text().to_string());
    if let Some(other) = files.find(|other| text(other) != text(first) || other.pinning != first.pinning) {
        let fault = of_both(first, other).cause("all files of a run are fed by the same workers");
        faults.add(fault.remedy("give each the same prefilter=, cpus= and numa="));
    }
}

/// All sources with `workers=0` are captured by the same worker.
fn check_shared(entries: &[SourceEntry], faults: &mut Faults<'_>) {
    let mut shared = entries.iter().filter(|entry| entry.plan.workers() == 0);
    let Some(first) = shared.next() else { return };
    if let Some(other) = shared.find(|other| other.pinning != first.pinning) {
        let fault = of_both(first, other).cause("all with workers=0 are captured by the same worker");
        faults.add(fault.remedy("give each the same cpus= and numa="));
    }
}

/// A small ring: bytes of its blocks, and how many. It holds 64 ms of a full gigabit.
const SMALL: (u32, u32) = (256 << 10, 32);

/// Fills in the kernel's rings where the sources leave them open, and refuses those that the memory can't
/// hold beside the ring: `free_bytes` are free, that ring's not counted. `None`: it may be for another
/// machine, only what no machine takes is refused. `is_small`: for statistics alone.
pub fn rings(entries: &mut [SourceEntry], free_bytes: Option<u64>, is_small: bool, faults: &mut Faults<'_>) {
    let mut left_bytes = free_bytes.unwrap_or(u64::MAX);
    for entry in entries {
        let SourcePlan::AfPacket(live) = &mut entry.plan else { continue };
        if is_small {
            live.block_bytes.get_or_insert(SMALL.0);
            live.blocks.get_or_insert(SMALL.1);
        }
        if free_bytes.is_some() {
            settings::choose(live, settings::link_speed(&live.interface), left_bytes);
        }
        match settings::check(live, left_bytes, &entry.spec) {
            Ok(()) => left_bytes -= settings::ring_bytes(live),
            Err(fault) => faults.add(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Look;
    use crate::args::{Cli, Verb};
    use clap::Parser;
    use scope_packet::LinkType;

    /// The faults of a command line that has no folder, which is one more.
    fn faults(arguments: &[&str]) -> String {
        faults_at(Look::Machine, arguments)
    }

    fn faults_at(look: Look<'_>, arguments: &[&str]) -> String {
        let cli = Cli::parse_from([&["wirescope", "run"], arguments].concat());
        let Verb::Run(args) = cli.command else { panic!("not run") };
        let faults = crate::plan::plan(&args, look).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_may_be_for_another_machine_is_not_held_against_this_one() {
        let source = "afpacket:nosuch0,cpus=1000,numa=99,block=4MiB,blocks=512,workers=64,exclude-self=on";
        let arguments = ["--source", source, "--prefilter", "udp"];
        let here = faults(&arguments);
        assert!(here.contains("CPU 1000") && here.contains("node 99") && here.contains("nosuch0"), "{here}");
        for look in [Look::Nowhere, Look::Known(&[LinkType::ETHERNET])] {
            let said = faults_at(look, &arguments);
            assert!(!said.contains("nosuch0") && !said.contains("--prefilter"), "{said}");
            // What no machine takes is a fault everywhere.
            let said = faults_at(
                look,
                &["--source", "afpacket:a,block=4MiB,blocks=513", "--prefilter", "udp prot 7"],
            );
            assert!(said.contains("at most 2048.0 MiB") && said.contains("--prefilter"), "{said}");
        }
    }

    #[test]
    fn what_can_t_be_captured_so_is_refused_all_at_once() {
        let check = |arguments: &[&str], words: &[&str]| {
            let said = faults(arguments);
            words
                .iter()
                .for_each(|word| assert!(said.contains(word), "{arguments:?}: no '{word}' in {said}"));
        };
        check(
            &["--source", "synth:cpus=1000,prefilter=udp prot 7", "--prefilter", "tcp porf 1"],
            &["CPU 1000", "there are: 0", "'prefilter'", "--prefilter"],
        );
        check(&["--source", "synth:numa=99"], &["no NUMA node 99"]);
        check(&["--source", "synth:", "--prefilter", " "], &["--prefilter", "empty"]);
        check(&["--source", "synth:", "--exclude-self"], &["--exclude-self", "no interface"]);
        check(
            &["--source", "file:/a,prefilter=udp", "-r", "/b"],
            &["file:/a,prefilter=udp", "same prefilter="],
        );
        check(&["--source", "file:/a,cpus=0", "-r", "/b"], &["cpus= and numa="]);
        check(
            &["--source", "afpacket:nosuch0,workers=0,cpus=0", "--source", "afpacket:nosuch1,workers=0"],
            &["all with workers=0", "same cpus= and numa="],
        );
        check(
            &["--source", "afpacket:lo,blocks=2048,block=4MiB"],
            &["block= times blocks= is 8192.0 MiB", "2048.0 MiB"],
        );
        check(
            &["--source", "pcap:lo,workers=2,prefilter="],
            &["pcap has no option 'workers'", "'prefilter'", "empty"],
        );
        assert!(
            !faults(&["-r", "/a", "-r", "/b", "--prefilter", "udp"]).contains("prefilter"),
            "one for all files"
        );
    }
}
