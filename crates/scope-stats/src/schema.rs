//! What a database holds: its tables, indexes and views, and by what it is recognised as ours.
//!
//! ```text
//! intervals   all packets of an interface and VLAN in one interval of capture time
//!   traffic   what a local address sent and received in it, by protocol, port and role
//! flows       a record of a flow: its end lies in this file
//! losses      packets that are known to be lost
//! runs        what wrote the rows, and how it went
//! ----------- views, made of these
//! ipv4_traffic, totals, protos      what scripts of PQTrafficCollector ask for
//! ```
//! The names are a contract: people's queries have them. A column may be added, with a new [`VERSION`]; none
//! changes its meaning. The comments of [`SCHEMA`] stand in the database itself: `.schema` of the `sqlite3`
//! shell shows them.
//!
//! In each interval, interface and VLAN `sum(in_packets)` and `sum(out_packets)` of `traffic` are
//! `ip_packets` of `intervals`, and `tcp_packets` to `other_packets` add up to it. Numbers have 63 bits.

/// In the head of each database (`PRAGMA application_id`): "WScp".
pub const APPLICATION_ID: i32 = 0x5753_6370;

/// Version of the tables (`PRAGMA user_version`). A database of a newer one is neither written nor read.
pub const VERSION: i32 = 1;

/// The tables, in the order of their importance. Every one has a column of time, in ns since the epoch.
pub const TABLES: [&str; 5] = ["intervals", "traffic", "flows", "losses", "runs"];

/// Makes everything, in an empty database.
pub const SCHEMA: &str = "\
CREATE TABLE intervals (
    -- All packets of one interface and VLAN in one interval of their own capture time.
    ts_ns         INTEGER NOT NULL, -- its begin, ns since the epoch: a multiple of length_ns
    length_ns     INTEGER NOT NULL, -- the same in all rows of a database
    interface     TEXT    NOT NULL, -- by name
    vlan          INTEGER NOT NULL, -- of the outermost tag; 0: untagged
    packets       INTEGER NOT NULL, -- received, less what a prefilter refused; with what the ring dropped
    bytes         INTEGER NOT NULL, -- their original frame lengths
    ip_packets    INTEGER NOT NULL, -- those of IP; tcp_packets to other_packets add up to it
    ip_bytes      INTEGER NOT NULL, -- their lengths by the IP headers
    tcp_packets   INTEGER NOT NULL, -- of ip_packets: TCP
    tcp_bytes     INTEGER NOT NULL, -- frame lengths
    udp_packets   INTEGER NOT NULL, -- of ip_packets: UDP
    udp_bytes     INTEGER NOT NULL, -- frame lengths
    icmp_packets  INTEGER NOT NULL, -- ICMP and ICMPv6
    icmp_bytes    INTEGER NOT NULL, -- frame lengths
    other_packets INTEGER NOT NULL, -- of ip_packets: all others
    other_bytes   INTEGER NOT NULL, -- frame lengths
    sent_packets  INTEGER NOT NULL, -- of packets: those that left by the interface
    sent_bytes    INTEGER NOT NULL, -- frame lengths
    new_flows     INTEGER NOT NULL, -- flows whose first packet lies here
    lost_max      INTEGER NOT NULL, -- packets lost in spans that touch it, at most; 0: trust its sums
    PRIMARY KEY (ts_ns, interface, vlan)
) WITHOUT ROWID;

CREATE INDEX intervals_by_second ON intervals (ts_ns / 1000000000); -- the time of the views

CREATE TABLE traffic (
    -- What one address sent and received in one interval.
    ts_ns         INTEGER NOT NULL, -- with interface and vlan: the row of intervals
    interface     TEXT    NOT NULL, -- by name
    vlan          INTEGER NOT NULL, -- of the outermost tag; 0: untagged
    ip            TEXT    NOT NULL, -- a local address; '': all others; '*': folded, as there was no place
    proto         TEXT    NOT NULL, -- 'tcp', 'udp', 'icmp', 'other'
    port          INTEGER NOT NULL, -- the smaller of both; 0: from 32768 on, or there is none
    role          TEXT    NOT NULL, -- whose the port is: the address' own ('server'), the peer's ('client')
    in_packets    INTEGER NOT NULL, -- received by the address
    in_bytes      INTEGER NOT NULL, -- original frame lengths
    in_ip_bytes   INTEGER NOT NULL, -- lengths by the IP headers
    out_packets   INTEGER NOT NULL, -- sent by it
    out_bytes     INTEGER NOT NULL, -- frame lengths
    out_ip_bytes  INTEGER NOT NULL, -- lengths by the IP headers
    PRIMARY KEY (ts_ns, interface, vlan, ip, proto, port, role)
) WITHOUT ROWID;

