//! Everything out of a store, by a run's socket against `wirescope query` into a pipe, and by a door with TLS against
//! OpenSSL's server with a file of that size: the same packets, the same reader.
//!
//! ```text
//! wirescope query --store COPY -w - ──pipe────► read, counted
//! a run with --store COPY ──────────socket──► read, counted: the run has nothing else to do
//!                         └─ wirescope serve ──TLS──► curl -o /dev/null
//! the same answer in a file ─ openssl s_server ─TLS──► curl -o /dev/null
//! ```

use super::door::{Door, Tokens};
use crate::query::cache;
use crate::query::process;
use crate::query::store::{self, Store};
use crate::store::stored_run;
use crate::table::Table;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use crate::{Scale, main_part};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The row, and what it is of.
pub const ROW: &str = "stream_seconds";
pub const SOCKET: &str = "the run's socket";
pub const PIPE: &str = "wirescope query, a pipe";
const RATE: &str = "bytes by the socket";
pub const TLS: &str = "wirescope serve, TLS";
pub const OPENSSL: &str = "openssl s_server, TLS, a file";
/// What both speak.
const CIPHER: &str = "TLS_AES_128_GCM_SHA256";
/// `openssl s_server` may take so long until it listens.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Files of the store that are copied: of 1 GiB each.
const FILES: usize = 2;
/// What is read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// An answer that stalls for so long has failed.
const LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(60);

/// A store of its own, which a run goes on with.
struct Copied {
    _folder: TempDir,
    folder: PathBuf,
    files: Vec<PathBuf>,
    packets: u64,
}

/// All rounds; where there is no lab, why.
pub fn measure(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let copied = store::prepare(workspace, scale.query_bytes, 1).and_then(|store| copy(workspace, &store));
    let lab = main_part::lab();
    let (copied, lab) = match (copied, &lab) {
        (Ok(copied), Ok(lab)) => (copied, lab),
        (Err(error), _) => return leave_out(&format!("{error:#}"), table),
        (_, Err(why)) => return leave_out(why, table),
    };
    for round in 0..scale.rounds {
        eprintln!("streams, round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        for of_run in [round % 2 == 0, round % 2 != 0] {
            if !of_run {
                let seconds = by_openssl(workspace, &copied).map_err(|error| format!("{error:#}"));
                table.put(ROW, OPENSSL, "s", seconds);
            }
            let of_socket = of_run;
            let (of, outcome) = match of_run {
                true => {
                    let both = by_run(workspace, lab.b(), &copied);
                    let seconds = both.as_ref().map(|(_, tls)| *tls).map_err(|error| format!("{error:#}"));
                    table.put(ROW, TLS, "s", seconds);
                    (SOCKET, both.map(|(socket, _)| socket))
                }
                false => (PIPE, by_pipe(workspace, &copied)),
            };
            let outcome = outcome.map_err(|error| format!("{error:#}"));
            table.put(ROW, of, "s", outcome.as_ref().map(|(seconds, _)| *seconds).map_err(String::clone));
            if of_socket {
                let rate = outcome.map(|(seconds, bytes)| bytes as f64 / seconds / 1e6);
                table.put(ROW, RATE, "MB/s", rate);
            }
        }
    }
}

fn leave_out(why: &str, table: &mut Table) {
    table.leave_out(ROW, SOCKET, "s", why);
    table.leave_out(ROW, PIPE, "s", why);
    table.leave_out(ROW, TLS, "s", why);
    table.leave_out(ROW, OPENSSL, "s", why);
}

/// The first files of the store that is asked, with its label.
fn copy(workspace: &Workspace, store: &Store) -> Result<Copied> {
    let own = workspace.out_folder()?;
    let folder = own.path().join("store");
    let mut files = Vec::new();
    for file in store.files.iter().take(FILES) {
        let below = file.strip_prefix(&store.folder)?;
        let to = folder.join(below);
        fs::create_dir_all(to.parent().context("a file without a folder")?)?;
        fs::copy(file, &to).with_context(|| to.display().to_string())?;
        files.push(to);
    }
    let label = Path::new("wirescope.store");
    fs::copy(store.folder.join(label), folder.join(label)).context("the store's label")?;
    let mut count = Command::new(&workspace.wirescope);
    count.args(["query", "--count", "--json", "--store"]).arg(&folder);
    let mut said = Vec::new();
    let ended = process::run(&mut count, |piece| {
        said.extend(piece);
        Ok(())
    })?;
    ended.expect(0)?;
    let count: serde_json::Value = serde_json::from_slice(&said)?;
    let packets = count["packets"].as_u64().context("no count")?;
    ensure!(packets > 0 && stored_run::bytes_of(&files)? > 0, "an empty store");
    Ok(Copied { _folder: own, folder, files, packets })
}

