//! Which of several workers a packet belongs to, when they read the same files side by side.

use scope_packet::{Headers, LinkType};

/// A worker's share: the packets whose flow falls to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// 0 .. `of`.
    pub(super) index: u32,
    /// Workers that share.
    pub(super) of: u32,
}

impl Share {
    /// Whether the packet is this worker's.
    pub(super) fn takes(self, link_type: LinkType, data: &[u8]) -> bool {
        flow_hash(link_type, data) % u64::from(self.of) == u64::from(self.index)
    }

    /// Whether this worker counts what belongs to no flow: damaged records.
    pub(super) fn counts_damage(self) -> bool {
        self.index == 0
    }
}

/// The same for both directions of a flow; 0 for packets without addresses.
pub(crate) fn flow_hash(link_type: LinkType, data: &[u8]) -> u64 {
    let headers = Headers::parse(link_type, data);
    let Some((source, destination)) = headers.address_bytes(data) else { return 0 };
    let (source_port, destination_port) = headers.ports().unwrap_or((0, 0));
    mix(endpoint(source, source_port).wrapping_add(endpoint(destination, destination_port)))
}

fn endpoint(address: &[u8], port: u16) -> u64 {
    address.chunks(4).fold(mix(u64::from(port)), |hash, chunk| {
        mix(hash ^ chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)))
    })
}

/// The finishing step of splitmix64: every bit of the input moves every bit of the result.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(source: [u8; 6], destination: [u8; 6]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(
            [&source[..4], &destination[..4], &source[4..], &destination[4..], &[0, 8, 0, 0]].concat(),
        );
        packet
    }

    #[test]
    fn both_directions_fall_to_the_same_worker_and_flows_spread() {
        let mut taken = [0; 4];
        for n in 0..=255u8 {
            let (a, b) = ([10, 0, 0, n, 1, n], [10, 0, 1, 7, 2, 2]);
            let there = flow_hash(LinkType::RAW, &udp(a, b));
            assert_eq!(there, flow_hash(LinkType::RAW, &udp(b, a)));
            taken[(there % 4) as usize] += 1;
        }
        assert!(taken.iter().all(|&flows| flows > 32), "{taken:?}");
    }

    #[test]
    fn a_packet_without_addresses_is_the_first_workers() {
        assert_eq!(flow_hash(LinkType::ETHERNET, b"short"), 0);
        assert!(Share { index: 0, of: 3 }.takes(LinkType::ETHERNET, b""));
    }
}
