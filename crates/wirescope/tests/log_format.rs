//! What standard error is written in: one JSON object a line for programs, text for people; no control
//! character as it is.

mod run;

use run::{Place, finish, wirescope};
use serde_json::Value;

const TRIGGER: [&str; 6] = ["--trigger", "hit=udp port 60000", "--before", "100ms", "--after", "100ms"];

fn lines(stderr: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<Value> = stderr.lines().map(parse).collect();
    for line in &lines {
        let time = line["time"].as_str().unwrap_or_default();
        assert!(time.ends_with('Z') && time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        assert!(["info", "warning", "error"].contains(&line["level"].as_str().unwrap_or_default()), "{line}");
        assert!(line["event"].is_string() && line["text"].is_string(), "{line}");
    }
    lines
}

#[test]
fn with_json_every_line_on_standard_error_is_an_object() {
    let place = Place::with_commands();
    let source = [
        "--source",
        "synth:rate=10k,time=2s,trigger-at=1s",
        "--log-format",
        "json",
        "--exec",
        "echo oh; exit 1",
    ];
    let done = place.run(&[&source[..], &TRIGGER].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let lines = lines(&done.stderr);
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let line = of("dump")[0];
    let dump = &line["dump"];
    assert_eq!(
        (&dump["trigger"], &dump["lost_max"], &line["level"]),
        (&"hit".into(), &0.into(), &"info".into())
    );
    assert_eq!(dump["packets"].as_u64(), Some(done.summary().only_dump().packets));
    let warnings: Vec<_> = of("note").into_iter().filter(|line| line["level"] == "warning").collect();
    assert!(
        warnings.iter().any(|line| line["text"].as_str().unwrap().contains("failed with exit code 1: oh")),
        "{warnings:?}"
    );
    assert!(of("note").iter().any(|line| line["level"] == "info"), "the ring is told");
}

#[test]
fn faults_are_objects_too() {
    let place = Place::new();
    let done = place.run(&["--log-format", "json", "--trigger", "a=udp prot 5", "--before", "soon"]);
    assert_eq!(done.code(), Some(2));
    let lines = lines(&done.stderr);
    assert!(lines.len() >= 3 && lines.iter().all(|line| line["level"] == "error"), "{lines:?}");
    assert!(
        lines.iter().any(|line| line["text"].as_str().unwrap().contains("--before: 'soon'")),
        "{lines:?}"
    );
}

#[test]
fn faults_of_a_file_and_of_the_command_line_itself_are_objects_too() {
    let place = Place::new();
    let check = |text: &str, flags: &[&str], word: &str| {
        let path = place.path("f.toml");
        std::fs::write(&path, text).unwrap();
        let done = place.run(&[&["--config", path.to_str().unwrap()], flags].concat());
        assert_eq!(done.code(), Some(2));
        let lines = lines(&done.stderr);
        assert!(
            lines
                .iter()
                .any(|line| line["level"] == "error" && line["text"].as_str().unwrap().contains(word)),
            "{lines:?}"
        );
    };
    check("ring = true\n", &["--log-format", "json"], "f.toml:1: ring: is true");
    check("ring = [\n", &["--log-format=json"], "f.toml:1: no TOML: ");
    check(
        "log-format = \"json\"\nring = true\n",
        &["--no-such-flag=1", "--other", "--log-format=json"],
        "'--other'",
    );
    check("ring = true\nlog-format = \"json\"\n", &[], "f.toml:1: ring: is true");
    check("before = \"soon\"\nlog-format = \"json\"\n", &[], "f.toml:1: before: 'soon'");
    check("", &["--no-such-flag", "--log-format", "json"], "unexpected argument '--no-such-flag'");
    let done = place.run(&["--no-such-flag"]);
    assert!(done.stderr.starts_with("error: "), "{}", done.stderr);
}

#[test]
fn a_fault_is_an_object_of_key_value_place_cause_and_remedy_beside_its_text() {
    let place = Place::new();
    let path = place.path("f.toml");
    let text = "log-format = \"json\"\nring = \"lots\"\nout = \"x\"\n[[trigger]]\nexpr = \"udp\"\nbefore = \
        \"soon\"\n";
    std::fs::write(&path, text).unwrap();
    let done = finish(wirescope(&["config", "check", path.to_str().unwrap()]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    let lines = lines(&done.stderr);
    assert_eq!(lines.len(), 3, "its own file says in which form it is reported: {lines:?}");
    let file = path.to_str().unwrap();
    let fault = &lines[0]["fault"];
    assert_eq!((&fault["key"], &fault["value"]), (&"ring".into(), &"lots".into()), "{fault}");
    assert_eq!((&fault["at"]["file"], &fault["at"]["line"]), (&file.into(), &2.into()), "{fault}");
    let (cause, remedy) = (fault["cause"].as_str().unwrap(), fault["remedy"].as_str().unwrap());
    assert_eq!(lines[0]["text"], format!("wirescope: {file}:2: ring: {cause}; {remedy}"));
    assert_eq!(
        (&lines[1]["fault"]["key"], &lines[1]["fault"]["at"]["line"]),
        (&"trigger.before".into(), &6.into())
    );
    let missing = &lines[2]["fault"];
    assert_eq!(
        (&missing["key"], &missing["at"]["line"], &missing["value"]),
        (&"source".into(), &Value::Null, &Value::Null)
    );

    let done = place.run(&["--log-format", "json", "--before", "soon"]);
    let line = self::lines(&done.stderr)
        .into_iter()
        .find(|line| line["fault"]["key"] == "before")
        .expect("its fault");
    assert_eq!(
        (&line["fault"]["at"]["flag"], &line["fault"]["value"]),
        (&"--before".into(), &"soon".into()),
        "{line}"
    );
}

#[test]
fn text_holds_no_control_character_of_foreign_data() {
    let place = Place::with_commands();
    let exec = r"printf 'evil\033[2J\ttext'; exit 1";
    let source = ["--source", "synth:rate=10k,time=2s,trigger-at=1s", "--exec", exec];
    let done = place.run(&[&source[..], &TRIGGER].concat());
    let odd = |letter: char| letter.is_control() && letter != '\n';
    assert!(!done.stderr.contains(odd), "{:?}", done.stderr);
    assert!(done.stderr.contains(r"evil\u{1b}[2J\ttext"), "{}", done.stderr);
    let file = place.path("no\u{1b}[2J\nfile");
    let done = place.run(&["-r", file.to_str().unwrap()]);
    assert_eq!(done.code(), Some(2));
    assert!(!done.stderr.contains(odd), "{:?}", done.stderr);
}
