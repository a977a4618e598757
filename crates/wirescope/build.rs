//! Tells the binary what it was built for, and by which compiler.

use std::process::Command;

fn main() {
    let told = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".to_string());
    let compiler = Command::new(told("RUSTC")).arg("--version").output();
    let compiler = compiler.map_or_else(
        |_| "rustc".to_string(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_string(),
    );
    println!("cargo:rustc-env=WIRESCOPE_BUILD={} for {}, {compiler}", told("PROFILE"), told("TARGET"));
    println!("cargo:rerun-if-changed=build.rs");
}
