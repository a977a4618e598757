//! Classic BPF programs, checked once, and their interpreter: the oracle and the fallback of every later
//! engine.
//!
//! The machine (McCanne and Jacobson, "The BSD Packet Filter"): accumulator A, index register X, 16 words of
//! scratch memory, loads from the packet in network byte order. A load outside the captured bytes and a
//! division by zero reject the packet.
//!
//! | module | what it holds |
//! |---|---|
//! | `decode` | checks the instructions and turns each into an [`Op`], whose jumps and memory cells are in range |
//! | `fuse` | makes the ops fewer to run: jumps go to their last end, a load and the comparison behind it become one |
//! | `join` | makes one program of several |
//! | `run` | the loop over the ops |
//!
//! Most of a run's time goes into stepping from op to op, so the pairs that libpcap's programs are made of
//! take one step, and a jump to a return ends the run without a step. An op keeps the index of its
//! instruction: a jump into the middle of a fused pair finds the comparison where it was.
//!
//! ```text
//! instructions                          ops
//! 0  ldh [12]                           0  IfHalfEqual [12] 0x800     on_true 2       on_false REJECT
//! 1  jeq #0x800      jt 2    jf 5       1  IfEqual 0x800              on_true 2       on_false REJECT   (left for jumps)
//! 2  ldb [23]                           2  IfByteEqual [23] 17        on_true ACCEPT  on_false REJECT
//! 3  jeq #17         jt 4    jf 5       3  IfEqual 17                 on_true ACCEPT  on_false REJECT   (left for jumps)
//! 4  ret #262144                        4  Jump ACCEPT
//! 5  ret #0                             5  Jump REJECT
//! ```

mod decode;
mod fuse;
mod join;
mod run;

pub(crate) use join::Joined;

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
pub(crate) const MEMORY_WORDS: usize = 16;
/// Longest program, instructions.
const INSTRUCTIONS_MAX: usize = 1 << 20;
/// Backward jumps in one run (`protochain` loops over headers); a packet that needs more is rejected.
pub(crate) const BACKWARD_JUMPS_MAX: u32 = 1 << 16;
/// The jump target that accepts the packet.
pub(crate) const ACCEPT: u32 = u32::MAX;
/// The jump target that rejects the packet.
pub(crate) const REJECT: u32 = u32::MAX - 1;
// Both lie behind every program: the loop needs no check of its own for its end.
const _: () = assert!(INSTRUCTIONS_MAX < REJECT as usize);

/// Why a program is not run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("instruction {at} of the compiled filter is not valid (code {code:#06x}, k {k})")]
    Invalid { at: usize, code: u16, k: u32 },
    #[error("it tests the direction or the interface of a packet, which are not in its bytes")]
    Extension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
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

/// How A is compared with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relation {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

impl Relation {
    #[inline]
    pub fn holds(self, a: u32, operand: u32) -> bool {
        match self {
            Relation::Equal => a == operand,
            Relation::Greater => a > operand,
            Relation::GreaterOrEqual => a >= operand,
            Relation::AnyBit => a & operand != 0,
        }
    }
}

/// The constant that A is compared with, and where the run goes on. Targets are indices of ops, [`ACCEPT`] or
/// [`REJECT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch {
    pub k: u32,
    pub on_true: u32,
    pub on_false: u32,
}

/// A decoded instruction, or a fused pair. What libpcap's programs mostly do has a form of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    // Fused: a load at a constant offset into A, then the comparison.
    IfWordEqual(u16, Branch),
    IfHalfEqual(u16, Branch),
    IfByteEqual(u16, Branch),
    IfHalfAnyBit(u16, Branch),
    /// The load is at X and a constant.
    IfHalfAtXEqual(u16, Branch),

    // One instruction each.
    IfEqual(Branch),
    IfGreater(Branch),
    IfGreaterOrEqual(Branch),
    IfAnyBit(Branch),
    /// The comparison with X; the branch's constant means nothing.
    IfX(Relation, Branch),
    LoadWord(u32),
    LoadHalf(u32),
    LoadByte(u32),
    LoadWordAtX(u32),
    LoadHalfAtX(u32),
    LoadByteAtX(u32),
    LoadConstant(u32),
    LoadMemory(u8),
    LoadLength,
    IndexConstant(u32),
    IndexMemory(u8),
    IndexLength,
    IndexHeader(u32),
    Store(u8),
    StoreIndex(u8),
    And(u32),
    Compute(Operation, u32),
    ComputeX(Operation),
    Negate,
    ToIndex,
    FromIndex,
    Jump(u32),
    /// Counted, see [`BACKWARD_JUMPS_MAX`].
    JumpBack(u32),
    ReturnA,
}

const _: () = assert!(size_of::<Op>() == 16);

/// A program that has been checked.
#[derive(Debug)]
pub(crate) struct Program {
    /// One op for each instruction, of which machine code is made.
    plain: Vec<Op>,
    /// The same with fused pairs, which the interpreter runs.
    fused: Vec<Op>,
}

impl Program {
    /// Checks and decodes: known opcodes, jumps and memory inside their bounds, no constant division by zero,
    /// a return at the end.
    pub fn new(instructions: &[Instruction]) -> Result<Program, ProgramError> {
        Ok(Program::of(decode::decoded(instructions)?))
    }

    fn of(plain: Vec<Op>) -> Program {
        Program { fused: fuse::fused(plain.clone()), plain }
    }

    /// The ops, none of them fused.
    pub fn plain(&self) -> &[Op] {
        &self.plain
    }

    /// Runs the program over the captured bytes `data` of a packet that had `original_len` bytes on the wire.
    pub fn accepts(&self, data: &[u8], original_len: u32) -> bool {
        run::run(&self.fused, data, original_len).is_some()
    }
}
