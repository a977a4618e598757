//! What selects packets of a dump beyond its filter: something outside, such as a script of its user.

use scope_packet::LinkType;
use scope_ring::Candidate;

/// Says which packets one dump keeps, of those that its filter matches.
///
/// A trait with a call for up to [`scope_filter::FILTER_INPUTS_MAX`] packets, which are lent: whoever asks another thread
/// copies them.
pub trait Keep: Send {
    /// Which of these packets are kept: a bit each.
    fn keep(&mut self, link_type: LinkType, packets: &[Candidate<'_>]) -> u64;

    /// Who says so, as the dump names it.
    fn name(&self) -> &str;

    /// Why it says nothing more: since then everything is kept.
    fn gave_up(&self) -> Option<&str>;
}
