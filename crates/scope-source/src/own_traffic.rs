//! The traffic that this program causes by being watched: the ssh session that it was started from, so that
//! it can be omitted.
//!
//! sshd says in `SSH_CONNECTION` (older ones in `SSH_CLIENT`) whom a session connects. sudo removes the
//! variable, so the processes above this one are searched, too. What is found is one TCP connection with
//! both addresses and ports; a classic BPF program drops exactly its packets, both ways, in the kernel:
//! they are counted nowhere, and are no loss. Fragments have no ports and are not dropped, nor are packets
//! with a VLAN tag in their bytes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN,
    BPF_MSH, BPF_RET, BPF_W, BPF_X, sock_filter,
};
use scope_packet::LinkType;

/// Connections that are omitted at most.
pub const CONNECTIONS_MAX: usize = 8;
/// How many processes above this one are searched at most.
const PARENTS_MAX: usize = 64;
/// Bytes of a process's environment that are read at most.
const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;

/// A TCP connection, both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection {
    /// The end on this host.
    pub here: SocketAddr,
    /// The other end; of the same address family.
    pub there: SocketAddr,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp {} <-> {}", self.here, self.there)
    }
}

/// The ssh sessions that this process was started from: usually one or none.
pub fn ssh_sessions() -> Vec<Connection> {
    let own: Vec<u8> = std::env::vars_os()
        .flat_map(|(name, value)| [name.as_encoded_bytes(), b"=", value.as_encoded_bytes(), b"\0"].concat())
        .collect();
    sessions(&own, Path::new("/proc"), std::process::id())
}

/// The session of the environment `own`, and of the nearest process above `process` that has one in its own.
fn sessions(own: &[u8], proc: &Path, process: u32) -> Vec<Connection> {
    let mut found: Vec<Connection> = session_of(own, proc).into_iter().collect();
    let mut above = parent(proc, process);
    for _ in 0..PARENTS_MAX {
        let Some(process) = above.filter(|&process| process > 0) else { break };
        // Another user's environment can't be read without privileges: then its parent may still have it.
        let environment = std::fs::read(proc.join(process.to_string()).join("environ")).unwrap_or_default();
        if let Some(connection) =
            session_of(&environment[..environment.len().min(ENVIRONMENT_BYTES_MAX)], proc)
        {
            found.push(connection);
            break;
        }
        above = parent(proc, process);
    }
    found.dedup();
    found
}

/// The process above `process`.
fn parent(proc: &Path, process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(proc.join(process.to_string()).join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// What the environment, `NAME=VALUE` ended by zeros each, says of an ssh session.
pub(crate) fn session_of(environment: &[u8], proc: &Path) -> Option<Connection> {
    let value = |name: &str| {
        let of_name = |entry: &[u8]| {
            Some(
                String::from_utf8_lossy(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?)
                    .into_owned(),
            )
        };
        environment.split(|&byte| byte == 0).find_map(of_name)
    };
    if let Some(text) = value("SSH_CONNECTION") {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [from, from_port, to, to_port] = words[..] else { return None };
        return connection(
            SocketAddr::new(address(to)?, to_port.parse().ok()?),
            SocketAddr::new(address(from)?, from_port.parse().ok()?),
        );
    }
    let text = value("SSH_CLIENT")?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let [from, from_port, to_port] = words[..] else { return None };
    let there = SocketAddr::new(address(from)?, from_port.parse().ok()?);
    connection(local_end(proc, there, to_port.parse().ok()?)?, there)
}

/// An address without its zone (`fe80::1%eth0`).
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.split('%').next()?.parse().ok()?;
    Some(address.to_canonical())
}

fn connection(here: SocketAddr, there: SocketAddr) -> Option<Connection> {
    (here.is_ipv4() == there.is_ipv4()).then_some(Connection { here, there })
}

/// The local end, with `port`, of the connection to `there`, as the kernel's table has it: `SSH_CLIENT`
/// doesn't name its address.
fn local_end(proc: &Path, there: SocketAddr, port: u16) -> Option<SocketAddr> {
    let tables =
        ["tcp", "tcp6"].map(|name| std::fs::read_to_string(proc.join("net").join(name)).unwrap_or_default());
    let ends = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((table_end(words.next()?)?, table_end(words.next()?)?))
    });
    ends.filter(|(here, other)| here.port() == port && *other == there).map(|(here, _)| here).next()
}

