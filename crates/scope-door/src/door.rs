//! The thread of a door, from the run's begin to its end.

use crate::peer::Rules;
use crate::serving::{self, END_PATIENCE};
use crate::settings::Settings;
use crate::state::{ORDERS_MAX, State};
use scope_engine::{Control, DumpSummary, Opening, Status, TriggerStatus};
use scope_events::event;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// Threads for what waits: orders, files.
const WAITING_MAX: usize = 16;
/// So long whatever waits in a thread may go on behind all connections.
const PATIENCE: Duration = Duration::from_millis(100);

/// Between two looks at what is under way.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An open door. What the run's main thread tells it here, it answers to whoever asks.
pub struct Door {
    state: Arc<State>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system gives no thread, or no means to wait.
    pub fn open(opening: &Opening<'_>, control: &Arc<Control>, settings: Settings) -> io::Result<Door> {
        let user = opening.socket.user();
        let rules = Rules {
            user,
            group: settings.group,
            role: settings.role,
            serve_user: settings.serve_user.or(Some(user)),
            serve_role: settings.serve_role,
        };
        let listener = opening.socket.listener()?;
        let state = Arc::new(State::new(opening, control.clone(), settings));
        let (stop, stopped) = watch::channel(false);
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WAITING_MAX)
            .build()?;
        let served = state.clone();
        let thread = std::thread::Builder::new().name("door".to_string()).spawn(move || {
            runtime.block_on(async {
                // It fails only where the listener is none, and then nobody can come in.
                if let Ok(listener) = UnixListener::from_std(listener) {
                    serving::serve(listener, &served, rules, stopped).await;
                }
            });
            runtime.shutdown_timeout(PATIENCE);
        })?;
        Ok(Door { state, stop, thread: Some(thread) })
    }

    /// Once a second.
    pub fn status(&self, status: &Status) {
        self.state.publish_status(status);
    }

    /// The triggers in force, as soon as they were changed.
    pub fn triggers(&self, triggers: Vec<TriggerStatus>) {
        self.state.publish_triggers(triggers);
    }

    /// The same as the log has it.
    pub fn facts(&self, facts: &event::Status) {
        self.state.publish_facts(facts);
    }

    /// A dump is finished.
    pub fn dump(&self, report: &DumpSummary) {
        self.state.dumps.finished(report);
        self.state.measures.dump(report.took);
        self.state.changed.notify_waiters();
    }

    /// Nothing more is ordered or asked for packets; what is under way has a moment, breaks off, and is noted. States and
    /// events are told until the door is closed.
    pub fn last_orders(&self) {
        self.state.close();
        let wait = || {
            let begun = Instant::now();
            while self.state.orders.available_permits() < ORDERS_MAX && begun.elapsed() < END_PATIENCE {
                std::thread::sleep(LOOK_EVERY);
            }
        };
        wait();
        self.state.questions.end();
        wait();
    }

    /// The sources are told to stop, or have ended.
    pub fn stopping(&self) {
        self.state.stopping();
    }
}

impl Drop for Door {
    /// The run is over: what is under way may go on for a moment, and nobody else comes in.
    fn drop(&mut self) {
        self.state.end();
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
