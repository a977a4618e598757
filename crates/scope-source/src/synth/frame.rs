//! Writing of one well-formed Ethernet frame with IPv4 or IPv6, UDP or TCP, and right checksums.
//!
//! ```text
//! | Ethernet 14 | 802.1Q 4, where tagged | IPv4 20 or IPv6 40 | UDP 8 or TCP 20 | payload |
//! ```

/// Transport protocol of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, 8 bytes of header.
    Udp,
    /// TCP, 20 bytes of header, a data segment (ACK and PSH).
    Tcp,
}

impl Transport {
    const fn protocol(self) -> u8 {
        match self {
            Transport::Udp => 17,
            Transport::Tcp => 6,
        }
    }

    const fn header_bytes(self) -> usize {
        match self {
            Transport::Udp => 8,
            Transport::Tcp => 20,
        }
    }
}

/// One end of a conversation: host `h` is 10.0.0.0/16 plus `h`, in IPv6 fd00::10.0.0.0/112 plus `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Number of the host in its network.
    pub host: u16,
    /// Port.
    pub port: u16,
}

/// All that the headers of a frame say.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Who sends.
    pub source: End,
    /// Who receives.
    pub destination: End,
    /// Transport protocol.
    pub transport: Transport,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// VLAN identifier of an 802.1Q tag; 0: untagged.
    pub vlan: u16,
    /// IPv4 identification, and low part of the TCP sequence number.
    pub id: u32,
}

impl Head {
    /// Bytes of all headers together.
    pub const fn bytes(&self) -> usize {
        let tag = if self.vlan == 0 { 0 } else { 4 };
        let ip = if self.ipv6 { 40 } else { 20 };
        14 + tag + ip + self.transport.header_bytes()
    }

    /// Appends the frame with `payload_bytes` of payload, which `fill` writes, to `out`.
    pub fn write(&self, out: &mut Vec<u8>, payload_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        let transport_bytes = self.transport.header_bytes() + payload_bytes;
        self.link(out);
        let pseudo_sum =
            if self.ipv6 { self.ipv6(out, transport_bytes) } else { self.ipv4(out, transport_bytes) };
        let transport_at = out.len();
        let checksum_at = transport_at + self.transport(out, transport_bytes);
        let payload_at = out.len();
        out.resize(payload_at + payload_bytes, 0);
        fill(&mut out[payload_at..]);
        let sum = pseudo_sum
            + u64::from(self.transport.protocol())
            + transport_bytes as u64
            + word_sum(&out[transport_at..]);
        let checksum = match (folded(sum), self.transport) {
            (0, Transport::Udp) => 0xffff,
            (checksum, _) => checksum,
        };
        out[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    fn link(&self, out: &mut Vec<u8>) {
        for end in [self.destination, self.source] {
            out.extend([2, 0, 10, 0]); // a locally administered address that shows the host
            out.extend(end.host.to_be_bytes());
        }
        if self.vlan != 0 {
            out.extend([0x81, 0x00]);
            out.extend(self.vlan.to_be_bytes());
        }
        out.extend(if self.ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    }

    /// Appends the header, returns the sum over both addresses for the transport's checksum.
    fn ipv4(&self, out: &mut Vec<u8>, transport_bytes: usize) -> u64 {
        let at = out.len();
        let [total_high, total_low] = ((20 + transport_bytes) as u16).to_be_bytes();
        let [id_high, id_low] = (self.id as u16).to_be_bytes();
        out.extend([
            0x45,
            0,
            total_high,
            total_low,
            id_high,
            id_low,
            0x40,
            0,
            64,
            self.transport.protocol(),
            0,
            0,
        ]);
        for end in [self.source, self.destination] {
            out.extend([10, 0]);
            out.extend(end.host.to_be_bytes());
        }
        let checksum = folded(word_sum(&out[at..])).to_be_bytes();
        out[at + 10..at + 12].copy_from_slice(&checksum);
        word_sum(&out[at + 12..])
    }

    /// Appends the header, returns the sum over both addresses for the transport's checksum.
    fn ipv6(&self, out: &mut Vec<u8>, transport_bytes: usize) -> u64 {
        out.extend([0x60, 0, 0, 0]);
        out.extend((transport_bytes as u16).to_be_bytes());
        out.extend([self.transport.protocol(), 64]);
        let addresses_at = out.len();
        for end in [self.source, self.destination] {
            out.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0]);
            out.extend(end.host.to_be_bytes());
        }
        word_sum(&out[addresses_at..])
    }

    /// Appends the header with an empty checksum, returns the checksum's place in it.
    fn transport(&self, out: &mut Vec<u8>, transport_bytes: usize) -> usize {
        out.extend(self.source.port.to_be_bytes());
        out.extend(self.destination.port.to_be_bytes());
        match self.transport {
            Transport::Udp => {
                out.extend((transport_bytes as u16).to_be_bytes());
                out.extend([0, 0]);
                6
            }
            Transport::Tcp => {
                out.extend(self.id.to_be_bytes());
                out.extend((!self.id).to_be_bytes());
                out.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
                16
            }
        }
    }
}

/// Sum of big-endian 16-bit words, odd last byte padded; added up in 32-bit words, which folds to the same.
fn word_sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let mut rest = [0; 4];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    let mut sum = u64::from(u32::from_be_bytes(rest));
    for word in words {
        sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    sum
}

/// The Internet checksum of a sum of words.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
