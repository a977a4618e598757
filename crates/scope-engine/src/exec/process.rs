//! The process that runs commands: begun by a run before that gives up its rights, and with other rights than
//! that.
//!
//! ```text
//!  run ──► keeper ──► helper ──► /bin/sh -c COMMAND ...
//!   1. the keeper is this program, executed anew: nothing of the run's memory, no descriptor but the three standard ones;
//!      its standard input is the run's socket
//!   2. it learns what it is for, opens what Landlock's rules name, becomes the run's user, makes the temporary folder, gives up
//!      every capability and the right to gain any
//!   3. it forks. The helper takes Landlock's rules on: read the dump folder and the system's files, write where that was asked for
//!      and in the temporary folder. It serves the run, and commands inherit its rights
//!   4. the run closes the socket, or dies: the helper kills what runs and ends; the keeper, who may do nothing else, removes
//!      the temporary folder, and ends
//! ```
//! Neither can be looked at by processes of the same user. The keeper takes no orders: it stands outside of
//! the helper's rules only because these don't let the temporary folder be removed from the one above it.

use super::commands::Commands;
use super::orders::{Inbox, Order, Refusal, Setup, Told};
use super::{COMMANDS_PATH, KEPT, PROTECTED};
use crate::own_process::REFUSED;
use scope_rights::{CommandRules, User};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Ended as it should.
const DONE: u8 = 0;
/// The process's own, from its first words on. `run` is the socket, which stands at descriptor 0.
pub(crate) fn serve(mut run: File) -> u8 {
    let mut inbox = Inbox::default();
    let setup = loop {
        match inbox.next_order() {
            Ok(Some(Order::Setup(setup))) => break setup,
            Ok(None) if inbox.fill(&run) => {}
            _ => return REFUSED,
        }
    };
    match begin(&setup) {
        Ok(begun) => keep(run, inbox, setup, begun),
        Err(why) => {
            let _ = run.write_all(&Told::Refused(why).to_frame());
            REFUSED
        }
    }
}

/// What was made while that was still possible.
struct Begun {
    rules: CommandRules,
    temporary: PathBuf,
}

/// Steps 2: everything that is the same for keeper and helper.
fn begin(setup: &Setup) -> Result<Begun, Refusal> {
    let failed = |step: &'static str| move |error: io::Error| Refusal::whole(format!("{step}: {error}"));
    let mut rules = CommandRules::new().map_err(failed("making Landlock's rules"))?;
    rules.system().map_err(failed("making Landlock's rules"))?;
    if let Some(dumps) = &setup.dumps {
        rules
            .read(dumps, setup.dumps_listed)
            .map_err(|error| Refusal::whole(format!("{}: {error}", dumps.display())))?;
    }
    for folder in &setup.writable {
        let refused = |error: io::Error| Refusal {
            folder: Some(folder.clone()),
            ..Refusal::whole(format!("{}: {error}", folder.display()))
        };
        rules.write(folder).map_err(refused)?;
    }
    let user = setup.user.map(|(uid, gid)| User { name: uid.to_string(), uid, gid });
    scope_rights::become_powerless(user.as_ref()).map_err(|error| Refusal::whole(error.to_string()))?;
    let who = User::current();
    for folder in &setup.writable {
        rustix::fs::accessat(
            rustix::fs::CWD,
            folder,
            rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
            rustix::fs::AtFlags::EACCESS,
        )
        .map_err(|error| not_writable(&who, folder, error.into()))?;
    }
    let temporary = make_temporary(&setup.temporary).map_err(|error| Refusal {
        folder: None,
        cause: format!(
            "no temporary folder for its commands can be made in {}: {error}",
            setup.temporary.display()
        ),
        remedy: format!("set TMPDIR to a folder where {} can make one", who.name),
    })?;
    let made = rules.write(&temporary).map_err(failed("making Landlock's rules"));
    if let Err(why) = made {
        let _ = std::fs::remove_dir(&temporary);
        return Err(why);
    }
    Ok(Begun { rules, temporary })
}

fn not_writable(who: &User, folder: &Path, cause: io::Error) -> Refusal {
    let word = scope_spelling::printable::shell_word(folder.as_os_str());
    Refusal {
        folder: Some(folder.to_path_buf()),
        cause: format!("{} can't write to {}: {cause}", who.name, folder.display()),
        remedy: format!("give it to this user by: chown {} {word}", who.name),
    }
}

