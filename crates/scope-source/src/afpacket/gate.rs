//! The classic BPF programs that stand in front of the ring: shut before and after capture, open during it.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SKF_AD_OFF, SKF_AD_PKTTYPE, sock_filter,
};

use scope_machine::nic::SNAP_LEN_MAX;

const fn step(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Lets nothing in.
pub(super) fn shut() -> Vec<sock_filter> {
    vec![step(BPF_RET | BPF_K, 0)]
}

/// Whether an open gate without a prefilter refuses or truncates anything. Where it doesn't, no program
/// stands in front of the ring: one that only accepts costs each packet as much as a call does.
pub(super) fn is_of_use(snap_len: u32, only_in: bool, excluded: &[sock_filter]) -> bool {
    snap_len < SNAP_LEN_MAX || only_in || !excluded.is_empty()
}

/// Lets everything in, truncated to `snap_len` bytes; with `only_in` only what arrives. What `excluded` drops
/// stays out, and what `prefilter` refuses. The prefilter ends every packet's run and truncates it itself.
pub(super) fn open(
    snap_len: u32,
    only_in: bool,
    excluded: &[sock_filter],
    prefilter: &[sock_filter],
) -> Vec<sock_filter> {
    let mut program = Vec::new();
    if only_in {
        let is_outgoing = sock_filter {
            code: (BPF_JMP | BPF_JEQ | BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: libc::PACKET_OUTGOING.into(),
        };
        program.extend([
            step(BPF_LD | BPF_W | BPF_ABS, (SKF_AD_OFF + SKF_AD_PKTTYPE) as u32),
            is_outgoing,
            step(BPF_RET | BPF_K, 0),
        ]);
    }
    program.extend(excluded);
    if prefilter.is_empty() {
        program.push(step(BPF_RET | BPF_K, snap_len));
    }
    program.extend(prefilter);
    program
}
