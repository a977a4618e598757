//! Cranelift's intermediate code of a predicate: a loop over packets, in which its programs stand.
//!
//! ```text
//! (packets, which) -> hits:
//!     while which has bits:  take the lowest; packet = packets[its place];  choose a program
//!         program:  accepts -> set the bit in hits
//! ```
//! A call costs as much as a short program: so it is one for a batch. Per block of a program:
//!
//! ```text
//! bytes needed at constant places > bytes known to be there?  one check for all of them, out of bounds: reject
//! steps: A and X are values; registers become variables only where a later block reads them
//! end:   brif
//! ```
//! What a block's dominator has checked is known. Words of the packet stay in the packet's byte order as long
//! as they are only masked and compared: the constants are swapped instead.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block as Label, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::graph::{self, A, BlockId, End, Graph, Member, Operand, Registers, SetTest, Step, Test, X};
use super::runs;
use super::table::Table;
use crate::bpf::{BACKWARD_JUMPS_MAX, MEMORY_WORDS, Operation, Relation};
use crate::choice::Choice;
use crate::input::FilterInput;

/// A, X, and scratch memory.
const REGISTERS: usize = 2 + MEMORY_WORDS;
/// A set of so many keys is compared one by one.
const COMPARED_MAX: usize = 3;
/// Tests with so many keys in all branch at each comparison.
const BRANCHES_MAX: usize = 4;

/// Loads of packets and tables: checked, and nothing writes there while the code runs.
const PACKET: MemFlagsData = MemFlagsData::new().with_notrap().with_readonly();

/// The packet at hand, and where its answer goes.
#[derive(Clone, Copy)]
struct Frame {
    data: Value,
    captured: Value,
    original: Value,
    accept: Label,
    reject: Label,
}

/// Writes the function of `graphs`, of which `programs` gives the index for each answer of `choice`, to
/// `builder`. The tables that its code looks into are added to `tables` and must live as long as the code.
pub(super) fn emit(
    graphs: &[Graph],
    programs: &[usize],
    choice: Choice,
    builder: &mut FunctionBuilder<'_>,
    tables: &mut Vec<Table>,
) {
    let [entry, head, next, accept, done] = std::array::from_fn(|_| builder.create_block());
    let [left, hits] = std::array::from_fn(|_| builder.declare_var(types::I64));
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let (packets, which) = (builder.block_params(entry)[0], builder.block_params(entry)[1]);
    let none = builder.ins().iconst(types::I64, 0);
    builder.def_var(left, which);
    builder.def_var(hits, none);
    builder.ins().jump(head, &[]);

    builder.switch_to_block(head);
    let bits = builder.use_var(left);
    builder.ins().brif(bits, next, &[], done, &[]);

    builder.switch_to_block(next);
    let place = builder.ins().ctz(bits);
    let less = builder.ins().iadd_imm_s(bits, -1);
    let rest = builder.ins().band(bits, less);
    builder.def_var(left, rest);
    let offset = builder.ins().imul_imm_u(place, size_of::<FilterInput>() as i64);
    let packet = builder.ins().iadd(packets, offset);
    let data = builder.ins().load(types::I64, PACKET, packet, offset_of!(FilterInput, data) as i32);
    let captured =
        builder.ins().load(types::I64, PACKET, packet, offset_of!(FilterInput, captured_bytes) as i32);
    let original =
        builder.ins().load(types::I32, PACKET, packet, offset_of!(FilterInput, original_bytes) as i32);
    let frame = Frame { data, captured, original, accept, reject: head };
    let labels: Vec<Label> = graphs.iter().map(|_| builder.create_block()).collect();
    let chosen: Vec<Label> = programs.iter().map(|&program| labels[program]).collect();
    match choice {
        _ if graphs.len() == 1 => drop(builder.ins().jump(labels[0], &[])),
        Choice::Tags => {
            let tags = builder.ins().load(types::I32, PACKET, packet, offset_of!(FilterInput, tags) as i32);
            by_number(builder, tags, &chosen);
        }
        Choice::ByteOrder => by_byte_order(builder, frame, &chosen),
    }
    for (graph, label) in graphs.iter().zip(labels) {
        emit_program(graph, label, frame, builder, tables);
    }

    builder.switch_to_block(accept);
    let one = builder.ins().iconst(types::I64, 1);
    let bit = builder.ins().ishl(one, place);
    let before = builder.use_var(hits);
    let after = builder.ins().bor(before, bit);
    builder.def_var(hits, after);
    builder.ins().jump(head, &[]);

    builder.switch_to_block(done);
    let hits = builder.use_var(hits);
    builder.ins().return_(&[hits]);
    builder.seal_all_blocks();
}

