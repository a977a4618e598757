//! Stores are listed and exported: what other programs read there is what was captured, in order, with its losses.

mod run;

use run::{Done, Place, Started, finish, names, wait_until, wirescope};
use scope_store::{Facts, StoredFile};
use scope_testkit::oracle::{self, difference, every_tool_copies};
use scope_testkit::traffic::{
    Capture, Conversations, ETHERNET, Interface, Precision, RAW, Record, dropped, pcapng,
};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SECOND: i64 = 1_000_000_000;

fn capture(link_types: &[u16], packets: usize) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    Conversations { interfaces, packets, vlan: 20, payload_max: 900, ..Conversations::default() }.capture()
}

/// A store with a run for each capture, and its files.
fn store(place: &Place, captures: &[&Capture]) -> (PathBuf, Vec<PathBuf>) {
    let folder = place.path("store");
    for capture in captures {
        let source = place.source(capture);
        place.summary(&["--source", &source, "--store", folder.to_str().unwrap()]);
    }
    let days = names(&folder).into_iter().filter(|name| name.starts_with("20"));
    let files =
        days.flat_map(|day| names(&folder.join(&day)).into_iter().map(move |name| (day.clone(), name)));
    let files = files.map(|(day, name)| folder.join(day).join(name)).collect();
    (folder, files)
}

fn export(place: &Place, arguments: &[&str]) -> Done {
    let mut command = wirescope(&["export", "--store"]);
    command.arg(place.path("store")).args(arguments).current_dir(place.root());
    finish(command)
}

/// Exports all that is asked for without a loss, and reads it.
fn exported(place: &Place, file: &str, arguments: &[&str]) -> Capture {
    let done = export(place, &[&["-w", file], arguments].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    read(&place.path(file))
}

fn read(path: &Path) -> Capture {
    oracle::read(path).unwrap().capture
}

fn list(place: &Place, arguments: &[&str]) -> Done {
    let mut command = wirescope(&["store", "list", "--store"]);
    command.arg(place.path("store")).args(arguments);
    finish(command)
}

/// What `capinfos` says is the comment of the file.
fn comment(path: &Path) -> String {
    let output = Command::new("capinfos").arg("-k").arg(path).output().expect("capinfos");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_was_captured_comes_out_with_times_lengths_and_interfaces_and_every_tool_copies_it() {
    let place = Place::new();
    let input = capture(&[ETHERNET, ETHERNET], 3000);
    store(&place, &[&input]);
    let out = exported(&place, "out.pcapng", &[]);
    assert_eq!(difference(&input, &out), None);
    every_tool_copies(&place.path("out.pcapng")).unwrap();
    let said = comment(&place.path("out.pcapng"));
    assert!(said.contains("packets: 3000") && said.contains("complete"), "{said}");
    let again = export(&place, &["-w", "out.pcapng"]);
    assert_eq!(again.code(), Some(2));
    assert!(again.stderr.contains("exists and is never overwritten"), "{}", again.stderr);
    let pcap = exported(&place, "out.pcap", &[]);
    let plain = |capture: &Capture| -> Vec<(i64, Vec<u8>, u32)> {
        capture.packets.iter().map(|one| (one.time_ns, one.data.clone(), one.original_len)).collect()
    };
    assert_eq!(plain(&pcap), plain(&input));
    assert_eq!(names(place.root()).iter().filter(|name| name.starts_with("out.")).count(), 2);
}

#[test]
fn runs_that_overlap_in_time_come_out_as_one_in_order_and_a_copy_of_a_file_changes_nothing() {
    let place = Place::new();
    let (one, two) = (capture(&[ETHERNET], 2000), capture(&[ETHERNET, ETHERNET], 1500));
    let (folder, files) = store(&place, &[&one, &two]);
    let out = exported(&place, "out.pcapng", &[]);
    assert_eq!(out.packets.len(), 3500);
    assert!(out.packets.is_sorted_by_key(|packet| packet.time_ns));
    let mut times: Vec<i64> = one.packets.iter().chain(&two.packets).map(|packet| packet.time_ns).collect();
    times.sort();
    assert_eq!(out.packets.iter().map(|packet| packet.time_ns).collect::<Vec<_>>(), times);
    // The same file in another store: each packet once.
    let second = place.path("second");
    let name = files[0].strip_prefix(&folder).unwrap();
    std::fs::create_dir_all(second.join(name).parent().unwrap()).unwrap();
    std::fs::copy(&files[0], second.join(name)).unwrap();
    let mark = "{\"version\":1,\"volume\":\"ff112233445566778899aabbccddeeff\"}\n";
    std::fs::write(second.join("wirescope.store"), mark).unwrap();
    let both = exported(&place, "both.pcapng", &["--store", second.to_str().unwrap()]);
    assert_eq!(difference(&out, &both), None);
}

#[test]
fn a_copy_of_a_whole_store_is_taken_and_its_packets_count_once() {
    let place = Place::new();
    let (folder, files) = store(&place, &[&capture(&[ETHERNET], 3000)]);
    let copy = place.path("copy");
    assert!(Command::new("cp").arg("-r").arg(&folder).arg(&copy).status().unwrap().success());
    let out = exported(&place, "out.pcapng", &[]);
    let both = exported(&place, "both.pcapng", &["--store", copy.to_str().unwrap()]);
    assert_eq!(difference(&out, &both), None);
    assert_eq!(comment(&place.path("both.pcapng")).matches("store ").count(), 1);
    let verified = || {
        let mut command = wirescope(&["verify", "--json"]);
        command.arg(&folder).arg(&copy);
        let done = finish(command);
        let found: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        (found["packets"].as_u64().unwrap(), found["segments_twice"].as_u64().unwrap())
    };
    let stored = StoredFile::open(File::open(&files[0]).unwrap()).unwrap();
    let segments = stored.segments().len() as u64;
    assert_eq!(verified(), (3000, segments));
    // What is damaged in the one is whole in the other.
    let damage = |file: &Path| {
        let file = File::options().write(true).open(file).unwrap();
        file.write_all_at(b"x", stored.segments()[1].offset + 1000).unwrap();
    };
    damage(&files[0]);
    assert_eq!(verified(), (3000, segments));
    let mended = export(&place, &["-w", "mended.pcapng", "--store", copy.to_str().unwrap()]);
    assert_eq!(mended.code(), Some(1), "{}", mended.stderr);
    let verify = format!("wirescope verify {}", folder.display());
    let said = mended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&verify), "{said}");
    assert_eq!(read(&place.path("mended.pcapng")).packets.len(), 3000);
    damage(&copy.join(files[0].strip_prefix(&folder).unwrap()));
    assert_eq!(verified(), (3000 - u64::from(stored.segments()[1].foot.packets), segments));
}

