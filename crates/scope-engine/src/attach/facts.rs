//! Groups as facts: for the log, the summary, and the API; and what of them is to be told at a run's end.

use super::forwards::ForwardStatus;
use super::members::{GroupStatus, MemberStatus, Takes};
use scope_events::counts;
use scope_events::fact::Rare;
use scope_group::Gone;
use scope_ring::{Interfaces, Ring};
use scope_share::page::Standing;

impl GroupStatus {
    /// As log, summary and API have it.
    pub fn facts(&self) -> counts::Group {
        let of = &self.counts;
        let only = |figure: u64| Rare(self.takes.as_ref().map(|_| figure));
        let word = |of: fn(&Takes) -> &String| Rare(self.takes.as_ref().map(|takes| of(takes).clone()));
        counts::Group {
            name: self.name.clone(),
            filter: word(|takes| &takes.filter),
            interface: word(|takes| &takes.interface),
            steer: word(|takes| &takes.steer),
            published: of.published,
            idle: only(of.idle),
            seen: only(of.seen),
            missed: only(of.missed),
            behind: only(of.behind),
            filtered: only(of.filtered),
            dropped: Rare(self.takes.as_ref().map(|_| of.dropped.clone())),
            unclaimed: only(of.unclaimed),
            taken: only(of.taken),
            doubled: only(of.doubled),
            copied_in: only(of.copied_in),
            members_max: self.members_max as u64,
            memory_bytes: self.memory_bytes,
            members: self.members.iter().map(member).collect(),
            forwards: self.forwards.iter().map(forward).collect(),
            gone: gone(&self.gone),
        }
    }
}

/// What groups didn't get and forwards didn't send, in words.
pub(crate) fn warnings(groups: &[GroupStatus], ring: &Ring) -> Vec<String> {
    let interfaces = ring.interfaces_from(0);
    let has = |name: &str| interfaces.iter().any(|entry| entry.name == name);
    let mut warnings = Vec::new();
    for group in groups {
        let interface = group.takes.as_ref().map(|takes| takes.interface.as_str());
        if let Some(interface) = interface.filter(|name| !name.is_empty() && !has(name)) {
            let words = "no source has captured it, so the group was given nothing";
            warnings.push(format!("group {}: interface {interface}: {words}", group.name));
        }
        for forward in group.forwards.iter().filter(|forward| forward.counts.refused_all() > 0) {
            let each = forward.counts.refusals().map(|(why, many)| format!("{many} {}", why.name()));
            let each: Vec<String> = each.collect();
            let (name, read) = (&forward.interface, forward.standing.read);
            let refused = forward.counts.refused_all();
            let words = format!("{refused} of {read} packets were not sent: {}", each.join(", "));
            warnings.push(format!("forward {}={name}: {words}", group.name));
        }
    }
    warnings
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

fn forward(status: &ForwardStatus) -> counts::Forward {
    let Standing { given, read, missed, behind } = status.standing;
    let of = &status.counts;
    counts::Forward {
        name: status.name.clone(),
        interface: status.interface.clone(),
        given,
        read,
        missed,
        behind,
        sent: of.sent,
        bytes: of.bytes,
        padded: of.padded,
        refused: of.refusals().map(|(why, packets)| (why.name().to_string(), packets)).collect(),
    }
}

fn gone(Gone { members, standing }: &Gone) -> counts::Gone {
    let Standing { given, read, missed, behind } = *standing;
    counts::Gone { members: *members, given, read, missed, behind }
}
