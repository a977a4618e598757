//! Loom's lock.

pub(crate) use loom::sync::Mutex;
