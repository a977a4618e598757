//! Packets on their way to a socket: their bytes one behind the other, and where each lies.

/// Packets of a burst at most.
const PACKETS_MAX: usize = 1024;
/// A burst takes no more packets once it has so many bytes.
const BYTES_MAX: usize = 256 << 10;

/// Where a packet lies, and when it is due.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    len: u32,
    zeros: u32,
    is_cut: bool,
    due_ns: u64,
}

/// A packet as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// So many zeros follow them.
    pub zeros: u32,
    /// Bytes are missing at its end.
    pub is_cut: bool,
    /// When it is due, ns since the begin.
    pub due_ns: u64,
}

/// Some packets, in their order.
#[derive(Debug, Default)]
pub struct Burst {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Burst {
    /// Copies a packet behind the others.
    pub(super) fn push(&mut self, frame: Frame<'_>) {
        let Frame { data, zeros, is_cut, due_ns } = frame;
        self.place(Place { at: 0, len: data.len() as u32, zeros, is_cut, due_ns });
        self.bytes.extend_from_slice(data);
    }

    /// Takes a packet of `len` bytes, which `copy` writes, behind the others; it is due at once.
    pub(super) fn take(&mut self, len: usize, zeros: u32, is_cut: bool, copy: impl FnOnce(&mut [u8])) {
        let begin = self.place(Place { at: 0, len: len as u32, zeros, is_cut, due_ns: 0 });
        self.bytes.resize(begin + len, 0);
        copy(&mut self.bytes[begin..]);
    }

    /// The place of one more packet, whose bytes come next: where these begin.
    fn place(&mut self, place: Place) -> usize {
        let begin = self.bytes.len();
        // Below BYTES_MAX and one packet, which fits 32 bits.
        self.places.push(Place { at: begin as u32, ..place });
        begin
    }

    /// Whether it should go on its way.
    pub(super) fn is_full(&self) -> bool {
        self.places.len() >= PACKETS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Packets in it.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Packet `index`, from 0.
    pub(super) fn frame(&self, index: usize) -> Frame<'_> {
        let Place { at, len, zeros, is_cut, due_ns } = self.places[index];
        Frame { data: &self.bytes[at as usize..][..len as usize], zeros, is_cut, due_ns }
    }

    /// Forgets them; the memory is kept.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in_and_there_is_a_bound() {
        let mut burst = Burst::default();
        let frames = [
            Frame { data: b"first", zeros: 0, is_cut: false, due_ns: 1 },
            Frame { data: b"", zeros: 60, is_cut: false, due_ns: 2 },
            Frame { data: b"third", zeros: 0, is_cut: true, due_ns: 0 },
        ];
        frames[..2].iter().for_each(|frame| burst.push(*frame));
        burst.take(5, 0, true, |room| room.copy_from_slice(b"third"));
        assert_eq!((burst.len(), burst.frame(0)), (3, frames[0]));
        assert_eq!((burst.frame(1), burst.frame(2)), (frames[1], frames[2]));
        burst.clear();
        assert!(burst.is_empty() && !burst.is_full());
        while !burst.is_full() {
            burst.push(frames[0]);
        }
        assert_eq!(burst.len(), PACKETS_MAX);
        burst.clear();
        burst.push(Frame { data: &[0; BYTES_MAX], ..frames[0] });
        assert!(burst.is_full());
    }
}
