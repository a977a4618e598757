//! tcpdump on the same file: how long it takes, and what it says of the file.

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a capture file without packets.
const HEADER_BYTES: usize = 24;

/// How long `tcpdump -r FILE -w /dev/null EXPR` takes for all `filters`, one after another.
///
/// # Errors
/// Where it can't be run or fails.
pub fn time(file: &Path, filters: &[&str]) -> Result<Duration> {
    let begun = Instant::now();
    for filter in filters {
        tcpdump(file, &["-w", "/dev/null", filter])?;
    }
    Ok(begun.elapsed())
}

/// Checks that tcpdump reads `packets` packets and that none of `filters` selects any.
///
/// # Errors
/// What it finds instead.
pub fn check_file(file: &Path, packets: u64, filters: &[&str]) -> Result<()> {
    let counted = tcpdump(file, &["--count"])?;
    let words = String::from_utf8_lossy(&counted.stdout).into_owned();
    let counted: u64 = words
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .context("no count from tcpdump")?;
    ensure!(counted == packets, "tcpdump counts {counted} packets in a file of {packets}");
    for filter in filters {
        let selected = tcpdump(file, &["-w", "-", filter])?.stdout.len();
        ensure!(selected == HEADER_BYTES, "'{filter}' selects packets of the file; it must not");
    }
    Ok(())
}

fn tcpdump(file: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new("tcpdump");
    let output =
        command.arg("-r").arg(file).args(arguments).stdin(Stdio::null()).output().context("tcpdump")?;
    if !output.status.success() {
        bail!("tcpdump {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
