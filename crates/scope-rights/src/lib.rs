//! Giving up rights: what a run keeps once its sockets, its files and its memory are there.
//!
//! 1. The user is decided (`user`): the named one; or, started as root without a name, `wirescope`, the owner
//!    of the dump folder or `nobody`, the first of them who can write there; else root, without capabilities.
//!    A thread takes on each identity for a moment and tries.
//! 2. Landlock's rules and the list of system calls are made (`files`, `calls`), while everything can still
//!    be opened.
//! 3. Every thread gives up the capabilities that programs started by it could gain (the bounding set), which
//!    needs a capability itself.
//! 4. The process changes its groups and its user; files that get a name later in a folder of others are
//!    opened, without one.
//! 5. Every thread gives up all capabilities and the right to gain any, then writing outside of the folders,
//!    then all system calls that aren't on the list; in this order, since each step forbids the ones before.
//!    Threads that begin later inherit it.
//!
//! From the first of these on no process of the same user may look into this one, take its sockets or have
//! its memory written to disk by a crash ([`hide`]). No thread is exempt. Commands after dumps run in a
//! process of their own, which is begun between 1 and 2, as the same user, and has other rights. What the
//! kernel lacks is reported; the other steps are done all the same.

mod calls;
mod capabilities;
mod files;
mod peer;
mod reading;
mod selftest;
mod serving;
mod threads;
mod user;

pub use files::{CommandRules, is_readable, keep_to_removing};
pub use peer::PeerCredentials;
pub use reading::{
    ReadingRights, keep_to_listening, keep_to_reading, keep_to_reading_and_making,
    keep_to_reading_and_making_below, keep_to_sending, keep_to_what_is_open,
};
pub use selftest::{SelfTest, run as selftest};
pub use serving::{keep_to_serving, open_status, try_what_serving_may_not};
pub use user::{User, UserChoice, group_number};

use files::FileRules;
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::printable::shell_word;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

/// What a run is to give up, as meant.
#[derive(Clone, Debug)]
pub struct RightsPlan {
    /// Who the run is to be, where it is started as root.
    pub user: UserChoice,
    /// Try from inside, in every thread, what must not be possible any more.
    pub selftest: bool,
}

/// A folder that the run writes to.
#[derive(Clone, Copy, Debug)]
pub struct Writable<'a> {
    /// The folder.
    pub folder: &'a Folder,
    /// The file in it that the run will write.
    pub file: &'a OsStr,
    /// What else may be done there.
    pub folder_use: FolderUse,
}

/// What a folder is to a run that writes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderUse {
    /// The run's own: files are made, read, written and removed there.
    Own,
    /// At its end the run takes a name away that it has made there.
    TakesAway,
    /// As [`FolderUse::Own`], and folders are made and removed there: one for each day of a store.
    OwnWithFolders,
    /// A file of the run gets its name there, and the rest is others'. What may get a name is opened before
    /// rights are given up.
    NewName,
}

/// What makes all of `places` writable for `user`, as command lines.
fn give_to(user: &str, places: &[Writable<'_>]) -> String {
    let user = shell_word(user);
    let of = |others: bool| {
        let is_wanted = |writable: &&Writable<'_>| (writable.folder_use == FolderUse::NewName) == others;
        let wanted: Vec<Writable<'_>> = places.iter().filter(is_wanted).copied().collect();
        user::folders(&wanted)
    };
    let own = of(false);
    let mut commands = Vec::new();
    if !own.is_empty() {
        let folders: Vec<String> = own.iter().map(shell_word).collect();
        commands.push(format!("give the folder to this user by: chown -R {user} {}", folders.join(" ")));
    }
    // Others' folder, perhaps the system's: it isn't ours to give away.
    for folder in of(true).iter().filter(|folder| !own.contains(folder)) {
        let new = shell_word(folder.join("dumps"));
        commands.push(format!("name a file in a folder of this user, made by: install -d -o {user} {new}"));
    }
    commands.join("; ")
}

/// The remedy where a call fails that never does.
const BLAME: &str = "this is a defect of wirescope or of this system, please report it";

/// Whether that applies: not where files or memory have run out.
fn blames(cause: &io::Error) -> bool {
    !matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Why rights couldn't be given up: then nothing is captured.
#[derive(Debug)]
pub enum RightsError {
    /// The user can't write to folders that the run writes to.
    NotWritable {
        /// Who.
        user: String,
        /// Where, and why.
        places: Vec<Unwritable>,
        /// What gives the folders to that user, where that helps.
        give: String,
    },
    /// This file must not be written.
    File {
        /// Which.
        path: PathBuf,
        /// What it is, and the remedy; or the system's own words.
        cause: io::Error,
    },
    /// The process may not take on this user.
    NotAllowed {
        /// Who.
        user: String,
        /// The system's own words.
        cause: io::Error,
    },
    /// A step failed.
    Step {
        /// Which.
        step: &'static str,
        /// The system's own words.
        cause: io::Error,
    },
}

/// A folder that the user can't write to.
#[derive(Debug)]
pub struct Unwritable {
    /// Which.
    pub folder: PathBuf,
    /// The file there.
    pub file: OsString,
    /// The system's own words.
    pub cause: io::Error,
}

fn in_words(places: &[Unwritable]) -> String {
    let words = |Unwritable { folder, file, cause }: &Unwritable| {
        format!("{} or to {} in it: {cause}", folder.display(), Path::new(file).display())
    };
    places.iter().map(words).collect::<Vec<_>>().join(", nor to ")
}

/// What helps where another owner doesn't.
const FIX: &str = "fix that, or choose another folder";

/// Changing owners helps only where the owner is what is wrong.
fn remedy(places: &[Unwritable], give: &str) -> String {
    let give = format!("{give}, and chmod -R u+rwX where this user owns it; or choose another --user");
    let owners = places.iter().filter(|place| place.cause.raw_os_error() == Some(libc::EACCES)).count();
    match owners {
        0 => FIX.to_string(),
        _ if owners < places.len() => format!("{give}; fix the rest, or choose another folder"),
        _ => give,
    }
}

impl fmt::Display for RightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault().fmt(f)
    }
}

