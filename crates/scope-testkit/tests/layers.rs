//! The house rules that a compiler doesn't check: layers, names, opening sentences, sizes, safety comments,
//! promises.
//!
//! Each rule is a function from text to complaints. It is applied to the whole workspace, and tried below on
//! made-up texts that break it. The layer table is that of docs/ARCHITECTURE.md; a crate that isn't in it
//! fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every crate under `crates/` with its layer. An arrow of `[dependencies]` points to a lower layer only.
const LAYERS: [(&str, u8); 32] = [
    ("scope-fault", 0),
    ("scope-packet", 0),
    ("scope-spelling", 0),
    ("scope-api", 1),
    ("scope-machine", 1),
    ("scope-folder", 1),
    ("scope-http", 2),
    ("scope-ring", 2),
    ("scope-filter", 2),
    ("scope-flow", 2),
    ("scope-rights", 2),
    ("scope-events", 2),
    ("scope-measure", 3),
    ("scope-source", 3),
    ("scope-trigger", 3),
    ("scope-script", 3),
    ("scope-share", 3),
    ("scope-group", 4),
    ("scope-store", 3),
    ("scope-dump", 4),
    ("scope-stats", 4),
    ("scope-doctor", 4),
    ("libwirescope", 4),
    ("wirescope-preload", 5),
    ("scope-answer", 5),
    ("scope-engine", 5),
    ("scope-config", 6),
    ("scope-door", 6),
    ("scope-serve", 6),
    ("wirescope", 7),
    ("scope-sim", 7),
    (TESTKIT, 7),
];
/// May be a dev-dependency of every crate, and a dependency of none under `crates/`.
const TESTKIT: &str = "scope-testkit";
/// A helper without a home is missing a noun.
const HOMELESS_NAMES: [&str; 8] = ["common", "util", "utils", "helper", "helpers", "base", "misc", "shared"];
const FILE_LINES_MAX: usize = 1000;
/// A SAFETY comment stands at most this many lines of code above what it speaks of.
const SAFETY_LINES_MAX: usize = 6;
/// Places that only exist on the machine where something was written. Spelled in parts, so that this file
/// names none.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("../sha", "red")];
/// The one file that may look for captures beside the repository.
const MACHINE_PATH_EXCEPTION: &str = ".ci/run";
const UNSAFE: &str = concat!("un", "safe");

/// Files of one crate that use each other in a circle, and why they still do.
struct Circle {
    package: &'static str,
    /// Paths under `src` without `.rs`, in alphabetical order.
    files: &'static [&'static str],
    reason: &'static str,
}

/// The circles that are left. A new one fails, and so does an entry that is none any more.
const CIRCLES: &[Circle] = &[];

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|&(_, layer)| layer)
}

/// Whether `name` is one of this workspace's own crates.
fn is_own(name: &str) -> bool {
    name.starts_with("scope-") || ["wirescope", "libwirescope", "wirescope-preload"].contains(&name)
}

/// An own crate that a manifest names, and whether for its tests only.
#[derive(Debug, PartialEq)]
struct Arrow {
    to: String,
    dev: bool,
}

