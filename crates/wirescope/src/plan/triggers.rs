//! Triggers as meant: names, filters, templates, which template belongs to which trigger.

use super::faults::{Faults, add};
use super::{Look, duration, scripts};
use crate::args::RunArgs;
use scope_config::{Origin, Own};
use scope_engine::plan::MANUAL;
use scope_fault::{Fault, Setting, Subject, sentence};
use scope_filter::{Filter, Template, VlanRule, is_filter_word};
use scope_flow::when::{WHENS_MAX, When};
use scope_packet::LinkType;
use scope_spelling::figures::counted;
use scope_trigger::level::{LevelCondition, is_level};
use scope_trigger::signal::SignalSet;
use scope_trigger::{Condition, Pattern, Response, ScriptFile, TriggerConfig, is_pattern};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Letters of a trigger's name at most: it becomes part of file names.
const NAME_LEN_MAX: usize = 64;
/// Letters of a template that a fault repeats to say which one it is about.
const SHOWN_LETTERS_MAX: usize = 120;
/// Least time after which a trigger fires by itself, ns.
const AUTO_NS_MIN: i64 = 1_000_000_000;
/// The word for a trigger that doesn't fire by itself.
const OFF: &str = "off";
/// Triggers at most.
const TRIGGERS_MAX: usize = 256;

/// What all triggers of a run have in common, but for those with words of their own, ns.
#[derive(Clone, Copy)]
pub struct Times {
    pub before_ns: i64,
    pub after_ns: i64,
    pub holdoff_ns: i64,
}

/// What the texts of triggers are read with.
#[derive(Clone, Copy)]
pub struct Meant<'a> {
    pub vlan: VlanRule,
    pub link_types: &'a [LinkType],
    pub signals: &'a SignalSet,
}

/// A trigger as typed, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Written<'a> {
    name: Option<&'a str>,
    expression: &'a str,
}

/// Takes `[NAME=]EXPR` apart. Expressions have `=` of their own (`udp[0]=3`): only a legal name that is no
/// word of the filter language, with `=` right behind it and not `==`, is a name. In front of a condition on signals
/// or on several packets any legal name is one. A `=` at the very front is no part of the expression.
fn take_apart(text: &str) -> Written<'_> {
    let unnamed = Written { name: None, expression: text };
    let Some((head, rest)) = text.split_once('=') else { return unnamed };
    if head.is_empty() {
        return Written { name: None, expression: rest };
    }
    match is_name(head)
        && !rest.starts_with('=')
        && (!is_filter_word(head) || is_level(rest) || is_pattern(rest))
    {
        true => Written { name: Some(head), expression: rest },
        false => unnamed,
    }
}

/// Whether a text may be the name of a trigger.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// What a trigger in a configuration file says of itself.
type OwnWords = BTreeMap<&'static str, Own>;

/// The own words of the element at `index` of a list, if it was written as a table.
fn own_words<'a>(args: &'a RunArgs, key: &str, index: usize) -> Option<&'a OwnWords> {
    args.settings.values(key).get(index)?.own.as_ref()
}

/// What selects the packets of a dump.
#[derive(Clone, Debug, Default)]
struct Selector {
    template: Option<Template>,
    script: Option<ScriptFile>,
}

/// A trigger's own windows, where it has some.
fn own_times(name: &str, own: &OwnWords, times: &Times, faults: &mut Faults<'_>) -> Times {
    let mut own_or = |key: &'static str, general: i64| match own.get(key) {
        Some(own) => duration(Fault::about(Subject::trigger(name, Some(key))), key, &own.text, faults),
        None => general,
    };
    Times {
        before_ns: own_or("before", times.before_ns),
        after_ns: own_or("after", times.after_ns),
        holdoff_ns: own_or("holdoff", times.holdoff_ns),
    }
}

/// The word in front of a `=` that would be a name if the filter language didn't have it.
fn word_in_a_names_place(text: &str) -> Option<&str> {
    text.split_once('=').map(|(head, _)| head).filter(|head| is_filter_word(head))
}

