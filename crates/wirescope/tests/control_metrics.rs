//! What Prometheus sees of a run: metrics in both forms, by its own tools; dashboard and alert rules of the package.

mod run;

use run::asking::{Heard, Running};
use run::{LIMIT, Place, Started, skip, wait_until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A file of the package.
fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Whether this program is there; says so where it is not.
fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        skip(&format!("no {program} here"));
    }
    is_there
}

/// A run with a trigger that has fired, a store, a budget of dumps, and statistics.
fn running() -> Running {
    let place = Place::new();
    let store = place.path("store").to_str().unwrap().to_string();
    let db = place.path("x.sqlite").to_str().unwrap().to_string();
    let statistics = ["--db", &db, "--db-interval", "1s", "--ipfix", "127.0.0.1:9"];
    let flags =
        ["--store", &store, "--store-budget", "1GiB", "--dump-budget", "1GiB", "--status-every", "1s"];
    let flags = [&flags[..], &statistics].concat();
    let running = Running::at(place, &flags);
    wait_until("the first dump", || running.get("dumps/1").body["state"] == "finished");
    running
}

fn metrics(running: &Running, path: &str, accept: &str) -> Heard {
    running.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n"))
}

/// Samples by name and labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

/// Their sum over all labels.
fn sum(samples: &BTreeMap<&str, f64>, name: &str) -> f64 {
    let is_it =
        |key: &str| key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
    samples.iter().filter(|(key, _)| is_it(key)).map(|(_, value)| value).sum()
}

#[test]
fn metrics_come_in_both_forms_and_promtool_finds_nothing_wrong() {
    let running = running();
    let text = metrics(&running, "/api/v1/metrics", "*/*");
    assert!(text.head.contains(&format!("content-type: {TEXT}")), "{}", text.head);
    let open = metrics(&running, "/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(open.head.contains(&format!("content-type: {OPEN_METRICS}")), "{}", open.head);
    let [text, open] = [text, open].map(|heard| String::from_utf8(heard.bytes).unwrap());
    assert!(open.ends_with("\n# EOF\n") && !text.contains("# EOF"), "{open}");
    // The same families, but for how counters are called.
    let families = |text: &str| {
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.map(|line| line.replace("_total counter", " counter")).collect::<Vec<_>>()
    };
    assert_eq!(families(&text), families(&open));
    for name in samples(&text).keys() {
        assert!(name.starts_with("wirescope_"), "{name}");
    }
    running.end();
    if !has("promtool") {
        return;
    }
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = command.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && words.is_empty(), "{words}\n{text}");
}

#[test]
fn what_was_received_is_accounted_for_by_source_worker_lane_and_reason() {
    let running = running();
    let is_stored =
        |running: &Running| running.get("stores").body["stores"][0]["stored"]["packets"].as_u64() > Some(0);
    wait_until("packets in the store", || is_stored(&running));
    let has_rows = |running: &Running| {
        let text = String::from_utf8(running.get("metrics").bytes).unwrap();
        samples(&text)["wirescope_stats_rows_total"] > 0.0
    };
    wait_until("rows in the database", || has_rows(&running));
    let text = String::from_utf8(running.get("metrics").bytes).unwrap();
    let samples = samples(&text);
    let of = |name: &str| sum(&samples, &format!("wirescope_{name}"));
    let dropped = of("dropped_packets_total");
    assert_eq!(
        of("received_packets_total"),
        of("stored_packets_total") + of("filtered_packets_total") + of("duplicate_packets_total") + dropped,
        "{text}"
    );
    let before =
        ["received", "kernel_dropped", "unreadable"].map(|key| of(&format!("source_{key}_packets_total")));
    assert_eq!(
        of("source_offered_packets_total"),
        before.iter().sum::<f64>() + of("source_waiting_packets"),
        "{text}"
    );
    assert!(of("lane_stored_packets_total") >= of("stored_packets_total"), "{text}");
    assert!(
        text.contains("wirescope_lane_stored_packets_total{lane=\"0\",link_type=\"ETHERNET\",source="),
        "{text}"
    );
    assert!(of("store_stored_packets_total") > 0.0, "{text}");
    // Of statistics, too, what is written and what isn't.
    assert!(
        of("stats_rows_total") > 0.0 && of("stats_flows") > 0.0 && of("stats_database_bytes") > 0.0,
        "{text}"
    );
    assert_eq!((of("stats_interval_seconds"), of("stats_failing")), (1.0, 0.0), "{text}");
    for (name, label) in [("folded_total", "table=\"flows\""), ("ipfix_records_total", "result=\"refused\"")]
    {
        assert!(text.contains(&format!("wirescope_stats_{name}{{{label}}} ")), "{name}: {text}");
    }
    // The dump is finished, so long after its hit as its window says.
    assert_eq!(samples["wirescope_dumps_total{trigger=\"probe\"}"], 1.0, "{text}");
    assert_eq!(samples["wirescope_dump_duration_seconds_count"], 1.0, "{text}");
    assert!(samples["wirescope_dump_duration_seconds_sum"] >= 0.1, "{text}");
    assert_eq!(of("query_duration_seconds_count"), 0.0, "{text}");
    assert!(of("process_cpu_seconds_total") > 0.0 && of("process_threads") >= 3.0, "{text}");
    assert_eq!((of("adds_up"), of("capturing")), (1.0, 1.0), "{text}");
    running.end();
}

