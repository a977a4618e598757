//! What a card, its driver and the kernel's queue behind it counted since a run began; beside the
//! packet accounting, not in it.

use super::{Ethtool, sys_folder};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's counters of an interface, as `/sys/class/net/NAME/statistics` calls them: packets, but
/// `rx_bytes`.
const NAMES: [&str; 11] = [
    "rx_packets",
    "rx_bytes",
    "rx_dropped",
    "rx_errors",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_length_errors",
    "rx_nohandler",
    "tx_packets",
];
/// Of a driver's own counters those that speak of received packets that didn't get through.
const LOSS_WORDS: [&str; 9] =
    ["drop", "miss", "discard", "no_buf", "nobuf", "out_of_buf", "overrun", "overflow", "fifo"];
/// Of these at most so many are followed.
const DRIVER_COUNTERS_MAX: usize = 64;

/// The counters of one interface, since they were first read. An interface that goes and comes again begins
/// at 0 anew: its counts are added.
pub struct NicCounters {
    name: String,
    /// One for each of [`NAMES`], held open: they can be read when nothing can be opened any more.
    files: Vec<Option<File>>,
    kernel: Growth,
    driver: Growth,
}

impl NicCounters {
    /// Begins with the interface named `name`.
    pub fn begin(name: &str, ethtool: Option<&mut Ethtool>) -> NicCounters {
        let mut counters = NicCounters {
            name: name.to_string(),
            files: Vec::new(),
            kernel: Growth::default(),
            driver: Growth::default(),
        };
        counters.look(ethtool);
        counters
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads them again. What can't be read (the interface is gone) stays as it was.
    pub fn look(&mut self, mut ethtool: Option<&mut Ethtool>) {
        if self.read_kernel().is_none() {
            self.open(ethtool.as_deref_mut());
            self.read_kernel();
        }
        if let Some(Ok(own)) = ethtool.map(|ethtool| ethtool.counters(&self.name)) {
            let losses = own.into_iter().filter(|(name, _)| tells_of_loss(name)).take(DRIVER_COUNTERS_MAX);
            self.driver.read(losses);
        }
    }

    /// The kernel's counters, grown since the beginning; empty where `/sys` has none.
    pub fn kernel(&self) -> &BTreeMap<String, u64> {
        &self.kernel.since
    }

    /// Those of the driver's own counters that count losses, grown since the beginning; empty where it has
    /// none.
    pub fn driver(&self) -> &BTreeMap<String, u64> {
        &self.driver.since
    }

    fn open(&mut self, ethtool: Option<&mut Ethtool>) {
        let index = ethtool.and_then(|ethtool| ethtool.link(&self.name).ok()).map(|link| link.index);
        let Some(folder) = index.and_then(|index| sys_folder(&self.name, index)) else { return };
        self.files = NAMES.iter().map(|name| File::open(folder.join("statistics").join(name)).ok()).collect();
    }

    /// `None` where nothing can be read.
    fn read_kernel(&mut self) -> Option<()> {
        let values: Vec<(String, u64)> = NAMES
            .iter()
            .zip(&self.files)
            .filter_map(|(name, file)| Some((name.to_string(), read_number(file.as_ref()?)?)))
            .collect();
        if values.is_empty() {
            return None;
        }
        self.kernel.read(values);
        Some(())
    }
}

fn tells_of_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !name.starts_with("tx") && !name.contains("_tx_") && LOSS_WORDS.iter().any(|word| name.contains(word))
}

fn read_number(file: &File) -> Option<u64> {
    let mut bytes = [0; 32];
    let len = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..len]).ok()?.trim().parse().ok()
}

/// Counters that only grow, and how much they have grown.
#[derive(Default)]
struct Growth {
    last: BTreeMap<String, u64>,
    since: BTreeMap<String, u64>,
}

impl Growth {
    /// Takes a reading. The first of each counter is where it begins; one that is smaller than before has
    /// begun again.
    fn read(&mut self, values: impl IntoIterator<Item = (String, u64)>) {
        for (name, now) in values {
            let grown = match self.last.get(&name) {
                None => 0,
                Some(&last) if now >= last => now - last,
                Some(_) => now,
            };
            *self.since.entry(name.clone()).or_default() += grown;
            self.last.insert(name, now);
        }
    }
}

/// The kernel's queue between cards and sockets, of all processors and network namespaces together, since the
/// machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets dropped because the queue of a processor was full.
    pub dropped: u64,
    /// Times that a processor had to stop with packets left to fetch.
    pub squeezed: u64,
}

impl Softnet {
    /// Reads it now; `None` where the kernel doesn't report it.
    pub fn now() -> Option<Softnet> {
        Softnet::parse(&std::fs::read_to_string("/proc/net/softnet_stat").ok()?)
    }

    /// What grew since `before`.
    pub fn since(self, before: Softnet) -> Softnet {
        Softnet {
            dropped: self.dropped.saturating_sub(before.dropped),
            squeezed: self.squeezed.saturating_sub(before.squeezed),
        }
    }

    /// A line per processor, hexadecimal: packets, dropped, squeezed.
    pub(crate) fn parse(text: &str) -> Option<Softnet> {
        let mut sum = Softnet::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().skip(1).map(|word| u64::from_str_radix(word, 16));
            sum.dropped = sum.dropped.saturating_add(words.next()?.ok()?);
            sum.squeezed = sum.squeezed.saturating_add(words.next()?.ok()?);
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_behind_the_cards_is_summed_over_processors() {
        let text = "03d7f76e 0000000a 00000001 00000000\n0337172a 00000010 00000002 00000000\n";
        assert_eq!(Softnet::parse(text), Some(Softnet { dropped: 26, squeezed: 3 }));
        assert_eq!(Softnet::parse("nonsense"), None);
        let most = "0 ffffffffffffffff 0\n0 1 0\n";
        assert_eq!(
            Softnet::parse(most),
            Some(Softnet { dropped: u64::MAX, squeezed: 0 }),
            "no sum runs over"
        );
        assert!(Softnet::now().is_some());
    }

    #[test]
    fn a_counter_that_begins_again_is_added() {
        let mut growth = Growth::default();
        let mut read = |value| growth.read([("rx_dropped".to_string(), value)]);
        read(100);
        read(130);
        read(5);
        read(6);
        assert_eq!(growth.since["rx_dropped"], 36);
    }

    #[test]
    fn of_a_drivers_counters_those_of_received_packets_that_were_lost_are_followed() {
        let check = |name, expected| assert_eq!(tells_of_loss(name), expected, "{name}");
        check("rx_missed_errors", true);
        check("rx_no_buffer_count", true);
        check("rx0_xdp_drops", true);
        check("rx_out_of_buffer", true);
        check("port.rx_discards", true);
        check("tx_dropped", false);
        check("rx_packets", false);
    }

    #[test]
    fn counters_begin_at_nothing() {
        let mut ethtool = Ethtool::open().unwrap();
        let mut counters = NicCounters::begin("lo", Some(&mut ethtool));
        assert_eq!(counters.kernel().len(), NAMES.len());
        assert!(counters.kernel().values().all(|&value| value == 0));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"one", socket.local_addr().unwrap()).unwrap();
        counters.look(Some(&mut ethtool));
        assert!(counters.kernel()["rx_packets"] >= 1);
        assert!(NicCounters::begin("no-such-iface0", Some(&mut ethtool)).kernel().is_empty());
    }
}
