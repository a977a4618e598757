//! `wirescope hold`: spans of a store that are not deleted, added, listed and removed.

use crate::NoResult;
use crate::args::{HoldAddArgs, HoldVerb};
use crate::speech::{Level, say};
use jiff::tz::TimeZone;
use scope_events::now_ns;
use scope_fault::Fault;
use scope_spelling::moment::{Here, Moment};
use scope_spelling::printable::{json_line, printable, shell_word};
use scope_spelling::time::{between, iso};
use scope_store::hold::{Hold, Holds};
use scope_store::volume::Store;
use serde_json::{Value, json};
use std::path::Path;

/// Does what was asked for; what is printed.
pub fn hold(what: &HoldVerb) -> Result<String, NoResult> {
    match what {
        HoldVerb::Add(args) => add(args),
        HoldVerb::List { store, json } => list(store, *json).map_err(refused),
        HoldVerb::Remove { id, store } => remove(id, store).map_err(refused),
    }
}

fn refused(fault: Fault) -> NoResult {
    NoResult::Refused(vec![fault])
}

fn add(args: &HoldAddArgs) -> Result<String, NoResult> {
    let here = Here { now_ns: now_ns(), zone: TimeZone::system() };
    let times = [("from", &args.from), ("to", &args.to)].map(|(key, text)| time(&here, key, text));
    let (from, to, store) = match (times, Store::look(&args.store)) {
        ([Ok(from), Ok(to)], Ok(store)) => (from, to, store),
        ([from, to], store) => {
            let faults = [store.err(), from.err(), to.err()];
            return Err(NoResult::Refused(faults.into_iter().flatten().collect()));
        }
    };
    let added = store
        .change_holds(|holds| holds.add(from.time_ns, to.time_ns, &args.note, here.now_ns).cloned())
        .map_err(refused)?;
    if from.is_local || to.is_local {
        let zone = here.zone_name();
        say(
            Level::Info,
            &format!("wirescope: times without a zone were taken in that of this system: {zone}"),
        );
    }
    Ok(line(&added))
}

fn time(here: &Here, key: &'static str, text: &str) -> Result<Moment, Fault> {
    here.read(text).map_err(|bad| Fault::of(key).with_value(bad.value).cause(bad.cause).remedy(bad.remedy))
}

fn list(store: &Path, json: bool) -> Result<String, Fault> {
    let seen = Store::look(store)?;
    let holds = seen.holds()?;
    if json {
        let holds: Vec<Value> = holds.list().iter().map(object).collect();
        let object = json!({"volume": seen.id().to_string(), "holds": holds}).to_string();
        return Ok(format!("{}\n", json_line(&object)));
    }
    match holds.list() {
        [] => Ok("nothing is held\n".to_string()),
        holds => Ok(holds.iter().map(line).collect()),
    }
}

fn remove(id: &str, store: &Path) -> Result<String, Fault> {
    let list = format!("its holds: wirescope hold list --store {}", shell_word(store));
    let number = id.trim().parse::<u64>();
    let number = number
        .map_err(|_| Fault::of_thing("hold").value(id, "is no number of a hold").remedy(list.clone()))?;
    let remove = |holds: &mut Holds| holds.remove(number).map_err(|fault| fault.remedy(list));
    let removed = Store::look(store)?.change_holds(remove)?;
    Ok(format!("removed {}", line(&removed)))
}

/// `hold 1: 2026-11-20T14:00:00Z to 15:00:00Z, incident 4711`.
fn line(hold: &Hold) -> String {
    let note = match &*hold.note {
        "" => String::new(),
        note => format!(", {}", printable(note)),
    };
    format!("hold {}: {}{note}\n", hold.id, between(hold.from_ns, "to", hold.to_ns))
}

fn object(hold: &Hold) -> Value {
    let [from, to, made] = [hold.from_ns, hold.to_ns, hold.made_ns].map(iso);
    scope_api::hold::Hold { id: hold.id, from, to, note: hold.note.clone(), made }.json()
}
