//! A copy of a file of statistics, on its way to a client: whole, of one moment, also of the one that is written.
//!
//! ```text
//! request ─► thread "question": SQLite's backup ─► a file without a name ─► pieces ─► client
//! ```
//! The database is read as long as its copy is made, not as long as a client takes it.

use crate::body::Body;
use crate::firing::Whose;
use crate::given::{COMPLETE, Ending, Given, Later, Of};
use crate::packets::why_broken;
use crate::questions::{self, too_many};
use crate::state::State;
use crate::statistics::{asked, database, problem, untaken};
use crate::stream::{PIECES_MAX, Pipe, Sent};
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Frame;
use scope_api::Problem;
use scope_engine::Asked;
use scope_http::body::Count;
use scope_stats::asking::AskError;
use scope_stats::asking::spare::{NoCopy, Passing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;

/// When it may be tried again where too much is written.
const RETRY_AFTER_S: u64 = 10;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// The media type of a database.
const SQLITE: &str = "application/vnd.sqlite3";

/// The answer with a copy of the file that is called `id`; `is_head`: only how long it would be.
///
/// # Errors
/// There is no such file, or no copy can be made of it now.
pub(crate) async fn copy(
    state: &Arc<State>,
    id: String,
    whose: Whose<'_>,
    (is_head, gone): (bool, Arc<AtomicBool>),
) -> Result<Response<Body>, Problem> {
    if is_head {
        let known = asked(state, whose, gone, move |asked, _| {
            let bytes = asked.database.copy_bytes(&id).map_err(of_file)?;
            Ok((bytes, name(asked, &id)))
        });
        let Some((bytes, name)) = known.await? else { return Ok(untaken(Of::File)) };
        return Ok(head(Body::Whole(None), bytes, &name));
    }
    let asked = database(state)?;
    let place = state.questions.place(whose.is_bounded.then_some(whose.identity))?;
    let (pieces, taken) = channel(PIECES_MAX);
    let (begin, begun) = oneshot::channel();
    let (tell, made) = oneshot::channel();
    let (sent, (counted, count)) = (Arc::new(Sent::default()), Count::new());
    let over = state.questions.over();
    let pipe = Pipe::new(pieces, sent.clone(), over.clone(), count.is_broken().clone());
    state.questions.register(&gone);
    let (of_run, stopped) = (state.clone(), gone.clone());
    questions::begin(move || {
        let copied = copied(&asked, &id, &gone);
        drop(place);
        let begun = copied.as_ref().map(|copy| (copy.bytes(), name(&asked, &id))).map_err(Clone::clone);
        let _ = begin.send(begun); // a client that is gone takes nothing
        if let Ok(copy) = copied {
            let _ = tell.send(passed(&of_run, copy, &pipe)); // nobody notes it where the run ends
        }
    })?;
    let begun = begun.await.map_err(|_| Problem::internal("run", "the question failed"))?;
    let (bytes, name) = match (begun, stopped.load(Ordering::Relaxed)) {
        (Err(_), true) if state.is_over() || state.is_closing() => return Err(Problem::ended()),
        (Err(_), true) => return Ok(untaken(Of::File)),
        (begun, _) => begun?,
    };
    let mut answer = head(Body::Frames(taken, counted), bytes, &name);
    answer.extensions_mut().insert(Later::new(Ending { made, sent, count, over }));
    Ok(answer)
}

fn copied(asked: &Asked, id: &str, stop: &AtomicBool) -> Result<Passing, Problem> {
    let spares = asked.spares.as_ref().map_err(|cause| {
        let cause = format!("no file for copies could be made beside the database: {cause}");
        let remedy = "copy it at the host: wirescope stats copy";
        Problem::new(StatusCode::INSUFFICIENT_STORAGE, "copy", cause, remedy)
    })?;
    spares.copy(&asked.database, id, stop).map_err(|no| match no {
        NoCopy::Asked(error) => of_file(error),
        NoCopy::Taken => too_many("as many copies are on their way as there may be".to_string()),
        NoCopy::Busy(fault) => {
            Problem::of_faults(StatusCode::SERVICE_UNAVAILABLE, &[fault]).retry_after(RETRY_AFTER_S)
        }
        NoCopy::NoRoom(fault) => Problem::of_faults(StatusCode::INSUFFICIENT_STORAGE, &[fault]),
        NoCopy::Failed(fault) => Problem::of_faults(StatusCode::INTERNAL_SERVER_ERROR, &[fault]),
    })
}

/// Why a file can't be copied: most often there is none that is called so.
fn of_file(error: AskError) -> Problem {
    match error {
        AskError::Refused(fault) => Problem::of_faults(StatusCode::NOT_FOUND, &[fault]),
        failed => problem(failed),
    }
}

/// The name of a file of the database.
fn name(asked: &Asked, id: &str) -> String {
    let file = asked.database.file(id).ok();
    let name = file.and_then(|file| Some(file.path.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or_default().replace(['"', '\\'], "_")
}

/// Hands the pieces on; what came of that. Whoever has the last one finds the copy's place free again.
fn passed(state: &State, copy: Passing, pipe: &Pipe) -> Given {
    let (mut at, mut result, all) = (0, COMPLETE, copy.bytes());
    let mut copy = Some(copy);
    while at < all {
        let piece = copy.as_ref().map_or_else(|| Ok(Vec::new()), |copy| copy.piece(at, PIECE_BYTES));
        let is_read = piece.is_ok();
        let bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
        if at + bytes == all {
            copy = None;
        }
        let is_sent = piece.and_then(|piece| pipe.send(Frame::data(piece.into()))).is_ok();
        if !is_sent {
            result = if is_read { why_broken(state) } else { "it can't be read any more" };
            pipe.break_off();
            break;
        }
        at += bytes;
        pipe.mark(0, at);
    }
    Given { of: Of::File, count: 0, bytes: at, result: result.to_string() }
}

fn head(body: Body, bytes: u64, name: &str) -> Response<Body> {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(SQLITE));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    headers.extend(disposition.map(|disposition| (CONTENT_DISPOSITION, disposition)));
    answer
}
