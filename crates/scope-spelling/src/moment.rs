//! Times as people give them to whoever searches: with a zone or without, of today, before now.
//!
//! ```text
//! 2026-11-20T20:31:05.123Z          with a zone: Z, +01:00; a space may stand for the T
//! 2026-11-20 20:31                  without one: in the zone of here; no seconds are 0 seconds
//! 20:31:05                          the latest such time that is past
//! now  -5m                          now, and a duration before now
//! @1795206665.5                     seconds since 1970; without the @ from nine digits on
//! ```
//! Where clocks are set back a time of day comes twice, where they are set forward some never come: both are
//! refused, and an offset says which one is meant. What "here" and "now" are, the caller knows.

use crate::values::{BadValue, parse_duration_ns, parse_time_ns};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

/// A number of fewer digits is no time without an `@`: it may be meant as a year or a date.
const EPOCH_DIGITS_MIN: usize = 9;
const NO_TIME: &str = "is no time";
const FORMS: &str =
    "write it like 2026-11-20T20:31:05Z, '2026-11-20 20:31', 20:31, -5m, now or @1795206665.5";
const TOO_FINE: &str = "is finer than 1 ns";
const NINE_DIGITS: &str = "write at most nine digits behind the point";

/// Where and when a time is given.
#[derive(Clone, Debug)]
pub struct Here {
    /// Now, ns since the epoch.
    pub now_ns: i64,
    /// The zone of times that name none.
    pub zone: TimeZone,
}

/// A time, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Ns since the epoch.
    pub time_ns: i64,
    /// It named no zone: it was taken in that of here.
    pub is_local: bool,
}

/// Why a text is no time, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; {remedy}")]
pub struct BadMoment {
    /// The text.
    pub value: String,
    /// What is wrong, in words that name it.
    pub cause: String,
    /// What to write.
    pub remedy: String,
}

impl BadMoment {
    fn new(bad: BadValue, remedy: impl Into<String>) -> BadMoment {
        BadMoment { value: bad.value, cause: bad.cause, remedy: remedy.into() }
    }

    /// Of a text, what it is.
    fn of(text: &str, is: &str, remedy: impl Into<String>) -> BadMoment {
        BadMoment::new(BadValue::new(text, is), remedy)
    }

    fn no_time(text: &str) -> BadMoment {
        BadMoment::of(text, NO_TIME, FORMS)
    }

    fn outside(text: &str) -> BadMoment {
        BadMoment::of(text, "lies outside 1970 to 2262", "write a time in between")
    }
}