#[test]
fn packets_whose_time_steps_back_come_out_in_order_of_time() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET], 4000);
    input.packets.reverse();
    store(&place, &[&input]);
    let out = exported(&place, "out.pcapng", &[]);
    assert!(out.packets.is_sorted_by_key(|packet| packet.time_ns));
    input.packets.sort_by_key(|packet| packet.time_ns);
    let data = |capture: &Capture| -> Vec<Vec<u8>> {
        let mut data: Vec<_> = capture.packets.iter().map(|one| (one.time_ns, one.data.clone())).collect();
        data.sort();
        data.into_iter().map(|(_, data)| data).collect()
    };
    assert_eq!(data(&out), data(&input));
}

#[test]
fn a_span_has_both_its_ends_and_parts_have_each_packet_once() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 3000);
    store(&place, &[&input]);
    let (from, to) = (input.packets[700].time_ns, input.packets[2100].time_ns);
    let at = |ns: i64| format!("@{}.{:09}", ns / SECOND, ns % SECOND);
    let (from_text, to_text) = (at(from), at(to));
    let out = exported(&place, "span.pcapng", &["--from", &from_text, "--to", &to_text]);
    let inside: Vec<usize> =
        (0..3000).filter(|&at| (from..=to).contains(&input.packets[at].time_ns)).collect();
    assert_eq!(difference(&input.subset(&inside), &out), None);
    for (split, name) in [("1s", "every"), ("1MiB", "size")] {
        let done = export(&place, &["-w", &format!("{name}.pcapng"), "--split", split]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let parts: Vec<String> =
            names(place.root()).into_iter().filter(|part| part.starts_with(&format!("{name}_"))).collect();
        assert!(parts.len() > 1 && parts[0] == format!("{name}_00001.pcapng"), "{parts:?}");
        let mut times = Vec::new();
        for part in &parts {
            let path = place.path(part);
            assert!(name != "size" || path.metadata().unwrap().len() <= 1 << 20, "{part}");
            let packets = read(&path).packets;
            let span = packets[packets.len() - 1].time_ns - packets[0].time_ns;
            assert!(name != "every" || span < SECOND, "{part}: {span} ns");
            times.extend(packets.iter().map(|packet| packet.time_ns));
        }
        assert_eq!(times, input.packets.iter().map(|packet| packet.time_ns).collect::<Vec<_>>());
    }
}

#[test]
fn a_second_link_type_has_a_file_of_its_own_and_a_pipe_says_what_it_leaves_out() {
    let place = Place::new();
    let input = capture(&[ETHERNET, RAW], 1000);
    store(&place, &[&input]);
    let done = export(&place, &["-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let (first, second) = match input.link_type(0) {
        ETHERNET => (ETHERNET, (RAW, "out_RAW.pcapng")),
        _ => (RAW, (ETHERNET, "out_ETHERNET.pcapng")),
    };
    assert_eq!(difference(&input.of_link_type(first), &read(&place.path("out.pcapng"))), None);
    assert_eq!(difference(&input.of_link_type(second.0), &read(&place.path(second.1))), None);
    let line = format!("{} export --store store -w - > piped.pcapng", env!("CARGO_BIN_EXE_wirescope"));
    let mut command = Command::new("bash");
    command.args(["-c", &line]).current_dir(place.root());
    let done = finish(command);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("a pipe holds one"), "{}", done.stderr);
    assert_eq!(difference(&input.of_link_type(first), &read(&place.path("piped.pcapng"))), None);
    every_tool_copies(&place.path("piped.pcapng")).unwrap();
}

/// Packets that lie, at least in part, in the first page of a segment.
fn in_first_page(file: &Path, segment: &Facts) -> u64 {
    let mut page = vec![0; 4096];
    File::open(file).unwrap().read_exact_at(&mut page, segment.offset).unwrap();
    let (mut at, mut packets) = (0, 0);
    while at < page.len() {
        at += u32::from_le_bytes(page[at + 4..at + 8].try_into().unwrap()) as usize;
        packets += 1;
    }
    packets
}

