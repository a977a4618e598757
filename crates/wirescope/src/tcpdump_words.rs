//! What people type who know tcpdump, tshark or dumpcap: which flag or command does it here, or that nothing
//! does.

use crate::args::Cli;
use clap::{Arg, CommandFactory};
use scope_filter::is_filter_word;
use scope_spelling::printable::{printable, shell_word};
use std::collections::VecDeque;

/// Flags that `run` doesn't have, and what to write instead.
const FLAGS: [(&str, &str); 43] = [
    (
        "-c",
        "no flag ends a run after so many packets; --exit-after N ends it after N dumps, and 'timeout 60 \
         wirescope run ...' after a time",
    ),
    (
        "-C",
        "dumps aren't split by size: each dump is a file of its own; --dump-budget 50GiB bounds what all of \
         them take",
    ),
    (
        "-G",
        "dumps aren't split by time: each dump is a file of its own, from --before to --after around its \
        trigger",
    ),
    ("-W", "files aren't counted; --dump-budget 50GiB --dump-rotate keeps the newest"),
    (
        "-b",
        "there is no ring of files: the ring is in memory, --ring 8GiB; --dump-budget 50GiB --dump-rotate \
         bounds dumps",
    ),
    ("-a", "--exit-after N ends a run after N dumps, and 'timeout 60 wirescope run ...' after a time"),
    ("-n", "names are never resolved; omit it"),
    ("-N", "names are never resolved; omit it"),
    (
        "-A",
        "packets aren't printed; read a dump with: tcpdump -A -r FILE, or: wirescope run ... -w - | tcpdump \
         -A -r -",
    ),
    (
        "-X",
        "packets aren't printed; read a dump with: tcpdump -X -r FILE, or: wirescope run ... -w - | tcpdump \
         -X -r -",
    ),
    (
        "-x",
        "packets aren't printed; read a dump with: tcpdump -x -r FILE, or: wirescope run ... -w - | tcpdump \
         -x -r -",
    ),
    (
        "-e",
        "packets aren't printed; read a dump with: tcpdump -e -r FILE, or: wirescope run ... -w - | tcpdump \
         -e -r -",
    ),
    ("-t", "packets aren't printed; read a dump with: tcpdump -t -r FILE; times are kept in nanoseconds"),
    ("-j", "time stamps are the kernel's, in nanoseconds; nothing chooses others"),
    ("-l", "nothing is printed for each packet, so nothing is buffered; omit it"),
    ("-U", "a pipe (-w -) is handed each packet as it comes; omit it"),
    ("-p", "promiscuous mode is switched off in the source: --source afpacket:eth0,promisc=off"),
    (
        "-B",
        "the kernel's buffer is part of the source: --source afpacket:eth0,block=1MiB,blocks=64, or \
         pcap:eth0,buffer=64MiB",
    ),
    ("-D", "interfaces are listed by: wirescope devices"),
    ("-L", "link types are listed by: wirescope devices"),
    ("-d", "a filter's program is shown by: wirescope filter EXPR"),
    ("-F", "settings come from a file by --config FILE; a filter stands behind --trigger, quoted"),
    (
        "-f",
        "a capture filter is --prefilter 'EXPR' (what else comes is never recorded); a trigger is --trigger \
         'EXPR'",
    ),
    ("-Y", "a trigger is --trigger 'EXPR', in the language of tcpdump; 'wirescope filter EXPR' explains one"),
    ("-Z", "the user to become is --user NAME"),
    ("-K", "checksums aren't checked; omit it"),
    ("-S", "packets aren't printed; omit it. -s BYTES keeps that many bytes of each packet"),
    ("-T", "packets aren't printed; read a dump with: tshark -T json -r FILE"),
    ("-z", "a command after each dump is --exec 'CMD'"),
    ("-y", "an interface is captured with the link type that it has; nothing chooses another"),
    (
        "-Q",
        "both directions are recorded; a filter on addresses picks one: --prefilter 'src host ADDRESS', or \
         dst",
    ),
    ("-o", "the folder for dumps is --out DIR; a single dump goes into -w FILE"),
    (
        "-I",
        "a wireless card is put into monitor mode before the run: ip link set wlan0 down; iw dev wlan0 set \
         type monitor; ip link set wlan0 up",
    ),
    ("-J", "times are kept in nanoseconds; omit it"),
    (
        "-O",
        "filters are compiled as fast as they can be; omit it. 'wirescope filter EXPR' shows the \
         program",
    ),
    ("-R", "a trigger is --trigger 'EXPR', in the language of tcpdump; a capture file is read by -r FILE"),
    ("-P", "packets aren't printed, and what is recorded can be piped: -w - | tshark -r -"),
    ("-V", "packets aren't printed; read a dump with: tshark -V -r FILE"),
    ("-E", "nothing is decrypted; do so with a dump: tcpdump -E ... -r FILE"),
    ("-H", "comments aren't added; a dump says itself who fired and why"),
    ("-k", "a run captures at once; omit it"),
    ("-M", "nothing is decrypted or checked; omit it"),
    ("-#", "packets aren't printed; omit it"),
];
/// Long flags of others that `run` doesn't have, and the short ones that mean the same, there or here.
const LONG: [(&str, &str); 34] = [
    ("--interface", "-i"),
    ("--iface", "-i"),
    ("--read-file", "-r"),
    ("--read", "-r"),
    ("--file", "-r"),
    ("--write-file", "-w"),
    ("--snapshot-length", "-s"),
    ("--snaplen", "-s"),
    ("--count", "-c"),
    ("--duration", "-a"),
    ("--timeout", "-a"),
    ("--time", "-a"),
    ("--autostop", "-a"),
    ("--ring-buffer", "-b"),
    ("--buffer-size", "-B"),
    ("--list-interfaces", "-D"),
    ("--list-data-link-types", "-L"),
    ("--linktype", "-y"),
    ("--direction", "-Q"),
    ("--no-promiscuous-mode", "-p"),
    ("--monitor-mode", "-I"),
    ("--dont-verify-checksums", "-K"),
    ("--number", "-#"),
    ("--packet-buffered", "-U"),
    ("--time-stamp-type", "-j"),
    ("--time-stamp-precision", "-J"),
    ("--relinquish-privileges", "-Z"),
    ("--print", "-P"),
    ("--capture-filter", "-f"),
    ("--filter", "-f"),
    ("--display-filter", "-Y"),
    ("--output", "-o"),
    ("--output-file", "-o"),
    ("--capture-comment", "-H"),
];
/// Flags of [`FLAGS`] that can be left out, and the line does the same.
const NEEDLESS: [&str; 11] = ["-n", "-N", "-l", "-U", "-K", "-S", "-J", "-O", "-k", "-M", "-#"];
/// Commands of others, and those that do it here, with the flag that a word behind them is the value of; and
/// what stands for words that are missing, or are no words of that command.
const COMMANDS: [(&str, &str, &str); 19] = [
    ("capture", "run -i", "IFACE"),
    ("record", "run -i", "IFACE"),
    ("live", "run -i", "IFACE"),
    ("start", "run -i", "IFACE"),
    ("sniff", "run -i", "IFACE"),
    ("listen", "run -i", "IFACE"),
    ("dump", "run -i", "IFACE"),
    ("read", "run -r", "FILE"),
    ("trigger", "run --trigger", "EXPR"),
    ("list", "devices", ""),
    ("interfaces", "devices", ""),
    ("ifaces", "devices", ""),
    ("check", "config check", "FILE"),
    ("show", "config show --config", "FILE"),
    ("validate", "config check", "FILE"),
    ("explain", "filter", "EXPR"),
    ("compile", "filter", "EXPR"),
    ("benchmark", "bench", ""),
    ("diagnose", "doctor", ""),
];
/// Words of single commands.
const OF_COMMANDS: [(&str, &str, &str); 6] = [
    ("filter", "-d", "the program is always printed; omit it"),
    ("filter", "-O", "the program that is evaluated is printed; omit it"),
    ("filter", "-y", "a link type is chosen by --link-type NAME"),
    ("filter", "-i", "a filter is explained without an interface; omit it, or count in a file: -r FILE"),
    ("filter", "-w", "nothing is written; a run records and dumps: wirescope run"),
    ("devices", "", "all interfaces are listed; omit it"),
];

