//! What a reader is told of a file or folder that it isn't let into: which, why, and whose rights help.

use scope_fault::Fault;
use scope_spelling::printable::shell_word;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An error of reading `path`, as a fault of that path.
pub fn unread(path: &Path, error: &io::Error) -> Fault {
    let fault = Fault::of_thing(path.to_string_lossy()).error(error);
    match error.kind() {
        io::ErrorKind::PermissionDenied => fault.remedy(rights(path)),
        _ => fault,
    }
}

/// Whose rights open `path`: those of its owner, or of the nearest folder above it that can be seen. Where not even
/// its owner may read it, what changes that.
fn rights(path: &Path) -> String {
    if let Ok(facts) = path.metadata() {
        let (needs, words) = if facts.is_dir() { (0o500, "u+rx") } else { (0o400, "u+r") };
        if facts.mode() & needs != needs {
            return format!("its owner allows it: chmod {words} {}", shell_word(path));
        }
    }
    let seen = path.ancestors().find_map(|above| above.metadata().ok());
    match seen.map_or(0, |facts| facts.uid()) {
        0 => "use the rights of root".to_string(),
        user => format!("use the rights of user {user}, or of root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_is_not_let_in_is_told_whose_rights_help() {
        let folder = tempfile::tempdir().unwrap();
        let said = |path: &Path| unread(path, &io::Error::from(io::ErrorKind::PermissionDenied)).to_string();
        let whose = match folder.path().metadata().unwrap().uid() {
            0 => "use the rights of root".to_string(),
            user => format!("use the rights of user {user}, or of root"),
        };
        for path in [folder.path().to_path_buf(), folder.path().join("unseen/below")] {
            assert_eq!(said(&path), format!("{}: permission denied; {whose}", path.display()));
        }
        let (closed, folder_closed) = (folder.path().join("closed"), folder.path().join("folder"));
        std::fs::write(&closed, "").unwrap();
        std::fs::create_dir(&folder_closed).unwrap();
        for path in [&closed, &folder_closed] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).unwrap();
        }
        assert!(said(&closed).ends_with(&format!("; its owner allows it: chmod u+r {}", closed.display())));
        assert!(said(&folder_closed).contains("; its owner allows it: chmod u+rx "));
        let gone = unread(folder.path(), &io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(gone.remedy, None);
    }
}
