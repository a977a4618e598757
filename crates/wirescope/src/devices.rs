//! `wirescope devices`: the interfaces, what is known of them, and what is missing to capture there.

use crate::args::DevicesArgs;
use crate::words::bit_rate;
use crate::{NoResult, told};
use scope_door::Gathered;
use scope_events::now_ns;
use scope_fault::Fault;
use scope_machine::nic::{Driver, Ethtool, Nic, Queues, RingSizes, Timestamping, advise};
use scope_source::afpacket;
use scope_source::spec::escape;
use scope_spelling::printable::{json_line, shell_word};
use serde_json::{Map, Value, json};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where named network namespaces are.
const NAMESPACES_AT: &str = "/run/netns";
/// Offloads that change what capture sees, by ethtool's names; the others are in `--json`.
const OFFLOADS_TOLD: [&str; 8] = [
    "rx-gro",
    "rx-gro-hw",
    "rx-lro",
    "rx-checksum",
    "rx-vlan-hw-parse",
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-udp-segmentation",
];
const UNKNOWN: &str = "unknown";

/// Prints the interfaces; the exit code.
pub fn devices(args: &DevicesArgs) -> u8 {
    told(list(args.json))
}

/// The same for a run that can be asked later: as it is now, while the process still has its rights.
pub fn gather() -> Gathered {
    let at_ns = now_ns();
    let devices = Ethtool::open().map(|mut ethtool| {
        let permission = afpacket::may_capture();
        objects(&Nic::all(&mut ethtool), &permission, &other_namespaces())
    });
    Gathered {
        devices: devices.map_err(|error| format!("the interfaces couldn't be listed: {error}")),
        at_ns,
    }
}

fn objects(nics: &[Nic], permission: &io::Result<()>, elsewhere: &[String]) -> Value {
    let devices: Vec<Value> = nics.iter().map(|nic| object(nic, permission)).collect();
    json!({"devices": devices, "namespaces": elsewhere})
}

fn list(json: bool) -> Result<String, NoResult> {
    let failed = |cause: io::Error| {
        NoResult::Failed(
            Fault::default().error(&cause).cause(format!("the interfaces can't be listed: {cause}")),
        )
    };
    let mut ethtool = Ethtool::open().map_err(failed)?;
    let nics = Nic::all(&mut ethtool);
    let permission = afpacket::may_capture();
    let elsewhere = other_namespaces();
    if json {
        let object = objects(&nics, &permission, &elsewhere).to_string();
        return Ok(format!("{}\n", json_line(&object)));
    }
    let mut text = String::new();
    for lines in nics.iter().map(|nic| lines(nic, &permission)) {
        for line in &lines {
            text.push_str(&format!("{line}\n"));
        }
    }
    if !elsewhere.is_empty() {
        text.push_str("Interfaces of other network namespaces are visible only from inside:\n");
        for name in &elsewhere {
            text.push_str(&format!("  ip netns exec {} wirescope devices\n", shell_word(name)));
        }
    }
    Ok(text)
}

/// Named network namespaces other than this process's, sorted.
fn other_namespaces() -> Vec<String> {
    let number = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let own = number(Path::new("/proc/self/ns/net"));
    let entries = std::fs::read_dir(NAMESPACES_AT).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| own.is_none() || number(&entry.path()) != own);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What is typed to capture here.
fn spec(nic: &Nic) -> String {
    format!("-i {}", shell_word(&nic.name))
}

fn link_state(nic: &Nic) -> &'static str {
    match (nic.link.up, nic.carrier.unwrap_or(nic.link.running)) {
        (false, _) => "down",
        (true, false) => "no link",
        (true, true) => "up",
    }
}

fn lines(nic: &Nic, permission: &io::Result<()>) -> Vec<String> {
    let link_type =
        nic.link_type.map_or_else(|| format!("link type of kind {}", nic.link.kind), |known| known.name());
    let speed = nic.bits_per_s.map_or_else(|| format!("speed {UNKNOWN}"), |bits| bit_rate(bits as f64));
    let mut lines = vec![
        format!("{:<12} {}", nic.name, spec(nic)),
        format!("    link        {}, {speed}, MTU {}, {link_type}", link_state(nic), nic.link.mtu),
        format!("    driver      {}", nic.driver.as_ref().map_or(UNKNOWN.to_string(), driver)),
        format!("    queues      {}", queues(nic)),
        format!("    NIC rings   {}", nic.rings.map_or(UNKNOWN.to_string(), rings)),
        format!("    timestamps  {}", nic.timestamping.map_or(UNKNOWN.to_string(), timestamping)),
        format!("    offloads    {}", offloads(nic)),
    ];
    let missing = nic.missing(permission);
    if missing.is_empty() {
        lines.push("    to capture  nothing is missing".to_string());
    }
    lines.extend(
        missing.iter().map(|missing| format!("    to capture  {}: {}", missing.what, missing.remedy)),
    );
    lines.extend(
        advise(nic).iter().map(|advice| format!("    better      {}: {}", advice.what, advice.remedy)),
    );
    lines
}

fn driver(driver: &Driver) -> String {
    let said = |what: &str, text: &str| if text.is_empty() { String::new() } else { format!("{what}{text}") };
    format!(
        "{}{}{}{}",
        driver.name,
        said(" ", &driver.version),
        said(", firmware ", &driver.firmware),
        said(", at ", &driver.bus)
    )
}

