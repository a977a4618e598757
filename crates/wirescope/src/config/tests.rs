//! Every key of the table, right and wrong; what is shown means what was given.

use super::{all_faults, keys, laid_over, meant, written};
use crate::args::{Cli, RunArgs};
use crate::plan::{self, Look};
use clap::CommandFactory;
use proptest::prelude::*;
use scope_config::{Given, Kind, Settings, Written};
use scope_engine::Live;
use scope_fault::Fault;
use scope_packet::LinkType;
use std::path::Path;

/// The commented example.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wirescope.toml");
/// Stands in no key's values.
const NONSENSE: &str = "$nix %";
/// Keys whose every text means something, or is for the machine to judge.
const ANY_TEXT: [&str; 13] = [
    "attach",
    "db",
    "out",
    "dump-script",
    "ring-out",
    "write",
    "exec",
    "exec-write",
    "user",
    "store",
    "control",
    "control-group",
    "serve-user",
];

/// The settings of a text in the file "t.toml".
fn settings(text: &str) -> Result<RunArgs, Vec<Fault>> {
    let keys = keys::all();
    match Written::parse(Path::new("t.toml"), text, &keys) {
        Ok(written) => meant(Settings::merge(&keys, Some(written), &Given::new())),
        Err(error) => Err(all_faults(error, &keys, &Given::new())),
    }
}

/// What a check says of a text.
fn faults(text: &str) -> Vec<String> {
    let faults = settings(text).and_then(|args| plan::plan(&args, Look::Nowhere)).err().unwrap_or_default();
    assert!(
        faults.is_sorted_by_key(|fault| fault.line().unwrap_or(usize::MAX)),
        "not in order of lines: {faults:#?}"
    );
    faults.iter().map(ToString::to_string).collect()
}

/// A file that is right, without the key `but`.
fn good_without(but: &str) -> String {
    let lines = ["source = \"synth:\"\n", "out = \"x\"\n", "trigger = \"udp\"\n"];
    lines.into_iter().filter(|line| !line.starts_with(&format!("{but} "))).collect()
}

/// Asserts that a text has exactly one fault that names `key` at the line that says `key = VALUE`.
fn check_wrong(key: &str, value: &str) {
    let text = format!("{}{key} = {value}\n", good_without(key));
    let place = format!("t.toml:{}: ", text.lines().count());
    let said = faults(&text);
    // A list that couldn't be read also leaves other words without what they belong to.
    let of_it: Vec<&String> = said.iter().filter(|fault| fault.starts_with(&place)).collect();
    assert!(!of_it.is_empty(), "{key} = {value}: no fault at {place}in {said:#?}");
    assert!(of_it.iter().all(|fault| fault.len() > place.len() + 10), "{said:#?}");
}

#[test]
fn a_value_of_a_wrong_type_is_named_with_its_line_for_every_key() {
    assert_eq!(faults(&good_without("none")), [""; 0]);
    let keys = keys::all();
    assert!(keys.0.len() >= 19, "{:?}", keys.0);
    for key in &keys.0 {
        let wrong: &[&str] = match key.kind {
            Kind::Switch => &["1", "\"true\"", "[true]", "{ a = 1 }", "2026-01-01"],
            Kind::Count => &["-1", "10", "\"1\"", "[1]", "1.5"],
            Kind::Tables => &["1", "true", "[\"a\"]", "{ a = 1 }"],
            Kind::Text => &["1", "true", "[\"a\"]", "{ a = 1 }", "2026-01-01"],
            Kind::Amount => &["true", "[\"a\"]", "{ a = 1 }", "2026-01-01", "nan", "inf"],
            Kind::List => &["1", "true", "[1]", "[[\"a\"]]", "[{ a = 1 }]", "{ a = 1 }", "2026-01-01"],
        };
        for value in wrong {
            check_wrong(&key.name, value);
        }
    }
}

#[test]
fn a_wrong_value_is_named_with_its_line_for_every_key() {
    for key in keys::all().0.iter().filter(|key| !matches!(key.kind, Kind::Switch | Kind::Count)) {
        if ANY_TEXT.contains(&key.name.as_str()) {
            check_wrong(&key.name, "\"\"");
        } else {
            check_wrong(&key.name, &format!("\"{NONSENSE}\""));
        }
    }
    check_wrong("ring", "-1");
    check_wrong("ring", "\"1KiB\"");
    check_wrong("before", "-5");
    check_wrong("before", "40000000");
    check_wrong("dumps-max", "0");
    check_wrong("dumps-max", "4097");
    check_wrong("exit-after", "1.5");
    check_wrong("source", "[\"synth:\", \"afpacket:eth0,workers=0x\"]");
}

