//! Which CPUs workers run on: the options, checked against what this process may use, and the pinning
//! itself.
//!
//! What a process may use is its affinity, which lies within its control group's cpuset: a CPU outside is
//! refused, never taken by force.

use scope_fault::Fault;
use scope_spelling::values::{CPUS_MAX, format_cpus, parse_cpus};
use std::io;

/// Where the workers of a source run; by default wherever the system puts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Each worker is pinned to one of these CPUs, in turn.
    pub cpus: Option<Vec<u32>>,
    /// All CPUs that are used belong to this NUMA node.
    pub node: Option<u32>,
}

/// Where the workers of a source run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Wherever the system puts them.
    #[default]
    Anywhere,
    /// Each on one of these, in turn.
    OneEach(Vec<u32>),
    /// Each on any of these.
    Among(Vec<u32>),
}

impl Pinning {
    /// What `placement` of the source `spec` means on this machine.
    ///
    /// # Errors
    /// Faults about CPUs or a node that there aren't, with those that there are.
    pub fn resolve(placement: &Placement, spec: &str) -> Result<Pinning, Vec<Fault>> {
        if *placement == Placement::default() {
            return Ok(Pinning::Anywhere);
        }
        let unknown = |cause: io::Error| {
            let fault = Fault::of_source(spec).cause(format!("reading which CPUs may be used: {cause}"));
            vec![fault.remedy("omit cpus= and numa=")]
        };
        let allowed = allowed().map_err(unknown)?;
        let node = placement.node.map(|node| (node, cpus_of_node(node)));
        meant(placement, spec, &allowed, node.as_ref().map(|(number, cpus)| (*number, cpus.as_deref())))
    }

    /// The CPUs that worker `index` of the source may run on; empty: any.
    pub fn of_worker(&self, index: usize) -> &[u32] {
        match self {
            Pinning::Anywhere => &[],
            Pinning::OneEach(cpus) => std::slice::from_ref(&cpus[index % cpus.len()]),
            Pinning::Among(cpus) => cpus,
        }
    }

    /// All CPUs that workers of the source may run on; empty: any.
    pub fn all(&self) -> &[u32] {
        match self {
            Pinning::Anywhere => &[],
            Pinning::OneEach(cpus) | Pinning::Among(cpus) => cpus,
        }
    }

    /// In words, for the start of a run; nothing where nothing is pinned.
    pub fn words(&self) -> Option<String> {
        match self {
            Pinning::Anywhere => None,
            Pinning::OneEach(cpus) => {
                Some(format!("workers pinned to CPUs {}, one each in turn", format_cpus(cpus)))
            }
            Pinning::Among(cpus) => Some(format!("workers on CPUs {}", format_cpus(cpus))),
        }
    }
}

/// The pinning for `placement` where this process may use the CPUs `allowed` and `node` has these (`None`:
/// there is no such node).
fn meant(
    placement: &Placement,
    spec: &str,
    allowed: &[u32],
    node: Option<(u32, Option<&[u32]>)>,
) -> Result<Pinning, Vec<Fault>> {
    let mut faults = Vec::new();
    let there = format_cpus(allowed);
    let numa = |number: u32| Fault::of_option(spec, "numa").with_value(number.to_string());
    let of_node = match node {
        Some((number, None)) => {
            let fault = numa(number).cause(format!("there is no NUMA node {number}"));
            faults.push(fault.remedy("omit it, or look into /sys/devices/system/node"));
            None
        }
        Some((number, Some(cpus))) => {
            let usable: Vec<u32> = cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
            if usable.is_empty() {
                let fault = numa(number).cause(format!("node {number} has no CPU that this process may use"));
                faults.push(fault.remedy(format!("it has {}, there are: {there}", format_cpus(cpus))));
            }
            Some((number, usable))
        }
        None => None,
    };
    let Some(cpus) = &placement.cpus else {
        return if faults.is_empty() {
            Ok(of_node.map_or(Pinning::Anywhere, |(_, cpus)| Pinning::Among(cpus)))
        } else {
            Err(faults)
        };
    };
    let refuse = |refused: &[u32], is: String, remedy: String| {
        let fault = Fault::of_option(spec, "cpus").with_value(format_cpus(cpus));
        fault.cause(format!("CPU {} {is}", format_cpus(refused))).remedy(remedy)
    };
    let refused: Vec<u32> = cpus.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    if !refused.is_empty() {
        let is = "is not there, is offline or not allowed to this process".to_string();
        faults.push(refuse(&refused, is, format!("there are: {there}")));
    }
    if let Some((number, usable)) = of_node.filter(|(_, usable)| !usable.is_empty()) {
        let outside: Vec<u32> =
            cpus.iter().copied().filter(|cpu| allowed.contains(cpu) && !usable.contains(cpu)).collect();
        if !outside.is_empty() {
            let is = format!("is not of NUMA node {number}, which has {}", format_cpus(&usable));
            faults.push(refuse(&outside, is, "omit numa= or cpus=".to_string()));
        }
    }
    if faults.is_empty() { Ok(Pinning::OneEach(cpus.clone())) } else { Err(faults) }
}

