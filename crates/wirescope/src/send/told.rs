//! What `wirescope send` says at its end, in words and as JSON.

use super::Done;
use super::asked::Asked;
use crate::words::{bit_rate, counted, number, size, span};
use scope_source::sending::Refusal;
use scope_spelling::printable::json_line;
use serde_json::{Map, Value, json};

/// Whether all of the source was sent; of one without an end, all that was due when it was stopped.
pub fn kept_promises(asked: &Asked, done: &Done, is_stopped: bool) -> bool {
    let refused = done.counts.refused_all();
    let is_whole = match asked.is_endless && is_stopped {
        true => refused == done.counts.refused(Refusal::Ended),
        false => refused == 0 && done.is_whole,
    };
    is_whole && done.faults.is_empty() && done.unreadable == 0
}

/// One JSON object on a line.
pub fn json(asked: &Asked, done: &Done) -> String {
    let refused: Map<String, Value> =
        done.counts.refusals().map(|(why, packets)| (why.name().to_string(), packets.into())).collect();
    let object = json!({
        "source": asked.spec,
        "to": asked.outlet.name,
        "queues": asked.queues,
        "loops": asked.loops,
        "read": done.counts.read,
        "sent": done.counts.sent,
        "bytes": done.counts.bytes,
        "padded": done.counts.padded,
        "cut": done.counts.cut,
        "refused": refused,
        "unreadable": done.unreadable,
        "seconds": done.seconds,
    });
    format!("{}\n", json_line(&object.to_string()))
}

/// Some lines.
pub fn words(asked: &Asked, done: &Done) -> String {
    let counts = &done.counts;
    let (sent, to) = (number(counts.sent), &asked.outlet.name);
    let took = span((done.seconds * 1e9) as i64);
    let per_s = |amount: u64| if done.seconds > 0.0 { amount as f64 / done.seconds } else { 0.0 };
    let speed = match counts.sent {
        2.. if done.seconds > 0.0 => {
            format!(
                ": {} packets/s, {}",
                number(per_s(counts.sent) as u64),
                bit_rate(per_s(counts.bytes * 8))
            )
        }
        _ => String::new(),
    };
    let read = counted(counts.read, "packet");
    let mut lines = vec![
        format!("read      {read} = {sent} sent + {} refused", number(counts.refused_all())),
        format!("sent      {} to {to} in {took}{speed}", size(counts.bytes)),
    ];
    if counts.padded > 0 {
        let padded = counted(counts.padded, "packet");
        lines.push(format!("padded    {padded} with zeros in the place of bytes that were not captured"));
    }
    if counts.cut > 0 {
        lines.push(format!(
            "truncated {} without bytes that were not captured",
            counted(counts.cut, "packet")
        ));
    }
    if done.unreadable > 0 {
        let unreadable = counted(done.unreadable, "packet");
        lines.push(format!("damaged   {unreadable} of the source could not be read"));
    }
    let reasons: Vec<String> =
        done.counts.refusals().map(|(why, packets)| reason(asked, why, packets)).collect();
    let none = "nothing".to_string();
    lines.push(format!("refused   {}", if reasons.is_empty() { none } else { reasons.join(", ") }));
    lines.join("\n") + "\n"
}

/// A reason in words.
fn reason(asked: &Asked, why: Refusal, packets: u64) -> String {
    let to = &asked.outlet.name;
    let words = match why {
        Refusal::TooLong => {
            format!("longer than the {} bytes that {to} takes", number(asked.outlet.bytes_max()))
        }
        Refusal::TooShort => "shorter than a link header".to_string(),
        Refusal::LinkType => format!("of another link type than {to}"),
        Refusal::NoBuffer => "the system had no room".to_string(),
        Refusal::Down => format!("{to} was down"),
        Refusal::Error => "the system refused them".to_string(),
        Refusal::Ended => "stopped before their turn".to_string(),
    };
    format!("{} {} ({words})", number(packets), why.name())
}
