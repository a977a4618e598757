//! The dumps of a run, as answers show them: those that are finished as the log has them, and those that are open.

use crate::peer::Owner;
use http::StatusCode;
use scope_api::Problem;
use scope_api::parameters::{DUMPS, DUMPS_MAX, once};
use scope_api::routes::Action;
use scope_engine::{DumpStatus, DumpSummary, summary};
use scope_events::Fact;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Finished dumps that are known at most; the oldest are forgotten, and their files stay.
const FINISHED_MAX: usize = 10_000;
/// When it may be tried again where all places are taken.
pub(crate) const RETRY_AFTER_S: u64 = 1;
/// Open dumps that one identity may have fired; whoever may do everything may fire more.
pub(crate) const OPEN_MAX: usize = 2;
/// Those of all such identities together: of a live run's places some are left for its triggers, and for whoever may do
/// everything.
const OPEN_ALL_MAX: usize = 5;

/// Triggers of which the metrics have rows of their own; the counts of others stand under [`OTHERS`].
pub(crate) const TRIGGERS_MAX: usize = 1000;
/// The name of all triggers beyond.
pub(crate) const OTHERS: &str = "(others)";

/// The refusal of a fire while so many dumps are open.
fn too_many(status: StatusCode, cause: String) -> Problem {
    let remedy = "wait until one is finished; an operator can end one: POST /api/v1/dumps/ID/end";
    Problem::new(status, "dumps", cause, remedy).retry_after(RETRY_AFTER_S)
}

/// A finished dump.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// As the log has it, with its state.
    pub facts: Arc<Value>,
    /// Names of its files in the folder of the run's dumps, and the link type that each says.
    pub files: Arc<[OsString]>,
}

/// What a trigger's finished dumps come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    pub dumps: u64,
    pub incomplete: u64,
    /// For a loss, or because they couldn't be written.
    pub failed: u64,
    pub packets: u64,
    pub bytes: u64,
}

impl Finished {
    /// What its owner sees of it: without the counters of interfaces, which count all packets. `None`: everything.
    pub(crate) fn shown(&self, owner: Option<&Owner>) -> Value {
        let mut facts = Value::clone(&self.facts);
        if let (Some(_), Some(object)) = (owner, facts.as_object_mut()) {
            object.remove("counters");
            // Where the run has its files is nobody's business.
            let own = |path: &mut Value| {
                let name = path.as_str().and_then(|path| Path::new(path).file_name()?.to_str());
                *path = json!(name);
            };
            object.get_mut("path").map(own);
            object.get_mut("paths").and_then(Value::as_array_mut).into_iter().flatten().for_each(own);
        }
        facts
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Dumps(Arc<Mutex<Known>>);

/// One of the dumps that an identity may have open at once.
#[derive(Debug)]
pub(crate) struct Place {
    identity: String,
    known: Weak<Mutex<Known>>,
    is_kept: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Where it is known to the table, the table lets it go.
        if let Some(known) = self.known.upgrade().filter(|_| !self.is_kept) {
            known.lock().unwrap_or_else(PoisonError::into_inner).release(&self.identity);
        }
    }
}

#[derive(Default)]
struct Known {
    finished: BTreeMap<u64, Finished>,
    open: BTreeMap<u64, Value>,
    /// Whose those are that somebody fired who sees only these.
    owners: BTreeMap<u64, Owner>,
    /// Open dumps that were fired, or are being fired now, by whom.
    fires: BTreeMap<String, usize>,
    /// By whom an open one was fired.
    fired_by: BTreeMap<u64, String>,
    /// The newest that was forgotten.
    forgotten: u64,
    /// By trigger, those that were forgotten included; at most [`TRIGGERS_MAX`] and [`OTHERS`].
    made: BTreeMap<String, Made>,
}

impl Known {
    fn count(&mut self, report: &DumpSummary) {
        let is_known = self.made.contains_key(&report.trigger) || self.made.len() < TRIGGERS_MAX;
        let name = if is_known { &report.trigger } else { OTHERS };
        let made = self.made.entry(name.to_string()).or_default();
        made.dumps += 1;
        made.incomplete += u64::from(!report.complete);
        made.failed += u64::from(report.has_failed());
        made.packets += report.packets;
        made.bytes += report.bytes;
    }
}

impl Known {
    fn release(&mut self, identity: &str) {
        if let Some(fires) = self.fires.get_mut(identity) {
            *fires -= 1;
            if *fires == 0 {
                self.fires.remove(identity);
            }
        }
    }

