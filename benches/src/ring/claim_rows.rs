//! Claims and pauses of a writer while readers stall, die and pin.
//!
//! As many disturbing threads as there are cores besides the writer's, never idle, each on a core of its own,
//! as is the writer, disturbed or not: what the scheduler does with threads that it has to sort out first is
//! no pause of the ring's. Where the writer is alone, threads that touch no ring keep those cores as busy: what
//! the host of a guest takes depends on that.
//!
//! ```text
//! pin     a segment somewhere among those that are left, often the very next one to be recycled
//! stall   hold it for a while, spinning
//! die     unwind with pins in hand, or keep one to the end as a reader does that never comes back
//! ```

use super::Stand;
use crate::clocks::{Host, Runs};
use crate::cores::{cores, stay_on};
use crate::figures::percentile;
use crate::table::Table;
use scope_measure::{Feeder, Packets, check_ring};
use scope_ring::{Pinned, Ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The ring of the claims: small segments, because sealing an almost empty one writes all of it.
const RING_BYTES: u64 = 64 << 20;
/// Pins that a disturber holds at a time.
const PINS_MAX: usize = 64;
/// One segment in so many may be kept to the end by readers that never come back.
const DEAD_SHARE: usize = 16;

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    match claims(stand) {
        Ok(claims) => {
            let p9999 =
                percentile(&claims.quiet_us, 99.99).ok_or_else(|| "every claim was preempted".to_string());
            table.put("claim_us", "claims without preemption, 99.99 %", "us", p9999);
            table.put(
                "claim_median_us",
                "claims without preemption",
                "us",
                Ok(percentile(&claims.quiet_us, 50.0).unwrap_or(0.0)),
            );
            table.put("claims_preempted", "counted apart", "claims", Ok(claims.preempted as f64));
        }
        Err(fault) => table.put("claim_us", "claims without preemption, 99.99 %", "us", Err(fault)),
    }
    let order = if table.round().is_multiple_of(2) { [false, true] } else { [true, false] };
    for disturbed in order {
        let of = if disturbed { "with such readers" } else { "alone" };
        let outcome = pause(stand, disturbed);
        table.put(
            "writer_pause_us",
            of,
            "us",
            outcome.as_ref().map(|pause| pause.longest_us).map_err(String::clone),
        );
        table.put(
            "writer_own_pause_us",
            of,
            "us",
            outcome.as_ref().map(|pause| pause.own_us).map_err(String::clone),
        );
        table.put("writer_run_delay_us", of, "us", outcome.map(|pause| pause.run_delay_us));
    }
}

struct Claims {
    quiet_us: Vec<f64>,
    preempted: u64,
}

fn claims(stand: &Stand) -> Result<Claims, String> {
    let (source, events) = (&stand.mixes[0].packets, stand.scale.events);
    let ring = scope_measure::ring(RING_BYTES, Some(64 << 10), 1).map_err(|error| error.to_string())?;
    let mut feeder = Feeder::new(&ring, 0).map_err(|error| error.to_string())?;
    let claims = beside_disturbers(&ring, disturbers(), || {
        let runs = Runs::of_this_thread()?;
        let mut claims = Claims { quiet_us: Vec::with_capacity(events as usize), preempted: 0 };
        for number in 0..events {
            let before = runs.count();
            let begun = Instant::now();
            let claimed = feeder.claim();
            let elapsed = begun.elapsed();
            if !claimed {
                return Err("every segment is pinned, though readers may hold few".to_string());
            }
            match runs.count() == before {
                true => claims.quiet_us.push(elapsed.as_nanos() as f64 / 1e3),
                false => claims.preempted += 1,
            }
            feeder.append_at(source, number, Packets::time_ns(number));
            feeder.seal();
        }
        Ok(claims)
    })?;
    drop(feeder);
    match ring.lane_next(0) {
        opened if opened == events => Ok(claims),
        opened => Err(format!("{opened} segments were opened, {events} claimed")),
    }
}