/// Lets TCP at a port of the loopback reach a Unix socket, as long as the test goes.
fn forward(socket: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(run) = UnixStream::connect(&socket) else { continue };
            let (mut from, mut to) = (client.try_clone().unwrap(), run.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = copy(&mut from, &mut to); // it ends with its client
                let _ = to.shutdown(Shutdown::Write);
            });
            let (mut from, mut to) = (run, client);
            std::thread::spawn(move || {
                let _ = copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    });
    port
}

/// A Prometheus that scrapes a run each second, with the rules of the package.
struct Prometheus {
    started: Started,
    port: u16,
}

impl Prometheus {
    fn new(running: &Running) -> Prometheus {
        let place = &running.place;
        let target = forward(running.socket());
        let rules = packaged("prometheus/wirescope.rules.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\n\
             scrape_configs:\n- job_name: wirescope\n  static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
        );
        std::fs::write(place.path("prometheus.yml"), config).unwrap();
        // Somebody else may take the port in between: then it is started anew with another.
        loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new("prometheus");
            command.arg(format!("--config.file={}", place.path("prometheus.yml").display()));
            command.arg(format!("--storage.tsdb.path={}", place.path(&format!("tsdb-{port}")).display()));
            command.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--log.level=warn");
            let mut prometheus = Prometheus { started: Started::new(command), port };
            let mut ended = false;
            wait_until("Prometheus", || {
                ended = prometheus.started.has_ended();
                ended || prometheus.get("/-/ready").is_some_and(|(status, _)| status == 200)
            });
            if !ended {
                return prometheus;
            }
        }
    }

    /// Its answer: status and JSON.
    fn get(&self, path: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: x\r\n\r\n").ok()?;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).ok()?;
        let heard = Heard::of(&heard);
        Some((heard.status, heard.body))
    }

    /// How many series an expression has now; it must be one.
    fn series(&self, expression: &str) -> usize {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (status, answer) = self.get(&format!("/api/v1/query?query={encoded}")).unwrap();
        assert!(status == 200 && answer["status"] == "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().map_or(0, Vec::len)
    }
}

/// Every expression of the dashboard, with its variables filled.
fn of_dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(packaged("grafana/wirescope.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let fill = |text: &str| text.replace("$instance", ".*").replace("$__rate_interval", "1m");
    targets.map(|target| fill(target["expr"].as_str().unwrap())).collect()
}

/// Every expression of an alert, as Prometheus has read them.
fn of_rules(prometheus: &Prometheus) -> Vec<String> {
    let (_, answer) = prometheus.get("/api/v1/rules").unwrap();
    let groups = answer["data"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules.map(|rule| rule["query"].as_str().unwrap().to_string()).collect()
}

/// What a bound is compared with: that must have data, whatever the bound.
fn compared(expression: &str) -> &str {
    let at = [" > ", " == ", " < "].into_iter().filter_map(|sign| expression.rfind(sign)).max();
    at.map_or(expression, |at| &expression[..at])
}

#[test]
fn every_expression_of_dashboard_and_alert_rules_has_data_in_a_real_prometheus() {
    if !has("prometheus") || !has("promtool") {
        return;
    }
    let rules = packaged("prometheus/wirescope.rules.yml");
    let checked = Command::new("promtool").args(["check", "rules"]).arg(&rules).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let running = running();
    let prometheus = Prometheus::new(&running);
    wait_until("a scrape", || prometheus.series("up{job=\"wirescope\"} == 1") == 1);
    let of_rules = of_rules(&prometheus);
    let all: Vec<String> = of_dashboard().into_iter().chain(of_rules.iter().cloned()).collect();
    assert!(of_rules.len() >= 10 && all.len() >= 50, "{all:#?}");
    for expression in &all {
        let parts = compared(expression);
        // The clock of traffic that is made up isn't that of now.
        if parts.contains("wirescope_worker_lag_seconds") {
            prometheus.series(expression);
            continue;
        }
        wait_until(expression, || prometheus.series(parts) > 0);
        prometheus.series(expression);
    }
    // Nothing is wrong with this run, and none of the alerts says so.
    for rule in &of_rules {
        assert_eq!(prometheus.series(rule), 0, "{rule}");
    }
    running.end();
}
