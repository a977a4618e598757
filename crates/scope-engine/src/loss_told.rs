//! While packets are being lost the run says so: the first loss at once, then at most a line a minute, with
//! the sum and the reasons.

use scope_packet::{DropReason, Drops};
use std::time::{Duration, Instant};

/// Between two lines.
const AGAIN: Duration = Duration::from_secs(60);

/// What has been reported.
pub(crate) struct LossTold {
    dropped: Drops,
    at: Option<Instant>,
    /// What says more of it.
    remedy: String,
}

impl LossTold {
    /// Nothing yet. `remedy` is put behind each line.
    pub(crate) fn new(remedy: String) -> LossTold {
        LossTold { dropped: Drops::default(), at: None, remedy }
    }

    /// What is to be reported now, if anything is, of packets `dropped` so far.
    pub(crate) fn look(&mut self, dropped: &Drops, now: Instant) -> Option<String> {
        let (all, told) = (sum(dropped), sum(&self.dropped));
        if all <= told || self.at.is_some_and(|at| now.duration_since(at) < AGAIN) {
            return None;
        }
        let reasons: Vec<String> = dropped
            .iter()
            .filter(|(reason, packets)| *packets > self.dropped.get(*reason))
            .map(|(reason, packets)| format!("{}: {packets}, {}", reason.name(), words(reason)))
            .collect();
        let head = match self.at {
            None => format!("packets are being lost, {all} so far"),
            Some(_) => format!("packets are still being lost, {} more, {all} so far", all - told),
        };
        (self.dropped, self.at) = (*dropped, Some(now));
        Some(format!("{head} ({}){}", reasons.join("; "), self.remedy))
    }
}

fn sum(dropped: &Drops) -> u64 {
    dropped.iter().map(|(_, packets)| packets).sum()
}

/// What happened.
fn words(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Kernel => "the kernel's capture ring was full",
        DropReason::RingPinned => "open dumps held the whole ring",
        DropReason::LinkTypes => "more link types came than one worker records",
        DropReason::Interfaces => "more interfaces came than one run records",
        DropReason::File => "the capture file says so",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_is_told_at_once_and_then_one_line_a_minute_with_the_sum() {
        let mut told = LossTold::new("; ask".to_string());
        let (begin, mut dropped) = (Instant::now(), Drops::default());
        let mut at = |seconds, kernel, pinned| {
            dropped.add(DropReason::Kernel, kernel);
            dropped.add(DropReason::RingPinned, pinned);
            told.look(&dropped, begin + Duration::from_secs(seconds))
        };
        assert_eq!(at(0, 0, 0), None);
        let first = at(1, 5, 0).unwrap();
        assert_eq!(
            first,
            "packets are being lost, 5 so far (kernel: 5, the kernel's capture ring was full); ask"
        );
        assert_eq!((at(2, 7, 0), at(60, 1, 2)), (None, None));
        let next = at(61, 0, 0).unwrap();
        assert!(next.starts_with("packets are still being lost, 10 more, 15 so far (kernel: 13, "), "{next}");
        assert!(next.contains("; ring_pinned: 2, open dumps held the whole ring)"), "{next}");
        assert_eq!(
            (at(200, 0, 0), at(300, 0, 1).map(|line| line.contains("kernel"))),
            (None, Some(false)),
            "what is new"
        );
    }
}
