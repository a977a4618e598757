//! Which door to the network a client believes: one whose certificate is signed by somebody known, or is exactly the one
//! whose fingerprint was told; and the certificate by which a client says who it is.
//!
//! Signed certificates are checked by rustls, with one exception: a certificate that may sign others isn't taken for a
//! door's own there, and `openssl req -x509` makes just that. Where such a one is, byte for byte, among those that are to
//! be believed, it is believed, if its time and its names fit.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::fmt;
use std::sync::Arc;

/// Whom a client believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Whose certificate is signed by one of these, as PEM, and names the host.
    Signed(Vec<u8>),
    /// Whose certificate has this SHA-256, whoever has signed it.
    Fingerprint([u8; SHA256_OUTPUT_LEN]),
}

impl Trust {
    /// A fingerprint in words: 64 digits, colons between them or none.
    pub fn fingerprint(text: &str) -> Option<Trust> {
        let digits: String = text.trim().chars().filter(|sign| *sign != ':').collect();
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        if digits.len() != 2 * bytes.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..digits.len()).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
        }
        Some(Trust::Fingerprint(bytes))
    }

    /// What TLS is spoken with.
    ///
    /// # Errors
    /// There is no certificate among those that it is to believe.
    pub(crate) fn config(&self, own: Option<&OwnCertificate>) -> Result<ClientConfig, String> {
        let provider: Arc<CryptoProvider> = Arc::new(provider::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match self {
            Trust::Signed(pem) => {
                let mut roots = RootCertStore::empty();
                let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
                let found = found.map_err(|error| format!("it is no file of certificates: {error}"))?;
                roots.add_parsable_certificates(found.iter().cloned());
                if roots.is_empty() {
                    return Err("there is no certificate in it".to_string());
                }
                let above = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let above = above.map_err(|error| error.to_string())?;
                let verifier = Arc::new(Signed { above, exactly: found });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            Trust::Fingerprint(sha256) => {
                let verifier = Arc::new(Pinned { sha256: *sha256, algorithms });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_cert_resolver(own.0.clone()),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificate of a client, and its key.
#[derive(Clone)]
pub struct OwnCertificate(Arc<SingleCertAndKey>);

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a certificate and its key")
    }
}

/// Why that is no certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadCertificate {
    /// The certificate is none.
    Certificate(String),
    /// The key is none, or another one's.
    Key(String),
}

impl OwnCertificate {
    /// A certificate with those above it behind it, and its key, both as PEM.
    ///
    /// # Errors
    /// They can't be read, or don't go together.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<OwnCertificate, BadCertificate> {
        let no_certificate =
            |error: &dyn fmt::Display| BadCertificate::Certificate(format!("it is no certificate: {error}"));
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| no_certificate(&error))?;
        let Some(first) = chain.first() else {
            return Err(BadCertificate::Certificate("there is no certificate in it".to_string()));
        };
        ParsedCertificate::try_from(first).map_err(|error| no_certificate(&error))?;
        let no_key = |error: &dyn fmt::Display| BadCertificate::Key(format!("it is no key: {error}"));
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| no_key(&error))?;
        let certified = CertifiedKey::from_der(chain, key, &provider::default_provider());
        match certified {
            Ok(certified) => Ok(OwnCertificate(Arc::new(SingleCertAndKey::from(certified)))),
            Err(Error::InconsistentKeys(_)) => {
                Err(BadCertificate::Key("it is the key of another certificate".to_string()))
            }
            Err(error) => Err(no_key(&error)),
        }
    }
}

/// Why the certificate of a door isn't believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// Nobody who is believed has signed it.
    #[error("its certificate is signed by nobody who is believed here")]
    UnknownIssuer,
    /// It names others.
    #[error("its certificate is for other names{}", named(.0))]
    WrongName(Vec<String>),
    /// Its time is over.
    #[error("its certificate has expired")]
    Expired,
    /// Its time hasn't come.
    #[error("its certificate isn't valid yet")]
    NotYetValid,
    /// It is another one than the one that was told.
    #[error("its certificate has another fingerprint")]
    WrongFingerprint,
    /// It is one that signs others, and isn't itself among those that are believed.
    #[error("its certificate is one that signs others (CA:TRUE), and not itself one of those believed here")]
    Ca,
    /// Something rarer.
    #[error("its certificate can't be believed: {0}")]
    Other(&'static str),
}

/// The names of a certificate, behind what is said of it.
fn named(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
}

impl Untrusted {
    /// Why there is no TLS, if that is because of the door's certificate.
    pub(crate) fn of(error: &Error) -> Option<Untrusted> {
        let Error::InvalidCertificate(error) = error else { return None };
        Some(match error {
            CertificateError::UnknownIssuer => Untrusted::UnknownIssuer,
            CertificateError::NotValidForName => Untrusted::WrongName(Vec::new()),
            CertificateError::NotValidForNameContext { presented, .. } => {
                Untrusted::WrongName(presented.iter().map(|name| plain_name(name)).collect())
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Untrusted::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Untrusted::NotYetValid
            }
            CertificateError::ApplicationVerificationFailure => Untrusted::WrongFingerprint,
            CertificateError::BadEncoding => Untrusted::Other("it is none that can be read"),
            CertificateError::BadSignature => Untrusted::Other("a signature is wrong"),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Untrusted::Other("it is made for something else than a server")
            }
            error if is_ca(error) => Untrusted::Ca,
            _ => Untrusted::Other("it is of a form that isn't known here"),
        })
    }
}

