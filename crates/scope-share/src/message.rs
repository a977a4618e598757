//! Greeting and answer as bytes, without any I/O: little-endian, each one message of the socket.
//!
//! ```text
//!            0          8         12     14       16
//! greeting   | WSATTACH | version | 1    | weight | group: length 2, bytes | name: the same | class: the same | hold |
//! joined     | WSATTACH | version | 2    | member | 1: what is unread stays; 0: it is recycled    2 |
//! refused    | WSATTACH | version | 3    | why    | words: length 2, bytes |
//! news       | WSATTACH | version | 4    | 0      |
//! question   | WSATTACH | version | 5    | as the greeting: would it be let in? The answer is `refused`, or `news` for yes;
//!            |          |         |      |   then how many times, 2 bytes, where it isn't once
//! ```
//! Another version may have more behind its first 16 bytes; of this one every byte is meant.

use crate::VERSION;

/// Bytes of a message at most.
pub const MESSAGE_BYTES_MAX: usize = 1024;
/// Bytes of a member's or a group's name at most.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of a refusal's words at most.
const WORDS_BYTES_MAX: usize = 512;

const MAGIC: &[u8; 8] = b"WSATTACH";
const HEAD_BYTES: usize = 16;
const GREETING: u16 = 1;
const JOINED: u16 = 2;
const REFUSED: u16 = 3;
const NEWS: u16 = 4;
const QUESTION: u16 = 5;

/// Weights that a member may have.
pub const WEIGHTS: std::ops::RangeInclusive<u16> = 1..=100;

/// All of the ring, as [`Greeting::hold`] counts it: hundredths of a percent.
pub const HOLD_WHOLE: u16 = 10_000;

/// Why a message is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// It doesn't begin like one.
    #[error("it doesn't begin as a message of wirescope does")]
    Foreign,
    /// It speaks another version.
    #[error("it speaks version {0} of what is said here, and this is version {VERSION}")]
    Version(u32),
    /// It isn't what is expected now.
    #[error("it is not what is expected at this point")]
    Unexpected,
    /// It ends before its end, or goes on behind it.
    #[error("it is truncated, or longer than it says")]
    Length,
    /// A name isn't one.
    #[error("a name in it is empty, longer than {NAME_BYTES_MAX} bytes, or not plain text")]
    Name,
    /// It wants more than the whole ring to be held.
    #[error("it wants more than the whole ring to be held")]
    Hold,
    /// A weight isn't one.
    #[error("its weight is not from {} to {}", WEIGHTS.start(), WEIGHTS.end())]
    Weight,
}

/// What a member says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The group that it wants to join.
    pub group: String,
    /// How it is to be called.
    pub name: String,
    /// Its share of the packets, against that of other members: see [`WEIGHTS`].
    pub weight: u16,
    /// What rules of the group call packets that it wants; empty: those that have no class.
    pub class: String,
    /// How much of the ring is to be held for it, in units of [`HOLD_WHOLE`]; 0: nothing.
    pub hold: u16,
}

impl Greeting {
    /// Of a member like any other.
    pub fn new(group: &str, name: &str) -> Greeting {
        Greeting {
            group: group.to_string(),
            name: name.to_string(),
            weight: 1,
            class: String::new(),
            hold: 0,
        }
    }
}

/// Why somebody isn't a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Refusal {
    /// The user isn't among those who may.
    NotAllowed = 1,
    /// There is no such group, or none of its rules gives the class.
    NoSuchGroup = 2,
    /// There are as many members as there can be.
    Full = 3,
    /// What was said couldn't be understood.
    BadMessage = 4,
    /// Another version.
    Version = 5,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 5] =
        [Refusal::NotAllowed, Refusal::NoSuchGroup, Refusal::Full, Refusal::BadMessage, Refusal::Version];

    /// A word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::NotAllowed => "not_allowed",
            Refusal::NoSuchGroup => "no_such_group",
            Refusal::Full => "full",
            Refusal::BadMessage => "bad_message",
            Refusal::Version => "version",
        }
    }
}

/// What the run says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Welcome; descriptors come with it.
    Joined {
        /// The member's number in its group.
        member: u16,
        /// Whether what it hasn't read stays as it is, so that it can be read in place.
        is_kept: bool,
    },
    /// No.
    Refused {
        /// Why.
        why: Refusal,
        /// The same in words.
        words: String,
    },
}

/// What is left of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BadMessage> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(BadMessage::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, BadMessage> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn text(&mut self, bytes_max: usize) -> Result<String, BadMessage> {
        let bytes = usize::from(self.number()?);
        if bytes > bytes_max {
            return Err(BadMessage::Name);
        }
        String::from_utf8(self.take(bytes)?.to_vec()).map_err(|_| BadMessage::Name)
    }

    fn end(&self) -> Result<(), BadMessage> {
        if self.0.is_empty() { Ok(()) } else { Err(BadMessage::Length) }
    }
}