/// Every trigger of the command line.
pub fn plan(
    args: &RunArgs,
    times: &Times,
    meant: &Meant<'_>,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Vec<TriggerConfig> {
    let Meant { vlan, link_types, signals } = *meant;
    check_flags(args, faults);
    let general = selectors(args, meant, look, faults);
    let holdoff_key = args
        .holdoff_key
        .as_deref()
        .and_then(|text| holdoff_key(Subject::setting("holdoff-key"), text, faults));
    let auto_of_all = args
        .auto
        .as_deref()
        .filter(|text| *text != OFF)
        .and_then(|text| auto(Fault::of("auto"), text, faults));
    let mut triggers: Vec<TriggerConfig> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let nothing = OwnWords::new();
    for (index, text) in args.trigger.iter().enumerate() {
        faults.look_at_trigger(Some(index));
        let own = own_words(args, "trigger", index);
        let written = match own {
            Some(own) => Written { name: own.get("name").map(|own| own.text.as_str()), expression: text },
            None => take_apart(text),
        };
        let name = written.name.map_or_else(|| format!("trigger{}", index + 1), str::to_string);
        check_name(&name, &names, faults);
        names.push(name.clone());
        let word = |key: &str| Subject::trigger(&name, Some(key));
        // Of a table each word has its line.
        let of_filter = if own.is_some() { word("expr") } else { Subject::trigger(&name, None) };
        let script = own.and_then(|own| own.get("script"));
        let condition = if let Some(script) = script {
            let of = if args.settings.values("trigger")[index].origin == Origin::Flag {
                Subject::Setting {
                    key: "trigger-script".to_string(),
                    element: Some(script.text.clone()),
                    word: None,
                }
            } else {
                word("script")
            };
            scripts::read(of, &script.text, args, look, faults).map(Condition::Script)
        } else if is_level(written.expression) {
            let level = LevelCondition::parse(written.expression, signals);
            level
                .map(|level| Condition::Level(Arc::new(level)))
                .map_err(|fault| faults.add(fault.of_subject(of_filter)))
                .ok()
        } else if is_pattern(written.expression) {
            let pattern = Pattern::parse(written.expression, vlan, link_types);
            pattern
                .map(|pattern| Condition::Pattern(Arc::new(pattern)))
                .map_err(|error| faults.add(error.fault().of_subject(of_filter)))
                .ok()
        } else {
            filter(of_filter, text, written.expression, vlan, link_types, faults).map(Condition::Filter)
        };
        let general = if general.len() == 1 { general.first() } else { general.get(index) };
        let own = own.unwrap_or(&nothing);
        let times = own_times(&name, own, times, faults);
        let selector = match (own.get("dump"), own.get("dump-script")) {
            (Some(own), _) => {
                let template = template(word("dump"), &own.text, vlan, link_types, faults);
                Selector { template, script: None }
            }
            (None, Some(own)) => {
                let script = scripts::read(word("dump-script"), &own.text, args, look, faults);
                Selector { template: None, script }
            }
            (None, None) => general.cloned().unwrap_or_default(),
        };
        let holdoff_key = match own.get("holdoff-key") {
            Some(own) => self::holdoff_key(word("holdoff-key"), &own.text, faults),
            None => holdoff_key.clone(),
        };
        let when = match (own.get("when"), args.when.get(index)) {
            (Some(own), _) => when(word("when"), &own.text, condition.as_ref(), faults),
            (None, Some(text)) => {
                let of =
                    Subject::Setting { key: "when".to_string(), element: Some(text.clone()), word: None };
                when(of, text, condition.as_ref(), faults)
            }
            (None, None) => None,
        };
        let auto_ns = match (own.get("auto"), &args.auto) {
            (Some(own), _) if own.text == OFF => None,
            (Some(own), _) => auto(Fault::about(word("auto")), &own.text, faults),
            (None, Some(_)) => auto_of_all,
            (None, None) => None,
        };
        let Some(condition) = condition else { continue };
        triggers.push(TriggerConfig {
            condition,
            when,
            response: Response {
                template: selector.template,
                script: selector.script,
                before_ns: times.before_ns,
                after_ns: times.after_ns,
                vlan,
            },
            holdoff_ns: times.holdoff_ns,
            holdoff_key,
            single: own.get("single").map_or(args.single, |own| own.text == "true"),
            auto_ns,
            name,
        });
    }
    faults.look_at_trigger(None);
    let asking = triggers.iter().filter(|trigger| trigger.when.is_some()).count();
    if asking > WHENS_MAX {
        let fault = Fault::of("when").cause(format!("{asking} triggers have one"));
        faults.add(fault.remedy(format!("at most {WHENS_MAX} can")));
    }
    triggers
}

