//! Sources as the operator types them, `NAME:WHAT,option=value,...`, and as they are meant.
//!
//! ```text
//! afpacket:IFACE,workers=2,snaplen=128,promisc=off,share=30%,cpus=2-3,prefilter=not port 22    afpacket:eth*,workers=0,spare=8
//! pcap:IFACE,snaplen=128,buffer=64MiB
//! file:PATH,pace=1                          file:PATH,format=hpcap,link=ethernet
//! synth:rate=1M,size=imix,flows=1000,vlan=10%,seed=1,time=30s,trigger-at=5s
//! ```
//! A comma inside WHAT or a value is written `\,` and a backslash `\\`; before any other character a
//! backslash is itself. `synth` has no WHAT: its options follow at once. All faults of a text are reported at
//! once. The options are the tables [`AFPACKET`], [`PCAP`], [`FILE`] and [`SYNTH`], from which the parser,
//! its messages and the help are made.
//!
//! Absent on purpose: whether an interface or a file exists is for those to say who open it.

use std::str::FromStr;

pub use crate::afpacket::{Pattern, SPARES_MAX};
pub use crate::plan::{AfPacketPlan, FileForm, FilePlan, PcapPlan, SHARES_MAX, SourcePlan, SourceSpec};
pub use crate::synth::WORKERS_MAX;
use crate::synth::{Prepare, Size, SynthOptions};
use scope_fault::Fault;
use scope_machine::cpus::Placement;
use scope_machine::nic::SNAP_LEN_MAX;
use scope_packet::LinkType;
use scope_spelling::values::{
    BadValue, parse_count, parse_cpus, parse_duration_ns, parse_percent, parse_size, parse_time_ns,
};

/// Bytes of a block of the kernel's ring.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;
/// Blocks of a worker's ring at most: the kernel's ring memory of one worker is bounded, see
/// [`crate::afpacket::RING_BYTES_MAX`].
const BLOCKS_MAX: u32 = 32768;

/// One option of a kind of source.
#[derive(Clone, Copy, Debug)]
pub struct OptionHelp {
    /// As typed before the `=`.
    pub name: &'static str,
    /// A value that is right.
    pub example: &'static str,
    /// What it does, in a few words.
    pub meaning: &'static str,
}

const fn option(name: &'static str, example: &'static str, meaning: &'static str) -> OptionHelp {
    OptionHelp { name, example, meaning }
}

/// Options of `afpacket:IFACE`, or of `afpacket:eth*`.
pub const AFPACKET: &[OptionHelp] = &[
    option("workers", "2", "threads that share the interface by flow; 0: one for all sources with 0 (1)"),
    option(
        "spare",
        "4",
        "sockets kept by each thread for interfaces that come once rights are dropped (4; one interface, one \
         thread: 0)",
    ),
    option("snaplen", "128", "bytes kept of each packet; 0: all (all)"),
    option("promisc", "off", "on or off: also capture packets for other hosts (on)"),
    option(
        "block",
        "1MiB",
        "bytes of a block of the kernel's ring, a power of two (chosen from the link's speed)",
    ),
    option("blocks", "64", "blocks of each worker's ring (chosen from the link's speed)"),
    option("timeout", "4ms", "how long the kernel keeps a block with packets (chosen from the link's speed)"),
    option("direction", "in", "in or both: in omits packets that leave by the interface (both)"),
    option("exclude-self", "on", "on or off: omit the ssh session that this program was started from (off)"),
    option("share", "30%", "part of the ring that no other source evicts, 1% to 90% (none)"),
    option("prefilter", "not port 22", "record only packets that match this filter (all)"),
    option("cpus", "2-3", "CPUs that its workers are pinned to, one each in turn; several: 0\\,2-3 (any)"),
    option("numa", "0", "its workers run on the CPUs of this NUMA node (any)"),
];