    /// Whether `owner` sees this one.
    fn shows(&self, id: u64, owner: Option<&Owner>) -> bool {
        owner.is_none_or(|owner| self.owners.get(&id) == Some(owner))
    }
}

impl Dumps {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One is finished.
    pub(crate) fn finished(&self, report: &DumpSummary) {
        let mut facts = summary::dump(report).write();
        if let Some(object) = facts.as_object_mut() {
            object.insert("state".to_string(), json!("finished"));
        }
        let files = report.paths.iter().filter_map(|path| path.file_name()).map(OsString::from).collect();
        let mut known = self.lock();
        known.count(report);
        known.open.remove(&report.id);
        if let Some(identity) = known.fired_by.remove(&report.id) {
            known.release(&identity);
        }
        known.finished.insert(report.id, Finished { facts: Arc::new(facts), files });
        if known.finished.len() > FINISHED_MAX
            && let Some((forgotten, _)) = known.finished.pop_first()
        {
            known.forgotten = known.forgotten.max(forgotten);
            known.owners.retain(|id, _| *id > forgotten);
        }
    }

    /// Those that are being made now.
    pub(crate) fn open_now(&self, open: &[DumpStatus]) {
        let entry = |dump: &DumpStatus| {
            let value = json!({
                "id": dump.id, "state": "open", "trigger": dump.trigger, "packets": dump.packets,
                "lag_ns": dump.lag_ns,
            });
            (dump.id, value)
        };
        let mut known = self.lock();
        let open = open.iter().map(entry).filter(|(id, _)| !known.finished.contains_key(id)).collect();
        known.open = open;
    }

    /// Someone is about to fire.
    ///
    /// # Errors
    /// Too many of that one's dumps are open.
    pub(crate) fn reserve(&self, identity: &str) -> Result<Place, Problem> {
        let mut known = self.lock();
        if known.fires.values().sum::<usize>() >= OPEN_ALL_MAX {
            let cause = format!("{OPEN_ALL_MAX} dumps that were fired by requests are open");
            return Err(too_many(StatusCode::SERVICE_UNAVAILABLE, cause));
        }
        let fires = known.fires.entry(identity.to_string()).or_default();
        if *fires >= OPEN_MAX {
            let cause = format!("{OPEN_MAX} dumps that {identity} fired are open");
            return Err(too_many(StatusCode::TOO_MANY_REQUESTS, cause));
        }
        *fires += 1;
        Ok(Place { identity: identity.to_string(), known: Arc::downgrade(&self.0), is_kept: false })
    }

    /// One has begun, which `owner` fired, if that one sees no others; it has this place until it is finished.
    pub(crate) fn begun(&self, id: u64, trigger: &str, owner: Option<&Owner>, place: Option<Place>) {
        let mut known = self.lock();
        if let Some(mut place) = place {
            place.is_kept = true;
            match known.finished.contains_key(&id) {
                true => known.release(&place.identity),
                false => drop(known.fired_by.insert(id, place.identity.clone())),
            }
        }
        known.owners.extend(owner.map(|owner| (id, owner.clone())));
        if !known.finished.contains_key(&id) {
            let value = json!({"id": id, "state": "open", "trigger": trigger, "packets": 0, "lag_ns": null});
            known.open.entry(id).or_insert(value);
        }
    }

    /// What they come to, by trigger.
    pub(crate) fn made(&self) -> BTreeMap<String, Made> {
        self.lock().made.clone()
    }

    /// One that is finished; `None`: it isn't, or there is none.
    pub(crate) fn get_finished(&self, id: u64) -> Option<Finished> {
        self.lock().finished.get(&id).cloned()
    }

