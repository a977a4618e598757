//! What commands after dumps may and may not: their descriptors, files, environment and rights, and how they
//! end with their run.
//!
//! As root these run as nobody; some need a network of their own, and say so where that can't be had.

mod live_lab;
mod run;

use live_lab::Live;
use run::{Done, Place, Started, is_root, names, skip, wait_until, wirescope};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::Value;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A dump in the midst of a second of traffic.
const TRAFFIC: [&str; 10] = [
    "--source",
    "synth:rate=5k,time=1s,trigger-at=500ms",
    "--ring",
    "64MiB",
    "--trigger",
    "udp port 60000",
    "--before",
    "100ms",
    "--after",
    "100ms",
];

/// `wirescope run` with [`TRAFFIC`] and a temporary folder that is looked at.
fn command(place: &Place, script: &str, more: &[&str]) -> Command {
    command_on(place, &TRAFFIC, script, more)
}

fn command_on(place: &Place, traffic: &[&str], script: &str, more: &[&str]) -> Command {
    let temporary = place.path("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    std::fs::set_permissions(&temporary, PermissionsExt::from_mode(0o1777)).unwrap();
    let mut command = wirescope(&["run", "--out"]);
    command.arg(place.out()).args(traffic).args(["--exec", script]).args(more).env("TMPDIR", temporary);
    command
}

fn events(place: &Place, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event["event"] == kind)
        .collect()
}

/// What the only command of a run said.
fn said(place: &Place, done: &Done) -> String {
    let events = events(place, "exec");
    assert_eq!(events.len(), 1, "{events:#?}\n{}", done.stderr);
    events[0]["output"].as_str().unwrap_or_default().to_string()
}

/// Which Landlock commands have, by what the run said; 0: none.
fn landlock_abi(done: &Done) -> i32 {
    let line = done.stderr.lines().find(|line| line.starts_with("rights: ")).unwrap_or_default();
    let words = line.split("commands: a process of their own, Landlock (ABI ").nth(1);
    words.and_then(|words| words.split(')').next()?.parse().ok()).unwrap_or(0)
}

/// Descriptors of a process that programs which it starts would get.
fn passed_on(pid: u32) -> Vec<String> {
    let passed = |name: &String| {
        let facts = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{name}")).unwrap_or_default();
        let flags =
            facts.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_CLOEXEC == 0)
    };
    names(Path::new(&format!("/proc/{pid}/fd"))).into_iter().filter(passed).collect()
}

/// Lists the descriptors of a child of the shell, since whoever looks at itself has the folder open that it
/// looks into. The child sleeps before it is looked at: while it is loaded its libraries are open.
const LIST_DESCRIPTORS: &str = "sleep 60 & until grep -q '^Name:.sleep' /proc/$!/status && grep -q '^State:.S' /proc/$!/status; do :; done; \
    ls -l /proc/$!/fd | sed -n 's/.* \\([0-9]*\\) -> \\(.*\\)/\\1 \\2/p'; kill $!";

/// Fails unless a command that ran [`LIST_DESCRIPTORS`] had the three standard descriptors and no other.
fn assert_standard_descriptors(said: &str, source: &str) {
    let found: Vec<&str> =
        said.lines().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    assert_eq!(found, ["0", "1", "2"], "{source}: {said}");
    assert!(said.starts_with("0 /dev/null\n1 pipe:") && said.contains("\n2 pipe:"), "{source}: {said}");
}

#[test]
fn a_command_has_the_three_standard_descriptors_whatever_the_sources_are() {
    let Some(live) = Live::or_skip() else { return };
    for source in ["synth:rate=1k", "afpacket:vb,workers=2,spare=1", "afpacket:v*,workers=0", "pcap:vb"] {
        let place = Place::with_commands();
        let mut command =
            wirescope(&["run", "--source", source, "--ring", "64MiB", "--before", "100ms", "--out"]);
        command.arg(place.out()).args(["--exec", LIST_DESCRIPTORS]);
        // A descriptor that whoever starts the run leaves open for it.
        let open = std::fs::File::open("/dev/null").unwrap();
        let number = open.as_raw_fd();
        // SAFETY: between fork and exec; dup2 takes numbers.
        unsafe {
            command.pre_exec(move || {
                if libc::dup2(number, 77) < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            })
        };
        let started = live.lab.b().enter(|| Started::new(command));
        wait_until("the start", || !events(&place, "start").is_empty());
        let passed = passed_on(started.pid());
        assert!(passed.iter().all(|name| ["0", "1", "2"].contains(&name.as_str())), "{source}: {passed:?}");
        started.signal(libc::SIGUSR1);
        wait_until("the command", || !events(&place, "exec").is_empty());
        started.signal(libc::SIGINT);
        let done = started.finish(run::LIMIT);
        let said = said(&place, &done);
        assert_standard_descriptors(&said, source);
    }
}

