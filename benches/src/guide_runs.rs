//! `guide_runs`: 1 if every runnable block of README and guides was run and gave what it shows, else 0.

use crate::record::{Bar, Limit, Record, Row};
use crate::workspace::Workspace;
use scope_testkit::guides::{Ran, run_all};

const NAME: &str = "guide_runs";
/// Fewer commands than this can't be all.
const STEPS_MIN: usize = 20;

/// Runs them, as `crates/wirescope/tests/guides.rs` does.
pub fn measure(workspace: &Workspace, record: &mut Record) {
    eprintln!("the examples of README and guides");
    add(run_all(&workspace.root, &workspace.wirescope), record);
}

fn add(ran: Ran, record: &mut Record) {
    let mut faults = ran.faults;
    if ran.steps < STEPS_MIN {
        faults.push(format!("only {} commands were run", ran.steps));
    }
    let value = if faults.is_empty() { 1.0 } else { 0.0 };
    let row = Row {
        bar: NAME,
        what: "commands run".into(),
        unit: "commands",
        rounds: vec![ran.steps as f64],
        faults: faults.clone(),
    };
    record.rows.push(row);
    record.bars.push(Bar { name: NAME, value: Some(value), limit: Limit::Exactly(1.0), faults });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_example_that_prints_something_else_breaks_the_bar() {
        let holds = |steps: usize, faults: &[&str]| {
            let mut record = Record { machine: Default::default(), rows: Vec::new(), bars: Vec::new() };
            add(Ran { steps, faults: faults.iter().map(|fault| fault.to_string()).collect() }, &mut record);
            (record.bars[0].value, record.bars[0].holds())
        };
        assert_eq!(holds(80, &[]), (Some(1.0), true));
        assert_eq!(holds(80, &["README.md:60: $ wirescope"]), (Some(0.0), false));
        assert_eq!(holds(3, &[]), (Some(0.0), false));
    }
}
