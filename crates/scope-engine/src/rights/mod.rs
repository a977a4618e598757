//! Giving up rights: what a run keeps once its sockets, its files and its memory are there.
//!
//! 1. Who to be is decided (`user`): the named user; or, started as root without a name, `wirescope`, the owner of the dump folder
//!    or `nobody`, the first of them who can write there; else root, without capabilities. A thread takes on each identity for a
//!    moment and tries.
//! 2. Landlock's rules and the list of system calls are made (`files`, `calls`), while everything can still be opened.
//! 3. Every thread gives up what programs that it would start could have (the bounding set), which takes a capability itself.
//! 4. The process changes its groups and its user.
//! 5. Every thread gives up all capabilities and the right to gain any, then writing outside of the folders, then all system
//!    calls that aren't on the list; in this order, since each step forbids the ones before. Threads that begin later inherit it.
//!
//! A thread begun by [`spawn_free`] keeps its system calls and its files, and nothing else: it may run commands.
//! What the kernel lacks is said; the other steps are taken all the same.

mod calls;
mod capabilities;
mod files;
mod selftest;
mod threads;
mod user;

pub use selftest::{SelfTest, run as selftest};
pub use threads::spawn_free;
pub use user::{User, UserChoice};

use files::FileRules;
use scope_store::Folder;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

/// What a run is to give up, as meant.
#[derive(Clone, Debug)]
pub struct RightsPlan {
    /// Who the run is to be, where it is started as root.
    pub user: UserChoice,
    /// Folders that stay readable besides those of the system.
    pub readable: Vec<PathBuf>,
    /// Try from inside, in every thread, what must not be possible any more.
    pub selftest: bool,
}

/// A folder that stays writable, and the file in it that the run will write.
pub type Writable<'a> = (&'a Folder, &'a OsStr);

/// Whose fault a call is that never fails, unless files or memory have run out.
fn blame(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => "",
        _ => "; this is a defect of wirescope or of this system, please report it",
    }
}

/// Why rights couldn't be given up: then nothing is captured.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// The user can't write to a folder that the run writes to.
    #[error("--user: {user} can't write to {folder} or to the log in it: {cause}; {}", remedy(user, folder, cause))]
    NotWritable {
        /// Who.
        user: String,
        /// Where.
        folder: String,
        /// The system's own words.
        cause: io::Error,
    },
    /// Nobody is to write there.
    #[error("{path}: {cause}")]
    File {
        /// Which.
        path: PathBuf,
        /// What it is, and the remedy; or the system's own words.
        cause: io::Error,
    },
    /// The process may not take on this user.
    #[error(
        "--user: this process may not become {user}: {cause}; it needs CAP_SETUID and CAP_SETGID, as root has them, or leave the flag away"
    )]
    NotAllowed {
        /// Who.
        user: String,
        /// The system's own words.
        cause: io::Error,
    },
    /// A step failed.
    #[error("rights: {step} failed: {cause}{}", blame(cause))]
    Step {
        /// Which.
        step: &'static str,
        /// The system's own words.
        cause: io::Error,
    },
}

/// Changing owners helps only where the owner is what is wrong.
fn remedy(user: &str, folder: &str, cause: &io::Error) -> String {
    if cause.raw_os_error() == Some(libc::EACCES) {
        format!(
            "give the folder to this user by: chown -R {user} '{folder}', and chmod -R u+rwX where this user owns it; or choose another --user"
        )
    } else {
        "mend that, or choose another folder".to_string()
    }
}

impl RightsError {
    fn step(step: &'static str) -> impl Fn(io::Error) -> RightsError {
        move |cause| RightsError::Step { step, cause }
    }
}

/// What was given up, in words by `Display`: `rights: user nobody, no capabilities, seccomp, Landlock (ABI 7)`.
#[derive(Clone, Debug)]
pub struct Rights {
    /// Who the run is now, and why where that isn't what is expected.
    pub user: String,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Version of Landlock's interface; 0 where the kernel has none.
    pub landlock_abi: i32,
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rights: user {}, no capabilities", self.user)?;
        match self.seccomp {
            true => f.write_str(", seccomp")?,
            false => f.write_str(", no seccomp in this kernel: any system call that this user may make stays possible")?,
        }
        match self.landlock_abi {
            0 => f.write_str(", no Landlock in this kernel: files are kept only from whom this user may not write to"),
            abi => write!(f, ", Landlock (ABI {abi})"),
        }
    }
}

