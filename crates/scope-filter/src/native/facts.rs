//! Leads jumps past tests whose outcome is known: libpcap's long lists ask for the network layer again before each entry.
//!
//! ```text
//! 2  [12:2] = 0x800 ?  then 3 else 5         on the way 3 -> 5 it is known that [12:2] = 0x800:
//! 3  [26:4] = K1    ?  then ACCEPT else 5        3  then ACCEPT else 6
//! 5  [12:2] = 0x800 ?  then 6 else ...       and 2 -> 5 leads past 6
//! 6  [26:4] = K2    ?  ...
//! ```
//! What is known at a block are the outcomes of the tests on the ways that every run to it has taken (its dominators). A test
//! is passed over only if its block computes its value from the packet alone, by steps that have been gone through before (so
//! no load of it can fail), and leaves nothing in registers that is read behind it. What holds of all ways to a block in the
//! old graph holds in the new one, whose ways are the same with blocks left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::graph::{BlockId, End, Graph, Operand, Registers, Step, Test, effect};
use crate::bpf::Relation;

/// Tests passed over by one jump, at most.
const STEPS_MAX: usize = 4096;

/// Number of a value: of steps that need nothing but the packet.
type ValueId = u32;

/// Threads the jumps of a graph without backward jumps.
pub(super) fn thread_jumps(graph: &mut Graph) {
    let order = graph.order();
    let (dominators, edges) = graph.dominators(&order);
    let mut children: Vec<Vec<BlockId>> = vec![Vec::new(); graph.blocks.len()];
    for &id in &order {
        if let Some(parent) = dominators[id as usize] {
            children[parent as usize].push(id);
        }
    }
    let live = graph.live(&order);
    let values = values(graph, &order);
    let mut ends: Vec<(BlockId, End)> = Vec::new();
    let mut facts = Facts::default();
    let mut stack = vec![Visit::Enter(graph.entry)];
    while let Some(visit) = stack.pop() {
        let id = match visit {
            Visit::Leave(count) => {
                facts.forget(count);
                continue;
            }
            Visit::Enter(id) => id,
        };
        let learned = match dominators[id as usize] {
            Some(parent) if edges[id as usize] == 1 => facts.learn_edge(graph, &values, parent, id),
            _ => 0,
        };
        stack.push(Visit::Leave(learned));
        stack.extend(children[id as usize].iter().map(|&child| Visit::Enter(child)));
        let mut end = graph.block(id).end.clone();
        if let End::If(test, on_true, on_false) = &mut end {
            for (holds, to) in [(true, on_true), (false, on_false)] {
                let learned = values[id as usize].map_or(0, |value| facts.learn(value, *test, holds));
                *to = facts.follow(graph, &values, &live, *to);
                facts.forget(learned);
            }
        }
        ends.push((id, end));
    }
    for (id, end) in ends {
        graph.blocks[id as usize].end = end;
    }
}

enum Visit {
    Enter(BlockId),
    /// Facts to forget.
    Leave(usize),
}

/// The value that each block tests, where that needs nothing but the packet.
fn values(graph: &Graph, order: &[BlockId]) -> Vec<Option<ValueId>> {
    let mut numbers: HashMap<&[Step], ValueId> = HashMap::new();
    let mut values = vec![None; graph.blocks.len()];
    for &id in order {
        let block = graph.block(id);
        let (reads, writes) = effect(&block.steps);
        if matches!(block.end, End::If(..)) && reads == 0 && writes & super::graph::A != 0 {
            let next = numbers.len() as ValueId;
            values[id as usize] = Some(*numbers.entry(&block.steps).or_insert(next));
        }
    }
    values
}

/// Outcomes that are known at one place, latest last.
#[derive(Default)]
struct Facts {
    outcomes: HashMap<(ValueId, Test), bool>,
    constants: HashMap<ValueId, u32>,
    learned: Vec<Fact>,
}

enum Fact {
    Outcome(ValueId, Test),
    Constant(ValueId),
}

impl Facts {
    /// Learns what the only way from `parent` to `to` tells; how many facts that are.
    fn learn_edge(&mut self, graph: &Graph, values: &[Option<ValueId>], parent: BlockId, to: BlockId) -> usize {
        match (&graph.block(parent).end, values[parent as usize]) {
            (End::If(test, on_true, on_false), Some(value)) if on_true != on_false => self.learn(value, *test, *on_true == to),
            _ => 0,
        }
    }

    fn learn(&mut self, value: ValueId, test: Test, holds: bool) -> usize {
        let before = self.learned.len();
        // What is known already stays: a way that contradicts it is never taken.
        if let Entry::Vacant(unknown) = self.outcomes.entry((value, test)) {
            unknown.insert(holds);
            self.learned.push(Fact::Outcome(value, test));
        }
        if let Test { relation: Relation::Equal, operand: Operand::Constant(k) } = test
            && holds
            && let Entry::Vacant(unknown) = self.constants.entry(value)
        {
            unknown.insert(k);
            self.learned.push(Fact::Constant(value));
        }
        self.learned.len() - before
    }

    fn forget(&mut self, count: usize) {
        for fact in self.learned.drain(self.learned.len() - count..) {
            match fact {
                Fact::Outcome(value, test) => drop(self.outcomes.remove(&(value, test))),
                Fact::Constant(value) => drop(self.constants.remove(&value)),
            }
        }
    }

    fn outcome(&self, value: ValueId, test: Test) -> Option<bool> {
        match (self.constants.get(&value), test.operand) {
            (Some(&a), Operand::Constant(k)) => Some(test.relation.holds(a, k)),
            _ => self.outcomes.get(&(value, test)).copied(),
        }
    }

    /// Where a jump to `to` leads, past tests whose outcome is known.
    fn follow(&self, graph: &Graph, values: &[Option<ValueId>], live: &[Registers], mut to: BlockId) -> BlockId {
        for _ in 0..STEPS_MAX {
            let block = graph.block(to);
            let (End::If(test, on_true, on_false), Some(value)) = (&block.end, values[to as usize]) else { return to };
            let Some(holds) = self.outcome(value, *test) else { return to };
            let next = if holds { *on_true } else { *on_false };
            if live[next as usize] & effect(&block.steps).1 != 0 {
                return to;
            }
            to = next;
        }
        to
    }
}
