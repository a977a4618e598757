//! Hits that started no dump for want of a place, of a field or of a filter: told when they first come, and with their numbers at the end.

use crate::numbers::{counted, number};
use crate::triggers::Triggers;
use scope_trigger::{HitCounts, Misses};
use std::collections::BTreeMap;

/// Triggers of which details are remembered.
const REMEMBERED_MAX: usize = 1024;

/// What has been told of one trigger, and what is known of it.
#[derive(Default)]
struct Known {
    told: HitCounts,
    misses: Misses,
    template: String,
}

/// What has been told.
#[derive(Default)]
pub(crate) struct Refused {
    triggers: BTreeMap<String, Known>,
}

impl Refused {
    /// What came up for the first time, in words with a remedy. `dumps_max` are the places.
    pub(crate) fn look(&mut self, triggers: &Triggers, dumps_max: usize) -> Vec<String> {
        let mut news = Vec::new();
        for trigger in &triggers.current().triggers {
            let (name, counts) = (&trigger.config().name, trigger.counts());
            if counts.too_many + counts.template_unfilled + counts.filter_uncompiled == 0
                || (self.triggers.len() >= REMEMBERED_MAX && !self.triggers.contains_key(name))
            {
                continue;
            }
            let known = self.triggers.entry(name.clone()).or_default();
            known.misses = trigger.misses();
            known.template = trigger.config().template.as_ref().map_or(String::new(), |template| template.text().to_string());
            let first = |now: u64, told: &mut u64| std::mem::replace(told, now) == 0 && now > 0;
            if first(counts.too_many, &mut known.told.too_many) {
                news.push(format!("trigger {name}: {}", too_many("a hit", dumps_max)));
            }
            if first(counts.template_unfilled, &mut known.told.template_unfilled) {
                news.push(format!("trigger {name}: {}", unfilled("a hit", known)));
            }
            if first(counts.filter_uncompiled, &mut known.told.filter_uncompiled) {
                news.push(format!("trigger {name}: {}", uncompiled("a hit", known)));
            }
        }
        news
    }

    /// The same for the summary: warnings, and what is a broken promise.
    pub(crate) fn end(&self, hits: &[(String, HitCounts)], dumps_max: usize) -> (Vec<String>, Vec<String>) {
        let (mut warnings, mut failures) = (Vec::new(), Vec::new());
        let nothing = Known::default();
        for (name, counts) in hits {
            let known = self.triggers.get(name).unwrap_or(&nothing);
            let so_many = |hits: u64| counted(hits, "hit");
            if counts.template_unfilled > 0 {
                let mut warning = format!("trigger {name}: {}", unfilled(&so_many(counts.template_unfilled), known));
                if counts.rationed > 0 {
                    warning += &format!(
                        " ({} of them were not evaluated: too many in a second made no filter)",
                        number(counts.rationed)
                    );
                }
                warnings.push(warning);
            }
            if counts.filter_uncompiled > 0 {
                warnings.push(format!("trigger {name}: {}", uncompiled(&so_many(counts.filter_uncompiled), known)));
            }
            if counts.too_many > 0 {
                failures.push(format!("trigger {name}: {}", too_many(&so_many(counts.too_many), dumps_max)));
            }
            if counts.no_space > 0 {
                failures.push(format!("trigger {name}: {} started no dump: there was no space for it", so_many(counts.no_space)));
            }
        }
        (warnings, failures)
    }
}

fn too_many(hits: &str, dumps_max: usize) -> String {
    let open = if dumps_max == 1 { "1 dump was".to_string() } else { format!("{dumps_max} dumps were") };
    format!(
        "{hits} started no dump: {open} open, the most at once; allow more with --dumps-max {}, or have fewer with a shorter --after or a longer --holdoff",
        dumps_max.saturating_mul(4)
    )
}

fn unfilled(hits: &str, known: &Known) -> String {
    let field = match known.misses.unfilled {
        None | Some("") => "what the template needs".to_string(),
        Some(name) => name.to_string(),
    };
    format!(
        "{hits} started no dump: the packet has no {field}; state behind '?:' what such hits keep: --dump '{} ?:' keeps everything",
        known.template
    )
}

fn uncompiled(hits: &str, known: &Known) -> String {
    let cause = known.misses.uncompiled.as_deref().unwrap_or("the packet's link type has no such filter");
    format!("{hits} started no dump: {cause}; write a --dump that this link type has, or a trigger of its own for it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hits_have_their_thousands_set_apart() {
        let counts = HitCounts { no_space: 12_345, ..HitCounts::default() };
        let (_, failures) = Refused::default().end(&[("a".into(), counts)], 8);
        assert!(failures[0].starts_with("trigger a: 12,345 hits started no dump"), "{failures:?}");
    }

    #[test]
    fn the_summary_says_the_numbers_again_and_which_of_them_break_a_promise() {
        let counts = HitCounts {
            too_many: 1,
            no_space: 3,
            template_unfilled: 2,
            rationed: 1,
            filter_uncompiled: 4,
            ..HitCounts::default()
        };
        let misses = Misses { unfilled: Some("$srcPort"), uncompiled: Some("no such filter".into()) };
        let known = Known { misses, template: "port $srcPort".into(), ..Known::default() };
        let refused = Refused { triggers: [("a".to_string(), known)].into() };
        let (warnings, failures) = refused.end(&[("a".into(), counts), ("b".into(), HitCounts::default())], 8);
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("trigger a: 2 hits started no dump: the packet has no $srcPort; "), "{warnings:?}");
        assert!(
            warnings[0].contains("--dump 'port $srcPort ?:'") && warnings[1].contains("4 hits started no dump: no such filter")
        );
        assert!(warnings[0].ends_with("(1 of them were not evaluated: too many in a second made no filter)"), "{warnings:?}");
        assert_eq!(failures.len(), 2);
        assert!(failures[0].starts_with("trigger a: 1 hit started no dump: 8 dumps were open"), "{failures:?}");
        assert!(failures[0].contains("--dumps-max 32") && failures[1].contains("3 hits started no dump: there was no space"));
    }
}
