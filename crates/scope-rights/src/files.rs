//! Landlock: what of the file system stays within reach. Everything that is open already stays open.
//!
//! A rule names a file or a folder itself, never the folder above it. Two rights are given above: to give a new
//! file its name in the folder of `-w FILE` or `--ring-out FILE`, by which nothing there can be read, written
//! or removed; and to remove a name in the folder of the control socket, as far as the run's user may.

use super::{FolderUse, Writable, checked};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};
use scope_folder::Folder;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// What stays readable for a run: the kernel's figures, settings of names and services that filters are
/// compiled with, libraries.
const READABLE: [&str; 6] = ["/proc", "/sys", "/etc", "/usr", "/lib", "/lib64"];
/// Programs, and what they are made of: what commands may read and execute.
const PROGRAMS: [&str; 11] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc",
    "/nix/store",
    "/gnu/store",
];
/// What else of the system commands may read: the kernel's figures, and what resolving names needs.
const SYSTEM: [&str; 6] =
    ["/proc", "/sys", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/nscd"];
/// Devices that hold nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// The newest interface whose rights of files and ports are known here; what an older kernel lacks is
/// omitted.
const KNOWN: ABI = ABI::V5;
/// For commands also: they signal no process but their own kind.
const KNOWN_OF_COMMANDS: ABI = ABI::V6;
/// Asks for the version instead of making rules.
const VERSION: libc::c_uint = 1;

/// How a command that reads makes files, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Making {
    /// Without a name, which they get when they are whole.
    Unnamed,
    /// Under other names, which are changed or removed.
    Renamed,
    /// The same, also in folders below, which are made.
    Below,
}

/// Rules for each thread of a run.
pub struct FileRules {
    abi: i32,
    ruleset: Option<OwnedFd>,
}

impl FileRules {
    /// Files may be made, written and removed in folders that are the run's, and get names in the others;
    /// read in [`READABLE`]. No TCP.
    pub fn new(writable: &[Writable<'_>]) -> io::Result<FileRules> {
        let abi = in_force(KNOWN);
        if abi == 0 {
            return Ok(FileRules { abi, ruleset: None });
        }
        let rules = rules(writable).map_err(io::Error::other)?;
        Ok(FileRules { abi, ruleset: rules.into() })
    }

    /// Nothing may be done but to read `paths`, folders with all that is in them, and to make files in the folder
    /// `makes`. No TCP.
    pub fn reading(paths: &[&Path], makes: Option<(&Folder, Making)>) -> io::Result<FileRules> {
        let abi = in_force(KNOWN);
        if abi == 0 {
            return Ok(FileRules { abi, ruleset: None });
        }
        let rules = reading(paths, makes).map_err(io::Error::other)?;
        Ok(FileRules { abi, ruleset: rules.into() })
    }

    /// Nothing may be opened, made or removed. No TCP socket may be bound or connected; those that listen go on. Where the
    /// kernel knows that, no socket without a name in the file system is reached.
    pub fn nothing() -> io::Result<FileRules> {
        let abi = in_force(KNOWN);
        if abi == 0 {
            return Ok(FileRules { abi, ruleset: None });
        }
        let rules = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(KNOWN)))
            .and_then(|rules| rules.scope(Scope::AbstractUnixSocket))
            .and_then(Ruleset::create);
        Ok(FileRules { abi, ruleset: rules.map_err(io::Error::other)?.into() })
    }

    /// Version of the interface that is in force: what the kernel has and is known here; 0: none.
    pub fn abi(&self) -> i32 {
        self.abi
    }

    /// For [`restrict_thread`].
    pub fn ruleset(&self) -> Option<RawFd> {
        self.ruleset.as_ref().map(AsRawFd::as_raw_fd)
    }
}

fn rules(writable: &[Writable<'_>]) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .create()?;
    for Writable { folder, folder_use, .. } in writable {
        let rights = match folder_use {
            FolderUse::Own => write,
            FolderUse::OwnWithFolders => write | AccessFs::MakeDir | AccessFs::RemoveDir,
            FolderUse::NewName if folder.makes_unnamed() => AccessFs::MakeReg.into(),
            FolderUse::TakesAway => AccessFs::RemoveFile.into(),
            // There a file has another name until it is whole.
            FolderUse::NewName => AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::RemoveFile,
        };
        rules = rules.add_rule(PathBeneath::new(folder, rights))?;
    }
    for path in READABLE {
        rules = add(rules, Path::new(path), read)?;
    }
    Ok(rules)
}

fn reading(paths: &[&Path], makes: Option<(&Folder, Making)>) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .create()?;
    for path in paths {
        rules = add(rules, path, AccessFs::ReadFile | AccessFs::ReadDir)?;
    }
    if let Some((folder, making)) = makes {
        // A new file is opened for both; the folder itself, to wait for its names. That no file which is there is
        // opened for writing the list of system calls says.
        let make = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::MakeReg;
        let rights = match making {
            Making::Unnamed => make,
            Making::Renamed => make | AccessFs::RemoveFile,
            Making::Below => make | AccessFs::RemoveFile | AccessFs::MakeDir,
        };
        rules = rules.add_rule(PathBeneath::new(folder, rights))?;
    }
    Ok(rules)
}

