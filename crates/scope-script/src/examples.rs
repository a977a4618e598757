//! Scripts to begin with: what `wirescope script examples` writes, and the tests run.

/// A script that shows something.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Name of its file.
    pub file: &'static str,
    /// Its text, which begins with what it does and how it is used.
    pub text: &'static str,
    /// It is a dump script.
    pub dump: bool,
}

macro_rules! example {
    ($file:literal, $dump:literal) => {
        Example { file: $file, text: include_str!(concat!("../examples-lua/", $file)), dump: $dump }
    };
}

/// All of them, the simplest first.
pub const EXAMPLES: [Example; 7] = [
    example!("payload.lua", false),
    example!("host-dump.lua", true),
    example!("layer2-dump.lua", true),
    example!("port-scan.lua", false),
    example!("dns-names.lua", false),
    example!("long-flows.lua", false),
    example!("ndpi.lua", false),
];
