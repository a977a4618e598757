//! Who is on the other side of a connection: by the credentials that the kernel noted when it was made. A process number
//! is never asked for: it may be another process's by now.
//!
//! The door to the network is a user like any other, and asks for somebody else each time: for whom its requests say.

use http::{HeaderMap, StatusCode};
use scope_api::{Identity, Problem, Refused, Role};
use scope_rights::PeerCredentials;
use std::io;
use std::os::fd::AsFd;

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
    /// The user that the door to the network is, if there may be one.
    pub serve_user: Option<u32>,
    /// What others may do through that door at most.
    pub serve_role: Role,
}

/// Somebody who is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Number of the user.
    pub uid: u32,
    /// What that user may do; `None`: nothing.
    pub role: Option<Role>,
}

/// Somebody who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// Number of the user who is connected.
    pub uid: u32,
    /// The name of whom that one asks for; `None`: for nobody else.
    pub name: Option<String>,
    /// What may be asked; `None`: nothing.
    pub role: Option<Role>,
    /// Only packets of this filter may be seen; `None`: all.
    pub filter: Option<String>,
}

impl Asker {
    /// How refusals call this one.
    pub(crate) fn words(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("user {}", self.uid))
    }

    /// Whose dumps this one sees; `None`: all.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let filter = self.filter.clone()?;
        Some(Owner { name: self.name.clone().unwrap_or_default(), filter })
    }
}

/// Whose a dump is. Who gets a name that another one had doesn't get that one's dumps, unless the filter is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub name: String,
    pub filter: String,
}

impl Rules {
    /// What the door to the network has refused, and only tells of.
    pub(crate) fn refused(&self, peer: &Peer, headers: &HeaderMap) -> Option<Refused> {
        Refused::read(headers).filter(|_| self.serve_user.filter(|user| *user != NOBODY) == Some(peer.uid))
    }

    /// Who asks by a request of this head.
    ///
    /// # Errors
    /// It is said that somebody else asks, in a form that can't be meant, or by a user who may not say so.
    pub(crate) fn asker(&self, peer: &Peer, headers: &HeaderMap) -> Result<Asker, Problem> {
        let &Peer { uid, role } = peer;
        if !Identity::is_said(headers) {
            return Ok(Asker { uid, name: None, role, filter: None });
        }
        if self.serve_user.filter(|user| *user != NOBODY) != Some(uid) {
            let cause = format!("user {uid} may not ask for somebody else");
            let remedy = "ask without it: only the user that the run's --serve-user names may send it";
            return Err(Problem::new(StatusCode::FORBIDDEN, "wirescope-name", cause, remedy));
        }
        let said = Identity::read(headers)?;
        let Some(Identity { name, role, filter }) = said else {
            return Ok(Asker { uid, name: None, role: None, filter: None }); // not reached: it is said
        };
        Ok(Asker { uid, name: Some(name), role: Some(role.min(self.serve_role)), filter })
    }

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
        let PeerCredentials { uid, groups, .. } = PeerCredentials::of(socket)?;
        Ok(Peer { uid, role: self.role(uid, &groups) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn rules(group: Option<u32>, role: Role) -> Rules {
        Rules { user: 991, group, role, serve_user: Some(992), serve_role: Role::Operator }
    }

    #[test]
    fn only_the_door_to_the_network_asks_for_others_and_gets_no_more_than_it_may() {
        let rules = rules(Some(50), Role::Analyst);
        let said = |role, filter: Option<&str>| {
            let mut headers = HeaderMap::new();
            let filter = filter.map(str::to_string);
            Identity { name: "noc".to_string(), role, filter }.write(&mut headers);
            headers
        };
        let door = Peer { uid: 992, role: None };
        let asker = rules.asker(&door, &said(Role::Admin, None)).unwrap();
        assert_eq!(
            (asker.role, asker.words(), asker.owner()),
            (Some(Role::Operator), "noc".to_string(), None)
        );
        let bound = rules.asker(&door, &said(Role::Analyst, Some("udp"))).unwrap();
        let owner = Owner { name: "noc".to_string(), filter: "udp".to_string() };
        assert_eq!((bound.role, bound.owner()), (Some(Role::Analyst), Some(owner)));
        assert_eq!(rules.asker(&door, &HeaderMap::new()).unwrap().role, None);
        for uid in [0, 991, 1000, NOBODY] {
            let refused = rules.asker(&Peer { uid, role: Some(Role::Admin) }, &said(Role::Viewer, None));
            assert_eq!(refused.unwrap_err().status, StatusCode::FORBIDDEN, "{uid}");
        }
        let of_nobody = Rules { serve_user: Some(NOBODY), ..rules };
        let nobody = Peer { uid: NOBODY, role: None };
        assert!(of_nobody.asker(&nobody, &said(Role::Viewer, None)).is_err());
        let mut half = said(Role::Viewer, None);
        half.remove("wirescope-role");
        assert_eq!(rules.asker(&door, &half).unwrap_err().status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn root_and_the_runs_user_may_everything_and_nobody_nothing() {
        let rules = rules(Some(50), Role::Analyst);
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
        let rules = Rules { user: me, ..rules(None, Role::Viewer) };
        let peer = rules.peer(&one).unwrap();
        assert_eq!(peer, Peer { uid: me, role: (me != NOBODY).then_some(Role::Admin) });
    }
}
