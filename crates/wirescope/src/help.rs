//! What help says around the table of flags: `--help` what a first user needs, `--help-all` and the manual
//! pages everything.
//!
//! Of `run`, and of `config show`, which has the same flags, `--help` shows [`FIRST_FLAGS`] alone. Other
//! commands have few flags: there both flags show all of them.

use clap::{Arg, ArgAction};

/// The flags of `run` that `--help` shows, besides those for help.
const FIRST_FLAGS: [&str; 13] = [
    "interface",
    "read",
    "source",
    "ring",
    "trigger",
    "dump",
    "before",
    "after",
    "out",
    "store",
    "write",
    "all",
    "config",
];

/// The flags for help that every command has. `run` shows the second one too, in a place of its own.
pub fn help_flags() -> [Arg; 2] {
    let short = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print help");
    let long =
        Arg::new("help_all").long("help-all").action(ArgAction::HelpLong).help("Print help on everything");
    [short.global(true), long.global(true).hide(true)]
}

/// The same for a command with many flags.
pub fn help_flags_of_many() -> [Arg; 2] {
    let [short, long] = help_flags();
    let heading = "Configuration and help";
    [
        short.global(false).help_heading(heading).help("Print this help: what a first user needs"),
        long.global(false)
            .help_heading(heading)
            .hide(false)
            .help("Print help on all flags, sources, templates and signals"),
    ]
}

/// Leaves a flag that a first user doesn't need to `--help-all`.
pub fn first_flags_first(arg: Arg) -> Arg {
    let first =
        FIRST_FLAGS.contains(&arg.get_id().as_str()) || matches!(arg.get_id().as_str(), "help" | "help_all");
    arg.hide_short_help(!first)
}

// Lines of at most 75 letters: in a manual page, five columns further to the right, they must stay whole in a
// terminal of 80.
pub const EXAMPLES: &str = "\
Examples:
  # record an interface; for each packet to UDP port 60000 keep what its
  # two hosts sent, from 30 s before to 10 s after
  sudo wirescope run -i eth0 --trigger 'udp port 60000' --out dumps

  # cut such windows out of a capture file
  wirescope run -r trace.pcapng --trigger 'udp port 60000' --out dumps

  # see a demonstration, without privileges
  wirescope demo

Each command has its own help, such as 'wirescope run --help', and manual
page, such as 'wirescope man run'.
";

pub const RUN_USAGE: &str = "\
wirescope run -i IFACE [--trigger EXPR]... --out DIR [OPTIONS]
       wirescope run -r FILE --trigger EXPR... --out DIR [OPTIONS]
       wirescope run -r FILE --trigger EXPR -w FILE [--all] [OPTIONS]";

pub const RUN_FIRST: &str = "\
Examples:
  # keep 30 s before and 10 s after each packet to UDP port 60000
  sudo wirescope run -i eth0 --trigger 'udp port 60000' --out dumps

  # cut every window out of a capture file, into one file
  wirescope run -r trace.pcapng --trigger icmp -w all.pcapng --all

  # no trigger: record, and dump the last minute when you notice a problem
  sudo wirescope run -i eth0 --ring 8GiB --before 60s --out dumps
  sudo pkill -USR1 -x wirescope

All flags, sources, templates and signals: wirescope run --help-all
";

