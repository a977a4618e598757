//! One trigger, hit by hit: which verdict each hit gets, and what a fire hands over.

use super::*;

const S: i64 = 1_000_000_000;

fn frame(last: u8) -> Vec<u8> {
    let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1];
    frame.extend([10, 0, 0, last, 0x03, 0xe8, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
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
            filter,
            template: Some(Template::parse("host $dstIP").unwrap()),
            before_ns: 10 * S,
            after_ns: 5 * S,
            holdoff_ns: S,
            holdoff_key: None,
            vlan: VlanRule::Transparent,
            single: false,
        };
        change(&mut config);
        Bench { trigger: Trigger::new(config), places: Places::new(places, S, None), held: Vec::new(), era: 0 }
    }

    fn hit(&mut self, at_ns: i64, data: &[u8]) -> &'static str {
        let headers = Headers::parse(LinkType::ETHERNET, data);
        let at = Moment::new(self.era, at_ns);
        let hit = Hit { at, clock_ns: at_ns, link_type: LinkType::ETHERNET, headers: &headers, data, waits_at: None };
        let verdict = self.trigger.hit(&hit, &self.places);
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
    assert_eq!(bench.hit(101 * S - 1, &frame(2)), "extended", "the same filter, within the window: before holdoff");
    assert_eq!(bench.hit(101 * S - 1, &frame(3)), "fired", "another filter");
    bench.held.iter().for_each(|fire| fire.window.close());
    assert_eq!(bench.hit(101 * S, &frame(3)), "held_off", "the window is over, the holdoff isn't");
    assert_eq!(bench.hit(102 * S, &frame(4)), "too_many");
    let arp = [[0u8; 12].as_slice(), &[8, 6], &[0; 10]].concat();
    assert_eq!(bench.hit(102 * S, &arp), "template_unfilled");
    let counts = bench.trigger.counts();
    let expected = HitCounts { fired: 2, extended: 1, held_off: 1, too_many: 1, template_unfilled: 1, ..HitCounts::default() };
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
        config.template = Some(long_template("ip host $srcIP"));
        config.holdoff_ns = 0;
    });
    for from in 0..20_000 {
        assert_eq!(bench.hit(100 * S, &frame6(from, 7)), "template_unfilled");
    }
    let left = bench.trigger.state.lock().unwrap().fits.failures_left();
    assert_eq!((left, bench.trigger.counts().rationed), (crate::fits::FAILURES_AT_ONCE - 1, 0));
    let expected = HitCounts { template_unfilled: 20_000, ..HitCounts::default() };
    assert_eq!((bench.trigger.counts(), bench.trigger.counts().total()), (expected, 20_000));
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired", "what fits still does");
}

#[test]
fn a_link_type_that_has_no_such_filter_is_asked_once() {
    let bench = Bench::new(2, |config| {
        config.template = Some(long_template("ether host 02:02:02:02:02:02"));
        config.holdoff_ns = 0;
    });
    let (data, link_type) = (&frame(2)[14..], LinkType::RAW);
    let headers = Headers::parse(link_type, data);
    let hit = Hit { at: Moment::new(0, S), clock_ns: S, link_type, headers: &headers, data, waits_at: None };
    for _ in 0..20_000 {
        assert_eq!(bench.trigger.hit(&hit, &bench.places).name(), "filter_uncompiled");
    }
    let left = bench.trigger.state.lock().unwrap().fits.failures_left();
    assert_eq!((left, bench.trigger.counts().filter_uncompiled), (crate::fits::FAILURES_AT_ONCE - 1, 20_000));
}

#[test]
fn ever_new_values_that_make_no_filter_are_rationed_and_counted() {
    let mut bench = Bench::new(2, |config| {
        config.template = Some(long_template("port {srcPort}0"));
        config.holdoff_ns = 0;
    });
    for port in 10_000..20_000 {
        assert_eq!(bench.hit(100 * S, &frame6(1, port)), "template_unfilled");
    }
    let rationed = 10_000 - u64::from(crate::fits::FAILURES_AT_ONCE);
    assert_eq!((bench.trigger.counts().template_unfilled, bench.trigger.counts().rationed), (10_000, rationed));
    assert_eq!(bench.hit(102 * S, &frame6(1, 8)), "fired", "after a while others are looked at again");
}

