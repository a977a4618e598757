//! Which door to the network a client believes: one whose certificate is signed by somebody known, or is exactly the one
//! whose fingerprint was told; and the certificate by which a client says who it is.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
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
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match self {
            Trust::Signed(pem) => {
                let mut roots = RootCertStore::empty();
                let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
                roots.add_parsable_certificates(found.map_err(|error| error.to_string())?);
                if roots.is_empty() {
                    return Err("there is no certificate in it".to_string());
                }
                builder.with_root_certificates(roots)
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

    #[test]
    fn who_believes_nobody_is_told() {
        for pem in [&b""[..], b"mine", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(Trust::Signed(pem.to_vec()).config(None).is_err());
        }
        assert!(Trust::Fingerprint([0; 32]).config(None).is_ok());
    }
}
