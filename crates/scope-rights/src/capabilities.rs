//! Capabilities of the calling thread, given up by plain system calls: these run in signal handlers, where
//! nothing may be allocated.

use super::checked;

/// Version 3 of the structures of `capset(2)`: two words of 32 capabilities each.
const VERSION: u32 = 0x2008_0522;
/// No kernel has more capabilities.
const CAPABILITIES_MAX: libc::c_ulong = 64;

/// Takes every capability out of what programs could gain that this thread starts. Without CAP_SETPCAP that
/// isn't possible, and without privileges of the program's files ([`gain_none`]) of no use to anybody.
pub fn drop_bounding() {
    for capability in 0..CAPABILITIES_MAX {
        // SAFETY: takes numbers only; beyond the last capability it fails and changes nothing.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Empties the effective, permitted, inheritable and ambient sets.
pub fn drop_all() -> Result<(), i32> {
    set([0; 6])
}

/// The same, but for CAP_DAC_READ_SEARCH where the thread has it: who may read all files still may. With
/// `makes` CAP_DAC_OVERRIDE stays, too: who may make files anywhere still may.
pub fn drop_all_but_files(makes: bool) -> Result<(), i32> {
    let kept = if makes { 1 << 2 | 1 << 1 } else { 1 << 2 };
    let header = [VERSION, 0u32];
    let mut held = [0u32; 6];
    // SAFETY: both are arrays of the size that this version says, and outlive the call, which writes the
    // second one.
    checked(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), held.as_mut_ptr()) })?;
    set([held[0] & kept, held[1] & kept, 0, 0, 0, 0])
}

/// Sets twice effective, permitted and inheritable.
fn set(words: [u32; 6]) -> Result<(), i32> {
    let header = [VERSION, 0u32]; // 0: the calling thread
    // SAFETY: both are arrays of the size that this version says, and outlive the calls. An ambient
    // capability is always permitted and inheritable, so the kernel has emptied that set with the others; a
    // kernel without it refuses, rightly.
    unsafe {
        checked(libc::syscall(libc::SYS_capset, header.as_ptr(), words.as_ptr()))?;
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    }
    Ok(())
}

/// No program that is started from here on gains rights by its file (no_new_privs).
pub fn gain_none() -> Result<(), i32> {
    // SAFETY: takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())
}
