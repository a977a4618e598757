//! How a door is to be, as the binary says it.

use scope_api::Role;
use scope_api::trigger::Trigger;
use scope_fault::Fault;
use scope_filter::{GivenName, VlanRule};
use scope_trigger::TriggerConfig;
use serde_json::Value;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Makes a trigger of its words, and checks it as at the start.
pub type ReadTrigger = Arc<dyn Fn(&Trigger) -> Result<TriggerConfig, Vec<Fault>> + Send + Sync>;

/// What was gathered before rights were given up, with the time of that.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// As `wirescope devices --json` prints it; or why there is none.
    pub devices: Result<Value, String>,
    /// When, ns since the epoch.
    pub at_ns: i64,
}

impl Default for Gathered {
    fn default() -> Gathered {
        Gathered { devices: Err("nothing was gathered at the start".to_string()), at_ns: 0 }
    }
}

/// What hooks are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Which label fills which name of a template.
    pub labels: Vec<(GivenName, String)>,
    /// The label of an alert that names the trigger.
    pub trigger_label: String,
}

impl Default for Hooks {
    /// Each name is filled by the label that is called as it is.
    fn default() -> Hooks {
        let labels = GivenName::ALL.map(|name| (name, name.word().to_string()));
        Hooks { labels: labels.to_vec(), trigger_label: "alertname".to_string() }
    }
}

/// How a door is to be.
pub struct Settings {
    /// The group whose members may connect, if one may.
    pub group: Option<u32>,
    /// What they may do.
    pub role: Role,
    /// The user that the door to the network is; `None`: the run's own.
    pub serve_user: Option<u32>,
    /// What others may do through that door at most.
    pub serve_role: Role,
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
    /// Requests that one identity may send in a second.
    pub rate: u32,
    /// What hooks are made of.
    pub hooks: Hooks,
    /// What was gathered before rights were given up.
    pub gathered: Gathered,
}
