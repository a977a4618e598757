//! The latest of what one thread says, for one other thread: always whole, and neither of them ever waits for
//! the other.
//!
//! ```text
//!  three places     fills one              one is the latest              looks at one
//!                   writer ──── exchanges its own for the latest, whose owner it becomes
//!                               reader exchanges its own for the latest, where it is fresh ────┘
//! ```
//! Each place has one owner at any time: the writer, the reader, or nobody (the latest). An exchange is one
//! atomic swap of the number of the latest place, so that none stands in the way of another. The lock around
//! each place proves to the compiler what the exchange ensures: only its owner takes it, so nobody ever finds
//! it taken.
//!
//! At the bound: what the writer publishes before the reader has looked replaces what it published before; it
//! gets that place back. So a place that comes to the writer is older than what it published last: it brings
//! it up to date itself.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// One each for the writer, the reader, and the latest.
pub(super) const PLACES: usize = 3;
/// With the number of the latest place: the reader hasn't looked at it.
const FRESH: u8 = 1 << 7;

struct Places<T> {
    places: [Mutex<T>; PLACES],
    /// Number of the latest place, with [`FRESH`] or without.
    latest: AtomicU8,
}

/// Who publishes.
pub(super) struct Writer<T> {
    places: Arc<Places<T>>,
    own: u8,
}

/// Who looks.
pub(super) struct Reader<T> {
    places: Arc<Places<T>>,
    own: u8,
}

/// Three places, and who writes and reads there. The reader sees a default until something is published.
pub(super) fn latest<T: Default>() -> (Writer<T>, Reader<T>) {
    let places = Arc::new(Places { places: Default::default(), latest: AtomicU8::new(1) });
    (Writer { places: places.clone(), own: 0 }, Reader { places, own: 2 })
}

impl<T> Writer<T> {
    /// The number of the place that it fills, below [`PLACES`].
    pub(super) fn own(&self) -> usize {
        self.own.into()
    }

    /// The place that it fills: what it published there some time ago. `None` never comes, as the place is
    /// its own.
    pub(super) fn fill(&mut self) -> Option<MutexGuard<'_, T>> {
        match self.places.places[self.own()].try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Makes the place that it has filled the latest, and takes another one.
    pub(super) fn publish(&mut self) {
        // Release: who sees the number sees what was written. Acquire: whoever looked at the other place has
        // done so.
        self.own = self.places.latest.swap(self.own | FRESH, Ordering::AcqRel) & !FRESH;
    }
}

impl<T> Reader<T> {
    /// The latest. It stays as it is for as long as it is held; what is published meanwhile is seen by the
    /// next look.
    pub(super) fn look(&mut self) -> MutexGuard<'_, T> {
        if self.places.latest.load(Ordering::Relaxed) & FRESH != 0 {
            // Acquire: what was written is seen with the number. Release: whoever writes there again comes
            // after this look.
            self.own = self.places.latest.swap(self.own, Ordering::AcqRel) & !FRESH;
        }
        self.places.places[usize::from(self.own)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Long enough that a copy takes its time.
    const WORDS: usize = 4096;

    fn publish(writer: &mut Writer<Vec<u64>>, number: u64) {
        let mut place = writer.fill().expect("it is the writer's own");
        place.clear();
        place.resize(WORDS, number);
        drop(place);
        writer.publish();
    }

    #[test]
    fn a_reader_that_stands_still_in_its_look_holds_no_writer_up_and_sees_one_state() {
        let (mut writer, mut reader) = latest();
        publish(&mut writer, 1);
        let look = reader.look();
        // In one thread: a writer that waited would wait for ever.
        for number in 2..=1000 {
            publish(&mut writer, number);
        }
        assert_eq!((look.len(), look.iter().max(), look.iter().min()), (WORDS, Some(&1), Some(&1)));
        drop(look);
        assert_eq!(reader.look()[0], 1000, "the next look is at the latest");
        assert_eq!(reader.look()[0], 1000, "which it stays until there is a newer one");
    }

    #[test]
    fn a_writer_that_stands_still_holds_no_reader_up() {
        let (mut writer, mut reader) = latest::<Vec<u64>>();
        assert!(reader.look().is_empty(), "nothing was published");
        publish(&mut writer, 1);
        let mut place = writer.fill().expect("it is the writer's own");
        place.clear();
        for _ in 0..3 {
            assert_eq!(reader.look().len(), WORDS);
        }
    }

    #[test]
    fn a_place_that_its_reader_keeps_for_good_is_never_written() {
        let (mut writer, mut reader) = latest();
        publish(&mut writer, 1);
        std::mem::forget(reader.look());
        for number in 2..10 {
            publish(&mut writer, number);
        }
    }

    #[test]
    fn one_writer_one_reader_sees_whole_states_in_their_order() {
        const STATES: u64 = 20_000;
        let (mut writer, mut reader) = latest();
        std::thread::scope(|scope| {
            scope.spawn(move || (1..=STATES).for_each(|number| publish(&mut writer, number)));
            let mut last = 0;
            while last < STATES {
                let look = reader.look();
                let number = look.first().copied().unwrap_or(0);
                assert!(look.iter().all(|word| *word == number), "torn");
                assert!(number >= last, "{number} behind {last}");
                last = number;
            }
        });
    }

    proptest! {
        /// Every order of what two threads can do between two exchanges, against what is meant.
        #[test]
        fn a_look_shows_what_was_published_last_before_it(steps in vec(0..3u8, 0..200)) {
            let (mut writer, mut reader) = latest::<u64>();
            let (mut published, mut seen) = (0, 0);
            for step in steps {
                match step {
                    0 => {
                        published += 1;
                        *writer.fill().expect("it is the writer's own") = published;
                        writer.publish();
                    }
                    // Filled, and not published: nobody sees it.
                    1 => *writer.fill().expect("it is the writer's own") = u64::MAX,
                    _ => {
                        seen = published;
                        prop_assert_eq!(*reader.look(), seen);
                    }
                }
                prop_assert!(writer.own() != usize::from(reader.own), "a place has one owner");
            }
            prop_assert!(seen <= published);
        }
    }
}