#[test]
fn a_damaged_page_is_left_out_stated_and_costs_the_exit_code() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 3000);
    let (_, files) = store(&place, &[&input]);
    let stored = StoredFile::open(File::open(&files[0]).unwrap()).unwrap();
    let facts = &stored.segments()[1];
    let lost = in_first_page(&files[0], facts);
    File::options().write(true).open(&files[0]).unwrap().write_all_at(b"x", facts.offset + 1000).unwrap();
    let done = export(&place, &["-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains(&format!("the segment at byte {}", facts.offset)), "{}", done.stderr);
    assert_eq!(read(&place.path("out.pcapng")).packets.len() as u64, 3000 - lost);
    let said = comment(&place.path("out.pcapng"));
    assert!(said.contains(&format!("at least {lost} and at most {lost} packets are missing")), "{said}");
    assert!(said.contains("unreadable"), "{said}");
}

#[test]
fn a_file_without_its_end_is_read_as_far_as_its_segments_hold_and_is_listed_with_what_is_wrong() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 3000);
    let (_, files) = store(&place, &[&input]);
    let stored = StoredFile::open(File::open(&files[0]).unwrap()).unwrap();
    let end = stored.segments()[3].offset + stored.segment_bytes() as u64;
    let left: u64 = stored.segments()[..4].iter().map(|facts| u64::from(facts.foot.packets)).sum();
    let part = files[0].with_extension("pcapng.part");
    std::fs::rename(&files[0], &part).unwrap();
    File::options().write(true).open(&part).unwrap().set_len(end).unwrap();
    let out = exported(&place, "out.pcapng", &[]);
    assert_eq!(out.packets.len() as u64, left);
    let listed = list(&place, &["--json"]);
    assert_eq!(listed.code(), Some(0), "{}", listed.stderr);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let file = &listed["stores"][0]["files"][0];
    assert_eq!((&file["state"], &file["packets"]), (&"to be recovered".into(), &left.into()));
    // No head and no segment any more: listed with its fault, and nothing of it is given.
    std::fs::write(&part, [7; 64]).unwrap();
    let listed = list(&place, &[]);
    assert_eq!(listed.code(), Some(1));
    assert!(
        listed.stdout.contains("can't be read: ") && listed.stderr.contains("no store file"),
        "{}",
        listed.stderr
    );
    assert_eq!(export(&place, &["-w", "none.pcapng"]).code(), Some(1));
    assert_eq!(read(&place.path("none.pcapng")).packets.len(), 0);
}

#[test]
fn a_file_that_lost_its_end_under_its_name_is_stated_with_a_gap_whose_size_nobody_knows() {
    let place = Place::new();
    let (_, files) = store(&place, &[&capture(&[ETHERNET], 3000)]);
    let stored = StoredFile::open(File::open(&files[0]).unwrap()).unwrap();
    let end = stored.segments()[3].offset + stored.segment_bytes() as u64;
    File::options().write(true).open(&files[0]).unwrap().set_len(end).unwrap();
    let done = export(&place, &["-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(!done.stderr.contains("nothing is missing"), "{}", done.stderr);
    let said = comment(&place.path("out.pcapng"));
    assert!(said.contains("incomplete: nobody knows how many packets are missing"), "{said}");
    assert!(said.contains(" to the end unreadable"), "{said}");
    let words = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("packets behind them may be missing"), "{words}");
    assert!(!words.contains("its packets are missing") && !words.contains("2262"), "{words}");
}

#[test]
fn what_a_capture_file_says_it_lost_is_missing_in_the_store_whatever_is_exported_of_it() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET], 40_000);
    // In front of all, in the middle, and behind all by the statistics.
    [(0, 3), (20_000, 7)].into_iter().for_each(|(at, lost)| input.packets[at].lost_before = lost);
    let (first_ns, last_ns) = input.span_ns().expect("packets");
    let mut bytes = pcapng(&input, Precision::Nano, false);
    bytes.extend(dropped(0, 15, last_ns));
    let source = place.source_of("lossy.pcapng", &bytes);
    let folder = place.path("store");
    let stored = ["--store", folder.to_str().expect("UTF-8"), "--store-file", "8MiB"];
    place.summary(&[&["--source", &source[..]], &stored[..]].concat());
    let all = export(&place, &["-w", "all.pcapng"]);
    assert_eq!(all.code(), Some(0), "{}", all.stderr);
    let said = comment(&place.path("all.pcapng"));
    assert!(said.contains("incomplete: at least 15 and at most 15 packets are missing"), "{said}");
    assert_eq!(said.matches(" file, ").count(), 3, "{said}");
    // Between the two that packets tell there is none; those that only the statistics tell may be there.
    let quiet = (input.packets[30_000].time_ns, input.packets[30_100].time_ns);
    let (from, to) = (scope_spelling::time::iso(quiet.0), scope_spelling::time::iso(quiet.1));
    assert!(first_ns < quiet.0);
    let part = export(&place, &["--from", &from, "--to", &to, "-w", "part.pcapng"]);
    assert_eq!(part.code(), Some(0), "{}", part.stderr);
    let said = comment(&place.path("part.pcapng"));
    assert!(said.contains("incomplete: at least 0 and at most 8 packets are missing"), "{said}");
    let mut verify = wirescope(&["verify", "--json"]);
    verify.arg(&folder);
    let verified = finish(verify);
    assert_eq!(verified.code(), Some(1), "{}{}", verified.stdout, verified.stderr);
    let report: Value = serde_json::from_str(&verified.stdout).expect("an object");
    let rows =
        report["files"].as_array().unwrap().iter().flat_map(|file| file["missing"].as_array().unwrap());
    let rows: Vec<(&str, u64)> =
        rows.map(|row| (row["reason"].as_str().unwrap(), row["lost_min"].as_u64().unwrap())).collect();
    assert!(rows.iter().all(|(reason, _)| *reason == "file"), "{rows:?}");
    assert_eq!(rows.iter().map(|(_, lost)| lost).sum::<u64>(), 15, "{rows:?}");
}

