//! Which interfaces a source means: one by its name, or all whose names match `eth*`.

/// A name, in which each `*` stands for any letters, none included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// As typed.
    pub fn new(text: &str) -> Pattern {
        Pattern(text.to_string())
    }

    /// As typed.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it may mean several interfaces.
    pub fn is_glob(&self) -> bool {
        self.0.contains('*')
    }

    /// Whether it means the interface named `name`.
    pub fn matches(&self, name: &str) -> bool {
        meet(self.0.as_bytes(), name.as_bytes(), false)
    }

    /// Whether there can be a name that both mean.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        meet(self.0.as_bytes(), other.0.as_bytes(), true)
    }
}

/// Whether some text is meant by both `a` and `b`; in `b` a `*` is one only if `b_is_glob`. Row `at` of the
/// table says with which beginnings of `b` the first `at` letters of `a` can meet.
fn meet(a: &[u8], b: &[u8], b_is_glob: bool) -> bool {
    let any_b = |letter: u8| b_is_glob && letter == b'*';
    let mut row = vec![false; b.len() + 1];
    row[0] = true;
    for (at, &letter) in b.iter().enumerate() {
        row[at + 1] = row[at] && any_b(letter);
    }
    for &of_a in a {
        let above = row.clone();
        row[0] = above[0] && of_a == b'*';
        for (at, &of_b) in b.iter().enumerate() {
            row[at + 1] = match (of_a == b'*', any_b(of_b)) {
                (false, false) => above[at] && of_a == of_b,
                _ => above[at + 1] || row[at],
            };
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_letters() {
        let check = |pattern, name, expected| {
            assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern} {name}")
        };
        check("eth0", "eth0", true);
        check("eth0", "eth01", false);
        check("eth*", "eth", true);
        check("eth*", "eth0.5", true);
        check("eth*", "veth0", false);
        check("*", "lo", true);
        check("*", "", true);
        check("e*h*0", "eth10", true);
        check("e*h*0", "eth1", false);
        check("eth0", "eth*", false);
    }

    #[test]
    fn patterns_overlap_where_one_name_is_meant_by_both() {
        let check = |a, b, expected| {
            assert_eq!(Pattern::new(a).overlaps(&Pattern::new(b)), expected, "{a} {b}");
            assert_eq!(Pattern::new(b).overlaps(&Pattern::new(a)), expected, "{b} {a}");
        };
        check("eth0", "eth0", true);
        check("eth0", "eth1", false);
        check("eth*", "eth1", true);
        check("eth*", "wlan*", false);
        check("e*1", "*h1", true);
        check("e*1", "*h2", false);
        check("*", "lo", true);
        check("a*b", "a*c", false);
    }
}
