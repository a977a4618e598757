//! The functions that programs call: for handles of the table they are done here, all others are passed on as they are.
//!
//! What must hold is what libpcap's manual says: texts end with a NUL, places that are written to are there, and a handle belongs
//! to one thread at a time but for `pcap_breakloop` and `pcap_stats`, which take no lock here.

use crate::abi::*;
use crate::handle::{Lent, State, Turn, of_file};
use crate::program::Filter;
use crate::table::{self, Slot};
use crate::{DEVICE, GROUP, real};
use libc::{c_char, c_int, c_void, timeval};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use std::time::Instant;

/// Why no packet can be sent.
const NO_SENDING: &str = "packets can't be sent into a group";
/// A program that polls looks again after this time, whatever it is told.
static LOOK_AGAIN: timeval = timeval { tv_sec: 0, tv_usec: 100_000 };

macro_rules! stood_in_for {
    ($(fn $name:ident($handle:ident $(, $argument:ident: $type:ty)*) -> $back:ty { |$slot:ident| $ours:expr })*) => {$(
        /// libpcap's function of this name.
        ///
        /// # Safety
        /// As its manual says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($handle: Handle $(, $argument: $type)*) -> $back {
            match table::find($handle) {
                Some($slot) => $ours,
                // SAFETY: what the program has passed goes on as it is to the function that it meant.
                None => unsafe { real::$name($handle $(, $argument)*) },
            }
        }
    )*};
}

/// What is done with the handle's state; a handle that was closed meanwhile has failed.
fn with<T>(slot: &Slot, closed: T, act: impl FnOnce(&mut State) -> T) -> T {
    slot.state().as_mut().map_or(closed, act)
}

/// What the handle that libpcap made says of itself.
fn of_known(slot: &Slot, ask: impl FnOnce(Handle) -> c_int) -> c_int {
    with(slot, FAILED, |state| if state.is_active() { ask(state.known()) } else { NOT_ACTIVATED })
}

/// Changes what can be set before it is activated.
fn set(slot: &Slot, change: impl FnOnce(&mut State) -> c_int) -> c_int {
    with(slot, FAILED, |state| if state.is_active() { ACTIVATED } else { change(state) })
}

/// Hands packets to the program: one copy's worth, or `count` of them.
fn read(slot: &Slot, count: c_int, handler: Handler, user: *mut u8) -> c_int {
    let Some(handler) = handler else { return FAILED };
    let (since, mut packets) = (Instant::now(), 0);
    loop {
        // The lock is given back before the program's function runs, which may call for this handle.
        let turn = with(slot, Turn::Failed, |state| state.turn(&slot.signs, packets > 0, since));
        match turn {
            Turn::Packet(Lent { header, data }) => {
                // SAFETY: the program's own function and word; header and bytes stay as they are until it returns.
                unsafe { handler(user, &raw const header, data) };
                packets += 1;
                if packets == count {
                    return packets;
                }
            }
            Turn::UsedUp | Turn::TimedOut => return packets,
            Turn::Broken if packets > 0 => return packets,
            Turn::Broken => {
                slot.signs.take_break();
                return BROKEN;
            }
            Turn::Failed => return FAILED,
        }
    }
}

/// The same until `count` packets were handed out, or for ever.
fn read_all(slot: &Slot, count: c_int, handler: Handler, user: *mut u8) -> c_int {
    let mut left = count;
    loop {
        let packets = read(slot, left, handler, user);
        if packets < 0 {
            return packets;
        }
        if count > 0 {
            left -= packets;
            if left <= 0 {
                return 0;
            }
        }
    }
}

/// One packet; how it went, as `pcap_next_ex` says it.
fn next(slot: &Slot) -> Result<(*mut Header, *const u8), c_int> {
    with(slot, Err(FAILED), |state| match state.turn(&slot.signs, false, Instant::now()) {
        Turn::Packet(Lent { header, data }) => Ok((state.keep(header), data)),
        Turn::UsedUp | Turn::TimedOut => Err(0),
        Turn::Broken => {
            slot.signs.take_break();
            Err(BROKEN)
        }
        Turn::Failed => Err(FAILED),
    })
}

