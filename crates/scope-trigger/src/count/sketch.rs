//! A sketch of counts, for the matches of keys that there is no room for: about right, with a stated error.
//!
//! ```text
//! row 1..4, each: | cell | cell | ...      a key has one cell in each row, by its hash
//! cell, 64 bytes: | latest part | matches in each of the latest 14 parts of a 13th of the span |
//! ```
//! The least of the sums of a key's four cells is never below its count (count-min sketch: G. Cormode and
//! S. Muthukrishnan, 2005), and with 98 % probability (1 - e^-4) above it by at most e / (cells of a row) of all
//! matches that the sketch counted in the span. What other keys add to a cell on average is subtracted (count-mean-min
//! sketch: F. Deng and D. Rafiei, 2007): so a flood of keys that never repeat doesn't make all counts high. That
//! average is 0, and no count too low, while the sketch has fewer matches than a row has cells. Counted whole is the
//! oldest part: matches of up to a 13th of the span in front of it.

const ROWS: usize = 4;
const PARTS: usize = 14;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Cell {
    /// The part up to which `counts` are right.
    latest: u64,
    counts: [u32; PARTS],
}

const _: () = assert!(size_of::<Cell>() == 64);

impl Cell {
    /// Goes on to `part`: the counts of parts that are over become those of new ones.
    fn reach(&mut self, part: u64) {
        let passed = part.saturating_sub(self.latest);
        for new in (0..passed.min(PARTS as u64)).map(|back| part - back) {
            self.counts[(new % PARTS as u64) as usize] = 0;
        }
        self.latest = self.latest.max(part);
    }

    fn sum(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
}

/// The sketch.
#[derive(Debug)]
pub(super) struct Sketch {
    /// Row after row; empty until it is needed.
    cells: Vec<Cell>,
    row_cells: usize,
    part_ns: i64,
    /// All matches.
    total: Cell,
    /// When the latest match came; none came yet.
    latest_ns: Option<i64>,
}

impl Sketch {
    /// A sketch of at most `bytes` for counts in `span_ns`.
    pub fn new(bytes: usize, span_ns: i64) -> Sketch {
        let row_cells = (bytes / (ROWS * size_of::<Cell>())).max(1);
        let part_ns = (span_ns.max(1) - 1) / (PARTS as i64 - 1) + 1;
        Sketch { cells: Vec::new(), row_cells, part_ns, total: Cell::default(), latest_ns: None }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>()
    }

    /// Forgets all, and gives its memory back.
    pub fn clear(&mut self) {
        self.cells = Vec::new();
        self.total = Cell::default();
        self.latest_ns = None;
    }

    /// Whether a match that it counted may still count at `now_ns`.
    pub fn is_used(&self, now_ns: i64) -> bool {
        self.latest_ns
            .is_some_and(|latest_ns| self.part(now_ns).saturating_sub(self.part(latest_ns)) < PARTS as u64)
    }

    fn part(&self, time_ns: i64) -> u64 {
        // Capture times are never negative.
        (time_ns.max(0) / self.part_ns) as u64
    }

