//! What an instance answers, in words for people.

use crate::words::{counted, number, size};
use scope_spelling::figures::span;
use serde_json::Value;

fn of(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A run, in a few lines.
pub fn status(status: &Value) -> String {
    let elapsed_ns = (status["elapsed_s"].as_f64().unwrap_or(0.0) * 1e9) as i64;
    let received = &status["received"];
    let mut lines = vec![
        format!(
            "run {}: {} for {}",
            text(&status["run"]).get(..8).unwrap_or(""),
            text(&status["state"]),
            span(elapsed_ns)
        ),
        format!(
            "received {}, {}; {} packets/s now",
            counted(of(&received["packets"]), "packet"),
            size(of(&received["bytes"])),
            number(status["packets_per_s"].as_f64().unwrap_or(0.0) as u64)
        ),
        format!("dropped {}", dropped(&status["dropped"])),
        format!("the ring reaches back {}", span(status["depth_ns"].as_i64().unwrap_or(0))),
        format!(
            "dumps: {} finished, {} open",
            number(of(&status["dumps_done"])),
            number(of(&status["dumps_open"]))
        ),
    ];
    for store in list(&status["stores"]) {
        let back = store["reaches_back_s"]
            .as_i64()
            .map_or(String::new(), |s| format!(", reaches back {}", span(s * 1_000_000_000)));
        lines.push(format!(
            "store {}: {}, {} used{back}",
            text(&store["path"]),
            text(&store["state"]),
            size(of(&store["used"]))
        ));
    }
    for rule in list(&status["source_rules"]) {
        let [dropped, cut] = ["dropped", "cut"].map(|figure| number(of(&rule[figure])));
        let (name, source) = (text(&rule["rule"]), text(&rule["source"]));
        lines.push(format!("rule {name} of {source}: {dropped} dropped, {cut} truncated"));
    }
    lines.extend(statistics(&status["stats"]));
    for script in list(&status["scripts"]) {
        let disabled = if script["disabled"].is_null() { "" } else { ", DISABLED" };
        lines.push(format!(
            "script {} of {}: {} packets/s now, {} missed, {} failed, {:.0} % of a processor{disabled}",
            text(&script["file"]),
            text(&script["name"]),
            number(script["packets_per_s"].as_f64().unwrap_or(0.0) as u64),
            number(of(&script["missed"])),
            number(of(&script["errors"])),
            script["cpu"].as_f64().unwrap_or(0.0) * 100.0
        ));
    }
    lines.join("\n") + "\n"
}

/// Traffic statistics, if the run makes some.
fn statistics(stats: &Value) -> Vec<String> {
    if stats.is_null() {
        return Vec::new();
    }
    let count = |key: &str, words: &str| {
        Some(of(&stats[key])).filter(|&count| count > 0).map(|count| format!(", {} {words}", number(count)))
    };
    let counts = [
        count("waiting", "wait"),
        count("folded_rows", "folded"),
        count("folded_flows", "records folded"),
        count("unwritten", "not written in time"),
    ];
    let mut lines = vec![format!(
        "statistics: {} written, {} behind{}",
        counted(of(&stats["rows"]), "row"),
        span(stats["lag_ns"].as_i64().unwrap_or(0)),
        counts.into_iter().flatten().collect::<String>()
    )];
    let counts =
        [count("evicted", "evicted"), count("late", "late packets"), count("unsent", "records not sent")];
    lines.push(format!(
        "flows: {} of at most {}{}",
        number(of(&stats["flows"])),
        number(of(&stats["flows_max"])),
        counts.into_iter().flatten().collect::<String>()
    ));
    for (key, words) in [("failing", "statistics wait"), ("ended", "STATISTICS HAVE ENDED")] {
        lines.extend(stats[key].as_str().map(|why| format!("{words}: {why}")));
    }
    lines
}

/// Drops by reason; `nothing` where there are none.
fn dropped(dropped: &Value) -> String {
    let each = dropped.as_object().into_iter().flatten();
    let some: Vec<String> = each
        .filter(|(_, packets)| of(packets) > 0)
        .map(|(reason, packets)| format!("{} ({reason})", counted(of(packets), "packet")))
        .collect();
    if some.is_empty() { "nothing".to_string() } else { some.join(", ") }
}

/// What was lost, source by source.
pub fn losses(losses: &Value) -> String {
    let mut lines = vec![format!("dropped: {}", dropped(&losses["dropped"]))];
    for source in list(&losses["sources"]) {
        let (lost, unread) = (of(&source["kernel_dropped"]), of(&source["unreadable"]));
        lines.push(format!(
            "{} (worker {}): {} offered, {} dropped by the kernel, {} unreadable",
            text(&source["source"]),
            source["worker"],
            counted(of(&source["offered"]), "packet"),
            number(lost),
            number(unread)
        ));
    }
    for store in list(&losses["stores"]) {
        let missed = counted(of(&store["missed"]["packets"]), "packet");
        lines.push(format!("store {}: {missed} missed", text(&store["path"])));
    }
    lines.join("\n") + "\n"
}

/// What became of the packets that a forward has read.
fn forward(forward: &Value) -> String {
    let refused = forward["refused"].as_object().into_iter().flatten();
    let each: Vec<String> = refused.map(|(why, many)| format!("{} {why}", number(of(many)))).collect();
    let all: u64 = forward["refused"].as_object().into_iter().flatten().map(|(_, many)| of(many)).sum();
    let each = if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) };
    format!(
        "  {}: {} read = {} sent to {} + {} refused{each}",
        text(&forward["name"]),
        number(of(&forward["read"])),
        number(of(&forward["sent"])),
        text(&forward["interface"]),
        number(all)
    )
}