/// Kind and number of a message of this version.
fn head(bytes: &[u8]) -> Result<(u16, u16, Rest<'_>), BadMessage> {
    let mut rest = Rest(bytes);
    let head = rest.take(HEAD_BYTES).map_err(|_| BadMessage::Foreign)?;
    if head[..8] != *MAGIC {
        return Err(BadMessage::Foreign);
    }
    match u32::from_le_bytes([head[8], head[9], head[10], head[11]]) {
        VERSION => {}
        other => return Err(BadMessage::Version(other)),
    }
    let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    Ok((number(12), number(14), rest))
}

fn begin(kind: u16, number: u16) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes
}

fn add(bytes: &mut Vec<u8>, text: &str, bytes_max: usize) {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes.extend((end as u16).to_le_bytes());
    bytes.extend(&text.as_bytes()[..end]);
}

/// Whether a group or a member can be called so.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

impl Greeting {
    /// As a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_of(GREETING)
    }

    /// The question whether so many would be let in who say this, as a message: nobody joins by it.
    pub fn to_question(&self, times: u16) -> Vec<u8> {
        let mut bytes = self.to_bytes_of(QUESTION);
        if times != 1 {
            bytes.extend(times.to_le_bytes());
        }
        bytes
    }

    /// For how many a message that can be read as a greeting only asks; `None`: whoever says it joins.
    pub fn asks_for(bytes: &[u8]) -> Option<u16> {
        let (kind, _, mut rest) = head(bytes).ok()?;
        if kind != QUESTION {
            return None;
        }
        let names = (0..3).all(|_| rest.text(NAME_BYTES_MAX).is_ok());
        let is_whole = names && rest.number().is_ok();
        Some(rest.number().ok().filter(|_| is_whole).unwrap_or(1))
    }

    fn to_bytes_of(&self, kind: u16) -> Vec<u8> {
        let mut bytes = begin(kind, self.weight);
        for text in [&self.group, &self.name, &self.class] {
            add(&mut bytes, text, NAME_BYTES_MAX);
        }
        bytes.extend(self.hold.to_le_bytes());
        bytes
    }

    /// Reads a message, also one that only asks.
    ///
    /// # Errors
    /// It is none.
    pub fn read(bytes: &[u8]) -> Result<Greeting, BadMessage> {
        let (kind, weight, mut rest) = head(bytes)?;
        if ![GREETING, QUESTION].contains(&kind) {
            return Err(BadMessage::Unexpected);
        }
        let mut text = || rest.text(NAME_BYTES_MAX);
        let (group, name, class) = (text()?, text()?, text()?);
        let hold = rest.number()?;
        if kind == QUESTION && rest.end().is_err() {
            rest.number()?; // for how many
        }
        rest.end()?;
        if !(is_name(&group) && is_name(&name) && (class.is_empty() || is_name(&class))) {
            return Err(BadMessage::Name);
        }
        if !WEIGHTS.contains(&weight) {
            return Err(BadMessage::Weight);
        }
        if hold > HOLD_WHOLE {
            return Err(BadMessage::Hold);
        }
        Ok(Greeting { group, name, weight, class, hold })
    }
}

impl Answer {
    /// Reads the answer to a question.
    ///
    /// # Errors
    /// It is none.
    pub fn read_reply(bytes: &[u8]) -> Result<Result<(), (Refusal, String)>, BadMessage> {
        if bytes == news() {
            return Ok(Ok(()));
        }
        match Answer::read(bytes)? {
            Answer::Refused { why, words } => Ok(Err((why, words))),
            Answer::Joined { .. } => Err(BadMessage::Unexpected),
        }
    }

    /// As a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Answer::Joined { member, is_kept } => {
                let mut bytes = begin(JOINED, *member);
                bytes.extend(u16::from(*is_kept).to_le_bytes());
                bytes
            }
            Answer::Refused { why, words } => {
                let mut bytes = begin(REFUSED, *why as u16);
                add(&mut bytes, words, WORDS_BYTES_MAX);
                bytes
            }
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is none.
    pub fn read(bytes: &[u8]) -> Result<Answer, BadMessage> {
        let (kind, number, mut rest) = head(bytes)?;
        let answer = match kind {
            JOINED => Answer::Joined {
                member: number,
                is_kept: match rest.number()? {
                    0 => false,
                    1 => true,
                    _ => return Err(BadMessage::Unexpected),
                },
            },
            REFUSED => {
                let why = Refusal::ALL.into_iter().find(|why| *why as u16 == number);
                let words = rest.text(WORDS_BYTES_MAX)?;
                Answer::Refused { why: why.ok_or(BadMessage::Unexpected)?, words }
            }
            _ => return Err(BadMessage::Unexpected),
        };
        rest.end()?;
        Ok(answer)
    }
}

/// That something has come: for a member whose page says that it waits, and yes for whoever asks.
pub fn news() -> Vec<u8> {
    begin(NEWS, 0)
}

