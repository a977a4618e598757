//! How many bytes a packet must have before a program can match it: a filter that needs more than a snap
//! length leaves never matches.
//!
//! ```text
//! need(return 0) = none     need(return n) = 0     need(jump) = least of its targets
//! need(load of bytes up to e) = max(e, need(next))          e of [x + k]: least value of X, plus k, plus its size
//! ```
//! X is 0 at least, and 20 behind `ldxb 4*([k]&0xf)`: no IPv4 header is shorter. Programs that jump back
//! (`protochain`) and those joined from pieces have no answer: nothing is said of them.

use crate::bpf::Instruction;

/// Bytes of the shortest IPv4 header.
const IPV4_BYTES_MIN: u64 = 20;

/// What a program needs from one instruction on, by what is known of X: nothing, or that it is an IPv4
/// header's length. `None`: it matches no packet.
type Need = [Option<u64>; 2];

/// Bytes that every packet has which one of `programs` matches; `None` where they match none, or it isn't
/// known.
pub(crate) fn bytes_needed<'a>(programs: impl Iterator<Item = Option<&'a [Instruction]>>) -> Option<u32> {
    let needs: Vec<Option<u64>> = programs.map(|program| need(program?)).collect::<Option<_>>()?;
    needs.into_iter().flatten().min().and_then(|bytes| u32::try_from(bytes).ok())
}

/// The outer `None`: it isn't known.
fn need(program: &[Instruction]) -> Option<Option<u64>> {
    let mut needs: Vec<Need> = vec![[None; 2]; program.len()];
    for (at, instruction) in program.iter().enumerate().rev() {
        let next = |distance: u32| {
            at.checked_add(1)?.checked_add(distance as usize).filter(|&to| to < program.len())
        };
        needs[at] = match instruction.code & 0x07 {
            // return
            0x06 if instruction.code & 0x18 == 0 && instruction.k == 0 => [None; 2],
            0x06 => [Some(0); 2],
            // jumps: always; where two ways are, the shorter one
            0x05 if instruction.code & 0xf0 == 0 => needs[next(instruction.k)?],
            0x05 => {
                least(needs[next(instruction.jump_true.into())?], needs[next(instruction.jump_false.into())?])
            }
            _ => before(instruction, needs[next(0)?]),
        };
    }
    needs.first().map(|need| need[0])
}

fn least(one: Need, other: Need) -> Need {
    std::array::from_fn(|x| one[x].into_iter().chain(other[x]).min())
}

/// The need in front of an instruction that goes on to the one behind it, which needs `behind`.
fn before(instruction: &Instruction, behind: Need) -> Need {
    let k = u64::from(instruction.k);
    // Places from the kernel's extensions on aren't in the packet.
    let fixed = |end: u64, need: Option<u64>| need.map(|need| if k < 1 << 31 { need.max(end) } else { need });
    match instruction.code {
        0x20 => behind.map(|need| fixed(k + 4, need)),
        0x28 => behind.map(|need| fixed(k + 2, need)),
        0x30 => behind.map(|need| fixed(k + 1, need)),
        0x40 => with_x(4, k, behind),
        0x48 => with_x(2, k, behind),
        0x50 => with_x(1, k, behind),
        0xb1 => [fixed(k + 1, behind[1]); 2],
        // X becomes something else: ldx, tax.
        code if code & 0x07 == 0x01 || code == 0x07 => [behind[0]; 2],
        _ => behind,
    }
}

fn with_x(size: u64, k: u64, behind: Need) -> Need {
    let end = |x: u64| if k < 1 << 31 { x + k + size } else { 0 };
    [behind[0].map(|need| need.max(end(0))), behind[1].map(|need| need.max(end(IPV4_BYTES_MIN)))]
}

#[cfg(test)]
mod tests {
    use crate::{Filter, VlanRule};
    use scope_packet::LinkType;

    fn check(text: &str, expected: Option<u32>) {
        let filter = Filter::compile(text, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
        assert_eq!(filter.bytes_needed(LinkType::ETHERNET), expected, "{text}");
    }

    #[test]
    fn a_filter_needs_the_bytes_of_its_shortest_way_to_a_yes() {
        check("", Some(0));
        check("ip", Some(14));
        check("host 10.0.0.1", Some(30)); // ARP needs 32
        check("arp host 10.0.0.1", Some(32));
        check("ip host 10.0.0.1", Some(30));
        check("udp port 60000", Some(36));
        check("udp dst port 60000", Some(38));
        check("udp port 60000 or ip", Some(14));
        check("ip[200] = 7", Some(215));
        check("tcp[tcpflags] & tcp-syn != 0", Some(48));
        check("len > 1000", Some(0));
        check("not udp", Some(14));
        check("ip protochain 6", None);
        check("vlan and udp port 60000", Some(40));
    }
}
