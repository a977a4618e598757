//! Runs a program over all packets of a case at once: which entries may lead to its acceptance.
//!
//! ```text
//! the case's entries, nothing known of the registers -> op 0
//! for each op in order (libpcap's jumps go forward), for each state that waits there:
//!     a load         what the case knows of these bytes, else unknown
//!     a comparison   of a field: the state splits, each side keeps the entries for which it can have come out so
//!                    of something else: both sides keep all
//!     an acceptance  the state's entries may be accepted
//! ```
//! Loads outside the packet and divisions by zero reject; here they go on, which accepts more entries, never
//! fewer. A register that is never read again is forgotten, so that states which differ in nothing else meet.

use std::time::Instant;

use super::CLAUSES_MAX;
use super::case::Case;
use super::clause::{Clause, Clauses, Field};
use super::numbers::Numbers;
use super::value::{Size, Value, possible, related};
use crate::bpf::{ACCEPT, Branch, MEMORY_WORDS, Op, Operation, REJECT, Relation};

/// States that wait at one op; beyond, the two that are most alike become one that accepts what either
/// accepts.
const STATES_MAX: usize = 16;

/// What is known when the run stands at an op.
#[derive(Clone, Debug)]
struct State {
    /// Entries that can have come here.
    entries: Clause,
    a: Value,
    x: Value,
    /// Empty, or all cells.
    memory: Vec<Value>,
    /// The words of the IPv6 addresses, as far as comparisons have determined them.
    words: [Option<u32>; 8],
}

/// Entries of the case that the program may accept; `None` where the program jumps back, or where it takes
/// longer than `until`.
pub(super) fn accepted(program: &[Op], case: &Case, until: Instant) -> Option<Clauses> {
    let read_later = &read_later(program)?;
    let (ends, waiting) = (&ends(program), vec![Vec::new(); program.len()]);
    let mut run = Run { case, read_later, ends, waiting, accepted: Clauses::default() };
    let nothing = Value::unknown();
    let start = State {
        entries: case.entries.clone(),
        a: nothing.clone(),
        x: nothing,
        memory: Vec::new(),
        words: [None; 8],
    };
    run.enter(0, start);
    for (at, op) in program.iter().enumerate() {
        for state in std::mem::take(&mut run.waiting[at]) {
            if Instant::now() >= until {
                return None;
            }
            run.step(at as u32, op, state);
        }
    }
    Some(run.accepted)
}

struct Run<'a> {
    case: &'a Case,
    read_later: &'a [Registers],
    ends: &'a [u32],
    waiting: Vec<Vec<State>>,
    accepted: Clauses,
}