/// Options of `pcap:IFACE`.
pub const PCAP: &[OptionHelp] = &[
    option("snaplen", "128", "bytes kept of each packet; 0: all (all)"),
    option("promisc", "off", "on or off: also capture packets for other hosts (on)"),
    option("timeout", "4ms", "how long the system may hold packets back (4ms)"),
    option("buffer", "64MiB", "the system's memory for packets that wait (64MiB)"),
    option("direction", "in", "in or both: in omits packets that leave by the interface (both)"),
    option("exclude-self", "on", "on or off: omit the ssh session that this program was started from (off)"),
    option("share", "30%", "part of the ring that no other source evicts, 1% to 90% (none)"),
    option("prefilter", "not port 22", "record only packets that match this filter (all)"),
    option("cpus", "2-3", "CPUs that its workers are pinned to, one each in turn; several: 0\\,2-3 (any)"),
    option("numa", "0", "its workers run on the CPUs of this NUMA node (any)"),
];

/// Options of `file:PATH`.
pub const FILE: &[OptionHelp] = &[
    option("pace", "1", "max, or the multiple of the recorded pace (max)"),
    option("format", "hpcap", "hpcap: its raw records, which need link= (pcap or pcapng, as the file says)"),
    option("link", "ethernet", "link type of a file with format=hpcap, by name or number"),
    option("workers", "2", "threads that share the packets by flow (1)"),
    option("snaplen", "128", "bytes kept of each packet; 0: all (all)"),
    option("share", "30%", "part of the ring that no other source evicts, 1% to 90% (none)"),
    option("prefilter", "not port 22", "record only packets that match this filter (all)"),
    option("cpus", "2-3", "CPUs that its workers are pinned to, one each in turn; several: 0\\,2-3 (any)"),
    option("numa", "0", "its workers run on the CPUs of this NUMA node (any)"),
];

/// Options of `synth:`.
pub const SYNTH: &[OptionHelp] = &[
    option("rate", "1M", "packets/s, also the spacing of the times with pace=max (100k)"),
    option("size", "imix", "imix (64, 594, 1518 bytes as 7:4:1) or the bytes of every frame (imix)"),
    option("flows", "1000", "how many flows (1000)"),
    option("vlan", "10%", "share of the flows with an 802.1Q tag (0%)"),
    option("ipv6", "10%", "share of the flows that are IPv6 (0%)"),
    option("seed", "1", "decides all that is random (1)"),
    option("time", "30s", "how long (without an end)"),
    option("packets", "1M", "how many packets, the trigger packet not counted (without an end)"),
    option("trigger-at", "5s", "when the one trigger packet, UDP to port 60000, is sent (never)"),
    option(
        "start",
        "2026-11-20T20:31:05.123456789Z",
        "time of the first packet, ISO 8601 or seconds since 1970 (now)",
    ),
    option(
        "pace",
        "max",
        "1: in real time, like live traffic; max: as fast as it goes, needs time= or packets= (1)",
    ),
    option("prepare", "on", "frames made beforehand and repeated: on, off, or their bytes (on)"),
    option("workers", "2", "threads that share the flows (1)"),
    option("share", "30%", "part of the ring that no other source evicts, 1% to 90% (none)"),
    option("prefilter", "not port 22", "record only packets that match this filter (all)"),
    option("cpus", "2-3", "CPUs that its workers are pinned to, one each in turn; several: 0\\,2-3 (any)"),
    option("numa", "0", "its workers run on the CPUs of this NUMA node (any)"),
];

/// Every kind of source: its name, what WHAT is (empty: there is none), its options.
pub const KINDS: &[(&str, &str, &[OptionHelp])] = &[
    ("afpacket", "INTERFACE", AFPACKET),
    ("pcap", "INTERFACE", PCAP),
    ("file", "PATH", FILE),
    ("synth", "", SYNTH),
];

