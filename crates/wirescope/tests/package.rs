//! The Debian package, made of this build: what is in it, and what it does to a system, which is a copy of
//! this one.

mod run;

use run::skip;
use std::path::Path;
use std::process::Command;

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name))
}

#[test]
fn the_package_brings_user_folders_and_unit_starts_nothing_and_leaves_settings_and_dumps() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return skip("no dpkg-deb here");
    }
    let folder = tempfile::tempdir().unwrap();
    let made = script("deb.sh").arg(env!("CARGO_BIN_EXE_wirescope")).arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let package = String::from_utf8(made.stdout).unwrap();
    let tested = script("deb-test.sh").arg(package.trim_end()).output().unwrap();
    let words =
        format!("{}{}", String::from_utf8_lossy(&tested.stdout), String::from_utf8_lossy(&tested.stderr));
    assert!(tested.status.success(), "{words}");
    eprint!("{words}");
}