fn queues(nic: &Nic) -> String {
    let of_driver = |queues: Queues| {
        format!("{} of {} rx, {} of {} tx", queues.rx, queues.rx_max, queues.tx, queues.tx_max)
    };
    let of_kernel = |(rx, tx)| format!("{rx} rx, {tx} tx (most unknown)");
    nic.queues.map(of_driver).or(nic.kernel_queues.map(of_kernel)).unwrap_or(UNKNOWN.to_string())
}

fn rings(rings: RingSizes) -> String {
    format!("rx {} of {}, tx {} of {}", rings.rx, rings.rx_max, rings.tx, rings.tx_max)
}

fn timestamping(can: Timestamping) -> String {
    let kernel = if can.software { "the kernel's" } else { "the kernel's, taken late" };
    let card = match can {
        Timestamping { hardware_all: true, .. } => "; the card can stamp every packet",
        Timestamping { hardware_some: true, .. } => "; the card can stamp time protocols only",
        _ => "; the card has none",
    };
    format!("{kernel}{card}{}", can.clock.map_or(String::new(), |number| format!(" (/dev/ptp{number})")))
}

fn offloads(nic: &Nic) -> String {
    if nic.features.is_none() {
        return UNKNOWN.to_string();
    }
    let named = |on| {
        let names: Vec<&str> =
            OFFLOADS_TOLD.into_iter().filter(|name| nic.feature(name) == Some(on)).collect();
        if names.is_empty() { "none".to_string() } else { names.join(" ") }
    };
    format!("on: {}; off: {}", named(true), named(false))
}

/// One interface for programs; what is unknown is `null`.
fn object(nic: &Nic, permission: &io::Result<()>) -> Value {
    let missing = nic.missing(permission);
    let features = nic.features.as_ref().map(|features| {
        let features: Map<String, Value> =
            features.iter().map(|(name, on)| (name.clone(), (*on).into())).collect();
        Value::Object(features)
    });
    json!({
        "name": nic.name,
        "spec": format!("afpacket:{}", escape(&nic.name)),
        "index": nic.link.index,
        "state": link_state(nic),
        "link_type": nic.link_type.map(|link_type| link_type.name()),
        "mtu": nic.link.mtu,
        "bits_per_s": nic.bits_per_s,
        "driver": nic.driver.as_ref().map(|driver| json!({
            "name": driver.name,
            "version": driver.version,
            "firmware": driver.firmware,
            "bus": driver.bus,
        })),
        "queues": nic.queues.map(|queues| json!({
            "rx": queues.rx, "rx_max": queues.rx_max, "tx": queues.tx, "tx_max": queues.tx_max,
        })),
        "kernel_queues": nic.kernel_queues.map(|(rx, tx)| json!({"rx": rx, "tx": tx})),
        "rings": nic.rings.map(|rings| json!({
            "rx": rings.rx, "rx_max": rings.rx_max, "tx": rings.tx, "tx_max": rings.tx_max,
        })),
        "timestamping": nic.timestamping.map(|can| json!({
            "software": can.software,
            "hardware_all": can.hardware_all,
            "hardware_some": can.hardware_some,
            "clock": can.clock,
        })),
        "features": features,
        "can_capture": missing.iter().all(|missing| !missing.refused),
        "missing": missing.iter().map(|missing| json!({
            "what": missing.what, "remedy": missing.remedy, "refused": missing.refused,
        })).collect::<Vec<_>>(),
        "advice": advise(nic).iter().map(|advice| json!({
            "kind": advice.kind, "what": advice.what, "remedy": advice.remedy,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_machine::nic::Link;

    fn nic() -> Nic {
        let link = Link { index: 3, kind: libc::ARPHRD_ETHER, up: true, running: true, mtu: 9000 };
        Nic {
            name: "ens1f0".to_string(),
            link,
            link_type: Some(scope_packet::LinkType::ETHERNET),
            ..Nic::default()
        }
    }

    #[test]
    fn what_a_driver_does_not_answer_is_unknown() {
        let text = lines(&nic(), &Ok(())).join("\n");
        for line in [
            "ens1f0       -i ens1f0",
            "up, speed unknown, MTU 9000",
            "driver      unknown",
            "queues      unknown",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        for line in
            ["NIC rings   unknown", "timestamps  unknown", "offloads    unknown", "nothing is missing"]
        {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let object = object(&nic(), &Ok(()));
        for key in ["bits_per_s", "driver", "queues", "kernel_queues", "rings", "timestamping", "features"] {
            assert!(object[key].is_null(), "{key}: {object}");
        }
    }

    #[test]
    fn a_full_answer_is_told_in_full() {
        let full = Nic {
            bits_per_s: Some(10_000_000_000),
            driver: Some(Driver {
                name: "ixgbe".to_string(),
                version: "6.1".to_string(),
                ..Driver::default()
            }),
            queues: Some(Queues { rx: 8, rx_max: 16, tx: 8, tx_max: 16 }),
            rings: Some(RingSizes { rx: 512, rx_max: 4096, tx: 512, tx_max: 4096 }),
            timestamping: Some(Timestamping {
                software: true,
                hardware_all: true,
                hardware_some: true,
                clock: Some(0),
            }),
            features: Some(vec![("rx-gro".to_string(), true), ("rx-lro".to_string(), false)]),
            ..nic()
        };
        let text = lines(&full, &Ok(())).join("\n");
        for part in [
            "up, 10 Gbit/s, MTU 9000, ETHERNET",
            "ixgbe 6.1",
            "8 of 16 rx, 8 of 16 tx",
            "rx 512 of 4096, tx 512 of 4096",
            "the card can stamp every packet (/dev/ptp0)",
            "on: rx-gro; off: rx-lro",
            "ethtool -K ens1f0 gro off",
            "ethtool -G ens1f0 rx 4096",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
