//! Questions to stores, drawn from a seed and asked of the program: each answer has to be what tcpdump selects of what
//! came, packet for packet and in order of time; packets of one time may stand in any order.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scene`] | runs of the program into several stores: clocks that step, VLANs, IPv6, three link types, lanes |
//! | [`damage`] | copies of these stores in which bits are flipped, and what of them is still proven |
//! | [`filter`] | filters in words |
//!
//! Of a damaged store an answer has all packets that are proven, and none whose page is damaged. It may leave out
//! others, and then the exit code is 1.
//!
//! What the capture files of a run said that they lack is stated by each answer about a time at which it may be missing.

pub mod damage;
pub mod filter;
pub mod scene;

use crate::oracle::{self, VlanRule, difference, tcpdump_selects};
use crate::traffic::{Capture, Random};
use damage::Damaged;
use filter::Text;
use scene::Scene;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Of a fault, so many characters are kept.
const WORDS_MAX: usize = 700;

/// One question.
#[derive(Clone, Debug)]
struct Question {
    filter: Text,
    /// Both ends, ns; `None`: not given.
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    /// Given as `--at` and `--within`.
    around: bool,
    stores: Vec<usize>,
    /// The damaged copy of the one store is asked.
    damaged: bool,
    form: Form,
}

/// In which form the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    File,
    Pipe,
    Count,
}

/// Makes stores of `runs` runs with `program` in `folder`, which is empty, and asks `questions` questions; what is
/// wrong with the answers, one text for each wrong one.
///
/// # Errors
/// Where stores couldn't be made, or an oracle fails.
pub fn ask(
    program: &Path,
    folder: &Path,
    seed: u64,
    runs: usize,
    questions: usize,
) -> Result<Vec<String>, String> {
    let mut random = Random::new(seed);
    let scene = Scene::make(program, folder, &mut random, runs)?;
    let damaged: Vec<Damaged> = (0..scene.stores.len())
        .map(|store| Damaged::make(&scene, store, &folder.join(format!("damaged{store}")), &mut random))
        .collect::<Result<_, _>>()?;
    let mut asking = Asking { program, folder, scene: &scene, damaged: &damaged, selected: HashMap::new() };
    let mut faults = Vec::new();
    for number in 0..questions {
        let question = asking.draw(&mut random);
        if let Err(fault) = asking.check(number, &question) {
            let fault: String =
                format!("question {number}, {question:?}: {fault}").chars().take(WORDS_MAX).collect();
            faults.push(fault);
        }
    }
    Ok(faults)
}

struct Asking<'a> {
    program: &'a Path,
    folder: &'a Path,
    scene: &'a Scene,
    damaged: &'a [Damaged],
    /// By filter and run: what tcpdump selects, or its words.
    selected: HashMap<(String, usize), Result<Vec<usize>, String>>,
}

/// What an answer may be: [`Truth::least`] and [`Truth::most`] are the same where nothing is damaged.
struct Truth {
    all: Capture,
    least: Capture,
    most: Capture,
    /// What of it may be missing in the span that is asked for, as its files said; `None`: nobody knows how much.
    lacks: Vec<Option<u64>>,
}

