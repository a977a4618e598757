//! Orders from outside to a run that goes: one closed set, one bounded queue, and an answer to each.
//!
//! ```text
//!  signals, later the API ─► send ─► queue, at most ORDERS_MAX ─► the run's main thread obeys ─► Answer
//!                              │ full, or the run is over: back to the sender at once, with the refusal
//!                              └ stop: a flag in front of the queue
//! ```
//! A stop must always get through, and is looked at where no queue is read: while the ring's memory is made
//! resident, and by threads beside the run. So it is a flag that the sender raises itself, and the queue's
//! bound is none of its own. Signal handlers come nowhere near this: they write to a pipe, and a thread sends
//! the orders. What ends the process at once on a second signal is that thread alone
//! ([`Control::end_at_once`]), since the main thread may hang.

use crate::at_once::AtOnce;
use crate::plan::Live;
use scope_fault::Fault;
use scope_filter::Given;
use scope_trigger::TriggerConfig;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Orders that wait at once. A further one is refused with [`Refusal::Busy`], and counted.
pub const ORDERS_MAX: usize = 64;

/// What a run can be ordered to do. What is ordered before it has begun waits until it has; behind its end
/// all are refused.
#[derive(Debug)]
pub enum Order {
    /// Stop the sources, close the dumps with what has arrived, and end. A second one changes nothing.
    Stop,
    /// Fire by hand. Refused once the sources have ended.
    Fire(Which),
    /// Let a trigger fire, or not, until that is ordered otherwise or the configuration is read again. Refused once the
    /// sources have ended.
    Arm {
        /// Its name.
        trigger: String,
        /// Whether it fires.
        armed: bool,
    },
    /// Add, change or remove one trigger, until the configuration is read again. Waits as [`Order::Reload`] does. Refused
    /// once the sources have ended.
    Trigger(TriggerChange),
    /// Change triggers and limits, or say why they don't change. Waits until every worker has taken over the
    /// change before it, and lets other orders pass meanwhile. Refused once the sources have ended.
    Reload(Reload),
    /// Go on in a new log if it was moved or removed. Obeyed until the last dump is finished.
    ReopenLog,
    /// End the window of the open dump of this number: the dump finishes with what has come. Obeyed until the last dump is
    /// finished.
    EndDump(u64),
    /// Note that the process goes on after it was stopped (SIGCONT). Refused once the sources have ended.
    NoteResumed,
    /// Note that the door to the network, a process that the run has begun, ended before it. Obeyed until the last dump is
    /// finished.
    NoteDoorEnded,
}

/// A change of one trigger.
#[derive(Debug)]
pub enum TriggerChange {
    /// One more.
    Add(Box<TriggerConfig>),
    /// This one in the place of the one of its name.
    Change(Box<TriggerConfig>),
    /// The one of this name goes.
    Remove(String),
}

impl TriggerChange {
    /// The name of the trigger.
    pub fn name(&self) -> &str {
        match self {
            TriggerChange::Add(config) | TriggerChange::Change(config) => &config.name,
            TriggerChange::Remove(name) => name,
        }
    }
}

/// What a configuration that was read again means for the run.
#[derive(Debug)]
pub enum Reload {
    /// It is valid: the change happens between two batches.
    Take(Box<Change>),
    /// It has these faults: nothing changes.
    Refuse(Vec<Fault>),
}

impl Reload {
    /// What its sender learns when it is done.
    pub(crate) fn reply(&self) -> Result<Reply, Refusal> {
        match self {
            Reload::Take(change) => {
                Ok(Reply::Reloaded { changed: change.changed.clone(), kept: change.kept.clone() })
            }
            Reload::Refuse(faults) => Err(Refusal::Faults(faults.clone())),
        }
    }
}

/// What changes, as meant.
#[derive(Debug)]
pub struct Change {
    /// What holds from now on.
    pub live: Live,
    /// Names of the settings that change.
    pub changed: Vec<String>,
    /// What can't change during a run, in plain words.
    pub kept: Vec<String>,
}

/// What is fired by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The trigger by hand: the last `before` of everything, at once. All others stay as they are.
    Hand,
    /// The trigger of this name, as if its condition held now.
    Named(String),
    /// Every trigger but the one by hand.
    All,
    /// By hand, with a window and a filter of its own.
    Own(Box<OwnFire>),
    /// The trigger of this name, because another program told of something.
    Told(Told),
}

/// What another program told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The trigger that fires.
    pub trigger: String,
    /// Fills the template of its dump filter, as a packet would.
    pub given: Given,
    /// What happened, in words.
    pub what: String,
}

/// A dump by hand that has its own window and filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnFire {
    /// Which packets go into it, without names of a template; empty: all.
    pub filter: String,
    /// A second filter, which its packets have to match as well: whoever ordered it may see no others. `None`: all.
    pub bound: Option<String>,
    /// How far back it reaches, ns; `None`: as far as other dumps by hand.
    pub before_ns: Option<i64>,
    /// How far on, ns.
    pub after_ns: i64,
    /// Why, in words; empty: nobody said.
    pub note: String,
}

