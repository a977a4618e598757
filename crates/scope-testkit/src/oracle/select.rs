//! Which packets a filter selects, in tcpdump's own opinion, and what a dump has to hold by it.
//!
//! tcpdump reads a file in which packet `i` is dated second `i`: so its answer says which packets it took,
//! whatever their bytes, and nothing rests on the precision in which it writes times. Files go through
//! standard input, since tcpdump may be confined to certain paths.

use super::read::parse;
use crate::traffic::frame::tag_count;
use crate::traffic::{Capture, ETHERNET, Interface, Precision, Record, pcap};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// What a filter means for VLAN tagged packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanRule {
    /// A packet with n tags (0, 1, 2) matches as n times `vlan and` the filter does, unless the filter itself
    /// says `vlan`.
    Transparent,
    /// Follows libpcap literally.
    Exact,
}

/// Runs tcpdump over `input`, a capture file in memory, with `filter`, and returns the capture file that it
/// writes.
///
/// # Errors
/// tcpdump's own words where it fails, such as for a filter that does not compile.
pub fn tcpdump(input: &[u8], filter: &str) -> Result<Vec<u8>, String> {
    let mut command = Command::new("tcpdump");
    command.args(["-nn", "-r", "-", "-w", "-", "--time-stamp-precision=nano"]);
    if !filter.is_empty() {
        command.arg(filter);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("tcpdump: {e}; install it: apt-get install tcpdump"))?;
    let mut stdin = child.stdin.take().ok_or("tcpdump has no standard input")?;
    let mut stdout = child.stdout.take().ok_or("tcpdump has no standard output")?;
    let mut selected = Vec::new();
    std::thread::scope(|scope| {
        // It stops reading where the filter does not compile: a broken pipe shows in its exit code.
        scope.spawn(move || drop(stdin.write_all(input)));
        stdout.read_to_end(&mut selected).map_err(|e| format!("tcpdump's output: {e}"))
    })?;
    let done = child.wait_with_output().map_err(|e| format!("tcpdump: {e}"))?;
    if done.status.success() {
        Ok(selected)
    } else {
        Err(String::from_utf8_lossy(&done.stderr).trim().to_string())
    }
}

/// The packets, as ascending indices, that tcpdump selects from those at `indices`, which are all of
/// `link_type`.
fn evaluate(input: &Capture, indices: &[usize], link_type: u16, filter: &str) -> Result<Vec<usize>, String> {
    let dated = |(second, &at): (usize, &usize)| Record {
        time_ns: second as i64 * 1_000_000_000,
        interface: 0,
        flags: 0,
        lost_before: 0,
        ..input.packets[at].clone()
    };
    let packets = indices.iter().enumerate().map(dated).collect();
    let input_file = Capture { interfaces: vec![Interface::new("", link_type)], packets };
    let answer = parse(&tcpdump(&pcap(&input_file, Precision::Nano, false), filter)?)?;
    Ok(answer.capture.packets.iter().map(|p| indices[(p.time_ns / 1_000_000_000) as usize]).collect())
}

fn says_vlan(filter: &str) -> bool {
    filter.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "vlan")
}

/// The packets, as ascending indices, that `tcpdump -r` selects from a capture, which may mix link types.
///
/// # Errors
/// tcpdump's words where the filter compiles for none of the link types; where only some don't, it never
/// matches there.
pub fn tcpdump_selects(input: &Capture, filter: &str, rule: VlanRule) -> Result<Vec<usize>, String> {
    let mut selected = Vec::new();
    let mut failures = Vec::new();
    let link_types = input.link_types();
    for &link_type in &link_types {
        let transparent = rule == VlanRule::Transparent
            && link_type == ETHERNET
            && !filter.is_empty()
            && !says_vlan(filter);
        let all: Vec<usize> =
            (0..input.packets.len()).filter(|&at| input.link_type(at) == link_type).collect();
        for tags in 0..=2 {
            let (indices, text): (Vec<usize>, String) = if transparent {
                let tagged = |at: &usize| tag_count(&input.packets[*at].data).min(2) == tags;
                let text = if tags == 0 {
                    filter.to_string()
                } else {
                    format!("{}({filter})", "vlan and ".repeat(tags))
                };
                (all.iter().copied().filter(tagged).collect(), text)
            } else if tags == 0 {
                (all.clone(), filter.to_string())
            } else {
                continue;
            };
            if tags > 0 && indices.is_empty() {
                continue;
            }
            match evaluate(input, &indices, link_type, &text) {
                Ok(more) => selected.extend(more),
                Err(words) => {
                    failures.push(words);
                    break;
                }
            }
        }
    }
    if !link_types.is_empty() && failures.len() == link_types.len() {
        return Err(failures.join("; "));
    }
    selected.sort_unstable();
    Ok(selected)
}

