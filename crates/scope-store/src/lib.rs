//! Retention on disk: for now the store file, a head and whole segments.
