//! Groups of programs that share a run's packets: who gets what, who may, and that figures add up whatever members do.

mod run;

use run::asking::Running;
use run::captured::{capture, packets, sorted};
use run::{LIMIT, NOBODY, Place, Started, finish, is_root, wait_until, wirescope};
use scope_testkit::oracle;
use scope_testkit::traffic::Record;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A run with groups.
struct Shared {
    running: Running,
    socket: PathBuf,
}

impl Shared {
    fn new(source: &str, groups: &[&str], more: &[&str]) -> Shared {
        let place = Place::new();
        let socket = place.path("attach");
        let at = socket.to_str().unwrap().to_string();
        let groups = groups.iter().flat_map(|group| ["--group", group]);
        let flags =
            ["--source", source, "--attach", &at].into_iter().chain(groups).chain(more.iter().copied());
        let running = Running::bare(place, &flags.collect::<Vec<&str>>());
        Shared { running, socket }
    }

    fn tap(&self, group: &str, words: &[&str]) -> Command {
        tap(&self.socket, self.running.place.root(), group, words)
    }

    fn group(&self, name: &str) -> Value {
        let answer = self.running.get("groups").body;
        let groups = answer["groups"].as_array().unwrap();
        groups.iter().for_each(adds_up);
        groups.iter().find(|group| group["name"] == name).unwrap_or_else(|| panic!("{answer}")).clone()
    }

    /// Waits until so many members are given packets.
    fn wait_for_members(&self, group: &str, many: usize) {
        wait_until("members that are given packets", || {
            let group = self.group(group);
            let members = group["members"].as_array().unwrap();
            members.len() == many && members.iter().all(|member| member["given"] != 0)
        });
    }
}

fn tap(socket: &Path, folder: &Path, group: &str, words: &[&str]) -> Command {
    let mut command = wirescope(&["tap", group, "--attach"]);
    command.arg(socket).args(words).current_dir(folder);
    command
}

/// The laws of a group.
fn adds_up(group: &Value) {
    let figure = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of}"));
    let mut given = 0;
    for member in group["members"].as_array().unwrap().iter().chain([&group["gone"]]) {
        let of = |key| figure(member, key);
        assert_eq!(of("given"), of("read") + of("missed") + of("behind"), "{group}");
        given += of("given");
    }
    if group["name"] == "ring" {
        return;
    }
    let of = |key| figure(group, key);
    assert_eq!(of("published"), of("idle") + of("seen") + of("missed") + of("behind"), "{group}");
    let dropped: u64 =
        group["dropped"].as_object().unwrap().values().map(|many| many.as_u64().unwrap()).sum();
    assert_eq!(of("seen"), of("filtered") + dropped + of("unclaimed") + of("taken"), "{group}");
    assert_eq!(of("taken") + of("doubled") + of("copied_in"), given, "{group}");
}

/// Both ends of a packet, in no order: by what libpcap's own words select, so without this project's parser.
fn flow(packet: &Record) -> Vec<u8> {
    let data = &packet.data;
    let mut at = 12;
    while data[at..at + 2] == [0x81, 0] {
        at += 4;
    }
    let ip = &data[at + 2..];
    let (ends, ports) = match data[at..at + 2] {
        [8, 0] => ([&ip[12..16], &ip[16..20]], &ip[20..24]),
        _ => ([&ip[8..24], &ip[24..40]], &ip[40..44]),
    };
    let mut ends = [[ends[0], &ports[..2]].concat(), [ends[1], &ports[2..]].concat()];
    ends.sort();
    ends.concat()
}