/// What a dump has to hold: the indices of the packets that `filter` selects in [`from_ns`, `to_ns`], both
/// ends included, and of the packet that fired, in order of time; packets of one time stay in the order of
/// `input`.
///
/// # Errors
/// As [`tcpdump_selects`].
pub fn expected_dump(
    input: &Capture,
    filter: &str,
    from_ns: i64,
    to_ns: i64,
    hit: Option<usize>,
    rule: VlanRule,
) -> Result<Vec<usize>, String> {
    let mut indices = tcpdump_selects(input, filter, rule)?;
    indices.retain(|&at| (from_ns..=to_ns).contains(&input.packets[at].time_ns));
    indices.extend(hit);
    indices.sort_unstable();
    indices.dedup();
    indices.sort_by_key(|&at| input.packets[at].time_ns);
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::tools::have;
    use crate::traffic::frame::{self, Tag};
    use crate::traffic::{Conversations, RAW};

    fn udp_to(port: u16) -> Vec<u8> {
        frame::udp("10.0.0.1:1000".parse().unwrap(), format!("10.0.0.2:{port}").parse().unwrap(), b"x")
    }

    fn four() -> Capture {
        let mut capture = Capture::ethernet("a");
        for (time_ns, tags) in [&[][..], &[Tag::q(1)], &[Tag::ad(1), Tag::q(2)]].iter().enumerate() {
            capture.packets.push(Record::new(time_ns as i64, frame::on_link(ETHERNET, tags, &udp_to(60000))));
        }
        capture.packets.push(Record::new(3, frame::on_link(ETHERNET, &[], &udp_to(7))));
        capture
    }

    #[test]
    fn the_vlan_rule_decides_whether_tagged_packets_are_seen() {
        if !have("tcpdump") {
            return;
        }
        let check = |filter: &str, rule, expected: &[usize]| {
            assert_eq!(tcpdump_selects(&four(), filter, rule).as_deref(), Ok(expected), "{filter} {rule:?}");
        };
        check("udp port 60000", VlanRule::Transparent, &[0, 1, 2]);
        check("udp port 60000 or udp port 7", VlanRule::Transparent, &[0, 1, 2, 3]);
        check("udp port 60000", VlanRule::Exact, &[0]);
        check("vlan and udp port 60000", VlanRule::Transparent, &[1]);
        check("vlan 1", VlanRule::Transparent, &[1, 2]);
        check("", VlanRule::Transparent, &[0, 1, 2, 3]);
    }

    #[test]
    fn a_filter_that_compiles_nowhere_is_an_error_and_elsewhere_never_matches() {
        if !have("tcpdump") {
            return;
        }
        let mut mixed = four();
        mixed.interfaces.push(Interface::new("r", RAW));
        mixed.packets.push(Record::new(9, udp_to(60000)).on(1));
        assert_eq!(tcpdump_selects(&mixed, "udp port 60000", VlanRule::Transparent).unwrap(), [0, 1, 2, 4]);
        let only_ethernet = "ether host 02:00:0a:00:00:01";
        assert_eq!(tcpdump_selects(&mixed, only_ethernet, VlanRule::Transparent).unwrap(), [0, 1, 2, 3]);
        assert!(tcpdump_selects(&mixed, "udp prot 1", VlanRule::Transparent).unwrap_err().contains("syntax"));
    }

    #[test]
    fn a_dump_is_sorted_and_holds_the_packet_that_fired() {
        if !have("tcpdump") {
            return;
        }
        let mut capture = four();
        capture.packets.swap(0, 2);
        let expected =
            expected_dump(&capture, "udp port 60000", 1, 3, Some(3), VlanRule::Transparent).unwrap();
        assert_eq!(expected, [1, 0, 3]);
    }

    #[test]
    fn large_captures_pass_through_the_pipes() {
        if !have("tcpdump") {
            return;
        }
        let capture =
            Conversations { packets: 3000, vlan: 20, payload_max: 1400, ..Conversations::default() }
                .capture();
        let all = tcpdump_selects(&capture, "ip or ip6 or not ip", VlanRule::Transparent).unwrap();
        assert_eq!(all.len(), capture.packets.len());
    }
}
