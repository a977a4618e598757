//! Who a run is once everything is open: looked up, tried in a thread, taken on by the process.

use super::{FIX, RightsError, Unwritable, Writable, capabilities, give_to};
use rustix::fs::fstat;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// Who a run is, where root starts it without a user, and this user exists.
const OWN_USER: &str = "wirescope";
/// Who has no rights by custom.
const NOBODY: &str = "nobody";
/// Room for the strings of an entry of the user database, bytes.
const ENTRY_BYTES: usize = 64 << 10;

/// A user of this system.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// As the user database spells it, or the number where it has no entry.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Number of the first group.
    pub gid: u32,
}

/// Who the run is to be.
#[derive(Clone, Debug)]
pub enum UserChoice {
    /// The user with the least rights who can write where the run writes.
    Best,
    /// This one, or none.
    Named(User),
}

/// The decision.
pub struct Choice {
    /// The user that the process is to become; `None`: it keeps the user that started it, and may not change
    /// that.
    pub become_user: Option<User>,
    /// The name, and what to report of it.
    pub words: String,
    /// Why this is root, and what makes it another user; `None`: it isn't.
    pub stays_root: Option<String>,
}

/// Why a user is not possible.
enum Obstacle {
    /// The process may not become this user.
    Change(io::Error),
    /// The user may not write to the folders at these places of the list.
    Write(Vec<(usize, io::Error)>),
}

