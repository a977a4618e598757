//! What answers look like, route by route, as JSON Schema: what the log has, too, from the table of its facts, and the rest
//! beside it here. A test asks a run, and holds its answers against this.

use crate::state::Phase;
use scope_answer::By;
use scope_api::routes::Action;
use scope_events::counts::{Amount, Dump, Group, InterfaceCounts, Nic, SourceCounts, Stats, Volume};
use scope_events::event::Status;
use scope_events::fact::{Fact, nullable};
use scope_share::message::Refusal;
use scope_stats::asking::top::{By as TopBy, Dim};
use scope_trigger::measure::Measure;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// By what an answer is cut.
const CUT: &str = "time, rows, bytes or memory: the bound that the answer ends at; null: it is whole";

/// The JSON answers of a route, by their status; none: its answers are no JSON.
pub(crate) fn answers(action: Action) -> Vec<(u16, Value)> {
    let ok = |schema: Value| vec![(200, schema)];
    match action {
        Action::Live => ok(object(&[("live", flag("true"))])),
        Action::Ready => {
            let keys = [("ready", flag("whether it captures")), ("state", phase())];
            vec![(200, object(&keys)), (503, object(&keys))]
        }
        Action::Version => ok(object(&[
            ("version", text("of the program")),
            ("run", text("128 random bits, one value for each run")),
            ("api", words(&["v1"])),
        ])),
        Action::Status => ok(status()),
        Action::Sources => ok(object(&[
            ("sources", nullable(<Vec<SourceCounts>>::schema())),
            ("interfaces", <Vec<InterfaceCounts>>::schema()),
            ("nic", nullable(<BTreeMap<String, Nic>>::schema())),
        ])),
        Action::Ring => {
            ok(object(&[("depth_ns", number("how far it reaches back, ns")), ("lanes", list(lane()))]))
        }
        Action::Stores => ok(object(&[("stores", nullable(<Vec<Volume>>::schema()))])),
        Action::Groups => ok(groups()),
        Action::Losses => ok(json!({"anyOf": [losses(), loss_steps()]})),
        Action::Config => ok(object(&[("toml", text("the configuration, as a file has it"))])),
        Action::Triggers => ok(object(&[("triggers", list(of("TriggerState")))])),
        Action::Trigger => ok(of("TriggerState")),
        Action::Signals => ok(object(&[
            ("signals", list(object(&signal()))),
            ("unmeasured", number("sums of bins that no signal has, because nobody took them in time")),
            (
                "late",
                number("packets that came after their bin was closed; known when their worker has ended"),
            ),
        ])),
        Action::Signal => {
            let value = |what: &str| nullable(json!({"type": "number", "description": what}));
            let step = object(&[
                ("from", text("its begin")),
                ("min", value("the least of its bins; null: none has a value")),
                ("max", value("the most")),
                ("mean", value("the mean")),
            ]);
            let own = [("step_ns", number("the length of a step, ns")), ("steps", list(step))];
            ok(object(&[&signal()[..], &own].concat()))
        }
        Action::AddTrigger => vec![(201, put())],
        Action::ChangeTrigger => ok(put()),
        Action::RemoveTrigger => ok(object(&[("removed", text("the trigger's name"))])),
        Action::ArmTrigger | Action::DisarmTrigger => {
            ok(object(&[("trigger", text("its name")), ("armed", flag("whether it fires"))]))
        }
        Action::Fire | Action::FireTrigger => vec![(200, of("DumpFinished")), (202, fired(None))],
        Action::HookAlertmanager => vec![(202, hooked(Some("the alert's place in the list")))],
        Action::HookJson => vec![(202, hooked(None))],
        Action::Holds => ok(object(&[("holds", list(of("HoldKept")))])),
        Action::AddHold => vec![(201, of("HoldKept"))],
        Action::RemoveHold => ok(object(&[("removed", of("HoldKept"))])),
        Action::Devices => ok(devices()),
        Action::Doctor => ok(doctor()),
        Action::Dumps => ok(object(&[
            ("dumps", list(of("DumpState"))),
            ("next", nullable(number("the after of the next page; null: there is none"))),
        ])),
        Action::Dump => ok(of("DumpState")),
        Action::DeleteDump => ok(object(&[("removed", list(text("the name of a file")))])),
        Action::EndDump => vec![(202, object(&[("dump", number("its number")), ("ended", flag("true"))]))],
        Action::Packets => ok(sums()),
        Action::Stats => ok(Stats::schema()),
        Action::StatsFiles => ok(object(&[("files", list(statistics_file()))])),
        Action::StatsTop => ok(top()),
        Action::StatsSql => ok(object(&[
            ("columns", list(text("the name of a column"))),
            ("rows", list(json!({"type": "array", "description": "a value for each column"}))),
            ("cut", nullable(text(CUT))),
        ])),
        Action::Reload => vec![(202, object(&[("reload", words(&["ordered"]))]))],
        Action::OpenApi => {
            ok(json!({"type": "object", "required": ["openapi", "info", "paths", "components"]}))
        }
        Action::Instances => ok(instances()),
        Action::Audit
        | Action::DumpFile
        | Action::Events
        | Action::Metrics
        | Action::StatsFile
        | Action::Flows => Vec::new(),
    }
}

