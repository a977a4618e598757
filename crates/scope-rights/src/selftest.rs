//! A try from inside, in every thread, of what must not be possible any more.

use super::{FolderUse, Rights, Writable, errno, threads};
use rustix::fs::{Mode, OFlags, openat};
use serde_json::{Value, json};
use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// Threads that are looked at.
const THREADS_MAX: usize = 1024;
/// Folders that anybody may write to: one of them in which the run does not write is tried.
const OPEN_TO_ALL: [&str; 3] = ["/var/tmp", "/tmp", "/dev/shm"];
/// What is tried: key, and the error that is due.
const TRIES: [(&str, i32); 6] = [
    ("new_socket", libc::EPERM),
    ("new_packet_socket", libc::EPERM),
    ("write_outside", libc::EACCES),
    ("exec", libc::EPERM),
    ("fork", libc::EPERM),
    ("ptrace", libc::EPERM),
];
/// Lines of a thread's status: key, word there, and what is due.
const STATUS: [(&str, &str, &str); 7] = [
    ("effective", "CapEff", "0000000000000000"),
    ("permitted", "CapPrm", "0000000000000000"),
    ("inheritable", "CapInh", "0000000000000000"),
    ("ambient", "CapAmb", "0000000000000000"),
    ("bounding", "CapBnd", "0000000000000000"),
    ("no_new_privs", "NoNewPrivs", "1"),
    ("seccomp", "Seccomp", "2"),
];

/// The result.
pub struct SelfTest {
    /// For a program: the sum over all threads, and each of them.
    pub facts: Value,
    /// Everything was refused as it should be.
    pub passed: bool,
}

/// What one thread found: errors by [`TRIES`]; 0 where something was possible.
struct Slot {
    thread: AtomicI32,
    errors: [AtomicI32; TRIES.len()],
}

/// Tries everything in every thread. `writable` are the folders of the run.
pub fn run(rights: &Rights, writable: &[Writable<'_>]) -> io::Result<SelfTest> {
    let is_outside = |path: &&&str| {
        writable.iter().all(|writable| writable.folder.path() != Path::new(path)) && Path::new(path).is_dir()
    };
    let outside =
        OPEN_TO_ALL.iter().find(is_outside).ok_or_else(|| io::Error::other("no folder outside to try"))?;
    let outside = CString::new(format!("{outside}/wirescope-selftest-{}", std::process::id()))?;
    let slot = |_| Slot { thread: AtomicI32::new(0), errors: [const { AtomicI32::new(0) }; TRIES.len()] };
    let slots: &'static Vec<Slot> = threads::lasting((0..THREADS_MAX).map(slot).collect());
    let threads = threads::in_each(threads::lasting(move |thread| {
        let is_free = |slot: &&Slot| {
            slot.thread.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        if let Some(slot) = slots.iter().find(is_free) {
            for (error, found) in slot.errors.iter().zip(try_all(&outside)) {
                error.store(found, Ordering::Release);
            }
        }
    }))?;
    let mut passed = true;
    let mut listed = Vec::new();
    for thread in threads {
        let found = slots.iter().find(|slot| slot.thread.load(Ordering::Acquire) == thread);
        let Ok(status) = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")) else {
            continue;
        };
        let (facts, good) = of_thread(thread, &status, found, rights.landlock_abi > 0);
        passed &= good;
        listed.push(facts);
    }
    let inside = writable.iter().try_for_each(|writable| writable.folder.unnamed().map(drop));
    let beside: Vec<[i32; 2]> = writable
        .iter()
        .filter(|writable| writable.folder_use == FolderUse::NewName)
        .map(try_beside)
        .collect();
    passed &= beside.iter().flatten().all(|error| *error == libc::EACCES);
    passed &= inside.is_ok() && rights.landlock_abi > 0 && !listed.is_empty();
    let mut facts = sum(rights, listed, inside.err(), passed);
    if let Some([list, open]) = beside.into_iter().reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1])]) {
        (facts["list_beside"], facts["open_beside"]) = (name_of(list).into(), name_of(open).into());
    }
    Ok(SelfTest { facts, passed })
}

