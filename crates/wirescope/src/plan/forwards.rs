//! Forwards as meant: `GROUP=IFACE`, members of groups that send.

use super::Look;
use super::faults::{Faults, such_as};
use super::sources::Sources;
use crate::args::RunArgs;
use scope_engine::{ForwardPlan, GroupEntry};
use scope_fault::{Fault, Setting, sentence};
use scope_share::RING;
use scope_source::sending::{Outlet, SendSocket, not_opened};
use scope_source::spec::{Pattern, SourcePlan};

/// The setting.
const KEY: &str = "forward";
/// How one is written.
const EXAMPLE: &str = "web=eth1";
/// What libpcap calls all interfaces together.
const ANY: &str = "any";

/// All forwards, as far as they have no faults.
pub fn plan(
    args: &RunArgs,
    groups: &[GroupEntry],
    sources: &Sources,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Vec<ForwardPlan> {
    let mut plans: Vec<ForwardPlan> = Vec::new();
    for (index, text) in args.forward.iter().enumerate() {
        let mut add = |fault: Fault| faults.add_of_element(KEY, index, fault);
        let of = || Fault::of(KEY).with_value(text);
        let parts =
            text.split_once('=').filter(|(group, interface)| !group.is_empty() && !interface.is_empty());
        let Some((group, interface)) = parts else {
            add(Fault::of(KEY).value(text, "is no GROUP=IFACE").remedy(such_as(KEY, EXAMPLE)));
            continue;
        };
        let plan = ForwardPlan { group: group.to_string(), interface: interface.to_string() };
        let entry = groups.iter().find(|entry| entry.plan.name == group);
        if group == RING {
            let fault =
                of().cause("the ring itself keeps nothing for a member: packets could be lost unnoticed");
            let all = Setting::of("group").example("all");
            add(fault.remedy(sentence!["make a group of all: ", all, ", and forward that"]));
        } else if entry.is_none() && !is_written(args, group) {
            let there: Vec<&str> = groups.iter().map(|entry| entry.plan.name.as_str()).collect();
            let new = Setting::of("group").example(group);
            let fault = of().cause(format!("there is no group '{group}'"));
            add(match there[..] {
                [] => fault.remedy(sentence!["make one: ", new]),
                _ => fault.remedy(sentence![format!("there are: {}; or make one: ", there.join(", ")), new]),
            });
        }
        if plans.contains(&plan) {
            add(of().cause("it is given twice: each packet would be sent twice").remedy("omit one of them"));
            continue;
        }
        let others = plans.iter().filter(|other| other.group == plan.group).count();
        let members_max = entry.map_or(usize::MAX, |entry| entry.plan.members_max as usize);
        if others == members_max {
            let cause = format!("it is one more member than the group may have, {members_max}");
            add(of().cause(cause).remedy("raise members-max= of the group"));
        }
        for fault in loops(&plan, sources) {
            add(fault);
        }
        if look == Look::Machine {
            for fault in faults_of_interface(&plan, sources) {
                add(fault);
            }
        }
        plans.push(plan);
    }
    plans
}

/// Whether a group of this name stands there, even if it has faults of its own.
fn is_written(args: &RunArgs, group: &str) -> bool {
    args.group.iter().any(|text| text.split(',').next().is_some_and(|name| name.trim() == group))
}

/// Sources that would record what is sent there, and have it sent again.
fn loops(plan: &ForwardPlan, sources: &Sources) -> Vec<Fault> {
    let records = |source: &SourcePlan| {
        source.interface().is_some_and(|name| {
            let is_any = name == ANY && matches!(source, SourcePlan::Pcap(_));
            !source.is_only_in() && (is_any || Pattern::new(name).matches(&plan.interface))
        })
    };
    let sources = sources.entries.iter().filter(|entry| records(&entry.plan));
    let fault = |spec: &str| {
        let given = format!("{spec},direction=in").replace(",direction=both", "");
        let cause = sentence![
            "it would record what ",
            Setting::of(KEY).example(plan.to_string()),
            " sends, and so send it again and again"
        ];
        let remedy = sentence!["record only what arrives: ", Setting::of("source").example(given)];
        Fault::of_source(spec).cause(cause).remedy(remedy)
    };
    sources.map(|entry| fault(&entry.spec)).collect()
}

/// What is against sending there.
fn faults_of_interface(plan: &ForwardPlan, sources: &Sources) -> Vec<Fault> {
    let name = &plan.interface;
    let of = || Fault::of(KEY).with_value(plan.to_string());
    let (outlet, mut faults) = match Outlet::look(name) {
        Ok(outlet) => (Some(outlet), Vec::new()),
        Err(found) => (None, found.into_iter().map(|against| against.into_fault(of(), name)).collect()),
    };
    if let Some(outlet) = outlet.as_ref().filter(|outlet| !sources.link_types.contains(&outlet.link_type)) {
        let theirs: Vec<_> = sources.link_types.iter().map(|link_type| link_type.name()).collect();
        let cause = format!(
            "interface {name} takes packets of link type {}, and the sources bring {}",
            outlet.link_type.name(),
            theirs.join(", ")
        );
        faults.push(of().cause(cause).remedy("choose an interface of that link type"));
    }
    // Where there is no interface it is tried all the same whether a socket may be opened.
    let (index, bytes_max) = outlet.map_or((0, 0), |outlet| (outlet.index, outlet.tagged_bytes_max()));
    if let Err(error) = SendSocket::open(index, bytes_max) {
        faults.push(not_opened(&error, of(), name));
    }
    faults
}
