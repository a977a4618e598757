//! `wirescope verify`: verdicts, exit codes and faults of files that runs and other programs made.

mod run;

use run::{Done, Place, finish, names, wirescope};
use scope_store::chain::{ChainWriter, ChainedFile, Digest, hash_of};
use scope_store::head::Head;
use scope_store::name::FileName;
use scope_store::volume::{CHAIN_FILE, Place as StorePlace, Volume, VolumeId};
use scope_store::{StoredFile, index};
use scope_testkit::traffic::{Capture, Conversations, Precision, pcap, pcapng};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};

fn verify(arguments: &[&str]) -> Done {
    finish(wirescope(&[&["verify"], arguments].concat()))
}

/// The object of `--json`, and the exit code.
fn object(paths: &[&Path]) -> (Value, Option<i32>) {
    let mut arguments = vec!["--json"];
    arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
    let done = verify(&arguments);
    let object =
        serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", done.stdout, done.stderr));
    (object, done.code())
}

fn conversations() -> Capture {
    Conversations { packets: 400, ..Conversations::default() }.capture()
}

/// The one dump of a run.
fn dump(place: &Place) -> PathBuf {
    let name = names(&place.out()).into_iter().find(|name| name.ends_with(".pcapng")).expect("a dump");
    place.out().join(name)
}

#[test]
fn each_file_has_a_verdict_and_the_worst_one_is_the_exit_code() {
    let place = Place::new();
    let capture = conversations();
    let (plain, old, cut) = (place.path("a.pcapng"), place.path("b.pcap"), place.path("c.pcapng"));
    let bytes = pcapng(&capture, Precision::Nano, false);
    std::fs::write(&plain, &bytes).unwrap();
    std::fs::write(&old, pcap(&capture, Precision::Micro, true)).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    let (found, code) = object(&[&plain, &old]);
    assert_eq!((&found["verdict"], code), (&"whole".into(), Some(0)), "{found:#}");
    assert_eq!((&found["files"][0]["packets"], &found["files"][1]["packets"]), (&400.into(), &400.into()));
    assert_eq!((&found["files"][0]["form"], &found["files"][1]["form"]), (&"pcapng".into(), &"pcap".into()));
    let done = verify(&[plain.to_str().unwrap(), cut.to_str().unwrap()]);
    assert_eq!(done.code(), Some(1), "{}{}", done.stdout, done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("whole    ") && lines[0].contains("400 packets"), "{}", done.stdout);
    assert!(lines[1].starts_with("damaged  ") && lines[1].contains("399 packets"), "{}", done.stdout);
    assert!(lines[2].ends_with("the file ends 10 bytes too early"), "{}", done.stdout);
    assert!(lines.last().unwrap().ends_with("with 799 packets: 1 whole, 1 damaged"), "{}", done.stdout);
}

#[test]
fn what_a_dump_states_that_it_lacks_is_listed_with_its_reason() {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 4000, ..Conversations::default() }.capture());
    // The window begins before the file does: no packet is lost by that.
    let of_file =
        ["--source", &source, "--trigger", "icmp", "--dump", "", "--before", "9999", "--exit-after", "1"];
    assert_eq!(place.run(&of_file).code(), Some(0));
    let (found, code) = object(&[&dump(&place)]);
    let (file, row) = (&found["files"][0], &found["files"][0]["missing"][0]);
    assert_eq!(
        (&file["form"], &file["verdict"], code),
        (&"dump".into(), &"whole".into(), Some(0)),
        "{found:#}"
    );
    assert_eq!((&row["reason"], &row["loss"]), (&"capture_begin".into(), &false.into()), "{found:#}");
    // The ring is too small for the window.
    let place = Place::new();
    let done = place.run(&[
        "--source",
        "synth:rate=100k,time=1s,trigger-at=900ms",
        "--ring",
        "16MiB",
        "--trigger",
        "udp port 60000",
        "--dump",
        "",
        "--before",
        "700ms",
        "--after",
        "0",
    ]);
    let lost = &done.summary().dumps[0];
    let (found, code) = object(&[&dump(&place)]);
    let (file, row) = (&found["files"][0], &found["files"][0]["missing"][0]);
    assert_eq!(
        (&file["verdict"], code, &row["reason"]),
        (&"lost".into(), Some(1), &"evicted".into()),
        "{found:#}"
    );
    // The dump's own gaps: as many as its turns of the ring left.
    let rows = file["missing"].as_array().expect("a list");
    let sum = |key: &str| rows.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
    assert_eq!((sum("lost_min"), sum("lost_max")), (lost.lost_min, lost.lost_max), "{found:#}");
    let done = verify(&[dump(&place).to_str().unwrap()]);
    assert!(
        done.stdout.contains("recycled in the ring") && done.stdout.starts_with("lost     "),
        "{}",
        done.stdout
    );
    assert!(
        done.stdout.lines().filter(|line| line.contains("recycled")).all(|line| line.chars().count() <= 80),
        "{}",
        done.stdout
    );
}