/// Reads one source. Nothing is opened; all faults at once.
///
/// # Errors
/// Its faults.
pub fn parse(text: &str) -> Result<SourceSpec, Vec<Fault>> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let Some(&(kind, what_is, known)) = KINDS.iter().find(|(kind, ..)| *kind == name) else {
        return Err(vec![unknown_kind(text, name)]);
    };
    if !text.contains(':') {
        let fault = Fault::of_source(text).cause(format!("':' is missing behind '{name}'"));
        return Err(vec![fault.remedy(format!("write {}", usage(kind, what_is, known)))]);
    }
    let mut parts = split(rest);
    if what_is.is_empty() && rest.is_empty() {
        parts.clear();
    }
    let what = if what_is.is_empty() { String::new() } else { parts.remove(0) };
    let mut options = Options::read(text, &parts, kind, known);
    if what.is_empty() && !what_is.is_empty() {
        let fault = Fault::of_source(text).cause(format!("{what_is} is missing"));
        options.faults.push(fault.remedy(format!("write {}", usage(kind, what_is, known))));
    }
    let share = options.read_value("share", share);
    let prefilter = options.read_value("prefilter", filter);
    let placement =
        Placement { cpus: options.read_value("cpus", parse_cpus), node: options.read_value("numa", whole) };
    let plan = match kind {
        "afpacket" => SourcePlan::AfPacket(afpacket(what, &mut options)),
        "pcap" => SourcePlan::Pcap(pcap(what, &mut options)),
        "file" => SourcePlan::File(file(what, &mut options)),
        _ => SourcePlan::Synth(synth(&mut options)),
    };
    if options.faults.is_empty() {
        Ok(SourceSpec { plan, share, prefilter, placement })
    } else {
        Err(options.faults)
    }
}

/// Whether the text of a source says this option itself.
pub fn says(text: &str, option: &str) -> bool {
    let (_, rest) = text.split_once(':').unwrap_or((text, ""));
    split(rest).iter().any(|part| part.split_once('=').is_some_and(|(name, _)| name == option))
}

/// Writes WHAT so that [`parse`] reads it back.
pub fn escape(what: &str) -> String {
    what.replace('\\', "\\\\").replace(',', "\\,")
}

fn afpacket(interface: String, options: &mut Options<'_>) -> AfPacketPlan {
    AfPacketPlan {
        interface,
        workers: options.read_value("workers", live_workers).unwrap_or(1),
        spares: options.read_value("spare", spares),
        snap_len: options.read_value("snaplen", snap_len).unwrap_or(None),
        promiscuous: options.read_value("promisc", switch).unwrap_or(true),
        block_bytes: options.read_value("block", block_bytes),
        blocks: options.read_value("blocks", blocks),
        timeout_ms: options.read_value("timeout", timeout_ms),
        exclude_self: options.read_value("exclude-self", switch).unwrap_or(false),
        only_in: options.read_value("direction", only_in).unwrap_or(false),
    }
}

fn pcap(interface: String, options: &mut Options<'_>) -> PcapPlan {
    PcapPlan {
        interface,
        snap_len: options.read_value("snaplen", snap_len).unwrap_or(None),
        promiscuous: options.read_value("promisc", switch).unwrap_or(true),
        timeout_ms: options.read_value("timeout", timeout_ms).unwrap_or(4),
        buffer_bytes: options.read_value("buffer", buffer_bytes).unwrap_or(64 << 20),
        exclude_self: options.read_value("exclude-self", switch).unwrap_or(false),
        only_in: options.read_value("direction", only_in).unwrap_or(false),
    }
}

fn file(path: String, options: &mut Options<'_>) -> FilePlan {
    FilePlan {
        path,
        form: file_form(options),
        pace: options.read_value("pace", multiple).unwrap_or(None),
        workers: options.read_value("workers", workers).unwrap_or(1),
        snap_len: options.read_value("snaplen", snap_len).unwrap_or(None),
    }
}

