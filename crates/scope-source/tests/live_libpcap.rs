//! Capture through libpcap on an interface that goes down, is renamed, is removed and made again, with rights
//! and without.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_support;

use live_support::{Kept, LIMIT, drop_capabilities, frames, make_again, take_up};
use scope_packet::LinkType;
use scope_source::pcap::{self, PcapSource};
use scope_source::spec::PcapPlan;
use scope_source::{InterfaceCounters, InterfaceState, Polled, Source, SourceError};
use scope_testkit::lab::{Lab, RawSender};
use std::time::Instant;

/// A source that is polled, and all that it has told.
struct Polling {
    source: PcapSource,
    kept: Kept,
    told: Vec<(InterfaceState, String)>,
}

impl Polling {
    fn begin(lab: &Lab, timeout_ms: u32) -> Polling {
        let plan = PcapPlan {
            interface: "va".to_string(),
            snap_len: None,
            promiscuous: true,
            timeout_ms,
            buffer_bytes: 4 << 20,
            exclude_self: false,
            only_in: false,
        };
        let source = lab.a().enter(|| pcap::open(&plan, &[], "pcap:va")).unwrap();
        Polling { source, kept: Kept::default(), told: Vec::new() }
    }

    /// Polls until `done`, which has to come; or until the source fails.
    fn until(&mut self, done: impl Fn(&Polling) -> bool) -> Result<(), SourceError> {
        let begun = Instant::now();
        while !done(self) {
            let polled = self.source.poll(&mut self.kept);
            self.told.extend(self.source.interface_events().into_iter().map(|news| (news.state, news.text)));
            assert_ne!(polled?, Polled::Ended);
            assert!(begun.elapsed() < LIMIT, "{} packets, {:?}", self.kept.packets.len(), self.told);
        }
        Ok(())
    }

    fn has_told(&self, state: &InterfaceState, times: usize) -> bool {
        self.told.iter().filter(|(told, _)| told == state).count() >= times
    }

    fn until_told(&mut self, state: InterfaceState, times: usize) {
        self.until(|polling| polling.has_told(&state, times)).unwrap();
    }

    fn until_received(&mut self, packets: usize) {
        self.until(|polling| polling.kept.packets.len() >= packets).unwrap();
    }

    /// Polls to the end; what the books say then, which has to add up.
    fn end(&mut self) -> InterfaceCounters {
        self.source.stop();
        let begun = Instant::now();
        while self.source.poll(&mut self.kept).unwrap() != Polled::Ended {
            assert!(begun.elapsed() < LIMIT, "it doesn't end");
        }
        self.books()
    }

    fn books(&mut self) -> InterfaceCounters {
        assert_eq!(self.source.warnings(), [""; 0]);
        let mut interfaces = Vec::new();
        self.source.interface_counters(&mut interfaces, &mut Vec::new());
        let entry = interfaces.remove(0);
        let counters = entry.counters;
        assert_eq!((interfaces.len(), counters), (0, self.source.counters()));
        assert_eq!(counters.offered, counters.received + counters.kernel_dropped, "{entry:?}");
        assert_eq!(
            (counters.received, counters.kernel_dropped),
            (self.kept.packets.len() as u64, self.kept.dropped)
        );
        entry
    }
}

fn send(lab: &Lab, frames: &[Vec<u8>]) {
    RawSender::open(lab.b(), "vb").unwrap().send(frames).unwrap();
}

#[test]
fn an_interface_that_goes_down_is_waited_for_and_each_change_is_told() {
    let Some(lab) = Lab::or_skip() else { return };
    let mut polling = Polling::begin(&lab, 4);
    send(&lab, &frames(1, 100, 120));
    polling.until_received(100);
    lab.a().ip(&["link", "set", "va", "down"]).unwrap();
    polling.until_told(InterfaceState::Down, 1);
    lab.a().ip(&["link", "set", "va", "mtu", "9000"]).unwrap();
    polling.until_told(InterfaceState::Mtu(9000), 1);
    take_up(&lab, "va", "vb");
    polling.until_told(InterfaceState::Up, 1);
    send(&lab, &frames(2, 100, 120));
    polling.until_received(200);
    assert_eq!(polling.end().counters.received, 200);
    assert!(polling.kept.of("va") == [frames(1, 100, 120), frames(2, 100, 120)].concat());
}

