//! Who has connected a socket: by the credentials that the kernel noted when it was connected.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Groups of a user that are looked at.
const GROUPS_MAX: usize = 65_536;

/// Whoever has connected a socket, as it was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Number of the process: to be shown, since it may be another one's by now. 0: of another name space.
    pub pid: i32,
    /// Number of the user.
    pub uid: u32,
    /// Numbers of all groups, the first one included.
    pub groups: Vec<u32>,
}

impl PeerCredentials {
    /// Whoever has connected this socket.
    ///
    /// # Errors
    /// The system's.
    pub fn of(socket: &impl AsFd) -> io::Result<PeerCredentials> {
        let libc::ucred { pid, uid, gid } = credentials(socket)?;
        let mut groups = supplementary(socket)?;
        groups.push(gid);
        Ok(PeerCredentials { pid, uid, groups })
    }
}

fn credentials(socket: &impl AsFd) -> io::Result<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `bytes` into `found`, which has so many and outlives the call.
    let done = unsafe {
        libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut bytes)
    };
    if done == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
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
    fn the_kernel_says_who_it_is() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&one).unwrap();
        // SAFETY: both take nothing and never fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        assert_eq!((peer.pid as u32, peer.uid), (std::process::id(), uid));
        assert!(peer.groups.contains(&gid), "{peer:?}");
    }
}
