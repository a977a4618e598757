//! Certificates of clients: whose signature is believed, which of them were revoked, and the one of a connection.
//!
//! ```text
//! handshake ─► signed by a CA of now, in time, on no list of revoked ones? ─► a connection with a certificate, or without
//! each request, and each second of an answer ─► the same once more ─► whose is it: the file of tokens
//! ```
//! A connection may live for days, and a session may be taken up again without a new look at its certificate. So what the
//! handshake found out is never taken for granted.

use crate::settings::{Again, ClientSettings, read};
use crate::tokens::{FINGERPRINT_BYTES, Fingerprint, hex};
use ring::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use scope_fault::Fault;
use std::sync::Arc;

/// What checks certificates of clients.
pub(crate) type Verifier = Arc<dyn ClientCertVerifier>;

/// The certificate of a connection, and those above it, as the client sent them.
pub(crate) struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    pub fingerprint: Fingerprint,
}

impl Certificate {
    /// `None`: the client sent none.
    pub(crate) fn of(chain: Option<&[CertificateDer<'static>]>) -> Option<Certificate> {
        let chain = chain?.to_vec();
        let fingerprint = sha256(chain.first()?);
        Some(Certificate { chain, fingerprint })
    }

    /// Whether it is good now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, verifier: &Verifier) -> Result<(), rustls::Error> {
        let (own, above) = self.chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        verifier.verify_client_cert(own, above, UnixTime::now()).map(drop)
    }

    /// Its SHA-256, as digits.
    pub(crate) fn digits(&self) -> String {
        hex(&self.fingerprint)
    }
}

/// What the files of now say. A client without a certificate may come in, and needs a token.
///
/// # Errors
/// What is wrong with which file.
pub(crate) fn verifier(files: &mut ClientSettings) -> Result<Verifier, Fault> {
    let (ca, crl) = ("tls-client-ca", "tls-client-crl");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca, &mut files.ca)? {
        roots.add(certificate).map_err(|error| {
            let fault = Fault::of(ca).cause(format!("it is no certificate: {error}"));
            fault.remedy("name a PEM file with the certificates of those who sign certificates of clients")
        })?;
    }
    let lists = files.crl.as_mut().map_or(Ok(Vec::new()), |file| revoked(crl, file))?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
    let builder = builder.with_crls(lists).enforce_revocation_expiration().allow_unauthenticated();
    builder.build().map_err(|error| {
        let fault = Fault::of(crl).cause(format!("it is no list of revoked certificates: {error}"));
        fault.remedy("name a PEM file with the CRL of each CA")
    })
}

