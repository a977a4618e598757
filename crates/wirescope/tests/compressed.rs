//! Compressed captures and raw records through the binary: the same dumps, bounded memory, and refusals.

mod run;

use run::{LIMIT, Place, finish};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::{Conversations, Precision, pcapng};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a tool makes of what `write` gives it.
fn pack(way: &[&str], to: &Path, write: impl FnOnce(&mut dyn Write)) {
    let file = std::fs::File::create(to).unwrap();
    let mut command = Command::new(way[0]);
    command.args(&way[1..]).arg("-c").stdin(Stdio::piped()).stdout(file).stderr(Stdio::null());
    let mut tool = command.spawn().unwrap();
    write(&mut tool.stdin.take().unwrap());
    assert!(tool.wait().unwrap().success());
}

const EVERYTHING: [&str; 7] = ["--trigger", "ip or ip6 or not ip", "--single", "--dump", "", "--after", "60"];

#[test]
fn a_compressed_capture_gives_the_same_dump_from_a_file_and_from_standard_input() {
    let input = Conversations { payload_max: 900, ..Conversations::default() }.capture();
    let bytes = pcapng(&input, Precision::Nano, false);
    for way in [&["gzip"], &["zstd"], &["lz4"]] {
        let place = Place::new();
        let packed = place.path("packed");
        pack(way, &packed, |into| into.write_all(&bytes).unwrap());
        let mut from_file = place.command(&EVERYTHING);
        from_file.arg("-r").arg(&packed);
        let mut from_input = Command::new("sh");
        from_input.args(["-c", "cat \"$0\" | exec \"$@\" -r -"]).arg(&packed);
        let command = place.command(&EVERYTHING);
        from_input.arg(command.get_program()).args(command.get_args());
        for (name, command) in [("file", from_file), ("pipe", from_input)] {
            let done = finish(command);
            assert_eq!(done.code(), Some(0), "{way:?}, {name}: {}", done.stderr);
            let summary = done.summary();
            summary.assert_adds_up();
            assert!(summary.warnings.is_empty(), "{:?}", summary.warnings);
            let dump = oracle::read(&summary.only_dump().path).unwrap().capture;
            assert_eq!(difference(&input, &dump), None, "{way:?}, {name}");
        }
    }
}

#[test]
fn a_cut_compressed_capture_is_read_so_far_with_a_warning_and_exit_code_0() {
    let input = Conversations { payload_max: 900, packets: 3000, ..Conversations::default() }.capture();
    let bytes = pcapng(&input, Precision::Nano, false);
    for way in [["gzip", "-1"], ["zstd", "-1"], ["lz4", "-B4"]] {
        let place = Place::new();
        let packed = place.path("packed");
        pack(&way, &packed, |into| into.write_all(&bytes).unwrap());
        let whole = std::fs::read(&packed).unwrap();
        std::fs::write(&packed, &whole[..whole.len() / 2]).unwrap();
        let mut command = place.command(&EVERYTHING);
        command.arg("-r").arg(&packed);
        let done = finish(command);
        assert_eq!(done.code(), Some(0), "{way:?}: {}", done.stderr);
        let summary = done.summary();
        summary.assert_adds_up();
        assert!(summary.received.packets > 0 && summary.received.packets < 3000, "{way:?}");
        let told =
            format!("its {} data end too early (at byte {} of the compressed file)", way[0], whole.len() / 2);
        assert!(
            done.stderr.contains("truncated after packet") && done.stderr.contains(&told),
            "{}",
            done.stderr
        );
    }
}

/// Runs it and returns the most memory that it held, bytes.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, which tells its memory")]
fn memory_of(mut command: Command) -> u64 {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut status, begin) = (0, std::time::Instant::now());
    loop {
        // SAFETY: rusage is plain numbers, for which zeros are valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both places live through the call, and the child is ours and not waited for elsewhere.
        let ended = unsafe { libc::wait4(child.id() as i32, &mut status, libc::WNOHANG, &mut usage) };
        if ended > 0 {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "it ended with {status}");
            return usage.ru_maxrss as u64 * 1024;
        }
        assert!(ended == 0 && begin.elapsed() < LIMIT, "it doesn't end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_bomb_costs_the_window_of_its_form_and_no_more() {
    const CONTENT_MIB: usize = 300;
    let place = Place::new();
    let begin =
        pcapng(&Conversations { packets: 10, ..Conversations::default() }.capture(), Precision::Nano, false);
    // A block that nobody knows, of a MiB.
    let length = (1u32 << 20).to_le_bytes();
    let block = [&[0xad, 0x0b, 0, 0], &length[..], &vec![0; (1 << 20) - 12], &length[..]].concat();
    let measured = |name: &str| {
        let mut command = place.command(&["--trigger", "icmp"]);
        command.arg("-r").arg(place.path(name));
        memory_of(command)
    };
    std::fs::write(place.path("plain"), &begin).unwrap();
    let plain = measured("plain");
    for (way, window_mib) in [
        (&["gzip", "-9"][..], 0),
        (&["lz4", "-B7"], 0),
        (&["zstd", "-3"], 8),
        (&["zstd", "-1", "--long=27"], 128),
    ] {
        pack(way, &place.path("bomb"), |into| {
            into.write_all(&begin).unwrap();
            (0..CONTENT_MIB).for_each(|_| into.write_all(&block).unwrap());
        });
        let packed = std::fs::metadata(place.path("bomb")).unwrap().len();
        assert!(packed < 3 << 20, "{way:?}: {packed} bytes");
        let (bomb, bound) = (measured("bomb"), plain + ((window_mib + 24) << 20));
        assert!(bomb <= bound, "{way:?}: {} MiB, of a plain capture {} MiB", bomb >> 20, plain >> 20);
    }
}

#[test]
fn raw_records_are_recorded_under_their_link_type_and_refused_without_one() {
    let input = Conversations { packets: 200, ..Conversations::default() }.capture();
    let raw: Vec<u8> = input
        .packets
        .iter()
        .flat_map(|packet| {
            let (seconds, ns) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
            let mut record = (seconds as u32).to_le_bytes().to_vec();
            record.extend((ns as u32).to_le_bytes());
            record.extend((packet.data.len() as u16).to_le_bytes());
            record.extend((packet.original_len as u16).to_le_bytes());
            record.extend(&packet.data);
            record
        })
        .collect();
    let place = Place::new();
    let source = place.source_of("x.raw", &raw);
    let run = |options: &str| {
        let source = format!("{source}{options}");
        place.run(&[&["--source", &source], &EVERYTHING[..]].concat())
    };
    let done = run(",format=hpcap,link=ethernet");
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    let dump = oracle::read(&summary.only_dump().path).unwrap().capture;
    let packets = |capture: &scope_testkit::traffic::Capture| {
        capture.packets.iter().map(|packet| (packet.time_ns, packet.data.clone())).collect::<Vec<_>>()
    };
    assert!(packets(&dump) == packets(&input));
    for (options, words) in [
        ("", ["is no capture file", "neither pcap nor pcapng"]),
        (",format=hpcap", ["option 'link'", "link=ethernet"]),
        (",link=ethernet", ["option 'link'", "format=hpcap"]),
        (",format=erf,link=1", ["option 'format'", "is not hpcap"]),
    ] {
        let done = run(options);
        assert_eq!(done.code(), Some(2), "{options}: {}", done.stderr);
        assert!(words.iter().all(|word| done.stderr.contains(word)), "{options}: {}", done.stderr);
    }
}
