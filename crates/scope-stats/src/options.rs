//! What is asked of statistics, and what can't be meant: found before anything starts, all at once.

use crate::database::Refused;
use crate::failed::Failed;
use crate::head::{Head, interval_ns};
use crate::place::{BESIDE, Every, Place, beside, files};
use crate::schema::VERSION;
use scope_fault::{Fault, Setting, sentence};
use scope_folder::Folder;
use scope_folder::locks::{WHOLE, is_locked};
use scope_machine::disk::disk;
use scope_spelling::figures::size;
use scope_spelling::values::SizeOrShare;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The shortest interval.
pub const INTERVAL_MIN_NS: i64 = 100 * MS;
/// Units, longest first.
const UNITS: [(i64, &str); 7] =
    [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (MS, "ms"), (1000, "us"), (1, "ns")];

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A file, or a folder: see [`Place::of`].
    pub db: PathBuf,
    /// How much capture time a file of a folder has; `None`: a day.
    pub every: Option<Every>,
    /// Length of intervals, ns.
    pub interval_ns: i64,
    /// So many files stay in the folder.
    pub keep: Option<u32>,
    /// What they may take.
    pub budget: Option<u64>,
    /// What stays free on their file system.
    pub min_free: Option<SizeOrShare>,
    /// Flows are written, too.
    pub flow_rows: bool,
}

/// What is wrong with the length of an interval: it is from 100 ms to a day, and divides a day.
pub fn check_interval(length_ns: i64) -> Option<Fault> {
    if (INTERVAL_MIN_NS..=DAY).contains(&length_ns) && DAY % length_ns == 0 {
        return None;
    }
    let fault = Fault::of("db-interval").with_value(spelled(length_ns));
    let is = match length_ns {
        ..INTERVAL_MIN_NS => "is shorter than 100ms".to_string(),
        length_ns if length_ns > DAY => "is longer than a day".to_string(),
        _ => "doesn't divide a day: intervals would begin at other times each day".into(),
    };
    let near = divisor_near(length_ns);
    let remedy = sentence!["write e.g. ", Setting::of("db-interval").example(spelled(near))];
    Some(fault.cause(format!("{} {is}", spelled(length_ns))).remedy(remedy))
}

/// The length that divides a day, and differs least by its ratio: in whole seconds, or in 100 ms.
fn divisor_near(length_ns: i64) -> i64 {
    let step = if length_ns < SECOND { INTERVAL_MIN_NS } else { SECOND };
    let divisors = (1..=DAY / step).map(|count| count * step).filter(|divisor| DAY % divisor == 0);
    let distance = |divisor: i64| (divisor as f64 / length_ns.max(1) as f64).ln().abs();
    divisors.min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(DAY)
}

/// As a flag takes it: `10s`.
fn spelled(length_ns: i64) -> String {
    let fits = |&&(unit, _): &&(i64, &str)| length_ns % unit == 0 && length_ns != 0;
    UNITS.iter().find(fits).map_or("0s".to_string(), |(unit, name)| format!("{}{name}", length_ns / unit))
}

/// Everything that can't be meant, or stands where statistics are to go and isn't what it has to be. Nothing
/// is made or changed.
pub fn check(options: &Options) -> Vec<Fault> {
    let place = Place::of(&options.db);
    let mut faults: Vec<Fault> = check_interval(options.interval_ns).into_iter().collect();
    match &place {
        Place::File(path) => {
            faults.extend(of_folders_only(options));
            faults.extend(check_file(path, options.interval_ns));
        }
        Place::Folder(path) => {
            if options.keep == Some(0) {
                let fault = Fault::of("db-keep").with_value("0").cause("the file that is written stays");
                faults.push(fault.remedy("write at least 1"));
            }
            faults.extend(check_folder(path, options.interval_ns));
            faults.extend(check_free(path, options.min_free));
        }
    }
    faults
}

fn of_folders_only(options: &Options) -> impl Iterator<Item = Fault> {
    let given = [
        ("db-every", options.every.is_some()),
        ("db-keep", options.keep.is_some()),
        ("db-budget", options.budget.is_some()),
        ("db-min-free", options.min_free.is_some()),
    ];
    let folder = format!("{}/", options.db.with_extension("").display());
    let fault = move |key: &str| {
        let fault = Fault::of(key).cause("there is only one file, and it stays");
        let example = Setting::of("db").example(folder.clone());
        fault.remedy(sentence!["write into a folder that is there, e.g. ", example])
    };
    given.into_iter().filter(|(_, is_given)| *is_given).map(move |(key, _)| fault(key))
}

