//! Rules of sources: what they take in front of the ring, how that is counted and told, and how they change.

mod run;

use run::asking::Running;
use run::{LIMIT, Place, Started, finish, wait_until};
use scope_testkit::oracle;
use scope_testkit::traffic::{Capture, Record};
use serde_json::{Value, json};
use std::path::Path;

/// UDP of 60 bytes from 10.0.0.`host` to 192.0.2.1, port 53.
fn udp(number: u32, host: u8) -> Record {
    let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    data.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, host]);
    data.extend([192, 0, 2, 1, 0x10, 0, 0, 53, 0, 26, 0, 0]);
    data.extend(number.to_be_bytes());
    data.resize(60, 0);
    Record::new(1_700_000_000_000_000_000 + i64::from(number) * 1000, data)
}

fn packets(path: &Path) -> Vec<Record> {
    oracle::read(path).unwrap().capture.packets
}

fn dump(place: &Place) -> Vec<u8> {
    let name = place.out_names().into_iter().find(|name| name.ends_with(".pcapng")).expect("a dump");
    std::fs::read(place.out().join(name)).unwrap()
}

fn has(bytes: &[u8], words: &str) -> bool {
    bytes.windows(words.len()).any(|window| window == words.as_bytes())
}

#[test]
fn rules_of_a_source_act_in_front_of_the_ring_and_are_counted_and_told_by_name() {
    let place = Place::new();
    let mut capture = Capture::ethernet("eth0");
    for number in 0..1000u32 {
        capture.insert(udp(number, number as u8));
    }
    let source = place.source(&capture);
    let (file, hosts, whole) = (place.path("w.toml"), place.path("hosts.txt"), place.path("ring.pcapng"));
    std::fs::write(&hosts, "10.0.0.0/28 # the first 16\n10.0.0.99\n10.0.0.200-10.0.0.209\n").unwrap();
    let text = format!(
        "set = \"few,kind=hosts,file={}\"\n\
         trigger = \"late=host 10.0.0.20\"\ndump = \"\"\nbefore = \"1s\"\nexit-after = 1000\n\
         [[source]]\nspec = {source:?}\n\
         [[source.rule]]\nname = \"gone\"\nsrc-in = \"few\"\ndo = \"drop\"\n\
         [[source.rule]]\nname = \"whole\"\nwhen = \"host 10.0.0.51\"\ndo = \"stop\"\n\
         [[source.rule]]\nname = \"short\"\nwhen = \"net 10.0.0.48/29\"\ndo = [\"keep 46\"]\n\
         [[source.rule]]\nname = \"shorter\"\nwhen = \"host 10.0.0.50\"\ndo = [\"keep 50\", \"keep 44\"]\n\
         [[source.rule]]\nname = \"longer\"\nwhen = \"net 10.0.0.48/29\"\ndo = [\"keep 1000\"]\n\
         [[source.rule]]\nname = \"half\"\nunless = \"net 10.0.0.0/25\"\ndo = [\"sample 1/2\"]\n",
        hosts.display()
    );
    std::fs::write(&file, text).unwrap();
    let mut command = place.command(&["--ring-out", whole.to_str().unwrap()]);
    command.arg("--config").arg(&file);
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    done.summary().assert_adds_up();
    // A naive model of the same.
    let (mut stored, mut gone, mut sampled, mut short, mut shorter) = (Vec::new(), 0, 0, 0, 0);
    for packet in &capture.packets {
        let mut bytes = 60;
        match packet.data[29] {
            last if last < 16 || last == 99 || (200..=209).contains(&last) => {
                gone += 1;
                continue;
            }
            51 => {}
            50 => (bytes, shorter) = (44, shorter + 1),
            48..=55 => (bytes, short) = (46, short + 1),
            last if last >= 128 => {
                sampled += 1;
                if sampled % 2 == 0 {
                    continue;
                }
            }
            _ => {}
        }
        stored.push((packet.time_ns, 60, packet.data[..bytes].to_vec()));
    }
    let found: Vec<_> = packets(&whole)
        .into_iter()
        .map(|packet| (packet.time_ns, packet.original_len, packet.data))
        .collect();
    assert!(found == stored, "other packets: {} of {}", found.len(), stored.len());
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let figures = |name: &str, dropped: u64, cut: u64| json!({"source": source, "rule": name, "dropped": dropped, "cut": cut});
    let expected = [
        figures("gone", gone, 0),
        figures("whole", 0, 0),
        figures("short", 0, short),
        figures("shorter", 0, shorter),
        figures("longer", 0, 0),
        figures("half", sampled / 2, 0),
    ];
    assert_eq!(summary["source_rules"], json!(expected));
    assert_eq!(summary["filtered"]["packets"], json!(gone + sampled / 2));
    assert_eq!(summary["cut"], json!(short + shorter));
    // Each dump says so in its header.
    let dump = dump(&place);
    for words in [
        format!("rule 'gone' of source '{source}': "),
        format!("rule 'shorter' of source '{source}': 0 packets dropped, "),
    ] {
        assert!(has(&dump, &words), "{words}");
    }
    assert!(!has(&dump, "rule 'longer'"), "what has taken nothing is not told");
}

