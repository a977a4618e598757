//! Windows: cut, merge, filter, write.