impl User {
    /// The user with this name; `None` if there is none.
    pub fn named(name: &str) -> io::Result<Option<User>> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        // SAFETY: the name outlives the call; the other arguments are as `look_up` says.
        let found = look_up(|entry, buffer, len, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), entry, buffer, len, found)
        })?;
        Ok(found.map(|(user, _)| user))
    }

    /// The user with this number; `None` if the user database has none.
    pub fn numbered(uid: u32) -> io::Result<Option<User>> {
        // SAFETY: the arguments are as `look_up` says.
        let found =
            look_up(|entry, buffer, len, found| unsafe { libc::getpwuid_r(uid, entry, buffer, len, found) })?;
        Ok(found.map(|(user, _)| user))
    }

    /// The folder of the user who this process is by now: what HOME says if it is that user's, else what the
    /// user database says, else `/`.
    pub fn own_home() -> PathBuf {
        // SAFETY: takes nothing and never fails.
        let uid = unsafe { libc::geteuid() };
        let given = std::env::var_os("HOME").map(PathBuf::from);
        if let Some(own) = given.filter(|home| home.metadata().is_ok_and(|found| found.uid() == uid)) {
            return own;
        }
        // SAFETY: the arguments are as `look_up` says.
        let found =
            look_up(|entry, buffer, len, found| unsafe { libc::getpwuid_r(uid, entry, buffer, len, found) });
        let home = found.ok().flatten().map(|(_, home)| home).filter(|home| home.is_dir());
        home.unwrap_or_else(|| PathBuf::from("/"))
    }

    /// The user with this number, whom the user database needn't know. Without a group it is that of the
    /// entry, or, where there is none, the one with the user's number.
    pub fn with_numbers(uid: u32, gid: Option<u32>) -> io::Result<User> {
        let known = User::numbered(uid)?;
        let gid = gid.or(known.as_ref().map(|user| user.gid)).unwrap_or(uid);
        Ok(User { name: known.map_or_else(|| uid.to_string(), |user| user.name), uid, gid })
    }

    /// Who this process is.
    pub fn current() -> User {
        // SAFETY: both take nothing and never fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let known = User::numbered(uid).ok().flatten();
        User { name: known.map_or_else(|| uid.to_string(), |user| user.name), uid, gid }
    }

    /// The whole process becomes this user, without any other groups. For good.
    pub fn take_on(&self) -> io::Result<()> {
        // SAFETY: these take numbers only (no groups: no list is read). The C library does it in all threads,
        // or in none.
        let done = unsafe {
            (libc::getgroups(0, null_mut()) == 0 || libc::setgroups(0, null_mut()) == 0)
                && libc::setresgid(self.gid, self.gid, self.gid) == 0
                && libc::setresuid(self.uid, self.uid, self.uid) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The same, with the groups that the group database has for the user's name.
    pub fn take_on_with_groups(&self) -> io::Result<()> {
        let Ok(name) = CString::new(self.name.as_str()) else { return self.take_on() };
        // SAFETY: these take numbers, and a name that outlives the call. The C library does it in all threads, or in none.
        let done = unsafe {
            libc::initgroups(name.as_ptr(), self.gid) == 0
                && libc::setresgid(self.gid, self.gid, self.gid) == 0
                && libc::setresuid(self.uid, self.uid, self.uid) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Tries whether all of `writable` can be written, in a thread that alone becomes the user for its short
    /// life.
    fn try_on(&self, writable: &[Writable<'_>]) -> Result<(), Obstacle> {
        let attempt = || {
            self.take_on_in_thread().map_err(Obstacle::Change)?;
            let tried = writable.iter().map(|Writable { folder, file, .. }| folder.try_writing(file));
            let failed: Vec<_> =
                tried.enumerate().filter_map(|(at, tried)| Some((at, tried.err()?))).collect();
            if failed.is_empty() { Ok(()) } else { Err(Obstacle::Write(failed)) }
        };
        std::thread::scope(|scope| {
            match std::thread::Builder::new().name("rights".to_string()).spawn_scoped(scope, attempt) {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|_| Err(Obstacle::Change(io::Error::other("the thread panicked")))),
                Err(error) => Err(Obstacle::Change(error)),
            }
        })
    }

    fn take_on_in_thread(&self) -> io::Result<()> {
        let no_change: libc::c_long = -1;
        let (uid, gid) = (libc::c_long::from(self.uid), libc::c_long::from(self.gid));
        // SAFETY: the calls themselves, below the C library, change the calling thread only; the groups' list
        // is not read. The saved user stays root: the attempt only needs the effective one.
        let done = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, null_mut::<libc::gid_t>()) == 0
                && libc::syscall(libc::SYS_setresgid, no_change, gid, no_change) == 0
                && libc::syscall(libc::SYS_setresuid, no_change, uid, no_change) == 0
        };
        if !done {
            return Err(io::Error::last_os_error());
        }
        capabilities::drop_all().map_err(io::Error::from_raw_os_error) // root has them still
    }
}

/// Decides who to be; the first of `writable` is the dump folder.
pub fn choose(choice: &UserChoice, writable: &[Writable<'_>]) -> Result<Choice, RightsError> {
    let current = User::current();
    match choice {
        UserChoice::Named(user) => named(user, &current, writable),
        UserChoice::Best if current.uid != 0 => {
            Ok(Choice { become_user: None, words: current.name, stays_root: None })
        }
        UserChoice::Best => best(current, writable),
    }
}

fn named(user: &User, current: &User, writable: &[Writable<'_>]) -> Result<Choice, RightsError> {
    let name = || user.name.clone();
    if user.uid == current.uid && current.uid != 0 {
        return Ok(Choice { become_user: None, words: name(), stays_root: None });
    }
    let stays_root = (user.uid == 0).then(|| {
        let other = by_name(OWN_USER).or_else(|| by_name(NOBODY));
        let name = other.as_ref().map_or(NOBODY, |other| &other.name);
        let give = match other.as_ref().map(|other| other.try_on(writable)) {
            Some(Err(Obstacle::Write(failed))) => format!("; {}", what_helps(name, writable, &failed)),
            _ => String::new(),
        };
        format!("--user {} keeps this run root; write --user {name}{give}", user.name)
    });
    match user.try_on(writable) {
        Ok(()) => Ok(Choice { become_user: Some(user.clone()), words: name(), stays_root }),
        Err(Obstacle::Change(cause)) => Err(RightsError::NotAllowed { user: name(), cause }),
        Err(Obstacle::Write(failed)) => Err(not_writable(name(), writable, failed)),
    }
}

fn by_name(name: &str) -> Option<User> {
    User::named(name).ok().flatten().filter(|user| user.uid != 0)
}

/// Why `user` isn't the one: each folder that this user can't write to, once, and what helps for these.
fn not_writable(user: String, writable: &[Writable<'_>], mut failed: Vec<(usize, io::Error)>) -> RightsError {
    let mut known: Vec<&Path> = Vec::new();
    failed.retain(|(at, _)| {
        let folder = writable[*at].folder.path();
        let is_new = !known.contains(&folder);
        known.push(folder);
        is_new
    });
    let give = what_helps(&user, writable, &failed);
    let places = failed.into_iter().map(|(at, cause)| {
        let Writable { folder, file, .. } = writable[at];
        Unwritable { folder: folder.path().to_path_buf(), file: file.to_os_string(), cause }
    });
    RightsError::NotWritable { user, places: places.collect(), give }
}

/// What gives `user` the folders where another owner is what helps; where it helps nowhere, that.
fn what_helps(user: &str, writable: &[Writable<'_>], failed: &[(usize, io::Error)]) -> String {
    let owned = |(at, cause): &(usize, io::Error)| {
        (cause.raw_os_error() == Some(libc::EACCES)).then_some(writable[*at])
    };
    let owned: Vec<Writable<'_>> = failed.iter().filter_map(owned).collect();
    if owned.is_empty() { FIX.to_string() } else { give_to(user, &owned) }
}

/// Those of `writable` that this user can't write to.
fn places<'a>(writable: &[Writable<'a>], failed: &[(usize, io::Error)]) -> Vec<Writable<'a>> {
    failed.iter().map(|(at, _)| writable[*at]).collect()
}

/// Their folders, each once.
pub(super) fn folders<'a>(places: &[Writable<'a>]) -> Vec<&'a Path> {
    let mut folders = Vec::new();
    for folder in places.iter().map(|place| place.folder.path()) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Root has named no user: the first who can write, else root itself, who without capabilities still has the
