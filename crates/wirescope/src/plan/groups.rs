//! Groups as meant: `NAME,KEY=VALUE,...`, or the same as a table of a configuration file.

use super::allowed::allowed;
use super::elements::{self, Written};
use super::faults::{Faults, bad};
use super::rules::Owner;
use super::sets::Sets;
use super::sources::Sources;
use super::{Look, rules};
use crate::args::RunArgs;
use scope_engine::GroupEntry;
use scope_fault::{Fault, Subject};
use scope_filter::{Filter, VlanRule};
use scope_group::seat::MEMORY_BYTES_MIN;
use scope_group::steer::SPELLINGS;
use scope_group::{GroupPlan, MEMBERS_MAX, Settings, Steer};
use scope_machine::Machine;
use scope_packet::LinkType;
use scope_ring::{MemoryOptions, RingConfig};
use scope_share::RING;
use scope_share::message::{NAME_BYTES_MAX, is_name};
use scope_source::spec::Pattern;
use scope_spelling::figures::size;
use scope_spelling::values::{parse_duration_ns, parse_size};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The setting.
const KEY: &str = "group";
/// What a group may say besides its name.
const WORDS: [&str; 9] =
    ["filter", INTERFACE, "steer", "memory", "members-max", "members", "stuck", "allow", RULE];
/// The interface whose packets a group takes.
const INTERFACE: &str = "interface";
/// Rules stand in a configuration file.
const RULE: &str = "rule";
/// Groups at most.
const GROUPS_MAX: usize = 64;
/// Memory of a member, unless another size is given, bytes.
const MEMORY_BYTES: u64 = 16 << 20;
/// Most of it.
const MEMORY_BYTES_MAX: u64 = 64 << 30;
/// Members at once, unless another number is given.
const MEMBERS: u32 = 8;
/// The longest stillness that is one, ns.
const STUCK_NS_MAX: i64 = 3_600_000_000_000;

/// How a group is written.
const EXAMPLE: &str = "e.g. --group 'dns,filter=udp port 53,steer=flow'";

