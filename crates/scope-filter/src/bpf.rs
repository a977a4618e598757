//! Classic BPF programs, checked once, and their interpreter: the oracle and the fallback of every later engine.
//!
//! The machine (McCanne and Jacobson, "The BSD Packet Filter"): accumulator A, index register X, 16 words of scratch memory,
//! loads from the packet in network byte order. A load outside the captured bytes and a division by zero reject the packet.
//! Checking decodes the instructions into [`Op`]s, whose jumps and memory indices are known to be in range.

/// One instruction as libpcap lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub k: u32,
}

/// Words of scratch memory.
const MEMORY_WORDS: usize = 16;
/// Longest program, instructions.
const INSTRUCTIONS_MAX: usize = 1 << 20;
/// Backward jumps in one run (`protochain` loops over headers); a packet that asks for more is rejected.
const BACKWARD_JUMPS_MAX: u32 = 1 << 16;
/// Loads from here on are the kernel's own extensions (packet type, interface index), which packets in memory don't have.
const EXTENSIONS_FROM: u32 = 0xffff_f000;

/// Why a program is not run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("instruction {at} of the compiled filter is not valid (code {code:#06x}, k {k})")]
    Invalid { at: usize, code: u16, k: u32 },
    #[error("it asks for the direction or the interface of a packet, which are not in its bytes")]
    Extension,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

#[derive(Clone, Copy, Debug)]
enum Relation {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

/// The second operand.
#[derive(Clone, Copy, Debug)]
enum Operand {
    Constant(u32),
    X,
}

/// A decoded instruction. Jump targets are indices of instructions.
#[derive(Clone, Copy, Debug)]
enum Op {
    LoadWord(u32),
    LoadHalf(u32),
    LoadByte(u32),
    LoadIndexed { bytes: u32, k: u32 },
    LoadConstant(u32),
    LoadMemory(u8),
    LoadLength,
    IndexConstant(u32),
    IndexMemory(u8),
    IndexLength,
    IndexHeader(u32),
    Store(u8),
    StoreIndex(u8),
    Compute(Operation, Operand),
    Negate,
    ToIndex,
    FromIndex,
    Jump(u32),
    Branch { relation: Relation, operand: Operand, on_true: u32, on_false: u32 },
    Return(u32),
    ReturnA,
}

/// A program that has been checked.
#[derive(Debug)]
pub(crate) struct Program(Vec<Op>);

impl Program {
    /// Checks and decodes: known opcodes, jumps and memory inside their bounds, no constant division by zero, a return at
    /// the end.
    pub fn new(instructions: &[Instruction]) -> Result<Program, ProgramError> {
        let invalid = |at: usize| {
            let i = instructions.get(at).copied().unwrap_or(Instruction { code: 0, jump_true: 0, jump_false: 0, k: 0 });
            ProgramError::Invalid { at, code: i.code, k: i.k }
        };
        if instructions.is_empty() || instructions.len() > INSTRUCTIONS_MAX {
            return Err(invalid(0));
        }
        let mut ops = Vec::with_capacity(instructions.len());
        for (at, instruction) in instructions.iter().enumerate() {
            if matches!(instruction.code, 0x20 | 0x28 | 0x30) && instruction.k >= EXTENSIONS_FROM {
                return Err(ProgramError::Extension);
            }
            ops.push(decode(instruction, at, instructions.len()).ok_or_else(|| invalid(at))?);
        }
        match ops.last() {
            Some(Op::Return(_) | Op::ReturnA) => Ok(Program(ops)),
            _ => Err(invalid(ops.len() - 1)),
        }
    }

    /// The program of a filter that nothing passes.
    pub fn nothing() -> Program {
        Program(vec![Op::Return(0)])
    }

