//! SIGHUP: the configuration file is read again while the run goes.
//!
//! 1. The signal's thread wakes the reloader's thread; signals that come meanwhile are one.
//! 2. The file, and those of scripts, are opened: by the run itself where its rights allow that, below the system's
//!    folders, else by a process beside it, which is begun with the run. File and flags are laid over each other and
//!    checked as at the start, but nothing else of the machine is looked at. Any fault: the old configuration goes on as a
//!    whole. A run without a file, but with scripts, reads these anew.
//! 3. What may change while a run goes ([`Live`]) is taken from the new settings, everything else stays and
//!    is named.
//! 4. The engine makes machine code and puts the new triggers in force between two batches.

use super::{keys, laid_over, meant, written};
use crate::args::{RunArgs, ScriptTexts};
use crate::plan::{self, Look, Planned};
use crate::plan::{scripts, sets};
use crate::script::file;
use scope_api::trigger::Trigger;
use scope_config::{Given, Settings, Written};
use scope_door::ReadTrigger;
use scope_engine::control::Unsent;
use scope_engine::no_flows;
use scope_engine::reread::Reread;
use scope_engine::{Change, Control, Live, Order, Refusal, Reload, RunPlan};
use scope_fault::Fault;
use scope_packet::LinkType;
use scope_rights::is_readable;
use scope_trigger::TriggerConfig;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How often an order is sent again while too many wait.
const AGAIN_EVERY: Duration = Duration::from_millis(2);
/// The key of sources, which stay, and whose rules may change.
const SOURCE: &str = "source";

/// Reads the configuration again.
#[derive(Debug)]
pub struct Reloader {
    /// The file; `None`: there are scripts alone.
    path: Option<PathBuf>,
    flags: Given,
    /// What holds now.
    settings: Settings,
    link_types: Vec<LinkType>,
    /// Files of scripts at the start.
    scripts: Vec<String>,
    /// Files of sets at the start.
    sets: Vec<String>,
    /// What scripts were when they were read last.
    texts: ScriptTexts,
    /// And sets.
    set_versions: BTreeMap<String, u64>,
    /// Libraries that were opened.
    libraries: Vec<String>,
    /// It follows flows.
    has_flows: bool,
    /// Why nothing can fire in the run, if so.
    has_place: Result<(), Fault>,
    /// Opens files where the run can't do it any more.
    reread: Option<Reread>,
}

impl Reloader {
    /// For a run of these settings; `None` where they have neither a file nor a script.
    pub fn of(Planned { settings, run, set_versions, .. }: &Planned) -> Option<Reloader> {
        let (path, scripts) = (settings.file().map(Path::to_path_buf), scripts::files(settings));
        let sets = sets::files(settings);
        if path.is_none() && scripts.is_empty() && sets.is_empty() {
            return None;
        }
        Some(Reloader {
            path,
            flags: settings.flags(),
            settings: settings.clone(),
            link_types: run.fixed.link_types.clone(),
            scripts,
            sets,
            texts: texts(run),
            set_versions: set_versions.clone(),
            libraries: run.fixed.scripts.libraries.clone(),
            has_flows: run.fixed.stats.is_some(),
            has_place: run.fixed.expect_place(),
            reread: None,
        })
    }

    /// What the file asks for now.
    fn read(&mut self) -> Reload {
        match self.change() {
            Ok(change) => Reload::Take(Box::new(change)),
            Err(faults) => Reload::Refuse(faults),
        }
    }

