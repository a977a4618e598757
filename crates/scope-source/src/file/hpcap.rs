//! The raw records of HPCAP: no file header, one record behind the other.
//!
//! ```text
//!  record   0 seconds | 4 nanoseconds | 8 captured length, 2 bytes | 10 original length, 2 bytes | bytes      little-endian
//!  padding  0 0       | 4 0           | 8 length, 2 bytes          | 10 anything                 | bytes to be skipped
//! ```
//! The form says neither the link type nor that it is one, so that whoever reads it has to know both. A record
//! whose nanoseconds are a second or more is damage: nothing says where the next one begins.

use scope_packet::{Interface, LinkType, TimestampSource, time};

use super::pseudo::Pseudo;
use super::record::{Damage, Found, Interfaces, Record};

const HEAD_BYTES: usize = 12;

/// How the records of one file are read.
#[derive(Debug)]
pub(super) struct Hpcap {
    interface: u32,
    pseudo: Pseudo,
}

impl Hpcap {
    /// Describes the interface of file number `file`. The words of an error say what is wrong with it.
    pub(super) fn open(
        name: &str,
        file: u32,
        link_type: LinkType,
        interfaces: &mut Interfaces,
    ) -> Result<Hpcap, String> {
        let interface = interfaces.add(Interface {
            name: name.to_string(),
            description: String::new(),
            link_type,
            snap_len: 0,
            timestamps: TimestampSource::File,
            part: file,
        });
        let interface = interface.ok_or("describes too many interfaces")?;
        Ok(Hpcap { interface, pseudo: Pseudo::of(link_type, false) })
    }

    /// The record that begins with the first unread byte; a packet is put into `record`.
    pub(super) fn decode(&self, unread: &[u8], record: &mut Record) -> Found {
        let Some(&[s0, s1, s2, s3, n0, n1, n2, n3, c0, c1, o0, o1]) = unread.first_chunk::<HEAD_BYTES>()
        else {
            return Found::More { bytes: HEAD_BYTES, packet: true };
        };
        let (seconds, ns) = (u32::from_le_bytes([s0, s1, s2, s3]), u32::from_le_bytes([n0, n1, n2, n3]));
        let (captured, original) = (u16::from_le_bytes([c0, c1]), u16::from_le_bytes([o0, o1]));
        let is_padding = (seconds, ns) == (0, 0);
        if i64::from(ns) >= time::NS_PER_SECOND {
            let cause = format!("a packet's time has {ns} nanoseconds beside its seconds");
            return Found::Damaged(Damage { cause, packet: true });
        }
        let bytes = HEAD_BYTES + usize::from(captured);
        if unread.len() < bytes {
            return Found::More { bytes, packet: !is_padding };
        }
        if is_padding {
            return Found::Other { bytes };
        }
        *record = Record {
            place: HEAD_BYTES,
            len: u32::from(captured),
            original_len: u32::from(original),
            time_ns: i64::from(seconds) * time::NS_PER_SECOND + i64::from(ns),
            pseudo: self.pseudo,
            interface: self.interface,
            ..Record::default()
        };
        Found::Packet { bytes }
    }
}
