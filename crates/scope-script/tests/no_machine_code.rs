//! Large mappings around LuaJIT's code don't keep it from machine code; where there is none, that is seen, and
//! scripts run nevertheless.

use scope_packet::LinkType;
use scope_script::*;

/// Takes the address space around this program's code, as huge rings may.
fn take_what_is_near() {
    const STEP: usize = 4096;
    let here = take_what_is_near as *const () as usize & !(STEP - 1);
    let begin = here.saturating_sub(5 << 29).max(STEP);
    let mut bytes = 1 << 30;
    while bytes >= STEP {
        let mut at = begin & !(bytes - 1);
        while at < here + (5 << 29) {
            // SAFETY: maps nothing over what is there; nobody uses the mapping.
            unsafe {
                libc::mmap(
                    at as *mut libc::c_void,
                    bytes,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                );
            }
            at += bytes;
        }
        bytes /= 4;
    }
}

/// From now on no memory that was written may be executed; `false`: this kernel can't do that.
fn refuse_machine_code() -> bool {
    const PR_SET_MDWE: libc::c_int = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    const NONE: libc::c_ulong = 0;
    // SAFETY: changes what this process may do from now on, nothing else.
    unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, NONE, NONE, NONE) == 0 }
}

#[test]
fn a_lack_of_machine_code_is_seen_and_scripts_still_run() {
    assert!(machine_code_works());
    take_what_is_near();
    assert!(machine_code_works(), "it goes elsewhere");
    if refuse_machine_code() {
        assert!(!machine_code_works());
    }
    let text = "return function(pkt) return pkt.captured == 1 end";
    let mut script = Script::load(text, &Options::named("t.lua")).expect("it loads");
    let packet = Lent {
        data: &[7],
        original_len: 1,
        time_ns: 0,
        interface: 0,
        flags: 0,
        link_type: LinkType::ETHERNET,
    };
    for _ in 0..10 {
        assert_eq!(script.run(&[packet; 500]).map(<[Hit]>::len), Ok(500));
    }
}