#[test]
fn when_there_is_no_place_or_all_dumps_are_made_no_filter_is_compiled() {
    for (limits, expected) in [((1, None), "too_many"), ((8, Some(1)), "disarmed")] {
        let mut bench = Bench::new(8, |config| config.holdoff_ns = 0);
        bench.places.set_limits(limits.0, limits.1);
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        let compile = || panic!("compiled");
        for asker in [Asker::Live, Asker::Waiting(Moment::new(0, 100 * S))] {
            let occurrence = Occurrence {
                hit: Moment::new(0, 200 * S),
                clock_ns: 200 * S,
                values: Ok(Values::everything()),
                shape: None,
                key: None,
                asker,
            };
            assert_eq!(bench.trigger.decide(occurrence, &compile, &bench.places).name(), expected);
        }
    }
}

#[test]
fn without_room_no_dump_begins_and_nothing_is_held_off() {
    let mut bench = Bench::new(2, |config| config.single = true);
    let full = Arc::new(std::sync::atomic::AtomicBool::new(true));
    bench.places.heed(full.clone());
    assert_eq!(bench.hit(100 * S, &frame(2)), "no_space");
    full.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(bench.hit(100 * S + 1, &frame(2)), "fired", "neither held off nor disarmed by what was refused");
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
    let mut bench = Bench::new(8, |config| (config.template, config.after_ns) = (None, 0));
    assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
    assert_eq!(bench.hit(100 * S + 5, &frame(3)), "fired", "another host isn't held off");
    let mut back = frame(2);
    back[26..34].rotate_left(4);
    assert_eq!(bench.hit(100 * S + 9, &back), "held_off", "the same two hosts, whoever sends");
    let mut whole = Bench::new(8, |config| {
        config.holdoff_key = Some(Template::parse("").unwrap());
        config.after_ns = 0;
    });
    assert_eq!((whole.hit(100 * S, &frame(2)), whole.hit(100 * S + 5, &frame(3))), ("fired", "held_off"));
}

#[test]
fn both_directions_are_one_dump() {
    let mut back = frame(2);
    back[26..34].rotate_left(4);
    back[34..38].rotate_left(2);
    for template in [None, Some(Template::parse("$flow").unwrap())] {
        let mut bench = Bench::new(8, |config| config.template = template);
        assert_eq!((bench.hit(100 * S, &frame(2)), bench.hit(100 * S + 5, &back)), ("fired", "extended"));
    }
}

#[test]
fn a_filter_that_the_link_type_can_t_have_is_counted_as_that() {
    let ip = frame(2)[14..].to_vec();
    let headers = Headers::parse(LinkType::RAW, &ip);
    let hit = Hit { at: Moment::new(0, S), clock_ns: S, link_type: LinkType::RAW, headers: &headers, data: &ip, waits_at: None };
    let verdict = |template: &str| {
        let bench = Bench::new(8, |config| config.template = Some(Template::parse(template).unwrap()));
        let verdict = bench.trigger.hit(&hit, &bench.places);
        assert_eq!(bench.trigger.counts().total(), 1, "{template}");
        verdict
    };
    let Verdict::FilterUncompiled { cause } = verdict("ether host 02:02:02:02:02:02 and host $srcIP") else { panic!("compiled") };
    assert!(cause.contains("ethernet addresses supported only on"), "{cause}");
    assert!(matches!(verdict("ip6 host $srcIP"), Verdict::TemplateUnfilled { name: "$srcIP" }));
    assert!(matches!(verdict("host $srcIP"), Verdict::Fired(_)));
}

#[test]
fn a_run_that_has_its_dumps_is_disarmed_and_nothing_is_too_many() {
    let bench = Bench::new(1, |_| {});
    let enough = Places::new(1, S, Some(1));
    let headers = Headers::parse(LinkType::ETHERNET, &[]);
    let at = |time_ns| Hit {
        at: Moment::new(0, time_ns),
        clock_ns: time_ns,
        link_type: LinkType::ETHERNET,
        headers: &headers,
        data: &[],
        waits_at: None,
    };
    let trigger = Trigger::new(TriggerConfig { template: None, after_ns: 0, ..bench.trigger.config().clone() });
    let first = trigger.hit(&at(S), &enough);
    assert_eq!((first.name(), trigger.hit(&at(10 * S), &enough).name()), ("fired", "disarmed"));
}

#[test]
fn holdoff_is_per_key_where_one_is_given() {
    let mut bench = Bench::new(8, |config| {
        config.holdoff_key = Some(Template::parse("$dstIP").unwrap());
        config.after_ns = 0;
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

#[test]
fn a_fire_by_hand_takes_everything_where_the_template_has_names() {
    let bench = Bench::new(8, |_| {});
    let Verdict::Fired(fire) = bench.trigger.fire_by_hand(Moment::new(0, 50 * S), &[LinkType::ETHERNET], &bench.places) else {
        panic!("fires")
    };
    assert_eq!((fire.filter.text(), fire.window.from_ns(), fire.window.to_ns()), ("", 40 * S, 55 * S));
}
