//! A fault as text and as JSON: one function each, of the same value.

use crate::fault::{Fault, Subject};
use crate::location::Where;
use crate::sentence::{Sentence, flag};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// A fault in words that fit where it stands.
struct Words {
    subject: Option<String>,
    cause: String,
    remedy: Option<String>,
    hints: Vec<String>,
}

impl Fault {
    fn in_words(&self) -> Words {
        let in_file = matches!(self.at, Where::File { .. });
        // Its own setting stands where the fault stands.
        let mut named: BTreeSet<String> = match &self.subject {
            Subject::Setting { key, .. } => [key.clone()].into(),
            _ => BTreeSet::new(),
        };
        let mut words = |sentence: &Sentence| sentence.render(in_file, &mut named);
        Words {
            subject: self.subject.in_words(in_file),
            cause: words(&self.cause),
            remedy: self.remedy.as_ref().map(&mut words),
            hints: self.hints.iter().map(words).collect(),
        }
    }

    /// Its cause and its remedy alone, where the text around them says what they are about.
    pub fn reason(&self) -> String {
        Reason(&self.in_words(), self.shown.as_deref()).to_string()
    }

    /// Its cause alone.
    pub fn why(&self) -> String {
        self.in_words().cause
    }

    /// As JSON: `key`, `value`, `at` (`flag`, or `file` and `line`), `subject`, `cause`, `shown`, `remedy`;
    /// null what it hasn't.
    pub fn to_json(&self) -> Value {
        let Words { subject, cause, remedy, hints } = self.in_words();
        let remedies: Vec<String> = remedy.into_iter().chain(hints).collect();
        let at = match (&self.at, self.key()) {
            (Where::File { path, line }, _) => json!({"file": path.to_string_lossy(), "line": line}),
            (Where::Flags, Some(key)) => {
                json!({"flag": flag(key.split_once('.').map_or(&*key, |(key, _)| key))})
            }
            (Where::Flags, None) => Value::Null,
        };
        json!({
            "key": self.key(),
            "value": self.value,
            "at": at,
            "subject": subject,
            "cause": cause,
            "shown": self.shown,
            "remedy": (!remedies.is_empty()).then(|| remedies.join("\n")),
        })
    }
}

/// What is wrong and what to do, without what it is about and where that stands: `CAUSE; REMEDY`, and the
/// lines below.
struct Reason<'a>(&'a Words, Option<&'a str>);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason(Words { cause, remedy, hints, .. }, shown) = self;
        f.write_str(cause)?;
        if let Some(remedy) = remedy {
            write!(f, "; {remedy}")?;
        }
        for lines in shown.iter().copied().chain(hints.iter().map(String::as_str)) {
            write!(f, "\n{lines}")?;
        }
        Ok(())
    }
}

/// `PLACE: SUBJECT: CAUSE; REMEDY`, then what is shown and what helps besides, in lines of their own.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.in_words();
        match &self.at {
            Where::File { path, line: Some(line) } => write!(f, "{}:{line}: ", path.display())?,
            Where::File { path, line: None } => write!(f, "{}: ", path.display())?,
            Where::Flags => {}
        }
        if let Some(subject) = &words.subject {
            write!(f, "{subject}: ")?;
        }
        Reason(&words, self.shown.as_deref()).fmt(f)
    }
}