/// Goes to the label that stands at `number`, behind the last one to the last.
fn by_number(builder: &mut FunctionBuilder<'_>, number: Value, labels: &[Label]) {
    for (at, &label) in labels.iter().enumerate() {
        if at + 1 == labels.len() {
            builder.ins().jump(label, &[]);
        } else {
            let others = builder.create_block();
            let is_it = builder.ins().icmp_imm_u(IntCC::Equal, number, at as i64);
            builder.ins().brif(is_it, label, &[], others, &[]);
            builder.switch_to_block(others);
        }
    }
}

/// Goes to the second label if the packet's first word is a small number in the other byte order: see
/// [`Choice::ByteOrder`].
fn by_byte_order(builder: &mut FunctionBuilder<'_>, frame: Frame, labels: &[Label]) {
    let [whole, low] = std::array::from_fn(|_| builder.create_block());
    let is_whole = builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, frame.captured, 4);
    builder.ins().brif(is_whole, whole, &[], labels[0], &[]);
    builder.switch_to_block(whole);
    let family = builder.ins().load(types::I32, PACKET, frame.data, 0);
    let low_half = builder.ins().band_imm_u(family, 0xffff);
    builder.ins().brif(low_half, labels[0], &[], low, &[]);
    builder.switch_to_block(low);
    builder.ins().brif(family, labels[1], &[], labels[0], &[]);
}

fn emit_program(
    graph: &Graph,
    begin: Label,
    frame: Frame,
    builder: &mut FunctionBuilder<'_>,
    tables: &mut Vec<Table>,
) {
    let order = graph.order();
    let live = graph.live(&order);
    let known = known_bytes(graph, &order);
    builder.switch_to_block(begin);
    let labels = graph.blocks.iter().map(|_| None).collect();
    let variables = std::array::from_fn(|_| builder.declare_var(types::I32));
    let backward = builder.declare_var(types::I32);
    let mut emitter = Emitter { graph, live, labels, variables, backward, frame, tables, builder };
    for &id in &order {
        emitter.labels[id as usize] = Some(match graph.block(id).end {
            End::Accept => frame.accept,
            End::Reject => frame.reject,
            _ => emitter.builder.create_block(),
        });
    }
    emitter.begin();
    for &id in &order {
        if !matches!(graph.block(id).end, End::Accept | End::Reject) {
            emitter.block(id, known[id as usize]);
        }
    }
}

