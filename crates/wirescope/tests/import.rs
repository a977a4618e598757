//! Capture files are imported into a store: whole, once, as the store's owner, through the path of a run.

mod run;

use run::{Done, NOBODY, Place, Started, finish, is_root, names, wait_until, wirescope};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Precision, RAW, Record, pcapng};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RING: [&str; 2] = ["--ring", "64MiB"];

fn capture(link_types: &[u16], packets: usize, begin_s: i64) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    let mut capture =
        Conversations { interfaces, packets, payload_max: 900, ..Conversations::default() }.capture();
    capture.packets.iter_mut().for_each(|packet| packet.time_ns += begin_s * 1_000_000_000);
    capture
}

fn write(place: &Place, name: &str, capture: &Capture) -> String {
    place.source_of(name, &pcapng(capture, Precision::Nano, false));
    text(&place.path(name)).to_string()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = wirescope(&["import", "--store"]);
    command.arg(place.path("store")).args(RING).args(arguments);
    command
}

fn import(place: &Place, arguments: &[&str]) -> Done {
    finish(command(place, arguments))
}

/// Imports without a fault; the object that it prints.
fn imported(place: &Place, arguments: &[&str]) -> Value {
    let done = import(place, &[&["--json"], arguments].concat());
    assert_eq!(done.code(), Some(0), "{arguments:?}: {}", done.stderr);
    serde_json::from_str(&done.stdout).expect("one JSON object")
}

fn stored(folder: &Path) -> Vec<PathBuf> {
    let days = names(folder).into_iter().filter(|name| name.starts_with("20")).map(|day| folder.join(day));
    days.flat_map(|day| names(&day).into_iter().map(move |name| day.join(name))).collect()
}

/// What the store has, all its files together.
fn packets(folder: &Path) -> usize {
    stored(folder).iter().map(|file| oracle::read(file).expect("a capture").capture.packets.len()).sum()
}

fn noted(folder: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(folder.join("imports.jsonl")).unwrap_or_default();
    lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn what_a_file_has_is_in_the_store_with_times_lengths_interfaces_and_verify_finds_it_whole() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET, ETHERNET], 3000, 0);
    let last_ns = input.packets[2999].time_ns;
    input.insert(Record::new(last_ns + 1, vec![9; 80]).snapped(70));
    let file = write(&place, "in.pcapng", &input);
    let object = imported(&place, &[&file]);
    let expected = (&file[..], 3001, std::fs::metadata(&file).unwrap().len(), true, true);
    let said = &object["files"][0];
    let found = (
        said["name"].as_str().unwrap(),
        said["packets"].as_u64().unwrap(),
        said["bytes"].as_u64().unwrap(),
        said["whole"].as_bool().unwrap(),
        said["noted"].as_bool().unwrap(),
    );
    assert_eq!(found, expected);
    assert_eq!(object["stores"][0]["stored"]["packets"], 3001);
    let files = stored(&place.path("store"));
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(text(&files[0]).contains(&object["run_id"].as_str().unwrap()[..8]), "{files:?}");
    assert_eq!(difference(&input, &oracle::read(&files[0]).unwrap().capture), None);
    let mut verify = wirescope(&["verify"]);
    verify.arg(place.path("store"));
    let verified = finish(verify);
    assert_eq!(verified.code(), Some(0), "{}{}", verified.stdout, verified.stderr);
    let b3sum = noted(&place.path("store"))[0]["hash"].as_str().unwrap().to_string();
    assert_eq!((said["hash"].as_str(), b3sum.len()), (Some(&*b3sum), 64));
}

