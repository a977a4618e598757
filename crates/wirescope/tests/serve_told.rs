//! What a door to the network says of faults around it: rights of files and sockets, certificates, and words of its command
//! line.

mod door;
mod run;

use door::{Running, Serving};
use run::{Done, LIMIT, Place, Started, finish, is_root, skip, wait_until, wirescope};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

const VIEWER: [&str; 4] = ["--role", "viewer", "--name", "eye"];

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A door that is refused at its start, and what it says.
fn refused(tokens: &Path, control: &str, more: &[&str]) -> String {
    let mut command =
        wirescope(&[&["serve", "--listen", "127.0.0.1:0", "--control", control], more].concat());
    command.arg("--tokens").arg(tokens);
    let done = finish(command);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    done.stderr
}

#[test]
fn a_file_of_tokens_that_others_have_a_hand_in_is_refused_at_the_start_and_later() {
    let running = Running::new(&[]);
    let (token, tokens) = (running.token(&VIEWER), running.tokens());
    let close = format!("chmod 600 {}", tokens.display());
    for bad in [0o666, 0o640, 0o604] {
        mode(&tokens, bad);
        let told = refused(&tokens, &running.control(), &[]);
        assert!(told.contains(&close) && told.contains(&format!("mode is 0{bad:o}")), "{told}");
    }
    // At the end of a link it is the target that counts.
    let link = running.place.path("link");
    symlink(&tokens, &link).unwrap();
    assert!(refused(&link, &running.control(), &[]).contains("chmod 600"));
    mode(&tokens, 0o600);
    let serving = Serving::new(&link, &[running.control()], &[]);
    assert_eq!(serving.get(&token, "health/live").status, 200);
    serving.end();
    let serving = running.serve(&[]);
    assert_eq!(serving.get(&token, "health/live").status, 200);
    let lines = |serving: &Serving, what: &str| serving.started.words().matches(what).count();
    mode(&tokens, 0o666);
    for _ in 0..3 {
        let heard = serving.get(&token, "health/live");
        assert_eq!(heard.status, 503, "{heard:?}");
        let fault = heard.body["faults"][0].to_string();
        assert!(fault.contains("chmod 600 FILE") && fault.contains("mode is 0666"), "{fault}");
    }
    wait_until("a line", || lines(&serving, &close) == 1);
    mode(&tokens, 0o600);
    assert_eq!(serving.get(&token, "health/live").status, 200);
    wait_until("the other line", || lines(&serving, "can be read again") == 1);
    // Where nobody asks it is said all the same.
    let aside = running.place.path("aside");
    std::fs::rename(&tokens, &aside).unwrap();
    wait_until("a line of its absence", || lines(&serving, "No such file") == 1);
    assert_eq!(serving.get(&token, "health/live").status, 503);
    std::fs::rename(&aside, &tokens).unwrap();
    assert_eq!(serving.get(&token, "health/live").status, 200);
    if is_root() {
        chown(&tokens, Some(54_321), None).unwrap();
        assert_eq!(serving.get(&token, "health/live").status, 503);
        let told = refused(&tokens, &running.control(), &[]);
        assert!(told.contains("chown root"), "{told}");
    }
    assert_eq!(lines(&serving, &close), 1, "{}", serving.started.words());
    serving.end();
    running.end();
}

