//! `power_recovery`: the store's own test of what a loss of power leaves, at ten thousand random points.

use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// The row, and what it is of.
pub const ROW: &str = "power_recovery";
pub const POINTS: &str = "10,000 losses of power";
/// What is run.
const TEST: [&str; 9] =
    ["test", "-p", "scope-store", "--release", "--locked", "--test", "power", "--", "--ignored"];
/// How a test of Rust's says that all went well.
const WELL: &str = "test result: ok. ";

/// Runs it once.
pub fn measure(workspace: &Workspace, table: &mut Table) {
    eprintln!("losses of power (some minutes)");
    table.put(ROW, POINTS, "", verdict(workspace).map(|()| 1.0).map_err(|error| format!("{error:#}")));
}

fn verdict(workspace: &Workspace) -> Result<()> {
    let output = Command::new("cargo")
        .args(TEST)
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .output()
        .context("cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo {} ended with {}: {}",
        TEST.join(" "),
        output.status,
        end_of(&words)
    );
    ensure!(passed(&said) == Some(1), "not one test has passed: {}", end_of(&said));
    Ok(())
}

/// How many tests have passed.
fn passed(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.strip_prefix(WELL))?.split_whitespace().next()?.parse().ok()
}

/// The last words.
fn end_of(said: &str) -> String {
    let words: Vec<&str> = said.lines().rev().take(5).collect();
    words.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_of_tests_that_ran() {
        let said = |result: &str| format!("\nrunning 1 test\ntest ten_thousand ... ok\n\n{result}\n");
        let ok = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out";
        assert_eq!(passed(&said(ok)), Some(1));
        assert_eq!(passed(&said("test result: ok. 0 passed; 0 failed; 0 ignored")), Some(0));
        assert_eq!(passed(&said("test result: FAILED. 0 passed; 1 failed")), None);
    }
}
