//! A dump script: for each dump it makes a function, from the packet that fired, which says what the dump keeps.
//!
//! The packet that fired is copied: the function may look at it for as long as its dump is written.

use crate::error::{Disabled, Ended, ScriptError};
use crate::lending::KEEPERS_MAX;
use crate::record::{Lent, RECORDS_MAX};
use crate::state::{Options, State};
use crate::watch::Watch;
use std::sync::Arc;

/// One dump's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperId(usize);

/// Why a dump has no function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKeeper {
    /// The script doesn't run any more.
    Ended(Ended),
    /// It failed for this packet: see [`Keepers::report`].
    Failed,
    /// So many dumps are being written already.
    TooMany,
}

/// A dump script. It belongs to the thread that loaded it.
#[derive(Debug)]
pub struct Keepers {
    state: State,
    watch: Arc<Watch>,
    /// The packet that fired of each dump in its slot. An empty one is a dump without a packet.
    slots: [Option<Box<[u8]>>; KEEPERS_MAX],
    kept: Vec<usize>,
}

impl Keepers {
    /// Runs the dump script's text.
    ///
    /// # Errors
    /// Says what is wrong with it, with the traceback.
    pub fn load(text: &str, options: &Options) -> Result<Keepers, ScriptError> {
        let state = State::load(text, options, true)?;
        let slots = [const { None }; KEEPERS_MAX];
        Ok(Keepers { state, watch: Arc::new(Watch::new()), slots, kept: Vec::new() })
    }

    /// The word that a watchdog reads.
    pub fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.watch)
    }

    /// A dump begins. Without a packet (fired by hand) the script's function gets nil.
    ///
    /// # Errors
    /// Says why there is no function for it.
    pub fn begin(&mut self, trigger: Option<&Lent<'_>>) -> Result<KeeperId, NoKeeper> {
        let entered_ns = self.enter().map_err(NoKeeper::Ended)?;
        let id = self.begin_entered(trigger);
        if !self.watch.leave(entered_ns) {
            return Err(NoKeeper::Ended(Ended::Abandoned));
        }
        id
    }

    fn begin_entered(&mut self, trigger: Option<&Lent<'_>>) -> Result<KeeperId, NoKeeper> {
        let at = self.slots.iter().position(Option::is_none).ok_or(NoKeeper::TooMany)?;
        let bytes = self.slots[at].insert(trigger.map_or_else(Box::default, |packet| packet.data.into()));
        if let Some(packet) = trigger {
            // The copy stays until `end`, which takes the record back.
            self.state.lending.lend(RECORDS_MAX + at, &Lent { data: bytes, ..*packet }, false);
        }
        let slot = trigger.map(|_| RECORDS_MAX + at);
        if !self.state.call_named("keeper", (at, slot)) {
            self.end(KeeperId(at));
            return Err(match self.state.disabled() {
                Some(disabled) => NoKeeper::Ended(Ended::Disabled(disabled.clone())),
                None => NoKeeper::Failed,
            });
        }
        Ok(KeeperId(at))
    }

    /// Indices of the packets that the dump keeps.
    ///
    /// # Errors
    /// Says that the script doesn't run any more.
    pub fn keep(&mut self, id: KeeperId, packets: &[Lent<'_>]) -> Result<&[usize], Ended> {
        let entered_ns = self.enter()?;
        self.kept.clear();
        for (part, packets) in packets.chunks(RECORDS_MAX).enumerate() {
            if self.state.disabled().is_some() {
                break;
            }
            for (slot, packet) in packets.iter().enumerate() {
                self.state.lending.lend(slot, packet, false);
            }
            self.state.call_named("keep", (id.0, packets.len()));
            let base = part * RECORDS_MAX;
            self.kept.extend(self.state.places(packets.len()).iter().map(|at| base + at));
            self.state.lending.take_back(0, packets.len());
        }
        if !self.watch.leave(entered_ns) {
            return Err(Ended::Abandoned);
        }
        Ok(&self.kept)
    }

    /// A dump ends.
    pub fn end(&mut self, id: KeeperId) {
        self.state.ask::<()>("release", id.0);
        self.state.lending.take_back(RECORDS_MAX + id.0, 1);
        self.slots[id.0] = None;
    }

    /// Why it is disabled.
    pub fn disabled(&self) -> Option<&Disabled> {
        self.state.disabled()
    }

    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.state.lending.errors().0
    }

    /// The traceback of its first error.
    pub fn report(&self) -> Option<String> {
        self.state.report()
    }

    /// What it printed since the last call, at most 100 lines, and how many more there were.
    pub fn take_notes(&mut self) -> (Vec<String>, u64) {
        self.state.take_notes()
    }

    fn enter(&mut self) -> Result<u64, Ended> {
        if let Some(disabled) = self.state.disabled() {
            return Err(Ended::Disabled(disabled.clone()));
        }
        self.watch.enter().ok_or(Ended::Abandoned)
    }
}

impl Drop for Keepers {
    /// The state's last finalizers may look at packets that fired, whose copies go first.
    fn drop(&mut self) {
        self.state.lending.take_back(RECORDS_MAX, KEEPERS_MAX);
    }
}
