//! Bodies of answers: whole texts, or pieces as they come.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use scope_api::Problem;
use scope_api::problem::MEDIA_TYPE;
use serde_json::Value;
use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

/// A body.
pub enum Body {
    /// All of it; `None`: it is out.
    Whole(Option<Bytes>),
    /// Pieces, until the sender has gone, and how many bytes are still to come, where that is known.
    Pieces(Receiver<io::Result<Bytes>>, Option<u64>),
    /// Pieces, and trailers behind them; and who is told how many of them were taken.
    Frames(Receiver<io::Result<Frame<Bytes>>>, Counted),
    /// That of somebody else's answer, as it comes; it breaks off when that may go on no longer.
    Passed(Incoming, Until, Held),
}

/// Counts frames that go out to a client, and is let go with their body.
pub struct Counted {
    frames: Arc<AtomicU64>,
    is_broken: Arc<AtomicBool>,
    _end: oneshot::Sender<Infallible>,
}

/// How many frames of a body went out.
pub struct Count {
    frames: Arc<AtomicU64>,
    is_broken: Arc<AtomicBool>,
    end: oneshot::Receiver<Infallible>,
}

impl Count {
    /// Of one body.
    pub fn new() -> (Counted, Count) {
        let (frames, is_broken) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (_end, end) = oneshot::channel();
        (
            Counted { frames: frames.clone(), is_broken: is_broken.clone(), _end },
            Count { frames, is_broken, end },
        )
    }

    /// Set: what the body has isn't all, so it breaks off behind its last frame.
    pub fn is_broken(&self) -> &Arc<AtomicBool> {
        &self.is_broken
    }

    /// Waits for the end of the body, or until `over` is.
    pub async fn at_end(self, over: impl Future<Output = ()>) -> u64 {
        tokio::select! {
            _ = self.end => {} // it is never sent, only let go
            () = over => {}
        }
        self.frames.load(Ordering::Relaxed)
    }
}

/// It is over when a body has to break off.
pub type Until = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something that is let go with the end of a body.
pub type Held = Box<dyn Any + Send>;

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Frames(frames, counted) => frames.poll_recv(context).map(|frame| {
                if frame.is_none() && counted.is_broken.load(Ordering::Relaxed) {
                    return Some(Err(io::ErrorKind::BrokenPipe.into()));
                }
                counted.frames.fetch_add(u64::from(frame.is_some()), Ordering::Relaxed);
                frame
            }),
            Body::Pieces(pieces, left) => pieces.poll_recv(context).map(|piece| {
                let piece = piece?;
                if let (Ok(bytes), Some(left)) = (&piece, left) {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Some(piece.map(Frame::data))
            }),
            Body::Passed(body, until, _) => match until.as_mut().poll(context) {
                Poll::Pending => Pin::new(body).poll_frame(context).map_err(io::Error::other),
                Poll::Ready(()) => {
                    *self = Body::Whole(None);
                    Poll::Ready(Some(Err(io::Error::other("the answer may go on no longer"))))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Passed(body, ..) => body.is_end_stream(),
            body => matches!(body, Body::Whole(None) | Body::Pieces(_, Some(0))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Pieces(_, Some(left)) => SizeHint::with_exact(*left),
            Body::Pieces(_, None) | Body::Frames(..) => SizeHint::default(),
            Body::Passed(body, ..) => body.size_hint(),
        }
    }
}

/// A text of this media type.
pub fn text(media_type: &'static str, text: String) -> Response<Body> {
    let mut answer = Response::new(Body::Whole(Some(text.into())));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A JSON value.
pub fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut answer = text("application/json", format!("{value}\n"));
    *answer.status_mut() = status;
    answer
}

/// A refusal.
pub fn refusal(problem: &Problem) -> Response<Body> {
    let mut answer = json(problem.status, &problem.json());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Some(seconds) = problem.retry_after_s {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if let Ok(methods) = HeaderValue::from_str(&problem.allow.join(", "))
        && !problem.allow.is_empty()
    {
        headers.insert(http::header::ALLOW, methods);
    }
    answer
}
