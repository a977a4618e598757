//! Programs as text, as `tcpdump -d` prints them.

use crate::bpf::Instruction;

/// A program in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// For which packets it is evaluated, as "packets without VLAN tags".
    pub packets: &'static str,
    /// One line for each instruction; none where the text is so long that it was compiled piece by piece and
    /// joined here.
    pub lines: Vec<String>,
}

/// One line for each instruction.
pub(crate) fn lines(program: &[Instruction]) -> Vec<String> {
    program.iter().enumerate().map(|(at, instruction)| line(at, instruction)).collect()
}

fn line(at: usize, instruction: &Instruction) -> String {
    let (name, operand) = words(at, instruction);
    match instruction.code & 7 == 5 && instruction.code != 0x05 {
        true => {
            let target = |offset: u8| at + 1 + usize::from(offset);
            let (jump_true, jump_false) = (target(instruction.jump_true), target(instruction.jump_false));
            format!("({at:03}) {name:<8} {operand:<16} jt {jump_true}\tjf {jump_false}")
        }
        false => format!("({at:03}) {name:<8} {operand}"),
    }
}

/// Name and operand.
fn words(at: usize, &Instruction { code, k, .. }: &Instruction) -> (&'static str, String) {
    let number = || format!("#{}", k as i32);
    let hexadecimal = || format!("#{k:#x}");
    let place = || format!("[{}]", k as i32);
    let behind_x = || format!("[x + {}]", k as i32);
    let cell = || format!("M[{k}]");
    // Bit 3 of arithmetic and jumps: the operand is X.
    let or_x = |constant: String| if code & 8 != 0 { "x".into() } else { constant };
    match code {
        0x06 => ("ret", number()),
        0x16 => ("ret", String::new()),
        0x20 => ("ld", place()),
        0x28 => ("ldh", place()),
        0x30 => ("ldb", place()),
        0x40 => ("ld", behind_x()),
        0x48 => ("ldh", behind_x()),
        0x50 => ("ldb", behind_x()),
        0x00 => ("ld", hexadecimal()),
        0x60 => ("ld", cell()),
        0x80 => ("ld", "#pktlen".into()),
        0x01 => ("ldx", hexadecimal()),
        0x61 => ("ldx", cell()),
        0x81 => ("ldx", "#pktlen".into()),
        0xb1 => ("ldxb", format!("4*([{}]&0xf)", k as i32)),
        0x02 => ("st", cell()),
        0x03 => ("stx", cell()),
        0x05 => ("ja", format!("{}", at as i64 + 1 + i64::from(k as i32))),
        0x15 | 0x1d => ("jeq", or_x(hexadecimal())),
        0x25 | 0x2d => ("jgt", or_x(hexadecimal())),
        0x35 | 0x3d => ("jge", or_x(hexadecimal())),
        0x45 | 0x4d => ("jset", or_x(hexadecimal())),
        0x04 | 0x0c => ("add", or_x(number())),
        0x14 | 0x1c => ("sub", or_x(number())),
        0x24 | 0x2c => ("mul", or_x(number())),
        0x34 | 0x3c => ("div", or_x(number())),
        0x44 | 0x4c => ("or", or_x(hexadecimal())),
        0x54 | 0x5c => ("and", or_x(hexadecimal())),
        0x64 | 0x6c => ("lsh", or_x(number())),
        0x74 | 0x7c => ("rsh", or_x(number())),
        0x94 | 0x9c => ("mod", or_x(number())),
        0xa4 | 0xac => ("xor", or_x(hexadecimal())),
        0x84 => ("neg", String::new()),
        0x07 => ("tax", String::new()),
        0x87 => ("txa", String::new()),
        _ => ("unimp", format!("{code:#x}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use scope_packet::LinkType;

    use crate::specimens::{Random, filter};
    use crate::{Filter, VlanRule};

    /// What `tcpdump -d` prints for files of a link type.
    fn tcpdump(link: LinkType, text: &str) -> Option<String> {
        let mut head = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
        head.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
        head.extend(u32::from(link.0).to_le_bytes());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, head).unwrap();
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-d", "-r", "-", text]).stdin(file.reopen().unwrap()).stderr(Stdio::null());
        let output = command.output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn programs_are_printed_as_tcpdump_prints_them() {
        if Command::new("tcpdump").arg("--version").output().is_err() {
            eprintln!("skipped: tcpdump is missing");
            return;
        }
        let mut random = Random::new(61);
        let mut compared = 0;
        for link in [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL2].repeat(60) {
            let text = filter(&mut random, 2);
            let Some(expected) = tcpdump(link, &text) else { continue };
            let printed = Filter::compile(&text, VlanRule::Exact, &[link]).unwrap().printed(link);
            assert_eq!(printed.len(), 1, "{text}");
            assert_eq!(printed[0].lines.join("\n"), expected.trim_end(), "{text}");
            compared += 1;
        }
        assert!(compared > 80, "{compared}");
    }
}