impl Subject {
    fn in_words(&self, in_file: bool) -> Option<String> {
        let quoted =
            |texts: &[String]| texts.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>().join(" and ");
        Some(match self {
            Subject::Whole => return None,
            Subject::Thing(thing) => thing.clone(),
            Subject::Setting { key, element, word } => {
                let name = if in_file { key.clone() } else { flag(key) };
                let element = element.as_ref().map_or(String::new(), |element| format!(" '{element}'"));
                let word = word.as_ref().map_or(String::new(), |word| format!(": {word}"));
                name + &element + &word
            }
            Subject::Trigger { name, word: None } => format!("trigger '{name}'"),
            Subject::Trigger { name, word: Some(word) } => format!("trigger '{name}': {word}"),
            Subject::Sources { specs, option: None } if specs.len() > 1 => {
                format!("sources {}", quoted(specs))
            }
            Subject::Sources { specs, option: None } => format!("source {}", quoted(specs)),
            Subject::Sources { specs, option: Some(option) } => {
                format!("source {}: option '{option}'", quoted(specs))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Fault, Part, Sentence, Setting, Subject, Where, in_order, sentence};

    fn both() -> Fault {
        let taken = sentence!["the dump and ", Setting::of("summary"), " can't both have standard output"];
        let remedy =
            sentence!["write ", Setting::of("write").example("FILE"), ", or omit ", Setting::of("summary")];
        Fault::of("write").with_value("-").cause(taken).remedy(remedy)
    }

    #[test]
    fn text_and_json_of_a_fault_come_from_the_same_value() {
        let line = |line| Where::File { path: "t.toml".into(), line: Some(line) };
        let cause = "the dump and --summary can't both have standard output";
        let remedy = "write -w FILE, or omit --summary";
        assert_eq!(both().to_string(), format!("-w: {cause}; {remedy}"));
        let json = both().to_json();
        assert_eq!(
            (&json["cause"], &json["remedy"], &json["value"]),
            (&cause.into(), &remedy.into(), &"-".into())
        );
        assert_eq!(
            (&json["key"], &json["at"]["flag"], &json["at"]["line"]),
            (&"write".into(), &"-w".into(), &().into())
        );

        let placed = both().at(line(3)).located(&|key| (key == "summary").then(|| line(4)));
        let cause = "the dump and summary (t.toml:4) can't both have standard output";
        let remedy = "write write = \"FILE\", or omit summary";
        assert_eq!(placed.to_string(), format!("t.toml:3: write: {cause}; {remedy}"));
        let json = placed.to_json();
        assert_eq!((&json["cause"], &json["remedy"]), (&cause.into(), &remedy.into()));
        assert_eq!((&json["at"]["file"], &json["at"]["line"]), (&"t.toml".into(), &3.into()));
    }

    #[test]
    fn what_a_fault_is_about_is_named_as_its_reader_wrote_it() {
        let check = |subject: Subject, key: Option<&str>, flags: &str, file: &str| {
            let fault = Fault::about(subject).cause("no");
            assert_eq!((fault.key().as_deref(), fault.to_string().as_str()), (key, flags));
            assert_eq!(fault.in_file("f", None).to_string(), file);
        };
        let setting = |key: &str, element: Option<&str>, word: Option<&str>| Subject::Setting {
            key: key.into(),
            element: element.map(Into::into),
            word: word.map(Into::into),
        };
        check(setting("ring", None, None), Some("ring"), "--ring: no", "f: ring: no");
        check(setting("snap-len", None, None), Some("snap-len"), "-s: no", "f: snap-len: no");
        check(setting("dump", Some("ip"), None), Some("dump"), "--dump 'ip': no", "f: dump 'ip': no");
        check(
            setting("trigger", None, Some("name")),
            Some("trigger.name"),
            "--trigger: name: no",
            "f: trigger: name: no",
        );
        let trigger = Subject::Trigger { name: "a".into(), word: Some("before".into()) };
        check(trigger, Some("trigger.before"), "trigger 'a': before: no", "f: trigger 'a': before: no");
        let sources = |specs: &[&str], option: Option<&str>| Subject::Sources {
            specs: specs.iter().map(ToString::to_string).collect(),
            option: option.map(Into::into),
        };
        check(
            sources(&["a", "b"], None),
            Some("source"),
            "sources 'a' and 'b': no",
            "f: sources 'a' and 'b': no",
        );
        check(
            sources(&["a"], Some("cpus")),
            Some("source.cpus"),
            "source 'a': option 'cpus': no",
            "f: source 'a': option 'cpus': no",
        );
        check(Subject::Thing("signals".into()), None, "signals: no", "f: signals: no");
        check(Subject::Whole, None, "no", "f: no");
    }

    #[test]
    fn what_is_shown_and_what_else_helps_stand_in_lines_of_their_own() {
        let either = Part::Either { flags: "add -i IFACE".into(), file: "write source = \"IFACE\"".into() };
        let fault = Fault::of("source").cause("none").remedy(either).showing("  a b\n  ^").hint("look there");
        assert_eq!(fault.to_string(), "--source: none; add -i IFACE\n  a b\n  ^\nlook there");
        let fault = fault.in_file("f", Some(1));
        assert_eq!(fault.to_string(), "f:1: source: none; write source = \"IFACE\"\n  a b\n  ^\nlook there");
        assert_eq!(fault.to_json()["remedy"], "write source = \"IFACE\"\nlook there");
        let exec = Sentence::from(Setting::of("exec").example("'gzip a'"));
        assert_eq!(
            Fault::of("exec").cause("empty").remedy(exec.clone()).to_string(),
            "--exec: empty; --exec 'gzip a'"
        );
        assert_eq!(
            Fault::of("exec").cause("empty").remedy(exec).in_file("f", None).to_string(),
            "f: exec: empty; exec = 'gzip a'"
        );
    }

    #[test]
    fn faults_are_reported_in_the_order_of_their_lines_and_then_as_they_were_found() {
        let at = |line| Fault::of("a").cause("x").in_file("f", line);
        let found = vec![at(None), at(Some(7)), Fault::of("b"), at(Some(2)), at(Some(7)).hint("h")];
        let lines: Vec<_> = in_order(found).iter().map(|fault| (fault.line(), fault.hints.len())).collect();
        assert_eq!(lines, [(Some(2), 0), (Some(7), 0), (Some(7), 1), (None, 0), (None, 0)]);
    }
}
