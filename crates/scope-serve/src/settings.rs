//! How a door to the network is to be, as the binary says it.

use scope_api::identity::is_name;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a file that is read again and again, as it is now: by a process that kept the right to.
pub type Again = Box<dyn FnMut() -> io::Result<File> + Send>;

/// Bytes of a file of certificates or of a key at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A run that is fronted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// As routes have it.
    pub name: String,
    /// Its control socket.
    pub path: PathBuf,
}

impl Instance {
    /// What `[NAME=]PATH` says; without a name it is that of the socket, without its ending.
    ///
    /// # Errors
    /// Why there is no name.
    pub fn read(text: &str) -> Result<Instance, &'static str> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (Some(name.to_string()), path),
            // It may be a path, or a name that can't be: neither is guessed.
            Some((name, _)) if !name.starts_with(['/', '.']) => {
                return Err("a name has no '/', and a path with a '=' begins with / or ./");
            }
            _ => (None, text),
        };
        if path.is_empty() {
            return Err("it has no path");
        }
        let path = PathBuf::from(path);
        let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        match name.or_else(|| stem(&path)).filter(|name| is_name(name)) {
            Some(name) => Ok(Instance { name, path }),
            None => Err("it has no name that fits into a route"),
        }
    }
}

/// How the door is to be.
pub struct Settings {
    /// The runs.
    pub instances: Vec<Instance>,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names by which it may be asked, besides `localhost` and its address.
    pub hosts: Vec<String>,
    /// The file of tokens.
    pub tokens: TokenSettings,
    /// Where the last use of each is noted, if anywhere.
    pub used: Option<File>,
    /// `None`: without TLS, which only loopback may do.
    pub tls: Option<TlsSettings>,
    /// What is bounded.
    pub bounds: Bounds,
}

/// The file of tokens.
pub struct TokenSettings {
    /// Opens it.
    pub open: Again,
    /// What it is called here.
    pub path: PathBuf,
    /// Whom it may belong to, besides root: numbers of users.
    pub owners: Vec<u32>,
}

/// What a door says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// As it should be.
    Info(&'a str),
    /// Not as it should be.
    Warning(&'a str),
}

/// What says a line.
pub type Say = Arc<dyn Fn(Line<'_>) + Send + Sync>;

/// How TLS is spoken.
pub struct TlsSettings {
    /// As whom.
    pub own: OwnCertificate,
    /// Whose certificates are believed; `None`: clients have none.
    pub clients: Option<ClientSettings>,
}

/// Certificates of clients; all of it is read again on SIGHUP.
pub struct ClientSettings {
    /// Opens the file with those who may have signed them.
    pub ca: Again,
    /// Opens the file with the lists of those that were revoked.
    pub crl: Option<Again>,
}

/// The door's own certificate.
pub enum OwnCertificate {
    /// From files, read again on SIGHUP.
    Files {
        /// Opens the file with the certificate and those above it.
        certificate: Again,
        /// Opens the file with its key.
        key: Again,
    },
    /// Made at the start, for a first try.
    SelfSigned,
}

/// What is bounded; each bound has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// Requests of one identity per second; at once it may be twice as many.
    pub requests_per_s: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { connections: 256, requests_per_s: 100 }
    }
}

/// What stands in a file of certificates or of a key.
pub(crate) fn read(open: &mut Again) -> io::Result<Vec<u8>> {
    let file: File = open()?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

/// Whether an address needs no TLS.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_have_the_name_that_is_given_or_that_of_their_socket() {
        let check = |text: &str, name: &str, path: &str| {
            let expected = Instance { name: name.to_string(), path: PathBuf::from(path) };
            assert_eq!(Instance::read(text), Ok(expected), "{text}");
        };
        check("/run/wirescope/lan.sock", "lan", "/run/wirescope/lan.sock");
        check("dmz=/run/wirescope/lan.sock", "dmz", "/run/wirescope/lan.sock");
        check("/tmp/a=b/lan.sock", "lan", "/tmp/a=b/lan.sock");
        check("./a=b/lan.sock", "lan", "./a=b/lan.sock");
        check("wirescope.sock", "wirescope", "wirescope.sock");
        for text in
            ["", "a=", "=/run/x.sock", "a b=/run/x.sock", "/", "/run/..", "/run/a b.sock", "a/b=d1/x.sock"]
        {
            assert!(Instance::read(text).is_err(), "{text}");
        }
    }
}
