//! Runnable blocks of the documents: found, run, and compared with what they show. Tests and `make bench`
//! share this.
//!
//! A block is runnable if its language is `console`. Lines that begin with `$ ` are commands, `> ` continues
//! one that ends with a backslash, or is given a text up to the END of `<<'END'`; what follows is what they
//! print, on standard output and standard error together. A line `...` stands for any lines, `...` inside a line
//! for any text: for times, sizes and ids. Nobody may show `...` alone. `# exit code N` before a command says how
//! it ends, else it ends with 0. All blocks of a page run one after the other in one folder, as a user without
//! rights. Compiler and loader find libwirescope of the same build, as if it were installed.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Stands in the output of a block where a command begins (`BEGIN`), and where one has ended (`END CODE`).
const MARK: &str = "\u{1}mark";
/// The user who may nothing.
const NOBODY: u32 = 65534;
/// No block may take longer, seconds: far more than any needs, since the machine may be busy.
const BLOCK_SECONDS_MAX: &str = "600";

/// What running the blocks of all pages brought.
#[derive(Debug, Default)]
pub struct Ran {
    /// Commands that were run.
    pub steps: usize,
    /// What is not as the pages show it.
    pub faults: Vec<String>,
}

/// Runs every runnable block of the documents of the workspace at `root` with this binary as `wirescope`.
pub fn run_all(root: &Path, binary: &Path) -> Ran {
    let mut ran = Ran::default();
    for page in all_pages(root) {
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        let blocks = match blocks(&text) {
            Ok(blocks) => blocks,
            Err(fault) => {
                ran.faults.push(format!("{}: {fault}", page.display()));
                continue;
            }
        };
        if blocks.is_empty() && page.parent().is_some_and(|folder| folder.ends_with("docs/guide")) {
            ran.faults.push(format!("{}: a guide has an example that runs", page.display()));
        }
        ran.steps += blocks.iter().map(|block| block.steps.len()).sum::<usize>();
        if !blocks.is_empty() {
            ran.faults.extend(faults_of(&page, &blocks, root, binary));
        }
    }
    ran
}

/// All pages below `folder`, sorted.
fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages.extend(pages_in(&path));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// README, and all other documents of the workspace at `root`.
pub fn all_pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = vec![
        root.join("README.md"),
        root.join("benches/record/README.md"),
        root.join("crates/scope-ring/README.md"),
    ];
    pages.extend(pages_in(&root.join("docs")));
    pages
}

/// One command of a runnable block.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    code: i32,
    prints: Vec<String>,
}

/// A runnable block, and the line of its page that it begins at.
#[derive(Debug, PartialEq)]
struct Block {
    line: usize,
    steps: Vec<Step>,
}

/// The runnable blocks of a page; what is wrong in one of them is an error.
fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fence: Option<bool> = None;
    let mut code = 0;
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(language) = text.strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language == "console") };
            if fence == Some(true) {
                blocks.push(Block { line, steps: Vec::new() });
            }
            continue;
        }
        if fence != Some(true) {
            continue;
        }
        let steps = &mut blocks.last_mut().expect("one was begun").steps;
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_string(),
                code: std::mem::take(&mut code),
                prints: Vec::new(),
            });
            continue;
        }
        if let Some(number) = text.strip_prefix("# exit code ") {
            code = number.parse().map_err(|_| format!("line {line}: '{number}' is no exit code"))?;
            continue;
        }
        let step = steps.last_mut().ok_or_else(|| format!("line {line}: a block begins with a command"))?;
        match text.strip_prefix("> ").or_else(|| text.strip_prefix('>')) {
            Some(more) if step.prints.is_empty() && goes_on(&step.command) => {
                step.command += &format!("\n{more}")
            }
            _ => step.prints.push(text.to_string()),
        }
    }
    if let Some(empty) = blocks.iter().find(|block| block.steps.is_empty()) {
        return Err(format!("line {}: a block without a command", empty.line));
    }
    let shows_nothing =
        |step: &Step| !step.prints.is_empty() && step.prints.iter().all(|line| line.trim() == "...");
    match blocks.iter().find(|block| block.steps.iter().any(shows_nothing)) {
        Some(block) => Err(format!("line {}: a command of which only '...' is shown", block.line)),
        None => Ok(blocks),
    }
}

/// Whether a shell would wait for more of a command: behind `\`, or in a text that it is given by `<<'END'`.
fn goes_on(command: &str) -> bool {
    let end = command.split_once("<<'").and_then(|(_, rest)| rest.split('\'').next());
    command.ends_with('\\') || end.is_some_and(|end| command.lines().all(|line| line != end))
}

