//! When the kernel may evaluate a filter before a packet is captured, and the program that it is given.
//!
//! The kernel's answer is never the last word: on what it lets through, the filter is evaluated again behind
//! the capture. So only one thing has to be proven: *the kernel refuses no packet that the filter matches.*
//! [`program`] is that proof: every way in which the kernel's run could differ is a condition there, or led
//! past the filter.
//!
//! - **Tagged frames.** A tag that the card or the kernel stripped is not in the bytes that the kernel's run
//!   sees, and is put back before the filter is evaluated; and under the transparent rule a tag in the bytes
//!   selects another program. So every frame with a tag, stripped (the kernel's extension says so) or in its
//!   bytes, is let through. An untagged frame has the same bytes on both sides, and the same program, that
//!   for no tags, is evaluated on it.
//! - **Length.** `len` is the whole frame's on both sides, as an untagged frame loses and gets nothing.
//! - **Truncated packets.** The kernel sees all bytes, the filter behind it may see fewer. The programs are
//!   the same: either both runs load the same values and end the same, or the one on fewer bytes loads beyond
//!   their end, which matches no packet.
//! - **Loads from negative offsets** are the kernel's extensions, and match no packet elsewhere. At fixed
//!   offsets they are refused here; at computed ones the kernel can only match more.
//! - **Long texts** are compiled in pieces that mean what libpcap means without optimising: that is what the
//!   kernel is given.
//! - **Registers** are 0 at the start on both sides: what stands in front of the program leaves them so.

use libc::{
    BPF_ABS, BPF_ALU, BPF_H, BPF_IMM, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_LSH, BPF_MISC,
    BPF_RET, BPF_RSH, BPF_TAX, BPF_W, BPF_X, SKF_AD_OFF, SKF_AD_VLAN_TAG_PRESENT, sock_filter,
};
use scope_packet::LinkType;
use std::sync::Arc;

use crate::bpf::Instruction;
use crate::choice::Choice;
use crate::libpcap::{self, ByteOrder};
use crate::listing;

/// Instructions of a program at most: the kernel accepts 4096, and the caller may add some of its own.
pub const INSTRUCTIONS_MAX: usize = 3500;

/// Bytes of an Ethernet header: a frame that is shorter is let through.
const ETHERNET_BYTES: u32 = 14;
/// Ethertypes that the header parse treats as tags.
const TAG_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];

/// The program for `text` on `link`, or the reason why the kernel must not evaluate it; see above.
pub(crate) fn program(
    text: &str,
    link: LinkType,
    transparent: bool,
    snap_len: u32,
) -> Result<Vec<sock_filter>, String> {
    let (choice, listings) = listing::compile(text, link, transparent)?;
    let Choice::Tags = choice else {
        return Err("its link type has several programs, one for each byte order".to_string());
    };
    if link != LinkType::ETHERNET
        && listings.iter().any(|other| !Arc::ptr_eq(&other.program, &listings[0].program))
    {
        return Err("its link type has another program for packets with VLAN tags".to_string());
    }
    let untagged = match listings[0].instructions() {
        Some(instructions) => instructions.to_vec(),
        None => libpcap::compile_plain(text, link, ByteOrder::Native)?,
    };
    let mut program = if link == LinkType::ETHERNET { let_tagged_through(snap_len) } else { Vec::new() };
    program.extend([code(BPF_LD | BPF_IMM, 0), code(BPF_MISC | BPF_TAX, 0)]);
    if program.len() + untagged.len() > INSTRUCTIONS_MAX {
        return Err(format!(
            "its program has {} instructions, the kernel accepts a few thousand",
            untagged.len()
        ));
    }
    for (at, instruction) in untagged.iter().enumerate() {
        program.push(checked(instruction, at, untagged.len(), snap_len)?);
    }
    Ok(program)
}