/// What helps who typed `flag`, as `-c` or `--count`, which `run` doesn't have.
pub fn instead_of(flag: &str) -> Option<String> {
    let long = LONG.iter().find(|(known, _)| *known == flag).map(|(_, short)| *short);
    let short = match long {
        Some(short) => short,
        None if flag.starts_with("--") => return None,
        None => flag.get(..2).unwrap_or(flag),
    };
    let own = [("-i", "IFACE"), ("-r", "FILE"), ("-w", "FILE"), ("-s", "BYTES")];
    let of_run =
        own.iter().find(|(known, _)| *known == short).map(|(flag, value)| format!("write {flag} {value}"));
    let of_others =
        || FLAGS.iter().find(|(known, _)| *known == short).map(|(_, instead)| instead.to_string());
    of_run.filter(|_| long.is_some()).or_else(of_others)
}

/// What helps who typed a word that `command`, another one than `run`, doesn't have.
pub fn of_command(command: &str, word: &str) -> Option<&'static str> {
    let short = word.get(..2).filter(|_| word.starts_with('-') && !word.starts_with("--")).unwrap_or("");
    let known = |(of, flag, _): &&(&str, &str, &str)| *of == command && *flag == short;
    OF_COMMANDS.iter().find(known).map(|(.., instead)| *instead)
}

