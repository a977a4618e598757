//! Flows for collectors: IPFIX messages (RFC 7011) over UDP, a record for each direction that has packets.
//!
//! ```text
//! message   0  version 10 (2) │ length (2) │ export time, s (4) │ sequence (4) │ observation domain 0 (4)
//!          16  set: id (2) │ length (2) │ records ...
//! sets      2  the templates: with the first message, then every minute, and with the one behind a datagram that was
//!              refused
//!         256  records of IPv4, 257 of IPv6: fields as [`FIELDS`] has them, with the addresses in front
//! ```
//! The sequence is the number of records before the message, also of those that the system refused to send: a collector
//! sees what it lacks. Templates aren't counted. Records that stand for flows which aren't known have no addresses, and
//! aren't sent. Of ICMP the destination port has type and code (`type * 256 + code`), as collectors expect it.
//!
//! The socket is connected when the [`Sender`] is made, and never waited for. So that a collector has the time to take
//! what comes at once, as at the end of a run, there is a pause behind every [`AT_ONCE`] datagrams: a receive buffer of
//! the usual size (208 KiB) has room for five times as many.

use scope_fault::Fault;
use scope_flow::key::counterpart;
use scope_flow::rows::{FlowRow, Reason, Side};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Longest message, bytes: with the headers of IPv6 and UDP it fits into a frame of Ethernet, also through a tunnel.
const MESSAGE_BYTES_MAX: usize = 1400;
/// How often the templates are sent.
const TEMPLATES_EVERY: Duration = Duration::from_secs(60);

/// Datagrams without a pause, and the pause behind them: some 350,000 records a second.
const AT_ONCE: u32 = 16;
const PAUSE: Duration = Duration::from_millis(1);

/// Protocols whose ports are a type and its counterpart, or a type and a code.
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

const VERSION: u16 = 10;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
/// The set of templates.
const TEMPLATES: u16 = 2;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;

/// What a record has behind its addresses: number of the information element, and its bytes.
#[rustfmt::skip]
const FIELDS: [(u16, u16); 10] = [
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (1, 8),   // octetDeltaCount: lengths by the IP headers
    (2, 8),   // packetDeltaCount
    (7, 2),   // sourceTransportPort
    (11, 2),  // destinationTransportPort
    (58, 2),  // vlanId
    (6, 2),   // tcpControlBits
    (4, 1),   // protocolIdentifier
    (136, 1), // flowEndReason
];
const FIELDS_BYTES: usize = 42;

/// The two kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The template's number, and that of its sets.
    const fn template(self) -> u16 {
        match self {
            Family::V4 => 256,
            Family::V6 => 257,
        }
    }

    /// sourceIPv4Address and destinationIPv4Address, or the same of IPv6; with their bytes.
    const fn addresses(self) -> [(u16, u16); 2] {
        match self {
            Family::V4 => [(8, 4), (12, 4)],
            Family::V6 => [(27, 16), (28, 16)],
        }
    }

    const fn record_bytes(self) -> usize {
        let [(_, source), (_, destination)] = self.addresses();
        source as usize + destination as usize + FIELDS_BYTES
    }
}

const TEMPLATES_BYTES: usize =
    SET_HEADER_BYTES + Family::ALL.len() * (4 + 4 * (FIELDS.len() + Family::V4.addresses().len()));
const _: () = {
    let (mut at, mut bytes) = (0, 0);
    while at < FIELDS.len() {
        bytes += FIELDS[at].1 as usize;
        at += 1;
    }
    assert!(bytes == FIELDS_BYTES);
    // A message with templates has room for a record.
    let first = HEADER_BYTES + TEMPLATES_BYTES + SET_HEADER_BYTES + Family::V6.record_bytes();
    assert!(first <= MESSAGE_BYTES_MAX);
};

/// One direction of a flow.
struct Record<'a> {
    flow: &'a FlowRow,
    side: &'a Side,
    addresses: Addresses,
    ports: (u16, u16),
}

enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl<'a> Record<'a> {
    /// Those of a flow: none where its addresses aren't known, one where only one side has sent.
    fn of(flow: &'a FlowRow) -> impl Iterator<Item = Record<'a>> {
        let ends = flow.source.zip(flow.destination);
        let sides = ends.map(|(from, to)| [(from, to, &flow.forward), (to, from, &flow.reverse)]);
        let sides = sides.into_iter().flatten().filter(|(.., side)| side.packets > 0);
        sides.filter_map(|(from, to, side)| {
            let addresses = match (from.0, to.0) {
                (IpAddr::V4(from), IpAddr::V4(to)) => Addresses::V4(from, to),
                (IpAddr::V6(from), IpAddr::V6(to)) => Addresses::V6(from, to),
                _ => return None,
            };
            let ports = match (flow.proto, &addresses) {
                (ICMP, Addresses::V4(..)) => (0, icmp(false, (from.1, to.1))),
                (ICMP6, Addresses::V6(..)) => (0, icmp(true, (from.1, to.1))),
                _ => (from.1, to.1),
            };
            Some(Record { flow, side, addresses, ports })
        })
    }

    fn family(&self) -> Family {
        match self.addresses {
            Addresses::V4(..) => Family::V4,
            Addresses::V6(..) => Family::V6,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match &self.addresses {
            Addresses::V4(from, to) => out.extend([from.octets(), to.octets()].concat()),
            Addresses::V6(from, to) => out.extend([from.octets(), to.octets()].concat()),
        }
        let ms = |ns: i64| ((ns / NS_PER_MS) as u64).to_be_bytes();
        out.extend(ms(self.flow.start_ns));
        out.extend(ms(self.flow.end_ns));
        out.extend(self.side.ip_bytes.to_be_bytes());
        out.extend(self.side.packets.to_be_bytes());
        out.extend(self.ports.0.to_be_bytes());
        out.extend(self.ports.1.to_be_bytes());
        out.extend(self.flow.vlan.to_be_bytes());
        out.extend(u16::from(self.side.tcp_flags).to_be_bytes());
        out.push(self.flow.proto);
        out.push(end_reason(self.flow.reason));
    }
}

/// Type and code of ICMP as one number: of what has a counterpart the code is 0.
fn icmp(is_ipv6: bool, (kind, other): (u16, u16)) -> u16 {
    let has_counterpart = counterpart(is_ipv6, kind as u8).map(u16::from) == Some(other);
    kind << 8 | if has_counterpart { 0 } else { other }
}

/// flowEndReason (RFC 5102, 5.11.3).
fn end_reason(reason: Reason) -> u8 {
    match reason {
        Reason::Idle => 1,
        Reason::Active => 2,
        Reason::End => 3,
        Reason::Stop => 4,
        Reason::Evicted | Reason::Unwritten => 5,
    }
}

/// A message that is being written.
struct Message {
    bytes: Vec<u8>,
    records: u32,
    has_templates: bool,
    /// The set that records are added to: its kind, and where it begins.
    set: Option<(Family, usize)>,
}

impl Message {
    /// An empty one; length, time and sequence are written at its end.
    fn new() -> Message {
        let mut bytes = Vec::with_capacity(MESSAGE_BYTES_MAX);
        bytes.extend(VERSION.to_be_bytes());
        bytes.resize(HEADER_BYTES, 0);
        Message { bytes, records: 0, has_templates: false, set: None }
    }

    fn add_templates(&mut self) {
        self.bytes.extend(TEMPLATES.to_be_bytes());
        self.bytes.extend((TEMPLATES_BYTES as u16).to_be_bytes());
        for family in Family::ALL {
            let fields = family.addresses().into_iter().chain(FIELDS);
            self.bytes.extend(family.template().to_be_bytes());
            self.bytes.extend((fields.clone().count() as u16).to_be_bytes());
            for (element, bytes) in fields {
                self.bytes.extend(element.to_be_bytes());
                self.bytes.extend(bytes.to_be_bytes());
            }
        }
        self.has_templates = true;
    }

    fn has_room_for(&self, record: &Record<'_>) -> bool {
        let family = record.family();
        let goes_on = self.set.is_some_and(|(of, _)| of == family);
        let header = if goes_on { 0 } else { SET_HEADER_BYTES };
        self.bytes.len() + header + family.record_bytes() <= MESSAGE_BYTES_MAX
    }

    fn add(&mut self, record: &Record<'_>) {
        let family = record.family();
        if self.set.is_none_or(|(of, _)| of != family) {
            self.end_set();
            self.set = Some((family, self.bytes.len()));
            self.bytes.extend(family.template().to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        record.write(&mut self.bytes);
        self.records += 1;
    }

    fn end_set(&mut self) {
        if let Some((_, at)) = self.set.take() {
            let len = (self.bytes.len() - at) as u16;
            self.bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
        }
    }

    fn finish(&mut self, epoch_ns: i64, sequence: u32) -> &[u8] {
        self.end_set();
        let len = self.bytes.len() as u16;
        self.bytes[2..4].copy_from_slice(&len.to_be_bytes());
        self.bytes[4..8].copy_from_slice(&((epoch_ns / NS_PER_S) as u32).to_be_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_be_bytes());
        &self.bytes
    }
}

/// When something is sent.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Ns since the epoch: what messages say.
    pub epoch_ns: i64,
    /// By which the minute between templates is measured, whatever the clock is set to.
    pub instant: Instant,
}

/// Makes messages of rows.
#[derive(Debug, Default)]
struct Encoder {
    /// Records so far, modulo 2^32.
    sequence: u32,
    templates_sent: Option<Instant>,
}

impl Encoder {
    /// The messages for `flows`; where the templates are due one comes also without flows. `send` says whether a
    /// message has left, and how many records it has.
    fn messages(&mut self, flows: &[FlowRow], now: Now, mut send: impl FnMut(&[u8], u32) -> bool) {
        let mut message = self.begin(now);
        for record in flows.iter().flat_map(Record::of) {
            if !message.has_room_for(&record) {
                self.end(message, now, &mut send);
                message = self.begin(now);
            }
            message.add(&record);
        }
        if message.records > 0 || message.has_templates {
            self.end(message, now, &mut send);
        }
    }

    fn begin(&self, now: Now) -> Message {
        let mut message = Message::new();
        let is_due = |sent: Instant| now.instant.saturating_duration_since(sent) >= TEMPLATES_EVERY;
        if self.templates_sent.is_none_or(is_due) {
            message.add_templates();
        }
        message
    }

    fn end(&mut self, mut message: Message, now: Now, send: &mut impl FnMut(&[u8], u32) -> bool) {
        let (records, has_templates) = (message.records, message.has_templates);
        let has_left = send(message.finish(now.epoch_ns, self.sequence), records);
        self.sequence = self.sequence.wrapping_add(records);
        match has_left {
            true if has_templates => self.templates_sent = Some(now.instant),
            true => {}
            false => self.templates_sent = None,
        }
    }
}

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that left, and were not refused as far as is known.
    pub datagrams: u64,
    /// The records in them.
    pub records: u64,
    /// Datagrams that the system refused, had no room for, or heard to be refused.
    pub refused_datagrams: u64,
    /// The records in them.
    pub refused_records: u64,
    /// Rows without addresses: they stand for flows that aren't known, and aren't sent.
    pub unaddressed: u64,
}

/// Sends flows to a collector.
#[derive(Debug)]
pub struct Sender {
    socket: UdpSocket,
    encoder: Encoder,
    counts: Sent,
    /// Records of the datagram before: a refusal is heard with the next one.
    before: Option<u32>,
    /// Datagrams since the last pause.
    at_once: u32,
    last_error: Option<io::Error>,
}

impl Sender {
    /// Opens a socket and connects it, for a time when neither is possible any more. Nothing is sent.
    ///
    /// # Errors
    /// The system's: there is no way to the address, perhaps.
    pub fn connect(collector: SocketAddr) -> io::Result<Sender> {
        let any: IpAddr = match collector {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(collector)?;
        socket.set_nonblocking(true)?;
        let (encoder, counts) = (Encoder::default(), Sent::default());
        Ok(Sender { socket, encoder, counts, before: None, at_once: 0, last_error: None })
    }

    /// Sends `flows`, with pauses, and the templates where they are due: call it every few seconds also without flows.
    /// What can't be sent at once is counted.
    pub fn send(&mut self, flows: &[FlowRow], now: Now) {
        let Sender { socket, encoder, counts, before, at_once, last_error } = self;
        let is_unaddressed = |flow: &&FlowRow| flow.source.is_none() || flow.destination.is_none();
        counts.unaddressed += flows.iter().filter(is_unaddressed).count() as u64;
        encoder.messages(flows, now, |datagram, records| {
            *at_once += 1;
            if *at_once > AT_ONCE {
                std::thread::sleep(PAUSE);
                *at_once = 1;
            }
            let mut sent = socket.send(datagram);
            let is_refusal = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
            let mut was_refused = false;
            // What is refused here is the datagram before, and this one wasn't sent.
            if let (Err(error), Some(records)) = (&sent, *before)
                && is_refusal(error)
            {
                counts.datagrams -= 1;
                counts.records -= u64::from(records);
                counts.refused_datagrams += 1;
                counts.refused_records += u64::from(records);
                was_refused = true;
                *last_error = sent.err();
                sent = socket.send(datagram);
            }
            match sent {
                Ok(_) => {
                    *before = Some(records);
                    counts.datagrams += 1;
                    counts.records += u64::from(records);
                    !was_refused
                }
                Err(error) => {
                    *before = None;
                    counts.refused_datagrams += 1;
                    counts.refused_records += u64::from(records);
                    *last_error = Some(error);
                    false
                }
            }
        });
    }

    /// What became of all datagrams so far.
    pub fn sent(&self) -> Sent {
        self.counts
    }

    /// Why one was refused, once.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.last_error.take()
    }
}

/// Reads `ADDR:PORT`, of setting `ipfix`. Names are not looked up.
///
/// # Errors
/// It is no numeric address with a port.
pub fn collector(text: &str) -> Result<SocketAddr, Fault> {
    let fault = |is: &str| {
        let fault = Fault::of("ipfix").value(text, is);
        fault.remedy("write e.g. 192.0.2.1:4739 or [2001:db8::1]:4739; names of hosts are not looked up")
    };
    match text.parse::<SocketAddr>() {
        Ok(collector) if collector.port() == 0 => Err(fault("has no port")),
        Ok(collector) => Ok(collector),
        Err(_) if text.parse::<IpAddr>().is_ok() => Err(fault("has no port")),
        Err(_) => Err(fault("is no numeric address with a port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Seconds since 1970 in the tests.
    const EXPORT_S: i64 = 1_700_000_000;

    fn now(instant: Instant) -> Now {
        Now { epoch_ns: EXPORT_S * NS_PER_S, instant }
    }

    fn side(packets: u64, ip_bytes: u64, tcp_flags: u8) -> Side {
        Side { packets, ip_bytes, tcp_flags, bytes: ip_bytes + 14 * packets, ..Side::default() }
    }

    fn flow(source: (&str, u16), destination: (&str, u16), forward: Side, reverse: Side) -> FlowRow {
        let end = |(address, port): (&str, u16)| Some((address.parse().unwrap(), port));
        FlowRow {
            start_ns: 1_699_999_990_123_456_789,
            end_ns: 1_699_999_999_987_654_321,
            interface: Arc::from("eth0"),
            interface_rev: None,
            vlan: 0,
            proto: 6,
            source: end(source),
            destination: end(destination),
            forward,
            reverse,
            rtt_server_ns: None,
            rtt_client_ns: None,
            state: None,
            community_id: scope_flow::rows::CommunityId::default(),
            reason: Reason::End,
        }
    }

    /// All messages for rows at one time.
    fn messages(encoder: &mut Encoder, flows: &[FlowRow], now: Now) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        encoder.messages(flows, now, |message, _| {
            all.push(message.to_vec());
            true
        });
        all
    }

    /// A decoder of RFC 7011 that knows nothing of how messages are made here.
    #[derive(Default)]
    struct Collector {
        templates: BTreeMap<u16, Vec<(u16, usize)>>,
        template_sets: usize,
        /// Each record: information element to value.
        records: Vec<BTreeMap<u16, Vec<u8>>>,
        sequences: Vec<u32>,
    }

    impl Collector {
        fn take(&mut self, message: &[u8]) {
            let be16 = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
            let be32 = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
            assert_eq!((be16(0), usize::from(be16(2))), (10, message.len()));
            assert_eq!((i64::from(be32(4)), be32(12)), (EXPORT_S, 0));
            assert_eq!(be32(8) as usize, self.records.len(), "the sequence counts the records before");
            self.sequences.push(be32(8));
            let mut at = 16;
            while at < message.len() {
                let (id, end) = (be16(at), at + usize::from(be16(at + 2)));
                at += 4;
                match id {
                    2 => {
                        self.template_sets += 1;
                        while at < end {
                            let (template, fields) = (be16(at), usize::from(be16(at + 2)));
                            at += 4;
                            let fields = (0..fields)
                                .map(|field| (be16(at + 4 * field), usize::from(be16(at + 4 * field + 2))));
                            let fields: Vec<_> = fields.collect();
                            at += 4 * fields.len();
                            self.templates.insert(template, fields);
                        }
                    }
                    id => {
                        let fields = self.templates.get(&id).expect("a template that is known");
                        while at < end {
                            let mut record = BTreeMap::new();
                            for &(element, bytes) in fields {
                                record.insert(element, message[at..at + bytes].to_vec());
                                at += bytes;
                            }
                            self.records.push(record);
                        }
                    }
                }
                assert_eq!(at, end);
            }
        }

        fn number(&self, record: usize, element: u16) -> u64 {
            self.records[record][&element].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
        }
    }

    #[test]
    fn one_message_byte_for_byte() {
        let mut row = flow(("10.0.0.1", 40000), ("192.0.2.9", 443), side(5, 700, 0x1b), Side::default());
        row.vlan = 7;
        let all = messages(&mut Encoder::default(), &[row], now(Instant::now()));
        #[rustfmt::skip]
        let expected: Vec<u8> = [
            &[0, 10, 0, 178, 0x65, 0x53, 0xf1, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[0, 2, 0, 108],
            &[1, 0, 0, 12, 0, 8, 0, 4, 0, 12, 0, 4, 0, 152, 0, 8, 0, 153, 0, 8, 0, 1, 0, 8, 0, 2, 0, 8],
            &[0, 7, 0, 2, 0, 11, 0, 2, 0, 58, 0, 2, 0, 6, 0, 2, 0, 4, 0, 1, 0, 136, 0, 1],
            &[1, 1, 0, 12, 0, 27, 0, 16, 0, 28, 0, 16, 0, 152, 0, 8, 0, 153, 0, 8, 0, 1, 0, 8, 0, 2, 0, 8],
            &[0, 7, 0, 2, 0, 11, 0, 2, 0, 58, 0, 2, 0, 6, 0, 2, 0, 4, 0, 1, 0, 136, 0, 1],
            &[1, 0, 0, 54],
            &[10, 0, 0, 1, 192, 0, 2, 9],
            &[0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x41, 0x6b], // 1699999990123 ms
            &[0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x67, 0xf3], // 1699999999987 ms
            &[0, 0, 0, 0, 0, 0, 0x02, 0xbc],
            &[0, 0, 0, 0, 0, 0, 0, 5],
            &[0x9c, 0x40, 0x01, 0xbb],
            &[0, 7, 0, 0x1b, 6, 3],
        ].concat();
        assert_eq!(all, [expected]);
    }

    #[test]
    fn each_direction_with_packets_is_a_record_from_its_own_sender() {
        let both = flow(("10.0.0.1", 40000), ("192.0.2.9", 443), side(5, 700, 0x1b), side(4, 9000, 0x12));
        let one = flow(("2001:db8::1", 5353), ("2001:db8::2", 53), side(1, 80, 0), Side::default());
        let mut lost = flow(("10.0.0.1", 1), ("10.0.0.2", 2), side(9, 99, 0), side(9, 99, 0));
        (lost.source, lost.destination) = (None, None);
        let mut collector = Collector::default();
        for message in messages(&mut Encoder::default(), &[both, one, lost], now(Instant::now())) {
            collector.take(&message);
        }
        assert_eq!(collector.records.len(), 3);
        let (first, second, third) = (&collector.records[0], &collector.records[1], &collector.records[2]);
        assert_eq!((&first[&8], &first[&12]), (&vec![10, 0, 0, 1], &vec![192, 0, 2, 9]));
        assert_eq!((&second[&8], &second[&12]), (&vec![192, 0, 2, 9], &vec![10, 0, 0, 1]));
        let numbers =
            |record: usize| [1, 2, 7, 11, 6, 4, 136].map(|element| collector.number(record, element));
        assert_eq!(numbers(0), [700, 5, 40000, 443, 0x1b, 6, 3]);
        assert_eq!(numbers(1), [9000, 4, 443, 40000, 0x12, 6, 3]);
        assert_eq!(numbers(2), [80, 1, 5353, 53, 0, 6, 3]);
        assert_eq!(third[&27], "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(third[&28], "2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(collector.number(0, 152), 1_699_999_990_123);
        assert_eq!(collector.number(0, 153), 1_699_999_999_987);
    }

    #[test]
    fn of_icmp_the_destination_port_has_type_and_code() {
        let ping = |proto, ends: [&str; 2], ports: [u16; 2]| FlowRow {
            proto,
            ..flow((ends[0], ports[0]), (ends[1], ports[1]), side(1, 84, 0), side(1, 84, 0))
        };
        let (v4, v6) = (["10.0.0.1", "192.0.2.9"], ["2001:db8::1", "2001:db8::2"]);
        let one_way = |row: FlowRow| FlowRow { reverse: Side::default(), ..row };
        let rows = [
            ping(1, v4, [8, 0]),
            one_way(ping(1, v4, [3, 13])),
            ping(58, v6, [128, 129]),
            one_way(ping(58, v6, [1, 4])),
        ];
        let mut collector = Collector::default();
        for message in messages(&mut Encoder::default(), &rows, now(Instant::now())) {
            collector.take(&message);
        }
        let ports: Vec<_> = (0..collector.records.len())
            .map(|record| (collector.number(record, 7), collector.number(record, 11)))
            .collect();
        let of = |kind: u64, code: u64| (0, kind << 8 | code);
        assert_eq!(ports, [of(8, 0), of(0, 0), of(3, 13), of(128, 0), of(129, 0), of(1, 4)]);
    }

    #[test]
    fn messages_stay_within_their_bound_and_count_all_records_before_them() {
        let row = |n: usize| {
            let (v4, v6) = (format!("10.0.{}.{}", n / 250, n % 250), format!("2001:db8::{n:x}"));
            let (forward, reverse) = (side(1 + n as u64, 60, 2), side(n as u64 % 2, 40, 0x12));
            match n % 3 {
                0 => flow((v6.as_str(), 1000), ("2001:db8::ffff", 53), forward, reverse),
                _ => flow((v4.as_str(), 1000), ("192.0.2.9", 443), forward, reverse),
            }
        };
        let rows: Vec<FlowRow> = (0..700).map(row).collect();
        let (mut encoder, mut collector) = (Encoder::default(), Collector::default());
        let begin = Instant::now();
        for (number, rows) in rows.chunks(300).enumerate() {
            let all = messages(&mut encoder, rows, now(begin + Duration::from_secs(number as u64)));
            assert!(all.iter().all(|message| message.len() <= 1400));
            let full = all.iter().filter(|message| message.len() > 1400 - 78).count();
            assert!(full + 1 >= all.len(), "a message goes when it is full");
            for message in &all {
                collector.take(message);
            }
        }
        assert_eq!(collector.records.len(), 700 + 350);
        let sent: u64 = (0..collector.records.len()).map(|record| collector.number(record, 2)).sum();
        let rows: u64 = rows.iter().map(|row| row.forward.packets + row.reverse.packets).sum();
        assert_eq!((sent, collector.template_sets), (rows, 1));
    }

    #[test]
    fn templates_come_first_every_minute_and_after_a_refusal() {
        let row = flow(("10.0.0.1", 1), ("10.0.0.2", 2), side(1, 40, 0), Side::default());
        let (mut encoder, begin) = (Encoder::default(), Instant::now());
        let has_templates = |message: &[u8]| message.len() > 16 && message[16..18] == [0, 2];
        let mut at = |seconds: u64, rows: &[FlowRow], leaves: bool| {
            let mut found = Vec::new();
            encoder.messages(rows, now(begin + Duration::from_secs(seconds)), |message, _| {
                found.push(has_templates(message));
                leaves
            });
            found
        };
        let rows = std::slice::from_ref(&row);
        assert_eq!(at(0, &[], true), [true]);
        assert!(at(1, &[], true).is_empty());
        assert_eq!(at(59, rows, true), [false]);
        assert_eq!(at(60, rows, true), [true]);
        assert_eq!(at(61, rows, true), [false]);
        assert_eq!(at(120, &[], true), [true]);
        assert_eq!(at(121, rows, false), [false]);
        assert_eq!(at(122, rows, false), [true]);
        assert_eq!(at(123, rows, true), [true]);
        assert_eq!(at(124, rows, true), [false]);
    }

    #[test]
    fn a_collector_gets_what_was_sent_and_one_that_is_gone_is_counted() {
        let rows: Vec<FlowRow> = (0..100)
            .map(|n| flow(("10.0.0.1", n), ("10.0.0.2", 2), side(1, 40, 0), side(2, 80, 0)))
            .collect();
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sender = Sender::connect(listener.local_addr().unwrap()).unwrap();
        sender.send(&rows, now(Instant::now()));
        let (mut collector, mut datagram) = (Collector::default(), [0; 2000]);
        while collector.records.len() < 200 {
            let bytes = listener.recv(&mut datagram).unwrap();
            collector.take(&datagram[..bytes]);
        }
        let sent = sender.sent();
        assert_eq!((sent.records, sent.refused_datagrams, sent.unaddressed), (200, 0, 0));
        assert!(sender.take_error().is_none());
        drop(listener);
        for _ in 0..3 {
            sender.send(&rows[..1], now(Instant::now()));
        }
        // Of the last datagram nothing was heard yet.
        let Sent { refused_datagrams, refused_records, records, .. } = sender.sent();
        assert_eq!((refused_datagrams, refused_records, records), (2, 4, 202));
        assert_eq!(sender.take_error().unwrap().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn many_datagrams_leave_a_collector_time_to_take_them() {
        let row = |n: u16| flow(("10.0.0.1", n), ("10.0.0.2", 2), side(1, 40, 0), side(1, 40, 0));
        let rows: Vec<FlowRow> = (0..2000).map(row).collect();
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sender = Sender::connect(listener.local_addr().unwrap()).unwrap();
        let begun = Instant::now();
        sender.send(&rows[..1000], now(begun));
        sender.send(&rows[1000..], now(begun));
        let Sent { records, datagrams, .. } = sender.sent();
        assert!(records == 4000 && datagrams > 100, "{datagrams}");
        assert!(begun.elapsed() >= PAUSE * ((datagrams as u32 - 1) / AT_ONCE), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_collector_is_a_numeric_address_with_a_port() {
        let check = |text: &str, cause: Option<&str>| match (collector(text), cause) {
            (Ok(found), None) => assert_eq!(found.to_string(), text),
            (Err(fault), Some(cause)) => assert!(fault.to_string().contains(cause), "{text}: {fault}"),
            (found, _) => panic!("{text}: {found:?}"),
        };
        check("192.0.2.1:4739", None);
        check("[2001:db8::1]:2055", None);
        check("collector.example:4739", Some("is no numeric address"));
        check("localhost:4739", Some("names of hosts are not looked up"));
        check("192.0.2.1", Some("has no port"));
        check("192.0.2.1:0", Some("has no port"));
        check("2001:db8::1", Some("has no port"));
        check("192.0.2.1:70000", Some("is no numeric address"));
        check("", Some("is no numeric address"));
    }
}
