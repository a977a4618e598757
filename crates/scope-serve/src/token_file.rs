//! The file of tokens: 0600, read whole, and replaced by one act, so that who reads it sees all of a change or none.
//!
//! Who can write it lets anybody in, and who can read it can try tokens in peace. So a door looks at the rights of the file
//! that it has open, each time, and before it believes a byte of it; where the path ends in a link, those are of its target.

use crate::tokens::{FILE_BYTES_MAX, Tokens, TokensError};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, fstat};
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::printable::shell_word;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mode of the file.
const MODE: u32 = 0o600;
/// What group and others must not have: reading and writing.
const OF_OTHERS: u32 = 0o066;
/// Who may do everything anyhow.
const ROOT: u32 = 0;

/// A file of tokens.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    folder: Folder,
    name: OsString,
}

impl TokenFile {
    /// At this path; it needn't be there.
    ///
    /// # Errors
    /// Its folder isn't there.
    pub fn at(path: &Path) -> Result<TokenFile, Fault> {
        let fault = || Fault::of("tokens").with_value(path.to_string_lossy());
        let Some(name) = path.file_name() else {
            return Err(fault().cause("it is no path of a file").remedy("write e.g. /etc/wirescope/tokens"));
        };
        let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
        let folder = Folder::open(above).map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return fault().error(&error);
            }
            let cause = format!("there is no folder {}", above.display());
            fault().cause(cause).remedy(format!("make it: install -d -m 700 {}", shell_word(above)))
        })?;
        Ok(TokenFile { path: path.to_path_buf(), folder, name: name.to_os_string() })
    }

    fn fault(&self) -> Fault {
        Fault::of("tokens").with_value(self.path.to_string_lossy())
    }

    fn of_tokens(&self, error: &TokensError) -> Fault {
        let remedy = match error {
            TokensError::Exists(_) => "choose another name, or revoke that one: wirescope token revoke NAME",
            TokensError::Certified(_) => "revoke that one first: wirescope token revoke NAME",
            TokensError::None(_) => "see those that there are: wirescope token list",
            TokensError::Full => "revoke some: wirescope token revoke NAME",
            TokensError::Form(_) => "name a file that wirescope token add has made",
            TokensError::Random => "try again",
        };
        self.fault().cause(error.to_string()).remedy(remedy)
    }

    /// What is in it; `None`: it isn't there.
    ///
    /// # Errors
    /// It can't be read, or is no file of tokens.
    pub fn read(&self) -> Result<Option<Tokens>, Fault> {
        let file = self.folder.existing(&self.name, false).map_err(|error| self.fault().error(&error))?;
        let Some(mut file) = file else { return Ok(None) };
        read(&mut file).map(Some).map_err(|error| match error {
            ReadError::System(error) => self.fault().error(&error),
            ReadError::Rights(bad) => self.fault().cause(bad.to_string()),
            ReadError::Tokens(error) => self.of_tokens(&error),
        })
    }

    /// Changes it, or makes it. Others who change it wait for each other.
    ///
    /// # Errors
    /// It can't be read or written, or the change is refused: then it is as it was.
    pub fn change<T>(&self, change: impl FnOnce(&mut Tokens) -> Result<T, TokensError>) -> Result<T, Fault> {
        let of_system = |error: io::Error| self.fault().error(&error);
        let lock = File::open(self.folder.path()).and_then(|folder| folder.lock().map(|()| folder));
        let _lock = lock.map_err(of_system)?;
        let existing = self.folder.existing(&self.name, false).map_err(of_system)?;
        let mut tokens = match self.read()? {
            Some(tokens) => tokens,
            None => Tokens::new().map_err(|error| self.of_tokens(&error))?,
        };
        // What others may have written must not become good by the new file's mode.
        if let Some(existing) = &existing {
            let rights = closed(&existing.metadata().map_err(of_system)?);
            rights.map_err(|bad| {
                self.fault().cause(bad.to_string()).remedy(bad.remedy(&shell_word(&self.path)))
            })?;
        }
        let done = change(&mut tokens).map_err(|error| self.of_tokens(&error))?;
        self.replace(&tokens, existing.as_ref()).map_err(of_system)?;
        Ok(done)
    }

    /// The new file belongs to whoever the old one belonged to.
    fn replace(&self, tokens: &Tokens, existing: Option<&File>) -> io::Result<()> {
        let mut draft = self.folder.draft_over(&self.name)?;
        let file = draft.file();
        fchmod(&*file, Mode::from_raw_mode(MODE))?;
        if let Some(existing) = existing {
            let (old, new) = (fstat(existing)?, fstat(&*file)?);
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid) {
                fchown(&*file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
            }
        }
        file.write_all(&tokens.write())?;
        file.sync_all()?;
        draft.replace()
    }
}