/// `DnsName("scope.example")` as people write it.
fn plain_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_string()
}

/// Whether a certificate is refused because it may sign others.
fn is_ca(error: &CertificateError) -> bool {
    let CertificateError::Other(other) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Believes whom somebody known has signed, or who is known himself.
#[derive(Debug)]
struct Signed {
    above: Arc<WebPkiServerVerifier>,
    /// All that are to be believed.
    exactly: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Signed {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.above.verify_server_cert(certificate, above, name, stapled, now) {
            // Its time was looked at before that: one that is over, or hasn't come, is refused for it.
            Err(Error::InvalidCertificate(error)) if is_ca(&error) && self.exactly.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            // It names somebody known as its signer, whose key it isn't signed with.
            Err(Error::InvalidCertificate(CertificateError::BadSignature)) => {
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.above.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.above.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.above.supported_verify_schemes()
    }
}

/// Believes one certificate, and its key.
#[derive(Debug)]
struct Pinned {
    sha256: [u8; SHA256_OUTPUT_LEN],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _above: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _stapled: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match digest(&SHA256, certificate).as_ref() == self.sha256 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    #[test]
    fn fingerprints_are_read_as_programs_write_them() {
        let digits = "00ff".repeat(16);
        let colons: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
        let expected = Trust::fingerprint(&digits);
        assert!(matches!(expected, Some(Trust::Fingerprint(bytes)) if bytes[..2] == [0, 255]));
        assert_eq!(Trust::fingerprint(&format!(" {}\n", colons.join(":").to_uppercase())), expected);
        for text in ["", "00", &digits[1..], &digits.replace('f', "g")] {
            assert_eq!(Trust::fingerprint(text), None, "{text}");
        }
    }

    /// A certificate for `scope.example` that is good from the begin of one year to that of another.
    fn made(is_ca: IsCa, from: i32, to: i32) -> rcgen::Certificate {
        let mut params = CertificateParams::new(["scope.example".to_string()]).unwrap();
        params.is_ca = is_ca;
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_certificate_that_signs_others_is_believed_where_it_is_named_itself_and_its_name_and_time_fit() {
        let ca = || IsCa::Ca(BasicConstraints::Unconstrained);
        let [good, other] = [made(ca(), 2020, 2100), made(ca(), 2020, 2100)];
        let [old, new] = [made(ca(), 2000, 2001), made(ca(), 2090, 2100)];
        let plain = made(IsCa::NoCa, 2020, 2100);
        let check = |believed: &[&rcgen::Certificate], shown: &rcgen::Certificate, name: &'static str| {
            let mut roots = RootCertStore::empty();
            let exactly: Vec<_> = believed.iter().map(|made| made.der().clone()).collect();
            roots.add_parsable_certificates(exactly.iter().cloned());
            let provider = Arc::new(provider::default_provider());
            let above = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
            let signed = Signed { above: above.unwrap(), exactly };
            let (name, now) = (ServerName::try_from(name).unwrap(), UnixTime::now());
            let verified = signed.verify_server_cert(shown.der(), &[], &name, &[], now);
            verified.map(drop).map_err(|error| Untrusted::of(&error).unwrap())
        };
        let (name, wrong) = ("scope.example", Untrusted::WrongName(vec!["scope.example".to_string()]));
        assert_eq!(check(&[&other, &good], &good, name), Ok(()));
        assert_eq!(check(&[&plain], &plain, name), Ok(()));
        for (believed, shown, name, refused) in [
            (&[&good][..], &good, "example.com", wrong.clone()),
            (&[&plain], &plain, "192.0.2.7", wrong),
            (&[&other], &good, name, Untrusted::Ca),
            (&[&other], &plain, name, Untrusted::UnknownIssuer),
            (&[&old], &old, name, Untrusted::Expired),
            (&[&new], &new, name, Untrusted::NotYetValid),
        ] {
            assert_eq!(check(believed, shown, name), Err(refused));
        }
    }

    #[test]
    fn another_certificate_than_the_one_that_was_told_is_refused_in_words() {
        let shown = made(IsCa::NoCa, 2020, 2100);
        let algorithms = provider::default_provider().signature_verification_algorithms;
        let pinned = Pinned { sha256: [7; 32], algorithms };
        let name = ServerName::try_from("scope.example").unwrap();
        let refused = pinned.verify_server_cert(shown.der(), &[], &name, &[], UnixTime::now()).unwrap_err();
        let refused = Untrusted::of(&refused);
        assert_eq!(refused, Some(Untrusted::WrongFingerprint));
        assert_eq!(Untrusted::of(&Error::DecryptError), None);
    }

    #[test]
    fn who_believes_nobody_is_told() {
        for pem in [&b""[..], b"mine", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(Trust::Signed(pem.to_vec()).config(None).is_err());
        }
        assert!(Trust::Fingerprint([0; 32]).config(None).is_ok());
    }
}
