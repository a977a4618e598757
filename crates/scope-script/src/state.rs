//! The Lua state of a script: its limits, what it starts with, and calls into it.

use crate::error::{Disabled, ScriptError};
use crate::hit::{Flow, Hit};
use crate::lending::Lending;
use crate::library::Libraries;
use crate::machine_code;
use crate::record::Key;
use mlua::{Function, IntoLuaMulti, LightUserData, Lua, MultiValue, Table, Value};
use scope_spelling::values::parse_duration_ns;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

/// Lines of `print` that wait for somebody who takes them; further ones are counted.
const NOTES_MAX: usize = 100;
/// Longest span of time that an answer may name: a year.
const SPAN_NS_MAX: i64 = 366 * 86_400 * 1_000_000_000;

const SOURCES: [(&str, &str); 7] = [
    ("types", include_str!("lua/types.lua")),
    ("views", include_str!("lua/views.lua")),
    ("dns", include_str!("lua/dns.lua")),
    ("flows", include_str!("lua/flows.lua")),
    ("protocols", include_str!("lua/protocols.lua")),
    ("loop", include_str!("lua/loop.lua")),
    ("prelude", include_str!("lua/prelude.lua")),
];

/// How a script is loaded.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name in messages: its file's name.
    pub name: String,
    /// Most bytes of Lua's own memory, garbage included.
    pub memory_bytes_max: usize,
    /// The libraries that were opened for it.
    pub libraries: Libraries,
}

impl Options {
    /// A script with this name, 256 MiB and no library.
    pub fn named(name: &str) -> Options {
        Options { name: name.to_string(), memory_bytes_max: 256 << 20, libraries: Libraries::default() }
    }
}

/// What Lua calls leave for Rust.
#[derive(Debug, Default)]
struct Left {
    notes: RefCell<Vec<String>>,
    notes_lost: Cell<u64>,
    wants_keys: Cell<bool>,
}

/// A loaded script, of either kind.
#[derive(Debug)]
pub(crate) struct State {
    rust: Table,
    run: Option<Function>,
    left: Rc<Left>,
    name: String,
    memory_bytes_max: usize,
    disabled: Option<Disabled>,
    places: Vec<usize>,
    lua: Lua,
    /// Behind `lua`, so that it goes after it.
    pub(crate) lending: Rc<Lending>,
}

