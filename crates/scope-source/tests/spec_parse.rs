//! Sources as typed: what they mean, every fault at once with its remedy, commas and backslashes, junk.

use proptest::prelude::*;
use scope_machine::cpus::Placement;
use scope_packet::LinkType;
use scope_source::spec::{
    self, AfPacketPlan, FileForm, FilePlan, KINDS, PcapPlan, SourcePlan, escape, parse,
};
use scope_source::synth::{Prepare, Size, SynthOptions};

fn plan(text: &str) -> SourcePlan {
    parse(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}")).plan
}

/// The faults of `text`, one text each.
fn faults(text: &str) -> Vec<String> {
    parse(text).expect_err(text).iter().map(|fault| fault.to_string()).collect()
}

fn file(path: &str) -> FilePlan {
    FilePlan { path: path.to_string(), form: FileForm::Detected, pace: None, workers: 1, snap_len: None }
}

#[test]
fn the_examples_of_the_manual_mean_what_they_say() {
    assert_eq!(
        plan("afpacket:eth0,workers=2,snaplen=128,promisc=off"),
        SourcePlan::AfPacket(AfPacketPlan {
            workers: 2,
            snap_len: Some(128),
            promiscuous: false,
            ..AfPacketPlan::new("eth0")
        })
    );
    assert_eq!(
        plan("afpacket:eth0,block=2MiB,blocks=16,timeout=10ms,exclude-self=on"),
        SourcePlan::AfPacket(AfPacketPlan {
            block_bytes: Some(2 << 20),
            blocks: Some(16),
            timeout_ms: Some(10),
            exclude_self: true,
            ..AfPacketPlan::new("eth0")
        })
    );
    assert_eq!(plan("afpacket:eth0"), SourcePlan::AfPacket(AfPacketPlan::new("eth0")));
    assert_eq!(
        plan("afpacket:eth*,workers=0,spare=8"),
        SourcePlan::AfPacket(AfPacketPlan { workers: 0, spares: Some(8), ..AfPacketPlan::new("eth*") })
    );
    assert_eq!(
        plan("pcap:eth0,snaplen=64,promisc=off,timeout=1ms,buffer=1MiB,exclude-self=on"),
        SourcePlan::Pcap(PcapPlan {
            interface: "eth0".into(),
            snap_len: Some(64),
            promiscuous: false,
            timeout_ms: 1,
            buffer_bytes: 1 << 20,
            exclude_self: true,
            only_in: false,
        })
    );
    let only_in = AfPacketPlan { only_in: true, ..AfPacketPlan::new("eth0") };
    assert_eq!(plan("afpacket:eth0,direction=in"), SourcePlan::AfPacket(only_in));
    assert_eq!(plan("afpacket:eth0,direction=both"), plan("afpacket:eth0"));
    assert!(plan("pcap:eth0,direction=in").is_only_in() && !plan("pcap:eth0").is_only_in());
    assert_eq!(plan("file:x.pcap,pace=1"), SourcePlan::File(FilePlan { pace: Some(1.0), ..file("x.pcap") }));
    assert_eq!(plan("file:-,pace=max,workers=4"), SourcePlan::File(FilePlan { workers: 4, ..file("-") }));
    assert_eq!(
        plan("file:C:/a=b.pcap,pace=2.5"),
        SourcePlan::File(FilePlan { pace: Some(2.5), ..file("C:/a=b.pcap") })
    );
    assert_eq!(
        plan("synth:rate=1M,size=imix,flows=1000,vlan=10%,seed=1,time=30s,trigger-at=5s"),
        SourcePlan::Synth(SynthOptions {
            rate: Some(1_000_000),
            vlan_ppm: 100_000,
            time_ns: Some(30_000_000_000),
            trigger_at_ns: Some(5_000_000_000),
            ..SynthOptions::default()
        })
    );
    assert_eq!(
        plan(
            "synth:size=128,ipv6=5,packets=10k,start=2026-11-20T20:31:05.123456789Z,pace=max,prepare=1MiB,workers=2"
        ),
        SourcePlan::Synth(SynthOptions {
            size: Size::Fixed(128),
            ipv6_ppm: 50_000,
            packets: Some(10_000),
            start_ns: Some(1_795_206_665_123_456_789),
            pace_max: true,
            prepare: Prepare::Bytes(1 << 20),
            workers: 2,
            ..SynthOptions::default()
        })
    );
    assert_eq!(plan("synth:"), SourcePlan::Synth(SynthOptions::default()));
    assert_eq!(plan("synth:workers=3").workers(), 3);
}