/// A new folder that is only this user's.
fn make_temporary(parent: &Path) -> io::Result<PathBuf> {
    let template =
        CString::new([parent.as_os_str().as_bytes(), b"/wirescope-exec-XXXXXX"].concat())?.into_raw();
    // SAFETY: the text ends with a NUL and is this function's alone; mkdtemp changes its last six letters.
    // Taken back once.
    let (made, path) = unsafe { (!libc::mkdtemp(template).is_null(), CString::from_raw(template)) };
    if made { Ok(OsString::from_vec(path.into_bytes()).into()) } else { Err(io::Error::last_os_error()) }
}

/// Forks the helper, waits for it, tidies up.
fn keep(run: File, inbox: Inbox, setup: Setup, begun: Begun) -> u8 {
    let Begun { rules, temporary } = begun;
    // SAFETY: this process has one thread, so the child may do everything that this one may.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
            scope_rights::hide();
            help(run, inbox, setup, rules, &temporary)
        }
        -1 => {
            let told = Told::Refused(Refusal::whole(format!(
                "no process for commands: {}",
                io::Error::last_os_error()
            )));
            let _ = (&run).write_all(&told.to_frame());
            let _ = std::fs::remove_dir(&temporary);
            REFUSED
        }
        child => {
            drop(rules);
            let _ = scope_rights::keep_to_removing(&temporary);
            let mut status = 0;
            // SAFETY: the number is one's own, and the status outlives the call.
            while unsafe { libc::waitpid(child, &mut status, 0) } < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            let _ = std::fs::remove_dir_all(&temporary);
            drop(run); // only now the run sees that all is over
            DONE
        }
    }
}

/// Steps 3 and 4, the helper's own.
fn help(mut run: File, mut inbox: Inbox, setup: Setup, rules: CommandRules, temporary: &Path) -> u8 {
    let told = match rules.take_on() {
        Ok(landlock_abi) => Told::Ready { landlock_abi },
        Err(error) => Told::Refused(Refusal::whole(format!("taking on Landlock's rules: {error}"))),
    };
    if run.write_all(&told.to_frame()).is_err() || !matches!(told, Told::Ready { .. }) {
        return REFUSED;
    }
    if let Err(error) = rustix::io::ioctl_fionbio(&run, true) {
        let _ = run.write_all(&Told::Refused(Refusal::whole(error.to_string())).to_frame());
        return REFUSED;
    }
    let mut commands = Commands::new(setup.command, setup.timeout, environment(temporary));
    let mut outbox = Vec::new();
    let ended = loop {
        match inbox.next_order() {
            Ok(Some(Order::Run(job))) if commands.count() < setup.at_once => {
                outbox.extend(commands.begin(&job).iter().flat_map(Told::to_frame));
                continue;
            }
            Ok(Some(Order::EndAll)) => {
                commands.end_all();
                continue;
            }
            Ok(None) => {}
            // More than may run at once, or a second setup, isn't the run's word.
            Ok(Some(_)) | Err(_) => break REFUSED,
        }
        let told = commands.look(run.as_fd(), !outbox.is_empty());
        outbox.extend(told.iter().flat_map(Told::to_frame));
        if !inbox.fill(&run) || !drain(&mut outbox, &run) {
            break DONE;
        }
    };
    commands.kill_all();
    ended
}

/// Writes what the socket takes; whether the run still listens.
fn drain(outbox: &mut Vec<u8>, mut to: &File) -> bool {
    while !outbox.is_empty() {
        match to.write(outbox) {
            Ok(bytes) => drop(outbox.drain(..bytes)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

/// What every command finds in its environment besides the facts: what this process was given, and what is
/// its own.
fn environment(temporary: &Path) -> Vec<(OsString, OsString)> {
    let given = std::env::vars_os().filter(|(name, _)| !PROTECTED.iter().any(|protected| name == protected));
    let mut environment: Vec<(OsString, OsString)> = given.collect();
    if std::env::var_os(KEPT[0]).is_none() {
        environment.push((KEPT[0].into(), COMMANDS_PATH.into()));
    }
    environment.push(("HOME".into(), User::own_home().into()));
    environment.push(("TMPDIR".into(), temporary.into()));
    environment
}