impl State {
    /// Runs a script's text. `dump`: it has to be a dump script.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn load(text: &str, options: &Options, dump: bool) -> Result<State, ScriptError> {
        let no_state = |error: mlua::Error| ScriptError::State {
            script: options.name.clone(),
            cause: error.to_string(),
        };
        let lua = machine_code::new_lua();
        let lending = Rc::new(Lending::new());
        let left = Rc::new(Left::default());
        let rust = prelude(&lua, &lending, &left, &options.libraries).map_err(no_state)?;
        lua.set_memory_limit(options.memory_bytes_max).map_err(no_state)?;
        let load: Function = rust.get("load").map_err(no_state)?;
        let refused = |report: String| ScriptError::Load { script: options.name.clone(), report };
        let problem: Option<mlua::LuaString> = load
            .call((lua.create_string(text).map_err(no_state)?, options.name.as_str(), dump))
            .map_err(|error| refused(error.to_string()))?;
        if let Some(problem) = problem {
            return Err(refused(problem.to_string_lossy()));
        }
        let run = (!dump).then(|| rust.get("run")).transpose().map_err(no_state)?;
        Ok(State {
            rust,
            run,
            left,
            name: options.name.clone(),
            memory_bytes_max: options.memory_bytes_max,
            disabled: None,
            places: Vec::new(),
            lua,
            lending,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn lua(&self) -> &Lua {
        &self.lua
    }

    pub(crate) fn disabled(&self) -> Option<&Disabled> {
        self.disabled.as_ref()
    }

    /// Whether keys of flows are needed for each packet.
    pub(crate) fn wants_keys(&self) -> bool {
        self.left.wants_keys.get()
    }

    /// A function of the prelude.
    pub(crate) fn function(&self, name: &str) -> mlua::Result<Function> {
        self.rust.get(name)
    }

    /// Asks the prelude; nothing, where that fails.
    pub(crate) fn ask<R: mlua::FromLuaMulti>(&self, name: &str, args: impl IntoLuaMulti) -> Option<R> {
        self.function(name).and_then(|function| function.call(args)).ok()
    }

    /// Runs the script over the records 0 to `count` - 1.
    pub(crate) fn run(&mut self, count: usize) {
        let Some(run) = self.run.clone() else { return };
        self.call(&run, count);
    }

    /// Calls the script. What it does wrong is counted; if that is too much, it is disabled.
    pub(crate) fn call(&mut self, function: &Function, args: impl IntoLuaMulti) -> bool {
        self.lending.forget_hits();
        let fine = match function.call::<Option<bool>>(args) {
            Ok(fine) => fine != Some(false),
            Err(error) => {
                self.disable_for(&error);
                false
            }
        };
        if !fine && self.disabled.is_none() {
            self.disabled = self.disabled_by_lua();
        }
        fine
    }

    /// Calls a function of the prelude, as [`State::call`] does.
    pub(crate) fn call_named(&mut self, name: &str, args: impl IntoLuaMulti) -> bool {
        match self.function(name) {
            Ok(function) => self.call(&function, args),
            Err(error) => {
                self.disable_for(&error);
                false
            }
        }
    }

    fn disable_for(&mut self, error: &mlua::Error) {
        let report = self.report().unwrap_or_else(|| error.to_string());
        self.disabled.get_or_insert(match error {
            mlua::Error::MemoryError(_) => {
                Disabled::Memory { memory_bytes_max: self.memory_bytes_max, report }
            }
            _ => Disabled::Broken { report: error.to_string() },
        });
    }

    fn disabled_by_lua(&self) -> Option<Disabled> {
        let why: String = self.ask::<Option<String>>("disabled", ())??;
        let report = self.report().unwrap_or_default();
        Some(match why.as_str() {
            "memory" => Disabled::Memory { memory_bytes_max: self.memory_bytes_max, report },
            _ => Disabled::Row { packets: self.lending.errors().1, report },
        })
    }

    /// The traceback of the first error.
    pub(crate) fn report(&self) -> Option<String> {
        let report: Option<mlua::LuaString> = self.ask("report", ())?;
        report.map(|report| report.to_string_lossy())
    }

    /// What the script printed since the last call, and how many lines there was no place for.
    pub(crate) fn take_notes(&self) -> (Vec<String>, u64) {
        (self.left.notes.take(), self.left.notes_lost.take())
    }

    /// Which of `count` packets the last run hit.
    pub(crate) fn places(&mut self, count: usize) -> &[usize] {
        self.lending.hits(count, &mut self.places);
        &self.places
    }

    /// The hits of the last run: of the records that stand for the packets from `base` on, and of moments.
    pub(crate) fn hits(
        &mut self,
        base: usize,
        count: usize,
        times: impl Fn(usize) -> i64,
        now_ns: i64,
        hits: &mut Vec<Hit>,
    ) {
        self.lending.hits(count, &mut self.places);
        let first = hits.len();
        hits.extend(self.places.iter().map(|&at| Hit {
            packet: Some(base + at),
            time_ns: times(base + at),
            ..Hit::default()
        }));
        if !self.lending.detailed() {
            return;
        }
        let answers: Vec<Table> = self.ask("answers", ()).unwrap_or_default();
        for answer in answers {
            match answer.get::<Option<usize>>("hit") {
                Ok(Some(at)) if first + at < hits.len() => detail(&answer, &mut hits[first + at]),
                _ => {
                    let mut hit = Hit { time_ns: now_ns, ..Hit::default() };
                    detail(&answer, &mut hit);
                    hits.push(hit);
                }
            }
        }
    }
}

/// Takes over what an answer adds. The prelude has checked it.
fn detail(answer: &Table, hit: &mut Hit) {
    let text: Option<mlua::LuaString> = answer.get("text").unwrap_or_default();
    hit.text = text.map(|text| text.to_string_lossy());
    let span = |name: &str| answer.get::<Option<f64>>(name).unwrap_or_default().map(|ns| ns as i64);
    hit.before_ns = span("before");
    hit.after_ns = span("after");
    let list = |name: &str| answer.get::<Vec<mlua::LuaString>>(name).unwrap_or_default();
    hit.hosts = list("hosts").iter().filter_map(|bytes| address_of(&bytes.as_bytes())).collect();
    hit.flows = list("flows")
        .iter()
        .filter_map(|bytes| Key::from_bytes(&bytes.as_bytes()))
        .map(|key| Flow::of(&key))
        .collect();
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Loads the part in Lua, and gives what Rust calls of it.
fn prelude(lua: &Lua, lending: &Rc<Lending>, left: &Rc<Left>, libraries: &Libraries) -> mlua::Result<Table> {
    let sources = lua.create_table()?;
    for (name, text) in SOURCES {
        sources.set(name, text)?;
    }
    let host = host(lua, lending, left, libraries)?;
    let [control, records, keys] = lending.addresses().map(LightUserData);
    let (_, text) = SOURCES[SOURCES.len() - 1];
    let prelude = lua.load(text).set_name("=wirescope/prelude").into_function()?;
    prelude.call((control, records, keys, sources, host))
}

/// What the part in Lua calls of Rust.
fn host(lua: &Lua, lending: &Rc<Lending>, left: &Rc<Left>, libraries: &Libraries) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    host.set(
        "duration",
        lua.create_function(|_, text: mlua::LuaString| Ok(duration(&text.to_string_lossy())))?,
    )?;
    host.set(
        "address",
        lua.create_function(|lua, value: Value| {
            let Value::String(text) = value else { return Ok(None) };
            let address = text.to_str().ok().and_then(|text| text.parse::<IpAddr>().ok());
            address
                .map(|address| match address {
                    IpAddr::V4(four) => lua.create_string(four.octets()),
                    IpAddr::V6(six) => lua.create_string(six.octets()),
                })
                .transpose()
        })?,
    )?;
    let lending = Rc::clone(lending);
    host.set(
        "key",
        lua.create_function(move |lua, slot: usize| {
            lending.key(slot).map(|key| lua.create_string(key)).transpose()
        })?,
    )?;
    let notes = Rc::clone(left);
    host.set(
        "note",
        lua.create_function(move |_, text: mlua::LuaString| {
            let mut lines = notes.notes.borrow_mut();
            if lines.len() < NOTES_MAX {
                lines.push(text.to_string_lossy());
            } else {
                notes.notes_lost.set(notes.notes_lost.get() + 1);
            }
            Ok(())
        })?,
    )?;
    let wants = Rc::clone(left);
    host.set(
        "want_keys",
        lua.create_function(move |_, _: MultiValue| {
            wants.wants_keys.set(true);
            Ok(())
        })?,
    )?;
    let libraries = libraries.clone();
    host.set(
        "library",
        lua.create_function(move |_, name: Value| {
            let Value::String(name) = name else { return Ok(None) };
            Ok(libraries.path(&name.to_string_lossy()).map(str::to_string))
        })?,
    )?;
    Ok(host)
}

/// ns, or what is wrong.
fn duration(text: &str) -> (Option<f64>, Option<String>) {
    match parse_duration_ns(text) {
        Ok(ns) if (0..=SPAN_NS_MAX).contains(&ns) => (Some(ns as f64), None),
        Ok(_) => (None, Some(format!("'{text}' is longer than a year; write a span up to 366d"))),
        Err(problem) => (None, Some(problem.to_string())),
    }
}
