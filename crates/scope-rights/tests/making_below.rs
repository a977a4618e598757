//! Who reads, and makes files and folders below one folder; in a process of its own, since there is no way back.

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
fn who_makes_files_below_a_folder_replaces_what_is_there_and_reaches_nothing_beside_it() {
    // The folder stays, since it can't be removed any more: it is one among what was built.
    let at = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join("making_below").join(name);
    let _ = fs::remove_dir_all(at(""));
    fs::create_dir_all(at("out/below")).unwrap();
    for name in ["store", "beside", "out/there", "out/below/there"] {
        fs::write(at(name), name).unwrap();
    }
    let folder = Folder::open(&at("out")).unwrap();
    let rights = scope_rights::keep_to_reading_and_making_below(&[&at("store")], &folder).unwrap();
    assert_eq!(fs::read(at("store")).unwrap(), b"store");
    let replace = |folder: &Folder, name: &str| {
        let mut draft = folder.draft_over(OsStr::new(name))?;
        draft.file().write_all(b"made")?;
        draft.file().sync_data()?;
        draft.replace()
    };
    let deep = folder.make_below(OsStr::new("a")).unwrap().make_below(OsStr::new("b")).unwrap();
    replace(&deep, "new").unwrap();
    replace(&deep, "new").unwrap();
    replace(&folder, "there").unwrap();
    assert_eq!(fs::read(at("out/a/b/new")).unwrap(), b"made");
    assert_eq!(fs::read(at("out/there")).unwrap(), b"made");
    assert_eq!(fs::read_dir(at("out/a/b")).unwrap().count(), 1);
    if rights.seccomp {
        for name in ["out/there", "out/below/there", "beside"] {
            assert!(refused(OpenOptions::new().write(true).open(at(name))), "{name}");
            assert!(refused(File::create(at(name))), "{name}");
        }
        assert!(refused(Command::new("/bin/true").output()));
    }
    if rights.landlock_abi > 0 {
        assert!(refused(fs::read(at("beside"))));
        let beside = Folder::open(&at("")).unwrap();
        assert!(replace(&beside, "x").is_err() && beside.make_below(OsStr::new("x")).is_err());
        assert!(beside.remove(OsStr::new("beside")).is_err());
    }
}
