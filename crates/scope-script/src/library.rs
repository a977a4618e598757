//! The C libraries that a script names at its top: read as text before any Lua runs, and opened before rights
//! are given up.
//!
//! ```lua
//! -- comments, empty lines and `local x = require 'y'` may stand around
//! wirescope.library 'ndpi'
//! local m = wirescope.library("libm.so.6")
//! ```
//! The first other line ends the top. A library that is named further down isn't opened, and the script is told
//! so when it gets there.

use crate::error::ScriptError;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::PathBuf;

/// Libraries that one script may name.
const LIBRARIES_MAX: usize = 16;

/// The names in the literal lines at the top of a script, each once.
pub fn libraries(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut in_comment = false;
    for line in text.lines().map(str::trim) {
        if in_comment {
            in_comment = !line.contains("]]");
            continue;
        }
        if let Some(rest) = line.strip_prefix("--[[") {
            in_comment = !rest.contains("]]");
            continue;
        }
        if line.is_empty() || line.starts_with("--") || line.starts_with("#!") {
            continue;
        }
        let statement = without_local(line);
        if let Some(name) = named(statement) {
            if !names.iter().any(|known| known == name) && names.len() < LIBRARIES_MAX {
                names.push(name.to_string());
            }
        } else if !statement.starts_with("require") {
            break;
        }
    }
    names
}

/// The line without `local NAME =`.
fn without_local(line: &str) -> &str {
    let name = |text: &str| {
        !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    match line.strip_prefix("local ").and_then(|rest| rest.split_once('=')) {
        Some((variable, value)) if name(variable.trim()) => value.trim(),
        _ => line,
    }
}

/// The name in `wirescope.library 'NAME'`, with or without brackets.
fn named(statement: &str) -> Option<&str> {
    let rest = statement.strip_prefix("wirescope.library")?.trim_start();
    let rest = rest.strip_prefix('(').map_or(rest, str::trim_start);
    let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let (name, _) = rest[1..].split_once(quote)?;
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._+-/".contains(letter);
    (!name.is_empty() && name.chars().all(fits)).then_some(name)
}

/// Libraries that are opened, and stay so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// By the name that scripts use: the name under which the loader knows it.
    paths: BTreeMap<String, String>,
}

impl Libraries {
    /// Opens libraries: `ndpi` is `libndpi.so`, or its newest version where only that is installed. Their own
    /// code runs now, with the rights of now.
    ///
    /// # Errors
    /// Names the first that can't be opened, in the loader's words.
    pub fn open(names: &[String]) -> Result<Libraries, ScriptError> {
        let mut paths = BTreeMap::new();
        for name in names {
            let path = open(name).map_err(|cause| ScriptError::Library { library: name.clone(), cause })?;
            paths.insert(name.clone(), path);
        }
        Ok(Libraries { paths })
    }

    /// The name under which the loader knows an opened library.
    pub fn path(&self, name: &str) -> Option<&str> {
        self.paths.get(name).map(String::as_str)
    }

    /// The first of these names that isn't opened: a reload that has one is refused.
    pub fn lacks<'a>(&self, names: &'a [String]) -> Option<&'a str> {
        names.iter().find(|name| !self.paths.contains_key(*name)).map(String::as_str)
    }
}

fn open(name: &str) -> Result<String, String> {
    if name.contains('/') || name.contains(".so") {
        return open_file(name).map(|()| name.to_string());
    }
    let plain = format!("lib{name}.so");
    let problem = match open_file(&plain) {
        Ok(()) => return Ok(plain),
        Err(problem) => problem,
    };
    match newest(&plain) {
        Some(path) => open_file(&path).map(|()| path),
        None => Err(problem),
    }
}

/// The highest version of a library in the system's folders: programs that aren't built here have no other name
/// for it.
fn newest(plain: &str) -> Option<String> {
    let arch = std::env::consts::ARCH;
    let folders = [
        format!("/usr/lib/{arch}-linux-gnu"),
        "/usr/lib64".into(),
        "/usr/lib".into(),
        "/usr/local/lib".into(),
    ];
    let prefix = format!("{plain}.");
    let version = |path: &PathBuf| -> Option<Vec<u32>> {
        let rest = path.file_name()?.to_str()?.strip_prefix(&prefix)?;
        rest.split('.').map(|part| part.parse().ok()).collect()
    };
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let versions = files.map(|entry| entry.path()).filter_map(|path| Some((version(&path)?, path)));
    versions.max().and_then(|(_, path)| path.to_str().map(str::to_string))
}

fn open_file(name: &str) -> Result<(), String> {
    let file = CString::new(name).map_err(|_| "its name has a zero byte".to_string())?;
    // SAFETY: the name is a string with its end; the library stays open for good, so nothing of it is used
    // after its end. What its own code does is up to whoever wrote the script.
    let opened = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !opened.is_null() {
        return Ok(());
    }
    // SAFETY: called by the thread that failed, at once; the text is copied before anybody else calls.
    let problem = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    Err(problem.unwrap_or_else(|| "the loader gives no reason".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_lines_at_the_top_are_read_as_text() {
        let check = |text: &str, expected: &[&str]| assert_eq!(libraries(text), expected, "{text}");
        check("wirescope.library 'ndpi'", &["ndpi"]);
        check(
            "#!/x\n-- a\n\n--[[ b\n wirescope.library 'no'\n]]\nlocal ffi = require 'ffi'\nwirescope.library(\"a-b\")\n",
            &["a-b"],
        );
        check(
            "local n = wirescope.library 'x'\nlocal n = wirescope.library( 'x' ) -- again\nwirescope.library 'y'",
            &["x", "y"],
        );
        check("local x = 1\nwirescope.library 'late'", &[]);
        check("wirescope.library(name)\nwirescope.library 'late'", &[]);
        check("wirescope.library 'a b'", &[]);
        check("wirescope.library ''", &[]);
        check("wirescope.library '", &[]);
        check("", &[]);
        let many: String = (0..99).map(|n| format!("wirescope.library 'l{n}'\n")).collect();
        assert_eq!(libraries(&many).len(), LIBRARIES_MAX);
    }

    #[test]
    fn a_library_is_opened_by_its_short_name_or_its_file() {
        let open = |name: &str| Libraries::open(&[name.to_string()]);
        let opened = open("libm.so.6").expect("the C library has it");
        assert_eq!(opened.path("libm.so.6"), Some("libm.so.6"));
        assert!(open("m").is_ok(), "libm.so.6 is its only name where no compiler is installed");
        assert_eq!(opened.lacks(&["libm.so.6".into(), "z".into()]), Some("z"));
        let error = open("nobody-has-this").expect_err("there is none").to_string();
        assert!(error.contains("nobody-has-this") && error.contains("install it"), "{error}");
    }
}