impl Here {
    /// Its zone's name, as `Europe/Berlin`; where it has none its offset now, as `+01`.
    pub fn zone_name(&self) -> String {
        let now = Timestamp::from_nanosecond(self.now_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
        match self.zone.iana_name() {
            Some(name) => name.to_string(),
            None if self.zone.is_unknown() => "UTC".to_string(),
            None => self.zone.to_offset(now).to_string(),
        }
    }

    /// Reads a time.
    ///
    /// # Errors
    /// It is in none of the forms, comes twice or never here, or lies outside 1970 to 2262.
    pub fn read(&self, text: &str) -> Result<Moment, BadMoment> {
        let text = text.trim();
        let at = |time_ns| Moment { time_ns, is_local: false };
        if text.eq_ignore_ascii_case("now") {
            return Ok(at(self.now_ns));
        }
        if let Some(duration) = text.strip_prefix('-') {
            let bad = |bad| BadMoment { value: text.to_string(), ..BadMoment::new(bad, "write e.g. -15m") };
            let ns = parse_duration_ns(duration).map_err(bad)?;
            let past = self.now_ns.checked_sub(ns).filter(|&past| past >= 0);
            return past.map(at).ok_or_else(|| BadMoment::outside(text));
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        match text.strip_prefix('@') {
            // Digits and a point: whatever else a time may be has no place behind the mark.
            Some(seconds) if is_number(seconds) => epoch(seconds).map(at),
            Some(_) => Err(BadMoment::no_time(text)),
            None if is_number(text) && digits < EPOCH_DIGITS_MIN => {
                let remedy = format!("for seconds since 1970 write @{text}");
                Err(BadMoment::of(text, "may be seconds, a year or a date", remedy))
            }
            None if is_number(text) => epoch(text).map(at),
            None => self.clock(text),
        }
    }

    /// A time of day, with a date or without.
    fn clock(&self, text: &str) -> Result<Moment, BadMoment> {
        let no_time = || BadMoment::no_time(text);
        let (day, clock) = match text.split_once(['T', 't', ' ']) {
            Some((day, clock)) => (Some(date(day).ok_or_else(no_time)?), clock.trim_start()),
            None => (None, text),
        };
        let (clock, offset) = match clock.find(['Z', 'z', '+', '-']) {
            Some(at) => (clock[..at].trim_end(), Some(offset(&clock[at..]).ok_or_else(no_time)?)),
            None => (clock, None),
        };
        let time = time(clock).map_err(|is| match is {
            TOO_FINE => BadMoment::of(text, is, NINE_DIGITS),
            _ => no_time(),
        })?;
        let zone = offset.map_or_else(|| self.zone.clone(), TimeZone::fixed);
        let time_ns = match day {
            Some(day) => self.instant(text, &zone, day.to_datetime(time))?,
            None => self.latest(text, &zone, time)?,
        };
        Ok(Moment { time_ns, is_local: offset.is_none() })
    }

    /// The latest such time of day that is not in the future.
    fn latest(&self, text: &str, zone: &TimeZone, time: Time) -> Result<i64, BadMoment> {
        let now = Timestamp::from_nanosecond(self.now_ns.into()).map_err(|_| BadMoment::outside(text))?;
        let today = zone.to_datetime(now).date();
        let this = self.instant(text, zone, today.to_datetime(time));
        match this {
            Ok(past) if past <= self.now_ns => Ok(past),
            Err(_) if today.to_datetime(time) <= zone.to_datetime(now) => this,
            _ => {
                let yesterday = today.checked_sub(1.day()).map_err(|_| BadMoment::outside(text))?;
                self.instant(text, zone, yesterday.to_datetime(time))
            }
        }
    }

    /// The one moment at which clocks of a zone show this.
    fn instant(&self, text: &str, zone: &TimeZone, shown: DateTime) -> Result<i64, BadMoment> {
        let moment = zone.to_ambiguous_timestamp(shown);
        let name = || self.zone_name();
        match moment.offset() {
            AmbiguousOffset::Unambiguous { .. } => {}
            AmbiguousOffset::Fold { before, after } => {
                let is = format!("comes twice on that day in {}", name());
                return Err(BadMoment::of(text, &is, format!("write {shown}{before} or {shown}{after}")));
            }
            AmbiguousOffset::Gap { before, after } => {
                let is = format!("is skipped on that day in {}, where {before} changes to {after}", name());
                return Err(BadMoment::of(text, &is, "write it with an offset"));
            }
        }
        let moment = moment.unambiguous().map_err(|_| BadMoment::outside(text))?;
        i64::try_from(moment.as_nanosecond())
            .ok()
            .filter(|&ns| ns >= 0)
            .ok_or_else(|| BadMoment::outside(text))
    }
}

/// Seconds since 1970.
fn epoch(seconds: &str) -> Result<i64, BadMoment> {
    let finer = seconds.split_once('.').is_some_and(|(_, fraction)| fraction.len() > 9);
    match finer {
        true => Err(BadMoment::of(seconds, TOO_FINE, NINE_DIGITS)),
        false => parse_time_ns(seconds).map_err(|_| BadMoment::outside(seconds)),
    }
}

/// Digits with at most one point.
fn is_number(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && text.bytes().filter(|&byte| byte == b'.').count() < 2
}

/// A field of exactly so many digits.
fn field(text: &str, digits: usize) -> Option<i16> {
    let all = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// `2026-11-20`.
fn date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let (year, month, day) = (field(parts.next()?, 4)?, field(parts.next()?, 2)?, field(parts.next()?, 2)?);
    // Two digits each.
    let date = Date::new(year, month as i8, day as i8).ok();
    date.filter(|_| parts.next().is_none())
}

/// `20:31`, `20:31:05`, `20:31:05.123456789`; else what it is instead.
fn time(text: &str) -> Result<Time, &'static str> {
    let mut parts = text.split(':');
    let mut next = |digits| parts.next().and_then(|part: &str| field(part, digits));
    let (hour, minute) = (next(2).ok_or(NO_TIME)?, next(2).ok_or(NO_TIME)?);
    let (second, fraction) = match parts.next() {
        None => ("00", ""),
        Some(second) => second.split_once('.').unwrap_or((second, "")),
    };
    if fraction.len() > 9 {
        return Err(TOO_FINE);
    }
    let second =
        field(second, 2).filter(|_| parts.next().is_none() && !text.ends_with('.')).ok_or(NO_TIME)?;
    let nanosecond = match fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{fraction:0<9}").parse().map_err(|_| NO_TIME)?,
        false => return Err(NO_TIME),
    };
    // Two digits each.
    Time::new(hour as i8, minute as i8, second as i8, nanosecond).map_err(|_| NO_TIME)
}

