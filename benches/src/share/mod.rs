//! The part `share`: what other programs get of captured packets, against programs that do the same.
//!
//! | rows | module |
//! |---|---|
//! | what sharing costs its thread; rules and sets | `group_rows` |
//! | packets sent out of an interface: how many, and how exactly at their time | `send_rows` |

mod bars;
mod group_rows;
mod send_rows;

use crate::Scale;
use crate::main_part;
use crate::record::Record;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, before the first round. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    let lab = main_part::lab();
    let stand = match &lab {
        Ok(lab) => Some(send_rows::Stand::new(workspace, lab, scale)?),
        Err(why) => {
            send_rows::leave_out(why, &mut table);
            None
        }
    };
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        group_rows::round(scale, &mut table);
        if let Some(stand) = &stand {
            stand.round(&mut table);
        }
    }
    record.bars.extend(bars::bars(&table));
    record.machine.insert("share".to_string(), send_rows::settings());
    table.finish(record);
    Ok(())
}
