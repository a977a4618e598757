//! From options to the workers' sources: what matches now is captured when this returns.

use std::sync::Arc;

use super::fanout::Groups;
use super::pattern::Pattern;
use super::source::{AfPacketSource, Request};
use super::{AfPacketOptions, WORKERS_MAX};
use crate::SourceError;

/// Opens live capture; the sources, one per worker, are to be polled by a thread each. `spec` is what the
/// operator typed.
///
/// Capture begins here, not at the first poll: what comes meanwhile waits in the kernel's rings. Interfaces
/// that match later are captured from when they come.
///
/// # Errors
/// [`SourceError::Spec`] for options that are not possible and interfaces whose link type isn't supported,
/// `NoInterface` for a name that isn't there (a pattern that matches nothing yet is none), `NoPermission`,
/// `System` for the rest.
pub fn open(options: &AfPacketOptions, spec: &str) -> Result<Vec<AfPacketSource>, SourceError> {
    let groups = (options.workers > 1).then(|| Arc::new(Groups::new(options.fanout)));
    let wanted = Request {
        pattern: Pattern::new(&options.interface),
        options: options.clone(),
        spec: spec.into(),
        part: 0,
        groups,
    };
    wanted.options.check().map_err(|cause| SourceError::spec(spec, cause))?;
    let sources =
        (0..options.workers.max(1)).map(|worker| AfPacketSource::new(vec![wanted.clone()], worker == 0));
    begin(sources.collect::<Result<_, _>>()?)
}

/// Opens live capture of several interfaces or patterns by one worker: the options of each, with what the
/// operator typed. [`Interface::part`](scope_packet::Interface::part) is the place in this list.
///
/// # Errors
/// As [`open`].
pub fn open_shared(wishes: &[(AfPacketOptions, String)]) -> Result<AfPacketSource, SourceError> {
    let mut wanted = Vec::new();
    for (part, (options, spec)) in wishes.iter().enumerate() {
        options.check().map_err(|cause| SourceError::spec(spec, cause))?;
        let (pattern, options) =
            (Pattern::new(&options.interface), AfPacketOptions { workers: 1, ..options.clone() });
        wanted.push(Request { pattern, options, spec: spec.clone(), part: part as u32, groups: None });
    }
    let source = begin(vec![AfPacketSource::new(wanted, true)?])?.pop();
    Ok(source.expect("as many as were put in"))
}

/// This order keeps out packets of other interfaces and packets dealt out twice, and loses none later.
fn begin(mut sources: Vec<AfPacketSource>) -> Result<Vec<AfPacketSource>, SourceError> {
    debug_assert!(sources.len() <= WORKERS_MAX as usize);
    for source in &mut sources {
        // 1. Each worker listens to changes of interfaces and has the list of them, before it looks which
        //    there are.
        source.check_names()?;
        // 2. For each interface it opens a socket that is mute (protocol 0): a fresh packet socket with a
        //    protocol would receive from every interface. It makes the socket ready, its gate shut, and binds
        //    it. Then the socket listens, behind the shut gate.
        source.prepare_all()?;
    }
    // 3. All join their fan-out groups. In older kernels only sockets that listen can join: on an interface
    //    that is down they join when it comes up.
    for source in &mut sources {
        source.join_groups()?;
    }
    // 4. All gates are opened; only now does the kernel count and keep packets.
    for source in &mut sources {
        source.open_gates()?;
    }
    // 5. Spare sockets are opened, for interfaces that come when no more may be opened.
    for source in &mut sources {
        source.open_spares()?;
    }
    Ok(sources)
}
