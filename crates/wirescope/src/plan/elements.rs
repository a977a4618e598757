//! Elements of a list that say several things: `NAME,KEY=VALUE,...`, or the same as a table of a configuration file.

use crate::args::RunArgs;
use scope_fault::{Fault, Subject};
use std::collections::BTreeMap;

/// An element: its name, and what it says besides.
pub type Written = (String, BTreeMap<String, String>);

/// All elements of `key`, whose texts these are, each with its place.
pub fn written<'a>(
    key: &'static str,
    example: &'static str,
    args: &'a RunArgs,
    texts: &'a [String],
) -> impl Iterator<Item = (usize, Result<Written, Vec<Fault>>)> + 'a {
    let values = args.settings.values(key);
    texts.iter().enumerate().map(move |(index, text)| {
        let own = values.get(index).and_then(|value| value.own.as_ref());
        let table =
            own.map(|own| own.iter().map(|(word, own)| (word.to_string(), own.text.clone())).collect());
        (index, table.map_or_else(|| take_apart(key, example, text), |words| Ok((text.clone(), words))))
    })
}

/// `NAME,KEY=VALUE,...`. A comma behind which no key stands belongs to the value before it.
///
/// # Errors
/// All faults.
pub fn take_apart(key: &'static str, example: &str, text: &str) -> Result<Written, Vec<Fault>> {
    let (name, rest) = text.split_once(',').unwrap_or((text, ""));
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    let mut faults = Vec::new();
    let mut last: Option<String> = None;
    for part in rest.split(',').filter(|_| !rest.is_empty()) {
        let is_key =
            |word: &str| !word.is_empty() && word.bytes().all(|it| it.is_ascii_lowercase() || it == b'-');
        match part.split_once('=').map(|(word, value)| (word.trim(), value)).filter(|(word, _)| is_key(word))
        {
            Some((word, value)) => {
                if words.insert(word.to_string(), value.to_string()).is_some() {
                    faults.push(of(key, name, word).cause("it is given twice").remedy("omit one of them"));
                }
                last = Some(word.to_string());
            }
            None => match last.as_ref().and_then(|word| words.get_mut(word)) {
                Some(value) => *value = format!("{value},{part}"),
                None => {
                    let cause = format!("'{}' is no KEY=VALUE", part.trim());
                    let fault = Fault::of(key).with_value(text).cause(cause);
                    faults.push(fault.remedy(format!("write {example}")));
                }
            },
        }
    }
    if faults.is_empty() { Ok((name.trim().to_string(), words)) } else { Err(faults) }
}

/// A fault of what an element says of itself.
pub fn of(key: &str, name: &str, word: &str) -> Fault {
    let (element, word) = (Some(name.to_string()), Some(word.to_string()));
    Fault::about(Subject::Setting { key: key.to_string(), element, word })
}