/// A file that doesn't say what it is has to be described whole, and one that does not at all.
fn file_form(options: &mut Options<'_>) -> FileForm {
    let (raw, linked) = (options.is_given("format"), options.is_given("link"));
    let format = options.read_value("format", format);
    let link = options.read_value("link", link);
    let fault = |name, cause: &str| Fault::of_option(options.spec, name).cause(cause);
    let fault = match (raw, linked) {
        (true, false) if format.is_some() => {
            let fault = fault("link", "it is missing, and no file with format=hpcap says its own link type");
            Some(fault.remedy("add e.g. link=ethernet"))
        }
        (false, true) => {
            let fault =
                fault("link", "only a file with format=hpcap needs it, others say their own link type");
            Some(fault.remedy("remove link=, or add format=hpcap"))
        }
        _ => None,
    };
    options.faults.extend(fault);
    match (format, link) {
        (Some(()), Some(link_type)) => FileForm::Hpcap(link_type),
        _ => FileForm::Detected,
    }
}

fn format(text: &str) -> Result<(), BadValue> {
    match text {
        "hpcap" => Ok(()),
        "pcap" | "pcapng" => Err(BadValue::new(text, "is known by the file's first bytes; omit format=")),
        _ => Err(BadValue::new(text, "is not hpcap, the only format that a file doesn't say itself")),
    }
}

fn link(text: &str) -> Result<LinkType, BadValue> {
    let unknown = || BadValue::new(text, "is neither the name nor the number of a link type");
    LinkType::named(text).ok_or_else(unknown)
}

fn synth(options: &mut Options<'_>) -> SynthOptions {
    let default = SynthOptions::default();
    let read_well = options.faults.len();
    let meant = SynthOptions {
        rate: options.read_value("rate", parse_count),
        size: options.read_value("size", size).unwrap_or(default.size),
        flows: options
            .read_value("flows", |text| narrowed(text, parse_count(text)?))
            .unwrap_or(default.flows),
        vlan_ppm: options.read_value("vlan", parse_percent).unwrap_or(default.vlan_ppm),
        ipv6_ppm: options.read_value("ipv6", parse_percent).unwrap_or(default.ipv6_ppm),
        seed: options.read_value("seed", whole).unwrap_or(default.seed),
        time_ns: options.read_value("time", parse_duration_ns),
        packets: options.read_value("packets", parse_count),
        trigger_at_ns: options.read_value("trigger-at", parse_duration_ns),
        start_ns: options.read_value("start", parse_time_ns),
        pace_max: options.read_value("pace", synth_pace).unwrap_or(default.pace_max),
        prepare: options.read_value("prepare", prepare).unwrap_or(default.prepare),
        workers: options.read_value("workers", workers).unwrap_or(default.workers),
    };
    // A value that couldn't be read would only cause faults that are none.
    if options.faults.len() == read_well {
        options.faults.extend(meant.faults(options.spec));
    }
    meant
}

fn workers(text: &str) -> Result<u32, BadValue> {
    match whole(text)? {
        count @ 1..=WORKERS_MAX => Ok(count),
        _ => Err(BadValue::new(text, format!("is not 1 to {WORKERS_MAX}"))),
    }
}

fn live_workers(text: &str) -> Result<u32, BadValue> {
    match whole(text)? {
        count @ 0..=WORKERS_MAX => Ok(count),
        _ => Err(BadValue::new(text, format!("is not 0 to {WORKERS_MAX}"))),
    }
}

fn spares(text: &str) -> Result<u32, BadValue> {
    match whole(text)? {
        count @ 0..=SPARES_MAX => Ok(count),
        _ => Err(BadValue::new(text, format!("is not 0 to {SPARES_MAX}"))),
    }
}

fn snap_len(text: &str) -> Result<Option<u32>, BadValue> {
    match parse_size(text)? {
        0 => Ok(None),
        bytes if bytes <= u64::from(SNAP_LEN_MAX) => Ok(Some(bytes as u32)),
        _ => Err(BadValue::new(text, format!("is more than {SNAP_LEN_MAX} bytes"))),
    }
}

fn block_bytes(text: &str) -> Result<u32, BadValue> {
    match parse_size(text)? {
        bytes if BLOCK_BYTES.contains(&bytes) && bytes.is_power_of_two() => Ok(bytes as u32),
        _ => Err(BadValue::new(text, "is no power of two from 64KiB to 4MiB")),
    }
}

