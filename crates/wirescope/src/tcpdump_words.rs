//! What people type who know tcpdump, tshark or dumpcap: which flag or command does it here, or that nothing does.

/// Flags that `run` doesn't have, and what to write instead.
const FLAGS: [(&str, &str); 29] = [
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
];

/// What helps who typed `flag`, as `-c`, which `run` doesn't have.
pub fn instead_of(flag: &str) -> Option<&'static str> {
    let short = flag.get(..2).unwrap_or(flag);
    FLAGS.iter().find(|(known, _)| *known == short && !flag.starts_with("--")).map(|(_, instead)| *instead)
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
        for flag in ["-c", "-C", "-G", "-n", "-A", "-nn", "-c5"] {
            assert!(instead_of(flag).is_some(), "{flag}");
        }
        assert!(instead_of("--count").is_none() && instead_of("-O").is_none());
    }

    #[test]
    fn no_flag_of_run_is_said_to_be_none() {
        use clap::CommandFactory;
        let mut cli = crate::args::Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").unwrap();
        for (flag, _) in FLAGS {
            assert!(
                run.get_arguments().all(|arg| arg.get_short().map(|short| format!("-{short}")).as_deref() != Some(flag)),
                "{flag}"
            );
        }
    }
}
