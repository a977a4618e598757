//! Plain work on memory: non-temporal filling, copying, summing.

use scope_ring::Arena;

/// Bytes of a line, which is what processors write at a time.
const LINE: usize = 64;
/// What [`fill`] writes: no zero byte.
const PATTERN: u64 = 0x9d1c_57a3_e64b_f218;

/// Whether this machine has AVX-512 and [`fill`] uses it; else it uses SSE2, or plain stores on other
/// processors.
pub fn uses_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Fills whole chunks, past the caches. All of it is in memory on return.
pub fn fill(chunks: &mut [&mut [u8]]) {
    let avx512 = uses_avx512();
    for chunk in chunks {
        assert!(chunk.len().is_multiple_of(LINE) && (chunk.as_ptr() as usize).is_multiple_of(LINE));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: whole aligned lines by the assertion; AVX-512 only where the processor has it.
        unsafe {
            if avx512 { lines_avx512(chunk) } else { lines_sse2(chunk) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = avx512;
            for word in chunk.chunks_exact_mut(8) {
                word.copy_from_slice(&PATTERN.to_le_bytes());
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// # Safety
/// The processor has AVX-512; `chunk` is whole lines at a line's address.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn lines_avx512(chunk: &mut [u8]) {
    use std::arch::x86_64::{_mm512_set1_epi64, _mm512_stream_si512};
    let value = _mm512_set1_epi64(PATTERN as i64);
    for line in chunk.chunks_exact_mut(LINE) {
        // SAFETY: a whole aligned line by this function's contract.
        unsafe { _mm512_stream_si512(line.as_mut_ptr().cast(), value) };
    }
}

/// # Safety
/// `chunk` is whole lines at a line's address.
#[cfg(target_arch = "x86_64")]
unsafe fn lines_sse2(chunk: &mut [u8]) {
    use std::arch::x86_64::{_mm_set1_epi64x, _mm_stream_si128};
    // SAFETY: every x86-64 processor has SSE2; aligned quarters of whole lines by this function's contract.
    unsafe {
        let value = _mm_set1_epi64x(PATTERN as i64);
        for quarter in chunk.chunks_exact_mut(LINE / 4) {
            _mm_stream_si128(quarter.as_mut_ptr().cast(), value);
        }
    }
}

/// Whether [`fill`] has written all of `chunks`.
pub fn check_filled(chunks: &[&mut [u8]]) -> bool {
    chunks.iter().all(|chunk| chunk.chunks_exact(8).all(|word| word == PATTERN.to_le_bytes()))
}

/// Copies the first half of `chunks` to the second, with what the language has for it; the bytes copied.
pub fn copy(chunks: &mut [&mut [u8]]) -> u64 {
    let (from, to) = chunks.split_at_mut(chunks.len() / 2);
    for (from, to) in from.iter().zip(to) {
        to.copy_from_slice(from);
    }
    (from.len() * Arena::CHUNK_BYTES) as u64
}

/// The sum of all bytes as 8-byte words; what is left over at the end doesn't count.
pub fn sum(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    bytes.chunks_exact(8).fold(0, |sum, bytes| sum.wrapping_add(word(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_reaches_every_byte_and_a_copy_equals_its_source() {
        let mut arena = Arena::new(4 << 20).unwrap();
        let mut chunks = arena.chunks();
        assert!(!check_filled(&chunks));
        fill(&mut chunks);
        assert!(check_filled(&chunks));
        chunks[0][77] = 0;
        assert!(!check_filled(&chunks));
        assert_eq!(copy(&mut chunks), 2 << 20);
        assert!(chunks[0] == chunks[1]);
        assert_eq!(sum(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9]), 3);
    }
}
