//! Joins programs by `and`, `or` and `not`, as libpcap joins the code of a text's parts.
//!
//! ```text
//! a and b:   a's ops, b's ops; where a accepts, b begins
//! a or b:    a's ops, b's ops; where a rejects, b begins
//! ```
//! Where a program rejects by a load outside the packet or a division by zero, so does the whole.

use super::{ACCEPT, Branch, Op, Program, REJECT};

/// A program whose ends are still open. All jumps stay forward but those that were backward before.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    ops: Vec<Op>,
    /// Places of the jumps that end with yes.
    on_true: Vec<u32>,
    /// And with no.
    on_false: Vec<u32>,
}

impl Joined {
    /// `None` for a program that returns a value that it has computed.
    pub fn new(program: &Program) -> Option<Joined> {
        let ops = program.plain().to_vec();
        let places = |target: u32| {
            let ends_there = move |op: &Op| matches!(op, Op::Jump(to) if *to == target);
            ops.iter().enumerate().filter(move |(_, op)| ends_there(op)).map(|(at, _)| at as u32).collect()
        };
        let (on_true, on_false) = (places(ACCEPT), places(REJECT));
        let returns_a = ops.iter().any(|op| matches!(op, Op::ReturnA));
        (!returns_a).then_some(Joined { ops, on_true, on_false })
    }

    /// The opposite.
    pub fn not(self) -> Joined {
        Joined { ops: self.ops, on_true: self.on_false, on_false: self.on_true }
    }

    /// Both: `next` is evaluated where this says yes.
    pub fn and(mut self, next: Joined) -> Joined {
        let going_on = std::mem::take(&mut self.on_true);
        self.follow(going_on, next)
    }

    /// Either: `next` is evaluated where this says no.
    pub fn or(mut self, next: Joined) -> Joined {
        let going_on = std::mem::take(&mut self.on_false);
        self.follow(going_on, next)
    }

    fn follow(mut self, going_on: Vec<u32>, next: Joined) -> Joined {
        let begin = self.ops.len() as u32;
        for at in going_on {
            self.ops[at as usize] = Op::Jump(begin);
        }
        self.ops.extend(next.ops.into_iter().map(|op| moved(op, begin.into())));
        self.on_true.extend(next.on_true.into_iter().map(|at| begin + at));
        self.on_false.extend(next.on_false.into_iter().map(|at| begin + at));
        self
    }

    /// This program, which begins with the ops of `prefix`, from where it goes on when `prefix` says yes;
    /// `None` where it doesn't begin so. What it means where `prefix` says yes is the same.
    pub fn behind(self, prefix: &Joined) -> Option<Joined> {
        let ends = prefix.on_true.iter().chain(&prefix.on_false);
        let len = ends.copied().min()?;
        let mut goes_on = None;
        let mut same_target = |theirs: u32, ours: u32| match () {
            _ if prefix.on_true.contains(&theirs) => *goes_on.get_or_insert(ours) == ours,
            _ if prefix.on_false.contains(&theirs) => self.on_false.contains(&ours),
            _ => theirs == ours,
        };
        for (theirs, ours) in prefix.ops[..len as usize].iter().zip(&self.ops) {
            let same = match (*theirs, *ours) {
                (Op::IfEqual(a), Op::IfEqual(b)) => {
                    a.k == b.k && same_target(a.on_true, b.on_true) && same_target(a.on_false, b.on_false)
                }
                (Op::LoadHalf(a), Op::LoadHalf(b)) => a == b,
                _ => false,
            };
            if !same {
                return None;
            }
        }
        let begin = goes_on.filter(|&begin| begin >= len)?;
        let left =
            |places: Vec<u32>| places.into_iter().filter(|&at| at >= begin).map(|at| at - begin).collect();
        Some(Joined {
            ops: self.ops[begin as usize..].iter().map(|&op| moved(op, -i64::from(begin))).collect(),
            on_true: left(self.on_true),
            on_false: left(self.on_false),
        })
    }

    /// The program, with its ends closed.
    pub fn program(mut self) -> Program {
        for (places, end) in [(self.on_true, ACCEPT), (self.on_false, REJECT)] {
            for at in places {
                self.ops[at as usize] = Op::Jump(end);
            }
        }
        Program::of(self.ops)
    }
}

/// An op, none of the fused ones, that stands `by` places farther back.
fn moved(op: Op, by: i64) -> Op {
    let target = |to: u32| (i64::from(to) + by) as u32;
    let branch = |b: Branch| Branch { k: b.k, on_true: target(b.on_true), on_false: target(b.on_false) };
    match op {
        Op::IfEqual(b) => Op::IfEqual(branch(b)),
        Op::IfGreater(b) => Op::IfGreater(branch(b)),
        Op::IfGreaterOrEqual(b) => Op::IfGreaterOrEqual(branch(b)),
        Op::IfAnyBit(b) => Op::IfAnyBit(branch(b)),
        Op::IfX(relation, b) => Op::IfX(relation, branch(b)),
        // Ends are found by their places.
        Op::Jump(to) => Op::Jump(if to == ACCEPT || to == REJECT { to } else { target(to) }),
        Op::JumpBack(to) => Op::JumpBack(target(to)),
        other => other,
    }
}