/// Why a file of tokens isn't believed: who else has a hand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRights {
    /// Others than its owner may read or write it.
    #[error("others than its owner may read or write it: its mode is {0:04o}")]
    Mode(u32),
    /// It belongs to somebody else.
    #[error("it belongs to user {0}, who is neither root nor who this door is")]
    Owner(u32),
    /// It is a folder, a pipe or a device.
    #[error("it is no file")]
    NoFile,
}

impl BadRights {
    /// What helps, for the file that is called so.
    pub fn remedy(self, file: &str) -> String {
        match self {
            BadRights::Mode(_) => format!("look through it, and close it: chmod 600 {file}"),
            BadRights::Owner(_) => {
                format!("look through it, and take it over: chown root {file} && chmod 600 {file}")
            }
            BadRights::NoFile => "name a file that wirescope token add has made".to_string(),
        }
    }
}

/// Whether only its owner may read and write it.
fn closed(facts: &Metadata) -> Result<(), BadRights> {
    match facts.mode() & 0o7777 {
        _ if !facts.is_file() => Err(BadRights::NoFile),
        mode if mode & OF_OTHERS != 0 => Err(BadRights::Mode(mode)),
        _ => Ok(()),
    }
}

/// Whether nobody but root and these users has a hand in it.
///
/// # Errors
/// Who else has.
pub(crate) fn check_rights(facts: &Metadata, owners: &[u32]) -> Result<(), BadRights> {
    closed(facts)?;
    match facts.uid() {
        ROOT => Ok(()),
        uid if owners.contains(&uid) => Ok(()),
        uid => Err(BadRights::Owner(uid)),
    }
}

/// Why an open file of tokens isn't read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// Who else has a hand in it.
    #[error(transparent)]
    Rights(#[from] BadRights),
    /// The system's.
    #[error(transparent)]
    System(#[from] io::Error),
    /// What is in it.
    #[error(transparent)]
    Tokens(#[from] TokensError),
}

/// Reads an open file of tokens.
pub(crate) fn read(file: &mut File) -> Result<Tokens, ReadError> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TokensError::Form(format!("it has more than {FILE_BYTES_MAX} bytes")).into());
    }
    Ok(Tokens::read(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::NewToken;
    use scope_api::Role;
    use std::os::unix::fs::PermissionsExt;

    fn new(name: &str) -> NewToken {
        NewToken {
            name: name.to_string(),
            role: Role::Viewer,
            expires_ns: None,
            filter: None,
            instance: None,
        }
    }

    #[test]
    fn a_file_is_closed_to_others_and_who_has_it_open_sees_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let file = TokenFile::at(&path).unwrap();
        assert!(file.read().unwrap().is_none());
        let said = file.change(|tokens| tokens.add(new("one"), 1)).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        let mut old = File::open(&path).unwrap();
        file.change(|tokens| tokens.revoke("one")).unwrap();
        assert!(read(&mut old).unwrap().find(&said, 2).is_some());
        assert!(file.read().unwrap().unwrap().find(&said, 2).is_none());
        let refused = file.change(|tokens| tokens.revoke("one")).unwrap_err().to_string();
        assert!(refused.contains("there is no token 'one'"), "{refused}");
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn what_is_no_file_of_tokens_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "mine").unwrap();
        let refused = TokenFile::at(&path).unwrap().change(|tokens| tokens.add(new("one"), 1)).unwrap_err();
        assert!(refused.to_string().contains("it is no file of tokens"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let missing = TokenFile::at(&folder.path().join("none/tokens")).unwrap_err().to_string();
        let none = folder.path().join("none");
        assert!(missing.contains(&format!("there is no folder {}", none.display())), "{missing}");
        assert!(missing.contains(&format!("install -d -m 700 {}", none.display())), "{missing}");
    }

    #[test]
    fn a_file_that_others_have_a_hand_in_is_not_believed_and_no_change_makes_it_good() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let file = TokenFile::at(&path).unwrap();
        file.change(|tokens| tokens.add(new("one"), 1)).unwrap();
        let own = path.metadata().unwrap().uid();
        let check = |mode: u32, owners: &[u32]| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            check_rights(&path.metadata().unwrap(), owners)
        };
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(check(mode, &[own]), Ok(()), "{mode:o}");
        }
        for mode in [0o666, 0o644, 0o640, 0o620, 0o604, 0o602] {
            assert_eq!(check(mode, &[own]), Err(BadRights::Mode(mode)), "{mode:o}");
            let refused = file.change(|tokens| tokens.add(new("two"), 1)).unwrap_err().to_string();
            assert!(refused.contains(&format!("chmod 600 {}", path.display())), "{refused}");
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, mode);
        }
        assert_eq!(check_rights(&folder.path().metadata().unwrap(), &[own]), Err(BadRights::NoFile));
        if own == ROOT {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        }
        let (uid, other) = (path.metadata().unwrap().uid(), 54_321);
        assert_eq!(check(0o600, &[other]), Err(BadRights::Owner(uid)));
        assert_eq!(check(0o600, &[other, uid]), Ok(()));
    }
}
