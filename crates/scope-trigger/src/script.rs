//! A script as a trigger has it: its file, and the text that was read from it. Who runs it is no matter here.

use std::sync::Arc;

/// A script's file, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFile {
    file: Arc<str>,
    text: Arc<str>,
}

impl ScriptFile {
    /// `file` as written, and what was in it.
    pub fn new(file: &str, text: &str) -> ScriptFile {
        ScriptFile { file: file.into(), text: text.into() }
    }

    /// The file, as written.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What was in it.
    pub fn text(&self) -> &str {
        &self.text
    }
}
