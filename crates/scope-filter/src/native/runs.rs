//! Finds long runs of comparisons that lead to the same place, and makes each one test of sets.
//!
//! ```text
//! [26:4] = K1 ? T :  [30:4] = K1 ? T :  [26:4] = K2 ? T :  [30:4] = K2 ? T : F
//!     becomes        [26:4] in {K1, K2} or [30:4] in {K1, K2} ? T : F
//! ```
//! The order of the comparisons matters for one thing only: a packet so short that a value can't be loaded is
//! rejected, unless a comparison before that load has matched. Such a packet takes the old way (`on_short`),
//! which is kept up to the first load of the last value: there at the latest it ends.

use std::collections::HashMap;

use super::graph::{
    self, A, Block, BlockId, End, Graph, Member, Operand, REJECT, Registers, SetTest, Step, Test, effect,
};
use crate::bpf::{Operation, Relation};

/// Comparisons of one value that make a set; fewer are left as they are.
const COMPARISONS_MIN: usize = 6;
/// Values of one run: nets have one for each of their masks.
const VALUES_MAX: usize = 16;
/// How far into a run the first load of its last value may lie.
const SHORT_WAY_MAX: usize = 64;

/// Makes set tests of the runs of a graph without backward jumps.
pub(super) fn make_sets(graph: &mut Graph) {
    let order = graph.order();
    let live = graph.live(&order);
    let (_, edges) = graph.dominators(&order);
    // Inside a run no other begins, unless something else jumps there.
    let mut inner = vec![false; graph.blocks.len()];
    for &id in &order {
        if inner[id as usize] && edges[id as usize] == 1 {
            continue;
        }
        let Some(run) = Run::at(graph, &live, id) else { continue };
        for &id in &run.blocks[1..] {
            inner[id as usize] = true;
        }
        let end = run.test(graph);
        graph.blocks[id as usize].end = End::In(Box::new(end));
    }
}

/// A block that compares A with a constant and, if they are equal, goes on elsewhere.
struct Comparison {
    k: u32,
    on_true: BlockId,
    on_false: BlockId,
}

fn comparison(block: &Block) -> Option<Comparison> {
    match block.end {
        End::If(Test { relation: Relation::Equal, operand: Operand::Constant(k) }, on_true, on_false) => {
            Some(Comparison { k, on_true, on_false })
        }
        _ => None,
    }
}

/// Blocks that follow each other on inequality.
struct Run {
    blocks: Vec<BlockId>,
    members: Vec<Member>,
    /// Place in `blocks` of the first comparison of the last value.
    last_first: usize,
    on_true: BlockId,
    on_false: BlockId,
}

impl Run {
    /// The longest run that begins at `first`, if it is worth a set.
    fn at(graph: &Graph, live: &[Registers], first: BlockId) -> Option<Run> {
        let begin = comparison(graph.block(first))?;
        let mut run = Run {
            blocks: vec![first],
            members: vec![Member { steps: Vec::new(), keys: vec![begin.k] }],
            last_first: 0,
            on_true: begin.on_true,
            on_false: begin.on_false,
        };
        // Values by their steps: the block's own is known by them, too, where they need nothing of other
        // blocks.
        let mut known: HashMap<&[Step], usize> = HashMap::new();
        let first_steps = &graph.block(first).steps;
        if effect(first_steps).0 == 0 && !first_steps.is_empty() {
            known.insert(first_steps, 0);
        }
        let (mut at, mut value, mut written) = (run.on_false, 0, A);
        while let Some(next) = comparison(graph.block(at)).filter(|next| next.on_true == run.on_true) {
            let steps = &graph.block(at).steps;
            if !steps.is_empty() {
                let (reads, writes) = effect(steps);
                if reads & written != 0 || steps.iter().any(|step| may_divide_by_zero(*step)) {
                    break;
                }
                match known.get(&steps[..]) {
                    Some(&earlier) => value = earlier,
                    None if run.members.len() == VALUES_MAX || run.blocks.len() >= SHORT_WAY_MAX => break,
                    None => {
                        value = run.members.len();
                        known.insert(steps, value);
                        run.members.push(Member { steps: steps.clone(), keys: Vec::new() });
                        run.last_first = run.blocks.len();
                    }
                }
                written |= writes;
            }
            run.members[value].keys.push(next.k);
            run.blocks.push(at);
            run.on_false = next.on_false;
            at = next.on_false;
        }
        let after = live[run.on_true as usize] | live[run.on_false as usize];
        // Several values are checked for their lengths at once.
        let is_worth_it =
            (run.blocks.len() >= COMPARISONS_MIN || run.members.len() > 1) && after & written == 0;
        is_worth_it.then(|| run.sorted())
    }

    fn sorted(mut self) -> Run {
        for member in &mut self.members {
            member.keys.sort_unstable();
            member.keys.dedup();
        }
        self
    }

    /// The test that stands for the run; its short way is added to the graph.
    fn test(self, graph: &mut Graph) -> SetTest {
        let mut on_short = REJECT;
        for (place, &id) in self.blocks[..=self.last_first].iter().enumerate().rev() {
            let block = graph.block(id);
            // The first block's steps have been gone through.
            let steps = if place == 0 { Vec::new() } else { block.steps.clone() };
            let end = match block.end {
                End::If(test, on_true, _) => End::If(test, on_true, on_short),
                ref other => other.clone(),
            };
            graph.blocks.push(Block { steps, end });
            on_short = (graph.blocks.len() - 1) as BlockId;
        }
        SetTest { members: self.members, on_true: self.on_true, on_false: self.on_false, on_short }
    }
}

/// Such a step rejects for another reason than a short packet.
fn may_divide_by_zero(step: Step) -> bool {
    matches!(step, Step::Compute(Operation::Div | Operation::Mod, _))
}

/// Captured bytes that all values behind the first need at constant places.
pub(super) fn bytes_needed(members: &[Member]) -> u64 {
    members.iter().map(|member| graph::bytes_needed(&member.steps)).max().unwrap_or(0)
}
