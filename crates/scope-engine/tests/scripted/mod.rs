//! The engine's parts around one worker, for tests whose source plays what the test says.
#![allow(dead_code)] // every test file takes what it needs

use scope_dump::{DumpOutput, Scans};
use scope_engine::dumps::{DumpSettings, Dumps};
use scope_engine::lockstep::Lockstep;
use scope_engine::steps::Steps;
use scope_engine::threads::SystemThreads;
use scope_engine::triggers::Triggers;
use scope_engine::wiring::Shared;
use scope_events::Events;
use scope_filter::{Filter, FilterEngine, Template, VlanRule};
use scope_packet::{Clock, LinkType};
use scope_ring::Ring;
use scope_trigger::{Condition, Places, Response, TriggerConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Dumps at once.
const DUMPS_MAX: usize = 1000;

/// A trigger without holdoff whose dumps keep everything.
pub fn trigger(name: &str, text: &str, before_ns: i64, after_ns: i64) -> TriggerConfig {
    TriggerConfig {
        name: name.to_string(),
        condition: Condition::Filter(Filter::compile(text, VlanRule::Exact, &[LinkType::ETHERNET]).unwrap()),
        response: Response {
            template: Some(Template::parse("").unwrap()),
            script: None,
            before_ns,
            after_ns,
            vlan: VlanRule::Exact,
        },
        when: None,
        holdoff_ns: 0,
        holdoff_key: None,
        single: false,
        auto_ns: None,
    }
}

/// Dumps by hand that keep what came last of everything.
fn by_hand() -> TriggerConfig {
    TriggerConfig { condition: Condition::Hand, ..trigger("manual", "", 0, 0) }
}

/// What the worker shares with the rest of its run; dumps go to `folder`.
pub fn shared(ring: &Arc<Ring>, folder: &Path, clock: Arc<dyn Clock>, triggers: &[TriggerConfig]) -> Shared {
    let settings = DumpSettings {
        output: DumpOutput::in_folder(folder).unwrap(),
        exec: None,
        patience: None,
        filter_engine: FilterEngine::Interpreter,
        past: None,
        clock: clock.clone(),
        threads: Arc::new(SystemThreads),
        scripts: None,
    };
    let events = Arc::new(Events::nowhere());
    let dumps =
        Dumps::new(ring, &Places::new(DUMPS_MAX, 0, None), &events, &Scans::new(ring, None), settings, None);
    Shared {
        source_rules: Arc::default(),
        attach: None,
        measuring: scope_engine::Measuring::unjoined(1),
        statistics: None,
        scripts: Arc::new(scope_engine::scripts::Scripts::none()),
        ring: ring.clone(),
        triggers: Triggers::new(triggers, by_hand()),
        stores: None,
        dumps,
        events,
        lockstep: Lockstep::new(1),
        steps: Steps::default(),
        clock,
        stop: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
        main: std::thread::current(),
    }
}
