//! Packets that a filter is tried on: counted as they come, the first of them kept to measure its time.

use scope_filter::{Filter, Predicate, Screen};
use scope_packet::{Headers, Interface, KeyEntry, LinkType, Packet, Sink};
use scope_source::file::FileSource;
use scope_source::synth::{self, Prepare, Size, SynthOptions};
use scope_source::{Polled, Source, SourceError};
use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::speech::{Level, say};

/// Packets of each link type that are kept for measuring, and bytes of each: few enough to stay in the
/// processor's cache.
const SAMPLE_PACKETS_MAX: usize = 256;
const SAMPLE_BYTES_MAX: usize = 2048;
/// One round of measuring takes at least this long; the best of the rounds counts.
const ROUND: Duration = Duration::from_millis(10);
const ROUNDS: usize = 5;
/// Link types of a file that are told apart; packets of further ones are counted, and the filter isn't asked
/// of them.
pub const LINKS_MAX: usize = 64;
/// Tags that are told apart: 0, 1, 2, and more.
pub const TAG_COUNTS: usize = 4;

/// What the packets of one link type came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// By number of VLAN tags: packets, and those of them that the filter matches.
    pub by_tags: [(u64, u64); TAG_COUNTS],
    /// Packets that the screen lets through to the program.
    pub let_through: u64,
    /// Packets that the filter matches and the screen lets through: all that the filter matches.
    taken_through: u64,
}

impl Tally {
    /// All packets.
    pub fn packets(&self) -> u64 {
        self.by_tags.iter().map(|(packets, _)| packets).sum()
    }

    /// Those that the filter matches.
    pub fn matched(&self) -> u64 {
        self.by_tags.iter().map(|(_, matched)| matched).sum()
    }

    /// Packets that the filter matches and the screen refuses, if there are any.
    pub fn lost_by_screen(&self) -> Option<u64> {
        Some(self.matched() - self.taken_through).filter(|&lost| lost > 0)
    }
}

/// Packets of one link type: counted, and the first of them.
pub struct Taken {
    /// The filter's screen for the link type.
    pub screen: Screen,
    /// The counts.
    pub tally: Tally,
    /// Captured bytes and length on the wire of the first packets.
    pub sample: Vec<(Vec<u8>, u32)>,
}

/// What answers for a filter.
#[derive(Clone, Copy, Debug)]
pub enum Engine {
    /// The own interpreter of libpcap's programs.
    Interpreter,
    /// Machine code.
    Native,
}

impl Engine {
    /// All that there are, the interpreter first: a predicate, once it is machine code, stays so.
    const ALL: [Engine; 2] = [Engine::Interpreter, Engine::Native];

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Interpreter => "interpreter",
            Engine::Native => "native",
        }
    }

    /// The predicate, answered for by this engine, or why it can't be.
    fn predicate(self, filter: &Filter, link: LinkType) -> Result<Predicate, String> {
        let predicate = filter.for_link(link);
        match self {
            Engine::Interpreter => Ok(predicate),
            Engine::Native => predicate.make_native().map(|()| predicate).map_err(|error| error.to_string()),
        }
    }
}

/// The packets of a file by link type, in order of appearance, at most [`LINKS_MAX`]; and how many are of
/// further types.
pub type OfFile = (Vec<(LinkType, Taken)>, u64);

/// Counts the packets of a file.
///
/// # Errors
/// The file can't be read on.
pub fn of_file(filter: &Filter, mut file: FileSource) -> Result<OfFile, String> {
    let mut counter = Counter::new(filter);
    let result = counter.run(&mut file);
    for warning in file.warnings().iter() {
        say(Level::Warning, warning);
    }
    result?;
    Ok((counter.links.into_iter().map(|of_link| (of_link.link, of_link.taken)).collect(), counter.beyond))
}

/// Generated packets: UDP and TCP, some of them IPv6, some tagged.
///
/// # Errors
/// None are made.
pub fn generated(filter: &Filter) -> Result<Taken, String> {
    let options = SynthOptions {
        size: Size::Imix,
        vlan_ppm: scope_spelling::values::PPM / 10,
        ipv6_ppm: scope_spelling::values::PPM / 5,
        packets: Some(SAMPLE_PACKETS_MAX as u64),
        start_ns: Some(0),
        pace_max: true,
        prepare: Prepare::Off,
        ..SynthOptions::default()
    };
    let mut counter = Counter::new(filter);
    for mut source in
        synth::open(&options, "generated packets").map_err(|error: SourceError| error.to_string())?
    {
        counter.run(&mut source)?;
    }
    let first = counter.links.into_iter().next();
    first
        .map(|of_link| of_link.taken)
        .ok_or_else(|| "generated packets: none came; this is a defect, please report it".into())
}