CREATE TABLE flows (
    -- A record of one flow. Its source (_fwd) sent the SYN, else the first packet.
    start_ns         INTEGER NOT NULL, -- of the record's first packet, ns since the epoch
    end_ns           INTEGER NOT NULL, -- of its last one
    interface        TEXT    NOT NULL, -- by name
    interface_rev    TEXT,             -- the one that the other direction came through, if not the same
    vlan             INTEGER NOT NULL, -- of the outermost tag; 0: untagged
    proto            INTEGER NOT NULL, -- number of the IP protocol
    src_ip           TEXT    NOT NULL, -- '' in a record that stands for several (reason 'unwritten')
    src_port         INTEGER NOT NULL, -- of ICMP: type and code, as a community id has them
    dst_ip           TEXT    NOT NULL, -- likewise
    dst_port         INTEGER NOT NULL, -- likewise
    packets_fwd      INTEGER NOT NULL, -- from source to destination
    packets_rev      INTEGER NOT NULL, -- from destination to source
    bytes_fwd        INTEGER NOT NULL, -- original frame lengths
    bytes_rev        INTEGER NOT NULL, -- of the other direction
    ip_bytes_fwd     INTEGER NOT NULL, -- lengths by the IP headers
    ip_bytes_rev     INTEGER NOT NULL, -- of the other direction
    tcp_flags_fwd    INTEGER NOT NULL, -- all that were seen: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ...
    tcp_flags_rev    INTEGER NOT NULL, -- of the other direction
    len_min_fwd      INTEGER NOT NULL, -- the shortest frame; 0: there is none
    len_min_rev      INTEGER NOT NULL, -- of the other direction
    len_max_fwd      INTEGER NOT NULL, -- the longest
    len_max_rev      INTEGER NOT NULL, -- of the other direction
    zero_windows_fwd INTEGER NOT NULL, -- TCP segments that announce no room
    zero_windows_rev INTEGER NOT NULL, -- of the other direction
    resent_fwd       INTEGER NOT NULL, -- TCP segments that end at or below the highest number seen
    resent_rev       INTEGER NOT NULL, -- of the other direction
    rtt_server_ns    INTEGER,          -- SYN to SYN+ACK; NULL: not seen, or one was resent
    rtt_client_ns    INTEGER,          -- SYN+ACK to ACK
    state            TEXT,             -- of TCP: 'opening', 'open', 'closing', 'closed', 'reset', 'midstream'
    community_id     TEXT    NOT NULL, -- version 1, seed 0; '' in a record that stands for several
    reason           TEXT    NOT NULL  -- 'idle', 'active', 'end', 'evicted', 'stop', 'unwritten'
);

CREATE INDEX flows_by_start ON flows (start_ns);
CREATE INDEX flows_by_end ON flows (end_ns);
CREATE INDEX flows_by_src ON flows (src_ip, start_ns);
CREATE INDEX flows_by_dst ON flows (dst_ip, start_ns);

CREATE TABLE losses (
    -- Packets that are known to be lost.
    from_ns       INTEGER NOT NULL, -- a span of capture time, ns since the epoch
    to_ns         INTEGER NOT NULL, -- its end
    interface     TEXT,             -- NULL: of the whole run
    reason        TEXT    NOT NULL, -- the word for why
    packets       INTEGER NOT NULL  -- how many
);

CREATE INDEX losses_by_time ON losses (from_ns);

CREATE TABLE runs (
    -- What wrote the rows of this file.
    id            INTEGER NOT NULL PRIMARY KEY, -- in the order of their begin
    run           TEXT    NOT NULL, -- its identifier, as logs and dumps have it
    host          TEXT    NOT NULL, -- the machine's name
    version       TEXT    NOT NULL, -- of wirescope
    begin_ns      INTEGER NOT NULL, -- of the run, by the wall clock
    end_ns        INTEGER,          -- when it wrote here last; NULL: it still does, or was killed
    sources       TEXT    NOT NULL, -- JSON: a list
    interval_ns   INTEGER NOT NULL, -- length of its intervals
    local         TEXT    NOT NULL, -- which addresses were local: as --local says it, or 'interface': its own
    counters      TEXT    NOT NULL  -- JSON: rows, folded, evicted, late, ... of the run, when it wrote last
);

