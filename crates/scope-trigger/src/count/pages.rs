//! Large pages for memory in which something else is looked up each time: so that the processor finds where it lies.
//!
//! With pages of 4 KiB each time that is read is a walk through the page tables, which a virtual machine has twice.

/// Smaller memory isn't worth it, bytes.
const BYTES_MIN: usize = 4 << 20;
const PAGE_BYTES: usize = 4096;

/// Asks for large pages where `words` has room, before it is touched. Where there are none, it has small ones.
pub(super) fn wish_large(words: &mut Vec<i64>) {
    let begin = words.as_mut_ptr() as usize;
    let end = begin + words.capacity() * size_of::<i64>();
    let (begin, end) = (begin.next_multiple_of(PAGE_BYTES), end / PAGE_BYTES * PAGE_BYTES);
    if end.saturating_sub(begin) < BYTES_MIN {
        return;
    }
    // SAFETY: these are whole pages of the memory that belongs to `words`, which is borrowed for as long as the call
    // takes; the advice changes neither contents nor addresses.
    unsafe {
        libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_HUGEPAGE);
    }
}
