//! Programs that are timed: what they write is taken off them, and what they read and how much memory they took is
//! looked up before they are gone.
//!
//! ```text
//!  spawn ─► output is read to its end ─► it has ended, and is not waited for yet: /proc/PID/io ─► wait
//!             └─ beside it, each few ms: VmHWM of /proc/PID/status
//! ```

use anyhow::{Context, Result, ensure};
use std::fs::read_to_string;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(4);
/// A program that takes longer is killed.
const LIMIT: Duration = Duration::from_secs(900);
/// Bytes of output that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Of what a program said, so many characters are repeated.
const WORDS_MAX: usize = 400;

/// One that has ended.
#[derive(Debug)]
pub struct Ended {
    /// From its start to its end.
    pub seconds: f64,
    /// What it wrote to standard error.
    pub words: String,
    /// Exit code; `None`: a signal.
    pub code: Option<i32>,
    /// Bytes that its own calls of `read` gave it.
    pub read_calls: u64,
    /// Bytes that were read from the disk for it.
    pub read_disk: u64,
    /// The most memory that it had, KiB, as seen each few ms.
    pub resident_kib: u64,
}

impl Ended {
    /// Checks its exit code.
    ///
    /// # Errors
    /// What it said, where it is another one.
    pub fn expect(&self, code: i32) -> Result<()> {
        let words: String = self.words.trim().replace('\n', " / ").chars().take(WORDS_MAX).collect();
        ensure!(self.code == Some(code), "ended with {:?}: {words}", self.code);
        Ok(())
    }
}

/// Runs `command` to its end and hands what it writes to standard output to `take`, as it comes.
///
/// # Errors
/// The system's, and those of `take`.
pub fn run(command: &mut Command, take: impl FnMut(&[u8]) -> Result<()>) -> Result<Ended> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let child = command.spawn().with_context(|| name.clone())?;
    follow(child, begun, take).context(name)
}

/// Runs `command` with its output in `wc -c`; how many bytes that counted. Time is that until both have ended.
///
/// # Errors
/// The system's.
pub fn run_into_wc(command: &mut Command) -> Result<(Ended, u64)> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().with_context(|| name.clone())?;
    let output = child.stdout.take().context("no standard output")?;
    let counted = Command::new("wc").arg("-c").stdin(output).stdout(Stdio::piped()).spawn().context("wc")?;
    let mut ended = follow(child, begun, |_| Ok(())).context(name)?;
    let counted = counted.wait_with_output().context("wc")?;
    ended.seconds = begun.elapsed().as_secs_f64();
    let bytes = String::from_utf8_lossy(&counted.stdout).trim().parse().context("what wc counted")?;
    Ok((ended, bytes))
}

fn follow(mut child: Child, begun: Instant, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<Ended> {
    let pid = child.id();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let (is_over, resident_kib) = (AtomicBool::new(false), AtomicU64::new(0));
    let (taken, seconds, words) = std::thread::scope(|scope| {
        let words = scope.spawn(move || {
            let mut words = Vec::new();
            errors.map(|mut errors| errors.read_to_end(&mut words));
            String::from_utf8_lossy(&words).into_owned()
        });
        scope.spawn(|| look(pid, begun, &is_over, &resident_kib));
        let mut taken = Ok(());
        if let Some(mut output) = output {
            let mut chunk = vec![0; CHUNK_BYTES];
            while let Ok(bytes @ 1..) = output.read(&mut chunk) {
                if taken.is_ok() {
                    taken = take(&chunk[..bytes]); // the rest is read all the same: it must not wait
                }
            }
        }
        let ended = wait_not_reaping(pid);
        let seconds = begun.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let words = words.join().unwrap_or_default();
        (taken.and(ended), seconds, words)
    });
    let io = read_to_string(format!("/proc/{pid}/io")).context("what it read");
    let status = child.wait()?;
    taken?;
    ensure!(status.signal().is_none(), "ended with {status}: {}", words.trim());
    let io = io?;
    Ok(Ended {
        seconds,
        words,
        code: status.code(),
        read_calls: figure(&io, "rchar:").context("no rchar in /proc/PID/io")?,
        read_disk: figure(&io, "read_bytes:").context("no read_bytes in /proc/PID/io")?,
        resident_kib: resident_kib.into_inner(),
    })
}

/// Notes the most memory of a process until it is over; kills it where that takes too long.
fn look(pid: u32, begun: Instant, is_over: &AtomicBool, resident_kib: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let status = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        resident_kib.fetch_max(figure(&status, "VmHWM:").unwrap_or(0), Ordering::Relaxed);
        if begun.elapsed() > LIMIT {
            // SAFETY: takes numbers only; the process is a child of this one that was not waited for yet.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The number behind `key` at the begin of a line.
fn figure(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Waits for the end of a child, which stays known to the system.
fn wait_not_reaping(pid: u32) -> Result<()> {
    loop {
        // SAFETY: all-zero bytes are a valid siginfo_t.
        let mut facts: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `facts` outlives the call.
        let result = unsafe { libc::waitid(libc::P_PID, pid, &mut facts, libc::WEXITED | libc::WNOWAIT) };
        let error = std::io::Error::last_os_error();
        match result {
            0 => return Ok(()),
            _ if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return Err(error).context("waitid"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_words_code_and_what_was_read_are_those_of_the_program() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat /proc/self/exe; echo said >&2; exit 3"]);
        let mut bytes = 0;
        let ended = run(&mut command, |piece| {
            bytes += piece.len() as u64;
            Ok(())
        });
        let ended = ended.unwrap();
        assert_eq!((ended.code, ended.words.as_str()), (Some(3), "said\n"));
        assert!(bytes > 10_000, "{bytes}");
        // What its children read counts as soon as it has waited for them.
        assert!(ended.read_calls >= bytes, "{ended:?}");
        assert!(ended.expect(0).unwrap_err().to_string().contains("said"));
    }

    #[test]
    fn memory_is_that_of_the_program_and_not_of_this_one() {
        let filled = vec![1u8; 64 << 20];
        let ended = run(Command::new("sleep").arg("0.1"), |_| Ok(())).unwrap();
        assert!((1..30_000).contains(&ended.resident_kib), "{ended:?}");
        assert_eq!(filled[filled.len() - 1], 1);
    }

    #[test]
    fn wc_counts_what_a_program_writes() {
        let (ended, bytes) = run_into_wc(Command::new("printf").arg("12345")).unwrap();
        assert_eq!((ended.code, bytes), (Some(0), 5));
    }
}
