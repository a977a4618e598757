//! What waits to be reported by a thread that may be held up, bounded: the newest stay, those forgotten are
//! counted.

use std::collections::VecDeque;

/// What one list holds at most.
pub const UNREAD_MAX: usize = 1024;

/// A list that somebody fills and another one takes.
#[derive(Debug)]
pub struct Unread<T> {
    items: VecDeque<T>,
    forgotten: u64,
}

impl<T> Default for Unread<T> {
    fn default() -> Unread<T> {
        Unread { items: VecDeque::new(), forgotten: 0 }
    }
}

impl<T> Unread<T> {
    /// Adds some; beyond [`UNREAD_MAX`] the oldest are forgotten.
    pub fn extend(&mut self, new: impl IntoIterator<Item = T>) {
        for item in new {
            if self.items.len() >= UNREAD_MAX {
                self.items.pop_front();
                self.forgotten += 1;
            }
            self.items.push_back(item);
        }
    }

    /// Hands the oldest ones on, for as long as `send` doesn't give one back.
    pub fn hand_on(&mut self, mut send: impl FnMut(T) -> Result<(), T>) {
        while let Some(item) = self.items.pop_front() {
            if let Err(item) = send(item) {
                return self.items.push_front(item);
            }
        }
    }

    /// How many were forgotten since the last call.
    pub fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// Takes all, oldest first, and how many were forgotten before them.
    pub fn take(&mut self) -> (VecDeque<T>, u64) {
        let Unread { items, forgotten } = std::mem::take(self);
        (items, forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_the_forgotten_are_counted() {
        let mut unread = Unread::default();
        unread.extend([1, 2]);
        assert_eq!(unread.take(), (VecDeque::from([1, 2]), 0));
        assert_eq!(unread.take(), (VecDeque::new(), 0));
        unread.extend(0..UNREAD_MAX + 5);
        let (items, forgotten) = unread.take();
        assert_eq!((items.len(), items[0], forgotten), (UNREAD_MAX, 5, 5));
        assert_eq!(unread.take().1, 0, "they are told once");
    }

    #[test]
    fn what_is_not_taken_stays_in_its_order() {
        let mut unread = Unread::default();
        unread.extend(0..UNREAD_MAX + 3);
        assert_eq!((unread.take_forgotten(), unread.take_forgotten()), (3, 0));
        let mut sent = Vec::new();
        unread.hand_on(|item| {
            if sent.len() < 2 {
                sent.push(item);
                return Ok(());
            }
            Err(item)
        });
        assert_eq!((sent, unread.items.len(), unread.items[0]), (vec![3, 4], UNREAD_MAX - 2, 5));
        unread.hand_on(|_| Ok(()));
        assert!(unread.take().0.is_empty());
    }
}
