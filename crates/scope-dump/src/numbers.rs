//! Sets of packet numbers of one lane, as spans.

use std::ops::Range;

/// Spans that don't touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers(Vec<Range<u64>>);

impl Numbers {
    /// Those of one span.
    pub(crate) fn of(span: Range<u64>) -> Numbers {
        let mut numbers = Numbers::default();
        numbers.add(span);
        numbers
    }

    /// Its spans.
    pub(crate) fn spans(&self) -> &[Range<u64>] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|span| span.end <= number);
        self.0.get(at).is_some_and(|span| span.contains(&number))
    }

    /// Whether any of them is in `span`.
    pub(crate) fn touch(&self, span: &Range<u64>) -> bool {
        let at = self.0.partition_point(|own| own.end <= span.start);
        !span.is_empty() && self.0.get(at).is_some_and(|own| own.start < span.end)
    }

    /// Adds a span, whatever of it is there.
    pub(crate) fn add(&mut self, span: Range<u64>) {
        if span.is_empty() {
            return;
        }
        let first = self.0.partition_point(|own| own.end < span.start);
        let end = self.0.partition_point(|own| own.start <= span.end);
        let joined =
            self.0[first..end].iter().fold(span, |all, own| all.start.min(own.start)..all.end.max(own.end));
        self.0.splice(first..end, [joined]);
    }

    /// Takes a span out, whatever of it is there.
    pub(crate) fn remove(&mut self, span: &Range<u64>) {
        if span.is_empty() {
            return;
        }
        let first = self.0.partition_point(|own| own.end <= span.start);
        let end = self.0.partition_point(|own| own.start < span.end);
        let outside = self.0[first..end].iter().flat_map(|own| [own.start..span.start, span.end..own.end]);
        let rest: Vec<Range<u64>> = outside.filter(|part| !part.is_empty()).collect();
        self.0.splice(first..end.max(first), rest);
    }

    /// Those of them that `others` lack.
    pub(crate) fn without(&self, others: &Numbers) -> Numbers {
        let mut rest = self.clone();
        for span in &others.0 {
            rest.remove(span);
        }
        rest
    }
}

impl FromIterator<Range<u64>> for Numbers {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(spans: I) -> Numbers {
        let mut numbers = Numbers::default();
        for span in spans {
            numbers.add(span);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn spans_are_the_set_of_what_was_added_and_not_taken_out(
            acts in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..9), 0..40),
            asked in (0u64..60, 0u64..9)) {
            let (mut numbers, mut model) = (Numbers::default(), BTreeSet::new());
            let mut others = Numbers::default();
            for (adds, from, len) in acts {
                let span = from..from + len;
                if adds {
                    numbers.add(span.clone());
                    model.extend(span);
                } else {
                    numbers.remove(&span);
                    model.retain(|number| !span.contains(number));
                    others.add(span);
                }
            }
            let all: BTreeSet<u64> = numbers.spans().iter().cloned().flatten().collect();
            prop_assert_eq!(&all, &model);
            prop_assert!(numbers.spans().windows(2).all(|pair| pair[0].end < pair[1].start), "apart, in order");
            prop_assert!((0..80).all(|number| numbers.contains(number) == model.contains(&number)));
            let span = asked.0..asked.0 + asked.1;
            prop_assert_eq!(numbers.touch(&span), span.clone().any(|number| model.contains(&number)));
            prop_assert_eq!(numbers.is_empty(), model.is_empty());
            let rest: BTreeSet<u64> = numbers.without(&others).spans().iter().cloned().flatten().collect();
            let expected: BTreeSet<u64> = model.iter().copied().filter(|number| !others.contains(*number)).collect();
            prop_assert_eq!(rest, expected);
        }
    }
}
