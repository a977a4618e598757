//! What a request may say beside its path and body, and what an answer says beside its body: parameters of the address, and
//! headers. One table, which the server reads requests by and the documents are made of.
//!
//! ```text
//! GET /api/v1/dumps?limit=10&after=7  ─► limit, after     a name that isn't here, or one that comes twice: 400
//! ```

use crate::problem::Problem;
use crate::routes::Action;
use http::StatusCode;
use std::collections::BTreeMap;

/// A parameter of an address.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it says, in a phrase.
    pub what: &'static str,
}

/// The values of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// A number: the least one, the largest, and the one that is meant where it is missing.
    Number(u64, Option<u64>, Option<u64>),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`, and whether it is set where it is missing; `None`: that says nothing.
    Flag(Option<bool>),
}

/// Where a header stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the head of a request.
    Request,
    /// In the head of an answer.
    Answer,
    /// In the head of an answer to HEAD.
    Head,
    /// Behind the body of an answer.
    Trailer,
}

/// A header of a route.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Its name.
    pub name: &'static str,
    /// Where it stands.
    pub place: Place,
    /// What it says, in a phrase.
    pub what: &'static str,
}

const fn parameter(name: &'static str, kind: Kind, what: &'static str) -> Parameter {
    Parameter { name, kind, what }
}

const fn header(place: Place, name: &'static str, what: &'static str) -> Header {
    Header { name, place, what }
}

/// Dumps of one answer at most, and where nothing is said.
pub const DUMPS_MAX: u64 = 1000;
/// See [`DUMPS_MAX`].
pub const DUMPS: u64 = 100;

#[rustfmt::skip]
const OF_DUMPS: &[Parameter] = &[
    parameter("limit", Kind::Number(1, Some(DUMPS_MAX), Some(DUMPS)), "so many dumps at most"),
    parameter("after", Kind::Number(0, None, Some(0)), "only those with a larger number"),
    parameter("trigger", Kind::Text, "only those of this trigger"),
    parameter("complete", Kind::Flag(None), "only those that are complete, or only those that aren't"),
];

#[rustfmt::skip]
const OF_LOSSES: &[Parameter] = &[
    parameter("from", Kind::Text, "from this time on, such as -5m; missing: since the run began"),
    parameter("to", Kind::Text, "up to this time; missing: now"),
    parameter("step", Kind::Text, "the length of a step, such as 1m; missing: one step for all"),
];

#[rustfmt::skip]
const OF_A_SIGNAL: &[Parameter] = &[
    parameter("from", Kind::Text, "from this time on, such as -5m; missing: the first that is remembered"),
    parameter("to", Kind::Text, "up to this time; missing: the last one"),
    parameter("step", Kind::Text, "the length of a step, such as 1s; longer where that is no longer remembered; missing: about 600 steps"),
];

#[rustfmt::skip]
const OF_PACKETS: &[Parameter] = &[
    parameter("filter", Kind::Text, "which packets, in the language of tcpdump; missing: all"),
    parameter("from", Kind::Text, "from this time on, such as 2026-11-20T20:31:05Z, -5m or @1795206665.5; missing: the first packet"),
    parameter("to", Kind::Text, "up to this time, which belongs to the span; missing: now"),
    parameter("at", Kind::Text, "around this time, by within"),
    parameter("within", Kind::Text, "so long before and after at, such as 30s"),
    parameter("around", Kind::Text, "only packets near to one of the span that this filter matches"),
    parameter("before", Kind::Text, "how long before each packet of around; missing: 30s"),
    parameter("after", Kind::Text, "how long behind it; missing: 10s"),
    parameter("format", Kind::Word(&["pcapng", "pcap", "json"]), "the form of the packets; missing: pcapng"),
    parameter("limit", Kind::Number(1, None, None), "packets, or lines of a top list, at most"),
    parameter("link_type", Kind::Word(&["all"]), "a pcapng with packets of all link types; missing: those of the one that comes first"),
    parameter("count", Kind::Flag(Some(false)), "only what the packets come to"),
    parameter("top", Kind::Word(&["host", "port", "pair", "proto"]), "the hosts, ports, pairs or protocols with the most packets"),
    parameter("timeline", Kind::Flag(Some(false)), "packets and bytes by steps of time, with what is missing in each"),
    parameter("step", Kind::Text, "the length of a step, such as 1s; missing: about 20 steps"),
];

/// Rows of a list of the first ones at most, and where nothing is said.
pub const TOP_ROWS_MAX: u64 = 1000;
/// See [`TOP_ROWS_MAX`].
pub const TOP_ROWS: u64 = 10;
/// Records of flows of one answer at most, and where nothing is said.
pub const FLOWS_MAX: u64 = 10_000;

#[rustfmt::skip]
const OF_TOP: &[Parameter] = &[
    parameter("by", Kind::Word(&["bytes", "packets", "flows"]), "the order; missing: bytes"),
    parameter("dim", Kind::Word(&["ip", "port", "pair", "vlan"]), "what is compared; missing: ip"),
    parameter("last", Kind::Text, "how far it goes back from the end of the newest interval, such as 1h; missing: 180s"),
    parameter("limit", Kind::Number(1, Some(TOP_ROWS_MAX), Some(TOP_ROWS)), "so many rows at most"),
];

#[rustfmt::skip]
const OF_FLOWS: &[Parameter] = &[
    parameter("filter", Kind::Text, "which flows, in the language of tcpdump: hosts, nets, ports, protocols, VLANs; missing: all"),
    parameter("from", Kind::Text, "records that end at this time or later, such as 2026-11-20T20:31:05Z, -5m or @1795206665.5; missing: all"),
    parameter("to", Kind::Text, "records that begin at this time or earlier; missing: all"),
    parameter("limit", Kind::Number(1, Some(FLOWS_MAX), Some(FLOWS_MAX)), "so many records at most, those that ended first"),
    parameter("format", Kind::Word(&["jsonl", "csv"]), "the form of the records; missing: jsonl"),
];

const FLOW_HEADERS: &[Header] = &[
    header(Place::Answer, "wirescope-records", "records that were given"),
    header(
        Place::Answer,
        "wirescope-cut",
        "why there are no more of them: rows, bytes, time or memory; missing: there are none",
    ),
];

const COPY_HEADERS: &[Header] = &[header(Place::Answer, "Content-Disposition", "the file's name")];

const OF_A_FILE: &[Parameter] =
    &[parameter("link_type", Kind::Text, "the file of this link type, where a dump has several")];

#[rustfmt::skip]
const FILE_HEADERS: &[Header] = &[
    header(Place::Request, "Range", "one range of bytes, such as bytes=0-99: 206, or 416 where none of it is there; several, or what is none, give the whole file"),
    header(Place::Request, "If-Range", "an ETag: the range is given only of the file that has it, else the whole one"),
    header(Place::Request, "If-None-Match", "ETags, or *: 304 where the file has one of them"),
    header(Place::Request, "If-Match", "ETags, or *: 412 where the file has none of them"),
    header(Place::Answer, "ETag", "which file it is, as long as nothing is written into it"),
    header(Place::Answer, "Accept-Ranges", "bytes"),
    header(Place::Answer, "Content-Disposition", "the file's name"),
];

#[rustfmt::skip]
const PACKET_HEADERS: &[Header] = &[
    header(Place::Request, "TE", "trailers: the answer has those below behind its body"),
    header(Place::Answer, "wirescope-heard-from", "the time of the first packet that ring and stores have; missing: there is none"),
    header(Place::Answer, "wirescope-heard-to", "the time of the last one"),
    header(Place::Head, "wirescope-packets-most", "packets of the segments that touch the span, whatever the filter is"),
    header(Place::Head, "wirescope-bytes-most", "bytes of these"),
    header(Place::Trailer, "wirescope-packets", "packets that were given, or counted"),
    header(Place::Trailer, "wirescope-other-link-types", "packets that the form doesn't hold"),
    header(Place::Trailer, "wirescope-lost-least", "packets that are missing, at least"),
    header(Place::Trailer, "wirescope-lost-most", "packets that are missing, at most; unknown: nobody can know"),
    header(Place::Trailer, "wirescope-complete", "true: nothing is missing"),
    header(Place::Trailer, "wirescope-missing", "the gaps, as JSON"),
    header(Place::Trailer, "wirescope-faults", "what of the stores couldn't be read, as JSON, the first ten"),
];

const EVENT_HEADERS: &[Header] = &[header(
    Place::Request,
    "Last-Event-ID",
    "the number of the last line that is known: those behind it follow; 0: all that are kept; missing: only new ones",
)];

const METRIC_HEADERS: &[Header] = &[header(
    Place::Request,
    "Accept",
    "application/openmetrics-text: in that form, else in the text form of Prometheus",
)];

/// The parameters of a route's address.
pub fn parameters(action: Action) -> &'static [Parameter] {
    match action {
        Action::Dumps => OF_DUMPS,
        Action::Losses => OF_LOSSES,
        Action::Signal => OF_A_SIGNAL,
        Action::Packets => OF_PACKETS,
        Action::DumpFile => OF_A_FILE,
        Action::StatsTop => OF_TOP,
        Action::Flows => OF_FLOWS,
        _ => &[],
    }
}

/// The headers that a route reads or writes of its own.
pub fn headers(action: Action) -> &'static [Header] {
    match action {
        Action::Packets => PACKET_HEADERS,
        Action::DumpFile | Action::Audit => FILE_HEADERS,
        Action::Events => EVENT_HEADERS,
        Action::Flows => FLOW_HEADERS,
        Action::StatsFile => COPY_HEADERS,
        Action::Metrics => METRIC_HEADERS,
        _ => &[],
    }
}

/// What an address says, by the names of its parameters.
///
/// # Errors
/// The route has no such parameter, or one comes twice.
pub fn once(action: Action, query: &[(String, String)]) -> Result<BTreeMap<&str, &str>, Problem> {
    let known = parameters(action);
    let mut given = BTreeMap::new();
    for (key, value) in query {
        let bad = |cause: &str, remedy: &str| Problem::new(StatusCode::BAD_REQUEST, key, cause, remedy);
        if !known.iter().any(|parameter| parameter.name == key) {
            let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
            let remedy = match names[..] {
                [] => "omit it: this route has none".to_string(),
                _ => format!("there are: {}", names.join(", ")),
            };
            return Err(bad("there is no such parameter", &remedy));
        }
        if given.insert(key.as_str(), value.as_str()).is_some() {
            return Err(bad("it is given twice", "omit it once"));
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_known_and_comes_once() {
        let check = |action, words: &[(&str, &str)]| {
            let query: Vec<(String, String)> =
                words.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            once(action, &query).map(|given| given.len()).map_err(|problem| problem.to_string())
        };
        assert_eq!(check(Action::Dumps, &[("limit", "1"), ("after", "2")]), Ok(2));
        let twice = Err("limit: it is given twice".to_string());
        assert_eq!(check(Action::Dumps, &[("limit", "1"), ("limit", "1")]), twice);
        let none = Err("x: there is no such parameter".to_string());
        assert_eq!(check(Action::Dumps, &[("x", "")]), none);
        assert_eq!(check(Action::Status, &[("x", "")]), none);
    }
}