/// Whether a run reads everything below here anyhow, as far as its user may.
pub fn is_readable(path: &Path) -> bool {
    READABLE.iter().any(|folder| path.starts_with(folder))
}

/// A rule for `path`, if that is there: what isn't needn't be read. Of a file, folders' rights mean nothing.
fn add(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(handle) => rules.add_rule(PathBeneath::new(&handle, rights_for(&handle, rights))),
        Err(_) => Ok(rules),
    }
}

/// Those of `rights` that a file can have, where `handle` is one.
fn rights_for(handle: &impl AsFd, rights: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    let is_folder = rustix::fs::fstat(handle).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory
    });
    if is_folder { rights } else { rights & AccessFs::from_file(KNOWN) }
}

/// Rules for commands, put together while everything can still be opened, and taken on by a process with one
/// thread.
pub struct CommandRules(Option<RulesetCreated>);

impl CommandRules {
    /// Nothing is allowed but the network.
    ///
    /// # Errors
    /// The kernel has Landlock and makes no rules.
    pub fn new() -> io::Result<CommandRules> {
        if in_force(KNOWN_OF_COMMANDS) == 0 {
            return Ok(CommandRules(None));
        }
        let rules = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN_OF_COMMANDS))
            .and_then(|rules| rules.scope(Scope::Signal))
            .and_then(Ruleset::create);
        Ok(CommandRules(Some(rules.map_err(io::Error::other)?)))
    }

    /// Allows what every command needs of the system: programs to execute, files to read, devices that hold
    /// nothing.
    ///
    /// # Errors
    /// As [`CommandRules::new`].
    pub fn system(&mut self) -> io::Result<()> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        for path in PROGRAMS {
            self.add(Path::new(path), read | AccessFs::Execute)?;
        }
        for path in SYSTEM {
            self.add(Path::new(path), read)?;
        }
        for path in DEVICES {
            self.add(Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?;
        }
        Ok(())
    }

    /// Allows files in `folder` to be read, and to be listed where `listed`.
    ///
    /// # Errors
    /// The folder can't be opened.
    pub fn read(&mut self, folder: &Path, listed: bool) -> io::Result<()> {
        let rights = if listed { AccessFs::ReadFile | AccessFs::ReadDir } else { AccessFs::ReadFile.into() };
        self.open_and_add(folder, rights)
    }

    /// Allows everything in `folder` but to execute, and to make devices.
    ///
    /// # Errors
    /// The folder can't be opened.
    pub fn write(&mut self, folder: &Path) -> io::Result<()> {
        let not = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
        self.open_and_add(folder, AccessFs::from_all(KNOWN_OF_COMMANDS) & !not)
    }

    /// Applies them to the calling thread; the version of the interface that is in force.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_on(self) -> io::Result<i32> {
        match self.0 {
            None => Ok(0),
            Some(rules) => {
                let ruleset: Option<OwnedFd> = rules.into();
                let ruleset = ruleset.ok_or_else(|| io::Error::other("no rules were made"))?;
                restrict_thread(ruleset.as_raw_fd()).map_err(io::Error::from_raw_os_error)?;
                Ok(in_force(KNOWN_OF_COMMANDS))
            }
        }
    }

    fn open_and_add(&mut self, path: &Path, rights: BitFlags<AccessFs>) -> io::Result<()> {
        std::fs::metadata(path)?;
        self.add(path, rights)
    }

    fn add(&mut self, path: &Path, rights: impl Into<BitFlags<AccessFs>>) -> io::Result<()> {
        let Some(rules) = self.0.take() else { return Ok(()) };
        self.0 = Some(add(rules, path, rights.into()).map_err(io::Error::other)?);
        Ok(())
    }
}

/// For who does nothing any more but remove `folder`: what is in it, and itself.
pub fn keep_to_removing(folder: &Path) -> io::Result<()> {
    let mut rules = CommandRules::new()?;
    rules.add(folder, AccessFs::ReadDir | AccessFs::RemoveDir | AccessFs::RemoveFile)?;
    if let Some(above) = folder.parent() {
        rules.add(above, AccessFs::RemoveDir)?;
    }
    rules.take_on().map(drop)
}

/// The newest version of Landlock's interface that both the kernel has and is `known`; 0: none.
fn in_force(known: ABI) -> i32 {
    kernel_abi().min(known as i32)
}

/// The kernel's version of Landlock, 0 where it has none, or where it was switched off at boot.
fn kernel_abi() -> i32 {
    // SAFETY: without attributes, and with this flag, nothing is made: a number is returned.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    abi.max(0) as i32
}

/// Applies the rules to the calling thread. For signal handlers.
pub fn restrict_thread(ruleset: RawFd) -> Result<(), i32> {
    // SAFETY: takes numbers only; the owner of the rules keeps them open meanwhile.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) })
}
