//! Other queues as carriers of one word: crates, and what `scripts/fetch-peers.sh` has unpacked.

use std::sync::Arc;

/// The pushing end, used by one thread.
pub trait Producer: Send {
    /// False: full.
    fn push(&mut self, word: u64) -> bool;
}

/// The popping end, used by one thread.
pub trait Consumer: Send {
    /// `None`: empty.
    fn pop(&mut self) -> Option<u64>;
}

/// Both ends.
pub type Ends = (Box<dyn Producer>, Box<dyn Consumer>);

/// A queue: its name, and both its ends for a capacity that is a power of two; `None` where it wasn't to be
/// had.
///
/// Called through `dyn`: once for 64 packets, which is nothing.
pub struct Peer {
    pub name: &'static str,
    pub make: Option<fn(usize) -> Ends>,
}

/// All of them.
pub const PEERS: [Peer; 5] = [
    Peer { name: "rtrb", make: Some(rtrb) },
    Peer { name: "crossbeam ArrayQueue", make: Some(array_queue) },
    Peer { name: "crossbeam channel", make: Some(channel) },
    Peer { name: "moodycamel", make: MOODYCAMEL },
    Peer { name: "rte_ring", make: RTE_RING },
];

fn rtrb(capacity: usize) -> Ends {
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    (Box::new(producer), Box::new(consumer))
}

impl Producer for rtrb::Producer<u64> {
    fn push(&mut self, word: u64) -> bool {
        rtrb::Producer::push(self, word).is_ok()
    }
}

impl Consumer for rtrb::Consumer<u64> {
    fn pop(&mut self) -> Option<u64> {
        rtrb::Consumer::pop(self).ok()
    }
}

type ArrayQueue = crossbeam_queue::ArrayQueue<u64>;

fn array_queue(capacity: usize) -> Ends {
    let queue = Arc::new(ArrayQueue::new(capacity));
    (Box::new(queue.clone()), Box::new(queue))
}

impl Producer for Arc<ArrayQueue> {
    fn push(&mut self, word: u64) -> bool {
        ArrayQueue::push(self, word).is_ok()
    }
}

impl Consumer for Arc<ArrayQueue> {
    fn pop(&mut self) -> Option<u64> {
        ArrayQueue::pop(self)
    }
}

fn channel(capacity: usize) -> Ends {
    let (sender, receiver) = crossbeam_channel::bounded(capacity);
    (Box::new(sender), Box::new(receiver))
}

impl Producer for crossbeam_channel::Sender<u64> {
    fn push(&mut self, word: u64) -> bool {
        self.try_send(word).is_ok()
    }
}

impl Consumer for crossbeam_channel::Receiver<u64> {
    fn pop(&mut self) -> Option<u64> {
        self.try_recv().ok()
    }
}

#[cfg(any(peer_moodycamel, peer_rte_ring))]
mod foreign {
    //! Queues behind four C functions; see `shim/`.

    use super::{Consumer, Ends, Producer};
    use std::ffi::c_void;
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// The four functions.
    pub struct Functions {
        pub new: unsafe extern "C" fn(usize) -> *mut c_void,
        pub free: unsafe extern "C" fn(*mut c_void),
        pub push: unsafe extern "C" fn(*mut c_void, u64) -> bool,
        pub pop: unsafe extern "C" fn(*mut c_void, *mut u64) -> bool,
    }

    struct Queue {
        raw: NonNull<c_void>,
        functions: &'static Functions,
    }

    // SAFETY: the queue is made for one pushing and one popping thread, and the two ends below are all that
    // reaches it.
    unsafe impl Send for Queue {}
    // SAFETY: as above: `push` and `pop` don't exclude each other.
    unsafe impl Sync for Queue {}

    impl Drop for Queue {
        fn drop(&mut self) {
            // SAFETY: made by `new` of the same functions, and given up by both ends.
            unsafe { (self.functions.free)(self.raw.as_ptr()) };
        }
    }

