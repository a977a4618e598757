//! Machine code and the memory that it stands in. A process of its own: other tests' code would be in the
//! way.

use scope_filter::{Filter, VlanRule};
use scope_packet::LinkType;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The tests count this process's mappings: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn filter(n: u32) -> Filter {
    let text = format!("tcp and (src host 10.0.{}.{} or net 10.{}.0.0/16)", n / 256 % 256, n % 256, n % 200);
    Filter::compile(&text, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap()
}

/// The lines of /proc/self/maps.
fn maps() -> Vec<String> {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().map(String::from).collect()
}

fn permissions(line: &str) -> &str {
    line.split_whitespace().nth(1).unwrap()
}

/// Bytes of executable mappings without a file.
fn code_bytes() -> usize {
    let bytes = |line: &String| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        Some(usize::from_str_radix(to, 16).ok()? - usize::from_str_radix(from, 16).ok()?)
    };
    let code = |line: &&String| permissions(line) == "r-xp" && line.split_whitespace().count() == 5;
    maps().iter().filter(code).filter_map(bytes).sum()
}

/// Resident memory, KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn no_page_is_ever_writable_and_executable() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let done = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0u32;
            while !done.load(Ordering::Relaxed) || looks < 20 {
                for line in maps() {
                    let permissions = permissions(&line);
                    assert!(!(permissions.contains('w') && permissions.contains('x')), "{line}");
                }
                looks += 1;
            }
            looks
        });
        let filters: Vec<Filter> = (0..200).map(filter).collect();
        for filter in &filters {
            filter.make_native().unwrap();
        }
        assert!(filters.iter().all(|filter| filter.for_link(LinkType::ETHERNET).is_native()));
        let code = code_bytes();
        done.store(true, Ordering::Relaxed);
        assert!(code >= 200 * 4096, "{code} bytes of code");
        watcher.join().unwrap()
    });
    assert!(looks >= 20);
}

#[test]
fn code_is_given_back_with_the_last_user_of_its_filter() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let make = |n: u32| filter(n).make_native().unwrap();
    for n in 0..300 {
        make(n);
    }
    let (mappings, resident) = (maps().len(), resident_kib());
    for n in 0..2000 {
        make(n);
    }
    let (mappings_after, resident_after) = (maps().len(), resident_kib());
    assert!(mappings_after <= mappings + 20, "{mappings} mappings before, {mappings_after} after");
    assert!(resident_after <= resident + 4096, "{resident} KiB before, {resident_after} after");
    let kept: Vec<Filter> = (0..100).map(filter).collect();
    for filter in &kept {
        filter.make_native().unwrap();
    }
    let predicate = kept[0].for_link(LinkType::ETHERNET);
    let code = code_bytes();
    drop(kept);
    assert!(code_bytes() * 50 <= code, "{} of {code} bytes of code are left", code_bytes());
    assert!(predicate.is_native(), "a predicate keeps its code");
    let data = [0u8; 60];
    assert!(!predicate.matches(&scope_packet::Headers::parse(LinkType::ETHERNET, &data), &data, 60));
}
