//! A file as written: TOML to texts, each with its line, held against the table of keys; all faults at once.
//!
//! ```toml
//! ring = "8GiB"                                # a value of one's own
//! dumps-max = 8                                # a plain number, where one is meant
//! mlock = true                                 # a switch
//! source = ["afpacket:eth0", "afpacket:eth1"]  # a list; a single string is a list of one
//! [[trigger]]                                  # an element of a list with words of its own
//! name = "dns"
//! expr = "udp port 53"
//! before = 5
//! ```

use crate::keys::{Key, Keys, Kind, Shape, nearest};
use crate::syntax::{self, line_of};
use scope_fault::{Fault, in_order};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml_edit::{InlineTable, Item, TableLike};

/// Longest file, bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most that a [`Kind::Count`] counts.
const COUNT_MAX: i64 = 9;
/// Numbers from here on, and below [`DECIMAL_MAX`], are told without a power of ten: a nanosecond of seconds.
const DECIMAL_MIN: f64 = 1e-9;
/// See [`DECIMAL_MIN`].
const DECIMAL_MAX: f64 = 1e15;
/// Letters of a value that a fault repeats.
const SHOWN_MAX: usize = 60;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// This line of the file.
    File(usize),
    /// The command line.
    Flag,
}

/// A word that an element of a list says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The value; switches are `true` or `false`.
    pub text: String,
    /// Its line.
    pub line: usize,
    /// Of a [`Kind::Tables`]: the line where each of them begins.
    pub lines: Vec<usize>,
}

/// One value: as the flag of that name would take it.
#[derive(Clone, Debug)]
pub struct Value {
    /// The text; of a switch `true` or `false`, of a count how often.
    pub text: OsString,
    /// Where from.
    pub origin: Origin,
    /// What an element that was a table says besides.
    pub own: Option<BTreeMap<&'static str, Own>>,
    /// The line of an element's main word, where it was a table.
    pub main_line: Option<usize>,
    /// Words that such a table said, but that a flag of the same name overrides.
    pub given_way: Vec<&'static str>,
}

impl Value {
    /// A value without words of its own.
    pub fn new(text: impl Into<OsString>, origin: Origin) -> Value {
        Value { text: text.into(), origin, own: None, main_line: None, given_way: Vec::new() }
    }

    /// Leaves what the flags give to them, also where a table says it of itself.
    pub(crate) fn give_way(&mut self, flags: &[(String, Vec<Value>)], shape: Option<&Shape>) {
        let Some(own) = self.own.as_mut().filter(|_| self.origin != Origin::Flag) else { return };
        let is_given = |word: &str| flags.iter().any(|(flag, _)| flag == word);
        let gives_way = |word: &str| {
            let other = shape.and_then(|shape| shape.other(word));
            is_given(word) || other.is_some_and(is_given)
        };
        let (away, kept) = std::mem::take(own).into_iter().partition(|(word, _)| gives_way(word));
        *own = kept;
        let away: BTreeMap<&'static str, Own> = away;
        self.given_way = away.into_keys().collect();
    }
}

/// A file, read.
#[derive(Clone, Debug)]
pub struct Written {
    /// The file.
    pub file: PathBuf,
    /// What it says, by key. A list without elements is there with no values.
    pub values: Vec<(String, Vec<Value>)>,
}

/// What is wrong with a file.
#[derive(Debug, Default)]
pub struct FileError {
    /// All faults at once, in the order of their lines.
    pub faults: Vec<Fault>,
    /// What else it says, so that faults of that can be reported, too.
    pub rest: Option<Written>,
}

impl From<Fault> for FileError {
    fn from(fault: Fault) -> FileError {
        FileError { faults: vec![fault], rest: None }
    }
}

impl Written {
    /// Reads a file.
    ///
    /// # Errors
    /// All faults, with place, cause and remedy.
    pub fn read(path: &Path, keys: &Keys) -> Result<Written, FileError> {
        // A pipe would be waited for.
        match std::fs::metadata(path) {
            Ok(kind) if !kind.is_file() && !kind.is_dir() => Err(not_regular().in_file(path, None).into()),
            Ok(_) => Written::read_from(path, File::open(path), keys),
            Err(error) => Written::read_from(path, Err(error), keys),
        }
    }

