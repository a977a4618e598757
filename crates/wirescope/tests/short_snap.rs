//! Filters that need more bytes of a packet than the snap length keeps: they never match, and that is said.

mod run;

use run::{Place, finish, wirescope};
use scope_testkit::traffic::Conversations;

/// What a run warns of, whose source keeps `snap_len` bytes of each packet; and the hits of its trigger.
fn warned(snap_len: &str, trigger: &str, dump: &str, more: &[&str]) -> (Vec<String>, u64) {
    let place = Place::new();
    let source = format!("{},snaplen={snap_len}", place.source(&Conversations::default().capture()));
    let trigger = format!("t={trigger}");
    let arguments =
        [&["--source", &source, "--trigger", &trigger, "--dump", dump, "--single"], more].concat();
    let done = place.run(&arguments);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    (summary.warnings.clone(), summary.hits["t"].sum())
}

#[test]
fn a_filter_that_needs_more_than_the_snap_length_keeps_is_warned_of() {
    let (warnings, hits) = warned("34", "udp", "", &[]);
    assert!(warnings.is_empty() && hits > 0, "it can match: {warnings:?}");
    let (warnings, hits) = warned("34", "udp port 53 or tcp port 80", "", &[]);
    assert_eq!((warnings.len(), hits), (1, 0), "{warnings:?}");
    for words in ["trigger 't' matches no packet", "needs 36 bytes", "keeps 34", "larger snaplen="] {
        assert!(warnings[0].contains(words), "{words}: {warnings:?}");
    }
    let (warnings, _) = warned("36", "udp port 53 or tcp port 80", "", &[]);
    assert!(warnings.is_empty(), "{warnings:?}");
    let (warnings, _) = warned("34", "udp", "tcp[13] & 2 != 0", &["--prefilter", "udp dst port 53"]);
    assert!(
        warnings.iter().any(|warning| warning.contains("the prefilter matches no packet")),
        "{warnings:?}"
    );
    assert!(
        warnings.iter().any(|warning| warning.contains("the dump filter of trigger 't' matches no packet")),
        "{warnings:?}"
    );
}

#[test]
fn the_check_of_a_configuration_says_so_too() {
    let place = Place::new();
    let file = place.path("short.toml");
    let text = "source = [\"afpacket:eth0\"]\nsnap-len = 34\nprefilter = \"udp port 60000\"\ntrigger = \
        [\"udp port 60000\"]\ndump = [\"tcp port 80\"]\nout = \"dumps\"\n";
    std::fs::write(&file, text).unwrap();
    let done = finish(wirescope(&["config", "check", file.to_str().unwrap()]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    for words in [
        "the prefilter matches no packet",
        "the trigger 'trigger1' matches no packet",
        "dump filter of trigger 'trigger1'",
    ] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    std::fs::write(&file, text.replace("34", "60")).unwrap();
    let done = finish(wirescope(&["config", "check", file.to_str().unwrap()]));
    assert!(done.stderr.is_empty(), "{}", done.stderr);
}
