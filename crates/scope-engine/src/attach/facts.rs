//! Groups as facts: for the log, the summary, and the API.

use super::members::{GroupStatus, MemberStatus};
use scope_events::counts;
use scope_events::fact::Rare;
use scope_group::Gone;
use scope_share::page::Standing;

impl GroupStatus {
    /// As log, summary and API have it.
    pub fn facts(&self) -> counts::Group {
        let of = &self.counts;
        let only = |figure: u64| Rare(self.rules.as_ref().map(|_| figure));
        let (filter, steer) = self.rules.clone().unzip();
        counts::Group {
            name: self.name.clone(),
            filter: Rare(filter),
            steer: Rare(steer),
            published: of.published,
            idle: only(of.idle),
            seen: only(of.seen),
            missed: only(of.missed),
            behind: only(of.behind),
            filtered: only(of.filtered),
            dropped: Rare(self.rules.as_ref().map(|_| of.dropped.clone())),
            unclaimed: only(of.unclaimed),
            taken: only(of.taken),
            doubled: only(of.doubled),
            copied_in: only(of.copied_in),
            members_max: self.members_max as u64,
            memory_bytes: self.memory_bytes,
            members: self.members.iter().map(member).collect(),
            gone: gone(&self.gone),
        }
    }
}

fn member(status: &MemberStatus) -> counts::Member {
    let Standing { given, read, missed, behind } = status.standing;
    counts::Member {
        number: status.number.into(),
        name: status.name.clone(),
        pid: status.pid.into(),
        uid: status.uid.into(),
        user: status.user.clone().unwrap_or_else(|| status.uid.to_string()),
        class: status.class.clone(),
        weight: status.weight.into(),
        given,
        read,
        missed,
        behind,
        waits: status.waits,
        stuck: status.is_stuck,
        hold_bytes: status.hold_bytes,
        held_bytes: status.held_bytes,
    }
}

fn gone(Gone { members, standing }: &Gone) -> counts::Gone {
    let Standing { given, read, missed, behind } = *standing;
    counts::Gone { members: *members, given, read, missed, behind }
}
