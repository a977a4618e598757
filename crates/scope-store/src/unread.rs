//! What a reader is told of a file or folder that it isn't let into: which, why, and whose rights help.

use scope_fault::Fault;
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

/// Whose rights open `path`: those of its owner, or of the nearest folder above it that can be seen.
fn rights(path: &Path) -> String {
    let seen = path.ancestors().find_map(|above| above.metadata().ok());
    match seen.map_or(0, |facts| facts.uid()) {
        0 => "use the rights of root".to_string(),
        user => format!("use the rights of user {user}, or of root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let gone = unread(folder.path(), &io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(gone.remedy, None);
    }
}