#[test]
fn a_truncated_capture_file_leaves_its_mark_in_the_store() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 500);
    let bytes = pcapng(&input, Precision::Nano, false);
    let source = place.source_of("cut.pcapng", &bytes[..bytes.len() * 2 / 3]);
    let folder = place.path("store");
    place.run(&["--source", &source, "--store", folder.to_str().expect("UTF-8")]);
    let done = export(&place, &["-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let said = comment(&place.path("out.pcapng"));
    assert!(said.contains("incomplete: at least 1 packet is missing"), "{said}");
    assert!(said.contains(" unreadable, at least 1 packet"), "{said}");
}

#[test]
fn of_a_file_with_a_damaged_head_every_packet_is_exported_and_the_damage_is_stated() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 900);
    let (_, files) = store(&place, &[&input]);
    let whole = std::fs::read(&files[0]).unwrap();
    let plain = |capture: &Capture| -> Vec<(i64, Vec<u8>, u32)> {
        capture.packets.iter().map(|one| (one.time_ns, one.data.clone(), one.original_len)).collect()
    };
    let head = StoredFile::open(File::open(&files[0]).unwrap()).unwrap().head_bytes() as usize;
    let try_with = |bytes: &[u8], place_of: &str| {
        std::fs::write(&files[0], bytes).unwrap();
        let _ = std::fs::remove_file(place.path("out.pcapng"));
        let done = export(&place, &["-w", "out.pcapng"]);
        let said = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(done.code(), Some(1), "{place_of}: {said}");
        assert!(said.contains("the head is "), "{place_of}: {said}");
        let out = read(&place.path("out.pcapng"));
        assert_eq!(plain(&out), plain(&input), "{place_of}");
        out
    };
    for at in (0..head).step_by(256) {
        let mut bytes = whole.clone();
        bytes[at..at + 64].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let out = try_with(&bytes, &format!("bytes from {at}"));
        assert_eq!(out.interfaces.len(), 1);
    }
    for at in [0, 200, head - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let out = try_with(&bytes, &format!("a bit of byte {at}"));
        assert_eq!(difference(&input, &out), None, "byte {at}");
    }
}

