//! `wirescope token`: tokens for doors to the network, and whose which client certificate is: made, listed and revoked, in
//! their file and by nobody else.

use crate::args::{TokenAddArgs, TokenVerb};
use crate::{NoResult, told};
use jiff::tz::TimeZone;
use scope_api::Role;
use scope_api::identity::{FILTER_BYTES_MAX, NAME_BYTES_MAX, is_name};
use scope_events::now_ns;
use scope_fault::{Fault, Subject};
use scope_filter::{Filter, VlanRule};
use scope_packet::LinkType;
use scope_serve::last_use;
use scope_serve::tokens::{Fingerprint, hex};
use scope_serve::{NewToken, Token, TokenFile, fingerprint_of_pem};
use scope_spelling::moment::Here;
use scope_spelling::printable::json_line;
use scope_spelling::time::iso;
use scope_spelling::values::parse_duration_ns;
use serde_json::{Value, json};
use std::path::Path;

/// So long a token is good at most, ns: 200 years, which still fit behind now.
const EXPIRES_NS_MAX: i64 = 200 * 365 * 86_400 * 1_000_000_000;

/// Does what was asked for.
pub fn token(what: &TokenVerb) -> u8 {
    told(match what {
        TokenVerb::Add(args) => add(args),
        TokenVerb::List { tokens, json } => list(tokens, *json).map_err(refused),
        TokenVerb::Revoke { name, tokens } => revoke(name, tokens).map_err(refused),
    })
}

fn refused(fault: Fault) -> NoResult {
    NoResult::Refused(vec![fault])
}

