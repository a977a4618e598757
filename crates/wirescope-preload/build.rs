//! Gives the library its own name for the loader: what else it is linked with, so that it needs libc alone, cargo hands on from
//! the build of libwirescope.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libwirescope_preload.so");
}