#[test]
fn members_of_a_file_have_together_what_the_filter_takes_and_each_flow_whole() {
    let place = Place::new();
    let file = capture(place.root(), "synth:packets=60k,flows=2k,vlan=20%,ipv6=30%,pace=max,rate=100k");
    let socket = place.path("attach");
    let mut command = place.command(&[
        "--group",
        "some,filter=udp,members=3",
        "--group",
        "all,steer=all,members=2,memory=2MiB",
    ]);
    command.arg("-r").arg(&file).arg("--attach").arg(&socket);
    let run = Started::new(command);
    wait_until("the socket", || socket.exists());
    let names = ["a", "b", "c", "d", "e"];
    let start = |name: &str, group: &str, weight: &str| {
        let words = ["-w", &format!("{name}.pcapng"), "--weight", weight, "--name", name];
        Started::new(tap(&socket, place.root(), group, &words))
    };
    let mut taps = vec![start("a", "some", "1"), start("b", "some", "2"), start("c", "some", "1")];
    wait_until("the run to say that it waits", || run.words().contains("reading begins when all have"));
    taps.extend([start("d", "all", "1"), start("e", "all", "1")]);
    for tap in taps {
        let done = tap.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(done.stderr.contains("nothing is missing between them"), "{}", done.stderr);
    }
    let done = run.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let groups = summary["groups"].as_array().unwrap();
    groups.iter().for_each(adds_up);
    assert_eq!((&groups[2]["doubled"], &groups[2]["gone"]["given"]), (&60_000.into(), &120_000.into()));
    let tapped: BTreeMap<&str, Vec<Record>> =
        names.iter().map(|name| (*name, packets(&place.path(&format!("{name}.pcapng"))))).collect();
    let whole = packets(&file);
    assert!(sorted(&tapped["d"]) == sorted(&whole), "other packets");
    assert!(sorted(&tapped["e"]) == sorted(&whole), "other packets");
    // libpcap's words say of tags what is meant here anyway.
    let mut oracle = Command::new("tcpdump");
    oracle.args(["--time-stamp-precision=nano", "-w", "oracle.pcap", "-r"]).arg(&file);
    let done = oracle.arg("udp or (vlan and udp)").current_dir(place.root()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let expected = packets(&place.path("oracle.pcap"));
    let together = ["a", "b", "c"].iter().flat_map(|name| &tapped[name]);
    assert!(!expected.is_empty() && expected.len() < whole.len());
    let (together, expected) = (sorted(together), sorted(&expected));
    let first = together.iter().zip(&expected).position(|(one, other)| one != other);
    assert!(together == expected, "{} and {}, from {first:?} on", together.len(), expected.len());
    let mut owners: BTreeMap<Vec<u8>, &str> = BTreeMap::new();
    for name in ["a", "b", "c"] {
        for packet in &tapped[name] {
            assert_eq!(*owners.entry(flow(packet)).or_insert(name), name, "a flow is at two members");
        }
    }
    let [a, b, c] =
        ["a", "b", "c"].map(|name| owners.values().filter(|owner| **owner == name).count() as f64);
    let all = a + b + c;
    for (share, weight) in [(a, 0.25), (b, 0.5), (c, 0.25)] {
        assert!((share / all - weight).abs() < 0.05, "{a} {b} {c}");
    }
}

#[test]
fn members_come_are_killed_and_stand_still_and_the_figures_add_up() {
    let groups = ["flows,members-max=4,memory=2MiB,stuck=300ms", "copies,steer=all,memory=2MiB"];
    let shared = Shared::new("synth:rate=20k,flows=500,size=512", &groups, &[]);
    let tap = |group: &str, name: &str| {
        Started::new(shared.tap(group, &["-w", &format!("{name}.pcapng"), "--name", name]))
    };
    let (good, killed, still) = (tap("flows", "good"), tap("flows", "killed"), tap("flows", "still"));
    let (copy, stopped) = (tap("copies", "copy"), tap("copies", "stopped"));
    shared.wait_for_members("flows", 3);
    shared.wait_for_members("copies", 2);
    std::thread::sleep(Duration::from_millis(300));
    still.stand_still();
    stopped.stand_still();
    killed.signal(libc::SIGKILL);
    wait_until("the killed one to be gone", || shared.group("flows")["gone"]["members"] == 1);
    let of = |group: &str, name: &str| {
        let group = shared.group(group);
        let members = group["members"].as_array().unwrap();
        members.iter().find(|member| member["name"] == name).unwrap_or_else(|| panic!("{group}")).clone()
    };
    wait_until("others to have the flows of the one that stands still", || {
        of("flows", "still")["stuck"] == true
    });
    let before = of("flows", "still")["given"].as_u64();
    wait_until("the other one to miss packets", || of("copies", "stopped")["missed"] != 0);
    assert_eq!(of("flows", "still")["given"].as_u64(), before, "it is given nothing more");
    still.signal(libc::SIGCONT);
    wait_until("it to have flows again", || of("flows", "still")["given"].as_u64() > before);
    stopped.signal(libc::SIGCONT);
    let missed = of("copies", "stopped")["missed"].as_u64().unwrap();
    wait_until("it to read on", || of("copies", "stopped")["read"].as_u64().unwrap() > missed);
    assert_eq!(of("copies", "copy")["missed"], 0);
    let Shared { running, .. } = shared;
    let (place, run) = running.end();
    for (tap, code) in [(good, 0), (still, 0), (copy, 0), (stopped, 1)] {
        let done = tap.finish(LIMIT);
        assert_eq!(done.code(), Some(code), "{}", done.stderr);
    }
    let summary: Value = serde_json::from_str(&run.stdout).unwrap();
    summary["groups"].as_array().unwrap().iter().for_each(adds_up);
    let stopped = oracle::read(place.path("stopped.pcapng")).unwrap();
    let told: u64 = stopped.capture.packets.iter().map(|packet| packet.lost_before).sum();
    assert!(told > 0 && stopped.statistics[0].dropped.is_some_and(|dropped| dropped >= told));
    let copy = packets(&place.path("copy.pcapng"));
    assert!(copy.is_sorted_by_key(|packet| packet.time_ns));
}

#[test]
fn what_a_tap_missed_at_its_end_lies_behind_its_last_packet() {
    let shared = Shared::new("synth:rate=20k,size=512", &["g,memory=2MiB"], &[]);
    let tap = Started::new(shared.tap("g", &["-w", "x.pcapng"]));
    shared.wait_for_members("g", 1);
    wait_until("it to read", || shared.group("g")["members"][0]["read"] != 0);
    tap.stand_still();
    wait_until("its memory to be full", || shared.group("g")["members"][0]["missed"] != 0);
    // It is waited for in vain, and goes on when the run is over.
    let (place, _) = shared.running.end();
    tap.signal(libc::SIGCONT);
    let done = tap.finish(LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let last_ns = packets(&place.path("x.pcapng")).last().unwrap().time_ns;
    let expected = format!("between {} (", scope_spelling::time::between(last_ns, "and", i64::MAX));
    assert!(done.stderr.contains(&expected), "{expected}: {}", done.stderr);
}

#[test]
fn a_member_has_long_packets_whole_or_is_told_that_it_misses_them() {
    let place = Place::new();
    let long = capture(place.root(), "synth:packets=300,size=65000,rate=1k,pace=max");
    let short_folder = place.path("short");
    std::fs::create_dir(&short_folder).unwrap();
    let short = capture(&short_folder, "synth:packets=500,size=100,rate=1k,start=1000,pace=max");
    let socket = place.path("attach");
    let mut command = place.command(&[
        "--ring",
        "64MiB",
        "--group",
        "whole,steer=all,members=1",
        "--group",
        "small,members=1,memory=2MiB",
    ]);
    command.arg("-r").arg(&long).arg("-r").arg(&short).arg("--attach").arg(&socket);
    let run = Started::new(command);
    wait_until("the socket", || socket.exists());
    let start =
        |group: &str| Started::new(tap(&socket, place.root(), group, &["-w", &format!("{group}.pcapng")]));
    let (whole, small) = (start("whole"), start("small"));
    let done = whole.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let both = [packets(&long), packets(&short)].concat();
    assert!(sorted(&packets(&place.path("whole.pcapng"))) == sorted(&both), "other packets");
    let done = small.finish(LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("300 packets missed: they found no room"), "{}", done.stderr);
    assert!(sorted(&packets(&place.path("small.pcapng"))) == sorted(&packets(&short)), "other packets");
    let done = run.finish(LIMIT);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    summary["groups"].as_array().unwrap().iter().for_each(adds_up);
    assert_eq!(summary["groups"][2]["gone"]["missed"], 300, "{summary}");
}

#[test]
fn a_group_of_an_interface_that_never_came_is_warned_of_at_the_end() {
    let place = Place::new();
    let socket = place.path("attach");
    let groups = ["--group", "a,interface=nope", "--group", "b", "--attach", socket.to_str().unwrap()];
    let done = place.run(&[&["--source", "synth:rate=1k,packets=10"], &groups[..]].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let expected = "group a: interface nope: no source has captured it, so the group was given nothing";
    assert_eq!(summary["warnings"], serde_json::json!([expected]));
}

#[test]
fn filters_steering_and_who_may_change_on_sighup_and_the_rest_waits_by_name() {
    let place = Place::new();
    let (socket, file) = (place.path("attach"), place.path("w.toml"));
    let write = |groups: &str| {
        let text = format!("attach = {socket:?}\nsource = \"synth:rate=5k\"\n{groups}");
        std::fs::write(&file, text).unwrap();
    };
    write("[[group]]\nname = \"one\"\nfilter = \"tcp\"\nsteer = \"all\"\n");
    let config = file.to_str().unwrap().to_string();
    let running = Running::bare(place, &["--config", &config]);
    let tap = Started::new(tap(&socket, running.place.root(), "one", &["-w", "x.pcapng"]));
    let shared = Shared { running, socket: socket.clone() };
    shared.wait_for_members("one", 1);
    write(
        "[[group]]\nname = \"one\"\nfilter = \"udp\"\nsteer = \"ip\"\nmemory = \"4MiB\"\n[[group]]\nname = \"two\"\n",
    );
    shared.running.started.signal(libc::SIGHUP);
    wait_until("the change", || shared.group("one")["filter"] == "udp");
    let group = shared.group("one");
    assert_eq!((&group["steer"], &group["memory_bytes"]), (&"ip".into(), &(16 << 20).into()));
    let words = || shared.running.started.words();
    wait_until("words", || words().contains("group two: is new, and waits for the next start"));
    assert!(words().contains("group one: memory= waits"), "{}", words());
    let before = group["taken"].as_u64().unwrap();
    wait_until("packets", || shared.group("one")["taken"].as_u64().unwrap() > before + 100);
    // Whoever may not be a member any more is none.
    write("[[group]]\nname = \"one\"\nfilter = \"udp\"\nallow = \"12345\"\n");
    shared.running.started.signal(libc::SIGHUP);
    wait_until("its member to be gone", || shared.group("one")["gone"]["members"] == 1);
    let done = tap.finish(LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("the run has removed this member"), "{}", done.stderr);
    let tapped = packets(&shared.running.place.path("x.pcapng"));
    let protocols: Vec<u8> = tapped.iter().map(|packet| packet.data[23]).collect();
    let change = protocols.iter().position(|protocol| *protocol == 17).expect("udp");
    assert!(change > 0 && protocols[..change].iter().all(|it| *it == 6));
    assert!(protocols[change..].iter().all(|it| *it == 17), "tcp before, udp behind");
    // A fault changes nothing.
    write("[[group]]\nname = \"one\"\nsteer = \"sideways\"\n");
    shared.running.started.signal(libc::SIGHUP);
    wait_until("a refusal", || words().contains("reload: refused"));
    assert!(words().contains("is no way to steer"), "{}", words());
    let refused = finish(self::tap(&socket, shared.running.place.root(), "one", &["-c", "1"]));
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("may not read group 'one'"), "{}", refused.stderr);
    shared.running.end();
}

#[test]
fn a_group_is_for_root_and_the_run_s_user_where_nothing_is_said_and_memory_never_for_another() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let binary = place.binary_for_all();
    let socket = place.path("attach");
    let at = socket.to_str().unwrap().to_string();
    let own = ["--group", "own", "--group", "two,members-max=1,allow=root:12345", "--attach", &at];
    let flags = [&["--source", "synth:rate=5k"][..], &own].concat();
    let running = Running::bare(place, &flags);
    let tap = |group: &str, uid: u32| {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&binary);
        command.args(["tap", group, "-c", "3", "--attach", &at]).uid(uid).gid(uid);
        finish(command)
    };
    assert_eq!(tap("own", 0).code(), Some(0));
    let refused = tap("own", NOBODY + 1);
    assert!(refused.stderr.contains("may not read group 'own'"), "{}", refused.stderr);
    assert!(refused.stderr.contains("own,allow=USER:@GROUP"), "{}", refused.stderr);
    assert_eq!(tap("two", 12345).code(), Some(0));
    // The only memory was another user's.
    let full = tap("two", 0);
    assert_eq!(full.code(), Some(2));
    wait_until("it to be told why", || {
        tap("two", 0).stderr.contains("free stay another user's until the run ends")
    });
    wait_until("the seat to be free again", || tap("two", 12345).code() == Some(0));
    running.end();
}

