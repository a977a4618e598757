//! Our append: each mix, one and two writers, alone and followed in the open segment.

use super::{Stand, packets_in};
use crate::table::Table;
use scope_measure::{Beside, Run};

/// Writers, who reads beside them, and the row's name.
const FORMS: [(usize, Beside, &str); 5] = [
    (1, Beside::Nobody, "1 writer"),
    (1, Beside::Packets, "1 writer, follower"),
    (1, Beside::Column, "1 writer, column follower"),
    (2, Beside::Nobody, "2 writers"),
    (2, Beside::Packets, "2 writers, follower"),
];

/// Measures the rows once; the forms in turn change places from round to round.
pub fn round(stand: &mut Stand, table: &mut Table) {
    let mut forms = FORMS;
    if !table.round().is_multiple_of(2) {
        forms.reverse();
    }
    for mix in &stand.mixes {
        let turns = if mix.name == "64" { stand.scale.turns_64 } else { stand.scale.turns };
        let packets = packets_in(&mix.packets, stand.scale.ring_bytes, turns);
        for (writers, beside, name) in forms {
            let run =
                Run { ring: &stand.ring, source: &mix.packets, packets: packets / writers as u64, beside };
            let outcome = run.measure(&mut stand.feeders[..writers]);
            if let Some(followed) = outcome.as_ref().ok().and_then(|(_, followed)| *followed) {
                table.put(missed_row(mix.name), name, "packets", Ok(followed.missed as f64));
            }
            table.put(mix.append, name, "ns/packet", outcome.map(|(ns, _)| ns));
        }
    }
}

/// The row that says what followers missed.
fn missed_row(name: &str) -> &'static str {
    match name {
        "64" => "missed_64",
        "128" => "missed_128",
        "512" => "missed_512",
        "1518" => "missed_1518",
        _ => "missed_imix",
    }
}
