//! Where things stand in an index block, by its version.
//!
//! ```text
//!  1   | begin | entries with their summaries | zeros | length |
//!  2   | begin with a card | entries with their summaries | zeros | length |
//!  3   | begin with a card | entries | zeros | tail | page of slices | page of slices | ...
//!
//!  tail, and the end of each page:  | check 8 | number of the page 4 | length 4 |
//! ```

use scope_ring::SummaryForm;

/// Most bytes of one index block.
pub const INDEX_BYTES_MAX: usize = 16 << 20;
/// An index block is a multiple of this long.
pub const INDEX_ALIGN: usize = 4096;

/// Behind it stands the version.
pub(super) const MAGIC: [u8; 7] = *b"WSINDEX";
pub(super) const LANES_AT: usize = 28;
pub(super) const CHECK_AT: usize = 32;
/// What is known of the whole file stands in each of its index blocks.
pub(super) const TOTALS_AT: usize = 40;
pub(super) const TOTALS_BYTES: usize = 56;
pub(super) const CARD_AT: usize = TOTALS_AT + TOTALS_BYTES;
pub(super) const CARD_CHECK_AT: usize = CARD_AT + 32;
pub(super) const LANE_TABLE_AT: usize = CARD_CHECK_AT + 8;
pub(super) const LANE_BYTES: usize = 32;
/// Lanes that a card lists; of a file with more it lists none.
pub const LANES_MAX: usize = 64;
/// A block's begin, its card included.
pub(super) const CARD_BYTES: usize = LANE_TABLE_AT + LANES_MAX * LANE_BYTES;
/// Of an entry: the foot's bytes that it has, its fields and room for more of them; then offset and hash.
pub(super) const FOOT_BYTES: usize = 256;
pub(super) const FACTS_BYTES: usize = FOOT_BYTES + 8 + 16;
/// Behind the facts, and at the end of each page of slices.
pub(super) const TAIL_BYTES: usize = 16;
/// What a page has of slices.
pub(super) const SLICED_BYTES: usize = INDEX_ALIGN - TAIL_BYTES;

const _: () = assert!(CARD_BYTES <= INDEX_ALIGN, "one page has all of the card");

/// How an index block is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    First,
    Second,
    Third,
}

impl Version {
    pub fn of(number: u8) -> Option<Version> {
        [Version::First, Version::Second, Version::Third]
            .into_iter()
            .find(|version| version.number() == number)
    }

    pub const fn number(self) -> u8 {
        match self {
            Version::First => 1,
            Version::Second => 2,
            Version::Third => 3,
        }
    }

    /// That of its summaries.
    pub const fn form(self) -> SummaryForm {
        match self {
            Version::First => SummaryForm::First,
            Version::Second | Version::Third => SummaryForm::Second,
        }
    }

    /// In which summaries of this form are written.
    pub const fn for_form(form: SummaryForm) -> Version {
        match form {
            SummaryForm::First => Version::First,
            SummaryForm::Second => Version::Third,
        }
    }

    pub fn has_card(self) -> bool {
        self != Version::First
    }
}

/// The sizes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub version: Version,
    pub entries: usize,
    /// Bytes of a summary.
    pub summary_bytes: usize,
}

impl Layout {
    /// Where the entries begin.
    pub const fn begin_bytes(self) -> usize {
        match self.version {
            Version::First => CARD_AT,
            Version::Second | Version::Third => CARD_BYTES,
        }
    }

    /// Of a block of version 3: its begin, its entries and their tail.
    pub const fn facts_bytes(self) -> usize {
        (CARD_BYTES + self.entries * FACTS_BYTES + TAIL_BYTES).next_multiple_of(INDEX_ALIGN)
    }

    /// Of a block of version 3: its pages of slices.
    pub const fn pages(self) -> usize {
        (self.entries * self.summary_bytes).div_ceil(SLICED_BYTES)
    }

    /// All of it.
    pub const fn block_bytes(self) -> usize {
        match self.version {
            Version::First | Version::Second => {
                let entries_bytes = self.entries * (FACTS_BYTES + self.summary_bytes);
                (self.begin_bytes() + entries_bytes + 4).next_multiple_of(INDEX_ALIGN)
            }
            Version::Third => self.facts_bytes() + self.pages() * INDEX_ALIGN,
        }
    }

    /// Most entries that one block holds.
    pub const fn entries_max(self) -> usize {
        // Without what is rounded up, which is less than an entry and four pages.
        let mut entries = (INDEX_BYTES_MAX - CARD_BYTES - TAIL_BYTES) / (FACTS_BYTES + self.summary_bytes);
        while (Layout { entries, ..self }).block_bytes() > INDEX_BYTES_MAX {
            entries -= 1;
        }
        entries
    }
}

/// Length of the last index block of a file whose last 4 bytes these are; `None` where none is so long.
pub(super) fn block_bytes(closing: [u8; 4]) -> Option<usize> {
    let total = u32::from_le_bytes(closing) as usize;
    (total.is_multiple_of(INDEX_ALIGN) && (INDEX_ALIGN..=INDEX_BYTES_MAX).contains(&total)).then_some(total)
}
