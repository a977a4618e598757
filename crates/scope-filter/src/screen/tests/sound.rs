//! No packet that the exact filter matches is screened out: generated filters and packets, of all link types.

use super::entry;
use super::packets::{any_filter, any_link, any_packet};
use crate::screen::{KeyPattern, Screen};
use crate::specimens::{self, Random};
use crate::{Filter, FilterEngine, FilterInput, VlanRule};
use scope_packet::{Headers, KeyEntry, LinkType};

/// Pairs of filter and packet in the ordinary test.
const PAIRS: u64 = 200_000;
/// Packets that each filter is held against.
const PACKETS: u64 = 100;
/// Patterns as the ring's scan uses them, and more.
const PATTERNS: [usize; 3] = [1, 16, 200];

/// What became of the pairs.
#[derive(Debug, Default)]
pub struct Tally {
    pub pairs: u64,
    pub matched: u64,
    pub screened_out: u64,
    /// Not matched, and not partial: what could be screened out at best.
    pub could_be: u64,
}

/// Holds the screen of a filter against packets; fails where it loses one.
pub fn hold(filter: &Filter, link: LinkType, packets: &[Vec<u8>], tally: &mut Tally) {
    let (predicate, screen) = (filter.for_link(link), filter.screen(link));
    let patterns = PATTERNS.map(|most| screen.patterns(most));
    assert!(patterns.iter().zip(PATTERNS).all(|(patterns, most)| patterns.len() <= most));
    let entries: Vec<KeyEntry> = packets.iter().map(|data| entry(link, data)).collect();
    let parsed: Vec<Headers> = packets.iter().map(|data| Headers::parse(link, data)).collect();
    let input = || parsed.iter().zip(packets).zip(&entries);
    let input =
        input().map(|((headers, data), entry)| FilterInput::new(headers, *entry, data, data.len() as u32));
    let input: Vec<FilterInput<'_>> = input.collect();
    let by_programs: Vec<bool> =
        input.iter().map(|packet| predicate.matches_batch(&[*packet], 1) != 0).collect();
    filter.prepare(FilterEngine::Interpreter).unwrap();
    let by_keys_first: Vec<bool> =
        input.iter().map(|packet| predicate.matches_batch(&[*packet], 1) != 0).collect();
    assert_eq!(by_keys_first, by_programs, "{} on {}\n{screen}", filter.text(), link.name());
    for ((data, entry), matches) in packets.iter().zip(&entries).zip(by_programs) {
        let may_match = screen.may_match(entry);
        let message = || format!("{} on {}: {data:02x?}\n{screen}", filter.text(), link.name());
        assert!(may_match || !matches, "lost: {}", message());
        assert!(
            !may_match || patterns.iter().all(|patterns| pass(patterns, entry)),
            "lost by its patterns: {}",
            message()
        );
        tally.pairs += 1;
        tally.matched += u64::from(matches);
        tally.screened_out += u64::from(!may_match);
        tally.could_be += u64::from(!matches && !entry.partial());
    }
}

fn pass(patterns: &[KeyPattern], entry: &KeyEntry) -> bool {
    entry.partial() || patterns.iter().any(|pattern| pattern.matches(entry))
}

fn generated(seed: u64, pairs: u64) -> Tally {
    let (mut random, mut tally) = (Random::new(seed), Tally::default());
    while tally.pairs < pairs {
        let link = any_link(&mut random);
        let text = any_filter(&mut random);
        let rule = if random.one_in(3) { VlanRule::Exact } else { VlanRule::Transparent };
        let Ok(filter) = Filter::compile(&text, rule, &[link]) else { continue };
        let packets: Vec<_> = (0..PACKETS).map(|_| any_packet(&mut random, link)).collect();
        hold(&filter, link, &packets, &mut tally);
    }
    tally
}

#[test]
fn screening_never_loses_a_packet_that_the_filter_takes() {
    let tally = generated(31, PAIRS);
    println!("{tally:?}");
    assert!(tally.matched > tally.pairs / 10, "too few match: {tally:?}");
    assert!(tally.screened_out > tally.pairs / 10, "too few are screened out: {tally:?}");
}

#[test]
#[ignore = "make fuzz-filters"]
fn screening_loses_nothing_for_as_long_as_is_asked() {
    let pairs = specimens::asked_for("PAIRS", 10_000_000);
    let tally = generated(specimens::asked_for("SEED", 1), pairs);
    println!("{tally:?}");
    assert!(tally.pairs >= pairs && tally.screened_out > pairs / 10, "{tally:?}");
}

#[test]
fn partial_entries_always_pass_and_unknown_link_types_are_never_screened() {
    let mut random = Random::new(33);
    for text in ["host 10.9.9.9", "ip proto 99", "src host 10.0.0.1 and src host 10.0.0.2"] {
        let filter = Filter::compile_filled(text, VlanRule::Transparent, LinkType::ETHERNET).unwrap();
        let screen = filter.screen(LinkType::ETHERNET);
        let partial =
            (0..200).map(|_| entry(LinkType::ETHERNET, &any_packet(&mut random, LinkType::ETHERNET)));
        let partial: Vec<_> = partial.filter(KeyEntry::partial).collect();
        assert!(partial.len() > 20 && partial.iter().all(|entry| screen.may_match(entry)), "{text}");
    }
    let radio = Filter::compile("host 10.0.0.1", VlanRule::Transparent, &[LinkType(127)]).unwrap();
    assert!(radio.screen(LinkType(127)).is_everything());
    assert!(!radio.screen(LinkType::ETHERNET).is_everything());
}

#[test]
fn texts_that_are_compiled_in_pieces_are_screened_alike() {
    let (mut random, mut tally) = (Random::new(34), Tally::default());
    let hosts = (0..60).map(|n| format!("host 10.0.0.{n}")).collect::<Vec<_>>().join(" or ");
    for text in [hosts.clone(), format!("udp and not ({hosts})"), format!("port 53 and ({hosts})")] {
        for link in [LinkType::ETHERNET, LinkType::RAW, LinkType::NULL] {
            let filter = Filter::compile(&text, VlanRule::Transparent, &[link]).unwrap();
            assert!(
                filter.printed(link).iter().all(|printed| printed.lines.is_empty()),
                "one program: {text}"
            );
            assert!(!filter.screen(link).is_everything(), "{text}");
            let packets: Vec<_> = (0..400).map(|_| any_packet(&mut random, link)).collect();
            hold(&filter, link, &packets, &mut tally);
        }
    }
    assert!(tally.matched > tally.pairs / 20 && tally.screened_out > tally.pairs / 10, "{tally:?}");
}

#[test]
fn what_is_not_followed_lets_everything_pass() {
    for text in ["ip protochain 6", "ip6 protochain 17", ""] {
        let filter = Filter::compile(text, VlanRule::Transparent, &[]).unwrap();
        assert!(filter.screen(LinkType::ETHERNET).is_everything(), "{text}");
    }
    assert_eq!(Screen::everything().patterns(16), [KeyPattern::default()]);
    assert_eq!(Screen::everything().to_string(), "everything");
    assert!(Screen::nothing().patterns(16).is_empty());
}