/// `0100007F:0016`: the words of the address as the host reads them from memory, the port as a number.
pub(crate) fn table_end(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(words.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match words.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Classic BPF that drops the packets of `connections` and falls through to what stands behind it for all
/// others; `None` for link types whose IP header it can't find.
pub fn dropping(connections: &[Connection], link: LinkType) -> Option<Vec<sock_filter>> {
    let ip_at = match link {
        LinkType::ETHERNET => 14,
        LinkType::RAW => 0,
        _ => return None,
    };
    let mut program = Vec::new();
    for Connection { here, there } in connections.iter().take(CONNECTIONS_MAX) {
        program.extend(dropping_one_way(*here, *there, ip_at));
        program.extend(dropping_one_way(*there, *here, ip_at));
    }
    Some(program)
}

/// A step: what is computed, or a test that leads on when it holds, else behind the block.
enum Step {
    Do(u32, u32),
    Must(u32, u32),
    MustNot(u32, u32),
}

/// Drops packets from `from` to `to`. No load may fail: that would drop the packet, so lengths are looked at
/// before.
fn dropping_one_way(from: SocketAddr, to: SocketAddr, ip_at: u32) -> Vec<sock_filter> {
    use Step::{Do, Must, MustNot};
    const TCP: u32 = 6;
    const TCP_BYTES: u32 = 20;
    const FRAGMENT_OFFSET: u32 = 0x1fff;
    let load = |size, at| Do(BPF_LD | size | BPF_ABS, ip_at + at);
    let equals = |k| Must(BPF_JEQ | BPF_K, k);
    let version = |k: u32, ethertype: u32| match ip_at {
        0 => [load(BPF_B, 0), Do(libc::BPF_ALU | libc::BPF_AND | BPF_K, 0xf0), equals(k << 4)]
            .into_iter()
            .collect::<Vec<_>>(),
        _ => vec![Do(BPF_LD | BPF_H | BPF_ABS, ip_at - 2), equals(ethertype)],
    };
    let longer_than = |bytes: u32| [Do(BPF_LD | BPF_W | BPF_LEN, 0), Must(BPF_JGE | BPF_K, ip_at + bytes)];
    let mut steps = Vec::new();
    let compare = |steps: &mut Vec<Step>, at: u32, bytes: &[u8]| {
        for (word, value) in bytes.chunks_exact(4).enumerate() {
            let value = u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
            steps.extend([load(BPF_W, at + 4 * word as u32), equals(value)]);
        }
    };
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            steps.extend(longer_than(20 + TCP_BYTES));
            steps.extend(version(4, 0x0800));
            steps.extend([load(BPF_B, 9), equals(TCP)]);
            steps.extend([load(BPF_H, 6), MustNot(BPF_JSET | BPF_K, FRAGMENT_OFFSET)]);
            compare(&mut steps, 12, &source.octets());
            compare(&mut steps, 16, &destination.octets());
            // X: bytes of the IP header, up to 60. Behind it 4 bytes of ports have to be there.
            steps.push(Do(BPF_LDX | BPF_B | BPF_MSH, ip_at));
            steps.extend([
                Do(BPF_LD | BPF_W | BPF_LEN, 0),
                Do(libc::BPF_ALU | libc::BPF_SUB | BPF_K, ip_at + 4),
                Must(BPF_JGE | BPF_X, 0),
            ]);
            steps.extend([Do(BPF_LD | BPF_H | BPF_IND, ip_at), equals(from.port().into())]);
            steps.extend([Do(BPF_LD | BPF_H | BPF_IND, ip_at + 2), equals(to.port().into())]);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            steps.extend(longer_than(40 + TCP_BYTES));
            steps.extend(version(6, 0x86dd));
            steps.extend([load(BPF_B, 6), equals(TCP)]);
            compare(&mut steps, 8, &source.octets());
            compare(&mut steps, 24, &destination.octets());
            steps.extend([load(BPF_H, 40), equals(from.port().into())]);
            steps.extend([load(BPF_H, 42), equals(to.port().into())]);
        }
        _ => return Vec::new(),
    }
    steps.push(Do(BPF_RET | BPF_K, 0));
    assembled(&steps)
}

