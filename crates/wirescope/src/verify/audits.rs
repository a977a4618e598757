//! The audits among what `wirescope verify` looks at: whether their lines follow each other, as lines and as JSON.

use super::table::{SHOWN_MAX, line};
use crate::words::{counted, number};
use scope_door::proof::Proof;
use scope_fault::Fault;
use scope_store::chain::Digest;
use scope_store::unread::unread;
use scope_store::verify::Verdict;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A longer line is none of an audit: requests are shorter.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Faults that are kept of all files; further ones are counted.
const FAULTS_MAX: usize = 10_000;

/// What was found in audits: files that go on from each other, in the order in which they were named.
#[derive(Default)]
pub struct Audits {
    files: Vec<AuditFile>,
    proof: Proof,
    /// Faults of all files, and those of them that aren't kept.
    faults: usize,
    faults_more: usize,
    /// Heads that were expected, and stand in one of these lines.
    found: BTreeSet<Digest>,
}

struct AuditFile {
    path: PathBuf,
    lines: u64,
    /// Also where its faults aren't kept.
    is_damaged: bool,
    faults: Vec<(u64, String)>,
    unread: Option<Fault>,
}

/// Whether a file begins as an audit does. No capture does.
pub fn is_audit(path: &Path) -> bool {
    let mut first = [0];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok_and(|()| first == *b"{")
}

impl Audits {
    /// Looks at these files, one behind the other; `expect` are hashes of lines that must be there.
    pub fn look(paths: &[&Path], expect: &[Digest]) -> Audits {
        let mut audits = Audits::default();
        for path in paths {
            audits.add(path, expect);
        }
        audits
    }

    fn add(&mut self, path: &Path, expect: &[Digest]) {
        let mut file = AuditFile {
            path: path.to_path_buf(),
            lines: 0,
            is_damaged: false,
            faults: Vec::new(),
            unread: None,
        };
        if let Err(error) = self.read(path, expect, &mut file) {
            file.unread = Some(unread(path, &error));
        }
        self.files.push(file);
    }

    fn read(&mut self, path: &Path, expect: &[Digest], file: &mut AuditFile) -> io::Result<()> {
        let mut input = BufReader::new(File::open(path)?);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(());
            }
            file.lines += 1;
            match self.proof.read(&String::from_utf8_lossy(&bytes)) {
                Ok(hash) => {
                    let digest = Digest::read(&hash).filter(|digest| expect.contains(digest));
                    self.found.extend(digest);
                }
                Err(fault) => {
                    self.faults += 1;
                    file.is_damaged = true;
                    match self.faults <= FAULTS_MAX {
                        true => file.faults.push((file.lines, fault.to_string())),
                        false => self.faults_more += 1,
                    }
                }
            }
        }
    }

    /// Of heads that are expected those that no line has.
    pub fn missing(&self, expect: &[Digest]) -> Vec<Digest> {
        expect.iter().filter(|head| !self.found.contains(head)).copied().collect()
    }

    /// What it comes to: damaged where a line isn't as it was written, lost where lines in front may be elsewhere.
    pub fn verdict(&self) -> Verdict {
        if self.files.iter().any(|file| file.unread.is_some()) {
            return Verdict::Unread;
        }
        match self.faults {
            0 if self.proof.runs.values().any(|run| run.lacks_begin) => Verdict::Lost,
            0 => Verdict::Whole,
            _ => Verdict::Damaged,
        }
    }

    /// A line for each file, its faults, and the newest hash of each run.
    pub fn words(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            let path = file.path.display();
            if let Some(fault) = &file.unread {
                line(&mut text, &format!("unread   {fault}"));
                continue;
            }
            let verdict = if file.is_damaged { Verdict::Damaged } else { Verdict::Whole }.name();
            line(&mut text, &format!("{verdict:<8} {path}: audit, {}", counted(file.lines, "line")));
            for (at, cause) in file.faults.iter().take(SHOWN_MAX) {
                line(&mut text, &format!("         line {at}: {cause}"));
            }
            let more = file.faults.len().saturating_sub(SHOWN_MAX) as u64;
            if more > 0 {
                line(&mut text, &format!("         and {}; --json lists them", counted(more, "more fault")));
            }
        }
        if self.faults_more > 0 {
            line(&mut text, &format!("         and {}", counted(self.faults_more as u64, "more fault")));
        }
        for (id, run) in self.proof.runs.iter().rev().take(SHOWN_MAX).rev() {
            let id = id.get(..8).unwrap_or(id);
            let lines = counted(run.lines, "line");
            if run.lacks_begin {
                line(
                    &mut text,
                    &format!("lost     run {id}: its first line follows none of these; name the"),
                );
                line(
                    &mut text,
                    "         older file of the audit in front of the newer one, or it was changed",
                );
            }
            line(&mut text, &format!("         {}", run.head));
            line(&mut text, &format!("           is the newest hash of run {id}, {lines}"));
        }
        let more = self.proof.runs.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            line(
                &mut text,
                &format!("         and those of {} more runs; --json lists them", number(more as u64)),
            );
        }
        text
    }

    /// All of it; null where no audit was named.
    pub fn object(&self) -> Value {
        if self.files.is_empty() {
            return Value::Null;
        }
        let fault = |(line, cause): &(u64, String)| json!({"line": line, "cause": cause});
        let file = |file: &AuditFile| {
            json!({
                "path": file.path.to_string_lossy(),
                "lines": file.lines,
                "faults": file.faults.iter().map(fault).collect::<Vec<_>>(),
                "unread": file.unread.as_ref().map(Fault::to_json),
            })
        };
        let runs = self.proof.runs.iter().map(|(id, run)| {
            json!({"run": id, "lines": run.lines, "head": run.head, "lacks_begin": run.lacks_begin})
        });
        json!({
            "verdict": self.verdict().name(),
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "runs": runs.collect::<Vec<_>>(),
            "faults_more": self.faults_more,
        })
    }
}