/// What the comment of an export has of gaps, its packets, and what was said.
fn gaps_of(place: &Place, stores: &[&Path]) -> (Vec<String>, usize, String) {
    let _ = std::fs::remove_file(place.path("out.pcapng"));
    let mut command = wirescope(&["export"]);
    for store in stores {
        command.arg("--store").arg(store);
    }
    command.args(["-w", "out.pcapng"]).current_dir(place.root());
    let done = finish(command);
    let path = place.path("out.pcapng");
    let said = comment(&path);
    let gaps = said.split("gap: ").skip(1).map(|gap| gap.lines().next().unwrap().trim().to_string());
    let said = done.stdout + &done.stderr;
    (gaps.collect(), read(&path).packets.len(), said.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// What `wirescope verify` says of these stores: each file with a reason and packets that it lacks.
fn verified(stores: &[&Path]) -> Vec<(String, String, u64)> {
    let mut command = wirescope(&["verify", "--json"]);
    command.args(stores);
    let done = finish(command);
    let found: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let mut rows = Vec::new();
    for of in ["files", "stores"].into_iter().flat_map(|key| found[key].as_array().unwrap()) {
        let word = |value: &serde_json::Value| value.as_str().unwrap().to_string();
        for row in of["missing"].as_array().unwrap() {
            rows.push((word(&of["path"]), word(&row["reason"]), row["lost_min"].as_u64().unwrap()));
        }
    }
    rows
}

#[test]
fn the_gap_of_a_damaged_file_of_one_of_two_volumes_is_stated_once_and_where_it_belongs() {
    let place = Place::new();
    let (one, two) = (place.path("one"), place.path("two"));
    let source = "synth:packets=60k,size=1000,pace=max,seed=3,start=2020-01-01T00:00:00Z";
    let mut flags = vec!["--source", source, "--ring", "64MiB", "--segment", "64KiB", "--store-file", "8MiB"];
    for store in [&one, &two] {
        flags.extend(["--store", store.to_str().unwrap()]);
    }
    place.summary(&flags);
    let files = |store: &Path| -> Vec<PathBuf> {
        names(&store.join("2020-01-01")).into_iter().map(|name| store.join("2020-01-01").join(name)).collect()
    };
    let (whole, packets, _) = gaps_of(&place, &[&one, &two]);
    assert_eq!((whole.len(), packets), (0, 60_000), "{whole:?}");
    let (_, of_one, _) = gaps_of(&place, &[&one]);
    let (_, of_two, _) = gaps_of(&place, &[&two]);
    assert_eq!(of_one + of_two, 60_000);
    let middle = files(&one)[1].clone();
    let stored = StoredFile::open(File::open(&middle).unwrap()).unwrap();
    let lost: usize = stored.segments().iter().map(|facts| facts.foot.packets as usize).sum();
    let bytes = std::fs::read(&middle).unwrap();
    // The whole file, then one page of a segment; to verify, that is the segment.
    let segment = &stored.segments()[1];
    let in_page = in_first_page(&middle, segment) as usize;
    let mut torn = bytes.clone();
    torn[segment.offset as usize + 1000] ^= 1;
    for (damaged, lost, unverified) in
        [(&bytes[..100], lost, lost), (&torn[..], in_page, segment.foot.packets as usize)]
    {
        std::fs::write(&middle, damaged).unwrap();
        let (both, packets, said) = gaps_of(&place, &[&one, &two]);
        assert_eq!(packets, 60_000 - lost, "{said}");
        assert!(both.iter().all(|gap| gap.contains(" unreadable, ")), "{both:?}");
        assert!(said.contains(&format!("missing: {lost} to {lost}, ")), "{lost}: {said}");
        assert_eq!(said.matches(middle.to_str().unwrap()).count(), 1, "{said}");
        let rows = verified(&[&one, &two]);
        assert!(
            rows.iter()
                .all(|(file, reason, _)| (&**file, &**reason) == (middle.to_str().unwrap(), "unreadable")),
            "{rows:?}"
        );
        assert_eq!(rows.iter().map(|(_, _, packets)| packets).sum::<u64>(), unverified as u64, "{rows:?}");
        assert_eq!(verified(&[&two]).iter().filter(|(_, reason, _)| reason != "elsewhere").count(), 0);
        let (alone, packets, said) = gaps_of(&place, &[&one]);
        assert_eq!(packets, of_one - lost, "{said}");
        assert!(!alone.is_empty() && alone.iter().all(|gap| gap.contains("unreadable")), "{alone:?}");
        let (other, packets, said) = gaps_of(&place, &[&two]);
        assert_eq!((other.len(), packets), (0, of_two), "{other:?} {said}");
        assert!(!said.contains("damaged"), "{said}");
    }
}

#[test]
fn what_a_cut_file_lacks_is_known_from_the_numbers_of_those_behind_it() {
    let place = Place::new();
    let folder = place.path("store");
    let source = "synth:packets=30k,size=1000,pace=max,seed=3,start=2020-01-01T00:00:00Z";
    let flags = ["--source", source, "--ring", "64MiB", "--segment", "64KiB", "--store-file", "8MiB"];
    place.summary(&[&flags[..], &["--store", folder.to_str().unwrap()]].concat());
    let day = folder.join("2020-01-01");
    let file = day.join(&names(&day)[1]);
    let stored = StoredFile::open(File::open(&file).unwrap()).unwrap();
    let last = stored.segments().last().unwrap();
    let (end, packets) = (last.offset, last.foot.packets as usize);
    // Its index alone, and with it the last segment.
    for (bytes, lost) in [(end + stored.segment_bytes() as u64, 0), (end, packets)] {
        File::options().write(true).open(&file).unwrap().set_len(bytes).unwrap();
        let (gaps, exported, said) = gaps_of(&place, &[&folder]);
        assert_eq!(exported, 30_000 - lost, "{said}");
        assert_eq!(gaps.len(), usize::from(lost > 0), "{gaps:?}");
        assert!(gaps.iter().all(|gap| gap.ends_with(&format!(" unreadable, {lost} packets"))), "{gaps:?}");
        let expected = (file.to_str().unwrap().to_string(), "unreadable".to_string(), lost as u64);
        assert_eq!(verified(&[&folder]), if lost > 0 { vec![expected] } else { vec![] });
        assert!(
            said.contains(&format!("{lost} packets of it missing")) && !said.contains("any number"),
            "{said}"
        );
    }
}

#[test]
fn files_under_each_others_names_are_damaged_and_their_packets_are_stated_as_missing() {
    let place = Place::new();
    let (_, files) = store(&place, &[&capture(&[ETHERNET], 900), &capture(&[ETHERNET], 700)]);
    let beside = place.path("beside");
    for (from, to) in [(&files[0], &beside), (&files[1], &files[0]), (&beside, &files[1])] {
        std::fs::rename(from, to).unwrap();
    }
    let listed = list(&place, &[]);
    assert_eq!(listed.code(), Some(1), "{}", listed.stdout);
    let words = listed.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words.matches("its head is of another file than its name says").count(), 2, "{words}");
    let done = export(&place, &["-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("its head is of another file"), "{}", done.stderr);
    assert!(!done.stderr.contains("nothing is missing"), "{}", done.stderr);
}

#[test]
fn no_byte_of_a_small_store_file_changed_ends_in_a_wrong_packet_or_a_crash() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 40);
    let (_, files) = store(&place, &[&input]);
    let bytes = std::fs::read(&files[0]).unwrap();
    let known = |packet: &Record| {
        input.packets.iter().any(|one| (one.time_ns, &one.data) == (packet.time_ns, &packet.data))
    };
    for at in (0..bytes.len()).step_by(bytes.len() / 60) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        std::fs::write(&files[0], &changed).unwrap();
        let out = place.path("out.pcapng");
        let done = export(&place, &["-w", "out.pcapng"]);
        assert!(matches!(done.code(), Some(0 | 1)), "byte {at}: {:?} {}", done.code(), done.stderr);
        assert!(read(&out).packets.iter().all(known), "byte {at}");
        assert!(matches!(list(&place, &[]).code(), Some(0 | 1)), "byte {at}");
        std::fs::remove_file(out).unwrap();
    }
}

