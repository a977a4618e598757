//! A program as a graph of blocks, the form in which it is rewritten before machine code is made of it.
//!
//! ```text
//! ops                                     blocks
//! 0  LoadHalf [12]                        2  steps LoadHalf [12]    if A = 0x800  then 3, else REJECT
//! 1  IfEqual 0x800  on_true 2             3  steps LoadByte [23]    if A = 17     then ACCEPT, else REJECT
//! 2  LoadByte [23]
//! 3  IfEqual 17     on_true ACCEPT
//! ```
//! A load outside the packet and a division by zero reject wherever they happen, so the steps of a block have
//! no effect besides what they leave in the registers: A, X and the words of scratch memory.

use std::collections::HashMap;

use crate::bpf::{self, MEMORY_WORDS, Op, Operation, Relation};

/// Index of a block.
pub(super) type BlockId = u32;
/// The block that accepts.
pub(super) const ACCEPT: BlockId = 0;
/// The block that rejects.
pub(super) const REJECT: BlockId = 1;

/// A set of registers: bit 0 is A, bit 1 is X, the others are scratch memory.
pub(super) type Registers = u32;
/// The accumulator.
pub(super) const A: Registers = 1;
/// The index register.
pub(super) const X: Registers = 2;

/// A word of scratch memory.
pub(super) fn memory(cell: u8) -> Registers {
    4 << cell
}

const _: () = assert!(MEMORY_WORDS <= 30);

/// The second operand of a computation or a comparison, whose first is A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operand {
    Constant(u32),
    X,
}

/// What a block does without branching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// 1, 2 or 4 bytes of the packet into A, from `at`, or from X and `at`.
    Load {
        bytes: u8,
        at: u32,
        indexed: bool,
    },
    /// X = 4 * (byte at `at` & 15), the length of an IPv4 header.
    Header {
        at: u32,
    },
    Constant(u32),
    Length,
    Recall(u8),
    IndexConstant(u32),
    IndexLength,
    IndexRecall(u8),
    Store(u8),
    StoreIndex(u8),
    Compute(Operation, Operand),
    Negate,
    ToIndex,
    FromIndex,
}

impl Step {
    /// Registers that it reads.
    pub fn reads(self) -> Registers {
        match self {
            Step::Load { indexed: true, .. } | Step::StoreIndex(_) | Step::FromIndex => X,
            Step::Recall(cell) | Step::IndexRecall(cell) => memory(cell),
            Step::Store(_) | Step::Compute(_, Operand::Constant(_)) | Step::Negate | Step::ToIndex => A,
            Step::Compute(_, Operand::X) => A | X,
            _ => 0,
        }
    }

    /// Registers that it writes.
    pub fn writes(self) -> Registers {
        match self {
            Step::Header { .. }
            | Step::IndexConstant(_)
            | Step::IndexLength
            | Step::IndexRecall(_)
            | Step::ToIndex => X,
            Step::Store(cell) | Step::StoreIndex(cell) => memory(cell),
            _ => A,
        }
    }
}

/// Captured bytes that `steps` need at constant places.
pub(super) fn bytes_needed(steps: &[Step]) -> u64 {
    let end = |step: &Step| match *step {
        Step::Load { bytes, at, indexed: false } => u64::from(at) + u64::from(bytes),
        Step::Header { at } => u64::from(at) + 1,
        _ => 0,
    };
    steps.iter().map(end).max().unwrap_or(0)
}

/// Registers that `steps` read before they write them, and those that they write.
pub(super) fn effect(steps: &[Step]) -> (Registers, Registers) {
    let (mut reads, mut writes) = (0, 0);
    for step in steps {
        reads |= step.reads() & !writes;
        writes |= step.writes();
    }
    (reads, writes)
}

/// A comparison of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Test {
    pub relation: Relation,
    pub operand: Operand,
}

/// A value of a set test: steps behind those of the values before it, which leave it in A, and what it is
/// looked up among.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub steps: Vec<Step>,
    /// Sorted, each once.
    pub keys: Vec<u32>,
}

