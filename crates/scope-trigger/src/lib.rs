//! Conditions with a name: hits, modes, holdoff, caps and windows.
