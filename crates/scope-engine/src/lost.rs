//! Interfaces that were captured, went and came back, and for which no socket was left: a failure of the run,
//! told once.

use std::sync::Mutex;

/// Texts that are kept; more interfaces than this are in the event log only.
const KEPT_MAX: usize = 64;

/// What is said of such interfaces, each once, however many workers say it.
#[derive(Default)]
pub(crate) struct LostInterfaces(Mutex<Vec<String>>);

impl LostInterfaces {
    /// Keeps `text`; whether it is new.
    pub(crate) fn note(&self, text: &str) -> bool {
        let mut texts = self.0.lock().expect("no panic while held");
        let is_new = !texts.iter().any(|known| known == text);
        if is_new && texts.len() < KEPT_MAX {
            texts.push(text.to_string());
        }
        is_new
    }

    /// All of them.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic while held"))
    }
}