/// Whether one of several values is one of its keys. The first value is the block's own, without steps here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SetTest {
    pub members: Vec<Member>,
    pub on_true: BlockId,
    pub on_false: BlockId,
    /// Where the run goes on, with the registers as the block's own steps left them, if not all values are
    /// captured.
    pub on_short: BlockId,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Accept,
    Reject,
    /// Accepts unless A is zero.
    ReturnA,
    Jump(BlockId),
    /// Counted, see [`bpf::BACKWARD_JUMPS_MAX`].
    JumpBack(BlockId),
    If(Test, BlockId, BlockId),
    In(Box<SetTest>),
}

impl End {
    /// Where it may go.
    pub fn targets(&self) -> impl Iterator<Item = BlockId> + use<> {
        let targets = match self {
            End::Accept | End::Reject | End::ReturnA => [None; 3],
            End::Jump(to) | End::JumpBack(to) => [Some(*to), None, None],
            End::If(_, on_true, on_false) => [Some(*on_true), Some(*on_false), None],
            End::In(set) => [Some(set.on_true), Some(set.on_false), Some(set.on_short)],
        };
        targets.into_iter().flatten()
    }

    /// Lets each target be what `to` makes of it.
    pub fn retarget(&mut self, mut to: impl FnMut(BlockId) -> BlockId) {
        match self {
            End::Accept | End::Reject | End::ReturnA => {}
            End::Jump(target) | End::JumpBack(target) => *target = to(*target),
            End::If(_, on_true, on_false) => (*on_true, *on_false) = (to(*on_true), to(*on_false)),
            End::In(set) => {
                (set.on_true, set.on_false, set.on_short) =
                    (to(set.on_true), to(set.on_false), to(set.on_short));
            }
        }
    }

    /// Registers that it reads.
    fn reads(&self) -> Registers {
        match self {
            End::ReturnA => A,
            End::If(Test { operand: Operand::X, .. }, ..) => A | X,
            End::If(..) => A,
            End::In(set) => set.members.iter().fold(A, |all, member| all | effect(&member.steps).0),
            _ => 0,
        }
    }
}

/// Steps and an end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Block {
    pub steps: Vec<Step>,
    pub end: End,
}

/// A whole program. Blocks [`ACCEPT`] and [`REJECT`] are always there.
#[derive(Debug)]
pub(super) struct Graph {
    pub blocks: Vec<Block>,
    pub entry: BlockId,
}

impl Graph {
    /// The graph of a checked program's ops, none of them fused.
    pub fn new(ops: &[Op]) -> Graph {
        let begins = beginnings(ops);
        let end_only = |end| Block { steps: Vec::new(), end };
        let mut graph = Graph { blocks: vec![end_only(End::Accept), end_only(End::Reject)], entry: 0 };
        let mut known: Vec<Option<BlockId>> = vec![None; ops.len()];
        let mut pending = Vec::new();
        graph.entry = graph.block_at(0, ops, &mut known, &mut pending);
        while let Some(begin) = pending.pop() {
            let mut steps = Vec::new();
            let mut at = begin;
            let end = loop {
                if at != begin && begins[at as usize] {
                    break End::Jump(at);
                }
                match split(ops[at as usize]) {
                    Split::Step(step) => steps.push(step),
                    Split::End(end) => break end,
                }
                at += 1;
            };
            let mut block = Block { steps, end };
            block.end.retarget(|op| graph.block_at(op, ops, &mut known, &mut pending));
            if let Some(id) = known[begin as usize] {
                graph.blocks[id as usize] = block;
            }
        }
        graph
    }

