//! Doors for fuzz targets.

use crate::pattern::{Pattern, is_pattern};
use scope_filter::VlanRule;

/// Longer texts cost libpcap more time than they bring.
const TEXT_BYTES_MAX: usize = 300;

/// Text of a count or a sequence: it is read or refused, with a place inside of it; what is read is known as a
/// pattern.
///
/// # Panics
/// Where that isn't so.
pub fn pattern(data: &[u8]) {
    let Some(text) = std::str::from_utf8(data).ok().filter(|text| text.len() <= TEXT_BYTES_MAX) else {
        return;
    };
    let known = is_pattern(text);
    match Pattern::parse(text, VlanRule::Transparent, &[]) {
        Ok(pattern) => {
            assert!(known, "{text}");
            assert!(!pattern.filters().is_empty() && pattern.span_ns() > 0, "{text}");
            assert!(pattern.key().is_none_or(|key| key.has_names() && key.fallback().is_none()), "{text}");
        }
        Err(error) => {
            assert!(error.at() <= text.len(), "{text}: {}", error.at());
            assert!(!error.to_string().is_empty());
        }
    }
}
