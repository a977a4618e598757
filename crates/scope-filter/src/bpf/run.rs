//! The loop over a program's ops.

use super::{ACCEPT, BACKWARD_JUMPS_MAX, Branch, MEMORY_WORDS, Op, Operation};

/// `None` where the program rejects the packet, be it by a load outside the captured bytes or a division by
/// zero.
pub(super) fn run(ops: &[Op], data: &[u8], original_len: u32) -> Option<()> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; MEMORY_WORDS]);
    let mut backward_jumps = 0;
    let mut at = 0;
    while let Some(op) = ops.get(at as usize) {
        at += 1;
        match *op {
            Op::IfWordEqual(k, b) => {
                a = word(data, k.into())?;
                at = b.next(a == b.k);
            }
            Op::IfHalfEqual(k, b) => {
                a = half(data, k.into())?;
                at = b.next(a == b.k);
            }
            Op::IfByteEqual(k, b) => {
                a = byte(data, k.into())?;
                at = b.next(a == b.k);
            }
            Op::IfHalfAnyBit(k, b) => {
                a = half(data, k.into())?;
                at = b.next(a & b.k != 0);
            }
            Op::IfHalfAtXEqual(k, b) => {
                a = half(data, x.checked_add(k.into())?)?;
                at = b.next(a == b.k);
            }
            Op::IfEqual(b) => at = b.next(a == b.k),
            Op::IfGreater(b) => at = b.next(a > b.k),
            Op::IfGreaterOrEqual(b) => at = b.next(a >= b.k),
            Op::IfAnyBit(b) => at = b.next(a & b.k != 0),
            Op::IfX(relation, b) => at = b.next(relation.holds(a, x)),
            Op::LoadWord(k) => a = word(data, k)?,
            Op::LoadHalf(k) => a = half(data, k)?,
            Op::LoadByte(k) => a = byte(data, k)?,
            Op::LoadWordAtX(k) => a = word(data, x.checked_add(k)?)?,
            Op::LoadHalfAtX(k) => a = half(data, x.checked_add(k)?)?,
            Op::LoadByteAtX(k) => a = byte(data, x.checked_add(k)?)?,
            Op::LoadConstant(k) => a = k,
            Op::LoadMemory(cell) => a = memory[usize::from(cell)],
            Op::LoadLength => a = original_len,
            Op::IndexConstant(k) => x = k,
            Op::IndexMemory(cell) => x = memory[usize::from(cell)],
            Op::IndexLength => x = original_len,
            Op::IndexHeader(k) => x = (byte(data, k)? & 15) * 4,
            Op::Store(cell) => memory[usize::from(cell)] = a,
            Op::StoreIndex(cell) => memory[usize::from(cell)] = x,
            Op::And(k) => a &= k,
            Op::Compute(operation, k) => a = compute(operation, a, k)?,
            Op::ComputeX(operation) => a = compute(operation, a, x)?,
            Op::Negate => a = a.wrapping_neg(),
            Op::ToIndex => x = a,
            Op::FromIndex => a = x,
            Op::Jump(to) => at = to,
            Op::JumpBack(to) => {
                backward_jumps += 1;
                if backward_jumps > BACKWARD_JUMPS_MAX {
                    return None;
                }
                at = to;
            }
            Op::ReturnA => return (a != 0).then_some(()),
        }
    }
    (at == ACCEPT).then_some(())
}

impl Branch {
    /// Where the run goes on. Without the empty `black_box` the compiler makes this a conditional move, and
    /// each step waits for the packet's bytes of the one before; with a branch, the processor guesses and
    /// runs ahead: half the time per packet.
    #[inline]
    fn next(self, holds: bool) -> u32 {
        if holds {
            std::hint::black_box(());
            self.on_true
        } else {
            self.on_false
        }
    }
}

#[inline]
fn word(data: &[u8], at: u32) -> Option<u32> {
    Some(u32::from_be_bytes(bytes_at(data, at)?))
}

#[inline]
fn half(data: &[u8], at: u32) -> Option<u32> {
    Some(u16::from_be_bytes(bytes_at(data, at)?).into())
}

#[inline]
fn byte(data: &[u8], at: u32) -> Option<u32> {
    Some(u8::from_be_bytes(bytes_at(data, at)?).into())
}

#[inline]
fn bytes_at<const N: usize>(data: &[u8], at: u32) -> Option<[u8; N]> {
    let at = at as usize;
    data.get(at..at.checked_add(N)?)?.first_chunk().copied()
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