fn blocks(text: &str) -> Result<u32, BadValue> {
    match whole(text)? {
        count @ 2..=BLOCKS_MAX => Ok(count),
        _ => Err(BadValue::new(text, format!("is not 2 to {BLOCKS_MAX}"))),
    }
}

fn timeout_ms(text: &str) -> Result<u32, BadValue> {
    match parse_duration_ns(text)? {
        ns @ 1_000_000..=1_000_000_000 if ns % 1_000_000 == 0 => Ok((ns / 1_000_000) as u32),
        _ => Err(BadValue::new(text, "is not 1ms to 1s in whole milliseconds")),
    }
}

fn buffer_bytes(text: &str) -> Result<u32, BadValue> {
    match parse_size(text)? {
        bytes if (64 << 10..=1 << 30).contains(&bytes) => Ok(bytes as u32),
        _ => Err(BadValue::new(text, "is not 64KiB to 1GiB")),
    }
}

fn filter(text: &str) -> Result<String, BadValue> {
    match text.trim().is_empty() {
        true => Err(BadValue {
            value: text.to_string(),
            cause: "it is empty, which matches everything".to_string(),
        }),
        false => Ok(text.to_string()),
    }
}

fn share(text: &str) -> Result<u32, BadValue> {
    let ppm = parse_percent(text)?;
    let (whole, rest) = (ppm / 10_000, ppm % 10_000);
    match whole {
        _ if rest != 0 => Err(BadValue::new(text, "is no whole percentage")),
        1..=SHARES_MAX => Ok(whole),
        _ => Err(BadValue::new(text, format!("is not 1% to {SHARES_MAX}%"))),
    }
}

fn switch(text: &str) -> Result<bool, BadValue> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(BadValue::new(text, "is neither on nor off")),
    }
}

fn only_in(text: &str) -> Result<bool, BadValue> {
    match text {
        "in" => Ok(true),
        "both" => Ok(false),
        _ => Err(BadValue::new(text, "is neither in nor both")),
    }
}

fn multiple(text: &str) -> Result<Option<f64>, BadValue> {
    if text == "max" {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(pace) if pace.is_finite() && (0.001..=1e6).contains(&pace) => Ok(Some(pace)),
        _ => Err(BadValue::new(text, "is neither max nor a number from 0.001 to 1000000")),
    }
}

fn synth_pace(text: &str) -> Result<bool, BadValue> {
    match text {
        "max" => Ok(true),
        "1" => Ok(false),
        _ => Err(BadValue::new(text, "is neither max nor 1; another pace is another rate=")),
    }
}

fn size(text: &str) -> Result<Size, BadValue> {
    if text.eq_ignore_ascii_case("imix") {
        Ok(Size::Imix)
    } else {
        Ok(Size::Fixed(narrowed(text, parse_size(text)?)?))
    }
}

fn prepare(text: &str) -> Result<Prepare, BadValue> {
    match text {
        "on" => Ok(Prepare::On),
        "off" => Ok(Prepare::Off),
        _ => parse_size(text)
            .map(Prepare::Bytes)
            .map_err(|bad| BadValue { cause: format!("neither on nor off, and {}", bad.cause), ..bad }),
    }
}

fn whole<T: FromStr>(text: &str) -> Result<T, BadValue> {
    text.parse().map_err(|_| BadValue::new(text, "is no whole number in range"))
}

fn narrowed(text: &str, value: u64) -> Result<u32, BadValue> {
    u32::try_from(value).map_err(|_| BadValue::new(text, "is too large"))
}

/// The options behind WHAT, as typed.
struct Options<'a> {
    /// The whole text.
    spec: &'a str,
    known: &'static [OptionHelp],
    given: Vec<(&'a str, &'a str)>,
    faults: Vec<Fault>,
}

