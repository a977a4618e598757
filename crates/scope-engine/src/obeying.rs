//! The run's main thread obeys orders: each look takes those that wait, does them one after another, and
//! answers.
//!
//! No order reaches into a worker: a fire pins and starts a dump from here, a change is a set of triggers
//! that workers take over.

use crate::control::{
    Control, Fired, ORDERS_MAX, Order, OwnFire, Refusal, Reload, Reply, Told, Waiting, Which,
};
use crate::plan::Fixed;
use crate::reload::{change_one, reload};
use crate::status::trigger_status;
use crate::watch::Watch;
use crate::wiring::Shared;
use scope_events::event::{DoorEnded, Warning};
use scope_fault::{Fault, Subject};
use scope_filter::{Filter, Template};
use scope_packet::LinkType;
use scope_trigger::{Response, Trigger};
use std::sync::Arc;

/// What obeying needs of a run.
pub(crate) struct Obeying<'a> {
    pub shared: &'a Shared,
    pub watch: &'a dyn Watch,
    /// What no order changes.
    pub fixed: &'a Fixed,
    pub live: bool,
}

/// How far the run is, for what is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Sources are captured.
    Going,
    /// They have ended just now: what was fired before is fired still.
    SourcesEnded,
    /// The last dumps are waited for.
    Closing,
}

/// What the log says of a door that has ended.
const DOOR_ENDED: &str = "the door to the network has ended; the run goes on without it";

/// What a look at the orders came to, for the thread that looks.
#[derive(Debug, Default)]
pub(crate) struct Obeyed {
    /// Warnings of changes.
    pub warnings: Vec<Warning>,
    /// The process was stopped and goes on.
    pub resumed: bool,
}

