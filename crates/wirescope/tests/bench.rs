//! `wirescope bench`: refusals before anything begins, and a table with every size.

use assert_cmd::Command;

fn bench(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("wirescope").unwrap().arg("bench").args(arguments).assert()
}

#[test]
fn a_ring_that_says_nothing_or_cannot_be_had_is_refused_with_place_cause_and_remedy() {
    let check = |text: &str, words: &str| {
        let output = bench(&["--ring", text]).code(2).get_output().clone();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("--ring") && said.contains(words), "{text}: {said}");
        assert!(output.stdout.is_empty());
    };
    check("1MiB", "is too small");
    check("lots", "write e.g. --ring 1GiB");
    check("1000TiB", "write less");
}

#[test]
fn every_size_has_its_rows_and_the_table_says_what_limits_each() {
    let output = bench(&["--ring", "64MiB"]).code(0).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    for size in ["64 B", "128 B", "512 B", "1518 B", "IMIX"] {
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{size} "))).collect();
        assert!(!rows.is_empty(), "{size}\n{text}");
        assert!(
            rows.iter().all(|row| row.contains("bit/s") && (row.contains("core") || row.contains("memory"))),
            "{text}"
        );
    }
    assert!(
        text.contains("memory takes ") && text.contains("A full 10 Gbit/s line of 64 B packets"),
        "{text}"
    );
}
