//! The file of tokens: 0600, read whole, and replaced by one act, so that who reads it sees all of a change or none.

use crate::tokens::{FILE_BYTES_MAX, Tokens, TokensError};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, fstat};
use scope_fault::Fault;
use scope_folder::Folder;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The mode of the file.
const MODE: u32 = 0o600;

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
        let folder = Folder::open(above).map_err(|error| fault().error(&error))?;
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

/// Why an open file of tokens isn't read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
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
        assert!(TokenFile::at(&folder.path().join("none/tokens")).is_err());
    }
}
