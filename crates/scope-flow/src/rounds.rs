//! Numbers of conditions on flows: each has a bit in every flow, and may be given to another condition.

/// Conditions at most.
pub const WHENS_MAX: usize = 16;

/// Which numbers were given to other conditions, and when: so that no flow has to be looked at for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// A round begins with each such change.
    pub now: u8,
    /// The round from which on a number has its meaning of now.
    pub since: [u8; WHENS_MAX],
}