/// Joins the group. After the end of a run it joins it again: the next run has taken its place.
fn activate(slot: &Slot) -> c_int {
    with(slot, FAILED, |state| {
        if state.is_reading() {
            state.fail("it is active already");
            return ACTIVATED;
        }
        if state.settings.monitors {
            return NO_MONITORING;
        }
        let link_type = match state.join() {
            Ok(link_type) => of_file(link_type),
            Err(failed) => return failed,
        };
        if state.is_active() {
            // SAFETY: a handle of libpcap's that is closed with the program's.
            if unsafe { real::pcap_datalink(state.known()) } != link_type {
                state.leave();
                return state.fail("the run that is there now has another link type; open the device again");
            }
            return 0;
        }
        let (snaplen, precision) = (state.settings.snaplen, state.settings.precision as u32);
        // SAFETY: numbers alone.
        let inner = unsafe { real::pcap_open_dead_with_tstamp_precision(link_type, snaplen, precision) };
        if inner.is_null() {
            state.leave();
            return state.fail("libpcap makes no handle of this link type");
        }
        state.activated(inner);
        0
    })
}

/// A filter from now on.
fn set_filter(slot: &Slot, program: *const Program) -> c_int {
    // SAFETY: a program of the caller, by libpcap's manual.
    let filter = unsafe { Filter::copy(program) };
    with(slot, FAILED, |state| match filter {
        _ if !state.is_active() => NOT_ACTIVATED,
        Some(filter) => {
            state.set_filter(filter);
            0
        }
        None => state.fail("the filter is no program"),
    })
}

/// A file for packets of this handle, as libpcap makes it.
fn dump(slot: &Slot, open: impl FnOnce(Handle) -> *mut c_void) -> *mut c_void {
    with(slot, null_mut(), |state| {
        let file = open(state.known());
        if file.is_null() {
            take_error(state);
        }
        file
    })
}

/// What libpcap says of its handle is what the program's handle says.
fn take_error(state: &mut State) {
    // SAFETY: a handle of libpcap's that is closed with the program's; its words end with a NUL.
    let words = unsafe { CStr::from_ptr(real::pcap_geterr(state.known())) }.to_string_lossy().into_owned();
    state.fail(&words);
}

fn close(slot: &Slot) {
    let Some(state) = slot.leave() else { return };
    for handle in state.handles().into_iter().filter(|handle| !handle.is_null()) {
        // SAFETY: a handle that libpcap made for this state, which ends here.
        unsafe { real::pcap_close(handle) };
    }
}

/// Whether the program means the group: a device of its own name, where the environment names a group.
///
/// # Safety
/// `device` is NULL, or ends with a NUL.
unsafe fn is_ours(device: *const c_char) -> bool {
    if device.is_null() || std::env::var_os(GROUP).is_none() {
        return false;
    }
    // SAFETY: not NULL by the comparison, and ended by this function's contract.
    unsafe { CStr::from_ptr(device) }.to_bytes() == DEVICE.as_bytes()
}

/// Writes an error where the program wants it.
///
/// # Safety
/// `to` is NULL, or has [`ERROR_BYTES`].
unsafe fn tell(to: *mut c_char, words: &[u8]) {
    let bytes = words.len().min(ERROR_BYTES - 1);
    if !to.is_null() {
        // SAFETY: so many bytes and a NUL have room by this function's contract.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr(), to.cast::<u8>(), bytes);
            to.add(bytes).write(0);
        }
    }
}

/// A handle of ours that the program may set up; NULL: why not stands in `error`.
///
/// # Safety
/// `error` is NULL, or has [`ERROR_BYTES`].
unsafe fn create(error: *mut c_char) -> Handle {
    // SAFETY: numbers alone.
    let handle = unsafe { real::pcap_open_dead_with_tstamp_precision(ETHERNET, SNAPLEN_MAX, 0) };
    if handle.is_null() {
        // SAFETY: the caller's place for errors.
        unsafe { tell(error, b"libpcap makes no handle") };
        return null_mut();
    }
    if table::enter(handle, State::new(handle)).is_none() {
        let words = format!("there are {} handles of {DEVICE} open; close one", table::HANDLES_MAX);
        // SAFETY: the caller's place for errors; the handle has just been made, and nobody knows it.
        unsafe {
            tell(error, words.as_bytes());
            real::pcap_close(handle);
        }
        return null_mut();
    }
    handle
}

