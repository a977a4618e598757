//! Questions drawn by chance over the stores of 16 runs, some of them damaged: every answer has to be true.

use crate::table::Table;
use crate::workspace::Workspace;
use scope_testkit::questions;

/// The row, and what it is of.
pub const ROW: &str = "query_truth";
pub const QUESTIONS: &str = "questions over the stores of 16 runs";
const RUNS: usize = 16;
/// Of wrong answers so many are told.
const TOLD_MAX: usize = 5;

/// Asks `count` questions, drawn by the seed that `SEED` names, else by one that is always the same.
pub fn measure(workspace: &Workspace, count: usize, table: &mut Table) {
    eprintln!("{count} questions");
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let outcome = workspace
        .out_folder()
        .map_err(|error| format!("{error:#}"))
        .and_then(|folder| questions::ask(&workspace.wirescope, folder.path(), seed, RUNS, count))
        .and_then(|faults| match faults.len() {
            0 => Ok(1.0),
            wrong => Err(format!(
                "SEED={seed}: {wrong} of {count} answers are wrong: {}",
                faults.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("; ")
            )),
        });
    table.put(ROW, QUESTIONS, "", outcome);
}
