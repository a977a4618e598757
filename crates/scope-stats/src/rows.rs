//! How rows are spelled in the tables, and added to those that are there.

use rusqlite::{Transaction, params};
use scope_flow::rows::{FlowRow, IntervalRow, LossRow, Owner, TrafficRow};
use std::fmt::Write;
use std::net::IpAddr;

const ADD_INTERVAL: &str = "\
INSERT INTO intervals (
    ts_ns, length_ns, interface, vlan, packets, bytes, ip_packets, ip_bytes, tcp_packets, tcp_bytes,
    udp_packets, udp_bytes, icmp_packets, icmp_bytes, other_packets, other_bytes, sent_packets, sent_bytes,
    new_flows, lost_max
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT (ts_ns, interface, vlan) DO UPDATE SET
    packets = packets + excluded.packets,
    bytes = bytes + excluded.bytes,
    ip_packets = ip_packets + excluded.ip_packets,
    ip_bytes = ip_bytes + excluded.ip_bytes,
    tcp_packets = tcp_packets + excluded.tcp_packets,
    tcp_bytes = tcp_bytes + excluded.tcp_bytes,
    udp_packets = udp_packets + excluded.udp_packets,
    udp_bytes = udp_bytes + excluded.udp_bytes,
    icmp_packets = icmp_packets + excluded.icmp_packets,
    icmp_bytes = icmp_bytes + excluded.icmp_bytes,
    other_packets = other_packets + excluded.other_packets,
    other_bytes = other_bytes + excluded.other_bytes,
    sent_packets = sent_packets + excluded.sent_packets,
    sent_bytes = sent_bytes + excluded.sent_bytes,
    new_flows = new_flows + excluded.new_flows,
    lost_max = max(lost_max, excluded.lost_max)";

const ADD_TRAFFIC: &str = "\
INSERT INTO traffic (
    ts_ns, interface, vlan, ip, proto, port, role, in_packets, in_bytes, in_ip_bytes, out_packets, out_bytes,
    out_ip_bytes
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (ts_ns, interface, vlan, ip, proto, port, role) DO UPDATE SET
    in_packets = in_packets + excluded.in_packets,
    in_bytes = in_bytes + excluded.in_bytes,
    in_ip_bytes = in_ip_bytes + excluded.in_ip_bytes,
    out_packets = out_packets + excluded.out_packets,
    out_bytes = out_bytes + excluded.out_bytes,
    out_ip_bytes = out_ip_bytes + excluded.out_ip_bytes";

const ADD_FLOW: &str = "\
INSERT INTO flows (
    start_ns, end_ns, interface, interface_rev, vlan, proto, src_ip, src_port, dst_ip, dst_port,
    packets_fwd, packets_rev, bytes_fwd, bytes_rev, ip_bytes_fwd, ip_bytes_rev, tcp_flags_fwd, tcp_flags_rev,
    len_min_fwd, len_min_rev, len_max_fwd, len_max_rev, zero_windows_fwd, zero_windows_rev,
    resent_fwd, resent_rev, rtt_server_ns, rtt_client_ns, state, community_id, reason
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
    ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31
)";

/// Rows that were written when the loss became known.
const ADD_LATE_LOSS: &str = "\
UPDATE intervals SET lost_max = lost_max + ?1
WHERE ts_ns < ?2 AND ts_ns <= ?3 AND ts_ns + length_ns > ?4 AND (?5 IS NULL OR interface = ?5)";

const ADD_LOSS: &str =
    "INSERT INTO losses (from_ns, to_ns, interface, reason, packets) VALUES (?1, ?2, ?3, ?4, ?5)";