    /// Reads a file that somebody has opened, or couldn't.
    ///
    /// # Errors
    /// As [`Written::read`].
    pub fn read_from(path: &Path, opened: io::Result<File>, keys: &Keys) -> Result<Written, FileError> {
        let text = text(opened).map_err(|fault| fault.in_file(path, None))?;
        Written::parse(path, &text, keys)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// As [`Written::read`].
    pub fn parse(path: &Path, text: &str, keys: &Keys) -> Result<Written, FileError> {
        let document = syntax::document(text).map_err(|faults| {
            let fault = |(line, cause): (usize, String)| {
                let remedy = "fix this line: write KEY = VALUE, and put text in quotes";
                Fault::of_thing("no TOML").cause(cause).remedy(remedy).in_file(path, Some(line))
            };
            FileError { faults: faults.into_iter().map(fault).collect(), rest: None }
        })?;
        let has_tables = |(_, item): &(&str, &Item)| item.is_array_of_tables();
        let first_list = document.as_table().iter().find(has_tables).map_or("trigger", |(name, _)| name);
        let mut reader = Reader { text, path, keys, first_list, faults: Vec::new() };
        let mut values = Vec::new();
        for (name, item) in document.as_table().iter() {
            let line = reader.line(document.as_table().key(name).and_then(|key| key.span()));
            match keys.get(name) {
                Some(key) => values.push((name.to_string(), reader.values(key, item, line))),
                None => {
                    reader.fault(line, Fault::of(name).cause(UNKNOWN).remedy(nearest(name, keys.names())))
                }
            }
        }
        let written = Written { file: path.into(), values };
        match reader.faults.is_empty() {
            true => Ok(written),
            false => Err(FileError { faults: in_order(reader.faults), rest: Some(written) }),
        }
    }
}

fn not_regular() -> Fault {
    Fault::whole("is not a regular file, so a reload could not read it again").remedy("give a file")
}

/// The text of a regular file that isn't too long.
fn text(opened: io::Result<File>) -> Result<String, Fault> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            Fault::whole("no such file").remedy("write it, or see 'wirescope config show'")
        }
        _ => Fault::whole(format!("can't be read: {error}")).remedy("give another file, or change its mode"),
    };
    let file = opened.map_err(refused)?;
    let kind = file.metadata().map_err(refused)?;
    if kind.is_dir() {
        return Err(Fault::whole("is a folder").remedy("give a file"));
    }
    if !kind.is_file() {
        return Err(not_regular());
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Fault::whole("is longer than 1 MiB, the most that a configuration may have")
            .remedy("give another file"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Fault::whole(format!("is not UTF-8 text (at byte {at})"))
            .remedy("save it as UTF-8, or give another file")
    })
}

/// Of a word in a key's place.
const UNKNOWN: &str = "there is no such key";

