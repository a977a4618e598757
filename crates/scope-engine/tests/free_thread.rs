//! A thread that is free of restrictions runs commands after all others can't: in a process of its own, since there is no way back.

use scope_engine::rights::{self, RightsPlan, UserChoice, spawn_free};
use scope_store::Folder;
use std::ffi::OsStr;
use std::io;
use std::process::Command;
use std::sync::mpsc::channel;

fn exec(script: &str) -> io::Result<String> {
    let output = Command::new("/bin/sh").args(["-c", script]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

#[test]
fn only_a_free_thread_runs_commands_and_these_have_no_rights_either() {
    let path = tempfile::tempdir().unwrap().keep();
    let folder = Folder::open(&path).unwrap();
    let (order, orders) = channel::<String>();
    let (result, results) = channel();
    let free = spawn_free("exec", move || orders.iter().for_each(|script| result.send(exec(&script)).unwrap())).unwrap();
    let plan = RightsPlan { user: UserChoice::Best, readable: Vec::new(), selftest: false };
    let writable = [(&folder, OsStr::new("log"))];
    let decision = rights::decide(&plan, &writable).unwrap();
    let rights = rights::give_up(decision, &writable).unwrap();
    assert!(rights.to_string().contains(", no capabilities"), "{rights}");
    let run = |script: String| {
        order.send(script).unwrap();
        results.recv().unwrap()
    };
    let status = run("cat /proc/self/status".to_string()).unwrap();
    let removed = run(format!("rmdir '{}' && echo gone", path.display())).unwrap();
    if rights.seccomp {
        assert_eq!(exec("true").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let later = std::thread::spawn(|| exec("true").unwrap_err().kind()).join().unwrap();
        assert_eq!(later, io::ErrorKind::PermissionDenied);
    }
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t0"] {
        assert!(status.lines().any(|found| found == line), "{line}: {status}");
    }
    assert_eq!(removed, "gone");
    drop(order);
    free.join().unwrap();
}
