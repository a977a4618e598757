//! A dump's file, whole or a range of it, as it is read by a thread that may wait.

use crate::body::{Body, refusal};
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE,
    RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use scope_api::Problem;
use scope_packet::LinkType;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use tokio::sync::mpsc::channel;

/// Bytes that are read at once, and pieces that wait for a slow client.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 4;

/// A head that says the link type of a file is no longer than this: its section has a comment.
const HEAD_BYTES: usize = 64 << 10;
/// First bytes of a pcapng file, and of a pcap file with nanoseconds.
const SECTION: u32 = 0x0A0D_0D0A;
const PCAP: u32 = 0xA1B2_3C4D;

/// The link type of a dump's file: of its first interface, or what its head says. `None`: it has none there.
///
/// # Errors
/// It can't be read.
pub(crate) fn link_type(file: &File) -> io::Result<Option<LinkType>> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    (&*file).rewind()?;
    let number = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let of = |number: u32| Some(LinkType(number as u16));
    Ok(match number(0) {
        // A section, and the interfaces behind it.
        Some(SECTION) => number(4).map(|bytes| bytes as usize).and_then(|at| {
            let is_interface = number(at)? == 1;
            is_interface.then(|| number(at + 8).and_then(of)).flatten()
        }),
        Some(PCAP) => number(20).and_then(of),
        _ => None,
    })
}

/// What of a file is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// From one byte to behind another.
    Range(u64, u64),
    /// None of it is there.
    Nothing,
}

/// The answer with a file called `name`.
///
/// # Errors
/// It can't be read, or has no such part.
pub(crate) fn answer(file: File, name: &OsStr, headers: &HeaderMap) -> Result<Response<Body>, Problem> {
    let broken = |error: io::Error| Problem::internal("file", error.to_string());
    let facts = file.metadata().map_err(broken)?;
    let tag =
        format!("\"{:x}-{:x}-{:x}\"", facts.ino(), facts.len(), facts.mtime_nsec() ^ facts.mtime() << 30);
    let tag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""));
    let is_known = |key| headers.contains_key(key);
    if is_known(IF_MATCH) && !names(headers, IF_MATCH, &tag, false) {
        let remedy = "ask without If-Match, and take the ETag of the answer";
        let cause = "the file has none of these tags";
        return Err(Problem::new(StatusCode::PRECONDITION_FAILED, "if-match", cause, remedy));
    }
    let mut answer = Response::new(Body::Whole(None));
    answer.headers_mut().insert(ETAG, tag.clone());
    if names(headers, IF_NONE_MATCH, &tag, true) {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(answer);
    }
    let is_same = !is_known(IF_RANGE) || headers.get(IF_RANGE) == Some(&tag);
    // Two such headers are one that can't be meant, and that is none.
    let is_one = headers.get_all(RANGE).iter().count() == 1;
    let range = headers.get(RANGE).filter(|_| is_same && is_one).and_then(|range| range.to_str().ok());
    let (from, to) = match part(range, facts.len()) {
        Part::Whole => (0, facts.len()),
        Part::Range(from, to) => {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = format!("bytes {from}-{}/{}", to - 1, facts.len());
            answer.headers_mut().extend(HeaderValue::from_str(&range).map(|range| (CONTENT_RANGE, range)));
            (from, to)
        }
        Part::Nothing => {
            let cause = format!("the file has {} bytes", facts.len());
            let remedy = "ask for a part of these, or omit Range";
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", cause, remedy);
            let mut refused = refusal(&problem);
            let unsatisfied = HeaderValue::from_str(&format!("bytes */{}", facts.len()));
            refused.headers_mut().extend(unsatisfied.map(|range| (CONTENT_RANGE, range)));
            return Ok(refused);
        }
    };
    let name = name.to_string_lossy().replace(['"', '\\'], "_");
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    answer.headers_mut().extend(disposition.map(|disposition| (CONTENT_DISPOSITION, disposition)));
    answer.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let kind = match name.rsplit_once('.') {
        Some((_, "pcap")) => "application/vnd.tcpdump.pcap",
        Some((_, "jsonl")) => "application/jsonl",
        _ => "application/x-pcapng",
    };
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    *answer.body_mut() = read(file, from, to);
    Ok(answer)
}

/// Whether a header names this tag: in its list, or by `*`. By RFC 9110 a tag that is marked as weak is the same as a strong one
/// where that is all that is asked for (`is_weak`), and else none.
fn names(headers: &HeaderMap, header: HeaderName, tag: &HeaderValue, is_weak: bool) -> bool {
    let is_it = |text: &[u8]| {
        let text = text.trim_ascii();
        let weak = text.strip_prefix(b"W/").filter(|_| is_weak);
        text == b"*" || weak.unwrap_or(text) == tag.as_bytes()
    };
    // The tags of here have no comma in them: one that is split by it is none of them.
    headers.get_all(header).iter().any(|list| list.as_bytes().split(|byte| *byte == b',').any(is_it))
}