/// CPUs of NUMA node `node`; `None` where there is no such node.
fn cpus_of_node(node: u32) -> Option<Vec<u32>> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).ok();
    match text {
        // A node of memory only has an empty list.
        Some(text) => Some(parse_cpus(text.trim()).unwrap_or_default()),
        // A kernel without NUMA has one node and no files about it.
        None if node == 0 && !std::path::Path::new("/sys/devices/system/node").exists() => allowed().ok(),
        None => None,
    }
}

/// The CPUs that this thread may use, ascending: online, and within the control group's cpuset.
pub fn allowed() -> io::Result<Vec<u32>> {
    // SAFETY: all-zero bytes are a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and its size is given; 0 means this thread.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every number is below CPUS_MAX, which is the number of bits of the set.
    Ok((0..CPUS_MAX).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) }).collect())
}

const _: () = assert!(CPUS_MAX as usize == size_of::<libc::cpu_set_t>() * 8);

/// Keeps this thread on `cpus`; with none of them it changes nothing.
///
/// # Errors
/// The system's: a CPU that went offline meanwhile.
pub fn pin_this_thread(cpus: &[u32]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    // SAFETY: all-zero bytes are a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CPUS_MAX) {
        // SAFETY: the number is below the number of bits of the set.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set is ours and its size is given; 0 means this thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(cpus: Option<&[u32]>, node: Option<u32>) -> Placement {
        Placement { cpus: cpus.map(<[u32]>::to_vec), node }
    }

    #[test]
    fn cpus_are_dealt_out_in_turn_and_those_of_a_node_are_shared() {
        let each = meant(&placement(Some(&[2, 3]), None), "x", &[0, 1, 2, 3], None).unwrap();
        assert_eq!((each.of_worker(0), each.of_worker(1), each.of_worker(2)), (&[2][..], &[3][..], &[2][..]));
        let node = meant(&placement(None, Some(1)), "x", &[0, 2, 3], Some((1, Some(&[2, 3, 4])))).unwrap();
        assert_eq!((node.of_worker(0), node.of_worker(5)), (&[2, 3][..], &[2, 3][..]));
        assert_eq!(meant(&placement(None, None), "x", &[0], None), Ok(Pinning::Anywhere));
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        let check = |cpus: Option<&[u32]>, node, there: Option<&[u32]>, words: &[&str]| {
            let node: Option<u32> = node;
            let faults =
                meant(&placement(cpus, node), "x", &[0, 1], node.map(|node| (node, there))).unwrap_err();
            let faults = faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n");
            for word in words {
                assert!(faults.contains(word), "no '{word}' in {faults}");
            }
        };
        check(Some(&[1, 7, 8, 9]), None, None, &["'cpus'", "CPU 7-9", "there are: 0-1"]);
        check(None, Some(5), None, &["'numa'", "no NUMA node 5"]);
        check(None, Some(1), Some(&[2, 3]), &["node 1 has no CPU that this process may use", "it has 2-3"]);
        check(Some(&[1]), Some(0), Some(&[0]), &["CPU 1 is not of NUMA node 0", "which has 0"]);
        check(Some(&[9]), Some(5), None, &["CPU 9 is not there", "no NUMA node 5"]);
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_pinned_and_its_maker_does_not() {
        let before = allowed().unwrap();
        let last = *before.last().unwrap();
        let inside = std::thread::spawn(move || {
            pin_this_thread(&[last]).unwrap();
            allowed().unwrap()
        });
        assert_eq!(inside.join().unwrap(), [last]);
        assert_eq!(allowed().unwrap(), before);
    }
}
