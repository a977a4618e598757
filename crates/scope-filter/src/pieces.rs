//! Long texts are compiled piece by piece, and the pieces' programs joined: libpcap's time grows with the
//! square of a text's length, its optimiser's with the third power (a hundred hosts take it 40 ms, a thousand
//! half a minute).
//!
//! ```text
//! (host 10.0.0.1 or 10.0.0.2) and not port 53
//!     pieces   host 10.0.0.1      host 10.0.0.2      port 53
//!     program  of the first, where it accepts on to the third, where it rejects on to the second; and so on
//! ```
//! libpcap's own code for `and`, `or` and `not` is that joining, before it optimises it: the program means to
//! the last bit what libpcap's means without optimising (`tcpdump -O`). A value without qualifiers
//! (`10.0.0.2` above) takes those of the piece before, or of the one before a closed parenthesis, as in
//! libpcap. Texts with a part that changes what comes behind it (`vlan`), and what isn't understood, are no
//! pieces.

use scope_packet::LinkType;

use crate::bpf::{Instruction, Joined, Program};
use crate::libpcap::{self, ByteOrder};
use crate::words::{Kind, Token, tokens};

/// Words that change what the words behind them mean.
const CHANGING: [&str; 5] = ["vlan", "mpls", "pppoed", "pppoes", "geneve"];
/// Qualifiers that a value without any takes over: those that say what kind of value it is, as the last word.
const HANDED_ON: [&str; 8] = ["host", "net", "port", "portrange", "proto", "src", "dst", "gateway"];
/// Link types whose headers have one length: libpcap's code for others computes it in front of everything.
const LINKS: [LinkType; 7] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
];

/// Pieces joined by operators.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    Piece(String),
    Not(Box<Tree>),
    /// The first, then each with the operator before it, from left to right: both bind alike.
    Chain(Box<Tree>, Vec<(Operator, Tree)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    And,
    Or,
}

/// A text in pieces.
pub(crate) struct Pieces(Tree);

impl Pieces {
    /// `None` where the text is not understood well enough.
    pub fn of(text: &str) -> Option<Pieces> {
        parse(text).map(Pieces)
    }

    /// How they are joined.
    pub fn tree(&self) -> &Tree {
        &self.0
    }

    /// The program behind `tags` VLAN tags; `None` where libpcap doesn't compile the pieces, or not for such
    /// links one by one.
    pub fn program(&self, tags: usize, link: LinkType, order: ByteOrder) -> Option<Program> {
        if !LINKS.contains(&link) {
            return None;
        }
        let compiled = |text: &str| {
            let instructions = libpcap::compile_plain(text, link, order).ok()?;
            Joined::new(&Program::new(&instructions).ok()?)
        };
        if tags == 0 {
            return Some(join(&self.0, &compiled)?.program());
        }
        // The tags are tested once, in front of everything; each piece is what libpcap makes of it behind
        // them.
        let vlan = vec!["vlan"; tags].join(" and ");
        let tagged = compiled(&vlan)?;
        let piece = |text: &str| compiled(&format!("{vlan} and {text}"))?.behind(&tagged);
        let body = join(&self.0, &piece)?;
        Some(tagged.and(body).program())
    }

    /// The program with each piece's instructions changed by `moved`; `None` as [`Pieces::program`].
    pub fn moved_program(
        &self,
        link: LinkType,
        moved: &dyn Fn(Vec<Instruction>) -> Vec<Instruction>,
    ) -> Option<Program> {
        if !LINKS.contains(&link) {
            return None;
        }
        let piece = |text: &str| {
            let instructions = libpcap::compile_plain(text, link, ByteOrder::Native).ok()?;
            Joined::new(&Program::new(&moved(instructions)).ok()?)
        };
        Some(join(&self.0, &piece)?.program())
    }
}

fn join(tree: &Tree, piece: &dyn Fn(&str) -> Option<Joined>) -> Option<Joined> {
    Some(match tree {
        Tree::Piece(text) => piece(text)?,
        Tree::Not(inner) => join(inner, piece)?.not(),
        Tree::Chain(first, rest) => {
            let mut all = join(first, piece)?;
            for (operator, next) in rest {
                let next = join(next, piece)?;
                all = match operator {
                    Operator::And => all.and(next),
                    Operator::Or => all.or(next),
                };
            }
            all
        }
    })
}

fn parse(text: &str) -> Option<Tree> {
    let tokens = tokens(text);
    let changes = |token: &Token| token.kind == Kind::Word && CHANGING.contains(&token.text);
    if tokens.iter().any(|token| token.kind == Kind::Bad || changes(token)) {
        return None;
    }
    let mut parser = Parser { text, tokens: &tokens, at: 0, qualifiers: String::new() };
    let tree = parser.chain()?;
    (parser.at == tokens.len()).then_some(tree)
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token<'a>],
    at: usize,
    /// What a value without qualifiers takes over.
    qualifiers: String,
}