/// The instruction as the kernel is given it, if it means the same there.
fn checked(instruction: &Instruction, at: usize, len: usize, snap_len: u32) -> Result<sock_filter, String> {
    const LOADS_FIXED: [u16; 4] = [0x20, 0x28, 0x30, 0xb1];
    const RETURN_CONSTANT: u16 = (BPF_RET | BPF_K) as u16;
    const RETURN_A: u16 = 0x16;
    const JUMP_ALWAYS: u16 = 0x05;
    const SHIFTS: [u16; 2] = [(BPF_ALU | BPF_LSH) as u16, (BPF_ALU | BPF_RSH) as u16];
    let &Instruction { code, jump_true, jump_false, mut k } = instruction;
    if LOADS_FIXED.contains(&code) && i32::try_from(k).is_err() {
        return Err("it loads from an offset that means something else in the kernel".to_string());
    }
    if SHIFTS.contains(&(code & !BPF_X as u16)) && (code & BPF_X as u16 != 0 || k >= 32) {
        return Err("it shifts by a number that is computed or too large, which the kernel does differently"
            .to_string());
    }
    if code == JUMP_ALWAYS && k as usize >= len - at {
        return Err("it has a loop (protochain), which the kernel refuses".to_string());
    }
    if code == RETURN_A {
        return Err("its return value is computed, and the kernel would truncate the packet to that length"
            .to_string());
    }
    if code == RETURN_CONSTANT && k != 0 {
        k = snap_len;
    }
    Ok(sock_filter { code, jt: jump_true, jf: jump_false, k })
}

/// Accepts every frame with a VLAN tag, and frames without a whole Ethernet header; others go on behind it.
fn let_tagged_through(snap_len: u32) -> Vec<sock_filter> {
    let accept = code(BPF_RET | BPF_K, snap_len);
    let stripped = (SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT) as u32;
    let mut program = vec![
        code(BPF_LD | BPF_W | BPF_LEN, 0),
        jump(BPF_JGE, ETHERNET_BYTES, 1, 0),
        accept,
        code(BPF_LD | BPF_W | BPF_ABS, stripped),
        jump(BPF_JEQ, 0, 1, 0),
        accept,
        code(BPF_LD | BPF_H | BPF_ABS, 12),
    ];
    for (at, tag) in TAG_TYPES.into_iter().enumerate() {
        let left = (TAG_TYPES.len() - 1 - at) as u8;
        program.push(jump(BPF_JEQ, tag, left, u8::from(left == 0)));
    }
    program.push(accept);
    program
}

fn code(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(test: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | test | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, VlanRule};

    #[test]
    fn only_programs_that_mean_the_same_are_given_to_the_kernel() {
        let check = |text: &str, rule, why: Option<&str>| {
            let filter = Filter::compile(text, rule, &[LinkType::ETHERNET]).unwrap();
            match (filter.in_kernel(LinkType::ETHERNET, 96), why) {
                (Ok(program), None) => {
                    let returns = program.iter().filter(|step| step.code == 0x06);
                    assert!(
                        returns.clone().count() >= 4 && returns.clone().all(|step| matches!(step.k, 0 | 96)),
                        "{text}"
                    );
                }
                (Err(cause), Some(why)) => assert!(cause.contains(why), "{text}: {cause}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        };
        check("udp port 53", VlanRule::Transparent, None);
        check("vlan 5 and ip6", VlanRule::Exact, None);
        check("not tcp port 22 and len > 100", VlanRule::Transparent, None);
        check("ip[6:2] << 2 = 4", VlanRule::Transparent, None);
        check("ip protochain 6", VlanRule::Transparent, Some("loop"));
        check("ip[0] << ip[1] = 4", VlanRule::Transparent, Some("shifts"));
        check("ether[2147483648] = 1", VlanRule::Exact, Some("means something else"));
        let hosts = |count: u32| {
            (0..count).map(|n| format!("host 10.1.{}.{}", n / 250, n % 250)).collect::<Vec<_>>().join(" or ")
        };
        check(&hosts(100), VlanRule::Transparent, None);
        check(&hosts(800), VlanRule::Transparent, Some("instructions"));
        let null = Filter::compile("udp", VlanRule::Transparent, &[LinkType::NULL]).unwrap();
        assert!(null.in_kernel(LinkType::NULL, 96).is_err());
    }

    #[test]
    fn raw_ip_has_no_tags_to_let_through() {
        let filter = Filter::compile("udp", VlanRule::Transparent, &[LinkType::RAW]).unwrap();
        let program = filter.in_kernel(LinkType::RAW, 1 << 18).unwrap();
        assert!(program.iter().all(|step| step.k < 0x8000_0000), "no test for tags");
    }
}
