//! Where a run writes: folders that are opened once, before rights are given up, and written to under these handles.

use crate::events::EVENTS_FILE;
use crate::plan::RunPlan;
use crate::rights::Writable;
use crate::run::EngineError;
use scope_store::Folder;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

/// The open folders of a run.
pub struct Outputs {
    /// For dumps and the log.
    pub folder: Arc<Folder>,
    /// For the whole ring at the end, and the name that it gets there.
    pub ring_out: Option<(Folder, OsString)>,
}

impl Outputs {
    /// Opens them; nothing is made in them.
    pub fn open(plan: &RunPlan) -> Result<Outputs, EngineError> {
        let ring_out = plan.ring_out.as_deref().map(|path| {
            let folder = open(path.parent().unwrap_or(Path::new("/")))?;
            Ok::<_, EngineError>((folder, path.file_name().unwrap_or_default().to_os_string()))
        });
        Ok(Outputs { folder: Arc::new(open(&plan.folder)?), ring_out: ring_out.transpose()? })
    }

    /// What stays writable, the dump folder first.
    pub fn writable(&self) -> Vec<Writable<'_>> {
        let ring_out = self.ring_out.iter().map(|(folder, name)| (folder, name.as_os_str()));
        std::iter::once((&*self.folder, OsStr::new(EVENTS_FILE))).chain(ring_out).collect()
    }
}

fn open(path: &Path) -> Result<Folder, EngineError> {
    Folder::open(path).map_err(|cause| EngineError::System { place: path.display().to_string(), cause })
}