#[test]
fn a_nul_character_is_refused_with_its_line_wherever_a_text_may_stand() {
    for key in keys::all().0.iter().filter(|key| !matches!(key.kind, Kind::Switch | Kind::Count)) {
        let name = &key.name;
        for value in ["\"a\\u0000b\"", "\"\\u0000\""] {
            let said = faults(&format!("{}{name} = {value}\n", good_without(name)));
            assert_eq!(
                said.iter()
                    .filter(|fault| fault.contains(&format!("{name}: ")) && fault.contains("NUL"))
                    .count(),
                1,
                "{said:#?}"
            );
            check_wrong(name, value);
        }
    }
    let text = "source = [\"synth:\",\n\"file:a\\u0000b\"]\nout = \"x\"\n[[trigger]]\nname = \"a\"\nexpr = \
        \"udp\\u0000\"\n[[trigger]]\nexpr = \"tcp\"\ndump = \"\\u0000\"\n";
    let said = faults(text);
    let places = ["t.toml:2: source: ", "t.toml:6: trigger.expr: ", "t.toml:9: trigger.dump: "];
    assert_eq!(said.len(), places.len(), "{said:#?}");
    for (fault, place) in said.iter().zip(places) {
        assert!(fault.starts_with(place) && fault.contains("remove it"), "{fault}");
    }
}

#[test]
fn odd_values_are_refused_with_their_line() {
    for value in ["5", "1e300", "-0.0"] {
        check_wrong("exec", value);
    }
    for value in
        ["0", "-5", "1e300", "1.5", "4294967295", "\"0\"", "\"1234:0\"", "\"1234:\"", "\"a\\nb\"", "\"a:b\""]
    {
        check_wrong("user", value);
    }
    assert_eq!(faults(&format!("{}user = 1234\n", good_without("none"))), [""; 0]);
    for value in ["\"/\"", "\"..\"", "\"folder/\""] {
        check_wrong("write", value);
        check_wrong("ring-out", value);
    }
}

#[test]
fn words_of_a_trigger_are_checked_at_their_own_lines() {
    let text = "source = \"synth:\"\nout = \"x\"\n[[trigger]]\nname = \"a\"\nexpr = \"udp\"\nbefore = \"soon\"\nholdoff-key = \"$nix\"\n\
                [[trigger]]\nname = \"b c\"\nexpr = \"udp prt 5\"\n[[trigger]]\nnam = \"d\"\n[[trigger]]\nname = \"e\"\n";
    let expected = [
        "t.toml:12: trigger.nam: there is no such key; did you mean 'name'?",
        "t.toml:11: trigger: there is no 'expr'",
        "t.toml:13: trigger: there is no 'expr'",
        "t.toml:6: trigger 'a': before: 'soon'",
        "t.toml:7: trigger 'a': holdoff-key: ",
        "t.toml:8: trigger 'b c': that is not a valid name",
        "t.toml:10: trigger 'b c': expr: filter: ",
    ];
    let said = faults(text);
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for start in expected {
        assert!(said.iter().any(|fault| fault.starts_with(start)), "no '{start}' in {said:#?}");
    }
}

