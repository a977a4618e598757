//! `tools_read_all`: every kind of file that the program writes, through the programs that people use on
//! captures.

use super::outcome;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::oracle::{self, every_tool_copies};
use scope_testkit::traffic::frame::{on_link, udp};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Precision, RAW, Record, pcapng};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The row, and the bar.
pub const ROW: &str = "tools_read_all";
/// Kinds of files.
pub const KINDS: [&str; 8] = [
    "a dump",
    "a dump of two interfaces",
    "a dump of two link types",
    "a dump with late packets",
    "a pcap dump",
    "-w FILE",
    "-w -",
    "a ring file",
];
/// Each file has at least so many packets.
const PACKETS_MIN: usize = 100;
const MS: i64 = 1_000_000;

/// Makes and checks one file, or two, of each kind.
pub fn measure(workspace: &Workspace, table: &mut Table) {
    for kind in KINDS {
        let checked = check(workspace, kind).map_err(|error| format!("{error:#}")).err();
        table.put(ROW, kind, "", outcome(checked.into_iter().collect()));
    }
}

fn check(workspace: &Workspace, kind: &str) -> Result<()> {
    let folder = workspace.out_folder()?;
    let link_types = match kind {
        "a dump of two interfaces" | "a ring file" => &[ETHERNET, ETHERNET][..],
        "a dump of two link types" => &[ETHERNET, RAW],
        _ => &[ETHERNET],
    };
    let source = folder.path().join("in.pcapng");
    let late = matches!(kind, "a dump with late packets" | "a pcap dump" | "a dump of two interfaces");
    std::fs::write(&source, pcapng(&capture(link_types, late), Precision::Nano, false))?;
    let files = make(workspace, folder.path(), &source, kind)?;
    ensure!(files.len() == if kind == "a dump of two link types" { 2 } else { 1 }, "{} files", files.len());
    for file in files {
        every_tool_copies(&file).map_err(anyhow::Error::msg)?;
        let packets = oracle::read(&file).map_err(anyhow::Error::msg)?.capture.packets.len();
        ensure!(packets >= PACKETS_MIN, "{packets} packets");
    }
    Ok(())
}

/// 10 s of traffic, with a packet to port 60000 on the first interface after 5 s; where it is late, every
/// tenth packet comes 20 places behind its time.
fn capture(link_types: &[u16], late: bool) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces: Vec<Interface> = link_types.iter().enumerate().map(named).collect();
    let mut capture =
        Conversations { interfaces, vlan: 20, payload_max: 900, ..Conversations::default() }.capture();
    let at_ns = capture.packets[0].time_ns + 5000 * MS;
    let hit = udp(([10, 0, 0, 1], 1000).into(), ([10, 0, 0, 2], 60000).into(), b"hit");
    capture.insert(Record::new(at_ns, on_link(link_types[0], &[], &hit)));
    if late {
        for at in (0..capture.packets.len() - 21).step_by(10) {
            let packet = capture.packets.remove(at);
            capture.packets.insert(at + 20, packet);
        }
    }
    capture
}

/// The files of this kind that a run makes of `source`.
fn make(workspace: &Workspace, folder: &Path, source: &Path, kind: &str) -> Result<Vec<PathBuf>> {
    let out = folder.join("out");
    std::fs::create_dir(&out)?;
    let mut command = Command::new(&workspace.wirescope);
    command.args(["run", "--ring", "64MiB", "--segment", "64KiB", "-r"]).arg(source).current_dir(folder);
    if kind != "a ring file" {
        command.args(["--trigger", "hit=udp port 60000", "--dump", "", "--before", "3", "--after", "2"]);
    }
    let file = folder.join(if kind == "a ring file" { "ring.pcapng" } else { "whole.pcapng" });
    match kind {
        "-w FILE" => command.arg("-w").arg(&file),
        "-w -" => command.args(["-w", "-"]).stdout(std::fs::File::create(&file)?),
        "a ring file" => command.arg("--ring-out").arg(&file).arg("--out").arg(&out),
        "a pcap dump" => command.args(["--dump-format", "pcap", "--out"]).arg(&out),
        _ => command.arg("--out").arg(&out),
    };
    if kind != "-w -" {
        command.stdout(Stdio::null());
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "wirescope ended with {}: {}", output.status, words.trim());
    if file.exists() {
        return Ok(vec![file]);
    }
    let entries = std::fs::read_dir(&out).context("the output")?.flatten().map(|entry| entry.path());
    let is_capture =
        |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pcapng" || ending == "pcap");
    Ok(entries.filter(is_capture).collect())
}