/// What has to hold for the flow of a packet that a trigger's filter matches.
fn when(of: Subject, text: &str, condition: Option<&Condition>, faults: &mut Faults<'_>) -> Option<When> {
    let fault = match When::parse(text) {
        Ok(when) if condition.is_none_or(|condition| condition.filter().is_some()) => return Some(when),
        Ok(_) => {
            let kind = condition.map_or("hand", Condition::kind);
            let cause = format!("it asks the flow of a packet, and this trigger's condition is a {kind}");
            Fault::about(of).with_value(text).cause(cause).remedy("give the trigger a filter, or omit it")
        }
        Err(fault) => fault.of_subject(of),
    };
    faults.add(fault);
    None
}

/// What selects the packets of dumps: templates and scripts, in the order given.
fn selectors(args: &RunArgs, meant: &Meant<'_>, look: Look<'_>, faults: &mut Faults<'_>) -> Vec<Selector> {
    let Meant { vlan, link_types, .. } = *meant;
    let of = |key: &str, text: &str| {
        let element = Some(text.chars().take(SHOWN_LETTERS_MAX).collect());
        Subject::Setting { key: key.to_string(), element, word: None }
    };
    let mut selectors = Vec::new();
    for (index, text) in args.dump.iter().enumerate() {
        let script = own_words(args, "dump", index).and_then(|own| own.get("script"));
        selectors.push(match script {
            Some(own) => {
                let script = scripts::read(of("dump-script", &own.text), &own.text, args, look, faults);
                Selector { template: None, script }
            }
            None => Selector {
                template: template(of("dump", text), text, vlan, link_types, faults),
                script: None,
            },
        });
    }
    for file in &args.dump_script {
        let script = scripts::read(of("dump-script", file), file, args, look, faults);
        selectors.push(Selector { template: None, script });
    }
    selectors
}

/// Flags that say nothing without each other.
fn check_flags(args: &RunArgs, faults: &mut Faults<'_>) {
    let (triggers, dumps) = (args.trigger.len(), args.dump.len() + args.dump_script.len());
    if triggers > TRIGGERS_MAX {
        let fault = Fault::of("trigger").cause(format!("{triggers} triggers are too many"));
        faults.add(fault.remedy(format!("at most {TRIGGERS_MAX}, joined by 'or'")));
    }
    if triggers > 0 && args.when.len() > triggers {
        let (whens, triggers) =
            (counted(args.when.len() as u64, "condition"), counted(triggers as u64, "trigger"));
        let fault = Fault::of("when").cause(format!("{whens} on flows for {triggers}"));
        faults.add(fault.remedy("the n-th belongs to the n-th trigger: omit what has none"));
    }
    if triggers == 0 {
        let given = [
            ("when", !args.when.is_empty()),
            ("dump", !args.dump.is_empty()),
            ("dump-script", !args.dump_script.is_empty()),
            ("single", args.single),
            ("auto", args.auto.is_some()),
            ("holdoff-key", args.holdoff_key.is_some()),
        ];
        for (key, _) in given.iter().filter(|(_, given)| *given) {
            let fault = Fault::of(*key).cause("there is no trigger for it");
            faults.add(fault.remedy(sentence![add(), Setting::of("trigger").example("EXPR")]));
        }
    } else if dumps > 1 && dumps != triggers {
        let fault =
            Fault::of("dump").cause(format!("{dumps} templates for {}", counted(triggers as u64, "trigger")));
        let each = Setting::of("trigger");
        faults.add(fault.remedy(sentence!["give one for all, or one for each ", each, " in the same order"]));
    }
}