/// Steps of the last part, for the error.
const STEPS: [&str; 6] =
    ["", "giving up capabilities", "giving up the right to gain any", "Landlock", "the filter of clone3", "seccomp"];

/// Who the run will be: decided before anything is begun, since nobody may be fit.
pub struct Decision<'a> {
    plan: &'a RightsPlan,
    choice: user::Choice,
}

/// Decides who to be; `writable` is the dump folder and whatever else the run will write. Changes nothing.
///
/// # Errors
/// What the run will write is there and is no plain file, the user that was named can't write there, or this process can't become
/// that user.
pub fn decide<'a>(plan: &'a RightsPlan, writable: &[Writable<'_>]) -> Result<Decision<'a>, RightsError> {
    for (folder, file) in writable {
        let fault = |cause| RightsError::File { path: folder.path().join(file), cause };
        folder.is_plain_or_free(file).map_err(fault)?;
    }
    Ok(Decision { plan, choice: user::choose(&plan.user, writable)? })
}

/// Gives up, for all threads of the process, everything that a run with these folders doesn't need. For good: there is no way back.
///
/// # Errors
/// Some rights may be given up already then: the caller must not go on.
pub fn give_up(decision: Decision<'_>, writable: &[Writable<'_>]) -> Result<Rights, RightsError> {
    let Decision { plan, choice } = decision;
    let files = FileRules::new(writable, &plan.readable).map_err(RightsError::step("making Landlock's rules"))?;
    let calls = calls::filters().map_err(RightsError::step("making the list of system calls"))?;
    let seccomp = calls.is_some();
    threads::in_each(threads::lasting(|_| capabilities::drop_bounding())).map_err(RightsError::step("asking every thread"))?;
    if let Some(user) = &choice.become_user {
        user.take_on().map_err(RightsError::step("changing the user"))?;
    }
    let landlock_abi = files.abi();
    let landlock = files.ruleset();
    let failed = threads::lasting(Failed::default());
    threads::in_each(threads::lasting(move |thread: threads::Tid| {
        let free = threads::is_free(thread);
        failed.note(1, capabilities::drop_all());
        failed.note(2, capabilities::gain_none());
        if let Some(ruleset) = landlock.filter(|_| !free) {
            failed.note(3, files::restrict_thread(ruleset));
        }
        if let Some(filters) = calls.as_ref().filter(|_| !free) {
            failed.note(4, filters.0.apply());
            failed.note(5, filters.1.apply());
        }
    }))
    .map_err(RightsError::step("asking every thread"))?;
    failed.result()?;
    Ok(Rights { user: choice.words, seccomp, landlock_abi })
}

/// The first step that failed in any thread. Noted by signal handlers, so without a lock.
#[derive(Default)]
struct Failed {
    step: AtomicU8,
    errno: AtomicI32,
}

impl Failed {
    fn note(&self, step: u8, result: Result<(), i32>) {
        if let Err(errno) = result
            && self.step.compare_exchange(0, step, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            self.errno.store(errno, Ordering::Release);
        }
    }

    fn result(&self) -> Result<(), RightsError> {
        match self.step.load(Ordering::Acquire) {
            0 => Ok(()),
            step => {
                Err(RightsError::step(STEPS[step as usize])(io::Error::from_raw_os_error(self.errno.load(Ordering::Acquire))))
            }
        }
    }
}

/// The result of a system call, with the number of its error. For signal handlers: nothing is allocated.
fn checked(result: libc::c_long) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_said() {
        let check = |seccomp, landlock_abi, expected: &str| {
            let said = Rights { user: "nobody".into(), seccomp, landlock_abi }.to_string();
            assert!(said.starts_with("rights: user nobody, no capabilities, ") && said.ends_with(expected), "{said}");
        };
        check(true, 7, ", seccomp, Landlock (ABI 7)");
        check(true, 0, "seccomp, no Landlock in this kernel: files are kept only from whom this user may not write to");
        check(false, 1, "no seccomp in this kernel: any system call that this user may make stays possible, Landlock (ABI 1)");
    }
}
