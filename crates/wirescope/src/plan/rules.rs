//! Rules as meant: tables of a configuration file, below the group or the source that they belong to.

use super::elements;
use super::sets::Sets;
use scope_config::{Word, tables};
use scope_fault::Fault;
use scope_filter::{Filter, VlanRule};
use scope_group::rules::{ACTIONS_MAX, Action, NAMES_MAX, RULES_MAX, Rule, RuleSet, SPELLINGS, Test};
use scope_group::sets::{Set, SetKind};
use scope_packet::LinkType;
use scope_share::message::is_name;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

/// What a rule may say.
const WORDS: [&str; 8] = ["name", "when", "unless", "src-in", "dst-in", "host-in", "port-in", "do"];
/// Whose rules they are.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// Those of the group with this name.
    Group(&'a str),
    /// Those of the source that is written so.
    Source(&'a str),
}

impl Owner<'_> {
    fn of_rules(self) -> Fault {
        self.of_word("rule")
    }

    /// Of the rule at this place, from 0.
    fn of_rule(self, at: usize, name: &str) -> Fault {
        self.of_word(&called(at, name)).of_table(at)
    }

    fn of_word(self, word: &str) -> Fault {
        let (key, element) = match self {
            Owner::Group(name) => ("group", name),
            Owner::Source(spec) => ("source", spec),
        };
        elements::of(key, element, word)
    }
}

/// What the rule at this place, from 0, is called: by its name, else by its number.
fn called(at: usize, name: &str) -> String {
    if name.is_empty() { format!("rule '{}'", at + 1) } else { format!("rule '{name}'") }
}

/// The rules of a group or a source, from the text of their tables.
///
/// # Errors
/// All faults.
pub fn read(
    owner: Owner<'_>,
    text: &str,
    sets: &Sets,
    links: (VlanRule, &[LinkType]),
) -> Result<RuleSet, Vec<Fault>> {
    let tables = tables(text).map_err(|(at, word)| {
        let fault = owner.of_rule(at, "").cause(format!("'{word}' is neither a text nor a list of texts"));
        vec![fault.remedy("write a text in quotes, or a list of them")]
    })?;
    let mut faults = Vec::new();
    let mut rules: Vec<Rule> = Vec::new();
    let mut known = text.to_string();
    let name = |table| self::text(table, "name");
    for (at, table) in tables.iter().enumerate() {
        let is_other = |other| name(other).is_some_and(|other| Some(other) == name(table));
        if tables[..at].iter().any(is_other) {
            let fault = owner.of_rule(at, name(table).unwrap_or_default()).cause("two rules have this name");
            faults.push(fault.remedy("choose another one"));
        }
        match rule((owner, at), table, sets, links, &mut known) {
            Ok(rule) => rules.push(rule),
            Err(found) => faults.extend(found),
        }
    }
    if tables.len() > RULES_MAX {
        let cause = format!("there are {} rules, and {RULES_MAX} are the most", tables.len());
        faults.push(owner.of_rules().cause(cause).remedy("omit some"));
    }
    let names = |of: fn(&Action) -> Option<&String>| {
        let named = rules.iter().flat_map(|rule| &rule.actions).filter_map(of);
        named.collect::<BTreeSet<_>>().len()
    };
    let classes = names(|action| if let Action::Class(name) = action { Some(name) } else { None });
    let targets = names(|action| if let Action::Copy(name) = action { Some(name) } else { None });
    if classes.max(targets) > NAMES_MAX {
        let cause = format!(
            "they give {classes} classes and copy to {targets} groups, {NAMES_MAX} of each are the most"
        );
        faults.push(owner.of_rules().cause(cause).remedy("omit some"));
    }
    if faults.is_empty() { Ok(RuleSet::new(rules, known)) } else { Err(faults) }
}

/// A copy that a rule makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyAction {
    /// Place of the rule, from 0.
    at: usize,
    rule: String,
    /// The group that it goes to.
    pub target: String,
}

impl CopyAction {
    /// A fault of it, in a rule of this group.
    pub fn fault(&self, group: &str) -> Fault {
        Owner::Group(group).of_rule(self.at, &self.rule)
    }
}

