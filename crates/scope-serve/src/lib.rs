//! The door of runs to the network: a process of its own, which knows who asks, and passes that on to a run.
//!
//! ```text
//!  client ─► TLS ─► Host, Origin ─► token or certificate ─► bounds ─► a run's control socket, a connection for each request
//!         ◄──────────────── the answer, as it comes: a client that takes nothing holds the run's answer up, no memory
//! ```
//! Of a client's request only a few headers go on, and those that say who asks are set here. The process has no capability,
//! opens no file, and makes no connection but to Unix sockets. What it needs anew later (tokens, certificates) is opened by
//! processes that read that one file each.
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`] | how a door is to be |
//! | [`door`] | the process from begin to end |
//! | [`tokens`], [`token_file`], [`last_use`] | who may ask; the file of that; when each did last |
//! | `asking` | whom a request's token or certificate names, and how often that one may ask |
//! | `addressed` | whether a request is meant for this door, and comes from no foreign page |
//! | `serving` | connections, and each request's way to its answer |
//! | `places` | bounds of connections, in all and from one address |
//! | `forwarding` | the way to a run and back |
//! | `noting` | refusals, for the audit of the run that was meant |
//! | `counts` | what became of requests |
//! | [`tls`], [`clients`] | its own certificates; those of clients |

mod addressed;
mod asking;
pub mod clients;
mod counts;
pub mod door;
mod forwarding;
pub mod last_use;
mod noting;
mod places;
mod serving;
pub mod settings;
pub mod tls;
pub mod token_file;
pub mod tokens;

pub use clients::fingerprint_of_pem;
pub use door::Door;
pub use settings::{
    Again, Bounds, ClientSettings, Instance, Line, OwnCertificate, Say, Settings, TlsSettings, TokenSettings,
};
pub use token_file::TokenFile;
pub use tokens::{NewToken, Token, Tokens};
