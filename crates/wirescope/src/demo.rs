//! The main job, shown: traffic, one trigger packet, a dump from before and after it.

use crate::args::DemoArgs;

/// Runs the demo and returns the exit code.
pub fn demo(_args: &DemoArgs) -> u8 {
    2
}
