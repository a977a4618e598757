//! Compressed data as one stream of bytes: gzip members, zstd frames and lz4 frames, one behind the other.
//!
//! ```text
//!  between ─► by the next 4 bytes: gzip | zstd | lz4 | skipped (of zstd and lz4, so many bytes) ─► between ─► ... the end
//!          ─► zeros, which archives are filled up with, are passed over
//! ```
//! Each is told by its first bytes, so that members and frames of any kind may follow each other. Bytes go in
//! and come out as there is room: nothing waits, and memory is bounded by what the forms refer back to:
//! 32 KiB for gzip, [`ZSTD_WINDOW_LOG_MAX`] for zstd, two blocks for lz4. Checksums are compared at the end of
//! each member or frame, when its bytes have long been handed out.

use flate2::{Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::lz4;
pub(super) use super::lz4::Step;

/// zstd may refer back at most 2 to this power of bytes: 128 MiB, the most that its own program accepts
/// unasked.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// What stands in front of a block.
const ZSTD_BLOCK_HEAD_BYTES: usize = 3;
/// Input that one step may need to go on, bytes: a block of zstd.
pub(super) const INPUT_BYTES_MAX: usize = 128 << 10;
const ZSTD: u32 = 0xfd2f_b528;
/// With any lowest 4 bits: so many bytes follow that belong to somebody else.
const SKIPPED: u32 = 0x184d_2a50;
const SKIPPED_HEAD_BYTES: usize = 8;
/// gzip's two bytes, and its only method.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
/// In gzip's byte of flags: must be zero.
const GZIP_RESERVED: u8 = 0xe0;

/// A form of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Gzip,
    Zstd,
    Lz4,
}

impl Form {
    /// As it is called.
    fn name(self) -> &'static str {
        match self {
            Form::Gzip => "gzip",
            Form::Zstd => "zstd",
            Form::Lz4 => "lz4",
        }
    }
}

/// Whether these bytes begin something that is unpacked here.
pub(super) fn is_magic(bytes: [u8; 4]) -> bool {
    form(bytes).is_some() || is_skipped(bytes)
}

fn is_skipped(bytes: [u8; 4]) -> bool {
    u32::from_le_bytes(bytes) & !0xf == SKIPPED
}

/// The form of a member or frame that begins with these bytes.
fn form(bytes: [u8; 4]) -> Option<Form> {
    match u32::from_le_bytes(bytes) {
        ZSTD => Some(Form::Zstd),
        lz4::MAGIC => Some(Form::Lz4),
        _ if bytes[..3] == GZIP && bytes[3] & GZIP_RESERVED == 0 => Some(Form::Gzip),
        _ => None,
    }
}

/// Where in the sequence of members and frames it stands.
enum Place {
    Between,
    Gzip(Decompress),
    Zstd(Zstd),
    Lz4(Box<lz4::Frame>),
    /// So many bytes are to be skipped.
    Skipped(u64),
}

/// Decompresses; keeps what it needs of what came before.
pub(super) struct Unpacker {
    place: Place,
    /// Of members and frames that are over, to be used again.
    gzip: Option<Decompress>,
    zstd: Option<Zstd>,
    /// What is to be said once what came out before it has been handed out.
    failure: Option<String>,
}

/// A zstd frame that is being decompressed.
struct Zstd {
    context: DCtx<'static>,
    /// Bytes that the library would like to see next: the header of a block, or a block and the next header.
    wanted: usize,
    /// The last step had no room for all that was ready.
    has_more: bool,
}

impl Unpacker {
    pub(super) fn new() -> Unpacker {
        Unpacker { place: Place::Between, gzip: None, zstd: None, failure: None }
    }

    /// Decompresses some of `from` into `into`, which isn't empty; `is_last`: nothing comes behind it. Neither
    /// consumed nor produced: more input is needed, [`INPUT_BYTES_MAX`] at most.
    ///
    /// # Errors
    /// In words, why nothing more can be decompressed.
    pub(super) fn step(&mut self, from: &[u8], is_last: bool, into: &mut [u8]) -> Result<Step, String> {
        debug_assert!(!into.is_empty());
        if let Some(cause) = self.failure.take() {
            return Err(cause);
        }
        if let Place::Between = self.place {
            let consumed = self.begin(from)?;
            // What begins here may want its first bytes itself.
            if consumed > 0 || matches!(self.place, Place::Between) {
                return Ok(Step { consumed, produced: 0 });
            }
        }
        match &mut self.place {
            Place::Between => Ok(Step::default()),
            Place::Gzip(gzip) => {
                let (step, is_over, failure) = gzip_step(gzip, from, into);
                match failure {
                    Some(cause) if step.produced == 0 => return Err(cause),
                    failure => self.failure = failure,
                }
                if is_over && let Place::Gzip(gzip) = std::mem::replace(&mut self.place, Place::Between) {
                    self.gzip = Some(gzip);
                }
                Ok(step)
            }
            Place::Zstd(zstd) => {
                let (step, is_over) = zstd.step(from, is_last, into)?;
                if is_over && let Place::Zstd(zstd) = std::mem::replace(&mut self.place, Place::Between) {
                    self.zstd = Some(zstd);
                }
                Ok(step)
            }
            Place::Lz4(frame) => {
                let step = frame.step(from, into).map_err(|cause| damaged(Form::Lz4, &cause))?;
                if frame.is_over() {
                    self.place = Place::Between;
                }
                Ok(step)
            }
            Place::Skipped(left) => {
                let consumed = usize::try_from(*left).map_or(from.len(), |left| left.min(from.len()));
                *left -= consumed as u64;
                if *left == 0 {
                    self.place = Place::Between;
                }
                Ok(Step { consumed, produced: 0 })
            }
        }
    }

