//! Hits that started no dump for want of a place, of a field or of a filter: told when they first come, and
//! with their numbers at the end.

use crate::few_pins;
use crate::space;
use crate::triggers::Triggers;
use scope_dump::Limits;
use scope_spelling::figures::{counted, number};
use scope_trigger::DUMPS_MAX;
use scope_trigger::{HitCounts, Misses};
use std::collections::BTreeMap;

/// Triggers of which details are remembered.
const REMEMBERED_MAX: usize = 1024;

/// What has been reported of one trigger, and what is known of it.
#[derive(Default)]
struct Known {
    told: HitCounts,
    misses: Misses,
    template: String,
}

/// What bounds a run's dumps, for the remedies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// Places for dumps at once.
    pub dumps_max: usize,
    /// Segments that may be held for them.
    pub pins: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// What dumps may take on disk.
    pub limits: Option<Limits>,
    /// The smaller budget of another run holds.
    pub budget_is_another_s: bool,
}

/// What has been reported.
#[derive(Default)]
pub(crate) struct Refused {
    triggers: BTreeMap<String, Known>,
}

impl Refused {
    /// What came up for the first time, in words with a remedy.
    pub(crate) fn look(&mut self, triggers: &Triggers, bounds: &Bounds) -> Vec<String> {
        let mut news = Vec::new();
        for trigger in triggers.current().all() {
            let (name, counts) = (&trigger.config().name, trigger.counts());
            if counts.too_many + counts.template_unfilled + counts.filter_uncompiled == 0
                || (self.triggers.len() >= REMEMBERED_MAX && !self.triggers.contains_key(name))
            {
                continue;
            }
            let known = self.triggers.entry(name.clone()).or_default();
            known.misses = trigger.misses();
            known.template = trigger
                .config()
                .response
                .template
                .as_ref()
                .map_or(String::new(), |template| template.text().to_string());
            let first = |now: u64, told: &mut u64| std::mem::replace(told, now) == 0 && now > 0;
            if first(counts.too_many, &mut known.told.too_many) {
                news.push(format!("trigger {name}: {}", too_many("a hit", bounds)));
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
    pub(crate) fn end(&self, hits: &[(String, HitCounts)], bounds: &Bounds) -> (Vec<String>, Vec<String>) {
        let (mut warnings, mut failures) = (Vec::new(), Vec::new());
        let nothing = Known::default();
        for (name, counts) in hits {
            let known = self.triggers.get(name).unwrap_or(&nothing);
            let so_many = |hits: u64| counted(hits, "hit");
            if counts.template_unfilled > 0 {
                let mut warning =
                    format!("trigger {name}: {}", unfilled(&so_many(counts.template_unfilled), known));
                if counts.rationed > 0 {
                    warning += &format!(
                        " ({} of them were not evaluated: too many in a second made no filter)",
                        number(counts.rationed)
                    );
                }
                warnings.push(warning);
            }
            if counts.filter_uncompiled > 0 {
                warnings.push(format!(
                    "trigger {name}: {}",
                    uncompiled(&so_many(counts.filter_uncompiled), known)
                ));
            }
            if counts.too_many > 0 {
                failures.push(format!("trigger {name}: {}", too_many(&so_many(counts.too_many), bounds)));
            }
            if counts.no_space > 0 {
                let (hits, limits) = (so_many(counts.no_space), bounds.limits.unwrap_or_default());
                let remedy = space::remedy(&limits, bounds.budget_is_another_s);
                failures.push(format!(
                    "trigger {name}: {hits} started no dump: there was no space for it; {remedy}"
                ));
            }
        }
        (warnings, failures)
    }
}

fn too_many(hits: &str, bounds: &Bounds) -> String {
    let places = bounds.dumps_max as u64;
    let open = format!("{} {}", counted(places, "dump"), if places == 1 { "was" } else { "were" });
    let more = places.saturating_mul(4).min(DUMPS_MAX);
    let allow = match few_pins::ring_for(more, bounds.pins, bounds.segment_bytes) {
        _ if more <= places => String::new(),
        None => format!("allow more with --dumps-max {more}, or "),
        Some(ring) => format!(
            "allow more with --dumps-max {more} and --ring {ring}, of which half can be held for dumps, or "
        ),
    };
    format!(
        "{hits} started no dump: {open} open, the most at once; {allow}have fewer with a shorter --after or \
         a longer --holdoff"
    )
}

fn unfilled(hits: &str, known: &Known) -> String {
    let field = match known.misses.unfilled {
        None | Some("") => "what the template needs".to_string(),
        Some(name) => name.to_string(),
    };
    format!(
        "{hits} started no dump: the packet has no {field}; write after '?:' what such hits keep: --dump \
         '{} ?:' keeps everything",
        known.template
    )
}

fn uncompiled(hits: &str, known: &Known) -> String {
    let cause = known.misses.uncompiled.as_deref().unwrap_or("the packet's link type has no such filter");
    format!(
        "{hits} started no dump: {cause}; write a --dump that works on this link type, or a separate \
        trigger for it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hits_have_their_thousands_set_apart() {
        let counts = HitCounts { no_space: 12_345, ..HitCounts::default() };
        let (_, failures) = Refused::default().end(&[("a".into(), counts)], &Bounds::default());
        assert!(failures[0].starts_with("trigger a: 12,345 hits started no dump"), "{failures:?}");
        let open = |dumps_max| too_many("a hit", &Bounds { dumps_max, ..Bounds::default() });
        assert!(open(1024).starts_with("a hit started no dump: 1,024 dumps were open"), "{}", open(1024));
        assert!(open(1).starts_with("a hit started no dump: 1 dump was open"), "{}", open(1));
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
        let limits = Some(Limits { bytes_max: Some(5 << 20), ..Limits::default() });
        let bounds =
            Bounds { dumps_max: 8, pins: 64, segment_bytes: 2 << 20, limits, budget_is_another_s: false };
        let (warnings, failures) =
            refused.end(&[("a".into(), counts), ("b".into(), HitCounts::default())], &bounds);
        assert_eq!(warnings.len(), 2);
        assert!(
            warnings[0].starts_with("trigger a: 2 hits started no dump: the packet has no $srcPort; "),
            "{warnings:?}"
        );
        assert!(
            warnings[0].contains("--dump 'port $srcPort ?:'")
                && warnings[1].contains("4 hits started no dump: no such filter")
        );
        assert!(
            warnings[0].ends_with("(1 of them were not evaluated: too many in a second made no filter)"),
            "{warnings:?}"
        );
        assert_eq!(failures.len(), 2);
        assert!(
            failures[0].starts_with("trigger a: 1 hit started no dump: 8 dumps were open"),
            "{failures:?}"
        );
        assert!(failures[0].contains("--dumps-max 32, or"), "{failures:?}");
        let no_space = "3 hits started no dump: there was no space for it; move finished dumps away, raise \
            --dump-budget, or add --dump-rotate";
        assert!(failures[1].ends_with(no_space), "{failures:?}");
        // More places than the ring has segments to hold for: both are named, so that none of the two sends
        // back to the other.
        let said = too_many("a hit", &Bounds { pins: 31, ..bounds.clone() });
        assert!(
            said.contains("--dumps-max 32 and --ring 128MiB, of which half can be held for dumps, or"),
            "{said}"
        );
        let said = too_many("a hit", &Bounds { dumps_max: 4096, ..bounds });
        assert!(said.contains("the most at once; have fewer"), "{said}");
    }
}
