//! A run on a file whose times jump: every packet of a window is in its dump, whatever the clock of whoever
//! wrote the file did.

use super::live_scene::check;
use super::running::Running;
use crate::workspace::Workspace;
use anyhow::Result;
use scope_testkit::lab::witness::numbered;
use scope_testkit::oracle::truth::{Came, Counted, HIT_PORT, Truth};
use scope_testkit::traffic::{Capture, Precision, Random, Record, pcapng};
use std::fs::{create_dir, write};

const MS: i64 = 1_000_000;
const BEGIN_NS: i64 = 1_700_000_000_000_000_000;

/// Plays one: what was met, and which statements aren't true.
///
/// # Errors
/// Where it couldn't be played.
pub fn play(workspace: &Workspace, random: &mut Random) -> Result<(Counted, Vec<String>)> {
    let folder = workspace.out_folder()?;
    let out = folder.path().join("out");
    create_dir(&out)?;
    let mut truth = Truth { came: Vec::new(), unheard: Vec::new(), same_ns: 0 };
    let mut capture = Capture::ethernet("port0");
    let packets = 2000 + random.below(10_000);
    let hit_every = random.pick(&[300, 1500]);
    let jumps = random.pick(&[0, 1, 1, 3]);
    let jump_at: Vec<u64> = (0..jumps).map(|_| random.below(packets)).collect();
    let (mut now_ns, mut era) = (BEGIN_NS, 0);
    for number in 0..packets {
        now_ns += random.below(2 * MS as u64) as i64;
        if jump_at.contains(&number) {
            let step_ns = random.pick(&[36_000_000, -36_000_000, 30_000, 5_000, -3_000, -40_000]) * MS;
            now_ns += step_ns;
            era += u32::from(step_ns < 0);
        }
        // One packet alone may be of another time, and a few stand a little behind their place.
        let alone_ns = if random.chance(1) && jumps > 1 { 7_200_000 * MS } else { 0 };
        let late_ns = if random.chance(10) { random.below(100 * MS as u64) as i64 } else { 0 };
        let port = if alone_ns == 0 && random.below(hit_every) == 0 {
            HIT_PORT
        } else {
            random.pick(&[53, 80, 443])
        };
        let time_ns = now_ns + alone_ns - late_ns;
        truth.came.push(Came { number, port, time_ns, era });
        capture.packets.push(Record::new(time_ns, numbered(number, port, 60 + random.below(600) as usize)));
    }
    let file = folder.path().join("in.pcapng");
    write(&file, pcapng(&capture, Precision::Nano, false))?;
    let ms = |random: &mut Random| format!("{}ms", random.below(1500));
    let (before, after) = (ms(random), ms(random));
    let filter = random.pick(&["", "udp port 53"]);
    let path = file.to_string_lossy();
    let arguments = ["-r", &path, "--ring", "4MiB", "--segment", "64KiB", "--trigger", "hit=udp dst port 9"]
        .into_iter()
        .chain([
            "--dump",
            filter,
            "--before",
            &before,
            "--after",
            &after,
            "--holdoff",
            "0s",
            "--dumps-max",
            "1000",
        ]);
    let arguments: Vec<String> = arguments.map(String::from).collect();
    let done = Running::start(workspace, None, &out, &arguments, None)?.finish()?;
    let (counted, faults) = check(&truth, &done)?;
    let words = format!("(a file of {packets} packets, {jumps} jumps, --before {before} --after {after})");
    Ok((counted, faults.into_iter().map(|fault| format!("{fault} {words}")).collect()))
}
