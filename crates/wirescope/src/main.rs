//! The one binary: command line in, plan out, run.

fn main() {}