/// A file that is being read: gathers faults.
struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    keys: &'a Keys,
    /// The first list that is written as tables: general keys stand above it.
    first_list: &'a str,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn line(&self, span: Option<Range<usize>>) -> usize {
        line_of(self.text, span)
    }

    fn fault(&mut self, line: usize, fault: Fault) {
        self.faults.push(fault.in_file(self.path, Some(line)));
    }

    /// The line where each table of a list of tables begins; `line`: that of all.
    fn lines_of_tables(&self, item: &Item, line: usize) -> Vec<usize> {
        let of = |span: Option<Range<usize>>| span.map_or(line, |span| self.line(Some(span)));
        match (item.as_array_of_tables(), item.as_array()) {
            (Some(tables), _) => tables.iter().map(|table| of(table.span())).collect(),
            (None, Some(array)) => array.iter().map(|value| of(value.span())).collect(),
            (None, None) => Vec::new(),
        }
    }

    /// The values of one key; none where it is faulty.
    fn values(&mut self, key: &Key, item: &Item, line: usize) -> Vec<Value> {
        if key.kind == Kind::List {
            return self.elements(key, item, line);
        }
        match scalar(key.kind, item) {
            Some(text) => self.value(line, &key.name, text),
            None => {
                let remedy = format!("write {}", example(&key.name, key.kind));
                self.fault(line, unfit(Fault::of(&key.name), item).remedy(remedy));
                Vec::new()
            }
        }
    }

    /// One value, if it can be one.
    fn value(&mut self, line: usize, key: &str, text: String) -> Vec<Value> {
        if self.is_text(line, key, &text) { vec![Value::new(text, Origin::File(line))] } else { Vec::new() }
    }

    /// Whether a text could stand on a command line; says so if not.
    fn is_text(&mut self, line: usize, place: &str, text: &str) -> bool {
        let fits = !text.contains('\0');
        if !fits {
            let shown: String = text.chars().take(SHOWN_MAX).collect();
            let cause = format!("{shown:?} contains a NUL character");
            self.fault(line, Fault::of(place).with_value(text).cause(cause).remedy("remove it"));
        }
        fits
    }

    /// The elements of a list.
    fn elements(&mut self, key: &Key, item: &Item, line: usize) -> Vec<Value> {
        if let Some(tables) = item.as_array_of_tables().filter(|_| key.shape.is_some()) {
            return tables
                .iter()
                .filter_map(|table| self.element(key, table, self.line(table.span())))
                .collect();
        }
        if let Some(array) = item.as_array() {
            let mut values = Vec::new();
            for element in array {
                let line = element.span().map_or(line, |span| self.line(Some(span)));
                match (element.as_str(), element.as_inline_table().filter(|_| key.shape.is_some())) {
                    (Some(text), _) => values.extend(self.value(line, &key.name, text.to_string())),
                    (None, Some(table)) => values.extend(self.element(key, table, line)),
                    (None, None) => {
                        let (shown, found) = found(&Item::Value(element.clone()));
                        let mut fault = Fault::of(&key.name).cause(format!("an element of the list {found}"));
                        fault.value = shown;
                        self.fault(line, fault.remedy(list_example(key)));
                    }
                }
            }
            return values;
        }
        match item.as_str() {
            Some(text) => self.value(line, &key.name, text.to_string()),
            None => {
                self.fault(line, unfit(Fault::of(&key.name), item).remedy(list_example(key)));
                Vec::new()
            }
        }
    }

    /// An element that is a table.
    fn element(&mut self, key: &Key, table: &dyn TableLike, line: usize) -> Option<Value> {
        let Shape { main, more, instead } = key.shape?;
        let (mut text, mut own, mut main_line) = (None, BTreeMap::new(), None);
        for (name, item) in table.iter() {
            let line = table.key(name).and_then(|key| key.span()).map_or(line, |span| self.line(Some(span)));
            let place = format!("{}.{name}", key.name);
            let known = more.iter().find(|(known, _)| *known == name);
            let kind = if name == main { Some(Kind::Text) } else { known.map(|(_, kind)| *kind) };
            let Some(kind) = kind else {
                let names = [main].into_iter().chain(more.iter().map(|(name, _)| *name));
                let remedy = match self.keys.get(name) {
                    // TOML has no word for "the table ends here".
                    Some(_) => {
                        format!(
                            "'{name}' is a key of the whole file: write it above the first [[{}]]",
                            self.first_list
                        )
                    }
                    None => nearest(name, names),
                };
                self.fault(line, Fault::of(&place).cause(UNKNOWN).remedy(remedy));
                continue;
            };
            match (scalar(kind, item), known) {
                (None, _) => {
                    let remedy = format!("write {}", example(name, kind));
                    self.fault(line, unfit(Fault::of(&place), item).remedy(remedy));
                }
                (Some(value), _) if !self.is_text(line, &place, &value) => {}
                (Some(value), Some((name, _))) => {
                    let lines = self.lines_of_tables(item, line);
                    own.insert(*name, Own { text: value, line, lines });
                }
                (Some(value), None) => (text, main_line) = (Some(value), Some(line)),
            }
        }
        for (one, other) in instead {
            if table.contains_key(one) && table.contains_key(other) {
                let fault = Fault::of(&key.name).cause(format!("there are both '{one}' and '{other}' in it"));
                self.fault(line, fault.remedy("omit one of them"));
            }
        }
        let is_replaced = instead.iter().any(|(one, other)| *one == main && table.contains_key(other));
        if !table.contains_key(main) && !is_replaced {
            let fault = Fault::of(&key.name).cause(format!("there is no '{main}' in it"));
            self.fault(line, fault.remedy(format!("add {}", example(main, Kind::Text))));
        }
        // One with words of its own stays, so that these are looked at, too, and others keep their places.
        let text = text.or_else(|| (!more.is_empty()).then(String::new))?;
        Some(Value { own: Some(own), main_line, ..Value::new(text, Origin::File(line)) })
    }
}

