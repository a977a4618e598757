//! Certificates of clients at the door to the network: whose they are, what each may ask, and what becomes of open
//! connections and answers when one is revoked.

mod door;
mod run;

use door::{Heard, Running, Serving};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use run::{Done, LIMIT, Place, Started, finish, wait_until, wirescope};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who signs.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in files.
struct Certified {
    cert: PathBuf,
    key: PathBuf,
}

impl Ca {
    fn new(name: &str) -> Ca {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { issuer: Issuer::new(params, key), pem }
    }

    /// One with this number for these names that is good until the begin of that year.
    fn sign(&self, folder: &Path, name: &str, number: u64, year: i32) -> Certified {
        let names = ["localhost".to_string(), "127.0.0.1".to_string()];
        let mut params = CertificateParams::new(names).unwrap();
        params.serial_number = Some(SerialNumber::from(number));
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        let [cert, key_path] = ["cert", "key"].map(|what| folder.join(format!("{name}-{what}.pem")));
        std::fs::write(&cert, made.pem()).unwrap();
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        Certified { cert, key: key_path }
    }

    /// A list of these numbers.
    fn revoke(&self, numbers: &[u64]) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

impl Certified {
    fn paths(&self) -> [&str; 2] {
        [&self.cert, &self.key].map(|path| path.to_str().unwrap())
    }
}

/// A run, the one who signs both its door's certificate and those of its clients, and what the door is begun with.
struct Stand {
    running: Running,
    ca: Ca,
    ca_path: PathBuf,
    words: Vec<String>,
}

impl Stand {
    fn new() -> Stand {
        let (running, ca) = (Running::new(&[]), Ca::new("own"));
        let (ca_path, words) = door_words(&running.place, &ca);
        Stand { running, ca, ca_path, words }
    }

    fn folder(&self) -> &Path {
        self.running.place.root()
    }

    fn client(&self, name: &str, number: u64) -> Certified {
        self.ca.sign(self.folder(), name, number, 2100)
    }

    fn serve(&self, more: &[&str]) -> Serving {
        let words: Vec<&str> = self.words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.running.serve(&words)
    }

    /// Names whose this certificate is.
    fn name(&self, words: &[&str], client: &Certified) -> String {
        self.running.token(&[words, &["--certificate", client.paths()[0]]].concat())
    }

    /// `wirescope token`, with this file of tokens.
    fn tokens(&self, words: &[&str]) -> Done {
        let mut command = wirescope(&[&["token"], words].concat());
        command.arg("--tokens").arg(self.running.tokens());
        finish(command)
    }

    fn revoke(&self, name: &str) {
        assert_eq!(self.tokens(&["revoke", name]).code(), Some(0));
    }

    /// A command that asks by a certificate, or by the token of a file, or by both.
    fn command(
        &self,
        address: &str,
        client: Option<&Certified>,
        token: Option<&Path>,
        words: &[&str],
    ) -> Done {
        let mut command = wirescope(words);
        command.args(["--url", &format!("https://{address}"), "--tls-ca"]).arg(&self.ca_path);
        if let Some(client) = client {
            let [cert, key] = client.paths();
            command.args(["--tls-client-cert", cert, "--tls-client-key", key]);
        }
        if let Some(token) = token {
            command.arg("--token-file").arg(token);
        }
        finish(command)
    }