    /// The block that begins with an op; jumps lead to their own targets.
    fn block_at(
        &mut self,
        mut op: u32,
        ops: &[Op],
        known: &mut [Option<BlockId>],
        pending: &mut Vec<u32>,
    ) -> BlockId {
        while let Some(Op::Jump(to)) = ops.get(op as usize) {
            op = *to;
        }
        match op {
            bpf::ACCEPT => ACCEPT,
            bpf::REJECT => REJECT,
            _ => match known[op as usize] {
                Some(id) => id,
                None => {
                    pending.push(op);
                    self.blocks.push(Block { steps: Vec::new(), end: End::Reject });
                    let id = (self.blocks.len() - 1) as BlockId;
                    known[op as usize] = Some(id);
                    id
                }
            },
        }
    }

    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    /// Whether no jump goes back.
    pub fn is_acyclic(&self) -> bool {
        !self.blocks.iter().any(|block| matches!(block.end, End::JumpBack(_)))
    }

    /// The blocks that can be reached, each before those that it leads to, backward jumps left aside.
    pub fn order(&self) -> Vec<BlockId> {
        let mut seen = vec![false; self.blocks.len()];
        let (mut order, mut stack) = (Vec::new(), vec![(self.entry, false)]);
        while let Some((id, done)) = stack.pop() {
            if done {
                order.push(id);
            } else if !std::mem::replace(&mut seen[id as usize], true) {
                stack.push((id, true));
                stack.extend(self.block(id).end.targets().map(|to| (to, false)));
            }
        }
        order.reverse();
        order
    }

    /// For each block the registers that it, or what comes after it, reads as it finds them.
    pub fn live(&self, order: &[BlockId]) -> Vec<Registers> {
        let mut live = vec![0; self.blocks.len()];
        loop {
            let mut changed = false;
            for &id in order.iter().rev() {
                let block = self.block(id);
                let (reads, writes) = effect(&block.steps);
                let after = block.end.targets().fold(block.end.reads(), |all, to| all | live[to as usize]);
                let found = reads | after & !writes;
                changed |= live[id as usize] != found;
                live[id as usize] = found;
            }
            if self.is_acyclic() || !changed {
                return live;
            }
        }
    }

    /// For each block the one that every way to it comes through last (its immediate dominator), and how many
    /// edges lead to it. Only for graphs without backward jumps.
    pub fn dominators(&self, order: &[BlockId]) -> (Vec<Option<BlockId>>, Vec<u32>) {
        let mut place = vec![u32::MAX; self.blocks.len()];
        for (at, &id) in order.iter().enumerate() {
            place[id as usize] = at as u32;
        }
        let mut dominators: Vec<Option<BlockId>> = vec![None; self.blocks.len()];
        let mut edges = vec![0; self.blocks.len()];
        for &from in order {
            for to in self.block(from).end.targets() {
                edges[to as usize] += 1;
                // Nothing is known of the ends, to which most blocks lead.
                if to == ACCEPT || to == REJECT {
                    continue;
                }
                let common = match dominators[to as usize] {
                    None => from,
                    Some(other) => common_dominator(&dominators, &place, other, from),
                };
                dominators[to as usize] = Some(common);
            }
        }
        (dominators, edges)
    }

    /// Lets blocks that test A as others have left it load it themselves, where that is a load or two at
    /// constant places: a load costs less than to carry the value on, and what a block tests is seen in it.
    /// Only for graphs without backward jumps.
    pub fn reload(&mut self) {
        // What leaves a block in A, where all ways to it agree: the steps that make it.
        let mut entering: Vec<Option<Option<Vec<Step>>>> = vec![None; self.blocks.len()];
        entering[self.entry as usize] = Some(None);
        for id in self.order() {
            let found = entering[id as usize].clone().flatten();
            let block = &mut self.blocks[id as usize];
            if let (true, End::If(..), Some(steps)) = (block.steps.is_empty(), &block.end, &found) {
                block.steps.clone_from(steps);
            }
            let leaving = match effect(&block.steps) {
                (0, A)
                    if !block.steps.iter().any(|step| matches!(step, Step::Load { indexed: true, .. })) =>
                {
                    Some(block.steps.clone())
                }
                (_, writes) if writes & A == 0 => found,
                _ => None,
            };
            for to in block.end.targets() {
                let entering = &mut entering[to as usize];
                *entering = Some(match entering.take() {
                    Some(other) if other != leaving => None,
                    _ => leaving.clone(),
                });
            }
        }
    }

