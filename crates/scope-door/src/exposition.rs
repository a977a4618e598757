//! Text for Prometheus in both of its forms: its own (0.0.4), which everything reads, and OpenMetrics (1.0.0).
//!
//! ```text
//! # HELP wirescope_dumps_total Dumps that are finished.      OpenMetrics: # HELP wirescope_dumps Dumps ...
//! # TYPE wirescope_dumps_total counter                                    # TYPE wirescope_dumps counter
//! wirescope_dumps_total 7                                                 wirescope_dumps_total 7
//!                                                                         # EOF
//! ```
//! Samples are the same in both.

use crate::histogram::Counted;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use std::fmt::Write;

/// How the text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Prometheus' own.
    Prometheus,
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";
/// The one version of OpenMetrics that is written.
const VERSION: &str = "1.0.0";

impl Form {
    /// What a client would rather have: OpenMetrics only where it says so.
    pub(crate) fn wanted(headers: &HeaderMap) -> Form {
        let texts = headers.get_all(ACCEPT).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
        let (mut open, mut text) = (0.0f64, 0.0f64);
        for range in texts.flat_map(|text| text.split(',')) {
            let mut words = range.split(';').map(str::trim);
            let kind = words.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut version) = (1.0, None);
            for (key, value) in words.filter_map(|word| word.split_once('=')) {
                match key.trim().to_ascii_lowercase().as_str() {
                    "q" => weight = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            match kind.as_str() {
                OPEN_METRICS if version.is_none_or(|version| version == VERSION) => open = open.max(weight),
                "text/plain" | "text/*" => text = text.max(weight),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Form::OpenMetrics } else { Form::Prometheus }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only rises; its name ends in `_total`.
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Labels of a sample.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Text that grows family by family.
pub(crate) struct Exposition {
    form: Form,
    text: String,
}

impl Exposition {
    pub(crate) fn new(form: Form) -> Exposition {
        Exposition { form, text: String::new() }
    }

    /// Begins a family; its samples follow.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let family = match self.form {
            Form::Prometheus => name,
            Form::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {}", kind.word());
        let unit = ["seconds", "bytes"].into_iter().find(|unit| family.ends_with(&format!("_{unit}")));
        if let (Form::OpenMetrics, Some(unit)) = (self.form, unit) {
            let _ = writeln!(self.text, "# UNIT {family} {unit}");
        }
    }

    pub(crate) fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.text.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let between = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{between}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    /// A family with one sample.
    pub(crate) fn one(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A family that is one histogram.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, counted: &Counted) {
        self.family(name, Kind::Histogram, help);
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, count) in counted.bounds.iter().zip(&counted.buckets) {
            below += count;
            self.sample(&bucket, &[("le", &format!("{bound:?}"))], below as f64);
        }
        self.sample(&bucket, &[("le", "+Inf")], counted.count() as f64);
        self.sample(&format!("{name}_sum"), &[], counted.sum);
        self.sample(&format!("{name}_count"), &[], counted.count() as f64);
    }

    /// All of it.
    pub(crate) fn end(mut self) -> String {
        if self.form == Form::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    fn written(form: Form) -> String {
        let mut out = Exposition::new(form);
        out.family("a_bytes_total", Kind::Counter, "Help.");
        out.sample("a_bytes_total", &[("x", "a\"b\\c\nd"), ("y", "")], 1.5);
        out.one("b", Kind::Gauge, "More.", 7.0);
        let histogram = Histogram::new(&[0.5, 10.0]);
        for value in [0.25, 0.5, 2.0, 64.0] {
            histogram.observe(value);
        }
        out.histogram("c_seconds", "Most.", &histogram.counted());
        out.end()
    }

    #[test]
    fn labels_are_escaped_families_come_once_and_buckets_add_up() {
        let samples = "c_seconds_bucket{le=\"0.5\"} 2\nc_seconds_bucket{le=\"10.0\"} 3\n\
                       c_seconds_bucket{le=\"+Inf\"} 4\nc_seconds_sum 66.75\nc_seconds_count 4\n";
        assert_eq!(
            written(Form::Prometheus),
            format!(
                "# HELP a_bytes_total Help.\n# TYPE a_bytes_total counter\n\
                 a_bytes_total{{x=\"a\\\"b\\\\c\\nd\",y=\"\"}} 1.5\n# HELP b More.\n# TYPE b gauge\nb 7\n\
                 # HELP c_seconds Most.\n# TYPE c_seconds histogram\n{samples}"
            )
        );
        assert_eq!(
            written(Form::OpenMetrics),
            format!(
                "# HELP a_bytes Help.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                 a_bytes_total{{x=\"a\\\"b\\\\c\\nd\",y=\"\"}} 1.5\n# HELP b More.\n# TYPE b gauge\nb 7\n\
                 # HELP c_seconds Most.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n{samples}# EOF\n"
            )
        );
    }

    #[test]
    fn open_metrics_is_for_those_who_would_rather_have_it() {
        let check = |accept: &[&'static str], expected: Form| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(Form::wanted(&headers), expected, "{accept:?}");
        };
        check(&[], Form::Prometheus);
        check(&["*/*"], Form::Prometheus);
        check(&["text/plain;version=0.0.4"], Form::Prometheus);
        check(&["application/openmetrics-text"], Form::OpenMetrics);
        check(&["application/openmetrics-text; version=\"1.0.0\""], Form::OpenMetrics);
        check(&["application/openmetrics-text; version=0.0.1, text/plain;q=0.5"], Form::Prometheus);
        check(&["text/plain", "application/openmetrics-text;q=0.5"], Form::Prometheus);
        check(&["application/openmetrics-text;q=0"], Form::Prometheus);
        // As Prometheus asks.
        check(
            &[
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
               text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ],
            Form::OpenMetrics,
        );
    }
}
