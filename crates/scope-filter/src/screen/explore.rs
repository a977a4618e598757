//! Runs a program over all packets of a case at once: which entries may lead to its acceptance.
//!
//! ```text
//! the case's entries, nothing known of the registers -> instruction 0
//! for each instruction in order (libpcap's jumps go forward), for each state that waits there:
//!     a load         what the case knows of these bytes, else unknown
//!     a comparison   of a field: the state splits, each side keeps the entries for which it can have come out so
//!                    of something else: both sides keep all
//!     an acceptance  the state's entries may be accepted
//! ```
//! Loads outside the packet and divisions by zero reject; here they go on, which takes more entries, never fewer. A register
//! that is never read again is forgotten, so that states which differ in nothing else meet.

use super::CLAUSES_MAX;
use super::case::Case;
use super::clause::{Clause, Clauses, Field};
use super::numbers::Numbers;
use super::value::{Relation, Size, Value, possible, related};
use crate::bpf::Instruction;

/// States that wait at one instruction; beyond, the two that are most alike become one that takes what either takes.
const STATES_MAX: usize = 16;
/// States that wait in one exploration of all cases, counted at each instruction; beyond, every entry may be accepted.
pub(super) const VISITS_MAX: usize = 1 << 22;
/// Words of scratch memory.
const CELLS: usize = 16;

/// What is known when the run stands at an instruction.
#[derive(Clone, Debug)]
struct State {
    /// Entries that can have come here.
    entries: Clause,
    a: Value,
    x: Value,
    /// Empty, or all cells.
    memory: Vec<Value>,
    /// The words of the IPv6 addresses, as far as comparisons have told them.
    words: [Option<u32>; 8],
}

/// Entries of the case that the program may accept; `None` where the program jumps back or `visits` run out.
pub(super) fn accepted(program: &[Instruction], case: &Case, visits: &mut usize) -> Option<Clauses> {
    let read_later = &read_later(program)?;
    let (ends, waiting) = (&ends(program), vec![Vec::new(); program.len()]);
    let mut run = Run { case, read_later, ends, waiting, accepted: Clauses::default() };
    let nothing = Value::unknown();
    let start = State { entries: case.entries.clone(), a: nothing.clone(), x: nothing, memory: Vec::new(), words: [None; 8] };
    run.enter(0, start);
    for (at, instruction) in program.iter().enumerate() {
        for state in std::mem::take(&mut run.waiting[at]) {
            *visits = visits.checked_sub(1)?;
            run.step(at, instruction, state);
        }
    }
    Some(run.accepted)
}

struct Run<'a> {
    case: &'a Case,
    read_later: &'a [Registers],
    ends: &'a [End],
    waiting: Vec<Vec<State>>,
    accepted: Clauses,
}

impl Run<'_> {
    fn step(&mut self, at: usize, instruction: &Instruction, mut state: State) {
        let next = at + 1;
        match Meaning::of(instruction) {
            Meaning::ReturnA if state.a.as_constant() == Some(0) => return,
            Meaning::ReturnA => return self.accepted.add(state.entries, CLAUSES_MAX),
            Meaning::Return(_) | Meaning::Jump(_) => return self.enter(at, state),
            Meaning::If(relation, k) => {
                let k = k.or_else(|| state.x.as_constant());
                let (on_true, on_false) = match k {
                    Some(k) => state.split(relation, k),
                    None => (Some(state.clone()), Some(state)),
                };
                let targets = [(instruction.jump_true, on_true), (instruction.jump_false, on_false)];
                for (offset, state) in targets.into_iter().filter_map(|(offset, state)| Some((offset, state?))) {
                    self.enter(next + usize::from(offset), state);
                }
                return;
            }
            Meaning::Load(size, at) => state.a = state.told(self.case.load(size, at)),
            Meaning::LoadAtX(size, k) => {
                let loaded = match (&state.x, state.x.as_constant()) {
                    (Value::HeaderLength, _) => self.case.load_behind_header(size, k),
                    (_, Some(x)) => x.checked_add(k).map_or(Value::unknown(), |at| self.case.load(size, at)),
                    _ => Value::unknown(),
                };
                state.a = state.told(loaded);
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
        }
        self.enter(next, state);
    }

    /// Lets `state` wait at instruction `at`, as one with another where that loses nothing or there are too many. What is at its
    /// end doesn't wait: others that it would have to become one with are fewer so.
    fn enter(&mut self, at: usize, mut state: State) {
        let at = match self.ends[at] {
            End::Accepted => return self.accepted.add(state.entries, CLAUSES_MAX),
            End::Rejected => return,
            End::At(at) => at,
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
    /// A loaded value, as a constant where earlier comparisons told it.
    fn told(&self, value: Value) -> Value {
        match value {
            Value::Word(word) => self.words[usize::from(word)].map_or(value, Value::constant),
            value => value,
        }
    }

    fn cell(&self, cell: usize) -> Value {
        self.memory.get(cell).cloned().unwrap_or(Value::unknown())
    }

    fn store(&mut self, cell: usize, value: Value) {
        self.memory.resize(CELLS, Value::unknown());
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
                    let with =
                        |numbers: Numbers| (!numbers.is_empty()).then(|| State { a: Value::one_of(numbers), ..self.clone() });
                    (with(numbers.and(&related)), with(numbers.and(&related.complement(u32::MAX))))
                }
                None => (Some(self.clone()), Some(self)),
            },
            Value::Field { field, cut } => match related(relation, k, cut, field.last()) {
                Some(related) => (self.demand(field, &related), self.demand(field, &related.complement(field.last()))),
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

    /// With a word of an IPv6 address known. The entry has the four words folded into one: it is known when all are.
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
            self.memory = (0..CELLS)
                .map(|cell| if self.cell(cell) == other.cell(cell) { self.cell(cell) } else { Value::unknown() })
                .collect();
        }
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own = own.filter(|word| *other == Some(*word));
        }
        self.entries = self.entries.hull(&other.entries);
    }
}