impl<'a> Options<'a> {
    fn read(spec: &'a str, parts: &'a [String], kind: &str, known: &'static [OptionHelp]) -> Options<'a> {
        let mut options = Options { spec, known, given: Vec::new(), faults: Vec::new() };
        for part in parts {
            if let Err(fault) = options.add(part, kind) {
                options.faults.push(fault);
            }
        }
        options
    }

    fn add(&mut self, part: &'a str, kind: &str) -> Result<(), Fault> {
        let fault = || Fault::of_source(self.spec);
        if part.is_empty() {
            return Err(fault()
                .cause("nothing stands between two commas or at the end")
                .remedy("remove the comma"));
        }
        let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
        let Some(help) = self.known.iter().find(|help| help.name == name) else {
            return Err(self.unknown(name, kind));
        };
        let Some(value) = value else {
            let remedy = format!("write e.g. {name}={}", help.example);
            return Err(fault().cause(format!("option '{name}' has no value")).remedy(remedy));
        };
        if self.is_given(name) {
            return Err(fault().cause(format!("option '{name}' is given twice")).remedy("remove one"));
        }
        self.given.push((name, value));
        Ok(())
    }

    fn unknown(&self, name: &str, kind: &str) -> Fault {
        let names: Vec<&str> = self.known.iter().map(|help| help.name).collect();
        let hint = nearest(name, &names).map_or(String::new(), |near| format!("did you mean '{near}'? "));
        let fault =
            Fault::of_source(self.spec).with_value(name).cause(format!("{kind} has no option '{name}'"));
        fault.remedy(format!("{hint}it has {}", names.join(", ")))
    }

    fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The value of an option if it is there and right; a wrong one becomes a fault.
    fn read_value<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, BadValue>) -> Option<T> {
        let (_, value) = self.given.iter().find(|(given, _)| *given == name)?;
        let example = self.known.iter().find(|help| help.name == name).map_or("", |help| help.example);
        match read(value) {
            Ok(meant) => Some(meant),
            Err(bad) => {
                let fault = Fault::of_option(self.spec, name).with_value(bad.value).cause(bad.cause);
                self.faults.push(fault.remedy(format!("write e.g. {name}={example}")));
                None
            }
        }
    }
}

/// Splits at the commas without a backslash before them, and removes the backslashes. Empty text is one empty
/// part.
fn split(rest: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ',' => parts.push(String::new()),
            '\\' => {
                let escaped = chars.next_if(|next| matches!(next, ',' | '\\'));
                parts.last_mut().expect("there is one from the start").push(escaped.unwrap_or('\\'));
            }
            _ => parts.last_mut().expect("there is one from the start").push(c),
        }
    }
    parts
}

fn usage(kind: &str, what_is: &str, known: &[OptionHelp]) -> String {
    let example = known[0];
    let comma = if what_is.is_empty() { "" } else { "," };
    format!("{kind}:{what_is} or {kind}:{what_is}{comma}{}={}", example.name, example.example)
}

fn unknown_kind(text: &str, name: &str) -> Fault {
    let names: Vec<&str> = KINDS.iter().map(|(kind, ..)| *kind).collect();
    // `x.pcap` is a file's name, not the kind `pcap` misspelt.
    let is_path = !text.contains(':') && text.contains(['.', '/']);
    let hint = match nearest(name, &names) {
        Some(near) if !is_path => format!("did you mean '{near}:'? "),
        _ if text.contains(':') => String::new(),
        _ => "for a capture file write file: in front, for an interface afpacket:; ".to_string(),
    };
    let fault = Fault::of_source(text).with_value(name).cause(format!("unknown kind of source '{name}'"));
    fault.remedy(format!("{hint}there are afpacket:INTERFACE, pcap:INTERFACE, file:PATH and synth:"))
}

/// The known word that differs least from `word`, if it differs little.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(32).collect();
    let distances = known.iter().map(|candidate| (distance(&word, candidate), *candidate));
    distances
        .filter(|(edits, candidate)| *edits <= (candidate.len() / 2).clamp(1, 3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be inserted, deleted or replaced (Levenshtein).
fn distance(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (line, letter) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for column in 0..a.len() {
            let replaced = diagonal + usize::from(a[column] != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[a.len()]
}
