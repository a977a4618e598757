//! Scripts in all their forms: what they may return, see, keep, and what becomes of errors.

use scope_packet::LinkType;
use scope_script::*;
use std::net::IpAddr;

fn load(text: &str) -> Script {
    Script::load(text, &Options::named("t.lua")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(text: &str) -> String {
    Script::load(text, &Options::named("t.lua")).expect_err("it is wrong").to_string()
}

/// The value of a Lua expression of `pkt`, for each of the built-in packets.
fn values(expression: &str) -> Vec<(&'static str, String)> {
    let text = format!(
        "local packet, ffi = require 'packet', require 'ffi'
        return function(pkt) local v = {expression}\n return {{ text = type(v) .. ' ' .. tostring(v) }} end"
    );
    let mut script = load(&text);
    let packets = builtin_packets();
    let lent: Vec<Lent<'_>> = packets.iter().map(|packet| packet.lend(1_500_000_000)).collect();
    let hits = script.run(&lent).expect("it runs").to_vec();
    assert_eq!(hits.len(), packets.len(), "{expression}: {:?}", script.report());
    packets.iter().zip(hits).map(|(packet, hit)| (packet.name, hit.text.unwrap_or_default())).collect()
}

fn check(expression: &str, name: &str, expected: &str) {
    let values = values(expression);
    let (_, value) = values.iter().find(|(known, _)| *known == name).expect("there is such a packet");
    assert_eq!(value, expected, "{expression} of {name}");
}

#[test]
fn getters_give_what_stands_in_the_headers_and_nil_where_there_is_none() {
    let udp = "UDP over IPv4";
    for udp in [
        udp,
        "UDP over IPv4 with a VLAN tag",
        "UDP over IPv4 with two VLAN tags (QinQ)",
        "UDP over IPv4 with options",
        "UDP over IPv4 without Ethernet",
        "UDP over IPv4, cooked",
        "UDP over IPv4 of a loopback",
        "UDP over IPv4, first fragment",
        "UDP over IPv4 that claims more bytes than there are",
    ] {
        check("packet.getUdp4Packet(pkt).eth:getType()", udp, "number 2048");
        check("pkt.ip4:getProtocol()", udp, "number 17");
        check("pkt.ip4:getSrc()", udp, "number 167772161");
        check("pkt.ip4:getDstString()", udp, "string 10.0.0.2");
        check("pkt.udp:getDstPort()", udp, "number 60000");
        check("pkt.udp:getSrcPort()", udp, "number 1000");
        check("pkt.udp:getLength()", udp, "number 23");
        check("pkt.payload.uint8[0]", udp, "number 69");
        check("pkt.payload.uint8[14]", udp, "number 100");
        check("pkt.payload.uint8[15]", udp, "nil nil");
        check("pkt.payload.uint8[-1]", udp, "nil nil");
        check("#pkt.payload", udp, "number 15");
        check("#pkt.payload.uint32", udp, "number 3");
        check("ffi.string(pkt.payload.uint8, 7)", udp, "string EXAMPLE");
        check("ffi.string(pkt.payload.uint8, 1000)", udp, "string EXAMPLE payload");
        check("ffi.string(pkt.payload.uint8 + 8)", udp, "string payload");
        check("(pkt.payload.uint8 + 8)[6]", udp, "number 100");
        check("(pkt.payload.uint8 + 8)[7]", udp, "nil nil");
        check("(pkt.payload.uint8 + 800)[0]", udp, "nil nil");
        check("pkt.payload:be16(0)", udp, "number 17752");
        check("pkt.payload:be16(14)", udp, "nil nil");
        check("pkt.payload.uint16[0]", udp, "number 22597");
        check("pkt.payload:string(2)", udp, "string EX");
        check("packet.getIp4Packet(pkt).payload:be16(2)", udp, "number 60000");
        check("packet.getEthPacket(pkt).payload.uint8[9]", udp, "number 17");
        check("pkt.tcp:getDstPort()", udp, "nil nil");
        check("pkt.ip6:getSrc()", udp, "nil nil");
        check("pkt.icmp:getType()", udp, "nil nil");
        check("pkt:getTimestamp()", udp, "number 1.5");
        check("pkt:getTime()", udp, "cdata 1500000000LL");
    }
    check("pkt.eth:getSrc()", udp, "number 2199023255553");
    check("pkt.eth:getDstString()", udp, "string 02:00:00:00:00:02");
    check("pkt.eth:getSrc()", "UDP over IPv4, cooked", "nil nil");
    check("pkt.vlan:getId()", "UDP over IPv4 with a VLAN tag", "number 7");
    check("pkt:getVlan()", "UDP over IPv4", "nil nil");
    check("pkt.vlan:getId(1)", "UDP over IPv4 with two VLAN tags (QinQ)", "number 7");
    check("pkt.vlan:getId(2)", "UDP over IPv4 with two VLAN tags (QinQ)", "number 9");
    check("pkt.vlan:getId(3)", "UDP over IPv4 with two VLAN tags (QinQ)", "nil nil");
    check("pkt.ip4:getHeaderLength()", "UDP over IPv4 with options", "number 7");
    check("#pkt.payload", "UDP over IPv4 with padding behind it", "number 1");
    let last = "UDP over IPv4, last fragment";
    check("pkt.ip4:getFragment()", last, "number 16");
    check("pkt.udp:getDstPort()", last, "nil nil");
    check("pkt.payload:string()", last, "string EXAMPLE payload");
    for udp6 in ["UDP over IPv6", "UDP over IPv6 with a hop-by-hop header"] {
        check("pkt.eth:getType()", udp6, "number 34525");
        check("pkt.ip6:getProtocol()", udp6, "number 17");
        check("pkt.ip6:getSrcString()", udp6, "string 2001:db8::1");
        check("pkt.ip6:getDst() == require 'proto.ip6'.parseIP6Address('2001:db8::2')", udp6, "boolean true");
        check("pkt.udp:getDstPort()", udp6, "number 60000");
        check("pkt.ip4:getProtocol()", udp6, "nil nil");
        check("pkt.payload:string(7)", udp6, "string EXAMPLE");
    }
    check("pkt.udp:getDstPort()", "UDP over IPv6, last fragment", "nil nil");
    let syn = "TCP over IPv4, SYN with options";
    check("packet.getTcp4Packet(pkt).tcp:getSyn()", syn, "number 1");
    check("pkt.tcp:getAck()", syn, "number 0");
    check("pkt.tcp:getDstPort()", syn, "number 80");
    check("pkt.tcp:getSeqNumber()", syn, "number 1");
    check("pkt.tcp:getDataOffset()", syn, "number 6");
    check("#pkt.payload", syn, "number 0");
    check("pkt.payload:string()", "TCP over IPv4, data", "string EXAMPLE payload");
    check("pkt.tcp:getFlags()", "TCP over IPv6, ACK with a VLAN tag", "number 16");
    check("pkt.icmp:getType()", "ICMP echo", "number 8");
    check("pkt.icmp:getType()", "ICMPv6 echo", "number 128");
    check("pkt.arp:getOperation()", "ARP request", "number 1");
    check("pkt.arp:getProtoDstString()", "ARP request", "string 10.0.0.2");
    check("pkt.eth:getType()", "LLDP", "number 35020");
    check("pkt.dns:getName()", "DNS query", "string www.example.org");
    check("pkt.dns:isResponse()", "DNS query", "boolean false");
    check("pkt.dns:getAnswers()", "DNS query", "nil nil");
    for response in ["DNS response", "DNS response over IPv6"] {
        check("pkt.dns:getAddress()", response, "string 192.0.2.1");
        check("#(pkt.dns:getAnswers() or {})", response, "number 2");
        check("((pkt.dns:getAnswers() or {})[1] or {}).target", response, "string example.org");
        check("pkt.dns:getType()", response, "number 1");
    }
    check("pkt.dns:getAddress()", "DNS response, truncated", "nil nil");
    check("pkt.dns:getName()", "ARP request", "nil nil");
    check("pkt.udp:getDstPort()", "UDP over IPv4, truncated in its UDP header", "number 60000");
    check("pkt.udp:getLength()", "UDP over IPv4, truncated in its UDP header", "nil nil");
    check("pkt.payload.uint8[0]", "UDP over IPv4, truncated in its UDP header", "nil nil");
    check("pkt.payload:string()", "UDP over IPv4, truncated in its payload", "string EXAM");
    check("pkt.original - pkt.captured", "UDP over IPv4, truncated in its payload", "number 11");
    check("pkt.ip4:getProtocol()", "UDP over IPv4, truncated in its IP header", "nil nil");
    check("pkt.eth:getType()", "UDP over IPv4, truncated in its IP header", "number 2048");
    check("pkt.tcp:getFlags()", "TCP over IPv4, truncated in its TCP header", "nil nil");
    check("pkt.tcp:getDstPort()", "TCP over IPv4, truncated in its TCP header", "number 80");
    check("pkt.vlan:getId()", "VLAN tag, truncated", "number 7");
    check("pkt.eth:getType()", "VLAN tag, truncated", "nil nil");
    for empty in ["Ethernet, truncated", "empty", "a link type that isn't parsed"] {
        check("pkt.eth:getType()", empty, "nil nil");
        check("pkt.payload.uint8[0]", empty, "nil nil");
        check("packet.getIp4Packet(pkt).payload.uint8[0]", empty, "nil nil");
    }
    check("pkt.bytes.uint8[3]", "a link type that isn't parsed", "number 3");
    check("pkt.bytes.uint8[4]", "a link type that isn't parsed", "nil nil");
    check("ffi.string(pkt)", "empty", "string ");
}

#[test]
fn addresses_of_ipv6_are_written_as_rfc_5952_says() {
    for text in [
        "::",
        "::1",
        "1::",
        "2001:db8::1",
        "1:0:0:2::3",
        "1:2:3:4:5:6:7:8",
        "1:0:2:3:4:5:6:7",
        "::2:3:4:5:6:7",
        "fe80::1:0:0:1",
    ] {
        let IpAddr::V6(address) = text.parse().expect("an address") else { panic!() };
        let mut packet = builtin_packets().swap_remove(8);
        assert_eq!(packet.name, "UDP over IPv6");
        packet.data[22..38].copy_from_slice(&address.octets());
        let mut script = load(
            "return function(pkt) return { text = pkt.ip6:getSrcString(), hosts = { pkt.ip6:getSrc() } } end",
        );
        let hits = script.run(&[packet.lend(0)]).expect("it runs");
        assert_eq!(hits[0].text.as_deref(), Some(address.to_string().as_str()));
        assert_eq!(hits[0].hosts, [IpAddr::V6(address)]);
    }
}

#[test]
fn a_hit_may_have_a_text_a_window_hosts_and_flows() {
    let mut script = load(
        "return function(pkt)
            if not pkt.udp:getDstPort() then return end
            return { text = 'héllo', before = '2s', after = 0.5, hosts = { pkt.ip4:getSrc(), '2001:db8::9' }, flows = { pkt } }
        end",
    );
    let packets = builtin_packets();
    let hits = script.run(&[packets[0].lend(5)]).expect("it runs");
    assert_eq!(hits.len(), 1);
    let hit = &hits[0];
    assert_eq!((hit.packet, hit.time_ns, hit.text.as_deref()), (Some(0), 5, Some("héllo")));
    assert_eq!((hit.before_ns, hit.after_ns), (Some(2_000_000_000), Some(500_000_000)));
    let a: IpAddr = "10.0.0.1".parse().unwrap();
    assert_eq!(hit.hosts, [a, "2001:db8::9".parse().unwrap()]);
    assert_eq!(hit.flows, [Flow { protocol: 17, a: (a, 1000), b: ("10.0.0.2".parse().unwrap(), 60000) }]);
    let filter = hit.dump_filter().expect("it names some");
    assert!(
        scope_filter::Filter::compile(&filter, scope_filter::VlanRule::Transparent, &[LinkType::ETHERNET])
            .is_ok(),
        "{filter}"
    );
}

#[test]
fn a_wrong_answer_is_an_error_with_a_remedy_and_no_match() {
    let check = |answer: &str, words: &str| {
        let mut script = load(&format!("return function(pkt) return {answer} end"));
        let packets = builtin_packets();
        assert!(script.run(&[packets[0].lend(0)]).expect("it runs").is_empty());
        let report = script.report().expect("it failed");
        assert!(report.contains(words), "{answer}: {report}");
        assert_eq!(script.counts().errors, 1);
    };
    check("1", "the function returned a number (1); return true, false, nil");
    check("'x'", "returned a string (x)");
    check("print", "returned a function");
    check("pkt", "returned a cdata");
    check("{ txt = 'x' }", "a table with 'txt'; it may have text, before");
    check("{ text = 5 }", "text is a number");
    check("{ before = 'soon' }", "'soon' is not a number");
    check("{ before = -1 }", "a span of time is");
    check("{ after = '400d' }", "longer than a year");
    check("{ after = 0/0 }", "a span of time is");
    check("{ hosts = { 'nobody' } }", "'nobody' is no address");
    check("{ flows = { 'a' } }", "a string is no flow");
}

#[test]
fn the_packet_that_fails_is_left_out_and_the_loop_goes_on() {
    let mut script = load(
        "return function(pkt)
            if pkt.captured == 3 then error('three') end
            return pkt.captured % 2 == 1
        end",
    );
    let bytes = [0u8; 300];
    let packets: Vec<Lent<'_>> = (0..600usize)
        .map(|n| Lent {
            data: &bytes[..n % 10],
            original_len: 0,
            time_ns: 0,
            interface: 0,
            flags: 0,
            link_type: LinkType::ETHERNET,
        })
        .collect();
    let hits: Vec<usize> =
        script.run(&packets).expect("it runs").iter().filter_map(|hit| hit.packet).collect();
    let expected: Vec<usize> = (0..600).filter(|n| n % 2 == 1 && n % 10 != 3).collect();
    assert_eq!(hits, expected);
    let counts = script.counts();
    assert_eq!((counts.packets, counts.errors, counts.hits), (600, 60, expected.len() as u64));
    let report = script.report().expect("it failed");
    assert!(report.contains("t.lua:2: three") && report.contains("traceback"), "{report}");
    assert!(script.disabled().is_none());
}

#[test]
fn a_thousand_failures_in_a_row_disable_a_script() {
    let packets = builtin_packets();
    let run = |script: &mut Script, count: usize| {
        let lent = vec![packets[0].lend(0); count];
        script.run(&lent).map(<[Hit]>::len)
    };
    let mut script =
        load("local n = 0 return function() n = n + 1 if n ~= 1000 then error('no') end return true end");
    assert_eq!(run(&mut script, 700), Ok(0));
    assert_eq!(run(&mut script, 700), Ok(1), "one worked between");
    assert_eq!(run(&mut script, 598), Ok(0));
    assert!(script.disabled().is_none(), "{:?}", script.counts());
    assert_eq!(run(&mut script, 600), Ok(0));
    let Some(Disabled::Row { packets: 1000, report }) = script.disabled().cloned() else {
        panic!("{:?}", script.disabled())
    };
    assert!(report.contains("no"), "{report}");
    assert_eq!(script.counts().errors, 999 + 1000);
    assert!(matches!(run(&mut script, 1), Err(Ended::Disabled(_))));
}

#[test]
fn what_is_wrong_on_load_is_said_with_its_place() {
    let check = |text: &str, words: &str| {
        let report = refused(text);
        assert!(report.contains("'t.lua' can't be loaded") && report.contains(words), "{report}");
    };
    check("return function(pkt)", "t.lua:1: 'end' expected");
    check("\nerror('early')", "t.lua:2: early\nstack traceback");
    check("return 5", "returned a number; it has to end with: return function(pkt)");
    check("", "returned a nil");
    check("return {}", "neither 'packet' nor 'on_tick'");
    check("return { packt = print }", "a table with 'packt'; it may have packet");
    check("return { packet = 1 }", "'packet' is a number");
    check("require 'socket'", "there is no module 'socket'; there are bit");
    check("local x = nil; x.y = 1", "t.lua:1: attempt to index local 'x'");
    check("wirescope.library 'z'", "isn't at the script's top");
    check("return wirescope.flows{}", "'state' is a nil; write a C type");
    check("return wirescope.flows{state = 'struct {int a;}', packet = print, max = 0}", "max is 0");
    check("return wirescope.flows{state = 'struct {int a;}', packet = print, idel = 1}", "no setting 'idel'");
    check("return wirescope.flows{state = 'struct {', packet = print}", "state 'struct {' is no C type");
    check("\x1bLJ", "t.lua");
    let dump =
        |text: &str| Keepers::load(text, &Options::named("d.lua")).expect_err("it is wrong").to_string();
    assert!(dump("return {}").contains("it has to end with: return function(trigger_pkt)"));
}

#[test]
fn ticks_come_in_capture_time_between_the_packets() {
    let text = "local log = {}
        local function packet(pkt) log[#log + 1] = 'p' .. tonumber(pkt:getTime()) / 1e6 return pkt.captured == 0 and { text = table.concat(log, ' ') } end
        local function on_tick(now) log[#log + 1] = 't' .. now * 1000 if now == 0.5 then return { text = 'half' } end end
        return { packet = packet, on_tick = on_tick }";
    let mut script = load(text);
    let data = [0u8; 1];
    let at = |ms: i64, last: bool| Lent {
        data: if last { &[] } else { &data },
        original_len: 0,
        time_ns: ms * 1_000_000,
        interface: 0,
        flags: 0,
        link_type: LinkType::ETHERNET,
    };
    let hits = script
        .run(&[at(50, false), at(99, false), at(100, false), at(310, false), at(299, true)])
        .expect("it runs");
    assert_eq!(hits[0].text.as_deref(), Some("p50 p99 t100 p100 t200 t300 p310 p299"));
    let hits = script.clock(550_000_000).expect("it runs");
    assert_eq!((hits[0].text.as_deref(), hits[0].packet, hits[0].time_ns), (Some("half"), None, 500_000_000));
    assert!(script.clock(i64::MAX / 2).is_ok());
    assert_eq!(script.counts().ticks, 5 + 600, "a jump of time has an end");
    // Set back: it ticks from there.
    assert!(script.run(&[at(100, false), at(200, false)]).is_ok());
    assert_eq!(script.counts().ticks, 5 + 600 + 1);
}

#[test]
fn flows_are_kept_bounded_expire_when_idle_and_give_place() {
    let text = "
        local gone = {}
        local flows = wirescope.flows {
            state = 'struct { uint32_t packets; }', idle = '2s', max = 3,
            packet = function(key, state, pkt)
                state.packets = state.packets + 1
                return { text = tostring(key) .. ' #' .. state.packets }
            end,
            expired = function(key, state) return { text = 'gone ' .. tostring(key) .. ' #' .. state.packets, flows = { key } } end,
        }
        return flows";
    let mut script = load(text);
    let udp = |port: u16, back: bool| {
        let mut packet = builtin_packets().swap_remove(0).data;
        packet[34..36].copy_from_slice(&port.to_be_bytes());
        if back {
            let (from, to): (Vec<u8>, Vec<u8>) = (packet[26..30].into(), packet[30..34].into());
            packet[26..30].copy_from_slice(&to);
            packet[30..34].copy_from_slice(&from);
            packet.swap(34, 36);
            packet.swap(35, 37);
        }
        packet
    };
    let packets = [udp(1, false), udp(2, false), udp(1, true), udp(3, false), udp(4, false)];
    let lent = |at: usize, ms: i64| Lent {
        data: &packets[at],
        original_len: 0,
        time_ns: ms * 1_000_000,
        interface: 0,
        flags: 0,
        link_type: LinkType::ETHERNET,
    };
    let arp = builtin_packets().into_iter().find(|packet| packet.name == "ARP request").unwrap();
    let texts =
        |hits: &[Hit]| hits.iter().map(|hit| hit.text.clone().unwrap_or_default()).collect::<Vec<_>>();
    let hits = texts(
        script
            .run(&[lent(0, 0), lent(1, 10), lent(2, 20), lent(3, 30), arp.lend(31_000_000)])
            .expect("it runs"),
    );
    let name = |port: u16| format!("udp 10.0.0.1:{port} 10.0.0.2:60000");
    assert_eq!(
        hits,
        [
            format!("{} #1", name(1)),
            format!("{} #1", name(2)),
            format!("{} #2", name(1)),
            format!("{} #1", name(3))
        ]
    );
    // The fourth takes the place of the second, which was idle longest.
    let hits = texts(script.run(&[lent(4, 40)]).expect("it runs"));
    assert_eq!(hits.len(), 2, "{hits:?}");
    assert!(
        hits.contains(&format!("gone {} #1", name(2))) && hits.contains(&format!("{} #1", name(4))),
        "{hits:?}"
    );
    assert_eq!((script.counts().flows, script.counts().flows_evicted), (3, 1));
    let hits = script.clock(2_035_000_000).expect("it runs").to_vec();
    assert_eq!(texts(&hits), Vec::<String>::new());
    let hits = script.clock(2_100_000_000).expect("it runs").to_vec();
    assert_eq!(
        texts(&hits),
        [format!("gone {} #2", name(1)), format!("gone {} #1", name(3)), format!("gone {} #1", name(4))]
    );
    assert_eq!(hits[0].flows.len(), 1);
    assert_eq!(script.counts().flows, 0);
    assert_eq!(script.report(), None);
}

#[test]
fn state_goes_over_to_the_script_that_replaces_another() {
    let mut old = load(
        "wirescope.state = { n = 0, t = { 1, 'x', f = print } }
        return function() wirescope.state.n = wirescope.state.n + 1 end",
    );
    let packets = builtin_packets();
    assert!(old.run(&[packets[0].lend(0), packets[1].lend(0)]).is_ok());
    let kept = old.kept().expect("it is plain");
    let mut new = load("local n
        return { packet = function() return { text = n } end, on_reload = function(old) n = old.n .. old.t[2] .. tostring(old.t.f) end }");
    new.take_over(&kept).expect("it runs");
    assert_eq!(new.run(&[packets[0].lend(0)]).expect("it runs")[0].text.as_deref(), Some("2xnil"));
    let mut plain = load("return function() return { text = tostring(wirescope.state.n) } end");
    plain.take_over(&kept).expect("it runs");
    assert_eq!(plain.run(&[packets[0].lend(0)]).expect("it runs")[0].text.as_deref(), Some("2"));
    let own = load("local t = {} t.t = t wirescope.state = t return function() end");
    assert!(own.kept().expect_err("it holds itself").contains("deeper than"));
}

#[test]
fn a_script_is_told_of_its_dumps() {
    let mut script = load(
        "return { packet = function() end, on_dump = function(facts) print(facts.path, facts.packets) end }",
    );
    script.dumped(&[("path", Plain::from("/tmp/a.pcapng")), ("packets", Plain::from(7.0))]).expect("it runs");
    assert_eq!(script.take_notes(), (vec!["/tmp/a.pcapng\t7".to_string()], 0));
    let mut script = load("return { packet = function() end, on_dump = function() error('oh') end }");
    script.dumped(&[]).expect("it runs");
    assert_eq!(script.counts().errors, 1);
    assert!(script.disabled().is_none() && script.report().unwrap().contains("oh"));
}

#[test]
fn a_dump_script_makes_a_function_for_each_dump() {
    let mut keepers = Keepers::load(EXAMPLES[1].text, &Options::named("d.lua")).expect("it loads");
    let packets = builtin_packets();
    let lent: Vec<Lent<'_>> = packets.iter().map(|packet| packet.lend(0)).collect();
    let with_trigger = keepers.begin(Some(&lent[0])).expect("it runs");
    let by_hand = keepers.begin(None).expect("it runs");
    let ipv4 = packets.iter().filter(|packet| {
        packet.name.contains("IPv4")
            || packet.name.starts_with("ICMP echo")
            || (packet.name.starts_with("DNS") && !packet.name.contains("IPv6"))
    });
    let whole = ipv4.filter(|packet| packet.data.len() > 33).count();
    assert_eq!(keepers.keep(with_trigger, &lent).expect("it runs").len(), whole);
    assert_eq!(keepers.keep(by_hand, &lent).expect("it runs").len(), lent.len());
    keepers.end(with_trigger);
    assert_eq!((keepers.errors(), keepers.report()), (0, None));
    // The packet that fired stays in sight.
    let mut keepers = Keepers::load(
        "return function(t) return function(pkt) return t.payload:string() == pkt.payload:string() end end",
        &Options::named("d.lua"),
    )
    .expect("it loads");
    let id = {
        let copy = packets[12].clone();
        keepers.begin(Some(&copy.lend(0))).expect("it runs")
    };
    assert!(keepers.keep(id, &lent).expect("it runs").contains(&8));
    let wrong = |text: &str| {
        let mut keepers = Keepers::load(text, &Options::named("d.lua")).expect("it loads");
        assert!(keepers.begin(Some(&lent[0])).is_err());
        keepers.report().expect("it failed")
    };
    assert!(wrong("return function(t) return 5 end").contains("it has to return function(pkt)"));
    assert!(wrong("return function(t) error('x') end").contains("d.lua:1: x"));
    let mut keepers =
        Keepers::load("return function(t) return function() return 5 end end", &Options::named("d.lua"))
            .expect("it loads");
    let ids: Vec<KeeperId> = (0..64).map(|_| keepers.begin(None).expect("there is a place")).collect();
    assert_eq!(keepers.begin(None), Err(keeper::NoKeeper::TooMany));
    assert!(keepers.keep(ids[0], &lent[..1]).expect("it runs").is_empty());
    assert!(keepers.report().unwrap().contains("return true to keep the packet"));
    for id in ids {
        keepers.end(id);
    }
    assert!(keepers.begin(None).is_ok());
}

#[test]
fn every_example_runs_over_every_kind_of_packet() {
    let packets = builtin_packets();
    let lent: Vec<Lent<'_>> =
        (0..40).flat_map(|n| packets.iter().map(move |packet| packet.lend(n * 50_000_000))).collect();
    for example in EXAMPLES {
        let mut options = Options::named(example.file);
        match Libraries::open(&libraries(example.text)) {
            Ok(libraries) => options.libraries = libraries,
            Err(error) => {
                println!("{} is left out: {error}", example.file);
                continue;
            }
        }
        if example.dump {
            let mut keepers = Keepers::load(example.text, &options).expect(example.file);
            for packet in &lent[..packets.len()] {
                let id = keepers.begin(Some(packet)).expect(example.file);
                assert!(keepers.keep(id, &lent).is_ok());
                keepers.end(id);
            }
            assert_eq!(keepers.report(), None, "{}", example.file);
            continue;
        }
        let mut script = Script::load(example.text, &options).expect(example.file);
        let hits = script.run(&lent).expect(example.file).to_vec();
        assert_eq!(script.report(), None, "{}", example.file);
        let texts: Vec<String> = hits.iter().filter_map(|hit| hit.text.clone()).collect();
        match example.file {
            "payload.lua" => assert_eq!(hits.len() % 40, 0),
            "dns-names.lua" => assert!(
                texts.contains(&"www.example.org is 192.0.2.1".to_string())
                    && texts.contains(&"10.0.0.1 asks for www.example.org".to_string())
            ),
            _ => {}
        }
    }
}

#[test]
fn the_ndpi_example_finds_an_application_where_the_library_is_installed() {
    let example = EXAMPLES.iter().find(|example| example.file == "ndpi.lua").expect("there is one");
    let mut options = Options::named(example.file);
    match Libraries::open(&libraries(example.text)) {
        Ok(libraries) => options.libraries = libraries,
        Err(error) => return println!("skipped: {error}"),
    }
    let mut script = Script::load(example.text, &options).expect("it loads");
    let packets = builtin_packets();
    let data = packets.iter().find(|packet| packet.name == "TCP over IPv4, data").expect("there is one");
    let banner = |payload: &[u8], from_server: bool| {
        let mut packet = data.data[..54].to_vec();
        packet.extend(payload);
        packet[16..18].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
        packet[36..38].copy_from_slice(&22u16.to_be_bytes());
        if from_server {
            for (at, bytes) in [(26, 4), (34, 2)] {
                packet[at..at + 2 * bytes].rotate_left(bytes);
            }
        }
        packet
    };
    let flow = [
        banner(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", true),
        banner(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", false),
    ];
    let lent: Vec<Lent<'_>> = (0..12)
        .map(|n| Lent {
            data: &flow[n % 2],
            original_len: flow[n % 2].len() as u32,
            time_ns: 1_700_000_000_000_000_000 + n as i64 * 1_000_000,
            interface: 0,
            flags: 0,
            link_type: LinkType::ETHERNET,
        })
        .collect();
    let hits = script.run(&lent).expect("it runs").to_vec();
    assert_eq!(script.report(), None);
    let texts: Vec<_> = hits.iter().filter_map(|hit| hit.text.as_deref()).collect();
    assert_eq!(texts, ["SSH: tcp 10.0.0.1:40000 10.0.0.2:22"]);
    assert_eq!(hits[0].flows.len(), 1);
}

#[test]
fn the_port_scan_example_fires_once_per_scan() {
    let example = EXAMPLES.iter().find(|example| example.file == "port-scan.lua").unwrap();
    let mut script = load(example.text);
    let syn = builtin_packets()
        .into_iter()
        .find(|packet| packet.name == "TCP over IPv4, SYN with options")
        .unwrap();
    let scan: Vec<Specimen> = (0..50u16)
        .map(|port| {
            let mut packet = syn.clone();
            packet.data[36..38].copy_from_slice(&(port + 100).to_be_bytes());
            packet
        })
        .collect();
    let run = |script: &mut Script, from_ns: i64, step_ns: i64| {
        let lent: Vec<Lent<'_>> =
            scan.iter().zip(0..).map(|(packet, n)| packet.lend(from_ns + n * step_ns)).collect();
        script.run(&lent).expect("it runs").iter().filter_map(|hit| hit.packet).collect::<Vec<_>>()
    };
    assert_eq!(run(&mut script, 0, 10_000_000), [20]);
    assert_eq!(run(&mut script, 60_000_000_000, 10_000_000), [20]);
    assert_eq!(run(&mut script, 120_000_000_000, 1_000_000_000), Vec::<usize>::new(), "a slow one is none");
}

#[test]
fn what_a_script_kept_of_a_batch_gives_nil_when_that_is_over() {
    let mut script = load(
        "local ffi, kept, slice = require 'ffi'
        return function(pkt)
            if pkt.eth:getType() == 0x0806 then
                return kept and { text = table.concat({ tostring(kept.payload.uint8[0]), tostring(slice[0]),
                    tostring(kept.ip4:getSrc()), #kept, #slice, ffi.string(slice), ffi.string(kept) }, ' ') }
            end
            kept, slice = pkt, pkt.payload.uint8 + 1
        end",
    );
    let packets = builtin_packets();
    let [udp, arp] = [0, 19].map(|at| packets[at].lend(0));
    let text = |hits: &[Hit]| hits.first().and_then(|hit| hit.text.clone());
    let hits = script.run(&[arp, udp, arp]).expect("it runs").to_vec();
    assert_eq!(text(&hits).as_deref().map(|text| &text[..18]), Some("69 88 167772161 57"));
    let hits = script.run(&[arp]).expect("it runs").to_vec();
    assert_eq!(text(&hits).as_deref(), Some("nil nil nil 0 0  "), "{:?}", script.report());
}
