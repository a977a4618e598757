//! The cores that this process may run on, and threads that stay on one.

/// Their numbers.
pub fn cores() -> Vec<usize> {
    // SAFETY: an empty set is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set outlives the call, which gets its size.
    let known = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } == 0;
    // SAFETY: the number is inside the set.
    let cores: Vec<usize> =
        (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect();
    if known && !cores.is_empty() { cores } else { vec![0] }
}

/// Keeps the calling thread on `core`; where that is refused, it may go on anywhere.
pub fn stay_on(core: usize) {
    // SAFETY: an empty set is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cores` gave a number inside the set; the set outlives the call, which gets its size.
    unsafe {
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
