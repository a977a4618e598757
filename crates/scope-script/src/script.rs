//! A trigger script: loaded, run over batches of packets, ticked, and asked for what it has counted.
//!
//! ```
//! use scope_packet::LinkType;
//! use scope_script::{Lent, Options, Script};
//! let mut script = Script::load("return function(pkt) return pkt.captured > 2 end", &Options::named("size"))?;
//! let packet = |data| Lent { data, original_len: 3, time_ns: 0, interface: 0, flags: 0, link_type: LinkType::ETHERNET };
//! let hits = script.run(&[packet(&[1, 2][..]), packet(&[1, 2, 3][..])]).expect("it is neither disabled nor abandoned");
//! assert_eq!(hits.iter().filter_map(|hit| hit.packet).collect::<Vec<_>>(), [1]);
//! # Ok::<(), scope_script::ScriptError>(())
//! ```

use crate::error::{Disabled, Ended, ScriptError};
use crate::hit::Hit;
use crate::plain::Plain;
use crate::record::{Lent, RECORDS_MAX};
use crate::state::{Options, State};
use crate::watch::Watch;
use std::sync::Arc;

/// Capture time between two ticks, ns.
pub const TICK_NS: i64 = 100_000_000;
/// Ticks that a gap without packets has at most: where it is longer, the first ones are left out.
pub const TICKS_MAX: i64 = 600;
/// Capture time that steps back by so many ticks begins to tick from there: packets of several workers lie closer together.
const STEP_BACK_TICKS: i64 = 30;

/// What a script has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that it was run for.
    pub packets: u64,
    /// Hits.
    pub hits: u64,
    /// Calls that failed: for a packet, a tick, a dump.
    pub errors: u64,
    /// Ticks.
    pub ticks: u64,
    /// Bytes of Lua's own memory in use.
    pub memory_bytes: usize,
    /// Flows that `wirescope.flows` keeps, where the script returned its tracker.
    pub flows: u64,
    /// Flows that it gave up for others.
    pub flows_evicted: u64,
}

/// A trigger script. It belongs to the thread that loaded it.
#[derive(Debug)]
pub struct Script {
    state: State,
    watch: Arc<Watch>,
    wants_ticks: bool,
    /// Packets are in no one order: only [`Script::clock`] ticks.
    by_clock: bool,
    /// Number of the last tick since the epoch; `None`: no packet came.
    tick: Option<i64>,
    hits: Vec<Hit>,
    counts: Counts,
}

impl Script {
    /// Runs the script's text, which returns its functions. Whoever watches its thread does so from before this
    /// call, with a [`Watch`] of its own: a script may loop while it is loaded.
    ///
    /// # Errors
    /// Says what is wrong with the text, with the traceback.
    pub fn load(text: &str, options: &Options) -> Result<Script, ScriptError> {
        Script::load_watched(text, options, Arc::new(Watch::new()))
    }

