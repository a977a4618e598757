//! Where a fault of the plan stands in the configuration file, and in the words of that file.

use scope_config::{Settings, Value};

/// Keys that have a short flag, which faults name.
const SHORT: [(&str, &str); 2] = [("-s", "snap-len"), ("-w", "write")];

/// A fault as it is told: of a value that came from the file `FILE:LINE: KEY: CAUSE`, of others as it is. `trigger` is the one
/// that it is a fault of, from 0. What it says of other keys has their lines.
pub fn placed(settings: &Settings, trigger: Option<usize>, fault: String) -> String {
    let found = trigger
        .and_then(|index| of_trigger(settings, index, &fault))
        .or_else(|| flag(settings, &fault))
        .or_else(|| source(settings, &fault))
        .or_else(|| ring(settings, &fault));
    let place = fault.split(':').next().and_then(|word| key_of(settings, word)).unwrap_or("");
    match found {
        Some((at, from)) => at + &in_words_of_the_file(settings, place, &fault[from..], true),
        None => in_words_of_the_file(settings, place, &fault, false),
    }
}

/// The key that a word of a command line names, as `--ring` or `-s`.
fn key_of<'a>(settings: &'a Settings, word: &str) -> Option<&'a str> {
    let short = || SHORT.iter().find(|(short, _)| *short == word).map(|(_, name)| *name);
    settings.name(word.strip_prefix("--").or_else(short)?)
}

/// `--KEY: ...`, `--KEY 'VALUE': ...` and the short flags that faults are named by; the place, and where the rest of the fault begins.
fn flag(settings: &Settings, fault: &str) -> Option<(String, usize)> {
    let word = fault.split([':', ' ']).next()?;
    let key = key_of(settings, word)?;
    let values = settings.values(key);
    let named = values.iter().find(|value| fault.contains(&format!("'{}'", value.text.to_string_lossy())));
    let place = settings.place(named.or(values.first())?)?;
    Some((place + key, word.len()))
}

/// Of the trigger at `index` `trigger 'NAME': ...` and `--trigger: ...`, perhaps followed by one of its own words, `KEY: ...`.
fn of_trigger(settings: &Settings, index: usize, fault: &str) -> Option<(String, usize)> {
    let value: &Value = settings.values("trigger").get(index)?;
    let place = settings.place(value)?;
    let (from, rest) = match fault.strip_prefix("--") {
        Some(rest) => (2, rest.split_once(": ")?.1),
        None => (0, fault.strip_prefix("trigger '")?.split_once("': ")?.1),
    };
    let word = rest.split([':', ' ']).next()?;
    Some((settings.place_within("trigger", value, word).unwrap_or(place), from))
}

/// `source 'SPEC': ...` and `sources 'SPEC' and ...`.
fn source(settings: &Settings, fault: &str) -> Option<(String, usize)> {
    let rest = fault.strip_prefix("source '").or_else(|| fault.strip_prefix("sources '"))?;
    let is_named = |value: &&Value| rest.strip_prefix(&*value.text.to_string_lossy()).is_some_and(|rest| rest.starts_with('\''));
    let value = settings.values("source").iter().find(is_named)?;
    Some((settings.place(value)?, 0))
}

/// `ring of ...`, which the ring itself says when it is made.
fn ring(settings: &Settings, fault: &str) -> Option<(String, usize)> {
    let place = settings.place(settings.values("ring").first().filter(|_| fault.starts_with("ring of "))?)?;
    Some((place + "ring: ", 0))
}

/// A fault whose flags are told as keys where it is one of the file (`in_file`), and where the file gives them in any case,
/// then with their lines; `place` is the key that it is a fault of. Quoted text, and lines below the first, are told as they are.
fn in_words_of_the_file(settings: &Settings, place: &str, fault: &str, in_file: bool) -> String {
    let (first, below) = fault.split_at(fault.find('\n').unwrap_or(fault.len()));
    let (mut told, mut lined, mut quoted) = (Vec::new(), vec![place], false);
    let mut words = first.split(' ').peekable();
    while let Some(word) = words.next() {
        let bare = word.trim_end_matches([',', ';', ':', ')']);
        let key = key_of(settings, bare).filter(|_| !quoted);
        let closes = bare.ends_with('\'') && (quoted || bare.len() > 1);
        quoted = (quoted || word.starts_with('\'')) && !closes;
        let Some(key) = key else {
            told.push(word.to_string());
            continue;
        };
        let at = settings.values(key).first().and_then(|value| settings.place(value)).filter(|_| !lined.contains(&key));
        let name = if in_file { key } else { bare };
        let end = &word[bare.len()..];
        let example = words.peek().filter(|_| in_file && end.is_empty()).and_then(|next| example(next));
        if let Some(example) = example {
            words.next();
            told.push(format!("{key} = {example}"));
            continue;
        }
        let at = at.map_or(String::new(), |at| format!(" ({})", at.trim_end_matches(": ")));
        lined.push(key);
        let is_example = in_file && end.is_empty() && words.peek().is_some_and(|next| next.starts_with('\''));
        told.push(format!("{name}{at}{end}{}", if is_example { " =" } else { "" }));
    }
    told.join(" ") + below
}

/// The value that a remedy shows behind a flag, as a file has it: `30s`, `10%`, `FILE`.
fn example(word: &str) -> Option<String> {
    let bare = word.trim_end_matches([',', ';', ')']);
    let shown = bare.starts_with(|first: char| first.is_ascii_digit()) || bare.chars().all(|c| c.is_ascii_uppercase());
    (shown && !bare.is_empty()).then(|| format!("\"{bare}\"{}", &word[bare.len()..]))
}
