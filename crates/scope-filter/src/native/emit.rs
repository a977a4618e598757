//! Cranelift's intermediate code of one graph.
//!
//! The function made is `accepts(data, captured bytes, original bytes) -> 0 or 1`. Per block:
//!
//! ```text
//! bytes needed at constant places > bytes known to be there?  one check for all of them, out of bounds: reject
//! steps: A and X are values; registers become variables only where a later block reads them
//! end:   brif
//! ```
//! What a block's dominator has checked is known. Words of the packet stay in the packet's byte order as long as they are only
//! masked and compared: the constants are swapped instead.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block as Label, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::graph::{self, A, BlockId, End, Graph, Member, Operand, REJECT, Registers, SetTest, Step, Test, X};
use super::runs;
use super::table::Table;
use crate::bpf::{BACKWARD_JUMPS_MAX, MEMORY_WORDS, Operation, Relation};

/// A, X, and scratch memory.
const REGISTERS: usize = 2 + MEMORY_WORDS;
/// Sets of so many keys are compared one by one.
const COMPARED_MAX: usize = 3;

/// Writes the function of `graph` to `builder`; the tables that its code looks into are added to `tables` and must live as
/// long as the code.
pub(super) fn emit(graph: &Graph, builder: &mut FunctionBuilder<'_>, tables: &mut Vec<Table>) {
    let order = graph.order();
    let live = graph.live(&order);
    let known = known_bytes(graph, &order);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let parameters = builder.block_params(entry);
    let (data, captured, original) = (parameters[0], parameters[1], parameters[2]);
    let labels = graph.blocks.iter().map(|_| None).collect();
    let variables = std::array::from_fn(|_| builder.declare_var(types::I32));
    let backward = builder.declare_var(types::I32);
    let mut emitter = Emitter { graph, live, labels, variables, backward, data, captured, original, tables, builder };
    for &id in &order {
        emitter.labels[id as usize] = Some(emitter.builder.create_block());
    }
    emitter.labels[REJECT as usize].get_or_insert_with(|| emitter.builder.create_block());
    emitter.begin();
    for &id in &order {
        emitter.block(id, known[id as usize]);
    }
    if !order.contains(&REJECT) {
        emitter.block(REJECT, 0);
    }
    emitter.builder.seal_all_blocks();
}

/// Bytes that are known to be captured where a block begins.
fn known_bytes(graph: &Graph, order: &[BlockId]) -> Vec<u64> {
    let mut known = vec![0; graph.blocks.len()];
    if graph.is_acyclic() {
        let (dominators, _) = graph.dominators(order);
        for &id in order {
            if let Some(before) = dominators[id as usize] {
                known[id as usize] = known[before as usize].max(graph::bytes_needed(&graph.block(before).steps));
            }
        }
    }
    known
}

/// What a register holds.
#[derive(Clone, Copy)]
enum Word {
    /// What its variable holds.
    Variable,
    Value(Value),
    /// 2 or 4 bytes as they stand in the packet, read as a little-endian number of 32 bits.
    Packet {
        raw: Value,
        bytes: u8,
    },
}

/// A constant as [`Word::Packet`] has it; `None` where no such bytes make it.
fn swapped(k: u32, bytes: u8) -> Option<u32> {
    if bytes == 4 { Some(k.swap_bytes()) } else { u16::try_from(k).ok().map(|half| half.swap_bytes().into()) }
}

/// The registers inside a block.
#[derive(Clone)]
struct State {
    words: [Word; REGISTERS],
    /// Those that differ from their variables.
    written: Registers,
}

impl State {
    fn new() -> State {
        State { words: [Word::Variable; REGISTERS], written: 0 }
    }

    fn set(&mut self, register: Registers, word: Word) {
        self.words[register.trailing_zeros() as usize] = word;
        self.written |= register;
    }
}

struct Emitter<'a, 'b> {
    graph: &'a Graph,
    live: Vec<Registers>,
    labels: Vec<Option<Label>>,
    variables: [Variable; REGISTERS],
    /// Backward jumps so far.
    backward: Variable,
    data: Value,
    captured: Value,
    original: Value,
    tables: &'a mut Vec<Table>,
    builder: &'a mut FunctionBuilder<'b>,
}

impl Emitter<'_, '_> {
    fn label(&self, id: BlockId) -> Label {
        self.labels[id as usize].expect("every block that can be reached has its label")
    }

