//! What is no TOML in a file: every fault that the parser can tell, in the order of their lines, the first of
//! each line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use toml_edit::Document;
use toml_parser::parser::{Event, EventKind, RecursionGuard, parse_document};
use toml_parser::{Expected, ParseError, Source};

/// Deepest nesting of values that is followed, as in the parser that makes the document.
const DEPTH_MAX: u32 = 80;

/// The document of a text.
///
/// # Errors
/// Its faults, by line from 1.
pub fn document(text: &str) -> Result<Document<&str>, BTreeMap<usize, String>> {
    let error = match Document::parse(text) {
        Ok(document) => return Ok(document),
        Err(error) => error,
    };
    let mut faults = BTreeMap::new();
    for error in errors(text) {
        let at = error.unexpected().or(error.context()).map(|span| span.start()..span.end());
        faults.entry(line_of(text, at)).or_insert_with(|| cause(&error));
    }
    // What only shows when the document is made: a key that is there twice.
    let told = || error.message().lines().map(str::trim).collect::<Vec<_>>().join(", ");
    faults.entry(line_of(text, error.span())).or_insert_with(told);
    Err(faults)
}

/// Everything that the parser stumbles over, and what is wrong within keys and values.
fn errors(text: &str) -> Vec<ParseError> {
    let (source, mut events, mut errors) = (Source::new(text), Vec::<Event>::new(), Vec::new());
    let tokens = source.lex().into_vec();
    parse_document(&tokens, &mut RecursionGuard::new(&mut events, DEPTH_MAX), &mut errors);
    for event in &events {
        let Some(raw) = source.get(event) else { continue };
        let mut decoded = Cow::Borrowed("");
        match event.kind() {
            EventKind::SimpleKey => raw.decode_key(&mut decoded, &mut errors),
            EventKind::Scalar => drop(raw.decode_scalar(&mut decoded, &mut errors)),
            _ => {}
        }
    }
    errors
}

fn cause(error: &ParseError) -> String {
    let expected: Vec<String> = error.expected().unwrap_or_default().iter().map(expected).collect();
    match expected.is_empty() {
        true => error.description().to_string(),
        false => format!("{}, expected {}", error.description(), expected.join(", ")),
    }
}

fn expected(expected: &Expected) -> String {
    match expected {
        Expected::Literal("\n") => "newline".to_string(),
        Expected::Literal(literal) if literal.contains(char::is_control) => {
            format!("`{}`", literal.escape_debug())
        }
        Expected::Literal(literal) => format!("`{literal}`"),
        Expected::Description(words) => words.to_string(),
        _ => "something else".to_string(),
    }
}

/// The line of a place in a text, from 1.
pub fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let at = span.map_or(0, |span| span.start.min(text.len()));
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}