/// Bytes of a file, read as they are taken. A thread is taken for each read and no longer: a client that takes nothing keeps
/// none of them from others.
fn read(file: File, from: u64, to: u64) -> Body {
    let (sender, pieces) = channel(PIECES_MAX);
    tokio::spawn(async move {
        let (mut at, file) = (from, Arc::new(file));
        while at < to {
            let (file, len) = (file.clone(), PIECE_BYTES.min((to - at) as usize));
            let read = tokio::task::spawn_blocking(move || piece(&file, at, len)).await;
            let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
            let bytes = read.as_ref().map_or(0, |bytes| bytes.len() as u64);
            if sender.send(read).await.is_err() || bytes == 0 {
                return;
            }
            at += bytes;
        }
    });
    Body::Pieces(pieces, Some(to - from))
}

/// At most so many bytes from there.
fn piece(file: &File, at: u64, len: usize) -> io::Result<Bytes> {
    let mut piece = vec![0; len];
    loop {
        match file.read_at(&mut piece, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                piece.truncate(bytes);
                return Ok(Bytes::from(piece));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The one range that is asked for; several, or what is none, is the whole file, as RFC 9110 allows.
fn part(range: Option<&str>, len: u64) -> Part {
    let Some((first, last)) = range
        .and_then(|range| range.strip_prefix("bytes="))
        .filter(|range| !range.contains(','))
        .and_then(|range| range.split_once('-'))
    else {
        return Part::Whole;
    };
    // A number that is beyond all files is one, too.
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match (number(first), number(last), first.is_empty(), last.is_empty()) {
        (Some(first), _, false, true) if first < len => Part::Range(first, len),
        (Some(first), Some(last), false, false) if first <= last && first < len => {
            Part::Range(first, last.saturating_add(1).min(len))
        }
        (_, Some(1..), true, false) if len > 0 => {
            Part::Range(len.saturating_sub(number(last).unwrap_or(0)), len)
        }
        (Some(_), _, false, true) => Part::Nothing,
        (Some(first), Some(last), false, false) if first <= last => Part::Nothing,
        (_, Some(0), true, false) => Part::Nothing,
        _ => Part::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_rfc_9110() {
        let check = |range: &str, expected| assert_eq!(part(Some(range), 100), expected, "{range}");
        check("bytes=0-9", Part::Range(0, 10));
        check("bytes=90-", Part::Range(90, 100));
        check("bytes=90-1000", Part::Range(90, 100));
        check("bytes=-10", Part::Range(90, 100));
        check("bytes=-1000", Part::Range(0, 100));
        check("bytes=100-", Part::Nothing);
        check("bytes=100-200", Part::Nothing);
        check("bytes=-0", Part::Nothing);
        let far = "99999999999999999999";
        check(&format!("bytes=0-{far}"), Part::Range(0, 100));
        check(&format!("bytes=-{far}"), Part::Range(0, 100));
        check(&format!("bytes={far}-"), Part::Nothing);
        check(&format!("bytes={far}-{far}"), Part::Nothing);
        for odd in [
            "bytes=9-0",
            "bytes=0-1,5-6",
            "lines=1-2",
            "bytes=a-b",
            "bytes=",
            "bytes=-",
            "bytes=+1-2",
            "bytes=1-x",
        ] {
            check(odd, Part::Whole);
        }
        assert_eq!(part(None, 100), Part::Whole);
        assert_eq!(part(Some("bytes=-5"), 0), Part::Whole);
    }

    #[test]
    fn tags_are_compared_as_rfc_9110_has_it() {
        let tag = HeaderValue::from_static("\"1-2-3\"");
        let check = |text: &'static str| {
            let headers = HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_static(text))]);
            [true, false].map(|is_weak| names(&headers, IF_MATCH, &tag, is_weak))
        };
        for text in ["\"1-2-3\"", "*", "\"x\", \"1-2-3\"", "W/\"1-2-3\",\"1-2-3\" , \"y\""] {
            assert_eq!(check(text), [true, true], "{text}");
        }
        assert_eq!(check("\"x\", W/\"1-2-3\""), [true, false]);
        for text in ["", "\"1-2\"", "1-2-3", "w/\"1-2-3\""] {
            assert_eq!(check(text), [false, false], "{text}");
        }
        let mut two = HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_static("\"x\""))]);
        two.append(IF_MATCH, tag.clone());
        assert!(names(&two, IF_MATCH, &tag, false));
    }
}
