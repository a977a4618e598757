//! What a dump or an export says of itself: the lines of its section header's comment, of a text file beside
//! it, or, of one that went into a pipe, of its first statistics (docs/FORMAT.md, section 10).
//!
//! ```text
//! packets: 4
//! complete: every source listened ...          or
//! incomplete: at least 5 and at most 9 packets are missing, ...
//! gap: 2026-11-20T20:31:05.000000000Z to 2026-11-20T20:31:06.000000000Z kernel, 5 to 9 packets
//! ```

use super::report::{FileReport, Form, Missing, Reason};
use scope_packet::GapReason;
use scope_spelling::values::parse_time_ns;

/// Begin of the name of the writing program, in files that Wirescope made.
const PROGRAM: &str = "wirescope ";
/// In the comment of a dump that went into a pipe: the facts follow in the statistics.
const TO_A_PIPE: &str = "written to a pipe: ";

/// In the comment of an export, where a dump names what fired.
const OF_A_STORE: &str = "packets of store ";

/// What a dump or an export says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statement {
    packets: Option<u64>,
    window: Option<(i64, i64)>,
    /// Whether nothing was lost, if it says so or the contrary.
    complete: Option<bool>,
    lost_min: u64,
    lost_max: Option<u64>,
    gaps: Vec<Missing>,
    failure: Option<String>,
    /// The facts stand elsewhere.
    is_intro: bool,
    is_export: bool,
}

impl Statement {
    /// Reads the comment of a section that `application` wrote; `None` where that is neither a dump's nor an
    /// export's.
    pub(super) fn read(application: &str, comment: &str) -> Option<Statement> {
        if !application.starts_with(PROGRAM) {
            return None;
        }
        let mut statement = Statement { lost_max: Some(0), ..Statement::default() };
        for line in comment.lines() {
            statement.line(line);
        }
        (statement.complete.is_some() || statement.is_intro).then_some(statement)
    }

    fn line(&mut self, line: &str) {
        self.is_intro |= line.starts_with(TO_A_PIPE);
        self.is_export |= line.starts_with(OF_A_STORE);
        let Some((key, value)) = line.split_once(": ") else { return };
        match key {
            "packets" => self.packets = value.parse().ok(),
            "window" => self.window = span(value),
            "complete" => self.complete = Some(true),
            "incomplete" => {
                self.complete = Some(false);
                (self.lost_min, self.lost_max) = bounds(value);
            }
            "gap" => self.gaps.extend(gap(value)),
            "writing failed" => self.failure = Some(value.to_string()),
            _ => {}
        }
    }

    /// Whether the facts come in the statistics.
    pub(super) fn is_intro(&self) -> bool {
        self.is_intro
    }

    /// Holds it against what was read, and says what the dump lacks.
    pub(super) fn hold_against(self, report: &mut FileReport) {
        report.form = if self.is_export { Form::Export } else { Form::Dump };
        let end = report.bytes;
        if self.is_intro {
            let form = report.form.name();
            let cause = format!("the {form} went into a pipe and ends without its statement of losses");
            return report.cut(end, cause);
        }
        if let Some(stated) = self.packets.filter(|&stated| stated != report.packets) {
            report.damage(end, format!("it states {stated} packets and holds {}", report.packets));
        }
        if let Some(failure) = self.failure {
            report.cut(end, format!("writing it failed: {failure}"));
        }
        if self.complete != Some(false) {
            return;
        }
        if self.gaps.is_empty() && self.lost_max != Some(0) {
            let (from_ns, to_ns) = self.window.or(report.span).unwrap_or_default();
            report.lack(Missing {
                from_ns,
                reaches_back: false,
                to_ns: Some(to_ns),
                reason: Reason::Gap(GapReason::Evicted),
                lost_min: self.lost_min,
                lost_max: self.lost_max,
                of: String::new(),
            });
        }
        for gap in self.gaps {
            report.lack(gap);
        }
    }
}

