//! How many distinct values there are, estimated in little memory: HyperLogLog (Flajolet and others, 2007),
//! read by the estimator of Ertl (2017), which has no bias for few values or many.
//!
//! One register per possible head of a hash, [`REGISTERS`] of them: the longest run of zeros behind that head.
//! The standard error is 1.04 / sqrt([`REGISTERS`]), 1.6 %. Sketches of several workers merge into the sketch of
//! all their values, register by register.

/// Registers of a sketch, a byte each.
pub const REGISTERS: usize = 1 << HEAD_BITS;
/// The standard error of an estimate, of 1.
pub const ERROR: f64 = 0.01625;
const HEAD_BITS: u32 = 12;
/// Zeros behind the head at most.
const RUN_MAX: u32 = 64 - HEAD_BITS;

/// See [the room](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Box<[u8]>);

impl Default for Sketch {
    /// Of no value.
    fn default() -> Sketch {
        Sketch(vec![0; REGISTERS].into())
    }
}

impl Sketch {
    /// Takes a value, by its hash.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let register = &mut self.0[(hash >> RUN_MAX) as usize];
        let run = ((hash << HEAD_BITS).leading_zeros().min(RUN_MAX) + 1) as u8;
        *register = (*register).max(run);
    }

    /// Takes all values of another one.
    pub fn merge(&mut self, other: &Sketch) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// How many distinct values it has taken, about.
    pub fn estimate(&self) -> u64 {
        let mut counts = [0u32; RUN_MAX as usize + 2];
        for &run in &self.0 {
            counts[usize::from(run).min(RUN_MAX as usize + 1)] += 1;
        }
        let registers = REGISTERS as f64;
        let mut z = registers * tau(1.0 - f64::from(counts[RUN_MAX as usize + 1]) / registers);
        for count in counts[1..=RUN_MAX as usize].iter().rev() {
            z = 0.5 * (z + f64::from(*count));
        }
        z += registers * sigma(f64::from(counts[0]) / registers);
        (registers * registers / (2.0 * std::f64::consts::LN_2 * z)).round() as u64
    }
}

/// Ertl's sigma: what registers without a value say. Infinite where all are.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// Ertl's tau: what registers at their bound say.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Hashes bytes with a run's own seed, so that nobody outside can choose values that share a register.
#[inline]
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = seed ^ ODD;
    for piece in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        state = fold(state ^ u64::from_le_bytes(word), ODD);
    }
    fold(state ^ bytes.len() as u64, seed | 1) ^ fold(state, ODD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: std::ops::Range<u32>) -> Sketch {
        let mut sketch = Sketch::default();
        values.for_each(|value| sketch.add(hash(7, &value.to_be_bytes())));
        sketch
    }

    #[test]
    fn an_estimate_is_within_four_standard_errors() {
        assert_eq!(Sketch::default().estimate(), 0);
        for (count, slack) in [(1u32, 0.0), (5, 0.0), (100, 2.0), (1000, 0.0), (10_000, 0.0), (300_000, 0.0)]
        {
            let said = of(0..count).estimate() as f64;
            let most = f64::from(count) * 4.0 * ERROR + slack;
            assert!((said - f64::from(count)).abs() <= most, "{said} of {count}");
        }
    }

    #[test]
    fn what_is_merged_is_what_one_would_have_taken() {
        let mut one = of(0..3000);
        one.merge(&of(2000..9000));
        assert_eq!(one, of(0..9000));
        one.merge(&of(0..9000));
        assert_eq!(one, of(0..9000));
    }

    #[test]
    fn hashes_differ_by_seed_value_and_length() {
        let all = [hash(1, b"abc"), hash(2, b"abc"), hash(1, b"abd"), hash(1, b"abc\0"), hash(1, b"")];
        let distinct: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
