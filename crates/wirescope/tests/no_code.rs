//! A machine that lets nobody make code: the interpreter takes over, and says so. A process of its own: the
//! ban can't be lifted.

mod run;

use run::Place;
use scope_testkit::traffic::Conversations;

#[test]
fn where_no_code_can_be_made_the_interpreter_answers_with_a_warning() {
    let place = Place::new();
    let source = place.source(&Conversations::default().capture());
    let arguments = ["--source", &source, "--trigger", "dns=port 53", "--before", "1", "--after", "1"];
    let native = place.summary(&arguments);
    assert!(native.warnings.is_empty(), "{:?}", native.warnings);

    // SAFETY: takes numbers only, and bans pages that become executable in this process and its children.
    let banned =
        unsafe { libc::prctl(libc::PR_SET_MDWE, libc::PR_MDWE_REFUSE_EXEC_GAIN as libc::c_ulong, 0, 0, 0) };
    if banned != 0 {
        eprintln!("skipped: this kernel has no PR_SET_MDWE");
        return;
    }
    let place = Place::new();
    let source = place.source(&Conversations::default().capture());
    let arguments = ["--source", &source, "--trigger", "dns=port 53", "--before", "1", "--after", "1"];
    let interpreted = place.summary(&arguments);
    assert!(
        interpreted.warnings.iter().any(|text| text.contains("trigger dns") && text.contains("interpreter"))
    );
    let log = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap();
    assert!(
        log.lines().any(|line| line.contains("\"warning\"") && line.contains("interpreter evaluates")),
        "{log}"
    );
    assert_eq!(native.hits, interpreted.hits);
    let packets =
        |summary: &run::summary::Summary| summary.dumps.iter().map(|dump| dump.packets).collect::<Vec<_>>();
    assert_eq!(packets(&native), packets(&interpreted));
    let asked = place.summary(&[&arguments[..], &["--filter-engine", "interpreter"]].concat());
    assert!(
        asked.warnings.is_empty(),
        "who asks for the interpreter isn't warned of it: {:?}",
        asked.warnings
    );
}