/// The text of a value that is of the right kind.
fn scalar(kind: Kind, item: &Item) -> Option<String> {
    let number = || item.as_integer().map(|number| number.to_string());
    match kind {
        Kind::Switch => item.as_bool().map(|on| on.to_string()),
        Kind::Count => {
            let count = item.as_integer().filter(|count| (0..=COUNT_MAX).contains(count));
            count.or(item.as_bool().map(i64::from)).map(|count| count.to_string())
        }
        Kind::Text | Kind::List => item.as_str().map(str::to_string),
        Kind::Tables => tables_text(item),
        Kind::Amount => {
            let fraction = || item.as_float().filter(|number| number.is_finite()).map(decimal);
            item.as_str().map(str::to_string).or_else(number).or_else(fraction)
        }
    }
}

/// Tables in one line, as an array of inline tables; `None`: it is no list of tables.
fn tables_text(item: &Item) -> Option<String> {
    let in_line = |mut table: InlineTable| {
        for (_, value) in table.iter_mut() {
            value.decor_mut().clear();
        }
        table.fmt();
        table.decor_mut().clear();
        table.to_string().trim().to_string()
    };
    let tables: Vec<String> = match (item.as_array_of_tables(), item.as_array()) {
        (Some(tables), _) => tables.iter().map(|table| in_line(table.clone().into_inline_table())).collect(),
        (None, Some(array)) => {
            let each = array.iter().map(|value| value.as_inline_table().cloned().map(in_line));
            each.collect::<Option<_>>()?
        }
        (None, None) => return None,
    };
    Some(format!("[{}]", tables.join(", ")))
}

/// A word of a table within an element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A string, or a number as it is written.
    Text(String),
    /// Strings.
    List(Vec<String>),
}

/// The tables of a [`Kind::Tables`], as [`Own::text`] has them: what each says, by word.
///
/// # Errors
/// A word that is neither a string nor a number nor a list of strings: the table's place, from 0, and the word.
pub fn tables(text: &str) -> Result<Vec<BTreeMap<String, Word>>, (usize, String)> {
    let parsed = format!("x = {text}").parse::<toml_edit::DocumentMut>();
    let Ok(document) = parsed else { return Err((0, text.to_string())) };
    let array = document.get("x").and_then(Item::as_array);
    let each = array.into_iter().flatten().enumerate().map(|(at, value)| {
        let table = value.as_inline_table().ok_or_else(|| (at, value.to_string()))?;
        let words = table.iter().map(|(name, value)| {
            let list = |array: &toml_edit::Array| {
                array.iter().map(|text| text.as_str().map(str::to_string)).collect::<Option<Vec<String>>>()
            };
            let word = match (value.as_str(), value.as_integer(), value.as_array()) {
                (Some(text), ..) => Some(Word::Text(text.to_string())),
                (_, Some(number), _) => Some(Word::Text(number.to_string())),
                (.., Some(array)) => list(array).map(Word::List),
                _ => None,
            };
            Ok((name.to_string(), word.ok_or_else(|| (at, name.to_string()))?))
        });
        words.collect()
    });
    each.collect()
}

/// A number as people write it; one of hundreds of digits with its power of ten.
fn decimal(number: f64) -> String {
    if (DECIMAL_MIN..DECIMAL_MAX).contains(&number.abs()) {
        number.to_string()
    } else {
        format!("{number:?}")
    }
}

/// A fault of something that isn't what it should be.
fn unfit(fault: Fault, item: &Item) -> Fault {
    let (value, found) = found(item);
    let mut fault = fault.cause(found);
    fault.value = value;
    fault
}

/// What something is that should be something else: as it stands there, if it is a single value, and in
/// words.
fn found(item: &Item) -> (Option<String>, String) {
    let shown = || item.to_string().trim().chars().take(SHOWN_MAX).collect::<String>();
    match item {
        Item::Value(value) if value.is_array() => (None, "is a list, which doesn't fit".to_string()),
        Item::Value(value) if !value.is_inline_table() => {
            (Some(shown()), format!("is {}, which doesn't fit", shown()))
        }
        _ => (None, "is a table, which doesn't fit".to_string()),
    }
}

fn example(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Switch => format!("{name} = true or {name} = false"),
        Kind::Count => format!("{name} = true, or a number from 0 to {COUNT_MAX}"),
        Kind::Text | Kind::List => format!("{name} = \"...\", in quotes"),
        Kind::Amount => format!("{name} = \"...\", in quotes, or a plain number"),
        Kind::Tables => format!("a table for each {name}, in double brackets"),
    }
}

fn list_example(Key { name, shape, .. }: &Key) -> String {
    match shape {
        Some(Shape { main, .. }) => format!("write {name} = [\"...\"], or [[{name}]] with {main} = \"...\""),
        None => format!("write {name} = [\"...\"]"),
    }
}
