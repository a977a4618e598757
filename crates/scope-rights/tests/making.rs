//! Who reads, and makes files: what is there stays as it is; in a process of its own, since there is no way back.

use scope_folder::Folder;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::Command;

fn refused<T>(result: io::Result<T>) -> bool {
    result.err().is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn who_makes_files_changes_and_removes_none_that_is_there() {
    // The folder stays, since nothing can be removed any more: it is one among what was built.
    let at = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join("making").join(name);
    let _ = fs::remove_dir_all(at(""));
    fs::create_dir_all(at("out/below")).unwrap();
    for name in ["store", "beside", "out/there", "out/below/there"] {
        fs::write(at(name), name).unwrap();
    }
    let folder = Folder::open(&at("out")).unwrap();
    let rights = scope_rights::keep_to_reading_and_making(&[&at("store")], &folder).unwrap();
    assert_eq!(fs::read(at("store")).unwrap(), b"store");
    let make = |name: &str| {
        let mut draft = folder.draft(OsStr::new(name))?;
        draft.file().write_all(b"made")?;
        draft.publish()
    };
    make("new").unwrap();
    assert_eq!(fs::read(at("out/new")).unwrap(), b"made");
    assert_eq!(make("there").unwrap_err().kind(), ErrorKind::AlreadyExists);
    if rights.seccomp {
        for name in ["out/there", "out/new", "out/below/there", "beside"] {
            assert!(refused(OpenOptions::new().write(true).open(at(name))), "{name}");
            assert!(refused(OpenOptions::new().append(true).open(at(name))), "{name}");
            assert!(refused(File::create(at(name))), "{name}");
        }
        assert!(refused(Command::new("/bin/true").output()) && refused(fs::create_dir(at("out/other"))));
    }
    let removes = !folder.makes_unnamed();
    if rights.seccomp || rights.landlock_abi > 0 {
        for name in ["out/there", "out/below/there"].into_iter().filter(|_| !removes) {
            assert!(refused(fs::remove_file(at(name))), "{name}");
            assert!(refused(fs::rename(at(name), at("out/moved"))), "{name}");
        }
        assert!(refused(fs::remove_file(at("beside"))) && refused(fs::rename(at("store"), at("out/store"))));
    }
    if rights.landlock_abi > 0 {
        assert!(refused(fs::read(at("beside"))));
        let beside = Folder::open(&at(""));
        assert!(beside.and_then(|folder| folder.draft(OsStr::new("x"))?.publish()).is_err());
    }
}
