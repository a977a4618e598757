//! Who is a member of the ring's group: who may be, whose page is whose, what those did who are gone, what was refused.

use crate::plan::Allowed;
use scope_rights::PeerCredentials;
use scope_share::page::Standing;
use scope_share::{Page, Refusal};
use std::io;
use std::sync::Arc;

/// Members at once.
pub const MEMBERS_MAX: usize = 64;

/// A page, and who got it first: whoever has it keeps it in reach, so that nobody else ever gets it.
struct Leaf {
    page: Arc<Page>,
    user: Option<u32>,
    taken: bool,
}

/// A member.
struct Member {
    number: u16,
    name: String,
    peer: PeerCredentials,
}

/// A member, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its number in the group, which another one gets when it is gone.
    pub number: u16,
    /// As it calls itself.
    pub name: String,
    /// Its process, when it connected; 0: of another name space.
    pub pid: i32,
    /// Number of its user.
    pub uid: u32,
    /// Name of its user, where the run knows it.
    pub user: Option<String>,
    /// What it was given, as far as it says.
    pub standing: Standing,
    /// It waits for more.
    pub waits: bool,
}

/// Those that are gone, as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoneStatus {
    /// How many.
    pub members: u64,
    /// What they were given until they went.
    pub standing: Standing,
}

/// What the door has refused and survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorCounts {
    /// Greetings that were refused, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Connections beyond those that there may be.
    pub connections: u64,
    /// Connections that said nothing in time.
    pub silent: u64,
    /// Messages that are longer than any.
    pub too_long: u64,
    /// Messages with descriptors.
    pub with_files: u64,
    /// Messages of those who are members already.
    pub unexpected: u64,
}

/// The table of members.
pub(super) struct Members {
    allowed: Allowed,
    leaves: Vec<Leaf>,
    members: Vec<Member>,
    gone: GoneStatus,
    pub(super) counts: DoorCounts,
}

impl Members {
    /// Nobody yet, and pages for all that there can be.
    pub(super) fn new(allowed: &Allowed) -> io::Result<Members> {
        let leaf = |_| Ok(Leaf { page: Arc::new(Page::create()?), user: None, taken: false });
        Ok(Members {
            allowed: allowed.clone(),
            leaves: (0..MEMBERS_MAX).map(leaf).collect::<io::Result<_>>()?,
            members: Vec::new(),
            gone: GoneStatus::default(),
            counts: DoorCounts::default(),
        })
    }

    /// Whether this one may be a member.
    pub(super) fn may(&self, peer: &PeerCredentials) -> bool {
        self.allowed.has(peer.uid, &peer.groups)
    }

    /// A new member, and its page.
    ///
    /// # Errors
    /// It can't be one.
    pub(super) fn join(&mut self, name: &str, peer: &PeerCredentials) -> Result<(u16, Arc<Page>), Refusal> {
        if !self.may(peer) {
            return Err(Refusal::NotAllowed);
        }
        let is_free = |user: Option<u32>| move |leaf: &Leaf| !leaf.taken && leaf.user == user;
        let of_user = self.leaves.iter().position(is_free(Some(peer.uid)));
        let at = of_user.or_else(|| self.leaves.iter().position(is_free(None))).ok_or(Refusal::Full)?;
        let leaf = &mut self.leaves[at];
        leaf.page.clear().map_err(|_| Refusal::Full)?;
        (leaf.user, leaf.taken) = (Some(peer.uid), true);
        let page = leaf.page.clone();
        let number = at as u16;
        self.members.push(Member { number, name: name.to_string(), peer: peer.clone() });
        Ok((number, page))
    }

    /// A member is gone; `published` are the packets by now.
    pub(super) fn leave(&mut self, number: u16, published: u64) {
        let Some(at) = self.members.iter().position(|member| member.number == number) else { return };
        let (standing, _) = self.standing(number, published);
        self.members.remove(at);
        self.leaves[usize::from(number)].taken = false;
        let gone = &mut self.gone.standing;
        gone.given = gone.given.saturating_add(standing.given);
        gone.read = gone.read.saturating_add(standing.read);
        gone.missed = gone.missed.saturating_add(standing.missed);
        gone.behind = gone.given.saturating_sub(gone.read).saturating_sub(gone.missed);
        self.gone.members += 1;
    }