    fn cells_of(&self, hash: u64) -> [usize; ROWS] {
        let step = hash.rotate_left(32) | 1;
        std::array::from_fn(|row| {
            let mixed =
                hash.wrapping_add(step.wrapping_mul(row as u64 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            row * self.row_cells + ((u128::from(mixed) * self.row_cells as u128) >> 64) as usize
        })
    }

    /// The count of the key of `hash` at `now_ns`, less what other keys add on average.
    pub fn count(&mut self, hash: u64, now_ns: i64) -> u64 {
        self.total.reach(self.part(now_ns));
        let others = self.total.sum() / self.row_cells as u64;
        self.count_most(hash, now_ns).saturating_sub(others)
    }

    /// What the count of the key of `hash` is at most at `now_ns`. 0 is exact.
    pub fn count_most(&mut self, hash: u64, now_ns: i64) -> u64 {
        if self.cells.is_empty() {
            return 0;
        }
        let part = self.part(now_ns);
        let sums = self.cells_of(hash).map(|cell| {
            self.cells[cell].reach(part);
            self.cells[cell].sum()
        });
        sums.into_iter().min().unwrap_or(0)
    }

    /// Counts a match of the key at `time_ns`, which is `now_ns` or before; returns its count by then.
    pub fn add(&mut self, hash: u64, time_ns: i64, now_ns: i64) -> u64 {
        if self.cells.is_empty() {
            self.cells = vec![Cell::default(); ROWS * self.row_cells];
        }
        self.latest_ns = self.latest_ns.max(Some(now_ns));
        let (part, now) = (self.part(time_ns), self.part(now_ns));
        let cells = self.cells_of(hash);
        let add = |cell: &mut Cell| {
            cell.reach(now);
            if cell.latest - part < PARTS as u64 {
                let count = &mut cell.counts[(part % PARTS as u64) as usize];
                *count = count.saturating_add(1);
            }
        };
        add(&mut self.total);
        for cell in cells {
            add(&mut self.cells[cell]);
        }
        self.count(hash, now_ns)
    }

    /// About how many keys have matches in it at `now_ns`: from how many cells of a row none has.
    pub fn keys(&self, now_ns: i64) -> u64 {
        if self.cells.is_empty() || !self.is_used(now_ns) {
            return 0;
        }
        let now = self.part(now_ns);
        let row = &self.cells[..self.row_cells];
        let is_empty = |cell: &&Cell| {
            let live = |part: u64| cell.counts[(part % PARTS as u64) as usize] > 0;
            !(now.saturating_sub(PARTS as u64 - 1)..=cell.latest).any(live)
        };
        let (cells, empty) = (row.len() as f64, row.iter().filter(is_empty).count());
        // Linear counting (K.-Y. Whang and others, 1990); of a row without an empty cell it is a least.
        (-cells * ((empty as f64).max(1.0) / cells).ln()).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_few_keys_is_exact_but_for_its_oldest_part_and_is_forgotten() {
        let mut sketch = Sketch::new(100_000 * ROWS * 64, 1300);
        assert!(!sketch.is_used(0) && sketch.count(5, 0) == 0 && sketch.bytes() == 0);
        let hash = |key: u64| key.wrapping_mul(0xd1b5_4a32_d192_ed03);
        for at in 0..1000 {
            for key in 0..3 {
                assert_eq!(sketch.add(hash(key), at, at), at as u64 + 1 - 3 * (at as u64 + 1) / 100_000);
            }
        }
        assert_eq!(sketch.count(hash(1), 999), 1000, "with few keys it is exact");
        assert_eq!(sketch.keys(999), 3);
        assert!(sketch.count(hash(1), 1399) >= 900, "what lies in the span is counted");
        assert!(sketch.is_used(2299));
        assert_eq!((sketch.count(hash(1), 2400), sketch.is_used(2400), sketch.keys(2400)), (0, false, 0));
    }

    #[test]
    fn its_errors_are_as_stated() {
        let (cells, keys) = (256, 4000u64);
        let mut sketch = Sketch::new(cells * ROWS * 64, 1_000_000);
        let hash = |key: u64| {
            key.wrapping_add(7)
                .wrapping_mul(0xd1b5_4a32_d192_ed03)
                .rotate_left(17)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        for key in 0..keys {
            sketch.add(hash(key), key as i64, key as i64);
        }
        let bound = (std::f64::consts::E / cells as f64 * keys as f64) as u64;
        let wrong = (0..keys).filter(|&key| sketch.count_most(hash(key), keys as i64) > 1 + bound).count();
        assert!(wrong as f64 <= 0.02 * keys as f64, "{wrong} of {keys} by more than {bound}");
        assert!((0..keys).all(|key| sketch.count_most(hash(key), keys as i64) >= 1));
        let mean =
            (0..keys).map(|key| sketch.count(hash(key), keys as i64)).sum::<u64>() as f64 / keys as f64;
        assert!(mean < 2.0, "{mean}: the average of what others add is no count");
    }
}