    fn change(&mut self) -> Result<Change, Vec<Fault>> {
        let look = Look::Known(&self.link_types);
        let keys = keys::all();
        let written = match (&self.path, &mut self.reread) {
            (Some(path), Some(reread)) => Written::read_from(path, reread.open(path), &keys).map(Some),
            (path, _) => written(path.as_deref(), &keys),
        };
        let mut new = laid_over(written, &self.flags)?;
        for name in scripts::files(&new.settings) {
            let opened = match &mut self.reread {
                Some(reread) => reread.open(Path::new(&name)),
                None => file::open(Path::new(&name)),
            };
            new.scripts.insert(name, file::text(opened));
        }
        for name in sets::files(&new.settings) {
            let opened = match &mut self.reread {
                Some(reread) => reread.open(Path::new(&name)),
                None => File::open(&name),
            };
            let text = sets::text(&name, opened);
            new.sets.insert(name, text);
        }
        let meant_new = plan::plan(&new, look)?;
        let libraries = &meant_new.run.fixed.scripts.libraries;
        if let Some(library) = libraries.iter().find(|library| !self.libraries.contains(library)) {
            let cause = format!("a script names the library '{library}', which can't be opened any more");
            return Err(vec![Fault::of_thing("reload").cause(cause).remedy("start the run anew")]);
        }
        if let Some(trigger) = meant_new.run.live.triggers.iter().find(|trigger| trigger.when.is_some())
            && !self.has_flows
        {
            return Err(vec![no_flows(&trigger.name)]);
        }
        if !meant_new.run.live.triggers.is_empty() {
            self.has_place.clone().map_err(|fault| vec![fault])?;
        }
        // The same sources may have other rules.
        let specs = |settings: &Settings| -> Vec<_> {
            settings.values(SOURCE).iter().map(|value| value.text.clone()).collect()
        };
        let are_same = specs(&new.settings) == specs(&self.settings);
        let kept = |key: &str| !(Live::KEYS.contains(&key) || key == SOURCE && are_same);
        let settings = new.settings.keeping(&self.settings, kept);
        let told = |key: &str| {
            let (old, new) = (self.settings.value_text(key), new.settings.value_text(key));
            format!(
                "{key}: can't change in a running instance: {old} stays, and {new} waits for the next start"
            )
        };
        let meant_as = keys::meanings();
        let kept =
            new.settings.changed(&self.settings, &meant_as).filter(|key| kept(key)).map(told).collect();
        let mut changed: Vec<String> =
            settings.changed(&self.settings, &meant_as).map(str::to_string).collect();
        let (scripts, sets) = (std::mem::take(&mut new.scripts), std::mem::take(&mut new.sets));
        let args = RunArgs { scripts, sets, ..meant(settings)? };
        let Planned { run, set_versions, .. } = plan::plan(&args, look)?;
        let texts = texts(&run);
        changed.extend(
            texts
                .iter()
                .filter(|(file, text)| self.texts.get(*file).is_some_and(|old| old != *text))
                .map(|(file, _)| format!("script {file}")),
        );
        changed.extend(
            set_versions
                .iter()
                .filter(|(name, version)| self.set_versions.get(*name).is_some_and(|old| old != *version))
                .map(|(name, _)| format!("set {name}")),
        );
        let live = run.live;
        (self.settings, self.texts, self.set_versions) = (args.settings, texts, set_versions);
        Ok(Change { live, changed, kept })
    }

    /// Begins what opens the file later, if that is needed. To be called before rights are given up.
    ///
    /// # Errors
    /// Where there is no process for it.
    pub fn prepare(&mut self) -> std::io::Result<()> {
        let named = self.scripts.iter().chain(&self.sets).map(Path::new);
        let paths: Vec<&Path> = self.path.as_deref().into_iter().chain(named).collect();
        let mut is_needed = false;
        for path in &paths {
            is_needed |= !is_readable(&path.canonicalize()?);
        }
        if is_needed {
            self.reread = Some(Reread::begin(&paths)?);
        }
        Ok(())
    }

    /// Starts its thread, which reads the file whenever something is sent, until the run ends.
    ///
    /// # Errors
    /// Where there is no thread for it.
    pub fn listen(mut self, control: Arc<Control>) -> std::io::Result<SyncSender<()>> {
        let (wake, woken) = sync_channel(1);
        let work = move || self.work(&woken, &control);
        std::thread::Builder::new().name("reload".to_string()).spawn(work)?;
        Ok(wake)
    }

    fn work(&mut self, woken: &Receiver<()>, control: &Control) {
        while woken.recv().is_ok() {
            let mut order = Order::Reload(self.read());
            let answer = loop {
                match control.send(order) {
                    Ok(answer) => break answer,
                    Err(Unsent { refusal: Refusal::Busy, order: again }) if control.stops() == 0 => {
                        order = again
                    }
                    Err(_) => return,
                }
                std::thread::sleep(AGAIN_EVERY);
            };
            let _ = answer.wait(); // the run says itself what came of it
        }
    }
}

/// The texts of a run's scripts.
fn texts(run: &RunPlan) -> ScriptTexts {
    let of = |trigger: &TriggerConfig| {
        let both = [trigger.condition.script(), trigger.response.script.as_ref()];
        both.into_iter()
            .flatten()
            .map(|script| (script.file().to_string(), Ok(script.text().to_string())))
            .collect()
    };
    run.live.triggers.iter().flat_map(|trigger| -> Vec<_> { of(trigger) }).collect()
}

/// Makes a trigger of its words, for a run with these settings: what it doesn't say is as they say for all.
pub fn trigger_reader(settings: &Settings, link_types: &[LinkType]) -> ReadTrigger {
    let (settings, link_types) = (settings.clone(), link_types.to_vec());
    Arc::new(move |trigger: &Trigger| {
        let keys = keys::all();
        let written = Written::parse(Path::new("body"), &trigger.toml(), &keys);
        let own = Settings::merge(&keys, Some(written.map_err(|error| error.faults)?), &Given::new());
        // Templates and conditions of the command line belong to its own triggers, one by one; bounds of flows may be
        // there for those.
        let of_others = [
            "trigger",
            "when",
            "dump",
            "dump-script",
            "flows-max",
            "flow-idle",
            "flow-active",
            "group",
            "forward",
            "attach",
            "attach-ring",
        ];
        let is_of_run = |key: &str| !of_others.contains(&key);
        let args = meant(own.keeping(&settings, is_of_run))?;
        let mut live = plan::plan(&args, Look::Known(&link_types))?.run.live;
        live.triggers.pop().ok_or_else(Vec::new)
    })
}