CREATE VIEW ipv4_traffic AS
-- Traffic of local IPv4 addresses with the address as a number: 10.0.0.1 is 167772161.
SELECT ts, -- in seconds
       (CAST(ip AS INTEGER) << 24) + (CAST(rest1 AS INTEGER) << 16) + (CAST(rest2 AS INTEGER) << 8)
           + CAST(substr(rest2, instr(rest2, '.') + 1) AS INTEGER) AS ip,
       proto, port, role, in_packets, in_ip_bytes, out_packets, out_ip_bytes
FROM (
    SELECT *, substr(rest1, instr(rest1, '.') + 1) AS rest2
    FROM (
        -- The join finds rows by their second: each row of traffic has its row in intervals.
        SELECT i.ts_ns / 1000000000 AS ts, t.*, substr(t.ip, instr(t.ip, '.') + 1) AS rest1
        FROM intervals AS i CROSS JOIN traffic AS t
            ON t.ts_ns = i.ts_ns AND t.interface = i.interface AND t.vlan = i.vlan
        WHERE t.ip LIKE '%.%' AND t.ip NOT LIKE '%:%'
    )
);

CREATE VIEW totals AS
-- As PQTrafficCollector has it: bytes are lengths by the IP headers.
SELECT ts, ip,
       sum(CASE proto WHEN 'tcp' THEN in_ip_bytes ELSE 0 END) AS tcp_in_bytes,
       sum(CASE proto WHEN 'tcp' THEN out_ip_bytes ELSE 0 END) AS tcp_out_bytes,
       sum(CASE proto WHEN 'tcp' THEN in_packets ELSE 0 END) AS tcp_in_pkts,
       sum(CASE proto WHEN 'tcp' THEN out_packets ELSE 0 END) AS tcp_out_pkts,
       sum(CASE proto WHEN 'udp' THEN in_ip_bytes ELSE 0 END) AS udp_in_bytes,
       sum(CASE proto WHEN 'udp' THEN out_ip_bytes ELSE 0 END) AS udp_out_bytes,
       sum(CASE proto WHEN 'udp' THEN in_packets ELSE 0 END) AS udp_in_pkts,
       sum(CASE proto WHEN 'udp' THEN out_packets ELSE 0 END) AS udp_out_pkts,
       sum(CASE proto WHEN 'icmp' THEN in_ip_bytes ELSE 0 END) AS icmp_in_bytes,
       sum(CASE proto WHEN 'icmp' THEN out_ip_bytes ELSE 0 END) AS icmp_out_bytes,
       sum(CASE proto WHEN 'icmp' THEN in_packets ELSE 0 END) AS icmp_in_pkts,
       sum(CASE proto WHEN 'icmp' THEN out_packets ELSE 0 END) AS icmp_out_pkts,
       sum(CASE proto WHEN 'other' THEN in_ip_bytes ELSE 0 END) AS other_in_bytes,
       sum(CASE proto WHEN 'other' THEN out_ip_bytes ELSE 0 END) AS other_out_bytes,
       sum(CASE proto WHEN 'other' THEN in_packets ELSE 0 END) AS other_in_pkts,
       sum(CASE proto WHEN 'other' THEN out_packets ELSE 0 END) AS other_out_pkts
FROM ipv4_traffic GROUP BY ts, ip;

CREATE VIEW protos AS
-- As PQTrafficCollector has it: ptype 0 is TCP, 1 UDP; of clients port is 0.
SELECT ts, ip,
       CASE role WHEN 'server' THEN port ELSE 0 END AS port,
       CASE proto WHEN 'tcp' THEN 0 ELSE 1 END AS ptype,
       sum(in_ip_bytes) AS in_bytes,
       sum(out_ip_bytes) AS out_bytes,
       sum(in_packets) AS in_pkts,
       sum(out_packets) AS out_pkts
FROM ipv4_traffic WHERE proto IN ('tcp', 'udp')
GROUP BY ts, ip, CASE role WHEN 'server' THEN port ELSE 0 END, CASE proto WHEN 'tcp' THEN 0 ELSE 1 END;
";