fn check_name(name: &str, earlier: &[String], faults: &mut Faults<'_>) {
    if !is_name(name) {
        let fault = Fault::about(Subject::trigger(name, None)).with_value(name);
        faults.add(fault.cause("that is not a valid name").remedy("write letters, digits, - and _"));
    }
    let word =
        || Subject::Setting { key: "trigger".to_string(), element: None, word: Some("name".to_string()) };
    if earlier.iter().any(|other| other == name) {
        let fault = Fault::about(word()).value(name, "is given twice");
        faults.add(fault.remedy("choose another for one of them"));
    }
    if name == MANUAL {
        let fault = Fault::about(word()).value(name, "is the name of dumps by hand");
        faults.add(fault.remedy("choose another"));
    }
    if name.len() > NAME_LEN_MAX {
        let fault = Fault::about(word()).value(name, "is too long");
        faults.add(fault.remedy(format!("at most {NAME_LEN_MAX} letters")));
    }
}

fn filter(
    of: Subject,
    text: &str,
    expression: &str,
    vlan: VlanRule,
    link_types: &[LinkType],
    faults: &mut Faults<'_>,
) -> Option<Filter> {
    match Filter::compile(expression, vlan, link_types) {
        Ok(filter) => Some(filter),
        Err(error) => {
            let mut fault = error.fault().of_subject(of);
            if let Some(word) = word_in_a_names_place(text) {
                let hint = format!(
                    "'{word}' is a word of the filter language and can't be a trigger's name; choose another"
                );
                fault = fault.hint(hint);
            }
            // Hits of such link types fill no address.
            if error.is_for_links_without_filters() {
                let everything = Setting::of("dump").example("''");
                fault =
                    fault.hint(sentence![everything, " keeps all of a window, where hits have no addresses"]);
            }
            faults.add(fault);
            None
        }
    }
}

fn template(
    of: Subject,
    text: &str,
    vlan: VlanRule,
    link_types: &[LinkType],
    faults: &mut Faults<'_>,
) -> Option<Template> {
    let parsed = Template::parse(text).map_err(|error| error.fault());
    let checked = parsed.and_then(|template| match template.check(vlan, link_types) {
        Ok(()) => Ok(template),
        Err(error) => Err(error.fault()),
    });
    checked.map_err(|fault| faults.add(fault.with_value(text).of_subject(of))).ok()
}

/// After how long a trigger fires by itself.
fn auto(fault: Fault, text: &str, faults: &mut Faults<'_>) -> Option<i64> {
    match duration(fault.clone(), "auto", text, faults) {
        ns if ns >= AUTO_NS_MIN => Some(ns),
        _ => {
            if text.parse::<f64>() == Ok(0.0) || faults.is_empty() {
                faults.add(fault.value(text, "is too often").remedy("write at least 1s"));
            }
            None
        }
    }
}

