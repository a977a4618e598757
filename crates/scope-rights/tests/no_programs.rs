//! No thread starts a program once rights are given up, whenever it began: in a process of its own, since
//! there is no way back.

use scope_folder::Folder;
use scope_rights::{FolderUse, RightsPlan, UserChoice, Writable};
use std::ffi::OsStr;
use std::io;
use std::process::Command;
use std::sync::mpsc::channel;

fn exec() -> io::Result<()> {
    Command::new("/bin/sh").args(["-c", "true"]).output().map(drop)
}

#[test]
fn no_thread_starts_a_program_be_it_begun_before_or_after() {
    let path = tempfile::tempdir().unwrap();
    let folder = Folder::open(path.path()).unwrap();
    let (go, is_told) = channel::<()>();
    let before = std::thread::spawn(move || {
        is_told.recv().unwrap();
        exec().map_err(|error| error.kind())
    });
    let plan = RightsPlan { user: UserChoice::Best, selftest: false };
    let writable = [Writable { folder: &folder, file: OsStr::new("log"), folder_use: FolderUse::Own }];
    let decision = scope_rights::decide(&plan, &writable).unwrap();
    let rights = scope_rights::give_up(decision, &writable).unwrap();
    assert!(rights.to_string().contains(", no capabilities"), "{rights}");
    go.send(()).unwrap();
    if rights.seccomp {
        let denied = Err(io::ErrorKind::PermissionDenied);
        assert_eq!(exec().map_err(|error| error.kind()), denied);
        assert_eq!(before.join().unwrap(), denied);
        assert_eq!(std::thread::spawn(exec).join().unwrap().map_err(|error| error.kind()), denied);
    }
}