/// Reads package name and arrows out of a Cargo.toml: `[dependencies]` and its kin, for one target or all, as
/// a table or as `[dependencies.NAME]`, renamed or not.
fn manifest(text: &str) -> (String, Vec<Arrow>) {
    let (mut package, mut arrows, mut section) = (String::new(), Vec::new(), String::new());
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        if let Some(inner) = line.strip_prefix('[') {
            section = inner.trim_end_matches(']').to_string();
            if let Some((kind, name)) =
                section.rsplit_once('.').filter(|(kind, _)| kind.ends_with("dependencies"))
            {
                arrows.push(Arrow {
                    to: name.trim_matches('"').to_string(),
                    dev: kind.ends_with("dev-dependencies"),
                });
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().trim_matches('"').split('.').next().unwrap_or("");
        if section == "package" && key == "name" {
            package = value.trim().trim_matches('"').to_string();
        } else if section.ends_with("dependencies") || section.contains("dependencies.") {
            let dev = section.contains("dev-dependencies");
            let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            let renamed = renamed.or_else(|| (key == "package").then(|| value.trim().trim_matches('"')));
            arrows.push(Arrow { to: renamed.unwrap_or(key).to_string(), dev });
        }
    }
    arrows.retain(|arrow| is_own(&arrow.to));
    (package, arrows)
}

/// Arrows point down: dependencies to a lower layer, dev-dependencies to a lower layer or the testkit.
fn check_arrows(folder: &str, text: &str) -> Vec<String> {
    let (package, arrows) = manifest(text);
    let mut complaints = Vec::new();
    if package != folder {
        complaints
            .push(format!("crates/{folder}: the crate calls itself '{package}'; name it like its folder"));
    }
    let Some(from) = layer(folder) else {
        complaints.push(format!(
            "crates/{folder}: not in the layer table; add it to docs/ARCHITECTURE.md and to this test"
        ));
        return complaints;
    };
    for Arrow { to, dev } in arrows {
        if dev && to == TESTKIT {
            continue;
        }
        // The testkit's own tests may look at everything below it, which the comparison allows.
        match layer(&to) {
            None => complaints
                .push(format!("crates/{folder}: depends on '{to}', which is not in the layer table")),
            Some(_) if to == TESTKIT => complaints.push(format!("crates/{folder}: '{to}' is for tests only")),
            Some(layer) if layer >= from => {
                complaints.push(format!(
                    "crates/{folder}: layer {from} depends on '{to}' of layer {layer}; arrows point down"
                ));
            }
            Some(_) => {}
        }
    }
    complaints
}

/// A file opens with a `//!` paragraph that ends with a full stop or a colon.
fn check_opening(path: &str, text: &str) -> Vec<String> {
    let paragraph =
        text.lines().map_while(|line| line.strip_prefix("//!")).take_while(|line| !line.trim().is_empty());
    match paragraph.last().map(str::trim_end) {
        Some(end) if end.ends_with(['.', ':']) => Vec::new(),
        Some(_) => vec![format!("{path}: the opening sentence ends without a full stop")],
        None => vec![format!("{path}: no opening '//!' sentence that names its room")],
    }
}

fn check_size(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let too_long = lines > FILE_LINES_MAX;
    too_long
        .then(|| format!("{path}: {lines} lines, more than {FILE_LINES_MAX}; it is missing a noun"))
        .into_iter()
        .collect()
}

/// No folder, file or module bears a homeless name.
fn check_names(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for part in Path::new(path).iter().filter_map(|part| part.to_str()) {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if stem.split(['-', '_']).any(|word| HOMELESS_NAMES.contains(&word)) {
            complaints.push(format!("{path}: '{stem}' says nothing; name the thing that lives there"));
        }
    }
    for line in text.lines().map(code) {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        let module = (words.next() == Some("mod"))
            .then(|| words.next())
            .flatten()
            .map(|name| name.trim_end_matches([';', '{']));
        if let Some(name) = module.filter(|name| HOMELESS_NAMES.contains(name)) {
            complaints.push(format!("{path}: module '{name}' says nothing; name the thing that lives there"));
        }
    }
    complaints
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Every block and implementation that is marked so has its SAFETY comment close above.
fn check_safety(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let opens = |line: &str| ["{", "impl"].iter().any(|what| has_words(code(line), UNSAFE, what));
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let mut complaints = Vec::new();
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| opens(line)) {
        let mut code_lines = 0;
        let above = lines[..index].iter().rev().take_while(|line| {
            code_lines += usize::from(!is_comment(line));
            code_lines <= SAFETY_LINES_MAX
        });
        if !above.chain([&lines[index]]).any(|line| line.contains("// SAFETY")) {
            complaints.push(format!("{path}:{}: {UNSAFE} without a SAFETY comment above it", index + 1));
        }
    }
    complaints
}

/// Whether `first` stands in `line` as a word, directly followed by `second`.
fn has_words(line: &str, first: &str, second: &str) -> bool {
    line.match_indices(first).any(|(at, _)| {
        let free =
            !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '"');
        free && line[at + first.len()..].trim_start().starts_with(second)
    })
}

/// The modules of a crate by their paths under `src` (`mod.rs` is its folder, `lib.rs` is empty), with their
/// code: comments and tests don't count.
type Modules = BTreeMap<String, String>;

/// The crate and the module that a file is, if it is one that counts: `crates/a/src/b/c.rs` is `b/c` of `a`.
fn module_of(path: &str) -> Option<(&str, String)> {
    let (package, path) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path.split('/').any(|part| part == "tests") {
        return None;
    }
    let is_root = path == "lib" || path == "main";
    Some((package, if is_root { String::new() } else { path.to_string() }))
}

