//! Whether AppArmor keeps a program to a profile, in which it could reach neither the library nor the run.
//!
//! The kernel lists the profiles that are in force by their names. A name is the path that it holds for, or stands before that
//! in the file of the profile. What can't be read is taken for none.

use std::path::Path;

/// Profiles that are loaded, each with its mode.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// Files of profiles.
const FILES: &str = "/etc/apparmor.d";
/// Bytes of a file that are looked at.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The profile that is in force for a program.
pub fn profile_of(program: &Path) -> Option<String> {
    let loaded = std::fs::read_to_string(LOADED).ok()?;
    let files = std::fs::read_dir(FILES).into_iter().flatten().flatten();
    let files =
        files.filter(|file| file.metadata().is_ok_and(|it| it.is_file() && it.len() <= FILE_BYTES_MAX));
    let files: Vec<String> = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    in_force(&program.to_string_lossy(), &loaded, &files)
}

/// The same of what stands there.
fn in_force(program: &str, loaded: &str, files: &[String]) -> Option<String> {
    let enforced = loaded.lines().filter_map(|line| line.trim_end().strip_suffix(" (enforce)"));
    enforced.map(str::to_string).find(|name| {
        let of_name = name.starts_with('/') && matches(name, program);
        of_name || files.iter().any(|file| paths_of(name, file).any(|path| matches(path, program)))
    })
}

/// The paths for which a profile of this name holds, by its file: `profile NAME PATH flags=(...) {`.
fn paths_of<'a>(name: &'a str, file: &'a str) -> impl Iterator<Item = &'a str> {
    let begins = file.lines().map(str::trim).filter(|line| line.ends_with('{'));
    begins.filter_map(move |line| {
        let mut words = line.strip_prefix("profile ")?.split_whitespace();
        let is_it = words.next()?.trim_matches('"') == name;
        words.next().filter(|path| is_it && path.starts_with('/'))
    })
}

/// Whether a pattern of AppArmor's, with `*`, `**`, `?` and `{a,b}`, is this path.
fn matches(pattern: &str, path: &str) -> bool {
    if let Some((before, rest)) = pattern.split_once('{')
        && let Some((choices, after)) = rest.split_once('}')
    {
        return choices.split(',').any(|choice| matches(&format!("{before}{choice}{after}"), path));
    }
    is_one(pattern.as_bytes(), path.as_bytes())
}

fn is_one(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => path.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=path.len()).any(|at| is_one(rest, &path[at..])),
        [b'*', rest @ ..] => {
            let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
            (0..=end).any(|at| is_one(rest, &path[at..]))
        }
        [b'?', rest @ ..] => path.first().is_some_and(|byte| *byte != b'/') && is_one(rest, &path[1..]),
        [byte, rest @ ..] => path.first() == Some(byte) && is_one(rest, &path[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_holds_by_its_name_or_by_the_path_in_its_file_where_it_is_enforced() {
        let file = "# tcpdump\nprofile tcpdump /usr/{s,}bin/tcpdump {\n  /tmp/x r,\n}\n".to_string();
        let check = |program: &str, loaded: &str, expected: Option<&str>| {
            let found = in_force(program, loaded, std::slice::from_ref(&file));
            assert_eq!(found.as_deref(), expected, "{program} {loaded}");
        };
        check("/usr/bin/tcpdump", "tcpdump (enforce)\n", Some("tcpdump"));
        check("/usr/sbin/tcpdump", "man (enforce)\ntcpdump (enforce)\n", Some("tcpdump"));
        check("/usr/bin/tcpdump", "tcpdump (complain)\n", None);
        check("/usr/bin/tcpdump.copy", "tcpdump (enforce)\n", None);
        check("/usr/bin/suricata", "/usr/bin/suricata (enforce)\n", Some("/usr/bin/suricata"));
        check("/opt/a/b/c", "/opt/*/c (enforce)\n/opt/**/c (enforce)\n", Some("/opt/**/c"));
        check("/usr/bin/tcpdump", "", None);
    }
}