/// Whether `text` is `pattern`, in which `...` stands for any text.
fn line_matches(pattern: &str, text: &str) -> bool {
    let parts: Vec<&str> = pattern.split("...").collect();
    let [first, between @ .., last] = &parts[..] else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether `lines` are those of `patterns`, in which a line `...` stands for any lines.
fn lines_match(patterns: &[String], lines: &[&str]) -> bool {
    match patterns {
        [] => lines.is_empty(),
        [any, rest @ ..] if any == "..." => {
            (0..=lines.len()).any(|left_out| lines_match(rest, &lines[left_out..]))
        }
        [first, rest @ ..] => {
            lines.first().is_some_and(|line| line_matches(first, line)) && lines_match(rest, &lines[1..])
        }
    }
}

/// A block as one script for bash, so that `$!` of one command is known to the next.
fn script(block: &Block) -> String {
    let mut text = String::from("exec 2>&1\n");
    for step in &block.steps {
        text += &format!("printf '{MARK} BEGIN\\n'\n{}\nprintf '{MARK} END %s\\n' $?\n", step.command);
    }
    text
}

/// What each command of a block printed, and its exit code.
fn outputs(printed: &str) -> Vec<(Vec<&str>, i32)> {
    let mut outputs = Vec::new();
    for part in printed.split(&format!("{MARK} BEGIN\n")).skip(1) {
        // The mark may stand behind a line without an end.
        let (lines, code) = part.split_once(&format!("{MARK} END ")).unwrap_or((part, "-1"));
        let code = code.lines().next().and_then(|code| code.parse().ok()).unwrap_or(-1);
        outputs.push((lines.lines().collect(), code));
    }
    outputs
}

/// Puts the libraries that were built with this binary, and a header, into a folder; nothing where there are none.
fn install_libraries(root: &Path, binary: &Path, folder: &Path) {
    let beside = binary.parent().unwrap_or(Path::new("."));
    let newest = |path: &PathBuf| path.metadata().and_then(|facts| facts.modified()).ok();
    let built = |name: &str| {
        let built = ["", "deps"].map(|part| beside.join(part).join(name));
        built.into_iter().filter(|path| path.exists()).max_by_key(newest)
    };
    let place = |name: &str| folder.join(name);
    if let Some(library) = built("libwirescope_preload.so") {
        std::fs::copy(library, place("libwirescope_preload.so")).expect("own folder");
    }
    let Some(library) = built("libwirescope.so") else { return };
    std::fs::copy(library, place("libwirescope.so.0")).expect("own folder");
    std::os::unix::fs::symlink("libwirescope.so.0", place("libwirescope.so")).expect("own folder");
    let header = root.join("crates/libwirescope/include/wirescope.h");
    std::fs::copy(header, place("wirescope.h")).expect("the library has a header");
}

/// Runs the blocks of a page; returns what is not as the page shows it.
fn faults_of(page: &Path, blocks: &[Block], root: &Path, binary: &Path) -> Vec<String> {
    let place = tempfile::Builder::new().prefix("wirescope-").tempdir().expect("a temporary folder");
    let open = || PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open()).expect("own folder");
    // A copy that every user can run, wherever it was built.
    let (copy, folder) = (place.path().join("wirescope"), place.path().join("out"));
    std::fs::copy(binary, &copy).unwrap_or_else(|e| panic!("{}: {e}", binary.display()));
    std::fs::set_permissions(&copy, open()).expect("own file");
    std::fs::create_dir(&folder).expect("own folder");
    install_libraries(root, binary, place.path());
    let search =
        format!("{}:{}:/usr/sbin:/sbin", place.path().display(), std::env::var("PATH").unwrap_or_default());
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if is_root {
        std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    let mut faults = Vec::new();
    for block in blocks {
        let mut bash = Command::new("timeout");
        bash.args(["--kill-after=5", BLOCK_SECONDS_MAX, "bash", "-c", &script(block)]).current_dir(&folder);
        bash.env_clear().env("PATH", &search).env("HOME", &folder).env("LANG", "C.UTF-8").env("TZ", "UTC");
        for name in ["CPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH"] {
            bash.env(name, place.path());
        }
        if is_root {
            bash.uid(NOBODY).gid(NOBODY);
        }
        let printed = match bash.stdin(Stdio::null()).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => {
                faults.push(format!("{}:{}: bash: {error}", page.display(), block.line));
                continue;
            }
        };
        let outputs = outputs(&printed);
        for (number, step) in block.steps.iter().enumerate() {
            let (lines, code) = outputs.get(number).cloned().unwrap_or((Vec::new(), -1));
            if code != step.code || !lines_match(&step.prints, &lines) {
                let place = format!("{}:{}", page.display(), block.line);
                let (shown, got) = (step.prints.join("\n"), lines.join("\n"));
                faults.push(format!(
                    "{place}: $ {}\nexit code {code}, not {}\n--- shown\n{shown}\n--- got\n{got}\n",
                    step.command, step.code
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_prints_something_else_is_found() {
        let check = |pattern: &[&str], lines: &[&str], expected: bool| {
            let pattern: Vec<String> = pattern.iter().map(ToString::to_string).collect();
            assert_eq!(lines_match(&pattern, lines), expected, "{pattern:?} {lines:?}");
        };
        check(&[], &[], true);
        check(&[], &["x"], false);
        check(&["x"], &[], false);
        check(&["a", "...", "c"], &["a", "b", "b", "c"], true);
        check(&["a", "...", "c"], &["a", "c"], true);
        check(&["a", "...", "c"], &["a", "c", "d"], false);
        check(&["took ... s", "done"], &["took 1.5 s", "done"], true);
        check(&["took ... s"], &["took 1.5 ms"], false);
        check(&["...a...b"], &["xaxb"], true);
        check(&["...a...b"], &["xbxa"], false);
        check(&["aa...a"], &["aa"], false);
        let faulty =
            "```console\n$ echo one\ntwo\n$ false\n# exit code 1\n$ false\n$ echo \\\n> three\nthree\n```\n";
        let faulty = blocks(faulty).unwrap();
        let faults = faults_of(Path::new("page"), &faulty, Path::new("."), Path::new("/bin/true"));
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].contains("page:1: $ echo one") && faults[1].contains("exit code 1, not 0"),
            "{faults:?}"
        );
        let text = blocks("```console\n$ cat > x <<'END'\n> a\n>\n> END\n$ echo b\n> b\n```\n").unwrap();
        let steps: Vec<_> = text[0].steps.iter().map(|step| (&*step.command, &step.prints[..])).collect();
        assert_eq!(steps, [("cat > x <<'END'\na\n\nEND", &[][..]), ("echo b", &["> b".to_string()])]);
        assert!(blocks("```console\nwords\n```\n").is_err());
        assert!(blocks("```console\n$ echo one\n...\n```\n").unwrap_err().contains("only '...'"));
    }
}
