//! The stage that parses: headers and key entry of each packet that has a lane, once, for all stages behind
//! it.

use super::batch::Batch;
use scope_filter::FilterInput;
use scope_packet::{Headers, LinkType, Parsed};

/// The packets at hand, parsed.
#[derive(Default)]
pub(super) struct Parse {
    parsed: Box<Parsed>,
}

impl Parse {
    /// Parses the packets of each lane, whose link type `link_type` says.
    #[inline]
    pub fn run(&mut self, batch: &mut Batch<'_>, link_type: impl Fn(usize) -> LinkType) {
        for (lane, which) in batch.lanes() {
            self.parsed.parse(link_type(lane), which, |at| batch.packets[at].data);
            for (at, packet) in batch.packets.iter().enumerate().filter(|(at, _)| which >> at & 1 != 0) {
                let (tags, key) = (self.parsed.vlan_tags(at), *self.parsed.key(at));
                batch.asked[at] = FilterInput::tagged(tags, key, packet.data, packet.original_len);
            }
        }
    }

    /// Headers of packet `at` of the batch that was parsed last.
    pub fn headers(&self, at: usize) -> Headers {
        self.parsed.headers(at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::{packets, udp};
    use super::*;
    use scope_packet::KeyEntry;

    #[test]
    fn packets_of_each_lane_are_parsed_by_its_link_type_and_others_are_left() {
        let frames = udp(&[1, 2, 3]);
        let packets = packets(&frames, &[0, 1, 2]);
        let mut batch = Batch::new(&packets, |interface| [Some(0), Some(1), None][interface as usize]);
        let mut parse = Parse::default();
        parse.run(&mut batch, |lane| [LinkType::ETHERNET, LinkType::RAW][lane]);
        for (at, link_type) in [(0, LinkType::ETHERNET), (1, LinkType::RAW)] {
            let headers = Headers::parse(link_type, &frames[at]);
            assert_eq!(
                (batch.asked[at].key(), parse.headers(at)),
                (&KeyEntry::new(&headers), headers),
                "packet {at}"
            );
        }
        assert_eq!(batch.asked[2].key(), &KeyEntry::default());
    }
}
