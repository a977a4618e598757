//! SIGHUP: the configuration file is read again while the run goes.
//!
//! 1. The signal's thread wakes the reloader's thread; signals that come meanwhile are one.
//! 2. The file is opened: by the run itself where its rights allow that, below the system's folders, else by
//!    a process beside it,
//!    which is begun with the run. File and flags are laid over each other and checked as at the start, but nothing of the machine is looked at. Any fault:
//!    the old configuration goes on as a whole.
//! 3. What may change while a run goes ([`Live`]) is taken from the new settings, everything else stays and
//!    is named.
//! 4. The engine makes machine code and puts the new triggers in force between two batches.

use super::{keys, laid_over, meant, written};
use crate::plan::{self, Look};
use scope_api::trigger::Trigger;
use scope_config::{Given, Settings, Written};
use scope_door::ReadTrigger;
use scope_engine::control::Unsent;
use scope_engine::reread::Reread;
use scope_engine::{Change, Control, Live, Order, Refusal, Reload};
use scope_fault::Fault;
use scope_packet::LinkType;
use scope_rights::is_readable;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How often an order is sent again while too many wait.
const AGAIN_EVERY: Duration = Duration::from_millis(2);

/// Reads the configuration again.
#[derive(Debug)]
pub struct Reloader {
    path: PathBuf,
    flags: Given,
    /// What holds now.
    settings: Settings,
    link_types: Vec<LinkType>,
    /// Opens the file where the run can't do it any more.
    reread: Option<Reread>,
}

impl Reloader {
    /// For a run with `settings`; `None` where they have no file.
    pub fn of(settings: &Settings, link_types: &[LinkType]) -> Option<Reloader> {
        let path = settings.file()?.to_path_buf();
        Some(Reloader {
            path,
            flags: settings.flags(),
            settings: settings.clone(),
            link_types: link_types.to_vec(),
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
        let written = match &mut self.reread {
            Some(reread) => Written::read_from(&self.path, reread.open(), &keys).map(Some),
            None => written(Some(&self.path), &keys),
        };
        let new = laid_over(written, &self.flags)?;
        plan::plan(&new, look)?;
        let kept = |key: &str| !Live::KEYS.contains(&key);
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
        let changed = settings.changed(&self.settings, &meant_as).map(str::to_string).collect();
        let args = meant(settings)?;
        let live = plan::plan(&args, look)?.run.live;
        self.settings = args.settings;
        Ok(Change { live, changed, kept })
    }

    /// Begins what opens the file later, if that is needed. To be called before rights are given up.
    ///
    /// # Errors
    /// Where there is no process for it.
    pub fn prepare(&mut self) -> std::io::Result<()> {
        let place = self.path.canonicalize()?;
        if !is_readable(&place) {
            self.reread = Some(Reread::begin(&self.path)?);
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

/// Makes a trigger of its words, for a run with these settings: what it doesn't say is as they say for all.
pub fn trigger_reader(settings: &Settings, link_types: &[LinkType]) -> ReadTrigger {
    let (settings, link_types) = (settings.clone(), link_types.to_vec());
    Arc::new(move |trigger: &Trigger| {
        let keys = keys::all();
        let written = Written::parse(Path::new("body"), &trigger.toml(), &keys);
        let own = Settings::merge(&keys, Some(written.map_err(|error| error.faults)?), &Given::new());
        // Templates of the command line belong to its own triggers, one by one.
        let is_of_run = |key: &str| !["trigger", "dump"].contains(&key);
        let args = meant(own.keeping(&settings, is_of_run))?;
        let mut live = plan::plan(&args, Look::Known(&link_types))?.run.live;
        live.triggers.pop().ok_or_else(Vec::new)
    })
}
