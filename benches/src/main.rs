//! The measured bars: each row checks its own result.

fn main() {}
