//! Templates and filters of any text: an error with its place, never a panic; and packets of any bytes fill
//! them or don't.

use proptest::prelude::*;
use scope_filter::{Filter, Template, VlanRule};
use scope_packet::{Headers, LinkType};

const PIECES: [&str; 32] = [
    "$srcIP",
    "$dstIP",
    "{srcPort}",
    "$dstPort",
    "$proto",
    "{srcMAC}",
    "$vlan",
    "$flow",
    "$nothing",
    "$",
    "{",
    "}",
    "{}",
    " or else ",
    "|",
    "||",
    "host ",
    "port ",
    "net ",
    "/24",
    "and ",
    "or ",
    "not ",
    "(",
    ")",
    "tcp ",
    "ip6 ",
    "10.0.0.1",
    " ",
    "\u{e9}",
    "[0]",
    "= 7",
];

fn check(text: &str, data: &[u8]) -> Result<(), TestCaseError> {
    let links = [LinkType::ETHERNET, LinkType::LINUX_SLL, LinkType::RAW];
    for link in links {
        match Filter::compile(text, VlanRule::Transparent, &[link]) {
            Ok(filter) => {
                let _ = filter.for_link(link).matches(&Headers::parse(link, data), data, data.len() as u32);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
    match Template::parse(text) {
        Err(error) => prop_assert!(!error.to_string().is_empty()),
        Ok(template) => {
            prop_assert_eq!(template.text(), text);
            if let Err(error) = template.check(VlanRule::Transparent, &[]) {
                prop_assert!(!error.to_string().is_empty());
            }
            for link in links {
                let headers = Headers::parse(link, data);
                if let Ok(filter) = template.fill_filter(&headers, link, data, VlanRule::Transparent) {
                    let _ = filter.for_link(link).matches(&headers, data, data.len() as u32);
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_and_no_packet_makes_it_panic(text in "\\PC{0,60}", data in proptest::collection::vec(any::<u8>(), 0..80)) {
        check(&text, &data)?;
    }

    #[test]
    fn no_pieces_of_right_texts_make_it_panic(picked in proptest::collection::vec(0..PIECES.len(), 0..14),
        head in prop_oneof![Just(&[8u8, 0, 0x45][..]), Just(&[0x86, 0xdd, 0x60][..]), Just(&[0x81, 0, 0, 7, 8, 0, 0x45][..]), Just(&[0x88, 0x47][..])],
        data in proptest::collection::vec(any::<u8>(), 0..80)) {
        check(&picked.iter().map(|&at| PIECES[at]).collect::<String>(), &[&[2; 12][..], head, &data].concat())?;
    }
}
