//! A system's clock that is set while a run goes: a library in front of the C library's stands in for whoever
//! sets it.
//!
//! Needs root and a C compiler; says so and passes without, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, inside};
use run::{LIMIT, Started, skip, wait_until};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `clock_gettime(2)` with the system's clock ahead by so many seconds as stand in a file.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_AHEAD");
    int file = path ? open(path, O_RDONLY) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) ahead = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, time);
    if (!failed && clock == CLOCK_REALTIME && ahead) time->tv_sec += *ahead;
    return failed;
}
"#;

/// Compiles it; `None`, and a word about it, where there is no compiler.
fn shim(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    match Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status()
    {
        Ok(status) => {
            assert!(status.success(), "the C compiler refuses the shim");
            Some(library)
        }
        Err(error) => {
            skip(&format!("needs a C compiler: {error}"));
            None
        }
    }
}

fn next(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = [0; 4096];
    let len = manager.recv(&mut bytes).expect("a message in time");
    String::from_utf8(bytes[..len].to_vec()).expect("text")
}

#[test]
fn a_clock_set_back_by_minutes_is_told_and_doesn_t_withhold_the_sign_of_life() {
    let Some(live) = Live::or_skip() else { return };
    let Some(library) = shim(live.place.root()) else { return };
    let ahead = live.place.path("ahead");
    let set = |seconds: i64| std::fs::write(&ahead, seconds.to_ne_bytes()).unwrap();
    set(0);
    let socket = live.place.path("socket");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let run = ["--source", "afpacket:vb", "--trigger", "hit=udp port 60000"];
    let mut command = inside(live.lab.b(), &live.place.command(&run));
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "5000000");
    command.env("LD_PRELOAD", &library).env("CLOCK_AHEAD", &ahead);
    let started = Started::new(command);
    assert_eq!(next(&manager), "READY=1");
    let signs = |count: usize| {
        let said =
            std::iter::repeat_with(|| next(&manager)).take(20).filter(|said| said.ends_with("\nWATCHDOG=1"));
        assert_eq!(said.take(count).count(), count);
    };
    signs(2);
    let page = std::fs::OpenOptions::new().write(true).open(&ahead).unwrap();
    let set =
        |seconds: i64| std::os::unix::fs::FileExt::write_all_at(&page, &seconds.to_ne_bytes(), 0).unwrap();
    set(-300);
    // A busy machine may keep a worker from its signs now and then; a clock that is minutes ahead would do so
    // each time.
    signs(5);
    let log = live.place.out().join("wirescope.jsonl");
    let text = || std::fs::read_to_string(&log).unwrap();
    wait_until("the step in the log", || text().contains("\"clock_step\""));
    set(0);
    wait_until("the step forward", || text().matches("\"event\":\"clock_step\"").count() == 2);
    assert!(next(&manager).starts_with("STATUS="));
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    let summary: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(summary["set_back"], 1, "{}", done.stderr);
    assert!(done.stderr.contains("was set back by 300.0"), "{}", done.stderr);
}
