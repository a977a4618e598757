//! Records of flows: by filter and span, held against all rows; and as they come.

use crate::made::{DAY, Dice, HOUR, LENGTH, SECOND, T0, database, flow, made, watch, writer};
use scope_filter::{FlowFilter, FlowKey};
use scope_flow::rows::{FlowRow, Settled};
use scope_stats::asking::Database;
use scope_stats::asking::flows::{FlowColumns, FlowPlace, FlowQuestion, FlowRecord};
use std::ops::ControlFlow;
use std::path::Path;

fn question(filter: &str, span_ns: (i64, i64)) -> FlowQuestion {
    let filter = FlowFilter::compile(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    FlowQuestion { filter, span_ns }
}

fn ask(database: &Database, question: &FlowQuestion) -> Vec<FlowRecord> {
    let mut found = Vec::new();
    database
        .flows(question, &watch(), &mut |record| {
            found.push(record.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn key(row: &FlowRow) -> Option<FlowKey> {
    let (source, destination) = row.source.zip(row.destination)?;
    Some(FlowKey { vlan: row.vlan, protocol: row.proto, source, destination })
}

/// What tells records apart, of a row.
fn line(row: &FlowRow) -> (i64, i64, Option<FlowKey>, i64, i64) {
    let packets = |packets: u64| packets as i64;
    (row.end_ns, row.start_ns, key(row), packets(row.forward.packets), packets(row.reverse.bytes))
}

/// The same of a record.
fn of_record(columns: &FlowColumns, record: &FlowRecord) -> (i64, i64, Option<FlowKey>, i64, i64) {
    let number = |name: &str| columns.number(record, name);
    (number("end_ns"), number("start_ns"), record.flow, number("packets_fwd"), number("bytes_rev"))
}

#[test]
fn a_record_belongs_to_a_filter_and_a_span_as_its_packets_do() {
    let made = made(11);
    let columns = FlowColumns::known().unwrap();
    let everything = (0, i64::MAX);
    let middle = T0 + HOUR + 55 * SECOND;
    for (filter, span_ns) in [
        ("", everything),
        ("", (middle, middle)),
        ("", (middle, middle + 20 * SECOND)),
        ("", (0, T0)),
        ("", (T0 + DAY, i64::MAX)),
        ("", (5, 7)),
        ("host 10.0.0.1", everything),
        ("not host 10.0.0.1", everything),
        ("tcp port 443 or udp port 53", everything),
        ("src net 10.0.0.0/24 and dst portrange 400-500", (T0, T0 + 2 * HOUR)),
        ("ip6", everything),
        ("icmp or icmp6", everything),
        ("vlan 5 and host 10.0.0.2", everything),
        ("vlan", everything),
        ("ip proto 47", everything),
        ("arp", everything),
    ] {
        let question = question(filter, span_ns);
        let is_wanted = |row: &&FlowRow| {
            let by_filter = match key(row) {
                Some(flow) => question.filter.matches(flow),
                None => filter.is_empty(),
            };
            by_filter && row.end_ns >= span_ns.0 && row.start_ns <= span_ns.1
        };
        let mut expected: Vec<_> = made.rows.flows.iter().filter(is_wanted).map(line).collect();
        expected.sort_by_key(|line| (line.0, line.1, line.3, line.4));
        for database in made.both() {
            let records = ask(&database, &question);
            let mut found: Vec<_> = records.iter().map(|record| of_record(&columns, record)).collect();
            assert!(found.is_sorted_by_key(|line| line.0), "{filter}: by their ends");
            found.sort_by_key(|line| (line.0, line.1, line.3, line.4));
            assert_eq!(found, expected, "{filter} {span_ns:?} {}", database.path().display());
        }
    }
}

#[test]
fn a_record_of_days_is_found_by_a_moment_near_its_begin() {
    let root = tempfile::tempdir().unwrap();
    let (file, folder) = (root.path().join("x.sqlite"), root.path().join("days"));
    std::fs::create_dir(&folder).unwrap();
    let mut dice = Dice::new(15);
    // As long as two halves with silence between them may last; and what stands for several, ten days.
    let mut of = |is_several: bool, days: i64| loop {
        let row = flow(&mut dice, T0 + days * DAY);
        if row.source.is_none() == is_several {
            break FlowRow { start_ns: T0, ..row };
        }
    };
    let flows = vec![of(false, 3), of(true, 10)];
    for path in [&file, &folder] {
        let mut writer = writer(path);
        writer.write(&mut Settled { flows: flows.clone(), ..Settled::default() }, T0).unwrap();
        writer.close(T0).unwrap();
        let found = |filter: &str, at_ns: i64| ask(&database(path), &question(filter, (at_ns, at_ns))).len();
        assert_eq!((found("", T0), found("ip or ip6", T0), found("", T0 + DAY)), (2, 1, 2));
        assert_eq!((found("", T0 + 4 * DAY), found("", T0 - 1), found("", T0 + 11 * DAY)), (1, 0, 0));
    }
}

#[test]
fn each_record_has_all_columns_and_the_filter_that_finds_its_packets() {
    let made = made(12);
    let columns = FlowColumns::known().unwrap();
    let names: Vec<&str> = columns.names().collect();
    assert_eq!((names[0], names[names.len() - 1], names.len()), ("start_ns", "filter", 32));
    for record in ask(&made.both()[1], &question("", (0, i64::MAX))) {
        let json = columns.to_json(&record);
        assert!(names.iter().all(|name| json.contains_key(*name)));
        assert!(json["start"].as_str().unwrap().ends_with('Z') && json["packets_fwd"].is_u64());
        let filter = json["filter"].as_str().unwrap();
        match record.flow {
            Some(flow) => {
                assert!(filter.contains(&flow.source.0.to_string()), "{filter}");
                scope_filter::Filter::compile(filter, scope_filter::VlanRule::default(), &[])
                    .map(drop)
                    .unwrap_or_else(|error| {
                        assert!(flow.source.0 == flow.destination.0, "{filter}: {error}");
                    });
            }
            None => assert_eq!((filter, &json["src_ip"]), ("", &"".into())),
        }
    }
}

#[test]
fn whoever_has_enough_is_given_no_more() {
    let made = made(13);
    for database in made.both() {
        let mut given = 0;
        let everything = question("", (0, i64::MAX));
        let place = database.flows(&everything, &watch(), &mut |_| {
            given += 1;
            if given == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(given, 7);
        let mut place = place.unwrap();
        database.flows_since(&mut place, &everything, &watch(), &mut |_| panic!("nothing came")).unwrap();
    }
}

/// Follows from `place` on; the ends of what came.
fn since(database: &Database, place: &mut FlowPlace, question: &FlowQuestion) -> Vec<i64> {
    let columns = FlowColumns::known().unwrap();
    let mut found = Vec::new();
    database
        .flows_since(place, question, &watch(), &mut |record| {
            found.push(columns.number(record, "end_ns"));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn follow(path: &Path) {
    let (mut writer, mut dice) = (writer(path), Dice::new(14));
    let mut write = |end_ns: i64| {
        let flows = vec![flow(&mut dice, end_ns), flow(&mut dice, end_ns + 1)];
        writer.write(&mut Settled { flows, ..Settled::default() }, T0).unwrap();
    };
    write(T0);
    let database = database(path);
    let question = question("", (0, i64::MAX));
    let mut place = database.flows_end(&watch()).unwrap();
    assert!(since(&database, &mut place, &question).is_empty());
    write(T0 + LENGTH);
    assert_eq!(since(&database, &mut place, &question), [T0 + LENGTH, T0 + LENGTH + 1]);
    assert!(since(&database, &mut place, &question).is_empty());
    // The next day; what comes late belongs to the day before.
    write(T0 + 3 * HOUR);
    write(T0 + 2 * LENGTH);
    let mut came = since(&database, &mut place, &question);
    came.sort();
    let both = [T0 + 2 * LENGTH, T0 + 2 * LENGTH + 1, T0 + 3 * HOUR, T0 + 3 * HOUR + 1];
    assert_eq!(came, both);
    write(T0 + DAY + 3 * HOUR);
    assert_eq!(since(&database, &mut place, &question).len(), 2);
    writer.close(T0).unwrap();
    assert!(since(&database, &mut place, &question).is_empty());
    assert_eq!(ask(&database, &question).len(), 10);
}

#[test]
fn what_is_written_is_followed_in_one_file() {
    let root = tempfile::tempdir().unwrap();
    follow(&root.path().join("x.sqlite"));
}

#[test]
fn what_is_written_is_followed_from_file_to_file() {
    let root = tempfile::tempdir().unwrap();
    follow(root.path());
}