fn holdoff_key(of: Subject, text: &str, faults: &mut Faults<'_>) -> Option<Template> {
    Template::parse(text).map_err(|error| faults.add(error.fault().of_subject(of))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser;

    fn planned(arguments: &[&str]) -> Result<Vec<TriggerConfig>, Vec<String>> {
        let cli = Cli::parse_from([&["wirescope", "run"], arguments].concat());
        let Verb::Run(args) = cli.command else { panic!("not run") };
        let mut faults = Faults::new(&args.settings);
        let times = Times { before_ns: 1, after_ns: 2, holdoff_ns: 3 };
        let link_types = &[LinkType::ETHERNET];
        let meant = Meant { vlan: VlanRule::Transparent, link_types, signals: &SignalSet::default() };
        let triggers = plan(&args, &times, &meant, Look::Nowhere, &mut faults);
        let said: Vec<String> = faults.into_vec().iter().map(ToString::to_string).collect();
        if said.is_empty() { Ok(triggers) } else { Err(said) }
    }

    #[test]
    fn a_name_is_told_from_an_expression() {
        let check =
            |text, name, expression| assert_eq!(take_apart(text), Written { name, expression }, "{text}");
        check("udp port 60000", None, "udp port 60000");
        check("hit=udp port 60000", Some("hit"), "udp port 60000");
        check("my-hit_2=tcp[13] = 2", Some("my-hit_2"), "tcp[13] = 2");
        check("tcp[13] = 2", None, "tcp[13] = 2");
        check("udp[0]=3", None, "udp[0]=3");
        check("len=5", None, "len=5");
        check("a == 5", None, "a == 5");
        check("a==5", None, "a==5");
        check("a =udp", None, "a =udp");
        check(" a=udp", None, " a=udp");
        check("=hit=3", None, "hit=3");
        check("=udp", None, "udp");
        check("7=udp", Some("7"), "udp");
        check("h\u{e9}=udp", None, "h\u{e9}=udp");
        check("a=", Some("a"), "");
        check("l1=signal(pps) > 1/s", Some("l1"), "signal(pps) > 1/s");
        check("", None, "");
    }

    #[test]
    fn unnamed_triggers_are_numbered_by_their_place() {
        let names =
            |arguments: &[&str]| planned(arguments).unwrap().into_iter().map(|t| t.name).collect::<Vec<_>>();
        assert_eq!(names(&["--trigger", "udp", "--trigger", "tcp"]), ["trigger1", "trigger2"]);
        assert_eq!(names(&["--trigger", "a=udp", "--trigger", "tcp"]), ["a", "trigger2"]);
    }

    #[test]
    fn the_nth_template_belongs_to_the_nth_trigger_and_a_single_one_to_all() {
        let templates = |arguments: &[&str]| {
            let of = |trigger: TriggerConfig| {
                trigger.response.template.map(|template| template.text().to_string())
            };
            planned(&[&["--trigger", "udp", "--trigger", "tcp"], arguments].concat())
                .unwrap()
                .into_iter()
                .map(of)
                .collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_string());
        assert_eq!(templates(&[]), [None, None]);
        assert_eq!(templates(&["--dump", "ip"]), [some("ip"), some("ip")]);
        assert_eq!(templates(&["--dump", ""]), [some(""), some("")]);
        assert_eq!(templates(&["--dump", "ip", "--dump", "host $srcIP"]), [some("ip"), some("host $srcIP")]);
    }

    #[test]
    fn what_can_t_be_meant_is_refused() {
        let check = |arguments: &[&str], words: &[&str]| {
            let said = planned(arguments).expect_err(words[0]).join("\n");
            words
                .iter()
                .for_each(|word| assert!(said.contains(word), "{arguments:?}: no '{word}' in {said}"));
        };
        check(&["--trigger", "manual=udp"], &["'manual' is the name of dumps by hand"]);
        check(&["--trigger", "a=udp", "--trigger", "a=tcp"], &["'a' is given twice"]);
        check(&["--trigger", "trigger2=udp", "--trigger", "tcp"], &["'trigger2' is given twice"]);
        check(&["--trigger", "udp", "--dump", "ip", "--dump", "tcp"], &["2 templates for 1 trigger"]);
        check(
            &["--dump", "ip", "--single", "--holdoff-key", "$srcIP"],
            &["--dump: ", "--single: ", "--holdoff-key: "],
        );
        check(&["--trigger", "tcp=udp"], &["'tcp' is a word of the filter language"]);
        check(
            &["--trigger", "udp prot", "--dump", "host $sorcIP"],
            &["trigger 'trigger1'", "--dump 'host $sorcIP'", "$srcIP"],
        );
        check(&["--trigger", "udp", "--holdoff-key", "$nix"], &["--holdoff-key: ", "$nix"]);
        check(&["--trigger", &format!("{}=udp", "a".repeat(65))], &["too long"]);
    }
}
