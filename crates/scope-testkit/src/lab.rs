//! The laboratory: two network namespaces joined by a veth pair, made by a test and gone with it.
//!
//! ```text
//!  namespace a: va ───────── vb :namespace b
//! ```
//! Nothing moves on the link but what the test sends: IPv6 is switched off before the link goes up, ARP is
//! off, there are no addresses. Names carry the process id, so that what a killed run left behind is found
//! and removed by the next one.

pub mod disk;
pub mod witness;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const NAME_PREFIX: &str = "wslab";
const NAMESPACES_AT: &str = "/run/netns";
/// The longest that a link may take to come up.
const LINK_MAX: Duration = Duration::from_secs(120);

/// Why a laboratory can't be had here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped(String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}

/// Two namespaces and the link between them; dropped, all is removed.
#[derive(Debug)]
pub struct Lab {
    a: Namespace,
    b: Namespace,
    links: AtomicU32,
}

impl Lab {
    /// Makes a laboratory with the link `va` - `vb`.
    ///
    /// # Errors
    /// [`Skipped`] says why there is none here: no root, or a kernel without namespaces.
    ///
    /// # Panics
    /// With `CI=true` in the environment, instead of skipping.
    pub fn new() -> Result<Lab, Skipped> {
        Lab::make().map_err(|why| {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "the network lab must work in CI: {why}");
            Skipped(why)
        })
    }

    /// Like [`Lab::new`], but prints the reason, past the test harness's capture.
    pub fn or_skip() -> Option<Lab> {
        Lab::new().map_err(|skipped| drop(writeln!(io::stderr(), "{skipped}"))).ok()
    }

    fn make() -> Result<Lab, String> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        // SAFETY: plain system call.
        if unsafe { libc::geteuid() } != 0 {
            return Err("needs root".to_string());
        }
        remove_leftovers();
        let name =
            format!("{NAME_PREFIX}-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let (a, b) = (Namespace::make(format!("{name}-a"))?, Namespace::make(format!("{name}-b"))?);
        let lab = Lab { a, b, links: AtomicU32::new(0) };
        lab.add_link("va", "vb")?;
        Ok(lab)
    }

    /// The namespace that holds `va`.
    pub fn a(&self) -> &Namespace {
        &self.a
    }

    /// The namespace that holds `vb`.
    pub fn b(&self) -> &Namespace {
        &self.b
    }

    /// One more link between the namespaces; returns the names of its ends in a and b.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn another_link(&self) -> Result<(String, String), String> {
        let number = self.links.fetch_add(1, Ordering::Relaxed) + 1;
        let (end_a, end_b) = (format!("va{number}"), format!("vb{number}"));
        self.add_link(&end_a, &end_b)?;
        Ok((end_a, end_b))
    }

    fn add_link(&self, end_a: &str, end_b: &str) -> Result<(), String> {
        let (a, b) = (&self.a.name, &self.b.name);
        ip(&["link", "add", end_a, "netns", a, "type", "veth", "peer", "name", end_b, "netns", b])?;
        for (namespace, end) in [(&self.a, end_a), (&self.b, end_b)] {
            namespace.enter(|| switch_offloads_off(end));
            namespace.ip(&["link", "set", end, "arp", "off", "up"])?;
        }
        self.wait_for_link(end_a, end_b)
    }

    /// Waits until the kernel passes packets from `end_a` in a to `end_b` in b and back. It notices a link a
    /// while after that came up, on a busy machine a second and more; until then what is sent is lost
    /// silently.
    ///
    /// # Errors
    /// What `ip` said; or that there is no link for minutes.
    pub fn wait_for_link(&self, end_a: &str, end_b: &str) -> Result<(), String> {
        let begun = Instant::now();
        for (namespace, end) in [(&self.a, end_a), (&self.b, end_b)] {
            while !namespace.is_up(end)? {
                if begun.elapsed() > LINK_MAX {
                    return Err(format!("{end} has no link"));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }
}

/// A named network namespace; dropped, it is removed.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn make(name: String) -> Result<Namespace, String> {
        ip(&["netns", "add", &name])?;
        let namespace = Namespace { name };
        namespace.enter(|| {
            for which in ["all", "default"] {
                // A kernel without IPv6 has no such file, and needs none.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
            }
        });
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// As `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` with `arguments` on the inside.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        ip(&[&["-n", self.name.as_str()], arguments].concat()).map(drop)
    }

    /// Whether the kernel has noticed the link of an interface: from then on its queue accepts packets.
    fn is_up(&self, interface: &str) -> Result<bool, String> {
        let words = ip(&["-n", &self.name, "-o", "link", "show", interface])?;
        Ok(words.contains(" state UP ") && words.contains(" qdisc noqueue "))
    }

    /// Runs `task` on a thread inside; sockets that it opens stay inside, wherever they are used.
    ///
    /// # Panics
    /// When `task` does, or when the namespace is gone.
    pub fn enter<T: Send>(&self, task: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            let namespace =
                File::open(Path::new(NAMESPACES_AT).join(&self.name)).expect("the namespace exists");
            // SAFETY: plain system call on a descriptor that lives; it changes this thread only.
            let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(result, 0, "entering {}: {}", self.name, io::Error::last_os_error());
            task()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Namespace {
    /// What `ethtool -K INTERFACE WORD off` does, for the words rx, tx, tso, gso and gro.
    ///
    /// # Errors
    /// The driver's; other words are unsupported.
    pub fn switch_off(&self, interface: &str, word: &str) -> io::Result<()> {
        self.enter(|| switch_off(interface, word))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Runs `ip`; what it says.
fn ip(arguments: &[&str]) -> Result<String, String> {
    let said = |cause: &dyn fmt::Display| format!("ip {}: {cause}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output().map_err(|cause| said(&cause))?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(words(&output.stdout)) } else { Err(said(&words(&output.stderr))) }
}

/// Removes the namespaces of runs whose process is dead.
fn remove_leftovers() {
    let Ok(entries) = std::fs::read_dir(NAMESPACES_AT) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if owner(&name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

/// The process that made the namespace `name`, if it is a laboratory's.
fn owner(name: &str) -> Option<u32> {
    let mut parts = name.split('-');
    (parts.next() == Some(NAME_PREFIX)).then(|| parts.next()?.parse().ok()).flatten()
}

/// Switches off what joins, splits or leaves packets unfinished on the way; what a driver doesn't have it
/// doesn't do.
fn switch_offloads_off(interface: &str) {
    for (word, _) in OFFLOADS {
        let _ = switch_off(interface, word);
    }
}

/// Offloads in ethtool's words, and the orders that set them.
const OFFLOADS: [(&str, u32); 5] = [("rx", 0x15), ("tx", 0x17), ("tso", 0x1f), ("gso", 0x24), ("gro", 0x2c)];

/// Switches an offload of an interface in this thread's namespace off.
fn switch_off(interface: &str, word: &str) -> io::Result<()> {
    let order = OFFLOADS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, order)| *order)
        .ok_or(io::ErrorKind::Unsupported)?;
    let socket = raw_socket()?;
    let mut value: [u32; 2] = [order, 0];
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    write_name(&mut request, interface);
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: these orders read an ethtool_value, two u32, which lives through the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn write_name(request: &mut libc::ifreq, interface: &str) {
    assert!(interface.len() < request.ifr_name.len(), "interface name {interface} is too long");
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
}

/// A packet socket that sends and hears nothing.
fn raw_socket() -> io::Result<OwnedFd> {
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened and that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends frames as they are, link header first.
#[derive(Debug)]
pub struct RawSender {
    socket: OwnedFd,
}

impl RawSender {
    /// Frames handed to the kernel at once.
    const BURST_MAX: usize = 64;

    /// Opens a sender on `interface` of `namespace`.
    ///
    /// # Errors
    /// The system's, for an interface that isn't there.
    pub fn open(namespace: &Namespace, interface: &str) -> io::Result<RawSender> {
        namespace.enter(|| RawSender::open_here(interface))
    }

    fn open_here(interface: &str) -> io::Result<RawSender> {
        let socket = raw_socket()?;
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        write_name(&mut request, interface);
        // SAFETY: the order takes an ifreq, which lives through the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX as _, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        // SAFETY: the kernel filled this member for this request.
        address.sll_ifindex = unsafe { request.ifr_ifru.ifru_ifindex };
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address lives through the call and `len` is its length.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(RawSender { socket })
    }

    /// Sends `frames` as fast as the link allows; returns how many were sent.
    ///
    /// # Errors
    /// The system's, such as ENETDOWN.
    pub fn send<F: AsRef<[u8]>>(&self, frames: &[F]) -> io::Result<u64> {
        let mut sent = 0;
        for burst in frames.chunks(Self::BURST_MAX) {
            sent += self.send_burst(burst)?;
        }
        Ok(sent)
    }

    /// Sends `frames` at `packets_per_second`, a millisecond's share at a time; returns how many were sent.
    ///
    /// # Errors
    /// The system's, such as ENETDOWN.
    pub fn send_paced<F: AsRef<[u8]>>(&self, frames: &[F], packets_per_second: u32) -> io::Result<u64> {
        let share = (packets_per_second / 1000).max(1) as usize;
        let begun = Instant::now();
        let mut sent = 0;
        for (number, part) in frames.chunks(share).enumerate() {
            let due = Duration::from_secs_f64((number * share) as f64 / f64::from(packets_per_second));
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            sent += self.send(part)?;
        }
        Ok(sent)
    }

    fn send_burst<F: AsRef<[u8]>>(&self, frames: &[F]) -> io::Result<u64> {
        let mut parts: Vec<libc::iovec> = frames
            .iter()
            .map(|frame| libc::iovec {
                iov_base: frame.as_ref().as_ptr().cast_mut().cast(),
                iov_len: frame.as_ref().len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: all-zero bytes are a valid mmsghdr.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let mut sent = 0;
        while sent < messages.len() {
            let rest = &mut messages[sent..];
            // SAFETY: messages, their parts and the frames live through the call; sending only reads the
            // frames.
            let count = unsafe {
                libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as libc::c_uint, 0)
            };
            match count {
                0.. => sent += count as usize,
                _ => match io::Error::last_os_error() {
                    cause
                        if matches!(
                            cause.raw_os_error(),
                            Some(libc::EINTR | libc::ENOBUFS | libc::EAGAIN)
                        ) =>
                    {
                        std::thread::yield_now();
                    }
                    cause => return Err(cause),
                },
            }
        }
        Ok(sent as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_labs_own_names_have_an_owner() {
        assert_eq!(owner("wslab-123-0-a"), Some(123));
        assert_eq!(owner("wslab-x-0-a"), None);
        assert_eq!(owner("blue"), None);
    }

    #[test]
    fn a_lab_is_gone_with_its_value() {
        let Some(lab) = Lab::or_skip() else { return };
        let path = Path::new(NAMESPACES_AT).join(lab.a().name());
        assert!(path.exists());
        assert!(lab.a().command("ip").args(["link", "show", "va"]).output().unwrap().status.success());
        drop(lab);
        assert!(!path.exists());
    }
}