/// The code in front of a file's inline tests, without comments.
fn code_in_front_of_tests(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(code).collect();
    let is_module =
        |line: &str| line.split_whitespace().any(|word| word == "mod") && line.trim_end().ends_with('{');
    let tests = lines.windows(2).position(|two| two[0].trim() == "#[cfg(test)]" && is_module(two[1]));
    lines[..tests.unwrap_or(lines.len())].join("\n")
}

/// Splits code into words, `::`, and single signs.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let len = match first {
            _ if is_word(first) => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        tokens.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    tokens
}

/// Every path in `code` that begins with `crate`, `super` or `self`, groups in braces taken apart.
fn local_paths(code: &str) -> Vec<Vec<&str>> {
    let tokens = tokens(code);
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let begins = ["crate", "super", "self"].contains(token) && tokens.get(at + 1) == Some(&"::");
        if begins && (at == 0 || tokens[at - 1] != "::") {
            add_paths(&tokens, at, Vec::new(), &mut paths);
        }
    }
    paths
}

/// Adds the paths that go on behind `path` at token `at`; returns the token behind them.
fn add_paths<'a>(
    tokens: &[&'a str],
    mut at: usize,
    mut path: Vec<&'a str>,
    paths: &mut Vec<Vec<&'a str>>,
) -> usize {
    while let Some(&token) = tokens.get(at) {
        if token == "{" {
            at += 1;
            while at < tokens.len() && tokens[at] != "}" {
                at = match tokens[at] {
                    "," => at + 1,
                    "as" => at + 2,
                    _ => add_paths(tokens, at, path.clone(), paths).max(at + 1),
                };
            }
            return at + 1;
        }
        if !token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') {
            break;
        }
        path.push(token);
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    paths.push(path);
    at
}

/// The other modules that `module` uses. What stands in the crate's root doesn't count.
fn used<'a>(modules: &'a Modules, module: &str, code: &str) -> BTreeSet<&'a str> {
    let mut used = BTreeSet::new();
    for path in local_paths(code) {
        let mut full: Vec<&str> = module.split('/').filter(|part| !part.is_empty()).collect();
        let leading = path.iter().take_while(|part| ["crate", "super", "self"].contains(part)).count();
        for part in &path[..leading] {
            match *part {
                "crate" => full.clear(),
                "super" => drop(full.pop()),
                _ => {}
            }
        }
        full.extend(&path[leading..]);
        let longest = (1..=full.len()).rev().find_map(|len| modules.get_key_value(&full[..len].join("/")));
        if let Some((target, _)) = longest.filter(|(target, _)| *target != module) {
            used.insert(target.as_str());
        }
    }
    used
}

