//! Spans of time that belong to a question, united: sorted, and none touches another.

/// Bytes of one span.
pub const SPAN_BYTES: usize = size_of::<(i64, i64)>();

/// Spans of time, ns; both ends belong to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<(i64, i64)>);

impl Spans {
    /// Adds a span. Fast where spans come by time; any other order is right, too.
    pub fn add(&mut self, from_ns: i64, to_ns: i64) {
        debug_assert!(from_ns <= to_ns);
        // Those that reach up to the new one, and of these those that begin before it ends.
        let first = match self.0.last() {
            Some(last) if last.1 < from_ns.saturating_sub(1) => self.0.len(),
            _ => self.0.partition_point(|&(_, to)| to < from_ns.saturating_sub(1)),
        };
        let behind = first + self.0[first..].partition_point(|&(from, _)| from <= to_ns.saturating_add(1));
        let united =
            self.0[first..behind].iter().fold((from_ns, to_ns), |(from, to), &(other_from, other_to)| {
                (from.min(other_from), to.max(other_to))
            });
        self.0.splice(first..behind, [united]);
    }

    /// All of them, by their begins.
    pub fn all(&self) -> &[(i64, i64)] {
        &self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From the begin of the first one to the end of the last one.
    pub fn hull(&self) -> Option<(i64, i64)> {
        Some((self.0.first()?.0, self.0.last()?.1))
    }

    /// Whether a time lies in one.
    pub fn contains(&self, time_ns: i64) -> bool {
        self.touches(time_ns, time_ns)
    }

    /// Whether any of the times from `min_ns` to `max_ns` lies in one.
    pub fn touches(&self, min_ns: i64, max_ns: i64) -> bool {
        let first = self.0.partition_point(|&(_, to)| to < min_ns);
        self.0.get(first).is_some_and(|&(from, _)| from <= max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans(added: &[(i64, i64)]) -> Spans {
        let mut spans = Spans::default();
        for &(from, to) in added {
            spans.add(from, to);
        }
        spans
    }

    #[test]
    fn spans_that_touch_are_one() {
        let check =
            |added: &[(i64, i64)], expected: &[(i64, i64)]| assert_eq!(spans(added).0, expected, "{added:?}");
        check(&[(1, 3), (4, 5)], &[(1, 5)]);
        check(&[(1, 3), (5, 6)], &[(1, 3), (5, 6)]);
        check(&[(1, 3), (5, 6), (4, 4)], &[(1, 6)]);
        check(&[(5, 6), (1, 2)], &[(1, 2), (5, 6)]);
        check(&[(1, 2), (5, 6), (9, 9), (0, 20)], &[(0, 20)]);
        check(&[(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)], &[(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)]);
    }

    proptest! {
        #[test]
        fn they_have_what_was_added_and_nothing_else(
            added in prop::collection::vec((0..60i64, 0..6i64), 0..20), at in 0..70i64, wide in 0..5i64,
        ) {
            let added: Vec<(i64, i64)> = added.into_iter().map(|(from, len)| (from, from + len)).collect();
            let found = spans(&added);
            let within = |time: i64| added.iter().any(|&(from, to)| (from..=to).contains(&time));
            prop_assert_eq!(found.contains(at), within(at));
            prop_assert_eq!(found.touches(at, at + wide), (at..=at + wide).any(within));
            prop_assert!(found.0.windows(2).all(|two| two[0].1 + 1 < two[1].0));
        }
    }
}