/// All copies that rules make, also those of rules that have faults, from the text of their tables.
pub fn copies(text: &str) -> Vec<CopyAction> {
    let tables = tables(text).unwrap_or_default();
    let of_rule = |(at, table): (usize, &BTreeMap<String, Word>)| {
        let rule = self::text(table, "name").unwrap_or_default().to_string();
        let actions = words(table).iter().filter_map(|word| word.parse().ok()).collect::<Vec<_>>();
        actions.into_iter().filter_map(move |action| match action {
            Action::Copy(target) => Some(CopyAction { at, rule: rule.clone(), target }),
            _ => None,
        })
    };
    tables.iter().enumerate().flat_map(of_rule).collect()
}

/// What a rule says in a text.
fn text<'a>(table: &'a BTreeMap<String, Word>, word: &str) -> Option<&'a str> {
    match table.get(word) {
        Some(Word::Text(text)) => Some(text),
        _ => None,
    }
}

/// What a rule does.
fn words(table: &BTreeMap<String, Word>) -> &[String] {
    match table.get("do") {
        Some(Word::List(words)) => words,
        Some(Word::Text(word)) => std::slice::from_ref(word),
        None => &[],
    }
}

/// One rule; `known` gets what its sets are.
fn rule(
    (owner, at): (Owner<'_>, usize),
    table: &BTreeMap<String, Word>,
    sets: &Sets,
    (vlan, link_types): (VlanRule, &[LinkType]),
    known: &mut String,
) -> Result<Rule, Vec<Fault>> {
    let text = |word: &str| text(table, word);
    let name = text("name").unwrap_or_default().to_string();
    let fault = || owner.of_rule(at, &name);
    let mut faults = Vec::new();
    if !is_name(&name) {
        faults.push(fault().cause("it has no name").remedy("add name = \"...\""));
    }
    for word in table.keys().filter(|word| !WORDS.contains(&word.as_str())) {
        let words = WORDS.join(", ");
        faults.push(
            fault().cause(format!("there is no '{word}' in a rule")).remedy(format!("there are: {words}")),
        );
    }
    let is_list = |word: &str| word != "do" && matches!(table.get(word), Some(Word::List(_)));
    for word in WORDS.into_iter().filter(|word| is_list(word)) {
        faults.push(fault().cause(format!("'{word}' is a list")).remedy("write one text, in quotes"));
    }
    if table.contains_key("when") && table.contains_key("unless") {
        faults.push(fault().cause("there are both 'when' and 'unless' in it").remedy("omit one of them"));
    }
    let mut filter = |word: &str| {
        let compiled = text(word).map(|text| Filter::compile(text, vlan, link_types)).transpose();
        compiled.unwrap_or_else(|error| {
            let of_word = owner.of_word(&format!("{}: {word}", called(at, &name)));
            faults.push(error.fault().of_subject(of_word.subject.clone()).of_table(at));
            None
        })
    };
    let (when, unless) = (filter("when"), filter("unless"));
    let mut set = |word: &str, kind: SetKind| -> Option<Arc<Set>> {
        let name = text(word)?;
        match sets.get(name) {
            Some(found) if found.set.kind() == kind => {
                let _ = write!(known, " {name}:{:x}", found.version); // writing to a text never fails
                return Some(found.set.clone());
            }
            Some(_) => {
                let wanted = if kind == SetKind::Hosts { "hosts" } else { "ports" };
                let cause = format!("{word}: '{name}' is no set of {wanted}");
                faults.push(fault().cause(cause).remedy(format!("name a set with kind = \"{wanted}\"")));
            }
            None => {
                let cause = format!("{word}: there is no set '{name}'");
                let remedy = format!("make it: [[set]] with name = \"{name}\", or --set");
                faults.push(fault().cause(cause).remedy(remedy));
            }
        }
        None
    };
    let test = Test {
        when,
        unless,
        source_in: set("src-in", SetKind::Hosts),
        destination_in: set("dst-in", SetKind::Hosts),
        host_in: set("host-in", SetKind::Hosts),
        port_in: set("port-in", SetKind::Ports),
    };
    let words = words(table);
    if words.is_empty() {
        faults.push(fault().cause("it does nothing").remedy("add do = [\"drop\"], or the like"));
    }
    let mut actions = Vec::new();
    for word in words {
        match word.parse::<Action>() {
            Ok(action) if action.is_of_groups() && matches!(owner, Owner::Source(_)) => {
                let fault = fault().cause(format!("'{word}' is what only a rule of a group can do"));
                faults.push(fault.remedy("move it to a [[group.rule]]"));
            }
            Ok(action) => actions.push(action),
            Err(bad) => faults.push(fault().cause(bad.to_string()).remedy(format!("there are: {SPELLINGS}"))),
        }
    }
    if actions.len() > ACTIONS_MAX {
        let cause = format!("it does {} things, and {ACTIONS_MAX} are the most", actions.len());
        faults.push(fault().cause(cause).remedy("make two rules of it"));
    }
    if faults.is_empty() { Ok(Rule { name, test, actions }) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let read = read(Owner::Group("g"), text, &Sets::default(), (VlanRule::default(), &[]));
        read.err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_of_sources_can_t_do_what_only_groups_can() {
        let text = "[{name = \"a\", do = [\"mark 1\", \"class x\", \"steer ip\", \"copy y\", \"keep 64\", \"sample 1/2\"]}]";
        let read = read(Owner::Source("synth:"), text, &Sets::default(), (VlanRule::default(), &[]));
        let words: Vec<String> = read.unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), 4, "{words:#?}");
        assert!(words[0].contains("'mark 1' is what only a rule of a group can do"), "{words:#?}");
    }

    #[test]
    fn copies_are_known_also_where_their_rules_have_faults() {
        let made = |text: &str| {
            let fault = |copy: CopyAction| {
                let fault = copy.fault("g");
                (copy.target, fault.to_string(), fault.table)
            };
            copies(text).into_iter().map(fault).collect::<Vec<_>>()
        };
        let text = "[{name = \"a\", when = \"prot 6\", do = [\"burn\", \"copy x\"]}, {do = \"copy y\"}, {name = \"c\", do = 1}]";
        let expected = [("x", "--group 'g': rule 'a': ", Some(0)), ("y", "--group 'g': rule '2': ", Some(1))];
        let expected = expected.map(|(target, fault, at)| (target.to_string(), fault.to_string(), at));
        assert_eq!(made(text), expected);
        assert_eq!(made("no tables"), []);
    }

    #[test]
    fn all_that_is_wrong_with_rules_is_told_at_once() {
        let check = |text: &str, expected: &[&str]| {
            let found = faults(text);
            assert_eq!(found.len(), expected.len(), "{text}: {found:#?}");
            for (fault, expected) in found.iter().zip(expected) {
                assert!(fault.contains(expected), "{text}: {fault}");
            }
        };
        check("[{name = \"a\", when = \"udp\", do = [\"drop\"]}, {name = \"b\", do = \"stop\"}]", &[]);
        check("[{name = \"a\", do = \"stop\"}, {name = \"a\", do = \"stop\"}]", &["two rules"]);
        let twice = "[{name = \"a\", do = \"burn\"}, {name = \"a\", when = \"prot 6\", do = \"copy b\"}]";
        check(twice, &["nothing that a rule can do", "rule 'a': two rules", "rule 'a': when: filter"]);
        check("[{}]", &["it has no name", "it does nothing"]);
        check(
            "[{when = \"prot 6\", do = \"drop\"}]",
            &["rule '1': it has no name", "rule '1': when: filter"],
        );
        check(
            "[{}, {}]",
            &["rule '1': it has no name", "it does nothing", "rule '2': it has no name", "it does nothing"],
        );
        check(
            "[{name = \"a\", if = \"x\", when = \"prot 6\", unless = \"udp\", src-in = \"p\", do = [\"burn\", \"drop\"]}]",
            &[
                "there is no 'if'",
                "both 'when' and 'unless'",
                "rule",
                "there is no set 'p'",
                "nothing that a rule can do",
            ],
        );
        check("[{name = \"a\", when = [\"udp\"], do = \"drop\"}]", &["'when' is a list"]);
        check("[{name = \"a\", do = true}]", &["neither a text"]);
    }
}
