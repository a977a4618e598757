//! Threads, wiring, commands, counters.
