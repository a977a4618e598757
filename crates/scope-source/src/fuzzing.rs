//! Doors for the fuzz targets, and for them alone (feature `fuzzing`), to parsers that are not called from
//! outside of this crate.

use std::collections::BTreeMap;
use std::path::Path;

use crate::afpacket::block::{Frame, Rules, Walk};
use crate::afpacket::links::{Change, LinkChanges, Table};
use crate::own_traffic;

/// What the kernel's route socket sends: following the changes gives the same table.
pub fn route_messages(data: &[u8]) {
    let (mut table, mut news) = (Table::listing(), LinkChanges::default());
    let (first, second) = data.split_at(data.len() / 2 / 4 * 4);
    for datagram in [data, first, second] {
        table.take(datagram, &mut news);
        scope_machine::fuzzing::other_end(datagram);
    }
    let mut followed = BTreeMap::new();
    for change in news.changes {
        match change {
            Change::Link(link) => drop(followed.insert(link.index, link)),
            Change::Gone(index) => assert!(followed.remove(&index).is_some(), "{index} was never there"),
        }
    }
    assert_eq!(&followed, table.known());
}

/// One byte of rules, then a block of the kernel's ring: every frame lies within it, and there are no more
/// than it promises.
pub fn block(data: &[u8]) {
    let Some((&rules, block)) = data.split_first() else { return };
    let rules = Rules {
        ethernet: rules & 1 != 0,
        snap_len: if rules & 2 != 0 { usize::from(rules) } else { usize::MAX },
    };
    let mut block = block.to_vec();
    let mut walk = Walk::begin(&block);
    let promised = u64::from(walk.left());
    let (mut frames, mut found) = ([Frame::default(); 4], 0);
    loop {
        let count = walk.next_frames(&mut block, rules, &mut frames);
        if count == 0 {
            break;
        }
        found += count as u64;
        for frame in &frames[..count] {
            assert!(
                frame.len <= rules.snap_len && block.get(frame.start..frame.start + frame.len).is_some(),
                "{frame:?}"
            );
        }
    }
    assert_eq!(found + u64::from(walk.unreadable()), promised);
}

/// Texts of `/proc`, and an environment that may have an ssh session in it.
pub fn system_texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _end = own_traffic::table_end(&text);
    if let Some(session) = own_traffic::session_of(data, Path::new("/nonexistent")) {
        assert_eq!(session.here.is_ipv4(), session.there.is_ipv4());
    }
}
