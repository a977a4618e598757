//! `audit.jsonl`: who ordered what and looked at which packets, refused ones too. Each line has a hash over itself and the
//! hash of the line before, so that a line that was removed or changed shows.
//!
//! ```text
//! {"action":"Fire","chain":"9f..","method":"POST","path":"/api/v1/fire","role":"admin","run":"0a1b..","status":202,
//!  "time":"2026-11-20T20:31:05.000000000Z","uid":0,"what":{"filter":"udp"}}
//! ```
//! (one line). `name` is the token's, where a door to the network asked for somebody. `chain` is BLAKE3 over the hash of the same run's line before (of its first line: nothing), as it is written
//! there, and this line without its `chain`, keys in alphabetical order. So runs that share a folder have chains of their own,
//! and one goes on where the file was moved away meanwhile. The newest hash stands in the status lines of the log: so a
//! tail that was cut off, or a run whose lines are all gone, shows, too.

use scope_events::AuditHead;
use scope_folder::Folder;
use scope_spelling::printable::json_line;
use scope_spelling::time::iso;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// The file, in the folder of the run's dumps.
pub(crate) const AUDIT_FILE: &str = "audit.jsonl";

/// What is noted of a request.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub uid: u32,
    /// The name of whom that user asked for; `None`: for nobody else.
    pub name: Option<String>,
    /// `none`: nothing is allowed.
    pub role: String,
    pub method: String,
    pub path: String,
    /// The action, as the OpenAPI document names it.
    pub action: String,
    /// What the body said, or the address.
    pub what: Value,
    /// The answer's status.
    pub status: u16,
    /// What was given of packets or statistics, where that is what was asked for.
    pub given: Option<Value>,
}

/// The audit of one run.
pub(crate) struct Audit {
    folder: Arc<Folder>,
    run: String,
    /// The newest hash, for the log.
    head: Arc<AuditHead>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    file: Option<File>,
    /// The hash of the run's newest line; empty before the first.
    chain: String,
}

impl Audit {
    /// Appends to the folder's audit, once there is something to note.
    pub(crate) fn new(folder: Arc<Folder>, run: String, head: Arc<AuditHead>) -> Audit {
        Audit { folder, run, head, open: Mutex::default() }
    }

    /// Appends a line. What can't be written is counted: it stands in no file, and the next line goes on without it.
    pub(crate) fn note(&self, noted: &Noted, now_ns: i64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match self.append(&mut open, noted, now_ns) {
            Ok(()) => self.head.set(&open.chain),
            Err(error) => self.head.fail(&error.to_string()),
        }
    }

    /// Lines that couldn't be written.
    pub(crate) fn failures(&self) -> u64 {
        self.head.failures()
    }

    fn append(&self, open: &mut Open, noted: &Noted, now_ns: i64) -> io::Result<()> {
        let name = OsStr::new(AUDIT_FILE);
        // It may have been moved, as the log is when it is rotated.
        let is_there = |file: &File| self.folder.leads_to(name, file).unwrap_or(false);
        let mut file = match open.file.take().filter(is_there) {
            Some(file) => file,
            None => {
                let mut file = self.folder.append(name)?;
                // A full disk, or a run that lost its machine, may have left half a line.
                if self.folder.ends_within_a_line(name) {
                    file.write_all(b"\n")?;
                }
                file
            }
        };
        let Noted { uid, name, role, method, path, action, what, status, given } = noted;
        let mut line = json!({
            "time": iso(now_ns), "run": self.run, "uid": uid, "role": role, "method": method, "path": path,
            "action": action, "what": what, "status": status,
        });
        if let Some(name) = name {
            line["name"] = json!(name);
        }
        if let Some(given) = given {
            line["given"] = given.clone();
        }
        let (text, chain) = chained(line, &open.chain);
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        *open = Open { file: Some(file), chain };
        Ok(())
    }
}

/// A line with its hash, and that.
fn chained(line: Value, before: &str) -> (String, String) {
    let Value::Object(mut object) = line else { return (String::new(), before.to_string()) };
    let chain = hash(&object, before);
    object.insert("chain".to_string(), json!(chain));
    (format!("{}\n", json_line(&Value::Object(object).to_string())), chain)
}

/// A line's hash: of the run's line before, and of the line itself without it.
pub(crate) fn hash(object: &Map<String, Value>, before: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before.as_bytes());
    hasher.update(json_line(&Value::Object(object.clone()).to_string()).as_bytes());
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::Proof;

    fn noted(number: u16) -> Noted {
        Noted {
            uid: 1000,
            name: None,
            role: "analyst".to_string(),
            method: "POST".to_string(),
            path: "/api/v1/fire".to_string(),
            action: "Fire".to_string(),
            what: json!({"filter": format!("port {number}")}),
            status: 200 + number,
            given: None,
        }
    }

    /// The number of the first line that doesn't follow its run's line before; lines are counted from 1.
    fn first_wrong(text: &str, proof: &mut Proof) -> Option<usize> {
        (1..).zip(text.lines()).find(|(_, line)| proof.read(line).is_err()).map(|(number, _)| number)
    }

    #[test]
    fn lines_follow_each_other_run_by_run_and_what_is_removed_shows() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(place.path()).unwrap());
        let (path, moved) = (place.path().join(AUDIT_FILE), place.path().join("moved"));
        let head = Arc::new(AuditHead::default());
        let audit = |run: &str| Audit::new(folder.clone(), run.to_string(), head.clone());
        // Two runs write at once.
        let (one, other) = (audit("a"), audit("b"));
        for number in 0..3 {
            one.note(&noted(number), 7);
            other.note(&noted(10 + number), 7);
        }
        std::fs::rename(&path, &moved).unwrap();
        one.note(&noted(5), 9);
        let [before, behind] = [&moved, &path].map(|path| std::fs::read_to_string(path).unwrap());
        let mut proof = Proof::default();
        assert_eq!((first_wrong(&before, &mut proof), before.lines().count()), (None, 6), "{before}");
        assert_eq!(first_wrong(&behind, &mut proof), None);
        assert_eq!(head.get(), proof.runs.get("a").map(|run| run.head.clone()));
        assert!(proof.runs.values().all(|run| !run.lacks_begin));
        let mut alone = Proof::default();
        assert_eq!(first_wrong(&behind, &mut alone), None);
        assert!(alone.runs["a"].lacks_begin, "what stands in front of it is in another file");
        let wrong = |text: &str| first_wrong(text, &mut Proof::default());
        let without: String = before
            .lines()
            .enumerate()
            .filter(|(at, _)| *at != 2)
            .map(|(_, line)| format!("{line}\n"))
            .collect();
        assert_eq!(
            wrong(&without),
            Some(4),
            "the third line is gone, and the one of its run behind it shows that"
        );
        assert_eq!(wrong(&before.replacen("port 1\"", "port 9\"", 1)), Some(3));
        assert_eq!(one.failures() + other.failures(), 0);
    }

    #[test]
    fn half_a_line_that_was_left_spoils_no_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(AUDIT_FILE);
        std::fs::write(&path, "{\"action\":\"Fi").unwrap();
        let folder = Arc::new(Folder::open(place.path()).unwrap());
        let audit = Audit::new(folder, "a".to_string(), Arc::default());
        audit.note(&noted(1), 7);
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.lines().nth(1).unwrap();
        assert_eq!(first_wrong(line, &mut Proof::default()), None, "{text}");
    }
}