/// Schemas that several answers have in common, by their names.
pub(crate) fn shared() -> Vec<(&'static str, Value)> {
    let mut finished = Dump::schema();
    finished["properties"]["state"] = words(&["finished"]);
    // Counters of interfaces count all packets: who sees only those of a filter doesn't get them.
    if let Some(required) = finished["required"].as_array_mut() {
        required.retain(|key| key != "counters");
        required.push(json!("state"));
    }
    let open = object(&[
        ("id", number("its number in the run")),
        ("state", words(&["open"])),
        ("trigger", text("the trigger that fired")),
        ("packets", number("packets in it so far")),
        ("lag_ns", nullable(number("how far it is behind, ns; null: unknown"))),
    ]);
    let hold = object(&[
        ("id", number("its number")),
        ("from", text("its begin")),
        ("to", text("its end, which belongs to it")),
        ("note", text("what it is for")),
        ("made", text("when it was made")),
        ("volumes", number("volumes of the store that have it")),
    ]);
    vec![
        ("DumpFinished", finished),
        ("DumpOpen", open),
        ("DumpState", json!({"oneOf": [of("DumpFinished"), of("DumpOpen")]})),
        ("HoldKept", hold),
        ("TriggerState", trigger()),
    ]
}

/// An object with these keys and no others.
fn object(keys: &[(&str, Value)]) -> Value {
    object_with(keys, &[])
}

