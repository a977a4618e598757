//! What people type who know tcpdump, tshark or dumpcap: which flag or command does it here, or that nothing does.

use scope_engine::{printable, shell_word};
use scope_filter::is_filter_word;

/// Flags that `run` doesn't have, and what to write instead.
const FLAGS: [(&str, &str); 43] = [
    (
        "-c",
        "no flag ends a run after so many packets; --exit-after N ends it after N dumps, and 'timeout 60 wirescope run ...' after a time",
    ),
    ("-C", "files aren't cut by size: each dump is a file of its own; --dump-budget 50GiB bounds what all of them take"),
    ("-G", "files aren't cut by time: each dump is a file of its own, from --before to --after around its trigger"),
    ("-W", "files aren't counted; --dump-budget 50GiB --dump-rotate keeps the newest"),
    ("-b", "there is no ring of files: the ring is in memory, --ring 8GiB; --dump-budget 50GiB --dump-rotate bounds dumps"),
    ("-a", "--exit-after N ends a run after N dumps, and 'timeout 60 wirescope run ...' after a time"),
    ("-n", "names are never resolved; leave it out"),
    ("-N", "names are never resolved; leave it out"),
    ("-A", "packets aren't printed; read a dump with: tcpdump -A -r FILE, or: wirescope run ... -w - | tcpdump -A -r -"),
    ("-X", "packets aren't printed; read a dump with: tcpdump -X -r FILE, or: wirescope run ... -w - | tcpdump -X -r -"),
    ("-x", "packets aren't printed; read a dump with: tcpdump -x -r FILE, or: wirescope run ... -w - | tcpdump -x -r -"),
    ("-e", "packets aren't printed; read a dump with: tcpdump -e -r FILE, or: wirescope run ... -w - | tcpdump -e -r -"),
    ("-t", "packets aren't printed; read a dump with: tcpdump -t -r FILE; times are kept in nanoseconds"),
    ("-j", "time stamps are the kernel's, in nanoseconds; nothing chooses others"),
    ("-l", "nothing is printed for each packet, so nothing is buffered; leave it out"),
    ("-U", "a pipe (-w -) is handed each packet as it comes; leave it out"),
    ("-p", "promiscuous mode is switched off in the source: --source afpacket:eth0,promisc=off"),
    ("-B", "the kernel's buffer is part of the source: --source afpacket:eth0,block=1MiB,blocks=64, or pcap:eth0,buffer=64MiB"),
    ("-D", "interfaces are listed by: wirescope devices"),
    ("-L", "link types are listed by: wirescope devices"),
    ("-d", "a filter's program is shown by: wirescope filter EXPR"),
    ("-F", "settings come from a file by --config FILE; a filter stands behind --trigger, quoted"),
    ("-f", "a capture filter is --prefilter 'EXPR' (what else comes is never recorded); a trigger is --trigger 'EXPR'"),
    ("-Y", "a trigger is --trigger 'EXPR', in the language of tcpdump; 'wirescope filter EXPR' explains one"),
    ("-Z", "the user to become is --user NAME"),
    ("-K", "checksums aren't checked; leave it out"),
    ("-S", "packets aren't printed; leave it out. So many bytes of each are kept by -s BYTES"),
    ("-T", "packets aren't printed; read a dump with: tshark -T json -r FILE"),
    ("-z", "a command after each dump is --exec 'CMD'"),
    ("-y", "an interface is captured with the link type that it has; nothing chooses another"),
    ("-Q", "both directions are recorded; a filter on addresses picks one: --prefilter 'src host ADDRESS', or dst"),
    ("-o", "the folder for dumps is --out DIR; a single dump goes into -w FILE"),
    ("-I", "a wireless card is put into monitor mode beside this: iw dev wlan0 set type monitor"),
    ("-J", "times are kept in nanoseconds; leave it out"),
    ("-O", "filters are compiled as fast as they can be; leave it out. 'wirescope filter EXPR' shows the program"),
    ("-R", "a trigger is --trigger 'EXPR', in the language of tcpdump; a capture file is read by -r FILE"),
    ("-P", "packets aren't printed, and what is recorded can be piped: -w - | tshark -r -"),
    ("-V", "packets aren't printed; read a dump with: tshark -V -r FILE"),
    ("-E", "nothing is decrypted; do so with a dump: tcpdump -E ... -r FILE"),
    ("-H", "comments aren't added; a dump says itself who fired and why"),
    ("-k", "a run captures at once; leave it out"),
    ("-M", "nothing is decrypted or checked; leave it out"),
    ("-#", "packets aren't printed; leave it out"),
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
/// Commands of others, and those that do it here.
const COMMANDS: [(&str, &str); 19] = [
    ("capture", "run"),
    ("record", "run"),
    ("live", "run"),
    ("start", "run"),
    ("sniff", "run"),
    ("listen", "run"),
    ("dump", "run"),
    ("read", "run"),
    ("trigger", "run"),
    ("list", "devices"),
    ("interfaces", "devices"),
    ("ifaces", "devices"),
    ("check", "config check"),
    ("show", "config show"),
    ("validate", "config check"),
    ("explain", "filter"),
    ("compile", "filter"),
    ("benchmark", "bench"),
    ("diagnose", "doctor"),
];
/// Words of single commands.
const OF_COMMANDS: [(&str, &str, &str); 6] = [
    ("filter", "-d", "the program is printed anyhow; leave it out"),
    ("filter", "-O", "the program that is evaluated is printed; leave it out"),
    ("filter", "-y", "a link type is chosen by --link-type NAME"),
    ("filter", "-i", "a filter is explained without an interface; leave it out, or count in a file: -r FILE"),
    ("filter", "-w", "nothing is written; a run records and dumps: wirescope run"),
    ("devices", "", "all interfaces are listed; leave it out"),
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
    let of_run = own.iter().find(|(known, _)| *known == short).map(|(flag, value)| format!("write {flag} {value}"));
    let of_others = || FLAGS.iter().find(|(known, _)| *known == short).map(|(_, instead)| instead.to_string());
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
    let line = |words: &[String]| words.iter().map(|word| format!(" {}", shell_word(word))).collect::<String>();
    let all = || line(&[&[word.to_string()], rest].concat());
    if matches!(word, "-D" | "--list-interfaces") {
        return Some(format!("{word}: interfaces are listed by: wirescope devices"));
    }
    if word.starts_with('-') {
        let is_known = instead_of(word).is_some() || matches!(word.get(..2), Some("-i" | "-r" | "-w" | "-s" | "-q" | "-v"));
        return is_known.then(|| format!("{word}: a command stands in front of it: wirescope run{}", all()));
    }
    if let Some((_, instead)) = COMMANDS.iter().find(|(known, _)| *known == word) {
        return Some(format!("there is no command '{word}'; that is: wirescope {instead}{}", line(rest)));
    }
    is_filter_word(word).then(|| {
        let filter = [&[word.to_string()], rest].concat().join(" ");
        format!(
            "'{}' begins with no command; with such a filter one records, or has it explained:\n  \
             wirescope run -i IFACE --trigger {1} --out DIR\n  wirescope filter {1}",
            printable(&filter),
            shell_word(&filter)
        )
    })
}

/// What helps who typed words that belong to no flag of `run`: a filter, as tcpdump takes it.
pub fn free_words(words: &str) -> String {
    let quoted = words.replace('\'', "'\\''");
    format!(
        "'{words}' belongs to no flag; a filter is a trigger, or a bound of what is recorded:\n  \
         --trigger '{quoted}'     dumps what was around each such packet\n  \
         --prefilter '{quoted}'   records only such packets"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_others_have_an_answer() {
        let long = ["--interface", "--count", "--duration", "--direction", "--snapshot-length", "--filter", "--list-interfaces"];
        for flag in ["-c", "-C", "-G", "-n", "-A", "-nn", "-c5", "-y", "-Q", "-o", "-O", "-V"].into_iter().chain(long) {
            assert!(instead_of(flag).is_some(), "{flag}");
        }
        assert_eq!(instead_of("--interface").as_deref(), Some("write -i IFACE"));
        assert!(instead_of("--frobnicate").is_none() && instead_of("-9").is_none());
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

    #[test]
    fn no_flag_of_run_is_said_to_be_none() {
        use clap::CommandFactory;
        let mut cli = crate::args::Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").unwrap();
        for (flag, _) in LONG {
            assert!(run.get_arguments().all(|arg| arg.get_long().is_none_or(|long| format!("--{long}") != flag)), "{flag}");
        }
        for (command, _) in COMMANDS {
            assert!(cli.find_subcommand(command).is_none(), "{command}");
        }
        for (flag, _) in FLAGS {
            assert!(
                run.get_arguments().all(|arg| arg.get_short().map(|short| format!("-{short}")).as_deref() != Some(flag)),
                "{flag}"
            );
        }
    }
}