/// Tries, in a folder where the run only gives a file its name, to list what is there, and to open a new
/// file; nothing is left behind.
fn try_beside(writable: &Writable<'_>) -> [i32; 2] {
    let flags = OFlags::CLOEXEC | OFlags::DIRECTORY;
    [OFlags::RDONLY, OFlags::RDWR | OFlags::TMPFILE].map(|how| {
        match openat(writable.folder, ".", flags | how, Mode::RUSR) {
            Ok(_) => 0,
            Err(error) => error.raw_os_error(),
        }
    })
}

/// The worst of each over all threads.
fn sum(rights: &Rights, listed: Vec<Value>, inside: Option<io::Error>, passed: bool) -> Value {
    let mut sum = json!({
        "user": rights.user,
        "capabilities": listed.iter().filter_map(|thread| thread["capabilities"].as_u64()).fold(0, |all, one| all | one),
        "seccomp": listed.iter().filter_map(|thread| thread["seccomp"].as_str()?.parse::<u64>().ok()).min(),
        "landlock": rights.landlock_abi > 0 && listed.iter().all(|thread| thread["write_outside"] == "EACCES"),
        "write_inside": inside.map_or_else(|| "ok".to_string(), |error| error.to_string()),
        "passed": passed,
    });
    for (key, _) in TRIES {
        let mut found: Vec<&Value> = listed.iter().map(|thread| &thread[key]).collect();
        found.dedup();
        sum[key] = if let [one] = found[..] { one.clone() } else { json!(found) };
    }
    sum["threads"] = listed.into();
    sum
}

fn of_thread(thread: threads::Tid, status: &str, found: Option<&Slot>, landlock: bool) -> (Value, bool) {
    let mut facts = json!({"name": threads::name(thread), "capabilities": 0});
    let mut good = found.is_some() && landlock;
    for (key, word, due) in STATUS {
        let value =
            status.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(":")).unwrap_or("").trim();
        facts[key] = value.into();
        // A thread without capabilities can't empty the bounding set; by no_new_privs that set is of no use.
        good &= value == due || key == "bounding";
        if word.starts_with("Cap") && key != "bounding" {
            let bits = u64::from_str_radix(value, 16).unwrap_or(u64::MAX);
            facts["capabilities"] = (facts["capabilities"].as_u64().unwrap_or(0) | bits).into();
        }
    }
    for (at, (key, due)) in TRIES.iter().enumerate() {
        let error = found.map_or(0, |slot| slot.errors[at].load(Ordering::Acquire));
        facts[key] = name_of(error).into();
        good &= error == *due;
    }
    (facts, good)
}

/// Tries everything in the calling thread, in the order of [`TRIES`]; 0 where it was possible. For signal
/// handlers. What is possible although it must not be is undone: closed, removed, ended.
fn try_all(outside: &CString) -> [i32; TRIES.len()] {
    let nothing: *const libc::c_char = std::ptr::null();
    let opened = |handle: libc::c_long| match handle {
        // SAFETY: it was opened just now, and is used nowhere else.
        0.. => unsafe { libc::close(handle as i32) },
        _ => errno(),
    };
    // SAFETY: the paths and the lists of no words outlive the calls; there is no such program, and no process
    // 0 to be traced; a child that is made although none may be ends at once. All else is numbers.
    unsafe {
        let socket = opened(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into());
        let all = i32::from((libc::ETH_P_ALL as u16).to_be());
        let packets = opened(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all).into());
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let file = opened(libc::openat(libc::AT_FDCWD, outside.as_ptr(), flags, 0o600).into());
        if file == 0 {
            libc::unlink(outside.as_ptr());
        }
        libc::execve(c"/nonexistent/program".as_ptr(), &raw const nothing, &raw const nothing);
        let exec = errno();
        let fork = match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
            0 => libc::_exit(0),
            1.. => 0,
            _ => errno(),
        };
        let ptrace = if libc::ptrace(libc::PTRACE_ATTACH, 0, 0, 0) == 0 { 0 } else { errno() };
        [socket, packets, file, exec, fork, ptrace]
    }
}

fn name_of(error: i32) -> String {
    match error {
        0 => "possible".to_string(),
        libc::EPERM => "EPERM".to_string(),
        libc::EACCES => "EACCES".to_string(),
        libc::ENOENT => "ENOENT".to_string(),
        other => format!("errno {other}"),
    }
}
