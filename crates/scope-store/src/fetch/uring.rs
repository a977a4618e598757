//! Reads by io_uring: a queue that can do nothing but read.
//!
//! It is made disabled, restricted to reads, and enabled, before rights are given up. A buffer belongs to its
//! flight from the moment in which the kernel may know of it until its answer came; the queue is dropped only
//! once all answers came, else buffers are never given back.

use super::pace::Pace;
use super::request::{Request, Requests};
use super::{DEPTH, Fetched, Read};
use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// One thread's queue.
pub struct Uring {
    queue: IoUring,
    /// By the number that the kernel has of them.
    flights: Vec<Option<Flight>>,
    empty: Vec<usize>,
    waiting: VecDeque<Read>,
    pace: Pace,
}

/// A read that the kernel has.
struct Flight {
    read: Read,
    /// Bytes that are filled.
    filled: usize,
    /// What is asked for of the kernel, with the memory for it where that isn't the buffer.
    requests: Requests,
    /// When the request was made that is under way.
    begun: Instant,
}

impl fmt::Debug for Uring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Uring with {} reads under way", self.under_way())
    }
}

impl Uring {
    /// Makes the queue.
    ///
    /// # Errors
    /// The system's: it has none, or refuses it or its restriction.
    pub fn new() -> io::Result<Uring> {
        let queue = IoUring::builder().dontfork().setup_r_disabled().build(DEPTH as u32)?;
        let mut allowed = [Restriction::sqe_op(opcode::Read::CODE)];
        queue.submitter().register_restrictions(&mut allowed)?;
        queue.submitter().register_enable_rings()?;
        let flights = (0..DEPTH).map(|_| None).collect();
        Ok(Uring { queue, flights, empty: (0..DEPTH).collect(), waiting: VecDeque::new(), pace: Pace::new() })
    }

    pub(super) fn bytes_at_once(&self) -> usize {
        self.pace.bytes()
    }

    fn under_way(&self) -> usize {
        DEPTH - self.empty.len()
    }

    /// Begins a read, or lets it wait while the kernel has as many as it may.
    pub(super) fn begin(&mut self, read: Read) {
        match self.empty.pop() {
            Some(place) => {
                self.flights[place] =
                    Some(Flight { read, filled: 0, requests: Requests::default(), begun: Instant::now() });
                self.push(place);
            }
            None => self.waiting.push_back(read),
        }
    }

    /// Queues what a flight still lacks.
    fn push(&mut self, place: usize) {
        let Some(Flight { read, filled, requests, begun }) = &mut self.flights[place] else { return };
        *begun = Instant::now();
        let rest = &mut read.buffer[*filled..];
        let Request { file, offset, into, flags } =
            requests.next(&read.file, read.offset + *filled as u64, rest);
        let len = into.len().min(self.pace.bytes()) as u32;
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), into.as_mut_ptr(), len)
            .offset(offset)
            .rw_flags(flags as i32)
            .build()
            .user_data(place as u64);
        // SAFETY: the memory is the flight's, its buffer's or its requests', and so is the opened file. The flight keeps
        // both where they are, and untouched, until the answer with its number came (`answer`) or for good (`drop`): only
        // `next` makes memory anew, and it is called when no request is under way. `len` bytes of it are writable.
        while unsafe { self.queue.submission().push(&entry) }.is_err() {
            // As many entries as places: the queue is full only of what wasn't handed over yet.
            let _ = self.queue.submit();
        }
    }

    /// A read that has ended by now: of what the page cache has the kernel fills buffers at once.
    pub(super) fn poll(&mut self) -> Option<Fetched> {
        if !self.queue.submission().is_empty() {
            let _ = self.queue.submit(); // `finish` meets what is wrong
        }
        self.ended()
    }

    fn ended(&mut self) -> Option<Fetched> {
        while let Some((place, result)) = self.answer() {
            if let Some(fetched) = self.landed(place, result) {
                return Some(fetched);
            }
        }
        None
    }

    /// Waits for the next read that ends.
    pub(super) fn finish(&mut self) -> Option<Fetched> {
        while self.under_way() > 0 {
            if let Some(fetched) = self.ended() {
                return Some(fetched);
            }
            match self.queue.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return self.broken(&error),
                _ => {}
            }
        }
        None
    }

    /// The next answer of the kernel: a place, and what it says.
    fn answer(&mut self) -> Option<(usize, i32)> {
        let answer = self.queue.completion().next()?;
        Some((answer.user_data() as usize, answer.result()))
    }

    /// What an answer makes of a flight; `None`: it goes on.
    fn landed(&mut self, place: usize, result: i32) -> Option<Fetched> {
        let flight = self.flights[place].as_mut()?;
        self.pace.answered(flight.begun, Instant::now());
        let answer = match result {
            0.. => Ok(result as usize),
            code => Err(io::Error::from_raw_os_error(-code)),
        };
        let result = match flight.requests.answered(answer, &mut flight.read.buffer[flight.filled..]) {
            Ok(bytes) => {
                flight.filled += bytes;
                if flight.filled < flight.read.buffer.len() {
                    self.push(place);
                    return None;
                }
                Ok(())
            }
            Err(error) => Err(error),
        };
        let Flight { read, .. } = self.flights[place].take()?;
        self.empty.push(place);
        if let Some(next) = self.waiting.pop_front() {
            self.begin(next);
        }
        Some(Fetched { token: read.token, offset: read.offset, buffer: read.buffer, result })
    }

    /// The queue works no more: one read after another gets its error. Memory that the kernel may still write to is
    /// never given back.
    fn broken(&mut self, error: &io::Error) -> Option<Fetched> {
        let place = self.flights.iter().position(Option::is_some)?;
        let Flight { read, requests, .. } = self.flights[place].take()?;
        self.empty.push(place);
        let Read { token, offset, buffer, file } = read;
        std::mem::forget((buffer, file, requests));
        let result = Err(io::Error::new(error.kind(), error.to_string()));
        Some(Fetched { token, offset, buffer: Vec::new(), result })
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.waiting.clear();
        while self.under_way() > 0 {
            while let Some((place, _)) = self.answer() {
                self.flights[place] = None;
                self.empty.push(place);
            }
            if self.under_way() == 0 {
                break;
            }
            match self.queue.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                _ => {}
            }
        }
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            std::mem::forget(flight);
        }
    }
}