impl Asking<'_> {
    fn draw(&self, random: &mut Random) -> Question {
        let store = random.below(self.scene.stores.len() as u64) as usize;
        let damaged = random.chance(30);
        let mut stores = vec![store];
        if !damaged && self.scene.stores.len() > 1 && random.chance(30) {
            stores.push((store + 1) % self.scene.stores.len());
        }
        let times = |random: &mut Random| {
            let runs = &self.scene.stores[store].runs;
            let run = &self.scene.runs[runs[random.below(runs.len() as u64) as usize]].capture;
            let exact = run.packets[random.below(run.packets.len() as u64) as usize].time_ns;
            exact + random.pick(&[0, 0, 0, -1, 1, 777_777])
        };
        let (one, two) = (times(random), times(random));
        let far_ns = 86_400_000_000_000;
        let (from_ns, to_ns, around) = match random.below(10) {
            0 | 1 => (None, None, false),
            2 => (Some(one), None, false),
            3 => (None, Some(one), false),
            4 => (Some(one), Some(one), false),
            5 => (Some(one - 31 * far_ns), Some(one - 30 * far_ns), false),
            6 => {
                let within_ns = 1_000_000 * (1 + random.below(900) as i64);
                (Some(one - within_ns), Some(one + within_ns), true)
            }
            _ => (Some(one.min(two)), Some(one.max(two)), false),
        };
        let form = match random.below(4) {
            0 => Form::Count,
            1 if self.link_types(&stores).len() == 1 => Form::Pipe,
            _ => Form::File,
        };
        Question { filter: filter::draw(random), from_ns, to_ns, around, stores, damaged, form }
    }

    fn link_types(&self, stores: &[usize]) -> Vec<u16> {
        let runs = stores.iter().flat_map(|&store| &self.scene.stores[store].runs);
        let mut types: Vec<u16> = runs.flat_map(|&run| self.scene.runs[run].capture.link_types()).collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    fn check(&mut self, number: usize, question: &Question) -> Result<(), String> {
        let Some(truth) = self.truth(question)? else {
            let done = self.run(question, &["--count"])?;
            return match done.status.code() {
                Some(2) => Ok(()),
                code => Err(format!("tcpdump refuses the filter, and the exit code is {code:?}")),
            };
        };
        let (done, found) = match question.form {
            Form::Count => {
                let done = self.run(question, &["--count", "--json"])?;
                return check_count(question, &truth, &done);
            }
            Form::Pipe => {
                let done = self.run(question, &["-w", "-"])?;
                let found = oracle::parse(&done.stdout).map_err(|error| with_words(&error, &done))?.capture;
                (done, found)
            }
            Form::File => {
                let folder = self.folder.join(format!("answer{number}"));
                std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
                let file = folder.join("a.pcapng");
                let done = self.run(question, &["-w", &file.to_string_lossy()])?;
                let found = read_all(&folder).map_err(|error| with_words(&error, &done))?;
                std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
                (done, found)
            }
        };
        check_packets(question, &truth, &found, &done)
    }

    /// `None`: the filter is none for what the stores have.
    fn truth(&mut self, question: &Question) -> Result<Option<Truth>, String> {
        let within = |time_ns: i64| {
            question.from_ns.is_none_or(|from_ns| from_ns <= time_ns)
                && question.to_ns.is_none_or(|to_ns| time_ns <= to_ns)
        };
        let mut truth = Truth {
            all: Capture::default(),
            least: Capture::default(),
            most: Capture::default(),
            lacks: Vec::new(),
        };
        let mut is_filter = false;
        let runs: Vec<usize> =
            question.stores.iter().flat_map(|&store| self.scene.stores[store].runs.clone()).collect();
        for run in runs {
            let capture = &self.scene.runs[run].capture;
            let select = || tcpdump_selects(capture, &question.filter.text, VlanRule::Transparent);
            let selected = self.selected.entry((question.filter.text.clone(), run)).or_insert_with(select);
            let Ok(selected) = selected else { continue };
            is_filter = true;
            let asked_ns = (question.from_ns.unwrap_or(i64::MIN), question.to_ns.unwrap_or(i64::MAX));
            let of_run = self.scene.runs[run].lacks.iter();
            let may = of_run.filter(|lack| asked_ns.0 <= lack.span_ns.1 && lack.span_ns.0 <= asked_ns.1);
            truth.lacks.extend(may.map(|lack| lack.packets));
            let selected: Vec<usize> =
                selected.iter().copied().filter(|&at| within(capture.packets[at].time_ns)).collect();
            add(&mut truth.all, capture.subset(&selected));
        }
        if !is_filter {
            return Ok(None);
        }
        match question.damaged {
            false => {
                truth.least = truth.all.clone();
                truth.most = truth.all.clone();
            }
            true => {
                let damaged = &self.damaged[question.stores[0]];
                truth.least = damaged.proven(&truth.all)?;
                truth.most = damaged.whole(&truth.all)?;
            }
        }
        for capture in [&mut truth.all, &mut truth.least, &mut truth.most] {
            capture.packets.sort_by_key(|packet| packet.time_ns);
        }
        Ok(Some(truth))
    }

    fn run(&self, question: &Question, output: &[&str]) -> Result<Output, String> {
        let mut command = Command::new(self.program);
        command.arg("query");
        if !question.filter.text.is_empty() {
            command.arg(&question.filter.text);
        }
        for &store in &question.stores {
            let folder = match question.damaged {
                true => &self.damaged[store].folder,
                false => &self.scene.stores[store].folder,
            };
            command.arg("--store").arg(folder);
        }
        match (question.from_ns, question.to_ns) {
            (Some(from_ns), Some(to_ns)) if question.around => {
                let within_ns = (to_ns - from_ns) / 2;
                command.args(["--at", &at(from_ns + within_ns)]);
                command.args(["--within", &format!("{}ms", within_ns / 1_000_000)]);
            }
            (from_ns, to_ns) => {
                command.args(from_ns.iter().flat_map(|&from_ns| ["--from".to_string(), at(from_ns)]));
                command.args(to_ns.iter().flat_map(|&to_ns| ["--to".to_string(), at(to_ns)]));
            }
        }
        command.args(output).stdin(Stdio::null());
        command.output().map_err(|error| format!("{}: {error}", self.program.display()))
    }
}

