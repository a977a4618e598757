//! The stage that prefilters: packets that a source's filter doesn't match go no further.

use super::batch::Batch;
use scope_filter::{Filter, Predicate};
use scope_packet::LinkType;

/// At most one for each part of a source and link type; where there is none the stage does nothing.
#[derive(Default)]
pub(super) struct Prefilters(Vec<Prefilter>);

/// What a prefilter evaluates of packets of one link type.
struct Prefilter {
    filter: Filter,
    link_type: LinkType,
    predicate: Predicate,
    /// The packets at hand that it is evaluated for, a bit each.
    which: u64,
}

impl Prefilters {
    /// The place of `filter` for packets of `link_type`; parts with the same one share it.
    pub fn place_for(&mut self, filter: Filter, link_type: LinkType) -> usize {
        let same = |known: &Prefilter| (known.link_type, known.filter.text()) == (link_type, filter.text());
        self.0.iter().position(same).unwrap_or_else(|| {
            let predicate = filter.for_link(link_type);
            self.0.push(Prefilter { filter, link_type, predicate, which: 0 });
            self.0.len() - 1
        })
    }

    /// Takes out of the batch what the prefilters refuse, and returns those packets. `of` says which one an
    /// interface has.
    #[inline]
    pub fn run(&mut self, batch: &mut Batch<'_>, of: impl Fn(u32) -> Option<usize>) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        for (at, packet) in batch.packets.iter().enumerate() {
            if let Some(prefilter) = of(packet.interface) {
                self.0[prefilter].which |= 1 << at;
            }
        }
        let mut refused = 0;
        for prefilter in self.0.iter_mut().filter(|prefilter| prefilter.which != 0) {
            let which = std::mem::take(&mut prefilter.which);
            refused |= which & !prefilter.predicate.matches_batch(batch.asked(), which);
        }
        batch.take_out(refused);
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::{packets, udp};
    use super::super::parse::Parse;
    use super::*;
    use scope_filter::VlanRule;

    fn filter(text: &str) -> Filter {
        Filter::compile(text, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap()
    }

    #[test]
    fn each_interface_has_its_own_and_what_is_refused_is_taken_out() {
        let frames = udp(&[53, 53, 53, 54, 54, 54]);
        let packets = packets(&frames, &[0, 1, 2]);
        let mut batch = Batch::new(&packets, |_| Some(0));
        Parse::default().run(&mut batch, |_| LinkType::ETHERNET);
        let mut prefilters = Prefilters::default();
        assert_eq!(prefilters.run(&mut batch, |_| None), 0);
        let dns = prefilters.place_for(filter("port 53"), LinkType::ETHERNET);
        let other = prefilters.place_for(filter("port 54"), LinkType::ETHERNET);
        assert_eq!(prefilters.place_for(filter("port 53"), LinkType::ETHERNET), dns, "one for both");
        for _ in 0..2 {
            assert_eq!(
                prefilters.run(&mut batch, |interface| [Some(dns), Some(other), None][interface as usize]),
                0b001010
            );
        }
        assert_eq!(batch.lanes().collect::<Vec<_>>(), [(0, 0b110101)]);
    }
}
