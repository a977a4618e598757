//! Who gets which flow: shares by weight, and flows that go to two members or move without need.
//!
//! ```text
//! balance  4 members, weights 1:2:3:2, one packet of each of 50,000 flows ─► packets that each was given
//! strays   3 members │ one joins │ all stay │ one leaves │ one joins meanwhile │ one leaves meanwhile
//!          both directions of all flows in each phase; in the last two packets come while it happens
//! ```
//! The bench feeds a ring and reads what the sharing thread has put into the members' memories, in order: each packet has a
//! number and that of its flow. A flow may change its member once in a phase, to whoever has joined, or from whoever has left.

use super::drawn::{self, Drawn, Ends, PAYLOAD_AT};
use super::group_rows::wait_until;
use super::served::{Seats, served};
use crate::table::{Key, Table};
use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use scope_group::rules::RuleSet;
use scope_group::{Group, Newcomer, Phase, Sharing};
use scope_ring::{Reader, Ring};
use scope_share::Progress;
use scope_testkit::traffic::Random;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Worst relative error of a share.
pub const BALANCE: Key<'static> = ("share_balance", "50,000 flows, weights 1:2:3:2");
/// Flows.
pub const STRAYS: Key<'static> = ("share_strays", "50,000 flows, joins and leaves");

const FLOWS: u64 = 50_000;
const WEIGHTS: [u16; 4] = [1, 2, 3, 2];
/// A ring, and a member's memory, that hold all packets of a row.
const RING_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 128 << 20;
const SEATS: u32 = 6;
/// How often all flows come in a phase in which somebody comes or goes meanwhile.
const TURNS: u64 = 3;
/// Between so many packets of such a phase the feeder sleeps.
const REST_PACKETS: u64 = 2048;
const REST: Duration = Duration::from_millis(1);
/// Nobody has had it yet.
const NOBODY: u8 = u8::MAX;

/// Who sits in a group, and the thread that gives to them.
struct Members {
    group: Arc<Group>,
    sharing: Sharing,
    connections: Vec<OwnedFd>,
}

/// A ring, and a group that shares it by flow.
struct Stand {
    ring: Arc<Ring>,
    members: Members,
    drawn: Drawn,
    readers: Vec<Reader>,
}

/// Who has joined or left.
#[derive(Clone, Copy)]
enum Change {
    Joined(u8),
    Left(u8),
}

/// A packet that a member was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Given {
    flow: u32,
    number: u32,
    member: u8,
}

/// One go.
pub fn balance(table: &mut Table) {
    let value = worst_share(table.round() as u64).map_err(|error| format!("{error:#}"));
    table.put(BALANCE.0, BALANCE.1, "", value);
}

/// One go.
pub fn strays(table: &mut Table) {
    let value = count_strays(table.round() as u64).map_err(|error| format!("{error:#}"));
    table.put(STRAYS.0, STRAYS.1, "flows", value.map(|strays| strays as f64));
}

fn worst_share(seed: u64) -> Result<f64> {
    let mut stand = Stand::new(seed)?;
    for (seat, weight) in WEIGHTS.into_iter().enumerate() {
        stand.members.join(seat, weight)?;
    }
    let mut counts = [0u64; WEIGHTS.len()];
    for given in stand.turns(1, |_| Ok(()))? {
        counts[usize::from(given.member)] += 1;
    }
    let (all, total) = (counts.iter().sum::<u64>() as f64, f64::from(WEIGHTS.iter().sum::<u16>()));
    let errors = counts.iter().zip(WEIGHTS).map(|(count, weight)| {
        let wanted = all * f64::from(weight) / total;
        (*count as f64 / wanted - 1.0).abs()
    });
    errors.max_by(f64::total_cmp).context("no members")
}

fn count_strays(seed: u64) -> Result<u64> {
    let mut stand = Stand::new(seed)?;
    let mut owners = vec![NOBODY; FLOWS as usize];
    for (seat, weight) in [1, 2, 1].into_iter().enumerate() {
        stand.members.join(seat, weight)?;
    }
    let mut strays = 0;
    let mut look = |given: Vec<Given>, change| strays += strays_of(&mut owners, given, change);
    look(stand.turns(1, |_| Ok(()))?, None);
    stand.members.join(3, 3)?;
    look(stand.turns(1, |_| Ok(()))?, Some(Change::Joined(3)));
    look(stand.turns(1, |_| Ok(()))?, None);
    stand.members.leave(1)?;
    look(stand.turns(1, |_| Ok(()))?, Some(Change::Left(1)));
    look(stand.turns(TURNS, |members| members.join(4, 2))?, Some(Change::Joined(4)));
    look(stand.turns(TURNS, |members| members.leave(3))?, Some(Change::Left(3)));
    look(stand.turns(1, |_| Ok(()))?, None);
    Ok(strays)
}

/// Flows whose packets went to two members, or to another one than before, where nobody's coming or going was a reason for it.
/// `owners` has who had each flow last, here and in the end.
fn strays_of(owners: &mut [u8], mut given: Vec<Given>, change: Option<Change>) -> u64 {
    given.sort_unstable();
    let mut strays = 0;
    for packets in given.chunk_by(|one, other| one.flow == other.flow) {
        let owner = &mut owners[packets[0].flow as usize];
        let (mut moved, mut is_stray) = (0, false);
        for packet in packets {
            if packet.member != *owner && *owner != NOBODY {
                moved += 1;
                is_stray |= match change {
                    Some(Change::Joined(member)) => packet.member != member,
                    Some(Change::Left(member)) => *owner != member,
                    None => true,
                };
            }
            *owner = packet.member;
        }
        strays += u64::from(is_stray || moved > 1);
    }
    strays
}