/// What held a writer up.
struct Pause {
    longest_us: f64,
    /// The longest without what the scheduler and the host took of it.
    own_us: f64,
    /// How long it waited for a core in all.
    run_delay_us: f64,
}

fn pause(stand: &mut Stand, disturbed: bool) -> Result<Pause, String> {
    let source = &stand.mixes[4].packets;
    let feeder = &mut stand.feeders[0];
    feeder.begin();
    let span = stand.scale.span;
    let feed = || {
        let (runs, host) = (Runs::of_this_thread()?, Host::of_processor(cores()[0])?);
        let before = runs.count().0;
        let fed = feeder.feed_for(source, span, || Duration::from_nanos(runs.count().0) + host.took());
        Ok::<_, String>((fed, runs.count().0 - before))
    };
    let (fed, run_delay_ns) = if disturbed {
        beside_disturbers(&stand.ring, disturbers(), feed)
    } else {
        beside(disturbers(), |_, done| spin(done), feed)
    }?;
    check_ring(&stand.ring, feeder.lane(), source, feeder.base(), fed.packets)?;
    let us = |span: Duration| span.as_nanos() as f64 / 1e3;
    Ok(Pause {
        longest_us: us(fed.pause),
        own_us: us(fed.own_pause),
        run_delay_us: run_delay_ns as f64 / 1e3,
    })
}

/// One for each core besides the writer's, at least one.
fn disturbers() -> usize {
    cores().len().saturating_sub(1).max(1)
}

/// Runs `work` on a thread and a core of its own beside so many disturbers; they are gone on return.
fn beside_disturbers<T: Send>(ring: &Arc<Ring>, disturbers: usize, work: impl FnOnce() -> T + Send) -> T {
    beside(disturbers, |index, done| disturb(ring, index as u64, disturbers, done), work)
}

/// Runs `work` on a thread and a core of its own beside so many threads of `other`, which get their number and
/// end when they are told to; they are gone on return.
fn beside<T: Send>(
    others: usize,
    other: impl Fn(usize, &AtomicBool) + Sync,
    work: impl FnOnce() -> T + Send,
) -> T {
    let (cores, done) = (cores(), AtomicBool::new(false));
    let core = |index: usize| cores[index % cores.len()];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..others)
            .map(|index| {
                let (other, done, core) = (&other, &done, core(index + 1));
                scope.spawn(move || {
                    stay_on(core);
                    other(index, done);
                })
            })
            .collect();
        let writer = core(0);
        let result = scope.spawn(move || {
            stay_on(writer);
            work()
        });
        let result = result.join();
        done.store(true, Ordering::Release);
        for thread in threads {
            thread.join().expect("a disturber's unwinding is caught");
        }
        result.expect("the work doesn't panic")
    })
}

fn spin(done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
}

fn disturb(ring: &Arc<Ring>, seed: u64, disturbers: usize, done: &AtomicBool) {
    let mut random = seed + 1;
    let mut draw = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let dead_max = ring.segments() / DEAD_SHARE / disturbers;
    let (mut held, mut dead): (Vec<Pinned>, Vec<Pinned>) = (Vec::new(), Vec::new());
    while !done.load(Ordering::Acquire) {
        let (oldest, next) = (ring.oldest_possible(0), ring.lane_next(0));
        let reach = if draw(2) == 0 { 32 } else { ring.segments() as u64 };
        held.extend(ring.pin(ring.segment_id(0, oldest + draw(reach).min(next.saturating_sub(oldest)))));
        match draw(16) {
            0 => stall(Duration::from_micros(50)),
            1 => die(std::mem::take(&mut held)),
            2 if dead.len() < dead_max => dead.extend(held.pop()),
            _ if held.len() >= PINS_MAX => drop(held.swap_remove(draw(PINS_MAX as u64) as usize)),
            _ => {}
        }
    }
}

fn stall(span: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < span {
        std::hint::spin_loop();
    }
}

/// A reader's end by unwinding: its pins must be given back.
fn die(held: Vec<Pinned>) {
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = held;
        std::panic::resume_unwind(Box::new("a reader dies")); // without the panic hook's words
    }));
    assert!(ended.is_err());
}
