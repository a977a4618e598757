//! What helps against limits of the system, by the number of its error.

use crate::{Fault, Sentence, Setting, sentence};
use std::error::Error;
use std::io;

/// Too many open files, of this process.
const EMFILE: i32 = 24;
/// No memory, or no room in the address space.
const ENOMEM: i32 = 12;

impl Fault {
    /// With an error as its cause, and what helps where a limit of the system is behind it.
    #[must_use]
    pub fn error(self, error: &(dyn Error + 'static)) -> Fault {
        let mut fault = self.cause(error.to_string());
        fault.remedy = limit(error);
        fault
    }
}

/// What helps against the limit of the system that an error, or the one behind it, comes from.
pub fn limit(error: &(dyn Error + 'static)) -> Option<Sentence> {
    let (mut error, mut number) = (Some(error), None);
    while let (Some(this), None) = (error, number) {
        number = this.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        error = this.source();
    }
    match number? {
        EMFILE => {
            Some("more open files must be allowed: ulimit -n 4096, or LimitNOFILE= of a service".into())
        }
        ENOMEM => Some(sentence![
            "memory or address space is limited: ulimit -v unlimited, free memory, or a smaller ",
            Setting::of("ring")
        ]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_system_have_a_remedy_whatever_the_words_of_the_error_are() {
        let said = |number| Fault::of_thing("here").error(&io::Error::from_raw_os_error(number)).to_string();
        assert!(
            said(EMFILE).starts_with("here: ")
                && said(EMFILE).contains("; more open files must be allowed: ulimit -n")
        );
        assert!(
            said(ENOMEM).contains("; memory or address space is limited: ulimit -v")
                && said(ENOMEM).ends_with("smaller --ring")
        );
        assert!(!said(2).contains(';'));
        let quoted = io::Error::other("someone wrote (os error 24)");
        assert_eq!(Fault::whole("").error(&quoted).remedy, None, "words are no number");
    }
}