    /// The same under a watch that a watchdog already reads. Abandoned meanwhile, it is an error.
    ///
    /// # Errors
    /// As [`Script::load`].
    pub fn load_watched(text: &str, options: &Options, watch: Arc<Watch>) -> Result<Script, ScriptError> {
        let abandoned = || ScriptError::Load {
            script: options.name.clone(),
            report: "it didn't come back while it was loaded; look for a loop outside of its functions"
                .into(),
        };
        let entered_ns = watch.enter().ok_or_else(abandoned)?;
        let state = State::load(text, options, false);
        if !watch.leave(entered_ns) {
            return Err(abandoned());
        }
        let state = state?;
        let wants_ticks = state.ask("wants_ticks", ()).unwrap_or(false);
        Ok(Script {
            state,
            watch,
            wants_ticks,
            by_clock: false,
            tick: None,
            hits: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.state.name()
    }

    /// Which forms it has: `packet`, `on_tick`, `on_dump`, `on_reload`; `flows` where it called `wirescope.flows`.
    pub fn forms(&self) -> Vec<&'static str> {
        let has = |form: &&str| self.asked(|state| state.ask("has", *form)).unwrap_or(false);
        let flows = self.state.wants_keys().then_some("flows");
        ["packet", "on_tick", "on_dump", "on_reload"].into_iter().filter(has).chain(flows).collect()
    }

    /// The word that a watchdog reads.
    pub fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.watch)
    }

    /// Runs the script for each packet, in order, and for the ticks between them. The hits so far also come
    /// when the script is disabled on the way: see [`Script::disabled`].
    ///
    /// # Errors
    /// Says that it doesn't run any more.
    pub fn run(&mut self, packets: &[Lent<'_>]) -> Result<&[Hit], Ended> {
        let entered_ns = self.enter()?;
        self.run_parts(packets);
        self.leave(entered_ns)
    }

    /// Capture time has reached `now_ns` without a packet: ticks that are due.
    ///
    /// # Errors
    /// Says that it doesn't run any more.
    pub fn clock(&mut self, now_ns: i64) -> Result<&[Hit], Ended> {
        let entered_ns = self.enter()?;
        if self.wants_ticks {
            self.tick_up_to(now_ns);
        }
        self.leave(entered_ns)
    }

    /// From here on packets come in no one order of time: they make no tick, and [`Script::clock`] alone does.
    pub fn tick_by_clock(&mut self) {
        self.by_clock = true;
    }

    /// A dump of this trigger is written: calls `on_dump` with facts of it. What it does wrong is counted.
    ///
    /// # Errors
    /// Says that the script doesn't run any more.
    pub fn dumped(&mut self, facts: &[(&str, Plain)]) -> Result<(), Ended> {
        let entered_ns = self.enter()?;
        let facts = facts.iter().map(|(name, value)| (Plain::from(*name), value.clone())).collect();
        if let Ok(facts) = Plain::Table(facts).to_lua(self.state.lua()) {
            self.state.call_named("dumped", facts);
        }
        self.leave(entered_ns).map(|_| ())
    }

    /// What the script keeps in `wirescope.state`, for the script that replaces it.
    ///
    /// # Errors
    /// Says why it isn't plain.
    pub fn kept(&self) -> Result<Plain, String> {
        let kept = self.asked(|state| {
            let value: Option<mlua::Value> = state.ask("state", ());
            Some(value.as_ref().map_or(Ok(Plain::Nil), Plain::from_lua))
        });
        kept.unwrap_or(Ok(Plain::Nil))
    }

    /// Takes over from a script that this one replaces: calls `on_reload`; without one, what that kept becomes
    /// `wirescope.state`.
    ///
    /// # Errors
    /// Says that the script doesn't run any more.
    pub fn take_over(&mut self, old: &Plain) -> Result<(), Ended> {
        let entered_ns = self.enter()?;
        if let Ok(old) = old.to_lua(self.state.lua()) {
            self.state.call_named("reload", old);
        }
        self.leave(entered_ns).map(|_| ())
    }

    /// Why it is disabled.
    pub fn disabled(&self) -> Option<&Disabled> {
        self.state.disabled()
    }

    /// The traceback of its first error.
    pub fn report(&self) -> Option<String> {
        self.state.report()
    }

    /// What it printed since the last call, at most 100 lines, and how many more there were.
    pub fn take_notes(&mut self) -> (Vec<String>, u64) {
        self.state.take_notes()
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let (flows, flows_evicted) =
            match self.asked(|state| state.ask::<(Option<f64>, Option<f64>)>("flows", ())) {
                Some((flows, evicted)) => (flows.unwrap_or(0.0) as u64, evicted.unwrap_or(0.0) as u64),
                None => (0, 0),
            };
        Counts {
            errors: self.state.lending.errors().0,
            memory_bytes: self.state.lua().used_memory(),
            flows,
            flows_evicted,
            ..self.counts
        }
    }

    /// Closes its state, whose finalizers are the script's own.
    ///
    /// # Errors
    /// It was abandoned meanwhile.
    pub fn close(self) -> Result<(), Ended> {
        let Script { state, watch, .. } = self;
        let entered_ns = watch.enter().ok_or(Ended::Abandoned)?;
        drop(state);
        if watch.leave(entered_ns) { Ok(()) } else { Err(Ended::Abandoned) }
    }

    /// Asks the state for something under the watch: also what only tells may be the script's own code. `None`: it was
    /// abandoned, or says nothing.
    fn asked<R>(&self, ask: impl FnOnce(&State) -> Option<R>) -> Option<R> {
        let entered_ns = self.watch.enter()?;
        let said = ask(&self.state);
        if self.watch.leave(entered_ns) { said } else { None }
    }

    fn enter(&mut self) -> Result<u64, Ended> {
        if let Some(disabled) = self.state.disabled() {
            return Err(Ended::Disabled(disabled.clone()));
        }
        self.hits.clear();
        self.watch.enter().ok_or(Ended::Abandoned)
    }

    fn leave(&mut self, entered_ns: u64) -> Result<&[Hit], Ended> {
        if !self.watch.leave(entered_ns) {
            self.hits.clear();
            return Err(Ended::Abandoned);
        }
        self.counts.hits += self.hits.len() as u64;
        Ok(&self.hits)
    }

    /// Runs as many packets at once as there are records, and no tick between them.
    fn run_parts(&mut self, packets: &[Lent<'_>]) {
        let mut base = 0;
        while base < packets.len() && self.state.disabled().is_none() {
            let rest = &packets[base..packets.len().min(base + RECORDS_MAX)];
            let count = if self.wants_ticks && !self.by_clock { self.tick_before(rest) } else { rest.len() };
            self.run_part(packets, base, count);
            base += count;
        }
    }

    fn run_part(&mut self, packets: &[Lent<'_>], base: usize, count: usize) {
        let with_keys = self.state.wants_keys();
        for (slot, packet) in packets[base..base + count].iter().enumerate() {
            self.state.lending.lend(slot, packet, with_keys);
        }
        self.state.run(count);
        self.counts.packets += count as u64;
        self.state.hits(base, count, |at| packets[at].time_ns, 0, &mut self.hits);
        self.state.lending.take_back(0, count);
    }

    /// Ticks that are due before the first packet; how many packets come before the next one.
    fn tick_before(&mut self, packets: &[Lent<'_>]) -> usize {
        let Some(first) = packets.first() else { return 0 };
        self.tick_up_to(first.time_ns);
        let tick = self.tick.unwrap_or(0);
        let same = |packet: &Lent<'_>| {
            let due = packet.time_ns.div_euclid(TICK_NS);
            due <= tick && due >= tick - STEP_BACK_TICKS
        };
        1 + packets[1..].iter().take_while(|packet| same(packet)).count()
    }

    fn tick_up_to(&mut self, now_ns: i64) {
        let due = now_ns.div_euclid(TICK_NS);
        let last = self.tick.unwrap_or(due);
        self.tick = Some(if due < last - STEP_BACK_TICKS { due } else { due.max(last) });
        for tick in (last + 1).max(due - TICKS_MAX + 1)..=due {
            if self.state.disabled().is_some() {
                return;
            }
            let tick_ns = tick * TICK_NS;
            self.state.lending.set_now(tick_ns);
            self.state.call_named("tick", tick_ns as f64 / 1e9);
            self.counts.ticks += 1;
            self.state.hits(0, 0, |_| 0, tick_ns, &mut self.hits);
        }
    }
}