#[test]
fn each_source_has_rules_of_its_own_and_sighup_changes_them_and_their_sets() {
    let place = Place::new();
    let (file, hosts) = (place.path("w.toml"), place.path("hosts.txt"));
    std::fs::write(&hosts, "192.0.2.1\n").unwrap();
    let write = |rule: &str| {
        let text = format!(
            "[[set]]\nname = \"few\"\nkind = \"hosts\"\nfile = {hosts:?}\n\
             [[source]]\nspec = \"synth:rate=5k,seed=1\"\n\
             [[source.rule]]\nname = \"gone\"\nhost-in = \"few\"\ndo = \"drop\"\n{rule}\
             [[source]]\nspec = \"synth:rate=5k,seed=2\"\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write("");
    let config = file.to_str().unwrap().to_string();
    let running = Running::bare(place, &["--config", &config]);
    let status = || running.get("status").body;
    let rules = || status()["source_rules"].clone();
    wait_until("rules", || rules().as_array().is_some_and(|rules| rules.len() == 1));
    let of = |name: &str, figure: &str| {
        let rules = rules();
        let rule = rules.as_array().unwrap().iter().find(|rule| rule["rule"] == name).cloned();
        rule.map_or(0, |rule| rule[figure].as_u64().unwrap())
    };
    assert_eq!((of("gone", "dropped"), &rules()[0]["source"]), (0, &json!("synth:rate=5k,seed=1")));
    let again = |words: &str| {
        running.started.signal(libc::SIGHUP);
        wait_until(words, || running.started.words().contains(words));
    };
    std::fs::write(&hosts, "nobody\n").unwrap();
    again("line 1: 'nobody' is no host");
    assert_eq!(of("gone", "dropped"), 0);
    std::fs::write(&hosts, "0.0.0.0/0\n").unwrap();
    running.started.signal(libc::SIGHUP);
    wait_until("packets that are dropped", || of("gone", "dropped") > 100);
    // The other source has none, and IPv6 goes on.
    let status = status();
    let (received, filtered) = (&status["received"]["packets"], &status["filtered"]["packets"]);
    let (received, filtered) = (received.as_u64().unwrap(), filtered.as_u64().unwrap());
    assert!(filtered <= received / 2 + 5000, "{filtered} of {received}");
    write("[[source.rule]]\nname = \"short\"\ndo = \"keep 20\"\n");
    std::fs::write(&hosts, "192.0.2.1\n").unwrap();
    again("changed: source");
    wait_until("packets that are truncated", || of("short", "cut") > 100);
    let (dropped, metrics) = (
        of("gone", "dropped"),
        String::from_utf8_lossy(
            &running.raw(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
        )
        .into_owned(),
    );
    assert!(metrics.contains(
        "wirescope_source_rule_dropped_packets_total{source=\"synth:rate=5k,seed=1\",rule=\"gone\"}"
    ));
    // What a rule has taken stays counted when it goes.
    let text = std::fs::read_to_string(&file).unwrap().replace("\"gone\"", "\"other\"");
    std::fs::write(&file, text).unwrap();
    running.started.signal(libc::SIGHUP);
    wait_until("another rule", || rules().as_array().unwrap().iter().any(|rule| rule["rule"] == "other"));
    assert!(of("gone", "dropped") >= dropped);
    let (_, done) = running.end();
    done.summary().assert_adds_up();
}

#[test]
fn a_rule_that_can_t_be_meant_or_would_be_dropped_by_a_flag_is_refused() {
    let place = Place::new();
    let file = place.path("w.toml");
    let check = |text: &str, flags: &[&str], expected: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut command = place.command(flags);
        command.arg("--config").arg(&file);
        let done = Started::new(command).finish(LIMIT);
        assert_eq!(done.code(), Some(2), "{}", done.stderr);
        for expected in expected {
            assert!(done.stderr.contains(expected), "{expected}: {}", done.stderr);
        }
        assert!(place.out_names().is_empty(), "nothing is begun");
    };
    let good = "[[source]]\nspec = \"synth:time=1s\"\n[[source.rule]]\nname = \"x\"\ndo = \"drop\"\n";
    for flags in [&["--source", "synth:time=1s"][..], &["-r", "/etc/hostname"], &["-i", "lo"]] {
        check(
            good,
            flags,
            &[
                "the file's source 'synth:time=1s' has rules, which the sources of the command line would drop",
            ],
        );
    }
    check(
        "[[source]]\nspec = \"synth:time=1s\"\n\
         [[source.rule]]\nname = \"x\"\nwhen = \"prot 6\"\ndo = [\"mark 1\", \"burn\"]\n\
         [[source.rule]]\nname = \"x\"\nhost-in = \"none\"\ndo = []\n\
         [[source.rule]]\nname = \"y\"\ndo = \"drop\"\n[[source.rule]]\nname = \"y\"\ndo = \"drop\"\n",
        &[],
        &[
            "'mark 1' is what only a rule of a group can do",
            "'burn' is nothing that a rule can do",
            "there is no set 'none'",
            "it does nothing",
            "two rules have this name",
            "w.toml:",
        ],
    );
}
