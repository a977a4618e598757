//! Whether other programs read a capture file and copy it packet for packet, alone and merged with a file of
//! another program.
//!
//! | program | its task |
//! |---|---|
//! | capinfos, tshark | the number of packets; their times and lengths |
//! | tcpdump | a copy as pcap |
//! | editcap, reordercap | a copy as pcapng, interfaces and directions included; of one link type also as pcap |
//! | mergecap | a copy alone, and one merged with what text2pcap made, in either order |

use super::read::{self, parse};
use crate::traffic::{Capture, Record};
use std::path::Path;
use std::process::{Command, Stdio};

/// All that [`every_tool_copies`] runs.
pub const PROGRAMS: [&str; 7] =
    ["capinfos", "tshark", "tcpdump", "editcap", "mergecap", "reordercap", "text2pcap"];
/// One frame for text2pcap: UDP from port 7 to port 7, which no traffic of the tests has.
const FRAME: &str = "0000 06 00 00 00 00 01 06 00 00 00 00 02 08 00 45 00\n\
                     0010 00 1c 00 00 00 00 40 11 00 00 0a ff ff 01 0a ff\n\
                     0020 ff 02 00 07 00 07 00 08 00 00\n";
/// The last bytes of that frame.
const FRAME_END: [u8; 8] = [0, 7, 0, 7, 0, 8, 0, 0];

/// Lets every program of [`PROGRAMS`] read and copy the file at `path`, and holds what comes out against what
/// the file holds.
///
/// # Errors
/// What each of them refused or changed; a program that isn't installed is a refusal.
pub fn every_tool_copies(path: &Path) -> Result<(), String> {
    let whole = read::read(path)?.capture;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let bench = Bench { path, whole: &whole, folder: folder.path() };
    let checks = [
        bench.counted_by_capinfos(),
        bench.listed_by_tshark(),
        bench.copied_by_tcpdump(),
        bench.copied("editcap", &[]),
        bench.copied("reordercap", &[]),
        bench.copied("mergecap", &["-w"]),
        bench.copied_as_pcap(),
        bench.merged(),
    ];
    let complaints: Vec<String> = checks.into_iter().filter_map(Result::err).collect();
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: {}", path.display(), complaints.join("; "))),
    }
}

struct Bench<'a> {
    path: &'a Path,
    whole: &'a Capture,
    folder: &'a Path,
}

