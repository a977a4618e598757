//! What the table of many filters leaves open against evaluating each of them.

use scope_packet::{Headers, KeyEntry, LinkType};

use crate::input::FilterInput;
use crate::specimens::{Random, damaged_packet, filter, packet};
use crate::{Filter, KeyTable, Template, VlanRule};

/// A filter as dumps have it, or any other.
fn any_filter(random: &mut Random, link: LinkType) -> Option<Filter> {
    let template = random.pick(&[
        "$flow",
        "host $srcIP and host $dstIP",
        "host $srcIP",
        "src host $srcIP and port $dstPort",
        "",
    ]);
    if template.is_empty() {
        let depth = random.below(3) as u32;
        return Filter::compile(&filter(random, depth), VlanRule::Transparent, &[link]).ok();
    }
    let data = packet(random, link);
    let template = Template::parse(template).unwrap();
    template.fill_filter(&Headers::parse(link, &data), link, &data, VlanRule::Transparent).ok()
}

/// Which filters of `all` the owner of the table must evaluate for which of `packets`; those with `true` are
/// in it. Sorted.
fn left_open(
    table: &KeyTable,
    all: &[(u64, Filter, bool)],
    packets: &[FilterInput<'_>],
) -> Vec<(u64, usize)> {
    let maybe = table.maybe(packets.len(), |at| *packets[at].key());
    let mut open = Vec::new();
    for (at, packet) in packets.iter().enumerate() {
        if maybe >> at & 1 != 0 && !packet.key().partial() {
            table.each(packet.key(), |id| open.push((id, at)));
        }
        let always = |keyed: bool| !keyed || packet.key().partial();
        open.extend(all.iter().filter(|(_, _, keyed)| always(*keyed)).map(|(id, ..)| (*id, at)));
        assert!(!packet.key().partial() || maybe >> at & 1 != 0, "a partial key may be anybody's");
    }
    open.sort_unstable();
    open
}

#[test]
fn what_the_table_leaves_open_holds_every_filter_that_matches_once() {
    let mut random = Random::new(21);
    let (mut found, mut left, mut evaluated) = (0, 0, 0);
    for link in [LinkType::ETHERNET, LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL] {
        let mut table = KeyTable::default();
        let mut filters: Vec<(u64, Filter, bool)> = Vec::new();
        for round in 0..400u64 {
            if random.one_in(3) && !filters.is_empty() {
                let (id, _, keyed) = filters.swap_remove(random.below(filters.len() as u64) as usize);
                assert_eq!((table.remove(id), table.remove(id)), (keyed, false));
            } else if let Some(filter) = any_filter(&mut random, link) {
                let keyed = table.insert(round, &filter);
                filters.push((round, filter, keyed));
            }
            let batch: Vec<Vec<u8>> = (0..20)
                .map(|_| {
                    if random.one_in(3) {
                        damaged_packet(&mut random, link)
                    } else {
                        packet(&mut random, link)
                    }
                })
                .collect();
            let headers: Vec<Headers> = batch.iter().map(|data| Headers::parse(link, data)).collect();
            let packets: Vec<FilterInput<'_>> = (batch.iter().zip(&headers))
                .map(|(data, headers)| {
                    FilterInput::new(headers, KeyEntry::new(headers), data, data.len() as u32)
                })
                .collect();
            let open = left_open(&table, &filters, &packets);
            assert!(open.is_sorted_by(|a, b| a < b), "each once: {open:?}");
            assert!(
                open.iter().all(|(id, _)| filters.iter().any(|(other, ..)| other == id)),
                "none that was removed: {open:?}"
            );
            for (id, filter, keyed) in &filters {
                let predicate = filter.for_link(link);
                for at in 0..packets.len() {
                    let is_open = open.binary_search(&(*id, at)).is_ok();
                    let matches = predicate.matches(&headers[at], &batch[at], batch[at].len() as u32);
                    assert!(is_open || !matches, "{} loses {:02x?}", filter.text(), batch[at]);
                    found += usize::from(matches);
                    if *keyed && !packets[at].key().partial() {
                        evaluated += 1;
                        left += usize::from(is_open);
                    }
                }
            }
        }
    }
    assert!(found > 10_000, "{found}");
    assert!(left < evaluated / 4, "{left} of {evaluated}: too little is ruled out");
}

#[test]
fn a_filter_that_comes_again_takes_the_place_of_the_old_one() {
    let filter = |text| Filter::compile(text, VlanRule::Transparent, &[LinkType::RAW]).unwrap();
    let mut table = KeyTable::default();
    let found = |table: &KeyTable, host: u8| {
        let mut data = vec![0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, host, 10, 9, 9, 9];
        data.extend([0; 8]);
        let key = KeyEntry::new(&Headers::parse(LinkType::RAW, &data));
        assert!(!key.partial());
        let mut found = Vec::new();
        table.each(&key, |id| found.push(id));
        assert_eq!(table.maybe(1, |_| key), u64::from(!found.is_empty()));
        found
    };
    assert!(table.insert(7, &filter("host 10.0.0.1")));
    assert_eq!((found(&table, 1), found(&table, 2)), (vec![7], vec![]));
    assert!(table.insert(7, &filter("host 10.0.0.2")));
    assert_eq!((found(&table, 1), found(&table, 2)), (vec![], vec![7]));
    assert!(!table.insert(7, &filter("len >= 0")), "no key says anything of it");
    assert_eq!((found(&table, 1), found(&table, 2)), (vec![], vec![]));
    assert!(!table.remove(7));
}
