//! Segments, lanes, ring, readers, pins and loss; no files, no sockets.
