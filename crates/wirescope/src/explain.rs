//! `wirescope filter`: what a filter means, its programs, its screen, what it takes of a file, and what it
//! costs.
//!
//! ```text
//! filter ─► meaning        sentences where libpcap's language surprises
//!        ─► programs       as tcpdump -d prints them, by number of VLAN tags
//!        ─► screen         what is known of a packet from its key entry alone
//!        ─► packets        those of the file, counted; without a file, generated ones for the time that it takes
//! ```

mod packets;
mod words;

use crate::NoResult;
use crate::args::FilterArgs;
use packets::{Cost, Taken, Tally};
use scope_fault::Fault;
use scope_filter::{Filter, Screen, VlanRule, meaning};
use scope_packet::LinkType;
use scope_source::file::{FileOptions, FileSource};

/// Everything that is told.
struct Report {
    text: String,
    /// As asked for.
    vlan: VlanRule,
    file: Option<String>,
    notes: Vec<String>,
    links: Vec<OfLink>,
    /// Packets of the file that are of link types beyond [`packets::LINKS_MAX`].
    beyond: u64,
}

/// What is told for one link type.
struct OfLink {
    link: LinkType,
    filter: Filter,
    screen: Screen,
    /// What the file's packets of this type came to; `None` without a file.
    tally: Option<Tally>,
    /// Time of a packet by engine, ns, over how many packets; `None` where there are no packets to measure
    /// with.
    cost: Option<(Vec<Cost>, usize)>,
}

/// Explains the filter, as text for standard output.
///
/// # Errors
/// The filter doesn't compile, or the file can't be read.
pub fn explain(args: &FilterArgs) -> Result<String, NoResult> {
    let text = args.expression.join(" ");
    let mut faults = Vec::new();
    let vlan = vlan_rule(&args.vlan).unwrap_or_else(|fault| {
        faults.push(fault);
        VlanRule::default()
    });
    let given = args.link_type.as_deref().map(link_type).transpose().unwrap_or_else(|fault| {
        faults.push(fault);
        None
    });
    let file = args.read.as_deref().map(open).transpose().unwrap_or_else(|fault| {
        faults.push(fault);
        None
    });
    let mut known = file.as_ref().map_or(given.into_iter().collect(), FileSource::link_types);
    known.truncate(packets::LINKS_MAX);
    let filter = Filter::compile(&text, vlan, &known).map_err(|error| faults.push(error.fault())).ok();
    let Some(filter) = filter.filter(|_| faults.is_empty()) else { return Err(NoResult::Refused(faults)) };
    let (links, beyond) = match file {
        Some(file) => of_file(&filter, file)?,
        None => (vec![of_link(&filter, given.unwrap_or(LinkType::ETHERNET))?], 0),
    };
    let notes = meaning::notes(&text);
    Ok(words::report(&Report { text, vlan, file: args.read.clone(), notes, links, beyond }))
}

fn vlan_rule(text: &str) -> Result<VlanRule, Fault> {
    match text {
        "transparent" => Ok(VlanRule::Transparent),
        "exact" => Ok(VlanRule::Exact),
        other => {
            Err(Fault::of("vlan").value(other, "is not a VLAN rule").remedy("write transparent or exact"))
        }
    }
}

fn link_type(text: &str) -> Result<LinkType, Fault> {
    let fault = || Fault::of("link-type").value(text, "is not a known link type");
    LinkType::named(text).ok_or_else(|| fault().remedy("write e.g. ETHERNET, RAW, LINUX_SLL2, or its number"))
}

fn open(path: &str) -> Result<FileSource, Fault> {
    let options = FileOptions { paths: vec![path.to_string()], ..FileOptions::default() };
    FileSource::open(options).map_err(|error| error.reason())
}

/// What fails while it is looked at.
fn failed(cause: String) -> NoResult {
    NoResult::Failed(Fault::whole(cause))
}

fn of_file(filter: &Filter, file: FileSource) -> Result<(Vec<OfLink>, u64), NoResult> {
    let (taken, beyond) = packets::of_file(filter, file).map_err(failed)?;
    let links =
        taken.into_iter().map(|(link, taken)| told(filter, link, taken, true)).collect::<Result<_, _>>()?;
    Ok((links, beyond))
}

fn of_link(filter: &Filter, link: LinkType) -> Result<OfLink, NoResult> {
    let taken = if link == LinkType::ETHERNET {
        packets::generated(filter).map_err(failed)?
    } else {
        Taken::none(filter, link)
    };
    told(filter, link, taken, false)
}

/// What was found; its counts only where the packets are a file's.
fn told(filter: &Filter, link: LinkType, taken: Taken, counted: bool) -> Result<OfLink, NoResult> {
    if let Some(lost) = taken.tally.lost_by_screen() {
        let fault = Fault::whole(format!("screening loses {lost} packets that the filter matches"));
        return Err(NoResult::Failed(fault.remedy("this is a defect, please report it")));
    }
    let cost = match taken.sample.is_empty() {
        true => None,
        false => Some((packets::cost(filter, link, &taken.sample).map_err(failed)?, taken.sample.len())),
    };
    Ok(OfLink {
        link,
        filter: filter.clone(),
        screen: taken.screen,
        tally: counted.then_some(taken.tally),
        cost,
    })
}