#[test]
fn with_rights_it_is_captured_again_and_the_last_packets_before_a_removal_are_not_lost() {
    let Some(lab) = Lab::or_skip() else { return };
    // Who opens it again does so from the namespace that it is in.
    lab.a().enter(|| {
        let mut polling = Polling::begin(&lab, 4);
        let lives: Vec<_> = (0..20).map(|life| frames(life, 500, 120)).collect();
        for (life, frames) in lives.iter().enumerate() {
            if life > 0 {
                // Nobody has looked since the last packet was sent.
                make_again(&lab);
                take_up(&lab, "va", "vb");
                polling.until_told(InterfaceState::Back, life);
            }
            send(&lab, frames);
        }
        polling.until_received(20 * 500);
        assert_eq!(polling.end().counters.offered, 20 * 500);
        assert!(polling.kept.of("va") == lives.concat());
        assert_eq!(polling.kept.interfaces.len(), 1, "all its lives are one interface");
        assert!(polling.has_told(&InterfaceState::Gone, 19));
    });
}

#[test]
fn without_rights_it_says_at_once_that_a_removal_is_the_end_and_loses_nothing_before_it() {
    // The longer the system holds packets back, the more of them lie in a block that is still open when the
    // interface goes.
    for timeout_ms in [4, 400] {
        let Some(lab) = Lab::or_skip() else { return };
        let mut polling = Polling::begin(&lab, timeout_ms);
        send(&lab, &frames(1, 500, 120));
        lab.a().ip(&["link", "del", "va"]).unwrap();
        // A thread of its own: the capabilities are gone for good.
        let error = lab.a().enter(|| {
            drop_capabilities();
            polling.until(|_| false).unwrap_err()
        });
        assert!(matches!(error, SourceError::NotAgain { .. }), "{error}");
        assert!(error.to_string().contains("--source 'afpacket:va,spare=1'"), "{error}");
        let states: Vec<_> =
            polling.told.iter().map(|(state, _)| state.name()).filter(|state| *state != "down").collect();
        assert_eq!(states, ["gone", "refused"], "{:?}", polling.told);
        assert_eq!(polling.books().counters.received, 500, "timeout={timeout_ms}ms");
        assert!(polling.kept.of("va") == frames(1, 500, 120));
        assert_eq!(polling.source.poll(&mut polling.kept).unwrap(), Polled::Ended);
    }
}

#[test]
fn a_renamed_interface_is_captured_on_and_one_of_its_first_name_after_it() {
    let Some(lab) = Lab::or_skip() else { return };
    // Who opens it again does so from the namespace that it is in.
    lab.a().enter(|| {
        let mut polling = Polling::begin(&lab, 4);
        lab.a().ip(&["link", "set", "va", "down"]).unwrap();
        lab.a().ip(&["link", "set", "va", "name", "vx"]).unwrap();
        polling.until_told(InterfaceState::Renamed { from: "va".into(), to: "vx".into() }, 1);
        take_up(&lab, "vx", "vb");
        send(&lab, &frames(1, 100, 120));
        polling.until_received(100);
        let entry = polling.books();
        assert_eq!((&entry.interface[..], &entry.called[..]), ("va", "vx"));
        lab.a().ip(&["link", "del", "vx"]).unwrap();
        polling.until_told(InterfaceState::Gone, 1);
        live_support::add_link(&lab, "va", "vb");
        take_up(&lab, "va", "vb");
        polling.until_told(InterfaceState::Back, 1);
        send(&lab, &frames(2, 100, 120));
        polling.until_received(200);
        let entry = polling.end();
        assert_eq!((&entry.interface[..], &entry.called[..], entry.counters.received), ("va", "va", 200));
    });
}

#[test]
fn one_that_comes_back_with_another_link_type_is_another_interface_to_the_sink() {
    let Some(lab) = Lab::or_skip() else { return };
    // Who opens it again does so from the namespace that it is in.
    lab.a().enter(|| {
        let mut polling = Polling::begin(&lab, 4);
        send(&lab, &frames(1, 10, 120));
        lab.a().ip(&["link", "del", "va"]).unwrap();
        polling.until_told(InterfaceState::Gone, 1);
        lab.a().ip(&["tuntap", "add", "dev", "va", "mode", "tun"]).unwrap();
        lab.a().ip(&["link", "set", "va", "up"]).unwrap();
        polling.until_told(InterfaceState::Back, 1);
        polling.until(|polling| polling.kept.interfaces.len() == 2).unwrap();
        let types: Vec<_> = polling.kept.interfaces.iter().map(|interface| interface.link_type).collect();
        assert_eq!(types[0], LinkType::ETHERNET);
        assert_ne!(types[1], LinkType::ETHERNET);
        assert_eq!(polling.end().counters.received, 10);
    });
}
