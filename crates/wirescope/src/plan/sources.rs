//! Sources as meant, and looked at before the run: is the interface there and may we capture, is the file a
//! capture, which link types will come.

use super::Look;
use super::capture::{self, Written};
use super::faults::{Faults, bad, of_all, of_both, such_as};
use super::sets::Sets;
use crate::args::RunArgs;
use scope_config::Value;
use scope_engine::SourceEntry;
use scope_fault::{Fault, Part, Setting, sentence};
use scope_filter::VlanRule;
use scope_machine::cpus::Pinning;
use scope_machine::nic::SNAP_LEN_MAX;
use scope_packet::{Interface, LinkType, Packet, Sink};
use scope_ring::{ClaimGroup, LINK_TYPES_MAX, Share};
use scope_source::afpacket::{self, AfPacketOptions};
use scope_source::file::{FILES_MAX, FileOptions, FileSource};
use scope_source::spec::{
    self, AfPacketPlan, FilePlan, Pattern, PcapPlan, SHARES_MAX, SourcePlan, SourceSpec,
};
use scope_source::{Source, SourceError, pcap};
use scope_spelling::values::parse_size;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The setting.
const KEY: &str = "source";
/// What a source's table says of its rules.
const RULE: &str = "rule";

/// What a filter may be meant for where nobody has looked at what a source brings: besides cooked and raw
/// packets, 802.11.
const LINK_TYPES_ANY: [LinkType; 7] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::PPP,
    LinkType(105),
    LinkType(127),
];

/// All sources of a run.
#[derive(Debug, Default)]
pub struct Sources {
    /// As meant.
    pub entries: Vec<SourceEntry>,
    /// Parts of the ring that belong to single entries, in their order, with the lanes that are known.
    pub shares: Vec<Share>,
    /// Link types that are known before the run; Ethernet where nothing is known.
    pub link_types: Vec<LinkType>,
    /// Lanes that are known before the run, at least 1.
    pub lanes: u32,
}