#[test]
fn a_command_of_a_run_on_files_has_the_three_standard_descriptors_too() {
    let place = Place::with_commands();
    let capture = scope_testkit::traffic::Conversations::default().capture();
    let source = place.source(&capture);
    let done = place.run(&["--source", &source, "--trigger", "ip", "--single", "--exec", LIST_DESCRIPTORS]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_standard_descriptors(&said(&place, &done), &source);
}

#[test]
fn a_command_reads_the_dump_and_the_system_and_writes_where_it_may_and_nowhere_else() {
    let place = Place::with_commands();
    for (name, mode) in [("open", 0o666), ("script", 0o755)] {
        std::fs::write(place.path(name), "#!/bin/sh\necho run\n").unwrap();
        std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let root = place.root().display();
    // Each line: what is tried, and the word that says that it went well.
    let script = format!(
        r#"exec 2>/dev/null; t() {{ if sh -c "$2"; then echo "$1 yes"; else echo "$1 no"; fi; }}
        t read-dump 'head -c 4 "$WIRESCOPE_FILE" >/dev/null'
        t list-dumps 'ls {root}/out >/dev/null'
        t read-system 'cat /etc/passwd >/dev/null'
        t write-null 'echo x >/dev/null'
        t write-temporary 'echo x >"$TMPDIR/x" && mkdir "$TMPDIR/d" && mv "$TMPDIR/x" "$TMPDIR/d"'
        t write-work 'echo x >{root}/jobs/x'
        t run-written 'cp /bin/true {root}/jobs/y && chmod +x {root}/jobs/y && {root}/jobs/y'
        t write-dumps 'echo x >{root}/out/x'
        t change-dump 'echo x >>"$WIRESCOPE_FILE"'
        t remove-dump 'rm -f "$WIRESCOPE_FILE"'
        t read-elsewhere 'cat {root}/open'
        t write-elsewhere 'echo x >>{root}/open'
        t new-elsewhere 'echo x >{root}/tmp/x'
        t run-elsewhere '{root}/script'"#
    );
    let work = place.path("jobs");
    let done = run::finish(command(&place, &script, &["--exec-write", work.to_str().unwrap()]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    if landlock_abi(&done) == 0 {
        return skip("this kernel has no Landlock");
    }
    let said = said(&place, &done);
    for may in ["read-dump", "list-dumps", "read-system", "write-null", "write-temporary", "write-work"] {
        assert!(said.contains(&format!("{may} yes\n")), "{may}: {said}");
    }
    let not = [
        "run-written",
        "write-dumps",
        "change-dump",
        "remove-dump",
        "read-elsewhere",
        "write-elsewhere",
        "new-elsewhere",
    ];
    for not in not.iter().chain(&["run-elsewhere"]) {
        assert!(said.contains(&format!("{not} no\n")), "{not}: {said}");
    }
    assert_eq!(std::fs::read_to_string(place.path("open")).unwrap(), "#!/bin/sh\necho run\n");
    assert!(names(&place.path("tmp")).is_empty(), "the temporary folder is gone with what was in it");
    assert!(names(&work).contains(&"x".to_string()));
}

#[test]
fn with_the_dump_folder_named_a_command_may_replace_a_dump() {
    let place = Place::with_commands();
    let out = place.out();
    let done =
        run::finish(command(&place, "gzip \"$WIRESCOPE_FILE\"", &["--exec-write", out.to_str().unwrap()]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(names(&out).iter().any(|name| name.ends_with(".pcapng.gz")), "{:?} {}", names(&out), done.stderr);
    // Without it that fails, and the warning says what would help.
    let place = Place::with_commands();
    let done = run::finish(command(&place, "gzip \"$WIRESCOPE_FILE\"", &[]));
    if landlock_abi(&done) > 0 {
        assert!(done.stderr.contains("to folders of --exec-write DIR"), "{}", done.stderr);
        assert!(names(&place.out()).iter().all(|name| !name.ends_with(".gz")), "{:?}", names(&place.out()));
    }
}

#[test]
fn a_command_may_use_the_network_and_has_no_right_of_the_run() {
    let place = Place::with_commands();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The fourth field of stat is the parent; the helper's parent is the keeper, whose parent is the run.
    let script = format!(
        r#"grep -E '^(Cap|NoNewPrivs|Uid|Seccomp:)' /proc/self/status
        p() {{ cut -d' ' -f4 /proc/$1/stat; }}; run=$(p $(p $PPID))
        bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo connected
        tr '\0' ' ' </proc/$run/cmdline | grep -o -- --exec | head -n 1
        kill -0 $run 2>/dev/null && echo signalled
        cat /proc/$run/mem >/dev/null 2>&1 && echo read
        cat /proc/$PPID/environ >/dev/null 2>&1 && echo looked; true"#
    );
    let done = run::finish(command(&place, &script, &[]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let said = said(&place, &done);
    for line in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(said.contains(&format!("{line}:\t0000000000000000\n")), "{said}");
    }
    assert!(
        said.contains("NoNewPrivs:\t1\n") && said.contains("connected\n") && said.contains("--exec\n"),
        "{said}"
    );
    assert!(!said.contains("Uid:\t0"), "{said}");
    assert!(!said.contains("read\n") && !said.contains("looked\n"), "{said}");
    if landlock_abi(&done) >= 6 {
        assert!(!said.contains("signalled"), "{said}");
    }
}

#[test]
fn a_command_finds_a_clean_environment_and_what_is_named() {
    let place = Place::with_commands();
    let mut command = command(
        &place,
        "env | cut -d= -f1 | sort | paste -sd' '; echo $LANG $NAMED",
        &["--exec-env", "NAMED"],
    );
    command
        .env("SECRET", "x")
        .env("NAMED", "given")
        .env("LANG", "C")
        .env("TZ", "UTC")
        .env("WIRESCOPE_RING_FORM", "plain");
    let done = run::finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let said = said(&place, &done);
    let (found, rest) = said.split_once('\n').unwrap();
    let found: Vec<&str> = found.split(' ').filter(|name| !name.starts_with("WIRESCOPE_")).collect();
    // The shell adds PWD, and some OLDPWD, SHLVL and _.
    let own = ["PWD", "OLDPWD", "SHLVL", "_"];
    let found: Vec<&str> = found.into_iter().filter(|name| !own.contains(name)).collect();
    assert_eq!(found, ["HOME", "LANG", "NAMED", "PATH", "TMPDIR", "TZ"]);
    assert_eq!(rest, "C given\n");
    assert!(!said.contains("WIRESCOPE_RING_FORM") && said.contains("WIRESCOPE_FILE"), "{said}");
}

#[test]
fn as_root_commands_are_refused_with_the_chown_that_helps() {
    if !is_root() {
        return;
    }
    let check = |place: &Place, more: &[&str], words: &[&str]| {
        let done = run::finish(command(place, "true", more));
        assert_eq!(done.code(), Some(2), "{}", done.stderr);
        assert!(place.out_names().is_empty());
        for word in words {
            assert!(done.stderr.contains(word), "'{word}' is missing in: {}", done.stderr);
        }
    };
    let place = Place::new();
    let chown_out = format!(" {}", place.out().display());
    check(&place, &[], &["--exec: commands never run as root", "stays root", "chown -R ", &chown_out]);
    check(
        &place,
        &["--user", "root"],
        &["--exec: commands never run as root", "--user root keeps", "chown -R ", &chown_out],
    );
    // The same run without commands goes.
    let mut command = wirescope(&["run", "--out"]);
    command.arg(place.out()).args(TRAFFIC);
    assert_eq!(run::finish(command).code(), Some(0));
    // A folder for commands that their user can't write to.
    let place = Place::with_commands();
    let closed = place.path("closed");
    std::fs::create_dir(&closed).unwrap();
    check(
        &place,
        &["--exec-write", closed.to_str().unwrap()],
        &["--exec-write: nobody can't write to", "chown nobody "],
    );
    assert!(names(&place.path("tmp")).is_empty());
}

/// Processes whose parent is `pid`.
fn children(pid: u32) -> Vec<u32> {
    let parent = |name: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok())
    };
    let all = names(Path::new("/proc")).into_iter().filter(|name| name.parse::<u32>().is_ok());
    all.filter(|name| parent(name) == Some(pid)).filter_map(|name| name.parse().ok()).collect()
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A run without triggers with a command that goes on; the numbers of keeper, helper, shell and its child.
fn running(place: &Place) -> (Started, [u32; 4]) {
    let traffic = ["--source", "synth:rate=1k", "--ring", "64MiB", "--before", "100ms"];
    let script = "trap '' TERM INT; sleep 300 & touch \"$TMPDIR/x\"; wait";
    let started = Started::new(command_on(place, &traffic, script, &["--exec-timeout", "1h"]));
    wait_until("the start", || !events(place, "start").is_empty());
    started.signal(libc::SIGUSR1);
    let line = || {
        let keeper = *children(started.pid()).first()?;
        let helper = *children(keeper).first()?;
        let shell = *children(helper).first()?;
        Some([keeper, helper, shell, *children(shell).iter().find(|pid| lives(**pid))?])
    };
    wait_until("the command", || line().is_some() && names(&place.path("tmp")).len() == 1);
    let line = line().unwrap();
    (started, line)
}

#[test]
fn commands_and_their_temporary_folder_end_with_a_run_that_is_killed() {
    let place = Place::with_commands();
    let (started, line) = running(&place);
    started.signal(libc::SIGKILL);
    wait_until("the end of all", || !line.into_iter().any(lives));
    wait_until("the temporary folder's end", || names(&place.path("tmp")).is_empty());
}

#[test]
fn a_run_whose_helper_is_killed_goes_on_and_says_so() {
    let place = Place::with_commands();
    let (started, [keeper, helper, shell, _]) = running(&place);
    // SAFETY: takes numbers; the process was seen a moment ago, and nobody waits for it but the keeper, which
    // is there.
    unsafe { libc::kill(helper as i32, libc::SIGKILL) };
    wait_until("the news", || !events(&place, "exec").is_empty());
    wait_until("the shell's end", || !lives(shell) && !lives(keeper));
    assert!(names(&place.path("tmp")).is_empty());
    started.signal(libc::SIGUSR1);
    wait_until("the second dump", || events(&place, "exec").len() == 2);
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let gone = "can't be run: the process that runs commands has ended before its time";
    assert!(done.stderr.matches(gone).count() >= 2, "then and later: {}", done.stderr);
}

#[test]
fn signals_for_all_processes_of_a_service_leave_commands_to_the_run() {
    let place = Place::with_commands();
    let (started, [keeper, helper, ..]) = running(&place);
    for pid in [keeper, helper] {
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGUSR1] {
            // SAFETY: takes numbers; both were seen a moment ago, and whoever waits for them is there.
            unsafe { libc::kill(pid as i32, signal) };
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(lives(keeper) && lives(helper) && events(&place, "exec").is_empty());
    drop(started);
}

/// Lets a system call fail as where the kernel doesn't have it.
fn without(call: i64) -> BpfProgram {
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let rules = [(call, Vec::new())].into_iter().collect();
    SeccompFilter::new(rules, SeccompAction::Allow, missing, architecture).unwrap().try_into().unwrap()
}

#[test]
fn without_landlock_that_is_said_and_commands_run_all_the_same() {
    let place = Place::with_commands();
    let mut command = command(&place, "echo went", &[]);
    let filter = without(libc::SYS_landlock_create_ruleset);
    // SAFETY: between fork and exec only system calls are made; the filter was made before.
    unsafe { command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other)) };
    let done = run::finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let line = "; commands: a process of their own, no Landlock in this kernel: they may write wherever this \
        user may";
    assert!(done.stderr.contains(line), "{}", done.stderr);
    assert_eq!(said(&place, &done), "went\n");
}

#[test]
fn the_helper_is_no_command_for_people() {
    let done = run::finish(wirescope(&["exec-helper"]));
    assert_eq!(done.code(), Some(2));
    assert!(done.stderr.contains("is not a command"), "{}", done.stderr);
}
