//! Two things measured by turns within a round, so that what the machine's speed does meanwhile meets both alike.

use anyhow::Result;

/// Measures `false` and `true` so often each: the one that begins first, then each turn the other way round. What
/// came of each, or its first error in words.
pub fn by_turns<T>(
    first: bool,
    times: usize,
    mut measure: impl FnMut(bool) -> Result<T>,
) -> [Result<Vec<T>, String>; 2] {
    let mut both = [Ok(Vec::new()), Ok(Vec::new())];
    for turn in 0..times {
        let begins = first ^ (turn % 2 == 1);
        for which in [begins, !begins] {
            let cell = &mut both[usize::from(which)];
            if let Ok(values) = cell {
                match measure(which) {
                    Ok(value) => values.push(value),
                    Err(error) => *cell = Err(format!("{error:#}")),
                }
            }
        }
    }
    both
}

/// The mean of a figure; `NaN` of nothing.
pub fn mean(figures: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = figures.len() as f64;
    figures.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn who_begins_changes_from_turn_to_turn_and_an_error_ends_one_alone() {
        let mut order = Vec::new();
        let both = by_turns(true, 3, |which| {
            order.push(which);
            Ok(order.len())
        });
        assert_eq!(order, [true, false, false, true, true, false]);
        assert_eq!(both, [Ok(vec![2, 3, 6]), Ok(vec![1, 4, 5])]);
        let both = by_turns(false, 2, |which| if which { bail!("no") } else { Ok(1) });
        assert_eq!(both, [Ok(vec![1, 1]), Err("no".to_string())]);
        assert!((mean([1.0, 2.0].into_iter()) - 1.5).abs() < 1e-9);
    }
}
