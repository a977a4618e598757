//! What people and files say in words: filters, templates, settings, sources, logs, marks of dumps; and how
//! foreign words are shown.

use scope_config::{Given, Key, Keys, Kind, Settings, Shape, Written};
use scope_filter::{Filter, Template, VlanRule};
use scope_packet::{Headers, LinkType};
use scope_source::spec::SourcePlan;
use scope_spelling::printable;
use scope_trigger::level::{LevelCondition, is_level};
use scope_trigger::signal::{SignalSet, Written as WrittenSignal};
use scope_trigger::{Pattern, is_pattern};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LINKS: [LinkType; 3] = [LinkType::ETHERNET, LinkType::LINUX_SLL, LinkType::RAW];
/// Longer texts cost libpcap more time than they bring.
const TEXT_BYTES_MAX: usize = 300;

/// UDP from 10.0.0.1:1000 to 10.0.0.2:60000.
const IPV4: [u8; 32] = [
    0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 3, 0xe8, 0xea, 0x60, 0, 12, 0, 0,
    b'w', b's', b'c', b'p',
];

/// Packets of a link type, plain and behind a tag.
fn packets(link: LinkType) -> Vec<Vec<u8>> {
    match link {
        LinkType::ETHERNET => {
            [&[8, 0][..], &[0x81, 0, 0, 7, 8, 0]].map(|between| [&[2; 12], between, &IPV4].concat()).to_vec()
        }
        LinkType::LINUX_SLL => {
            let head = [0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
            [&[8, 0][..], &[0x81, 0, 0, 7, 8, 0]].map(|between| [&head[..], between, &IPV4].concat()).to_vec()
        }
        _ => vec![IPV4.to_vec(), Vec::new()],
    }
}

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)
}

/// A filter compiles or is refused, for each link type; where it compiles it answers.
pub fn filter(data: &[u8]) {
    let Some(text) = text(data) else { return };
    for link in LINKS {
        match Filter::compile(text, VlanRule::Transparent, &[link]) {
            Ok(filter) => {
                let predicate = filter.for_link(link);
                let answers = packets(link)
                    .iter()
                    .map(|data| predicate.matches(&Headers::parse(link, data), data, data.len() as u32))
                    .collect::<Vec<_>>();
                // Looking through tags, a packet and the same behind a tag are one, unless the text tests
                // tags or bytes.
                let tests_tags = [
                    "vlan", "[", "mpls", "pppoe", "geneve", "ether", "link", "proto", "len", "less",
                    "greater",
                ]
                .iter()
                .any(|word| text.contains(word));
                assert!(
                    link == LinkType::RAW || tests_tags || answers[0] == answers[1],
                    "{text} on {}: {answers:?}",
                    link.name()
                );
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// A template is split or refused; one that passes its check fills into a filter or says what it lacks.
pub fn template(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(template) = Template::parse(text) else { return };
    assert_eq!(template.text(), text);
    let checked = template.check(VlanRule::Transparent, &LINKS);
    for link in LINKS {
        for data in packets(link) {
            let headers = Headers::parse(link, &data);
            let filled = template.fill_filter(&headers, link, &data, VlanRule::Transparent);
            if let (Ok(()), Ok(filter)) = (&checked, filled) {
                let _answer = filter.for_link(link).matches(&headers, &data, data.len() as u32);
            }
        }
    }
}

fn keys() -> Keys {
    const SHAPE: Shape = Shape {
        main: "expr",
        more: &[("name", Kind::Text), ("before", Kind::Amount), ("single", Kind::Switch)],
        instead: &[("expr", "script")],
    };
    let key = |name: &str, kind, shape| Key { name: name.to_string(), kind, default: None, shape };
    Keys(vec![
        key("ring", Kind::Amount, None),
        key("quiet", Kind::Switch, None),
        key("verbose", Kind::Count, None),
        key("out", Kind::Text, None),
        key("trigger", Kind::List, Some(SHAPE)),
        key("source", Kind::List, None),
    ])
}

/// What a file of settings says is read again from how it is shown.
pub fn toml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = |text: &str| Written::parse(Path::new("in.toml"), text, &keys());
    let merged = |written| Settings::merge(&keys(), Some(written), &Given::new());
    match read(text) {
        Ok(written) => {
            let settings = merged(written);
            let shown = settings.to_toml();
            let again = read(&shown).unwrap_or_else(|error| panic!("{shown}: {:?}", error.faults));
            assert_eq!(merged(again).arguments(None), settings.arguments(None), "{shown}");
        }
        Err(error) => assert!(!error.faults.is_empty()),
    }
}

/// Doctor reads what it can.
pub fn doctor_log(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(facts) = scope_doctor::log::parse(&text) else { return };
    assert!(facts.elapsed_s.is_finite() && facts.elapsed_s >= 0.0);
    for finding in scope_doctor::findings(&facts) {
        assert!(!finding.cause.is_empty(), "{finding:?}");
    }
}

/// A name up to the first line's end, then what the file begins with.
pub fn dump_mark(data: &[u8]) {
    let at = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (name, begin) = data.split_at(at);
    let Ok(name) = std::str::from_utf8(name) else { return };
    if let Some(stem) = scope_dump::marked_stem(name, begin.get(1..).unwrap_or_default()) {
        assert!(name.starts_with(&stem) && stem.len() > 30, "{name}: {stem}");
    }
}

/// A source is understood or refused with causes; what is escaped is understood as one value.
pub fn source_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match scope_source::spec::parse(text) {
        Ok(_) => {}
        Err(errors) => {
            assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty()))
        }
    }
    let escaped = format!("file:{}", scope_source::spec::escape(text));
    if !text.is_empty() {
        let read = scope_source::spec::parse(&escaped).map(|spec| spec.plan);
        assert!(matches!(&read, Ok(SourcePlan::File(plan)) if plan.path == text), "{escaped:?}: {read:?}");
    }
}

