//! Certificates: read from files, and again when that is ordered; or made at the start, for a first try.

use crate::clients::{self, Certificate, Verifier, sha256};
use crate::settings::{Again, ClientSettings, OwnCertificate, TlsSettings, read};
use crate::tokens::hex;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use scope_fault::Fault;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The one protocol above TLS that is spoken.
const PROTOCOL: &[u8] = b"http/1.1";
/// Whose a certificate is that is made here, and how long it is good.
const COMMON_NAME: &str = "wirescope";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const GOOD_DAYS: u32 = 365;

/// What TLS is spoken with now.
pub(crate) struct Certificates {
    files: Mutex<Files>,
    now: Mutex<Now>,
    /// Of one that was made here.
    fingerprint: Option<String>,
}

/// What is in force.
#[derive(Clone)]
struct Now {
    config: Arc<ServerConfig>,
    /// `None`: clients are asked for no certificate.
    clients: Option<Verifier>,
}

struct Files {
    own: Own,
    clients: Option<ClientSettings>,
}

/// Where the own certificate is from.
enum Own {
    Files { certificate: Again, key: Again },
    Made(CertificateDer<'static>, PrivateKeyDer<'static>),
}

impl Certificates {
    /// As the settings say; one that is made here is for these names.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(crate) fn new(settings: TlsSettings, names: &[String]) -> Result<Certificates, Fault> {
        let TlsSettings { own, clients } = settings;
        let (own, fingerprint) = match own {
            OwnCertificate::Files { certificate, key } => (Own::Files { certificate, key }, None),
            OwnCertificate::SelfSigned => {
                let (certificate, key) = self_signed(names).map_err(|error| not_made(&error))?;
                let fingerprint = hex(&sha256(&certificate));
                (Own::Made(certificate, key), Some(fingerprint))
            }
        };
        let mut files = Files { own, clients };
        let now = Mutex::new(files.now()?);
        Ok(Certificates { files: Mutex::new(files), now, fingerprint })
    }

    fn in_force(&self) -> Now {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What new connections are spoken to with.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        self.in_force().config
    }

    /// Whether a client's certificate is good now, by what is in force now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, certificate: &Certificate) -> Result<(), rustls::Error> {
        let clients = self.in_force().clients;
        certificate.check(&clients.ok_or(rustls::Error::NoCertificatesPresented)?)
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
        if matches!(files.own, Own::Made(..)) && files.clients.is_none() {
            return Ok(false);
        }
        let now = files.now()?;
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(true)
    }
}

fn not_made(error: &dyn std::fmt::Display) -> Fault {
    Fault::of("tls-self-signed").cause(format!("no certificate can be made: {error}"))
}

impl Files {
    fn now(&mut self) -> Result<Now, Fault> {
        let clients = self.clients.as_mut().map(clients::verifier).transpose()?;
        let config = self.own.config(clients.clone())?;
        Ok(Now { config, clients })
    }
}

impl Own {
    fn config(&mut self, clients: Option<Verifier>) -> Result<Arc<ServerConfig>, Fault> {
        let (cert, tls_key) = ("tls-cert", "tls-key");
        let (certificate, key) = match self {
            Own::Files { certificate, key } => (certificate, key),
            Own::Made(certificate, key) => {
                let made = config(vec![certificate.clone()], key.clone_key(), clients);
                return made.map_err(|error| not_made(&error));
            }
        };
        let text = read(certificate).map_err(|error| Fault::of(cert).error(&error))?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| Fault::of(cert).cause(format!("it is no certificate: {error}")))?;
        if chain.is_empty() {
            let fault = Fault::of(cert).cause("there is no certificate in it");
            return Err(fault.remedy("name a PEM file with the certificate, and those above it behind it"));
        }
        let text = read(key).map_err(|error| Fault::of(tls_key).error(&error))?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let fault = Fault::of(tls_key).cause(format!("it is no key: {error}"));
            fault.remedy("name a PEM file with the certificate's private key, without a passphrase")
        })?;
        config(chain, key, clients).map_err(|error| {
            let fault = Fault::of(tls_key).cause(format!("it doesn't go with the certificate: {error}"));
            fault.remedy("name the key that this certificate was made for")
        })
    }
}

/// TLS 1.2 and 1.3: older versions the library doesn't have.
fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<Verifier>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(clients),
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

fn self_signed(names: &[String]) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = params(names, SystemTime::now())?.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
    Ok((certificate.der().clone(), key))
}

/// What a certificate that is made here says. It begins a day ago: clocks differ.
fn params(names: &[String], now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, COMMON_NAME);
    let now = date_time_ymd(1970, 1, 1) + now.duration_since(UNIX_EPOCH).unwrap_or_default();
    (params.not_before, params.not_after) = (now - DAY, now + DAY * GOOD_DAYS);
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::Ca;
    use std::fs::File;
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
        let own = OwnCertificate::Files { certificate, key };
        let certificates = Certificates::new(TlsSettings { own, clients: None }, &[]).unwrap();
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
    fn one_that_is_made_here_is_wirescope_s_and_good_for_a_year() {
        let since = Duration::from_secs(1_795_206_665); // 2026-11-20
        let made = params(&["localhost".to_string()], UNIX_EPOCH + since).unwrap();
        let name = made.distinguished_name.get(&DnType::CommonName).unwrap();
        assert!(*name == "wirescope".into() && made.distinguished_name.iter().count() == 1, "{name:?}");
        let seconds = (made.not_before.unix_timestamp(), made.not_after.unix_timestamp());
        assert_eq!(seconds, (1_795_206_665 - 86_400, 1_795_206_665 + 365 * 86_400));
    }

    #[test]
    fn one_that_is_made_here_has_a_fingerprint_and_nothing_to_read_again() {
        let names = ["localhost".to_string(), "192.0.2.7".to_string()];
        let own = || OwnCertificate::SelfSigned;
        let certificates = Certificates::new(TlsSettings { own: own(), clients: None }, &names).unwrap();
        assert_eq!(certificates.fingerprint().map(str::len), Some(64));
        assert_eq!(certificates.reread(), Ok(false));
        // Whom it believes may change all the same.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca");
        let [ca, other] = ["one", "other"].map(Ca::new);
        std::fs::write(&path, &ca.pem).unwrap();
        let clients = Some(ClientSettings { ca: again(&path), crl: None });
        let certificates = Certificates::new(TlsSettings { own: own(), clients }, &names).unwrap();
        let client = Certificate::of(Some(&[ca.sign(7, 2100).der().clone()])).unwrap();
        let digits = certificates.fingerprint().map(str::to_string);
        assert!(certificates.check(&client).is_ok());
        std::fs::write(&path, "mine").unwrap();
        assert!(certificates.reread().is_err());
        assert!(certificates.check(&client).is_ok(), "what is bad leaves the good ones in force");
        std::fs::write(&path, &other.pem).unwrap();
        assert_eq!(certificates.reread(), Ok(true));
        assert!(certificates.check(&client).is_err());
        assert_eq!(certificates.fingerprint().map(str::to_string), digits);
    }
}
