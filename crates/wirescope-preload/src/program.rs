//! A filter that the program has compiled, as a copy: whether it matches, and how many bytes it keeps.

use crate::abi::{self, Instruction};
use crate::real;

/// Instructions of a filter at most, as in libpcap.
const INSTRUCTIONS_MAX: usize = 1 << 20;

/// A filter that libpcap has found to be one.
pub struct Filter(Vec<Instruction>);

impl Filter {
    /// Copies it; `None`: it is none.
    ///
    /// # Safety
    /// It is NULL, or points to a program whose instructions are there.
    pub unsafe fn copy(program: *const abi::Program) -> Option<Filter> {
        // SAFETY: NULL, or a program of the caller.
        let program = unsafe { program.as_ref() }?;
        let len = program.len as usize;
        if program.instructions.is_null() || len == 0 || len > INSTRUCTIONS_MAX {
            return None;
        }
        // SAFETY: so many instructions are there by this function's contract.
        let filter = unsafe { std::slice::from_raw_parts(program.instructions, len) }.to_vec();
        // SAFETY: as many instructions as it is told.
        let is_one = unsafe { real::bpf_validate(filter.as_ptr(), len as i32) } != 0;
        is_one.then_some(Filter(filter))
    }

    /// How many bytes of a packet it keeps; 0: it doesn't match.
    pub fn keeps(&self, data: &[u8], original: u32) -> u32 {
        // SAFETY: a program that `bpf_validate` has found to jump only forward, to end and to keep to its memory; the bytes
        // are as many as it is told, beyond which it reads nothing.
        unsafe { real::bpf_filter(self.0.as_ptr(), data.as_ptr(), original, data.len() as u32) }
    }
}