#[test]
fn the_guide_names_each_key_that_import_and_hold_list_print() {
    let place = Place::new();
    let file = write(&place, "in.pcapng", &capture(&[ETHERNET], 10, 0));
    let object = imported(&place, &[&file]);
    let store = place.path("store");
    let add = ["hold", "add", "--from", "now", "--to", "now", "--note", "x", "--store", text(&store)];
    assert_eq!(finish(wirescope(&add)).code(), Some(0));
    let listed = finish(wirescope(&["hold", "list", "--json", "--store", text(&store)]));
    let holds: Value = serde_json::from_str(&listed.stdout).expect("an object");
    let page = |name: &str| {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        std::fs::read_to_string(format!("{docs}/{name}")).expect("a page")
    };
    let (guide, summary) = (page("guide/store.md"), page("reference/summary.md"));
    let about = |command: &str| {
        let text = &guide[guide.find(&format!("`{command} --json` prints")).expect("a paragraph")..];
        text[..text.find("\n\n").expect("its end")].to_string()
    };
    let names_all = |text: &str, object: &Value| {
        for key in object.as_object().expect("an object").keys() {
            assert!(text.contains(&format!("`{key}`")), "{key}: {text}");
        }
    };
    names_all(&about("import"), &object["files"][0]);
    names_all(&(about("import") + &summary), &object);
    names_all(&about("hold list"), &holds);
    names_all(&about("hold list"), &holds["holds"][0]);
}

#[test]
fn several_files_are_one_run_in_order_of_time_and_keep_interfaces_of_their_own() {
    let place = Place::new();
    let (one, two, raw) =
        (capture(&[ETHERNET], 500, 0), capture(&[ETHERNET], 400, -9000), capture(&[RAW], 300, 0));
    let files = [("b.pcapng", &one), ("a.pcapng", &two), ("raw.pcapng", &raw)];
    let files = files.map(|(name, capture)| write(&place, name, capture));
    let done = import(&place, &[&files[0], &files[1], &files[2]]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.stdout);
    assert!(lines[0].starts_with(&format!("{}: 500 packets, ", files[0])), "{}", lines[0]);
    assert!(lines[3].starts_with("1,200 packets in ") && lines[3].contains(" by run "), "{}", lines[3]);
    let stored = stored(&place.path("store"));
    assert_eq!((stored.len(), packets(&place.path("store"))), (2, 1200), "{stored:?}");
    let ethernet = stored.iter().find(|path| text(path).contains("_ETHERNET_")).unwrap();
    let read = oracle::read(ethernet).unwrap().capture;
    assert!(read.packets.is_sorted_by_key(|packet| packet.time_ns));
    let used: BTreeSet<usize> = read.packets.iter().map(|packet| packet.interface).collect();
    assert_eq!(used.len(), 2, "port0 of each file");
    assert_eq!(noted(&place.path("store")).len(), 3);
}

#[test]
fn a_file_that_was_imported_is_refused_whatever_its_name_and_again_imports_it() {
    let place = Place::new();
    let (one, two) = (capture(&[ETHERNET], 200, 0), capture(&[ETHERNET], 300, 0));
    let file = write(&place, "one.pcapng", &one);
    imported(&place, &[&file]);
    let copy = write(&place, "copy.pcapng", &one);
    let new = write(&place, "two.pcapng", &two);
    let before = stored(&place.path("store"));
    let refused = import(&place, &[&new, &copy]);
    assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
    let words = format!("as {file}, by run ");
    assert!(refused.stderr.contains(&copy) && refused.stderr.contains(&words), "{}", refused.stderr);
    assert!(refused.stderr.contains("omit it, or add --again"), "{}", refused.stderr);
    assert_eq!(stored(&place.path("store")), before, "nothing was begun");
    // Another file of the same length is another file.
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    place.source_of("other.pcapng", &bytes);
    imported(&place, &[text(&place.path("other.pcapng")), &new]);
    imported(&place, &[&copy, "--again"]);
    assert_eq!(packets(&place.path("store")), 200 + 200 + 300 + 200);
    // Two names of one content.
    let third =
        [write(&place, "x", &capture(&[ETHERNET], 50, 7)), write(&place, "y", &capture(&[ETHERNET], 50, 7))];
    let twice = import(&place, &[&third[0], &third[1]]);
    assert_eq!(twice.code(), Some(2), "{}", twice.stderr);
    assert!(twice.stderr.contains(&format!("it has the same bytes as {}", third[0])), "{}", twice.stderr);
}