/// A store of one file, which has the packets of a ring, with a chain; and the chain's head.
fn store(place: &Place) -> (PathBuf, PathBuf, Digest) {
    let (root, ring) = (place.path("store"), place.path("ring.pcapng"));
    place.summary(&["--source", "synth:rate=20k,time=1s,pace=max", "--ring-out", ring.to_str().unwrap()]);
    let stored = StoredFile::open(File::open(&ring).unwrap()).unwrap();
    let volume = VolumeId([7; 16]);
    drop(Volume::open(&StorePlace::find(&root).unwrap(), volume, None).unwrap());
    let head = Head { volume: volume.0, ..stored.head().clone() };
    let (mut bytes, mut entries, mut buffer) = (head.write(), Vec::new(), Vec::new());
    for index in 0..stored.segments().len() {
        let segment = stored.read_segment(index, &mut buffer).unwrap();
        entries.push(segment.entry(bytes.len() as u64));
        bytes.extend(segment.bytes());
    }
    bytes.extend(index::write(&entries));
    let first_ns = entries[0].foot.first_ns;
    let name = FileName::growing(first_ns, &head.run_id, head.link_type, head.number).closed().path();
    let file = root.join(&name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let chain = File::options().read(true).write(true).create_new(true).open(root.join(CHAIN_FILE)).unwrap();
    let mut chain = ChainWriter::open(chain, head.run_id).unwrap();
    let chained = ChainedFile {
        run_id: head.run_id,
        name: name.to_str().unwrap().to_string(),
        span: (first_ns, entries.last().unwrap().foot.last_ns),
        packets: 20_000,
        bytes: file.metadata().unwrap().len(),
        hash: hash_of(&File::open(&file).unwrap(), |_| {}).unwrap(),
    };
    let head = chain.append(chained).unwrap();
    (root, file, head)
}

#[test]
fn a_store_is_looked_at_with_its_chain() {
    let place = Place::new();
    let (root, file, head) = store(&place);
    let expect = format!("--expect={head}");
    let done = verify(&[root.to_str().unwrap(), &expect]);
    assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("store    ") && lines[0].ends_with(": 1 file"), "{}", done.stdout);
    assert!(lines[1].starts_with("whole    20") && lines[1].contains("20,000 packets"), "{}", done.stdout);
    assert_eq!((lines[2], lines[3].trim()), ("whole    chain: 1 file", &head.to_string()[..]));
    let (found, code) = object(&[&root]);
    let chain = &found["stores"][0]["chain"];
    assert_eq!((&chain["heads"][0]["head"], code), (&head.to_string().into(), Some(0)), "{found:#}");
    assert_eq!(
        (&found["files"][0]["form"], &found["files"][0]["checksums"]),
        (&"store".into(), &true.into())
    );
    let other = format!("--expect={}", Digest([5; 32]));
    let done = verify(&[root.to_str().unwrap(), &other]);
    assert_eq!(done.code(), Some(1), "{}", done.stdout);
    assert!(done.stdout.contains("damaged  no chain has the head 0505"), "{}", done.stdout);
    assert!(done.stdout.ends_with(": 1 whole; no chain has the expected head\n"), "{}", done.stdout);
    // One byte of one packet.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let done = verify(&[root.to_str().unwrap(), &expect]);
    assert_eq!(done.code(), Some(1), "{}", done.stdout);
    assert!(done.stdout.contains("damaged pages of 4 KiB") && done.stdout.contains("chain has the hash"));
    let chain = std::fs::read_to_string(root.join(CHAIN_FILE)).unwrap();
    std::fs::write(root.join(CHAIN_FILE), chain.replace("20000", "20001")).unwrap();
    let done = verify(&[root.to_str().unwrap()]);
    assert!(done.stdout.ends_with("; a chain is damaged\n"), "{}", done.stdout);
}

#[test]
fn a_loss_of_which_nobody_knows_the_begin_lasts_up_to_its_end() {
    let place = Place::new();
    let (path, mut bytes) = (place.path("a.pcapng"), pcapng(&conversations(), Precision::Nano, false));
    let time_ns = conversations().packets.last().unwrap().time_ns;
    scope_packet::pcapng::statistics(&mut bytes, 0, time_ns, 407, 7); // it has no isb_starttime
    std::fs::write(&path, bytes).unwrap();
    let (found, code) = object(&[&path]);
    let row = &found["files"][0]["missing"][0];
    assert_eq!((&row["from"], &row["lost_min"], code), (&Value::Null, &7.into(), Some(1)), "{found:#}");
    let said = verify(&[path.to_str().unwrap()]).stdout;
    assert!(said.contains("up to it") && !said.contains("1970"), "{said}");
}