/// Seconds and bytes.
fn by_pipe(workspace: &Workspace, copied: &Copied) -> Result<(f64, u64)> {
    cache::fill(&copied.files)?;
    let mut query = Command::new(&workspace.wirescope);
    query.args(["query", "-w", "-", "--store"]).arg(&copied.folder);
    let mut bytes = 0;
    let ended = process::run(&mut query, |piece| {
        bytes += piece.len() as u64;
        Ok(())
    })?;
    ended.expect(0)?;
    let grouped: String = ended.words.chars().filter(|letter| *letter != ',').collect();
    ensure!(grouped.contains(&copied.packets.to_string()), "not all packets: {}", ended.words);
    Ok((ended.seconds, bytes))
}

/// Seconds and bytes of a run that captures nothing meanwhile, and the seconds of a door with TLS in front of it.
fn by_run(
    workspace: &Workspace,
    namespace: &scope_testkit::lab::Namespace,
    copied: &Copied,
) -> Result<((f64, u64), f64)> {
    let store = copied.folder.to_str().context("the folder's path is no UTF-8")?;
    let more = ["-i", "vb", "--ring", "64MiB", "--trigger", "udp dst port 9", "--serve-user", "root"];
    let mut run = Run::start(workspace, Some(namespace), &[&more[..], &["--store", store]].concat())?;
    run.wait_started()?;
    cache::fill(&copied.files)?;
    let outcome = streamed(&run.socket(), copied.packets)?;
    let tls = through_door(workspace, &run, outcome.1);
    run.stop(END_LIMIT)?;
    Ok((outcome, tls?))
}

/// Seconds that curl takes for all of it through a door, which is as long as what came by the socket but for heads.
fn through_door(workspace: &Workspace, run: &Run, bytes: u64) -> Result<f64> {
    let tokens = Tokens::new(workspace)?;
    let token = tokens.add(&["--role", "analyst", "--name", "bench"])?;
    let door = Door::open(workspace, &run.socket(), &tokens.path(), &["--tls-self-signed"])?;
    let url = format!("https://{}/api/v1/packets", door.address);
    let (seconds, came) = curl(&url, &["-H", &format!("Authorization: Bearer {token}")])?;
    // Lengths of chunks don't count in what curl says.
    let apart = bytes.abs_diff(came) as f64 / bytes as f64;
    ensure!(apart < 0.001, "{came} bytes of {bytes}: {}", door.said());
    Ok(seconds)
}

/// Seconds that curl takes for the same bytes out of a warm file.
fn by_openssl(workspace: &Workspace, copied: &Copied) -> Result<f64> {
    let folder = workspace.out_folder()?;
    let file = folder.path().join("answer");
    let mut query = Command::new(&workspace.wirescope);
    query.args(["query", "-w"]).arg(&file).arg("--store").arg(&copied.folder);
    process::run(&mut query, |_| Ok(()))?.expect(0)?;
    let bytes = file.metadata()?.len();
    cache::fill(std::slice::from_ref(&file))?;
    let make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert"];
    let mut make_certificate = Command::new("openssl");
    make_certificate.args(make).args(["-days", "2", "-subj", "/CN=localhost"]).current_dir(folder.path());
    process::run(&mut make_certificate, |_| Ok(()))?.expect(0)?;
    let address = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-WWW", "-cert", "cert", "-key", "key", "-ciphersuites", CIPHER])
        .args(["-accept", &address.to_string()])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("openssl s_server")?;
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() && begun.elapsed() < START_LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
    let outcome = curl(&format!("https://{address}/answer"), &[]);
    let _ = server.kill();
    let _ = server.wait();
    let (seconds, came) = outcome?;
    ensure!(came == bytes, "{came} bytes of {bytes}");
    Ok(seconds)
}

/// Fetches; seconds and bytes of the body.
fn curl(url: &str, more: &[&str]) -> Result<(f64, u64)> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--insecure", "--http1.1", "--output", "/dev/null"]);
    command.args(["--tls13-ciphers", CIPHER, "--tlsv1.3", "--write-out", "%{size_download}"]);
    let mut said = Vec::new();
    let ended = process::run(command.args(more).arg(url), |piece| {
        said.extend(piece);
        Ok(())
    })?;
    ended.expect(0)?;
    let bytes = String::from_utf8_lossy(&said).trim().parse().context("the bytes that curl counts")?;
    Ok((ended.seconds, bytes))
}

fn streamed(socket: &Path, packets: u64) -> Result<(f64, u64)> {
    let begun = Instant::now();
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(
        b"GET /api/v1/packets HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: close\r\n\r\n",
    )?;
    let (mut bytes, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    loop {
        let came = stream.read(&mut chunk).context("the answer")?;
        if came == 0 {
            break;
        }
        bytes += came as u64;
        if first.len() < 12 {
            first.extend(&chunk[..came.min(12)]);
        }
        last.extend(&chunk[came.saturating_sub(4096)..came]);
        last.drain(..last.len().saturating_sub(4096));
    }
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
    let end = String::from_utf8_lossy(&last);
    let given = end.split("wirescope-packets: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    ensure!(given == Some(packets.to_string().as_str()), "{given:?} packets of {packets}");
    ensure!(end.contains("wirescope-complete: true"), "it isn't complete: {end}");
    Ok((seconds, bytes))
}
