//! The table of many filters against asking each of them.

use scope_packet::{Headers, KeyEntry, LinkType};

use crate::asked::Asked;
use crate::specimens::{Random, damaged_packet, filter, packet};
use crate::{Filter, FilterTable, Template, VlanRule};

/// A filter as dumps have it, or any other.
fn any_filter(random: &mut Random, link: LinkType) -> Option<Filter> {
    let template = random.pick(&["$flow", "host $srcIP and host $dstIP", "host $srcIP", "src host $srcIP and port $dstPort", ""]);
    if template.is_empty() {
        let depth = random.below(3) as u32;
        return Filter::compile(&filter(random, depth), VlanRule::Transparent, &[link]).ok();
    }
    let data = packet(random, link);
    let template = Template::parse(template).unwrap();
    template.fill_filter(&Headers::parse(link, &data), link, &data, VlanRule::Transparent).ok()
}

#[test]
fn the_table_finds_exactly_the_filters_that_match() {
    let mut random = Random::new(21);
    let mut found_all = 0;
    for link in [LinkType::ETHERNET, LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL] {
        let mut table = FilterTable::new(link);
        let mut filters: Vec<(u64, Filter)> = Vec::new();
        for round in 0..400u64 {
            if random.one_in(3) && !filters.is_empty() {
                let (id, _) = filters.swap_remove(random.below(filters.len() as u64) as usize);
                assert!(table.remove(id) && !table.remove(id));
            } else if let Some(filter) = any_filter(&mut random, link) {
                table.insert(round, &filter);
                filters.push((round, filter));
            }
            assert_eq!(table.len(), filters.len());
            let batch: Vec<Vec<u8>> = (0..20)
                .map(|_| if random.one_in(3) { damaged_packet(&mut random, link) } else { packet(&mut random, link) })
                .collect();
            let headers: Vec<Headers> = batch.iter().map(|data| Headers::parse(link, data)).collect();
            let packets: Vec<Asked<'_>> = (batch.iter().zip(&headers))
                .map(|(data, headers)| Asked::new(headers, KeyEntry::new(headers), data, data.len() as u32))
                .collect();
            let which = random.next() & random.next() | random.next();
            let mut found = Vec::new();
            table.matches_batch(&packets, which, |id, at| found.push((id, at)));
            found.sort_unstable();
            let mut expected = Vec::new();
            for (id, filter) in &filters {
                let predicate = filter.for_link(link);
                let takes =
                    |at: &usize| which >> at & 1 != 0 && predicate.matches(&headers[*at], &batch[*at], batch[*at].len() as u32);
                expected.extend((0..20).filter(takes).map(|at| (*id, at)));
            }
            expected.sort_unstable();
            assert_eq!(found, expected, "{batch:02x?}");
            found_all += found.len();
        }
    }
    assert!(found_all > 10_000, "{found_all}");
}

#[test]
fn a_filter_that_comes_again_takes_the_place_of_the_old_one() {
    let mut table = FilterTable::new(LinkType::RAW);
    let filter = |text| Filter::compile(text, VlanRule::Transparent, &[LinkType::RAW]).unwrap();
    table.insert(7, &filter("host 10.0.0.1"));
    table.insert(7, &filter("len >= 0"));
    assert_eq!(table.len(), 1);
    let mut found = Vec::new();
    table.matches_batch(&[Asked::default()], u64::MAX, |id, at| found.push((id, at)));
    assert_eq!(found, [(7, 0)]);
    assert!(table.remove(7) && table.is_empty());
}
