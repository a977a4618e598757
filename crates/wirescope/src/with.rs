//! `wirescope with`: programs that capture with libpcap, in which the device `wirescope` is a group of a running instance.
//!
//! 1. The command line is understood; the program, its libraries and the library that is loaded before them are looked at.
//! 2. The run is asked whether it would let this user in; all faults are said, and nothing was started.
//! 3. The copies are started. They join by themselves, when they open the device.
//! 4. Signals are passed on to all of them until the last has ended.

mod confined;
mod copies;
mod elf;
mod program;

use crate::args::{MemberArgs, WithArgs};
use crate::plan::faults::Faults;
use crate::tap::{Wanted, wanted};
use crate::{NoResult, told};
use copies::Copies;
use program::{Program, in_path};
use scope_config::Settings;
use scope_fault::Fault;
use scope_spelling::printable::shell_word;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The library that is loaded before libpcap.
const LIBRARY: &str = "libwirescope_preload.so";
/// Where it lies, seen from the folder of this binary: in its build, and installed.
const LIBRARY_FOLDERS: [&str; 2] = ["", "../lib/wirescope"];
/// The environment's name for another place of it.
const LIBRARY_IS: &str = "WIRESCOPE_PRELOAD";
/// What the loader loads before all else; it takes apart what stands there at these bytes.
const PRELOAD: &str = "LD_PRELOAD";
const PRELOAD_SEPARATORS: [u8; 3] = [b' ', b':', b'\n'];
/// What the library reads.
const SOCKET: &str = "WIRESCOPE_ATTACH";
const GROUP: &str = "WIRESCOPE_GROUP";
const OPTIONS: &str = "WIRESCOPE_OPTIONS";
/// Copies at most: as many as a group can have members.
const COPIES_MAX: usize = 64;
/// The number of the copy, in its arguments.
const NUMBER: &[u8] = b"%m";

/// What is asked for, understood.
struct Asked {
    copies: usize,
    program: PathBuf,
    words: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

/// Starts the copies. Exit codes: 0 all ended with it, 2 refused, else that of the first one that ended otherwise.
pub fn with(args: &WithArgs) -> u8 {
    match understand(args) {
        Ok(asked) => start(&asked),
        Err(faults) => told(Err(NoResult::Refused(faults))),
    }
}

/// All that can be wrong before anything is started.
fn understand(args: &WithArgs) -> Result<Asked, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let (group, copies) = match args.group.rsplit_once('*') {
        None => (args.group.as_str(), Some(1)),
        Some((group, copies)) => {
            (group, copies.parse().ok().filter(|copies| (1..=COPIES_MAX).contains(copies)))
        }
    };
    if copies.is_none() {
        let fault = Fault::of_thing("GROUP*N").value(&args.group, "has no number of copies behind its '*'");
        faults.add(fault.remedy(format!("write e.g. '{group}*2', at most {COPIES_MAX}")));
    }
    let members = copies.unwrap_or(1) as u16; // at most COPIES_MAX
    let Wanted { path: socket, .. } = wanted(group, &args.member, ("with", members), &mut faults);
    for (key, text) in [("name", &args.member.name), ("class", &args.member.class)] {
        if let Some(text) = text.as_ref().filter(|text| text.contains(',')) {
            faults.add(
                Fault::of(key).value(text, "has a comma, which parts options").remedy("write it without"),
            );
        }
    }
    let (name, words) = args.program.split_first().ok_or_else(Vec::new)?;
    let pipe = pipe(group, &args.member, name);
    let library = find_library().map_err(|fault| faults.add(fault)).ok();
    let program = in_path(name).map_err(|fault| faults.add(fault)).ok();
    if let (Some(program), Some(library)) = (&program, &library)
        && let Err(fault) = Program::read(program).and_then(|program| program.fits(library))
    {
        faults.add(fault.remedy(format!("use the pipe: {pipe}")));
    }
    match (copies, program, library) {
        (Some(copies), Some(program), Some(library)) if faults.is_empty() => {
            let environment = environment(group, &args.member, &socket, &library);
            Ok(Asked { copies, program, words: words.to_vec(), environment })
        }
        _ => Err(faults.into_vec()),
    }
}

