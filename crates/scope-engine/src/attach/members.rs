//! Who is a member of a group: who may be, whose page is whose, what those did who are gone, what was refused.

use super::forwards::{ForwardStatus, Own, Told};
use crate::plan::{Allowed, ForwardPlan};
use rustix::io::dup;
use scope_fault::Fault;
use scope_group::sharing::REMOVED_AFTER;
use scope_group::{Counts, Gone, Group, GroupCounts, MemberCounts, Newcomer, Phase, Seat};
use scope_rights::PeerCredentials;
use scope_ring::Ahead;
use scope_share::message::Greeting;
use scope_share::page::Standing;
use scope_share::{Page, RING, Refusal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Members of the ring at once.
pub const MEMBERS_MAX: usize = 64;

/// A page and, but for the ring, a seat; and who got it first: whoever has it keeps it in reach, so that nobody else ever
/// gets it.
struct Leaf {
    page: Arc<Page>,
    seat: Option<Arc<Seat>>,
    user: Option<u32>,
    taken: bool,
}

impl Leaf {
    /// Whether somebody may get it.
    fn is_free(&self) -> bool {
        !self.taken && self.seat.as_ref().is_none_or(|seat| seat.phase() == Phase::Free)
    }
}

/// A member.
struct Member {
    number: u16,
    greeting: Greeting,
    peer: PeerCredentials,
    /// What is held of the ring for it, as far as it has said where it is; `None`: nothing ever is.
    hold: Option<Ahead>,
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
    /// The class of packets that it wants; empty: those without one.
    pub class: String,
    /// Its share against that of others.
    pub weight: u16,
    /// What it was given, as far as it says.
    pub standing: Standing,
    /// It waits for more.
    pub waits: bool,
    /// It stands still, and others have its flows.
    pub is_stuck: bool,
    /// So much of the ring may be held for it, bytes.
    pub hold_bytes: u64,
    /// So much of it is, bytes.
    pub held_bytes: u64,
}

/// A group, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Packets in the ring since the run began, and what became of them for the group; of the ring itself no more than the
    /// first.
    pub counts: Counts,
    /// What it takes, and how that is shared out; `None`: the ring itself.
    pub takes: Option<Takes>,
    /// Members at once at most.
    pub members_max: usize,
    /// Memory of each, bytes.
    pub memory_bytes: u64,
    /// Those who read it.
    pub members: Vec<MemberStatus>,
    /// Those of the run itself, which send; also when they have ended.
    pub forwards: Vec<ForwardStatus>,
    /// Those who did.
    pub gone: Gone,
}

/// What a group takes, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takes {
    /// Packets that match this filter; empty: all.
    pub filter: String,
    /// Packets that came by this interface; empty: by any.
    pub interface: String,
    /// How they are shared out.
    pub steer: String,
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
    /// Members that a run which loses nothing has waited for in vain.
    pub removed: u64,
}

/// The table of a group's members.
pub(super) struct Members {
    allowed: Allowed,
    /// `None`: the ring itself.
    group: Option<Arc<Group>>,
    leaves: Vec<Leaf>,
    members: Vec<Member>,
    /// Those of the run itself. Their seats are nobody else's.
    own: Vec<Own>,
    /// Of the ring; other groups count their own.
    gone: Gone,
}

/// What a new member is handed.
pub(super) struct Handed {
    pub number: u16,
    pub page: Arc<Page>,
    /// `None`: it reads the ring itself.
    pub seat: Option<Arc<Seat>>,
}

impl Members {
    /// Nobody reads the ring yet; pages for all that can.
    ///
    /// # Errors
    /// The system gives no page.
    pub(super) fn of_ring(allowed: &Allowed) -> io::Result<Members> {
        let leaf = |_| {
            let page = Arc::new(Page::create()?);
            Ok(Leaf { page, seat: None, user: None, taken: false })
        };
        let leaves = (0..MEMBERS_MAX).map(leaf).collect::<io::Result<_>>()?;
        Ok(Members {
            allowed: allowed.clone(),
            group: None,
            leaves,
            members: Vec::new(),
            own: Vec::new(),
            gone: Gone::default(),
        })
    }

