//! Headers that a capturing host puts in front of packets in its own byte order: turned into ours, as libpcap
//! does.
//!
//! A file says by its magic in which byte order it was written. These fields follow it, all other bytes of a
//! packet don't:
//!
//! ```text
//!  LINUX_SLL           16 CAN identifier, 32 bits, where the protocol (14) is 0x000C or 0x000D
//!  USB_LINUX           0 id, 64 bits | 12 bus, 16 | 16 seconds, 64 | 24 microseconds, 32 | 28 status | 32 length | 36 captured
//!                      isochronous (byte 9 is 0): 40 errors, 32 | 44 descriptors, 32
//!  USB_LINUX_MMAPPED   the same, then 48 interval | 52 frame | 56 flags | 60 n, 32 bits each; isochronous: n times 16 bytes
//!                      of status | offset | length, 32 bits each | padding
//!  NFLOG               behind 4 bytes: length, 16 bits | type, 16 bits | value, up to a multiple of 4; and again
//! ```
//! A field that isn't captured whole stays as it is, and so do those behind it.

use scope_packet::LinkType;

/// What of a link type's packets is in the capturing host's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pseudo {
    /// Nothing, or it is ours already.
    #[default]
    Nothing,
    LinuxSll,
    UsbLinux,
    UsbLinuxMmapped,
    Nflog,
}

impl Pseudo {
    /// Of packets with link type `link_type` in a file of the byte order given.
    pub(super) fn of(link_type: LinkType, big_endian: bool) -> Pseudo {
        match link_type.0 {
            _ if big_endian == cfg!(target_endian = "big") => Pseudo::Nothing,
            113 => Pseudo::LinuxSll,
            189 => Pseudo::UsbLinux,
            220 => Pseudo::UsbLinuxMmapped,
            239 => Pseudo::Nflog,
            _ => Pseudo::Nothing,
        }
    }

    /// Turns the fields of a packet with captured bytes `data` and `original_len` bytes on the wire.
    #[cold]
    pub(super) fn turn(self, data: &mut [u8], original_len: u32) {
        match self {
            Pseudo::Nothing => {}
            Pseudo::LinuxSll => cooked(data, original_len as usize),
            Pseudo::UsbLinux => {
                let _cut = usb(data, false);
            }
            Pseudo::UsbLinuxMmapped => {
                let _cut = usb(data, true);
            }
            Pseudo::Nflog => nflog(data, original_len as usize),
        }
    }
}

/// Turns one field; `None` where it isn't there whole.
fn turn(data: &mut [u8], at: usize, bytes: usize) -> Option<()> {
    data.get_mut(at..at + bytes)?.reverse();
    Some(())
}

fn cooked(data: &mut [u8], original_len: usize) {
    const CAN: [u8; 2] = [0, 0x0c];
    const CAN_FD: [u8; 2] = [0, 0x0d];
    let protocol = data.get(14..16);
    if original_len >= 20 && (protocol == Some(&CAN) || protocol == Some(&CAN_FD)) {
        let _cut = turn(data, 16, 4);
    }
}

/// `None`: the packet ends within.
fn usb(data: &mut [u8], long: bool) -> Option<()> {
    let isochronous = data.get(9) == Some(&0);
    for (at, bytes) in [(0, 8), (12, 2), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4)] {
        turn(data, at, bytes)?;
    }
    if isochronous {
        turn(data, 40, 4)?;
        turn(data, 44, 4)?;
    }
    if !long {
        return Some(());
    }
    for at in [48, 52, 56, 60] {
        turn(data, at, 4)?;
    }
    if isochronous {
        let descriptors = u32::from_ne_bytes(*data.get(60..)?.first_chunk()?);
        for at in (64..).step_by(16).take(descriptors as usize) {
            turn(data, at, 4)?;
            turn(data, at + 4, 4)?;
            turn(data, at + 8, 4)?;
        }
    }
    Some(())
}

fn nflog(data: &mut [u8], original_len: usize) {
    const HEAD_BYTES: usize = 4;
    const VALUE_HEAD_BYTES: usize = 4;
    if data.len() < HEAD_BYTES || original_len < HEAD_BYTES || data[1] != 0 {
        return; // the second byte is the version
    }
    let (mut at, original_left) = (HEAD_BYTES, original_len);
    while data.len() - at >= VALUE_HEAD_BYTES {
        data[at..at + 2].reverse();
        data[at + 2..at + 4].reverse();
        let len = usize::from(u16::from_ne_bytes([data[at], data[at + 1]])).next_multiple_of(4);
        if len < VALUE_HEAD_BYTES || data.len() - at < len || original_left < at + len {
            return;
        }
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_other_byte_order_is_turned() {
        let foreign = cfg!(target_endian = "little");
        assert_eq!(Pseudo::of(LinkType(239), foreign), Pseudo::Nflog);
        assert_eq!(Pseudo::of(LinkType(239), !foreign), Pseudo::Nothing);
        assert_eq!(Pseudo::of(LinkType::ETHERNET, foreign), Pseudo::Nothing);
    }

    #[test]
    fn nflog_values_are_stepped_over_by_their_own_lengths() {
        let mut data = vec![2, 0, 1, 2, 0, 10, 0, 5, 1, 2, 3, 4, 5, 6, 0, 0, 0, 6, 0, 9, 7, 7];
        Pseudo::Nflog.turn(&mut data, 22);
        assert_eq!(data, [2, 0, 1, 2, 10, 0, 5, 0, 1, 2, 3, 4, 5, 6, 0, 0, 6, 0, 9, 0, 7, 7]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail_or_change_the_length(mut data in proptest::collection::vec(any::<u8>(), 0..200),
            original in 0u32..300, which in 0usize..5, quiet in any::<bool>()) {
            if quiet && data.len() > 9 {
                data[9] = 0; // isochronous
                data[1] = 0;
            }
            let all = [Pseudo::Nothing, Pseudo::LinuxSll, Pseudo::UsbLinux, Pseudo::UsbLinuxMmapped, Pseudo::Nflog];
            let mut bytes_before = data.clone();
            all[which].turn(&mut data, original);
            bytes_before.sort_unstable();
            data.sort_unstable();
            prop_assert_eq!(data, bytes_before);
        }
    }
}
