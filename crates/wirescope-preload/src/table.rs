//! Which handles are ours: a table of slots that is looked through without a lock, since a signal handler may ask, too.
//!
//! A slot's handle is stored once its state is there, and taken away before the state is. What a signal handler or another
//! thread may touch are its signs.

use crate::abi::Handle;
use crate::handle::State;
use crate::signs::Signs;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Handles that can be open at once; one more is refused.
pub const HANDLES_MAX: usize = 64;

/// A handle of ours.
pub struct Slot {
    handle: AtomicPtr<libc::c_void>,
    /// What may be touched at any time.
    pub signs: Signs,
    /// Never held while the program's own function runs. `None`: the slot is free.
    state: Mutex<Option<State>>,
}

static SLOTS: [Slot; HANDLES_MAX] =
    [const { Slot { handle: AtomicPtr::new(null_mut()), signs: Signs::new(), state: Mutex::new(None) } };
        HANDLES_MAX];

/// The slot of a handle; `None`: it isn't ours.
pub fn find(handle: Handle) -> Option<&'static Slot> {
    if handle.is_null() {
        return None;
    }
    SLOTS.iter().find(|slot| slot.handle.load(Ordering::Acquire) == handle)
}

/// Enters a handle; `None`: there is no room for it.
pub fn enter(handle: Handle, state: State) -> Option<&'static Slot> {
    for slot in &SLOTS {
        // Somebody who has a slot's state at work uses that slot.
        let Ok(mut free) = slot.state.try_lock() else { continue };
        if free.is_some() {
            continue;
        }
        *free = Some(state);
        slot.signs.take_break();
        slot.signs.tell([0; 3]);
        slot.handle.store(handle, Ordering::Release);
        return Some(slot);
    }
    None
}

impl Slot {
    /// Its state, for one at a time.
    pub fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the handle out of the table.
    pub fn leave(&self) -> Option<State> {
        self.handle.store(null_mut(), Ordering::Release);
        self.state().take()
    }
}