    /// Nobody is a member of a group yet.
    pub(super) fn of_group(allowed: &Allowed, group: &Arc<Group>) -> Members {
        let leaf = |seat: &Arc<Seat>| Leaf {
            page: seat.page().clone(),
            seat: Some(seat.clone()),
            user: None,
            taken: false,
        };
        Members {
            allowed: allowed.clone(),
            group: Some(group.clone()),
            leaves: group.seats().iter().map(leaf).collect(),
            members: Vec::new(),
            own: Vec::new(),
            gone: Gone::default(),
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.group.as_ref().map_or(RING, |group| group.name())
    }

    /// The group; `None`: the ring itself.
    pub(super) fn group(&self) -> Option<&Arc<Group>> {
        self.group.as_ref()
    }

    /// Whether this one may be a member.
    pub(super) fn may(&self, peer: &PeerCredentials) -> bool {
        self.allowed.has(peer.uid, &peer.groups)
    }

    /// Why nobody can wait for packets of this class: no rule gives it. `None`: one does. The ring itself has no classes.
    pub(super) fn lacks_class(&self, class: &str) -> Option<String> {
        let group = self.group.as_ref().filter(|_| !class.is_empty())?;
        let settings = group.settings().0;
        let classes = settings.rules.classes();
        if classes.iter().any(|known| known == class) {
            return None;
        }
        let there =
            if classes.is_empty() { String::new() } else { format!("; there is {}", classes.join(", ")) };
        let (name, class) = (group.name().escape_default(), class.escape_default());
        Some(format!("no rule of group '{name}' gives the class '{class}'{there}"))
    }

    /// Free places for this user: those that were its own before those that were nobody's.
    fn places_for(&self, uid: u32) -> impl Iterator<Item = usize> {
        let free = move |user: Option<u32>| {
            let leaves = self.leaves.iter().enumerate();
            leaves.filter(move |(_, leaf)| leaf.is_free() && leaf.user == user).map(|(place, _)| place)
        };
        free(Some(uid)).chain(free(None))
    }

    /// Why there are no `wanted` places for this user; `None`: there are.
    pub(super) fn lacks_places(&self, uid: u32, wanted: u16) -> Option<String> {
        let left = self.places_for(uid).count();
        if left >= usize::from(wanted.max(1)) {
            return None;
        }
        let most = self.leaves.len();
        if left > 0 {
            return Some(format!(
                "{left} of its {most} places for members are left, and {wanted} are asked for"
            ));
        }
        Some(match self.leaves.iter().any(Leaf::is_free) {
            false => format!("all its places for members are taken: {most}"),
            true => format!(
                "none of its {most} places for members is left: those that are free stay another user's until the run ends"
            ),
        })
    }

    /// Others may be members from now on.
    pub(super) fn set_allowed(&mut self, allowed: &Allowed) {
        self.allowed = allowed.clone();
    }

    /// Whether a member may stay one.
    pub(super) fn may_stay(&self, number: u16) -> bool {
        let is_removed = self.leaves[usize::from(number)].seat.as_ref().is_some_and(|seat| seat.is_removed());
        let member = self.members.iter().find(|member| member.number == number);
        let is_own = self.own(number).is_some();
        !is_removed && member.is_some_and(|member| is_own || self.may(&member.peer))
    }

    /// What is to be said of a member that a run which loses nothing has waited for in vain.
    pub(super) fn removal(&self, number: u16) -> Option<String> {
        self.leaves[usize::from(number)].seat.as_ref().filter(|seat| seat.is_removed())?;
        let member = self.members.iter().find(|member| member.number == number)?;
        let (group, name, pid) = (self.name(), &member.greeting.name, member.peer.pid);
        let waited = REMOVED_AFTER.as_secs();
        Some(format!(
            "group {group}: {name} (process {pid}) was removed: it had not moved for {waited} s; what it was given and had not read \
             reaches nobody"
        ))
    }

    /// Says on its page that a member is none any more.
    pub(super) fn tell_removed(&self, number: u16) {
        let _ = self.leaves[usize::from(number)].page.remove(); // its connection ends all the same
    }

    /// A new member, and what it gets; `hold`: what may be held of the ring for it.
    ///
    /// # Errors
    /// It can't be one.
    pub(super) fn join(
        &mut self,
        greeting: &Greeting,
        peer: &PeerCredentials,
        connection: &OwnedFd,
        hold: Option<Ahead>,
    ) -> Result<Handed, Refusal> {
        if !self.may(peer) {
            return Err(Refusal::NotAllowed);
        }
        self.take_seat(greeting, peer, connection, hold)
    }

    /// The run's own member, whoever else may be one; `None`: no seat is free.
    pub(super) fn join_own(
        &mut self,
        plan: &ForwardPlan,
        peer: &PeerCredentials,
        connection: &OwnedFd,
    ) -> Option<(u16, Arc<Seat>, Arc<Told>)> {
        let greeting = Greeting::new(&plan.group, &plan.name());
        let Handed { number, seat, .. } = self.take_seat(&greeting, peer, connection, None).ok()?;
        let (told, interface) = (Arc::new(Told::default()), plan.interface.clone());
        self.own.push(Own { number, name: plan.name(), interface, told: told.clone() });
        Some((number, seat?, told))
    }

    fn own(&self, number: u16) -> Option<&Own> {
        self.own.iter().find(|own| own.number == number)
    }

    fn take_seat(
        &mut self,
        greeting: &Greeting,
        peer: &PeerCredentials,
        connection: &OwnedFd,
        hold: Option<Ahead>,
    ) -> Result<Handed, Refusal> {
        let at = self.places_for(peer.uid).next().ok_or(Refusal::Full)?;
        let leaf = &mut self.leaves[at];
        match &leaf.seat {
            None => leaf.page.clear().map_err(|_| Refusal::Full)?,
            Some(seat) => {
                let connection = dup(connection.as_fd()).map_err(|_| Refusal::Full)?;
                let (weight, class) = (greeting.weight, greeting.class.clone());
                if !seat.enter(Newcomer { weight, class, connection }) {
                    return Err(Refusal::Full);
                }
            }
        }
        (leaf.user, leaf.taken) = (Some(peer.uid), true);
        let number = at as u16;
        self.members.push(Member { number, greeting: greeting.clone(), peer: peer.clone(), hold });
        let leaf = &self.leaves[at];
        Ok(Handed { number, page: leaf.page.clone(), seat: leaf.seat.clone() })
    }

    /// A member is gone; `published` are the packets by now.
    pub(super) fn leave(&mut self, number: u16, published: u64) {
        let Some(at) = self.members.iter().position(|member| member.number == number) else { return };
        self.members.remove(at);
        let is_own = self.own(number).is_some();
        let leaf = &mut self.leaves[usize::from(number)];
        leaf.taken = is_own;
        match &leaf.seat {
            Some(seat) => seat.leave(),
            None => self.gone.add(self.of_ring_reader(number, published).0),
        }
    }

    /// Holds of the ring what its readers still need, as far as they may have it held; whether there is one that may.
    pub(super) fn hold(&mut self) -> bool {
        let mut holds = false;
        for Member { number, hold, .. } in &mut self.members {
            let Some(hold) = hold else { continue };
            holds = true;
            let Some(said) = self.leaves[usize::from(*number)].page.read() else { continue };
            (0..).zip(said.done).for_each(|(lane, needed)| hold.let_go(lane, needed));
            hold.hold(0);
        }
        holds
    }

    /// What a reader of the ring was given, and whether it waits. One that has said nothing yet was given nothing.
    fn of_ring_reader(&self, number: u16, published: u64) -> (Standing, bool) {
        let said = self.leaves[usize::from(number)].page.read();
        said.map_or_else(Default::default, |said| (said.within(published), said.waits))
    }

    /// How it stands, of a ring with at least so many packets by now.
    pub(super) fn status(&self, published: u64) -> GroupStatus {
        let counted = self.group.as_ref().map(|group| group.status(published));
        let member = |member: &Member| {
            let known = self.allowed.users.iter().find(|user| user.uid == member.peer.uid);
            let seat = u32::from(member.number);
            let (standing, waits, is_stuck) = match &counted {
                None => {
                    let (standing, waits) = self.of_ring_reader(member.number, published);
                    (standing, waits, false)
                }
                Some(counted) => counted
                    .members
                    .iter()
                    .find(|counts| counts.seat == seat)
                    .map_or_else(Default::default, |it| (self.read_by(it), it.waits, it.is_stuck)),
            };
            MemberStatus {
                number: member.number,
                name: member.greeting.name.clone(),
                pid: member.peer.pid,
                uid: member.peer.uid,
                user: known.map(|user| user.name.clone()),
                class: member.greeting.class.clone(),
                weight: member.greeting.weight,
                standing,
                waits,
                is_stuck,
                hold_bytes: member.hold.as_ref().map_or(0, |hold| hold.allowed() * hold.segment_bytes()),
                held_bytes: member.hold.as_ref().map_or(0, |hold| hold.held() * hold.segment_bytes()),
            }
        };
        let mut members: Vec<MemberStatus> = self.members.iter().map(member).collect();
        members.sort_by_key(|member| member.number);
        let ring = || GroupCounts {
            gone: self.gone,
            counts: Counts { published, ..Counts::default() },
            ..Default::default()
        };
        let GroupCounts { counts, members: counted, mut gone } = counted.unwrap_or_else(ring);
        // Gone, but the thread is still to hear of it.
        let is_here = |seat: u32| members.iter().any(|member| u32::from(member.number) == seat);
        counted.iter().filter(|it| !is_here(it.seat)).for_each(|it| gone.add(it.standing));
        let takes = self.group.as_ref().map(|group| {
            let settings = group.settings().0;
            let (filter, steer) = (settings.filter.text().to_string(), settings.steer.to_string());
            Takes { filter, interface: settings.interface.clone().unwrap_or_default(), steer }
        });
        let forward = |own: &Own| {
            let given = self.group.as_ref().map(|group| group.given(own.number.into()));
            ForwardStatus::new(own, given.unwrap_or_default())
        };
        let memory = self.group.as_ref().and_then(|group| group.seats().first()).map(|seat| seat.memory());
        GroupStatus {
            name: self.name().to_string(),
            counts,
            takes,
            members_max: self.leaves.len(),
            memory_bytes: memory.map_or(0, |memory| (memory.segments() * memory.segment_bytes()) as u64),
            forwards: self.own.iter().map(forward).collect(),
            members,
            gone,
        }
    }

    /// What a member has read; a forward only what it is done with, too.
    fn read_by(&self, counts: &MemberCounts) -> Standing {
        let Standing { given, missed, read, .. } = counts.standing;
        let done = self.own(counts.seat as u16).map_or(read, |own| own.told.counts().read);
        let read = done.min(given - missed);
        Standing { given, read, missed, behind: given - missed - read }
    }

    /// What went wrong with forwards.
    pub(super) fn failures(&self) -> impl Iterator<Item = Fault> + '_ {
        self.own.iter().filter_map(|own| own.told.failure())
    }