#[test]
fn raw_records_hold_every_packet_and_what_is_too_long_is_truncated_and_counted() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET], 500);
    let last_ns = input.packets[499].time_ns;
    input.insert(Record::new(last_ns + 1, vec![9; 80]).snapped(70));
    store(&place, &[&input]);
    let done = export(&place, &["-w", "out.raw", "--format", "hpcap"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let bytes = std::fs::read(place.path("out.raw")).unwrap();
    let mut rest = &bytes[..];
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
    for packet in &input.packets {
        let (head, behind) = rest.split_at(12);
        let time_ns = (number(&head[..4]) * SECOND as u64 + number(&head[4..8])) as i64;
        let (data, behind) = behind.split_at(number(&head[8..10]) as usize);
        let read = (time_ns, data, number(&head[10..]) as u32);
        assert_eq!(read, (packet.time_ns, &packet.data[..], packet.original_len));
        rest = behind;
    }
    assert!(rest.is_empty());
}

/// A raw record.
fn raw(time_ns: i64, original: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = ((time_ns / SECOND) as u32).to_le_bytes().to_vec();
    bytes.extend(((time_ns % SECOND) as u32).to_le_bytes());
    bytes.extend((data.len() as u16).to_le_bytes());
    bytes.extend(original.to_le_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn a_raw_file_read_and_written_again_is_the_same_but_for_its_padding() {
    let place = Place::new();
    let padding = |len: usize| raw(0, 7, &vec![0xaa; len]);
    let records: Vec<Vec<u8>> = (0..3000_i64)
        .map(|n| {
            let len = (n * 7919 % 1400) as usize;
            let data: Vec<u8> = (0..len).map(|at| (at as i64 * 31 + n) as u8).collect();
            raw(1_700_000_000 * SECOND + n * 1_234_567, (len + (n % 3) as usize * 50) as u16, &data)
        })
        .chain([raw(1_700_000_100 * SECOND, u16::MAX, &[5; 65_535])])
        .collect();
    let file = [padding(65_535), padding(0), records.concat(), padding(60_000), padding(1)].concat();
    let source = format!("{},format=hpcap,link=ethernet", place.source_of("in.raw", &file));
    let store = place.path("store");
    let flags = ["--ring", "256MiB", "--segment", "2MiB", "--store", store.to_str().unwrap()];
    place.summary(&[&["--source", &source], &flags[..]].concat());
    let done = export(&place, &["-w", "out.raw", "--format", "hpcap"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(std::fs::read(place.path("out.raw")).unwrap() == records.concat(), "byte for byte");
    // In parts: each whole records, none longer than asked for.
    let done = export(&place, &["-w", "part.raw", "--format", "hpcap", "--split", "1MiB"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let parts = names(place.root()).into_iter().filter(|name| name.starts_with("part_"));
    let parts: Vec<Vec<u8>> = parts.map(|name| std::fs::read(place.path(&name)).unwrap()).collect();
    assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= 1 << 20));
    assert!(parts.concat() == records.concat());
}

#[test]
fn what_raw_records_have_no_place_for_is_truncated_or_left_out_and_counted() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET], 20);
    let last_ns = input.packets[19].time_ns;
    input.insert(Record::new(last_ns + 1, vec![9; 70_000]));
    let late_ns = (i64::from(u32::MAX) + 1) * SECOND;
    for number in 0..3 {
        input.insert(Record::new(late_ns + number, vec![8; 60]));
    }
    let store = place.path("store");
    let flags = ["--ring", "256MiB", "--segment", "2MiB", "--store", store.to_str().unwrap()];
    place.summary(&[&["--source", &place.source(&input)], &flags[..]].concat());
    let done = export(&place, &["-w", "out.raw", "--format", "hpcap"]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("1 packet longer than 65,535 bytes truncated"), "{}", done.stderr);
    assert!(done.stdout.contains("; nothing else is missing between them"), "{}", done.stdout);
    assert!(
        done.stderr.contains("3 packets left out: the form has no place for the time"),
        "{}",
        done.stderr
    );
    let long = raw(last_ns + 1, u16::MAX, &[9; 65_535]);
    assert!(std::fs::read(place.path("out.raw")).unwrap().ends_with(&long));
    // pcap has no place for these times either; pcapng has for all.
    let pcap = export(&place, &["-w", "out.pcap"]);
    assert_eq!(pcap.code(), Some(1), "{}", pcap.stderr);
    assert!(pcap.stderr.contains("3 packets left out"), "{}", pcap.stderr);
    assert_eq!(exported(&place, "out.pcapng", &[]).packets.len(), 24);
}

/// What stands in the place and belongs to an export of this name, hidden files included.
fn made(place: &Place, stem: &str) -> Vec<String> {
    names(place.root()).into_iter().filter(|name| name.contains(stem)).collect()
}

#[test]
fn a_signal_leaves_whole_files_alone_and_a_second_one_ends_an_export_that_nobody_reads() {
    let place = Place::new();
    let store = place.path("store");
    let flags = ["--source", "synth:packets=400k,rate=100k,size=200,pace=max,seed=3"];
    place.summary(&[&flags[..], &["--store", store.to_str().unwrap()]].concat());
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // A file each millisecond: thousands, each of which waits for the disk.
        let mut command = wirescope(&["export", "--store"]);
        command.arg(&store).args(["-w", "cut.pcapng", "--split", "1ms"]).current_dir(place.root());
        let started = Started::new(command);
        wait_until("the first parts", || made(&place, "cut").len() > 2);
        started.signal(signal);
        let done = started.finish(run::LIMIT);
        assert_eq!(done.code(), Some(128 + signal), "{}", done.stderr);
        assert!(done.stderr.contains("what had no name yet is gone"), "{}", done.stderr);
        let parts = made(&place, "cut");
        assert!(parts.len() < 4000 && parts.iter().all(|name| name.starts_with("cut_")), "{parts:?}");
        let last = &parts[parts.len() - 1];
        oracle::opens_cleanly(&place.path(last)).unwrap();
        parts.iter().for_each(|name| std::fs::remove_file(place.path(name)).unwrap());
    }
    // Nobody reads: a first signal waits for the pipe, a second one doesn't.
    let mut command = wirescope(&["export", "--store"]);
    command.arg(&store).args(["-w", "-"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // It writes: signals mean something to it by now.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let until = std::time::Instant::now() + run::LIMIT;
    while child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < until, "it never ends");
        // SAFETY: kill takes no pointers, and the child is not waited for yet.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn where_nothing_more_can_be_written_no_half_file_stays_and_the_exit_code_says_so() {
    let place = Place::new();
    store(&place, &[&capture(&[ETHERNET], 8000)]);
    let binary = env!("CARGO_BIN_EXE_wirescope");
    // A limit on the length of files meets a write as a full disk does.
    let shell = |words: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", words, binary]).current_dir(place.root());
        finish(command)
    };
    let done = shell("ulimit -f 1000; exec \"$0\" export --store store -w half.pcapng");
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let path = place.path("half.pcapng");
    assert!(done.stderr.contains(&format!("{}: File too large", path.display())), "{}", done.stderr);
    assert!(done.stderr.contains("raise the limit"), "{}", done.stderr);
    assert_eq!(done.stdout, "stopped early: no file was written\n");
    assert_eq!(made(&place, "half"), Vec::<String>::new());
    let done = shell("exec \"$0\" export --store store -w - > /dev/full");
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("standard output: No space left on device"), "{}", done.stderr);
    assert!(!done.stderr.contains("nothing is missing"), "{}", done.stderr);
    let done = shell("exec \"$0\" export --store store -w - | head -c 100 > piped; exit ${PIPESTATUS[0]}");
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let words = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the reader closed it before the end; let it read to the end"), "{words}");
    assert!(words.contains("lacks its end") && !words.contains("nothing is missing"), "{words}");
}

