//! The filter of a volume: which of the packets that it is dealt it keeps.

use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterEngine, FilterInput, Predicate};
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Headers, KeyEntry, LinkType};
use scope_store::compose::{Sieve, TOGETHER_MAX};

const _: () = assert!(TOGETHER_MAX <= FILTER_INPUTS_MAX);

/// A filter for packets of any link type.
pub(crate) struct StoreSieve {
    filter: Filter,
    engine: FilterEngine,
    /// Of each link type that has come.
    predicates: Vec<(LinkType, Predicate)>,
}

impl StoreSieve {
    pub fn new(filter: &Filter, engine: FilterEngine) -> StoreSieve {
        StoreSieve { filter: filter.clone(), engine, predicates: Vec::new() }
    }

    fn predicate(&mut self, link_type: LinkType) -> &Predicate {
        let at = self.predicates.iter().position(|(known, _)| *known == link_type).unwrap_or_else(|| {
            let predicate = self.filter.for_link(link_type);
            // Where there is no machine code the interpreter answers the same; that was said at the start.
            let _ = self.filter.prepare(self.engine);
            self.predicates.push((link_type, predicate));
            self.predicates.len() - 1
        });
        &self.predicates[at].1
    }
}

impl Sieve for StoreSieve {
    fn keeps(&mut self, link_type: LinkType, packets: &[(KeyEntry, PacketBlock<'_>)]) -> u64 {
        let mut inputs = [FilterInput::default(); TOGETHER_MAX];
        for (input, (key, block)) in inputs.iter_mut().zip(packets) {
            let headers = Headers::parse(link_type, block.data());
            *input = FilterInput::new(&headers, *key, block.data(), block.original_len());
        }
        self.predicate(link_type).matches_batch(&inputs[..packets.len().min(TOGETHER_MAX)], u64::MAX)
    }
}
