//! Requests drawn by chance from the API's own document, by schemathesis: no answer may be outside of what the document says.
//!
//! ```text
//! schemathesis ─► TCP on loopback ─┬─► forward ────────► control socket ─► a run that hears nothing of it
//!                                  └─► wirescope serve ───┘   by turns as admin, and with a token of each role
//! ```
//! schemathesis speaks TCP only. It lies among the peers, in a virtual environment of its own. The stream of events isn't
//! asked: it has no end, which schemathesis would wait for.

use super::door::{Door, Tokens};
use super::forward;
use crate::table::Table;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use crate::{Scale, main_part};
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::Lab;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The row, and what it is of.
pub const ROW: &str = "api_fuzz";
pub const TRUE: &str = "1 if no answer was another one than the document says";
const CASES: &str = "requests";
/// The program that draws them.
const PACKAGE: &str = "schemathesis==4.32.5";
/// Of what is held against the document.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";
/// Cases of one route at a time: many, so that few turns are needed.
const EXAMPLES: usize = 400;
/// Turns at most.
const TURNS_MAX: usize = 200;
/// An answer that takes longer is none, seconds.
const PATIENCE: &str = "30";
/// A run that records little: each fire of the many makes a dump of all of it.
const RUN: [&str; 12] = [
    "-i",
    "vb",
    "--ring",
    "4MiB",
    "--trigger",
    "udp dst port 9",
    "--serve-user",
    "root",
    "--serve-role",
    "admin",
    "--control-rate",
    "10000",
];
/// A door that is asked by a program, not by people.
const DOOR: [&str; 2] = ["--requests-per-s", "10000"];
const END_LIMIT: Duration = Duration::from_secs(60);
/// Of what schemathesis said, so many of the last characters are repeated.
const WORDS_MAX: usize = 2000;

/// Draws as many requests as the scale says.
pub fn measure(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let lab = main_part::lab();
    let outcome = match &lab {
        Ok(lab) => fuzz(workspace, lab, scale.api_cases),
        Err(why) => Err(anyhow::anyhow!("{why}")),
    };
    let (is_true, cases) = match outcome {
        Ok(cases) => (Ok(1.0), Ok(cases as f64)),
        Err(error) => (Err(format!("{error:#}")), Err(format!("{error:#}"))),
    };
    table.put(ROW, TRUE, "", is_true);
    table.put(ROW, CASES, "", cases);
}

/// How many there were.
fn fuzz(workspace: &Workspace, lab: &Lab, cases_least: usize) -> Result<usize> {
    let program = program(workspace)?;
    let store = workspace.out_folder()?;
    let store = store.path().to_str().context("the folder's path is no UTF-8")?;
    let statistics = workspace.out_folder()?;
    let db = statistics.path().to_str().context("the folder's path is no UTF-8")?;
    let more = ["--store", store, "--db", db, "--db-interval", "1s"];
    let mut run = Run::start(workspace, Some(lab.b()), &[&RUN[..], &more].concat())?;
    run.wait_started()?;
    let folder = workspace.out_folder()?;
    let document = folder.path().join("openapi.json");
    std::fs::write(&document, forward::document(&run.socket())?)?;
    let tokens = Tokens::new(workspace)?;
    let roles = ["viewer", "analyst", "operator", "admin"];
    let roles = roles.map(|role| tokens.add(&["--role", role, "--name", role]));
    let mut as_whom = vec![None];
    for token in roles {
        as_whom.push(Some(token?));
    }
    let door = Door::open(workspace, &run.socket(), &tokens.path(), &DOOR)?;
    let cases = forward::during(&run.socket(), |address| {
        let mut cases = 0;
        for turn in 0..TURNS_MAX {
            if cases >= cases_least && turn >= as_whom.len() {
                break;
            }
            let token = as_whom[turn % as_whom.len()].as_deref();
            let url = match token {
                Some(_) => format!("http://{}", door.address),
                None => format!("http://{address}"),
            };
            cases += turn_of(&program, folder.path(), &document, (&url, token), turn)?;
            eprintln!("{cases} of {cases_least} requests");
        }
        Ok(cases)
    })?;
    ensure!(cases >= cases_least, "only {cases} requests");
    let said = run.said();
    let door_said = door.said();
    let panic = said.lines().chain(door_said.lines()).find(|line| line.contains("panicked"));
    ensure!(panic.is_none(), "the run or the door said: {panic:?}");
    run.stop(END_LIMIT)?;
    Ok(cases)
}

/// One turn over all routes; how many requests it made, none of them answered otherwise than is said.
fn turn_of(
    program: &Path,
    folder: &Path,
    document: &Path,
    (url, token): (&str, Option<&str>),
    seed: usize,
) -> Result<usize> {
    let mut command = Command::new(program);
    let output = command
        .args(["run", "--url", url, "--checks", CHECKS, "--request-timeout", PATIENCE])
        .args(["--max-examples", &EXAMPLES.to_string(), "--seed", &seed.to_string()])
        .args(["--exclude-path-regex", "/events$", "--generation-database", "none", "--no-color"])
        .arg(document)
        .args(
            token.iter().flat_map(|token| ["--header".to_string(), format!("Authorization: Bearer {token}")]),
        )
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("schemathesis")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last: String = {
        let skipped = said.chars().count().saturating_sub(WORDS_MAX);
        said.chars().skip(skipped).collect()
    };
    ensure!(output.status.success(), "schemathesis, seed {seed}, ended with {}: {last}", output.status);
    passed(&said).with_context(|| format!("no number of cases that all passed: {last}"))
}

/// `N generated, N passed`, both alike.
fn passed(said: &str) -> Option<usize> {
    let line = said.lines().find(|line| line.contains(" generated, "))?;
    let (generated, rest) = line.trim().split_once(" generated, ")?;
    let passed = rest.split_once(" passed")?.0;
    let [generated, passed] = [generated, passed].map(|number| number.replace(',', "").parse::<usize>().ok());
    generated.filter(|_| generated == passed)
}

/// The program, which is fetched where it isn't there yet.
fn program(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.peers().join(PACKAGE);
    let program = folder.join("bin/schemathesis");
    if !program.exists() {
        eprintln!("fetching {PACKAGE}");
        let run = |command: &mut Command| -> Result<()> {
            let output = command.stdin(Stdio::null()).output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        };
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder)).context("python3 -m venv")?;
        run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", PACKAGE]))
            .with_context(|| format!("pip install {PACKAGE}"))?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cases_that_all_passed_count() {
        assert_eq!(passed("Test cases:\n  1,843 generated, 1,843 passed\n"), Some(1843));
        assert_eq!(passed("Test cases:\n  1843 generated, 1840 passed, 3 failed\n"), None);
        assert_eq!(passed("Test cases:\n"), None);
    }
}
