//! Later fragments of a datagram find the flow of the first one, in a table of a fixed size.
//!
//! A place is found by the hash of what all fragments share. A datagram that finds its place taken takes it over:
//! what is forgotten counts in the flow without ports.

use crate::key::{Common, End, Key};
use crate::reading::Reading;
use scope_packet::time::NS_PER_SECOND;

/// Datagrams that are remembered.
const PLACES: usize = 4096;
/// A later fragment comes so soon, ns: as long as a host waits for one.
const PATIENCE_NS: u64 = 30 * NS_PER_SECOND as u64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    places: Vec<Option<Datagram>>,
}

#[derive(Clone, Copy, Debug)]
struct Datagram {
    of: (Key, bool),
    id: u32,
    time_ns: i64,
    /// The flow's key and the direction in it.
    flow: (Key, bool),
}

impl Fragments {
    /// Puts a fragment into its datagram's flow, where the first one was seen.
    #[cold]
    pub fn place(&mut self, reading: &mut Reading, time_ns: i64) {
        let Some(fragment) = reading.fragment else { return };
        if self.places.is_empty() {
            self.places = vec![None; PLACES];
        }
        let (key, is_reverse) = datagram(reading);
        let hash = key.hash([u64::from(fragment.id), u64::from(is_reverse)]);
        let place = &mut self.places[hash as usize % PLACES];
        if fragment.is_first {
            let flow = (reading.key, reading.is_reverse);
            *place = Some(Datagram { of: (key, is_reverse), id: fragment.id, time_ns, flow });
        } else if let Some(known) = place
            && (known.of, known.id) == ((key, is_reverse), fragment.id)
            && known.time_ns.abs_diff(time_ns) <= PATIENCE_NS
        {
            (reading.key, reading.is_reverse) = known.flow;
        }
    }
}

/// The flow as it would be without ports, and whether the fragment goes from its greater end to the lesser one.
fn datagram(reading: &Reading) -> (Key, bool) {
    let [mut source, mut destination] = reading.key.numbers().map(|address| End { address, port: 0 });
    if reading.is_reverse {
        std::mem::swap(&mut source, &mut destination);
    }
    Key::new(source, destination, Common { is_one_way: false, ..reading.key.common() })
}