impl Run<'_> {
    fn step(&mut self, at: u32, op: &Op, mut state: State) {
        match Meaning::of(op) {
            Meaning::ReturnA if state.a.as_constant() == Some(0) => return,
            Meaning::ReturnA => return self.accepted.add(state.entries, CLAUSES_MAX),
            Meaning::Jump(to) => return self.enter(to, state),
            Meaning::If { relation, k, on_true, on_false } => {
                let k = k.or_else(|| state.x.as_constant());
                let (holds, fails) = match k {
                    Some(k) => state.split(relation, k),
                    None => (Some(state.clone()), Some(state)),
                };
                for (to, state) in [(on_true, holds), (on_false, fails)] {
                    if let Some(state) = state {
                        self.enter(to, state);
                    }
                }
                return;
            }
            Meaning::Load(size, at) => state.a = state.known(self.case.load(size, at)),
            Meaning::LoadAtX(size, k) => {
                let loaded = match (&state.x, state.x.as_constant()) {
                    (Value::HeaderLength, _) => self.case.load_behind_header(size, k),
                    (_, Some(x)) => x.checked_add(k).map_or(Value::unknown(), |at| self.case.load(size, at)),
                    _ => Value::unknown(),
                };
                state.a = state.known(loaded);
            }
            Meaning::LoadConstant(k) => state.a = Value::constant(k),
            Meaning::LoadCell(cell) => state.a = state.cell(cell),
            Meaning::IndexConstant(k) => state.x = Value::constant(k),
            Meaning::IndexCell(cell) => state.x = state.cell(cell),
            Meaning::IndexHeader(at) => state.x = self.case.header_length(at),
            Meaning::Store(cell) => state.store(cell, state.a.clone()),
            Meaning::StoreIndex(cell) => state.store(cell, state.x.clone()),
            Meaning::And(k) => {
                let mask = k.or_else(|| state.x.as_constant());
                state.a = mask.map_or(Value::unknown(), |mask| state.a.masked(mask));
            }
            Meaning::Add(k) => {
                let (a, k) = (state.a.as_constant(), k.or_else(|| state.x.as_constant()));
                state.a = a.zip(k).map_or(Value::unknown(), |(a, k)| Value::constant(a.wrapping_add(k)));
            }
            Meaning::ToIndex => state.x = state.a.clone(),
            Meaning::FromIndex => state.a = state.x.clone(),
            Meaning::UnknownToA => state.a = Value::unknown(),
            Meaning::UnknownToX => state.x = Value::unknown(),
            // Such programs are turned away at the start; whatever comes here would be let through.
            Meaning::Stranger => return self.accepted.add(state.entries, CLAUSES_MAX),
        }
        self.enter(at + 1, state);
    }

    /// Lets `state` wait at op `at`, as one with another where that loses nothing or there are too many. What
    /// is at its end doesn't wait: others that it would have to become one with are fewer so.
    fn enter(&mut self, at: u32, mut state: State) {
        let at = match end(self.ends, at) {
            ACCEPT => return self.accepted.add(state.entries, CLAUSES_MAX),
            REJECT => return,
            at => at as usize,
        };
        state.forget(self.read_later[at]);
        let waiting = &mut self.waiting[at];
        for other in waiting.iter_mut() {
            if other.knows_the_same(&state)
                && let Some(both) = other.entries.join(&state.entries)
            {
                other.entries = both;
                return;
            }
        }
        if waiting.len() < STATES_MAX {
            waiting.push(state);
        } else if let Some(nearest) = waiting.iter_mut().min_by_key(|other| other.distance(&state)) {
            nearest.widen(&state);
        }
    }
}

impl State {
    /// A loaded value, as a constant where earlier comparisons determined it.
    fn known(&self, value: Value) -> Value {
        match value {
            Value::Word(word) => self.words[usize::from(word)].map_or(value, Value::constant),
            value => value,
        }
    }

    fn cell(&self, cell: usize) -> Value {
        self.memory.get(cell).cloned().unwrap_or(Value::unknown())
    }

    fn store(&mut self, cell: usize, value: Value) {
        self.memory.resize(MEMORY_WORDS, Value::unknown());
        self.memory[cell] = value;
    }

    /// The states in which `A relation k` holds, and in which it doesn't; `None` for one that can't be.
    fn split(self, relation: Relation, k: u32) -> (Option<State>, Option<State>) {
        match self.a.clone() {
            Value::Bits { zero, one, any } => {
                let (on_true, on_false) = possible(relation, k, zero, one, any);
                (on_true.then(|| self.clone()), on_false.then_some(self))
            }
            Value::OneOf(numbers) => match related(relation, k, 0, u32::MAX) {
                Some(related) => {
                    let with = |numbers: Numbers| {
                        (!numbers.is_empty()).then(|| State { a: Value::one_of(numbers), ..self.clone() })
                    };
                    (with(numbers.and(&related)), with(numbers.and(&related.complement(u32::MAX))))
                }
                None => (Some(self.clone()), Some(self)),
            },
            Value::Field { field, cut } => match related(relation, k, cut, field.last()) {
                Some(related) => {
                    (self.demand(field, &related), self.demand(field, &related.complement(field.last())))
                }
                None => (Some(self.clone()), Some(self)),
            },
            Value::Word(word) if relation == Relation::Equal => (self.with_word(word.into(), k), Some(self)),
            Value::Word(_) | Value::HeaderLength => (Some(self.clone()), Some(self)),
        }
    }

    fn demand(&self, field: Field, numbers: &Numbers) -> Option<State> {
        let left = self.entries.get(field).and(numbers);
        (!left.is_empty()).then(|| State { entries: self.entries.clone().with(field, left), ..self.clone() })
    }

