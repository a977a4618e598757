//! Checks the instructions of a program and decodes them, one by one.

use std::ops::Range;

use super::{
    ACCEPT, Branch, INSTRUCTIONS_MAX, Instruction, MEMORY_WORDS, Op, Operation, ProgramError, REJECT,
    Relation,
};

/// Loads from here are the kernel's own extensions (packet type, interface index; `SKF_AD_OFF`, `SKF_AD_MAX`
/// of linux/filter.h), which packets in memory don't have. Beyond, libpcap means what lies before a packet:
/// nothing.
const EXTENSIONS: Range<u32> = 0xffff_f000..0xffff_f040;

/// The op of each instruction.
pub(super) fn decoded(instructions: &[Instruction]) -> Result<Vec<Op>, ProgramError> {
    let invalid = |at: usize| {
        let i = instructions.get(at).copied().unwrap_or(Instruction {
            code: 0,
            jump_true: 0,
            jump_false: 0,
            k: 0,
        });
        ProgramError::Invalid { at, code: i.code, k: i.k }
    };
    let len = instructions.len();
    if len == 0 || len > INSTRUCTIONS_MAX {
        return Err(invalid(0));
    }
    if !matches!(instructions[len - 1].code, 0x06 | 0x16) {
        return Err(invalid(len - 1));
    }
    let mut ops = Vec::with_capacity(len);
    for (at, instruction) in instructions.iter().enumerate() {
        if matches!(instruction.code, 0x20 | 0x28 | 0x30) && EXTENSIONS.contains(&instruction.k) {
            return Err(ProgramError::Extension);
        }
        ops.push(decode(instruction, at, len).ok_or_else(|| invalid(at))?);
    }
    Ok(ops)
}

fn decode(i: &Instruction, at: usize, len: usize) -> Option<Op> {
    let memory = || (i.k < MEMORY_WORDS as u32).then_some(i.k as u8);
    let branch = || {
        let target =
            |offset: u8| Some(at + 1 + usize::from(offset)).filter(|&to| to < len).map(|to| to as u32);
        Some(Branch { k: i.k, on_true: target(i.jump_true)?, on_false: target(i.jump_false)? })
    };
    Some(match i.code {
        0x20 => Op::LoadWord(i.k),
        0x28 => Op::LoadHalf(i.k),
        0x30 => Op::LoadByte(i.k),
        0x40 => Op::LoadWordAtX(i.k),
        0x48 => Op::LoadHalfAtX(i.k),
        0x50 => Op::LoadByteAtX(i.k),
        0x00 => Op::LoadConstant(i.k),
        0x60 => Op::LoadMemory(memory()?),
        0x80 => Op::LoadLength,
        0x01 => Op::IndexConstant(i.k),
        0x61 => Op::IndexMemory(memory()?),
        0x81 => Op::IndexLength,
        0xb1 => Op::IndexHeader(i.k),
        0x02 => Op::Store(memory()?),
        0x03 => Op::StoreIndex(memory()?),
        0x34 | 0x94 if i.k == 0 => return None,
        0x54 => Op::And(i.k),
        0x04 | 0x14 | 0x24 | 0x34 | 0x44 | 0x64 | 0x74 | 0x94 | 0xa4 => Op::Compute(operation(i.code), i.k),
        0x0c | 0x1c | 0x2c | 0x3c | 0x4c | 0x5c | 0x6c | 0x7c | 0x9c | 0xac => {
            Op::ComputeX(operation(i.code))
        }
        0x84 => Op::Negate,
        0x05 => jump(i.k, at, len)?,
        0x15 => Op::IfEqual(branch()?),
        0x25 => Op::IfGreater(branch()?),
        0x35 => Op::IfGreaterOrEqual(branch()?),
        0x45 => Op::IfAnyBit(branch()?),
        0x1d => Op::IfX(Relation::Equal, branch()?),
        0x2d => Op::IfX(Relation::Greater, branch()?),
        0x3d => Op::IfX(Relation::GreaterOrEqual, branch()?),
        0x4d => Op::IfX(Relation::AnyBit, branch()?),
        0x06 => Op::Jump(if i.k == 0 { REJECT } else { ACCEPT }),
        0x16 => Op::ReturnA,
        0x07 => Op::ToIndex,
        0x87 => Op::FromIndex,
        _ => return None,
    })
}

fn operation(code: u16) -> Operation {
    match code & 0xf0 {
        0x00 => Operation::Add,
        0x10 => Operation::Sub,
        0x20 => Operation::Mul,
        0x30 => Operation::Div,
        0x40 => Operation::Or,
        0x50 => Operation::And,
        0x60 => Operation::ShiftLeft,
        0x70 => Operation::ShiftRight,
        0x90 => Operation::Mod,
        _ => Operation::Xor,
    }
}

/// Only the unconditional jump may go back: libpcap's loop over a chain of headers.
fn jump(k: u32, at: usize, len: usize) -> Option<Op> {
    let to = at as i64 + 1 + i64::from(k as i32);
    let to = usize::try_from(to).ok().filter(|&to| to < len)?;
    Some(if to > at { Op::Jump(to as u32) } else { Op::JumpBack(to as u32) })
}