#[test]
fn what_can_t_be_meant_is_refused_before_anything_starts_all_of_it_at_once() {
    let place = Place::new();
    let socket = place.path("attach");
    let done = |flags: &[&str], attach: bool| {
        let mut command = place.command(&[&["--source", "synth:rate=1k"], flags].concat());
        if attach {
            command.arg("--attach").arg(&socket);
        }
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{flags:?}: {}", done.stderr);
        done.stderr
    };
    let said =
        done(&["--group", "a,steer=up,memory=1KiB", "--group", "b,filter=prot 7", "--group", "ring"], true);
    for part in ["is no way to steer", "is too little", "filter", "is the name of the ring itself"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.matches("wirescope: ").count(), 4, "{said}");
    for (flags, expected) in [
        (&["--group", "a", "--group", "a"][..], "is the name of two groups"),
        (&["--group", "a,members=9"], "there are 8 at most"),
        (&["--group", "a", "--attach-threads", "0"], "--attach-threads"),
        (&["--group", "a", "--attach-cpus", "9999"], "--attach-cpus"),
        (&["--group", "a,memory=32GiB,members-max=64"], "--group"),
    ] {
        let said = done(flags, true);
        assert!(said.contains(expected), "{flags:?}: {said}");
    }
    assert!(done(&["--group", "a"], false).contains("there is no socket to attach at"));
    assert!(!socket.exists());
}