impl std::error::Error for RightsError {}

impl RightsError {
    /// What is wrong, of which setting, and what helps.
    pub fn fault(&self) -> Fault {
        match self {
            RightsError::NotWritable { user, places, give } => {
                let fault = Fault::of("user")
                    .with_value(user)
                    .cause(format!("{user} can't write to {}", in_words(places)));
                fault.remedy(remedy(places, give))
            }
            RightsError::File { path, cause } => Fault::of_thing(path.to_string_lossy()).error(cause),
            RightsError::NotAllowed { user, cause } => {
                let fault = Fault::of("user")
                    .with_value(user)
                    .cause(format!("this process may not become {user}: {cause}"));
                fault.remedy("it needs CAP_SETUID and CAP_SETGID, as root has them, or omit the flag")
            }
            RightsError::Step { step, cause } => {
                let fault = Fault::of_thing("rights").error(cause).cause(format!("{step} failed: {cause}"));
                if blames(cause) { fault.remedy(BLAME) } else { fault }
            }
        }
    }

    fn step(step: &'static str) -> impl Fn(io::Error) -> RightsError {
        move |cause| RightsError::Step { step, cause }
    }
}

/// What was given up, in words by `Display`:
/// `rights: user nobody, no capabilities, seccomp, Landlock (ABI 5)`.
#[derive(Clone, Debug)]
pub struct Rights {
    /// Who the run is now, and why where that isn't what is expected.
    pub user: String,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Version of Landlock's interface that is in force; 0 where the kernel has none.
    pub landlock_abi: i32,
    /// The same for commands after dumps, where there are any.
    pub commands_abi: Option<i32>,
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rights: user {}, no capabilities", self.user)?;
        match self.seccomp {
            true => f.write_str(", seccomp")?,
            false => f.write_str(
                ", no seccomp in this kernel: any system call that this user may make stays possible",
            )?,
        }
        match self.landlock_abi {
            0 => f.write_str(", no Landlock in this kernel: the run may write wherever this user may")?,
            abi => write!(f, ", Landlock (ABI {abi})")?,
        }
        match self.commands_abi {
            None => Ok(()),
            Some(0) => f.write_str(
                "; commands: a process of their own, no Landlock in this kernel: they may write wherever \
                 this user may",
            ),
            Some(abi) => {
                write!(f, "; commands: a process of their own, Landlock (ABI {abi})")?;
                // The one rule of that version that is in force: the run has no use for it, it signals no
                // other process at all.
                if abi > self.landlock_abi {
                    f.write_str(", which also keeps them from signalling others")
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// Files that are opened for each folder where some get their names later: a dump takes up to three for each
/// link type.
const NAMES_RESERVED: usize = 48;

/// Steps of the last part, for the error.
const STEPS: [&str; 6] = [
    "",
    "giving up capabilities",
    "giving up the right to gain any",
    "Landlock",
    "the filter of clone3",
    "seccomp",
];

/// Who the run will be: decided before anything is begun, since there may be no such user.
pub struct Decision {
    choice: user::Choice,
}

impl Decision {
    /// The user that the process is to become; `None`: it keeps its user.
    pub fn user(&self) -> Option<&User> {
        self.choice.become_user.as_ref()
    }

    /// Why the run would be root, without capabilities, and what to do about it; `None`: it will be somebody
    /// else.
    pub fn stays_root(&self) -> Option<&str> {
        self.choice.stays_root.as_deref()
    }
}

/// No other process of the same user can look into this one from here on: not into its memory, not at its
/// descriptors. Nor does a crash write its memory to disk. A change of the user undoes it, so it is done
/// again then. And programs that this one starts get none of its descriptors, not even those that its own
/// parent left open.
pub fn hide() {
    // SAFETY: these take numbers only. A kernel before 5.11 has not the second one: there what was left open
    // stays so.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Makes a process with one thread powerless for good, as `user` where one is named: no capability, and none
/// to gain. What it may open is for Landlock's rules to say.
///
/// # Errors
/// Some rights may be given up already then: the caller must not go on.
pub fn become_powerless(user: Option<&User>) -> Result<(), RightsError> {
    capabilities::drop_bounding();
    if let Some(user) = user {
        user.take_on().map_err(RightsError::step("changing the user"))?;
    }
    let step = |step| move |errno| RightsError::step(step)(io::Error::from_raw_os_error(errno));
    capabilities::drop_all().map_err(step(STEPS[1]))?;
    capabilities::gain_none().map_err(step(STEPS[2]))?;
    hide();
    Ok(())
}

/// Decides who to be; `writable` is the dump folder and whatever else the run will write. Changes nothing.
///
/// # Errors
/// What the run will write is there and is no plain file, the user that was named can't write there, or this
/// process can't become that user.
pub fn decide(plan: &RightsPlan, writable: &[Writable<'_>]) -> Result<Decision, RightsError> {
    for Writable { folder, file, .. } in writable {
        let fault = |cause| RightsError::File { path: folder.path().join(file), cause };
        folder.is_plain_or_free(file).map_err(fault)?;
    }
    Ok(Decision { choice: user::choose(&plan.user, writable)? })
}

/// Gives up, for all threads of the process, everything that a run with these folders doesn't need. For good:
/// there is no way back.
///
/// # Errors
/// Some rights may be given up already then: the caller must not go on.
pub fn give_up(decision: Decision, writable: &[Writable<'_>]) -> Result<Rights, RightsError> {
    let Decision { choice } = decision;
    let files = FileRules::new(writable).map_err(RightsError::step("making Landlock's rules"))?;
    let calls = calls::filters().map_err(RightsError::step("making the list of system calls"))?;
    let seccomp = calls.is_some();
    threads::in_each(threads::lasting(|_| capabilities::drop_bounding()))
        .map_err(RightsError::step("reaching every thread"))?;
    if let Some(user) = &choice.become_user {
        user.take_on().map_err(RightsError::step("changing the user"))?;
    }
    hide();
    for named in writable.iter().filter(|writable| writable.folder_use == FolderUse::NewName) {
        named
            .folder
            .reserve(NAMES_RESERVED)
            .map_err(RightsError::step("opening files that get their names later"))?;
    }
    let landlock_abi = files.abi();
    in_every_thread(files, calls, capabilities::drop_all)?;
    Ok(Rights { user: choice.words, seccomp, landlock_abi, commands_abi: None })
}

/// The last steps, in every thread: capabilities by `drop`, the way back to them, files, and system calls.
fn in_every_thread(
    files: FileRules,
    calls: Option<(calls::Filter, calls::Filter)>,
    drop: impl Fn() -> Result<(), i32> + Send + Sync + 'static,
) -> Result<(), RightsError> {
    let landlock = files.ruleset();
    let failed = threads::lasting(Failed::default());
    threads::in_each(threads::lasting(move |_: threads::Tid| {
        failed.note(1, drop());
        failed.note(2, capabilities::gain_none());
        if let Some(ruleset) = landlock {
            failed.note(3, files::restrict_thread(ruleset));
        }
        if let Some(filters) = &calls {
            failed.note(4, filters.0.apply());
            failed.note(5, filters.1.apply());
        }
    }))
    .map_err(RightsError::step("reaching every thread"))?;
    failed.result()
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
            step => Err(RightsError::step(STEPS[step as usize])(io::Error::from_raw_os_error(
                self.errno.load(Ordering::Acquire),
            ))),
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
    fn what_the_kernel_lacks_is_reported() {
        let check = |seccomp, landlock_abi, expected: &str| {
            let said =
                Rights { user: "nobody".into(), seccomp, landlock_abi, commands_abi: None }.to_string();
            assert!(
                said.starts_with("rights: user nobody, no capabilities, ") && said.ends_with(expected),
                "{said}"
            );
        };
        check(true, 7, ", seccomp, Landlock (ABI 7)");
        check(true, 0, "seccomp, no Landlock in this kernel: the run may write wherever this user may");
        check(
            false,
            1,
            "no seccomp in this kernel: any system call that this user may make stays possible, Landlock \
             (ABI 1)",
        );
        let commands = |abi| {
            Rights { user: "a".into(), seccomp: true, landlock_abi: 5, commands_abi: Some(abi) }.to_string()
        };
        let said = commands(6);
        assert!(
            said.contains(
                ", Landlock (ABI 5); commands: a process of their own, Landlock (ABI 6), which also "
            ),
            "{said}"
        );
        assert!(
            commands(5).ends_with("; commands: a process of their own, Landlock (ABI 5)"),
            "one number needs no words"
        );
        assert!(
            commands(0)
                .contains("; commands: a process of their own, no Landlock in this kernel: they may write")
        );
    }
}
