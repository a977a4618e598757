//! Builds the peers that are no crates, where their headers are: `scripts/fetch-peers.sh` puts them under
//! `target/peers`.
//!
//! What can't be built is omitted: the bench says so in a word. `peer_moodycamel` and `peer_rte_ring` say
//! what is there.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(peer_moodycamel, peer_rte_ring)");
    println!("cargo::rerun-if-changed=shim");
    let Some(peers) = peers() else { return };
    println!("cargo::rerun-if-changed={}", peers.join("fetched").display()); // the packages' own files bear old dates
    let include = peers.join("usr/include");
    let moodycamel = include.join("concurrentqueue");
    if moodycamel.join("concurrentqueue.h").is_file() {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").include(moodycamel).file("shim/moodycamel.cpp");
        finish(&mut build, "peer_moodycamel");
    }
    let (dpdk, machine) = (include.join("dpdk"), include.join("x86_64-linux-gnu/dpdk"));
    if dpdk.join("rte_ring.h").is_file() && machine.join("rte_config.h").is_file() {
        let mut build = cc::Build::new();
        build
            .include(machine)
            .include(dpdk)
            .file("shim/rte_ring.c")
            .flag("-include")
            .flag("rte_config.h")
            .flag("-mssse3");
        finish(&mut build, "peer_rte_ring");
    }
}

/// `TARGET/peers`, where TARGET is cargo's target folder: `OUT_DIR` is `TARGET/PROFILE/build/NAME/out`.
fn peers() -> Option<PathBuf> {
    let out = std::env::var_os("OUT_DIR")?;
    let target = Path::new(&out).ancestors().nth(4)?;
    Some(target.join("peers"))
}

/// Headers of others bring warnings of their own; a compiler that is missing or refuses is no failure of this
/// build.
fn finish(build: &mut cc::Build, name: &str) {
    match build.warnings(false).opt_level(3).try_compile(name) {
        Ok(()) => println!("cargo::rustc-cfg={name}"),
        Err(error) => println!("cargo::warning={name} is omitted: {error}"),
    }
}