    /// With a word of an IPv6 address known. The entry has the four words folded into one: it is known when
    /// all are.
    fn with_word(&self, word: usize, value: u32) -> Option<State> {
        let mut state = self.clone();
        state.words[word] = Some(value);
        let (field, address) = if word < 4 { (Field::Source, 0..4) } else { (Field::Destination, 4..8) };
        match state.words[address].iter().try_fold(0, |folded, word| Some(folded ^ (*word)?)) {
            Some(folded) => state.demand(field, &Numbers::one(folded)),
            None => Some(state),
        }
    }

    fn forget(&mut self, read_later: Registers) {
        if read_later & A == 0 {
            self.a = Value::unknown();
        }
        if read_later & X == 0 {
            self.x = Value::unknown();
        }
        for (cell, value) in self.memory.iter_mut().enumerate() {
            if read_later & cell_bit(cell) == 0 {
                *value = Value::unknown();
            }
        }
        if self.memory.iter().all(|value| *value == Value::unknown()) {
            self.memory.clear();
        }
    }

    fn knows_the_same(&self, other: &State) -> bool {
        self.a == other.a && self.x == other.x && self.words == other.words && self.memory == other.memory
    }

    fn distance(&self, other: &State) -> usize {
        let apart = |one: bool| usize::from(!one);
        let words = self.words.iter().zip(&other.words).filter(|(own, other)| own != other).count();
        apart(self.a == other.a) + apart(self.x == other.x) + words + self.entries.distance(&other.entries)
    }

    /// Knows no more than both did.
    fn widen(&mut self, other: &State) {
        let keep = |own: &mut Value, other: &Value| {
            if own != other {
                *own = Value::unknown();
            }
        };
        keep(&mut self.a, &other.a);
        keep(&mut self.x, &other.x);
        if self.memory != other.memory {
            self.memory = (0..MEMORY_WORDS)
                .map(
                    |cell| {
                        if self.cell(cell) == other.cell(cell) { self.cell(cell) } else { Value::unknown() }
                    },
                )
                .collect();
        }
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own = own.filter(|word| *other == Some(*word));
        }
        self.entries = self.entries.hull(&other.entries);
    }
}

/// What an op does, as far as it is followed. Targets are as in [`Op`].
enum Meaning {
    Load(Size, u32),
    LoadAtX(Size, u32),
    LoadConstant(u32),
    LoadCell(usize),
    IndexConstant(u32),
    IndexCell(usize),
    IndexHeader(u32),
    Store(usize),
    StoreIndex(usize),
    /// With a constant, or with X.
    And(Option<u32>),
    Add(Option<u32>),
    ToIndex,
    FromIndex,
    UnknownToA,
    UnknownToX,
    Jump(u32),
    /// `k`: a constant, or X.
    If {
        relation: Relation,
        k: Option<u32>,
        on_true: u32,
        on_false: u32,
    },
    ReturnA,
    /// Not followed, and so is no program that has it: jumps back, and fused pairs.
    Stranger,
}