fn add(args: &TokenAddArgs) -> Result<String, NoResult> {
    let mut faults = Vec::new();
    let role = Role::of(&args.role);
    if role.is_none() {
        let words: Vec<&str> = Role::ALL.iter().map(|role| role.word()).collect();
        let fault = Fault::of("role").value(&args.role, "is no role");
        faults.push(fault.remedy(format!("write one of: {}", words.join(", "))));
    }
    for (key, text) in [("name", Some(&args.name)), ("instance", args.instance.as_ref())] {
        if let Some(text) = text.filter(|text| !is_name(text)) {
            let fault = Fault::of(key).with_value(text).cause(format!("{text:?} can't be a name"));
            let signs = "letters, digits, '.', '_', '-' and '@'";
            faults.push(
                fault.remedy(format!("write at most {NAME_BYTES_MAX} {signs}, first a letter or digit")),
            );
        }
    }
    let now_ns = now_ns();
    let expires_ns = args.expires.as_ref().and_then(|text| match expires(text, now_ns) {
        Ok(expires_ns) => Some(expires_ns),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    if let Some(filter) = &args.filter {
        faults.extend(bad_filter(filter));
        if role.is_some_and(|role| role > Role::Analyst) {
            let cause = "who sees only packets of a filter is an analyst at most";
            faults.push(
                Fault::of("role").with_value(&args.role).cause(cause).remedy("write viewer or analyst"),
            );
        }
    }
    let certificate = args.certificate.as_deref().and_then(|path| match certificate(path) {
        Ok(fingerprint) => Some(fingerprint),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    let Some(role) = role.filter(|_| faults.is_empty()) else { return Err(NoResult::Refused(faults)) };
    let (name, filter, instance) = (args.name.clone(), args.filter.clone(), args.instance.clone());
    let new = NewToken { name, role, expires_ns, filter, instance };
    let file = TokenFile::at(&args.tokens).map_err(refused)?;
    let Some(fingerprint) = certificate else {
        let said = file.change(|tokens| tokens.add(new, now_ns)).map_err(refused)?;
        return Ok(format!("{said}\n"));
    };
    file.change(|tokens| tokens.add_certificate(new, fingerprint, now_ns)).map_err(refused)?;
    Ok(format!("{}: {role}, by the certificate with SHA-256 {}\n", args.name, hex(&fingerprint)))
}

fn certificate(path: &Path) -> Result<Fingerprint, Fault> {
    let fault = || Fault::of("certificate").with_value(path.to_string_lossy());
    let text = std::fs::read(path).map_err(|error| fault().error(&error))?;
    fingerprint_of_pem(&text).map_err(|cause| {
        fault().cause(cause).remedy("name the PEM file with the client's certificate, first")
    })
}

/// Whether that is a number of days or hours, whatever its size.
fn is_duration(text: &str) -> bool {
    let unit = text.trim().trim_start_matches(|sign: char| sign.is_ascii_digit());
    unit.len() < text.trim().len() && parse_duration_ns(&format!("1{unit}")).is_ok()
}

/// A time behind now: as a duration from now on, or as a time.
fn expires(text: &str, now_ns: i64) -> Result<i64, Fault> {
    let fault = || Fault::of("expires").with_value(text);
    let too_far = || {
        let remedy = "write e.g. 30d, or omit it: then it stays good until it is revoked";
        fault()
            .cause(format!("'{text}' is more than can be counted: a token is good for 200 years at most"))
            .remedy(remedy)
    };
    let expires_ns = match parse_duration_ns(text) {
        Ok(ns) if ns > EXPIRES_NS_MAX => return Err(too_far()),
        Ok(ns) => now_ns.saturating_add(ns),
        Err(_) if is_duration(text) => return Err(too_far()),
        Err(_) => {
            let here = Here { now_ns, zone: TimeZone::system() };
            let read = here.read(text).map_err(|bad| {
                fault().cause(bad.cause).remedy("write e.g. 30d, or a time such as 2027-11-20T20:31:05Z")
            });
            read?.time_ns
        }
    };
    match expires_ns > now_ns {
        true => Ok(expires_ns),
        false => Err(fault().cause("that is over already").remedy("write e.g. 30d")),
    }
}

fn bad_filter(text: &str) -> Option<Fault> {
    let fault = || Fault::of("filter").with_value(text);
    if text.trim().is_empty() || text.len() > FILTER_BYTES_MAX || text.contains(char::is_control) {
        let cause = format!("it is empty, has more than {FILTER_BYTES_MAX} bytes, or control characters");
        return Some(fault().cause(cause).remedy("write one line in the language of tcpdump"));
    }
    let compiled = Filter::compile(text, VlanRule::default(), &[LinkType::ETHERNET]);
    compiled.err().map(|error| error.fault().of_subject(Subject::setting("filter")))
}

fn list(path: &Path, is_json: bool) -> Result<String, Fault> {
    let tokens = TokenFile::at(path)?.read()?.ok_or_else(|| {
        let fault = Fault::of("tokens").with_value(path.to_string_lossy()).cause("there is no such file");
        fault.remedy("make one: wirescope token add")
    })?;
    let (uses, now_ns) = (last_use::read(path), now_ns());
    let time = |ns: Option<i64>| ns.map(iso);
    let is_over = |token: &Token| token.expires_ns.is_some_and(|expires_ns| expires_ns <= now_ns);
    if is_json {
        let token = |token: &Token| {
            json!({
                "id": token.id, "name": token.name, "role": token.role.word(), "created": iso(token.created_ns),
                "expires": time(token.expires_ns), "expired": is_over(token), "filter": token.filter,
                "instance": token.instance, "kind": kind(token), "certificate": token.certificate(), "last_use": time(uses.get(&token.id).copied()),
            })
        };
        let tokens: Vec<Value> = tokens.all().iter().map(token).collect();
        return Ok(format!("{}\n", json_line(&json!({ "tokens": tokens }).to_string())));
    }
    let line = |token: &Token| {
        let used =
            uses.get(&token.id).map_or("never used".to_string(), |ns| format!("used last {}", iso(*ns)));
        let expires = match token.expires_ns {
            Some(ns) if is_over(token) => format!(", expired {}", iso(ns)),
            Some(ns) => format!(", expires {}", iso(ns)),
            None => String::new(),
        };
        let filter = token.filter.as_ref().map_or(String::new(), |filter| format!(", only '{filter}'"));
        let instance = token.instance.as_ref().map_or(String::new(), |name| format!(", at {name}"));
        let certificate =
            token.certificate().map_or(String::new(), |digits| format!(", certificate SHA-256 {digits}"));
        format!("{}: {}{filter}{instance}{expires}, {used}{certificate}\n", token.name, token.role)
    };
    let lines: String = tokens.all().iter().map(line).collect();
    Ok(if lines.is_empty() { "no tokens\n".to_string() } else { lines })
}

/// By what somebody says who it is.
fn kind(token: &Token) -> &'static str {
    if token.certificate().is_some() { "certificate" } else { "token" }
}

fn revoke(name: &str, path: &Path) -> Result<String, Fault> {
    let file = TokenFile::at(path)?;
    file.change(|tokens| tokens.revoke(name))?;
    Ok(format!("{name}: revoked\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_duration_or_a_time_and_what_is_too_far_is_told() {
        let now_ns = 1_795_206_665_000_000_000;
        assert_eq!(expires("30d", now_ns), Ok(now_ns + 30 * 86_400 * 1_000_000_000));
        assert!(expires("2027-11-20T20:31:05Z", now_ns).is_ok());
        for (text, told) in [
            ("99999999d", "200 years at most"),
            ("99999999999999999999999999h", "200 years at most"),
            ("99999d", "200 years at most"),
            ("soon", "is no time"),
            ("0d", "is over already"),
            ("2020-01-01T00:00:00Z", "is over already"),
        ] {
            let fault = expires(text, now_ns).unwrap_err().to_string();
            assert!(fault.contains(told) && fault.contains("write e.g. 30d"), "{text}: {fault}");
        }
    }
}