/// `TIME to TIME`.
fn span(text: &str) -> Option<(i64, i64)> {
    let (from, to) = text.split_once(" to ")?;
    let (from_ns, to_ns) = (parse_time_ns(from).ok()?, parse_time_ns(to).ok()?);
    Some((from_ns.min(to_ns), from_ns.max(to_ns))) // whoever wrote it
}

/// The numbers of `at least 5 and at most 9 packets are missing`.
fn bounds(text: &str) -> (u64, Option<u64>) {
    let number = |behind: &str| text.split_once(behind)?.1.split([' ', ',']).next()?.parse().ok();
    if text.starts_with("no packet was lost") {
        return (0, Some(0));
    }
    let least = number("at least ").unwrap_or(0);
    (least, number("at most ").map(|most: u64| most.max(least)))
}

/// `TIME to TIME REASON`, and perhaps `, 5 to 9 packets` or `, at least 5 packets`. A reason of a later version
/// counts as a loss.
fn gap(text: &str) -> Option<Missing> {
    let (place, count) = text.split_once(", ").unwrap_or((text, ""));
    let (times, name) = place.rsplit_once(' ')?;
    let (from_ns, to_ns) = match times.strip_suffix(" to the end") {
        Some(from) => (parse_time_ns(from).ok()?, None),
        None => span(times).map(|(from_ns, to_ns)| (from_ns, Some(to_ns)))?,
    };
    let reason = match name {
        "deleted" => Reason::Deleted,
        "left_out" => Reason::Filter,
        "not_stored" => Reason::Gap(GapReason::Disk),
        _ => {
            let known = GapReason::ALL.into_iter().find(|reason| reason.name() == name);
            Reason::Gap(known.unwrap_or(GapReason::Evicted))
        }
    };
    let words = count.strip_suffix(" packets").or(count.strip_suffix(" packet")).unwrap_or_default();
    let (lost_min, lost_max) = match (words.strip_prefix("at least "), words.split_once(" to ")) {
        (Some(least), _) => (least.parse().ok()?, None),
        (_, Some((least, most))) => {
            let (least, most): (u64, u64) = (least.parse().ok()?, most.parse().ok()?);
            (least.min(most), Some(least.max(most)))
        }
        _ => words.parse().map_or((0, None), |exactly| (exactly, Some(exactly))),
    };
    Some(Missing { from_ns, reaches_back: false, to_ns, reason, lost_min, lost_max, of: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(comment: &str, packets: u64) -> FileReport {
        let mut report = FileReport { packets, ..FileReport::default() };
        Statement::read("wirescope 0.1.0", comment).unwrap().hold_against(&mut report);
        assert_eq!(report.form, if comment.contains(OF_A_STORE) { Form::Export } else { Form::Dump });
        report
    }

    #[test]
    fn what_is_no_statement_of_ours_is_none() {
        assert_eq!(Statement::read("Wireshark", "complete: yes"), None);
        assert_eq!(Statement::read("wirescope 0.1.0", "a ring"), None);
    }

    #[test]
    fn a_complete_dump_lacks_nothing_and_holds_what_it_states() {
        let text =
            "dump 1 of trigger a, fired by hand at 1970-01-01T00:00:00Z\npackets: 4\ncomplete: every source";
        assert_eq!(check(text, 4).verdict(), super::super::Verdict::Whole);
        let other = check(text, 3);
        assert_eq!(other.damages[0].cause, "it states 4 packets and holds 3");
    }

    #[test]
    fn gaps_are_read_with_their_reason_and_count() {
        let report = check(
            "packets: 0\nincomplete: at least 5 and at most 9 packets are missing, in 3 gaps, listed below\n\
             gap: 1970-01-01T00:00:01.000000000Z to 1970-01-01T00:00:02.500000000Z kernel, 5 to 9 packets\n\
             gap: 1970-01-01T00:00:03.000000000Z to 1970-01-01T00:00:04.000000000Z interface_down\n\
             gap: 1970-01-01T00:00:03.000000000Z to 1970-01-01T00:00:04.000000000Z solar_wind, at least 7 packets",
            0,
        );
        let gaps: Vec<_> = report
            .missing
            .iter()
            .map(|gap| (gap.reason.name(), gap.lost_min, gap.lost_max, gap.is_loss()))
            .collect();
        assert_eq!(
            gaps,
            [("kernel", 5, Some(9), true), ("interface_down", 0, None, false), ("evicted", 7, None, true)]
        );
        assert_eq!(
            (report.missing[0].from_ns, report.missing[0].to_ns),
            (1_000_000_000, Some(2_500_000_000))
        );
        assert_eq!(report.verdict(), super::super::Verdict::Lost);
    }

    #[test]
    fn an_export_is_known_and_its_gaps_have_its_own_reasons() {
        let asked = "packets of store 00112233445566778899aabbccddeeff\nasked: the begin to the end\n";
        let report = check(
            &format!(
                "{asked}packets: 0\nincomplete: at least 12 and at most 12 packets are missing\n\
                 gap: 1970-01-01T00:00:01Z to 1970-01-01T00:00:02Z deleted, 5 packets\n\
                 gap: 1970-01-01T00:00:03Z to 1970-01-01T00:00:04Z not_stored, 7 packets\n\
                 gap: 1970-01-01T00:00:04Z to 1970-01-01T00:00:05Z unreadable, 1 packet\n\
                 gap: 1970-01-01T00:00:05Z to the end unreadable"
            ),
            0,
        );
        let gap = |gap: &Missing| (gap.reason.name(), gap.from_ns, gap.to_ns, gap.lost_min, gap.lost_max);
        let gaps: Vec<_> = report.missing.iter().map(gap).collect();
        let second = 1_000_000_000;
        let expected = [
            ("deleted", second, Some(2 * second), 5, Some(5)),
            ("disk", 3 * second, Some(4 * second), 7, Some(7)),
            ("unreadable", 4 * second, Some(5 * second), 1, Some(1)),
            ("unreadable", 5 * second, None, 0, None),
        ];
        assert_eq!(gaps, expected);
        let whole = check(&format!("{asked}packets: 0\ncomplete: nothing is missing"), 0);
        assert_eq!(whole.verdict(), super::super::Verdict::Whole);
        let cut =
            check(&format!("{asked}written to a pipe: the statistics at its end say what is missing"), 0);
        assert!(cut.damages[0].is_cut && cut.damages[0].cause.starts_with("the export went into a pipe"));
    }

    #[test]
    fn what_is_the_wrong_way_round_is_turned() {
        let report = check(
            "packets: 0\nincomplete: at least 5 packets are missing\n\
             gap: 1970-01-01T00:00:03Z to 1970-01-01T00:00:01Z kernel, 9 to 5 packets",
            0,
        );
        let gap = &report.missing[0];
        assert_eq!((gap.from_ns, gap.to_ns), (1_000_000_000, Some(3_000_000_000)));
        assert_eq!((gap.lost_min, gap.lost_max), (5, Some(9)));
        let report = check("packets: 0\nincomplete: at least 9 and at most 5 packets are missing", 0);
        assert_eq!((report.missing[0].lost_min, report.missing[0].lost_max), (9, Some(9)));
    }

    #[test]
    fn a_loss_without_a_gap_is_one_of_the_window_and_none_is_none() {
        let window = "window: 1970-01-01T00:00:01Z to 1970-01-01T00:00:02Z\n";
        let report = check(&format!("{window}incomplete: at least 3 packets are missing"), 0);
        let lost = &report.missing[0];
        assert_eq!((lost.from_ns, lost.lost_min, lost.lost_max), (1_000_000_000, 3, None));
        let report = check(&format!("{window}incomplete: no packet was lost, but capture did not cover"), 0);
        assert!(report.missing.is_empty());
        let report = check(&format!("{window}incomplete: an unknown number of packets may be missing"), 0);
        assert_eq!(report.verdict(), super::super::Verdict::Lost);
        let report = check("complete: all\nwriting failed: disk full", 0);
        assert_eq!(report.verdict(), super::super::Verdict::Damaged);
    }

    #[test]
    fn a_pipe_that_lacks_its_end_is_cut() {
        assert!(check("written to a pipe: the statistics at its end have window", 0).damages[0].is_cut);
    }
}