/// What came of an order that was obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The sources are told to stop. What becomes of the run its summary says.
    Stopping,
    /// What became of each trigger's occurrence, in the order of the triggers.
    Fired(Vec<Fired>),
    /// The change is in force.
    Reloaded {
        /// Settings that changed.
        changed: Vec<String>,
        /// What can't change while the run goes, in plain words.
        kept: Vec<String>,
    },
    /// It is done, or on its way: the log's writer says if it can't be.
    Done,
}

/// One trigger, fired by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// Its name.
    pub trigger: String,
    /// The word under which it is counted: `fired`, `too_many`, ...
    pub verdict: &'static str,
    /// The number of the dump that began.
    pub dump: Option<u64>,
}

/// Why an order wasn't obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// So many wait already.
    #[error("{ORDERS_MAX} orders wait already: try again a little later")]
    Busy,
    /// Too late.
    #[error("the run has ended, or waits for its last dumps")]
    Ended,
    /// No trigger has this name.
    #[error("there is no trigger '{0}'")]
    NoSuchTrigger(String),
    /// A trigger has this name already.
    #[error("there is a trigger '{0}' already")]
    TriggerExists(String),
    /// No open dump has this number.
    #[error("dump {0} is not open")]
    NotOpen(u64),
    /// What was to change has these faults: nothing of it is taken.
    #[error("{}", .0.iter().map(Fault::to_string).collect::<Vec<_>>().join("; "))]
    Faults(Vec<Fault>),
}

/// An order that didn't get into the queue.
pub struct Unsent {
    /// Why.
    pub refusal: Refusal,
    /// The order itself, to be sent again.
    pub order: Order,
}

impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.refusal)
    }
}

/// What comes of an order, once that is known. Who doesn't want to know drops it.
#[derive(Debug)]
pub struct Answer(Receiver<Result<Reply, Refusal>>);

impl Answer {
    /// Waits until it is known; a run that ends answers everything.
    ///
    /// # Errors
    /// Why the order wasn't obeyed.
    pub fn wait(self) -> Result<Reply, Refusal> {
        self.0.recv().unwrap_or(Err(Refusal::Ended))
    }
}

/// An order that waits, and who wants to know.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub order: Order,
    pub sender: Sender,
}

/// Who wants to know. Dropped without a word it says that the run has ended.
#[derive(Debug)]
pub(crate) struct Sender(SyncSender<Result<Reply, Refusal>>);

impl Sender {
    /// Says what came of the order.
    pub(crate) fn answer(self, reply: Result<Reply, Refusal>) {
        let _ = self.0.send(reply); // nobody may want to know
    }
}

/// The queue of one run, shared by all who send orders to it.
#[derive(Debug, Default)]
pub struct Control {
    /// Stops so far: in front of the queue, see above.
    stops: AtomicU32,
    taken: AtomicU64,
    busy: AtomicU64,
    pub(crate) at_once: AtOnce,
    /// Protected by the lock, which is held to put one in or take one out.
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Oldest first.
    waiting: VecDeque<Waiting>,
    over: bool,
}

impl Control {
    /// Sends an order, from any thread, without waiting. It is obeyed within some 10 ms of a run that goes.
    ///
    /// # Errors
    /// Gives it back where so many wait already, and where the run has ended.
    pub fn send(&self, order: Order) -> Result<Answer, Unsent> {
        let is_stop = matches!(order, Order::Stop);
        if is_stop {
            self.stops.fetch_add(1, Ordering::Relaxed);
        }
        let mut queue = self.queue();
        if queue.over {
            return Err(Unsent { refusal: Refusal::Ended, order });
        }
        let (sender, answer) = sync_channel(1);
        let sender = Sender(sender);
        if is_stop {
            sender.answer(Ok(Reply::Stopping));
        } else if queue.waiting.len() < ORDERS_MAX {
            queue.waiting.push_back(Waiting { order, sender });
        } else {
            self.busy.fetch_add(1, Ordering::Relaxed);
            return Err(Unsent { refusal: Refusal::Busy, order });
        }
        Ok(Answer(answer))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For who ends the process at once because of `why`: the log gets its last line, if its disk takes it
    /// soon. The commands that run after dumps are killed by their helper as soon as this process is gone.
    /// Legal at any time; what the run still comes to isn't in its log.
    pub fn end_at_once(&self, why: &str) {
        self.at_once.log(why);
    }

    /// Whether somebody ends the process at once.
    pub fn ends_at_once(&self) -> bool {
        self.at_once.asked()
    }

    /// Stops ordered so far.
    pub fn stops(&self) -> u32 {
        self.stops.load(Ordering::Relaxed)
    }

    /// Orders that the run has taken from the queue, and those that were refused because it was full.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Relaxed), self.busy.load(Ordering::Relaxed))
    }

    /// The oldest that waits; a change only where `changes` says that it may come.
    pub(crate) fn take(&self, changes: bool) -> Option<Waiting> {
        let mut queue = self.queue();
        let may_come =
            |waiting: &Waiting| changes || !matches!(waiting.order, Order::Reload(_) | Order::Trigger(_));
        let at = queue.waiting.iter().position(may_come)?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        queue.waiting.remove(at)
    }