    /// One.
    ///
    /// # Errors
    /// There is none that `owner` sees; `None` sees all.
    pub(crate) fn get(&self, id: &str, owner: Option<&Owner>) -> Result<Result<Finished, Value>, Problem> {
        let helped = |cause: String, remedy: &str| Problem::new(StatusCode::NOT_FOUND, "id", cause, remedy);
        let none = |cause: String| helped(cause, "see GET /api/v1/dumps");
        let Ok(id) = id.parse::<u64>() else { return Err(none(format!("'{id}' is no number of a dump"))) };
        let known = self.lock();
        if !known.shows(id, owner) {
            return Err(none(format!("this run has no dump {id}"))); // as of one that never was
        }
        match (known.finished.get(&id), known.open.get(&id)) {
            (Some(finished), _) => Ok(Ok(finished.clone())),
            (None, Some(open)) => Ok(Err(open.clone())),
            (None, None) if (1..=known.forgotten).contains(&id) => {
                let cause = format!("dump {id} is one of the oldest, of which nothing is known any more");
                Err(helped(cause, "look for it in the log, wirescope.jsonl"))
            }
            (None, None) => Err(none(format!("this run has no dump {id}"))),
        }
    }

    /// The files of a finished one that `owner` sees, by their names in the folder.
    ///
    /// # Errors
    /// There is none, or it isn't finished.
    pub(crate) fn files(&self, id: &str, owner: Option<&Owner>) -> Result<Arc<[OsString]>, Problem> {
        match self.get(id, owner)? {
            Ok(finished) => Ok(finished.files),
            Err(_) => {
                let remedy = "wait for it: GET /api/v1/events says when it is";
                Err(Problem::new(StatusCode::CONFLICT, "id", format!("dump {id} isn't finished"), remedy))
            }
        }
    }

