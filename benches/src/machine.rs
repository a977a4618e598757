//! The machine and the tools that figures were measured with: ratios change from one to the next.

use crate::workspace::Workspace;
use serde_json::{Map, Value};
use std::fs::read_to_string;
use std::process::Command;

/// What there is to know of this machine; what can't be found out is omitted.
pub fn describe(workspace: &Workspace) -> Map<String, Value> {
    let cpu = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    let version = output(Command::new(&workspace.wirescope).arg("--version"));
    let tcpdump = output(Command::new("tcpdump").arg("--version"));
    let kernel = read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_string());
    let memory_kib =
        field(&memory, "MemTotal").and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let cores = std::thread::available_parallelism().ok().map(|cores| cores.get() as u64);
    let numbers =
        ["cpu family", "model", "stepping"].map(|name| field(&cpu, name).unwrap_or("?").to_string());
    let facts = [
        ("cpu", field(&cpu, "model name").map(Value::from)),
        ("cpu_family_model_stepping", Some(numbers.join("-").into())),
        ("cores", cores.map(Value::from)),
        ("caches", Some(caches().into())),
        ("memory_bytes", memory_kib.map(|kib| (kib << 10).into())),
        ("kernel", kernel.map(Value::from)),
        ("rustc", output(Command::new("rustc").arg("--version")).map(Value::from)),
        ("libpcap", line_with(version.as_deref(), "libpcap").map(Value::from)),
        ("tcpdump", line_with(tcpdump.as_deref(), "tcpdump").map(Value::from)),
        ("wirescope", version.as_deref().and_then(|text| text.lines().next()).map(Value::from)),
        ("date", Some(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name.to_string(), fact?))).collect()
}

/// The CPU as part of a file's name, such as `AMD-EPYC-26-2-1`.
pub fn slug(machine: &Map<String, Value>) -> String {
    let part = |name: &str| machine.get(name).and_then(Value::as_str).unwrap_or("unknown");
    let text = format!("{} {}", part("cpu"), part("cpu_family_model_stepping"));
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// The value of the first line `name: value`, names of /proc.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

fn line_with<'a>(text: Option<&'a str>, word: &str) -> Option<&'a str> {
    text?.lines().find(|line| line.contains(word)).map(str::trim)
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string()).filter(|text| !text.is_empty())
}

/// The caches of the first core, such as `L1 Data 48K`.
fn caches() -> Vec<String> {
    let folder = |index| format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
    let fact = |index: u32, name: &str| read_to_string(format!("{}/{name}", folder(index))).ok();
    (0..16)
        .map_while(|index| {
            let [level, kind, size] = ["level", "type", "size"].map(|name| fact(index, name));
            Some(format!("L{} {} {}", level?.trim(), kind?.trim(), size?.trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(field(text, "model"), Some("2"));
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field(text, "stepping"), None);
    }

    #[test]
    fn a_slug_is_fit_for_a_file_name() {
        let machine =
            serde_json::json!({"cpu": "Intel(R) Xeon(R) @ 2.10GHz", "cpu_family_model_stepping": "6-143-8"});
        assert_eq!(slug(machine.as_object().unwrap()), "Intel-R-Xeon-R-2-10GHz-6-143-8");
    }
}
