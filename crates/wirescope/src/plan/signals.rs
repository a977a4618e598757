//! Signals as meant: names, measures, what they are measured of.

use super::faults::Faults;
use crate::args::RunArgs;
use scope_filter::VlanRule;
use scope_packet::LinkType;
use scope_trigger::signal::{SignalSet, Written};

/// Every signal: those built in alone where some have faults.
pub fn plan(args: &RunArgs, vlan: VlanRule, link_types: &[LinkType], faults: &mut Faults<'_>) -> SignalSet {
    let values = args.settings.values("signal");
    let written =
        |(index, text): (usize, &String)| match values.get(index).and_then(|value| value.own.as_ref()) {
            Some(own) => {
                let word = |key: &str| own.get(key).map(|own| own.text.clone());
                Written { name: word("name"), measure: word("measure"), expr: text.clone() }
            }
            None => Written::take_apart(text),
        };
    let written: Vec<Written> = args.signal.iter().enumerate().map(written).collect();
    SignalSet::read(&written, vlan, link_types).unwrap_or_else(|found| {
        for (index, fault) in found {
            faults.add_of_element("signal", index, fault);
        }
        SignalSet::default()
    })
}