/// All groups, as far as they have no faults.
pub fn plan(
    args: &RunArgs,
    sets: &Sets,
    (vlan, sources): (VlanRule, &Sources),
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Vec<GroupEntry> {
    let mut entries: Vec<GroupEntry> = Vec::new();
    let mut named: Vec<Named> = Vec::new();
    for (index, written) in elements::written(KEY, EXAMPLE, args, &args.group) {
        let links = (vlan, &sources.link_types[..]);
        if let Ok((name, words)) = &written {
            if named.iter().any(|other| other.name == *name) {
                let fault = Fault::of(KEY).value(name, "is the name of two groups");
                faults.add_of_element(KEY, index, fault.remedy("choose another name for one of them"));
            }
            let copies = words.get(RULE).map(|text| rules::copies(text)).unwrap_or_default();
            named.push(Named { index, name: name.clone(), copies });
        }
        let found = written.and_then(|written| group(&written, sets, links, look));
        let found = found.and_then(|entry| match fault_of_interface(&entry, sources) {
            Some(fault) => Err(vec![fault]),
            None => Ok(entry),
        });
        match found {
            Ok(entry) => entries.push(entry),
            Err(found) => found.into_iter().for_each(|fault| faults.add_of_element(KEY, index, fault)),
        }
    }
    faults_of_copies(&named, faults);
    if args.group.len() > GROUPS_MAX {
        let cause = format!("there are {}, and {GROUPS_MAX} are the most", args.group.len());
        faults.add(Fault::of(KEY).cause(cause).remedy("omit some"));
    }
    entries
}

/// A group, perhaps with faults, and the copies that it makes.
struct Named {
    /// Its place among those that are written.
    index: usize,
    name: String,
    copies: Vec<rules::CopyAction>,
}

fn of(name: &str, word: &str) -> Fault {
    elements::of(KEY, name, word)
}

/// That no source captures the interface whose packets a group takes. Files may have any.
fn fault_of_interface(entry: &GroupEntry, sources: &Sources) -> Option<Fault> {
    let interface = entry.plan.settings.interface.as_ref()?;
    let captured = || sources.entries.iter().map(|source| source.plan.interface());
    if captured().any(|captured| captured.is_none_or(|name| Pattern::new(name).matches(interface))) {
        return None;
    }
    let there: Vec<&str> = captured().flatten().collect();
    let fault = of(&entry.plan.name, INTERFACE).value(interface, "is captured by no source");
    Some(fault.remedy(format!("there are: {}", there.join(", "))))
}

/// All members' memories fit beside the ring and what the store composes in: they are resident once they are used. What
/// doesn't fit without them is refused as such.
pub fn memory(
    entries: &[GroupEntry],
    (ring, composed_bytes): (&RingConfig, u64),
    options: &MemoryOptions,
    machine: &Machine,
    faults: &mut Faults<'_>,
) {
    let of_group = |entry: &GroupEntry| entry.plan.memory_bytes.saturating_mul(entry.plan.members_max.into());
    let bytes = entries.iter().map(of_group).fold(0, u64::saturating_add);
    let fits = |bytes: u64| options.have_room(ring.ring_bytes, composed_bytes.saturating_add(bytes), machine);
    let Some(largest) = entries.iter().max_by_key(|entry| of_group(entry)) else { return };
    if !fits(0) || fits(bytes) {
        return;
    }
    let (available, limit) = machine.available(options.node);
    let composed = match composed_bytes {
        0 => String::new(),
        bytes => format!(" and {} in which the store composes", size(bytes)),
    };
    let cause = format!(
        "members may use {} of it, all groups together {} beside the ring of {}{composed}: that is more than there is, {} of memory \
         is available ({limit}), and some of it must stay free",
        size(of_group(largest)),
        size(bytes),
        size(ring.ring_bytes),
        size(available)
    );
    let fault = of(&largest.plan.name, "memory").cause(cause);
    faults.add(fault.remedy("choose less memory= or members-max=: they are multiplied"));
}

/// Copies go to groups that there are, and never come back.
fn faults_of_copies(groups: &[Named], faults: &mut Faults<'_>) {
    let place = |target: &str| groups.iter().position(|group| group.name == target);
    let targets = |group: &Named| group.copies.iter().filter_map(|copy| place(&copy.target)).collect();
    let targets: Vec<BTreeSet<usize>> = groups.iter().map(targets).collect();
    // Of each group, where what it is given comes to, itself included.
    let reached = |from: usize| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(from) = next.pop() {
            if reached.insert(from) {
                next.extend(&targets[from]);
            }
        }
        reached
    };
    let reached: Vec<BTreeSet<usize>> = (0..groups.len()).map(reached).collect();
    for (at, Named { index, name, copies }) in groups.iter().enumerate() {
        for copy in copies {
            let fault = match place(&copy.target) {
                None if copy.target == RING => copy
                    .fault(name)
                    .cause("copy: the ring itself takes no copies")
                    .remedy("copy to a --group"),
                None => copy
                    .fault(name)
                    .cause(format!("copy: there is no group '{}'", copy.target))
                    .remedy("copy to a --group, or make one of this name"),
                Some(target) if reached[target].contains(&at) => copy
                    .fault(name)
                    .cause(format!("copy {}: what goes there comes back to this group", copy.target))
                    .remedy("omit one copy of this circle"),
                Some(_) => continue,
            };
            faults.add_of_element(KEY, *index, fault);
        }
    }
}