/// libpcap's function of this name.
///
/// # Safety
/// As its manual says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(device: *const c_char, error: *mut c_char) -> Handle {
    // SAFETY: the caller's texts and places, by libpcap's manual.
    unsafe { if is_ours(device) { create(error) } else { real::pcap_create(device, error) } }
}

/// libpcap's function of this name.
///
/// # Safety
/// As its manual says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snaplen: c_int,
    promiscuous: c_int,
    timeout_ms: c_int,
    error: *mut c_char,
) -> Handle {
    // SAFETY: the caller's texts and places, by libpcap's manual.
    unsafe {
        if !is_ours(device) {
            return real::pcap_open_live(device, snaplen, promiscuous, timeout_ms, error);
        }
        let handle = create(error);
        let Some(slot) = table::find(handle) else { return null_mut() };
        set_snaplen(slot, snaplen);
        set(slot, |state| {
            state.settings.timeout_ms = timeout_ms;
            0
        });
        if activate(slot) < 0 {
            let words = with(slot, [0; ERROR_BYTES], |state| *state.error());
            tell(error, &words);
            close(slot);
            return null_mut();
        }
        handle
    }
}

fn set_snaplen(slot: &Slot, bytes: c_int) -> c_int {
    set(slot, |state| {
        state.settings.snaplen = if (1..=SNAPLEN_MAX).contains(&bytes) { bytes } else { SNAPLEN_MAX };
        0
    })
}

/// libpcap's function of this name: the device is one more behind those that there are.
///
/// # Safety
/// As its manual says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(devices: *mut *mut Device, error: *mut c_char) -> c_int {
    // SAFETY: the caller's places, by libpcap's manual.
    let found = unsafe { real::pcap_findalldevs(devices, error) };
    let Some(group) = std::env::var(GROUP).ok().filter(|_| found == 0 && !devices.is_null()) else {
        return found;
    };
    let description = CString::new(format!("group {group} of a run of wirescope")).unwrap_or_default();
    let name = CString::new(DEVICE).unwrap_or_default();
    // SAFETY: libpcap's list ends with NULL, and its parts are what malloc gave: pcap_freealldevs frees all of them.
    unsafe {
        let device = libc::malloc(size_of::<Device>()).cast::<Device>();
        if device.is_null() {
            return found;
        }
        device.write(Device {
            next: null_mut(),
            name: libc::strdup(name.as_ptr()),
            description: libc::strdup(description.as_ptr()),
            addresses: null_mut(),
            flags: UP_AND_RUNNING,
        });
        let mut end = devices;
        while !(*end).is_null() {
            end = &raw mut (**end).next;
        }
        *end = device;
    }
    found
}

/// libpcap's function of this name: as of the device `any`, a group has no network.
///
/// # Safety
/// As its manual says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lookupnet(
    device: *const c_char,
    net: *mut u32,
    mask: *mut u32,
    error: *mut c_char,
) -> c_int {
    // SAFETY: the caller's texts and places, by libpcap's manual.
    unsafe {
        if !is_ours(device) {
            return real::pcap_lookupnet(device, net, mask, error);
        }
        for place in [net, mask].into_iter().filter(|place| !place.is_null()) {
            place.write(0);
        }
    }
    0
}

