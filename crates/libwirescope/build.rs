//! Gives the C library its name for the loader, and links what unwinds the stack into it, so that it needs libc alone.

use std::path::Path;
use std::process::Command;

/// The compiler's unwinder as an archive: without it the library would need libgcc_s.so.1.
const UNWINDER: &str = "libgcc_eh.a";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number rises with `ws_abi`, when programs that were built against an older header can't go on.
    // Other than what stands below, cargo doesn't hand it on to libraries that this one is linked into; programs have none.
    println!("cargo:rustc-link-arg=-Wl,-soname,libwirescope.so.0");
    // Threads that end may still have to call it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let compiler = std::env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_string());
    let found = Command::new(compiler).arg(format!("-print-file-name={UNWINDER}")).output();
    let found = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    if let Some(path) = found.ok().filter(|path| Path::new(path).is_absolute()) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--whole-archive,{path},--no-whole-archive");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