/// What a shell makes of a word that `printable::shell_word` has written.
fn word_of(line: &str) -> Vec<u8> {
    if let Some(inner) = line.strip_prefix("$'").and_then(|rest| rest.strip_suffix('\'')) {
        let (mut bytes, mut letters) = (Vec::new(), inner.bytes());
        while let Some(byte) = letters.next() {
            match (byte, if byte == b'\\' { letters.next() } else { None }) {
                (b'\\', Some(b'x')) => {
                    let digits = [letters.next().expect("two digits"), letters.next().expect("two digits")];
                    bytes.push(
                        u8::from_str_radix(std::str::from_utf8(&digits).expect("digits"), 16)
                            .expect("digits"),
                    );
                }
                (b'\\', Some(escaped)) => bytes.push(escaped),
                (b'\'', _) => panic!("a quote inside of a word: {line}"),
                (byte, _) => bytes.push(byte),
            }
        }
        return bytes;
    }
    match line.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(inner) => {
            assert!(!inner.replace(r"'\''", "").contains('\''), "a quote inside of a word: {line}");
            inner.replace(r"'\''", "'").into_bytes()
        }
        None => {
            assert!(
                line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:@%+,=".contains(&byte)),
                "{line}"
            );
            line.as_bytes().to_vec()
        }
    }
}

/// Nothing foreign reaches a terminal or a command line raw.
pub fn printable(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    assert!(!printable::printable(&text).chars().any(char::is_control));
    assert!(
        printable::printable_lines(&text)
            .chars()
            .all(|letter| !letter.is_control() || "\n\t".contains(letter))
    );
    let json = serde_json::to_string(&text).expect("a text is JSON");
    let line = printable::json_line(&json);
    assert!(!line.chars().any(char::is_control));
    assert_eq!(serde_json::from_str::<String>(&line).expect("still JSON"), text);
    let word = printable::shell_word(OsStr::from_bytes(data));
    assert!(!word.chars().any(char::is_control));
    assert_eq!(word_of(&word), data, "{word}");
}

/// A condition on signals, a count, a sequence, or a signal itself: it is read or refused, with a place inside of
/// it; what is read is known as what it is.
pub fn condition(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match Pattern::parse(text, VlanRule::Transparent, &[]) {
        Ok(pattern) => {
            assert!(is_pattern(text) && !pattern.filters().is_empty() && pattern.span_ns() > 0, "{text}");
        }
        Err(error) => assert!(error.at() <= text.len() && !error.to_string().is_empty(), "{text}"),
    }
    let named = ["syn=tcp", "len:size=udp", "who:hosts=", "quiet:gap=icmp"].map(WrittenSignal::take_apart);
    let signals = SignalSet::read(&named, VlanRule::Transparent, &[]).expect("signals");
    match LevelCondition::parse(text, &signals) {
        Ok(level) => assert!(is_level(text) && !level.levels.is_empty(), "{text}"),
        Err(fault) => assert!(!fault.to_string().is_empty(), "{text}"),
    }
    let more: Vec<WrittenSignal> = named.into_iter().chain([WrittenSignal::take_apart(text)]).collect();
    match SignalSet::read(&more, VlanRule::Transparent, &[]) {
        Ok(set) => assert!(set.signals.len() == more.len() + 3 && set.tallies.len() <= set.signals.len()),
        Err(faults) => assert!(faults.iter().all(|(at, _)| *at == more.len() - 1), "{text}"),
    }
}