    /// Sets what is read before it is written, and goes to the first block.
    fn begin(&mut self) {
        let zero = self.constant(0);
        for (register, variable) in self.variables.into_iter().enumerate() {
            if self.live[self.graph.entry as usize] & 1 << register != 0 {
                self.builder.def_var(variable, zero);
            }
        }
        if !self.graph.is_acyclic() {
            self.builder.def_var(self.backward, zero);
        }
        let first = self.label(self.graph.entry);
        self.builder.ins().jump(first, &[]);
    }

    fn constant(&mut self, k: u32) -> Value {
        self.builder.ins().iconst(types::I32, i64::from(k))
    }

    fn block(&mut self, id: BlockId, known: u64) {
        let label = self.label(id);
        self.builder.switch_to_block(label);
        let graph = self.graph;
        let block = graph.block(id);
        let reject = self.label(REJECT);
        let needed = graph::bytes_needed(&block.steps);
        if needed > known {
            self.check(needed, reject);
        }
        let mut state = State::new();
        for &step in &block.steps {
            self.step(step, &mut state, reject);
        }
        let after = block.end.targets().fold(0, |all, to| all | self.live[to as usize]);
        self.keep(&mut state, after);
        self.end(&block.end, state, known.max(needed));
    }

    /// Goes on only if `needed` bytes are captured.
    fn check(&mut self, needed: u64, out_of_bounds: Label) {
        let short = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, self.captured, needed as i64);
        self.go_on_unless(short, out_of_bounds);
    }

    fn go_on_unless(&mut self, condition: Value, elsewhere: Label) {
        let on = self.builder.create_block();
        self.builder.ins().brif(condition, elsewhere, &[], on, &[]);
        self.builder.switch_to_block(on);
    }

    /// Puts registers that later blocks read into their variables.
    fn keep(&mut self, state: &mut State, wanted: Registers) {
        for register in 0..REGISTERS {
            let bit = 1 << register;
            if state.written & wanted & bit != 0 {
                let value = self.value(state, bit);
                self.builder.def_var(self.variables[register], value);
            }
        }
    }

    /// A register's value as a number.
    fn value(&mut self, state: &mut State, register: Registers) -> Value {
        let at = register.trailing_zeros() as usize;
        let value = match state.words[at] {
            Word::Value(value) => return value,
            Word::Variable => self.builder.use_var(self.variables[at]),
            Word::Packet { raw, bytes } => {
                let swapped = self.builder.ins().bswap(raw);
                if bytes == 2 { self.builder.ins().ushr_imm_u(swapped, 16) } else { swapped }
            }
        };
        state.words[at] = Word::Value(value);
        value
    }

    fn step(&mut self, step: Step, state: &mut State, out_of_bounds: Label) {
        match step {
            Step::Load { bytes, at, indexed } => {
                let word = self.load(bytes, at, indexed, state, out_of_bounds);
                state.set(A, word);
            }
            Step::Header { at } => {
                let byte = self.builder.ins().uload8(types::I32, PACKET, self.data, at as i32);
                let words = self.builder.ins().band_imm_u(byte, 15);
                let bytes = self.builder.ins().ishl_imm_u(words, 2);
                state.set(X, Word::Value(bytes));
            }
            Step::Constant(k) => {
                let value = self.constant(k);
                state.set(A, Word::Value(value));
            }
            Step::IndexConstant(k) => {
                let value = self.constant(k);
                state.set(X, Word::Value(value));
            }
            Step::Length => state.set(A, Word::Value(self.original)),
            Step::IndexLength => state.set(X, Word::Value(self.original)),
            Step::Recall(cell) => self.copy(state, graph::memory(cell), A),
            Step::IndexRecall(cell) => self.copy(state, graph::memory(cell), X),
            Step::Store(cell) => self.copy(state, A, graph::memory(cell)),
            Step::StoreIndex(cell) => self.copy(state, X, graph::memory(cell)),
            Step::ToIndex => self.copy(state, A, X),
            Step::FromIndex => self.copy(state, X, A),
            Step::Negate => {
                let a = self.value(state, A);
                let negated = self.builder.ins().ineg(a);
                state.set(A, Word::Value(negated));
            }
            Step::Compute(operation, operand) => self.compute(operation, operand, state, out_of_bounds),
        }
    }

    fn copy(&mut self, state: &mut State, from: Registers, to: Registers) {
        let value = self.value(state, from);
        state.set(to, Word::Value(value));
    }

    /// Loads at constant places have been checked; at X the end of the load is, in 64 bits, where nothing wraps.
    fn load(&mut self, bytes: u8, at: u32, indexed: bool, state: &mut State, out_of_bounds: Label) -> Word {
        let (base, offset) = if indexed {
            let x = self.value(state, X);
            let x = self.builder.ins().uextend(types::I64, x);
            let end = self.builder.ins().iadd_imm_u(x, i64::from(at) + i64::from(bytes));
            let short = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, self.captured);
            self.go_on_unless(short, out_of_bounds);
            (self.builder.ins().iadd(self.data, x), at)
        } else {
            (self.data, at)
        };
        let (base, offset) = match i32::try_from(offset) {
            Ok(offset) => (base, offset),
            Err(_) => (self.builder.ins().iadd_imm_u(base, i64::from(offset)), 0),
        };
        match bytes {
            1 => Word::Value(self.builder.ins().uload8(types::I32, PACKET, base, offset)),
            2 => Word::Packet { raw: self.builder.ins().uload16(types::I32, PACKET, base, offset), bytes },
            _ => Word::Packet { raw: self.builder.ins().load(types::I32, PACKET, base, offset), bytes },
        }
    }

    fn compute(&mut self, operation: Operation, operand: Operand, state: &mut State, reject: Label) {
        if let (Operation::And, Operand::Constant(k), Word::Packet { raw, bytes }) = (operation, operand, state.words[0]) {
            let mask = if bytes == 2 { k & 0xffff } else { k };
            let mask = swapped(mask, bytes).expect("a mask of as many bytes");
            let masked = self.builder.ins().band_imm_u(raw, i64::from(mask));
            return state.set(A, Word::Packet { raw: masked, bytes });
        }
        let a = self.value(state, A);
        let b = match operand {
            Operand::Constant(k) => self.constant(k),
            Operand::X => self.value(state, X),
        };
        if let (Operation::Div | Operation::Mod, Operand::X) = (operation, operand) {
            let zero = self.builder.ins().icmp_imm_u(IntCC::Equal, b, 0);
            self.go_on_unless(zero, reject);
        }
        let ins = self.builder.ins();
        let result = match operation {
            Operation::Add => ins.iadd(a, b),
            Operation::Sub => ins.isub(a, b),
            Operation::Mul => ins.imul(a, b),
            Operation::Div => ins.udiv(a, b),
            Operation::Mod => ins.urem(a, b),
            Operation::And => ins.band(a, b),
            Operation::Or => ins.bor(a, b),
            Operation::Xor => ins.bxor(a, b),
            Operation::ShiftLeft => ins.ishl(a, b),
            Operation::ShiftRight => ins.ushr(a, b),
        };
        let result = match (operation, operand) {
            (Operation::ShiftLeft | Operation::ShiftRight, _) => self.zero_if_far(result, b),
            _ => result,
        };
        state.set(A, Word::Value(result));
    }

    /// A shift by 32 or more leaves nothing; the machine's would take the number modulo 32.
    fn zero_if_far(&mut self, shifted: Value, by: Value) -> Value {
        let near = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, by, 32);
        let zero = self.constant(0);
        self.builder.ins().select(near, shifted, zero)
    }

    fn end(&mut self, end: &End, mut state: State, known: u64) {
        match *end {
            End::Accept => self.answer(1),
            End::Reject => self.answer(0),
            End::ReturnA => {
                let a = self.value(&mut state, A);
                let (accept, reject) = (self.builder.create_block(), self.label(REJECT));
                self.builder.ins().brif(a, accept, &[], reject, &[]);
                self.builder.switch_to_block(accept);
                self.answer(1);
            }
            End::Jump(to) => {
                let to = self.label(to);
                self.builder.ins().jump(to, &[]);
            }
            End::JumpBack(to) => {
                let (to, reject) = (self.label(to), self.label(REJECT));
                let before = self.builder.use_var(self.backward);
                let count = self.builder.ins().iadd_imm_u(before, 1);
                self.builder.def_var(self.backward, count);
                let too_many =
                    self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, count, i64::from(BACKWARD_JUMPS_MAX));
                self.builder.ins().brif(too_many, reject, &[], to, &[]);
            }
            End::If(test, on_true, on_false) => {
                let (on_true, on_false) = (self.label(on_true), self.label(on_false));
                self.branch(test, &mut state, on_true, on_false);
            }
            End::In(ref set) => self.set_test(set, state, known),
        }
    }

    fn answer(&mut self, answer: i64) {
        let answer = self.builder.ins().iconst(types::I8, answer);
        self.builder.ins().return_(&[answer]);
    }

    fn branch(&mut self, test: Test, state: &mut State, on_true: Label, on_false: Label) {
        let condition = match (test.relation, test.operand, state.words[0]) {
            (Relation::Equal, Operand::Constant(k), word @ Word::Packet { .. }) => self.equals(word, k),
            (Relation::AnyBit, Operand::Constant(k), Word::Packet { raw, bytes }) => {
                let mask = swapped(if bytes == 2 { k & 0xffff } else { k }, bytes).expect("a mask of as many bytes");
                self.builder.ins().band_imm_u(raw, i64::from(mask))
            }
            _ => {
                let a = self.value(state, A);
                let b = match test.operand {
                    Operand::Constant(k) => self.constant(k),
                    Operand::X => self.value(state, X),
                };
                match test.relation {
                    Relation::Equal => self.builder.ins().icmp(IntCC::Equal, a, b),
                    Relation::Greater => self.builder.ins().icmp(IntCC::UnsignedGreaterThan, a, b),
                    Relation::GreaterOrEqual => self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, a, b),
                    Relation::AnyBit => self.builder.ins().band(a, b),
                }
            }
        };
        self.builder.ins().brif(condition, on_true, &[], on_false, &[]);
    }

    /// Whether a word is `k`; not a word in a variable.
    fn equals(&mut self, word: Word, k: u32) -> Value {
        let (value, k) = match word {
            Word::Packet { raw, bytes } => (raw, swapped(k, bytes)),
            Word::Value(value) => (value, Some(k)),
            Word::Variable => unreachable!("a set's word is a value"),
        };
        match k {
            Some(k) => {
                let k = self.constant(k);
                self.builder.ins().icmp(IntCC::Equal, value, k)
            }
            None => self.builder.ins().iconst(types::I8, 0),
        }
    }

    /// All values are looked up before the one branch: which of them is in its set can't be guessed.
    fn set_test(&mut self, set: &SetTest, mut state: State, known: u64) {
        let on_short = self.label(set.on_short);
        if let Word::Variable = state.words[0] {
            self.value(&mut state, A);
        }
        let mut words = vec![state.words[0]];
        let needed = runs::bytes_needed(&set.members);
        if needed > known {
            self.check(needed, on_short);
        }
        for member in &set.members[1..] {
            for &step in &member.steps {
                self.step(step, &mut state, on_short);
            }
            words.push(state.words[0]);
        }
        let mut found: Option<Value> = None;
        for (&word, member) in words.iter().zip(&set.members) {
            let one = self.is_in(word, member);
            found = Some(found.map_or(one, |others| self.builder.ins().bor(others, one)));
        }
        let found = found.expect("a set test has values");
        let (on_true, on_false) = (self.label(set.on_true), self.label(set.on_false));
        self.builder.ins().brif(found, on_true, &[], on_false, &[]);
    }

    /// Whether a value is one of its keys.
    fn is_in(&mut self, word: Word, member: &Member) -> Value {
        let (value, keys): (Value, Vec<u32>) = match word {
            Word::Packet { raw, bytes } => (raw, member.keys.iter().filter_map(|&k| swapped(k, bytes)).collect()),
            Word::Value(value) => (value, member.keys.clone()),
            Word::Variable => unreachable!("a set's word is a value"),
        };
        if keys.len() <= COMPARED_MAX {
            let mut found = self.builder.ins().iconst(types::I8, 0);
            for k in keys {
                let equal = self.equals(Word::Value(value), k);
                found = self.builder.ins().bor(found, equal);
            }
            return found;
        }
        let table = Table::new(&keys);
        let (address, shift, multipliers) = (table.slots.as_ptr() as i64, table.shift(), table.multipliers);
        self.tables.push(table);
        let slots = self.builder.ins().iconst(types::I64, address);
        let looked = multipliers.map(|multiplier| {
            let product = self.builder.ins().imul_imm_u(value, i64::from(multiplier));
            let slot = self.builder.ins().ushr_imm_u(product, i64::from(shift));
            let slot = self.builder.ins().uextend(types::I64, slot);
            let offset = self.builder.ins().ishl_imm_u(slot, 2);
            let at = self.builder.ins().iadd(slots, offset);
            let key = self.builder.ins().load(types::I32, PACKET, at, 0);
            self.builder.ins().icmp(IntCC::Equal, key, value)
        });
        self.builder.ins().bor(looked[0], looked[1])
    }
}

/// Loads of packets and tables: checked, and nothing writes there while the code runs.
const PACKET: MemFlagsData = MemFlagsData::new().with_notrap().with_readonly();
