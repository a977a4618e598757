//! Shares of the ring: a small source with one keeps its history while another turns the ring over many
//! times.

mod run;

use run::Place;
use scope_testkit::oracle;
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Precision, Record, pcapng};

const MILLISECOND: i64 = 1_000_000;
/// 128 segments: small enough to be turned over by some megabytes.
const RING: [&str; 4] = ["--ring", "8MiB", "--segment", "64KiB"];
const HOST: &str = "10.99.0.1";

/// Runs to the end; what the ring holds then.
fn left_in_ring(place: &Place, sources: &[String]) -> Capture {
    let path = place.path("ring.pcapng");
    let mut arguments: Vec<&str> = RING.to_vec();
    sources.iter().for_each(|source| arguments.extend(["--source", source]));
    let path_text = path.display().to_string();
    arguments.extend(["--ring-out", &path_text]);
    let summary = place.summary(&arguments);
    summary.assert_adds_up();
    assert!(summary.stored.bytes > 3 * (8 << 20), "the ring turns several times: {:?}", summary.stored);
    let left = oracle::read(&path).unwrap().capture;
    std::fs::remove_file(&path).unwrap(); // a run never overwrites it
    left
}

/// About 40 MB.
fn flood() -> Capture {
    let interfaces = vec![Interface::new("flood", ETHERNET)];
    Conversations { packets: 60_000, interfaces, payload_max: 1300, ..Conversations::default() }.capture()
}

/// 500 KB, all of it long before the flood ends.
fn rare(begin_ns: i64) -> Capture {
    let mut capture = Capture { interfaces: vec![Interface::new("rare", ETHERNET)], ..Capture::default() };
    for number in 0..1000u16 {
        let source = format!("{HOST}:{}", 1024 + number).parse().unwrap();
        let ip = frame::udp(source, "10.99.0.2:53".parse().unwrap(), &[number as u8; 450]);
        let time_ns = begin_ns + i64::from(number) * MILLISECOND;
        capture.insert(Record::new(time_ns, frame::on_link(ETHERNET, &[], &ip)));
    }
    capture
}

#[test]
fn a_file_with_a_share_keeps_its_packets_under_a_flood_from_another() {
    let place = Place::new();
    let flood = flood();
    let rare = rare(flood.packets[0].time_ns);
    let source =
        |name: &str, capture: &Capture| place.source_of(name, &pcapng(capture, Precision::Nano, false));
    let (flood, small) = (source("flood.pcapng", &flood), source("rare.pcapng", &rare));
    for workers in [1, 2] {
        let sources =
            |share: &str| [format!("{flood},workers={workers}"), format!("{small},workers={workers}{share}")];
        let kept = |share: &str| {
            let mut left = left_in_ring(&place, &sources(share));
            left.packets.retain(|packet| {
                packet.data.len() == rare.packets[0].data.len() && packet.data[26..30] == [10, 99, 0, 1]
            });
            left.packets
        };
        let without = kept("");
        assert!(without.is_empty(), "{} packets of the first second are left without a share", without.len());
        let mut with = kept(",share=30%");
        with.sort_by_key(|packet| packet.time_ns);
        let words = |packets: &[Record]| {
            packets.iter().map(|packet| (packet.time_ns, packet.data.clone())).collect::<Vec<_>>()
        };
        assert!(
            words(&with) == words(&rare.packets),
            "{} of {} packets, {workers} workers",
            with.len(),
            rare.packets.len()
        );
    }
}

#[test]
fn a_generator_with_a_share_keeps_its_packets_under_a_flood_from_another() {
    let place = Place::new();
    let common = "pace=max,start=2026-11-20T20:00:00Z";
    let flood = format!("synth:rate=20k,packets=80k,{common}");
    let small = format!("synth:rate=750,packets=3000,ipv6=100%,size=200,seed=2,{common}");
    let kept = |share: &str| {
        let left = left_in_ring(&place, &[flood.clone(), format!("{small}{share}")]);
        left.packets.iter().filter(|packet| packet.data[12..14] == [0x86, 0xdd]).count()
    };
    assert_eq!(kept(",share=30%"), 3000);
    let without = kept("");
    assert!(without < 1500, "{without} of 3000 are left without a share");
}
