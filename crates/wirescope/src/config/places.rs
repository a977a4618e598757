//! Where a fault of the plan stands in the configuration file.

use scope_config::{Origin, Settings, Value};

/// A fault as it is told: of a value that came from the file `FILE:LINE: KEY: CAUSE`, of others as it is.
pub fn placed(settings: &Settings, fault: String) -> String {
    let found = flag(settings, &fault)
        .or_else(|| trigger(settings, &fault))
        .or_else(|| source(settings, &fault))
        .or_else(|| ring(settings, &fault));
    found.map_or(fault.clone(), |(place, from)| format!("{place}{}", &fault[from..]))
}

/// `--KEY: ...`, `--KEY 'VALUE': ...` and the short flags that faults are named by; the place, and where the rest of the fault begins.
fn flag(settings: &Settings, fault: &str) -> Option<(String, usize)> {
    let (place, rest) = match fault.strip_prefix("--") {
        Some(rest) => (rest.split([':', ' ']).next()?, 2),
        None => [("-s:", "snap-len"), ("-w:", "write")]
            .into_iter()
            .find(|(short, _)| fault.starts_with(short))
            .map(|(_, key)| (key, 0))?,
    };
    let values = settings.values(place);
    let named = values.iter().find(|value| fault.contains(&format!("'{}'", value.text.to_string_lossy())));
    let value = named.or(values.first())?;
    Some((settings.place(value)?, rest))
}

/// `trigger 'NAME': ...`, perhaps followed by one of its own words, `KEY: ...`.
fn trigger(settings: &Settings, fault: &str) -> Option<(String, usize)> {
    let (name, rest) = fault.strip_prefix("trigger '")?.split_once("': ")?;
    let (_, value) = settings.values("trigger").iter().enumerate().find(|(index, value)| trigger_name(*index, value) == name)?;
    let own = value.own.as_ref().and_then(|own| own.get(rest.split(':').next()?));
    match (own, value.origin) {
        (Some(own), _) => Some((settings.at(own.line), 0)),
        (None, Origin::File(_)) => Some((settings.place(value)?, 0)),
        _ => None,
    }
}

/// As the plan names it, as far as a fault can tell.
fn trigger_name(index: usize, value: &Value) -> String {
    let own = value.own.as_ref().and_then(|own| own.get("name")).map(|own| own.text.clone());
    let text = value.text.to_string_lossy();
    let named = || crate::plan::triggers::name_of(&text).map(str::to_string);
    own.or_else(named).unwrap_or_else(|| format!("trigger{}", index + 1))
}

/// `source 'SPEC': ...` and `sources 'SPEC' and ...`.
fn source(settings: &Settings, fault: &str) -> Option<(String, usize)> {
    let rest = fault.strip_prefix("source '").or_else(|| fault.strip_prefix("sources '"))?;
    let is_named = |value: &&Value| rest.strip_prefix(&*value.text.to_string_lossy()).is_some_and(|rest| rest.starts_with('\''));
    let value = settings.values("source").iter().find(is_named)?;
    Some((settings.place(value)?, 0))
}

/// `ring of ...`, which the ring itself says when it is made.
fn ring(settings: &Settings, fault: &str) -> Option<(String, usize)> {
    let place = settings.place(settings.values("ring").first().filter(|_| fault.starts_with("ring of "))?)?;
    Some((place + "ring: ", 0))
}