/// Who reads the ring, a line each.
pub fn groups(groups: &Value) -> String {
    if groups["attach"].is_null() && list(&groups["groups"]).is_empty() {
        return "no program can attach: the run has no --attach\n".to_string();
    }
    let figures = |of_one: &Value| {
        let each = ["read", "missed", "behind"].map(|key| format!("{} {key}", number(of(&of_one[key]))));
        format!("{} given = {}", number(of(&of_one["given"])), each.join(" + "))
    };
    let mut lines = vec![match groups["attach"].is_null() {
        true => "no program can attach: the run has no --attach".to_string(),
        false => format!("attach at {}", text(&groups["attach"]["path"])),
    }];
    for group in list(&groups["groups"]) {
        let published = counted(of(&group["published"]), "packet");
        let members = list(&group["members"]);
        let many = counted(members.len() as u64, "member");
        lines.push(format!("{}: {published} published, {many}", text(&group["name"])));
        if group["seen"].is_u64() {
            let sum = |keys: &[&str]| {
                let each = keys.iter().map(|key| format!("{} {key}", number(of(&group[*key]))));
                each.collect::<Vec<String>>().join(" + ")
            };
            let filter = text(&group["filter"]);
            let what = if filter.is_empty() { "everything".to_string() } else { format!("'{filter}'") };
            let interface = text(&group["interface"]);
            let by = if interface.is_empty() { String::new() } else { format!(" of interface {interface}") };
            lines.push(format!("  takes {what}{by}, shared out by {}", text(&group["steer"])));
            lines.push(format!("  published = {}", sum(&["idle", "seen", "missed", "behind"])));
            let dropped = group["dropped"].as_object().into_iter().flatten();
            let dropped: String = dropped
                .filter(|(_, many)| of(many) > 0)
                .map(|(rule, many)| format!(" + {} dropped by '{}'", number(of(many)), rule))
                .collect();
            lines.push(format!("  seen = {}{dropped}", sum(&["filtered", "unclaimed", "taken"])));
            let more = ["doubled", "copied_in"].map(|key| of(&group[key]));
            if more != [0, 0] {
                let [doubled, copied_in] = more.map(number);
                let taken = sum(&["taken"]);
                lines.push(format!(
                    "  given = {taken} + {doubled} doubled + {copied_in} copied from other groups"
                ));
            }
        }
        for member in members {
            let waits = match (member["stuck"] == true, member["waits"] == true) {
                (true, _) => ", stands still",
                (false, true) => ", waits",
                (false, false) => "",
            };
            let holds = match of(&member["hold_bytes"]) {
                0 => String::new(),
                may => format!(", {} of {} held", size(of(&member["held_bytes"])), size(may)),
            };
            lines.push(format!(
                "  {} (process {}, user {}): {}{waits}{holds}",
                text(&member["name"]),
                member["pid"],
                text(&member["user"]),
                figures(member)
            ));
        }
        lines.extend(list(&group["forwards"]).iter().map(forward));
        let gone = &group["gone"];
        if of(&gone["members"]) > 0 {
            let many = counted(of(&gone["members"]), "member");
            lines.push(format!("  {many} gone: {}", figures(gone)));
        }
    }
    let refused = groups["attach"]["refused"].as_object().into_iter().flatten();
    let each: Vec<String> = refused
        .filter(|(_, many)| of(many) > 0)
        .map(|(why, many)| format!("{} {why}", number(of(many))))
        .collect();
    if !each.is_empty() {
        lines.push(format!("refused: {}", each.join(", ")));
    }
    lines.join("\n") + "\n"
}

