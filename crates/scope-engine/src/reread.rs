//! Files that are read anew while a run goes: opened by a process of its own, since the run can't open them any
//! more.
//!
//! ```text
//!  run ── length and path ──► config-reader: open(path)
//!  run ◄── 0, and the open file; or the number of the error ──┘
//! ```
//! The process has no capability, and Landlock lets it read files in the folders of those that it was begun for, and
//! nothing else. So the run itself needs no right to these folders, and a file that an editor has put in the place of
//! the old one is read all the same.

use crate::own_process::{self, CONFIG_READER, REFUSED};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use scope_rights::CommandRules;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take: a file system may be slow.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Longest path, bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Files that can be opened again and again.
#[derive(Debug)]
pub struct Reread(UnixStream);

impl Reread {
    /// Begins the process for files at these paths, and in their folders. To be called before rights are given up.
    ///
    /// # Errors
    /// The system gives no process, or that can't begin.
    pub fn begin(paths: &[&Path]) -> io::Result<Reread> {
        let arguments: Vec<&OsStr> = paths.iter().map(|path| path.as_os_str()).collect();
        let socket = own_process::spawn(CONFIG_READER, &arguments, [])?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let mut reread = Reread(socket);
        reread.answer()?; // it is ready
        Ok(reread)
    }

    /// Opens the file at `path` as it is now.
    ///
    /// # Errors
    /// The system's; or the process has ended.
    pub fn open(&mut self, path: &Path) -> io::Result<File> {
        let path = path.as_os_str().as_bytes();
        if path.len() > PATH_BYTES_MAX {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        self.0.write_all(&[&(path.len() as u32).to_ne_bytes()[..], path].concat())?;
        self.answer()?.map(File::from).ok_or_else(|| io::Error::other("no file came"))
    }

    fn answer(&mut self) -> io::Result<Option<OwnedFd>> {
        let mut number = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got =
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut number)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if got.bytes != number.len() {
            return Err(io::Error::other("the process that reads it has ended"));
        }
        match i32::from_ne_bytes(number) {
            0 => Ok(control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            })),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The process's own: until the run closes the socket.
pub(crate) fn serve(mut run: &File, paths: &[OsString]) -> u8 {
    if answer(run, restrict(paths).map(|()| None)).is_err() {
        return REFUSED;
    }
    let mut length = [0; 4];
    while run.read_exact(&mut length).is_ok() {
        let mut path = vec![0; (u32::from_ne_bytes(length) as usize).min(PATH_BYTES_MAX)];
        if run.read_exact(&mut path).is_err() {
            break;
        }
        // A pipe must not be waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = openat(CWD, OsStr::from_bytes(&path), flags, Mode::empty());
        if answer(run, opened.map(Some).map_err(io::Error::from)).is_err() {
            break;
        }
    }
    0
}

fn restrict(paths: &[OsString]) -> io::Result<()> {
    let mut rules = CommandRules::new()?;
    for path in paths.iter().map(Path::new) {
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        rules.read(folder, false)?;
        rules.read(path, false)?; // where it is a link that leads elsewhere
    }
    scope_rights::become_powerless(None).map_err(io::Error::other)?;
    rules.take_on().map(drop)
}

fn answer(run: &File, result: io::Result<Option<OwnedFd>>) -> io::Result<()> {
    let (errno, file) = match result {
        Ok(file) => (0, file),
        Err(error) => (error.raw_os_error().filter(|errno| *errno != 0).unwrap_or(libc::EIO), None),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for the file"));
    }
    sendmsg(run, &[IoSlice::new(&errno.to_ne_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