impl Parser<'_> {
    fn chain(&mut self) -> Option<Tree> {
        let first = self.term()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.operator(self.at) {
            self.at += 1;
            rest.push((operator, self.term()?));
        }
        Some(if rest.is_empty() { first } else { Tree::Chain(Box::new(first), rest) })
    }

    fn term(&mut self) -> Option<Tree> {
        let mut negated = false;
        while matches!(self.word(self.at), Some("not" | "!")) {
            negated = !negated;
            self.at += 1;
        }
        let inner = if self.word(self.at) == Some("(") {
            self.at += 1;
            let before = self.qualifiers.clone();
            let inner = self.chain()?;
            self.qualifiers = before;
            if self.word(self.at) != Some(")") {
                return None;
            }
            self.at += 1;
            inner
        } else {
            Tree::Piece(self.piece()?)
        };
        Some(if negated { Tree::Not(Box::new(inner)) } else { inner })
    }

    /// The tokens up to the next operator or closing parenthesis.
    fn piece(&mut self) -> Option<String> {
        let from = self.at;
        while self.at < self.tokens.len()
            && self.word(self.at) != Some(")")
            && self.operator(self.at).is_none()
        {
            if matches!(self.word(self.at), Some("(" | "not")) {
                return None;
            }
            self.at += 1;
        }
        let tokens = &self.tokens[from..self.at];
        let text = &self.text[tokens.first()?.at..tokens.last()?.end()];
        let words = tokens.iter().take_while(|token| token.kind == Kind::Word).count();
        if words == 0 && !self.qualifiers.is_empty() {
            return Some(format!("{} {text}", self.qualifiers));
        }
        self.qualifiers.clear();
        if words > 0 && words < tokens.len() && HANDED_ON.contains(&tokens[words - 1].text) {
            self.qualifiers.push_str(&self.text[tokens[0].at..tokens[words - 1].end()]);
        }
        Some(text.to_string())
    }

    fn word(&self, at: usize) -> Option<&str> {
        self.tokens.get(at).map(|token| token.text)
    }

    /// The operator at a place, unless it joins `src` and `dst`.
    fn operator(&self, at: usize) -> Option<Operator> {
        let operator = match self.word(at)? {
            "and" | "&&" => Operator::And,
            "or" | "||" => Operator::Or,
            _ => return None,
        };
        let beside = (at.checked_sub(1).and_then(|before| self.word(before)), self.word(at + 1));
        (!matches!(beside, (Some("src"), Some("dst")) | (Some("dst"), Some("src")))).then_some(operator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tree: &Tree) -> String {
        match tree {
            Tree::Piece(text) => format!("[{text}]"),
            Tree::Not(inner) => format!("!{}", shown(inner)),
            Tree::Chain(first, rest) => {
                let sign = |operator| if operator == Operator::And { "&" } else { "|" };
                rest.iter().fold(shown(first), |all, (operator, next)| {
                    format!("({all}{}{})", sign(*operator), shown(next))
                })
            }
        }
    }

    #[test]
    fn a_text_is_cut_at_its_operators_and_bare_values_take_qualifiers_over() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(parse(text).as_ref().map(shown), expected.map(String::from), "{text}");
        };
        check("host 10.0.0.1 or 10.0.0.2 and tcp", Some("(([host 10.0.0.1]|[host 10.0.0.2])&[tcp])"));
        check(
            "tcp dst port 80 or (443 or 8080)",
            Some("([tcp dst port 80]|([tcp dst port 443]|[tcp dst port 8080]))"),
        );
        check("not (not udp) && ! ! arp", Some("(!![udp]&[arp])"));
        check(
            "port 80 or (host 10.0.0.1 or 10.0.0.2) or 443",
            Some("(([port 80]|([host 10.0.0.1]|[host 10.0.0.2]))|[port 443])"),
        );
        check(
            "src or dst net 10.0.0.0/8 or 11.0.0.0/8",
            Some("([src or dst net 10.0.0.0/8]|[src or dst net 11.0.0.0/8])"),
        );
        check("tcp[13] & 2 != 0 or ip[8] < 5", Some("([tcp[13] & 2 != 0]|[ip[8] < 5])"));
        check("less 50 or 60", Some("([less 50]|[60])"));
        check("tcp or 80", Some("([tcp]|[80])"));
        for text in [
            "vlan and tcp",
            "host (10.0.0.1 or 10.0.0.2)",
            "(ip[0] + 1) = 3 or tcp",
            "tcp and",
            "(tcp",
            "tcp)",
            "é",
            "",
        ] {
            check(text, None);
        }
    }
}
