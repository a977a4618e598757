//! The words between a run and its helper process: frames of bounded length over one socket pair.
//!
//! ```text
//!  | length u32 | kind u8 | fields ... |        all numbers little-endian
//!    a field: a number, u64; or bytes: their length, u64, then the bytes
//!  run -> helper   setup, then jobs; "end all"; the end of the stream: end everything at once
//!  helper -> run   ready or refused, then one outcome per job
//! ```
//! Each side takes the other's words for foreign data: what doesn't fit ends the connection.

use super::Job;
use scope_fault::Fault;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of one frame, without its length.
pub const FRAME_BYTES_MAX: usize = 2 << 20;
/// Facts of one job, folders of one kind.
const LIST_MAX: u64 = 4096;
const LENGTH_BYTES: usize = 4;

/// What the helper receives first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// For `/bin/sh -c`.
    pub command: String,
    /// Commands at once.
    pub at_once: usize,
    /// How long each may take.
    pub timeout: Duration,
    /// Whom the helper becomes: user and group; `None`: it stays who it is.
    pub user: Option<(u32, u32)>,
    /// The folder for dumps, if there is one.
    pub dumps: Option<PathBuf>,
    /// All of that folder may be read; else only its files, by their names.
    pub dumps_listed: bool,
    /// Where commands may write.
    pub writable: Vec<PathBuf>,
    /// Where the temporary folder is made.
    pub temporary: PathBuf,
}

/// What the helper receives.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// Comes first, once.
    Setup(Setup),
    /// Run the command for this dump.
    Run(Job),
    /// Tell all commands to end.
    EndAll,
}

/// What the helper reports.
#[derive(Debug, PartialEq)]
pub enum Told {
    /// It has given up its rights and waits for jobs.
    Ready {
        /// Version of Landlock's interface that is in force; 0: none.
        landlock_abi: i32,
    },
    /// It can't begin; why.
    Refused(Refusal),
    /// A command has ended.
    Ended(Outcome),
}

/// Why the helper can't begin: a fault of one of the two settings that it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The folder of `exec-write` that is at fault; none: commands as such are.
    pub folder: Option<PathBuf>,
    /// What is wrong.
    pub cause: String,
    /// What to do; empty where nothing is known.
    pub remedy: String,
}

impl Refusal {
    /// Of commands as such.
    pub fn whole(cause: impl Into<String>) -> Refusal {
        Refusal { cause: cause.into(), ..Refusal::default() }
    }

    /// As the fault of the setting.
    pub fn fault(self) -> Fault {
        let fault = match self.folder {
            Some(folder) => Fault::of("exec-write").with_value(folder.to_string_lossy()),
            None => Fault::of("exec"),
        };
        let fault = fault.cause(self.cause);
        if self.remedy.is_empty() { fault } else { fault.remedy(self.remedy) }
    }
}

/// What became of a command.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The dump's number.
    pub dump: u64,
    /// The status as `wait(2)` has it; or why it couldn't be started.
    pub status: Result<i32, String>,
    /// It took too long.
    pub timed_out: bool,
    /// How long it took.
    pub took: Duration,
    /// The beginning of what it said.
    pub output: Vec<u8>,
}

/// Puts a frame together.
struct Frame(Vec<u8>);

impl Frame {
    fn new(kind: u8) -> Frame {
        Frame(vec![0, 0, 0, 0, kind])
    }

