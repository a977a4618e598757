//! Makes the ops of a program fewer to run. Every op keeps its index and what it means for a jump to it.

use super::{Branch, Op};

/// `ops` with threaded jumps and fused pairs. From the back, so that what lies ahead is already done.
pub(super) fn fused(mut ops: Vec<Op>) -> Vec<Op> {
    for at in (0..ops.len()).rev() {
        ops[at] = threaded(ops[at], &ops);
    }
    for at in 1..ops.len() {
        // The second of the pair is not fused yet: it is what the instruction said.
        if let Some(pair) = pair(ops[at - 1], ops[at]) {
            ops[at - 1] = pair;
        }
    }
    ops
}

/// A jump to a jump goes where that one goes; only forward ones, which are not counted.
fn threaded(op: Op, ops: &[Op]) -> Op {
    let last = |to: u32| match ops.get(to as usize) {
        Some(&Op::Jump(further)) => further,
        _ => to,
    };
    let branch = |b: Branch| Branch { k: b.k, on_true: last(b.on_true), on_false: last(b.on_false) };
    match op {
        Op::Jump(to) => Op::Jump(last(to)),
        Op::IfEqual(b) => Op::IfEqual(branch(b)),
        Op::IfGreater(b) => Op::IfGreater(branch(b)),
        Op::IfGreaterOrEqual(b) => Op::IfGreaterOrEqual(branch(b)),
        Op::IfAnyBit(b) => Op::IfAnyBit(branch(b)),
        Op::IfX(relation, b) => Op::IfX(relation, branch(b)),
        other => other,
    }
}

/// The op that does what `first` and then `second` do; `None` where there is none.
fn pair(first: Op, second: Op) -> Option<Op> {
    let short = |k: u32| u16::try_from(k).ok();
    Some(match (first, second) {
        (Op::LoadWord(k), Op::IfEqual(b)) => Op::IfWordEqual(short(k)?, b),
        (Op::LoadHalf(k), Op::IfEqual(b)) => Op::IfHalfEqual(short(k)?, b),
        (Op::LoadByte(k), Op::IfEqual(b)) => Op::IfByteEqual(short(k)?, b),
        (Op::LoadHalf(k), Op::IfAnyBit(b)) => Op::IfHalfAnyBit(short(k)?, b),
        (Op::LoadHalfAtX(k), Op::IfEqual(b)) => Op::IfHalfAtXEqual(short(k)?, b),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::bpf::{Instruction, Op, Program};
    use crate::libpcap;
    use crate::specimens::Random;

    const LOADS: [u16; 8] = [0x20, 0x28, 0x28, 0x30, 0x48, 0x48, 0x40, 0x50];
    const COMPARISONS: [u16; 5] = [0x15, 0x15, 0x15, 0x45, 0x25];

    fn instruction(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Instruction {
        Instruction { code, jump_true, jump_false, k }
    }

    fn is_fused(op: &Op) -> bool {
        use Op::{IfByteEqual, IfHalfAnyBit, IfHalfAtXEqual, IfHalfEqual, IfWordEqual};
        matches!(
            op,
            IfWordEqual(..) | IfHalfEqual(..) | IfByteEqual(..) | IfHalfAnyBit(..) | IfHalfAtXEqual(..)
        )
    }

    #[test]
    fn a_jump_into_a_fused_pair_compares_what_was_loaded_before() {
        let program = Program::new(&[
            instruction(0x30, 0, 0, 0), // A = first byte
            instruction(0x15, 1, 0, 7), // 7: to the middle
            instruction(0x28, 0, 0, 1), // A = the half behind it
            instruction(0x15, 0, 1, 7),
            instruction(0x06, 0, 0, 1),
            instruction(0x06, 0, 0, 0),
        ])
        .unwrap();
        assert!(is_fused(&program.fused[0]) && is_fused(&program.fused[2]), "{program:?}");
        assert!(program.accepts(&[7, 0, 9], 3), "the half is not loaded");
        assert!(program.accepts(&[7], 1), "nor has it to be there");
        assert!(program.accepts(&[1, 0, 7], 3));
        assert!(!program.accepts(&[1, 0, 9], 3));
        assert!(!program.accepts(&[1, 0], 2));
    }

    #[test]
    fn jumps_to_jumps_to_returns_end_the_run_at_once() {
        let program = Program::new(&[
            instruction(0x30, 0, 0, 0),
            instruction(0x15, 0, 2, 7),
            instruction(0x05, 0, 0, 0),
            instruction(0x06, 0, 0, 1),
            instruction(0x05, 0, 0, 0),
            instruction(0x06, 0, 0, 0),
        ])
        .unwrap();
        let Op::IfByteEqual(0, branch) = program.fused[0] else { panic!("{program:?}") };
        assert_eq!((branch.k, branch.on_true, branch.on_false), (7, crate::bpf::ACCEPT, crate::bpf::REJECT));
    }

    /// Loads and comparisons in pairs, whose jumps go anywhere ahead, often between the two.
    fn pairs(random: &mut Random) -> Vec<Instruction> {
        let len = 6 + random.below(14) as u8;
        let mut found: Vec<_> = (0..len).map(|at| step(random, at, len - 1 - at)).collect();
        found.push(instruction(0x06, 0, 0, 1));
        found.push(instruction(0x06, 0, 0, 0));
        found.push(instruction(0x16, 0, 0, 0));
        found
    }

    fn step(random: &mut Random, at: u8, room: u8) -> Instruction {
        let k = random.pick(&[0, 1, 1, 2, 3, 256, 257, 0x0101_0101]);
        let ahead = |random: &mut Random| random.below(u64::from(room) + 3) as u8;
        match at % 2 {
            _ if random.one_in(8) => instruction(0x05, 0, 0, ahead(random).into()),
            _ if random.one_in(8) => instruction(0x01, 0, 0, random.pick(&[0, 1, 2, u32::MAX])),
            _ if random.one_in(40) => {
                instruction(random.pick(&LOADS), 0, 0, random.pick(&[65_535, 65_536, u32::MAX >> 1]))
            }
            0 => instruction(random.pick(&LOADS), 0, 0, random.below(5) as u32),
            _ => instruction(random.pick(&COMPARISONS), ahead(random), ahead(random), k),
        }
    }

    #[test]
    fn fused_programs_agree_with_libpcap_wherever_their_jumps_go() {
        let mut random = Random::new(4);
        let (mut fused, mut accepted) = (0, 0);
        for _ in 0..50_000 {
            let instructions = pairs(&mut random);
            let program = Program::new(&instructions).unwrap();
            fused += program.fused.iter().filter(|op| is_fused(op)).count();
            for _ in 0..8 {
                let data: Vec<u8> = (0..4 + random.below(6)).map(|_| random.below(2) as u8).collect();
                let expected = libpcap::accepts(&instructions, &data, 1500);
                assert_eq!(program.accepts(&data, 1500), expected, "{instructions:x?} on {data:x?}");
                accepted += u32::from(expected);
            }
        }
        assert!(fused > 50_000 && accepted > 50_000, "{fused} pairs, {accepted} packets accepted");
    }
}