impl Members {
    /// Somebody takes a free seat, and is given packets when this returns.
    fn join(&mut self, seat: usize, weight: u16) -> Result<()> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        self.connections.push(other);
        let place = &self.group.seats()[seat];
        ensure!(
            place.enter(Newcomer { weight, class: String::new(), connection: one }),
            "seat {seat} is taken"
        );
        place.page().write(&Progress::default())?;
        self.sharing.ring();
        wait_until("a member", || self.group.seats()[seat].phase() == Phase::Active)
    }

    /// Whoever sits there goes, and is given nothing more when this returns.
    fn leave(&mut self, seat: usize) -> Result<()> {
        self.group.seats()[seat].leave();
        self.sharing.ring();
        wait_until("a free seat", || self.group.seats()[seat].phase() == Phase::Free)
    }
}

impl Stand {
    fn new(seed: u64) -> Result<Stand> {
        let ring = scope_measure::ring(RING_BYTES, None, 1)?;
        let seats = Seats { many: SEATS, memory_bytes: MEMORY_BYTES };
        let (group, sharing) = served(&ring, "flow", RuleSet::default(), seats)?;
        let mut random = Random::new(seed + 1);
        let mut host = || random.below(1 << 32) as u32;
        // Both directions of a flow follow each other.
        let both = |flow: u64| {
            let (hosts, ports) = ((host(), host()), (1024 + flow as u16 % 60_000, 443));
            let back = Ends { hosts: (hosts.1, hosts.0), ports: (ports.1, ports.0) };
            [Ends { hosts, ports }, back].map(|ends| {
                let mut frame = drawn::frame(ends);
                frame[PAYLOAD_AT..PAYLOAD_AT + 4].copy_from_slice(&(flow as u32).to_le_bytes());
                frame
            })
        };
        let drawn = Drawn::new(&ring, (0..FLOWS).flat_map(both))?;
        let readers = group.seats().iter().map(|seat| Reader::new(seat.memory())).collect();
        Ok(Stand { ring, members: Members { group, sharing, connections: Vec::new() }, drawn, readers })
    }

    /// Both directions of all flows come so many times, while `meanwhile` happens: what members were given, which must be
    /// all.
    fn turns(
        &mut self,
        turns: u64,
        meanwhile: impl FnOnce(&mut Members) -> Result<()>,
    ) -> Result<Vec<Given>> {
        let Stand { ring, members, drawn, readers } = self;
        let (packets, fed) = (turns * 2 * FLOWS, AtomicU64::new(0));
        let number = |frame: &mut [u8; drawn::BYTES], number: u64| {
            frame[PAYLOAD_AT + 4..PAYLOAD_AT + 8].copy_from_slice(&(number as u32).to_le_bytes());
        };
        let rest = |done: u64| {
            fed.store(done, Ordering::Relaxed);
            if done.is_multiple_of(REST_PACKETS) {
                std::thread::sleep(REST);
            }
        };
        std::thread::scope(|scope| {
            let feeding = scope.spawn(|| drawn.feed_changed(packets, number, rest));
            wait_until("packets", || fed.load(Ordering::Relaxed) >= packets / 3)?;
            let happened = meanwhile(members);
            feeding.join().map_err(|_| anyhow::anyhow!("the feeder failed"))?;
            happened
        })?;
        let published = |ring: &Ring| ring.counters().lanes.iter().map(|lane| lane.packets).sum::<u64>();
        let group = members.group.clone();
        wait_until("the sharing thread", || group.status(published(ring)).counts.behind == 0)?;
        let mut given = Vec::with_capacity(packets as usize);
        for (member, reader) in readers.iter_mut().enumerate() {
            while let Some(batch) = reader.next_batch() {
                for block in batch.blocks() {
                    let number = |at: usize| {
                        let bytes = block.data().get(PAYLOAD_AT + at..PAYLOAD_AT + at + 4);
                        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
                    };
                    given.push(Given { flow: number(0), number: number(4), member: member as u8 });
                }
            }
        }
        ensure!(given.len() as u64 == packets, "{} packets given of {packets}", given.len());
        Ok(given)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.members.sharing.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_moves_once_and_only_where_somebody_came_or_went() {
        let check = |members: &[u8], change, expected| {
            let mut owners = [NOBODY, 1];
            let given = (0..).zip(members).map(|(number, member)| Given { flow: 1, number, member: *member });
            let strays = strays_of(&mut owners, given.collect(), change);
            assert_eq!((strays, owners[1]), (expected, *members.last().unwrap()), "{members:?}");
        };
        check(&[1, 1], None, 0);
        check(&[1, 2], None, 1);
        check(&[2, 2], Some(Change::Joined(2)), 0);
        check(&[1, 2, 1], Some(Change::Joined(2)), 1);
        check(&[3], Some(Change::Joined(2)), 1);
        check(&[1, 0], Some(Change::Left(1)), 0);
        check(&[1, 0, 2], Some(Change::Left(1)), 1);
        check(&[0], Some(Change::Left(2)), 1);
    }
}
