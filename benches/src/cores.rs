//! The cores that this process may run on, and threads that stay on one, or that run only where nobody else wants to.

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

/// From now on the calling thread runs only while no other one wants its core; where that is refused, it goes on as before.
pub fn give_way() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter outlives the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) };
}