/// What helps who began with `word`, which is no command, with `rest` behind it.
pub fn no_command(word: &str, rest: &[String]) -> Option<String> {
    if matches!(word, "-D" | "--list-interfaces") {
        return Some(format!("{word}: interfaces are listed by: wirescope devices"));
    }
    if let Some((_, instead, missing)) = COMMANDS.iter().find(|(known, ..)| *known == word) {
        let line = match with_words(instead, rest) {
            Ok(words) => in_words(&words),
            Err(None) => format!("wirescope {instead} {missing}").trim_end().to_string(),
            Err(answer) => return answer,
        };
        return Some(format!("there is no command '{word}'; that is: {line}"));
    }
    if !is_flag(word) && !is_filter(word) {
        return None;
    }
    let line = match run_line(&[&[word.to_string()], rest].concat()) {
        Ok(line) => line,
        Err(answer) => return answer.or_else(|| answer_to(word)),
    };
    match line.filter.filter(|_| !is_flag(word)) {
        None => Some(format!("{word}: a command must come first: {}", in_words(&line.words))),
        Some(filter) => Some(format!(
            "'{}' is a filter, and a command is missing; to record, or to explain the filter:\n  {}\n  \
             wirescope filter {}",
            printable(&filter),
            in_words(&line.words),
            shell_word(&filter)
        )),
    }
}

/// What helps who typed words that belong to no flag of `run`: a filter, as tcpdump takes it.
pub fn free_words(words: &str) -> String {
    let filter = on_one_line(words);
    let (words, quoted) = (printable(&filter), shell_word(&filter));
    format!(
        "'{words}' belongs to no flag; a filter is either a trigger or a prefilter:\n  \
         --trigger {quoted}     starts a dump for each such packet\n  \
         --prefilter {quoted}   records only such packets"
    )
}

/// What was typed, as `run` takes it.
struct RunLine {
    words: Vec<String>,
    /// What belonged to no flag.
    filter: Option<String>,
}