/// The sets of modules that use each other in a circle.
fn circles(modules: &Modules) -> BTreeSet<Vec<&str>> {
    let uses: BTreeMap<&str, BTreeSet<&str>> =
        modules.iter().map(|(module, code)| (module.as_str(), used(modules, module, code))).collect();
    let reached = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = uses[from].iter().copied().collect();
        while let Some(module) = open.pop() {
            if reached.insert(module) {
                open.extend(&uses[module]);
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|module| (*module, reached(module))).collect();
    let circle = |module: &&str| {
        reached[module].iter().copied().filter(|other| reached[other].contains(module)).collect::<Vec<_>>()
    };
    uses.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// Files of one crate form no circle, but for those in `known`; and these are still circles.
fn check_circles(package: &str, modules: &Modules, known: &[Circle]) -> Vec<String> {
    let found = circles(modules);
    let known: Vec<&Circle> = known.iter().filter(|circle| circle.package == package).collect();
    let mut complaints = Vec::new();
    for circle in &found {
        let files = circle.join(", ");
        let entry = known.iter().find(|entry| circle.iter().all(|file| entry.files.contains(file)));
        match entry {
            None => complaints.push(format!(
                "crates/{package}: {files} use each other; move what they share into a file below them, or \
                 add the circle to CIRCLES of this test with its reason"
            )),
            Some(entry) if entry.files.len() > circle.len() => complaints.push(format!(
                "crates/{package}: a circle has shrunk to {files}; shorten its entry in CIRCLES of this test"
            )),
            Some(_) => {}
        }
    }
    for entry in known {
        let is_left = found.iter().any(|circle| circle.iter().all(|file| entry.files.contains(file)));
        if !is_left {
            complaints.push(format!(
                "crates/{package}: {} are no circle any more ('{}'); remove the entry from CIRCLES of this \
                 test",
                entry.files.join(", "),
                entry.reason
            ));
        }
    }
    complaints
}

fn check_machine_paths(path: &str, text: &str) -> Vec<String> {
    if path == MACHINE_PATH_EXCEPTION {
        return Vec::new();
    }
    let named = |line: &str| MACHINE_PATHS.iter().any(|place| line.contains(place));
    let lines = text.lines().enumerate().filter(|(_, line)| named(line));
    lines.map(|(index, _)| format!("{path}:{}: names a place of one machine", index + 1)).collect()
}

/// A numbered promise of docs/SPECIFICATION.md with all its lines joined.
struct Promise {
    line: usize,
    number: Option<u32>,
    checked: Option<bool>,
    text: String,
}

/// Collects promises: each begins with `` `S-12` `` behind list mark and check box, and goes on to the next
/// one, a blank line or a heading.
fn promises(text: &str) -> Vec<Promise> {
    let mut found: Vec<Promise> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let mut rest = line.trim_start().trim_start_matches(['-', '*', '|']).trim_start();
        let mut checked = None;
        for (mark, value) in [("[x]", true), ("[ ]", false)] {
            if let Some(behind) = rest.strip_prefix(mark) {
                (rest, checked) = (behind.trim_start(), Some(value));
            }
        }
        if let Some(behind) = rest.strip_prefix("`S-") {
            let number = behind.split('`').next().and_then(|digits| digits.parse().ok());
            found.push(Promise { line: index + 1, number, checked, text: rest.to_string() });
            open = true;
        } else if rest.is_empty() || line.starts_with('#') {
            open = false;
        } else if let Some(promise) = found.last_mut().filter(|_| open) {
            promise.text.push(' ');
            promise.text.push_str(rest);
        }
    }
    found
}

/// Numbers rise without doubles, and every promise ends in `(test: ...)` with tests that exist, or in
/// `(pending: ...)`. `read` gives the text of a file named relative to the repository.
fn check_promises(text: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut last = 0;
    let found = promises(text);
    if found.is_empty() {
        complaints.push("docs/SPECIFICATION.md: no promise found; a promise begins with `S-1`".to_string());
    }
    for promise in found {
        let place = format!("docs/SPECIFICATION.md:{}", promise.line);
        match promise.number {
            Some(number) if number > last => last = number,
            Some(number) => complaints
                .push(format!("{place}: S-{number} stands behind S-{last}; numbers rise and are unique")),
            None => complaints.push(format!("{place}: the promise's number is not understood; write `S-12`")),
        }
        let links = promise
            .text
            .rsplit_once("(test: ")
            .and_then(|(_, rest)| rest.split_once(')'))
            .map(|(links, _)| links);
        let pending = promise.text.contains("(pending: ");
        match (links, pending, promise.checked) {
            (Some(links), false, Some(true) | None) => complaints.extend(check_links(&place, links, read)),
            (None, true, Some(false) | None) => {}
            (Some(_), true, _) => complaints.push(format!("{place}: both proven and pending; keep one")),
            (None, false, _) => {
                complaints.push(format!("{place}: neither (test: `path.rs::name`) nor (pending: issue)"))
            }
            (Some(_), ..) => {
                complaints.push(format!("{place}: the box is empty though a test is named; write [x]"))
            }
            (None, ..) => {
                complaints.push(format!("{place}: the box is checked though it is pending; write [ ]"))
            }
        }
    }
    complaints
}

/// Checks the tests named in one `(test: ...)`: `` `path.rs::name` ``, several with commas.
fn check_links(place: &str, links: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let complaint = |link: &str| {
        let Some((path, name)) = link.split_once(".rs::") else {
            return Some(format!("{place}: '{link}' is no test; write `path/to/file.rs::test_name`"));
        };
        let name = name.rsplit("::").next().unwrap_or(name);
        match read(&format!("{path}.rs")) {
            None => Some(format!("{place}: there is no file {path}.rs")),
            Some(text) if !has_test(&text, name) => Some(format!("{place}: {path}.rs has no test '{name}'")),
            Some(_) => None,
        }
    };
    links.split(',').map(|link| link.trim().trim_matches('`')).filter_map(complaint).collect()
}

/// Whether `text` defines the function `name` with a test attribute above it, or in an example that must not
/// compile.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let defines =
        |line: &str| line.split_once("fn ").is_some_and(|(_, rest)| rest.split('(').next() == Some(name));
    let is_mark = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
    let tested = |index: usize| {
        lines[..index]
            .iter()
            .rev()
            .take_while(is_mark)
            .any(|line| line.ends_with("test]") || line.ends_with("```compile_fail"))
    };
    lines.iter().enumerate().any(|(index, line)| defines(line) && tested(index))
}