    struct Push(Arc<Queue>);
    struct Pop(Arc<Queue>);

    /// Both ends of a new queue.
    pub fn ends(functions: &'static Functions, capacity: usize) -> Ends {
        // SAFETY: a plain allocation; null is refused below.
        let raw = NonNull::new(unsafe { (functions.new)(capacity) }).expect("memory for a queue");
        let queue = Arc::new(Queue { raw, functions });
        (Box::new(Push(queue.clone())), Box::new(Pop(queue)))
    }

    impl Producer for Push {
        fn push(&mut self, word: u64) -> bool {
            // SAFETY: the queue lives; this is its only pushing end, and `&mut` keeps it to one thread at a
            // time.
            unsafe { (self.0.functions.push)(self.0.raw.as_ptr(), word) }
        }
    }

    impl Consumer for Pop {
        fn pop(&mut self) -> Option<u64> {
            let mut word = 0;
            // SAFETY: as for pushing; `word` outlives the call.
            unsafe { (self.0.functions.pop)(self.0.raw.as_ptr(), &mut word) }.then_some(word)
        }
    }
}

#[cfg(peer_moodycamel)]
const MOODYCAMEL: Option<fn(usize) -> Ends> = Some(|capacity| {
    // SAFETY: these are the functions that the peer's shim in `benches/peers` defines, with the same types.
    unsafe extern "C" {
        fn moodycamel_new(capacity: usize) -> *mut std::ffi::c_void;
        fn moodycamel_free(pair: *mut std::ffi::c_void);
        fn moodycamel_push(pair: *mut std::ffi::c_void, word: u64) -> bool;
        fn moodycamel_pop(pair: *mut std::ffi::c_void, word: *mut u64) -> bool;
    }
    static FUNCTIONS: foreign::Functions = foreign::Functions {
        new: moodycamel_new,
        free: moodycamel_free,
        push: moodycamel_push,
        pop: moodycamel_pop,
    };
    foreign::ends(&FUNCTIONS, capacity)
});
#[cfg(not(peer_moodycamel))]
const MOODYCAMEL: Option<fn(usize) -> Ends> = None;

#[cfg(peer_rte_ring)]
const RTE_RING: Option<fn(usize) -> Ends> = Some(|capacity| {
    // SAFETY: these are the functions that the peer's shim in `benches/peers` defines, with the same types.
    unsafe extern "C" {
        fn peer_rte_ring_new(capacity: usize) -> *mut std::ffi::c_void;
        fn peer_rte_ring_free(ring: *mut std::ffi::c_void);
        fn peer_rte_ring_push(ring: *mut std::ffi::c_void, word: u64) -> bool;
        fn peer_rte_ring_pop(ring: *mut std::ffi::c_void, word: *mut u64) -> bool;
    }
    static FUNCTIONS: foreign::Functions = foreign::Functions {
        new: peer_rte_ring_new,
        free: peer_rte_ring_free,
        push: peer_rte_ring_push,
        pop: peer_rte_ring_pop,
    };
    foreign::ends(&FUNCTIONS, capacity)
});
#[cfg(not(peer_rte_ring))]
const RTE_RING: Option<fn(usize) -> Ends> = None;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_gives_back_what_it_was_given_in_order_and_has_a_bound() {
        for peer in PEERS {
            let Some(make) = peer.make else { continue };
            let (mut producer, mut consumer) = make(64);
            assert_eq!(consumer.pop(), None, "{}", peer.name);
            let pushed = (1..100_000).take_while(|&word| producer.push(word)).count() as u64;
            assert!((63..10_000).contains(&pushed), "{} took {pushed}", peer.name);
            assert!((1..=pushed).all(|word| consumer.pop() == Some(word)), "{}", peer.name);
            assert_eq!(consumer.pop(), None, "{}", peer.name);
        }
    }
}
