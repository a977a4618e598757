//! The stage: threads of which one runs at a time, by the dice, in a time that passes only while all of them
//! wait.
//!
//! ```text
//!  actor 0 (the run's main thread)   ──┐ runs ┌─────── waits until now + 3 ms ───────┐
//!  actor 1 (a worker)             waits└──────┘ runs ──┐                             │
//!  actor 2 (a dump)                                    └ runs ─ ... none is due: time goes on to the first who is
//! ```
//! An actor gives the turn away where it waits: at the clock, at its disk, at its source. Nothing else is
//! random, so a run depends on its seed alone.

use crate::dice::Dice;
use scope_engine::threads::Work;
use scope_packet::Clock;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Turns that one run may take: beyond, somebody waits for ever.
const TURNS_MAX: u64 = 3_000_000;

thread_local! {
    static ACTOR: Cell<usize> = const { Cell::new(0) };
}

/// One run's threads and its time.
#[derive(Debug)]
pub(crate) struct Stage {
    seed: u64,
    wall: Wall,
    state: Mutex<State>,
}

/// The wall clock of a run, which somebody may set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wall {
    /// When it is set (ns since the begin of the run), and by how much (ns), in order.
    pub steps: Vec<(i64, i64)>,
}

impl Wall {
    /// What it shows at `now_ns`, ns since the begin of the run.
    pub(crate) fn at(&self, now_ns: i64) -> i64 {
        let set_by = self.steps.iter().filter(|(at_ns, _)| *at_ns <= now_ns).map(|(_, by_ns)| by_ns);
        WALL_BEGIN_NS + now_ns + set_by.sum::<i64>()
    }

    /// How often it was set back by then.
    pub(crate) fn era(&self, now_ns: i64) -> usize {
        self.steps.iter().filter(|(at_ns, by_ns)| *at_ns <= now_ns && *by_ns < 0).count()
    }

    /// The parts of a span of the run between which the clock is set, each as the wall clock shows it, its
    /// end exclusive.
    pub(crate) fn parts(&self, span: std::ops::Range<i64>) -> Vec<std::ops::Range<i64>> {
        let inner = self
            .steps
            .iter()
            .map(|(at_ns, _)| *at_ns)
            .filter(|at_ns| span.start < *at_ns && *at_ns < span.end);
        let bounds: Vec<i64> = std::iter::once(span.start).chain(inner).chain([span.end]).collect();
        let part = |bounds: &[i64]| {
            let begin_ns = self.at(bounds[0]);
            begin_ns..begin_ns + (bounds[1] - bounds[0])
        };
        bounds.windows(2).map(part).collect()
    }
}

#[derive(Debug)]
struct State {
    now_ns: i64,
    dice: Dice,
    actors: Vec<Actor>,
    running: usize,
    turns: u64,
    threads: Vec<JoinHandle<()>>,
    /// Threads that failed.
    panics: Vec<String>,
}

#[derive(Debug)]
struct Actor {
    name: String,
    due_ns: i64,
    alive: bool,
    turn: Arc<Condvar>,
}

impl Actor {
    fn new(name: &str, due_ns: i64) -> Actor {
        Actor { name: name.to_string(), due_ns, alive: true, turn: Arc::new(Condvar::new()) }
    }
}

