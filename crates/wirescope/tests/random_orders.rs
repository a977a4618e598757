//! Random orders over random captures: several dumps at once, each exactly what tcpdump selects in its
//! window.

mod run;

use run::Place;
use scope_testkit::oracle::{self, VlanRule, difference, expected_dump};
use scope_testkit::traffic::frame::{self, Tag};
use scope_testkit::traffic::random::host;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Random, Record};

const MS: i64 = 1_000_000;
const TEMPLATES: [&str; 10] = [
    "host $srcIP",
    "not host $srcIP",
    "udp and host $srcIP",
    "tcp or host $srcIP",
    "ether src $srcMAC",
    "icmp or arp or icmp6 or host $srcIP",
    "portrange 1000-1001 and not src host $srcIP",
    "net 10.0.0.0/30 or dst host $srcIP",
    "vlan and host $srcIP",
    "less 120 and (ip or ip6) and not dst host $srcIP",
];

/// A capture with one packet to port 60000 from each of six hosts, and the hosts' addresses and hits' times.
fn capture(seed: u64, random: &mut Random) -> (Capture, Vec<(std::net::IpAddr, i64)>) {
    let interfaces = vec![Interface::new("left", ETHERNET), Interface::new("right", ETHERNET)];
    let mut capture =
        Conversations { seed, interfaces, vlan: random.below(40), oddities: 20, ..Conversations::default() }
            .capture();
    let mut hits = Vec::new();
    for number in 1..=6 {
        let v6 = random.chance(30);
        let from = host(number, v6);
        let ip = frame::udp((from, 1000).into(), (host(99, v6), 60000).into(), b"trigger me");
        let tags = if random.chance(30) { vec![Tag::q(2)] } else { Vec::new() };
        let time_ns = capture.packets[random.below(1990) as usize].time_ns + i64::from(number);
        capture.insert(Record::new(time_ns, frame::on_link(ETHERNET, &tags, &ip)));
        hits.push((from, time_ns));
    }
    if random.chance(60) {
        capture.disorder(random, 300 * MS);
    }
    (capture, hits)
}

fn check(seed: u64) {
    let mut random = Random::new(seed);
    let (input, hits) = capture(seed, &mut random);
    let template = random.pick(&TEMPLATES);
    let workers = random.pick(&[1, 2, 4]);
    let (before_ms, after_ms) = (random.below(4000) as i64, random.below(4000) as i64);
    let name =
        format!("seed {seed}: '{template}' {before_ms} ms before, {after_ms} ms after, {workers} workers");
    let place = Place::new();
    let source = format!("{},workers={workers}", place.source(&input));
    let (before, after) = (format!("{before_ms}ms"), format!("{after_ms}ms"));
    let orders = [
        "--trigger",
        "hit=udp dst port 60000",
        "--dump",
        template,
        "--before",
        &before,
        "--after",
        &after,
        "--holdoff",
        "0",
    ];
    let summary = place.summary(&[&["--source", &source], &orders[..]].concat());
    summary.assert_adds_up();
    assert_eq!((summary.hits["hit"].fired, summary.dumps.len()), (6, 6), "{name}: {:?}", summary.hits);
    for (from, time_ns) in hits {
        let dump = summary
            .dumps
            .iter()
            .find(|dump| dump.time_ns == time_ns)
            .unwrap_or_else(|| panic!("{name}: no dump at {time_ns}"));
        let mac: Vec<String> = frame::mac_of(from).iter().map(|byte| format!("{byte:02x}")).collect();
        let filter = template.replace("$srcIP", &from.to_string()).replace("$srcMAC", &mac.join(":"));
        let at = input.packets.iter().position(|packet| packet.time_ns == time_ns);
        let (from_ns, to_ns) = (time_ns - before_ms * MS, time_ns + after_ms * MS);
        let indices = expected_dump(&input, &filter, from_ns, to_ns, at, VlanRule::Transparent).unwrap();
        let found = oracle::read(&dump.path).unwrap().capture;
        if let Some(words) = difference(&input.subset(&indices), &found) {
            panic!("{name}, {filter}: {words}");
        }
        assert!(dump.lost_nothing(), "{name}: {dump:?}");
    }
}

#[test]
fn every_dump_of_random_orders_holds_exactly_its_window() {
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || (half..32).step_by(2).for_each(check));
        }
    });
}
