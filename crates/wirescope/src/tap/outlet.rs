//! Where a tap's packets go: waits for whoever reads a pipe, until it is told to end.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use scope_store::export::Pour;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at whether it is to end, while nobody reads.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Whoever reads has so long for the next bytes once it is to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
pub struct Outlet {
    file: File,
    /// It is to end.
    stop: Arc<AtomicBool>,
}

impl Outlet {
    /// Writes to `file` until `stop` is set and nobody reads any more.
    pub fn new(file: File, stop: &Arc<AtomicBool>) -> Outlet {
        Outlet { file: unblocked(&file).unwrap_or(file), stop: stop.clone() }
    }
}

/// The same pipe, opened anew for this process alone: that it never blocks here is nothing to others who have it open. `None`:
/// it is no pipe, or can't be opened.
fn unblocked(file: &File) -> Option<File> {
    if !file.metadata().ok()?.file_type().is_fifo() {
        return None;
    }
    let flags = OFlags::NONBLOCK.bits() as i32;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().write(true).custom_flags(flags).open(path).ok()
}

impl Pour for Outlet {
    fn pour(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let (mut rest, mut since) = (&bytes[..], None);
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => (rest, since) = (&rest[written..], None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&LOOK_EVERY));
                    let is_to_end = self.stop.load(Ordering::Relaxed);
                    if is_to_end && since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                        let words = "it is full, and nobody reads it";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, words));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    fn outlet() -> (io::PipeReader, Outlet, Arc<AtomicBool>) {
        let (reads, writes) = io::pipe().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let outlet = Outlet::new(File::from(OwnedFd::from(writes)), &stop);
        (reads, outlet, stop)
    }

    #[test]
    fn whoever_reads_gets_all_and_is_waited_for() {
        let (mut reads, mut outlet, _stop) = outlet();
        let bytes: Vec<u8> = (0..1_000_000u32).map(|number| number as u8).collect();
        let expected = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            reads.read_to_end(&mut read).unwrap();
            read
        });
        let mut bytes = bytes;
        outlet.pour(&mut bytes).unwrap();
        assert!(bytes.is_empty());
        drop(outlet);
        assert!(reader.join().unwrap() == expected);
    }

    #[test]
    fn it_ends_where_nobody_reads_and_it_is_to_end() {
        let (reads, mut outlet, stop) = outlet();
        stop.store(true, Ordering::Relaxed);
        let error = outlet.pour(&mut vec![0; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(reads);
        let error = outlet.pour(&mut vec![0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_file_is_written_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut outlet = Outlet::new(File::create(&path).unwrap(), &Arc::default());
        outlet.pour(&mut b"abc".to_vec()).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"abc");
    }
}