#[test]
fn each_volume_knows_what_was_imported_and_what_retention_deleted_may_come_again() {
    let place = Place::new();
    let file = write(&place, "one.pcapng", &capture(&[ETHERNET], 200, 0));
    let second = place.path("second");
    imported(&place, &["--store", text(&second), &file]);
    for folder in [&place.path("store"), &second] {
        assert_eq!(noted(folder)[0]["volumes"].as_array().map(Vec::len), Some(2));
        let mut alone = wirescope(&["import", "--store"]);
        alone.arg(folder).args(RING).arg(&file);
        let alone = finish(alone);
        assert_eq!(alone.code(), Some(2), "{}", alone.stderr);
    }
    for file in stored(&place.path("store")).into_iter().chain(stored(&second)) {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(import(&place, &[&file]).code(), Some(2), "the other volume may have it");
    imported(&place, &["--store", text(&second), &file]);
    assert_eq!(packets(&place.path("store")) + packets(&second), 200);
}

#[test]
fn compressed_files_and_raw_records_are_imported_as_they_are() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 600, 0);
    let plain = write(&place, "in.pcapng", &input);
    for tool in ["gzip", "zstd", "lz4"] {
        let packed = place.path(&format!("in.{tool}"));
        let output = Command::new(tool).args(["-c", &plain]).stderr(Stdio::null()).output().unwrap();
        std::fs::write(&packed, output.stdout).unwrap();
        let object = imported(&place, &[text(&packed)]);
        assert_eq!(object["files"][0]["bytes"], packed.metadata().unwrap().len(), "as it stands");
        assert_eq!(import(&place, &[text(&packed)]).code(), Some(2));
    }
    let mut raw = Vec::new();
    for packet in &input.packets {
        raw.extend(((packet.time_ns / 1_000_000_000) as u32).to_le_bytes());
        raw.extend(((packet.time_ns % 1_000_000_000) as u32).to_le_bytes());
        raw.extend((packet.data.len() as u16).to_le_bytes());
        raw.extend((packet.original_len as u16).to_le_bytes());
        raw.extend(&packet.data);
    }
    let source = format!("{},format=hpcap,link=ethernet", place.source_of("in.raw", &raw));
    imported(&place, &["--source", &source]);
    assert_eq!(import(&place, &["--source", &source]).code(), Some(2));
    assert_eq!(packets(&place.path("store")), 4 * 600);
    assert_eq!(noted(&place.path("store")).len(), 4);
}

#[test]
fn a_pipe_is_hashed_while_it_is_read_so_its_bytes_are_known_afterwards() {
    let place = Place::new();
    let file = write(&place, "in.pcapng", &capture(&[ETHERNET], 400, 0));
    let piped = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat \"$0\" | exec \"$@\" -"]).arg(&file);
        let command = command(&place, &[]);
        finish({
            shell.arg(command.get_program()).args(command.get_args());
            shell
        })
    };
    let done = piped();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("standard input: 400 packets, "), "{}", done.stdout);
    let refused = import(&place, &[&file]);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("as standard input, by run"), "{}", refused.stderr);
    // It can't be refused before it is read: its packets are there, and that is said.
    let again = piped();
    assert_eq!(again.code(), Some(0), "{}", again.stderr);
    assert!(again.stderr.contains("its packets are there twice now"), "{}", again.stderr);
    assert_eq!(packets(&place.path("store")), 800);
}