#[test]
fn an_export_that_ends_early_says_which_files_are_whole_and_from_where_on_packets_are_missing() {
    let place = Place::new();
    // The later packets are larger: the first second fits under the limit of a file, the second doesn't.
    let mut input = capture(&[ETHERNET], 200);
    let begin_ns = input.packets[0].time_ns;
    input.packets.retain(|packet| packet.time_ns < begin_ns + SECOND);
    for number in 0..2000 {
        input.insert(Record::new(begin_ns + SECOND + number, vec![7; 1400]));
    }
    store(&place, &[&input]);
    let words = "ulimit -f 1000; exec \"$0\" export --store store -w part.pcapng --split 1s";
    let mut command = Command::new("bash");
    command.args(["-c", words, env!("CARGO_BIN_EXE_wirescope")]).current_dir(place.root());
    let done = finish(command);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert_eq!(made(&place, "part"), ["part_00001.pcapng"]);
    let first = input.packets.len() - 2000;
    let whole = read(&place.path("part_00001.pcapng")).packets;
    assert_eq!(whole[..], input.packets[..first]);
    assert!(
        done.stdout.contains(&format!("stopped early: 1 file with {first} packets is whole")),
        "{}",
        done.stdout
    );
    let behind = scope_spelling::time::iso(begin_ns + SECOND);
    assert!(done.stdout.contains(&format!("those from {behind} on may be in none")), "{}", done.stdout);
    assert!(done.stderr.contains("part_00002.pcapng: File too large"), "{}", done.stderr);
}

#[test]
fn a_name_that_a_later_file_could_need_is_found_before_anything_is_written() {
    let place = Place::new();
    store(&place, &[&capture(&[ETHERNET, RAW], 3000)]);
    for (taken, arguments) in [
        ("late_00002.pcapng", &["-w", "late.pcapng", "--split", "1s"][..]),
        ("late_RAW_00002.pcapng", &["-w", "late.pcapng", "--split", "1s"]),
        ("late_RAW.pcapng", &["-w", "late.pcapng"]),
    ] {
        std::fs::write(place.path(taken), "mine").unwrap();
        let done = export(&place, arguments);
        assert_eq!(done.code(), Some(2), "{taken}: {}", done.stderr);
        let words = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(taken) && words.contains("exists and is never overwritten"), "{words}");
        assert!(words.contains("remove it or choose another name"), "{words}");
        assert_eq!(made(&place, "late"), [taken]);
        std::fs::remove_file(place.path(taken)).unwrap();
    }
    std::fs::write(place.path("late_1.pcapng"), "alike, and in nobody's way").unwrap();
    assert_eq!(export(&place, &["-w", "late.pcapng", "--split", "10s"]).code(), Some(0));
}