#[test]
fn commas_and_backslashes_inside_what_are_escaped() {
    let check = |text: &str, path: &str| assert_eq!(plan(text), SourcePlan::File(file(path)), "{text}");
    check(r"file:a\,b.pcap", "a,b.pcap");
    check(r"file:a\\b.pcap", r"a\b.pcap");
    check(r"file:a\\\,b.pcap", r"a\,b.pcap");
    check(r"file:a\b.pcap", r"a\b.pcap");
    check(r"file:a\", r"a\");
    assert_eq!(plan(r"file:a\\,pace=1"), SourcePlan::File(FilePlan { pace: Some(1.0), ..file(r"a\") }));
}

#[test]
fn every_option_of_the_tables_is_read_with_its_example() {
    for (kind, what, options) in KINDS {
        for option in *options {
            let comma = if what.is_empty() { "" } else { "," };
            let mut text = format!("{kind}:{what}{comma}{}={}", option.name, option.example);
            match (*kind, option.name) {
                ("synth", "pace") => text.push_str(",time=1s"),
                ("file", "format") => text.push_str(",link=1"),
                ("file", "link") => text.push_str(",format=hpcap"),
                _ => {}
            }
            plan(&text);
        }
    }
}

#[test]
fn each_fault_names_its_cause_and_remedy() {
    let check = |text: &str, parts: &[&str]| {
        let faults = faults(text);
        assert_eq!(faults.len(), 1, "{faults:?}");
        for part in parts {
            assert!(faults[0].contains(part), "{}", faults[0]);
        }
    };
    check("afpaket:eth0", &["unknown kind", "'afpaket'", "did you mean 'afpacket:'", "file:PATH"]);
    check("x.pcap", &["unknown kind", "write file: in front"]);
    check("", &["unknown kind"]);
    check("synth", &["':' is missing", "synth:rate=1M"]);
    check("file:", &["PATH is missing", "file:PATH,pace=1"]);
    check("afpacket:,workers=2", &["INTERFACE is missing"]);
    check(
        "file:x,speed=1",
        &[
            "file has no option 'speed'",
            "it has pace, format, link, workers, snaplen, share, prefilter, cpus, numa",
        ],
    );
    check("file:x,pase=1", &["did you mean 'pace'"]);
    check("synth:flow=7", &["did you mean 'flows'"]);
    check("file:x,pace=1,pace=2", &["'pace' is given twice"]);
    check("file:x,pace", &["'pace' has no value", "pace=1"]);
    check("file:x,", &["remove the comma"]);
    check("file:x,pace=0", &["option 'pace'", "neither max nor a number"]);
    check("file:x,pace=nan", &["neither max nor a number"]);
    check("file:x,pace=inf", &["neither max nor a number"]);
    check("file:x,format=hpcap", &["option 'link'", "it is missing", "link=ethernet"]);
    check("file:x,link=ethernet", &["option 'link'", "only a file with format=hpcap", "remove link="]);
    check("file:x,format=pcapng", &["option 'format'", "known by the file's first bytes; omit format="]);
    check("file:x,format=erf,link=1", &["option 'format'", "'erf'", "is not hpcap", "format=hpcap"]);
    check("file:x,format=hpcap,link=token", &["option 'link'", "neither the name nor the number of a link"]);
    check("file:x,format=hpcap,link=65536", &["option 'link'", "neither the name nor the number of a link"]);
    check("file:x,workers=0", &["option 'workers'", "1 to 64"]);
    check("file:x,workers=-1", &["no whole number"]);
    check("afpacket:eth0,promisc=yes", &["neither on nor off", "promisc=off"]);
    check("afpacket:eth0,block=3MiB", &["no power of two from 64KiB to 4MiB", "block=1MiB"]);
    check("afpacket:eth0,blocks=1", &["not 2 to 32768"]);
    check("afpacket:eth0,timeout=2s", &["not 1ms to 1s"]);
    check("afpacket:eth0,timeout=1500us", &["whole milliseconds", "timeout=4ms"]);
    check("afpacket:eth0,exclude-self=1", &["neither on nor off", "exclude-self=on"]);
    check("pcap:eth0,buffer=2GiB", &["not 64KiB to 1GiB"]);
    check("pcap:eth0,blocks=4", &["pcap has no option 'blocks'"]);
    check("synth:cpus=3-2", &["runs backwards", "cpus=2-3"]);
    check("synth:numa=x", &["no whole number"]);
    check("file:x,prefilter=", &["option 'prefilter'", "empty"]);
    check("afpacket:eth0,snaplen=1G", &["more than 262144 bytes"]);
    check("synth:vlan=101%", &["more than 100%", "vlan=10%"]);
    check("synth:pace=max", &["synth with pace=max needs time= or packets="]);
    check("synth:pace=2", &["another pace is another rate="]);
    check("synth:rate=0", &["rate is 0; it may be 1 to 1000000000"]);
    check("synth:time=1s,trigger-at=5s", &["trigger-at lies behind the end"]);
    check("synth:size=99999999999", &["too large", "size=imix"]);
    check("synth:start=yesterday", &["option 'start'", "2026-11-20T20:31:05"]);
}

#[test]
fn every_kind_of_source_takes_a_share_of_the_ring() {
    let share = |text: &str| parse(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}")).share;
    assert_eq!(share("afpacket:eth0,share=30%"), Some(30));
    assert_eq!(share("file:x,share=1"), Some(1));
    assert_eq!(share("synth:seed=2,share=90%"), Some(90));
    assert_eq!(share("synth:"), None);
    for (text, cause) in
        [("0%", "not 1% to 90%"), ("91%", "not 1% to 90%"), ("2.5%", "no whole percentage"), ("x", "'x'")]
    {
        let said = faults(&format!("file:x,share={text}"));
        assert!(said.len() == 1 && said[0].contains(cause) && said[0].contains("share=30%"), "{said:?}");
    }
}

#[test]
fn every_kind_of_source_takes_a_prefilter_and_a_place() {
    for kind in ["afpacket:eth0", "pcap:eth0", "file:x", "synth:seed=2"] {
        let text = format!(r"{kind},prefilter=host 10.0.0.1 and ip proto \\tcp,cpus=0\,4-5,numa=1");
        let spec = parse(&text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
        assert_eq!(spec.prefilter.as_deref(), Some(r"host 10.0.0.1 and ip proto \tcp"));
        assert_eq!(spec.placement, Placement { cpus: Some(vec![0, 4, 5]), node: Some(1) });
    }
    let plain = parse("synth:").unwrap();
    assert_eq!((plain.prefilter, plain.placement), (None, Placement::default()));
}

#[test]
fn a_file_of_raw_records_is_told_its_link_type_by_name_or_number() {
    for (link, number) in [("ethernet", 1), ("RAW", 101), ("linux_sll2", 276), ("12", 101), ("147", 147)] {
        let form = FileForm::Hpcap(LinkType(number));
        let text = format!("file:x,link={link},format=hpcap");
        assert_eq!(plan(&text), SourcePlan::File(FilePlan { form, ..file("x") }), "{text}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let faults = faults("synth:rate=fast,flws=3,seed=1,seed=2,vlan=200%,pace=max");
    assert_eq!(faults.len(), 4, "{faults:?}");
    for part in ["'rate'", "'flws'", "'seed' is given twice", "'vlan'"] {
        assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:?}");
    }
    assert!(faults.iter().all(|fault| fault.starts_with("source 'synth:rate=fast")));
}

#[test]
fn a_snap_length_of_nought_keeps_all() {
    assert_eq!(plan("file:x,snaplen=0"), SourcePlan::File(file("x")));
    assert_eq!(plan("file:x,snaplen=64"), SourcePlan::File(FilePlan { snap_len: Some(64), ..file("x") }));
}

proptest! {
    #[test]
    fn every_path_survives_escaping(path in "\\PC{1,40}", slashes in r"[\\,a=:]{1,12}") {
        for path in [path, slashes] {
            let text = format!("file:{},workers=2", escape(&path));
            prop_assert_eq!(parse(&text).ok().map(|spec| spec.plan), Some(SourcePlan::File(FilePlan { workers: 2, ..file(&path) })));
        }
    }

    #[test]
    fn every_good_option_is_read_back(rate in 1u64..=1_000_000_000, flows in 1u32..=1_048_576, seed in any::<u64>(),
        vlan in 0u32..=100, packets in 1u64..1_000_000, size in 60u32..=65_535) {
        let text = format!("synth:rate={rate},flows={flows},seed={seed},vlan={vlan}%,packets={packets},size={size}B");
        let expected = SynthOptions {
            rate: Some(rate), flows, seed, vlan_ppm: vlan * 10_000, packets: Some(packets), size: Size::Fixed(size),
            ..SynthOptions::default()
        };
        prop_assert_eq!(parse(&text).ok().map(|spec| spec.plan), Some(SourcePlan::Synth(expected)));
    }

    #[test]
    fn junk_never_panics_and_always_names_the_text(text in "\\PC{0,60}",
        kind in prop_oneof![Just("synth"), Just("file"), Just("afpacket"), Just("pcap")],
        options in proptest::collection::vec("(rate|size|flows|vlan|time|packets|start|trigger-at|pace|prepare|workers|snaplen|promisc|cpus|numa|block|blocks|timeout|buffer|prefilter)=[-+0-9.kMGsm%:TZ]{0,22}", 0..5)) {
        for text in [text.clone(), format!("{kind}:{text}"), format!("{kind}:{}", options.join(",")), format!("{kind}:x,{}", options.join(","))] {
            if let Err(faults) = spec::parse(&text) {
                prop_assert!(!faults.is_empty());
                let named = format!("source '{text}': ");
                prop_assert!(faults.iter().all(|fault| fault.to_string().starts_with(&named)));
            }
        }
    }
}