#[test]
fn a_truncated_file_is_imported_so_far_with_exit_code_1_and_is_known_as_it_stands() {
    let place = Place::new();
    let bytes = pcapng(&capture(&[ETHERNET], 500, 0), Precision::Nano, false);
    place.source_of("cut.pcapng", &bytes[..bytes.len() * 2 / 3]);
    // Damage in the middle: what stands behind it belongs to the file, too.
    let mut damaged = bytes.clone();
    let at = damaged.len() / 2 / 4 * 4;
    damaged[at..at + 400].fill(0xff);
    place.source_of("damaged.pcapng", &damaged);
    for name in ["cut.pcapng", "damaged.pcapng"] {
        let path = place.path(name);
        let done = import(&place, &[text(&path), "--json"]);
        assert_eq!(done.code(), Some(1), "{name}: {}", done.stderr);
        assert!(done.stderr.contains("truncated after packet"), "{}", done.stderr);
        let object: Value = serde_json::from_str(&done.stdout).unwrap();
        let file = &object["files"][0];
        assert_eq!((&file["whole"], &file["noted"]), (&false.into(), &true.into()), "{file}");
        assert_eq!(file["bytes"], path.metadata().unwrap().len());
        let read = file["packets"].as_u64().unwrap();
        assert!(read > 100 && read < 500, "{read}");
        assert_eq!(import(&place, &[text(&path)]).code(), Some(2), "{name} was imported");
    }
    // The whole file is another one.
    place.source_of("whole.pcapng", &bytes);
    imported(&place, &[text(&place.path("whole.pcapng"))]);
}

/// An import of standard input, and the end of the pipe that feeds it.
fn fed(place: &Place) -> (Started, File) {
    let (read, write) = std::io::pipe().unwrap();
    let command = command(place, &["-"]);
    let mut relay = Command::new("sh");
    relay.args(["-c", "exec \"$@\" <&9", "sh"]).arg(command.get_program()).args(command.get_args());
    pass_as_9(&mut relay, read.into());
    (Started::new(relay), File::from(OwnedFd::from(write)))
}

#[test]
fn no_byte_is_parsed_before_rights_are_given_up() {
    let place = Place::new();
    let (started, mut write) = fed(&place);
    // It waits for the first byte.
    let is_confined = |status: &String| status.lines().any(|line| line == "Seccomp:\t2");
    wait_until("fewer rights", || started.threads().iter().all(is_confined));
    let powerless = |status: &String| status.lines().any(|line| line == "CapEff:\t0000000000000000");
    assert!(started.threads().iter().all(powerless));
    write.write_all(&pcapng(&capture(&[ETHERNET], 30, 0), Precision::Nano, false)).unwrap();
    drop(write);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(packets(&place.path("store")), 30);
}

#[test]
fn an_import_that_is_stopped_notes_nothing_and_can_be_repeated() {
    let place = Place::new();
    let bytes = pcapng(&capture(&[ETHERNET], 300, 0), Precision::Nano, false);
    let (started, mut write) = fed(&place);
    write.write_all(&bytes).unwrap();
    let store = place.path("store");
    let grows = || store.is_dir() && stored(&store).iter().any(|path| text(path).ends_with(".part"));
    wait_until("a growing file", grows);
    // The pipe stays open: nothing ends it but the signal.
    started.signal(libc::SIGTERM);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(128 + libc::SIGTERM), "{}", done.stderr);
    assert!(done.stderr.contains("no file is noted"), "{}", done.stderr);
    assert_eq!(noted(&store), Vec::<Value>::new());
    assert!(stored(&store).iter().all(|path| text(path).ends_with(".pcapng")), "it is closed all the same");
    drop(write);
    place.source_of("in.pcapng", &bytes);
    imported(&place, &[text(&place.path("in.pcapng"))]);
}

