//! What the head of an ELF file says: for which machine it is, whether a loader loads it, and which libraries it needs.
//!
//! ```text
//! file head ─► program heads ─► PT_INTERP: a loader loads it      PT_LOAD: where in the file an address lies
//!                            └► PT_DYNAMIC: tag, value ─► DT_NEEDED, DT_RUNPATH: places in DT_STRTAB
//! ```
//! Only files of 64-bit little-endian machines are looked into. Whatever the bytes are, nothing outside of them is read.

/// What is known of such a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Bits of the machine, byte order and kind.
    pub machine: (u8, u8, u16),
    /// Whether a loader loads its libraries.
    pub has_loader: bool,
    /// The libraries that it names.
    pub needed: Vec<String>,
    /// Folders where they are looked for.
    pub folders: Vec<String>,
}

const MAGIC: &[u8] = b"\x7fELF";
const BITS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DYNAMIC_BYTES: usize = 16;

/// A number of so many bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Reads it; `None`: it is no ELF file.
pub fn read(bytes: &[u8]) -> Option<Elf> {
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let machine = (*bytes.get(4)?, *bytes.get(5)?, number(bytes, 18, 2)? as u16);
    let mut elf = Elf { machine, ..Elf::default() };
    if machine.0 == BITS_64 && machine.1 == LITTLE_ENDIAN {
        read_heads(bytes, &mut elf)?;
    }
    Some(elf)
}

fn read_heads(bytes: &[u8], elf: &mut Elf) -> Option<()> {
    let begin = usize::try_from(number(bytes, 32, 8)?).ok()?;
    let (each, heads) = (number(bytes, 54, 2)? as usize, number(bytes, 56, 2)? as usize);
    let (mut loads, mut dynamic) = (Vec::new(), None);
    for head in 0..heads {
        let at = begin.checked_add(head * each)?;
        let field = |offset: usize| number(bytes, at.checked_add(offset)?, 8);
        let (offset, address, len) = (field(8)?, field(16)?, field(32)?);
        match number(bytes, at, 4)? {
            PT_LOAD => loads.push((address, offset, len)),
            PT_DYNAMIC => dynamic = Some((offset, len)),
            PT_INTERP => elf.has_loader = true,
            _ => {}
        }
    }
    let Some((offset, len)) = dynamic else { return Some(()) };
    let offset = usize::try_from(offset).ok()?;
    let part = bytes.get(offset..offset.checked_add(usize::try_from(len).ok()?)?)?;
    let entries: Vec<(u64, u64)> = part
        .chunks_exact(DYNAMIC_BYTES)
        .filter_map(|entry| Some((number(entry, 0, 8)?, number(entry, 8, 8)?)))
        .take_while(|(tag, _)| *tag != 0)
        .collect();
    let values = |wanted: u64| entries.iter().filter(move |(tag, _)| *tag == wanted).map(|(_, value)| *value);
    let Some(strings) = values(DT_STRTAB).next() else { return Some(()) };
    let in_file = |(address, offset, len): &(u64, u64, u64)| {
        let into = strings.checked_sub(*address).filter(|into| into < len)?;
        usize::try_from(offset.checked_add(into)?).ok()
    };
    let strings = loads.iter().find_map(in_file)?;
    let text = |at: u64| {
        let rest = bytes.get(strings.checked_add(usize::try_from(at).ok()?)?..)?;
        let text = rest.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    elf.needed = values(DT_NEEDED).filter_map(text).collect();
    let folders = values(DT_RUNPATH).chain(values(DT_RPATH)).filter_map(text);
    elf.folders =
        folders.flat_map(|folders| folders.split(':').map(str::to_string).collect::<Vec<_>>()).collect();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_program_has_a_loader_and_needs_libc() {
        let elf = read(&own()).unwrap();
        assert!(elf.has_loader && elf.needed.iter().any(|name| name == "libc.so.6"), "{elf:?}");
    }

    #[test]
    fn what_is_cut_or_damaged_is_read_as_far_as_it_goes() {
        let own = own();
        let head = &own[..own.len().min(8192)];
        for len in 0..head.len() {
            read(&head[..len]);
        }
        for at in 0..1024 {
            let mut damaged = head.to_vec();
            damaged[at] ^= 0xff;
            read(&damaged);
        }
        assert_eq!(read(b"#!/bin/sh\n"), None);
        assert_eq!(read(b""), None);
    }
}
