//! Host, kernel, and the state of the host's clock: what a dump says of the machine that made it.

use std::fs::read_to_string;

/// The state of a host's clock, as the kernel's own discipline of it says (`adjtimex(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockState {
    /// It can't be had.
    #[default]
    Unknown,
    /// Something keeps it right.
    Synchronised {
        /// The estimated error, microseconds.
        estimated_error_us: u64,
        /// The largest error that is possible, microseconds.
        error_max_us: u64,
    },
    /// Nothing does.
    NotSynchronised,
}

impl ClockState {
    /// In words.
    pub fn words(self) -> String {
        match self {
            ClockState::Unknown => "its state isn't known".to_string(),
            ClockState::NotSynchronised => "not synchronised (adjtimex)".to_string(),
            ClockState::Synchronised { estimated_error_us, error_max_us } => {
                format!(
                    "synchronised, estimated error {estimated_error_us} us, at most {error_max_us} us \
                     (adjtimex)"
                )
            }
        }
    }
}

/// What the host is called, and its kernel.
pub fn host() -> (String, String) {
    let figure = |name: &str| {
        let text = read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_string()
    };
    let kernel = format!("{} {} {}", figure("ostype"), figure("osrelease"), std::env::consts::ARCH);
    (figure("hostname"), kernel.trim().to_string())
}

/// What the kernel says of its clock now.
pub fn now() -> ClockState {
    // SAFETY: all of it are numbers, and zeros change nothing.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into the struct, whose layout on 64 bits is its own. Not by the C library,
    // whose newer versions make another call of it than the one on the list of calls that stay possible.
    let answer = unsafe { libc::syscall(libc::SYS_adjtimex, &raw mut state) };
    read(answer as i32, &state)
}

fn read(answer: i32, state: &libc::timex) -> ClockState {
    let error_us = |error: libc::c_long| u64::try_from(error).unwrap_or(0);
    match answer {
        ..0 => ClockState::Unknown,
        libc::TIME_ERROR => ClockState::NotSynchronised,
        _ if state.status & libc::STA_UNSYNC != 0 => ClockState::NotSynchronised,
        _ => ClockState::Synchronised {
            estimated_error_us: error_us(state.esterror),
            error_max_us: error_us(state.maxerror),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_words_become_the_clock_s_state() {
        // SAFETY: numbers.
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        (state.esterror, state.maxerror) = (12, 3400);
        assert_eq!(read(0, &state), ClockState::Synchronised { estimated_error_us: 12, error_max_us: 3400 });
        assert_eq!(read(libc::TIME_ERROR, &state), ClockState::NotSynchronised);
        state.status = libc::STA_UNSYNC;
        assert_eq!(read(0, &state), ClockState::NotSynchronised);
        assert_eq!(read(-1, &state), ClockState::Unknown);
    }

    #[test]
    fn this_host_has_a_name_a_kernel_and_a_clock() {
        let (name, kernel) = host();
        assert!(!name.is_empty() && kernel.starts_with("Linux "), "{name} {kernel}");
        assert_ne!(now(), ClockState::Unknown, "reading needs no right");
    }
}