/// The line of `run` that does what was typed. If there is none: what helps instead of the first flag that
/// stands in the way, if that is known.
fn run_line(typed: &[String]) -> Result<RunLine, Option<String>> {
    let mut cli = Cli::command();
    cli.build();
    let args: Vec<&Arg> =
        cli.find_subcommand("run").map(|run| run.get_arguments().collect()).unwrap_or_default();
    let mut line = RunLine { words: vec!["run".to_string()], filter: None };
    let mut rest: VecDeque<String> = typed.iter().cloned().collect();
    while let Some(word) = rest.pop_front() {
        if word == "run" {
            continue;
        }
        if !is_flag(&word) {
            let mut free = vec![word];
            while rest.front().is_some_and(|next| !is_flag(next)) {
                free.extend(rest.pop_front());
            }
            let filter = on_one_line(&free.join(" "));
            if line.filter.is_some() || !is_filter(&filter) {
                return Err(None);
            }
            line.words.extend(["--trigger".to_string(), filter.clone()]);
            line.filter = Some(filter);
            continue;
        }
        // The flag, and what is attached to it: its value, or further flags of one letter.
        let is_long = word.starts_with("--");
        let end = if is_long { word.find('=') } else { word.char_indices().nth(2).map(|(at, _)| at) };
        let name = &word[..end.unwrap_or(word.len())];
        let attached = end.map(|at| word[at..].strip_prefix('=').unwrap_or(&word[at..]));
        let flag = LONG.iter().find(|(known, _)| *known == name).map_or(name, |(_, short)| *short);
        let more = match args.iter().find(|arg| is_called(arg, flag)) {
            Some(arg) if takes_a_word(arg) => {
                line.words.push(flag.to_string());
                line.words.extend(attached.map(str::to_string).or_else(|| rest.pop_front()));
                None
            }
            Some(_) if is_long || word.contains('=') => {
                line.words.push(word.clone());
                None
            }
            Some(_) => {
                line.words.push(flag.to_string());
                attached
            }
            None if NEEDLESS.contains(&flag) => attached.filter(|_| !is_long),
            None => return Err(answer_to(name)),
        };
        if let Some(more) = more {
            rest.push_front(format!("-{more}"));
        }
    }
    if line.filter.is_some() {
        let has = |flags: &[&str]| line.words.iter().any(|word| flags.contains(&word.as_str()));
        let (has_source, has_place) =
            (has(&["-i", "-r", "--source", "--config"]), has(&["--out", "-w", "--write", "--config"]));
        if !has_source {
            line.words.insert(1, "-i".to_string());
            line.words.insert(2, "IFACE".to_string());
        }
        if !has_place {
            line.words.extend(["--out", "DIR"].map(String::from));
        }
    }
    if is_understood(&line.words) { Ok(line) } else { Err(None) }
}

/// The command `instead` with the words that were typed behind another one's name.
fn with_words(instead: &str, typed: &[String]) -> Result<Vec<String>, Option<String>> {
    let Some(first) = typed.first() else { return Err(None) };
    let mut words: Vec<String> = instead.split(' ').map(String::from).collect();
    let flag = words.pop_if(|last| is_flag(last));
    words.extend(flag.filter(|_| !is_flag(first) && !is_filter(first)));
    words.extend(typed.iter().cloned());
    if words[0] == "run" {
        return run_line(&words[1..]).map(|line| line.words);
    }
    if is_understood(&words) { Ok(words) } else { Err(None) }
}

/// What helps who typed `flag`, with its name.
fn answer_to(flag: &str) -> Option<String> {
    instead_of(flag).map(|instead| format!("{flag}: {instead}"))
}

fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Whether a text begins as a filter does.
fn is_filter(text: &str) -> bool {
    let text = text.trim_start_matches(['(', '!', ' ']);
    let end =
        text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').unwrap_or(text.len());
    is_filter_word(&text[..end]) && !text[end..].starts_with(['.', '_'])
}

fn is_called(arg: &Arg, flag: &str) -> bool {
    match flag.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|all| all.contains(&long))
        }
        None => arg.get_short() == flag.chars().nth(1),
    }
}