    /// Runs the program over the captured bytes `data` of a packet that had `original_len` bytes on the wire.
    pub fn accepts(&self, data: &[u8], original_len: u32) -> bool {
        run(&self.0, data, original_len).is_some_and(|returned| returned != 0)
    }
}

fn decode(i: &Instruction, at: usize, len: usize) -> Option<Op> {
    let target = |offset: u32| Some(at + 1 + offset as usize).filter(|&to| to < len).map(|to| to as u32);
    let memory = || (i.k < MEMORY_WORDS as u32).then_some(i.k as u8);
    let operand = if i.code & 0x08 == 0 { Operand::Constant(i.k) } else { Operand::X };
    let by_zero = matches!(operand, Operand::Constant(0));
    let branch = |relation| {
        let (on_true, on_false) = (target(i.jump_true.into())?, target(i.jump_false.into())?);
        Some(Op::Branch { relation, operand, on_true, on_false })
    };
    Some(match i.code {
        0x20 => Op::LoadWord(i.k),
        0x28 => Op::LoadHalf(i.k),
        0x30 => Op::LoadByte(i.k),
        0x40 => Op::LoadIndexed { bytes: 4, k: i.k },
        0x48 => Op::LoadIndexed { bytes: 2, k: i.k },
        0x50 => Op::LoadIndexed { bytes: 1, k: i.k },
        0x00 => Op::LoadConstant(i.k),
        0x60 => Op::LoadMemory(memory()?),
        0x80 => Op::LoadLength,
        0x01 => Op::IndexConstant(i.k),
        0x61 => Op::IndexMemory(memory()?),
        0x81 => Op::IndexLength,
        0xb1 => Op::IndexHeader(i.k),
        0x02 => Op::Store(memory()?),
        0x03 => Op::StoreIndex(memory()?),
        0x04 | 0x0c => Op::Compute(Operation::Add, operand),
        0x14 | 0x1c => Op::Compute(Operation::Sub, operand),
        0x24 | 0x2c => Op::Compute(Operation::Mul, operand),
        0x34 | 0x3c if !by_zero => Op::Compute(Operation::Div, operand),
        0x44 | 0x4c => Op::Compute(Operation::Or, operand),
        0x54 | 0x5c => Op::Compute(Operation::And, operand),
        0x64 | 0x6c => Op::Compute(Operation::ShiftLeft, operand),
        0x74 | 0x7c => Op::Compute(Operation::ShiftRight, operand),
        0x84 => Op::Negate,
        0x94 | 0x9c if !by_zero => Op::Compute(Operation::Mod, operand),
        0xa4 | 0xac => Op::Compute(Operation::Xor, operand),
        0x05 => Op::Jump(jump_always(i.k, at, len)?),
        0x15 | 0x1d => branch(Relation::Equal)?,
        0x25 | 0x2d => branch(Relation::Greater)?,
        0x35 | 0x3d => branch(Relation::GreaterOrEqual)?,
        0x45 | 0x4d => branch(Relation::AnyBit)?,
        0x06 => Op::Return(i.k),
        0x16 => Op::ReturnA,
        0x07 => Op::ToIndex,
        0x87 => Op::FromIndex,
        _ => return None,
    })
}

/// Only the unconditional jump may go back: libpcap's loop over a chain of headers.
fn jump_always(k: u32, at: usize, len: usize) -> Option<u32> {
    let to = at as i64 + 1 + i64::from(k as i32);
    usize::try_from(to).ok().filter(|&to| to < len).map(|to| to as u32)
}

/// The value that the program returns; `None` where it stopped at a load outside the packet or a division by zero.
fn run(ops: &[Op], data: &[u8], original_len: u32) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; MEMORY_WORDS]);
    let mut backward_jumps = 0;
    let mut at = 0;
    loop {
        let op = ops[at];
        at += 1;
        match op {
            Op::LoadWord(k) => a = u32::from_be_bytes(bytes_at(data, k)?),
            Op::LoadHalf(k) => a = u16::from_be_bytes(bytes_at(data, k)?).into(),
            Op::LoadByte(k) => a = u8::from_be_bytes(bytes_at(data, k)?).into(),
            Op::LoadIndexed { bytes, k } => {
                let k = k.checked_add(x)?;
                a = match bytes {
                    4 => u32::from_be_bytes(bytes_at(data, k)?),
                    2 => u16::from_be_bytes(bytes_at(data, k)?).into(),
                    _ => u8::from_be_bytes(bytes_at(data, k)?).into(),
                };
            }
            Op::LoadConstant(k) => a = k,
            Op::LoadMemory(cell) => a = memory[cell as usize],
            Op::LoadLength => a = original_len,
            Op::IndexConstant(k) => x = k,
            Op::IndexMemory(cell) => x = memory[cell as usize],
            Op::IndexLength => x = original_len,
            Op::IndexHeader(k) => x = u32::from(u8::from_be_bytes(bytes_at(data, k)?) & 15) * 4,
            Op::Store(cell) => memory[cell as usize] = a,
            Op::StoreIndex(cell) => memory[cell as usize] = x,
            Op::Compute(operation, operand) => a = compute(operation, a, value(operand, x))?,
            Op::Negate => a = a.wrapping_neg(),
            Op::ToIndex => x = a,
            Op::FromIndex => a = x,
            Op::Jump(to) => {
                if (to as usize) < at {
                    backward_jumps += 1;
                    if backward_jumps > BACKWARD_JUMPS_MAX {
                        return None;
                    }
                }
                at = to as usize;
            }
            Op::Branch { relation, operand, on_true, on_false } => {
                at = if holds(relation, a, value(operand, x)) { on_true } else { on_false } as usize;
            }
            Op::Return(k) => return Some(k),
            Op::ReturnA => return Some(a),
        }
    }
}

#[inline]
fn bytes_at<const N: usize>(data: &[u8], at: u32) -> Option<[u8; N]> {
    data.get(at as usize..)?.first_chunk().copied()
}

#[inline]
fn value(operand: Operand, x: u32) -> u32 {
    match operand {
        Operand::Constant(k) => k,
        Operand::X => x,
    }
}

#[inline]
fn compute(operation: Operation, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        Operation::Add => a.wrapping_add(b),
        Operation::Sub => a.wrapping_sub(b),
        Operation::Mul => a.wrapping_mul(b),
        Operation::Div => a.checked_div(b)?,
        Operation::Mod => a.checked_rem(b)?,
        Operation::And => a & b,
        Operation::Or => a | b,
        Operation::Xor => a ^ b,
        Operation::ShiftLeft => a.checked_shl(b).unwrap_or(0),
        Operation::ShiftRight => a.checked_shr(b).unwrap_or(0),
    })
}

#[inline]
fn holds(relation: Relation, a: u32, b: u32) -> bool {
    match relation {
        Relation::Equal => a == b,
        Relation::Greater => a > b,
        Relation::GreaterOrEqual => a >= b,
        Relation::AnyBit => a & b != 0,
    }
}