impl Meaning {
    fn of(op: &Op) -> Meaning {
        let constant = |relation, branch: Branch| Meaning::If {
            relation,
            k: Some(branch.k),
            on_true: branch.on_true,
            on_false: branch.on_false,
        };
        match *op {
            Op::LoadWord(at) => Meaning::Load(Size::Word, at),
            Op::LoadHalf(at) => Meaning::Load(Size::Half, at),
            Op::LoadByte(at) => Meaning::Load(Size::Byte, at),
            Op::LoadWordAtX(k) => Meaning::LoadAtX(Size::Word, k),
            Op::LoadHalfAtX(k) => Meaning::LoadAtX(Size::Half, k),
            Op::LoadByteAtX(k) => Meaning::LoadAtX(Size::Byte, k),
            Op::LoadConstant(k) => Meaning::LoadConstant(k),
            Op::LoadMemory(cell) => Meaning::LoadCell(cell.into()),
            Op::IndexConstant(k) => Meaning::IndexConstant(k),
            Op::IndexMemory(cell) => Meaning::IndexCell(cell.into()),
            Op::IndexHeader(at) => Meaning::IndexHeader(at),
            Op::Store(cell) => Meaning::Store(cell.into()),
            Op::StoreIndex(cell) => Meaning::StoreIndex(cell.into()),
            Op::And(k) => Meaning::And(Some(k)),
            Op::ComputeX(Operation::And) => Meaning::And(None),
            Op::Compute(Operation::Add, k) => Meaning::Add(Some(k)),
            Op::ComputeX(Operation::Add) => Meaning::Add(None),
            Op::ToIndex => Meaning::ToIndex,
            Op::FromIndex => Meaning::FromIndex,
            Op::Jump(to) => Meaning::Jump(to),
            Op::IfEqual(branch) => constant(Relation::Equal, branch),
            Op::IfGreater(branch) => constant(Relation::Greater, branch),
            Op::IfGreaterOrEqual(branch) => constant(Relation::GreaterOrEqual, branch),
            Op::IfAnyBit(branch) => constant(Relation::AnyBit, branch),
            Op::IfX(relation, Branch { on_true, on_false, .. }) => {
                Meaning::If { relation, k: None, on_true, on_false }
            }
            Op::ReturnA => Meaning::ReturnA,
            Op::LoadLength | Op::Compute(..) | Op::ComputeX(_) | Op::Negate => Meaning::UnknownToA,
            Op::IndexLength => Meaning::UnknownToX,
            Op::JumpBack(_) => Meaning::Stranger,
            Op::IfWordEqual(..)
            | Op::IfHalfEqual(..)
            | Op::IfByteEqual(..)
            | Op::IfHalfAnyBit(..)
            | Op::IfHalfAtXEqual(..) => Meaning::Stranger,
        }
    }
}

/// Where a run that reaches each op goes on: behind all plain jumps. The program doesn't jump back.
fn ends(program: &[Op]) -> Vec<u32> {
    let mut ends = vec![REJECT; program.len()];
    for (at, op) in program.iter().enumerate().rev() {
        ends[at] = match *op {
            Op::Jump(to) => end(&ends, to),
            _ => at as u32,
        };
    }
    ends
}

/// Where a run goes on that jumps to `at`; [`ACCEPT`] and [`REJECT`] lie behind all ops and stay.
fn end(ends: &[u32], at: u32) -> u32 {
    ends.get(at as usize).copied().unwrap_or(at)
}

/// A set of registers: A, X and the cells.
type Registers = u32;
const A: Registers = 1;
const X: Registers = 2;

fn cell_bit(cell: usize) -> Registers {
    4 << cell
}

/// For each op the registers that may be read before they are written; `None` if the program isn't followed.
fn read_later(program: &[Op]) -> Option<Vec<Registers>> {
    let mut read_later = vec![0; program.len()];
    for (at, op) in program.iter().enumerate().rev() {
        let read_at = |to: u32| read_later.get(to as usize).copied().unwrap_or(0);
        let behind = read_at(at as u32 + 1);
        read_later[at] = match Meaning::of(op) {
            Meaning::Jump(to) => read_at(to),
            Meaning::Stranger => return None,
            Meaning::ReturnA => A,
            Meaning::If { k, on_true, on_false, .. } => {
                read_at(on_true) | read_at(on_false) | A | if k.is_none() { X } else { 0 }
            }
            Meaning::Load(..) | Meaning::LoadConstant(_) => behind & !A,
            Meaning::LoadAtX(..) => behind & !A | X,
            Meaning::LoadCell(cell) => behind & !A | cell_bit(cell),
            Meaning::IndexConstant(_) | Meaning::IndexHeader(_) | Meaning::UnknownToX => behind & !X,
            Meaning::IndexCell(cell) => behind & !X | cell_bit(cell),
            Meaning::Store(cell) => behind & !cell_bit(cell) | A,
            Meaning::StoreIndex(cell) => behind & !cell_bit(cell) | X,
            Meaning::ToIndex => behind & !X | A,
            Meaning::FromIndex => behind & !A | X,
            Meaning::And(_) | Meaning::Add(_) | Meaning::UnknownToA => behind | A | X,
        };
    }
    Some(read_later)
}