// --- the rules applied to the workspace ---

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep")
        .to_path_buf()
}

/// Files of the repository, relative to its root: what git tracks or would add; without git, all but hidden
/// and built ones.
fn files() -> Vec<String> {
    let root = root();
    let listing = ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let paths = match Command::new("git").current_dir(&root).args(listing).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).split('\0').map(String::from).collect()
        }
        _ => {
            let mut found = Vec::new();
            walk(&root, &root, &mut found);
            found
        }
    };
    paths.into_iter().filter(|path| root.join(path).is_file()).collect()
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let built = path.join("CACHEDIR.TAG").exists() || relative == "out";
        if path.is_file() {
            found.push(relative);
        } else if !built && (!relative.starts_with('.') || relative == ".ci") {
            walk(root, &path, found);
        }
    }
}

/// Applies `rule` to every text file that `wanted` picks.
fn check_files(wanted: impl Fn(&str) -> bool, rule: impl Fn(&str, &str) -> Vec<String>) {
    let root = root();
    let wanted: Vec<String> = files().into_iter().filter(|path| wanted(path)).collect();
    assert!(!wanted.is_empty(), "the rule found no file to look at");
    let texts = wanted.iter().filter_map(|path| Some((path, fs::read_to_string(root.join(path)).ok()?)));
    let complaints: Vec<String> = texts.flat_map(|(path, text)| rule(path, &text)).collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

#[test]
fn every_crate_depends_on_lower_layers_only() {
    let folder = |path: &str| Some(path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?.to_string());
    check_files(
        |path| folder(path).is_some(),
        |path, text| check_arrows(&folder(path).unwrap_or_default(), text),
    );
}

#[test]
fn every_file_opens_with_a_sentence() {
    check_files(is_rust, check_opening);
}

#[test]
fn no_file_is_longer_than_its_bound() {
    check_files(is_rust, check_size);
}

#[test]
fn nothing_bears_a_homeless_name() {
    check_files(is_rust, check_names);
}

#[test]
fn every_unsafe_block_says_why_it_is_safe() {
    check_files(is_rust, check_safety);
}

#[test]
fn files_of_one_crate_form_no_circle() {
    let root = root();
    let mut packages: BTreeMap<String, Modules> = BTreeMap::new();
    for path in files() {
        let (Some((package, module)), Ok(text)) = (module_of(&path), fs::read_to_string(root.join(&path)))
        else {
            continue;
        };
        let code = packages.entry(package.to_string()).or_default().entry(module).or_default();
        code.push_str(&code_in_front_of_tests(&text));
    }
    assert!(packages.contains_key("scope-ring"), "the rule found no file to look at");
    let gone = CIRCLES.iter().filter(|circle| !packages.contains_key(circle.package));
    let mut complaints: Vec<String> =
        gone.map(|circle| format!("CIRCLES of this test: there is no crate {}", circle.package)).collect();
    for (package, modules) in &packages {
        complaints.extend(check_circles(package, modules, CIRCLES));
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    check_files(|_| true, check_machine_paths);
}

#[test]
fn every_promise_is_proven_or_pending() {
    let root = root();
    let text = fs::read_to_string(root.join("docs/SPECIFICATION.md")).expect("docs/SPECIFICATION.md");
    let complaints = check_promises(&text, &|path| fs::read_to_string(root.join(path)).ok());
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

// --- the rules tried on made-up texts ---

/// Asserts that `complaints` are as many as `expected` and hold its words in order.
fn check(complaints: Vec<String>, expected: &[&str]) {
    assert_eq!(complaints.len(), expected.len(), "{complaints:#?}");
    for (complaint, words) in complaints.iter().zip(expected) {
        assert!(complaint.contains(words), "'{complaint}' lacks '{words}'");
    }
}

#[test]
fn an_arrow_that_points_up_or_sideways_is_found() {
    let crate_with = |lines: &str| format!("[package]\nname = \"scope-dump\"\n\n{lines}\n");
    let rule = |lines: &str| check_arrows("scope-dump", &crate_with(lines));
    check(rule("[dependencies]\nlibc.workspace = true\nscope-ring.workspace = true"), &[]);
    check(
        rule("[dependencies]\nscope-engine.workspace = true"),
        &["layer 4 depends on 'scope-engine' of layer 5"],
    );
    check(rule("[dependencies]\nscope-stats = { path = \"../scope-stats\" }"), &["'scope-stats' of layer 4"]);
    check(rule("[dependencies]\nring = { package = \"scope-door\", path = \"x\" }"), &["'scope-door'"]);
    check(rule("[dependencies.scope-engine]\nworkspace = true"), &["'scope-engine'"]);
    check(rule("[target.'cfg(unix)'.dependencies]\nscope-engine.workspace = true"), &["'scope-engine'"]);
    check(rule("[build-dependencies]\nwirescope.workspace = true"), &["'wirescope' of layer 7"]);
    check(rule("[dependencies]\nscope-testkit.workspace = true"), &["tests only"]);
    check(rule("[dev-dependencies]\nscope-testkit.workspace = true\nscope-filter.workspace = true"), &[]);
    check(rule("[dev-dependencies]\nscope-engine.workspace = true"), &["'scope-engine'"]);
    check(rule("[dependencies]\n# scope-engine.workspace = true"), &[]);
    check(
        rule("[dependencies]\nscope-gossip.workspace = true"),
        &["'scope-gossip', which is not in the layer table"],
    );
}

#[test]
fn an_unknown_or_misnamed_crate_is_found() {
    check(check_arrows("scope-gossip", "[package]\nname = \"scope-gossip\""), &["not in the layer table"]);
    check(check_arrows("scope-ring", "[package]\nname = \"ring\""), &["calls itself 'ring'"]);
}

#[test]
fn a_file_without_an_opening_sentence_is_found() {
    check(check_opening("a.rs", "//! The room,\n//! in a sentence.\n//!\n//! more words\nfn a() {}"), &[]);
    check(check_opening("a.rs", "//! The words:\n//!\n//! | a |"), &[]);
    check(check_opening("a.rs", "//! The room\nfn a() {}"), &["without a full stop"]);
    check(check_opening("a.rs", "// The room.\nfn a() {}"), &["no opening"]);
    check(check_opening("a.rs", "use a;\n//! The room."), &["no opening"]);
    check(check_opening("a.rs", ""), &["no opening"]);
}

#[test]
fn a_long_file_is_found() {
    check(check_size("a.rs", &"\n".repeat(FILE_LINES_MAX)), &[]);
    check(check_size("a.rs", &"\n".repeat(FILE_LINES_MAX + 1)), &["1001 lines"]);
}

#[test]
fn a_homeless_name_is_found() {
    check(check_names("crates/scope-ring/src/pin.rs", "pub mod baseline;\nlet common = 1;"), &[]);
    check(check_names("crates/scope-utils/src/lib.rs", ""), &["'scope-utils'"]);
    check(check_names("tests/common/mod.rs", ""), &["'common'"]);
    check(check_names("src/file_helpers.rs", ""), &["'file_helpers'"]);
    check(
        check_names("src/lib.rs", "pub(crate) mod utils;\nmod base {\n// mod helpers;"),
        &["'utils'", "'base'"],
    );
}

#[test]
fn an_unsafe_block_without_its_comment_is_found() {
    let rule = |text: &str| check_safety("a.rs", &text.replace('@', UNSAFE));
    check(rule("// SAFETY: it lives.\nlet a = @ { b() };"), &[]);
    check(rule("// SAFETY: it lives,\n// and long.\n//\n//\n//\n//\n//\n//\n@ impl Send for A {}"), &[]);
    check(rule("let a = @ { b() };"), &["a.rs:1"]);
    check(rule("// SAFETY: far above.\n1\n2\n3\n4\n5\n6\n7\n@ { b() };"), &["a.rs:9"]);
    check(rule("@ impl Send for A {}"), &["a.rs:1"]);
    check(rule("@ extern \"C\" fn a() {}\n/// speaks of @ { }\n#![deny(@_code)]\n@ fn b() {}"), &[]);
}

#[test]
fn a_circle_between_files_is_found_and_an_entry_that_is_none_any_more() {
    let rule = |files: &[(&str, &str)], known: &[Circle]| {
        let module = |(path, text): &(&str, &str)| {
            let path = format!("crates/a/src/{path}.rs");
            let (package, module) = module_of(&path)?;
            assert_eq!(package, "a");
            Some((module, code_in_front_of_tests(text)))
        };
        check_circles("a", &files.iter().filter_map(module).collect(), known)
    };
    let entry = |files| Circle { package: "a", files, reason: "because" };
    // Down only; what is in comments, in tests and in the root doesn't count, nor does a child its parent
    // holds.
    let down = [
        ("lib", "pub struct A;\nmod b;"),
        ("b", "use crate::c::{C, d::{self, D as E}};\nmod child;\nuse child::F;"),
        ("b/child", "use super::B;"),
        ("c/mod", "// use crate::b;\nuse crate::A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}"),
        ("c/d", "#[cfg(test)]\nmod tests;\nfn d(super_b: u8) -> u8 { super_b }"),
        ("c/d/tests", "use crate::b::B;"),
    ];
    check(rule(&down, &[]), &[]);
    check(rule(&down, &[entry(&["b", "c"])]), &["b, c are no circle any more ('because'); remove the entry"]);
    // By a group, by a path in the code, and by `super`.
    let around = [
        ("b", "use crate::{A, c::{C, d::D}};"),
        ("c/mod", "pub(crate) fn f() { crate::e::g::<u8>() }"),
        ("e", "use super::b::B;"),
        ("f", "use crate::b;"),
    ];
    check(rule(&around, &[]), &["b, c, e use each other; move what they share"]);
    check(rule(&around, &[entry(&["b", "c", "e"])]), &[]);
    check(rule(&around, &[entry(&["b", "c", "e", "f"])]), &["shrunk to b, c, e; shorten its entry"]);
    check(rule(&around, &[entry(&["b", "c"])]), &["b, c, e use each other", "b, c are no circle any more"]);
    // A parent that names its child from the root, and the child its parent.
    check(rule(&[("b", "use crate::b::c::C;"), ("b/c", "use super::B;")], &[]), &["b, b/c use each other"]);
}

#[test]
fn a_machine_path_is_found() {
    for place in MACHINE_PATHS {
        check(check_machine_paths("README.md", &format!("see\n{place}main")), &["README.md:2"]);
        check(check_machine_paths(MACHINE_PATH_EXCEPTION, place), &[]);
    }
    check(check_machine_paths("README.md", "networks, shared/home, the workspace/"), &[]);
}

#[test]
fn a_promise_without_proof_is_found() {
    let file = "#[test]\n#[ignore]\nfn it_holds() {}\nproptest! {\n    #[test]\n    fn always(a in 0..9) {}\n}\nfn not_a_test() {}";
    let read = |path: &str| (path == "a/b.rs").then(|| file.to_string());
    let rule = |text: &str| check_promises(text, &read);
    check(rule("- `S-1` It holds. (test: `a/b.rs::it_holds`)\n- `S-3` Later. (pending: the store)"), &[]);
    check(
        rule(
            "- [x] `S-1` It holds,\n  always. (test: `a/b.rs::it_holds`,\n  `a/b.rs::always`)\n- [ ] `S-2` x (pending: y)",
        ),
        &[],
    );
    check(rule("`S-1` It holds. (test: `a/b.rs::it_breaks`)"), &["no test 'it_breaks'"]);
    check(rule("`S-1` It holds. (test: `a/b.rs::not_a_test`)"), &["no test 'not_a_test'"]);
    check(rule("`S-1` It holds. (test: `a/c.rs::it_holds`)"), &["no file a/c.rs"]);
    check(rule("`S-1` It holds. (test: it_holds)"), &["'it_holds' is no test"]);
    check(rule("`S-1` It holds."), &["neither"]);
    check(rule("- [x] `S-1` Later. (pending: y)"), &["write [ ]"]);
    check(rule("- [ ] `S-1` It holds. (test: `a/b.rs::always`)"), &["write [x]"]);
    check(
        rule("`S-2` x (pending: y)\n`S-2` x (pending: y)\n`S-1` x (pending: y)"),
        &["S-2 stands behind", "S-1 stands behind"],
    );
    check(rule("`S-a` x (pending: y)"), &["number is not understood"]);
    check(rule("nothing here"), &["no promise found"]);
}