    /// Whether all forwards are given packets.
    pub(super) fn forwards_seated(&self) -> bool {
        let seat = |own: &Own| self.leaves[usize::from(own.number)].seat.as_ref();
        self.own.iter().filter_map(seat).all(|seat| seat.phase() == Phase::Active)
    }

    /// Members that it can have.
    pub(super) fn seats(&self) -> usize {
        self.leaves.len()
    }

    /// Members that are given packets.
    pub(super) fn active(&self) -> usize {
        self.leaves
            .iter()
            .filter_map(|leaf| leaf.seat.as_ref())
            .filter(|seat| seat.phase() == Phase::Active)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_filter::{Filter, VlanRule};
    use scope_group::rules::{Action, Rule, RuleSet, Test};
    use scope_group::seat::MEMORY_BYTES_MIN;
    use scope_group::{GroupPlan, Settings, Steer};
    use scope_rights::User;
    use scope_share::Progress;
    use std::fs::File;

    fn allowed() -> Allowed {
        let user = |uid: u32| User { name: format!("user{uid}"), uid, gid: uid };
        Allowed { users: vec![user(7), user(8)], groups: vec![50] }
    }

    fn peer(uid: u32, groups: &[u32]) -> PeerCredentials {
        PeerCredentials { pid: 1, uid, groups: groups.to_vec() }
    }

    fn join(members: &mut Members, name: &str, peer: &PeerCredentials) -> Result<(u16, Arc<Page>), Refusal> {
        let connection = OwnedFd::from(File::open("/dev/null").unwrap());
        let handed = members.join(&Greeting::new(RING, name), peer, &connection, None);
        handed.map(|handed| (handed.number, handed.page))
    }

    #[test]
    fn only_those_that_were_named_may_be_members_root_included() {
        let mut members = Members::of_ring(&allowed()).unwrap();
        assert!(join(&mut members, "a", &peer(7, &[])).is_ok());
        assert!(join(&mut members, "b", &peer(1000, &[4, 50])).is_ok());
        assert_eq!(join(&mut members, "c", &peer(0, &[0])).unwrap_err(), Refusal::NotAllowed);
        assert_eq!(join(&mut members, "d", &peer(9, &[7])).unwrap_err(), Refusal::NotAllowed);
        let mut nobody = Members::of_ring(&Allowed::default()).unwrap();
        assert_eq!(join(&mut nobody, "e", &peer(0, &[0])).unwrap_err(), Refusal::NotAllowed);
        members.set_allowed(&Allowed { groups: vec![50], ..Allowed::default() });
        assert_eq!([0, 1].map(|number| members.may_stay(number)), [false, true]);
    }

    #[test]
    fn places_that_were_another_user_s_are_told_apart_from_taken_ones() {
        let mut members = Members::of_ring(&allowed()).unwrap();
        assert_eq!([0, 1, 64].map(|wanted| members.lacks_places(7, wanted)), [None, None, None]);
        let words = "64 of its 64 places for members are left, and 65 are asked for";
        assert_eq!(members.lacks_places(7, 65).as_deref(), Some(words));
        for _ in 0..MEMBERS_MAX {
            join(&mut members, "a", &peer(7, &[])).unwrap();
        }
        assert_eq!(members.lacks_places(7, 1), Some("all its places for members are taken: 64".to_string()));
        members.leave(3, 0);
        assert_eq!(members.lacks_places(7, 1), None);
        let words = members.lacks_places(8, 1).unwrap();
        assert!(words.contains("free stay another user's until the run ends"), "{words}");
    }

    #[test]
    fn a_class_that_no_rule_gives_is_told_with_those_that_there_are() {
        let rule = |name: &str, class: &str| Rule {
            name: name.to_string(),
            test: Test::default(),
            actions: vec![Action::Class(class.to_string())],
        };
        let rules = vec![rule("a", "voip"), rule("b", "video")];
        let of = |rules: Vec<Rule>| {
            let settings = Settings {
                interface: None,
                filter: Filter::compile("", VlanRule::default(), &[]).unwrap(),
                steer: Steer::Flow,
                rules: Arc::new(RuleSet::new(rules, String::new())),
            };
            let name = "one".to_string();
            let (memory_bytes, members_max, members) = (MEMORY_BYTES_MIN, 1, 0);
            let plan = GroupPlan { name, settings, memory_bytes, members_max, members, stuck: None };
            Members::of_group(&allowed(), &Arc::new(Group::create(&plan, [1; 16]).unwrap()))
        };
        let members = of(rules);
        assert_eq!(["", "voip", "video"].map(|class| members.lacks_class(class)), [None, None, None]);
        let words = "no rule of group 'one' gives the class 'radio'; there is voip, video";
        assert_eq!(members.lacks_class("radio").as_deref(), Some(words));
        let words = "no rule of group 'one' gives the class 'voip'";
        assert_eq!(of(Vec::new()).lacks_class("voip").as_deref(), Some(words));
        assert_eq!(Members::of_ring(&allowed()).unwrap().lacks_class("voip"), None, "it has no classes");
    }

    #[test]
    fn a_page_is_never_given_to_another_user() {
        let mut members = Members::of_ring(&allowed()).unwrap();
        for _ in 0..MEMBERS_MAX {
            let (number, _) = join(&mut members, "a", &peer(7, &[])).unwrap();
            assert!(usize::from(number) < MEMBERS_MAX);
        }
        assert_eq!(join(&mut members, "a", &peer(7, &[])).unwrap_err(), Refusal::Full);
        members.leave(3, 0);
        let refused = join(&mut members, "b", &peer(8, &[])).unwrap_err();
        assert_eq!(refused, Refusal::Full, "it was another user's");
        assert_eq!(join(&mut members, "a", &peer(7, &[])).unwrap().0, 3);
    }

    #[test]
    fn figures_add_up_whatever_pages_say_and_those_of_the_gone_stay() {
        let mut members = Members::of_ring(&allowed()).unwrap();
        let (first, page) = join(&mut members, "a", &peer(7, &[])).unwrap();
        page.write(&Progress { began: 10, read: 70, missed: 5, waits: true, ..Progress::default() }).unwrap();
        let (second, lying) = join(&mut members, "b", &peer(8, &[])).unwrap();
        lying.write(&Progress { began: 0, read: u64::MAX, missed: u64::MAX, ..Progress::default() }).unwrap();
        let check = |status: &GroupStatus, expected: &[(u64, u64, u64, u64)]| {
            let all = status.members.iter().map(|member| member.standing).chain([status.gone.standing]);
            let figures: Vec<_> = all.map(|it| (it.given, it.read, it.missed, it.behind)).collect();
            assert_eq!(figures, expected);
            assert!(figures.iter().all(|(given, read, missed, behind)| *given == read + missed + behind));
        };
        let status = members.status(100);
        check(&status, &[(90, 70, 5, 15), (100, 100, 0, 0), (0, 0, 0, 0)]);
        assert_eq!((status.members[0].waits, status.members[0].user.as_deref()), (true, Some("user7")));
        members.leave(first, 100);
        members.leave(second, 200);
        let status = members.status(300);
        check(&status, &[(290, 270, 5, 15)]);
        assert_eq!(status.gone.members, 2);
    }
}
