//! How far an answer is, on a terminal: a line that goes away again.

use crate::speech;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::time::Duration;

/// The line changes so often.
const EVERY: Duration = Duration::from_millis(100);
/// What is whole, in steps of the bar.
const WHOLE: f64 = 10_000.0;

/// Whether anybody sees it.
pub fn is_seen() -> bool {
    io::stderr().is_terminal() && !speech::is_json() && !speech::is_quiet()
}

/// Does `work`; shows meanwhile, if `is_shown`, what it is and what part of it is done: `None` where nobody knows.
pub fn during<T>(
    is_shown: bool,
    what: &str,
    part: &(dyn Fn() -> Option<f64> + Sync),
    work: impl FnOnce() -> T,
) -> T {
    if !is_shown {
        return work();
    }
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || show(what, part, &is_done));
        let result = work();
        drop(done);
        result
    })
}

fn show(what: &str, part: &(dyn Fn() -> Option<f64> + Sync), is_done: &mpsc::Receiver<()>) {
    let goes_on = || is_done.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout);
    if !goes_on() {
        return; // so short that nobody would see it
    }
    let bar = ProgressBar::new(WHOLE as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta} left") {
        bar.set_style(style);
    }
    bar.set_message(what.to_string());
    while goes_on() {
        if let Some(part) = part() {
            bar.set_position((part.clamp(0.0, 1.0) * WHOLE) as u64);
        }
    }
    bar.finish_and_clear();
}
