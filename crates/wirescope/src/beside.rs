//! The door to the network that a run begins as a process of its own, while it still may, and that ends with the run.
//!
//! ```text
//!  run ── its standard input: a byte has it read certificates again, its end is the end ──► wirescope serve --beside-run
//!  run ◄── its standard output: `ready URL`, and its end when it dies ──────────────────────┘
//! ```
//! Signals of a terminal, and of a service manager to all processes of the service, are left to the run.

use crate::serve::READY;
use scope_fault::Fault;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// So long it may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How it stands.
#[derive(Debug, Default)]
struct State {
    ending: AtomicBool,
    died: AtomicBool,
    input: Mutex<Option<ChildStdin>>,
}

/// A door that goes; dropped, it ends.
#[derive(Debug)]
pub struct Beside {
    state: Arc<State>,
    /// Says that it has ended.
    ended: Receiver<()>,
}

/// Has it read its certificates again, and knows whether it died.
#[derive(Clone, Debug, Default)]
pub struct BesideHandle(Arc<State>);

impl BesideHandle {
    /// Has it read its certificates again, if it goes.
    pub fn reread(&self) {
        if let Some(input) = self.0.input.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = input.write_all(b"r"); // that it has died is told otherwise
        }
    }

    /// Whether it ended before the run.
    pub fn has_died(&self) -> bool {
        self.0.died.load(Ordering::Relaxed)
    }

    /// Begins one for the run with this control socket, and waits until it answers. `died` says it when that ends before
    /// the run.
    ///
    /// # Errors
    /// It can't begin; why, it has said itself.
    pub fn begin(
        &self,
        socket: &Path,
        words: &[OsString],
        died: impl FnOnce() + Send + 'static,
    ) -> Result<Beside, Fault> {
        let fault = |error: &io::Error| Fault::of("listen").cause(format!("the door can't begin: {error}"));
        let mut control = OsString::from("wirescope=");
        control.push(socket);
        let mut command = Command::new("/proc/self/exe");
        command.arg0("wirescope").arg("serve").arg("--beside-run").arg("--control").arg(control).args(words);
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let Child { stdin, stdout, .. } = command.spawn().map_err(|error| fault(&error))?;
        let mut output = BufReader::new(stdout.ok_or_else(|| fault(&io::Error::other("no pipe")))?);
        let mut said = String::new();
        let heard = output.by_ref().take(1 << 10).read_line(&mut said);
        if heard.is_err() || !said.starts_with(READY) {
            let fault = Fault::of("listen").cause("the door to the network didn't begin");
            return Err(fault.remedy("see above why"));
        }
        *self.0.input.lock().unwrap_or_else(PoisonError::into_inner) = stdin;
        let (tell, ended) = channel();
        let state = self.0.clone();
        let wait = move || {
            wait_for_end(output);
            if !state.ending.load(Ordering::Acquire) {
                state.died.store(true, Ordering::Relaxed);
                died();
            }
            let _ = tell.send(());
        };
        Builder::new().name("beside".to_string()).spawn(wait).map_err(|error| fault(&error))?;
        Ok(Beside { state: self.0.clone(), ended })
    }
}

fn wait_for_end(mut output: BufReader<ChildStdout>) {
    let mut bytes = [0; 256];
    loop {
        match output.read(&mut bytes) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.state.ending.store(true, Ordering::Release);
        drop(self.state.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}
