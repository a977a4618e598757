//! Where a process lives: which machine, since which start of it, in which space of process numbers. So a
//! reader of a log elsewhere, or later, doesn't mistake a process that it can't see for a dead one.

/// Home of a process; `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The machine's name.
    pub host: Option<String>,
    /// One start of one machine: the kernel's random name for it.
    pub boot: Option<String>,
    /// The space of process numbers, as `/proc` names it: containers have their own.
    pub processes: Option<String>,
}

/// A home seen from another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// It is here: a process that isn't seen is gone.
    Here,
    /// On this machine, out of sight.
    OutOfSight,
    /// On this machine, before it started again: nothing of it lives.
    BeforeRestart,
    /// On another machine.
    Elsewhere,
    /// It isn't known.
    #[default]
    Unknown,
}

impl Home {
    /// That of this process.
    pub fn here() -> Home {
        let line = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
        Home {
            host: line("/proc/sys/kernel/hostname"),
            boot: line("/proc/sys/kernel/random/boot_id"),
            processes: std::fs::read_link("/proc/self/ns/pid")
                .ok()
                .map(|target| target.to_string_lossy().into_owned()),
        }
    }

    /// This home, seen from `here`. Machines are distinguished by their names, which isn't certain.
    pub fn seen_from(&self, here: &Home) -> Seen {
        match (&self.boot, &here.boot) {
            (None, _) | (_, None) => Seen::Unknown,
            (Some(boot), Some(this)) if boot == this => {
                if self.processes == here.processes {
                    Seen::Here
                } else {
                    Seen::OutOfSight
                }
            }
            _ if self.host.is_some() && self.host == here.host => Seen::BeforeRestart,
            _ => Seen::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(host: &str, boot: &str, processes: &str) -> Home {
        let some = |text: &str| Some(text.to_string());
        Home { host: some(host), boot: some(boot), processes: some(processes) }
    }

    #[test]
    fn a_home_is_told_from_another_machine_container_and_start() {
        let here = home("a", "1", "pid:[1]");
        let check = |there: Home, expected| assert_eq!(there.seen_from(&here), expected, "{there:?}");
        check(here.clone(), Seen::Here);
        check(home("a", "1", "pid:[2]"), Seen::OutOfSight);
        check(home("container", "1", "pid:[2]"), Seen::OutOfSight);
        check(home("a", "2", "pid:[1]"), Seen::BeforeRestart);
        check(home("b", "2", "pid:[1]"), Seen::Elsewhere);
        check(Home::default(), Seen::Unknown);
    }

    #[test]
    fn this_process_knows_its_home() {
        let here = Home::here();
        assert!(here.boot.is_some() && here.processes.is_some(), "{here:?}");
        assert_eq!(here.seen_from(&Home::here()), Seen::Here);
    }
}
