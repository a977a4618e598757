//! Every route of the API: the one table that the server, the OpenAPI document and the documents' tests are made of.
//!
//! For example `GET /api/v1/dumps/7/file` is the route `dumps/{id}/file` with the parameter `7`. A path that no route has
//! is refused with 404, one of a route with another method with 405, and the answer names the methods that there are.

use crate::role::Role;
use http::Method;
use percent_encoding::percent_decode_str;
use std::fmt;

/// A parameter of a path at most, bytes.
pub const PARAMETER_BYTES_MAX: usize = 256;

/// What is asked or ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The process answers.
    Live,
    /// It captures.
    Ready,
    /// The facts of the log's status lines, as they are now.
    Status,
    /// What each source has counted.
    Sources,
    /// How far the ring reaches back, and what is in it.
    Ring,
    /// What each volume of the store has.
    Stores,
    /// Which programs read the ring.
    Groups,
    /// What was lost, by source and reason.
    Losses,
    /// The configuration that reproduces the run.
    Config,
    /// Which program this is.
    Version,
    /// The triggers in force.
    Triggers,
    /// One of them.
    Trigger,
    /// The signals, or all of them live.
    Signals,
    /// One of them, in steps.
    Signal,
    /// An order to add one.
    AddTrigger,
    /// An order to put another one in the place of one.
    ChangeTrigger,
    /// An order to remove one.
    RemoveTrigger,
    /// An order to fire one of them.
    FireTrigger,
    /// An order that one of them fires.
    ArmTrigger,
    /// An order that one of them doesn't fire.
    DisarmTrigger,
    /// Spans that the store keeps.
    Holds,
    /// An order to keep one.
    AddHold,
    /// An order to let one go.
    RemoveHold,
    /// What was ordered and looked at.
    Audit,
    /// The host's interfaces.
    Devices,
    /// Where the run loses packets.
    Doctor,
    /// Alertmanager tells of alerts.
    HookAlertmanager,
    /// Another program tells of something.
    HookJson,
    /// An order to fire by hand.
    Fire,
    /// The dumps of this run.
    Dumps,
    /// One of them.
    Dump,
    /// Its file is removed.
    DeleteDump,
    /// An order to end the window of an open one.
    EndDump,
    /// Its file.
    DumpFile,
    /// Packets of a span that a filter matches, out of ring and stores.
    Packets,
    /// What statistics have done so far.
    Stats,
    /// The files of their database.
    StatsFiles,
    /// A copy of one of them.
    StatsFile,
    /// The addresses, ports, pairs or VLANs with the most.
    StatsTop,
    /// One SELECT.
    StatsSql,
    /// Records of flows that a filter matches.
    Flows,
    /// What happens, as server-sent events.
    Events,
    /// An order to read the configuration file again.
    Reload,
    /// Counters for Prometheus.
    Metrics,
    /// This table, as an OpenAPI document.
    OpenApi,
    /// The instances that can be asked here.
    Instances,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// GET, POST, ...; GET stands for HEAD, too.
    pub method: &'static str,
    /// Below [`crate::PREFIX`] and its slash; a parameter stands in braces.
    pub path: &'static str,
    /// What is asked.
    pub action: Action,
    /// Who may ask, and whoever has a stronger role.
    pub role: Role,
    /// What it says, in one sentence.
    pub what: &'static str,
}

const fn get(path: &'static str, action: Action, role: Role, what: &'static str) -> Route {
    Route { method: "GET", path, action, role, what }
}

const fn post(path: &'static str, action: Action, role: Role, what: &'static str) -> Route {
    Route { method: "POST", path, action, role, what }
}