impl Stage {
    /// The caller is the first actor.
    pub(crate) fn new(seed: u64, dice: Dice, wall: Wall) -> Arc<Stage> {
        ACTOR.set(0);
        let state = State {
            now_ns: 0,
            dice,
            actors: vec![Actor::new("main", 0)],
            running: 0,
            turns: 0,
            threads: Vec::new(),
            panics: Vec::new(),
        };
        Arc::new(Stage { seed, wall, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// Time since the begin of the run, ns.
    pub(crate) fn now_ns(&self) -> i64 {
        self.lock().now_ns
    }

    /// The wall clock, ns since the epoch.
    pub(crate) fn wall_ns(&self) -> i64 {
        self.wall.at(self.now_ns())
    }

    /// The wall clock and how it is set.
    pub(crate) fn wall(&self) -> &Wall {
        &self.wall
    }

    /// All stand still for so long, as after SIGSTOP.
    pub(crate) fn stand_still(&self, ns: i64) {
        self.lock().now_ns += ns;
    }

    /// Gives the turn away for at least so long.
    pub(crate) fn pause(&self, ns: i64) {
        let me = ACTOR.get();
        let mut state = self.lock();
        state.actors[me].due_ns = state.now_ns + ns.max(0);
        state.pass_on(self.seed);
        let turn = state.actors[me].turn.clone();
        while state.running != me {
            state = turn.wait(state).expect("no panic while held");
        }
    }

    /// A further actor.
    pub(crate) fn spawn(self: &Arc<Self>, name: String, work: Work) -> std::io::Result<()> {
        let mut state = self.lock();
        let (me, due_ns) = (state.actors.len(), state.now_ns + state.dice.within(0..300_000));
        state.actors.push(Actor::new(&name, due_ns));
        let stage = self.clone();
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            ACTOR.set(me);
            stage.await_turn();
            let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
            stage.leave(failed.then_some(name));
        });
        match thread {
            Ok(thread) => state.threads.push(thread),
            Err(error) => {
                state.actors[me].alive = false;
                return Err(error);
            }
        }
        Ok(())
    }

    fn await_turn(&self) {
        let mut state = self.lock();
        let (me, turn) = (ACTOR.get(), state.actors[ACTOR.get()].turn.clone());
        while state.running != me {
            state = turn.wait(state).expect("no panic while held");
        }
    }

    fn leave(&self, panicked: Option<String>) {
        let mut state = self.lock();
        state.actors[ACTOR.get()].alive = false;
        state.panics.extend(panicked);
        state.pass_on(self.seed);
    }

    /// How many are on the stage.
    pub(crate) fn actors(&self) -> usize {
        self.lock().actors.iter().filter(|actor| actor.alive).count()
    }

    /// The caller waits until it is alone; the names of threads that failed.
    pub(crate) fn end(&self) -> Vec<String> {
        while self.actors() > 1 {
            self.pause(1_000_000);
        }
        let mut state = self.lock();
        let threads = std::mem::take(&mut state.threads);
        let panics = std::mem::take(&mut state.panics);
        drop(state);
        for thread in threads {
            let _ = thread.join();
        }
        panics
    }

    /// A number of this run's dice.
    pub(crate) fn within(&self, range: std::ops::Range<i64>) -> i64 {
        self.lock().dice.within(range)
    }
}

impl State {
    /// Gives the turn to one who is due; if nobody is, time goes on.
    fn pass_on(&mut self, seed: u64) {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            let alive = self.actors.iter().filter(|actor| actor.alive);
            let there: Vec<String> =
                alive.map(|actor| format!("{} in {} ns", actor.name, actor.due_ns - self.now_ns)).collect();
            eprintln!(
                "seed {seed}: the run doesn't end: {} ns have passed; there are: {}",
                self.now_ns,
                there.join(", ")
            );
            std::process::abort();
        }
        let alive = self.actors.iter().filter(|actor| actor.alive);
        let Some(first_ns) = alive.map(|actor| actor.due_ns).min() else { return };
        self.now_ns = self.now_ns.max(first_ns);
        let now_ns = self.now_ns;
        let due = |actor: &Actor| actor.alive && actor.due_ns <= now_ns;
        let count = self.actors.iter().filter(|actor| due(actor)).count() as u64;
        let nth = self.dice.below(count) as usize;
        let next = self
            .actors
            .iter()
            .enumerate()
            .filter(|(_, actor)| due(actor))
            .nth(nth)
            .map_or(0, |(next, _)| next);
        self.running = next;
        self.actors[next].turn.notify_one();
    }
}

/// The wall clock at the begin of every run.
pub(crate) const WALL_BEGIN_NS: i64 = 1_700_000_000_000_000_000;

/// The stage's time as the engine sees it.
#[derive(Debug)]
pub(crate) struct StageClock(pub(crate) Arc<Stage>);

impl Clock for StageClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.now_ns() as u64)
    }

    fn wall_ns(&self) -> i64 {
        self.0.wall_ns()
    }

    /// A wait ends early, in time, or late: nobody is woken at once.
    fn wait(&self, limit: Duration, _wait: &dyn Fn(Duration)) {
        let limit_ns = limit.as_nanos().min(i64::MAX as u128) as i64;
        let share = self.0.within(20..300);
        self.0.pause((limit_ns / 100).saturating_mul(share).max(1));
    }
}
