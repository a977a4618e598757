//! Whether other programs open a capture file without a complaint.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Whether `program` can be run; says so on standard error where it can't, so that a skipped check is seen.
pub fn have(program: &str) -> bool {
    let there = Command::new(program).arg("--version").stdin(Stdio::null()).output().is_ok();
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// Lines on standard error that are no complaint: tcpdump names what it reads, tshark says that it runs as
/// root.
fn is_harmless(line: &str) -> bool {
    line.is_empty()
        || line.starts_with("reading from file")
        || line.starts_with("Running as user")
        || line.starts_with("tcpdump: listening")
}

fn complaint(program: &str, output: &Output) -> Option<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let words: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !is_harmless(line)).collect();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let cut = stdout.contains("cut short") || stdout.contains("appears to have been cut");
    if output.status.success() && words.is_empty() && !cut {
        return None;
    }
    Some(format!("{program} ({}): {}", output.status, words.join(" / ")))
}

/// Opens the file at `path` with capinfos, tshark and tcpdump, as far as they are installed.
///
/// # Errors
/// The complaints of all of them, by name.
pub fn opens_cleanly(path: &Path) -> Result<(), String> {
    let mut complaints = Vec::new();
    let mut check = |program: &str, arguments: &[&str], as_stdin: bool| -> Result<(), String> {
        if !have(program) {
            return Ok(());
        }
        let mut command = Command::new(program);
        command.args(arguments);
        if as_stdin {
            command.stdin(File::open(path).map_err(|e| format!("{}: {e}", path.display()))?);
        } else {
            command.arg(path).stdin(Stdio::null());
        }
        let output = command.output().map_err(|e| format!("{program}: {e}"))?;
        complaints.extend(complaint(program, &output));
        Ok(())
    };
    check("capinfos", &[], false)?;
    check("tshark", &["-n", "-T", "fields", "-e", "frame.number", "-r"], false)?;
    check("tcpdump", &["-nn", "-r", "-", "-w", "/dev/null"], true)?;
    if complaints.is_empty() { Ok(()) } else { Err(format!("{}: {}", path.display(), complaints.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Conversations, Precision, pcapng};

    #[test]
    fn a_sound_file_opens_and_a_cut_one_is_complained_about() {
        if !have("capinfos") || !have("tshark") || !have("tcpdump") {
            return;
        }
        let capture = Conversations { packets: 200, vlan: 20, ..Conversations::default() }.capture();
        let bytes = pcapng(&capture, Precision::Nano, false);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whole.pcapng");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(opens_cleanly(&path), Ok(()));
        let cut = folder.path().join("cut.pcapng");
        std::fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
        let words = opens_cleanly(&cut).unwrap_err();
        assert!(words.contains("tshark") && words.contains("tcpdump"), "{words}");
    }
}
