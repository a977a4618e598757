//! Not more than so many questions of a user are answered at once, and all of them stand back behind others.

mod run;

use run::questions::words;
use run::{LIMIT, Place, Started, wait_until};
use scope_testkit::traffic::Conversations;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Questions that are answered at once.
const MOST: usize = 8;
const USER: u32 = 12_345;
const WAITS: &str = "waits: 8 questions are being answered";
/// As `ioprio_get(2)` has it: the class that is usual, its last priority.
const BEST_EFFORT_LAST: i64 = 2 << 13 | 7;

/// Questions of a user who isn't root, with places of their own.
struct Questions {
    place: Place,
    binary: PathBuf,
    user: Option<u32>,
}

impl Questions {
    fn new() -> Questions {
        let place = Place::new();
        let binary = place.binary_for_all();
        place.source(&Conversations { packets: 20_000, seed: 5, ..Conversations::default() }.capture());
        fs::set_permissions(place.path("in.pcapng"), PermissionsExt::from_mode(0o644)).unwrap();
        fs::DirBuilder::new().mode(0o700).create(place.path("run")).unwrap();
        // SAFETY: geteuid takes nothing and always succeeds.
        let user = (unsafe { libc::geteuid() } == 0).then_some(USER);
        chown(place.path("run"), user, user).unwrap();
        Questions { place, binary, user }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("query").args(arguments).current_dir(self.place.root());
        command.env("XDG_RUNTIME_DIR", self.place.path("run")).env("TMPDIR", "/tmp");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    fn count(&self) -> Started {
        Started::new(self.command(&["-r", "in.pcapng", "--count"]))
    }

    fn file(&self, place: usize) -> File {
        let path = self.place.path("run/wirescope").join(format!("question-{place}"));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// Takes all places, which are there once a question was answered.
    fn held(&self) -> Vec<File> {
        let done = self.count().finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(!words(&done.stderr).contains("waits"), "{}", done.stderr);
        let held: Vec<File> = (0..MOST).map(|place| self.file(place)).collect();
        for file in &held {
            file.try_lock().unwrap();
        }
        held
    }

    fn waiting(&self) -> Started {
        let waiting = self.count();
        wait_until(WAITS, || words(&waiting.words()).contains(WAITS));
        waiting
    }
}

#[test]
fn the_ninth_question_waits_until_one_has_ended_however_it_ends() {
    let questions = Questions::new();
    let mut held = questions.held();
    let waiting = questions.waiting();
    drop(held.remove(3));
    let done = waiting.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("20,000 packets, "), "{}", done.stdout);
    // A question that nobody reads the answer of, killed.
    let mut command = questions.command(&["-r", "in.pcapng", "--format", "json"]);
    let mut stuck = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the place is taken", || questions.file(3).try_lock().is_err());
    let mut waiting = questions.waiting();
    assert!(!waiting.has_ended());
    stuck.kill().unwrap();
    stuck.wait().unwrap();
    let done = waiting.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("20,000 packets, "), "{}", done.stdout);
}

#[test]
fn ctrl_c_ends_the_waiting_and_leaves_nothing_behind() {
    let questions = Questions::new();
    let held = questions.held();
    let mut command = questions.command(&["-r", "in.pcapng", "-w", "out.pcapng"]);
    fs::set_permissions(questions.place.root(), PermissionsExt::from_mode(0o777)).unwrap();
    command.stdin(Stdio::null());
    let waiting = Started::new(command);
    wait_until(WAITS, || words(&waiting.words()).contains(WAITS));
    let done = waiting.signal_until_it_ends(libc::SIGINT);
    assert_eq!((done.code(), done.stdout.as_str()), (Some(130), ""), "{}", done.stderr);
    assert!(!questions.place.path("out.pcapng").exists());
    drop(held);
    let done = questions.count().finish(LIMIT);
    assert!(!words(&done.stderr).contains("waits"), "{}", done.stderr);
}

#[test]
fn where_there_are_no_places_and_where_another_question_may_feed_it_none_waits() {
    let questions = Questions::new();
    let _held = questions.held();
    let mut no_places = questions.command(&["-r", "in.pcapng", "--count"]);
    no_places.env("XDG_RUNTIME_DIR", questions.place.path("nowhere"));
    let mut fed = Command::new("sh");
    fed.args(["-c", "cat in.pcapng | \"$0\" query -r - --count"]).arg(&questions.binary);
    fed.current_dir(questions.place.root())
        .env("XDG_RUNTIME_DIR", questions.place.path("run"))
        .env("TMPDIR", "/tmp");
    if let Some(user) = questions.user {
        fed.uid(user).gid(user);
    }
    for command in [no_places, fed] {
        let done = run::finish(command);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(done.stdout.starts_with("20,000 packets, "), "{}", done.stdout);
    }
}

#[test]
fn a_question_stands_back_behind_others_with_processors_and_disks() {
    let questions = Questions::new();
    let _held = questions.held();
    let ioprio = |pid: u32| {
        // SAFETY: takes and returns numbers only; 1 is a process.
        unsafe { libc::syscall(libc::SYS_ioprio_get, 1, pid) }
    };
    let nice = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(16).unwrap().parse::<i64>().unwrap()
    };
    let waiting = questions.waiting();
    assert_eq!((ioprio(waiting.id()), nice(waiting.id())), (BEST_EFFORT_LAST, 19));
    // Who was given a priority that is higher loses it, and who was given the lowest keeps that.
    for (given, kept) in [(2 << 13, BEST_EFFORT_LAST), (3 << 13, 3 << 13)] {
        let mut command = questions.command(&["-r", "in.pcapng", "--count"]);
        let give = move || {
            // SAFETY: takes numbers only; 1 and 0 are this process.
            unsafe { libc::syscall(libc::SYS_ioprio_set, 1, 0, given) };
            Ok(())
        };
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(give) };
        let waiting = Started::new(command);
        wait_until(WAITS, || words(&waiting.words()).contains(WAITS));
        assert_eq!((ioprio(waiting.id()) >> 13, ioprio(waiting.id())), (kept >> 13, kept));
    }
}
