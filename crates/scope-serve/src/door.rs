//! The process from begin to end: what it needs a right for comes first, then it serves until it is told to end.

use crate::asking::{self, Askers};
use crate::counts::{Counts, one_more};
use crate::serving::{self, Fronted, State};
use crate::settings::{Line, Say, Settings, is_loopback};
use crate::tls::Certificates;
use crate::token_file::ReadError;
use scope_fault::{Fault, Setting, sentence};
use scope_spelling::printable::shell_word;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};

/// Threads for what waits: files.
const WAITING_MAX: usize = 4;
/// How often last uses are noted.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// So long whatever waits in a thread may go on at the end.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a door is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Read the certificates again.
    Reread,
    /// End.
    End,
}

/// Tells a door something, from any thread.
pub type Tell = mpsc::Sender<Told>;

/// For a door, and for those who tell it something.
pub fn tell() -> (Tell, mpsc::Receiver<Told>) {
    mpsc::channel(1)
}

/// A door that listens, and doesn't answer yet.
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
}

impl Door {
    /// Listens, and reads what it needs. To be called while this process may still do that; `say` says a line.
    ///
    /// # Errors
    /// What is wrong.
    pub fn open(settings: Settings, say: Say) -> Result<Door, Fault> {
        let Settings { instances, listen, hosts, tokens, used, tls, bounds } = settings;
        let listen_fault = || Fault::of("listen").with_value(listen.to_string());
        if tls.is_none() && !is_loopback(listen.ip()) {
            let fault = listen_fault().cause("others than this machine may ask there only by TLS");
            return Err(fault.remedy(sentence![
                "give a certificate: ",
                Setting::of("tls-cert").example("FILE"),
                " and ",
                Setting::of("tls-key").example("FILE")
            ]));
        }
        let path = tokens.path.clone();
        let askers = Askers::new(tokens, used, bounds.requests_per_s, say.clone()).map_err(|error| {
            let fault = Fault::of("tokens").with_value(path.to_string_lossy());
            let fault = fault.cause(format!("{}: {error}", path.display()));
            match error {
                ReadError::System(_) | ReadError::Rights(_) => {
                    fault.remedy(asking::remedy(&error, &shell_word(&path)))
                }
                ReadError::Tokens(_) => fault.remedy("name a file that wirescope token add has made"),
            }
        })?;
        let names = |address: SocketAddr| {
            let own = ["localhost".to_string(), address.ip().to_string()];
            own.into_iter().chain(hosts.iter().cloned()).collect::<Vec<_>>()
        };
        let certificates = tls.map(|tls| Certificates::new(tls, &names(listen))).transpose()?;
        let listener = TcpListener::bind(listen).map_err(|error| listen_fault().error(&error))?;
        let address = listener.local_addr().map_err(|error| listen_fault().error(&error))?;
        listener.set_nonblocking(true).map_err(|error| listen_fault().error(&error))?;
        let instances = instances.into_iter().map(Fronted::new).collect();
        let counts = Counts::default();
        let state =
            State { instances, hosts, askers, certificates, bounds, counts, say, said: Mutex::default() };
        Ok(Door { listener, address, state: Arc::new(state) })
    }

    /// Where it can be asked, such as `https://192.0.2.7:8443`.
    pub fn url(&self) -> String {
        let scheme = if self.state.certificates.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The SHA-256 of a certificate that was made at the start.
    pub fn fingerprint(&self) -> Option<&str> {
        self.state.certificates.as_ref()?.fingerprint()
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> usize {
        self.state.askers.count()
    }

    /// Answers until it is told to end, or nobody is left who could tell it.
    ///
    /// # Errors
    /// The system gives no means to wait.
    pub fn serve(self, mut told: mpsc::Receiver<Told>) -> io::Result<()> {
        let Door { listener, state, .. } = self;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WAITING_MAX)
            .build()?;
        let served: io::Result<()> = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let (stop, stopped) = watch::channel(false);
            let noted = tokio::spawn(note_uses(state.clone()));
            tokio::spawn(serving::tell_of_closed_sockets(state.clone()));
            let serving = serving::serve(listener, &state, stopped);
            tokio::pin!(serving);
            loop {
                tokio::select! {
                    () = &mut serving => break,
                    what = told.recv() => match what {
                        Some(Told::Reread) => reread(&state).await,
                        Some(Told::End) | None => drop(stop.send(true)),
                    },
                }
                if *stop.borrow() {
                    serving.await;
                    break;
                }
            }
            noted.abort();
            Ok(())
        });
        runtime.shutdown_timeout(PATIENCE);
        if let Err(error) = state.askers.note_uses() {
            (state.say)(Line::Warning(&format!("when tokens were used last isn't noted: {error}")));
        }
        served
    }
}

/// Reads the certificates again, and says what came of it.
async fn reread(state: &Arc<State>) {
    let reading = state.clone();
    let done = tokio::task::spawn_blocking(move || reading.certificates.as_ref().map(Certificates::reread));
    match done.await {
        Ok(Some(Ok(true))) => (state.say)(Line::Info("the certificates were read again")),
        Ok(Some(Err(fault))) => {
            (state.say)(Line::Warning(&format!("{fault}; the certificates of before stay in force")));
        }
        _ => (state.say)(Line::Warning("SIGHUP: there are no certificates to be read again")),
    }
}

/// Notes last uses now and then, and looks at the file of tokens, which nobody may have asked for.
async fn note_uses(state: Arc<State>) {
    loop {
        tokio::time::sleep(NOTE_EVERY).await;
        let noting = state.clone();
        let noted = tokio::task::spawn_blocking(move || {
            noting.askers.look();
            noting.askers.note_uses()
        });
        let noted = noted.await;
        if !matches!(noted, Ok(Ok(()))) {
            one_more(&state.counts.unwritten);
        }
    }
}
