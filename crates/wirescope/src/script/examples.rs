//! `wirescope script examples`: scripts to begin with, written into a folder; no file that is there is changed.

use crate::{NoResult, told};
use scope_fault::Fault;
use scope_folder::Folder;
use scope_script::{EXAMPLES, Example};
use scope_spelling::printable::{printable, shell_word};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::Path;

/// Columns for a file's name.
const NAME_COLUMNS: usize = 16;

/// Writes them. Exit codes: 0 all are there, 2 one of them can't be.
pub fn examples(path: &Path) -> u8 {
    told(write_all(path).map_err(NoResult::Refused))
}

/// All files are looked at before one is written.
fn write_all(path: &Path) -> Result<String, Vec<Fault>> {
    let of_folder = |error: io::Error| {
        let fault = Fault::of_thing(path.to_string_lossy()).error(&error);
        vec![fault.remedy("name a folder that you may write to, or one that can be made")]
    };
    std::fs::create_dir_all(path).map_err(of_folder)?;
    let folder = Folder::open(path).map_err(of_folder)?;
    let mut faults = Vec::new();
    let mut missing = Vec::new();
    for example in &EXAMPLES {
        match is_there(&folder, example) {
            Ok(true) => {}
            Ok(false) => missing.push(example),
            Err(cause) => faults.push(of_file(path, example, &cause)),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    for example in &missing {
        write(&folder, example).map_err(of_folder)?;
    }
    let mut text = String::new();
    for example in &EXAMPLES {
        let name = example.file;
        text += &format!("{name:<NAME_COLUMNS$} {}\n", about(example));
    }
    let shown = printable(&path.to_string_lossy()).into_owned();
    let check = shell_word(path);
    text += &format!(
        "{} written into {shown}, {} there already\n",
        missing.len(),
        EXAMPLES.len() - missing.len()
    );
    text += &format!("Check them: wirescope script check {check}/*.lua\n");
    Ok(text)
}

/// Whether the folder has the example; another file of its name is an error, in words.
fn is_there(folder: &Folder, example: &Example) -> Result<bool, String> {
    let file = folder.existing(OsStr::new(example.file), false).map_err(|error| error.to_string())?;
    let Some(file) = file else { return Ok(false) };
    let mut text = Vec::new();
    file.take(example.text.len() as u64 + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    match text == example.text.as_bytes() {
        true => Ok(true),
        false => Err("a file with other text has this name".to_string()),
    }
}

fn of_file(path: &Path, example: &Example, cause: &str) -> Fault {
    let fault = Fault::of_thing(path.join(example.file).to_string_lossy()).cause(cause);
    fault.remedy("rename it, or name another folder")
}

fn write(folder: &Folder, example: &Example) -> io::Result<()> {
    let mut draft = folder.draft(OsStr::new(example.file))?;
    draft.file().write_all(example.text.as_bytes())?;
    draft.publish()
}

/// What an example does: the first line of its text.
fn about(example: &Example) -> &'static str {
    let first = example.text.lines().next().unwrap_or_default();
    first.trim_start_matches('-').trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_says_in_its_first_line_what_it_does() {
        for example in &EXAMPLES {
            assert!(about(example).ends_with('.') && example.text.starts_with("-- "), "{}", example.file);
            assert!(example.file.len() < NAME_COLUMNS, "{}", example.file);
        }
    }
}
