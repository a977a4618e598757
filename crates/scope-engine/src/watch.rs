//! How a run reports while it goes: the calls that the binary answers.

use crate::attach::Attach;
use crate::measuring::Measuring;
use crate::recording::Asked;
use crate::socket::Socket;
use crate::statistics::Statistics;
use crate::status::{Status, TriggerStatus};
use scope_dump::{Answerer, DumpReport};
use scope_events::{AuditHead, Tail, event};
use scope_fault::Fault;
use scope_folder::Folder;
use scope_rights::Rights;
use scope_ring::RingMemory;
use std::sync::Arc;

/// What there is for whoever listens at the control socket. Nothing of it reaches a worker.
pub struct Opening<'a> {
    /// The socket.
    pub socket: &'a Socket,
    /// The run.
    pub run_id: [u8; 16],
    /// The folder of its dumps; `None`: they go elsewhere.
    pub folder: Option<Arc<Folder>>,
    /// The folders of its store's volumes.
    pub volumes: Vec<Arc<Folder>>,
    /// The newest lines of its log.
    pub tail: Arc<Tail>,
    /// Its signals.
    pub measuring: Arc<Measuring>,
    /// What its log says of the audit.
    pub audit: Arc<AuditHead>,
    /// What answers questions for packets.
    pub answerer: Answerer,
    /// Its traffic statistics, if there are any.
    pub statistics: Option<Arc<Statistics>>,
    /// Their database, if there is one.
    pub asked: Option<Arc<Asked>>,
    /// The door for other programs, if there is one.
    pub attach: Option<Arc<Attach>>,
}

/// Whoever watches a run: called from the run's main thread, never from the packet path (but `prefault` from
/// several threads).
pub trait Watch: Sync {
    /// The ring's memory is being made resident: bytes done so far, of so many.
    fn prefault(&self, done: u64, total: u64);
    /// Sources are open and the ring is ready, in `memory`: capture begins, with these rights (`None`: none
    /// were given up). What else is worth a line at the start has been told.
    fn started(&self, memory: &RingMemory, rights: Option<&Rights>);
    /// What came of trying, in every thread, what must not be possible any more; where that was asked for.
    fn selftest(&self, facts: &serde_json::Value);
    /// Triggers and limits are about to change.
    fn reloading(&self);
    /// They have, or stay as they are.
    fn reloaded(&self);
    /// The control socket is bound, and rights are not given up yet: what begins beside the run, begins now.
    ///
    /// # Errors
    /// It can't, and the run doesn't begin.
    fn bound(&self, _socket: &Socket) -> Result<(), Fault> {
        Ok(())
    }
    /// The run can be asked at this socket: whoever watches may listen there until the run is over.
    fn opening(&self, _opening: Opening<'_>) {}
    /// Once a second, behind [`Watch::status`]: the same as the log's status lines have it.
    fn facts(&self, _facts: &event::Status) {}
    /// The sources are told to stop, or have ended.
    fn stopping(&self);
    /// Once a second.
    fn status(&self, status: &Status);

    /// Nothing more is captured or dumped, and the log is about to be closed: whoever asks the run hears its last word now.
    fn closing(&self) {}

    /// Triggers were changed, armed or disarmed: these are in force. The order's answer comes behind this.
    fn triggers(&self, _triggers: Vec<TriggerStatus>) {}
    /// Something worth a line: a fire by hand, room for dumps again.
    fn note(&self, line: &str);
    /// Something that isn't as it should be.
    fn warning(&self, line: &str);
    /// A dump is finished.
    fn dump(&self, report: &DumpReport);
}