/// All of them.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    get("health/live", Action::Live, Role::Viewer, "Says that the process answers."),
    get("health/ready", Action::Ready, Role::Viewer, "Says whether it captures; 503 where it doesn't, or no more."),
    get("status", Action::Status, Role::Viewer, "The facts of the log's status lines, as they are now."),
    get("sources", Action::Sources, Role::Viewer, "What each source and each interface has counted."),
    get("ring", Action::Ring, Role::Viewer, "How far the ring reaches back, in time and bytes, for each lane."),
    get("stores", Action::Stores, Role::Viewer, "What each volume of the store has, and how it stands."),
    get("groups", Action::Groups, Role::Viewer, "Which programs have attached and read the ring, and how far each of them is."),
    get("holds", Action::Holds, Role::Viewer, "The spans that the store keeps whatever its bounds."),
    post("holds", Action::AddHold, Role::Operator, "Keeps a span, in each volume of the store."),
    Route { method: "DELETE", path: "holds/{id}", action: Action::RemoveHold, role: Role::Operator, what: "Lets a span go again." },
    get("losses", Action::Losses, Role::Viewer, "What was lost, by source and by reason, since the run began."),
    get("devices", Action::Devices, Role::Viewer, "The host's interfaces as they were at the start, with counters read since."),
    get("doctor", Action::Doctor, Role::Viewer, "Where the run loses packets, and what helps, as found in its log."),
    get("config", Action::Config, Role::Admin, "The configuration that reproduces this run, as a file has it."),
    get("version", Action::Version, Role::Viewer, "Which program this is, and which run."),
    get("triggers", Action::Triggers, Role::Viewer, "The triggers in force, with what became of their hits."),
    get("triggers/{name}", Action::Trigger, Role::Viewer, "One trigger."),
    get("signals", Action::Signals, Role::Viewer, "The signals that are measured; with Accept: text/event-stream all of them live, ten times a second."),
    get("signals/{name}", Action::Signal, Role::Viewer, "One signal in steps: least, most and mean."),
    post("triggers", Action::AddTrigger, Role::Operator, "Adds a trigger, until the configuration is read again."),
    Route { method: "PUT", path: "triggers/{name}", action: Action::ChangeTrigger, role: Role::Operator, what: "Changes a trigger, until the configuration is read again." },
    Route { method: "DELETE", path: "triggers/{name}", action: Action::RemoveTrigger, role: Role::Operator, what: "Removes a trigger, until the configuration is read again." },
    post("triggers/{name}/fire", Action::FireTrigger, Role::Analyst, "Fires this trigger, as if its condition held now."),
    post("triggers/{name}/arm", Action::ArmTrigger, Role::Operator, "Lets this trigger fire, until it is ordered otherwise."),
    post("triggers/{name}/disarm", Action::DisarmTrigger, Role::Operator, "Keeps this trigger from firing, until it is armed or the configuration is read again."),
    post("fire", Action::Fire, Role::Analyst, "Fires by hand: a dump of its own window, with its own filter."),
    post("hooks/alertmanager", Action::HookAlertmanager, Role::Analyst, "Fires the triggers that firing alerts name: Alertmanager's own webhook."),
    post("hooks/json/{name}", Action::HookJson, Role::Analyst, "Fires this trigger, with values of the object for its template."),
    get("dumps", Action::Dumps, Role::Analyst, "The dumps of this run, the oldest first, open ones included."),
    get("dumps/{id}", Action::Dump, Role::Analyst, "One dump."),
    Route { method: "DELETE", path: "dumps/{id}", action: Action::DeleteDump, role: Role::Operator, what: "Removes the files of a finished dump." },
    post("dumps/{id}/end", Action::EndDump, Role::Operator, "Ends the window of an open dump here: it is finished with what has come."),
    get("dumps/{id}/file", Action::DumpFile, Role::Analyst, "The file of a finished dump, whole or a range of it."),
    get("packets", Action::Packets, Role::Analyst, "The packets of a span that a filter matches, out of the ring and the stores, by time; or what they come to."),
    get("stats", Action::Stats, Role::Analyst, "What traffic statistics have done so far: rows, how far they are behind, what was folded, and why."),
    get("stats/files", Action::StatsFiles, Role::Analyst, "The files of the database of statistics, the oldest first."),
    get("stats/files/{id}", Action::StatsFile, Role::Analyst, "A copy of one of them, whole and of one moment, also of the one that is written."),
    get("stats/top", Action::StatsTop, Role::Analyst, "The addresses, ports, pairs of addresses or VLANs with the most bytes, packets or flows."),
    post("stats/sql", Action::StatsSql, Role::Analyst, "Answers one SELECT on the tables of statistics."),
    get("flows", Action::Flows, Role::Analyst, "Records of flows that a filter and a span match, in the order in which they ended, as they are written."),
    get("events", Action::Events, Role::Viewer, "What happens, as server-sent events: the lines of the log."),
    post("reload", Action::Reload, Role::Operator, "Reads the configuration file again."),
    get("audit", Action::Audit, Role::Admin, "Who ordered what and looked at which packets, as JSON lines: the file of the folder."),
    get("metrics", Action::Metrics, Role::Viewer, "Counters for Prometheus."),
    get("openapi.json", Action::OpenApi, Role::Viewer, "This API as an OpenAPI document."),
    get("instances", Action::Instances, Role::Viewer, "The instances that can be asked here; each has all routes below instances/NAME/, too, at a door to the network."),
];