stood_in_for! {
    fn pcap_activate(handle) -> c_int { |slot| activate(slot) }
    fn pcap_breakloop(handle) -> () { |slot| slot.signs.break_loop() }
    fn pcap_close(handle) -> () { |slot| close(slot) }
    fn pcap_loop(handle, count: c_int, handler: Handler, user: *mut u8) -> c_int {
        |slot| read_all(slot, count, handler, user)
    }
    fn pcap_dispatch(handle, count: c_int, handler: Handler, user: *mut u8) -> c_int {
        |slot| read(slot, count, handler, user)
    }
    fn pcap_next(handle, header: *mut Header) -> *const u8 {
        |slot| next(slot).map_or(null(), |(found, data)| {
            // SAFETY: a place of the caller, by libpcap's manual; the handle's own header is there until the next packet.
            unsafe { header.write(*found) };
            data
        })
    }
    fn pcap_next_ex(handle, header: *mut *mut Header, data: *mut *const u8) -> c_int {
        |slot| match next(slot) {
            Ok((found, bytes)) => {
                // SAFETY: places of the caller, by libpcap's manual.
                unsafe {
                    header.write(found);
                    data.write(bytes);
                }
                1
            }
            Err(code) => code,
        }
    }
    fn pcap_stats(handle, stat: *mut Stat) -> c_int {
        |slot| {
            // SAFETY: a place of the caller, by libpcap's manual.
            unsafe { stat.write(slot.signs.stat()) };
            0
        }
    }
    fn pcap_setfilter(handle, program: *mut Program) -> c_int { |slot| set_filter(slot, program) }
    fn pcap_compile(handle, program: *mut Program, text: *const c_char, optimize: c_int, mask: u32) -> c_int {
        |slot| with(slot, FAILED, |state| {
            if !state.is_active() {
                return state.fail("not-yet-activated pcap_t passed to pcap_compile");
            }
            // SAFETY: what the program has passed, and a handle of libpcap's that is closed with the program's.
            let code = unsafe { real::pcap_compile(state.known(), program, text, optimize, mask) };
            if code < 0 {
                take_error(state);
            }
            code
        })
    }
    fn pcap_setdirection(handle, direction: c_int) -> c_int {
        |slot| with(slot, FAILED, |state| {
            state.settings.direction = direction;
            0
        })
    }
    fn pcap_setnonblock(handle, is_on: c_int, error: *mut c_char) -> c_int {
        |slot| with(slot, FAILED, |state| {
            state.settings.is_nonblocking = is_on != 0;
            0
        })
    }
    fn pcap_getnonblock(handle, error: *mut c_char) -> c_int {
        |slot| with(slot, FAILED, |state| c_int::from(state.settings.is_nonblocking))
    }
    fn pcap_fileno(handle) -> c_int { |slot| with(slot, FAILED, State::descriptor) }
    fn pcap_get_selectable_fd(handle) -> c_int { |slot| with(slot, FAILED, State::descriptor) }
    fn pcap_get_required_select_timeout(handle) -> *const timeval { |_slot| &raw const LOOK_AGAIN }
    fn pcap_file(handle) -> *mut c_void { |_slot| null_mut() }
    fn pcap_geterr(handle) -> *mut c_char {
        // They stay at their place until the handle is closed.
        |slot| with(slot, c"".as_ptr().cast_mut(), |state| state.error().as_ptr().cast_mut().cast())
    }
    fn pcap_perror(handle, prefix: *const c_char) -> () {
        |slot| {
            let error = with(slot, [0; ERROR_BYTES], |state| *state.error());
            let words = CStr::from_bytes_until_nul(&error).unwrap_or_default().to_string_lossy();
            let prefix = if prefix.is_null() { c"" } else {
                // SAFETY: a text of the caller, by libpcap's manual.
                unsafe { CStr::from_ptr(prefix) }
            };
            eprintln!("{}: {words}", prefix.to_string_lossy());
        }
    }
    fn pcap_inject(handle, data: *const c_void, bytes: usize) -> c_int {
        |slot| with(slot, FAILED, |state| state.fail(NO_SENDING))
    }
    fn pcap_sendpacket(handle, data: *const u8, bytes: c_int) -> c_int {
        |slot| with(slot, FAILED, |state| state.fail(NO_SENDING))
    }
    fn pcap_set_snaplen(handle, bytes: c_int) -> c_int { |slot| set_snaplen(slot, bytes) }
    fn pcap_set_timeout(handle, timeout_ms: c_int) -> c_int {
        |slot| set(slot, |state| {
            state.settings.timeout_ms = timeout_ms;
            0
        })
    }
    fn pcap_set_promisc(handle, is_on: c_int) -> c_int { |slot| set(slot, |_| 0) }
    fn pcap_set_buffer_size(handle, bytes: c_int) -> c_int { |slot| set(slot, |_| 0) }
    fn pcap_set_immediate_mode(handle, is_on: c_int) -> c_int { |slot| set(slot, |_| 0) }
    fn pcap_set_protocol_linux(handle, protocol: c_int) -> c_int { |slot| set(slot, |_| 0) }
    fn pcap_can_set_rfmon(handle) -> c_int { |_slot| 0 }
    fn pcap_set_rfmon(handle, is_on: c_int) -> c_int {
        |slot| set(slot, |state| {
            state.settings.monitors = is_on != 0;
            0
        })
    }
    fn pcap_set_tstamp_type(handle, clock: c_int) -> c_int {
        // Times are those of the run: what the system's clock says, as far as a program can choose.
        |slot| set(slot, |_| if clock == 0 { 0 } else { NO_SUCH_CLOCK })
    }
    fn pcap_set_tstamp_precision(handle, precision: c_int) -> c_int {
        |slot| set(slot, |state| match precision {
            0 | NANO => {
                state.settings.precision = precision;
                0
            }
            _ => NO_SUCH_PRECISION,
        })
    }
    fn pcap_get_tstamp_precision(handle) -> c_int {
        |slot| with(slot, FAILED, |state| state.settings.precision)
    }
    fn pcap_datalink(handle) -> c_int {
        // SAFETY: here and in what follows a handle of libpcap's that is closed with the program's.
        |slot| of_known(slot, |known| unsafe { real::pcap_datalink(known) })
    }
    fn pcap_datalink_ext(handle) -> c_int {
        // SAFETY: as above.
        |slot| of_known(slot, |known| unsafe { real::pcap_datalink_ext(known) })
    }
    fn pcap_set_datalink(handle, link_type: c_int) -> c_int {
        |slot| with(slot, FAILED, |state| {
            // SAFETY: as above.
            let code = unsafe { real::pcap_set_datalink(state.known(), link_type) };
            if code < 0 {
                take_error(state);
            }
            code
        })
    }
    fn pcap_list_datalinks(handle, types: *mut *mut c_int) -> c_int {
        // SAFETY: as above, and a place of the caller, by libpcap's manual.
        |slot| of_known(slot, |known| unsafe { real::pcap_list_datalinks(known, types) })
    }
    fn pcap_list_tstamp_types(handle, types: *mut *mut c_int) -> c_int {
        |slot| with(slot, FAILED, |state| {
            // SAFETY: as above.
            unsafe { real::pcap_list_tstamp_types(state.known(), types) }
        })
    }
    fn pcap_snapshot(handle) -> c_int {
        // SAFETY: as above.
        |slot| of_known(slot, |known| unsafe { real::pcap_snapshot(known) })
    }
    fn pcap_bufsize(handle) -> c_int {
        // SAFETY: as above.
        |slot| of_known(slot, |known| unsafe { real::pcap_bufsize(known) })
    }
    fn pcap_is_swapped(handle) -> c_int {
        // SAFETY: as above.
        |slot| of_known(slot, |known| unsafe { real::pcap_is_swapped(known) })
    }
    fn pcap_major_version(handle) -> c_int {
        // SAFETY: as above.
        |slot| of_known(slot, |known| unsafe { real::pcap_major_version(known) })
    }
    fn pcap_minor_version(handle) -> c_int {
        // SAFETY: as above.
        |slot| of_known(slot, |known| unsafe { real::pcap_minor_version(known) })
    }
    fn pcap_dump_open(handle, path: *const c_char) -> *mut c_void {
        // SAFETY: as above.
        |slot| dump(slot, |known| unsafe { real::pcap_dump_open(known, path) })
    }
    fn pcap_dump_open_append(handle, path: *const c_char) -> *mut c_void {
        // SAFETY: as above.
        |slot| dump(slot, |known| unsafe { real::pcap_dump_open_append(known, path) })
    }
    fn pcap_dump_fopen(handle, file: *mut c_void) -> *mut c_void {
        // SAFETY: as above.
        |slot| dump(slot, |known| unsafe { real::pcap_dump_fopen(known, file) })
    }
}
