//! A door by TCP, on loopback, for programs that know no Unix sockets: bytes are handed on as they come.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Lets everybody who connects reach the socket while `task` runs.
///
/// # Errors
/// The system's, and those of `task`.
pub fn during<T>(socket: &Path, task: impl FnOnce(SocketAddr) -> Result<T>) -> Result<T> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                scope.spawn(|| {
                    let _ = join(stream, socket); // a side that is gone ends it
                });
            }
        });
        let outcome = task(address);
        is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(address); // wakes the listener
        outcome
    })
}

fn join(client: TcpStream, socket: &Path) -> Result<()> {
    let server = UnixStream::connect(socket)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Write);
        });
        let copied = copy(&mut &server, &mut &client);
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        copied
    })?;
    Ok(())
}

/// The document that the instance at a socket gives of its API.
///
/// # Errors
/// The system's, and another answer.
pub fn document(socket: &Path) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.write_all(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "no document");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
    Ok(answer.split_off(end + 4))
}
