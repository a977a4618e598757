//! The filter of a dump or a question, for packets of one link type: their keys first, all of a segment at once, then
//! the filter where those say maybe.

use scope_filter::{Filter, FilterEngine, FilterInput, Predicate};
use scope_packet::{Headers, LinkType, SegmentId};
use scope_ring::search::PATTERNS_MAX;
use scope_ring::{Candidate, KeyTest};
use scope_store::Sift;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// From so many packets on a filter runs as machine code: making it takes as long as interpreting it for
/// about so many, and of a thousand dumps that begin at once most never evaluate so many.
const NATIVE_FROM: u64 = 16_384;

/// A dump's filter for packets of one link type.
pub(crate) struct Sieve {
    link_type: LinkType,
    keys: KeyTest,
    predicate: Predicate,
    /// What has to match as well.
    bound: Option<Predicate>,
    /// Both match every packet.
    is_everything: bool,
    engine: FilterEngine,
    evaluated: AtomicU64,
    /// Why no machine code could be made of it.
    interpreted: OnceLock<String>,
}

/// A question's filter, for the threads that read a store: they share one sieve for each link type.
pub struct StoreSift {
    filter: Filter,
    bound: Option<Filter>,
    engine: FilterEngine,
    sieves: RwLock<BTreeMap<LinkType, Arc<Sieve>>>,
}

impl StoreSift {
    /// Of `filter`, which was compiled for the link types of what is read.
    pub fn new(filter: Filter, engine: FilterEngine) -> StoreSift {
        StoreSift { filter, bound: None, engine, sieves: RwLock::default() }
    }

    /// Only packets that this filter matches as well.
    #[must_use]
    pub fn bound_to(self, bound: Option<Filter>) -> StoreSift {
        StoreSift { bound, ..self }
    }

    fn sieve(&self, link_type: LinkType) -> Arc<Sieve> {
        let known = self.sieves.read().unwrap_or_else(PoisonError::into_inner).get(&link_type).cloned();
        known.unwrap_or_else(|| {
            let sieve = Sieve::new(&self.filter, self.engine, link_type);
            let sieve = Arc::new(sieve.bound_to(self.bound.as_ref()));
            let mut sieves = self.sieves.write().unwrap_or_else(PoisonError::into_inner);
            sieves.entry(link_type).or_insert(sieve).clone()
        })
    }

    /// Why no machine code could be made of the filter, where there should be some.
    pub fn interpreted(&self) -> Option<String> {
        let sieves = self.sieves.read().unwrap_or_else(PoisonError::into_inner);
        sieves.values().find_map(|sieve| sieve.interpreted().map(String::from))
    }
}

impl Sift for StoreSift {
    fn keys(&self, link_type: LinkType) -> KeyTest {
        self.sieve(link_type).keys().clone()
    }

    fn select(&self, _: SegmentId, link_type: LinkType, candidates: &[Candidate<'_>]) -> u64 {
        self.sieve(link_type).matches(candidates)
    }

    fn is_everything(&self) -> bool {
        self.filter.is_everything() && self.bound.as_ref().is_none_or(Filter::is_everything)
    }
}

/// Which keys a packet of this link type can have that `filter` matches: at least those.
pub(crate) fn keys(filter: &Filter, link_type: LinkType) -> KeyTest {
    let patterns = filter.screen(link_type).patterns(PATTERNS_MAX).into_iter();
    let patterns: Vec<_> = patterns.map(|pattern| (pattern.mask, pattern.value)).collect();
    KeyTest::any_of(&patterns)
}

impl Sieve {
    /// Derives the key test from the filter: some 10 µs to milliseconds.
    pub(crate) fn new(filter: &Filter, engine: FilterEngine, link_type: LinkType) -> Sieve {
        let predicate = filter.for_link(link_type);
        let keys = keys(filter, link_type);
        Sieve {
            link_type,
            keys,
            predicate,
            bound: None,
            is_everything: filter.is_everything(),
            engine,
            evaluated: AtomicU64::new(0),
            interpreted: OnceLock::new(),
        }
    }

    /// Only packets that this filter matches as well.
    pub(crate) fn bound_to(mut self, bound: Option<&Filter>) -> Sieve {
        if let Some(filter) = bound {
            self.bound = Some(filter.for_link(self.link_type));
            self.is_everything &= filter.is_everything();
        }
        self
    }

    /// Link type of the packets.
    pub(crate) fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Passes every packet that the filter matches.
    pub(crate) fn keys(&self) -> &KeyTest {
        &self.keys
    }

    /// Which of at most [`scope_filter::FILTER_INPUTS_MAX`] packets the filter matches: a bit each.
    pub(crate) fn matches<'a>(&self, candidates: &[Candidate<'a>]) -> u64 {
        if self.is_everything {
            return u64::MAX;
        }
        let ask = |candidate: &Candidate<'a>| {
            let block = candidate.block;
            let headers = Headers::parse(self.link_type, block.data());
            FilterInput::new(&headers, candidate.key, block.data(), block.original_len())
        };
        let asked: Vec<FilterInput<'a>> = candidates.iter().map(ask).collect();
        self.count(asked.len() as u64);
        let own = self.predicate.matches_batch(&asked, u64::MAX);
        self.bound.as_ref().map_or(own, |bound| bound.matches_batch(&asked, own))
    }

    /// Makes machine code of the filter once it has been evaluated often. The interpreter gives the same
    /// result.
    fn count(&self, packets: u64) {
        let before = self.evaluated.fetch_add(packets, Ordering::Relaxed);
        if self.engine == FilterEngine::Native
            && before < NATIVE_FROM
            && before + packets >= NATIVE_FROM
            && let Err(error) = self
                .predicate
                .make_native()
                .and_then(|()| self.bound.as_ref().map_or(Ok(()), Predicate::make_native))
        {
            let _ = self.interpreted.set(error.to_string()); // passed once
        }
    }

    /// Why the interpreter answers although there should be machine code.
    pub(crate) fn interpreted(&self) -> Option<&str> {
        self.interpreted.get().map(String::as_str)
    }
}
