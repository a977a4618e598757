//! Junk: files that aren't dumps, or are damaged: only a name and a mark that agree make a file one of ours.

use crate::header::{HEADER_BYTES, header};
use crate::mark::marked_stem;
use crate::report::DumpReport;
use proptest::prelude::*;

const STEM: &str = "2026-11-20T20-31-05.123456789Z_my-hit_0001";

fn begin() -> Vec<u8> {
    let report =
        DumpReport { id: 1, trigger: "my-hit".into(), why: "by hand".into(), ..DumpReport::default() };
    header(&report, &[], HEADER_BYTES)
}

proptest! {
    #[test]
    fn junk_is_nobodys_dump(name in "\\PC{0,60}", begin in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(marked_stem(&name, &begin), None);
        prop_assert_eq!(marked_stem(&format!("{STEM}.pcapng"), &begin), None);
        prop_assert_eq!(marked_stem(&format!("{STEM}.txt"), &begin), None);
    }

    #[test]
    fn a_damaged_dump_is_its_own_or_nobodys(at in 0usize..400, byte in any::<u8>(), cut in 0usize..20_000, more in "[-_a-z0-9.]{0,12}") {
        let mut begin = begin();
        begin[at] = byte;
        begin.truncate(cut);
        let name = format!("{STEM}{more}.pcapng");
        prop_assert!(marked_stem(&name, &begin).is_none_or(|stem| stem == STEM), "{name}");
        let other = STEM.replace("0001", "0002");
        prop_assert!(marked_stem(&format!("{other}.pcapng"), &begin).is_none_or(|stem| stem == other), "{other}");
    }

    #[test]
    fn no_name_makes_it_panic(name in "\\PC{0,60}|2026-11-20T20-31-05.123456789Z\\PC{0,30}") {
        let _ = marked_stem(&name, &begin());
    }
}