#[test]
fn a_faulty_filter_hides_no_other_fault_of_its_trigger() {
    let text = "source = \"synth:\"\nout = \"x\"\n[[trigger]]\nname = \"a\"\nbefore = \"soon\"\ndump = \"hots $srcIP\"\n\
                expr = \"udp prt 5\"\nholdoff-key = \"$nix\"\n";
    let said = faults(text);
    let starts = [
        "t.toml:5: trigger 'a': before: ",
        "t.toml:6: trigger 'a': dump: filter: ",
        "t.toml:7: trigger 'a': expr: filter: ",
        "t.toml:8: trigger 'a': holdoff-key: ",
    ];
    assert_eq!(said.len(), starts.len(), "{said:#?}");
    for (said, start) in said.iter().zip(starts) {
        assert!(said.starts_with(start), "'{start}' is not {said}");
    }
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one_and_all_faults_come_at_once() {
    let said = faults("rng = 5\nhold_off = 3\nxyzzy = 1\nmlock = 5\n[sorce]\nspec = 1\n");
    let expected = [
        "t.toml:1: rng: ",
        "t.toml:2: hold_off: ",
        "t.toml:3: xyzzy: ",
        "t.toml:4: mlock: is 5",
        "t.toml:5: sorce: ",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (fault, word) in said.iter().zip(expected) {
        assert!(fault.starts_with(word), "'{fault}' is not '{word}'");
    }
    for (at, nearest) in [(0, "'ring'"), (1, "'holdoff'"), (4, "'source'")] {
        assert!(said[at].contains(nearest), "{}", said[at]);
    }
}

#[test]
fn a_general_key_behind_a_list_of_tables_is_sent_above_it() {
    let text =
        "source = \"synth:\"\nout = \"x\"\n[[trigger]]\nexpr = \"udp\"\nring = \"64MiB\"\nnam = \"a\"\n";
    let said = faults(text);
    assert_eq!(
        said,
        [
            "t.toml:5: trigger.ring: there is no such key; 'ring' is a key of the whole file: write it above \
             the first [[trigger]]",
            "t.toml:6: trigger.nam: there is no such key; did you mean 'name'?",
        ]
    );
    let said = faults(&format!("[[source]]\nspec = \"synth:\"\n{text}").replace("source = \"synth:\"\n", ""));
    assert!(said.iter().any(|fault| fault.contains("above the first [[source]]")), "{said:#?}");
}

#[test]
fn bad_toml_is_refused_with_its_line() {
    for (text, line) in [("a = \n", 1), ("ring = 1\nring = 2\n", 2), ("\n\n[[trigger\n", 3), ("x = \"a\n", 1)]
    {
        let said = faults(text);
        assert!(
            said.len() == 1 && said[0].starts_with(&format!("t.toml:{line}: no TOML: ")),
            "{text:?}: {said:?}"
        );
    }
}

/// The settings of a text in the file "t.toml", and the flags over it.
fn with_flags(text: &str, flags: &[&str]) -> RunArgs {
    let line = [&["wirescope", "run"], flags].concat();
    let matches = Cli::command().get_matches_from(line);
    let (matches, keys) = (matches.subcommand_matches("run").unwrap(), keys::all());
    let written = Written::parse(Path::new("t.toml"), text, &keys).unwrap();
    meant(Settings::merge(&keys, Some(written), &keys::given(matches, &keys))).unwrap()
}

#[test]
fn a_switch_of_the_file_is_undone_by_a_flag_and_shown_so() {
    for key in keys::all().0.iter().filter(|key| matches!(key.kind, Kind::Switch | Kind::Count)) {
        let (text, flag) = (format!("{} = true\n", key.name), format!("--{}=false", key.name));
        let (off, on) = (with_flags(&text, &[&flag]).settings, with_flags(&text, &[]).settings);
        let said = |settings: &Settings, text: &str| settings.to_toml().lines().any(|line| line == text);
        let (no, yes) = if key.kind == Kind::Switch { ("false", "true") } else { ("0", "1") };
        assert!(said(&off, &format!("{} = {no} # flag", key.name)), "{}", off.to_toml());
        assert!(said(&on, &format!("{} = {yes} # t.toml:1", key.name)), "{}", on.to_toml());
        assert_eq!(settings(&off.to_toml()).unwrap().settings.value_text(&key.name), no);
        assert!(off.flags().iter().any(|(name, _)| *name == key.name), "a reload must keep it");
    }
    assert!(!with_flags("single = true\nmlock = true\n", &["--single=false"]).single);
}

#[test]
fn flags_stand_above_what_a_trigger_of_the_file_says_of_itself() {
    let text = "source = \"synth:\"\nout = \"x\"\n[[trigger]]\nexpr = \"udp\"\nbefore = \"100ms\"\nafter = \"100ms\"\n\
                holdoff = \"2s\"\nsingle = true\ndump = \"\"\n[[trigger]]\nname = \"b\"\nexpr = \"tcp\"\nbefore = \"3s\"\n";
    let told = |flags: &[&str]| -> Vec<_> {
        let triggers = plan::plan(&with_flags(text, flags), Look::Nowhere).unwrap().run.live.triggers;
        let told = |t: &scope_trigger::TriggerConfig| {
            let dump = t.response.template.as_ref().map(|template| template.text().to_string());
            (
                t.response.before_ns / 1_000_000,
                t.response.after_ns / 1_000_000,
                t.holdoff_ns / 1_000_000,
                t.single,
                dump,
            )
        };
        triggers.iter().map(told).collect()
    };
    let some = |text: &str| Some(text.to_string());
    assert_eq!(told(&[]), [(100, 100, 2000, true, some("")), (3000, 10_000, 1000, false, None)]);
    let flags = ["--before", "1s", "--after", "1s", "--dump", "ip", "--holdoff", "5s", "--single=false"];
    assert_eq!(told(&flags), [(1000, 1000, 5000, false, some("ip")), (1000, 1000, 5000, false, some("ip"))]);
    assert!(told(&["--single"])[1].3);
    assert_eq!(
        told(&["--dump", "ip", "--dump", "arp"]).into_iter().map(|told| told.4).collect::<Vec<_>>(),
        [some("ip"), some("arp")]
    );
    let shown = with_flags(text, &flags).settings.to_toml();
    for line in
        ["before = \"1s\" # flag", "    { expr = \"tcp\", name = \"b\" }, # t.toml:10; by flag: before"]
    {
        assert!(shown.lines().any(|shown| shown == line), "no '{line}' in {shown}");
    }
    assert!(shown.contains("# t.toml:3; by flag: after, before, dump, holdoff, single"), "{shown}");
}

#[test]
fn a_script_stands_in_the_place_of_a_filter_or_a_template_and_not_beside_it() {
    let head = "source = \"synth:\"\nout = \"x\"\n";
    let table = |words: &str| format!("{head}[[trigger]]\nname = \"a\"\n{words}");
    let told = |args: &RunArgs| -> Vec<_> {
        let triggers = plan::plan(args, Look::Nowhere).unwrap().run.live.triggers;
        let told = |t: &scope_trigger::TriggerConfig| {
            let dump = t.response.template.as_ref().map(|template| template.text().to_string());
            let script = t.response.script.as_ref().map(|script| script.file().to_string());
            (t.condition.kind(), t.condition.text().map(str::to_string), dump, script)
        };
        triggers.iter().map(told).collect()
    };
    let some = |text: &str| Some(text.to_string());
    let text = table("script = \"a.lua\"\ndump-script = \"k.lua\"\n");
    let args = with_flags(&text, &[]);
    assert_eq!(told(&args), [("script", some("a.lua"), None, some("k.lua"))]);
    // What is shown means the same.
    assert_eq!(told(&settings(&args.settings.to_toml()).unwrap()), told(&args));
    // Flags stand above both words, whichever of the two they are.
    assert_eq!(told(&with_flags(&text, &["--dump", "ip"]))[0].2, some("ip"));
    let args = with_flags(&table("expr = \"udp\"\ndump = \"ip\"\n"), &["--dump-script", "k.lua"]);
    assert_eq!(told(&args), [("filter", some("udp"), None, some("k.lua"))]);
    let flags = ["--trigger", "udp", "--trigger-script", "b=b.lua", "--dump-script", "k.lua", "--dump", "ip"];
    let args = with_flags(head, &flags);
    let expected =
        [("filter", some("udp"), None, some("k.lua")), ("script", some("b.lua"), some("ip"), None)];
    assert_eq!(told(&args), expected);
    assert_eq!(told(&settings(&args.settings.to_toml()).unwrap()), expected);
    let both = faults(&table("expr = \"udp\"\nscript = \"a.lua\"\ndump = \"\"\ndump-script = \"k.lua\"\n"));
    assert_eq!(both.len(), 2, "{both:#?}");
    assert!(both[0].contains("there are both 'expr' and 'script' in it; omit one of them"), "{both:#?}");
    assert!(faults(&table("script = \"\"\n"))[0].contains("trigger 'a': script: "), "an empty name is none");
}

#[test]
fn faults_of_triggers_of_one_name_are_told_where_they_stand() {
    let text = "source = \"synth:\"\nout = \"x\"\n[[trigger]]\nname = \"x\"\nexpr = \"udp\"\n[[trigger]]\nname = \"q\"\nexpr = \"udp\"\n\
                [[trigger]]\nname = \"x\"\nexpr = \"tcp\"\nbefore = \"z\"\n";
    let said = faults(text);
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said[0].starts_with("t.toml:10: trigger: name: 'x' is given twice"), "{said:#?}");
    assert!(
        said[1].starts_with("t.toml:12: trigger 'x': before: 'z'")
            && said[1].contains("e.g. before = \"30s\" or"),
        "{said:#?}"
    );
}

#[test]
fn a_trigger_without_a_filter_is_looked_at_with_all_its_words() {
    let text = "source = \"synth:\"\nout = \"x\"\ndump = \"ip\"\n[[trigger]]\nnam = \"x\"\nbefore = \"z\"\n";
    let said = faults(text);
    let starts = [
        "t.toml:4: trigger: there is no 'expr'",
        "t.toml:5: trigger.nam: ",
        "t.toml:6: trigger 'trigger1': before: 'z'",
    ];
    assert_eq!(said.len(), starts.len(), "{said:#?}");
    for (said, start) in said.iter().zip(starts) {
        assert!(said.starts_with(start), "'{start}' is not {said}");
    }
}

#[test]
fn combinations_of_keys_are_told_with_file_and_lines_in_the_words_of_the_file() {
    let check = |text: &str, expected: &[&str]| {
        let said = faults(&format!("source = \"synth:\"\nout = \"d\"\n{text}"));
        assert_eq!(said.len(), expected.len(), "{said:#?}");
        for (said, start) in said.iter().zip(expected) {
            assert!(said.starts_with(start), "'{start}' is not {said}");
        }
    };
    check(
        "write = \"-\"\nsummary = \"json\"\n",
        &["t.toml:3: write: the dump and summary (t.toml:4) can't both use standard output; write write = \
             \"FILE\", or omit summary"],
    );
    check(
        "write = \"a\"\nexit-after = 2\n",
        &["t.toml:4: exit-after: write (t.toml:3) writes a single dump; write exit-after = \"1\""],
    );
    check(
        "dump-rotate = true\n",
        &["t.toml:3: dump-rotate: there is no bound at which old dumps would be deleted; add dump-budget"],
    );
    check("trigger = \"udp\"\ndump = [\"\", \"\"]\n", &["t.toml:4: dump: 2 templates for 1 trigger"]);
    check("snap-len = -1\n", &["t.toml:3: snap-len: '-1' is negative; write e.g. snap-len = \"128\""]);
    check("exec = \" \"\n", &["t.toml:3: exec: there is no command in it; write e.g. exec = 'gzip"]);
    check("before = \"--ring\"\n", &["t.toml:3: before: '--ring'"]);
    let said = faults("source = \"synth:\"\nout = \"d\"\nring = \"1KiB\"\n");
    assert!(
        said[0].starts_with("t.toml:3: ring: ") && said[0].contains("enlarge ring or choose"),
        "{said:#?}"
    );
    let args = with_flags("source = \"synth:\"\nsummary = \"json\"\n", &["-w", "-"]);
    let said = plan::plan(&args, Look::Nowhere).unwrap_err();
    assert!(said[0].to_string().starts_with("-w: the dump and --summary (t.toml:2) can't both"), "{said:#?}");
}

#[test]
fn an_empty_template_is_proposed_as_it_is_written_where_the_trigger_stands() {
    const USB: LinkType = LinkType(189);
    let said = |args: &RunArgs| plan::plan(args, Look::Known(&[USB])).unwrap_err()[0].to_string();
    let text = "source = \"synth:\"\nout = \"d\"\n";
    let of_file = said(&settings(&format!("{text}trigger = \"udp\"\n")).unwrap());
    assert!(
        of_file.contains("\ndump = '' keeps all of a window") && !of_file.contains("--dump"),
        "{of_file}"
    );
    let of_flags = said(&with_flags(text, &["--trigger", "udp"]));
    assert!(of_flags.contains("\n--dump '' keeps all of a window"), "{of_flags}");
}

#[test]
fn other_spellings_of_a_value_and_added_defaults_are_no_change() {
    let check = |old: &str, new: &str, expected: &[&str]| {
        let (old, new) = (settings(old).unwrap().settings, settings(new).unwrap().settings);
        let meant_as = keys::meanings();
        let found: Vec<&str> = new.changed(&old, &meant_as).collect();
        assert_eq!(found, expected, "{}", new.to_toml());
    };
    check(
        "ring = \"64MiB\"\nsource = \"synth:rate=5k\"",
        "ring = \"65536KiB\"\nsource = [\"synth:rate=5000\"]",
        &[],
    );
    check("", "before = \"0.5m\"\nsingle = false\nverbose = 0\nafter = 1e1", &[]);
    check("", "before = \"0.6m\"\nsingle = true", &["before", "single"]);
    check("trigger = \"udp\"", "[[trigger]]\nexpr = \"udp\"\nbefore = \"0.5m\"\nsingle = false", &[]);
    check(
        "[[trigger]]\nexpr = \"udp\"\nbefore = 30",
        "before = 9\n[[trigger]]\nexpr = \"udp\"\nbefore = \"30s\"",
        &["before"],
    );
    check("dump-min-free = \"10%\"", "dump-min-free = \"10.0 %\"", &[]);
}

#[test]
fn what_a_reload_may_change_is_what_the_live_part_of_a_plan_is_made_of() {
    let base = "source = \"afpacket:eth0\"\nout = \"x\"\n";
    let live = |text: &str| {
        let args = settings(&format!("{base}{text}\n")).unwrap_or_else(|faults| panic!("{faults:?}"));
        plan::plan(&args, Look::Known(&[LinkType::ETHERNET]))
            .unwrap_or_else(|faults| panic!("{faults:?}"))
            .run
            .live
    };
    let is_same = |one: &str, other: &str| {
        let Live {
            triggers,
            before_ns,
            dumps_max,
            exit_after,
            store_bounds,
            attach_ring,
            groups,
            source_rules,
        } = live(one);
        let other = live(other);
        let triggers_are = triggers.len() == other.triggers.len();
        let triggers_are =
            triggers_are && triggers.iter().zip(&other.triggers).all(|(one, other)| one.same_as(other));
        triggers_are
            && (before_ns, dumps_max, exit_after) == (other.before_ns, other.dumps_max, other.exit_after)
            && store_bounds == other.store_bounds
            && attach_ring == other.attach_ring
            && groups.len() == other.groups.len()
            && source_rules.len() == other.source_rules.len()
    };
    let trigger = "trigger = \"udp\"\nstore = \"s\"\n";
    let of_live = [
        ("trigger", "\"tcp\""),
        ("when", "\"new\""),
        ("dump", "\"ip\""),
        (
            "dump-script",
            concat!("\"", env!("CARGO_MANIFEST_DIR"), "/../scope-script/examples-lua/host-dump.lua\""),
        ),
        ("before", "9"),
        ("after", "9"),
        ("holdoff", "9"),
        ("holdoff-key", "'$srcIP'"),
        ("single", "true"),
        ("auto", "\"1h\""),
        ("exit-after", "3"),
        ("dumps-max", "3"),
        ("store-budget", "\"50GiB\""),
        ("store-age", "\"7d\""),
        ("store-min-free", "\"20%\""),
        ("attach-ring", "\"root\"\nattach = \"/tmp/a\""),
        ("group", "\"dns\"\nattach = \"/tmp/a\""),
        (
            "set",
            concat!(
                "\"p,kind=hosts,file=",
                env!("CARGO_MANIFEST_DIR"),
                "/tests/hosts.txt\"\nattach = \"/tmp/a\"\n[[group]]\nname = \"g\"\n",
                "[[group.rule]]\nname = \"r\"\nhost-in = \"p\"\ndo = [\"drop\"]"
            ),
        ),
    ];
    assert_eq!(of_live.map(|(key, _)| key), Live::KEYS);
    for (key, value) in of_live {
        assert!(keys::all().get(key).is_some(), "{key}");
        let with = if key == "trigger" {
            format!("{key} = {value}\nstore = \"s\"")
        } else {
            format!("{trigger}{key} = {value}")
        };
        assert!(!is_same(trigger, &with), "{key} changes nothing that a reload takes");
    }
    let of_fixed = [
        ("ring", "\"64MiB\""),
        ("segment", "\"1MiB\""),
        ("mlock", "true"),
        ("numa", "0"),
        ("snap-len", "64"),
        ("prefilter", "\"udp\""),
        ("script-threads", "2"),
        ("script-memory", "\"64MiB\""),
        ("script-timeout", "\"2s\""),
        ("exclude-self", "true"),
        ("filter-engine", "\"interpreter\""),
        ("db-interval", "\"1s\"\ndb = \"d/\""),
        ("db-every", "\"hour\"\ndb = \"d/\""),
        ("db-keep", "3\ndb = \"d/\""),
        ("db-budget", "\"1GiB\"\ndb = \"d/\""),
        ("db-min-free", "\"5%\"\ndb = \"d/\""),
        ("no-flow-rows", "true\ndb = \"d/\""),
        ("traffic-rows", "100\ndb = \"d/\""),
        ("local", "\"any\"\ndb = \"d/\""),
        ("flows-max", "1000\ndb = \"d/\""),
        ("flow-idle", "\"5s\"\ndb = \"d/\""),
        ("flow-active", "\"1min\"\ndb = \"d/\""),
        ("ipfix", "\"192.0.2.1:4739\""),
        ("exec", "\"true\""),
        ("exec-max", "2"),
        ("exec-timeout", "5"),
        ("dump-format", "\"pcap\""),
        ("dump-budget", "\"1GiB\""),
        ("ring-out", "\"r.pcapng\""),
        ("store-file", "\"64MiB\""),
        ("store-filter", "\"udp\""),
        ("store-snap", "\"96\""),
        ("store-flush", "\"5s\""),
        ("store-behind", "\"10%\""),
        ("store-chain", "true"),
        ("status-every", "3"),
        ("user", "\"nobody\""),
        ("control", "\"off\""),
        ("control-group", "\"root\""),
        ("control-role", "\"viewer\""),
        ("control-rate", "7"),
        ("hook-label", "[\"srcIP=instance\"]"),
        ("hook-trigger", "\"wirescope\""),
        ("serve-user", "\"root\""),
        ("serve-role", "\"admin\""),
        ("attach", "\"/tmp/a\""),
        ("attach-threads", "2"),
        ("attach-cpus", "\"0\""),
        ("quiet", "true"),
        ("log-format", "\"json\""),
    ];
    for (key, value) in of_fixed {
        assert!(
            is_same(trigger, &format!("{trigger}{key} = {value}")),
            "{key} changes what a reload takes, and isn't named"
        );
    }
    let group = format!("{trigger}group = \"g\"\nattach = \"/tmp/a\"\n");
    assert!(is_same(&group, &format!("{group}forward = \"g=eth1\"\n")));
}

#[test]
fn a_number_of_hundreds_of_digits_is_told_with_its_power_of_ten() {
    let said = faults("source = \"synth:\"\nout = \"d\"\nbefore = 1e300\n");
    assert!(
        said[0].starts_with("t.toml:3: before: ") && said[0].contains("'1e300'") && said[0].len() < 200,
        "{said:#?}"
    );
}

#[test]
fn all_lines_that_are_no_toml_are_told_in_their_order() {
    let check = |text: &str, lines: &[usize]| {
        let said = faults(text);
        let places: Vec<String> = lines.iter().map(|line| format!("t.toml:{line}: no TOML: ")).collect();
        assert_eq!(said.len(), places.len(), "{said:#?}");
        for (said, place) in said.iter().zip(&places) {
            assert!(said.starts_with(place.as_str()), "'{place}' is not {said}");
        }
    };
    check("ring = \"1GiB\nout =\n[[trigger\n", &[1, 2, 3]);
    check("ring = \"1\\q\"\nring = 1z\nring = 5\nout\n", &[1, 2, 4]);
    check("ring = 1\nring = 2\n", &[2]);
}

#[test]
fn a_trigger_s_own_words_stand_above_the_general_ones() {
    let text = "source = \"synth:\"\nout = \"x\"\nbefore = 5\nsingle = true\ndump = \"ip\"\n\
                trigger = [\"a=udp\", { expr = \"tcp\", before = \"7s\", single = false, dump = \"\" }]\n";
    let triggers = plan::plan(&settings(text).unwrap(), Look::Nowhere).unwrap().run.live.triggers;
    let told: Vec<_> = triggers
        .iter()
        .map(|t| {
            (
                t.name.as_str(),
                t.response.before_ns / 1_000_000_000,
                t.response.after_ns / 1_000_000_000,
                t.single,
                t.response.template.as_ref().unwrap().text(),
            )
        })
        .collect();
    assert_eq!(told, [("a", 5, 10, true, "ip"), ("trigger2", 7, 10, false, "")]);
}

/// The example with every key in force.
fn whole_example() -> String {
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase()) && rest.contains(" = ") => {
            rest.to_string()
        }
        _ => line.to_string(),
    };
    text.lines().map(|line| uncommented(line) + "\n").collect()
}