/// One group.
fn group(
    (name, words): &Written,
    sets: &Sets,
    (vlan, link_types): (VlanRule, &[LinkType]),
    look: Look<'_>,
) -> Result<GroupEntry, Vec<Fault>> {
    let mut faults = Vec::new();
    if !is_name(name) || name.contains(['=', ',', '*']) {
        let remedy = format!("write 1 to {NAME_BYTES_MAX} bytes of text without , = and *: {EXAMPLE}");
        faults.push(Fault::of(KEY).value(name, "is no name of a group").remedy(remedy));
    }
    if name == RING {
        let fault = Fault::of(KEY).value(name, "is the name of the ring itself");
        faults.push(fault.remedy("choose another name"));
    }
    for word in words.keys().filter(|word| !WORDS.contains(&word.as_str())) {
        faults.push(
            of(name, word)
                .cause("there is no such option")
                .remedy(format!("there are: {}", WORDS.join(", "))),
        );
    }
    let word = |key: &str| words.get(key).map(String::as_str);
    let filter = Filter::compile(word("filter").unwrap_or_default(), vlan, link_types);
    let filter = filter.map_err(|error| {
        let (element, word) = (Some(name.clone()), Some("filter".to_string()));
        faults.push(error.fault().of_subject(Subject::Setting { key: KEY.to_string(), element, word }));
    });
    let interface = word(INTERFACE).map(str::to_string);
    if interface.as_deref() == Some("") {
        let fault = of(name, INTERFACE).cause("it is empty");
        faults.push(fault.remedy("write e.g. interface=eth0, or omit it"));
    }
    let steer = word("steer").map_or(Ok(Steer::default()), str::parse).unwrap_or_else(|bad| {
        let fault = of(name, "steer").with_value(word("steer").unwrap_or_default()).cause(bad.to_string());
        faults.push(fault.remedy(format!("there are: {SPELLINGS}")));
        Steer::default()
    });
    let memory_bytes = word("memory").map_or(MEMORY_BYTES, |text| {
        let fault = of(name, "memory");
        faults.push(match parse_size(text) {
            Ok(bytes) if (MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&bytes) => return bytes,
            Ok(bytes) => {
                let is = if bytes < MEMORY_BYTES_MIN { "is too little" } else { "is too much" };
                let [least, most] = [MEMORY_BYTES_MIN, MEMORY_BYTES_MAX].map(size);
                fault.value(text, is).remedy(format!("write {least} to {most}"))
            }
            Err(cause) => bad(fault, cause).remedy("write e.g. memory=16MiB"),
        });
        MEMORY_BYTES
    });
    let mut number = |key: &'static str, least: u32, default: u32| {
        word(key).map_or(default, |text| {
            let found = text.parse::<u32>().ok().filter(|number| (least..=MEMBERS_MAX).contains(number));
            if found.is_none() {
                let fault = of(name, key).value(text, "is no number of members");
                faults.push(fault.remedy(format!("write {least} to {MEMBERS_MAX}")));
            }
            found.unwrap_or(default)
        })
    };
    let members_max = number("members-max", 1, MEMBERS);
    let members = number("members", 0, 0);
    if members > members_max {
        let cause = format!("it waits for {members} members, and there are {members_max} at most");
        faults.push(of(name, "members").cause(cause).remedy("raise members-max="));
    }
    let stuck = word("stuck").filter(|text| *text != "off").and_then(|text| match parse_duration_ns(text) {
        Ok(ns @ 1..=STUCK_NS_MAX) => Some(Duration::from_nanos(ns as u64)),
        _ => {
            let fault = of(name, "stuck").value(text, "is no time from 1 ns to 1 hour");
            faults.push(fault.remedy("write e.g. stuck=5s, or stuck=off"));
            None
        }
    });
    let who = word("allow").map(|text| allowed(&of(name, "allow").with_value(text), "allow", text, look));
    let allowed = who.transpose().unwrap_or_else(|found| {
        faults.extend(found);
        None
    });
    let rules = word(RULE).map(|text| rules::read(Owner::Group(name), text, sets, (vlan, link_types)));
    let rules = rules.transpose().unwrap_or_else(|found| {
        faults.extend(found);
        None
    });
    match (filter, faults.is_empty()) {
        (Ok(filter), true) => {
            let settings = Settings { filter, interface, steer, rules: Arc::new(rules.unwrap_or_default()) };
            let name = name.clone();
            let plan = GroupPlan { name, settings, memory_bytes, members_max, members, stuck };
            Ok(GroupEntry { plan, allowed })
        }
        _ => Err(faults),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GroupEntry, Vec<String>> {
        let found = elements::take_apart(KEY, EXAMPLE, text)
            .and_then(|written| group(&written, &Sets::default(), (VlanRule::default(), &[]), Look::Machine));
        found.map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_group_says_what_it_takes_and_the_rest_is_as_usual() {
        let entry = read("all").unwrap();
        let GroupPlan { name, settings, memory_bytes, members_max, members, stuck } = entry.plan;
        assert_eq!((name.as_str(), memory_bytes, members_max, members, stuck), ("all", 16 << 20, 8, 0, None));
        assert!(settings.filter.is_everything() && settings.steer == Steer::Flow && entry.allowed.is_none());
        let entry = read(
            "dns,filter=udp port 53,steer=local:10.0.0.0/8,memory=4MiB,members-max=2,members=1,stuck=5s,allow=root:@0",
        )
        .unwrap();
        let GroupPlan { settings, memory_bytes, members_max, members, stuck, .. } = entry.plan;
        assert_eq!(
            (settings.filter.text(), settings.steer.to_string().as_str()),
            ("udp port 53", "local:10.0.0.0/8")
        );
        assert_eq!(
            (memory_bytes, members_max, members, stuck),
            (4 << 20, 2, 1, Some(Duration::from_secs(5)))
        );
        assert_eq!(entry.allowed.map(|allowed| (allowed.users.len(), allowed.groups)), Some((1, vec![0])));
    }

    #[test]
    fn members_memories_fit_beside_the_ring() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let meminfo = "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n"; // 1 GiB
        std::fs::write(root.path().join("proc/meminfo"), meminfo).unwrap();
        let machine = Machine::under(root.path());
        let said_beside = |ring_mib: u64, composed_mib: u64, groups: &[&str]| {
            let groups: Vec<_> = groups.iter().map(|text| read(text).unwrap()).collect();
            let ring = RingConfig {
                ring_bytes: ring_mib << 20,
                segment_bytes: None,
                workers: 1,
                lanes: 1,
                run_id: [0; 16],
            };
            let settings = scope_config::Settings::default();
            let mut faults = Faults::new(&settings);
            let (ring, options) = ((&ring, composed_mib << 20), MemoryOptions::default());
            memory(&groups, ring, &options, &machine, &mut faults);
            faults.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let said = |ring_mib: u64, groups: &[&str]| said_beside(ring_mib, 0, groups);
        assert_eq!(said(2000, &["a"]), [""; 0], "the ring itself is told");
        assert_eq!(said(500, &[]), [""; 0]);
        assert_eq!(said(500, &["a", "b,memory=16MiB,members-max=4"]), [""; 0]);
        let expected = "--group 'b': memory: members may use 448 MiB of it, all groups together 576 MiB beside the ring of \
                        500 MiB: that is more than there is, 1 GiB of memory is available (MemAvailable of this machine), \
                        and some of it must stay free; choose less memory= or members-max=: they are multiplied";
        assert_eq!(said(500, &["a", "b,memory=64MiB,members-max=7"]), [expected]);
        assert_eq!(said_beside(500, 100, &["a"]), [""; 0]);
        let both = said_beside(500, 300, &["a,memory=32MiB"]);
        assert!(
            both[0].contains("beside the ring of 500 MiB and 300 MiB in which the store composes"),
            "{both:?}"
        );
        assert_eq!(said_beside(500, 2000, &["a"]), [""; 0], "what the store composes in is told");
        // A ring in reserved huge pages takes none of the others.
        let pool = root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        std::fs::create_dir_all(&pool).unwrap();
        std::fs::write(pool.join("free_hugepages"), "250\n").unwrap();
        assert_eq!(said(500, &["a", "b,memory=64MiB,members-max=7"]), [""; 0]);
        assert_eq!(said(500, &["a", "b,memory=64MiB,members-max=16"]).len(), 1);
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let check = |text: &str, expected: &[&str]| {
            let faults = read(text).map(|_| ()).unwrap_err();
            assert_eq!(faults.len(), expected.len(), "{text}: {faults:?}");
            for (fault, expected) in faults.iter().zip(expected) {
                assert!(fault.contains(expected), "{text}: {fault}");
            }
        };
        check("", &["is no name of a group"]);
        check("ring", &["the name of the ring itself"]);
        check("a,b", &["'b' is no KEY=VALUE"]);
        check("a,interface=", &["write e.g. interface=eth0"]);
        check("a,steer=flow,steer=ip", &["given twice"]);
        check(
            "a,colour=red,filter=prot 7,steer=up,memory=1,members-max=0,members=65,stuck=-1,allow=:",
            &[
                "there is no such option",
                "filter",
                "'up' is no way to steer",
                "is too little",
                "is no number of members",
                "is no number of members",
                "is no time",
                "a name in it is empty",
                "a name in it is empty",
            ],
        );
        check("a*2", &["is no name of a group"]);
        check("a,members=3,members-max=2", &["it waits for 3 members, and there are 2 at most"]);
    }
}