    /// Makes one block of blocks that do the same and go on to the same.
    pub fn merge_equal(&mut self) {
        let order = self.order();
        let mut known: HashMap<Block, BlockId> = HashMap::new();
        let mut same: Vec<BlockId> = (0..self.blocks.len() as BlockId).collect();
        for &id in order.iter().rev() {
            let block = &mut self.blocks[id as usize];
            block.end.retarget(|to| same[to as usize]);
            same[id as usize] = *known.entry(block.clone()).or_insert(id);
        }
        self.entry = same[self.entry as usize];
    }
}

fn common_dominator(
    dominators: &[Option<BlockId>],
    place: &[u32],
    mut a: BlockId,
    mut b: BlockId,
) -> BlockId {
    while a != b {
        let later = if place[a as usize] > place[b as usize] { &mut a } else { &mut b };
        // Only the entry has none, and it stands before all others.
        *later = dominators[*later as usize].unwrap_or(*later);
    }
    a
}

/// Ops at which a block begins because something jumps there.
fn beginnings(ops: &[Op]) -> Vec<bool> {
    let mut begins = vec![false; ops.len()];
    for op in ops {
        if let Split::End(end) = split(*op) {
            for to in end.targets().filter(|&to| (to as usize) < ops.len()) {
                begins[to as usize] = true;
            }
        }
    }
    begins
}

/// An op is either a step or an end; targets of ends are still indices of ops.
enum Split {
    Step(Step),
    End(End),
}

fn split(op: Op) -> Split {
    let branch = |relation, b: bpf::Branch| {
        let test = Test { relation, operand: Operand::Constant(b.k) };
        Split::End(End::If(test, b.on_true, b.on_false))
    };
    let load = |bytes, at, indexed| Step::Load { bytes, at, indexed };
    Split::Step(match op {
        Op::IfEqual(b) => return branch(Relation::Equal, b),
        Op::IfGreater(b) => return branch(Relation::Greater, b),
        Op::IfGreaterOrEqual(b) => return branch(Relation::GreaterOrEqual, b),
        Op::IfAnyBit(b) => return branch(Relation::AnyBit, b),
        Op::IfX(relation, b) => {
            return Split::End(End::If(Test { relation, operand: Operand::X }, b.on_true, b.on_false));
        }
        Op::Jump(to) => return Split::End(End::Jump(to)),
        Op::JumpBack(to) => return Split::End(End::JumpBack(to)),
        Op::ReturnA => return Split::End(End::ReturnA),
        Op::LoadWord(k) => load(4, k, false),
        Op::LoadHalf(k) => load(2, k, false),
        Op::LoadByte(k) => load(1, k, false),
        Op::LoadWordAtX(k) => load(4, k, true),
        Op::LoadHalfAtX(k) => load(2, k, true),
        Op::LoadByteAtX(k) => load(1, k, true),
        Op::LoadConstant(k) => Step::Constant(k),
        Op::LoadMemory(cell) => Step::Recall(cell),
        Op::LoadLength => Step::Length,
        Op::IndexConstant(k) => Step::IndexConstant(k),
        Op::IndexMemory(cell) => Step::IndexRecall(cell),
        Op::IndexLength => Step::IndexLength,
        Op::IndexHeader(at) => Step::Header { at },
        Op::Store(cell) => Step::Store(cell),
        Op::StoreIndex(cell) => Step::StoreIndex(cell),
        Op::And(k) => Step::Compute(Operation::And, Operand::Constant(k)),
        Op::Compute(operation, k) => Step::Compute(operation, Operand::Constant(k)),
        Op::ComputeX(operation) => Step::Compute(operation, Operand::X),
        Op::Negate => Step::Negate,
        Op::ToIndex => Step::ToIndex,
        Op::FromIndex => Step::FromIndex,
        Op::IfWordEqual(..)
        | Op::IfHalfEqual(..)
        | Op::IfByteEqual(..)
        | Op::IfHalfAnyBit(..)
        | Op::IfHalfAtXEqual(..) => {
            unreachable!("ops of a graph are not fused")
        }
    })
}
