//! The door for other programs, as meant: its socket, who may read the ring there, groups and forwards besides.

use super::allowed::allowed;
use super::faults::{Faults, bad, omit_it, such_as};
use super::places::socket;
use super::sets::Sets;
use super::sources::Sources;
use super::{Look, count, forwards, groups};
use crate::args::RunArgs;
use scope_engine::{Allowed, AttachPlan, GroupEntry};
use scope_fault::{Fault, Setting, sentence};
use scope_filter::VlanRule;
use scope_machine::cpus::{self, Pinning};
use scope_spelling::values::{format_cpus, parse_cpus};

/// Threads at most.
const THREADS_MAX: u64 = 64;

/// What of it may change while the run goes.
pub struct Changing {
    /// Who may read the ring itself.
    pub ring: Allowed,
    /// Groups.
    pub groups: Vec<GroupEntry>,
}

/// The door of a run, if it is to have one, and what of it may change.
pub fn plan(
    args: &RunArgs,
    sets: &Sets,
    vlan: VlanRule,
    sources: &Sources,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> (Option<AttachPlan>, Changing) {
    let who = |text: &String| allowed(&Fault::of("attach-ring").with_value(text), "attach-ring", text, look);
    let ring = args.attach_ring.as_ref().map(who);
    let ring = ring.map(|ring| {
        ring.unwrap_or_else(|found| {
            found.into_iter().for_each(|fault| faults.add(fault));
            Allowed::default()
        })
    });
    let groups = groups::plan(args, sets, (vlan, sources), look, faults);
    let forwards = forwards::plan(args, &groups, sources, look, faults);
    let threads = count("attach-threads", &args.attach_threads, THREADS_MAX, faults) as u32;
    let pinning = args.attach_cpus.as_ref().map(|text| pinning(text, look, faults)).unwrap_or_default();
    let changing = Changing { ring: ring.clone().unwrap_or_default(), groups: groups.clone() };
    let Some(text) = args.attach.as_deref() else {
        // Forwards are members of groups that nobody else can join.
        let is_sent = |name: &str| forwards.iter().any(|forward| forward.group == name);
        let are_sent = groups.iter().all(|entry| is_sent(&entry.plan.name));
        if args.attach_ring.is_none() && !args.forward.is_empty() && are_sent {
            let ring = Allowed::default();
            return (Some(AttachPlan { path: None, ring, groups, forwards, threads, pinning }), changing);
        }
        let group = args.group.iter().find(|text| !is_sent(text.split(',').next().unwrap_or(text)));
        let group = group.or(args.group.first()).map(|group| ("group", group));
        if let Some((key, value)) = args.attach_ring.as_ref().map(|named| ("attach-ring", named)).or(group) {
            let fault = Fault::of(key).with_value(value).cause("there is no socket to attach at");
            let socket = Setting::of("attach").example("/run/wirescope/attach");
            faults.add(fault.remedy(sentence!["give one: ", socket, ", or ", omit_it()]));
        }
        return (None, changing);
    };
    let path = socket("attach", text, sentence!["write a path, or ", omit_it()], look, faults);
    let ring = ring.unwrap_or_default();
    let plan = path.map(|path| AttachPlan { path: Some(path), ring, groups, forwards, threads, pinning });
    (plan, changing)
}

/// Where threads run.
fn pinning(text: &str, look: Look<'_>, faults: &mut Faults<'_>) -> Pinning {
    let fault = || Fault::of("attach-cpus").with_value(text);
    let cpus = match parse_cpus(text) {
        Ok(cpus) => cpus,
        Err(cause) => {
            faults.add(bad(fault(), cause).remedy(such_as("attach-cpus", "2-3")));
            return Pinning::Anywhere;
        }
    };
    let allowed = if look == Look::Machine { cpus::allowed().unwrap_or_default() } else { Vec::new() };
    if let Some(missing) = cpus.iter().find(|cpu| !allowed.is_empty() && !allowed.contains(cpu)) {
        let cause = format!("this process may not use CPU {missing}");
        faults.add(fault().cause(cause).remedy(format!("choose of these: {}", format_cpus(&allowed))));
    }
    Pinning::OneEach(cpus)
}