pub const RUN_ALL: &str = "\
Forms of a source:
  afpacket:IFACE[,workers=2][,snaplen=128][,promisc=off]
        live capture; also block=1MiB, blocks=64, timeout=4ms (chosen from
        the link's speed), exclude-self=on
  pcap:IFACE[,snaplen=128][,promisc=off][,timeout=4ms][,buffer=64MiB]
        live capture through libpcap, where afpacket is not available
  file:PATH[,pace=1][,workers=2][,snaplen=128]
        pcap or pcapng, also compressed with gzip, zstd or lz4; file:- is
        standard input; HPCAP's raw records: format=hpcap,link=ethernet
  synth:rate=1M,size=imix,flows=1000,vlan=10%,seed=1,time=30s,trigger-at=5s
        generated traffic; also ipv6=, packets=, pace=max, start=, workers=

  Each also has:
    share=30%       reserve this part of the ring for this source: no other
                    source evicts its packets; all shares: at most 90%
    prefilter=EXPR  record only packets that match
    cpus=2-3        pin its workers to these CPUs
    numa=0          run its workers on the CPUs of this node

  A comma inside a PATH or a value is written '\\,'. Live traffic and files
  don't mix in one run.

Templates:
  $srcIP $dstIP $srcPort $dstPort $proto $srcMAC $dstMAC $vlan $flow come
  from the packet that fired; {srcIP} means the same and needs no quotes.
  An empty template keeps everything in the window.

Signals:
  SIGINT, SIGTERM  stop: close the dumps with what has arrived, print the
                   summary; a second one, 200 ms later, ends at once
  SIGUSR1          dump the last --before of everything, at once; triggers
                   stay as they are
  SIGHUP           continue in a new log if wirescope.jsonl was moved;
                   with --config: read the file again; triggers, windows
                   and limits change between two packets; other settings
                   wait for the next start, and the run names them

Exit codes:
  0  done
  1  something promised was not done, for example, a dump is not complete
  2  refused before anything began

Examples:
  # keep 30 s before and 10 s after each packet to UDP port 60000
  sudo wirescope run -i eth0 --trigger 'udp port 60000' --out dumps

  # two named triggers, each with its template; a dump per host and minute
  sudo wirescope run -i eth0 --ring 8GiB --out dumps \\
      --holdoff 60s --holdoff-key '$srcIP' \\
      --trigger 'resets=tcp[tcpflags] & tcp-rst != 0' --dump '$flow' \\
      --trigger 'dns=udp port 53' --dump 'host $dstIP'

  # a capture file, as fast as it can be read; the summary for a program
  wirescope run -r trace.pcapng --trigger icmp --dump 'host $srcIP' \\
      --before 2 --after 1 --summary json --out dumps

  # one dump, straight into another program
  wirescope run -r trace.pcapng --trigger icmp -w - | tshark -r -

  # every window of a capture file in one file
  wirescope run -r trace.pcapng --trigger icmp -w all.pcapng --all

  # no trigger: record for 5 s and keep the whole ring
  wirescope run --source synth:rate=10k,time=5s --ring 128MiB \\
      --out dumps --ring-out ring.pcapng
";

pub const CONFIG_EXAMPLES: &str = "\
A configuration file is TOML. Its keys are the long names of run's flags. Flags
override the file, the settings of a [[trigger]] included; --single=false turns
a switch off. On SIGHUP a run reads its file again.

Examples:
  # all settings with their defaults: the beginning of a file
  wirescope config show > wirescope.toml

  # every fault of a file, with its line
  wirescope config check wirescope.toml

  # what a run with this file and these flags would mean
  wirescope config show --config wirescope.toml --ring 8GiB
";

pub const SHOW_USAGE: &str = "wirescope config show [--config FILE] [OPTIONS of run]";

pub const SHOW_FIRST: &str = "\
Examples:
  # all settings with their defaults: the beginning of a file
  wirescope config show > wirescope.toml

  # what a run with this file and these flags would mean
  wirescope config show --config wirescope.toml --ring 8GiB

All flags: wirescope config show --help-all
";

pub const SHOW_ALL: &str = "\
The flags are those of 'wirescope run'; its help has the forms of a source, the
templates and the signals.

Examples:
  # all settings with their defaults: the beginning of a file
  wirescope config show > wirescope.toml

  # what a run with this file and these flags would mean
  wirescope config show --config wirescope.toml --ring 8GiB
";

pub const DEMO_EXAMPLES: &str = "\
Examples:
  # generated traffic, no privileges needed
  wirescope demo

  # real packets between two network namespaces that it makes and removes
  sudo wirescope demo --live
";

pub const FILTER_EXAMPLES: &str = "\
Examples:
  # what a filter means, its program, and what it costs
  wirescope filter 'host 10.0.0.1 or tcp port 80 and not vlan'

  # how many packets of a file it matches
  wirescope filter -r trace.pcapng 'udp port 53'
";

pub const DOCTOR_EXAMPLES: &str = "\
Exit codes:
  0  nothing is lost
  1  losses were found
  2  it can't look, with the reason

Examples:
  # the run that writes its dumps here, running, ended or dead
  wirescope doctor --out dumps

  # the run of this process
  sudo wirescope doctor --pid $(pgrep -x wirescope)
";

pub const QUERY_EXAMPLES: &str = "\
Exit codes:
  0  all that the stores and files have of it was given
  1  something of them could not be read, or the answer not be written
  2  refused before anything was read

Examples:
  # what a host said around a time, on the screen
  wirescope query host 10.0.0.1 --store /srv/ws --at 14:03 --within 30s

  # the same for another program
  wirescope query host 10.0.0.1 --store /srv/ws --from 14:00 | tshark -r -

  # every TCP reset of today with the second before it, in one file
  wirescope query --store /srv/ws --from 00:00 --before 1s --after 0 \\
    --around 'tcp[tcpflags] & tcp-rst != 0' -w resets.pcapng

  # who sent and got most, and when
  wirescope query --store /srv/ws --from -1h --top host
  wirescope query --store /srv/ws --from -1h --timeline

  # the same of capture files
  wirescope query udp port 53 -r a.pcap -r b.pcapng.gz --count
";

pub const EXPORT_EXAMPLES: &str = "\
Exit codes:
  0  all packets that the stores have of the span were written
  1  something could not be read or written, or does not fit the form
  2  refused before anything was written

Examples:
  # ten minutes for another program
  wirescope export --store /srv/ws --from 14:00 --to 14:10 -w ten.pcapng

  # the last five minutes, straight into another program
  wirescope export --store /srv/ws --from -5m -w - | tshark -r -

  # everything, in files of 1 GiB
  wirescope export --store /srv/ws -w all.pcapng --split 1GiB
";

pub const IMPORT_EXAMPLES: &str = "\
Exit codes:
  0  all packets of the files are in the store
  1  something is not: a file is damaged or truncated, or the disk failed
  2  refused before anything was read: a file was imported before, perhaps

Examples:
  # captures of other programs, beside what is recorded
  wirescope import --store /srv/ws old/*.pcapng.gz

  # from another machine
  ssh host tcpdump -w - -c 10000 | wirescope import --store /srv/ws -

  # raw records of HPCAP
  wirescope import --store /srv/ws \\
      --source file:0.raw,format=hpcap,link=ethernet
";

pub const STORE_EXAMPLES: &str = "\
Examples:
  # runs, files, losses and holds of a store
  wirescope store list --store /srv/ws
";

pub const STATS_EXAMPLES: &str = "\
Exit codes:
  0  done
  1  something could not be read or written, or the answer was cut
  2  refused before anything was read

Examples:
  # who sent and got most in the last three minutes
  wirescope stats top --db stats.sqlite

  # the ports with the most flows of the last hour
  wirescope stats top --db /srv/stats/ --by flows --dim port --last 1h

  # the files of a folder, and a copy of one
  wirescope stats files --db /srv/stats/
  wirescope stats copy 2026-11-27 --db /srv/stats/ --out copy.sqlite

  # all tables for DuckDB or pandas
  wirescope stats export --db /srv/stats/ --out lake
";

pub const STATS_SQL_EXAMPLES: &str = "\
An answer takes at most 300 s, 1 GiB of SQLite's memory, 1,000,000 rows and
256 MiB. What ends it there, or by Ctrl-C, is said; the rows up to there are
printed.

Exit codes:
  0    the whole answer was given
  1    it was cut: it took too long, or is too large
  2    refused: it is no SELECT, or the database can not be asked
  130  Ctrl-C ended it

Examples:
  wirescope stats sql --db stats.sqlite \\
      'SELECT ts_ns, sum(bytes) FROM intervals GROUP BY ts_ns'

  # for a program, over all files of a folder
  wirescope stats sql --db /srv/stats/ --json \\
      \"SELECT * FROM flows WHERE src_ip = '10.0.0.1' LIMIT 100\"

  # which columns there are
  wirescope stats sql --db stats.sqlite \\
      \"SELECT name, type FROM pragma_table_info('flows')\"
";

pub const STATS_EXPORT_EXAMPLES: &str = "\
Rows go into DIR/TABLE/date=D/hour=H/, by the hour of their time in UTC.
Each file has all rows that one file of the database has of an hour, and
takes the place of what was exported before: nothing is there twice.

Exit codes:
  0  all rows of the span were written
  1  something could not be read or written: do it again
  2  refused before anything was written

Examples:
  # everything, and later the last hours once more
  wirescope stats export --db /srv/stats/ --out lake
  wirescope stats export --db /srv/stats/ --out lake --from -2h

  # read by DuckDB
  duckdb -c \"SELECT sum(bytes) FROM 'lake/intervals/*/*/*.parquet'\"
";

pub const FLOWS_EXAMPLES: &str = "\
A flow matches as its packets would, in either direction. Filters on
anything else than hosts, nets, ports, protocols and one VLAN are refused.

Exit codes:
  0  all that there is was written; --follow was ended
  1  something could not be read or written
  2  refused before anything was read

Examples:
  # what a host did around a time
  wirescope flows host 10.0.0.1 --db stats.sqlite --from 14:00 --to 14:10

  # as they come, for a program
  wirescope flows tcp port 443 --db /srv/stats/ --follow --format jsonl

  # their packets, by the filter that each record has
  wirescope query \"$(wirescope flows host 10.0.0.1 --db stats.sqlite \\
      --format jsonl | head -1 | jq -r .filter)\" --store /srv/ws
";

pub const ASK_EXAMPLES: &str = "\
A running instance answers at its control socket: wirescope.sock in the folder
of its --out, unless --control says otherwise.

Examples:
  # how the only instance of this user stands
  wirescope status

  # of one of several, for a program
  wirescope status --control /srv/dumps/wirescope.sock --json

  # of one on another machine, through its door to the network
  wirescope status --url https://scope:8443 --token-file token
";

pub const GROUPS_EXAMPLES: &str = "\
A running instance answers at its control socket: wirescope.sock in the folder
of its --out, unless --control says otherwise.

Examples:
  # who reads what the only instance of this user shares
  wirescope groups

  # of one of several, for a program
  wirescope groups --control /srv/dumps/wirescope.sock --json
";

pub const TAP_EXAMPLES: &str = "\
The run needs --attach SOCKET, and --attach-ring with the user who taps, or a
--group. Who reads too slowly misses packets, and a live run never waits.

Exit codes:
  0  all packets that came and match were written
  1  some were missed, or could not be written
  2  refused before anything was written

Examples:
  # live, into other programs
  wirescope tap ring --attach /run/wirescope/attach | tcpdump -nr -
  wirescope tap ring -f 'udp port 53' | tshark -i -

  # a share of the flows of group dns, twice that of others
  wirescope tap dns --weight 2 | tcpdump -nr -

  # the last minute and what comes, 1000 packets at most, in a file
  wirescope tap ring --past 1m -c 1000 -w some.pcapng
";

pub const WITH_EXAMPLES: &str = "\
The programs capture from the device wirescope, with their own filters; all
other devices and files are what they are. They have to link libpcap as a
library, and may not be setuid, or confined by AppArmor: for those there is
wirescope tap.

Exit codes:
  0  all copies ended with 0
  2  refused before anything was started
  else that of the first copy that ended with another; 128 and the number
     of the signal that ended it

Examples:
  # what the group dns is given, into a file of tcpdump's
  wirescope with dns -- tcpdump -i wirescope -w dns.pcap

  # all that the instance records, with the last minute before
  wirescope with ring --past 1m -- tcpdump -i wirescope -n 'tcp port 80'

  # four copies share the flows of the group ids
  wirescope with 'ids*4' -- suricata --pcap=wirescope -l out%m
";

pub const SEND_EXAMPLES: &str = "\
Packets go out as they stand in the file, in its order. Sending needs the right
that capturing needs, and gives it up once the sockets are open.

Exit codes:
  0  all packets were sent
  1  some were refused or could not be read, or it was stopped
  2  refused before anything was sent

Examples:
  # at the recorded pace, then twice as fast, then as fast as it goes
  wirescope send --source file:trace.pcapng,pace=1 --to veth0
  wirescope send --source file:trace.pcapng,pace=2 --to veth0
  wirescope send --source file:trace.pcapng --to veth0 --loops 100

  # generated traffic for 10 s, 50,000 packets/s
  wirescope send --source synth:rate=50k,size=64,time=10s --to veth0

  # 1000 packets/s by two threads
  wirescope send --source file:trace.pcapng --to veth0 --rate 1k --queues 2
";

/// The line of `wirescope serve`.
pub const SERVE_USAGE: &str = "wirescope serve --control <[NAME=]PATH> --listen <ADDR:PORT>\n                       --tokens <FILE> [OPTIONS]";
pub const SERVE_EXAMPLES: &str = "\
Exit codes:
  0  told to end, by SIGTERM or SIGINT
  1  it ended before that
  2  refused: nothing was listened at

Examples:
  # this machine's own programs, without TLS
  wirescope serve --control /srv/dumps/wirescope.sock \\
      --listen 127.0.0.1:8080 --tokens tokens

  # others, two instances
  wirescope serve --control lan=/run/wirescope/lan.sock \\
      --control dmz=/run/wirescope/dmz.sock \\
      --listen 0.0.0.0:8443 --host scope.example --tokens tokens \\
      --tls-cert cert.pem --tls-key key.pem
";

pub const TOKEN_EXAMPLES: &str = "\
Examples:
  # a dashboard that sees counters, for a year
  wirescope token add --role viewer --name grafana --expires 365d \\
      --tokens /etc/wirescope/tokens

  # a team that sees the packets of its own network only
  wirescope token add --role analyst --name shop \\
      --filter 'net 10.7.0.0/16' --tokens /etc/wirescope/tokens

  # whoever has this certificate, at a door with --tls-client-ca
  wirescope token add --role viewer --name kiosk \\
      --certificate kiosk.pem --tokens /etc/wirescope/tokens

  wirescope token list --tokens /etc/wirescope/tokens
  wirescope token revoke shop --tokens /etc/wirescope/tokens
";

pub const SCRIPT_EXAMPLES: &str = "\
Examples:
  # scripts to begin with
  wirescope script examples scripts

  # whether they load, and fail on no kind of packet
  wirescope script check scripts/*.lua

  # what one would have fired, and its time per packet
  wirescope script run scripts/payload.lua -r trace.pcapng
";

pub const SCRIPT_CHECK_EXAMPLES: &str = "\
Exit codes:
  0  each script loads, and fails on no packet
  1  one fails on a packet, or doesn't come back
  2  one can't be read or loaded

Examples:
  wirescope script check scripts/*.lua

  # the same for a program
  wirescope script check --json scripts/*.lua
";

pub const SCRIPT_RUN_EXAMPLES: &str = "\
Exit codes:
  0  the script ran over the whole capture, without an error
  1  it failed, was disabled or didn't come back, or the capture is damaged
  2  refused: the script can't be loaded, or the capture not be read

Examples:
  # what a trigger script would have fired
  wirescope script run payload.lua -r trace.pcapng

  # how many packets a dump script keeps if the seventh packet fires
  wirescope script run host-dump.lua --dump --fire 7 -r trace.pcapng
";

pub const FIRE_EXAMPLES: &str = "\
Exit code 1: the dump is there and lacks something.

Examples:
  # the last minute of one host, straight into tshark
  wirescope fire --filter 'host 10.0.0.1' --before 1m -w - | tshark -r -

  # what the trigger called scan would dump now
  wirescope fire scan --wait
";

pub const DUMPS_EXAMPLES: &str = "\
Examples:
  wirescope dumps list
  wirescope dumps get 7 -w incident.pcapng
  wirescope dumps end 8
";

pub const HOLD_EXAMPLES: &str = "\
A store deletes its oldest files where its bounds ask for that, but none that
overlaps a held span. Where holds leave no room, storing stops with an alarm.

Examples:
  # keep the hour of an incident, and see what is held
  wirescope hold add --store /srv/ws --from '2026-11-20 14:00' \\
      --to '2026-11-20 15:00' --note 'incident 4711'
  wirescope hold list --store /srv/ws

  # let it go again
  wirescope hold remove 1 --store /srv/ws
";

pub const HOLD_ADD_EXAMPLES: &str = "\
Times:
  2026-11-20T20:31:05.123Z   with a zone: Z or an offset such as +01:00
  '2026-11-20 20:31'         without one: local time; the command prints
                             which zone it took
  20:31  20:31:05  20:31Z    the latest such time that is past
  now  -15m                  now, and a duration before now
  @1795206665.5              seconds since 1970

Examples:
  # the last quarter of an hour
  wirescope hold add --store /srv/ws --from -15m --to now --note 'slow DNS'
";

pub const VERIFY_EXAMPLES: &str = "\
Exit codes:
  0  whole, as far as that can be known
  1  packets were lost, or bytes are damaged
  2  something can't be looked at, with the reason

Examples:
  # whether dumps are whole, and what they lack
  wirescope verify dumps/*.pcapng

  # a whole store, and that its chain still has the head noted earlier
  wirescope verify /srv/store --expect $(cat head-of-monday)

  # who ordered what, and that the newest line noted in the log is there
  wirescope verify dumps/audit.jsonl --expect $(cat newest-audit-hash)

  # the same for a program
  wirescope verify --json dumps/*.pcapng
";

pub const MAN_EXAMPLES: &str = "\
Examples:
  # read the page of a command
  wirescope man run | man -l -

  # write the pages of all commands, for man to find them
  wirescope man --out ~/.local/share/man/man1
";
