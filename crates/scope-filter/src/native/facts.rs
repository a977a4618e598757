//! Leads jumps past tests whose outcome is known: libpcap's long lists test the network layer again before
//! each entry.
//!
//! ```text
//! 2  [12:2] = 0x800 ?  then 3 else 5         on the way 3 -> 5 it is known that [12:2] = 0x800:
//! 3  [26:4] = K1    ?  then ACCEPT else 5        3  then ACCEPT else 6
//! 5  [12:2] = 0x800 ?  then 6 else ...       and 2 -> 5 leads past 6
//! 6  [26:4] = K2    ?  ...
//! ```
//! What is known at a block are the outcomes of the tests on the ways that every run to it has taken (its
//! dominators). A test is passed over only if its block computes its value from the packet alone, by steps
//! that have been gone through before (so no load of it can fail), and leaves nothing in registers that is
//! read behind it. What holds of all ways to a block in the old graph holds in the new one, whose ways are
//! the same with blocks omitted.

use std::collections::HashMap;

use super::graph::{A, BlockId, End, Graph, Operand, Registers, Step, Test, effect};
use crate::bpf::Relation;

/// Tests passed over by one jump, at most.
const TESTS_MAX: usize = 4096;
/// Rounds: where ways part that had met before, more is known in the next one.
const ROUNDS_MAX: usize = 4;

/// Threads the jumps of a graph without backward jumps.
pub(super) fn thread_jumps(graph: &mut Graph) {
    for _ in 0..ROUNDS_MAX {
        if !round(graph) {
            return;
        }
    }
}

/// One round; whether it changed anything.
fn round(graph: &mut Graph) -> bool {
    let order = graph.order();
    let (dominators, edges) = graph.dominators(&order);
    let mut children: Vec<Vec<BlockId>> = vec![Vec::new(); graph.blocks.len()];
    for &id in &order {
        if let Some(parent) = dominators[id as usize] {
            children[parent as usize].push(id);
        }
    }
    let live = graph.live(&order);
    let mut facts = Facts::new(graph, &order);
    let mut changed: Vec<(BlockId, End)> = Vec::new();
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
            Some(parent) if edges[id as usize] == 1 => facts.learn_edge(graph, parent, id),
            _ => 0,
        };
        stack.push(Visit::Leave(learned));
        stack.extend(children[id as usize].iter().map(|&child| Visit::Enter(child)));
        if let End::If(test, on_true, on_false) = graph.block(id).end {
            let [now_true, now_false] = [(true, on_true), (false, on_false)].map(|(holds, to)| {
                let learned = facts.learn(graph, id, holds);
                let to = facts.follow(graph, &live, to);
                facts.forget(learned);
                to
            });
            if (now_true, now_false) != (on_true, on_false) {
                changed.push((id, End::If(test, now_true, now_false)));
            }
        }
    }
    let any = !changed.is_empty();
    for (id, end) in changed {
        graph.blocks[id as usize].end = end;
    }
    any
}

enum Visit {
    Enter(BlockId),
    /// Facts to forget.
    Leave(usize),
}

/// A test of a value that comes from the packet alone. Equal tests have equal numbers, and so have values.
#[derive(Clone, Copy)]
struct Numbered {
    value: u32,
    test: u32,
    /// Registers that the steps in front of it write.
    writes: Registers,
}

/// What is known at one place.
struct Facts {
    /// By block.
    tests: Vec<Option<Numbered>>,
    /// Outcomes by number of the test.
    outcomes: Vec<Option<bool>>,
    /// Constants that values are known to be, by number of the value.
    constants: Vec<Option<u32>>,
    /// Latest last.
    learned: Vec<Fact>,
}

enum Fact {
    Outcome(u32),
    Constant(u32),
}

impl Facts {
    /// Nothing is known yet. Numbers values and tests.
    fn new(graph: &Graph, order: &[BlockId]) -> Facts {
        let mut values: HashMap<&[Step], u32> = HashMap::new();
        let mut numbers: HashMap<(u32, Test), u32> = HashMap::new();
        let mut tests = vec![None; graph.blocks.len()];
        for &id in order {
            let block = graph.block(id);
            let (reads, writes) = effect(&block.steps);
            let End::If(test, ..) = block.end else { continue };
            if reads == 0 && writes & A != 0 && matches!(test.operand, Operand::Constant(_)) {
                let next = values.len() as u32;
                let value = *values.entry(&block.steps).or_insert(next);
                let next = numbers.len() as u32;
                let test = *numbers.entry((value, test)).or_insert(next);
                tests[id as usize] = Some(Numbered { value, test, writes });
            }
        }
        Facts {
            tests,
            outcomes: vec![None; numbers.len()],
            constants: vec![None; values.len()],
            learned: Vec::new(),
        }
    }

    /// Learns what the only way from `parent` to `to` implies; how many facts that are.
    fn learn_edge(&mut self, graph: &Graph, parent: BlockId, to: BlockId) -> usize {
        match graph.block(parent).end {
            End::If(_, on_true, on_false) if on_true != on_false => self.learn(graph, parent, on_true == to),
            _ => 0,
        }
    }

    /// Learns the outcome of a block's test; how many facts that are. What is known already stays: a way that
    /// contradicts it is never taken.
    fn learn(&mut self, graph: &Graph, id: BlockId, holds: bool) -> usize {
        let before = self.learned.len();
        let (Some(numbered), End::If(test, ..)) = (self.tests[id as usize], &graph.block(id).end) else {
            return 0;
        };
        if self.outcomes[numbered.test as usize].is_none() {
            self.outcomes[numbered.test as usize] = Some(holds);
            self.learned.push(Fact::Outcome(numbered.test));
        }
        if let Test { relation: Relation::Equal, operand: Operand::Constant(k) } = *test
            && holds
            && self.constants[numbered.value as usize].is_none()
        {
            self.constants[numbered.value as usize] = Some(k);
            self.learned.push(Fact::Constant(numbered.value));
        }
        self.learned.len() - before
    }

    fn forget(&mut self, count: usize) {
        for fact in self.learned.drain(self.learned.len() - count..) {
            match fact {
                Fact::Outcome(test) => self.outcomes[test as usize] = None,
                Fact::Constant(value) => self.constants[value as usize] = None,
            }
        }
    }

    fn outcome(&self, numbered: Numbered, test: Test) -> Option<bool> {
        match (self.constants[numbered.value as usize], test.operand) {
            (Some(a), Operand::Constant(k)) => Some(test.relation.holds(a, k)),
            _ => self.outcomes[numbered.test as usize],
        }
    }

    /// Where a jump to `to` leads, past tests whose outcome is known.
    fn follow(&self, graph: &Graph, live: &[Registers], mut to: BlockId) -> BlockId {
        for _ in 0..TESTS_MAX {
            let (End::If(test, on_true, on_false), Some(numbered)) =
                (&graph.block(to).end, self.tests[to as usize])
            else {
                return to;
            };
            let Some(holds) = self.outcome(numbered, *test) else { return to };
            let next = if holds { *on_true } else { *on_false };
            if live[next as usize] & numbered.writes != 0 {
                return to;
            }
            to = next;
        }
        to
    }
}
