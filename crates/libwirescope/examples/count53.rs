//! Counts the packets to and from UDP port 53 that a run of Wirescope records from now on, until it ends:
//! `count53 [SOCKET [PORT [OPTIONS]]]`.

use std::path::PathBuf;
use std::process::ExitCode;
use wirescope::{Bytes, Counts, Member, Next, Options};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().filter(|socket| !socket.is_empty()).map(PathBuf::from);
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(53);
    let options = arguments.next().unwrap_or_else(|| "name=count53".to_string());
    match count(socket, port, &options) {
        Ok((Counts { seen, missed, .. }, found)) => {
            println!("{seen} packets, {found} of UDP port {port}, {missed} missed");
            ExitCode::SUCCESS
        }
        Err(words) => {
            eprintln!("count53: {words}");
            ExitCode::from(2)
        }
    }
}

/// What went by until the run ended, and how many packets were of this port.
pub fn count(socket: Option<PathBuf>, port: u16, options: &str) -> Result<(Counts, u64), String> {
    let told = |error: &dyn std::error::Error| error.to_string();
    let options = Options::parse(options).map_err(|faults| told(&faults[0]))?;
    let mut member = Member::open(socket.as_deref(), "ring", &options).map_err(|error| told(&error))?;
    let mut found = 0;
    while member.next(None).map_err(|error| told(&error))? != Next::Ended {
        let of_port = member.packets().filter(|packet| is_of_port(packet.data, port) == Some(true)).count();
        // Else the packets were overwritten while we looked: they count as missed.
        if member.is_whole() {
            found += of_port as u64;
        }
    }
    Ok((member.counts(), found))
}

/// Whether an Ethernet frame is of UDP, and from or to this port. Tags are passed over; later fragments have no ports.
fn is_of_port(data: Bytes<'_>, port: u16) -> Option<bool> {
    let mut at = 12;
    while matches!(data.be16(at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = at + 2;
    let ports_at = match data.be16(at)? {
        0x0800 if data.get(ip + 9)? == 17 && data.be16(ip + 6)? & 0x1fff == 0 => {
            ip + usize::from(data.get(ip)? & 15) * 4
        }
        0x86dd if data.get(ip + 6)? == 17 => ip + 40,
        _ => return Some(false),
    };
    Some(data.be16(ports_at)? == port || data.be16(ports_at + 2)? == port)
}
