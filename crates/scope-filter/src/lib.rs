//! Filter text to predicate, and templates that a hit fills.