/// Every failed test jumps behind the last step.
fn assembled(steps: &[Step]) -> Vec<sock_filter> {
    let step = |(at, step): (usize, &Step)| {
        let out = (steps.len() - 1 - at) as u8;
        match *step {
            Step::Do(code, k) => sock_filter { code: code as u16, jt: 0, jf: 0, k },
            Step::Must(test, k) => sock_filter { code: (BPF_JMP | test) as u16, jt: 0, jf: out, k },
            Step::MustNot(test, k) => sock_filter { code: (BPF_JMP | test) as u16, jt: out, jf: 0, k },
        }
    };
    steps.iter().enumerate().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[&str]) -> Vec<u8> {
        entries.iter().flat_map(|entry| [entry.as_bytes(), b"\0"].concat()).collect()
    }

    fn ends(here: &str, there: &str) -> Connection {
        Connection { here: here.parse().unwrap(), there: there.parse().unwrap() }
    }

    #[test]
    fn a_session_is_found_in_both_variables() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("net")).unwrap();
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:0016 0200007F:C350 01\n   1: \
            0300007F:0016 0400007F:C350 01\n";
        std::fs::write(folder.path().join("net/tcp"), table).unwrap();
        let check = |entries: &[&str], expected: Option<Connection>| {
            assert_eq!(session_of(&environment(entries), folder.path()), expected, "{entries:?}");
        };
        check(
            &["A=b", "SSH_CONNECTION=10.0.0.9 50000 10.0.0.1 22", "Z="],
            Some(ends("10.0.0.1:22", "10.0.0.9:50000")),
        );
        check(
            &["SSH_CONNECTION=2001:db8::9 50000 2001:db8::1 22"],
            Some(ends("[2001:db8::1]:22", "[2001:db8::9]:50000")),
        );
        check(&["SSH_CONNECTION=fe80::9%eth0 5 fe80::1%eth0 22"], Some(ends("[fe80::1]:22", "[fe80::9]:5")));
        check(
            &["SSH_CONNECTION=::ffff:10.0.0.9 5 ::ffff:10.0.0.1 22"],
            Some(ends("10.0.0.1:22", "10.0.0.9:5")),
        );
        check(&["SSH_CLIENT=127.0.0.4 50000 22"], Some(ends("127.0.0.3:22", "127.0.0.4:50000")));
        check(&["SSH_CLIENT=127.0.0.9 50000 22"], None);
        for wrong in [
            "SSH_CONNECTION=",
            "SSH_CONNECTION=a b c d",
            "SSH_CONNECTION=10.0.0.1 1 ::1 2",
            "XSSH_CONNECTION=1.1.1.1 1 1.1.1.1 1",
        ] {
            check(&[wrong], None);
        }
    }

    #[test]
    fn under_sudo_the_process_above_has_the_session() {
        let folder = tempfile::tempdir().unwrap();
        let process = |id: u32, parent: u32, entries: &[&str]| {
            let place = folder.path().join(id.to_string());
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).unwrap();
            std::fs::write(place.join("environ"), environment(entries)).unwrap();
        };
        process(30, 20, &[]);
        process(20, 10, &["SUDO_UID=1"]);
        process(10, 1, &["SSH_CONNECTION=10.0.0.9 50000 10.0.0.1 22"]);
        process(1, 0, &[]);
        let found = ends("10.0.0.1:22", "10.0.0.9:50000");
        assert_eq!(sessions(&[], folder.path(), 30), [found]);
        assert_eq!(
            sessions(&environment(&["SSH_CONNECTION=10.0.0.9 50000 10.0.0.1 22"]), folder.path(), 30),
            [found]
        );
        assert_eq!(sessions(&[], folder.path(), 1), []);
    }

    #[test]
    fn other_link_types_than_ethernet_and_raw_ip_are_not_looked_into() {
        let one = [ends("10.0.0.1:22", "10.0.0.9:50000")];
        assert!(dropping(&one, LinkType(127)).is_none());
        assert_eq!(dropping(&[], LinkType::ETHERNET).map(|program| program.len()), Some(0));
    }
}