/// The same, of which some may be missing.
fn object_with(keys: &[(&str, Value)], rare: &[(&str, Value)]) -> Value {
    let properties: serde_json::Map<String, Value> =
        keys.iter().chain(rare).map(|(key, schema)| (key.to_string(), schema.clone())).collect();
    let required: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

fn of(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn kind(kind: &str, what: &str) -> Value {
    json!({"type": kind, "description": what})
}

fn text(what: &str) -> Value {
    kind("string", what)
}

fn number(what: &str) -> Value {
    kind("integer", what)
}

fn fraction(what: &str) -> Value {
    kind("number", what)
}

fn flag(what: &str) -> Value {
    kind("boolean", what)
}

fn words(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

fn phase() -> Value {
    words(&[Phase::Capturing.word(), Phase::Stopping.word()])
}

/// The facts of a status line, none of which is there in the first second, and how far the run is.
fn status() -> Value {
    let own = [
        ("run", text("128 random bits, one value for each run")),
        ("version", text("of the program")),
        ("state", phase()),
        ("dumps_open", number("dumps that are open")),
        ("adds_up", flag("received = stored + filtered + dropped in every worker")),
        ("triggers", number("how many triggers are in force")),
    ];
    let mut schema = Status::schema();
    schema["required"] = own.iter().map(|(key, _)| *key).collect();
    for (key, value) in own {
        schema["properties"][key] = value;
    }
    schema
}

fn lane() -> Value {
    object(&[
        ("lane", number("its number")),
        ("link_type", text("the link type of its packets")),
        ("segments", number("segments of the ring that it has")),
        ("bytes", number("bytes of these")),
        ("oldest", nullable(text("the time of its oldest packet; null: it has none"))),
    ])
}

/// Which programs read the ring.
fn groups() -> Value {
    let refused: Vec<(&str, Value)> = Refusal::ALL
        .map(|why| (why.word(), number("greetings that were refused for this reason")))
        .into_iter()
        .chain([
            ("connections", number("connections beyond those that there may be")),
            ("silent", number("connections that said nothing in time")),
            ("too_long", number("messages that are longer than any")),
            ("with_files", number("messages with descriptors")),
            ("unexpected", number("messages of those who are members already")),
            ("removed", number("members whom a run of files has waited for in vain, or who may not stay")),
        ])
        .collect();
    let attach = object(&[("path", text("where programs attach")), ("refused", object(&refused))]);
    object(&[("attach", nullable(attach)), ("groups", list(Group::schema()))])
}

fn losses() -> Value {
    let packets = |what: &str| nullable(number(what));
    let source = object(&[
        ("source", text("as typed")),
        ("worker", number("its number")),
        ("offered", packets("packets that it was offered")),
        ("kernel_dropped", packets("packets that the kernel dropped")),
        ("unreadable", packets("packets in damaged records of a file")),
    ]);
    let store = object(&[
        ("path", text("the volume's folder")),
        ("missed", Amount::schema()),
        ("behind", Amount::schema()),
    ]);
    object(&[
        ("dropped", nullable(<BTreeMap<String, u64>>::schema())),
        ("sources", list(source)),
        ("stores", list(store)),
        ("late", packets("packets older than their worker's clock less its grace")),
    ])
}

fn loss_steps() -> Value {
    let lost = object(&[
        ("of", text("the source or the volume; empty: the run as a whole")),
        ("reason", text("why")),
        ("packets", number("how many")),
    ]);
    let step = object(&[("from", text("its begin")), ("lost", list(lost))]);
    object(&[
        ("from", text("the begin of the span")),
        ("to", text("its end")),
        ("step_ns", number("the length of a step, ns")),
        ("known_from", text("losses before this time are forgotten")),
        ("steps", list(step)),
    ])
}

fn signal() -> [(&'static str, Value); 7] {
    let value =
        json!({"type": "number", "description": "its value over the last whole second; null: it has none"});
    [
        ("name", text("its name")),
        ("measure", words(&Measure::ALL.map(Measure::name))),
        ("expr", text("what it is measured of; empty: all packets")),
        ("unit", text("the unit of its values")),
        ("latest", nullable(value)),
        ("from", nullable(text("the first that was measured; null: nothing was"))),
        ("to", nullable(text("the end of what was measured"))),
    ]
}

fn trigger() -> Value {
    object(&[
        ("name", text("its name")),
        ("condition", words(&["filter", "level", "count", "sequence", "script", "hand"])),
        ("filter", nullable(text("what it fires at, of a script its file; null: only by hand"))),
        (
            "when",
            nullable(text("what has to hold for a packet's flow as well, for the first time; null: nothing")),
        ),
        ("dump", nullable(text("what its dumps keep; null: all packets"))),
        ("dump_script", nullable(text("the script that says instead what its dumps keep; null: none"))),
        ("before_ns", number("how far back they reach, ns")),
        ("after_ns", number("how far on, ns")),
        ("holdoff_ns", number("how long behind a fire it starts no new dump, ns")),
        ("holdoff_key", nullable(text("for hits with the same of these values"))),
        ("single", flag("disarmed after its first fire")),
        ("auto_ns", nullable(number("it fires by itself where nothing has fired it for so long, ns"))),
        ("armed", flag("whether it fires")),
        (
            "hits",
            json!({
                "type": "object", "additionalProperties": {"type": "integer"},
                "description": "what became of its hits, by verdict",
            }),
        ),
    ])
}

/// A file of a database of statistics.
fn statistics_file() -> Value {
    object(&[
        ("id", text("by what it is called in other routes")),
        ("from", nullable(text("the capture time that it begins with; null: it has nothing yet"))),
        ("to", nullable(text("its end, which doesn't belong to it"))),
        ("from_ns", nullable(number("the same as from, ns since the epoch"))),
        ("to_ns", nullable(number("the same as to"))),
        ("bytes", number("what it takes of the disk, with its log")),
        ("closed", flag("nobody writes it any more")),
    ])
}

/// The first ones of statistics.
fn top() -> Value {
    let figures = |own: &[(&str, Value)]| {
        let keys =
            [("packets", number("packets, in both directions")), ("bytes", number("their frame lengths"))];
        let rare = [
            ("in_packets", number("packets that the address received")),
            ("in_bytes", number("their frame lengths")),
            ("out_packets", number("packets that it sent")),
            ("out_bytes", number("their frame lengths")),
            ("flows", number("records of flows, where they are counted")),
        ];
        object_with(&keys, &[own, &rare].concat())
    };
    let row = figures(&[
        ("ip", text("an address; *: addresses that were folded together")),
        ("proto", text("of a port: the protocol")),
        ("port", number("a port; 0: none, or from 32768 on")),
        ("pair", list(text("an address"))),
        ("vlan", number("a VLAN; 0: untagged")),
    ]);
    object(&[
        ("by", words(&TopBy::WORDS.map(|(word, _)| word))),
        ("dim", words(&Dim::WORDS.map(|(word, _)| word))),
        ("from", text("the begin of the span")),
        ("to", text("its end, which doesn't belong to it")),
        ("from_ns", number("the same as from, ns since the epoch")),
        ("to_ns", number("the same as to")),
        ("rows", list(row)),
        ("different", number("how many there are")),
        ("all", figures(&[])),
        ("lost_max", number("packets that were lost in intervals of the span, at most")),
    ])
}

fn put() -> Value {
    object(&[
        ("trigger", text("its name")),
        ("toml", text("the table of a configuration file that makes it last")),
    ])
}

fn fired(alert: Option<&str>) -> Value {
    let keys = [
        ("trigger", text("the trigger that fired")),
        ("verdict", text("what became of it, as hits are counted")),
        ("dump", nullable(number("the dump that began; null: none did"))),
    ];
    let alert: Vec<(&str, Value)> = alert.map(|what| ("alert", number(what))).into_iter().collect();
    object(&[&keys[..], &alert].concat())
}

fn hooked(alert: Option<&str>) -> Value {
    object(&[("fired", list(fired(alert))), ("resolved", number("alerts that are over"))])
}

fn devices() -> Value {
    let maybe = |keys: &[(&str, Value)]| nullable(object(keys));
    let count = || nullable(number("null: unknown"));
    let sizes = ["rx", "rx_max", "tx", "tx_max"].map(|key| (key, count()));
    let missing = object(&[
        ("what", text("what is missing for capturing")),
        ("remedy", text("what helps")),
        ("refused", flag("without it nothing is captured")),
    ]);
    let advice = object(&[
        ("kind", text("a word for it")),
        ("what", text("what is lost or changed")),
        ("remedy", text("the command that fixes it")),
    ]);
    let driver = ["name", "version", "firmware", "bus"].map(|key| (key, nullable(text(key))));
    let timestamping = [
        ("software", flag("the kernel stamps packets")),
        ("hardware_all", flag("the card can stamp each packet")),
        ("hardware_some", flag("the card can stamp some packets")),
        ("clock", nullable(number("the number of its clock"))),
    ];
    let device = object(&[
        ("name", text("of the interface")),
        ("spec", text("the source that captures it")),
        ("index", number("the kernel's number of it")),
        ("state", text("whether it is up, and something at its other end")),
        ("link_type", nullable(text("null: none that is known"))),
        ("mtu", count()),
        ("bits_per_s", count()),
        ("driver", maybe(&driver)),
        ("queues", maybe(&sizes)),
        ("kernel_queues", maybe(&[("rx", count()), ("tx", count())])),
        ("rings", maybe(&sizes)),
        ("timestamping", maybe(&timestamping)),
        ("features", nullable(json!({"type": "object", "additionalProperties": {"type": "boolean"}}))),
        ("can_capture", flag("whether the run's user may capture it")),
        ("missing", list(missing)),
        ("advice", list(advice)),
        ("nic", nullable(Nic::schema())),
    ]);
    object(&[
        ("devices", list(device)),
        ("namespaces", list(text("another network namespace"))),
        ("age_s", fraction("how long ago all but nic was gathered, seconds")),
        ("counters_age_s", nullable(fraction("how long ago nic was, seconds; null: not yet"))),
    ])
}

fn doctor() -> Value {
    let finding = object(&[
        ("kind", text("a word for it")),
        ("stage", text("where")),
        ("sureness", text("how sure the cause is")),
        ("loses", flag("packets or promised dumps are lost")),
        ("follows", list(text("the kind of a finding that caused it"))),
        ("lost_min", number("packets lost, at least")),
        ("lost_max", number("packets lost, at most")),
        ("cause", text("why")),
        ("remedies", list(text("what to change"))),
    ]);
    let other = object(&[
        ("run_id", nullable(text("another run in the log"))),
        ("began", nullable(text("when it began"))),
        ("last_words", flag("whether its last line is there")),
        ("beside", flag("whether it ran at the same time")),
    ]);
    object(&[
        ("sources", list(text("as typed"))),
        ("run_id", nullable(text("the run"))),
        ("began", nullable(text("when it began"))),
        ("runs", number("runs in the log")),
        ("newest", flag("whether this is the newest of them")),
        ("other_runs", list(other)),
        ("state", words(&["ended", "ended_at_once", "running", "stopped", "dead", "unknown"])),
        ("pid", nullable(number("the process"))),
        ("elapsed_s", nullable(fraction("since the run's begin, seconds"))),
        ("counts_age_s", nullable(fraction("how old its counters are, seconds"))),
        ("loses", flag("whether anything is lost")),
        ("findings", list(finding)),
        ("age_s", fraction("how old the answer is, seconds")),
    ])
}

/// What packets come to: with `count`, `top` or `timeline`.
fn sums() -> Value {
    let gap = object(&[
        ("from", text("the gap's begin")),
        ("to", nullable(text("its end; null: it has none"))),
        ("reason", text("why")),
        ("lost_min", number("packets that are missing, at least")),
        ("lost_max", nullable(number("at most; null: nobody can know"))),
    ]);
    let sum = [
        ("packets", number("how many")),
        ("bytes", number("their captured bytes")),
        ("first", nullable(text("the time of the first one; null: there is none"))),
        ("last", nullable(text("the time of the last one"))),
        ("filters", list(text("a filter that what is asked was captured with"))),
        ("missing", list(gap)),
    ];
    let row_counts = [("packets", number("how many, at least")), ("bytes", number("their captured bytes"))];
    let row_keys = [
        ("host", text("an address")),
        ("port", number("a port")),
        ("protocol", text("its protocol")),
        ("pair", list(text("an address"))),
        ("proto", text("a protocol")),
        ("packets_max", number("how many, at most, where the list isn't exact")),
    ];
    let top = [
        ("top", words(&By::WORDS)),
        ("exact", flag("whether all keys were counted")),
        ("different", nullable(number("how many keys there are; null: unknown"))),
        ("others_max", nullable(number("packets of another key, at most"))),
        ("rows", list(object_with(&row_counts, &row_keys))),
    ];
    let step = object(&[
        ("from", text("its begin")),
        ("packets", number("how many")),
        ("bytes", number("their captured bytes")),
        ("lost_min", number("packets that are missing in it, at least")),
        ("lost_max", nullable(number("at most; null: nobody can know"))),
    ]);
    let timeline = [("step_ns", number("the length of a step, ns")), ("steps", list(step))];
    let forms = [&[][..], &top, &timeline];
    json!({"anyOf": forms.map(|form| object(&[&sum[..], form].concat()))})
}

/// Of a run, itself; of a door to the network, those behind it, and how the door stands.
fn instances() -> Value {
    let own = [
        ("run", text("128 random bits, one value for each run")),
        ("state", phase()),
        ("answers", flag("whether it can be asked")),
    ];
    let behind = [("name", text("as below instances/")), ("answers", flag("whether it can be asked"))];
    let counters = |keys: &[&str]| {
        let counted: Vec<(&str, Value)> = keys.iter().map(|key| (*key, number("how many"))).collect();
        object(&counted)
    };
    let door = object(&[
        (
            "answers",
            json!({"type": "object", "additionalProperties": {"type": "integer"}, "description": "by status"}),
        ),
        ("refused", counters(&["connections", "head_too_long", "rate", "busy"])),
        ("ended", counters(&["handshake", "head_too_slow", "stalled", "identity"])),
        ("lines_unsaid", number("lines of its log that were too many")),
        ("refusals_unnoted", number("refusals of which the run that was meant didn't hear")),
        ("uses_unwritten", number("last uses of tokens that couldn't be written")),
    ]);
    json!({"anyOf": [
        object(&[("instances", list(object(&own)))]),
        object(&[("instances", list(object(&behind))), ("door", door)]),
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_api::parameters::{Kind, parameters};

    #[test]
    fn words_of_a_parameter_are_those_that_are_understood() {
        let top = parameters(Action::Packets).iter().find(|parameter| parameter.name == "top").unwrap();
        assert!(matches!(top.kind, Kind::Word(words) if words == By::WORDS));
    }
}