/// How the same program gets the same packets without the library.
fn pipe(group: &str, member: &MemberArgs, program: &OsStr) -> String {
    let socket = member.attach.as_ref().map(|socket| format!(" --attach {}", shell_word(socket)));
    format!(
        "wirescope tap {}{} | {} -r -",
        shell_word(group),
        socket.unwrap_or_default(),
        shell_word(program)
    )
}

/// The library of this build, or the installed one.
fn find_library() -> Result<PathBuf, Fault> {
    let fault = |cause: String| Fault::of_thing(LIBRARY).cause(cause);
    let own = env::current_exe().map_err(|error| Fault::of_thing(LIBRARY).error(&error))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let library = match env::var_os(LIBRARY_IS) {
        Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_file()),
        None => {
            LIBRARY_FOLDERS.iter().map(|folder| beside.join(folder).join(LIBRARY)).find(|path| path.is_file())
        }
    };
    let library = library.ok_or_else(|| {
        fault("it is not where it belongs".to_string())
            .remedy("install the package, or make build; or name it in the environment as WIRESCOPE_PRELOAD")
    })?;
    let library = library.canonicalize().map_err(|error| Fault::of_thing(LIBRARY).error(&error))?;
    if library.as_os_str().as_bytes().iter().any(|byte| PRELOAD_SEPARATORS.contains(byte)) {
        let cause = format!("the loader can't load {}: there is a space or a colon in it", library.display());
        return Err(fault(cause).remedy("move it"));
    }
    Ok(library)
}

/// What the copies have in their environment besides that of this process.
fn environment(
    group: &str,
    member: &MemberArgs,
    socket: &Path,
    library: &Path,
) -> Vec<(&'static str, OsString)> {
    let options = [
        ("name", &member.name),
        ("weight", &member.weight),
        ("class", &member.class),
        ("past", &member.past),
    ];
    let options =
        options.iter().filter_map(|(key, value)| value.as_ref().map(|value| format!("{key}={value}")));
    let mut preload = library.as_os_str().to_os_string();
    if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    // The program may go to another folder before it opens the device.
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_path_buf());
    vec![
        (PRELOAD, preload),
        (SOCKET, socket.into_os_string()),
        (GROUP, group.into()),
        (OPTIONS, options.collect::<Vec<_>>().join(",").into()),
    ]
}

/// Starts them, and waits for all; the exit code.
fn start(asked: &Asked) -> u8 {
    let mut copies = match Copies::new() {
        Ok(copies) => copies,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    for number in 0..asked.copies {
        let words = asked.words.iter().map(|word| numbered(word, number));
        if let Err(error) = copies.start(&asked.program, words, &asked.environment) {
            copies.end();
            let fault = Fault::of_thing(asked.program.to_string_lossy()).error(&error);
            return told(Err(NoResult::Refused(vec![fault])));
        }
    }
    copies.wait()
}

/// A word of the command line with the number of the copy.
fn numbered(word: &OsStr, number: usize) -> OsString {
    let (mut rest, mut whole) = (word.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(NUMBER.len()).position(|part| part == NUMBER) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(number.to_string().as_bytes());
        rest = &rest[at + NUMBER.len()..];
    }
    whole.extend_from_slice(rest);
    OsString::from_vec(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_copy_stands_wherever_it_is_asked_for() {
        let check =
            |word: &str, expected: &str| assert_eq!(numbered(OsStr::new(word), 12), expected, "{word}");
        check("out%m", "out12");
        check("%m/%m%", "12/12%");
        check("%%m", "%12");
        check("plain", "plain");
        check("", "");
    }
}