fn certificates(key: &'static str, file: &mut Again) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let remedy = "name a PEM file with the certificates of those who sign certificates of clients";
    let text = read(file).map_err(|error| Fault::of(key).error(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(Fault::of(key).cause("there is no certificate in it").remedy(remedy))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(Fault::of(key).cause(format!("it is no certificate: {error}")).remedy(remedy)),
    }
}

fn revoked(key: &'static str, file: &mut Again) -> Result<Vec<CertificateRevocationListDer<'static>>, Fault> {
    let remedy = "name a PEM file with the CRL of each CA";
    let text = read(file).map_err(|error| Fault::of(key).error(&error))?;
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => {
            let fault = Fault::of(key).cause("there is no list of revoked certificates in it");
            Err(fault.remedy(remedy))
        }
        Ok(found) => Ok(found),
        Err(error) => {
            let fault = Fault::of(key).cause(format!("it is no list of revoked certificates: {error}"));
            Err(fault.remedy(remedy))
        }
    }
}

/// The fingerprint of the first certificate of a PEM file: that of its owner, where those above it stand behind it.
///
/// # Errors
/// Why there is none.
pub fn fingerprint_of_pem(text: &[u8]) -> Result<Fingerprint, String> {
    let certificate = match CertificateDer::pem_slice_iter(text).next() {
        None => return Err("there is no certificate in it".to_string()),
        Some(found) => found.map_err(|error| format!("it is no certificate: {error}"))?,
    };
    ParsedCertificate::try_from(&certificate).map_err(|error| format!("it is no certificate: {error}"))?;
    Ok(sha256(&certificate))
}

/// SHA-256 of a certificate.
pub(crate) fn sha256(certificate: &CertificateDer<'_>) -> Fingerprint {
    let mut bytes = [0; FINGERPRINT_BYTES];
    bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
        KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
    };
    use std::fs::File;
    use std::path::Path;

    /// Who signs.
    pub(crate) struct Ca {
        issuer: Issuer<'static, KeyPair>,
        pub pem: String,
    }

    impl Ca {
        pub(crate) fn new(name: &str) -> Ca {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Ca { issuer: Issuer::new(params, key), pem }
        }

        /// A certificate with this number that is good until the begin of that year.
        pub(crate) fn sign(&self, number: u64, year: i32) -> rcgen::Certificate {
            let mut params = CertificateParams::new(["client".to_string()]).unwrap();
            params.serial_number = Some(SerialNumber::from(number));
            params.not_after = date_time_ymd(year, 1, 1);
            params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap()
        }

        /// A list of these numbers that is good until the begin of that year.
        pub(crate) fn revoke(&self, numbers: &[u64], year: i32) -> String {
            let revoked = |number: &u64| RevokedCertParams {
                serial_number: SerialNumber::from(*number),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            };
            let params = CertificateRevocationListParams {
                this_update: date_time_ymd(2020, 1, 1),
                next_update: date_time_ymd(year, 1, 1),
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: numbers.iter().map(revoked).collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            params.signed_by(&self.issuer).unwrap().pem().unwrap()
        }
    }

    fn again(path: &Path) -> Again {
        let path = path.to_path_buf();
        Box::new(move || File::open(&path))
    }

    fn of(ca: &str, crl: Option<&str>) -> Result<Verifier, Fault> {
        let folder = tempfile::tempdir().unwrap();
        let [ca_path, crl_path] = ["ca", "crl"].map(|name| folder.path().join(name));
        std::fs::write(&ca_path, ca).unwrap();
        std::fs::write(&crl_path, crl.unwrap_or_default()).unwrap();
        let crl = crl.map(|_| again(&crl_path));
        verifier(&mut ClientSettings { ca: again(&ca_path), crl })
    }

    fn certificate(made: &rcgen::Certificate) -> Certificate {
        Certificate::of(Some(&[made.der().clone()])).unwrap()
    }

    #[test]
    fn a_certificate_is_good_while_its_ca_its_time_and_the_lists_say_so() {
        let [ca, other] = ["one", "other"].map(Ca::new);
        let [good, old, foreign] =
            [ca.sign(7, 2100), ca.sign(8, 2021), other.sign(7, 2100)].map(|made| certificate(&made));
        let check = |certificate: &Certificate, ca: &str, crl: Option<&str>| {
            certificate.check(&of(ca, crl).unwrap()).map_err(|error| error.to_string())
        };
        let both = format!("{}{}", other.pem, ca.pem);
        assert_eq!(check(&good, &ca.pem, None), Ok(()));
        assert_eq!(check(&good, &both, None), Ok(()));
        assert_eq!(check(&foreign, &both, None), Ok(()));
        assert_eq!(check(&good, &ca.pem, Some(&ca.revoke(&[8], 2100))), Ok(()));
        for (certificate, ca_pem, crl, told) in [
            (&old, &ca.pem, None, "expired"),
            (&foreign, &ca.pem, None, "UnknownIssuer"),
            (&good, &ca.pem, Some(ca.revoke(&[7], 2100)), "Revoked"),
            (&good, &ca.pem, Some(ca.revoke(&[], 2021)), "revocation list"),
            // Nobody says whether it was revoked.
            (&good, &ca.pem, Some(other.revoke(&[], 2100)), "UnknownRevocationStatus"),
        ] {
            let error = check(certificate, ca_pem, crl.as_deref()).unwrap_err();
            assert!(error.contains(told), "{told}: {error}");
        }
        assert!(Certificate::of(None).is_none() && Certificate::of(Some(&[])).is_none());
    }

    #[test]
    fn files_that_hold_something_else_are_told() {
        let ca = Ca::new("one");
        let key = KeyPair::generate().unwrap().serialize_pem();
        let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, told) in [
            ("", "there is no certificate in it"),
            ("mine", "there is no certificate in it"),
            (&key, "there is no certificate in it"),
            (no_der, "it is no certificate"),
        ] {
            let fault = of(text, None).err().unwrap().to_string();
            assert!(fault.contains("--tls-client-ca") && fault.contains(told), "{fault}");
            assert!(fingerprint_of_pem(text.as_bytes()).unwrap_err().contains(told), "{text}");
        }
        for (text, told) in [
            ("", "there is no list"),
            (&ca.pem, "there is no list"),
            ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "it is no list"),
        ] {
            let fault = of(&ca.pem, Some(text)).err().unwrap().to_string();
            assert!(fault.contains("--tls-client-crl") && fault.contains(told), "{fault}");
        }
        let made = ca.sign(7, 2100);
        let found = fingerprint_of_pem(format!("{key}{}{}", made.pem(), ca.pem).as_bytes());
        assert_eq!(found, Ok(certificate(&made).fingerprint), "the first one is the owner's");
    }
}
