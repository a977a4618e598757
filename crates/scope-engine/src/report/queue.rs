//! A bounded queue from one thread to one other, neither of which ever waits for the other.
//!
//! ```text
//!  slots:   │ free │ free │ item │ item │ item │ free │ ...      slot = number of the item % slots
//!                         ↑ `taken`            ↑ `put`
//! ```
//! A slot from `taken` to `put` belongs to the receiver, any other one to the sender. As in `latest`, the
//! lock around each slot only proves that to the compiler. At the bound the sender keeps the item.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

struct Slots<T> {
    slots: Box<[Mutex<Option<T>>]>,
    /// Items put in so far.
    put: AtomicUsize,
    /// Items taken out so far.
    taken: AtomicUsize,
}

/// Who puts items in.
pub(super) struct Sender<T>(Arc<Slots<T>>);

/// Who takes them out.
pub(super) struct Receiver<T>(Arc<Slots<T>>);

/// A queue that holds `slots` items at most; a power of two, so that the numbers may overflow.
pub(super) fn queue<T>(slots: usize) -> (Sender<T>, Receiver<T>) {
    let slots = (0..slots.next_power_of_two()).map(|_| Mutex::new(None)).collect();
    let slots = Arc::new(Slots { slots, put: AtomicUsize::new(0), taken: AtomicUsize::new(0) });
    (Sender(slots.clone()), Receiver(slots))
}

impl<T> Slots<T> {
    /// The slot of item number `number`.
    fn slot(&self, number: usize) -> &Mutex<Option<T>> {
        &self.slots[number % self.slots.len()]
    }
}

impl<T> Sender<T> {
    /// Puts `item` in.
    ///
    /// # Errors
    /// The item, where there is no room for it now.
    pub(super) fn send(&mut self, item: T) -> Result<(), T> {
        let put = self.0.put.load(Ordering::Relaxed);
        // Acquire: whoever took the item before is done with the slot.
        if put.wrapping_sub(self.0.taken.load(Ordering::Acquire)) >= self.0.slots.len() {
            return Err(item);
        }
        match self.0.slot(put).try_lock() {
            Ok(mut slot) => *slot = Some(item),
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner() = Some(item),
            Err(TryLockError::WouldBlock) => return Err(item), // never: the slot is the sender's
        }
        // Release: who sees the number sees the item.
        self.0.put.store(put.wrapping_add(1), Ordering::Release);
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Takes the oldest item out; `None`: there is none now.
    pub(super) fn receive(&mut self) -> Option<T> {
        let taken = self.0.taken.load(Ordering::Relaxed);
        // Acquire: the item is seen with its number.
        if taken == self.0.put.load(Ordering::Acquire) {
            return None;
        }
        let item = self.0.slot(taken).lock().unwrap_or_else(PoisonError::into_inner).take();
        // Release: who sees the number finds the slot free.
        self.0.taken.store(taken.wrapping_add(1), Ordering::Release);
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn one_sender_one_receiver_every_item_comes_once_and_in_order() {
        const ITEMS: u64 = 100_000;
        let (mut sender, mut receiver) = queue(8);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for item in 0..ITEMS {
                    let mut item = Box::new(item);
                    while let Err(back) = sender.send(item) {
                        item = back;
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < ITEMS {
                match receiver.receive() {
                    Some(item) => {
                        assert_eq!(*item, expected);
                        expected += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }

    proptest! {
        #[test]
        fn it_holds_what_a_bounded_list_holds(steps in vec(any::<bool>(), 0..300), slots in 1..9usize) {
            let (mut sender, mut receiver) = queue(slots);
            let (mut model, bound) = (VecDeque::new(), slots.next_power_of_two());
            for (item, sends) in steps.into_iter().enumerate() {
                if sends && model.len() < bound {
                    model.push_back(item);
                    prop_assert_eq!(sender.send(item), Ok(()));
                } else if sends {
                    prop_assert_eq!(sender.send(item), Err(item), "it is full");
                } else {
                    prop_assert_eq!(receiver.receive(), model.pop_front());
                }
            }
        }
    }

    #[test]
    fn its_numbers_may_overflow() {
        let (mut sender, mut receiver) = queue(4);
        sender.0.put.store(usize::MAX - 1, Ordering::Relaxed);
        sender.0.taken.store(usize::MAX - 1, Ordering::Relaxed);
        for round in 0..8 {
            let sent: Vec<bool> = (0..5).map(|item| sender.send(item).is_ok()).collect();
            let received: Vec<i32> = std::iter::from_fn(|| receiver.receive()).collect();
            assert_eq!(sent, [true, true, true, true, false], "round {round}");
            assert_eq!(received, [0, 1, 2, 3], "round {round}");
        }
    }
}
