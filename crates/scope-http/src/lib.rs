//! HTTP as both doors of a run speak it: at its control socket, and to the network.
//!
//! ```text
//!            patience          bounds of a head          request
//! stream ─► [`Patient`] ─► [`connection`] ─► a request ─► [`understood`]: what its body says ─► answer: [`body`]
//! ```
//! What is bounded, and how long something may take, stands here once. What is asked, and by whom, each door knows itself.
//!
//! | module | what it holds |
//! |---|---|
//! | [`body`] | bodies of answers |
//! | [`json`] | JSON of requests |
//! | `connecting` | connections: bounds, and what becomes of slow ones |
//! | `request` | what all requests have in common |

pub mod body;
mod connecting;
pub mod json;
mod request;

pub use connecting::{Broken, HEAD_BYTES_MAX, HEAD_PATIENCE, HEADERS_MAX, PAUSE, Patient, connection, full};
pub use request::{BODY_BYTES_MAX, has_body, no_such_path, only_json, sound, understood, whole};
