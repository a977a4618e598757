//! The notices of the package: every crate that is built into the binary is named there, under the version
//! that Cargo.lock has.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate and its version.
type Crate = (String, String);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What stands in the notices, each line `  NAME VERSION  REPOSITORY`.
fn listed(notices: &str) -> BTreeSet<Crate> {
    let is_version = |word: &str| {
        word.starts_with(|letter: char| letter.is_ascii_digit()) && word.matches('.').count() >= 2
    };
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("  ")?.split(' ');
        let (name, version) = (words.next()?, words.next()?);
        (!name.is_empty() && is_version(version)).then(|| (name.to_string(), version.to_string()))
    };
    notices.lines().filter_map(of_line).collect()
}

/// What cargo builds into the binary here; no network is asked.
fn built_in() -> BTreeSet<Crate> {
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "tree",
        "--locked",
        "--offline",
        "--package",
        "wirescope",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    let output = command.args(["--no-dedupe", "--format", "{p}"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    // `NAME vVERSION`, and behind our own crates the path.
    let foreign = tree.lines().filter(|line| !line.is_empty() && !line.contains("(/"));
    let words = foreign.map(|line| line.split(' ').collect::<Vec<_>>());
    words.map(|words| (words[0].to_string(), words[1].trim_start_matches('v').to_string())).collect()
}

/// What Cargo.lock has, for all systems.
fn locked() -> BTreeSet<Crate> {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let of_package = |package: &str| {
        let value = |key: &str| {
            package.lines().find_map(|line| Some(line.strip_prefix(key)?.trim_matches('"').to_string()))
        };
        Some((value("name = ")?, value("version = ")?))
    };
    lock.split("[[package]]").filter_map(of_package).collect()
}

#[test]
fn the_notices_name_every_crate_that_is_built_in_and_no_other_version() {
    let notices = std::fs::read_to_string(root().join("packaging/THIRD-PARTY.txt")).unwrap();
    let (listed, built_in, locked) = (listed(&notices), built_in(), locked());
    assert!(built_in.len() > 30, "{built_in:?}");
    let missing: Vec<_> = built_in.difference(&listed).collect();
    assert!(missing.is_empty(), "missing in packaging/THIRD-PARTY.txt: {missing:?}: make licences WRITE=1");
    let gone: Vec<_> = listed.difference(&locked).collect();
    assert!(
        gone.is_empty(),
        "in packaging/THIRD-PARTY.txt, and not in Cargo.lock: {gone:?}: make licences WRITE=1"
    );
    let texts =
        ["Apache License", "LLVM Exceptions", "Permission is hereby granted, free of charge", "Mike Pall"];
    for text in texts {
        assert!(notices.contains(text), "the text of a licence is missing: {text}");
    }
    let unfilled = ["<copyright holders>", "<year>", "[fullname]", "[year]"]
        .iter()
        .filter(|text| notices.contains(**text));
    assert_eq!(unfilled.count(), 0, "a notice without its holder");
}