/// files of root. The report then names the user who can write to the most folders.
fn best(root: User, writable: &[Writable<'_>]) -> Result<Choice, RightsError> {
    let owner = writable.first().and_then(owner);
    let candidates =
        [by_name(OWN_USER).map(|user| (user, "")), owner, by_name(NOBODY).map(|user| (user, ""))];
    let mut refused: Vec<(User, Vec<(usize, io::Error)>)> = Vec::new();
    for (user, remark) in candidates.into_iter().flatten() {
        if refused.iter().any(|(other, _)| other.uid == user.uid) {
            continue;
        }
        match user.try_on(writable) {
            Ok(()) => {
                let words = format!("{}{remark}", user.name);
                return Ok(Choice { become_user: Some(user), words, stays_root: None });
            }
            Err(Obstacle::Change(_)) => {}
            Err(Obstacle::Write(failed)) => refused.push((user, failed)),
        }
    }
    let nearest = refused.into_iter().min_by_key(|(_, failed)| folders(&places(writable, failed)).len());
    let (words, why) = match &nearest {
        None => ("root".to_string(), "this run stays root: it can't become another user".to_string()),
        Some((user, failed)) => {
            let lacking = places(writable, failed);
            let (user, give) = (&user.name, what_helps(&user.name, writable, failed));
            let folders: Vec<String> =
                folders(&lacking).iter().map(|folder| folder.display().to_string()).collect();
            let are = if folders.len() == 1 { "is" } else { "are" };
            let folders = folders.join(" and ");
            (
                format!(
                    "root ({folders} {are} not writable for {user}; to have another user: {give}; or name \
                     one by --user)"
                ),
                format!("this run stays root, because {folders} {are} not writable for {user}; {give}"),
            )
        }
    };
    let stays_root = Some(why);
    match root.try_on(writable) {
        Err(Obstacle::Write(failed)) => {
            let (user, failed) = nearest.unwrap_or((root, failed));
            Err(not_writable(user.name, writable, failed))
        }
        // A namespace of an ordinary user, most likely: that user's rights are all that root has here.
        Err(Obstacle::Change(_)) => {
            Ok(Choice { become_user: None, words: format!("{words} with its groups"), stays_root })
        }
        Ok(()) => Ok(Choice { become_user: Some(root), words, stays_root }),
    }
}

/// The dump folder's owner, if that isn't root.
fn owner(writable: &Writable<'_>) -> Option<(User, &'static str)> {
    let stat = fstat(writable.folder).ok().filter(|stat| stat.st_uid != 0)?;
    // That user's group is unknown; it must not be root's.
    let gid = if stat.st_gid == 0 { stat.st_uid } else { stat.st_gid };
    let unknown = || User { name: stat.st_uid.to_string(), uid: stat.st_uid, gid };
    let user = User::numbered(stat.st_uid).ok().flatten().unwrap_or_else(unknown);
    Some((user, " (the dump folder's owner)"))
}

/// Looks up a user and the user's folder in the user database: `query` gets room for an entry, room for its
/// strings and the length of that, and where to put the entry found.
/// The number of the group with this name; `None` if there is none.
///
/// # Errors
/// The group database can't be read.
pub fn group_number(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut strings = vec![0; ENTRY_BYTES];
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let mut found = null_mut();
    // SAFETY: the name outlives the call, which writes the entry, at most as many bytes of strings as there are, and where
    // the entry is if it was found.
    let done = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            strings.as_mut_ptr(),
            strings.len(),
            &raw mut found,
        )
    };
    match done {
        0 if found.is_null() => Ok(None),
        // SAFETY: it was found, so the entry is filled.
        0 => Ok(Some(unsafe { entry.assume_init() }.gr_gid)),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn look_up(
    query: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<(User, PathBuf)>> {
    let mut strings = vec![0; ENTRY_BYTES];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = null_mut();
    match query(entry.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found) {
        0 if found.is_null() => Ok(None),
        // SAFETY: it was found, so the entry is filled, and its name and folder point into `strings`, which
        // is still there.
        0 => unsafe {
            let entry = entry.assume_init();
            let name = CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned();
            let home = OsStr::from_bytes(CStr::from_ptr(entry.pw_dir).to_bytes());
            Ok(Some((User { name, uid: entry.pw_uid, gid: entry.pw_gid }, PathBuf::from(home))))
        },
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FolderUse;
    use scope_folder::Folder;

    #[test]
    fn another_owner_is_proposed_only_where_that_helps() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let writable = [Writable { folder: &folder, file: OsStr::new("a"), folder_use: FolderUse::Own }];
        let said = |errno| what_helps("nobody", &writable, &[(0, io::Error::from_raw_os_error(errno))]);
        assert!(said(libc::EACCES).contains("chown -R nobody "), "{}", said(libc::EACCES));
        assert_eq!(said(libc::EROFS), "fix that, or choose another folder");
    }

    #[test]
    fn groups_are_found_by_name() {
        assert_eq!(group_number("root").unwrap(), Some(0));
        assert_eq!((group_number("no such group").unwrap(), group_number("a\0b").unwrap()), (None, None));
    }

    #[test]
    fn users_are_found_by_name_and_number_and_those_that_are_not_there_are_not() {
        let root = User { name: "root".into(), uid: 0, gid: 0 };
        assert_eq!(User::named("root").unwrap(), Some(root.clone()));
        assert_eq!(User::numbered(0).unwrap(), Some(root));
        assert_eq!(User::named("no-such-user-here").unwrap(), None);
        assert_eq!(User::named("a\0b").unwrap(), None);
        let nameless = |uid, gid| User { name: "12345678".into(), uid, gid };
        assert_eq!(User::with_numbers(12_345_678, None).unwrap(), nameless(12_345_678, 12_345_678));
        assert_eq!(User::with_numbers(12_345_678, Some(7)).unwrap(), nameless(12_345_678, 7));
        let daemon = User::numbered(1).unwrap().map_or(1, |user| user.gid);
        assert_eq!(User::with_numbers(1, None).unwrap().gid, daemon);
    }
}