/// The triggers, a line each.
pub fn triggers(triggers: &Value) -> String {
    let line = |trigger: &Value| {
        let hits: u64 = trigger["hits"].as_object().into_iter().flatten().map(|(_, hits)| of(hits)).sum();
        let armed = if trigger["armed"] == true { "armed" } else { "disarmed" };
        let condition = trigger["filter"].as_str().unwrap_or("by hand");
        let when = trigger["when"].as_str().map_or(String::new(), |when| format!(", when {when}"));
        format!(
            "{}: {armed}, {condition}{when}; {}, {} fired\n",
            text(&trigger["name"]),
            counted(hits, "hit"),
            number(of(&trigger["hits"]["fired"]))
        )
    };
    list(&triggers["triggers"]).iter().map(line).collect()
}

/// A trigger that was added or changed, and what makes it last.
pub fn put(answer: &Value) -> String {
    let name = text(&answer["trigger"]);
    format!(
        "{name}: in force until the configuration is read again; to keep it, add to the file:\n{}",
        text(&answer["toml"])
    )
}

/// A trigger that was armed or disarmed.
pub fn armed(answer: &Value) -> String {
    format!("{}: {}\n", text(&answer["trigger"]), if answer["armed"] == true { "armed" } else { "disarmed" })
}

/// What a fire came to.
pub fn fired(fired: &Value) -> String {
    if fired["state"] == "finished" {
        return format!("{}\n", dump(fired));
    }
    match fired["dump"].as_u64() {
        Some(id) => format!(
            "dump {id} of {} begins; wirescope dumps show {id} says how it stands\n",
            text(&fired["trigger"])
        ),
        None => format!("{}: {}\n", text(&fired["trigger"]), text(&fired["verdict"])),
    }
}

/// Dumps, a line each.
pub fn dumps(dumps: &[Value]) -> String {
    if dumps.is_empty() {
        return "this run has no dumps\n".to_string();
    }
    dumps.iter().map(|one| format!("{}\n", dump(one))).collect()
}

/// One dump, without a line's end.
pub fn dump(dump: &Value) -> String {
    let (id, trigger) = (of(&dump["id"]), text(&dump["trigger"]));
    let packets = counted(of(&dump["packets"]), "packet");
    if dump["state"] == "open" {
        return format!("dump {id} of {trigger}: open, {packets} so far");
    }
    let complete = match (dump["complete"] == true, dump["error"].as_str()) {
        (true, _) => "complete".to_string(),
        (false, Some(error)) => error.to_string(),
        (false, None) if (of(&dump["lost_min"]), dump["lost_max"].as_u64()) == (0, Some(0)) => {
            "not complete: no packet lost, but its window has a gap".to_string()
        }
        (false, None) => {
            let most = dump["lost_max"].as_u64().map_or("any number".to_string(), number);
            format!("lacks {} to {most}", number(of(&dump["lost_min"])))
        }
    };
    let paths = match list(&dump["paths"]) {
        [] => dump["path"].as_str().into_iter().collect(),
        paths => paths.iter().map(text).collect::<Vec<&str>>(),
    };
    let path = if paths.is_empty() { String::new() } else { format!("; {}", paths.join(", ")) };
    format!("dump {id} of {trigger}: {packets}, {}, {complete}{path}", size(of(&dump["bytes"])))
}

