//! Links libpcap, whose compiler turns filter text into classic BPF.

fn main() {
    println!("cargo:rustc-link-lib=pcap");
    println!("cargo:rerun-if-changed=build.rs");
}
