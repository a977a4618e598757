//! One trigger, hit by hit: which verdict each hit gets, and what a fire hands over.

use super::*;
use crate::occurrence::{Matched, Own, Why};
use scope_filter::VlanRule;
use scope_packet::{Headers, LinkType, Moment};

const S: i64 = 1_000_000_000;

fn frame(last: u8) -> Vec<u8> {
    let mut frame =
        vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1];
    frame.extend([10, 0, 0, last, 0x03, 0xe8, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

/// The occurrence of a packet, as a live worker makes it.
fn hit(at: Moment, packet: Matched<'_>) -> Occurrence<'_> {
    Occurrence {
        at,
        clock_ns: at.time_ns,
        key: Key::OfPacket,
        why: Why::Packet { bytes: packet.data.len() as u32, interface: "eth0" },
        packet: Some(packet),
        given: None,
        own: Own::default(),
        link_types: &[],
        requester: Requester::Live,
    }
}

struct Bench {
    trigger: Trigger,
    places: Arc<Places>,
    held: Vec<Fire>,
    era: u64,
}

impl Bench {
    fn new(places: usize, change: impl FnOnce(&mut TriggerConfig)) -> Bench {
        let filter = Filter::compile("udp", VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
        let mut config = TriggerConfig {
            name: "t".into(),
            condition: Condition::Filter(filter),
            response: Response {
                template: Some(Template::parse("host $dstIP").unwrap()),
                script: None,
                before_ns: 10 * S,
                after_ns: 5 * S,
                vlan: VlanRule::Transparent,
            },
            when: None,
            holdoff_ns: S,
            holdoff_key: None,
            single: false,
            auto_ns: None,
        };
        change(&mut config);
        Bench {
            trigger: Trigger::new(config),
            places: Places::new(places, S, None),
            held: Vec::new(),
            era: 0,
        }
    }

    fn hit(&mut self, at_ns: i64, data: &[u8]) -> &'static str {
        let headers = Headers::parse(LinkType::ETHERNET, data);
        let at = Moment::new(self.era, at_ns);
        let packet = Matched { link_type: LinkType::ETHERNET, headers: &headers, data };
        let verdict = self.trigger.occurred(&hit(at, packet), &self.places);
        let name = verdict.name();
        if let Verdict::Fired(fire) = verdict {
            self.held.push(fire);
        }
        name
    }
}

#[test]
fn each_hit_is_counted_once_by_the_first_that_applies() {
    let mut bench = Bench::new(2, |_| {});
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    assert_eq!(
        bench.hit(101 * S - 1, &frame(2)),
        "extended",
        "the same filter, within the window: before holdoff"
    );
    assert_eq!(bench.hit(101 * S - 1, &frame(3)), "fired", "another filter");
    for fire in &bench.held {
        fire.window.close();
    }
    assert_eq!(bench.hit(101 * S, &frame(3)), "held_off", "the window is over, the holdoff isn't");
    assert_eq!(bench.hit(102 * S, &frame(4)), "too_many");
    let arp = [[0u8; 12].as_slice(), &[8, 6], &[0; 10]].concat();
    assert_eq!(bench.hit(102 * S, &arp), "template_unfilled");
    let counts = bench.trigger.counts();
    let expected = HitCounts {
        fired: 2,
        extended: 1,
        held_off: 1,
        too_many: 1,
        template_unfilled: 1,
        ..HitCounts::default()
    };
    assert_eq!((counts, counts.total()), (expected, 6));
    assert_eq!(bench.trigger.misses(), Misses { unfilled: Some("$dstIP"), uncompiled: None });
    assert_eq!((bench.held[0].window.from_ns(), bench.held[0].window.to_ns()), (90 * S, 106 * S - 1));
    assert_eq!(bench.held[1].filter.text(), "host 10.0.0.3");
}

/// 64 hosts, and more.
fn long_template(more: &str) -> Template {
    let hosts: Vec<String> = (1..=64).map(|host| format!("host 192.0.2.{host}")).collect();
    Template::parse(&format!("({}) and {more}", hosts.join(" or "))).unwrap()
}

/// UDP over IPv6 from an address and a port.
fn frame6(from: u64, port: u16) -> Vec<u8> {
    let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64];
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]);
    frame.extend(from.to_be_bytes());
    frame.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
    frame.extend(port.to_be_bytes());
    frame.extend([0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

#[test]
fn hits_whose_values_make_no_filter_are_found_once_and_not_compiled_again() {
    let mut bench = Bench::new(2, |config| {
        config.response.template = Some(long_template("ip host $srcIP"));
        config.holdoff_ns = 0;
    });
    for from in 0..20_000 {
        assert_eq!(bench.hit(100 * S, &frame6(from, 7)), "template_unfilled");
    }
    let left = bench.trigger.state.lock().unwrap().cache.failures_left();
    assert_eq!((left, bench.trigger.counts().rationed), (crate::compile_cache::FAILURES_AT_ONCE - 1, 0));
    let expected = HitCounts { template_unfilled: 20_000, ..HitCounts::default() };
    assert_eq!((bench.trigger.counts(), bench.trigger.counts().total()), (expected, 20_000));
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired", "what fits still does");
}

#[test]
fn a_link_type_that_has_no_such_filter_is_asked_once() {
    let bench = Bench::new(2, |config| {
        config.response.template = Some(long_template("ether host 02:02:02:02:02:02"));
        config.holdoff_ns = 0;
    });
    let (data, link_type) = (&frame(2)[14..], LinkType::RAW);
    let headers = Headers::parse(link_type, data);
    let hit = hit(Moment::new(0, S), Matched { link_type, headers: &headers, data });
    for _ in 0..20_000 {
        assert_eq!(bench.trigger.occurred(&hit, &bench.places).name(), "filter_uncompiled");
    }
    let left = bench.trigger.state.lock().unwrap().cache.failures_left();
    assert_eq!(
        (left, bench.trigger.counts().filter_uncompiled),
        (crate::compile_cache::FAILURES_AT_ONCE - 1, 20_000)
    );
}

#[test]
fn ever_new_values_that_make_no_filter_are_rationed_and_counted() {
    let mut bench = Bench::new(2, |config| {
        config.response.template = Some(long_template("port {srcPort}0"));
        config.holdoff_ns = 0;
    });
    for port in 10_000..20_000 {
        assert_eq!(bench.hit(100 * S, &frame6(1, port)), "template_unfilled");
    }
    let rationed = 10_000 - u64::from(crate::compile_cache::FAILURES_AT_ONCE);
    assert_eq!(
        (bench.trigger.counts().template_unfilled, bench.trigger.counts().rationed),
        (10_000, rationed)
    );
    assert_eq!(bench.hit(102 * S, &frame6(1, 8)), "fired", "after a while others are looked at again");
}

#[test]
fn when_there_is_no_place_or_all_dumps_are_made_no_filter_is_compiled() {
    for (limits, expected) in [((1, None), "too_many"), ((8, Some(1)), "disarmed")] {
        let mut bench = Bench::new(8, |config| config.holdoff_ns = 0);
        bench.places.set_limits(limits.0, limits.1);
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        let compile = || panic!("compiled");
        for requester in [Requester::Live, Requester::Waiting(Moment::new(0, 100 * S))] {
            let at = Moment::new(0, 200 * S);
            let occurrence = Occurrence { requester, ..bench.trigger.config().condition.ordered(at, &[]) };
            let terms = bench.trigger.terms(&occurrence);
            assert_eq!(bench.trigger.decide(&occurrence, &terms, &compile, &bench.places).name(), expected);
        }
    }
}

#[test]
fn without_room_no_dump_begins_and_nothing_is_held_off() {
    let mut bench = Bench::new(2, |config| config.single = true);
    let full = Arc::new(std::sync::atomic::AtomicBool::new(true));
    bench.places.watch_space(full.clone());
    assert_eq!(bench.hit(100 * S, &frame(2)), "no_space");
    full.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        bench.hit(100 * S + 1, &frame(2)),
        "fired",
        "neither held off nor disarmed by what was refused"
    );
    let expected = HitCounts { fired: 1, no_space: 1, ..HitCounts::default() };
    assert_eq!((bench.trigger.counts(), bench.trigger.counts().total()), (expected, 2));
}

#[test]
fn where_capture_time_was_set_back_nothing_is_held_off_or_extended_by_what_was_before() {
    let mut bench = Bench::new(8, |_| {});
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    bench.era = 1;
    assert_eq!(bench.hit(100 * S + 5, &frame(2)), "fired");
    assert_eq!(bench.hit(100 * S + 6, &frame(2)), "extended");
    assert_eq!(bench.held.iter().map(|fire| fire.window.era()).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn single_fires_once_and_never_extends() {
    let mut bench = Bench::new(2, |config| config.single = true);
    assert_eq!(bench.hit(S, &frame(2)), "fired");
    assert_eq!(bench.hit(S, &frame(2)), "disarmed");
    assert!(!bench.trigger.armed());
}

#[test]
fn holdoff_is_told_apart_by_what_the_template_takes_from_the_hit() {
    let mut bench = Bench::new(8, |config| (config.response.template, config.response.after_ns) = (None, 0));
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    assert_eq!(bench.hit(100 * S + 5, &frame(3)), "fired", "another host isn't held off");
    let mut back = frame(2);
    back[26..34].rotate_left(4);
    assert_eq!(bench.hit(100 * S + 9, &back), "held_off", "the same two hosts, whoever sends");
    let mut whole = Bench::new(8, |config| {
        config.holdoff_key = Some(Template::parse("").unwrap());
        config.response.after_ns = 0;
    });
    assert_eq!((whole.hit(100 * S, &frame(2)), whole.hit(100 * S + 5, &frame(3))), ("fired", "held_off"));
}

#[test]
fn both_directions_are_one_dump() {
    let mut back = frame(2);
    back[26..34].rotate_left(4);
    back[34..38].rotate_left(2);
    for template in [None, Some(Template::parse("$flow").unwrap())] {
        let mut bench = Bench::new(8, |config| config.response.template = template);
        assert_eq!((bench.hit(100 * S, &frame(2)), bench.hit(100 * S + 5, &back)), ("fired", "extended"));
    }
}

#[test]
fn a_filter_that_the_link_type_can_t_have_is_counted_as_that() {
    let ip = frame(2)[14..].to_vec();
    let headers = Headers::parse(LinkType::RAW, &ip);
    let hit = hit(Moment::new(0, S), Matched { link_type: LinkType::RAW, headers: &headers, data: &ip });
    let verdict = |template: &str| {
        let bench =
            Bench::new(8, |config| config.response.template = Some(Template::parse(template).unwrap()));
        let verdict = bench.trigger.occurred(&hit, &bench.places);
        assert_eq!(bench.trigger.counts().total(), 1, "{template}");
        verdict
    };
    let Verdict::FilterUncompiled { cause } = verdict("ether host 02:02:02:02:02:02 and host $srcIP") else {
        panic!("compiled")
    };
    assert!(cause.contains("ethernet addresses supported only on"), "{cause}");
    assert!(matches!(verdict("ip6 host $srcIP"), Verdict::TemplateUnfilled { name: "$srcIP" }));
    assert!(matches!(verdict("host $srcIP"), Verdict::Fired(_)));
}

#[test]
fn a_run_that_has_its_dumps_is_disarmed_and_nothing_is_too_many() {
    let bench = Bench::new(1, |_| {});
    let enough = Places::new(1, S, Some(1));
    let headers = Headers::parse(LinkType::ETHERNET, &[]);
    let at = |time_ns| {
        let packet = Matched { link_type: LinkType::ETHERNET, headers: &headers, data: &[] };
        hit(Moment::new(0, time_ns), packet)
    };
    let mut config = bench.trigger.config().clone();
    (config.response.template, config.response.after_ns) = (None, 0);
    let trigger = Trigger::new(config);
    let first = trigger.occurred(&at(S), &enough);
    assert_eq!((first.name(), trigger.occurred(&at(10 * S), &enough).name()), ("fired", "disarmed"));
}

#[test]
fn holdoff_is_per_key_where_one_is_given() {
    let mut bench = Bench::new(8, |config| {
        config.holdoff_key = Some(Template::parse("$dstIP").unwrap());
        config.response.after_ns = 0;
    });
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    assert_eq!(bench.hit(100 * S + 5, &frame(3)), "fired");
    assert_eq!(bench.hit(100 * S + 9, &frame(2)), "held_off");
}

#[test]
fn a_second_fire_has_its_own_full_past() {
    let mut bench = Bench::new(8, |_| {});
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    assert_eq!(bench.hit(106 * S, &frame(2)), "fired");
    assert_eq!(bench.held[1].window.from_ns(), 96 * S, "overlaps the first window");
}

#[test]
fn a_dump_that_stopped_growing_is_continued_where_it_ended() {
    let mut bench = Bench::new(8, |_| {});
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    let mut at = 100 * S;
    let verdict = loop {
        at += 4 * S;
        match bench.hit(at, &frame(2)) {
            "extended" => continue,
            other => break other,
        }
    };
    assert_eq!(verdict, "fired");
    let first_end = bench.held[0].window.to_ns();
    assert_eq!(first_end, 90 * S + crate::window::WINDOW_GROWTH_MAX_NS);
    assert_eq!(bench.held[1].window.from_ns(), first_end + 1);
}

impl Bench {
    /// Whoever orders it, at `at_ns`.
    fn order(&mut self, at_ns: i64) -> &'static str {
        let at = Moment::new(self.era, at_ns);
        let occurrence = self.trigger.config().condition.ordered(at, &[LinkType::ETHERNET]);
        let verdict = self.trigger.occurred(&occurrence, &self.places);
        let name = verdict.name();
        if let Verdict::Fired(fire) = verdict {
            self.held.push(fire);
        }
        name
    }
}

#[test]
fn a_fire_by_hand_takes_everything_where_the_template_has_names() {
    let mut bench = Bench::new(8, |_| {});
    assert_eq!(bench.order(50 * S), "fired");
    let fire = &bench.held[0];
    assert_eq!((fire.filter.text(), fire.window.from_ns(), fire.window.to_ns()), ("", 40 * S, 55 * S));
}

/// As a run has it for fires by hand, but for what `change` says.
fn by_hand(places: usize, change: impl FnOnce(&mut TriggerConfig)) -> Bench {
    Bench::new(places, |config| {
        config.condition = Condition::Hand;
        (config.response.template, config.response.after_ns, config.holdoff_ns) = (None, 0, 0);
        change(config);
    })
}

#[test]
fn occurrences_by_hand_are_counted_by_their_verdicts_like_any_other() {
    let mut bench = by_hand(1, |_| {});
    assert_eq!(bench.order(100 * S), "fired");
    assert_eq!(bench.order(100 * S), "extended", "the very same moment");
    assert_eq!(
        bench.order(100 * S + 1),
        "fired",
        "no holdoff unless one is set, and one place more than there are"
    );
    assert_eq!(bench.order(100 * S + 2), "too_many");
    bench.held.clear();
    bench.places.set_limits(1, Some(2));
    assert_eq!(bench.order(101 * S), "disarmed", "the run has its dumps");
    let counts = bench.trigger.counts();
    let expected = HitCounts { fired: 2, extended: 1, too_many: 1, disarmed: 1, ..HitCounts::default() };
    assert_eq!((counts, counts.total()), (expected, 5));
}

#[test]
fn a_holdoff_by_hand_holds_where_one_is_set_and_single_disarms() {
    let mut bench = by_hand(8, |config| config.holdoff_ns = S);
    let verdicts = [100 * S, 100 * S + 1, 101 * S - 1, 101 * S].map(|at_ns| bench.order(at_ns));
    assert_eq!(verdicts, ["fired", "held_off", "held_off", "fired"]);
    let mut once = by_hand(8, |config| config.single = true);
    assert_eq!([once.order(S), once.order(2 * S)], ["fired", "disarmed"]);
}

#[test]
fn an_order_is_held_off_by_no_holdoff_of_packets_and_holds_none_off() {
    let mut bench = Bench::new(8, |config| {
        config.response.template = Some(Template::parse("").unwrap());
        config.response.after_ns = 0;
    });
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    assert_eq!(bench.hit(100 * S + 1, &frame(2)), "held_off");
    assert_eq!(bench.order(100 * S + 2), "fired");
    assert_eq!(bench.hit(101 * S, &frame(2)), "fired", "its holdoff counts from the packet that fired");
}

#[test]
fn what_happened_becomes_words_where_somebody_reads_it() {
    assert_eq!(Why::Packet { bytes: 60, interface: "eth0" }.to_string(), "by a packet of 60 bytes on eth0");
    assert_eq!(Why::Hand.to_string(), "by hand");
    assert_eq!(Why::Noted("ticket 7").to_string(), "by hand: ticket 7");
}

#[test]
fn triggers_that_say_the_same_go_on_for_each_other() {
    let config = |change: fn(&mut TriggerConfig)| Bench::new(1, change).trigger.config().clone();
    let same = |change: fn(&mut TriggerConfig)| config(|_| {}).same_as(&config(change));
    assert!(same(|_| {}));
    let changes: [fn(&mut TriggerConfig); 9] = [
        |config| config.name = "u".into(),
        |config| config.condition = Condition::Hand,
        |config| {
            let filter = Filter::compile("tcp", VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
            config.condition = Condition::Filter(filter);
        },
        |config| config.response.template = None,
        |config| config.response.before_ns = 1,
        |config| config.response.vlan = VlanRule::Exact,
        |config| config.holdoff_ns = 1,
        |config| config.holdoff_key = Some(Template::parse("$srcIP").unwrap()),
        |config| config.single = true,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(!same(change), "change {number}");
    }
}
