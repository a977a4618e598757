//! A volume's folder: its mark, holds, chain, imports and names of files, and what `verify` says of any file.

use crate::stored::{changed, whole_file};
use scope_store::StoredFile;
use scope_store::chain::Chain;
use scope_store::imports::{IMPORTS_FILE, Imports};
use scope_store::name::FileName;
use scope_store::verify::{self, Meter, Report, Verdict};
use scope_store::volume::{MARK, Store};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A folder of this process, whose files each input writes anew; it is left behind in the folder for temporary
/// files, with one small file or two.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("wirescope-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for temporary files");
        folder
    })
}

/// A file with these bytes.
fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    fs::write(&path, bytes).expect("a file can be written");
    path
}

fn look(path: &Path) -> Report {
    let report = verify::look(&[path], 1, &[], &Meter::default());
    let file = &report.files[0];
    assert!(file.damages.len() <= verify::LISTED_MAX && file.missing.len() <= verify::LISTED_MAX + 64);
    assert!(file.missing.iter().all(|row| row.lost_max.is_none_or(|most| row.lost_min <= most)));
    assert!(file.missing.iter().all(|row| row.to_ns.is_none_or(|to_ns| row.from_ns <= to_ns)));
    assert!(file.span.is_none_or(|(min_ns, max_ns)| min_ns <= max_ns));
    report
}

/// What `verify` says of any bytes; the same again.
pub fn verify(data: &[u8]) {
    let path = written("capture", data);
    let report = look(&path);
    assert_eq!(report, look(&path));
    let packets = report.files[0].packets as usize;
    assert!(packets <= data.len() / 16, "{packets} packets in {} bytes", data.len());
}

/// What `verify` and readers make of a stored file that was changed in a few places: two bytes offset, divided
/// by 2, and four bytes that are put there. A single change is found, and every packet that is read is the right one.
pub fn verify_stored(data: &[u8]) {
    let whole = whole_file();
    let bytes = changed(whole, data, 2);
    let path = written("stored.pcapng", &bytes);
    let is_whole = bytes == whole;
    let report = look(&path);
    // Several in the right places make another program's file of it. Its statistics state lost packets.
    assert!(data.len() >= 12 || (report.verdict() < Verdict::Damaged) == is_whole, "{report:?}");
    let Ok(stored) = fs::File::open(&path).map_err(Into::into).and_then(StoredFile::open) else { return };
    let mut buffer = Vec::new();
    for index in 0..stored.segments().len() {
        if let Ok(segment) = stored.read_segment(index, &mut buffer) {
            let is_there =
                whole.windows(segment.bytes().len()).step_by(4096).any(|part| part == segment.bytes());
            assert!(is_there || !stored.head().has_block(), "a wrong packet was given as right");
        }
    }
}

/// A chain that is in order is written as it was read, and shortened it still is one.
pub fn chain(data: &[u8]) {
    let chain = Chain::read(data);
    assert!(chain.links.len() <= data.split(|&byte| byte == b'\n').count());
    let text: String = chain.links.iter().map(|link| link.line()).collect();
    let again = Chain::read(text.as_bytes());
    assert_eq!(again.links, chain.links);
    let shortened = chain.shortened(0, |file| file.packets % 2 == 0);
    assert_eq!(shortened.is_some(), chain.faults.is_empty());
    if let Some(text) = shortened {
        let shorter = Chain::read(text.as_bytes());
        assert!(shorter.faults.is_empty() && shorter.links.len() <= chain.links.len());
    }
}

/// Holds are understood or refused with the place; what is held is a span.
pub fn holds(data: &[u8]) {
    written(MARK, b"{\"version\":1,\"volume\":\"00112233445566778899aabbccddeeff\"}\n");
    written("holds.json", data);
    let store = Store::look(folder()).expect("the mark is whole");
    match store.holds() {
        Ok(holds) => {
            for hold in holds.list() {
                assert!(hold.from_ns <= hold.to_ns && holds.cover(hold.from_ns, hold.to_ns));
            }
        }
        Err(fault) => assert!(fault.to_string().contains("nothing in this store is deleted")),
    }
}

/// What was imported is understood or refused with the place; written anew it is the same.
pub fn imports(data: &[u8]) {
    written(MARK, b"{\"version\":1,\"volume\":\"00112233445566778899aabbccddeeff\"}\n");
    written(IMPORTS_FILE, data);
    let store = Store::look(folder()).expect("the mark is whole");
    let read = || Imports::read(store.folder());
    if let Err(fault) = read() {
        return assert!(fault.to_string().contains("what was imported before can't be read"));
    }
    let rewritten = || {
        store.note_imports(&[]).expect("it was read just now");
        read().expect("it was written just now")
    };
    assert_eq!(rewritten(), rewritten());
}

/// A mark is one, is of a newer version, or is damaged.
pub fn store_mark(data: &[u8]) {
    written(MARK, data);
    match Store::look(folder()) {
        Ok(store) => {
            let id = store.id().to_string();
            assert!(data.windows(id.len()).any(|part| part == id.as_bytes()), "{id} isn't in it");
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

/// A name is one that the store gives, or none.
pub fn store_name(data: &[u8]) {
    let path = Path::new(OsStr::from_bytes(data));
    if let Some(name) = FileName::read(path) {
        assert_eq!(name.path(), path);
        assert_eq!(FileName::read(&name.closed().path()), Some(name.closed()));
        assert!(name.path().starts_with(name.day()) && name.number() > 0 && name.first_ns() >= 0);
    }
}
