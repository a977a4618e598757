//! Misspelt words, and the word of the language that each was meant to be.

use super::edits::{before, begins_operand, ends_operand};
use super::{REPAIRS, protocols, repaired_by, replaced, trust};
use crate::words::{self, Kind, Token};

/// Guesses that are tried; where there are more, none is.
const TRIES_MAX: usize = 24;
/// Words that are often meant.
const COMMON: [&str; 34] = [
    "host",
    "port",
    "tcp",
    "udp",
    "net",
    "src",
    "dst",
    "ip",
    "ip6",
    "arp",
    "icmp",
    "icmp6",
    "and",
    "or",
    "not",
    "vlan",
    "ether",
    "proto",
    "portrange",
    "gateway",
    "broadcast",
    "multicast",
    "greater",
    "less",
    "len",
    "mpls",
    "sctp",
    "igmp",
    "rarp",
    "mask",
    "link",
    "pppoes",
    "vrrp",
    "esp",
];

/// The text with the nearest words in the place of those that are none; `None` where several such texts may
/// be meant.
pub(super) fn corrected(text: &str, found: &[Token]) -> Option<String> {
    let choices: Vec<Vec<&str>> = (0..found.len()).map(|at| near(found, at)).collect();
    let combinations = choices.iter().fold(1usize, |all, near| all.saturating_mul(near.len().max(1)));
    if combinations > TRIES_MAX || choices.iter().all(Vec::is_empty) {
        return None;
    }
    // A word that is corrected to another one is not an expression of its own, too.
    let repairs = REPAIRS.split_last().map_or(&[][..], |(_, repairs)| repairs);
    let mut guesses: Vec<String> = Vec::new();
    for mut number in 0..combinations {
        let mut picks = Vec::new();
        for near in &choices {
            picks.push((!near.is_empty()).then(|| near[number % near.len()].to_string()));
            number /= near.len().max(1);
        }
        let guess = replaced(text, found, |at| picks[at].clone());
        guesses.extend(trust::proposed(&guess).or_else(|| repaired_by(&guess, repairs)));
    }
    guesses.sort_unstable();
    guesses.dedup();
    if guesses.len() == 1 { guesses.pop() } else { None }
}

/// The words that a token may have been meant to be: those with two letters swapped, else those with few
/// other letters.
fn near(found: &[Token], at: usize) -> Vec<&'static str> {
    let token = &found[at];
    let is_filled = matches!(before(found, at), "$" | "{");
    if token.kind != Kind::Name
        || is_filled
        || token.text.contains(['.', '\\'])
        || protocols::is_name(token.text)
    {
        return Vec::new();
    }
    let word = token.text.to_ascii_lowercase();
    let is_constant = word.contains('-');
    let is_operand = begins_operand(found, at) && ends_operand(found, at + 1); // it may be a protocol's name
    let known: Vec<&str> =
        if is_constant { words::CONSTANTS.split_ascii_whitespace().collect() } else { COMMON.to_vec() };
    let swapped: Vec<&str> =
        known.iter().copied().filter(|known| *known == word || is_swapped(known, &word)).collect();
    let most = match word.len() {
        _ if is_constant => 1,
        _ if is_operand => 0,
        0..=3 => 0,
        4 => 1,
        _ => 2,
    };
    if swapped.is_empty() && most > 0 {
        known.into_iter().filter(|known| distance(known, &word) <= most).collect()
    } else {
        swapped
    }
}

/// Whether one word is the other with two neighbouring letters swapped.
fn is_swapped(a: &str, b: &str) -> bool {
    let swapped = |at: usize| {
        let mut letters = a.as_bytes().to_vec();
        letters.swap(at, at + 1);
        letters == b.as_bytes()
    };
    a.len() == b.len() && (1..a.len()).any(|at| swapped(at - 1))
}

/// Letters to insert, delete, exchange, or swap with the next one, to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, far) | (far, 0) => far,
                _ => {
                    let exchanged = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let best = exchanged.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}