    /// A page of those that `owner` sees, the oldest first, for these parameters of a query.
    ///
    /// # Errors
    /// A parameter can't be meant.
    pub(crate) fn page(&self, query: &[(String, String)], owner: Option<&Owner>) -> Result<Value, Problem> {
        let bad = |key: &str, cause: String, remedy: &str| {
            Problem::new(StatusCode::BAD_REQUEST, key, cause, remedy)
        };
        let (mut limit, mut after, mut trigger, mut complete) = (DUMPS, 0, None, None);
        for (key, value) in once(Action::Dumps, query)? {
            let no_number = |_| bad(key, format!("'{value}' is no number"), "write e.g. 100");
            let number = || value.parse::<u64>().map_err(no_number);
            match key {
                "limit" => limit = number()?,
                "after" => after = number()?,
                "trigger" => trigger = Some(value),
                _ => match value {
                    "true" => complete = Some(true),
                    "false" => complete = Some(false),
                    _ => {
                        let cause = format!("'{value}' is neither true nor false");
                        return Err(bad(key, cause, "write true or false, or omit it"));
                    }
                },
            }
        }
        if !(1..=DUMPS_MAX).contains(&limit) {
            let remedy = format!("write a number from 1 to {DUMPS_MAX}, and follow next for more");
            return Err(bad("limit", format!("{limit} is not from 1 to {DUMPS_MAX}"), &remedy));
        }
        let known = self.lock();
        let finished = known.finished.iter().map(|(id, dump)| (*id, &*dump.facts));
        let all: BTreeMap<u64, &Value> = finished
            .chain(known.open.iter().map(|(id, open)| (*id, open)))
            .filter(|(id, _)| *id > after && known.shows(*id, owner))
            .collect();
        let is_wanted = |dump: &Value| {
            trigger.is_none_or(|name| dump["trigger"] == name)
                && complete.is_none_or(|complete| dump["complete"] == complete)
        };
        let mut wanted = all.into_iter().filter(|(_, dump)| is_wanted(dump));
        let page: Vec<(u64, &Value)> = wanted.by_ref().take(limit as usize).collect();
        let next = wanted.next().and(page.last()).map(|(id, _)| *id);
        let shown = |(id, dump): (u64, &Value)| {
            known.finished.get(&id).map_or_else(|| dump.clone(), |finished| finished.shown(owner))
        };
        let dumps: Vec<Value> = page.into_iter().map(shown).collect();
        Ok(json!({ "dumps": dumps, "next": next }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumps() -> Dumps {
        let dumps = Dumps::default();
        for id in 1..=5u64 {
            let trigger = if id % 2 == 0 { "even" } else { "odd" };
            dumps.finished(&DumpSummary {
                id,
                trigger: trigger.into(),
                complete: id != 3,
                ..DumpSummary::default()
            });
        }
        dumps.begun(6, "even", None, None);
        dumps
    }

    fn ids(dumps: &Dumps, query: &[(&str, &str)]) -> (Vec<u64>, Value) {
        let query: Vec<(String, String)> =
            query.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let page = dumps.page(&query, None).unwrap();
        (
            page["dumps"].as_array().unwrap().iter().map(|dump| dump["id"].as_u64().unwrap()).collect(),
            page["next"].clone(),
        )
    }

    #[test]
    fn pages_follow_each_other_without_a_hole() {
        let dumps = dumps();
        assert_eq!(ids(&dumps, &[]), (vec![1, 2, 3, 4, 5, 6], Value::Null));
        assert_eq!(ids(&dumps, &[("limit", "2")]), (vec![1, 2], json!(2)));
        assert_eq!(ids(&dumps, &[("limit", "2"), ("after", "2")]), (vec![3, 4], json!(4)));
        assert_eq!(ids(&dumps, &[("trigger", "even")]), (vec![2, 4, 6], Value::Null));
        assert_eq!(ids(&dumps, &[("complete", "false")]), (vec![3], Value::Null));
        for (key, value) in
            [("limit", "0"), ("limit", "1001"), ("after", "x"), ("complete", "1"), ("what", "")]
        {
            assert!(dumps.page(&[(key.to_string(), value.to_string())], None).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn what_is_finished_is_counted_by_trigger_and_at_the_bound_under_one_name() {
        let dumps = dumps();
        let made = dumps.made();
        assert_eq!((made["odd"].dumps, made["odd"].incomplete, made["even"].dumps), (3, 1, 2));
        for name in 0..TRIGGERS_MAX {
            dumps.finished(&DumpSummary { trigger: name.to_string(), ..DumpSummary::default() });
        }
        let made = dumps.made();
        assert_eq!((made.len(), made[OTHERS].dumps), (TRIGGERS_MAX + 1, 2));
    }

    #[test]
    fn one_is_open_finished_or_not_there() {
        let dumps = dumps();
        assert_eq!(dumps.get("5", None).unwrap().unwrap().facts["state"], "finished");
        assert_eq!(dumps.get("6", None).unwrap().unwrap_err()["state"], "open");
        for id in ["0", "7", "-1", "x", ""] {
            assert_eq!(dumps.get(id, None).unwrap_err().status, StatusCode::NOT_FOUND, "{id}");
        }
        dumps.open_now(&[]);
        assert!(dumps.get("6", None).is_err());
    }
    #[test]
    fn an_owner_sees_what_it_fired_and_no_others() {
        let dumps = dumps();
        let owner = |name: &str, filter: &str| Owner { name: name.to_string(), filter: filter.to_string() };
        let (noc, other) = (owner("noc", "udp"), owner("noc", "tcp"));
        dumps.begun(7, "manual", Some(&noc), None);
        dumps.begun(8, "manual", Some(&other), None);
        dumps.finished(&DumpSummary { id: 7, trigger: "manual".into(), ..DumpSummary::default() });
        let seen = |owner: &Owner| {
            let page = dumps.page(&[], Some(owner)).unwrap();
            let ids: Vec<u64> =
                page["dumps"].as_array().unwrap().iter().map(|dump| dump["id"].as_u64().unwrap()).collect();
            ids
        };
        assert_eq!((seen(&noc), seen(&other), seen(&owner("x", "udp"))), (vec![7], vec![8], vec![]));
        let finished = dumps.get("7", Some(&noc)).unwrap().unwrap();
        assert_eq!(finished.shown(None)["counters"], json!([]));
        assert!(finished.shown(Some(&noc)).get("counters").is_none());
        for id in ["1", "6", "8", "9"] {
            let refused = dumps.get(id, Some(&noc)).unwrap_err();
            assert_eq!(refused.to_string(), format!("id: this run has no dump {id}"));
        }
    }
}