    fn connect(&self, serving: &Serving, client: Option<&Certified>) -> Connection {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(Certified { cert, key }) => {
                let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(&serving.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Connection(StreamOwned::new(connection, stream))
    }
}

/// Writes the certificate of a door; the file of who has signed it, and the flags of both.
fn door_words(place: &Place, ca: &Ca) -> (PathBuf, Vec<String>) {
    let ca_path = place.path("ca.pem");
    std::fs::write(&ca_path, &ca.pem).unwrap();
    let door = ca.sign(place.root(), "door", 1, 2100);
    let [cert, key] = door.paths();
    let words = ["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca_path.to_str().unwrap()];
    let words = words.map(str::to_string).to_vec();
    (ca_path, words)
}

/// A connection that stays open.
struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl Connection {
    /// Asks; the head of the answer.
    fn begin(&mut self, route: &str, more: &str) -> std::io::Result<String> {
        let request = format!("GET /api/v1/{route} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
        self.0.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        Ok(String::from_utf8(head).unwrap().to_lowercase())
    }

    /// Asks, and takes the answer.
    fn get(&mut self, route: &str, more: &str) -> std::io::Result<Heard> {
        let mut heard = self.begin(route, more)?;
        let length = heard.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let mut body = vec![0; length.expect("a length").parse().unwrap()];
        self.0.read_exact(&mut body)?;
        heard.push_str(std::str::from_utf8(&body).unwrap());
        Ok(Heard::of(heard.as_bytes()))
    }

    /// What comes until the connection ends.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

const VIEWER: [&str; 4] = ["--role", "viewer", "--name", "eye"];
const BOUND: [&str; 6] = ["--role", "analyst", "--name", "shop", "--filter", "udp port 60000"];

#[test]
fn a_certificate_says_who_asks_where_the_file_of_tokens_names_it() {
    let stand = Stand::new();
    let [eye, shop, nobodys] =
        [("eye", 7), ("shop", 8), ("none", 9)].map(|(name, at)| stand.client(name, at));
    let old = stand.ca.sign(stand.folder(), "old", 10, 2021);
    let foreign = Ca::new("foreign").sign(stand.folder(), "foreign", 7, 2100);
    let said = stand.name(&VIEWER, &eye);
    assert!(said.starts_with("eye: viewer, by the certificate with SHA-256 "), "{said}");
    stand.name(&BOUND, &shop);
    let token = stand.running.place.path("token");
    std::fs::write(&token, stand.running.token(&["--role", "analyst", "--name", "ana"])).unwrap();
    let serving = stand.serve(&[]);
    let asked = |client: Option<&Certified>, token: Option<&Path>, words: &[&str]| {
        stand.command(&serving.address, client, token, words)
    };
    let fire = ["fire", "--before", "1m", "--wait", "--json"];
    wait_until("the packet", || asked(None, Some(&token), &["status"]).stdout.contains("dumps: 1 finished"));
    let by = |client: &Certified, words: &[&str]| asked(Some(client), None, words);
    let done = by(&eye, &["status"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(by(&eye, &fire).code(), Some(2), "a viewer fires nothing");
    // Who is bound to a filter is so by a certificate, too.
    assert_eq!(by(&shop, &["status"]).code(), Some(2));
    let done = by(&shop, &fire);
    let fired: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{}", done.stderr));
    assert_eq!(fired["packets"], 1, "{fired}");
    // Signed, and nobody's; then with a token; somebody's, and with another's token.
    let done = by(&nobodys, &["status"]);
    assert!(done.code() == Some(2) && done.stderr.contains("is nobody's here"), "{}", done.stderr);
    assert!(done.stderr.contains("wirescope token add --certificate"), "{}", done.stderr);
    assert_eq!(asked(Some(&nobodys), Some(&token), &["status"]).code(), Some(0));
    let done = asked(Some(&eye), Some(&token), &["status"]);
    assert!(done.code() == Some(2) && done.stderr.contains("has to say who asks"), "{}", done.stderr);
    // No longer good, and of somebody unknown: no connection, and a line that says why.
    for (client, told) in [(&old, "expired"), (&foreign, "UnknownIssuer")] {
        assert_ne!(by(client, &["status"]).code(), Some(0));
        wait_until(told, || {
            let words = serving.started.words();
            words.lines().any(|line| line.contains("its certificate is refused") && line.contains(told))
        });
    }
    let mut plain = stand.connect(&serving, None);
    assert_eq!(plain.get("status", "").unwrap().status, 401, "neither token nor certificate");
    let names: Vec<Value> = stand.running.audit().into_iter().map(|mut line| line["name"].take()).collect();
    assert!(names.contains(&json!("eye")) && names.contains(&json!("shop")), "{names:?}");
    serving.end();
    let listed: Value = serde_json::from_str(&stand.tokens(&["list", "--json"]).stdout).unwrap();
    let kinds: Vec<&Value> = listed["tokens"].as_array().unwrap().iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["certificate", "certificate", "token"]);
    let digits = listed["tokens"][0]["certificate"].as_str().unwrap();
    assert!(digits.len() == 64 && said.contains(digits), "{listed}");
    assert!(listed["tokens"][0]["last_use"].is_string() && listed["tokens"][2]["certificate"].is_null());
    assert!(stand.tokens(&["list"]).stdout.contains(&format!("certificate SHA-256 {digits}")));
    stand.running.end();
}

#[test]
fn who_is_revoked_is_refused_on_an_open_connection_too() {
    let stand = Stand::new();
    let [eye, other] = [("eye", 7), ("other", 8)].map(|(name, at)| stand.client(name, at));
    stand.name(&VIEWER, &eye);
    stand.name(&["--role", "viewer", "--name", "other"], &other);
    let crl = stand.running.place.path("crl.pem");
    std::fs::write(&crl, stand.ca.revoke(&[99])).unwrap();
    let serving = stand.serve(&["--tls-client-crl", crl.to_str().unwrap()]);
    let [mut by_eye, mut by_other] = [&eye, &other].map(|client| stand.connect(&serving, Some(client)));
    for connection in [&mut by_eye, &mut by_other] {
        assert_eq!(connection.get("version", "").unwrap().status, 200);
    }
    stand.revoke("eye");
    let refused = by_eye.get("version", "").unwrap();
    assert_eq!((refused.status, &refused.body["faults"][0]["place"]), (401, &json!("certificate")));
    assert_eq!(by_other.get("version", "").unwrap().status, 200);
    // What can't be read leaves the list of before in force.
    std::fs::write(&crl, "mine").unwrap();
    serving.started.signal(libc::SIGHUP);
    wait_until("a warning", || serving.started.words().contains("stay in force"));
    assert_eq!(by_other.get("version", "").unwrap().status, 200);
    std::fs::write(&crl, stand.ca.revoke(&[8])).unwrap();
    serving.started.signal(libc::SIGHUP);
    wait_until("the new list", || serving.started.words().contains("the certificates were read again"));
    let refused = by_other.get("version", "").unwrap();
    assert!(
        refused.status == 401 && refused.body["detail"].as_str().unwrap().contains("Revoked"),
        "{refused:?}"
    );
    let again = stand.connect(&serving, Some(&other)).get("version", "");
    assert!(again.is_err(), "{again:?}");
    wait_until("a line", || serving.started.words().contains("its certificate is refused"));
    serving.end();
    stand.running.end();
}

#[test]
fn an_answer_that_is_under_way_ends_when_who_asked_may_not_any_more() {
    let stand = Stand::new();
    let [eye, gone] = [("eye", 7), ("gone", 8)].map(|(name, at)| stand.client(name, at));
    stand.name(&VIEWER, &eye);
    stand.name(&["--role", "viewer", "--name", "gone"], &gone);
    let [stays, revoked] = ["stays", "revoked"]
        .map(|name| stand.running.token(&["--role", "viewer", "--name", name]))
        .map(|token| format!("authorization: Bearer {token}\r\n"));
    let crl = stand.running.place.path("crl.pem");
    std::fs::write(&crl, stand.ca.revoke(&[99])).unwrap();
    let serving = stand.serve(&["--tls-client-crl", crl.to_str().unwrap()]);
    let stream = |client: Option<&Certified>, more: &str| {
        let mut connection = stand.connect(&serving, client);
        let head = connection.begin("events", more).unwrap();
        (connection, head.starts_with("http/1.1 200"))
    };
    let opened = |client: Option<&Certified>, more: &str| {
        let (connection, is_good) = stream(client, more);
        assert!(is_good);
        connection
    };
    let mut streams = vec![opened(Some(&eye), ""), opened(Some(&gone), ""), opened(None, &revoked)];
    let mut left = opened(None, &stays);
    // One whose time is over; on a slow machine it may be so before it has asked.
    let expiring = ["3s", "30s", "300s"].iter().find_map(|time| {
        let words = ["--role", "viewer", "--name", &format!("till-{time}"), "--expires", time];
        let token = stand.running.token(&words);
        let (connection, is_good) = stream(None, &format!("authorization: Bearer {token}\r\n"));
        is_good.then_some(connection)
    });
    streams.push(expiring.expect("a token that is good for a while"));
    for name in ["eye", "revoked"] {
        stand.revoke(name);
    }
    std::fs::write(&crl, stand.ca.revoke(&[8])).unwrap();
    serving.started.signal(libc::SIGHUP);
    for stream in &mut streams {
        let rest = stream.rest();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "an answer that was broken off must not seem whole");
    }
    let counted = |connection: &mut Connection| {
        connection.get("instances", &stays).unwrap().body["door"]["ended"]["identity"].as_u64()
    };
    assert_eq!(counted(&mut stand.connect(&serving, None)), Some(4));
    // Who may still ask goes on: the next line comes.
    let mut byte = [0];
    left.0.read_exact(&mut byte).unwrap();
    let words = serving.started.words();
    assert!(words.contains("its answer ends: eye may not ask any more"), "{words}");
    drop(left);
    serving.end();
    stand.running.end();
}

#[test]
fn a_run_passes_it_on_to_the_door_that_it_begins() {
    let (place, ca) = (Place::new(), Ca::new("own"));
    let (ca_path, words) = door_words(&place, &ca);
    let eye = ca.sign(place.root(), "eye", 7, 2100);
    let crl = place.path("crl.pem");
    std::fs::write(&crl, ca.revoke(&[99])).unwrap();
    let tokens = place.path("tokens");
    door::token(&tokens, &[&VIEWER[..], &["--certificate", eye.paths()[0]]].concat());
    let mut all = vec!["--listen", "127.0.0.1:0", "--tokens", tokens.to_str().unwrap()];
    all.extend(words.iter().map(String::as_str));
    all.extend(["--tls-client-crl", crl.to_str().unwrap()]);
    let running = Running::at(place, &all);
    wait_until("the door to answer", || door::address(&running.started.words()).is_some());
    let stand = Stand { ca, ca_path, words: Vec::new(), running };
    let address = door::address(&stand.running.started.words()).unwrap();
    let status = || stand.command(&address, Some(&eye), None, &["status"]);
    wait_until("an answer", || status().code() == Some(0));
    std::fs::write(&crl, stand.ca.revoke(&[7])).unwrap();
    stand.running.started.signal(libc::SIGHUP);
    wait_until("the new list", || status().code() != Some(0));
    stand.running.end();
}

#[test]
fn what_does_not_go_together_is_refused_at_the_start() {
    let stand = Stand::new();
    let client = stand.client("eye", 7);
    let place = &stand.running.place;
    let empty = place.path("empty");
    std::fs::write(&empty, "").unwrap();
    let [cert, key] = client.paths();
    let [ca, empty] = [&stand.ca_path, &empty].map(|path| path.to_str().unwrap());
    let tls = ["--tls-cert", cert, "--tls-key", key];
    let cases: Vec<(Vec<&str>, &str)> = vec![
        (vec!["--tls-client-ca", ca], "without TLS clients have no certificates"),
        ([&tls[..], &["--tls-client-ca", empty]].concat(), "there is no certificate in it"),
        ([&tls[..], &["--tls-client-ca", key]].concat(), "there is no certificate in it"),
        ([&tls[..], &["--tls-client-ca", "/nonexistent/ca"]].concat(), "No such file"),
        (
            [&tls[..], &["--tls-client-crl", ca]].concat(),
            "clients have no certificates that could be revoked",
        ),
        (
            [&tls[..], &["--tls-client-ca", ca, "--tls-client-crl", ca]].concat(),
            "there is no list of revoked",
        ),
    ];
    stand.running.token(&VIEWER);
    let tokens = stand.running.tokens();
    for (words, told) in &cases {
        let mut command =
            wirescope(&["serve", "--listen", "127.0.0.1:0", "--control", &stand.running.control()]);
        command.arg("--tokens").arg(&tokens).args(words);
        let done = finish(command);
        assert!(done.code() == Some(2) && done.stderr.contains(told), "{words:?}: {}", done.stderr);
        let other = Place::new();
        let listen = ["--listen", "127.0.0.1:0", "--tokens", tokens.to_str().unwrap()];
        let done = Started::new(other.command(&[&door::RUN[..], &listen, words].concat())).finish(LIMIT);
        assert!(done.code() == Some(2) && done.stderr.contains(told), "run {words:?}: {}", done.stderr);
    }
    let done = Place::new().run(&[&door::RUN[..], &["--tls-client-ca", ca]].concat());
    assert!(
        done.code() == Some(2) && done.stderr.contains("there is no door to the network"),
        "{}",
        done.stderr
    );
    let before = std::fs::read(&tokens).unwrap();
    let add = ["add", "--role", "viewer", "--name", "b", "--certificate"];
    for (path, told) in [
        (empty, "there is no certificate in it"),
        (key, "there is no certificate in it"),
        ("/nonexistent/cert", "No such file"),
    ] {
        let done = stand.tokens(&[&add[..], &[path]].concat());
        assert!(done.code() == Some(2) && done.stderr.contains(told), "{path}: {}", done.stderr);
    }
    assert_eq!(std::fs::read(&tokens).unwrap(), before);
    assert_eq!(stand.tokens(&[&add[..], &[cert]].concat()).code(), Some(0));
    let done = stand.tokens(&["add", "--role", "viewer", "--name", "c", "--certificate", cert]);
    assert!(done.code() == Some(2) && done.stderr.contains("the one of 'b' already"), "{}", done.stderr);
    // Of who asks.
    let url = ["status", "--url", "https://127.0.0.1:1"];
    for (words, told) in [
        (&[][..], "nothing says who asks"),
        (&["--tls-client-cert", cert], "--tls-client-key"),
        (&["--tls-client-cert", empty, "--tls-client-key", key], "there is no certificate in it"),
        (&["--tls-client-cert", cert, "--tls-client-key", cert], "it is no key"),
        (&["--tls-client-cert", ca, "--tls-client-key", key], "it is the key of another certificate"),
    ] {
        let done = finish(wirescope(&[&url[..], words].concat()));
        assert!(done.code() == Some(2) && done.stderr.contains(told), "{words:?}: {}", done.stderr);
    }
    let plain = ["status", "--url", "http://127.0.0.1:1", "--tls-client-cert", cert, "--tls-client-key", key];
    let done = finish(wirescope(&plain));
    assert!(done.code() == Some(2) && done.stderr.contains("without TLS"), "{}", done.stderr);
    stand.running.end();
}
