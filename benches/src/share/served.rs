//! A group and the thread that serves it, for rows that need no run.

use anyhow::Result;
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_group::rules::RuleSet;
use scope_group::{Group, GroupPlan, Settings, Sharer, Sharing};
use scope_machine::cpus::Pinning;
use scope_ring::Ring;
use std::sync::Arc;

/// Seats of a group: how many, and bytes of memory of each.
#[derive(Clone, Copy, Debug)]
pub struct Seats {
    pub many: u32,
    pub memory_bytes: u64,
}

/// A group that takes everything of `ring`, shared out so, with these rules; its thread goes.
///
/// # Errors
/// No memory, or no thread.
pub fn served(ring: &Arc<Ring>, steer: &str, rules: RuleSet, seats: Seats) -> Result<(Arc<Group>, Sharing)> {
    let plan = GroupPlan {
        name: "bench".to_string(),
        settings: Settings {
            interface: None,
            filter: Filter::compile("", VlanRule::default(), &[])?,
            steer: steer.parse()?,
            rules: Arc::new(rules),
        },
        memory_bytes: seats.memory_bytes,
        members_max: seats.many,
        members: 0,
        stuck: None,
    };
    let group = Arc::new(Group::create(&plan, ring.run_id())?);
    let sharing = Sharing::start(&Sharer {
        ring: ring.clone(),
        groups: vec![group.clone()],
        threads: 1,
        pinning: Pinning::Anywhere,
        is_live: true,
        engine: FilterEngine::default(),
    })?;
    Ok((group, sharing))
}