/// What `wirescope verify` says is missing, reason by reason, with its exit code.
fn missing(store: &Path) -> (Option<i32>, BTreeSet<String>) {
    let mut verify = wirescope(&["verify", "--json"]);
    verify.arg(store);
    let done = finish(verify);
    let report: Value = serde_json::from_str(&done.stdout).expect("an object");
    let places = ["files", "stores"].into_iter().flat_map(|key| report[key].as_array().expect("a list"));
    let rows = places.flat_map(|place| place["missing"].as_array().expect("a list"));
    let reasons = rows.map(|row| row["reason"].as_str().expect("a reason").to_string());
    (done.code(), reasons.collect())
}

#[test]
fn captures_that_are_older_than_what_is_there_let_nothing_seem_gone_and_what_is_gone_is_told() {
    let place = Place::new();
    let store = place.path("store");
    let bounds = ["--store-file", "8MiB", "--store-budget", "36MiB", "--again"];
    let file = |name: &str, begin_s| {
        let mut input = capture(&[ETHERNET], 30_000, begin_s);
        input.packets.iter_mut().for_each(|packet| packet.data.resize(1400, 7));
        write(&place, name, &input)
    };
    let (newest, new) = (file("newest.pcapng", 90_000), file("new.pcapng", 9000));
    let (old, older) = (file("old.pcapng", 0), file("older.pcapng", -9000));
    let deleted = || (Some(0), BTreeSet::from(["deleted".to_string()]));
    import(&place, &[&bounds[..], &[&new]].concat());
    assert_eq!(missing(&store), deleted());
    import(&place, &[&bounds[..], &[&old]].concat());
    assert_eq!(missing(&store), deleted());
    // One that is killed, and one that closes what that one left. Each of its files that ends is the oldest
    // then, and deleted at once: there is one at a time.
    let before = stored(&store);
    let mut started = Started::new(command(&place, &[&bounds[..], &[&older]].concat()));
    let has_file = || stored(&store).iter().any(|path| !before.contains(path));
    wait_until("a file of it", || has_file() || started.has_ended());
    if !started.has_ended() {
        started.signal(libc::SIGKILL);
    }
    let _ = started.finish(run::LIMIT);
    let small = write(&place, "small.pcapng", &capture(&[ETHERNET], 30, -20_000));
    import(&place, &[&bounds[..], &[&small]].concat());
    assert!(stored(&store).iter().all(|path| text(path).ends_with(".pcapng")), "{:?}", stored(&store));
    let (code, reasons) = missing(&store);
    assert!(code == Some(0) && !reasons.contains("gone"), "{code:?} {reasons:?}");
    import(&place, &[&bounds[..], &[&newest]].concat());
    assert_eq!(missing(&store), deleted());
    // Somebody else takes one out of the middle of a run that has three.
    let files = stored(&store);
    let run = |path: &Path| text(path).rsplit('_').nth(2).expect("a run").to_string();
    let of_run = |id: &String| files.iter().filter(|path| run(path) == *id).collect::<Vec<_>>();
    let several = files
        .iter()
        .map(|path| of_run(&run(path)))
        .find(|own| own.len() > 2)
        .unwrap_or_else(|| panic!("no run of three files: {files:?}"));
    std::fs::remove_file(several[1]).unwrap();
    let (code, reasons) = missing(&store);
    assert!(code == Some(1) && reasons.contains("gone"), "{code:?} {reasons:?}");
}

/// Gives the child descriptor 9.
fn pass_as_9(command: &mut Command, descriptor: OwnedFd) {
    let pass = move || {
        // SAFETY: between fork and exec; both take numbers, and the closure keeps the descriptor open.
        unsafe {
            match descriptor.as_raw_fd() {
                9 => libc::fcntl(9, libc::F_SETFD, 0), // it only has to be left open
                other => libc::dup2(other, 9),
            }
        };
        Ok(())
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(pass) };
}