#[test]
fn a_certificate_of_openssl_req_is_believed_and_refusals_say_what_helps() {
    let running = Running::new(&[]);
    let file = running.token_file(&VIEWER);
    let folder = running.place.root();
    let make = |name: &str, names: &str| {
        let [cert, key] = ["cert", "key"].map(|what| folder.join(format!("{name}-{what}.pem")));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-nodes", "-days", "30", "-subj", "/CN=scope", "-addext"]);
        command.arg(format!("subjectAltName={names}")).arg("-keyout").arg(&key).arg("-out").arg(&cert);
        let made = command.output().ok().filter(|made| made.status.success());
        made.map(|_| [cert, key].map(|path| path.display().to_string()))
    };
    let (Some([cert, key]), Some([other, other_key])) =
        (make("own", "DNS:localhost,IP:127.0.0.1"), make("other", "DNS:scope.example"))
    else {
        return skip("needs openssl");
    };
    let status = |serving: &Serving, more: &[&str]| -> Done {
        let url = format!("https://{}", serving.address);
        let mut command = wirescope(&["status", "--url", &url, "--token-file"]);
        command.arg(&file).args(more);
        finish(command)
    };
    let no = |serving: &Serving, more: &[&str], told: &str, remedy: &str| {
        let done = status(serving, more);
        let words = &done.stderr;
        assert!(done.code() == Some(2) && words.contains(told) && words.contains(remedy), "{words}");
        assert!(!words.contains("Error(") && !words.contains("InvalidCertificate"), "{words}");
    };
    let serving = running.serve(&["--tls-cert", &cert, "--tls-key", &key]);
    let done = status(&serving, &["--tls-ca", &cert]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    no(&serving, &["--tls-ca", &other], "CA:TRUE", "--tls-ca FILE");
    no(&serving, &["--tls-fingerprint", &"07".repeat(32)], "another fingerprint", "--tls-fingerprint DIGITS");
    serving.end();
    let serving = running.serve(&["--tls-cert", &other, "--tls-key", &other_key]);
    no(&serving, &["--tls-ca", &other], "is for other names: scope.example", "--tls-fingerprint DIGITS");
    serving.end();
    let serving = running.serve(&["--tls-self-signed"]);
    no(&serving, &["--tls-ca", &cert], "signed by nobody who is believed here", "--tls-ca FILE");
    serving.end();
    let serving = running.serve(&[]);
    no(&serving, &["--tls-ca", &cert], "speaks no TLS", "");
    serving.end();
    running.end();
}

#[test]
fn a_socket_that_is_closed_to_the_door_is_told_at_its_start_and_to_who_asks() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.open_to_all();
    let running = Running::at(place, &["--serve-user", "12345:12345"]);
    let token = running.token(&VIEWER);
    let serving = running.serve(&["--user", "23456:23456"]);
    wait_until("a line", || serving.started.words().contains("Permission denied"));
    let heard = serving.get(&token, "health/live");
    let fault = heard.body["faults"][0].to_string();
    assert_eq!(heard.status, 502);
    for text in [&fault, &serving.started.words()] {
        for flag in ["--user", "--serve-user", "--control-group"] {
            assert!(text.contains(flag), "{flag}: {text}");
        }
    }
    assert!(!fault.contains("nothing has to be done here"), "{fault}");
    serving.end();
    running.end();
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_helps() {
    let place = Place::new();
    let tokens = place.path("none/tokens");
    let mut command = wirescope(&["token", "add", "--role", "viewer", "--name", "eye", "--tokens"]);
    command.arg(&tokens);
    let done = finish(command);
    let folder = tokens.parent().unwrap().display();
    assert!(
        done.code() == Some(2) && done.stderr.contains(&format!("no folder {folder}")),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains(&format!("install -d -m 700 {folder}")), "{}", done.stderr);
    let mut command =
        wirescope(&["token", "add", "--role", "viewer", "--name", "eye", "--expires", "99999999d"]);
    command.arg("--tokens").arg(place.path("tokens"));
    let done = finish(command);
    assert!(done.code() == Some(2) && done.stderr.contains("200 years at most"), "{}", done.stderr);
    let told = refused(&place.path("tokens"), "a/b=d1/x.sock", &[]);
    assert!(told.contains("a name has no '/'") && told.contains("NAME=PATH"), "{told}");
}

#[test]
fn certificates_that_were_read_again_are_no_warning() {
    let running = Running::new(&[]);
    running.token(&VIEWER);
    let key = rcgen::KeyPair::generate().unwrap();
    let made = rcgen::CertificateParams::new(["localhost".to_string()]).unwrap().self_signed(&key).unwrap();
    let [cert, key_path] = ["cert.pem", "key.pem"].map(|name| running.place.path(name));
    std::fs::write(&cert, made.pem()).unwrap();
    std::fs::write(&key_path, key.serialize_pem()).unwrap();
    let mut command = wirescope(&["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--tokens"]);
    command.arg(running.tokens()).args(["--control", &running.control()]);
    command.arg("--tls-cert").arg(&cert).arg("--tls-key").arg(&key_path);
    let started = Started::new(command);
    wait_until("the door to answer", || started.words().contains("serving "));
    started.signal(libc::SIGHUP);
    wait_until("a line", || started.words().contains("were read again"));
    let words = started.words();
    let line = words.lines().find(|line| line.contains("were read again")).unwrap();
    assert!(line.contains("info") && !line.contains("warn"), "{line}");
    started.signal(libc::SIGTERM);
    started.finish(LIMIT);
    running.end();
}
