//! The sockets of a run, for orders and for those who attach: bound, owned and given their group before rights are given up.
//! Who listens at them, and what is answered there, is others' affair.
//!
//! For example `/srv/dumps/wirescope.sock`, mode 0660, of the user that the run becomes. One that is left over, to which
//! nobody listens, is replaced; one of a run that goes is left alone.

use crate::plan::ControlPlan;
use rustix::fs::{AtFlags, Mode, statat, unlinkat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::umask;
use scope_fault::{Fault, Setting, sentence};
use scope_folder::Folder;
use scope_rights::{FolderUse, User, Writable};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Bytes that a socket's path may have.
pub const PATH_BYTES_MAX: usize = 107;

/// Connections that may wait to be taken; the system's bound (`net.core.somaxconn`) is mostly the lesser one.
const BACKLOG: i32 = 4096;

/// What kind of socket a run wants, where, and who may connect.
pub(crate) struct Place<'a> {
    /// The setting that names it.
    key: &'static str,
    path: &'a Path,
    /// Whose it becomes beside the run's user.
    group: Option<u32>,
    kind: SocketType,
    /// What others may not do with its file.
    mask: u32,
}

impl<'a> From<&'a ControlPlan> for Place<'a> {
    fn from(plan: &'a ControlPlan) -> Place<'a> {
        // Only root may give it to a group that isn't its own.
        let group = plan.group.or(plan.serve_group.filter(|_| User::current().uid == 0));
        Place { key: "control", path: &plan.path, group, kind: SocketType::STREAM, mask: 0o117 }
    }
}

impl<'a> Place<'a> {
    /// Where programs attach. Everybody may connect: whoever may not attach is told so.
    pub(crate) fn of_attach(path: &'a Path) -> Place<'a> {
        Place { key: "attach", path, group: None, kind: SocketType::SEQPACKET, mask: 0o111 }
    }
}

/// A socket that is bound. Dropped, it takes its name away.
#[derive(Debug)]
pub struct Socket {
    listener: OwnedFd,
    path: PathBuf,
    /// Its folder, which may be moved while the run goes.
    folder: Folder,
    /// Device and number of its file.
    place: (u64, u64),
    user: u32,
}

impl Socket {
    /// Binds it for who the run will be; `None`: who it is.
    ///
    /// # Errors
    /// It can't be had: why, and what helps.
    pub(crate) fn bind<'a>(place: impl Into<Place<'a>>, user: Option<&User>) -> Result<Socket, Fault> {
        let Place { key, path, group, kind, mask } = place.into();
        let fault = || Fault::of(key).with_value(path.to_string_lossy());
        let of_system = |error: io::Error| fault().error(&error);
        if path.as_os_str().len() > PATH_BYTES_MAX {
            let cause = format!(
                "a socket's path has at most {PATH_BYTES_MAX} bytes, this one has {}",
                path.as_os_str().len()
            );
            let shorter = Setting::of(key).example("PATH");
            return Err(fault().cause(cause).remedy(sentence!["choose a shorter one: ", shorter]));
        }
        match path.symlink_metadata() {
            Ok(facts) if !facts.file_type().is_socket() => {
                return Err(fault().cause("it exists, and is no socket").remedy("choose another name"));
            }
            Ok(_) => match UnixStream::connect(path).map_err(|error| error.kind()) {
                // Nobody listens.
                Err(io::ErrorKind::ConnectionRefused) => std::fs::remove_file(path).map_err(of_system)?,
                Err(io::ErrorKind::NotFound) => {}
                // Also where it is closed to this user: somebody may listen.
                _ => {
                    let remedy =
                        sentence!["end that one, or choose another name: ", Setting::of(key).example("PATH")];
                    return Err(fault().cause("another instance listens at it").remedy(remedy));
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(of_system(error)),
        }
        // Nobody else gets in between: the file has its mode from the begin.
        let before = umask(Mode::from_raw_mode(mask));
        let bound = listen_at(path, kind);
        umask(before);
        let listener = bound.map_err(of_system)?;
        let facts = path.symlink_metadata().map_err(of_system)?;
        let folder = Folder::open(path.parent().unwrap_or(Path::new("/"))).map_err(of_system)?;
        let me = User::current();
        let user = user.map_or(me.uid, |user| user.uid);
        let place = (facts.dev(), facts.ino());
        let socket = Socket { listener, path: path.to_path_buf(), folder, place, user };
        let owner = (user != me.uid).then_some(user);
        if owner.is_some() || group.is_some() {
            lchown(path, owner, group).map_err(of_system)?;
        }
        Ok(socket)
    }

    /// Where it listens; it may be waited at, and never blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.descriptor().map(UnixListener::from)
    }

    /// The same as a bare descriptor.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What rights must leave of its folder: to take its name away.
    pub(crate) fn writable(&self) -> Writable<'_> {
        let file = self.path.file_name().unwrap_or_default();
        Writable { folder: &self.folder, file, folder_use: FolderUse::TakesAway }
    }

    /// Number of the user that the run is.
    pub fn user(&self) -> u32 {
        self.user
    }
}

/// A new socket at this path, which listens and never blocks.
fn listen_at(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(name) = self.path.file_name() else { return };
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|facts| (facts.st_dev, facts.st_ino) == self.place) {
            // Where the folder is closed to this process the name stays, and the next run replaces it.
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn plan(path: &Path) -> ControlPlan {
        ControlPlan { path: path.to_path_buf(), is_given: true, group: None, serve_group: None }
    }

    #[test]
    fn a_socket_is_closed_to_others_and_gone_behind_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.sock");
        let socket = Socket::bind(&plan(&path), None).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o7777, 0o660);
        let refused = Socket::bind(&plan(&path), None).unwrap_err();
        assert!(refused.to_string().contains("another instance listens at it"), "{refused}");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_in_a_folder_that_was_moved_is_gone_as_well() {
        let place = tempfile::tempdir().unwrap();
        let [before, behind] = ["a", "b"].map(|name| place.path().join(name));
        std::fs::create_dir(&before).unwrap();
        let socket = Socket::bind(&plan(&before.join("w.sock")), None).unwrap();
        std::fs::rename(&before, &behind).unwrap();
        drop(socket);
        assert!(!behind.join("w.sock").exists());
    }

    #[test]
    fn what_is_left_over_is_replaced_and_what_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = Socket::bind(&plan(&path), None).unwrap();
        // Somebody takes the name: that one isn't removed.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "foreign").unwrap();
        drop(socket);
        let refused = Socket::bind(&plan(&path), None).unwrap_err();
        assert!(refused.to_string().contains("it exists, and is no socket"), "{refused}");
        let long = folder.path().join("x".repeat(120));
        let refused = Socket::bind(&plan(&long), None).unwrap_err();
        assert!(refused.to_string().contains("a socket's path has at most 107 bytes"), "{refused}");
    }

    #[test]
    fn a_socket_to_attach_at_is_open_to_all_and_replaced_only_where_nobody_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("attach");
        let socket = Socket::bind(Place::of_attach(&path), None).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o7777, 0o666);
        let refused = Socket::bind(Place::of_attach(&path), None).unwrap_err().to_string();
        assert!(refused.contains("attach") && refused.contains("another instance listens"), "{refused}");
        // As a killed run leaves it.
        let left = folder.path().join("left");
        std::fs::rename(&path, &left).unwrap();
        drop(socket);
        drop(Socket::bind(Place::of_attach(&left), None).unwrap());
    }
}
