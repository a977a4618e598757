//! Makes the variants: scope-ring's own source with loom's atomics in the place of the standard library's,
//! once as it is and once per seeded fault. Stops the build where a text that it replaces isn't there exactly
//! once: then the list is out of date.

#[path = "src/mutants.rs"]
#[allow(dead_code)] // which model finds a fault, and how, is the models' concern
mod mutants;

use mutants::{MUTANTS, Mutant};
use std::path::{Path, PathBuf};

/// Files of scope-ring that have a stand-in here: memory without a mapping, no system calls, loom's lock.
const STAND_INS: [&str; 4] = ["region/mod.rs", "outside/view.rs", "futex.rs", "lock.rs"];

/// What runs the ring and is no part of it: the thread that builds summaries; and what the stand-in of the
/// memory has no need of.
const OMITTED: [&str; 6] =
    ["summarizer", "region/arena.rs", "region/memory.rs", "region/place.rs", "region/prefault.rs", "outside/tests.rs"];

/// What every variant gets, wherever it occurs.
const EVERYWHERE: [(&str, &str); 5] = [
    ("std::sync::atomic", "loom::sync::atomic"),
    ("std::hint::spin_loop", "loom::hint::spin_loop"),
    // The words lie in no zeroed mapping here.
    ("#[repr(C)]", "#[derive(Default)]\n#[repr(C)]"),
    ("#[repr(C, align(128))]", "#[derive(Default)]\n#[repr(C, align(128))]"),
    // Bytes are written in the plain form: the others' stores would run outside of loom's sight.
    ("target_arch = \"x86_64\"", "any()"),
];

/// Bounds that make the ring small enough, the one place where bytes of a segment are written, and the room
/// that is omitted: file, text, replacement.
const IN_FILES: [(&str, &str, &str); 10] = [
    // The models look inside.
    ("outside/mod.rs", "\nmod view;", "\npub mod view;"),
    ("outside/mod.rs", "    fn over(view: View,", "    pub fn over(view: View,"),
    ("lib.rs", "mod control;", "pub mod control;"),
    ("lib.rs", "mod region;", "pub mod region;"),
    ("lib.rs", "region::{Arena, ", "region::{"),
    ("lib.rs", "mod summarizer;", ""),
    ("lib.rs", "pub use summarizer::Summarizer;", ""),
    ("lib.rs", "SEGMENTS_PER_LANE_MIN: u64 = 16;", "SEGMENTS_PER_LANE_MIN: u64 = 2;"),
    ("lib.rs", "LINK_TYPES_MAX: u32 = 8;", "LINK_TYPES_MAX: u32 = 1;"),
    (
        "stream/place.rs",
        "std::slice::from_raw_parts_mut(self.segment.add(at), len)",
        "crate::region::written(self.segment, at, len)",
    ),
];

/// What must not be left: it would run outside of loom's sight.
const FOREIGN: [&str; 5] =
    ["std::sync::{Arc, Mutex", "std::sync::Mutex", "std::sync::atomic", "std::hint", "std::thread"];

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    let out = std::env::var("OUT_DIR").expect("set by cargo");
    let source = Path::new(&here).join("../crates/scope-ring/src");
    for path in [source.as_path(), Path::new("src"), Path::new("build.rs")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let mut variants = String::new();
    for (name, mutant) in
        std::iter::once(("none", None)).chain(MUTANTS.iter().map(|mutant| (mutant.name, Some(mutant))))
    {
        let folder = Path::new(&out).join(name);
        make(&source, &Path::new(&here).join("src"), &folder, name, mutant);
        let (lib, model) = (folder.join("lib.rs"), Path::new(&out).join(format!("{name}.rs")));
        write(&model, &models(&Path::new(&here).join("src/model.rs"), mutant));
        variants += &format!(
            "pub mod {name} {{\n#[path = {lib:?}]\npub mod scope_ring;\n#[path = {model:?}]\npub mod model;\n}}\n"
        );
    }
    let arm = |name: &str| format!("{name:?} => {name}::model::run(model),\n");
    let arms: String =
        std::iter::once("none").chain(MUTANTS.iter().map(|mutant| mutant.name)).map(arm).collect();
    variants += &format!(
        "/// Runs `model` on variant `name`; false: one of them is unknown.\n\
         pub fn run(name: &str, model: &str) -> bool {{\nmatch name {{\n{arms}_ => false,\n}}\n}}\n"
    );
    write(&Path::new(&out).join("variants.rs"), &variants);
}

/// Writes one variant's source into `folder`.
fn make(source: &Path, stand_ins: &Path, folder: &Path, name: &str, mutant: Option<&Mutant>) {
    let mut seeded = mutant.is_none();
    let mut written = Vec::new();
    for path in files(source) {
        let file =
            path.strip_prefix(source).ok().and_then(|file| file.to_str()).expect("a file name").to_string();
        if OMITTED.iter().any(|omitted| file.starts_with(omitted)) {
            continue;
        }
        let stand_in = STAND_INS.contains(&file.as_str());
        let mut text = read(&if stand_in { stand_ins.join("stand_ins").join(&file) } else { path });
        text.truncate(text.find("\n#[cfg(test)]\n").unwrap_or(text.len()));
        if let Some(mutant) = mutant
            && mutant.file == file
        {
            for (from, to) in mutant.edits {
                text = replaced(&text, from, to, &format!("mutant {name} in {file}"));
            }
            seeded = true;
        }
        for (_, from, to) in IN_FILES.iter().filter(|edit| edit.0 == file) {
            text = replaced(&text, from, to, &file);
        }
        for (from, to) in EVERYWHERE {
            text = text.replace(from, to);
        }
        text = text.replace("crate::", &format!("crate::variants::{name}::scope_ring::"));
        let left = FOREIGN.iter().find(|foreign| !stand_in && text.contains(**foreign));
        assert!(
            left.is_none(),
            "{file}: {} is not modelled; teach build.rs to replace it",
            left.unwrap_or(&"")
        );
        let to = folder.join(&file);
        std::fs::create_dir_all(to.parent().expect("in `folder`")).expect("OUT_DIR is writable");
        write(&to, &text);
        written.push(to);
    }
    let left = files(folder).into_iter().filter(|path| !written.contains(path)); // by an earlier source
    for path in left {
        std::fs::remove_file(path).expect("OUT_DIR is writable");
    }
    assert!(seeded, "mutant {name}: its file isn't there");
}

/// The models' text; for a mutant with only the one in the list that must find it, so that no other is
/// compiled.
fn models(path: &Path, mutant: Option<&Mutant>) -> String {
    let text = read(path);
    let Some(mutant) = mutant else { return text };
    let (before, list) = text.split_once("fn())] = &[\n").expect("the list of models");
    let (list, behind) = list.split_once("];").expect("its end");
    let wanted = format!("    (\"{}\",", mutant.model);
    let entry = list
        .lines()
        .find(|line| line.starts_with(&wanted))
        .unwrap_or_else(|| panic!("no model {}", mutant.model));
    format!("{before}fn())] = &[\n{entry}\n];{behind}")
}

/// All files of a folder and of the folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .expect("scope-ring's source")
        .map(|entry| entry.expect("a folder entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn replaced(text: &str, from: &str, to: &str, place: &str) -> String {
    let count = text.matches(from).count();
    assert!(count == 1, "{place}: {count} times instead of once: {from}");
    text.replace(from, to)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

/// Writes `text` unless it is there already.
fn write(path: &Path, text: &str) {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return;
    }
    std::fs::write(path, text).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
}
