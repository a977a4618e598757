//! Who is on the other side of a connection: by the credentials that the kernel noted when it was made. A process number
//! is never asked for: it may be another process's by now.

use scope_api::Role;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Groups of a user that are looked at.
const GROUPS_MAX: usize = 65_536;
/// The number of the user without rights, who is nobody in particular.
const NOBODY: u32 = 65_534;

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The run's user.
    pub user: u32,
    /// The group whose members may connect, if one may.
    pub group: Option<u32>,
    /// What they may do.
    pub role: Role,
}

/// Somebody who is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Number of the user.
    pub uid: u32,
    /// What that user may do; `None`: nothing.
    pub role: Option<Role>,
}

impl Rules {
    /// What a user in these groups may do: root and the run's own user everything, members of the group what was said.
    fn role(&self, uid: u32, groups: &[u32]) -> Option<Role> {
        if uid == 0 || uid == self.user && uid != NOBODY {
            return Some(Role::Admin);
        }
        self.group.filter(|group| groups.contains(group)).map(|_| self.role)
    }

    /// Whoever has connected this socket.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn peer(&self, socket: &impl AsFd) -> io::Result<Peer> {
        let (uid, gid) = credentials(socket)?;
        let mut groups = supplementary(socket)?;
        groups.push(gid);
        Ok(Peer { uid, role: self.role(uid, &groups) })
    }
}

fn credentials(socket: &impl AsFd) -> io::Result<(u32, u32)> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `bytes` into `found`, which has so many and outlives the call.
    let done = unsafe {
        libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut bytes)
    };
    if done == 0 { Ok((found.uid, found.gid)) } else { Err(io::Error::last_os_error()) }
}

fn supplementary(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    let number = socket.as_fd().as_raw_fd();
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` into `groups`, which has so many and outlives the call.
        let done = unsafe {
            let into = groups.as_mut_ptr().cast();
            libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERGROUPS, into, &raw mut bytes)
        };
        let known = bytes as usize / size_of::<u32>();
        if done == 0 {
            groups.truncate(known);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || known > GROUPS_MAX {
            return Err(error);
        }
        groups.resize(known.max(groups.len() * 2).min(GROUPS_MAX), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn root_and_the_runs_user_may_everything_and_nobody_nothing() {
        let rules = Rules { user: 991, group: Some(50), role: Role::Analyst };
        let check =
            |uid, groups: &[u32], expected| assert_eq!(rules.role(uid, groups), expected, "{uid} {groups:?}");
        check(0, &[], Some(Role::Admin));
        check(991, &[], Some(Role::Admin));
        check(1000, &[4, 50], Some(Role::Analyst));
        check(1000, &[4], None);
        check(NOBODY, &[NOBODY], None);
        let of_nobody = Rules { user: NOBODY, group: None, ..rules };
        assert_eq!((of_nobody.role(NOBODY, &[50]), of_nobody.role(0, &[])), (None, Some(Role::Admin)));
    }

    #[test]
    fn the_kernel_says_who_it_is() {
        let (one, _other) = UnixStream::pair().unwrap();
        // SAFETY: takes nothing and never fails.
        let me = unsafe { libc::geteuid() };
        let rules = Rules { user: me, group: None, role: Role::Viewer };
        let peer = rules.peer(&one).unwrap();
        assert_eq!(peer, Peer { uid: me, role: (me != NOBODY).then_some(Role::Admin) });
    }
}