/// The sink that counts.
struct Counter<'a> {
    filter: &'a Filter,
    /// Link type of each interface, as index into `links`; `None`: one too many.
    interfaces: Vec<Option<usize>>,
    links: Vec<OfLink>,
    /// Packets of link types that are too many.
    beyond: u64,
}

struct OfLink {
    link: LinkType,
    predicate: Predicate,
    taken: Taken,
}

impl Counter<'_> {
    fn new(filter: &Filter) -> Counter<'_> {
        Counter { filter, interfaces: Vec::new(), links: Vec::new(), beyond: 0 }
    }

    fn run(&mut self, source: &mut dyn Source) -> Result<(), String> {
        while source.poll(self).map_err(|error| error.to_string())? != Polled::Ended {}
        Ok(())
    }
}

impl Taken {
    /// No packets yet.
    pub fn none(filter: &Filter, link: LinkType) -> Taken {
        Taken { screen: filter.screen(link), tally: Tally::default(), sample: Vec::new() }
    }
}

impl OfLink {
    fn count(&mut self, packet: &Packet<'_>) {
        let headers = Headers::parse(self.link, packet.data);
        let matches = self.predicate.matches(&headers, packet.data, packet.original_len);
        let let_through = self.taken.screen.may_match(&KeyEntry::new(&headers));
        let tally = &mut self.taken.tally;
        let (packets, matched) = &mut tally.by_tags[(headers.vlan_tags() as usize).min(TAG_COUNTS - 1)];
        *packets += 1;
        *matched += u64::from(matches);
        tally.let_through += u64::from(let_through);
        tally.taken_through += u64::from(matches && let_through);
        if self.taken.sample.len() < SAMPLE_PACKETS_MAX {
            let kept = &packet.data[..packet.data.len().min(SAMPLE_BYTES_MAX)];
            self.taken.sample.push((kept.to_vec(), packet.original_len));
        }
    }
}

impl Sink for Counter<'_> {
    fn interface(&mut self, interface: &Interface) {
        let link = interface.link_type;
        let known = self.links.iter().position(|of_link| of_link.link == link);
        let index = known.or_else(|| {
            let new = self.links.len();
            (new < LINKS_MAX).then(|| {
                let (predicate, taken) = (self.filter.for_link(link), Taken::none(self.filter, link));
                self.links.push(OfLink { link, predicate, taken });
                new
            })
        });
        self.interfaces.push(index);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        for packet in packets {
            match self.interfaces[packet.interface as usize] {
                Some(index) => self.links[index].count(packet),
                None => self.beyond += 1,
            }
        }
    }

    fn lost(&mut self, _interface: u32, _packets: u64, _since_ns: i64, _until_ns: i64) {}

    fn idle(&mut self, _clock_ns: i64) {}
}

/// What an engine takes for a packet, ns, or why it doesn't answer.
pub type Cost = (Engine, Result<f64, String>);

/// Time of a packet by engine, with the packets in the processor's cache and parsed.
///
/// # Errors
/// Two engines, or two rounds, don't take the same packets.
pub fn cost(filter: &Filter, link: LinkType, sample: &[(Vec<u8>, u32)]) -> Result<Vec<Cost>, String> {
    let parsed: Vec<(Headers, &[u8], u32)> =
        sample.iter().map(|(data, len)| (Headers::parse(link, data), &data[..], *len)).collect();
    let expected = count(&filter.for_link(link), &parsed);
    let of_engine = |engine: Engine| {
        let predicate = match engine.predicate(filter, link) {
            Ok(predicate) => predicate,
            Err(reason) => return Ok((engine, Err(reason))),
        };
        let rounds = (0..ROUNDS).map(|_| round(&predicate, &parsed, expected));
        let best =
            rounds.collect::<Option<Vec<f64>>>().and_then(|rounds| rounds.into_iter().min_by(f64::total_cmp));
        let fault = || {
            format!(
                "the {} matches other packets each time; this is a defect, please report it",
                engine.name()
            )
        };
        best.ok_or_else(fault).map(|best| (engine, Ok(best)))
    };
    Engine::ALL.into_iter().map(of_engine).collect()
}

/// Time of a packet, ns; `None` where other packets are taken than `expected`.
fn round(predicate: &Predicate, parsed: &[(Headers, &[u8], u32)], expected: usize) -> Option<f64> {
    let (begun, mut passes, mut taken) = (Instant::now(), 0, 0);
    while begun.elapsed() < ROUND {
        taken += count(predicate, black_box(parsed));
        passes += 1;
    }
    let ns = begun.elapsed().as_nanos() as f64 / (passes * parsed.len()) as f64;
    (taken == expected * passes).then_some(ns)
}

fn count(predicate: &Predicate, parsed: &[(Headers, &[u8], u32)]) -> usize {
    parsed.iter().filter(|(headers, data, len)| predicate.matches(headers, data, *len)).count()
}