#[test]
fn what_root_imports_belongs_to_the_owner_of_the_store() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let file = write(&place, "in.pcapng", &capture(&[ETHERNET], 300, 0));
    // Only root reads it: it is opened before root is given up.
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let store = place.path("store");
    std::fs::create_dir(&store).unwrap();
    let (user, group) = (12_345, 23_456);
    std::os::unix::fs::chown(&store, Some(user), Some(group)).unwrap();
    place.open_to_all();
    imported(&place, &[&file]);
    let mut all = stored(&store);
    all.extend(["wirescope.store", "imports.jsonl"].map(|name| store.join(name)));
    all.extend(names(&store).into_iter().filter(|name| name.starts_with("20")).map(|day| store.join(day)));
    assert_eq!(all.len(), 4, "{all:?}");
    for path in &all {
        let facts = path.metadata().unwrap();
        assert_eq!((facts.uid(), facts.gid()), (user, group), "{}", path.display());
    }
    // A new store, in a folder that only root can look into, belongs to whom a run would make it.
    let closed = place.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let new = closed.join("new");
    let mut command = wirescope(&["import", "--store"]);
    command.arg(&new).args(RING).arg(&file);
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let facts = new.join("imports.jsonl").metadata().unwrap();
    assert!(facts.uid() == NOBODY || facts.uid() == new.metadata().unwrap().uid(), "{}", facts.uid());
    assert_ne!(facts.uid(), 0);
    // Who it becomes can't write there: no setting would help that import lacks.
    let mark = store.join("wirescope.store");
    std::os::unix::fs::chown(&mark, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&mark, PermissionsExt::from_mode(0o600)).unwrap();
    let refused = import(&place, &[&file, "--again"]);
    assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
    let words = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("--store: an import by root becomes the owner of the store; "), "{words}");
    assert!(words.contains("can't write to ") && words.contains("chown"), "{words}");
    assert!(!words.contains("--user"), "{words}");
    std::os::unix::fs::chown(&mark, Some(user), Some(group)).unwrap();
    // One process is one user.
    let (other, path) = (place.path("other"), place.path("store"));
    std::fs::create_dir(&other).unwrap();
    let both = import(&place, &["--store", text(&other), &file, "--again"]);
    assert_eq!(both.code(), Some(2), "{}", both.stderr);
    assert!(both.stderr.contains("belong to different owners"), "{} {}", path.display(), both.stderr);
}

#[test]
fn bounds_of_the_store_hold_and_deletions_are_told_and_logged() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 60_000, 0);
    let file = write(&place, "in.pcapng", &input);
    let bounds = ["--store-budget", "40MiB", "--store-file", "8MiB", "--store-chain", "--out"];
    let out = place.out();
    let object = imported(&place, &[&bounds[..], &[text(&out), &file]].concat());
    let volume = &object["stores"][0];
    let bytes: u64 = stored(&place.path("store")).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= 40 << 20, "{bytes}");
    let deleted = volume["deleted"]["packets"].as_u64().unwrap();
    assert_eq!(packets(&place.path("store")) as u64 + deleted, 60_000, "{volume}");
    assert!(place.path("store/chain.jsonl").exists() && volume["chain"].is_string());
    let logged = place.log().lines().filter(|line| line.contains("\"store_deleted\"")).count();
    assert_eq!(logged > 0, deleted > 0);
}

