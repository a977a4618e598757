//! How a door is to be, as the binary says it.

use scope_api::Role;
use scope_api::trigger::Trigger;
use scope_fault::Fault;
use scope_filter::VlanRule;
use scope_trigger::TriggerConfig;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Makes a trigger of its words, and checks it as at the start.
pub type ReadTrigger = Arc<dyn Fn(&Trigger) -> Result<TriggerConfig, Vec<Fault>> + Send + Sync>;

/// How a door is to be.
pub struct Settings {
    /// The group whose members may connect, if one may.
    pub group: Option<u32>,
    /// What they may do.
    pub role: Role,
    /// Wakes whoever reads the configuration file again; `None`: there is no file.
    pub reload: Option<SyncSender<()>>,
    /// Makes triggers of their words.
    pub read_trigger: ReadTrigger,
    /// This program, in words.
    pub version: String,
    /// The configuration that reproduces the run.
    pub config: String,
    /// How filters see VLAN tags.
    pub vlan: VlanRule,
}