/// What an instruction does, as far as it is followed.
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
    If(Relation, Option<u32>),
    Return(u32),
    ReturnA,
}

impl Meaning {
    /// `instruction` has passed the check of [`crate::bpf::Program::new`].
    fn of(instruction: &Instruction) -> Meaning {
        let &Instruction { code, k, .. } = instruction;
        let cell = k as usize % CELLS;
        let relation = |relation| Meaning::If(relation, if code & 8 == 0 { Some(k) } else { None });
        match code {
            0x20 => Meaning::Load(Size::Word, k),
            0x28 => Meaning::Load(Size::Half, k),
            0x30 => Meaning::Load(Size::Byte, k),
            0x40 => Meaning::LoadAtX(Size::Word, k),
            0x48 => Meaning::LoadAtX(Size::Half, k),
            0x50 => Meaning::LoadAtX(Size::Byte, k),
            0x00 => Meaning::LoadConstant(k),
            0x60 => Meaning::LoadCell(cell),
            0x01 => Meaning::IndexConstant(k),
            0x61 => Meaning::IndexCell(cell),
            0xb1 => Meaning::IndexHeader(k),
            0x81 => Meaning::UnknownToX,
            0x02 => Meaning::Store(cell),
            0x03 => Meaning::StoreIndex(cell),
            0x54 => Meaning::And(Some(k)),
            0x5c => Meaning::And(None),
            0x04 => Meaning::Add(Some(k)),
            0x0c => Meaning::Add(None),
            0x07 => Meaning::ToIndex,
            0x87 => Meaning::FromIndex,
            0x05 => Meaning::Jump(k),
            0x15 | 0x1d => relation(Relation::Equal),
            0x25 | 0x2d => relation(Relation::Greater),
            0x35 | 0x3d => relation(Relation::GreaterOrEqual),
            0x45 | 0x4d => relation(Relation::AnyBit),
            0x06 => Meaning::Return(k),
            0x16 => Meaning::ReturnA,
            // The packet's length, and arithmetic.
            _ => Meaning::UnknownToA,
        }
    }
}

/// Where a run goes on that comes to an instruction: behind all plain jumps.
#[derive(Clone, Copy)]
enum End {
    Accepted,
    Rejected,
    At(usize),
}

/// For each instruction; the program doesn't jump back.
fn ends(program: &[Instruction]) -> Vec<End> {
    let mut ends = vec![End::Rejected; program.len()];
    for (at, instruction) in program.iter().enumerate().rev() {
        ends[at] = match Meaning::of(instruction) {
            Meaning::Jump(offset) => ends[at + 1 + offset as usize],
            Meaning::Return(0) => End::Rejected,
            Meaning::Return(_) => End::Accepted,
            _ => End::At(at),
        };
    }
    ends
}

/// A set of registers: A, X and the cells.
type Registers = u32;
const A: Registers = 1;
const X: Registers = 2;

fn cell_bit(cell: usize) -> Registers {
    4 << cell
}

/// For each instruction the registers that may be read before they are written; `None` if the program jumps back.
fn read_later(program: &[Instruction]) -> Option<Vec<Registers>> {
    let mut read_later = vec![0; program.len()];
    for (at, instruction) in program.iter().enumerate().rev() {
        let behind = |offset: usize| read_later.get(at + 1 + offset).copied().unwrap_or(0);
        let (jump_true, jump_false) = (usize::from(instruction.jump_true), usize::from(instruction.jump_false));
        read_later[at] = match Meaning::of(instruction) {
            Meaning::Jump(offset) if offset as i32 >= 0 => behind(offset as usize),
            Meaning::Jump(_) => return None,
            Meaning::Return(_) => 0,
            Meaning::ReturnA => A,
            Meaning::If(_, k) => behind(jump_true) | behind(jump_false) | A | if k.is_none() { X } else { 0 },
            Meaning::Load(..) | Meaning::LoadConstant(_) => behind(0) & !A,
            Meaning::LoadAtX(..) => behind(0) & !A | X,
            Meaning::LoadCell(cell) => behind(0) & !A | cell_bit(cell),
            Meaning::IndexConstant(_) | Meaning::IndexHeader(_) | Meaning::UnknownToX => behind(0) & !X,
            Meaning::IndexCell(cell) => behind(0) & !X | cell_bit(cell),
            Meaning::Store(cell) => behind(0) & !cell_bit(cell) | A,
            Meaning::StoreIndex(cell) => behind(0) & !cell_bit(cell) | X,
            Meaning::ToIndex => behind(0) & !X | A,
            Meaning::FromIndex => behind(0) & !A | X,
            Meaning::And(_) | Meaning::Add(_) | Meaning::UnknownToA => behind(0) | A | X,
        };
    }
    Some(read_later)
}