/// Whether the word behind a flag is its value.
fn takes_a_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Whether `wirescope` with these words is no fault of the command line's form.
fn is_understood(words: &[String]) -> bool {
    let line = std::iter::once("wirescope").chain(words.iter().map(String::as_str));
    Cli::command().try_get_matches_from(line).is_ok()
}

fn in_words(words: &[String]) -> String {
    let words: String = words.iter().map(|word| format!(" {}", shell_word(word))).collect();
    format!("wirescope{words}")
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_others_have_an_answer() {
        let long = [
            "--interface",
            "--count",
            "--duration",
            "--direction",
            "--snapshot-length",
            "--filter",
            "--list-interfaces",
        ];
        for flag in
            ["-c", "-C", "-G", "-n", "-A", "-nn", "-c5", "-y", "-Q", "-o", "-O", "-V"].into_iter().chain(long)
        {
            assert!(instead_of(flag).is_some(), "{flag}");
        }
        assert_eq!(instead_of("--interface").as_deref(), Some("write -i IFACE"));
        assert!(instead_of("--frobnicate").is_none() && instead_of("-9").is_none());
        assert!(
            instead_of("--monitor-mode")
                .is_some_and(|instead| instead.contains("set wlan0 down; iw dev wlan0 set type monitor"))
        );
        for (long, short) in LONG {
            assert!(instead_of(long).is_some(), "{long} {short}");
        }
    }

    #[test]
    fn a_line_without_a_command_is_answered_with_the_command() {
        let check = |line: &[&str], expected: &str| {
            let rest: Vec<String> = line[1..].iter().map(|word| word.to_string()).collect();
            let said = no_command(line[0], &rest).unwrap_or_default();
            assert!(said.contains(expected), "{line:?}: {said}");
        };
        check(&["-i", "lo", "--trigger", "udp port 53"], "wirescope run -i lo --trigger 'udp port 53'");
        check(&["-D"], "wirescope devices");
        check(&["capture", "-i", "lo"], "wirescope run -i lo");
        check(&["check", "x.toml"], "wirescope config check x.toml");
        check(&["udp", "port", "53"], "--trigger 'udp port 53'");
        assert_eq!([no_command("frobnicate", &[]), no_command("--frobnicate", &[])], [None, None]);
        assert!(of_command("filter", "-dd").is_some() && of_command("devices", "eth0").is_some());
        assert!(of_command("doctor", "-d").is_none() && of_command("devices", "-v").is_none());
    }

    /// What is said of a line.
    fn said(typed: &[&str]) -> String {
        let words: Vec<String> = [&["wirescope"], typed].concat().into_iter().map(String::from).collect();
        let error = Cli::command().try_get_matches_from(&words).unwrap_err();
        crate::known_elsewhere(&error, &words).unwrap_or_default()
    }

    /// The words of a line, as a shell takes them.
    fn words_of(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = |(at, part): (usize, &str)| match at % 2 {
            0 => part.split_whitespace().map(String::from).collect(),
            _ => vec![part.to_string()],
        };
        parts.flat_map(words).collect()
    }

    #[test]
    fn every_line_that_is_proposed_is_understood() {
        let check = |typed: &[&str], expected: &str| {
            let said = said(typed);
            let lines = said.lines().flat_map(|line| line.split(", or: "));
            let proposed: Vec<&str> =
                lines.filter_map(|line| Some(line.split_once("wirescope ")?.1)).collect();
            assert!(proposed.contains(&expected), "{typed:?}: {said}");
            for line in proposed {
                assert!(is_understood(&words_of(line)), "{typed:?}: {line}");
            }
        };
        let dns = "run -i IFACE --trigger 'udp port 53' --out DIR";
        check(&["udp", "port", "53"], dns);
        check(&["udp port 53"], dns);
        check(&["udp port 53"], "filter 'udp port 53'");
        check(&["udp\tport", "\n53"], dns);
        check(&["udp", "port", "53", "-i", "eth0"], "run --trigger 'udp port 53' -i eth0 --out DIR");
        check(&["trigger", "udp port 53"], dns);
        check(&["trigger", "dns=udp port 53", "-i", "eth0"], "run --trigger 'dns=udp port 53' -i eth0");
        check(&["trigger"], "run --trigger EXPR");
        check(&["-i", "lo"], "run -i lo");
        check(&["-nn", "-i", "eth0", "port", "80"], "run -i eth0 --trigger 'port 80' --out DIR");
        check(
            &["-nni", "eth0", "-s0", "-w", "a.pcap", "(tcp or udp) and port 80"],
            "run -i eth0 -s 0 -w a.pcap --trigger '(tcp or udp) and port 80'",
        );
        check(&["--interface", "eth0"], "run -i eth0");
        check(&["--interface=eth0", "--ring=8GiB", "--mlock", "--number"], "run -i eth0 --ring 8GiB --mlock");
        check(&["-v", "run", "-i", "lo"], "run -v -i lo");
        check(&["capture", "-i", "lo", "--dump-past", "5"], "run -i lo --dump-past 5");
        check(&["capture", "eth0"], "run -i eth0");
        check(&["capture", "eth0", "udp"], "run -i eth0 --trigger udp --out DIR");
        check(&["sniff", "udp"], "run -i IFACE --trigger udp --out DIR");
        check(&["record"], "run -i IFACE");
        check(&["read", "x.pcap"], "run -r x.pcap");
        check(&["read", "x.pcap", "y.pcap"], "run -r FILE");
        check(&["list", "interfaces"], "devices");
        check(&["interfaces", "--json"], "devices --json");
        check(&["check", "x.toml"], "config check x.toml");
        check(&["check"], "config check FILE");
        check(&["show", "x.toml"], "config show --config x.toml");
        check(&["show", "--ring", "1GiB"], "config show --ring 1GiB");
        check(&["config", "x.toml"], "config check x.toml");
        check(&["config", "x.toml"], "config show --config x.toml");
        check(&["explain", "udp", "port", "53"], "filter udp port 53");
        check(&["compile", "-d", "udp"], "filter EXPR");
        check(&["diagnose"], "doctor");
        check(&["-D"], "devices");
        // Where no line does it, only the first flag in the way is answered.
        let answered = |typed: &[&str], flag: &str| {
            let answer = format!("{flag}: {}", instead_of(flag).unwrap());
            assert_eq!(said(typed), answer, "{typed:?}");
        };
        answered(&["-c", "5"], "-c");
        answered(&["-nnc5", "-i", "eth0"], "-c");
        answered(&["-v", "run", "-c", "5"], "-c");
        answered(&["-i", "eth0", "-w", "a.pcap", "-C", "10", "-G", "5"], "-C");
        answered(&["capture", "--count", "5"], "--count");
        answered(&["udp", "port", "53", "-X"], "-X");
        for typed in [&["frobnicate"][..], &["--frobnicate"], &["tcp.port == 80"], &["-i"]] {
            assert_eq!(said(typed), "", "{typed:?}");
        }
        for (flag, instead) in FLAGS {
            assert_eq!(NEEDLESS.contains(&flag), instead.contains("omit it"), "{flag}");
        }
    }

    #[test]
    fn no_flag_of_run_is_said_to_be_none() {
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").unwrap();
        for (flag, _) in LONG {
            assert!(
                run.get_arguments().all(|arg| arg.get_long().is_none_or(|long| format!("--{long}") != flag)),
                "{flag}"
            );
        }
        for (command, ..) in COMMANDS {
            assert!(cli.find_subcommand(command).is_none(), "{command}");
        }
        for (flag, _) in FLAGS {
            assert!(
                run.get_arguments()
                    .all(|arg| arg.get_short().map(|short| format!("-{short}")).as_deref() != Some(flag)),
                "{flag}"
            );
        }
    }
}
