//! Roles: who may ask what. Each has all that the one before it has.

use std::fmt;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Counters, states and events, without contents of packets.
    Viewer,
    /// Also packets: queries, dumps, firing.
    Analyst,
    /// Also changes: triggers, deletion, holds, reload.
    Operator,
    /// Also the configuration with its commands and paths, and the audit.
    Admin,
}

impl Role {
    /// All, the weakest first.
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Analyst, Role::Operator, Role::Admin];

    /// Its word, as flags and headers have it.
    pub const fn word(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Analyst => "analyst",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// What a word says.
    pub fn of(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_roles_are_one_to_one_and_rise() {
        for pair in Role::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for role in Role::ALL {
            assert_eq!(Role::of(&role.to_string()), Some(role));
        }
        assert_eq!((Role::of("root"), Role::of("Viewer"), Role::of("")), (None, None, None));
    }
}