#[test]
fn the_example_is_in_order_as_it_stands_and_with_every_key_in_force() {
    let args = laid_over(written(Some(Path::new(EXAMPLE)), &keys::all()), &Given::new()).unwrap();
    let planned = plan::plan(&args, Look::Nowhere).unwrap();
    assert_eq!(planned.run.live.triggers.len(), 2);
    // A single dump has no folder to bound.
    assert_eq!(faults(&whole_example().replace("\nwrite = ", "\n#write = ")), [""; 0]);
}

#[test]
fn the_example_has_every_key_and_its_default() {
    let keys = keys::all();
    let written = Written::parse(Path::new(EXAMPLE), &whole_example(), &keys).unwrap();
    let unset = settings("").unwrap().settings;
    for key in &keys.0 {
        let found = written.values.iter().find(|(name, _)| *name == key.name);
        let (_, values) = found.unwrap_or_else(|| panic!("docs/wirescope.toml lacks '{}'", key.name));
        if let Some(default) = &key.default {
            assert_eq!(values[0].text.to_str(), Some(default.as_str()), "{}", key.name);
        }
        if matches!(key.kind, Kind::Switch | Kind::Count) {
            assert!(["false", "0"].map(Some).contains(&values[0].text.to_str()), "{} is off", key.name);
        }
        assert_eq!(unset.values(&key.name).len(), usize::from(key.default.is_some()), "{}", key.name);
    }
}

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A time as people write it: a string or a number.
fn time() -> impl Strategy<Value = String> {
    prop_oneof![
        (0u32..100_000).prop_map(|seconds| seconds.to_string()),
        (0u32..100_000).prop_map(|ms| format!("\"{ms}ms\"")),
        (0u32..1000).prop_map(|n| format!("{}.5", n)),
    ]
}