    /// It stands between two members or frames.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.place, Place::Between)
    }

    /// All input has been given, and `rest` bytes of it were not consumed: `Ok` where that is a proper end.
    ///
    /// # Errors
    /// In words, what is missing.
    pub(super) fn end(&self, rest: usize) -> Result<(), String> {
        let within = match self.place {
            Place::Between if rest == 0 => return Ok(()),
            Place::Between | Place::Skipped(_) => "compressed",
            Place::Gzip(_) => Form::Gzip.name(),
            Place::Zstd(_) => Form::Zstd.name(),
            Place::Lz4(_) => Form::Lz4.name(),
        };
        Err(format!("its {within} data end too early"))
    }

    /// Looks at what the next member or frame is; how many bytes are dealt with.
    fn begin(&mut self, from: &[u8]) -> Result<usize, String> {
        let zeros = from.iter().take_while(|byte| **byte == 0).count();
        if zeros > 0 {
            return Ok(zeros);
        }
        let Some(&magic) = from.first_chunk::<4>() else { return Ok(0) };
        self.place = match form(magic) {
            Some(Form::Gzip) => Place::Gzip(match self.gzip.take() {
                Some(mut gzip) => {
                    gzip.reset(true); // to a member of the same form
                    gzip
                }
                None => Decompress::new_gzip(15),
            }),
            Some(Form::Zstd) => Place::Zstd(match self.zstd.take() {
                Some(zstd) => zstd,
                None => Zstd::new()?,
            }),
            Some(Form::Lz4) => Place::Lz4(Box::new(lz4::Frame::new())),
            None if is_skipped(magic) => {
                let Some([_, _, _, _, length @ ..]) = from.first_chunk::<SKIPPED_HEAD_BYTES>() else {
                    return Ok(0);
                };
                self.place = match u32::from_le_bytes(*length) {
                    0 => Place::Between,
                    length => Place::Skipped(u64::from(length)),
                };
                return Ok(SKIPPED_HEAD_BYTES);
            }
            None => {
                let [a, b, c, d] = magic;
                return Err(format!(
                    "behind its compressed data stands something else: {a:02x} {b:02x} {c:02x} {d:02x}"
                ));
            }
        };
        Ok(0)
    }
}

impl Zstd {
    fn new() -> Result<Zstd, String> {
        let mut context = DCtx::try_create().ok_or("there is no memory to decompress it")?;
        let bounded = context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX));
        bounded.map_err(|code| zstd_safe::get_error_name(code).to_string())?;
        Ok(Zstd { context, wanted: ZSTD_BLOCK_HEAD_BYTES, has_more: false })
    }

    /// One step, and whether it was the frame's last. The library forgets what it has put out in a call that
    /// fails, and puts out part of a block that is not compressed. So it is given one header or one block at a
    /// time, and a whole one: what came out before is good, and doesn't depend on how the bytes came.
    fn step(&mut self, from: &[u8], is_last: bool, into: &mut [u8]) -> Result<(Step, bool), String> {
        let bytes = match self.wanted {
            wanted @ ..=ZSTD_BLOCK_HEAD_BYTES => wanted.max(1),
            wanted => wanted - ZSTD_BLOCK_HEAD_BYTES,
        };
        let is_short = from.len() < bytes && !is_last;
        if is_short && !self.has_more {
            return Ok((Step::default(), false));
        }
        let from = if is_short { &[] } else { &from[..from.len().min(bytes)] };
        let room = into.len();
        let (mut input, mut output) = (InBuffer::around(from), OutBuffer::around(into));
        let wanted = self.context.decompress_stream(&mut output, &mut input);
        let wanted = wanted.map_err(|code| damaged(Form::Zstd, zstd_safe::get_error_name(code)))?;
        self.wanted = if wanted == 0 { ZSTD_BLOCK_HEAD_BYTES } else { wanted };
        self.has_more = output.pos() == room;
        Ok((Step { consumed: input.pos(), produced: output.pos() }, wanted == 0))
    }
}

/// One step, whether it was the member's last, and why there is no further one: what came out before stays good.
fn gzip_step(gzip: &mut Decompress, from: &[u8], into: &mut [u8]) -> (Step, bool, Option<String>) {
    let (before_in, before_out) = (gzip.total_in(), gzip.total_out());
    let status = gzip.decompress(from, into, FlushDecompress::None);
    let step = Step {
        consumed: (gzip.total_in() - before_in) as usize,
        produced: (gzip.total_out() - before_out) as usize,
    };
    match status {
        Ok(status) => (step, status == Status::StreamEnd, None),
        Err(_) => {
            // The library's words depend on how the bytes came: it may notice damage one call later.
            let cause = "they or their checksum are damaged";
            (step, false, Some(damaged(Form::Gzip, cause)))
        }
    }
}

fn damaged(form: Form, cause: &str) -> String {
    format!("its {} data can't be decompressed: {cause}", form.name())
}