/// Bytes that are known to be captured where a block begins.
fn known_bytes(graph: &Graph, order: &[BlockId]) -> Vec<u64> {
    let mut known = vec![0; graph.blocks.len()];
    if graph.is_acyclic() {
        let (dominators, _) = graph.dominators(order);
        for &id in order {
            if let Some(before) = dominators[id as usize] {
                known[id as usize] =
                    known[before as usize].max(graph::bytes_needed(&graph.block(before).steps));
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
    frame: Frame,
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
        let reject = self.frame.reject;
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
        let short =
            self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, self.frame.captured, needed as i64);
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
                let byte = self.builder.ins().uload8(types::I32, PACKET, self.frame.data, at as i32);
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
            Step::Length => state.set(A, Word::Value(self.frame.original)),
            Step::IndexLength => state.set(X, Word::Value(self.frame.original)),
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

    /// Loads at constant places have been checked; at X the end of the load is, in 64 bits, where nothing
    /// wraps.
    fn load(&mut self, bytes: u8, at: u32, indexed: bool, state: &mut State, out_of_bounds: Label) -> Word {
        let (base, offset) = if indexed {
            let x = self.value(state, X);
            let x = self.builder.ins().uextend(types::I64, x);
            let end = self.builder.ins().iadd_imm_u(x, i64::from(at) + i64::from(bytes));
            let short = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, self.frame.captured);
            self.go_on_unless(short, out_of_bounds);
            (self.builder.ins().iadd(self.frame.data, x), at)
        } else {
            (self.frame.data, at)
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
        if let (Operation::And, Operand::Constant(k), Word::Packet { raw, bytes }) =
            (operation, operand, state.words[0])
        {
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
            End::Accept | End::Reject => unreachable!("the labels of these blocks are the loop's"),
            End::ReturnA => {
                let a = self.value(&mut state, A);
                self.builder.ins().brif(a, self.frame.accept, &[], self.frame.reject, &[]);
            }
            End::Jump(to) => {
                let to = self.label(to);
                self.builder.ins().jump(to, &[]);
            }
            End::JumpBack(to) => {
                let (to, reject) = (self.label(to), self.frame.reject);
                let before = self.builder.use_var(self.backward);
                let count = self.builder.ins().iadd_imm_u(before, 1);
                self.builder.def_var(self.backward, count);
                let too_many = self.builder.ins().icmp_imm_u(
                    IntCC::UnsignedGreaterThan,
                    count,
                    i64::from(BACKWARD_JUMPS_MAX),
                );
                self.builder.ins().brif(too_many, reject, &[], to, &[]);
            }
            End::If(test, on_true, on_false) => {
                let (on_true, on_false) = (self.label(on_true), self.label(on_false));
                self.branch(test, &mut state, on_true, on_false);
            }
            End::In(ref set) => self.set_test(set, state, known),
        }
    }

    fn branch(&mut self, test: Test, state: &mut State, on_true: Label, on_false: Label) {
        let condition = match (test.relation, test.operand, state.words[0]) {
            (Relation::Equal, Operand::Constant(k), word @ Word::Packet { .. }) => self.equals(word, k),
            (Relation::AnyBit, Operand::Constant(k), Word::Packet { raw, bytes }) => {
                let mask =
                    swapped(if bytes == 2 { k & 0xffff } else { k }, bytes).expect("a mask of as many bytes");
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
                    Relation::GreaterOrEqual => {
                        self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, a, b)
                    }
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

    /// Values that are looked up in tables are so before the one branch: which of them is found can't be
    /// guessed.
    fn set_test(&mut self, set: &SetTest, mut state: State, known: u64) {
        let on_short = self.label(set.on_short);
        let (on_true, on_false) = (self.label(set.on_true), self.label(set.on_false));
        let needed = runs::bytes_needed(&set.members);
        if needed > known {
            self.check(needed, on_short);
        }
        let keys: usize = set.members.iter().map(|member| member.keys.len()).sum();
        let mut found: Option<Value> = None;
        for member in &set.members {
            for &step in &member.steps {
                self.step(step, &mut state, on_short);
            }
            if let Word::Variable = state.words[0] {
                self.value(&mut state, A);
            }
            if keys <= BRANCHES_MAX {
                for &key in &member.keys {
                    let equal = self.equals(state.words[0], key);
                    self.go_on_unless(equal, on_true);
                }
            } else {
                let one = self.is_in(state.words[0], member);
                found = Some(found.map_or(one, |others| self.builder.ins().bor(others, one)));
            }
        }
        match found {
            Some(found) => self.builder.ins().brif(found, on_true, &[], on_false, &[]),
            None => self.builder.ins().jump(on_false, &[]),
        };
    }

    /// Whether a value is one of its keys.
    fn is_in(&mut self, word: Word, member: &Member) -> Value {
        let (value, keys): (Value, Vec<u32>) = match word {
            Word::Packet { raw, bytes } => {
                (raw, member.keys.iter().filter_map(|&k| swapped(k, bytes)).collect())
            }
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