#[test]
fn who_may_not_read_a_store_is_told_which_path_and_whose_rights_help() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    // SAFETY: geteuid takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return; // only root gives files away
    }
    let place = Place::new();
    let store = place.path("store");
    place.summary(&["--source", &place.source(&conversations()), "--store", store.to_str().unwrap()]);
    let day = store.join(names(&store).into_iter().find(|name| name.starts_with("20")).unwrap());
    let file = day.join(&names(&day)[0]);
    let mark = store.join("wirescope.store");
    let (binary, out) = (place.binary_for_all(), place.path("exports"));
    std::fs::create_dir(&out).unwrap();
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&out, 0o777);
    for path in [&store, &day, &file, &mark] {
        chown(path, Some(12_345), Some(12_345)).unwrap();
        mode(path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let call = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&binary);
        command.args(arguments).uid(23_456).gid(23_456).current_dir("/");
        finish(command)
    };
    let path = store.to_str().unwrap();
    let target = out.join("out.pcapng");
    let all = |codes: [i32; 3], refused: &Path| {
        let commands = [
            &["verify", path][..],
            &["store", "list", "--store", path],
            &["export", "--store", path, "-w", target.to_str().unwrap()],
        ];
        for (arguments, code) in commands.into_iter().zip(codes) {
            let done = call(arguments);
            let said = format!("{}\n{}", done.stdout, done.stderr);
            assert_eq!(done.code(), Some(code), "{arguments:?}: {said}");
            let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(code == 0 || words.contains(refused.to_str().unwrap()), "{arguments:?}: {words}");
            assert!(code == 0 || words.contains("Permission denied"), "{arguments:?}: {words}");
            assert!(code == 0 || words.contains("use the rights of user 12345"), "{arguments:?}: {words}");
            assert!(!words.contains("no store"), "{arguments:?}: {words}");
            let _ = std::fs::remove_file(&target); // a refused export makes none
        }
    };
    all([0, 0, 0], &store);
    for (closed, codes) in [(&store, [2, 2, 2]), (&day, [2, 1, 1]), (&file, [2, 1, 1]), (&mark, [2, 2, 2])] {
        let was = closed.metadata().unwrap().permissions();
        mode(closed, if closed.is_dir() { 0o700 } else { 0o600 });
        all(codes, if *closed == mark { &store } else { closed });
        std::fs::set_permissions(closed, was).unwrap();
    }
}

#[test]
fn what_can_not_be_looked_at_is_stated_with_cause_and_remedy() {
    let place = Place::new();
    let (fifo, text, good) = (place.path("fifo"), place.path("te\u{1b}[31mxt"), place.path("good.pcap"));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::fs::write(&text, "no packets").unwrap();
    std::fs::write(&good, pcap(&conversations(), Precision::Nano, false)).unwrap();
    let check = |path: &str, words: &[&str]| {
        let done = verify(&[path, good.to_str().unwrap()]);
        let said = done.stdout.clone() + &done.stderr;
        assert_eq!(done.code(), Some(2), "{said}");
        assert!(words.iter().all(|words| said.contains(words)) && !said.contains('\u{1b}'), "{said}");
    };
    check(fifo.to_str().unwrap(), &["is a pipe, no file; save what comes from it"]);
    check("/dev/zero", &["/dev/zero: is a device, no file"]);
    check("-", &["standard input can't be looked at"]);
    check(place.root().to_str().unwrap(), &["is a folder and no store", "wirescope verify"]);
    check("--expect=12", &["--expect: '12' is no head of a chain", "64 hexadecimal digits"]);
    check(place.path("nowhere").to_str().unwrap(), &["no such file or folder"]);
    // The good one is looked at all the same.
    check(
        text.to_str().unwrap(),
        &["unread   ", "is no capture file", "convert it", "1 whole, 1 not looked at"],
    );
    // Whatever is wrong with one path: the others are looked at, and programs get their object.
    let (found, code) = object(&[&place.path("nowhere"), &good]);
    assert_eq!((&found["verdict"], code), (&"unread".into(), Some(2)), "{found:#}");
    let files = found["files"].as_array().unwrap();
    let verdicts: Vec<_> = files.iter().map(|file| file["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["whole", "unread"], "{found:#}");
    assert_eq!(files[1]["unread"]["cause"], "no such file or folder");
    let done = verify(&[good.to_str().unwrap(), place.path("nowhere").to_str().unwrap()]);
    assert!(done.stdout.contains("whole    ") && done.stdout.contains("\nunread   "), "{}", done.stdout);
    let (found, code) = object(&[&text]);
    assert_eq!((&found["verdict"], code), (&"unread".into(), Some(2)));
    assert!(found["files"][0]["unread"]["cause"].is_string(), "{found:#}");
}