/// What a request's path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This place of [`ROUTES`], with its parameters in their order.
    Route(usize, Vec<String>),
    /// There is no such path.
    None,
    /// There is, for these methods.
    Other(Vec<&'static str>),
    /// A parameter that can't be meant.
    Bad(&'static str),
}

/// Finds the route of a request; `path` is that of its target, without a query.
pub fn find(method: &Method, path: &str) -> Found {
    let Some(path) = path.strip_prefix(crate::PREFIX).and_then(|rest| rest.strip_prefix('/')) else {
        return match path {
            "/metrics" => find(method, "/api/v1/metrics"), // where Prometheus looks
            _ => Found::None,
        };
    };
    let asked = if *method == Method::HEAD { Method::GET } else { method.clone() };
    let matching =
        ROUTES.iter().enumerate().filter_map(|(at, route)| Some((at, parameters(route.path, path)?)));
    let matching: Vec<_> = matching.collect();
    if matching.is_empty() {
        return Found::None;
    }
    match matching.iter().find(|(at, _)| ROUTES[*at].method == asked.as_str()) {
        Some((at, raw)) => match raw.iter().map(|raw| decoded(raw)).collect() {
            Ok(parameters) => Found::Route(*at, parameters),
            Err(cause) => Found::Bad(cause),
        },
        None => Found::Other(matching.iter().map(|(at, _)| ROUTES[*at].method).collect()),
    }
}

/// The parameters of a path that has this form.
fn parameters<'a>(form: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (mut forms, mut parts) = (form.split('/'), path.split('/'));
    let mut found = Vec::new();
    loop {
        match (forms.next(), parts.next()) {
            (None, None) => return Some(found),
            (Some(form), Some(part)) if form.starts_with('{') && !part.is_empty() => found.push(part),
            (Some(form), Some(part)) if form == part => {}
            _ => return None,
        }
    }
}

fn decoded(raw: &str) -> Result<String, &'static str> {
    let text = percent_decode_str(raw).decode_utf8().map_err(|_| "it is no UTF-8")?;
    if text.len() > PARAMETER_BYTES_MAX {
        return Err("it is too long");
    }
    if text.chars().any(char::is_control) {
        return Err("it has control characters");
    }
    Ok(text.into_owned())
}

impl Route {
    /// Whether it answers whoever may see only packets of a filter: these ask for packets, fire, and see what they fired.
    pub fn answers_bound(&self) -> bool {
        matches!(
            self.action,
            Action::Live
                | Action::Ready
                | Action::Version
                | Action::Fire
                | Action::Dumps
                | Action::Dump
                | Action::DumpFile
                | Action::Packets
        )
    }

    /// Whether each request, a refused one too, is a line of the audit: orders, and looks at packets or at statistics of
    /// them.
    pub fn is_audited(&self) -> bool {
        self.method != "GET"
            || matches!(
                self.action,
                Action::Packets
                    | Action::DumpFile
                    | Action::Audit
                    | Action::Stats
                    | Action::StatsFiles
                    | Action::StatsFile
                    | Action::StatsTop
                    | Action::Flows
            )
    }
}

/// For example `GET /api/v1/dumps/{id}`.
impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.method, crate::PREFIX, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn action(method: &Method, path: &str) -> Option<(Action, Vec<String>)> {
        match find(method, path) {
            Found::Route(at, parameters) => Some((ROUTES[at].action, parameters)),
            _ => None,
        }
    }

    #[test]
    fn each_route_is_found_by_its_own_path_and_no_two_are_alike() {
        let mut known = BTreeSet::new();
        for (at, route) in ROUTES.iter().enumerate() {
            assert!(known.insert((route.method, route.path)), "{route}");
            let path = format!("/api/v1/{}", route.path.replace("{id}", "7").replace("{name}", "a%2Fb"));
            let method = route.method.parse().unwrap();
            assert!(matches!(find(&method, &path), Found::Route(found, _) if found == at), "{route}");
        }
        let actions: BTreeSet<String> = ROUTES.iter().map(|route| format!("{:?}", route.action)).collect();
        assert_eq!(actions.len(), ROUTES.len());
    }

    #[test]
    fn parameters_are_decoded_and_what_cannot_be_meant_is_none() {
        let one = |text: &str| vec![text.to_string()];
        assert_eq!(action(&Method::GET, "/api/v1/triggers/a%2Fb"), Some((Action::Trigger, one("a/b"))));
        assert_eq!(action(&Method::HEAD, "/api/v1/status"), Some((Action::Status, vec![])));
        assert_eq!(action(&Method::GET, "/metrics"), Some((Action::Metrics, vec![])));
        for path in [
            "/",
            "/api/v1",
            "/api/v1/",
            "/api/v1/dumps/",
            "/api/v1/dumps/7/",
            "/api/v2/status",
            "/status",
            "//api/v1/status",
        ] {
            assert_eq!(find(&Method::GET, path), Found::None, "{path}");
        }
        assert_eq!(find(&Method::POST, "/api/v1/dumps/7"), Found::Other(vec!["GET", "DELETE"]));
        assert_eq!(find(&Method::GET, "/api/v1/dumps/%00"), Found::Bad("it has control characters"));
        assert_eq!(find(&Method::GET, "/api/v1/dumps/%ff"), Found::Bad("it is no UTF-8"));
        let long = format!("/api/v1/triggers/{}", "a".repeat(PARAMETER_BYTES_MAX + 1));
        assert_eq!(find(&Method::GET, &long), Found::Bad("it is too long"));
    }
}
