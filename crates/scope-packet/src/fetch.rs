//! Cache lines asked for ahead of their use, so that nobody waits for one after the other.
//!
//! A core that goes from one line to the next waits for each: 50 to 200 ns where another core has written
//! it. Lines that were asked for some hundred instructions before are there, or come side by side.

/// What a processor fetches at once, bytes.
pub const LINE_BYTES: usize = 64;

/// Asks for the lines of `bytes` from `from` on, of `len` bytes, without waiting for them. Some may lie behind
/// its end.
#[inline(always)]
pub fn fetch(bytes: &[u8], from: usize, len: usize) {
    for at in (from..from + len).step_by(LINE_BYTES) {
        line(bytes.as_ptr().wrapping_add(at));
    }
}

/// Asks for the lines of `value` for reading, without waiting for them.
#[inline(always)]
pub fn fetch_value<T>(value: &T) {
    for at in (0..size_of::<T>() + LINE_BYTES - 1).step_by(LINE_BYTES) {
        line(std::ptr::from_ref(value).cast::<u8>().wrapping_add(at));
    }
}

/// Asks for the line in which `value` begins, without waiting for it: all of it, where it lies in one line.
#[inline(always)]
pub fn fetch_begin<T>(value: &T) {
    line(std::ptr::from_ref(value).cast());
}

/// Asks for the lines of `value` for writing, without waiting for them: other cores give them up.
#[inline(always)]
pub fn fetch_to_write<T>(value: &mut T) {
    for at in (0..size_of::<T>() + LINE_BYTES - 1).step_by(LINE_BYTES) {
        line_to_write(std::ptr::from_mut(value).cast::<u8>().wrapping_add(at));
    }
}

/// Asks for the line in which `value` begins, for writing, without waiting for it: other cores give it up.
#[inline(always)]
pub fn fetch_begin_to_write<T>(value: &mut T) {
    line_to_write(std::ptr::from_mut(value).cast());
}

#[inline(always)]
fn line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees and never faults, wherever its address points.
        // No safe form is at hand; it buys what this file says.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[inline(always)]
fn line_to_write(at: *mut u8) {
    // The intrinsic for this hint becomes a prefetch for reading where the compiler isn't told of the
    // instruction, which every 64-bit processor takes: those without it do nothing.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing that the program sees and never faults, wherever its address points.
    unsafe {
        std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_as_it_is_and_no_address_faults() {
        let mut values = [7u8; 300];
        fetch(&values, 100, 1 << 20);
        fetch(&[], 0, 1000);
        fetch_value(&values);
        fetch_begin(&values);
        fetch_to_write(&mut values);
        fetch_begin_to_write(&mut values);
        line(std::ptr::null());
        line_to_write(std::ptr::dangling_mut());
        assert_eq!(values, [7; 300]);
    }
}