/// Files that are gone.
pub fn removed(removed: &Value) -> String {
    list(&removed["removed"]).iter().map(|name| format!("removed {}\n", text(name))).collect()
}

/// One event of the log.
pub fn event(line: &Value) -> String {
    let logged = text(&line["logged"]);
    let time = logged.get(11..23).unwrap_or(logged);
    let name = text(&line["event"]);
    let said = match name {
        "dump" => dump_done(line),
        "hit" => format!("{}: {}", text(&line["trigger"]), text(&line["verdict"])),
        "warning" => text(&line["text"]).to_string(),
        "loss" => dropped(&line["packets"]),
        "status" => {
            let packets = counted(of(&line["received"]["packets"]), "packet");
            format!("{packets} received, dropped {}", dropped(&line["dropped"]))
        }
        _ => String::new(),
    };
    let colon = if said.is_empty() { "" } else { ": " };
    format!("{time} {name}{colon}{said}\n")
}

/// A dump of the log, which is finished.
fn dump_done(line: &Value) -> String {
    let said = dump(line);
    said.strip_prefix("dump ").map_or(said.clone(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_lost_is_named_with_its_reason_and_nothing_else() {
        let drops = json!({"kernel": 12, "ring_pinned": 0, "interfaces": 1});
        assert_eq!(dropped(&drops), "1 packet (interfaces), 12 packets (kernel)");
        assert_eq!(dropped(&json!({"kernel": 0})), "nothing");
    }

    #[test]
    fn the_figures_of_a_group_add_up_on_the_screen_and_rules_are_named() {
        let member =
            json!({"name": "m", "pid": 7, "user": "u", "given": 19, "read": 19, "missed": 0, "behind": 0});
        let group = json!({
            "name": "b", "published": 30, "members": [member], "filter": "", "steer": "all", "idle": 0, "seen": 30,
            "missed": 0, "behind": 0, "filtered": 10, "unclaimed": 0, "taken": 9, "dropped": {"old": 0, "web": 11},
            "doubled": 0, "copied_in": 10
        });
        let said = groups(&json!({"attach": {"path": "a"}, "groups": [group]}));
        let line = |text: &str| said.lines().any(|line| line == text);
        assert!(line("  seen = 10 filtered + 0 unclaimed + 9 taken + 11 dropped by 'web'"), "{said}");
        assert!(line("  given = 9 taken + 0 doubled + 10 copied from other groups"), "{said}");
    }

    #[test]
    fn a_dump_says_what_it_lacks() {
        let whole =
            json!({"id": 7, "trigger": "t", "packets": 2, "bytes": 100, "complete": true, "path": "/d/x"});
        assert_eq!(dump(&whole), "dump 7 of t: 2 packets, 100 B, complete; /d/x");
        let lossy = json!({"id": 7, "trigger": "t", "packets": 2, "bytes": 100, "complete": false, "lost_min": 3, "lost_max": null});
        let silent = json!({"id": 7, "trigger": "t", "packets": 2, "bytes": 100, "complete": false, "lost_min": 0, "lost_max": 0});
        assert!(dump(&silent).ends_with("not complete: no packet lost, but its window has a gap"));
        assert_eq!(dump(&lossy), "dump 7 of t: 2 packets, 100 B, lacks 3 to any number");
        assert_eq!(
            dump(&json!({"id": 8, "trigger": "t", "state": "open", "packets": 1})),
            "dump 8 of t: open, 1 packet so far"
        );
    }
}
