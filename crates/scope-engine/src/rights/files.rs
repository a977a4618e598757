//! Landlock: what of the file system stays within reach. Everything that is open already stays open.

use super::{Writable, checked};
use landlock::{ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// What stays readable: the kernel's figures, settings of names and services that filters are compiled with, libraries.
const READABLE: [&str; 6] = ["/proc", "/sys", "/etc", "/usr", "/lib", "/lib64"];
/// The newest interface whose rights are known here; what an older kernel lacks is left away.
const KNOWN: ABI = ABI::V5;
/// Asks for the version instead of making rules.
const VERSION: libc::c_uint = 1;

/// Rules that each thread takes on.
pub struct FileRules {
    abi: i32,
    ruleset: Option<OwnedFd>,
}

impl FileRules {
    /// Files may be made, written and removed in the folders `writable`; read there, in [`READABLE`] and in `readable`. No TCP.
    pub fn new(writable: &[Writable<'_>], readable: &[PathBuf]) -> io::Result<FileRules> {
        let abi = kernel_abi();
        if abi == 0 {
            return Ok(FileRules { abi, ruleset: None });
        }
        let rules = rules(writable, readable).map_err(io::Error::other)?;
        Ok(FileRules { abi, ruleset: rules.into() })
    }

    /// Version of the kernel's interface; 0: none.
    pub fn abi(&self) -> i32 {
        self.abi
    }

    /// For [`restrict_thread`].
    pub fn ruleset(&self) -> Option<RawFd> {
        self.ruleset.as_ref().map(AsRawFd::as_raw_fd)
    }
}

fn rules(writable: &[Writable<'_>], readable: &[PathBuf]) -> Result<RulesetCreated, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    let mut rules =
        Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.handle_access(AccessNet::from_all(KNOWN))?.create()?;
    for (folder, _) in writable {
        rules = rules.add_rule(PathBeneath::new(folder, write))?;
    }
    for path in READABLE.iter().map(Path::new).chain(readable.iter().map(PathBuf::as_path)) {
        // What isn't there needn't be read.
        if let Ok(handle) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(handle, read))?;
        }
    }
    Ok(rules)
}

/// The kernel's version of Landlock, 0 where it has none, or where it was switched off at boot.
fn kernel_abi() -> i32 {
    // SAFETY: without attributes, and with this flag, nothing is made: a number is returned.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    abi.max(0) as i32
}

/// The calling thread takes the rules on. For signal handlers.
pub fn restrict_thread(ruleset: RawFd) -> Result<(), i32> {
    // SAFETY: takes numbers only; whoever made the rules keeps them open meanwhile.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) })
}
