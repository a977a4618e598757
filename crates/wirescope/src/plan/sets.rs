//! Sets of hosts and ports as meant: `NAME,kind=hosts,file=PATH`, and what stands in their files.

use super::Look;
use super::elements::{self, Written};
use super::faults::Faults;
use crate::args::RunArgs;
use scope_config::Settings;
use scope_fault::Fault;
use scope_group::sets::{BadLine, FILE_BYTES_MAX, Set, SetKind};
use scope_share::message::is_name;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The setting.
const KEY: &str = "set";
/// How a set is written.
const EXAMPLE: &str = "e.g. --set partners,kind=hosts,file=partners.txt";
/// Sets at most.
const SETS_MAX: usize = 256;
/// Letters of a line that a fault repeats.
const SHOWN_MAX: usize = 60;

/// A set, and a number that is another one where its file says something else.
#[derive(Clone, Debug)]
pub struct Known {
    /// The set.
    pub set: Arc<Set>,
    /// See above.
    pub version: u64,
}

/// All sets, by name.
pub type Sets = BTreeMap<String, Known>;

/// All sets, as far as they have no faults.
pub fn plan(args: &RunArgs, look: Look<'_>, faults: &mut Faults<'_>) -> Sets {
    let mut sets = Sets::new();
    let mut names: Vec<String> = Vec::new();
    for (index, written) in elements::written(KEY, EXAMPLE, args, &args.set) {
        if let Ok((name, _)) = &written {
            if names.contains(name) {
                let fault = Fault::of(KEY).value(name, "is the name of two sets");
                faults.add_of_element(KEY, index, fault.remedy("choose another name for one of them"));
            }
            names.push(name.clone());
        }
        let named = written.as_ref().ok().and_then(|(name, words)| Some((name.clone(), kind_of(words)?)));
        match written.and_then(|written| set(&written, args, look)) {
            Ok((name, known)) => drop(sets.insert(name, known)),
            Err(found) => {
                found.into_iter().for_each(|fault| faults.add_of_element(KEY, index, fault));
                // Rules that name it are right.
                if let Some((name, kind)) = named
                    && let Ok(set) = Set::read(kind, "")
                {
                    sets.entry(name).or_insert(Known { set: Arc::new(set), version: 0 });
                }
            }
        }
    }
    if args.set.len() > SETS_MAX {
        let cause = format!("there are {}, and {SETS_MAX} are the most", args.set.len());
        faults.add(Fault::of(KEY).cause(cause).remedy("omit some"));
    }
    sets
}

/// What a set says that it is of.
fn kind_of(words: &BTreeMap<String, String>) -> Option<SetKind> {
    match words.get("kind").map(String::as_str) {
        Some("hosts") => Some(SetKind::Hosts),
        Some("ports") => Some(SetKind::Ports),
        _ => None,
    }
}

fn set((name, words): &Written, args: &RunArgs, look: Look<'_>) -> Result<(String, Known), Vec<Fault>> {
    let of = |word: &str| elements::of(KEY, name, word);
    let mut faults = Vec::new();
    if !is_name(name) || name.contains(['=', ',']) {
        faults.push(Fault::of(KEY).value(name, "is no name of a set").remedy(format!("write {EXAMPLE}")));
    }
    for word in words.keys().filter(|word| !["kind", "file"].contains(&word.as_str())) {
        faults.push(of(word).cause("there is no such option").remedy("there are: kind, file"));
    }
    let kind = kind_of(words);
    match words.get("kind") {
        _ if kind.is_some() => {}
        Some(other) => {
            faults.push(of("kind").value(other, "is no kind of a set").remedy("write hosts or ports"));
        }
        None => faults.push(of("kind").cause("it is missing").remedy("write kind=hosts or kind=ports")),
    }
    let file = words.get("file").filter(|file| !file.is_empty());
    if file.is_none() {
        faults.push(of("file").cause("it names no file").remedy(format!("write {EXAMPLE}")));
    }
    let text = match (file.and_then(|file| args.sets.get(file)), look, file) {
        (Some(known), ..) => known.clone(),
        (None, Look::Nowhere, _) | (.., None) => Ok(String::new()),
        (None, _, Some(file)) => text(file, File::open(file)),
    };
    let read = text
        .map_err(|fault| {
            vec![fault.with_value(file.cloned().unwrap_or_default()).of_subject(of("file").subject.clone())]
        })
        .and_then(|text| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            let set = Set::read(kind.unwrap_or(SetKind::Hosts), &text);
            let bad = |BadLine { line, text }: BadLine| {
                let shown: String = text.chars().take(SHOWN_MAX).collect();
                let (what, remedy) = match kind {
                    Some(SetKind::Ports) => ("port", "write a port, or a range such as 8000-8099"),
                    _ => ("host", "write an address, a prefix such as 10.0.0.0/8, or a range of addresses"),
                };
                let name = file.cloned().unwrap_or_default();
                let cause = format!("{name}, line {line}: '{}' is no {what}", shown.escape_default());
                of("file").with_value(name).cause(cause).remedy(remedy)
            };
            set.map(|set| Known { set: Arc::new(set), version: hasher.finish() })
                .map_err(|found| found.into_iter().map(bad).collect())
        });
    match (read, faults.is_empty()) {
        (Ok(known), true) => Ok((name.clone(), known)),
        (read, _) => Err(faults
            .into_iter()
            .chain(read.err().filter(|_| kind.is_some()).into_iter().flatten())
            .collect()),
    }
}

/// The text of an opened file of a set.
pub fn text(name: &str, opened: io::Result<File>) -> Result<String, Fault> {
    let failed = |error: io::Error| {
        let fault = Fault::whole(format!("'{name}' can't be read: {error}"));
        fault.remedy("check its path, and who may read it")
    };
    let file = opened.map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        let fault = Fault::whole(format!("'{name}' is no regular file"));
        return Err(fault.remedy("name a file with a host or port in each line"));
    }
    let mut text = String::new();
    let mut bounded = file.take(FILE_BYTES_MAX + 1);
    bounded.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Fault::whole(format!("'{name}' is longer than 1 GiB")).remedy("split it"));
    }
    Ok(text)
}

/// All files of sets that the settings name.
pub fn files(settings: &Settings) -> Vec<String> {
    let named = settings.values(KEY).iter().filter_map(|value| match &value.own {
        Some(own) => own.get("file").map(|own| own.text.clone()),
        None => {
            let text = value.text.to_string_lossy();
            elements::take_apart(KEY, EXAMPLE, &text).ok().and_then(|(_, mut words)| words.remove("file"))
        }
    });
    let mut files: Vec<String> = named.filter(|file| !Path::new(file).as_os_str().is_empty()).collect();
    files.sort();
    files.dedup();
    files
}