    /// What a member was given, and whether it waits. One that has said nothing yet was given nothing.
    fn standing(&self, number: u16, published: u64) -> (Standing, bool) {
        let said = self.leaves[usize::from(number)].page.read();
        said.map_or_else(Default::default, |said| (said.within(published), said.waits))
    }

    /// All members, by number, and those that are gone.
    pub(super) fn status(&self, published: u64) -> (Vec<MemberStatus>, GoneStatus) {
        let status = |member: &Member| {
            let (standing, waits) = self.standing(member.number, published);
            let known = self.allowed.users.iter().find(|user| user.uid == member.peer.uid);
            MemberStatus {
                number: member.number,
                name: member.name.clone(),
                pid: member.peer.pid,
                uid: member.peer.uid,
                user: known.map(|user| user.name.clone()),
                standing,
                waits,
            }
        };
        let mut members: Vec<MemberStatus> = self.members.iter().map(status).collect();
        members.sort_by_key(|member| member.number);
        (members, self.gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_rights::User;
    use scope_share::Progress;

    fn allowed() -> Allowed {
        let user = |uid: u32| User { name: format!("user{uid}"), uid, gid: uid };
        Allowed { users: vec![user(7), user(8)], groups: vec![50] }
    }

    fn peer(uid: u32, groups: &[u32]) -> PeerCredentials {
        PeerCredentials { pid: 1, uid, groups: groups.to_vec() }
    }

    #[test]
    fn only_those_that_were_named_may_be_members_root_included() {
        let mut members = Members::new(&allowed()).unwrap();
        assert!(members.join("a", &peer(7, &[])).is_ok());
        assert!(members.join("b", &peer(1000, &[4, 50])).is_ok());
        assert_eq!(members.join("c", &peer(0, &[0])).unwrap_err(), Refusal::NotAllowed);
        assert_eq!(members.join("d", &peer(9, &[7])).unwrap_err(), Refusal::NotAllowed);
        let mut nobody = Members::new(&Allowed::default()).unwrap();
        assert_eq!(nobody.join("e", &peer(0, &[0])).unwrap_err(), Refusal::NotAllowed);
    }

    #[test]
    fn a_page_is_never_given_to_another_user() {
        let mut members = Members::new(&allowed()).unwrap();
        for _ in 0..MEMBERS_MAX {
            let (number, _) = members.join("a", &peer(7, &[])).unwrap();
            assert!(usize::from(number) < MEMBERS_MAX);
        }
        assert_eq!(members.join("a", &peer(7, &[])).unwrap_err(), Refusal::Full);
        members.leave(3, 0);
        assert_eq!(members.join("b", &peer(8, &[])).unwrap_err(), Refusal::Full, "it was another user's");
        assert_eq!(members.join("a", &peer(7, &[])).unwrap().0, 3);
    }

    #[test]
    fn figures_add_up_whatever_pages_say_and_those_of_the_gone_stay() {
        let mut members = Members::new(&allowed()).unwrap();
        let (first, page) = members.join("a", &peer(7, &[])).unwrap();
        page.write(&Progress { began: 10, read: 70, missed: 5, waits: true, ..Progress::default() }).unwrap();
        let (second, lying) = members.join("b", &peer(8, &[])).unwrap();
        lying.write(&Progress { began: 0, read: u64::MAX, missed: u64::MAX, ..Progress::default() }).unwrap();
        let check = |status: &[MemberStatus], gone: GoneStatus, expected: &[(u64, u64, u64, u64)]| {
            let all = status.iter().map(|member| member.standing).chain([gone.standing]);
            let figures: Vec<_> = all.map(|it| (it.given, it.read, it.missed, it.behind)).collect();
            assert_eq!(figures, expected);
            assert!(figures.iter().all(|(given, read, missed, behind)| *given == read + missed + behind));
        };
        let (status, gone) = members.status(100);
        check(&status, gone, &[(90, 70, 5, 15), (100, 100, 0, 0), (0, 0, 0, 0)]);
        assert_eq!((status[0].waits, status[0].user.as_deref()), (true, Some("user7")));
        members.leave(first, 100);
        members.leave(second, 200);
        let (status, gone) = members.status(300);
        check(&status, gone, &[(290, 270, 5, 15)]);
        assert_eq!(gone.members, 2);
    }
}
