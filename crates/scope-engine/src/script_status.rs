//! How one script stands, in plain values: for status, log and summary.

/// One script, as the status has it: all its threads together.
#[derive(Clone, Debug, Default)]
pub struct ScriptStatus {
    /// Its trigger.
    pub name: String,
    /// Its file, as written.
    pub file: String,
    /// `trigger` or `dump`.
    pub kind: &'static str,
    /// Packets that it was run for.
    pub packets: u64,
    /// The same per second.
    pub packets_per_s: f64,
    /// Packets that were recycled before it came to them; of several threads that of the one that missed most.
    pub missed: u64,
    /// Packets that it still has to come to.
    pub behind: u64,
    /// How often it said yes.
    pub hits: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Ticks.
    pub ticks: u64,
    /// Bytes of Lua's memory.
    pub memory_bytes: u64,
    /// Flows that its tracker keeps.
    pub flows: u64,
    /// Flows that this gave up for others.
    pub flows_evicted: u64,
    /// Time of a processor, ns.
    pub cpu_ns: u64,
    /// The same, parts of one processor.
    pub cpu: f64,
    /// Why it is run no more.
    pub disabled: Option<String>,
    /// The traceback of its first error.
    pub report: Option<String>,
}