#[test]
fn a_store_that_is_written_is_exported_up_to_its_last_flush_and_its_run_goes_on() {
    let place = Place::new();
    let store = place.path("store");
    let flags = ["--store", store.to_str().unwrap(), "--store-flush", "50ms", "--status-every", "1s"];
    let arguments = [&["--source", "synth:rate=5k,size=300,seed=7"], &flags[..]].concat();
    let started = Started::new(place.command(&arguments));
    let mut count = 0;
    wait_until("packets in a growing file", || {
        let done = export(&place, &["-w", &format!("grown{count}.pcapng")]);
        count += 1;
        let read = match done.code() {
            Some(0) => read(&place.path(&format!("grown{}.pcapng", count - 1))).packets.len(),
            _ => 0, // no mark yet
        };
        read > 1000
    });
    let first = read(&place.path(&format!("grown{}.pcapng", count - 1)));
    // A hold changes nothing of what is exported.
    let mut hold =
        wirescope(&["hold", "add", "--from", "@0", "--to", "@4000000000", "--note", "x", "--store"]);
    hold.arg(&store);
    assert_eq!(finish(hold).code(), Some(0));
    let held = exported(&place, "held.pcapng", &[]);
    assert_eq!(held.packets[..first.packets.len()], first.packets[..]);
    started.signal(libc::SIGTERM);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let all = exported(&place, "all.pcapng", &[]);
    assert_eq!(all.packets[..held.packets.len()], held.packets[..]);
    assert_eq!(all.packets.len() as u64, done.summary().stored.packets);
}

#[test]
fn what_can_t_be_meant_is_refused_with_its_remedy() {
    let place = Place::new();
    let (folder, _) = store(&place, &[&capture(&[ETHERNET], 10)]);
    let inside = folder.join("x.pcapng");
    let day = names(&folder).into_iter().find(|name| name.starts_with("20")).unwrap();
    let below = folder.join(day).join("x.pcapng");
    std::os::unix::fs::symlink(&folder, place.path("link")).unwrap();
    for (arguments, words) in [
        (&["-w", "x.pcapng", "--from", "soon"][..], "--from: 'soon' is no time"),
        (&["-w", "x.pcapng", "--from", "@5", "--to", "@4"], "--to: the span ends before it begins"),
        (
            &["-w", "x.pcapng", "--split", "60"],
            "--split: '60' may be a size or a time; write e.g. 1GiB or 60s",
        ),
        (&["-w", "x.pcapng", "--split", "1KiB"], "is less than 1 MiB"),
        (
            &["-w", "x.pcapng", "--format", "PCAP"],
            "--format: 'PCAP' is no form of an export; write pcapng, pcap or hpcap",
        ),
        (&["-w", "-", "--split", "60s"], "--split: standard output is one file"),
        (&["-w", "x.pcapng.gz"], "would not be compressed"),
        (&["-w", "none/x.pcapng"], "no such folder"),
        (&["-w", inside.to_str().unwrap()], "would stand in the store"),
        (&["-w", below.to_str().unwrap()], "would stand in the store"),
        (&["-w", "link/x.pcapng"], "would stand in the store"),
        (&["-w", "x.pcapng", "--store", "."], "it is no store: it lacks wirescope.store"),
        (&["-w", "x.pcapng", "--store", "store"], "is given twice"),
    ] {
        let done = export(&place, arguments);
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{arguments:?}: {}", done.stderr);
    }
    assert!(!place.path("x.pcapng").exists());
}

#[test]
fn a_store_is_listed_by_runs_and_files_on_lines_of_80_columns() {
    let place = Place::new();
    let (one, two) = (capture(&[ETHERNET], 2000), capture(&[ETHERNET, RAW], 1500));
    let (folder, _) = store(&place, &[&one, &two]);
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    let listed = list(&place, &[]);
    assert_eq!(listed.code(), Some(0), "{}", listed.stderr);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("run ")).count(), 2, "{}", listed.stdout);
    assert_eq!(lines.iter().filter(|line| line.starts_with(" 00000")).count(), 3, "{}", listed.stdout);
    assert!(
        lines.iter().all(|line| line.starts_with('/') || line.chars().count() <= 80),
        "{}",
        listed.stdout
    );
    assert!(lines.iter().any(|line| line.contains("1 other file: notes.txt")), "{}", listed.stdout);
    let total = lines[lines.len() - 1];
    assert!(total.contains("2 runs, 3 files, 3,500 packets"), "{total}");
    let json: serde_json::Value = serde_json::from_str(&list(&place, &["--json"]).stdout).unwrap();
    let store = &json["stores"][0];
    assert_eq!((&store["packets"], &store["foreign"]), (&3500.into(), &1.into()));
    let headings = |name: &str| lines.iter().filter(|line| **line == format!("  {name}")).count();
    assert_eq!((headings("ETHERNET"), headings("RAW")), (2, 1), "{}", listed.stdout);
    let types: Vec<String> =
        store["runs"].as_array().unwrap().iter().map(|run| run["link_types"].to_string()).collect();
    assert!(types.contains(&"[\"ETHERNET\"]".to_string()), "{types:?}");
    let files = store["files"].as_array().expect("a list");
    assert_eq!(files.iter().filter(|file| file["link_type"] == "ETHERNET").count(), 2, "{files:#?}");
}

#[test]
fn empty_and_damaged_files_count_in_the_bytes_of_a_store() {
    let place = Place::new();
    let (_, files) =
        store(&place, &[&capture(&[ETHERNET], 900), &capture(&[ETHERNET], 700), &capture(&[RAW], 30)]);
    let bytes = || files.iter().map(|file| file.metadata().unwrap().len()).sum::<u64>();
    let listed = || -> serde_json::Value {
        let done = list(&place, &["--json"]);
        let object: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        object["stores"][0].clone()
    };
    assert_eq!(listed()["bytes"], bytes());
    File::options().write(true).open(&files[0]).unwrap().write_all_at(&[7; 64], 0).unwrap();
    File::options().write(true).open(&files[1]).unwrap().set_len(0).unwrap();
    let store = listed();
    assert_eq!((&store["bytes"], store["files"].as_array().unwrap().len()), (&bytes().into(), 3));
}
