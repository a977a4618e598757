//! Where a capture's bytes come from: a regular file, a pipe that can be asked whether it has something, or
//! any reader.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::sync::Arc;

use scope_fault::Fault;

use super::follow::Follow;
use crate::SourceError;

/// An open stream of bytes.
pub(super) enum Input {
    /// Always ready.
    Regular(Arc<File>),
    /// May keep us waiting: a pipe, a terminal, a socket, a device.
    Pipe(File),
    /// Always ready: a part of a regular file.
    Part(Part),
    /// Anything else that can be read; reading it may block.
    Reader(Box<dyn Read + Send>),
    /// One of these, and who follows it.
    Followed(Box<Input>, Arc<dyn Follow>),
}

/// A part of a regular file, which others may read side by side.
#[derive(Clone)]
pub(super) struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Part {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut into[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Input {
    /// Opens a path, or standard input where it is `-`.
    pub(super) fn open(path: &str) -> Result<Input, SourceError> {
        let fail = |reason: Fault| SourceError::File { path: path.to_string(), reason };
        let file = match path {
            "-" => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            _ => File::open(path),
        };
        let file = file.map_err(|error| fail(opening(&error)))?;
        let kind = file.metadata().map_err(|error| fail(opening(&error)))?.file_type();
        if kind.is_dir() {
            return Err(fail(Fault::whole("is a folder, not a capture file").remedy("name the files in it")));
        }
        Ok(match kind.is_file() || kind.is_block_device() {
            true => Input::Regular(Arc::new(file)),
            false => Input::Pipe(file),
        })
    }

    /// Whether reading goes on without delay, after waiting for that at most `wait_ms`, without end where
    /// that is negative.
    pub(super) fn ready(&self, wait_ms: i32) -> bool {
        let file = match self {
            Input::Regular(_) | Input::Part(_) | Input::Reader(_) => return true,
            Input::Pipe(file) => file,
            Input::Followed(input, _) => return input.ready(wait_ms),
        };
        loop {
            let mut watched = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: `watched` is one valid pollfd that lives through the call, the count says one, and
            // `file` keeps its descriptor open. No safe form of poll(2) is at hand; it buys that a silent
            // pipe can't hold up a stop.
            let found = unsafe { libc::poll(&mut watched, 1, wait_ms) };
            let interrupted = found < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if !(interrupted && wait_ms < 0) {
                return found > 0;
            }
        }
    }

    /// Reads some bytes; 0 is the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Input::Regular(file) => file.read(into),
                Input::Part(part) => part.read(into),
                Input::Pipe(file) => file.read(into),
                Input::Reader(reader) => reader.read(into),
                Input::Followed(input, follow) => {
                    let read = input.read(into)?;
                    follow.bytes(&into[..read]);
                    return Ok(read);
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// A regular file from where it stands to the end that it has now: what is appended later doesn't belong to it.
    pub(super) fn part(&self) -> Option<Part> {
        let file = match self {
            Input::Regular(file) => file,
            Input::Part(part) => return Some(part.clone()),
            _ => return None,
        };
        let (at, end) = (file.as_ref().stream_position().ok()?, file.metadata().ok()?.len());
        (at < end).then(|| Part { file: file.clone(), at, end }) // a device has no length
    }

    /// Several workers can read it side by side, each from its beginning.
    pub(super) fn reopens(&self) -> bool {
        match self {
            Input::Regular(_) | Input::Part(_) => true,
            Input::Pipe(_) | Input::Reader(_) => false,
            Input::Followed(input, _) => input.reopens(),
        }
    }
}

fn opening(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::NotFound => Fault::whole("no such file").remedy("check the path"),
        io::ErrorKind::PermissionDenied => {
            Fault::whole("no permission to read it").remedy("check its mode and that of its folders")
        }
        _ => Fault::default().error(error).cause(format!("can't be opened: {error}")),
    }
}