/// Standard output of a program that has to end well.
fn run(program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!(
            "{program} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// What a copy has to keep of a packet in any form of file.
fn core(packet: &Record) -> (i64, u32, &[u8]) {
    (packet.time_ns, packet.original_len, &packet.data)
}

/// What a copy as pcapng has to keep beside that: interface, flags, loss before it.
fn rest<'a>(capture: &'a Capture, packet: &Record) -> (&'a str, u16, u32, u64) {
    let interface = &capture.interfaces[packet.interface];
    (&interface.name, interface.link_type, packet.flags, packet.lost_before)
}

/// Says where two lists of packets differ.
fn same<T: PartialEq>(program: &str, expected: &[T], found: &[T]) -> Result<(), String> {
    let differs = expected.iter().zip(found).position(|(a, b)| a != b);
    match (expected.len() == found.len(), differs) {
        (true, None) => Ok(()),
        (_, at) => {
            Err(format!("{program}: {} packets of {}, first difference {at:?}", found.len(), expected.len()))
        }
    }
}

impl Bench<'_> {
    fn name(&self) -> &str {
        self.path.to_str().unwrap_or_default()
    }

    fn file(&self, name: &str) -> Result<String, String> {
        self.folder
            .join(name)
            .to_str()
            .map(String::from)
            .ok_or_else(|| "a folder with a name in UTF-8 is needed".to_string())
    }

    fn counted_by_capinfos(&self) -> Result<(), String> {
        let said =
            String::from_utf8_lossy(&run("capinfos", &["-T", "-r", "-M", "-c", self.name()])?).into_owned();
        let packets = said.trim().rsplit('\t').next().and_then(|count| count.parse().ok());
        match packets == Some(self.whole.packets.len()) {
            true => Ok(()),
            false => Err(format!("capinfos: '{}', not {}", said.trim(), self.whole.packets.len())),
        }
    }

    fn listed_by_tshark(&self) -> Result<(), String> {
        let fields = [
            "-n",
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.len",
            "-e",
            "frame.cap_len",
            "-r",
            self.name(),
        ];
        let said = String::from_utf8_lossy(&run("tshark", &fields)?).into_owned();
        let line = |packet: &Record| {
            let (seconds, ns) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
            format!("{seconds}.{ns:09}\t{}\t{}", packet.original_len, packet.data.len())
        };
        let expected: Vec<String> = self.whole.packets.iter().map(line).collect();
        same("tshark", &expected, &said.lines().map(String::from).collect::<Vec<_>>())
    }

    fn copied_by_tcpdump(&self) -> Result<(), String> {
        let bytes = run("tcpdump", &["--nano", "-nn", "-r", self.name(), "-w", "-"])?;
        self.has_core("tcpdump", &parse(&bytes)?.capture)
    }

    fn has_core(&self, program: &str, copy: &Capture) -> Result<(), String> {
        let of = |capture: &Capture| capture.packets.iter().map(|packet| core(packet).0).collect::<Vec<_>>();
        same(program, &of(self.whole), &of(copy))?;
        let all = self.whole.packets.iter().map(core).collect::<Vec<_>>();
        same(program, &all, &copy.packets.iter().map(core).collect::<Vec<_>>())
    }

    /// A copy as pcapng: `program [FLAG OUT] IN [OUT]`.
    fn copied(&self, program: &str, out_flag: &[&str]) -> Result<(), String> {
        let out = self.file(&format!("{program}.pcapng"))?;
        match out_flag {
            [] => run(program, &[self.name(), &out])?,
            [flag, ..] => run(program, &[flag, &out, self.name()])?,
        };
        let copy = read::read(&out)?.capture;
        let mut expected: Vec<_> =
            self.whole.packets.iter().map(|packet| (core(packet), rest(self.whole, packet))).collect();
        let mut found: Vec<_> =
            copy.packets.iter().map(|packet| (core(packet), rest(&copy, packet))).collect();
        if program == "reordercap" {
            expected.sort();
            found.sort();
        }
        let is_pcap = self.whole.interfaces.iter().all(|interface| interface.name.is_empty());
        if is_pcap {
            return self.has_core(program, &copy); // what its copy adds isn't in it
        }
        same(program, &expected, &found)
    }

    fn copied_as_pcap(&self) -> Result<(), String> {
        if self.whole.link_types().len() > 1 {
            return Ok(()); // no pcap file holds them
        }
        let out = self.file("editcap.pcap")?;
        run("editcap", &["-F", "nsecpcap", self.name(), &out])?;
        self.has_core("editcap -F nsecpcap", &read::read(&out)?.capture)
    }

    /// The other file's packet is younger than all: so the order of ours is kept whatever the order of the
    /// names.
    fn merged(&self) -> Result<(), String> {
        let (text, other) = (self.file("frame.txt")?, self.file("frame.pcapng")?);
        std::fs::write(&text, FRAME).map_err(|error| error.to_string())?;
        run("text2pcap", &["-q", &text, &other])?;
        for (at, inputs) in [[self.name(), &other], [&other, self.name()]].into_iter().enumerate() {
            let out = self.file(&format!("merged{at}.pcapng"))?;
            run("mergecap", &["-w", &out, inputs[0], inputs[1]])?;
            let mut copy = read::read(&out)?.capture;
            let all = copy.packets.len();
            copy.packets.retain(|packet| !packet.data.ends_with(&FRAME_END));
            if copy.packets.len() + 1 != all {
                return Err(format!(
                    "mergecap: {all} packets, {} without the other file's",
                    copy.packets.len()
                ));
            }
            self.has_core("mergecap with text2pcap", &copy)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Conversations, Interface, Precision, pcapng};

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let total = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &total, body, &total].concat()
    }

    #[test]
    fn a_sound_file_is_copied_and_one_that_wireshark_s_programs_refuse_is_complained_about() {
        let interfaces = vec![Interface::new("left", 1), Interface::new("right", 1)];
        let capture =
            Conversations { packets: 200, interfaces, vlan: 20, ..Conversations::default() }.capture();
        let bytes = pcapng(&capture, Precision::Nano, false);
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            every_tool_copies(&path)
        };
        assert_eq!(check("whole.pcapng", &bytes), Ok(()));
        let behind_the_header = 28;
        let mut padded = bytes.clone();
        padded.splice(behind_the_header..behind_the_header, block(0x8000_0001, &[0; 100]));
        let words = check("padded.pcapng", &padded).unwrap_err();
        assert!(
            ["editcap", "mergecap", "reordercap"].iter().all(|program| words.contains(program)),
            "{words}"
        );
        let first_bytes = u32::from_le_bytes(bytes[32..36].try_into().unwrap()) as usize;
        let behind_the_first = behind_the_header + first_bytes;
        let mut between = bytes.clone();
        between.splice(behind_the_first..behind_the_first, block(0x8000_0001, &[0; 100]));
        let words = check("between.pcapng", &between).unwrap_err();
        assert!(words.contains("reordercap") && !words.contains("editcap"), "{words}");
    }
}