    /// The run is over: what waits is refused, and what comes.
    pub(crate) fn end(&self) {
        let mut queue = self.queue();
        queue.over = true;
        for waiting in queue.waiting.drain(..) {
            waiting.sender.answer(Err(Refusal::Ended));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn sent(control: &Control, order: Order) -> Answer {
        control.send(order).expect("it is sent")
    }

    fn refused(control: &Control, order: Order) -> Refusal {
        control.send(order).expect_err("it is refused").refusal
    }

    #[test]
    fn at_the_bound_an_order_comes_back_at_once_is_counted_and_may_be_sent_again() {
        let control = Control::default();
        let answers: Vec<Answer> = (0..ORDERS_MAX).map(|_| sent(&control, Order::ReopenLog)).collect();
        let name = Which::Named("a".to_string());
        let Unsent { refusal, order } = control.send(Order::Fire(name.clone())).unwrap_err();
        assert_eq!((refusal, control.counts()), (Refusal::Busy, (0, 1)));
        assert!(matches!(&order, Order::Fire(which) if *which == name), "what was ordered comes back");
        control.take(true).unwrap().sender.answer(Ok(Reply::Done));
        let again = sent(&control, order);
        assert_eq!(control.counts(), (1, 1));
        control.end();
        let replies: Vec<_> = answers.into_iter().map(Answer::wait).collect();
        assert_eq!((&replies[0], &replies[1]), (&Ok(Reply::Done), &Err(Refusal::Ended)));
        assert_eq!(again.wait(), Err(Refusal::Ended));
    }

    #[test]
    fn a_stop_gets_through_a_full_queue_and_is_answered_at_once() {
        let control = Control::default();
        let _waiting: Vec<Answer> = (0..ORDERS_MAX).map(|_| sent(&control, Order::ReopenLog)).collect();
        assert_eq!((refused(&control, Order::NoteResumed), control.stops()), (Refusal::Busy, 0));
        assert_eq!((sent(&control, Order::Stop).wait(), control.stops()), (Ok(Reply::Stopping), 1));
        assert_eq!((sent(&control, Order::Stop).wait(), control.stops()), (Ok(Reply::Stopping), 2));
    }

    #[test]
    fn behind_the_end_every_order_is_refused() {
        let control = Control::default();
        let waiting = sent(&control, Order::Fire(Which::Hand));
        control.end();
        assert_eq!(waiting.wait(), Err(Refusal::Ended));
        let reload = Order::Reload(Reload::Refuse(Vec::new()));
        for order in [Order::Stop, Order::Fire(Which::All), reload, Order::ReopenLog, Order::NoteResumed] {
            assert_eq!(refused(&control, order), Refusal::Ended);
        }
        assert!(control.take(true).is_none());
    }

    #[test]
    fn a_change_waits_for_its_turn_and_lets_others_pass() {
        let control = Control::default();
        let change = sent(&control, Order::Reload(Reload::Refuse(vec![Fault::whole("first")])));
        let _second = sent(&control, Order::Reload(Reload::Refuse(vec![Fault::whole("second")])));
        let _fire = sent(&control, Order::Fire(Which::Hand));
        assert!(matches!(control.take(false).unwrap().order, Order::Fire(Which::Hand)));
        assert!(control.take(false).is_none());
        let first = control.take(true).unwrap();
        assert!(
            matches!(&first.order, Order::Reload(Reload::Refuse(faults)) if faults[0] == Fault::whole("first"))
        );
        first.sender.answer(Err(Refusal::Faults(vec![Fault::whole("first")])));
        assert_eq!(change.wait(), Err(Refusal::Faults(vec![Fault::whole("first")])));
        assert!(control.take(true).is_some());
    }

    #[test]
    fn who_waits_in_another_thread_learns_what_came_of_it_and_who_went_away_is_not_missed() {
        let control = Arc::new(Control::default());
        let sender = control.clone();
        let other = std::thread::spawn(move || sent(&sender, Order::ReopenLog).wait());
        let waiting = loop {
            match control.take(true) {
                Some(waiting) => break waiting,
                None => std::thread::yield_now(),
            }
        };
        waiting.sender.answer(Ok(Reply::Done));
        assert_eq!(other.join().unwrap(), Ok(Reply::Done));
        drop(sent(&control, Order::ReopenLog));
        control.take(true).unwrap().sender.answer(Ok(Reply::Done));
        let unanswered = sent(&control, Order::ReopenLog);
        drop(control.take(true)); // as by a main thread that fails
        assert_eq!(unanswered.wait(), Err(Refusal::Ended));
    }

    #[test]
    fn refusals_say_what_is_to_be_done() {
        assert_eq!(Refusal::Busy.to_string(), "64 orders wait already: try again a little later");
        assert_eq!(Refusal::NoSuchTrigger("x".to_string()).to_string(), "there is no trigger 'x'");
        assert_eq!(Refusal::Faults(vec![Fault::whole("a"), Fault::whole("b")]).to_string(), "a; b");
    }
}
