//! The same task in every thread of the process: what Linux keeps per thread can only be given up by each
//! thread itself.
//!
//! ```text
//!  for each thread that /proc/self/task lists and that hasn't answered: signal it, wait for its answer
//!  until a listing has no new thread
//! ```
//! A task runs in a signal handler. It allocates nothing, takes no lock and only makes system calls.

use std::io;
use std::mem::zeroed;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// A thread's number in the system.
pub type Tid = i32;

/// A thread that doesn't answer for so long is an error. Long, since a process may be stopped by hand
/// meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks for an answer.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// Listings at most, until one has no new thread.
const LISTINGS_MAX: u32 = 100;

/// What every thread does.
type Task = &'static (dyn Fn(Tid) + Sync);

/// The task at hand, null while there is none.
static TASK: AtomicPtr<Task> = AtomicPtr::new(std::ptr::null_mut());
/// Who answered last.
static ANSWERED: AtomicI32 = AtomicI32::new(0);
/// One task at a time.
static ONE: Mutex<()> = Mutex::new(());
/// Keeps a value for as long as the process lives: a late answer must find it. A few hundred bytes, two or
/// three times a process.
pub fn lasting<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Runs `task` in every thread, this one last; their numbers.
///
/// # Errors
/// A thread doesn't answer, or new threads come faster than they are signalled.
pub fn in_each(task: &'static (impl Fn(Tid) + Sync)) -> io::Result<Vec<Tid>> {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let task: &'static mut Task = Box::leak(Box::new(task));
    TASK.store(task, Ordering::Release);
    let before = install(answer as *const () as usize)?;
    let this = this_thread();
    let mut answered = Vec::new();
    for _ in 0..LISTINGS_MAX {
        let new: Vec<Tid> =
            listed()?.into_iter().filter(|thread| *thread != this && !answered.contains(thread)).collect();
        if new.is_empty() {
            // SAFETY: `before` is what the system itself gave; nothing else of this process takes this
            // signal.
            unsafe { libc::sigaction(signal(), &before, std::ptr::null_mut()) };
            TASK.store(std::ptr::null_mut(), Ordering::Release);
            task(this);
            answered.push(this);
            return Ok(answered);
        }
        for thread in new {
            run_in(thread)?;
            answered.push(thread);
        }
    }
    Err(io::Error::other("new threads come faster than they are signalled"))
}

/// Signals one thread and waits until it has done the task, or has ended.
fn run_in(thread: Tid) -> io::Result<()> {
    ANSWERED.store(0, Ordering::Release);
    // SAFETY: takes numbers only. The handler is installed; a thread that has ended is an error, not another
    // thread.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) };
    if sent < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) };
    }
    let since = Instant::now();
    while ANSWERED.load(Ordering::Acquire) != thread {
        if since.elapsed() > ANSWER_MAX {
            return Err(io::Error::other(format!("thread {thread} ({}) doesn't answer", name(thread))));
        }
        std::thread::sleep(LOOK_EVERY);
        if !std::path::Path::new(&format!("/proc/self/task/{thread}")).exists() {
            return Ok(());
        }
    }
    Ok(())
}

/// The signal that starts the task: the last one, which no program uses.
fn signal() -> libc::c_int {
    libc::SIGRTMAX()
}

fn install(handler: usize) -> io::Result<libc::sigaction> {
    // SAFETY: all bytes zero is a sigaction without flags and with an empty mask.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { (zeroed(), zeroed()) };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: both live through the call; the handler is `answer`, which does only what handlers may.
    match unsafe { libc::sigaction(signal(), &action, &mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The signal's handler. One that comes from outside while no task is at hand does nothing.
extern "C" fn answer(_: libc::c_int) {
    let task = TASK.load(Ordering::Acquire);
    if task.is_null() {
        return;
    }
    // SAFETY: what TASK points to was leaked, so it lives for ever, and nothing changes it; `errno` is this
    // thread's own, and the code that was interrupted finds it unchanged.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let thread = this_thread();
        (*task)(thread);
        ANSWERED.store(thread, Ordering::Release);
        *errno = kept;
    }
}

fn this_thread() -> Tid {
    // SAFETY: takes nothing and never fails.
    unsafe { libc::gettid() }
}

fn listed() -> io::Result<Vec<Tid>> {
    let entries = std::fs::read_dir("/proc/self/task")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// A thread's name, for words.
pub fn name(thread: Tid) -> String {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"))
        .unwrap_or_default()
        .trim_end()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier};

    #[test]
    fn every_thread_does_the_task_once_also_those_that_sleep_wait_or_compute() {
        let stop = Arc::new(AtomicBool::new(false));
        let ready = Arc::new(Barrier::new(4));
        let (release, released) = channel::<()>();
        let (at, until) = (ready.clone(), stop.clone());
        let computes = std::thread::spawn(move || {
            at.wait();
            while !until.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            this_thread()
        });
        let at = ready.clone();
        let waits = std::thread::spawn(move || {
            at.wait();
            let _ = released.recv();
            this_thread()
        });
        let (at, until) = (ready.clone(), stop.clone());
        let sleeps = std::thread::spawn(move || {
            at.wait();
            while !until.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_secs(1));
            }
            this_thread()
        });
        ready.wait();
        let done: &'static Mutex<Vec<Tid>> = lasting(Mutex::new(Vec::with_capacity(1000)));
        // A lock is taken by one thread at a time here: each is signalled when the one before has answered.
        let answered = in_each(lasting(move |thread| done.lock().unwrap().push(thread))).unwrap();
        stop.store(true, Ordering::Relaxed);
        drop(release);
        let threads =
            [computes.join().unwrap(), waits.join().unwrap(), sleeps.join().unwrap(), this_thread()];
        let done = done.lock().unwrap().clone();
        for thread in threads {
            assert_eq!(done.iter().filter(|&&one| one == thread).count(), 1, "{done:?}");
            assert!(answered.contains(&thread));
        }
    }
}
