//! Whether a program can be started with a library before libpcap: found, looked into, refused where it would go unheard.

use super::confined::profile_of;
use super::elf::{self, Elf};
use crate::speech::{Level, say};
use scope_fault::Fault;
use std::collections::BTreeSet;
use std::env;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The library that is stood in for.
const LIBPCAP: &str = "libpcap.so";
/// Where the loader looks for libraries, besides what a program says of it.
const FOLDERS: [&str; 5] = ["/lib", "/usr/lib", "/usr/local/lib", "/lib64", "/usr/lib64"];
/// Folders of one machine's libraries in them.
const OF_MACHINE: &str = "-linux-gnu";
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// Where the rights of a file stand.
const RIGHTS: &std::ffi::CStr = c"security.capability";
/// Bytes of a program or a library that are looked at.
const BYTES_MAX: u64 = 1 << 30;

/// A program that is there.
pub struct Program {
    path: PathBuf,
    mode: u32,
    elf: Option<Elf>,
}

/// Finds a program as a shell does.
///
/// # Errors
/// There is none.
pub fn in_path(name: &OsStr) -> Result<PathBuf, Fault> {
    let is_program =
        |path: &Path| path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
    let fault = || Fault::of_thing(name.to_string_lossy());
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match (is_program(&path), path.exists()) {
            (true, _) => Ok(path),
            (_, true) => {
                Err(fault().cause("it is no program: a folder, or not executable").remedy("name one"))
            }
            (_, false) => Err(fault().cause("there is no such program").remedy("name one")),
        };
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let found = env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path));
    found.ok_or_else(|| fault().cause("there is no such program").remedy("install it, or name its path"))
}

/// What stands in a file of bounded length.
fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    path.metadata().ok().filter(|it| it.len() <= BYTES_MAX)?;
    fs::read(path).ok()
}

impl Program {
    /// Looks at it.
    ///
    /// # Errors
    /// It can't be looked at.
    pub fn read(path: &Path) -> Result<Program, Fault> {
        let fault = |error: std::io::Error| Fault::of_thing(path.to_string_lossy()).error(&error);
        let path = path.canonicalize().map_err(fault)?;
        let mode = path.metadata().map_err(fault)?.permissions().mode();
        // A program may be one that can be executed, and not read.
        let elf = bytes_of(&path).and_then(|bytes| elf::read(&bytes));
        Ok(Program { path, mode, elf })
    }

    /// Whether the library would be loaded into it, and be called.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&self, library: &Path) -> Result<(), Fault> {
        let no = |cause: String| Err(Fault::of_thing(self.path.to_string_lossy()).cause(cause));
        if self.mode & (SETUID | SETGID) != 0 {
            return no("it is setuid or setgid: the loader loads no library of others into it".to_string());
        }
        if self.has_rights() {
            return no("its file has capabilities: the loader loads no library of others into it".to_string());
        }
        if let Some(profile) = profile_of(&self.path) {
            return no(format!(
                "AppArmor keeps it to the profile {profile}, in which it can't reach the run"
            ));
        }
        let Some(elf) = &self.elf else {
            let path = self.path.display();
            say(Level::Warning, &format!("wirescope: {path}: it can't be seen whether it links libpcap"));
            return Ok(());
        };
        let of_library = bytes_of(library).and_then(|bytes| elf::read(&bytes)).map(|elf| elf.machine);
        if of_library.is_some_and(|machine| machine != elf.machine) {
            return no("it is built for another kind of machine than the library".to_string());
        }
        if !elf.has_loader {
            return no(
                "it is statically linked: there is no loader, and no libpcap of its own to stand in for"
                    .to_string(),
            );
        }
        match self.links_libpcap(elf) {
            Links::Yes => Ok(()),
            Links::No => no("it doesn't link libpcap".to_string()),
            Links::Unknown(library) => {
                let path = self.path.display();
                let words =
                    format!("{path}: it can't be seen whether it links libpcap: {library} isn't found");
                say(Level::Warning, &format!("wirescope: {words}"));
                Ok(())
            }
        }
    }

    fn has_rights(&self) -> bool {
        let Ok(path) = CString::new(self.path.as_os_str().as_bytes()) else { return false };
        // SAFETY: two texts that end with a NUL, and no place for the value, of which only the length is asked for.
        unsafe { libc::getxattr(path.as_ptr(), RIGHTS.as_ptr(), std::ptr::null_mut(), 0) > 0 }
    }

    /// Whether it needs libpcap, itself or by a library that it needs.
    fn links_libpcap(&self, elf: &Elf) -> Links {
        let origin = self.path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let mut folders: Vec<PathBuf> =
            env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths).collect();
        folders.extend(
            elf.folders.iter().map(|folder| {
                PathBuf::from(folder.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin))
            }),
        );
        folders.extend(standard_folders());
        let mut to_see = elf.needed.clone();
        let (mut seen, mut lacking) = (BTreeSet::new(), None);
        while let Some(name) = to_see.pop() {
            if name.starts_with(LIBPCAP) {
                return Links::Yes;
            }
            if !seen.insert(name.clone()) {
                continue;
            }
            let found = folders.iter().map(|folder| folder.join(&name)).find(|path| path.is_file());
            match found.and_then(|path| bytes_of(&path)).and_then(|bytes| elf::read(&bytes)) {
                Some(library) => to_see.extend(library.needed),
                None => lacking = Some(name),
            }
        }
        lacking.map_or(Links::No, Links::Unknown)
    }
}

/// What is known of a program's libraries.
enum Links {
    Yes,
    No,
    /// This library isn't found, which may need it.
    Unknown(String),
}

/// Where libraries lie on this machine.
fn standard_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in FOLDERS {
        let inner = fs::read_dir(folder).into_iter().flatten().flatten();
        folders.extend(
            inner
                .filter(|inner| inner.file_name().to_string_lossy().contains(OF_MACHINE))
                .map(|inner| inner.path())
                .filter(|path| path.is_dir()),
        );
        folders.push(PathBuf::from(folder));
    }
    folders
}
