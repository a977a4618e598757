//! How capture time runs in a sequence of packets, and which of them a window takes: the rule of
//! SPECIFICATION S-210 to S-212, written down naively and without the product's own code.

const SECOND: i64 = 1_000_000_000;

/// What the rule makes of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// How often time was set back before it, itself included.
    pub era: usize,
    /// Its time is not believed.
    pub stray: bool,
    /// The clock when it came, itself included, ns.
    pub clock_ns: i64,
}

/// The places of packets with these times (ns), in the order of their file.
pub fn places(times: &[i64]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for (at, &time) in times.iter().enumerate() {
        let behind: Vec<i64> = times[at + 1..].iter().take(15).copied().collect();
        let Some(last) = places.last().copied() else {
            places.push(Place { era: 0, stray: false, clock_ns: time });
            continue;
        };
        let clock = last.clock_ns;
        let place = if (time - clock).abs() <= SECOND {
            Place { clock_ns: clock.max(time), stray: false, ..last }
        } else if time > clock {
            let against = behind.iter().filter(|other| **other < time - SECOND).count();
            let stray = against > behind.len() - against;
            Place { clock_ns: if stray { clock } else { time }, stray, ..last }
        } else {
            let with_it = 1 + behind.iter().filter(|other| **other < clock - SECOND).count();
            let against = 1 + behind.len() - with_it;
            match with_it > against && !behind.is_empty() {
                true => Place { era: last.era + 1, stray: false, clock_ns: time },
                false => Place { stray: true, ..last },
            }
        };
        places.push(place);
    }
    places
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
    let places = places(times);
    // Era, from, to, hits.
    let mut windows: Vec<(usize, i64, i64, Vec<usize>)> = Vec::new();
    for &hit in hits {
        let Place { era, stray, clock_ns } = places[hit];
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
            let place = places[*packet];
            let inside = place.era == *era && (*from..=*to).contains(&times[*packet]);
            // Over: the clock is more than a second behind its end.
            let over = place.stray && place.clock_ns - SECOND > *to;
            *packet == hits[0] || (inside && !over)
        };
        let mut packets: Vec<usize> = (0..times.len()).filter(belongs).collect();
        packets.sort_by_key(|packet| times[*packet]);
        let of_era = || places.iter().enumerate().filter(|(_, place)| place.era == *era);
        let begin =
            of_era().filter(|(_, place)| !place.stray).map(|(at, _)| times[at]).min().unwrap_or(i64::MAX);
        let end = of_era().map(|(_, place)| place.clock_ns).max().unwrap_or(0);
        let first = places[hits[0]];
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
            places(&seconds(times))
                .iter()
                .map(|place| (place.era, place.stray, place.clock_ns / SECOND))
                .collect::<Vec<_>>()
        };
        assert_eq!(facts(&[5, 99, 5, 6]), [(0, false, 5), (0, true, 5), (0, false, 5), (0, false, 6)]);
        assert_eq!(facts(&[50, 9, 10, 11]), [(0, false, 50), (1, false, 9), (1, false, 10), (1, false, 11)]);
    }

    #[test]
    fn a_window_takes_its_own_era() {
        let once: Vec<i64> = (0..=20).collect();
        let times = seconds(&[&once[..], &once].concat());
        let dumps = dumps(&times, &[31], 2 * SECOND, 0);
        assert_eq!(dumps, [Expected { time_ns: 10 * SECOND, packets: vec![29, 30, 31], whole: true }]);
    }
}
