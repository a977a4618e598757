//! Removing a dump's files: only such as say themselves that they are of this dump, since their names may lead to others by
//! now.

use crate::body::{Body, json};
use crate::state::State;
use http::{Response, StatusCode};
use scope_api::Problem;
use scope_dump::mark::{MARK_BYTES, marked_stem};
use scope_folder::{Folder, NotPlain};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// What became of one dump's files.
#[derive(Debug, Default, PartialEq, Eq)]
struct Removed {
    removed: Vec<String>,
    /// Those that stay, since they don't say that they are of this dump.
    foreign: Vec<String>,
}

/// Removes a finished dump's files.
///
/// # Errors
/// They are gone, or others.
pub(crate) async fn delete(state: &Arc<State>, id: &str) -> Result<Response<Body>, Problem> {
    let files = state.dumps.files(id, None)?; // nobody who sees only some of them may delete any
    let gone = |cause: String| {
        let remedy =
            format!("nothing is left to delete here; GET /api/v1/dumps/{id} says where its files were");
        Problem::new(StatusCode::NOT_FOUND, "file", cause, remedy)
    };
    let Some(folder) = state.folder.clone().filter(|_| !files.is_empty()) else {
        return Err(gone(format!("dump {id} has no file in the folder of this run's dumps")));
    };
    let number: u64 = id.parse().unwrap_or_default();
    match tokio::task::spawn_blocking(move || remove(&folder, number, &files)).await {
        Ok(Ok(Removed { removed, foreign })) if removed.is_empty() && foreign.is_empty() => {
            Err(gone(format!("the files of dump {id} are gone already")))
        }
        Ok(Ok(Removed { removed, foreign })) if removed.is_empty() => {
            let cause = format!("{}: it doesn't say that it is of dump {id}", foreign.join(", "));
            let remedy = "look at it, and remove it by hand";
            Err(Problem::new(StatusCode::CONFLICT, "file", cause, remedy))
        }
        Ok(Ok(Removed { removed, .. })) => Ok(json(StatusCode::OK, &json!({"removed": removed}))),
        Ok(Err(error)) => Err(Problem::internal("file", error.to_string())),
        Err(_) => Err(Problem::ended()),
    }
}

fn remove(folder: &Folder, id: u64, files: &[OsString]) -> io::Result<Removed> {
    let mut all = Removed::default();
    for name in files {
        let text = name.to_string_lossy().into_owned();
        let file = match folder.existing(name, false) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<NotPlain>()) => {
                all.foreign.push(text); // a link, a pipe or a folder stands there now
                continue;
            }
            Err(error) => return Err(error),
        };
        if !says_so(folder, id, name, &file)? || !folder.leads_to(name, &file)? {
            all.foreign.push(text);
            continue;
        }
        folder.remove(name)?;
        all.removed.push(text);
        // The facts beside a pcap file go with it.
        let facts = Path::new(name).with_extension("txt");
        if Path::new(name).extension() == Some(OsStr::new("pcap"))
            && let Some(file) = folder.existing(facts.as_os_str(), false)?
            && bears_mark(id, facts.as_os_str(), &file)?
        {
            folder.remove(facts.as_os_str())?;
            all.removed.push(facts.to_string_lossy().into_owned());
        }
    }
    Ok(all)
}

/// Whether a file, or the text beside a pcap file, says that it is of dump `id`.
fn says_so(folder: &Folder, id: u64, name: &OsStr, file: &File) -> io::Result<bool> {
    if Path::new(name).extension() != Some(OsStr::new("pcap")) {
        return bears_mark(id, name, file);
    }
    // `..._LINUX_SLL.pcap` has the text of the dump's first file beside it.
    let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ends = stem.match_indices(['_', '-']).map(|(at, _)| at).chain([stem.len()]);
    for end in ends {
        let facts = OsString::from(format!("{}.txt", &stem[..end]));
        if let Some(file) = folder.existing(&facts, false)?
            && bears_mark(id, &facts, &file)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn bears_mark(id: u64, name: &OsStr, file: &File) -> io::Result<bool> {
    let mut begin = Vec::new();
    file.take(MARK_BYTES as u64).read_to_end(&mut begin)?;
    let stem = name.to_str().and_then(|name| marked_stem(name, &begin));
    Ok(stem.is_some_and(|stem| stem.ends_with(&format!("_{id:04}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEM: &str = "2026-11-20T20-31-05.123456789Z_scan_0007";

    #[test]
    fn only_what_says_that_it_is_of_the_dump_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let facts = "wirescope 1.0\ndump 7 of trigger scan, fired by hand\n";
        let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
        let removed = |id, name: &str| remove(&folder, id, &[OsString::from(name)]).unwrap();
        let pcap = format!("{STEM}.pcap");
        write(&pcap, "a pcap file");
        assert_eq!(removed(7, &pcap).foreign, std::slice::from_ref(&pcap), "nothing speaks for it");
        write(&format!("{STEM}.txt"), facts);
        assert_eq!(removed(8, &pcap).foreign, std::slice::from_ref(&pcap));
        assert_eq!(removed(7, &pcap).removed, [pcap.clone(), format!("{STEM}.txt")]);
        assert_eq!(removed(7, &pcap), Removed::default());
        let other = format!("{STEM}.pcapng");
        write(&other, "somebody's own");
        assert_eq!(removed(7, &other).foreign, [other]);
    }
}