#[test]
fn a_tap_of_a_group_that_can_t_be_is_refused() {
    let shared = Shared::new("synth:rate=1k", &["one"], &[]);
    for (group, words, expected) in [
        ("one", &["--past", "1s"][..], "a group has nothing of before its member joined"),
        ("one", &["--weight", "0"], "is no weight"),
        ("one", &["--class", ""], "is no name of a class"),
        ("one", &["--class", "voip"], "no rule of group 'one' gives the class 'voip'"),
        ("ring", &["--weight", "2"], "whoever reads the ring gets all of it"),
        ("other", &[], "there is no group 'other'"),
    ] {
        let done = finish(shared.tap(group, words));
        assert_eq!(done.code(), Some(2), "{group} {words:?}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{group} {words:?}: {}", done.stderr);
    }
    shared.running.end();
}

#[test]
fn a_run_of_a_file_whose_members_don_t_come_ends_with_1() {
    let place = Place::new();
    let file = capture(place.root(), "synth:packets=100,pace=max");
    let mut command = place.command(&["--group", "late,members=1"]);
    command.arg("-r").arg(&file).arg("--attach").arg(place.path("attach"));
    let done = finish(command);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("0 of 1 members have joined in 60 s"), "{}", done.stderr);
}

#[test]
fn one_that_doesn_t_move_is_removed_from_a_run_that_loses_nothing() {
    let place = Place::new();
    let file = capture(place.root(), "synth:packets=20k,size=512,pace=max,rate=100k");
    let socket = place.path("attach");
    let mut command = place.command(&["--group", "g,steer=all,members=2,memory=2MiB"]);
    command.arg("-r").arg(&file).arg("--attach").arg(&socket);
    let run = Started::new(command);
    wait_until("the socket", || socket.exists());
    let still = Started::new(tap(&socket, place.root(), "g", &["--name", "still", "-w", "still.pcapng"]));
    // It is a member once its page says where it began: behind its file, and having given up its rights.
    let waits = |status: &String| status.contains("Seccomp:\t2") && status.contains("State:\tS");
    wait_until("it to wait", || place.path("still.pcapng").exists() && still.threads().iter().all(waits));
    still.stand_still();
    let good = Started::new(tap(&socket, place.root(), "g", &["--name", "good", "-w", "good.pcapng"]));
    let done = good.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let done = run.finish(LIMIT);
    assert!(done.stderr.contains("group g: still (process "), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(summary["warnings"].to_string().contains("was removed: it had not moved for 10 s"), "{summary}");
    summary["groups"].as_array().unwrap().iter().for_each(adds_up);
    let (found, expected) = (packets(&place.path("good.pcapng")), packets(&file));
    assert!(
        sorted(&found) == sorted(&expected),
        "{} of {} packets: {}",
        found.len(),
        expected.len(),
        summary["groups"]
    );
    // It is told, though it was asleep then.
    still.signal(libc::SIGCONT);
    let done = still.finish(LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("the run has removed this member"), "{}", done.stderr);
}

/// UDP from this address to 192.0.2.1 port 53.
fn udp(number: u32, source: [u8; 4]) -> Record {
    let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    data.extend(source);
    data.extend([192, 0, 2, 1, 0x10, 0, 0, 53, 0, 26, 0, 0]);
    data.extend(number.to_be_bytes());
    data.resize(60, 0);
    Record::new(1_700_000_000_000_000_000 + i64::from(number) * 1000, data)
}

#[test]
fn rules_of_a_configuration_act_in_order_and_are_counted_by_name() {
    let place = Place::new();
    let mut capture = scope_testkit::traffic::Capture::ethernet("eth0");
    for number in 0..1000u32 {
        capture.insert(udp(number, [10, 0, 0, number as u8]));
    }
    let source = place.source(&capture);
    let (socket, file, hosts) = (place.path("attach"), place.path("w.toml"), place.path("hosts.txt"));
    std::fs::write(&hosts, "10.0.0.0/28 # the first 16\n10.0.0.99\n10.0.0.200-10.0.0.209\n").unwrap();
    let text = format!(
        "attach = {socket:?}\nsource = {source:?}\nset = \"few,kind=hosts,file={}\"\n\
         [[group]]\nname = \"main\"\nmembers = 2\nsteer = \"all\"\n\
         [[group.rule]]\nname = \"copied\"\nwhen = \"host 10.0.0.99\"\ndo = [\"copy more\"]\n\
         [[group.rule]]\nname = \"gone\"\nsrc-in = \"few\"\ndo = \"drop\"\n\
         [[group.rule]]\nname = \"short\"\nwhen = \"host 10.0.0.50\"\ndo = [\"keep 46\", \"class special\"]\n\
         [[group.rule]]\nname = \"half\"\nunless = \"net 10.0.0.0/25\"\ndo = [\"sample 1/2\"]\n\
         [[group]]\nname = \"more\"\nmembers = 1\nfilter = \"ip6\"\n",
        hosts.display()
    );
    std::fs::write(&file, text).unwrap();
    let mut command = place.command(&[]);
    command.arg("--config").arg(&file);
    let run = Started::new(command);
    wait_until("the socket", || socket.exists());
    let start = |name: &str, group: &str, more: &[&str]| {
        let words = [&["-w", name, "--name", name][..], more].concat();
        Started::new(tap(&socket, place.root(), group, &words))
    };
    let taps = [
        start("plain.pcapng", "main", &[]),
        start("special.pcapng", "main", &["--class", "special"]),
        start("more.pcapng", "more", &[]),
    ];
    for tap in taps {
        let done = tap.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
    let done = run.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let groups = summary["groups"].as_array().unwrap();
    groups.iter().for_each(adds_up);
    // A naive model of the same.
    let last = |packet: &Record| packet.data[29];
    let few = |last: u8| last < 16 || last == 99 || (200..=209).contains(&last);
    let (mut plain, mut special, mut gone, mut sampled) = (Vec::new(), Vec::new(), 0, 0);
    for packet in &capture.packets {
        match last(packet) {
            last if few(last) => gone += 1,
            50 => special.push((packet.time_ns, 60, packet.data[..46].to_vec())),
            last if last >= 128 => {
                if sampled % 2 == 0 {
                    plain.push((packet.time_ns, 60, packet.data.clone()));
                }
                sampled += 1;
            }
            _ => plain.push((packet.time_ns, 60, packet.data.clone())),
        }
    }
    assert!(sorted(&packets(&place.path("plain.pcapng"))) == plain, "other packets");
    assert!(sorted(&packets(&place.path("special.pcapng"))) == special, "other packets");
    let copied: Vec<u8> = packets(&place.path("more.pcapng")).iter().map(last).collect();
    assert_eq!(copied, [99; 4]);
    let dropped = &groups[1]["dropped"];
    assert_eq!((&dropped["gone"], &dropped["half"]), (&gone.into(), &(sampled / 2).into()), "{dropped}");
    assert_eq!((&groups[2]["copied_in"], &groups[2]["taken"]), (&4.into(), &0.into()));
}

#[test]
fn a_set_is_read_again_on_sighup_and_with_a_bad_line_the_old_one_stays() {
    let place = Place::new();
    let (socket, file, hosts) = (place.path("attach"), place.path("w.toml"), place.path("hosts.txt"));
    std::fs::write(&hosts, "192.0.2.1\n").unwrap();
    let text = format!(
        "attach = {socket:?}\nsource = \"synth:rate=5k\"\n[[set]]\nname = \"few\"\nkind = \"hosts\"\nfile = {hosts:?}\n\
         [[group]]\nname = \"one\"\n[[group.rule]]\nname = \"gone\"\nhost-in = \"few\"\ndo = \"drop\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let config = file.to_str().unwrap().to_string();
    let running = Running::bare(place, &["--config", &config, "--quiet"]);
    let tap = Started::new(tap(&socket, running.place.root(), "one", &["-w", "x.pcapng"]));
    let shared = Shared { running, socket };
    shared.wait_for_members("one", 1);
    let dropped = || shared.group("one")["dropped"]["gone"].as_u64().unwrap();
    assert_eq!(dropped(), 0);
    std::fs::write(&hosts, "0.0.0.0/0\n::/0\nnobody\n").unwrap();
    let words = || shared.running.started.words();
    shared.running.started.signal(libc::SIGHUP);
    wait_until("a refusal", || words().contains("reload: refused"));
    assert!(words().contains("line 3: 'nobody' is no host"), "{}", words());
    assert_eq!(dropped(), 0);
    std::fs::write(&hosts, "0.0.0.0/0\n::/0\n").unwrap();
    shared.running.started.signal(libc::SIGHUP);
    wait_until("packets that are dropped", || dropped() > 100);
    shared.running.place.wait_for_words("set few"); // that changed, and the log says so
    drop(tap);
    shared.running.end();
}

#[test]
fn rules_and_sets_that_can_t_be_meant_are_refused_all_at_once() {
    let place = Place::new();
    let (file, ports) = (place.path("w.toml"), place.path("ports.txt"));
    std::fs::write(&ports, "53\nhttp\n").unwrap();
    let text = format!(
        "attach = \"a\"\nsource = \"synth:\"\n[[set]]\nname = \"bad\"\nkind = \"ports\"\nfile = {ports:?}\n\
         [[set]]\nname = \"none\"\nkind = \"hosts\"\nfile = \"no-such-file\"\n\
         [[group]]\nname = \"a\"\n[[group.rule]]\nname = \"x\"\nhost-in = \"other\"\nport-in = \"bad\"\ndo = [\"burn\", \"copy b\"]\n\
         [[group]]\nname = \"b\"\n[[group.rule]]\nname = \"x\"\ndo = [\"copy c\"]\n\
         [[group]]\nname = \"c\"\n[[group.rule]]\nname = \"x\"\ndo = [\"copy b\", \"copy nobody\"]\n\
         [[group.rule]]\nname = \"x\"\nwhen = \"prot 6\"\ndo = \"drop\"\n\
         [[set]]\nname = \"none\"\nkind = \"hosts\"\nfile = \"neither\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = place.command(&[]);
    command.arg("--config").arg(&file);
    let done = finish(command);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for expected in [
        "line 2: 'http' is no port",
        "no-such-file",
        "set: 'none' is the name of two sets",
        "'neither' can't be read",
        "there is no set 'other'",
        "'burn' is nothing that a rule can do",
        "rule 'x': copy c: what goes there comes back to this group",
        "w.toml:13: group 'a': rule 'x': host-in: there is no set 'other'",
        "w.toml:25: group 'c': rule 'x': copy: there is no group 'nobody'",
        "w.toml:28: group 'c': rule 'x': two rules have this name",
        "w.toml:28: group 'c': rule 'x': when: filter",
    ] {
        assert!(done.stderr.contains(expected), "{expected}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("there is no set 'bad'"), "its file is what is wrong: {}", done.stderr);
}
