//! `wirescope devices`: what there is to capture, told without privileges.

mod live_lab;
mod run;

use live_lab::inside;
use run::{Place, finish, wirescope};
use scope_testkit::lab::Lab;
use serde_json::Value;

fn devices(json: &str) -> Vec<Value> {
    let whole: Value = serde_json::from_str(json).expect("one JSON object");
    whole["devices"].as_array().expect("an array").clone()
}

fn named<'a>(devices: &'a [Value], name: &str) -> &'a Value {
    devices.iter().find(|device| device["name"] == name).unwrap_or_else(|| panic!("no {name}: {devices:?}"))
}

#[test]
fn every_interface_is_listed_with_what_is_typed_to_capture_it() {
    let done = finish(wirescope(&["devices"]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    for entry in std::fs::read_dir("/sys/class/net")
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("ifindex").exists())
    {
        let spec = format!("-i {}\n", entry.file_name().to_string_lossy());
        assert!(done.stdout.contains(&spec), "{spec}{}", done.stdout);
    }
    let json = finish(wirescope(&["devices", "--json"]));
    let devices = devices(&json.stdout);
    let loopback = named(&devices, "lo");
    assert_eq!((&loopback["spec"], &loopback["link_type"]), (&"afpacket:lo".into(), &"ETHERNET".into()));
    assert!(loopback["rings"].is_null() && loopback["driver"].is_null(), "unknown, not guessed: {loopback}");
    assert_eq!(loopback["timestamping"]["software"], true);
}

#[test]
fn an_interface_that_is_down_or_has_no_peer_says_what_is_missing() {
    let Some(lab) = Lab::or_skip() else { return };
    let look = || devices(&finish(inside(lab.b(), &wirescope(&["devices", "--json"]))).stdout);
    let up = look();
    let vb = named(&up, "vb");
    assert_eq!((vb["state"].as_str(), vb["driver"]["name"].as_str()), (Some("up"), Some("veth")), "{vb}");
    assert_eq!(vb["missing"].as_array().map(Vec::len), Some(0), "{vb}");
    assert_eq!(vb["can_capture"], true);
    lab.a().ip(&["link", "set", "va", "down"]).unwrap();
    let alone = look();
    assert_eq!(named(&alone, "vb")["state"], "no link");
    assert!(named(&alone, "vb")["missing"].to_string().contains("other end"), "{alone:?}");
    lab.b().ip(&["link", "set", "vb", "down"]).unwrap();
    let down = look();
    assert_eq!(named(&down, "vb")["state"], "down");
    assert!(named(&down, "vb")["missing"].to_string().contains("ip link set dev vb up"), "{down:?}");
    let text = finish(inside(lab.b(), &wirescope(&["devices"]))).stdout;
    assert!(text.contains(&format!("ip netns exec {} wirescope devices", lab.a().name())), "{text}");
    assert!(
        !text.contains(&format!("ip netns exec {} ", lab.b().name())),
        "it is inside of that one: {text}"
    );
}

#[test]
fn a_name_that_nobody_would_type_reaches_neither_the_terminal_nor_a_command_line_as_it_is() {
    let Some(lab) = Lab::or_skip() else { return };
    let name = "e\u{1b}[2J;$(x)";
    lab.b().ip(&["link", "add", "name", name, "type", "veth", "peer", "name", "ot\u{202e}er"]).unwrap();
    let done = finish(inside(lab.b(), &wirescope(&["devices"])));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let odd = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
    assert!(!done.stdout.contains(odd), "{:?}", done.stdout);
    for words in
        ["e\\u{1b}[2J;$(x) ", r"-i $'e\x1b[2J;$(x)'", r"ip link set dev $'e\x1b[2J;$(x)' up", r"ot\u{202e}er"]
    {
        assert!(done.stdout.contains(words), "{words}\n{}", done.stdout);
    }
    let json = finish(inside(lab.b(), &wirescope(&["devices", "--json"])));
    assert!(!json.stdout.contains(odd), "{:?}", json.stdout);
    assert_eq!(named(&devices(&json.stdout), name)["name"], name);
}

#[test]
fn without_rights_everything_is_told_and_the_right_that_is_missing_named() {
    if !run::is_root() {
        return;
    }
    // The binary may lie where others can't reach it.
    let place = Place::new();
    place.open_to_all();
    let program = place.path("wirescope");
    std::fs::copy(wirescope::<&str>(&[]).get_program(), &program).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", "--inh-caps", "-all", "--bounding-set", "-all"]);
    command.arg(program).args(["devices", "--json"]);
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let devices = devices(&done.stdout);
    let loopback = named(&devices, "lo");
    assert_eq!(loopback["can_capture"], false);
    assert!(loopback["missing"].to_string().contains("CAP_NET_RAW"), "{loopback}");
    assert!(loopback["features"].is_object(), "told without privileges: {loopback}");
}
