//! Certificates: read from files, and again when that is ordered; or made at the start, for a first try.

use crate::settings::{Again, TlsSettings};
use crate::tokens::hex;
use rcgen::{CertificateParams, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use scope_fault::Fault;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a file of certificates or of a key at most.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The one protocol above TLS that is spoken.
const PROTOCOL: &[u8] = b"http/1.1";

/// What TLS is spoken with now.
pub(crate) struct Certificates {
    files: Mutex<Option<Files>>,
    now: Mutex<Arc<ServerConfig>>,
    /// Of one that was made here.
    fingerprint: Option<String>,
}

struct Files {
    certificate: Again,
    key: Again,
}

impl Certificates {
    /// As the settings say; one that is made here is for these names.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(crate) fn new(settings: TlsSettings, names: &[String]) -> Result<Certificates, Fault> {
        match settings {
            TlsSettings::Files { certificate, key } => {
                let mut files = Files { certificate, key };
                let now = Mutex::new(files.config()?);
                Ok(Certificates { files: Mutex::new(Some(files)), now, fingerprint: None })
            }
            TlsSettings::SelfSigned => {
                let fault = |error: &dyn std::fmt::Display| {
                    Fault::of("tls-self-signed").cause(format!("no certificate can be made: {error}"))
                };
                let (chain, key) = self_signed(names).map_err(|error| fault(&error))?;
                let fingerprint = Some(fingerprint(&chain));
                let config = config(vec![chain], key).map_err(|error| fault(&error))?;
                Ok(Certificates { files: Mutex::default(), now: Mutex::new(config), fingerprint })
            }
        }
    }

    /// What new connections are spoken to with.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Of a certificate that was made here, what tells it from others.
    pub(crate) fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Reads the files again; whether there are any.
    ///
    /// # Errors
    /// What is wrong with which file: then those that were good before stay in force.
    pub(crate) fn reread(&self) -> Result<bool, Fault> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(files) = files.as_mut() else { return Ok(false) };
        let config = files.config()?;
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(true)
    }
}

impl Files {
    fn config(&mut self) -> Result<Arc<ServerConfig>, Fault> {
        let (cert, tls_key) = ("tls-cert", "tls-key");
        let text = read(&mut self.certificate).map_err(|error| Fault::of(cert).error(&error))?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| Fault::of(cert).cause(format!("it is no certificate: {error}")))?;
        if chain.is_empty() {
            let fault = Fault::of(cert).cause("there is no certificate in it");
            return Err(fault.remedy("name a PEM file with the certificate, and those above it behind it"));
        }
        let text = read(&mut self.key).map_err(|error| Fault::of(tls_key).error(&error))?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let fault = Fault::of(tls_key).cause(format!("it is no key: {error}"));
            fault.remedy("name a PEM file with the certificate's private key, without a passphrase")
        })?;
        config(chain, key).map_err(|error| {
            let fault = Fault::of(tls_key).cause(format!("it doesn't go with the certificate: {error}"));
            fault.remedy("name the key that this certificate was made for")
        })
    }
}

fn read(open: &mut Again) -> io::Result<Vec<u8>> {
    let file: File = open()?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

/// TLS 1.2 and 1.3: older versions the library doesn't have.
fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

fn self_signed(names: &[String]) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
    Ok((certificate.der().clone(), key))
}

/// SHA-256 of a certificate, as digits.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    hex(digest(&SHA256, certificate).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn again(path: &Path) -> Again {
        let path = path.to_path_buf();
        Box::new(move || File::open(&path))
    }

    fn write(folder: &Path) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["localhost".to_string()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(folder.join("cert"), certificate.pem()).unwrap();
        std::fs::write(folder.join("key"), key.serialize_pem()).unwrap();
    }

    #[test]
    fn files_are_read_again_and_bad_ones_leave_the_good_ones_in_force() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let [certificate, key] = ["cert", "key"].map(|name| again(&folder.path().join(name)));
        let certificates = Certificates::new(TlsSettings::Files { certificate, key }, &[]).unwrap();
        let first = certificates.now();
        write(folder.path());
        assert_eq!(certificates.reread(), Ok(true));
        let second = certificates.now();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(folder.path().join("key"), "mine").unwrap();
        let refused = certificates.reread().unwrap_err().to_string();
        assert!(refused.contains("it is no key"), "{refused}");
        assert!(Arc::ptr_eq(&second, &certificates.now()));
        // The key of another certificate.
        let other = tempfile::tempdir().unwrap();
        write(other.path());
        std::fs::copy(other.path().join("key"), folder.path().join("key")).unwrap();
        let refused = certificates.reread().unwrap_err().to_string();
        assert!(refused.contains("it doesn't go with the certificate"), "{refused}");
        std::fs::write(folder.path().join("cert"), "").unwrap();
        assert!(certificates.reread().unwrap_err().to_string().contains("there is no certificate in it"));
    }

    #[test]
    fn one_that_is_made_here_has_a_fingerprint_and_nothing_to_read_again() {
        let names = ["localhost".to_string(), "192.0.2.7".to_string()];
        let certificates = Certificates::new(TlsSettings::SelfSigned, &names).unwrap();
        assert_eq!(certificates.fingerprint().map(str::len), Some(64));
        assert_eq!(certificates.reread(), Ok(false));
    }
}