fn check_file(path: &Path, length_ns: i64) -> Option<Fault> {
    let (Some(name), parent) = (path.file_name(), folder_of(path)) else {
        let fault = Fault::of("db").with_value(path.to_string_lossy());
        return Some(fault.cause(format!("{} is no name of a file", path.display())));
    };
    match Folder::open(&parent) {
        Err(error) => Some(no_folder(&parent, &error)),
        Ok(folder) => check_content(&folder, name, path, length_ns, false),
    }
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}

fn check_folder(path: &Path, length_ns: i64) -> Vec<Fault> {
    let folder = match Folder::open(path) {
        Ok(folder) => folder,
        Err(error) => return vec![no_folder(path, &error)],
    };
    match files(&folder) {
        Err(error) => vec![Fault::of("db").error(&error).cause(format!("{}: {error}", path.display()))],
        Ok(files) => files
            .iter()
            .filter(|file| !file.is_damaged)
            .filter_map(|file| {
                check_content(&folder, file.name.as_ref(), &path.join(&file.name), length_ns, true)
            })
            .collect(),
    }
}

/// More than its disk has is never free.
fn check_free(path: &Path, min_free: Option<SizeOrShare>) -> Option<Fault> {
    let (Some(SizeOrShare::Bytes(bytes)), Some(disk)) = (min_free, disk(path)) else { return None };
    let fault = || {
        let is = format!("is not less than its disk has, {}", size(disk.bytes));
        let fault = Fault::of("db-min-free").value(&size(bytes), is);
        fault.remedy(sentence!["write e.g. ", Setting::of("db-min-free").example("10%")])
    };
    (bytes >= disk.bytes).then(fault)
}

fn no_folder(path: &Path, error: &io::Error) -> Fault {
    let shown = path.display();
    let fault = Fault::of("db").with_value(path.to_string_lossy());
    match error.kind() {
        io::ErrorKind::NotFound => {
            fault.cause(format!("there is no folder {shown}")).remedy(format!("make it by: mkdir -p {shown}"))
        }
        _ => fault.error(error).cause(format!("{shown}: {error}")),
    }
}

/// What is wrong with what stands there. Of a folder's files a damaged one is moved aside in its time.
fn check_content(
    folder: &Folder,
    name: &OsStr,
    path: &Path,
    length_ns: i64,
    is_in_folder: bool,
) -> Option<Fault> {
    let head = match Head::read(folder, name) {
        Ok(head) => head,
        Err(error) => {
            let fault = Fault::of("db").with_value(path.to_string_lossy());
            return Some(fault.error(&error).cause(format!("{}: {error}", path.display())));
        }
    };
    let refused = match head {
        Head::Absent => return None,
        Head::Other if is_in_folder => return None,
        Head::Ours if is_written(path) => Refused::Written,
        Head::Ours => Refused::Interval(interval_ns(path).filter(|&found_ns| found_ns != length_ns)?),
        head => Refused::Not(head),
    };
    Some(refused.fault(path))
}

/// Whether another run has its log locked.
pub(crate) fn is_written(path: &Path) -> bool {
    let log = File::open(beside(path, BESIDE[0]));
    log.and_then(|log| is_locked(&log, WHOLE)).unwrap_or(false)
}

impl Refused {
    /// In words for who has named the file.
    pub fn fault(&self, path: &Path) -> Fault {
        let shown = path.display();
        let fault = Fault::of("db").with_value(path.to_string_lossy());
        match self {
            Refused::Not(Head::Newer(version)) => fault
                .cause(format!(
                    "{shown} has tables of version {version}; this program knows those of version {VERSION}"
                ))
                .remedy("use that version, or choose another name"),
            Refused::Not(Head::Foreign) => {
                fault.cause(format!("{shown} is a database of another program")).remedy("choose another name")
            }
            Refused::Not(_) => {
                fault.cause(format!("{shown} is no database of statistics")).remedy("choose another name")
            }
            Refused::Interval(found_ns) => {
                let found = Setting::of("db-interval").example(spelled(*found_ns));
                fault.cause(format!("{shown} has intervals of {}", spelled(*found_ns))).remedy(sentence![
                    "write ",
                    found,
                    ", or choose another name"
                ])
            }
            Refused::Written => fault
                .cause(format!("{shown} is written by another run"))
                .remedy("stop that one, or choose another name"),
            Refused::Failed(failed) => {
                let fault = fault.error(failed).cause(failed.to_string());
                match failed {
                    Failed::Damaged { .. } => {
                        fault.remedy("move it away with its -wal and -shm, or choose another name")
                    }
                    Failed::Locked { .. } => fault.remedy("end that program, or choose another name"),
                    Failed::DiskFull { .. } => fault.remedy("free some space, or choose another disk"),
                    Failed::WalTooLarge { .. } | Failed::Io { .. } => fault,
                }
            }
        }
    }
}
