//! The small filters as one would write them by hand in Rust, with libpcap's meaning on whole packets without
//! tags.

fn half(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]))
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

/// Where the ports of TCP, UDP or SCTP stand, if they are there.
fn ports_at(data: &[u8]) -> Option<usize> {
    let carries_ports = |protocol: u8| matches!(protocol, 6 | 17 | 132);
    match half(data, 12)? {
        0x0800 if carries_ports(*data.get(23)?) && half(data, 20)? & 0x1fff == 0 => {
            Some(14 + usize::from(*data.get(14)? & 15) * 4)
        }
        0x86dd if carries_ports(*data.get(20)?) => Some(54),
        _ => None,
    }
}

fn either_port(data: &[u8], wanted: impl Fn(u16) -> bool) -> Option<bool> {
    let at = ports_at(data)?;
    Some(wanted(half(data, at)?) || wanted(half(data, at + 2)?))
}

/// `port 4000`
pub fn port_4000(data: &[u8]) -> bool {
    either_port(data, |port| port == 4000).unwrap_or(false)
}

/// `host 10.0.7.7`
pub fn host_10_0_7_7(data: &[u8]) -> bool {
    const HOST: u32 = 0x0a00_0707;
    let found = || {
        let (source, destination) = match half(data, 12)? {
            0x0800 => (26, 30),
            0x0806 | 0x8035 => (28, 38),
            _ => return None,
        };
        Some(word(data, source)? == HOST || word(data, destination)? == HOST)
    };
    found().unwrap_or(false)
}

/// `tcp[tcpflags] & (tcp-syn|tcp-fin) != 0`
pub fn syn_or_fin(data: &[u8]) -> bool {
    let found = || {
        if half(data, 12)? != 0x0800 || *data.get(23)? != 6 || half(data, 20)? & 0x1fff != 0 {
            return None;
        }
        Some(data.get(14 + usize::from(*data.get(14)? & 15) * 4 + 13)? & 3 != 0)
    };
    found().unwrap_or(false)
}

/// `net 10.0.0.0/8 and (port 1500 or port 4043 or port 8080) and not vlan`
pub fn net_and_ports(data: &[u8]) -> bool {
    let found = || {
        let (source, destination) = match half(data, 12)? {
            0x0800 => (26, 30),
            0x0806 | 0x8035 => (28, 38),
            _ => return None,
        };
        let inside = |at: usize| Some(word(data, at)? >> 24 == 10);
        Some(
            (inside(source)? || inside(destination)?)
                && either_port(data, |port| matches!(port, 1500 | 4043 | 8080))?,
        )
    };
    found().unwrap_or(false)
}
