//! The same input gives the same result, however fast and however often.

mod run;

use run::{Place, summary::Summary};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Random};

/// What is the same in two runs: everything but where the files lie.
fn facts(summary: &Summary) -> String {
    let dumps: Vec<String> = summary
        .dumps
        .iter()
        .map(|d| {
            let numbers = (d.packets, d.bytes, d.lost_min, d.lost_max, d.complete);
            format!(
                "{} {} {} {} {} {numbers:?} {:?}",
                d.trigger,
                d.time_ns,
                d.filter,
                d.from_ns,
                d.to_ns,
                d.path.file_name()
            )
        })
        .collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {dumps:#?}",
        summary.received, summary.stored, summary.filtered, summary.dropped, summary.hits
    )
}

fn run(source: &str, options: &[&str]) -> (String, Vec<Capture>) {
    let place = Place::new();
    let mut arguments = vec!["--source", source];
    arguments.extend(options);
    let summary = place.summary(&arguments);
    summary.assert_adds_up();
    let dumps = summary.dumps.iter().map(|dump| oracle::read(&dump.path).unwrap().capture).collect();
    (facts(&summary), dumps)
}

fn check(source: &str, options: &[&str], times: usize) {
    let (facts, dumps) = run(source, options);
    assert!(!dumps.is_empty(), "{source}: no dump to compare");
    for _ in 1..times {
        let (facts_again, dumps_again) = run(source, options);
        assert_eq!(facts, facts_again, "{source}");
        for (dump, again) in dumps.iter().zip(&dumps_again) {
            assert_eq!(difference(dump, again), None, "{source}");
        }
    }
}

#[test]
fn a_file_with_one_worker_gives_the_same_every_time_and_at_every_speed() {
    let interfaces = vec![Interface::new("left", ETHERNET), Interface::new("right", ETHERNET)];
    let mut input =
        Conversations { interfaces, vlan: 15, ties: 20, gap_ns: 1_500_000, ..Conversations::default() }
            .capture();
    input.disorder(&mut Random::new(5), 250_000_000);
    let place = Place::new();
    let source = place.source(&input);
    let options = [
        "--trigger",
        "icmp",
        "--trigger",
        "syn=tcp port 53",
        "--dump",
        "host $srcIP",
        "--before",
        "500ms",
        "--after",
        "300ms",
    ];
    check(&source, &options, 3);
    let (fast, _) = run(&source, &options);
    let (paced, _) = run(&format!("{source},pace=4"), &options);
    assert_eq!(fast, paced);
}

#[test]
fn generated_traffic_is_the_same_for_a_seed() {
    let source =
        "synth:rate=20k,pace=max,flows=50,seed=7,time=3s,trigger-at=1500ms,start=2026-11-20T20:31:00Z";
    check(source, &["--trigger", "udp port 60000", "--before", "1", "--after", "1"], 2);
}

#[test]
fn both_filter_engines_give_the_same_run() {
    let interfaces = vec![Interface::new("left", ETHERNET), Interface::new("right", ETHERNET)];
    let input = Conversations { interfaces, vlan: 30, ..Conversations::default() }.capture();
    let place = Place::new();
    let source = place.source(&input);
    let with = |engine: &str| {
        let triggers = [
            "--trigger",
            "icmp",
            "--trigger",
            "two=tcp port 53 or udp port 53 or port 443",
            "--dump",
            "$flow",
        ];
        run(
            &source,
            &[&triggers[..], &["--before", "500ms", "--after", "300ms", "--filter-engine", engine]].concat(),
        )
    };
    let ((native, dumps), (interpreted, dumps_again)) = (with("native"), with("interpreter"));
    assert_eq!(native, interpreted);
    assert!(!dumps.is_empty());
    for (dump, again) in dumps.iter().zip(&dumps_again) {
        assert_eq!(difference(dump, again), None);
    }
}