/// `Z`, `+01:00`, `-0330`, `+01`.
fn offset(text: &str) -> Option<Offset> {
    if text.eq_ignore_ascii_case("z") {
        return Some(Offset::UTC);
    }
    let (sign, rest) = (if text.starts_with('-') { -1 } else { 1 }, text.get(1..)?);
    let (hours, minutes) = match rest.len() {
        2 => (rest, "00"),
        4 => rest.split_at_checked(2)?,
        _ => rest.split_once(':')?,
    };
    let (hours, minutes) = (i32::from(field(hours, 2)?), i32::from(field(minutes, 2)?));
    let seconds = sign * (hours * 3600 + minutes * 60);
    (hours < 24 && minutes < 60).then(|| Offset::from_seconds(seconds).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::iso;
    use proptest::prelude::*;

    /// 2026-11-20T20:31:05.5Z, where clocks are an hour ahead, in summer two.
    fn here() -> Here {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        Here { now_ns: 1_795_206_665_500_000_000, zone }
    }

    #[test]
    fn each_form_means_what_it_says() {
        let check = |text: &str, expected: &str, is_local: bool| {
            let read = here().read(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((iso(read.time_ns).as_str(), read.is_local), (expected, is_local), "{text}");
        };
        check("2026-11-20T20:31:05.123456789Z", "2026-11-20T20:31:05.123456789Z", false);
        check("2026-11-20t20:31:05z", "2026-11-20T20:31:05.000000000Z", false);
        check("2026-11-20T20:31:05.1+01:00", "2026-11-20T19:31:05.100000000Z", false);
        check("2026-11-20 20:31-0330", "2026-11-21T00:01:00.000000000Z", false);
        check("2026-11-20 20:31 +01", "2026-11-20T19:31:00.000000000Z", false);
        check("2026-11-20 20:31", "2026-11-20T19:31:00.000000000Z", true);
        check(" 2026-07-01T12:00:00 ", "2026-07-01T10:00:00.000000000Z", true);
        check("now", "2026-11-20T20:31:05.500000000Z", false);
        check("-5m", "2026-11-20T20:26:05.500000000Z", false);
        check("-1.5", "2026-11-20T20:31:04.000000000Z", false);
        check("@1795206665.123456789", "2026-11-20T20:31:05.123456789Z", false);
        check("@0", "1970-01-01T00:00:00.000000000Z", false);
        check("1763655000.5", "2025-11-20T16:10:00.500000000Z", false);
    }

    #[test]
    fn a_time_of_day_is_the_latest_that_is_past() {
        let check = |text: &str, expected: &str| {
            let read = here().read(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(iso(read.time_ns), format!("{expected}.000000000Z"), "{text}");
        };
        // It is 21:31:05.5 here.
        check("21:31", "2026-11-20T20:31:00");
        check("21:31:05", "2026-11-20T20:31:05");
        check("21:31:06", "2026-11-19T20:31:06");
        check("00:00", "2026-11-19T23:00:00");
        check("23:59", "2026-11-19T22:59:00");
        check("20:31Z", "2026-11-20T20:31:00");
        check("20:32Z", "2026-11-19T20:32:00");
    }

    #[test]
    fn a_time_that_comes_twice_or_never_is_refused_with_what_is_meant() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let check = |text: &str, now: &str, part: &str| {
            let here = Here { now_ns: parse_time_ns(now).unwrap(), zone: zone.clone() };
            let cause = here.read(text).expect_err(text).to_string();
            assert!(cause.contains(part), "{cause}");
        };
        let later = "2026-12-01T00:00:00Z";
        check("2026-10-25 02:30", later, "write 2026-10-25T02:30:00+02 or 2026-10-25T02:30:00+01");
        check("2026-03-29 02:30", later, "is skipped on that day in +01, where +01 changes to +02");
        check("02:30", "2026-10-25T09:00:00Z", "comes twice");
        check("02:30", "2026-03-29T09:00:00Z", "is skipped");
        let before = Here { now_ns: parse_time_ns("2026-10-24T23:00:00Z").unwrap(), zone };
        let yesterday = before.read("02:30").unwrap().time_ns;
        assert_eq!(iso(yesterday), "2026-10-24T00:30:00.000000000Z", "the doubtful one is to come");
        assert_eq!(
            iso(before.read("2026-10-25T02:30:00+01").unwrap().time_ns),
            "2026-10-25T01:30:00.000000000Z"
        );
    }

    #[test]
    fn what_has_no_meaning_is_refused_with_the_reason() {
        let check = |text: &str, part: &str| {
            let bad = here().read(text).expect_err(text).to_string();
            assert!(bad.contains(part), "{bad}");
        };
        for text in [
            "",
            "soon",
            "2026-11-20",
            "20:31:",
            "20:3",
            "20:31:05.",
            "20:31:05:06",
            "24:00",
            "23:59:60",
            "2026-11-20T20Z",
            "2026-13-20T20:31Z",
            "2026-02-30 20:31",
            "26-11-20T20:31Z",
            "2026-11-20T20:31+1",
            "2026-11-20T20:31+25:00",
            "2026-11-20T20:31Zulu",
            "2026-11-20T20:31:05.1x",
            "2026-11-20T+0:31",
            "@",
            "@-5",
            "@5m",
            "@2026-11-20T20:31Z",
            "1.2.3",
        ] {
            check(text, "is no time");
        }
        check("20261120", "may be seconds, a year or a date; for seconds since 1970 write @20261120");
        check("2026-11-20T20:31:05.1234567891Z", "finer than 1 ns");
        check("@1.1234567891", "finer than 1 ns");
        check("-5 years", "; write e.g. -15m");
        check("-", "not a number");
        check("-100000d", "outside 1970");
        check("1969-12-31T23:59Z", "outside 1970");
        check("1970-01-01 00:30", "outside 1970");
        check("2300-01-01T00:00Z", "outside 1970");
        check("@9223372037", "outside 1970");
    }

    #[test]
    fn a_zone_has_a_name_or_an_offset() {
        assert_eq!(here().zone_name(), "+01");
        assert_eq!(Here { zone: TimeZone::UTC, ..here() }.zone_name(), "UTC");
        assert_eq!(Here { zone: TimeZone::unknown(), ..here() }.zone_name(), "UTC");
    }

    proptest! {
        #[test]
        fn every_time_is_read_back_as_it_was_written(time_ns in 0..=i64::MAX) {
            let text = iso(time_ns);
            let moment = Moment { time_ns, is_local: false };
            prop_assert_eq!(here().read(&text), Ok(moment));
            prop_assert_eq!(here().read(&text.replace('T', " ")), Ok(moment));
            let seconds = format!("@{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000);
            prop_assert_eq!(here().read(&seconds), Ok(moment));
        }

        #[test]
        fn junk_never_panics(text in "\\PC{0,40}", numeric in "[-+@0-9.smhdnow:TZ ]{0,30}") {
            for text in [text, numeric] {
                let _ = here().read(&text);
            }
        }
    }
}