/// A number as the database has them: one that doesn't fit counts as the largest.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Adds them to what is there of the same interval; of `lost_max` the larger one stays.
pub fn add_intervals(transaction: &Transaction<'_>, rows: &[IntervalRow]) -> rusqlite::Result<()> {
    let mut add = transaction.prepare_cached(ADD_INTERVAL)?;
    for row in rows.iter().rev() {
        add.execute(params![
            row.ts_ns,
            row.length_ns,
            &*row.interface,
            row.vlan,
            whole(row.packets),
            whole(row.bytes),
            whole(row.ip_packets),
            whole(row.ip_bytes),
            whole(row.tcp.packets),
            whole(row.tcp.bytes),
            whole(row.udp.packets),
            whole(row.udp.bytes),
            whole(row.icmp.packets),
            whole(row.icmp.bytes),
            whole(row.other.packets),
            whole(row.other.bytes),
            whole(row.sent.packets),
            whole(row.sent.bytes),
            whole(row.new_flows),
            whole(row.lost_max),
        ])?;
    }
    Ok(())
}

/// Adds them to what is there of the same key.
pub fn add_traffic(transaction: &Transaction<'_>, rows: &[TrafficRow]) -> rusqlite::Result<()> {
    let mut add = transaction.prepare_cached(ADD_TRAFFIC)?;
    let mut ip = String::new();
    for row in rows.iter().rev() {
        ip.clear();
        match row.ip {
            Owner::Address(address) => spell(&mut ip, address),
            Owner::Others => {}
            Owner::Folded => ip.push('*'),
        }
        add.execute(params![
            row.ts_ns,
            &*row.interface,
            row.vlan,
            ip,
            row.proto.word(),
            row.port,
            row.role.word(),
            whole(row.received.packets),
            whole(row.received.bytes),
            whole(row.received.ip_bytes),
            whole(row.sent.packets),
            whole(row.sent.bytes),
            whole(row.sent.ip_bytes),
        ])?;
    }
    Ok(())
}

/// One line for each.
pub fn add_flows(transaction: &Transaction<'_>, rows: &[FlowRow]) -> rusqlite::Result<()> {
    let mut add = transaction.prepare_cached(ADD_FLOW)?;
    let (mut source, mut destination) = (String::new(), String::new());
    for row in rows.iter().rev() {
        let source_port = end(&mut source, row.source);
        let destination_port = end(&mut destination, row.destination);
        let (forward, reverse) = (&row.forward, &row.reverse);
        add.execute(params![
            row.start_ns,
            row.end_ns,
            &*row.interface,
            row.interface_rev.as_deref(),
            row.vlan,
            row.proto,
            source,
            source_port,
            destination,
            destination_port,
            whole(forward.packets),
            whole(reverse.packets),
            whole(forward.bytes),
            whole(reverse.bytes),
            whole(forward.ip_bytes),
            whole(reverse.ip_bytes),
            forward.tcp_flags,
            reverse.tcp_flags,
            forward.len_min,
            reverse.len_min,
            forward.len_max,
            reverse.len_max,
            whole(forward.zero_windows),
            whole(reverse.zero_windows),
            whole(forward.resent),
            whole(reverse.resent),
            row.rtt_server_ns,
            row.rtt_client_ns,
            row.state.map(|state| state.word()),
            row.community_id.as_str(),
            row.reason.word(),
        ])?;
    }
    Ok(())
}

/// One line for each.
pub fn add_losses(transaction: &Transaction<'_>, rows: &[LossRow]) -> rusqlite::Result<()> {
    let mut add = transaction.prepare_cached(ADD_LOSS)?;
    let mut add_late = transaction.prepare_cached(ADD_LATE_LOSS)?;
    for row in rows.iter().rev() {
        if row.late_until_ns > 0 {
            add_late.execute(params![
                whole(row.packets),
                row.late_until_ns,
                row.to_ns,
                row.from_ns,
                row.interface.as_deref(),
            ])?;
        }
        add.execute(params![
            row.from_ns,
            row.to_ns,
            row.interface.as_deref(),
            row.reason,
            whole(row.packets)
        ])?;
    }
    Ok(())
}

/// Spells one end of a flow, and returns its port; of none, nothing and 0.
fn end(text: &mut String, end: Option<(IpAddr, u16)>) -> u16 {
    text.clear();
    let Some((address, port)) = end else { return 0 };
    spell(text, address);
    port
}

fn spell(text: &mut String, address: IpAddr) {
    // Writing into memory doesn't fail.
    let _ = write!(text, "{address}");
}
