//! Something that a run promised and did not do: why its exit code is 1.

use scope_fault::Fault;

/// Something that was promised and not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What, and what helps where something is known.
    pub fault: Fault,
    /// The dump that it is a failure of, if it is one's.
    pub dump: Option<u64>,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure { fault, dump: None }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Fault::whole(text).into()
    }
}

impl Failure {
    /// What an error kept from being done: `what: error`, and what helps where a limit of the system is
    /// behind it.
    pub fn of_error(what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
        Fault::default().error(error).cause(format!("{what}: {error}")).into()
    }
}
