//! `rights`: whether a run has given up, once it captures, what it no longer needs: by its self-test, and
//! looked at from outside.

use super::Stand;
use super::captures::OUR_END_LIMIT;
use crate::wirescope::Run;
use anyhow::{Context, Result, ensure};

/// Lines of a thread's `/proc/PID/task/TID/status`: no capability, no way to win any, a filter on system
/// calls.
const STATE: [(&str, &str); 6] = [
    ("CapEff", "0000000000000000"),
    ("CapPrm", "0000000000000000"),
    ("CapInh", "0000000000000000"),
    ("CapAmb", "0000000000000000"),
    ("NoNewPrivs", "1"),
    ("Seccomp", "2"),
];

/// 1 where all of it holds.
///
/// # Errors
/// What doesn't hold, or couldn't be tried.
pub fn hold(stand: &Stand) -> Result<u64> {
    let mut run =
        Run::start_self_test(stand.workspace, Some(stand.lab.b()), &["-i", "vb", "--ring", "64MiB"])?;
    let tried = run.self_test()?;
    ensure!(tried["passed"] == true, "tried from inside: {tried}");
    for state in run.thread_states()? {
        for (key, due) in STATE {
            let found = word(&state, key).with_context(|| format!("no line {key} of a thread"))?;
            ensure!(
                found == due,
                "{key} of the thread {} is {found}",
                word(&state, "Name").unwrap_or_default()
            );
        }
    }
    run.stop(OUR_END_LIMIT)?;
    Ok(1)
}

fn word<'a>(state: &'a str, key: &str) -> Option<&'a str> {
    state.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_by_its_whole_key() {
        let state = "Name:\tworker-0\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(
            [word(state, "Seccomp"), word(state, "Name"), word(state, "Sec")],
            [Some("2"), Some("worker-0"), None]
        );
    }
}