/// A time as the command line takes it.
fn at(time_ns: i64) -> String {
    format!("@{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

fn with_words(fault: &str, done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr);
    format!("{fault}; {} {}", done.status, said.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Appends the packets of `more`, with their interfaces.
fn add(capture: &mut Capture, more: Capture) {
    let offset = capture.interfaces.len();
    capture.interfaces.extend(more.interfaces);
    capture.packets.extend(more.packets.into_iter().map(|packet| {
        let interface = packet.interface + offset;
        packet.on(interface)
    }));
}

/// All captures of a folder: one for each link type.
fn read_all(folder: &Path) -> Result<Capture, String> {
    let mut all = Capture::default();
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        add(&mut all, oracle::read(&path)?.capture);
    }
    Ok(all)
}

fn check_code(question: &Question, done: &Output, is_complete: bool) -> Result<(), String> {
    match done.status.code() {
        Some(0) if is_complete => Ok(()),
        Some(1) if question.damaged => Ok(()),
        _ if !is_complete => Err(with_words("packets are missing, and the exit code doesn't say so", done)),
        _ => Err(with_words("the exit code is wrong", done)),
    }
}

fn check_count(question: &Question, truth: &Truth, done: &Output) -> Result<(), String> {
    let count: Value = serde_json::from_slice(&done.stdout)
        .map_err(|error| with_words(&format!("no object: {error}"), done))?;
    let found = count["packets"].as_u64().unwrap_or(u64::MAX);
    let (least, most) = (truth.least.packets.len() as u64, truth.most.packets.len() as u64);
    if !(least..=most).contains(&found) {
        return Err(with_words(&format!("{found} packets counted, {least} to {most} are right"), done));
    }
    if !question.damaged {
        check_lacks(truth, &count["missing"]).map_err(|fault| with_words(&fault, done))?;
    }
    check_code(question, done, found == truth.all.packets.len() as u64)
}

/// Whether an answer states what files said that they lack.
fn check_lacks(truth: &Truth, missing: &Value) -> Result<(), String> {
    let gaps = missing.as_array().map_or(&[][..], Vec::as_slice);
    let of = |reason: &'static str| gaps.iter().filter(move |gap| gap["reason"] == reason);
    let most: u64 = of("file").filter_map(|gap| gap["lost_max"].as_u64()).sum();
    let known: u64 = truth.lacks.iter().flatten().sum();
    if most < known {
        return Err(format!("{most} packets are stated as dropped, {known} are right: {missing}"));
    }
    let is_cut = truth.lacks.iter().any(Option::is_none);
    if is_cut && !of("unreadable").any(|gap| gap["lost_max"].is_null()) {
        return Err(format!("nothing is said of a truncated file: {missing}"));
    }
    Ok(())
}

fn check_packets(question: &Question, truth: &Truth, found: &Capture, done: &Output) -> Result<(), String> {
    let types: Vec<u16> = found.link_types().into_iter().chain(truth.all.link_types()).collect();
    for link_type in types {
        let found = found.of_link_type(link_type);
        if !found.packets.is_sorted_by_key(|packet| packet.time_ns) {
            return Err(with_words(&format!("not in order of time, link type {link_type}"), done));
        }
        let found = canonical(found);
        let [least, most] = [&truth.least, &truth.most].map(|of| canonical(of.of_link_type(link_type)));
        if !question.damaged {
            if let Some(words) = difference(&most, &found) {
                return Err(with_words(&words, done));
            }
        } else if let Some(words) = lacks(&found, &least).or_else(|| lacks(&most, &found)) {
            return Err(with_words(&words, done));
        }
    }
    check_code(question, done, found.packets.len() == truth.all.packets.len())
}

/// The same packets, those of one time in an order of their own.
fn canonical(mut capture: Capture) -> Capture {
    let names: Vec<String> = capture.interfaces.iter().map(|interface| interface.name.clone()).collect();
    capture.packets.sort_by(|a, b| {
        let key = |packet: &crate::traffic::Record| (packet.time_ns, packet.original_len, packet.flags);
        (key(a), &a.data, &names[a.interface]).cmp(&(key(b), &b.data, &names[b.interface]))
    });
    capture
}

/// What of `part` isn't in `whole`, in words.
fn lacks(whole: &Capture, part: &Capture) -> Option<String> {
    let mut there: HashMap<_, i64> = HashMap::new();
    for packet in &whole.packets {
        *there.entry((packet.time_ns, &packet.data, packet.original_len)).or_default() += 1;
    }
    let mut missing = 0;
    for packet in &part.packets {
        let count = there.entry((packet.time_ns, &packet.data, packet.original_len)).or_default();
        *count -= 1;
        missing += u64::from(*count < 0);
    }
    let (whole, part) = (whole.packets.len(), part.packets.len());
    (missing > 0).then(|| format!("of {part} packets {missing} are not among the other {whole}"))
}