impl Obeying<'_> {
    /// Obeys what waits and is legal in this phase, at most [`ORDERS_MAX`].
    pub(crate) fn look(&self, control: &Control, phase: Phase) -> Obeyed {
        let mut obeyed = Obeyed::default();
        for _ in 0..ORDERS_MAX {
            // A change comes when every worker has taken over the one before it.
            let settled = self.shared.triggers.settle();
            let Some(Waiting { order, sender }) = control.take(settled || phase != Phase::Going) else {
                break;
            };
            let is_of_triggers = matches!(order, Order::Trigger(_) | Order::Arm { .. } | Order::Reload(_));
            let reply = match order {
                Order::Stop => Ok(Reply::Stopping),
                Order::ReopenLog => {
                    self.shared.events.reopen();
                    Ok(Reply::Done)
                }
                Order::NoteDoorEnded => {
                    self.shared.events.log(DoorEnded { text: DOOR_ENDED.to_string() });
                    Ok(Reply::Done)
                }
                Order::Fire(which) if phase == Phase::Closing => {
                    self.watch.note(&format!("{}: not fired: {}", words(&which), Refusal::Ended));
                    Err(Refusal::Ended)
                }
                Order::Reload(_) if phase != Phase::Going => Err(Refusal::Ended),
                Order::NoteResumed if phase == Phase::Closing => Err(Refusal::Ended),
                Order::Trigger(_) if phase != Phase::Going => Err(Refusal::Ended),
                Order::Trigger(change) => {
                    change_one(change, self.shared, self.fixed, self.watch).map(|more| {
                        obeyed.warnings.extend(more);
                        Reply::Done
                    })
                }
                Order::Arm { .. } if phase != Phase::Going => Err(Refusal::Ended),
                Order::Arm { trigger, armed } => self.arm(&trigger, armed),
                Order::Fire(which) => self.fire(&which),
                Order::EndDump(id) => self.end_dump(id),
                Order::NoteResumed => {
                    obeyed.resumed = true;
                    Ok(Reply::Done)
                }
                Order::Reload(change) => {
                    let reply = change.reply();
                    self.watch.reloading();
                    obeyed.warnings.extend(self.reload(change));
                    self.watch.reloaded();
                    reply
                }
            };
            if is_of_triggers && reply.is_ok() {
                self.watch.triggers(trigger_status(self.shared));
            }
            sender.answer(reply);
        }
        obeyed
    }

    fn reload(&self, change: Reload) -> Vec<Warning> {
        reload(change, self.shared, self.fixed, self.live, self.watch)
    }

    fn arm(&self, name: &str, armed: bool) -> Result<Reply, Refusal> {
        let set = self.shared.triggers.current();
        let found = set.given().iter().find(|trigger| trigger.config().name == name);
        let trigger = found.ok_or_else(|| Refusal::NoSuchTrigger(name.to_string()))?;
        trigger.order(armed);
        self.watch.note(&format!("trigger {name}: {} by order", if armed { "armed" } else { "disarmed" }));
        Ok(Reply::Done)
    }

    fn end_dump(&self, id: u64) -> Result<Reply, Refusal> {
        if !self.shared.dumps.end_window(id, self.shared.last_heard()) {
            return Err(Refusal::NotOpen(id));
        }
        self.watch.note(&format!("dump {id}: its window is ended by order"));
        Ok(Reply::Done)
    }

    fn fire(&self, which: &Which) -> Result<Reply, Refusal> {
        if let Err(fault) = self.fixed.expect_place() {
            let refusal = Refusal::Faults(vec![fault]);
            self.watch.note(&format!("{}: not fired: {refusal}", words(which)));
            return Err(refusal);
        }
        let set = self.shared.triggers.current();
        let triggers: Vec<&Arc<Trigger>> = match which {
            Which::Hand => vec![set.hand()],
            Which::All => set.given().iter().collect(),
            Which::Named(name) => vec![set.named(name).ok_or_else(|| Refusal::NoSuchTrigger(name.clone()))?],
            Which::Own(own) => return self.fire_own(own, set.hand()),
            Which::Told(told) => {
                let named = set.named(&told.trigger);
                let trigger = named.ok_or_else(|| Refusal::NoSuchTrigger(told.trigger.clone()))?;
                return self.fire_told(told, trigger);
            }
        };
        let mut fired = Vec::new();
        for trigger in triggers {
            let outcome = self.shared.dumps.ordered(trigger, self.shared.last_heard(), "", None);
            let name = trigger.config().name.clone();
            let of = if *which == Which::Hand { Which::Hand } else { Which::Named(name.clone()) };
            self.watch.note(&format!("{}: {}", words(&of), outcome.verdict));
            fired.push(Fired { trigger: name, verdict: outcome.verdict, dump: outcome.dump });
        }
        Ok(Reply::Fired(fired))
    }

    /// Fires a trigger as if its condition held for a packet with the values that were given.
    fn fire_told(&self, told: &Told, trigger: &Arc<Trigger>) -> Result<Reply, Refusal> {
        let filter = self.filled(told, &trigger.config().response)?;
        let outcome =
            self.shared.dumps.told(trigger, self.shared.last_heard(), filter.as_deref(), &told.what);
        self.watch.note(&format!("{}: {}", words(&Which::Told(told.clone())), outcome.verdict));
        let name = trigger.config().name.clone();
        Ok(Reply::Fired(vec![Fired { trigger: name, verdict: outcome.verdict, dump: outcome.dump }]))
    }

    /// The dump filter of given values; `None`: everything.
    fn filled(&self, told: &Told, response: &Response) -> Result<Option<String>, Refusal> {
        let Some(template) = &response.template else { return Ok(told.given.hosts()) };
        let refused = |fault: Fault| Refusal::Faults(vec![fault]);
        let text = template.fill_given(&told.given).map_err(|unfilled| {
            let fault = Fault::of(&unfilled.name[1..]).cause("the trigger's template needs it");
            refused(fault.remedy("give it, or give the template a fallback: TEMPLATE ?: FALLBACK"))
        })?;
        let types = self.link_types();
        let compiled = |text: &str| Filter::compile(text, response.vlan, &types);
        // As with packets: values that make no filter, such as an IPv6 address behind 'ip host'.
        match (compiled(&text), template.fallback()) {
            (Ok(_), _) => Ok(Some(text)),
            (Err(_), Some(fallback)) if compiled(fallback).is_ok() => Ok(Some(fallback.to_string())),
            (Err(error), _) => Err(refused(error.fault().of_subject(Subject::setting("dump")))),
        }
    }

    fn link_types(&self) -> Vec<LinkType> {
        let ring = &self.shared.ring;
        (0..ring.lanes()).map(|lane| ring.lane_info(lane).link_type).collect()
    }

    /// Fires by hand with another response than that of `hand`, among whose hits it counts.
    fn fire_own(&self, own: &OwnFire, hand: &Trigger) -> Result<Reply, Refusal> {
        let mut config = hand.config().clone();
        let template = Template::parse(&own.filter).ok().filter(|template| !template.has_names());
        let Some(template) = template else {
            let fault =
                Fault::of("filter").with_value(&own.filter).cause("it has names of a packet's fields");
            return Err(Refusal::Faults(vec![fault.remedy("write the values: no packet fires by hand")]));
        };
        let Response { before_ns, vlan, .. } = config.response;
        let bound = own.bound.as_deref().map(|text| Filter::compile(text, vlan, &self.link_types()));
        let bound = bound
            .transpose()
            .map_err(|error| Refusal::Faults(vec![error.fault().of_subject(Subject::setting("bound"))]))?;
        config.response.template = Some(template);
        config.response.before_ns = own.before_ns.unwrap_or(before_ns);
        config.response.after_ns = own.after_ns;
        let trigger = Trigger::new(config);
        let outcome =
            self.shared.dumps.ordered(&trigger, self.shared.last_heard(), &own.note, bound.as_ref());
        hand.add_counts(&trigger.counts());
        self.watch.note(&format!("{}: {}", words(&Which::Own(Box::new(own.clone()))), outcome.verdict));
        let name = hand.config().name.clone();
        Ok(Reply::Fired(vec![Fired { trigger: name, verdict: outcome.verdict, dump: outcome.dump }]))
    }
}

