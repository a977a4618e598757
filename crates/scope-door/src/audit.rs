//! `audit.jsonl`: who ordered what and looked at which packets, refused ones too. Each line has a hash over itself and the
//! hash of the line before, so that a line that was removed or changed shows.
//!
//! ```text
//! {"action":"Fire","chain":"9f..","method":"POST","path":"/api/v1/fire","role":"admin","run":"0a1b..","status":202,
//!  "time":"2026-11-20T20:31:05.000000000Z","uid":0,"what":{"filter":"udp"}}
//! ```
//! (one line). `chain` is BLAKE3 over the hash of the line before, as it is written there, and this line without its
//! `chain`, keys in alphabetical order. The first line of a file goes on from the last one of the file before, if that was
//! moved away while the run went. The newest hash stands in the status lines of the log: so a tail that was cut off shows,
//! too.

use scope_events::AuditHead;
use scope_folder::Folder;
use scope_spelling::printable::json_line;
use scope_spelling::time::iso;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The file, in the folder of the run's dumps.
pub(crate) const AUDIT_FILE: &str = "audit.jsonl";
/// Of an audit that is there so much of the end is looked at for its last line, bytes.
const LAST_BYTES_MAX: u64 = 1 << 20;
/// What comes before the first line.
const NOTHING: &str = "";

/// What is noted of a request.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub uid: u32,
    /// `none`: nothing is allowed.
    pub role: String,
    pub method: String,
    pub path: String,
    /// The action, as the OpenAPI document names it.
    pub action: String,
    /// What the body said.
    pub what: Value,
    /// The answer's status.
    pub status: u16,
}

/// The audit of one run.
pub(crate) struct Audit {
    folder: Arc<Folder>,
    run: String,
    /// The newest hash, for the log.
    head: Arc<AuditHead>,
    open: Mutex<Open>,
    failures: AtomicU64,
}

struct Open {
    file: Option<File>,
    chain: String,
}

impl Audit {
    /// Goes on in the folder's audit, if there is one.
    pub(crate) fn new(folder: Arc<Folder>, run: String, head: Arc<AuditHead>) -> Audit {
        let chain = last_chain(&folder);
        Audit { folder, run, head, open: Mutex::new(Open { file: None, chain }), failures: AtomicU64::new(0) }
    }

    /// Appends a line. What can't be written is counted: it stands in no file, and the next line goes on without it.
    pub(crate) fn note(&self, noted: &Noted, now_ns: i64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match self.append(&mut open, noted, now_ns) {
            Ok(()) => self.head.set(&open.chain),
            Err(_) => drop(self.failures.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Lines that couldn't be written.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn append(&self, open: &mut Open, noted: &Noted, now_ns: i64) -> io::Result<()> {
        let name = OsStr::new(AUDIT_FILE);
        // It may have been moved, as the log is when it is rotated.
        let is_there = |file: &File| self.folder.leads_to(name, file).unwrap_or(false);
        let mut file = match open.file.take().filter(is_there) {
            Some(file) => file,
            None => self.folder.append(name)?,
        };
        let Noted { uid, role, method, path, action, what, status } = noted;
        let line = json!({
            "time": iso(now_ns), "run": self.run, "uid": uid, "role": role, "method": method, "path": path,
            "action": action, "what": what, "status": status,
        });
        let (text, chain) = chained(line, &open.chain);
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        open.file = Some(file);
        written?;
        open.chain = chain;
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

fn hash(object: &Map<String, Value>, before: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before.as_bytes());
    hasher.update(json_line(&Value::Object(object.clone()).to_string()).as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// The hash of the last line that is there.
fn last_chain(folder: &Folder) -> String {
    let read = || {
        let file = folder.existing(OsStr::new(AUDIT_FILE), false).ok()??;
        let len = file.metadata().ok()?.len();
        let mut bytes = vec![0; len.min(LAST_BYTES_MAX) as usize];
        let at = len - bytes.len() as u64;
        file.read_exact_at(&mut bytes, at).ok()?;
        let last = bytes.strip_suffix(b"\n").unwrap_or(&bytes).rsplit(|&byte| byte == b'\n').next()?;
        let line: Value = serde_json::from_slice(last).ok()?;
        line["chain"].as_str().map(str::to_string)
    };
    read().unwrap_or_else(|| NOTHING.to_string())
}

/// The number of the first line of an audit that doesn't follow the one before it, and the hash of the last line; lines are
/// counted from 1.
#[cfg(test)]
fn verified(text: &str, before: &str) -> (Option<usize>, String) {
    let mut chain = before.to_string();
    for (number, line) in (1..).zip(text.lines()) {
        let Ok(Value::Object(mut object)) = serde_json::from_str(line) else { return (Some(number), chain) };
        let said = object.remove("chain").and_then(|said| said.as_str().map(str::to_string));
        if said.as_deref() != Some(&hash(&object, &chain)) {
            return (Some(number), chain);
        }
        chain = said.unwrap_or_default();
    }
    (None, chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(number: u16) -> Noted {
        Noted {
            uid: 1000,
            role: "analyst".to_string(),
            method: "POST".to_string(),
            path: "/api/v1/fire".to_string(),
            action: "Fire".to_string(),
            what: json!({"filter": format!("port {number}")}),
            status: 200 + number,
        }
    }

    #[test]
    fn lines_follow_each_other_over_runs_and_moves_and_what_is_removed_shows() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(place.path()).unwrap());
        let (path, moved) = (place.path().join(AUDIT_FILE), place.path().join("moved"));
        let head = Arc::new(AuditHead::default());
        let audit = || Audit::new(folder.clone(), "r".to_string(), head.clone());
        let first = audit();
        (0..3).for_each(|number| first.note(&noted(number), 7));
        let second = audit(); // another run goes on
        (3..5).for_each(|number| second.note(&noted(number), 8));
        std::fs::rename(&path, &moved).unwrap();
        second.note(&noted(5), 9);
        let [one, two] = [&moved, &path].map(|path| std::fs::read_to_string(path).unwrap());
        let (wrong, chain) = verified(&one, NOTHING);
        assert_eq!((wrong, one.lines().count()), (None, 5), "{one}");
        let (wrong, last) = verified(&two, &chain);
        assert_eq!((wrong, Some(last)), (None, head.get()));
        let without: String =
            one.lines().enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| format!("{line}\n")).collect();
        assert_eq!(verified(&without, NOTHING).0, Some(3));
        assert_eq!(verified(&one.replacen("port 1", "port 9", 1), NOTHING).0, Some(2));
        assert_eq!(second.failures(), 0);
    }
}