    fn number(mut self, number: u64) -> Frame {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(self, bytes: &[u8]) -> Frame {
        let mut frame = self.number(bytes.len() as u64);
        frame.0.extend(bytes);
        frame
    }

    fn end(mut self) -> Vec<u8> {
        let length = (self.0.len() - LENGTH_BYTES) as u32;
        self.0[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

/// Takes a frame apart.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn words(&mut self) -> Option<OsString> {
        Some(OsString::from_vec(self.bytes()?.to_vec()))
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.number().filter(|length| *length <= LIST_MAX)?;
        (0..length).map(|_| each(self)).collect()
    }

    fn flag(&mut self) -> Option<bool> {
        self.number().map(|number| number != 0)
    }

    fn duration(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Order {
    /// As it goes over the socket.
    pub fn to_frame(&self) -> Vec<u8> {
        match self {
            Order::Setup(setup) => {
                let user = setup.user.map_or([0, 0, 0], |(uid, gid)| [1, uid.into(), gid.into()]);
                let frame = Frame::new(0)
                    .bytes(setup.command.as_bytes())
                    .number(setup.at_once as u64)
                    .number(nanos(setup.timeout));
                let frame = user.into_iter().fold(frame, Frame::number);
                let dumps = setup.dumps.as_deref().map_or(&b""[..], |path| path.as_os_str().as_bytes());
                let frame = frame
                    .bytes(dumps)
                    .number(setup.dumps_listed.into())
                    .bytes(setup.temporary.as_os_str().as_bytes());
                let frame = frame.number(setup.writable.len() as u64);
                setup
                    .writable
                    .iter()
                    .fold(frame, |frame, path| frame.bytes(path.as_os_str().as_bytes()))
                    .end()
            }
            Order::Run(job) => {
                let frame = Frame::new(1).number(job.dump).number(job.facts.len() as u64);
                let facts = job.facts.iter();
                facts
                    .fold(frame, |frame, (name, value)| frame.bytes(name.as_bytes()).bytes(value.as_bytes()))
                    .end()
            }
            Order::EndAll => Frame::new(2).end(),
        }
    }

    fn from_payload(payload: &[u8]) -> Option<Order> {
        let (kind, rest) = payload.split_first()?;
        let mut fields = Fields(rest);
        let order = match kind {
            0 => {
                let (command, at_once, timeout) = (fields.text()?, fields.number()?, fields.duration()?);
                let (given, uid, gid) = (fields.flag()?, fields.number()?, fields.number()?);
                let user = given.then(|| Some((u32::try_from(uid).ok()?, u32::try_from(gid).ok()?)));
                let dumps = PathBuf::from(fields.words()?);
                Order::Setup(Setup {
                    command,
                    at_once: usize::try_from(at_once).ok()?,
                    timeout,
                    user: if given { Some(user.flatten()?) } else { None },
                    dumps: (!dumps.as_os_str().is_empty()).then_some(dumps),
                    dumps_listed: fields.flag()?,
                    temporary: PathBuf::from(fields.words()?),
                    writable: fields.list(|fields| fields.words().map(PathBuf::from))?,
                })
            }
            1 => {
                let dump = fields.number()?;
                Order::Run(Job {
                    dump,
                    facts: fields.list(|fields| Some((fields.text()?, fields.words()?)))?,
                })
            }
            2 => Order::EndAll,
            _ => return None,
        };
        fields.0.is_empty().then_some(order)
    }
}

impl Told {
    /// As it goes over the socket.
    pub fn to_frame(&self) -> Vec<u8> {
        match self {
            Told::Ready { landlock_abi } => Frame::new(0).number(*landlock_abi as u64).end(),
            Told::Refused(Refusal { folder, cause, remedy }) => {
                let folder = folder.as_ref().map_or(&b""[..], |folder| folder.as_os_str().as_bytes());
                Frame::new(1).bytes(folder).bytes(cause.as_bytes()).bytes(remedy.as_bytes()).end()
            }
            Told::Ended(outcome) => {
                let (started, status, error) = match &outcome.status {
                    Ok(status) => (1, *status as u32, ""),
                    Err(error) => (0, 0, error.as_str()),
                };
                let frame = Frame::new(2)
                    .number(outcome.dump)
                    .number(started)
                    .number(status.into())
                    .bytes(error.as_bytes());
                frame
                    .number(outcome.timed_out.into())
                    .number(nanos(outcome.took))
                    .bytes(&outcome.output)
                    .end()
            }
        }
    }

    fn from_payload(payload: &[u8]) -> Option<Told> {
        let (kind, rest) = payload.split_first()?;
        let mut fields = Fields(rest);
        let told = match kind {
            0 => Told::Ready { landlock_abi: i32::try_from(fields.number()?).ok()? },
            1 => {
                let folder = Some(fields.words()?).filter(|folder| !folder.is_empty()).map(PathBuf::from);
                Told::Refused(Refusal { folder, cause: fields.text()?, remedy: fields.text()? })
            }
            2 => {
                let (dump, started, status, error) =
                    (fields.number()?, fields.flag()?, fields.number()?, fields.text()?);
                let status = if started { Ok(u32::try_from(status).ok()? as i32) } else { Err(error) };
                let (timed_out, took) = (fields.flag()?, fields.duration()?);
                Told::Ended(Outcome { dump, status, timed_out, took, output: fields.bytes()?.to_vec() })
            }
            _ => return None,
        };
        fields.0.is_empty().then_some(told)
    }
}

/// What has come in and wasn't taken yet: a frame at most, and what one read brings.
#[derive(Default)]
pub struct Inbox(Vec<u8>);

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

impl Inbox {
    /// Reads once; whether the stream goes on.
    pub fn fill(&mut self, mut from: impl Read) -> bool {
        let mut buffer = [0; READ_BYTES];
        match from.read(&mut buffer) {
            Ok(0) => false,
            Ok(bytes) => {
                self.0.extend(&buffer[..bytes]);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    /// The next order; an error where what came is none.
    pub fn next_order(&mut self) -> Result<Option<Order>, Malformed> {
        self.next(Order::from_payload)
    }

    /// The next thing told; an error where what came is none.
    pub fn next_told(&mut self) -> Result<Option<Told>, Malformed> {
        self.next(Told::from_payload)
    }

    fn next<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Option<T>, Malformed> {
        let Some((length, rest)) = self.0.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(Malformed);
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let value = read(payload).ok_or(Malformed)?;
        self.0.drain(..LENGTH_BYTES + length);
        Ok(Some(value))
    }
}

/// What came is none of these words.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads `data` as either side would, and what it understands again as it would send it.
#[cfg(feature = "fuzzing")]
pub(crate) fn round_trip(data: &[u8]) {
    let mut inbox = Inbox(data.to_vec());
    while let Ok(Some(order)) = inbox.next_order() {
        assert_eq!(Inbox(order.to_frame()).next_order().ok().flatten(), Some(order));
    }
    let mut inbox = Inbox(data.to_vec());
    while let Ok(Some(told)) = inbox.next_told() {
        assert_eq!(Inbox(told.to_frame()).next_told().ok().flatten(), Some(told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Vec<Order> {
        let setup = Setup {
            command: "zstd \"$WIRESCOPE_FILE\"".into(),
            at_once: 4,
            timeout: Duration::from_millis(2500),
            user: Some((65534, 1)),
            dumps: Some("/d".into()),
            dumps_listed: true,
            writable: vec!["/a".into(), OsString::from_vec(vec![b'/', 0xff]).into()],
            temporary: "/tmp".into(),
        };
        let plain =
            Setup { user: None, dumps: None, dumps_listed: false, writable: Vec::new(), ..setup.clone() };
        let facts = vec![
            ("WIRESCOPE_FILE".to_string(), OsString::from_vec(vec![0xfe])),
            ("B".to_string(), OsString::new()),
        ];
        vec![
            Order::Setup(setup),
            Order::Setup(plain),
            Order::Run(Job { dump: u64::MAX, facts }),
            Order::EndAll,
        ]
    }

    fn tellings() -> Vec<Told> {
        let ended = |status, output: &[u8]| {
            let took = Duration::from_micros(7);
            Told::Ended(Outcome { dump: 3, status, timed_out: true, took, output: output.to_vec() })
        };
        vec![
            Told::Ready { landlock_abi: 6 },
            Told::Refused(Refusal::whole("no")),
            Told::Refused(Refusal { folder: Some("/a b".into()), cause: "no".into(), remedy: "yes".into() }),
            ended(Ok(-1), b"\0x"),
            ended(Ok(256), b""),
            ended(Err("/bin/sh: gone".into()), b""),
        ]
    }

    #[test]
    fn what_is_sent_arrives_however_it_is_cut() {
        for step in [1, 3, 1000] {
            let mut inbox = Inbox::default();
            let stream: Vec<u8> = orders().iter().flat_map(Order::to_frame).collect();
            let mut found = Vec::new();
            for part in stream.chunks(step) {
                assert!(inbox.fill(part));
                while let Some(order) = inbox.next_order().unwrap() {
                    found.push(order);
                }
            }
            assert_eq!(found, orders());
            let mut inbox = Inbox::default();
            let stream: Vec<u8> = tellings().iter().flat_map(Told::to_frame).collect();
            let mut found = Vec::new();
            for part in stream.chunks(step) {
                assert!(inbox.fill(part));
                while let Some(told) = inbox.next_told().unwrap() {
                    found.push(told);
                }
            }
            assert_eq!(found, tellings());
            assert!(!inbox.fill(&b""[..]), "the end of the stream");
        }
    }

    #[test]
    fn what_is_none_of_the_words_is_refused_and_never_waited_for_without_bound() {
        let check = |bytes: &[u8]| {
            let mut inbox = Inbox(bytes.to_vec());
            assert_eq!(inbox.next_order(), Err(Malformed), "{bytes:?}");
        };
        check(&[0xff, 0xff, 0xff, 0x7f]);
        check(&[0, 0, 0, 0]);
        check(&[1, 0, 0, 0, 9]);
        check(&[2, 0, 0, 0, 2, 0]);
        // Every cut and every changed byte of a good frame: an order or a refusal, never a panic.
        for frame in orders().iter().map(Order::to_frame) {
            for at in LENGTH_BYTES..frame.len() {
                let mut cut = frame[..at].to_vec();
                cut[..LENGTH_BYTES].copy_from_slice(&((at - LENGTH_BYTES) as u32).to_le_bytes());
                assert_eq!(Inbox(cut).next_order(), Err(Malformed));
                let mut changed = frame.clone();
                changed[at] ^= 0xff;
                let _ = Inbox(changed).next_order();
            }
        }
    }
}
