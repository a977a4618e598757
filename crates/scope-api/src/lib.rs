//! The API of a running instance, as those on both of its sides know it: which routes there are, who may ask them, how a
//! refusal is said; and a client.
//!
//! ```text
//! GET /api/v1/dumps/7 ─► routes: "dumps/{id}", id = 7 ─► role: analyst ─► answer, or a problem
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`routes`] | every route: method, path, role, what it says |
//! | [`parameters`] | parameters and headers of each |
//! | [`role`] | who may ask what |
//! | [`problem`] | a refusal as RFC 9457 has it, with place, cause and remedy |
//! | [`fire`] | an order to fire |
//! | [`hold`] | a hold of a store in words |
//! | [`trigger`] | a trigger in words |
//! | [`identity`] | who asks, as a door passes it on |
//! | [`client`], [`trust`] | questions to an instance, over its Unix socket or through a door; which door is believed |
//! | [`find`] | the sockets of the instances of this machine |
//!
//! It needs neither the server nor anything that captures.

pub mod client;
pub mod find;
pub mod fire;
pub mod hold;
pub mod identity;
pub mod parameters;
pub mod problem;
pub mod role;
pub mod routes;
pub mod trigger;
pub mod trust;

pub use client::Client;
pub use identity::{Identity, Refused};
pub use problem::Problem;
pub use role::Role;
pub use trust::Trust;

/// What stands in front of every route.
pub const PREFIX: &str = "/api/v1";
/// The name of an instance's socket where nothing else is said: in its folder for dumps.
pub const SOCKET_NAME: &str = "wirescope.sock";