/// Reads and looks at every source.
pub fn plan(args: &RunArgs, sets: &Sets, vlan: VlanRule, at: Look<'_>, faults: &mut Faults<'_>) -> Sources {
    let specs = args.specs();
    check_replaced(args, faults);
    let (mut entries, mut shares, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for (at, spec) in specs.into_iter().enumerate() {
        match spec::parse(&spec) {
            Ok(SourceSpec { plan, share, prefilter, placement }) => {
                let group = share.map_or(ClaimGroup::COMMON, |_| ClaimGroup::of_share(shares.len()));
                shares.extend(share.map(|percent| Share { percent, lanes: 1 }));
                entries.push(SourceEntry {
                    spec,
                    plan,
                    group,
                    prefilter: None,
                    rules: Arc::default(),
                    number: entries.len(),
                    pinning: Pinning::Anywhere,
                    follow: None,
                });
                let own = args.settings.values(KEY).get(at).and_then(|value| value.own.as_ref());
                let rules = own.and_then(|own| own.get(RULE)).map(|own| own.text.clone());
                written.push(Written { at, prefilter, rules, placement });
            }
            Err(found) => {
                for fault in found {
                    faults.add(fault);
                }
            }
        }
    }
    if args.source.is_empty() && args.interface.is_empty() && args.read.is_empty() {
        let remedy = Part::Either {
            flags: "add -i IFACE, -r FILE or --source SRC".to_string(),
            file: "write source = \"afpacket:IFACE\" or \"file:PATH\"".to_string(),
        };
        faults.add(Fault::of("source").cause("there is no source of packets").remedy(remedy).missing());
    }
    cut_packets(args, &mut entries, faults);
    check_together(&entries, faults);
    check_shares(&entries, &shares, faults);
    let mut sources = look(entries, shares, at, faults);
    let links = (vlan, &sources.link_types[..]);
    capture::plan(args, &mut sources.entries, sets, links, &written, at, faults);
    sources
}

/// Sources of the configuration file whose rules would be gone, since the command line names others.
fn check_replaced(args: &RunArgs, faults: &mut Faults<'_>) {
    let has_rules = |value: &&Value| value.own.as_ref().is_some_and(|own| own.contains_key(RULE));
    if let Some(value) = args.settings.replaced(KEY).iter().find(has_rules) {
        let spec = value.text.to_string_lossy();
        let cause =
            format!("the file's source '{spec}' has rules, which the sources of the command line would drop");
        let fault = Fault::of(KEY).cause(cause);
        faults.add(fault.remedy("omit --source, -i and -r, or write the source into the file"));
    }
}

/// `-s`, for sources without a snap length of their own.
fn cut_packets(args: &RunArgs, entries: &mut [SourceEntry], faults: &mut Faults<'_>) {
    let Some(text) = &args.snap_len else { return };
    let snap_len = match parse_size(text) {
        Ok(0) => return,
        Ok(bytes) if bytes <= SNAP_LEN_MAX.into() => Some(bytes as u32),
        Ok(_) => {
            let fault = Fault::of("snap-len").value(text, format!("is more than {SNAP_LEN_MAX} bytes"));
            return faults.add(fault.remedy("write less, or 0 for whole packets"));
        }
        Err(cause) => {
            return faults.add(bad(Fault::of("snap-len"), cause).remedy(such_as("snap-len", "128")));
        }
    };
    for entry in entries {
        let Some(own) = entry.plan.snap_len_mut() else {
            let fault = Fault::of("snap-len").cause(format!("source '{}' makes whole packets", entry.spec));
            faults.add(fault.remedy(sentence!["omit ", Setting::of("snap-len"), " and give it size="]));
            continue;
        };
        *own = own.or(snap_len);
    }
}

impl Sources {
    /// Whether there are sources, and all of them can wait: nothing is lost to speed then.
    pub fn can_wait(&self) -> bool {
        !self.entries.is_empty() && !self.entries.iter().any(|entry| entry.plan.is_live())
    }

    /// Whether all sources are capture files that are read as fast as can be: they are over before somebody
    /// fires by hand. What comes from standard input may come for long.
    pub fn are_files_at_once(&self) -> bool {
        let at_once = |entry: &SourceEntry| {
            entry.plan.file().is_some_and(|file| file.pace.is_none() && file.path != "-")
        };
        !self.entries.is_empty() && self.entries.iter().all(at_once)
    }
}

fn files(entries: &[SourceEntry]) -> impl Iterator<Item = (&SourceEntry, &FilePlan)> {
    entries.iter().filter_map(|entry| Some((entry, entry.plan.file()?)))
}

/// Sources that can't run side by side.
fn check_together(entries: &[SourceEntry], faults: &mut Faults<'_>) {
    let live = entries.iter().find(|entry| entry.plan.is_live());
    let waiting = entries.iter().find(|entry| !entry.plan.is_live());
    if let (Some(live), Some(waiting)) = (live, waiting) {
        let fault = of_both(live, waiting).cause("live traffic and files or traffic with pace=max don't mix");
        faults.add(fault.remedy("use a separate run for each"));
    }
    if files(entries).filter(|(_, plan)| plan.path == "-").count() > 1 {
        faults.add(
            Fault::of_source("file:-").cause("standard input can be read only once").remedy("name it once"),
        );
    }
    let count = files(entries).count();
    if count > FILES_MAX {
        let cause = format!("{count} files are too many for one run, at most {FILES_MAX}");
        faults.add(Fault::of("source").cause(cause).remedy("join some with mergecap"));
    }
    if let Some((first, plan)) = files(entries).next() {
        let differs =
            |(_, other): &(_, &FilePlan)| (other.pace, other.snap_len) != (plan.pace, plan.snap_len);
        if let Some((other, _)) = files(entries).find(differs) {
            let fault =
                of_both(first, other).cause("all files of a run are fed as one, in order of capture time");
            faults.add(fault.remedy("give each the same pace= and snaplen="));
        }
    }
    let interfaces: Vec<(&SourceEntry, Pattern)> =
        entries.iter().filter_map(|entry| Some((entry, Pattern::new(entry.plan.interface()?)))).collect();
    for (at, (entry, pattern)) in interfaces.iter().enumerate() {
        if let Some((other, _)) = interfaces[..at].iter().find(|(_, other)| other.overlaps(pattern)) {
            let fault =
                of_both(other, entry).cause("both mean the same interface, so its packets would come twice");
            faults.add(fault.remedy("name it once, with workers=2"));
        }
    }
}

/// Shares that leave too little for everybody else.
fn check_shares(entries: &[SourceEntry], shares: &[Share], faults: &mut Faults<'_>) {
    let percent: u32 = shares.iter().map(|share| share.percent).sum();
    if percent > SHARES_MAX {
        let with_share = entries.iter().filter(|entry| entry.group.share().is_some());
        let cause = format!(
            "their shares are {percent}% of the ring together, at most {SHARES_MAX}% can be reserved"
        );
        faults.add(of_all(with_share).cause(cause).remedy("choose smaller ones"));
    }
}

/// Opens what can be opened without disturbing anything, if it is to look at the machine.
fn look(entries: Vec<SourceEntry>, mut shares: Vec<Share>, at: Look<'_>, faults: &mut Faults<'_>) -> Sources {
    let mut link_types = BTreeSet::new();
    let mut common_files: Option<BTreeSet<LinkType>> = None;
    let mut shared_link_types = BTreeSet::new();
    let (mut lanes, mut file_lanes) = (0, 0);
    let file_workers = files(&entries).map(|(_, plan)| plan.workers).max().unwrap_or(1);
    for entry in &entries {
        if let SourcePlan::Pcap(PcapPlan { interface, .. }) = &entry.plan
            && Pattern::new(interface).is_glob()
        {
            let fault = Fault::of_source(&entry.spec)
                .cause(format!("'{interface}' is a pattern, which libpcap doesn't support"));
            faults.add(fault.remedy(format!("name an interface, or write afpacket:{interface}")));
            continue;
        }
        let found = match &entry.plan {
            _ if at != Look::Machine => Ok(vec![LinkType::ETHERNET]),
            SourcePlan::AfPacket(plan) => interface_link_types(plan, &entry.spec),
            SourcePlan::Pcap(plan) => pcap_link_types(plan, &entry.spec),
            SourcePlan::File(plan) => file_link_types_of(plan, file_workers),
            SourcePlan::Synth(_) => Ok(vec![LinkType::ETHERNET]),
        };
        let found = found.unwrap_or_else(|error| {
            faults.add(error.into_fault(&entry.spec));
            Vec::new()
        });
        let known = found.len().max(1) as u32;
        let share = entry.group.share().map(|share| &mut shares[share]);
        link_types.extend(found.iter().copied());
        match (&entry.plan, share) {
            (SourcePlan::File(_), None) => common_files.get_or_insert_default().extend(found),
            (SourcePlan::File(_), Some(share)) => {
                share.lanes = file_workers * known;
                file_lanes += known;
            }
            (plan, None) if plan.workers() == 0 => shared_link_types.extend(found),
            (plan, share) => {
                let workers = plan.workers().max(1);
                lanes += workers * known;
                if let Some(share) = share {
                    share.lanes = workers * known;
                }
            }
        }
    }
    if entries.iter().any(|entry| entry.plan.workers() == 0 && entry.group.share().is_none()) {
        lanes += shared_link_types.len().max(1) as u32;
    }
    file_lanes += common_files.map_or(0, |link_types| link_types.len().max(1) as u32);
    if file_lanes > LINK_TYPES_MAX && files(&entries).any(|(entry, _)| entry.group.share().is_some()) {
        let cause = format!(
            "the files' shares and link types make {file_lanes} lanes, a worker has at most {LINK_TYPES_MAX}"
        );
        faults.add(Fault::of("source").cause(cause).remedy("give fewer files a share"));
    }
    lanes += file_workers * file_lanes;
    match at {
        Look::Known(known) => link_types = known.iter().copied().collect(),
        Look::Nowhere if entries.iter().any(|entry| !matches!(entry.plan, SourcePlan::Synth(_))) => {
            link_types.extend(LINK_TYPES_ANY);
        }
        _ => {}
    }
    if link_types.is_empty() {
        link_types.insert(LinkType::ETHERNET);
    }
    Sources { entries, shares, link_types: link_types.into_iter().collect(), lanes: lanes.max(1) }
}

/// Opens capture on the interface, or on all that match, for a moment, in the smallest ring and not
/// promiscuous, so that it says what is missing.
fn interface_link_types(plan: &AfPacketPlan, spec: &str) -> Result<Vec<LinkType>, SourceError> {
    let options = AfPacketOptions {
        promiscuous: false,
        spares: Some(0),
        block_bytes: 64 << 10,
        blocks: 2,
        ..AfPacketOptions::new(&plan.interface)
    };
    let mut seen = LinkTypes::default();
    for mut source in afpacket::open(&options, spec)? {
        source.poll(&mut seen)?;
    }
    Ok(seen.0)
}

/// The same through libpcap.
fn pcap_link_types(plan: &PcapPlan, spec: &str) -> Result<Vec<LinkType>, SourceError> {
    let quiet = PcapPlan { promiscuous: false, buffer_bytes: 1 << 20, ..plan.clone() };
    let mut seen = LinkTypes::default();
    pcap::open(&quiet, &[], spec)?.poll(&mut seen)?;
    Ok(seen.0)
}

/// The link types that a file tells at its beginning. What can be read only once, as a pipe, is left for the
/// run; a file that was redirected to standard input is opened anew, beside it.
fn file_link_types_of(plan: &FilePlan, workers: u32) -> Result<Vec<LinkType>, SourceError> {
    let path = if plan.path == "-" { "/dev/stdin" } else { &plan.path };
    let reads_once = std::fs::metadata(path).is_ok_and(|kind| !kind.is_file() && !kind.is_dir());
    if workers > 1 && (reads_once || plan.path == "-") {
        let reason = Fault::whole("can be read only once, so several workers can't share it");
        return Err(SourceError::File { path: plan.path.clone(), reason: reason.remedy("omit workers=") });
    }
    if reads_once {
        return Ok(Vec::new());
    }
    let (paths, forms) = (vec![path.to_string()], vec![plan.form]);
    let options = FileOptions { paths, forms, ..FileOptions::default() };
    Ok(FileSource::open(options)?.link_types())
}

/// Takes nothing but the link types of interfaces.
#[derive(Default)]
struct LinkTypes(Vec<LinkType>);

impl Sink for LinkTypes {
    fn interface(&mut self, interface: &Interface) {
        if !self.0.contains(&interface.link_type) {
            self.0.push(interface.link_type);
        }
    }
    fn batch(&mut self, _: &[Packet<'_>]) {}
    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}
    fn idle(&mut self, _: i64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser;

    fn planned(arguments: &[&str]) -> (Sources, String) {
        let cli = Cli::parse_from([&["wirescope", "run"], arguments].concat());
        let Verb::Run(args) = cli.command else { panic!("not run") };
        let mut faults = Faults::new(&args.settings);
        let sources = plan(&args, &Sets::default(), VlanRule::Transparent, Look::Machine, &mut faults);
        let said: Vec<String> = faults.into_vec().iter().map(ToString::to_string).collect();
        (sources, said.join("\n"))
    }

    #[test]
    fn sources_that_can_t_run_side_by_side_are_refused() {
        let check = |arguments: &[&str], words: &[&str]| {
            let (_, said) = planned(arguments);
            words
                .iter()
                .for_each(|word| assert!(said.contains(word), "{arguments:?}: no '{word}' in {said}"));
        };
        check(&["--source", "synth:rate=1", "--source", "synth:rate=1,time=1,pace=max"], &["don't mix"]);
        check(&["-r", "-", "-r", "-"], &["standard input can be read only once"]);
        check(&["--source", "file:/a,pace=1", "-r", "/b"], &["file:/a,pace=1", "file:/b", "same pace="]);
        check(&["--source", "file:-,workers=2"], &["omit workers="]);
        check(&["-i", "nosuch0", "-i", "nosuch0"], &["come twice", "no interface 'nosuch0'"]);
        check(&["--source", "synth:", "-s", "64"], &["whole packets"]);
        check(
            &["-i", "nosuch*", "-i", "nosuch0"],
            &["'afpacket:nosuch*' and 'afpacket:nosuch0'", "come twice"],
        );
        check(
            &["--source", "pcap:eth*"],
            &["source 'pcap:eth*': 'eth*' is a pattern", "write afpacket:eth*"],
        );
        check(&["-r", "/a", "-s", "1G"], &["-s: ", "262144"]);
        check(&[], &["no source of packets"]);
    }

    #[test]
    fn short_flags_are_sources_and_a_snap_length_of_one_s_own_stays() {
        let (sources, _) = planned(&["-r", "/a,b", "--source", "file:/c,snaplen=99", "-s", "64"]);
        let found: Vec<_> =
            files(&sources.entries).map(|(_, plan)| (plan.path.as_str(), plan.snap_len)).collect();
        assert_eq!(found, [("/c", Some(99)), ("/a,b", Some(64))]);
    }

    #[test]
    fn every_worker_has_a_lane_for_each_known_link_type() {
        let (sources, said) = planned(&["--source", "synth:workers=3", "--source", "synth:"]);
        assert_eq!((said.as_str(), sources.lanes, sources.link_types), ("", 4, vec![LinkType::ETHERNET]));
    }

    #[test]
    fn a_share_knows_the_lanes_of_its_source() {
        let (sources, said) = planned(&[
            "--source",
            "synth:workers=3,share=20%",
            "--source",
            "synth:",
            "--source",
            "synth:share=5",
        ]);
        let share = |percent, lanes| Share { percent, lanes };
        assert_eq!((said.as_str(), sources.lanes, sources.shares), ("", 5, vec![share(20, 3), share(5, 1)]));
        let groups: Vec<_> = sources.entries.iter().map(|entry| entry.group).collect();
        assert_eq!(groups, [ClaimGroup::of_share(0), ClaimGroup::COMMON, ClaimGroup::of_share(1)]);
        let (_, said) = planned(&["--source", "synth:share=60%", "--source", "synth:share=31%"]);
        assert!(said.contains("91%") && said.contains("'synth:share=60%' and 'synth:share=31%'"), "{said}");
    }
}