fn filter() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["udp", "tcp port 80", "tcp[tcpflags] & tcp-rst != 0", "len > 5", "", "vlan"])
        .prop_map(str::to_string)
}

fn template() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "$flow", "host {srcIP}", "ip and\n\thost $dstIP"]).prop_map(quoted)
}

/// One element of `trigger`, with the number that makes its name the only one.
fn trigger(number: usize) -> impl Strategy<Value = String> {
    let own = prop::collection::btree_map(0usize..6, time(), 0..6);
    (filter(), own, template(), any::<bool>(), any::<bool>()).prop_map(
        move |(expr, own, template, table, single)| {
            if !table {
                return quoted(&format!("t{number}={expr}"));
            }
            let words = own.into_iter().map(|(which, time)| match which {
                0 => format!(", before = {time}"),
                1 => format!(", after = {time}"),
                2 => format!(", holdoff = {time}"),
                3 => format!(", dump = {template}"),
                4 => format!(", single = {single}"),
                _ => ", holdoff-key = '$srcIP'".to_string(),
            });
            format!("{{ expr = {}, name = \"t{number}\"{} }}", quoted(&expr), words.collect::<String>())
        },
    )
}

/// A configuration that is in order.
fn configuration() -> impl Strategy<Value = String> {
    let triggers = prop::collection::vec(any::<u8>(), 1..4).prop_flat_map(|all| {
        all.iter().enumerate().map(|(number, _)| trigger(number).boxed()).collect::<Vec<_>>()
    });
    let path = "[^\\x00]{1,20}".prop_filter("a path with a name", |path| {
        // `-` is standard output, into which no ring can be written.
        Path::new(path).file_name().is_some() && !path.ends_with('/') && path != "-"
    });
    let source = prop_oneof![
        Just("\"synth:rate=10\"".to_string()),
        Just("[\"afpacket:eth0\", { spec = \"afpacket:eth1,workers=2\" }]".to_string()),
        Just("[{ spec = 'file:a\\,b.pcap' }]".to_string()),
    ];
    let more = (
        time(),
        1u32..1000,
        any::<bool>(),
        0u8..4,
        prop::option::of(template()),
        prop::option::of(16u32..64),
    );
    (triggers, path, source, more).prop_map(
        |(triggers, path, source, (before, dumps_max, switch, verbose, dump, mib))| {
            let mut text =
                format!("source = {source}\nout = {}\nring-out = {}\n", quoted(&path), quoted(&path));
            text += &format!(
                "before = {before}\ndumps-max = {dumps_max}\nsingle = {switch}\nverbose = {verbose}\n"
            );
            text += &dump.map_or(String::new(), |dump| format!("dump = [{dump}]\n"));
            text += &mib.map_or(String::new(), |mib| format!("ring = \"{mib}MiB\"\n"));
            text + &format!("trigger = [{}]\n", triggers.join(", "))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_is_in_order_and_means_the_same(text in configuration()) {
        let given = settings(&text).map_err(|faults| TestCaseError::fail(format!("{faults:?}\n{text}")))?;
        prop_assert_eq!(faults(&text), [""; 0], "{}", text);
        let shown = given.settings.to_toml();
        let again = settings(&shown).map_err(|faults| TestCaseError::fail(format!("{faults:?}\n{shown}")))?;
        prop_assert_eq!(faults(&shown), [""; 0], "{}", shown);
        let meant_as = keys::meanings();
        let changed: Vec<&str> = again.settings.changed(&given.settings, &meant_as).collect();
        prop_assert!(changed.is_empty(), "{:?} changed by\n{}", changed, shown);
        let without_origins = |text: &str| text.lines().map(|line| line.rsplit_once(" # ").map_or(line, |(head, _)| head).to_string()).collect::<Vec<_>>();
        prop_assert_eq!(without_origins(&again.settings.to_toml()), without_origins(&shown));
        let meant = |args: &RunArgs| {
            let run = plan::plan(args, Look::Nowhere).expect("checked above").run;
            let triggers: Vec<String> = run.live.triggers.iter().map(|trigger| format!("{trigger:?}")).collect();
            (run.fixed.folder, run.fixed.ring_out, run.live.before_ns, run.live.dumps_max, run.fixed.ring.ring_bytes, triggers.len())
        };
        prop_assert_eq!(meant(&given), meant(&again));
        let (one, other) = (plan::plan(&given, Look::Nowhere), plan::plan(&again, Look::Nowhere));
        for (one, other) in one.expect("checked").run.live.triggers.iter().zip(&other.expect("checked").run.live.triggers) {
            prop_assert!(one.same_as(other), "{:?} is not {:?}", one, other);
        }
    }
}