#[test]
fn an_import_whose_packets_bounds_delete_again_is_a_failure_and_notes_nothing() {
    let place = Place::new();
    let file = write(&place, "in.pcapng", &capture(&[ETHERNET], 1000, 0));
    for round in 0..2 {
        // Nothing keeps it from being tried again.
        let done = import(&place, &["--store-age", "1h", &file]);
        assert_eq!(done.code(), Some(1), "{round}: {}", done.stderr);
        assert!(done.stdout.contains("\n0 packets in "), "{}", done.stdout);
        let words = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("1,000 of the 1,000 packets that this import stored are deleted again"),
            "{words}"
        );
        assert!(
            words
                .contains("raise --store-age, or lower --store-min-free, or import into a folder of its own"),
            "{words}"
        );
        assert_eq!(noted(&place.path("store")), Vec::<Value>::new());
    }
    // A part of it, for a budget.
    let file = write(&place, "long.pcapng", &capture(&[ETHERNET], 120_000, 0));
    let done = import(&place, &["--store-budget", "33MiB", "--json", &file]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let object: Value = serde_json::from_str(&done.stdout).unwrap();
    let left = packets(&place.path("store"));
    assert!(left > 0 && left < 120_000, "{left}");
    assert_eq!(object["stores"][0]["deleted"]["packets"], 120_000 - left, "{object}");
    assert_eq!(object["files"][0]["noted"], false);
    let failures = object["failures"].to_string();
    assert!(
        failures
            .contains("raise --store-budget, or lower --store-min-free, or import into a folder of its own"),
        "{failures}"
    );
    assert_eq!(noted(&place.path("store")), Vec::<Value>::new());
}

#[test]
fn what_waits_for_the_chain_goes_before_what_is_newer() {
    let place = Place::new();
    let newer = write(&place, "newer.pcapng", &capture(&[ETHERNET], 120_000, 0));
    let older = write(&place, "older.pcapng", &capture(&[ETHERNET], 120_000, -90_000));
    let begun = imported(&place, &["--store-chain", "--store-file", "8MiB", &newer]);
    let done = import(&place, &["--store-chain", "--store-budget", "48MiB", "--store-file", "8MiB", &older]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let run = &begun["run_id"].as_str().unwrap()[..8];
    let left = stored(&place.path("store")).into_iter().filter(|path| text(path).contains(run)).count();
    assert!(left > 0, "the older ones went first");
}

#[test]
fn what_can_t_be_imported_is_refused_before_anything_is_made() {
    let place = Place::new();
    let good = write(&place, "good.pcapng", &capture(&[ETHERNET], 10, 0));
    std::fs::write(place.path("text"), "no capture at all").unwrap();
    std::fs::write(place.path("empty"), "").unwrap();
    let raw = format!("file:{good},format=hpcap");
    let paced = format!("file:{good},pace=1");
    let workers = format!("file:{good},workers=2");
    for (arguments, words) in [
        (&["none.pcapng"][..], "no such file"),
        (&[text(&place.path("text"))], "is no capture file"),
        (&[text(&place.path("empty"))], "is empty"),
        (&["."], "is a folder, not a capture file"),
        (&["--source", "synth:rate=1"], "it is no capture file"),
        (&["--source", &raw], "link="),
        (&["--source", &paced], "omit it"),
        (&["--source", &workers], "omit it"),
        (&["--store-budget", "1MiB", &good], "--store-budget"),
        (&["--ring", "1KiB", &good], "--ring"),
        (&["-", "-"], "standard input can be read only once"),
        (&["--out", "nowhere", &good], "no such folder"),
        (&[], "required"),
    ] {
        let mut command = wirescope(&["import", "--store"]);
        command.arg(place.path("store")).args(arguments).current_dir(place.root());
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{arguments:?}: {}", done.stderr);
        assert!(!place.path("store").exists(), "{arguments:?}");
    }
    // All faults at once.
    let text_file = place.path("text");
    let both = import(&place, &["none.pcapng", text(&text_file)]);
    assert!(
        both.stderr.contains("no such file") && both.stderr.contains("is no capture file"),
        "{}",
        both.stderr
    );
    // A damaged note of what was imported.
    imported(&place, &[&good]);
    std::fs::write(place.path("store/imports.jsonl"), "{}\n").unwrap();
    let damaged = import(&place, &[&good]);
    assert_eq!(damaged.code(), Some(2), "{}", damaged.stderr);
    assert!(
        damaged.stderr.contains("imports.jsonl:1") && damaged.stderr.contains("move it away"),
        "{}",
        damaged.stderr
    );
}