const _: () = assert!(HEAD_BYTES + 2 + WORDS_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + 3 * (2 + NAME_BYTES_MAX) + 2 <= MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting(group: &str, name: &str) -> Greeting {
        Greeting { weight: 7, class: "voip".to_string(), hold: 500, ..Greeting::new(group, name) }
    }

    #[test]
    fn a_greeting_is_read_back_and_each_damage_of_it_refused() {
        let bytes = greeting("ring", "tap of tests").to_bytes();
        assert_eq!(Greeting::read(&bytes), Ok(greeting("ring", "tap of tests")));
        for len in 0..bytes.len() {
            assert!(Greeting::read(&bytes[..len]).is_err(), "{len}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Greeting::read(&longer), Err(BadMessage::Length));
        let mut other = bytes.clone();
        other[8] = 9;
        assert_eq!(Greeting::read(&other), Err(BadMessage::Version(9)));
        assert_eq!(Answer::read(&bytes), Err(BadMessage::Unexpected));
        for (group, name) in [("", "a"), ("a", ""), ("a\nb", "c"), ("a", "\u{1b}[2J")] {
            let bytes = greeting(group, name).to_bytes();
            assert_eq!(Greeting::read(&bytes), Err(BadMessage::Name), "{group:?} {name:?}");
        }
        for (weight, class, expected) in [
            (0, "", Err(BadMessage::Weight)),
            (101, "", Err(BadMessage::Weight)),
            (100, "", Ok(())),
            (1, "a\nb", Err(BadMessage::Name)),
        ] {
            let greeting = Greeting { weight, class: class.to_string(), ..greeting("a", "b") };
            assert_eq!(Greeting::read(&greeting.to_bytes()).map(|_| ()), expected, "{weight} {class:?}");
        }
        let all = Greeting { hold: HOLD_WHOLE, ..greeting("ring", "b") };
        assert_eq!(Greeting::read(&all.to_bytes()), Ok(all));
        let more = Greeting { hold: HOLD_WHOLE + 1, ..greeting("ring", "b") };
        assert_eq!(Greeting::read(&more.to_bytes()), Err(BadMessage::Hold));
        let long = greeting(&"x".repeat(NAME_BYTES_MAX), "y").to_bytes();
        assert!(Greeting::read(&long).is_ok());
    }

    #[test]
    fn a_question_is_a_greeting_that_only_asks() {
        let greeting = greeting("ids", "a");
        let (asked, said) = (greeting.to_question(1), greeting.to_bytes());
        assert_eq!(asked.len(), said.len(), "a run that knows no number understands it");
        let asks =
            [&asked, &greeting.to_question(3), &said, &b"x".to_vec()].map(|bytes| Greeting::asks_for(bytes));
        assert_eq!(asks, [Some(1), Some(3), None, None]);
        for times in [0, 1, 3, u16::MAX] {
            let mut asked = greeting.to_question(times);
            assert_eq!(Greeting::read(&asked), Ok(greeting.clone()), "{times}");
            asked.push(0);
            assert_eq!(Greeting::read(&asked), Err(BadMessage::Length), "{times}");
        }
        assert_eq!(Answer::read_reply(&news()), Ok(Ok(())));
        let no = Answer::Refused { why: Refusal::Full, words: "no".to_string() };
        assert_eq!(Answer::read_reply(&no.to_bytes()), Ok(Err((Refusal::Full, "no".to_string()))));
        let joined = Answer::Joined { member: 1, is_kept: true }.to_bytes();
        assert_eq!(Answer::read_reply(&joined), Err(BadMessage::Unexpected));
    }

    #[test]
    fn answers_are_read_back() {
        let refused = Refusal::ALL.map(|why| Answer::Refused { why, words: format!("no: {}", why.word()) });
        for answer in
            refused.into_iter().chain([false, true].map(|is_kept| Answer::Joined { member: 513, is_kept }))
        {
            assert_eq!(Answer::read(&answer.to_bytes()), Ok(answer));
        }
        let long = Answer::Refused { why: Refusal::Full, words: "ä".repeat(9999) }.to_bytes();
        assert!(long.len() <= MESSAGE_BYTES_MAX && Answer::read(&long).is_ok());
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_refused_or_say_something(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), begins in any::<bool>()) {
            if begins && bytes.len() >= 16 {
                bytes[..8].copy_from_slice(MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
                let kind = 1 + u16::from(bytes[12] % 3);
                bytes[12..14].copy_from_slice(&kind.to_le_bytes());
            }
            if let Ok(greeting) = Greeting::read(&bytes) {
                prop_assert_eq!(Greeting::read(&greeting.to_bytes()), Ok(greeting));
            }
            if let Ok(answer) = Answer::read(&bytes) {
                prop_assert_eq!(Answer::read(&answer.to_bytes()), Ok(answer));
            }
        }
    }
}
