//! The windows of one trigger that may still be extended, or limit where the next one begins; by the values
//! of the hits that opened them.

use crate::window::Window;
use scope_filter::Values;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Windows by values.
#[derive(Debug, Default)]
pub struct Windows {
    /// In the order in which they were opened.
    all: VecDeque<(Values, Arc<Window>)>,
    by_values: HashMap<Values, Vec<Arc<Window>>>,
}

impl Windows {
    /// Those of hits with `values`, the oldest first.
    pub fn of(&self, values: Values) -> &[Arc<Window>] {
        self.by_values.get(&values).map_or(&[], Vec::as_slice)
    }

    /// Adds one. Those that are over are forgotten, and of more than `max` the oldest.
    pub fn add(&mut self, values: Values, window: &Arc<Window>, max: usize) {
        self.all.retain(|(values, window)| {
            let stays = !window.is_over();
            if !stays {
                forget(&mut self.by_values, *values, window);
            }
            stays
        });
        while self.all.len() >= max.max(1) {
            let Some((values, window)) = self.all.pop_front() else { break };
            forget(&mut self.by_values, values, &window);
        }
        self.all.push_back((values, window.clone()));
        self.by_values.entry(values).or_default().push(window.clone());
    }
}

fn forget(by_values: &mut HashMap<Values, Vec<Arc<Window>>>, values: Values, window: &Arc<Window>) {
    if let Some(windows) = by_values.get_mut(&values) {
        windows.retain(|other| !Arc::ptr_eq(other, window));
        if windows.is_empty() {
            by_values.remove(&values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_are_over_are_forgotten_and_of_too_many_the_oldest() {
        let window = |to_ns| Arc::new(Window::new(0, to_ns, 0));
        let (values, mut windows) = (Values::everything(), Windows::default());
        let [first, second, third, fourth] = [10, 20, 30, 40].map(window);
        windows.add(values, &first, 2);
        windows.add(values, &second, 2);
        second.close();
        windows.add(values, &third, 2);
        let ends =
            |windows: &Windows| windows.of(values).iter().map(|window| window.to_ns()).collect::<Vec<_>>();
        assert_eq!(ends(&windows), [10, 30]);
        windows.add(values, &fourth, 2);
        assert_eq!(ends(&windows), [30, 40]);
        for window in [third, fourth].iter() {
            window.close();
        }
        windows.add(values, &first, 2);
        assert_eq!((ends(&windows), windows.all.len()), (vec![10], 1));
    }
}
