//! How capture time runs in a sequence of packets, and which of them belong to a window: the rule of
//! SPECIFICATION S-210 to S-212, written down naively and without the product's own code.

const SECOND: i64 = 1_000_000_000;

/// What the rule makes of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeState {
    /// How often time was set back before it, itself included.
    pub era: usize,
    /// Its time is not believed.
    pub stray: bool,
    /// The clock when it came, itself included, ns.
    pub clock_ns: i64,
}

/// The states after packets with these times (ns), in the order of their file.
pub fn states(times: &[i64]) -> Vec<TimeState> {
    let mut states: Vec<TimeState> = Vec::new();
    for (at, &time) in times.iter().enumerate() {
        let behind: Vec<i64> = times[at + 1..].iter().take(15).copied().collect();
        let Some(last) = states.last().copied() else {
            states.push(TimeState { era: 0, stray: false, clock_ns: time });
            continue;
        };
        let clock = last.clock_ns;
        let state = if (time - clock).abs() <= SECOND {
            TimeState { clock_ns: clock.max(time), stray: false, ..last }
        } else if time > clock {
            let against = behind.iter().filter(|other| **other < time - SECOND).count();
            let stray = against > behind.len() - against;
            TimeState { clock_ns: if stray { clock } else { time }, stray, ..last }
        } else {
            let with_it = 1 + behind.iter().filter(|other| **other < clock - SECOND).count();
            let against = 1 + behind.len() - with_it;
            match with_it > against && !behind.is_empty() {
                true => TimeState { era: last.era + 1, stray: false, clock_ns: time },
                false => TimeState { stray: true, ..last },
            }
        };
        states.push(state);
    }
    states
}

/// One dump of everything in its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// When it fired, ns.
    pub time_ns: i64,
    /// Its packets, by their index, in order of time; of one time in the order of the file.
    pub packets: Vec<usize>,
    /// The window lies within what was captured of its era.
    pub whole: bool,
}

/// The dumps of one trigger that is hit by the packets at `hits`, without holdoff, with a window of
/// `before_ns` and `after_ns`.
pub fn dumps(times: &[i64], hits: &[usize], before_ns: i64, after_ns: i64) -> Vec<Expected> {
    let states = states(times);
    // Era, from, to, hits.
    let mut windows: Vec<(usize, i64, i64, Vec<usize>)> = Vec::new();
    for &hit in hits {
        let TimeState { era, stray, clock_ns } = states[hit];
        let at = if stray { clock_ns } else { times[hit] };
        match windows.iter_mut().find(|window| window.0 == era && window.1 <= at && at <= window.2) {
            Some(window) => {
                window.2 = window.2.max(at + after_ns);
                window.3.push(hit);
            }
            None => windows.push((era, (at - before_ns).max(0), at + after_ns, vec![hit])),
        }
    }
    let expected = windows.iter().map(|(era, from, to, hits)| {
        let belongs = |packet: &usize| {
            let state = states[*packet];
            let inside = state.era == *era && (*from..=*to).contains(&times[*packet]);
            // Over: the clock is more than a second behind its end.
            let over = state.stray && state.clock_ns - SECOND > *to;
            *packet == hits[0] || (inside && !over)
        };
        let mut packets: Vec<usize> = (0..times.len()).filter(belongs).collect();
        packets.sort_by_key(|packet| times[*packet]);
        let of_era = || states.iter().enumerate().filter(|(_, state)| state.era == *era);
        let begin =
            of_era().filter(|(_, state)| !state.stray).map(|(at, _)| times[at]).min().unwrap_or(i64::MAX);
        let end = of_era().map(|(_, state)| state.clock_ns).max().unwrap_or(0);
        let first = states[hits[0]];
        let time_ns = if first.stray { first.clock_ns } else { times[hits[0]] };
        Expected { time_ns, packets, whole: begin <= *from && *to <= end }
    });
    expected.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(times: &[i64]) -> Vec<i64> {
        times.iter().map(|second| second * SECOND).collect()
    }

    #[test]
    fn one_wrong_time_moves_nothing_and_a_file_behind_another_is_an_era() {
        let facts = |times: &[i64]| {
            states(&seconds(times))
                .iter()
                .map(|state| (state.era, state.stray, state.clock_ns / SECOND))
                .collect::<Vec<_>>()
        };
        assert_eq!(facts(&[5, 99, 5, 6]), [(0, false, 5), (0, true, 5), (0, false, 5), (0, false, 6)]);
        assert_eq!(facts(&[50, 9, 10, 11]), [(0, false, 50), (1, false, 9), (1, false, 10), (1, false, 11)]);
    }

    #[test]
    fn a_window_has_its_own_era() {
        let once: Vec<i64> = (0..=20).collect();
        let times = seconds(&[&once[..], &once].concat());
        let dumps = dumps(&times, &[31], 2 * SECOND, 0);
        assert_eq!(dumps, [Expected { time_ns: 10 * SECOND, packets: vec![29, 30, 31], whole: true }]);
    }
}
