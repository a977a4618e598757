//! Views never read out of bounds, and agree with another parser, whatever the bytes are.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use scope_packet::LinkType;
use scope_script::*;

/// Everything that can be read of a packet, with indices all around the bounds; every element that is there is
/// held against a copy that was made before.
const READ_ALL: &str = r#"
local ffi, packet = require "ffi", require "packet"
local INDICES = { -2147483648, -9, -1, 0, 1, 2, 3, 7, 13, 14, 19, 20, 33, 34, 41, 42, 53, 54, 59, 60, 63, 64, 100, 1e6, 2147483647, 4294967296, 2^53, 1/0, -1/0, 0/0, 0.5 }
local HEADERS = {
    eth = { "getType", "getSrc", "getDst", "getSrcString", "getDstString" },
    vlan = { "getCount", "getId", "getPriority" },
    arp = { "getOperation", "getProtoSrcString", "getProtoDstString" },
    ip4 = { "getProtocol", "getVersion", "getTOS", "getLength", "getID", "getTTL", "getChecksum", "getSrc", "getDst",
        "getSrcString", "getDstString", "getHeaderLength", "getFlags", "getFragment" },
    ip6 = { "getProtocol", "getVersion", "getNextHeader", "getTTL", "getLength", "getTrafficClass", "getFlowLabel", "getSrc",
        "getDst", "getSrcString", "getDstString" },
    udp = { "getSrcPort", "getDstPort", "getLength", "getChecksum" },
    tcp = { "getSrcPort", "getDstPort", "getSeqNumber", "getAckNumber", "getDataOffset", "getFlags", "getWindow",
        "getChecksum", "getFin", "getSyn", "getRst", "getPsh", "getAck", "getUrg" },
    icmp = { "getType", "getCode", "getChecksum" },
    dns = { "getId", "isResponse", "getResponseCode", "getName", "getType", "getAnswers", "getAddress" },
}
local function stretch(view, what)
    local bytes = view:string()
    local counts = table.concat({ #bytes, #view, #view.uint8 }, " ")
    assert(#bytes == #view and #view == #view.uint8, what .. ": " .. counts)
    for _, i in ipairs(INDICES) do
        local value = view.uint8[i]
        local inside = i >= 0 and i < #bytes
        local expected
        if inside then expected = bytes:byte(math.floor(i) + 1) end
        if value ~= expected then
            error(what .. ": element " .. i .. " is " .. tostring(value) .. ", not " .. tostring(expected) .. " of " .. counts)
        end
        assert(view.be16(view, i % 70) == nil or i % 70 + 2 <= #bytes, what)
        for _, width in ipairs { 16, 32, 64 } do
            local wide = view["uint" .. width]
            local there = i >= 0 and (math.floor(i) + 1) * width / 8 <= #bytes
            if i == math.floor(i) then assert((wide[i] ~= nil) == there, what) end
            assert(#wide == math.floor(#bytes * 8 / width), what)
        end
        if i == i and i < 1e9 then
            local from = math.max(i, 0)
            local slice = view.uint8 + i
            assert(#slice == math.max(#bytes - math.floor(from), 0) or i ~= math.floor(i), what)
            assert(slice[-1] == nil and slice[#slice] == nil, what)
            assert(#ffi.string(slice, 1e6) == #slice, what)
        end
    end
    assert(ffi.string(view.uint8, 70000) == bytes and #ffi.string(view.uint8, 5) == math.min(5, #bytes), what)
end
return function(pkt)
    for header, getters in pairs(HEADERS) do
        for _, getter in ipairs(getters) do
            local value = pkt[header][getter](pkt[header])
            assert(value ~= value or value == value)
        end
    end
    stretch(pkt.bytes, "bytes")
    stretch(pkt.payload, "payload")
    stretch(packet.getEthPacket(pkt).payload, "behind Ethernet")
    stretch(packet.getIp4Packet(pkt).payload, "behind IP")
    return { text = table.concat({ tostring(pkt.ip4:getSrcString() or pkt.ip6:getSrcString()), tostring(pkt.udp:getDstPort()),
        tostring(pkt.tcp:getDstPort()), tostring(pkt.tcp:getFlags()), tostring(pkt.ip6:getProtocol() or pkt.ip4:getProtocol()),
        tostring(#pkt.payload) }, " ") }
end
"#;

/// A built-in packet, some bytes of it changed, and truncated; or any bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let count = builtin_packets().len();
    let changed = (
        0..count,
        proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
        prop_oneof![Just(2000usize), 0usize..100],
    )
        .prop_map(|(kind, changes, len)| {
            let mut data = builtin_packets().swap_remove(kind).data;
            for (at, byte) in changes {
                if let Some(place) = data.get_mut(at) {
                    *place = byte;
                }
            }
            data.truncate(len);
            data
        });
    prop_oneof![4 => changed, 1 => proptest::collection::vec(any::<u8>(), 0..100)]
}

fn link_type() -> impl Strategy<Value = LinkType> {
    prop_oneof![
        4 => Just(LinkType::ETHERNET), 1 => Just(LinkType::RAW), 1 => Just(LinkType::LINUX_SLL), 1 => Just(LinkType::LINUX_SLL2),
        1 => Just(LinkType::NULL), 1 => Just(LinkType::PPP), 1 => Just(LinkType(105)),
    ]
}

/// What etherparse says of an Ethernet frame, where it can read all of it.
fn other_parser(data: &[u8]) -> Option<String> {
    let sliced = SlicedPacket::from_ethernet(data).ok()?;
    let (source, protocol) = match sliced.net.as_ref()? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            // A fragment that isn't the first, and bits that etherparse reads otherwise, are tested elsewhere.
            if header.is_fragmenting_payload() {
                return None;
            }
            (header.source_addr().to_string(), header.protocol().0)
        }
        NetSlice::Ipv6(ip) if ip.extensions().is_empty() => {
            (ip.header().source_addr().to_string(), ip.header().next_header().0)
        }
        _ => return None,
    };
    let text = |port: Option<u16>| port.map_or("nil".to_string(), |port| port.to_string());
    let (udp, tcp, flags, payload) = match sliced.transport.as_ref()? {
        TransportSlice::Udp(udp) => (Some(udp.destination_port()), None, None, udp.payload().len()),
        TransportSlice::Tcp(tcp) => {
            (None, Some(tcp.destination_port()), Some(u16::from(tcp.slice()[13])), tcp.payload().len())
        }
        _ => return None,
    };
    Some(format!("{source} {} {} {} {protocol} {payload}", text(udp), text(tcp), text(flags)))
}

#[test]
fn views_agree_with_another_parser_and_never_leave_their_bounds() {
    let mut script = Script::load(READ_ALL, &Options::named("read-all.lua")).expect("it loads");
    let mut compared = 0;
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 3000, ..ProptestConfig::default() });
    let compared_ref = std::cell::RefCell::new(&mut compared);
    let script = std::cell::RefCell::new(&mut script);
    runner
        .run(&(bytes(), link_type()), |(data, link_type)| {
            // An allocation of exactly this size: a read behind it is one that tools for memory see.
            let data = data.into_boxed_slice();
            let lent =
                Lent { data: &data, original_len: 2000, time_ns: 1, interface: 0, flags: 0, link_type };
            let mut script = script.borrow_mut();
            let hits = script.run(&[lent]).expect("it runs").to_vec();
            prop_assert!(script.report().is_none(), "{:?} {data:x?}", script.report());
            if let Some(expected) = (link_type == LinkType::ETHERNET).then(|| other_parser(&data)).flatten() {
                **compared_ref.borrow_mut() += 1;
                prop_assert_eq!(hits[0].text.as_deref(), Some(expected.as_str()), "{:x?}", data);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(compared > 100, "only {compared} packets were compared");
}