/// What is to be fired, for a line.
fn words(which: &Which) -> String {
    match which {
        Which::Hand => "dump of everything by hand".to_string(),
        Which::Named(name) => format!("trigger {name} by hand"),
        Which::All => "all triggers by hand".to_string(),
        Which::Told(Told { trigger, what, .. }) => format!("trigger {trigger} by a hook ({what})"),
        Which::Own(own) => match &**own {
            OwnFire { filter, bound: Some(bound), .. } => {
                let asked = if filter.is_empty() { "everything" } else { filter };
                format!("dump of '{asked}', of what matches '{bound}', by hand")
            }
            OwnFire { filter, .. } if filter.is_empty() => words(&Which::Hand),
            OwnFire { filter, .. } => format!("dump of '{filter}' by hand"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Answer, Change};
    use crate::dumps::{DumpSettings, Dumps};
    use crate::lockstep::Lockstep;
    use crate::measuring::Measuring;
    use crate::plan::{DumpPlan, Live, ScriptPlan};
    use crate::scripts::Scripts;
    use scope_events::{EVENTS_FILE, Events};

    use crate::status::Status;
    use crate::steps::Steps;
    use crate::threads::SystemThreads;
    use crate::triggers::Triggers;
    use scope_dump::{DumpOutput, DumpReport, Scans};
    use scope_filter::{Filter, FilterEngine, VlanRule};
    use scope_folder::Folder;
    use scope_packet::{Clock, LinkType, SystemClock};
    use scope_rights::Rights;
    use scope_ring::{ClaimGroup, MemoryOptions, Ring, RingConfig, RingMemory};
    use scope_trigger::{Condition, Places, TriggerConfig};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::time::Duration;
    use tempfile::TempDir;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Notes of who watches.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Notes {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Watch for Notes {
        fn prefault(&self, _done: u64, _total: u64) {}
        fn started(&self, _memory: &RingMemory, _rights: Option<&Rights>) {}
        fn selftest(&self, _facts: &serde_json::Value) {}
        fn reloading(&self) {
            self.note("reloading");
        }
        fn reloaded(&self) {
            self.note("reloaded");
        }
        fn stopping(&self) {}
        fn status(&self, _status: &Status) {}
        fn note(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_string());
        }
        fn warning(&self, line: &str) {
            self.note(line);
        }
        fn dump(&self, _report: &DumpReport) {}
    }

    fn trigger(name: &str, template: &str) -> TriggerConfig {
        let template = Some(Template::parse(template).unwrap());
        TriggerConfig {
            name: name.to_string(),
            condition: Condition::Filter(
                Filter::compile("udp", VlanRule::Exact, &[LinkType::ETHERNET]).unwrap(),
            ),
            response: Response {
                template,
                script: None,
                before_ns: 1000,
                after_ns: 0,
                vlan: VlanRule::Exact,
            },
            when: None,
            holdoff_ns: 1_000_000_000,
            holdoff_key: None,
            single: name == "once",
            auto_ns: None,
        }
    }

    fn hand() -> TriggerConfig {
        TriggerConfig { condition: Condition::Hand, holdoff_ns: 0, ..trigger("manual", "") }
    }

    /// What no order changes.
    fn fixed(ring: RingConfig) -> Fixed {
        Fixed {
            sources: Vec::new(),
            ring,
            memory: MemoryOptions::default(),
            shares: Vec::new(),
            link_types: vec![LinkType::ETHERNET],
            vlan: VlanRule::Exact,
            signals: Arc::default(),
            count_bytes: 0,
            scripts: ScriptPlan::default(),
            filter_engine: FilterEngine::Interpreter,
            status_every: MINUTE,
            folder: Some("out".into()),
            dump: DumpPlan::default(),
            store: None,
            stats: None,
            ring_out: None,
            config: String::new(),
            control: None,
            attach: None,
            rights: None,
        }
    }

    /// A run without workers, its folder, and who watches.
    struct Stand {
        folder: TempDir,
        shared: Shared,
        notes: Notes,
        control: Control,
        fixed: Fixed,
    }

    impl Stand {
        fn new(triggers: &[TriggerConfig]) -> Stand {
            let folder = tempfile::tempdir().unwrap();
            let config = RingConfig {
                ring_bytes: 2 << 20,
                segment_bytes: Some(64 << 10),
                workers: 1,
                lanes: 1,
                run_id: [1; 16],
            };
            let ring = Ring::create(&config).unwrap();
            let _lane = ring.open_lane_in(ClaimGroup::COMMON, 0, LinkType::ETHERNET).unwrap();
            ring.end_clock(0);
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let settings = DumpSettings {
                output: DumpOutput::in_folder(folder.path()).unwrap(),
                exec: None,
                patience: None,
                filter_engine: FilterEngine::Interpreter,
                past: None,
                clock: clock.clone(),
                threads: Arc::new(SystemThreads),
                scripts: None,
            };
            let log = Arc::new(Folder::open(folder.path()).unwrap());
            let events = Arc::new(Events::open(&log, &[1; 16]).unwrap());
            let places = Places::new(8, 0, None);
            let shared = Shared {
                source_rules: Arc::default(),
                attach: None,
                measuring: Measuring::unjoined(1),
                statistics: None,
                scripts: Arc::new(Scripts::none()),
                triggers: Triggers::new(triggers, hand()),
                stores: None,
                dumps: Dumps::new(&ring, &places, &events, &Scans::new(&ring, None), settings, None),
                ring,
                events,
                lockstep: Lockstep::new(1),
                steps: Steps::default(),
                clock,
                stop: AtomicBool::new(false),
                ended: AtomicUsize::new(0),
                main: std::thread::current(),
            };
            Stand {
                folder,
                shared,
                notes: Notes::default(),
                control: Control::default(),
                fixed: fixed(config),
            }
        }

        fn send(&self, order: Order) -> Answer {
            self.control.send(order).unwrap()
        }

        fn look(&self, phase: Phase) -> Obeyed {
            let obeying =
                Obeying { shared: &self.shared, watch: &self.notes, fixed: &self.fixed, live: true };
            obeying.look(&self.control, phase)
        }

        /// What comes of an order that is obeyed at once.
        fn obey(&self, order: Order) -> Result<Reply, Refusal> {
            let answer = self.send(order);
            self.look(Phase::Going);
            answer.wait()
        }
    }

    fn fired(trigger: &str, verdict: &'static str, dump: Option<u64>) -> Fired {
        Fired { trigger: trigger.to_string(), verdict, dump }
    }

    fn change(name: &str) -> Order {
        Order::Reload(Reload::Take(Box::new(Change {
            live: Live {
                triggers: vec![trigger(name, "")],
                before_ns: 5,
                dumps_max: 8,
                exit_after: None,
                store_bounds: Vec::new(),
                attach_ring: Default::default(),
                groups: Vec::new(),
                source_rules: Vec::new(),
            },
            changed: vec!["trigger".to_string()],
            kept: vec!["ring: can't change".to_string()],
        })))
    }

    #[test]
    fn a_fire_is_answered_with_the_verdict_of_each_trigger_and_the_number_of_its_dump() {
        let stand = Stand::new(&[trigger("a", "host $srcIP"), trigger("once", "udp")]);
        assert_eq!(
            stand.obey(Order::Fire(Which::Hand)),
            Ok(Reply::Fired(vec![fired("manual", "fired", Some(1))]))
        );
        let once = || stand.obey(Order::Fire(Which::Named("once".to_string())));
        assert_eq!(once(), Ok(Reply::Fired(vec![fired("once", "fired", Some(2))])));
        assert_eq!(
            once(),
            Ok(Reply::Fired(vec![fired("once", "disarmed", None)])),
            "single: its first fire was its last"
        );
        let all = vec![fired("a", "fired", Some(3)), fired("once", "disarmed", None)];
        assert_eq!(stand.obey(Order::Fire(Which::All)), Ok(Reply::Fired(all)), "all but the one by hand");
        let unknown = stand.obey(Order::Fire(Which::Named("b".to_string())));
        assert_eq!(unknown, Err(Refusal::NoSuchTrigger("b".to_string())));
        let said = [
            "dump of everything by hand: fired",
            "trigger once by hand: fired",
            "trigger once by hand: disarmed",
            "trigger a by hand: fired",
            "trigger once by hand: disarmed",
        ];
        assert_eq!(stand.notes.take(), said);
        assert!(stand.shared.dumps.wait(MINUTE));
        let hits: Vec<_> =
            stand.shared.triggers.counts().into_iter().map(|(name, hits)| (name, hits.total())).collect();
        assert_eq!(hits, [("a", 1), ("once", 3), ("manual", 1)].map(|(name, hits)| (name.to_string(), hits)));
        let reports = stand.shared.dumps.reports().kept();
        let filters: Vec<_> = reports.iter().map(|report| (report.id, report.filter.as_str())).collect();
        assert_eq!(filters, [(1, ""), (2, "udp"), (3, "")], "a template with names keeps everything");
    }

    #[test]
    fn a_change_is_answered_with_what_changed_and_a_refused_one_with_its_faults() {
        let stand = Stand::new(&[trigger("a", "")]);
        let faults = vec![Fault::of("before").value("x", "is no time").in_file("t.toml", Some(1))];
        let refused = stand.obey(Order::Reload(Reload::Refuse(faults.clone())));
        assert_eq!(refused, Err(Refusal::Faults(faults)));
        assert_eq!(stand.shared.triggers.current().all()[0].config().name, "a", "the old one goes on");
        let reply =
            Reply::Reloaded { changed: vec!["trigger".into()], kept: vec!["ring: can't change".into()] };
        assert_eq!(stand.obey(change("b")), Ok(reply));
        let set = stand.shared.triggers.current();
        assert_eq!((set.all()[0].config().name.as_str(), set.hand().config().response.before_ns), ("b", 5));
        let said = stand.notes.take();
        assert_eq!(
            (said[0].as_str(), said.last().map(String::as_str)),
            ("reloading", Some("reloaded")),
            "{said:?}"
        );
        assert!(said.contains(&"wirescope: t.toml:1: before: 'x' is no time".to_string()), "{said:?}");
        assert_eq!(
            said.iter().filter(|line| line.starts_with("reload: ")).count(),
            1,
            "the others are warnings: {said:?}"
        );
    }

    #[test]
    fn a_change_waits_until_workers_have_taken_over_the_one_before_it_and_fires_pass_it() {
        let stand = Stand::new(&[trigger("a", "")]);
        let worker = stand.shared.triggers.current();
        assert!(stand.obey(change("b")).is_ok());
        let (second, fire) = (stand.send(change("c")), stand.send(Order::Fire(Which::Hand)));
        stand.look(Phase::Going);
        assert!(fire.wait().is_ok());
        assert_eq!(
            stand.shared.triggers.current().all()[0].config().name,
            "b",
            "a worker has the first set still"
        );
        drop(worker);
        stand.look(Phase::Going);
        assert!(second.wait().is_ok());
        assert_eq!(stand.shared.triggers.current().all()[0].config().name, "c");
    }

    #[test]
    fn once_the_sources_have_ended_nothing_fires_or_changes_and_the_log_may_still_move() {
        let stand = Stand::new(&[trigger("a", "")]);
        let refused =
            [Order::Fire(Which::Hand), change("b"), Order::NoteResumed].map(|order| stand.send(order));
        let reopened = stand.send(Order::ReopenLog);
        let obeyed = stand.look(Phase::Closing);
        assert!(refused.into_iter().all(|answer| answer.wait() == Err(Refusal::Ended)));
        assert_eq!(
            (reopened.wait(), obeyed.resumed, stand.shared.triggers.counts().len()),
            (Ok(Reply::Done), false, 1)
        );
        let note = "dump of everything by hand: not fired: the run has ended, or waits for its last dumps";
        assert_eq!(stand.notes.take(), [note]);
        let (fire, change) = (stand.send(Order::Fire(Which::Hand)), stand.send(change("b")));
        stand.look(Phase::SourcesEnded);
        assert!(fire.wait().is_ok(), "what was ordered while they went is fired");
        assert_eq!(change.wait(), Err(Refusal::Ended));
    }

    #[test]
    fn that_the_door_to_the_network_has_ended_stands_in_the_log_until_the_last_dump_is_finished() {
        let stand = Stand::new(&[]);
        for phase in [Phase::Going, Phase::SourcesEnded, Phase::Closing] {
            let answer = stand.send(Order::NoteDoorEnded);
            stand.look(phase);
            assert_eq!(answer.wait(), Ok(Reply::Done));
        }
        stand.shared.events.close().unwrap();
        let log = std::fs::read_to_string(stand.folder.path().join(EVENTS_FILE)).unwrap();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("\"event\":\"door_ended\"")).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.contains(DOOR_ENDED)), "{log}");
    }

    #[test]
    fn a_log_that_was_moved_goes_on_in_a_new_one_and_a_process_that_goes_on_is_noted() {
        let stand = Stand::new(&[]);
        let log = stand.folder.path().join(EVENTS_FILE);
        std::fs::rename(&log, stand.folder.path().join("moved")).unwrap();
        assert_eq!(stand.obey(Order::ReopenLog), Ok(Reply::Done));
        stand.shared.events.log(Warning::from("x".to_string()));
        stand.shared.events.close().unwrap();
        assert!(std::fs::read_to_string(&log).unwrap().contains("\"text\":\"x\""));
        let answer = stand.send(Order::NoteResumed);
        assert!(stand.look(Phase::Going).resumed);
        assert_eq!(answer.wait(), Ok(Reply::Done));
        assert!(!stand.look(Phase::Going).resumed, "once for each");
    }
}
