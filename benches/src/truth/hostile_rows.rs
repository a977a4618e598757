//! `hostile_hits_ns`: what a hit that makes no filter costs its worker.
//!
//! A sender that knows the trigger and its template sends what hits and makes no dump filter, each packet
//! from an address of its own, so that nothing that is kept by address helps. A row is the 99th percentile
//! over all hits of one template, those by which it was learnt that they make none included. Every hit must
//! be counted as one that made no filter, and none may fire.

use crate::figures::percentile;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use scope_filter::{Filter, Template, VlanRule};
use scope_packet::{Headers, LinkType, Moment};
use scope_trigger::{
    Condition, Key, Matched, Occurrence, Own, Places, Requester, Response, Trigger, TriggerConfig, Why,
};
use std::time::Instant;

/// The row, and the bar.
pub const ROW: &str = "hostile_hits_ns";
/// What the bar is of.
pub const WORST: &str = "worst template of 64 hosts, 99th percentile";

/// Hits for one template.
const HITS: u64 = 100_000;
/// Hosts in each template.
const HOSTS: u32 = 64;
/// Capture time between two hits, ns: a million a second.
const BETWEEN_NS: i64 = 1000;
/// Capture time of the first one, ns.
const BEGIN_NS: i64 = 1_700_000_000_000_000_000;
/// Dumps that may be open at once.
const PLACES: usize = 8;
/// The percentile that counts.
const PERCENT: f64 = 99.0;

/// What a sender tries.
struct Attack {
    name: &'static str,
    /// Behind the hosts.
    template: &'static str,
    holdoff_key: Option<&'static str>,
    link: LinkType,
    /// IP protocol.
    protocol: u8,
    /// Both ports of the hit with this number.
    port: fn(u64) -> u16,
}

const PLAIN: Attack = Attack {
    name: "",
    template: "",
    holdoff_key: None,
    link: LinkType::ETHERNET,
    protocol: UDP,
    port: |_| 4000,
};
const UDP: u8 = 17;
const ICMP6: u8 = 58;

const ATTACKS: [Attack; 8] = [
    Attack { name: "an address of the other version", template: "ip host $srcIP", ..PLAIN },
    Attack {
        name: "the same, with a holdoff for each host",
        template: "ip host $srcIP",
        holdoff_key: Some("$srcIP"),
        ..PLAIN
    },
    Attack {
        name: "a port that the packet lacks",
        template: "host $srcIP and port $srcPort",
        protocol: ICMP6,
        ..PLAIN
    },
    Attack {
        name: "a port that a division can't have",
        template: "host $srcIP and ip[0] / $srcPort = 1",
        port: |_| 0,
        ..PLAIN
    },
    Attack {
        name: "ports of which none makes a filter",
        template: "host $srcIP and port {dstPort}0",
        port: |hit| 10_000 + (hit % 50_000) as u16,
        ..PLAIN
    },
    Attack { name: "addresses of which none makes a filter", template: "net {srcIP}/32", ..PLAIN },
    Attack {
        name: "very many names",
        template: "(host $srcIP or host $dstIP or port $srcPort or port $dstPort or proto $proto or $flow or host $srcIP or \
            host $dstIP or port $srcPort or port $dstPort or proto $proto or $flow) and ip host $srcIP",
        ..PLAIN
    },
    Attack {
        name: "a link type without such a filter",
        template: "ether host 02:00:00:00:00:01",
        link: LinkType::RAW,
        ..PLAIN
    },
];

/// Measures it.
pub fn measure(table: &mut Table) {
    let mut worst = Some(0.0f64);
    for attack in &ATTACKS {
        let outcome = percentile_of(attack, HITS).map_err(|error| format!("{}: {error:#}", attack.name));
        worst = outcome.as_ref().ok().and_then(|value| Some(worst?.max(*value)));
        table.put(ROW, attack.name, "ns", outcome);
    }
    table.put(
        ROW,
        WORST,
        "ns",
        worst.ok_or_else(|| "a template's hits were counted wrongly, or not measured".to_string()),
    );
}

/// ns of a hit.
fn percentile_of(attack: &Attack, hits: u64) -> Result<f64> {
    let trigger = trigger(attack)?;
    let places = Places::new(PLACES, 0, None);
    let mut took_ns = Vec::with_capacity(hits as usize);
    for hit in 0..hits {
        let data = packet(attack, hit);
        let headers = Headers::parse(attack.link, &data);
        let time_ns = BEGIN_NS + hit as i64 * BETWEEN_NS;
        let at = Moment::new(0, time_ns);
        let hit = Occurrence {
            at,
            clock_ns: at.time_ns,
            key: Key::OfPacket,
            why: Why::Packet { bytes: data.len() as u32, interface: "" },
            packet: Some(Matched { link_type: attack.link, headers: &headers, data: &data }),
            given: None,
            own: Own::default(),
            link_types: &[],
            requester: Requester::Live,
        };
        let begun = Instant::now();
        let verdict = trigger.occurred(&hit, &places);
        took_ns.push(begun.elapsed().as_nanos() as f64);
        drop(verdict);
    }
    let counts = trigger.counts();
    let without = counts.template_unfilled + counts.filter_uncompiled;
    ensure!(counts.total() == hits, "{} of {hits} hits are counted", counts.total());
    ensure!(
        counts.fired == 0 && without == hits,
        "{without} of {hits} hits made no filter, and {} fired",
        counts.fired
    );
    percentile(&took_ns, PERCENT).context("no hits")
}

fn trigger(attack: &Attack) -> Result<Trigger> {
    let hosts: Vec<String> = (1..=HOSTS).map(|host| format!("host 192.0.2.{host}")).collect();
    let template = Template::parse(&format!("({}) and {}", hosts.join(" or "), attack.template))?;
    // As at the start of a run: what never makes a filter is refused there.
    template.check(VlanRule::Transparent, &[LinkType::ETHERNET])?;
    Ok(Trigger::new(TriggerConfig {
        name: "hostile".to_string(),
        condition: Condition::Filter(Filter::compile("ip6", VlanRule::Transparent, &[attack.link])?),
        response: Response {
            template: Some(template),
            script: None,
            before_ns: 1_000_000_000,
            after_ns: 1_000_000_000,
            vlan: VlanRule::Transparent,
        },
        when: None,
        holdoff_ns: if attack.holdoff_key.is_some() { 1_000_000_000 } else { 0 },
        holdoff_key: attack.holdoff_key.map(Template::parse).transpose()?,
        single: false,
        auto_ns: None,
    }))
}

/// IPv6 from an address that no other hit has.
fn packet(attack: &Attack, hit: u64) -> Vec<u8> {
    let mut packet = Vec::with_capacity(80);
    if attack.link == LinkType::ETHERNET {
        packet.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd]);
    }
    packet.extend([0x60, 0, 0, 0, 0, 12, attack.protocol, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]);
    packet.extend((hit + 1).to_be_bytes());
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1]);
    let port = (attack.port)(hit).to_be_bytes();
    packet.extend([port, port].concat());
    packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hit_of_any_attack_makes_a_filter_and_all_are_counted() {
        for attack in &ATTACKS {
            let ns = percentile_of(attack, 500).unwrap_or_else(|error| panic!("{}: {error:#}", attack.name));
            assert!(ns > 0.0, "{}", attack.name);
        }
    }

    #[test]
    fn a_hit_that_fires_is_a_fault() {
        let fires = Attack { template: "host $srcIP", ..PLAIN };
        let error = percentile_of(&fires, 1).unwrap_err().to_string();
        assert!(error.contains("1 fired"), "{error}");
    }
}
