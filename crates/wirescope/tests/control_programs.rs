//! The page for programs is true: its program fires, waits, and reads the dump.

mod run;

use run::asking::Running;
use run::{finish, skip, wait_until};
use std::path::Path;
use std::process::Command;

/// Debian's: what it has installed another one doesn't find.
const PYTHON: &str = "/usr/bin/python3";
const LINES_MAX: usize = 15;

#[test]
fn fifteen_lines_of_python_fire_wait_and_read_the_dump() {
    let has_scapy = Command::new(PYTHON).args(["-c", "import scapy"]).status();
    if !has_scapy.is_ok_and(|status| status.success()) {
        return skip("no scapy here");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/programs.md");
    let page = std::fs::read_to_string(page).unwrap();
    let program = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines = program.lines().filter(|line| !line.is_empty()).count();
    assert!(lines <= LINES_MAX, "{lines} lines");
    let running = Running::new(&[]);
    wait_until("packets", || running.get("status").body["stored"]["packets"].as_u64() > Some(100));
    std::fs::write(running.place.path("program.py"), program).unwrap();
    let mut command = Command::new(PYTHON);
    command.arg("program.py").arg(running.socket());
    command.current_dir(running.place.root()).env("HOME", running.place.root());
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let dump = running.get("dumps").body["dumps"].as_array().unwrap().last().unwrap().clone();
    assert!(dump["packets"].as_u64() > Some(0), "{dump}");
    assert_eq!(done.stdout.lines().count() as u64, dump["packets"].as_u64().unwrap(), "{}", done.stdout);
    assert!(done.stdout.lines().all(|line| line.contains("UDP")), "{}", done.stdout);
    running.end();
}
