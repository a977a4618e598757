//! Programs as machine code, made with Cranelift.
//!
//! | module | what it does |
//! |---|---|
//! | `graph` | the program as blocks |
//! | `facts` | leads jumps past tests whose outcome is known |
//! | `runs` | makes set tests of long runs of comparisons |
//! | `table` | the sets, as the code looks into them |
//! | `emit` | Cranelift's code of the blocks |
//!
//! The meaning is the interpreter's, to the last bit. Pages of code are written first and made executable
//! afterwards, never both at once (`cranelift-jit` maps them writable and then changes them to readable and
//! executable); they are given back when the last user of the predicate is gone. Making code takes some 0.1
//! to 5 ms, for the longest texts seconds: a thread with packets waiting leaves it to others.

mod emit;
mod facts;
mod graph;
mod runs;
mod table;

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cranelift_codegen::ir::{AbiParam, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};

use crate::bpf::Program;
use crate::choice::Choice;
use crate::input::{FilterInput, bits};
use graph::Graph;
use table::Table;

/// Largest program, in blocks as they are left after rewriting, of which code is made; larger ones are
/// interpreted.
const BLOCKS_MAX: usize = 8192;

/// Why no machine code was made: the interpreter answers instead, and answers the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NativeError {
    /// Cranelift knows no such processor, or this one lacks what it needs.
    #[error("no machine code for this processor: {0}")]
    Processor(String),
    /// A program beyond the bound.
    #[error("the filter's program is too large for machine code: {blocks} blocks, the most is {blocks_max}")]
    TooLarge {
        /// Its blocks.
        blocks: usize,
        /// The bound.
        blocks_max: usize,
    },
    /// Cranelift or the system refused, most likely memory that may be executed.
    #[error("making machine code failed: {0}")]
    Failed(String),
}

/// Of the packets at `packets` that have a bit in `which`, the bits of those that are accepted.
type Entry = unsafe extern "C" fn(packets: *const FilterInput<'_>, which: u64) -> u64;

/// Machine code of a predicate's programs, made at most once, by a thread that has the time. Until then
/// nobody waits for it.
#[derive(Debug)]
pub(crate) struct Native {
    /// An [`Entry`] that lives as long as `made`; null until it can be called.
    entry: AtomicPtr<()>,
    made: OnceLock<Option<Code>>,
}

/// What the entry needs: code pages, and the tables that the code looks into.
struct Code {
    /// Locked by nobody: the lock lets the module go from thread to thread.
    module: ManuallyDrop<Mutex<JITModule>>,
    tables: Vec<Table>,
}

impl Code {
    fn new(isa: OwnedTargetIsa) -> Code {
        let module = JITModule::new(JITBuilder::with_isa(isa, cranelift_module::default_libcall_names()));
        Code { module: ManuallyDrop::new(Mutex::new(module)), tables: Vec::new() }
    }

    fn module(&mut self) -> &mut JITModule {
        self.module.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the code, which can be called once it is finished.
    fn define(
        &mut self,
        graphs: &[Graph],
        programs: &[usize],
        choice: Choice,
    ) -> Result<FuncId, NativeError> {
        let mut context = self.module().make_context();
        let signature = &mut context.func.signature;
        signature.params.extend([types::I64, types::I64].map(AbiParam::new));
        signature.returns.push(AbiParam::new(types::I64));
        let id = self.module().declare_function("filter", Linkage::Local, signature).map_err(failed)?;
        let mut reusable = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut context.func, &mut reusable);
        emit::emit(graphs, programs, choice, &mut builder, &mut self.tables);
        builder.finalize(self.module().target_config());
        self.module().define_function(id, &mut context).map_err(failed)?;
        Ok(id)
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Code").field("tables", &self.tables.len()).finish_non_exhaustive()
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the module is taken once, here, and not used afterwards.
        let module = unsafe { ManuallyDrop::take(&mut self.module) };
        let module = module.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the entry stands beside this in `Native`, is private to it and called by its borrowers
        // only: none is left.
        unsafe { module.free_memory() }
    }
}

impl Native {
    /// Nothing is made yet.
    pub fn new() -> Native {
        Native { entry: AtomicPtr::new(ptr::null_mut()), made: OnceLock::new() }
    }

    /// Makes code of `programs`, of which `choice` picks one for each packet, unless that was tried before.
    /// It must be the same ones each time.
    ///
    /// # Errors
    /// Where the processor isn't known, a program is too large, or the system gives no memory for code; only
    /// to the one who tried.
    pub fn make(&self, programs: &[Arc<Program>], choice: Choice) -> Result<(), NativeError> {
        let mut outcome = Ok(());
        self.made.get_or_init(|| match code_of(programs, choice) {
            Ok((code, address)) => {
                // Release: a thread that sees the address sees the code behind it.
                self.entry.store(address, Ordering::Release);
                Some(code)
            }
            Err(error) => {
                outcome = Err(error);
                None
            }
        });
        outcome
    }

    /// Whether there is code.
    pub fn is_made(&self) -> bool {
        matches!(self.made.get(), Some(Some(_)))
    }

    /// Which of `packets`, of those with a bit in `which`, are accepted: a bit each. `None` where there is no
    /// code (yet).
    #[inline]
    pub fn accepts(&self, packets: &[FilterInput<'_>], which: u64) -> Option<u64> {
        let entry = self.entry.load(Ordering::Acquire);
        if entry.is_null() {
            return None;
        }
        // SAFETY: an address that isn't null is that of a finished function with the signature of `Entry`:
        // see `code_of`.
        let entry = unsafe { std::mem::transmute::<*mut (), Entry>(entry) };
        // SAFETY: the code lives as long as `self`, also while `make` runs: its maker keeps it in
        // `made`. It reads packets that have a bit, none beyond the last, and of each the captured bytes
        // only: `emit` checks every load.
        Some(unsafe { entry(packets.as_ptr(), which & bits(packets)) })
    }
}

/// The code of `programs` and the address of its function, an [`Entry`].
fn code_of(programs: &[Arc<Program>], choice: Choice) -> Result<(Code, *mut ()), NativeError> {
    let mut graphs = Vec::new();
    let mut indices: Vec<usize> = Vec::with_capacity(programs.len());
    for (at, program) in programs.iter().enumerate() {
        let same = programs[..at].iter().position(|earlier| Arc::ptr_eq(earlier, program));
        indices.push(same.map_or(graphs.len(), |earlier| indices[earlier]));
        if same.is_none() {
            graphs.push(rewritten(program)?);
        }
    }
    let mut code = Code::new(processor()?);
    let function = code.define(&graphs, &indices, choice)?;
    code.module().finalize_definitions().map_err(failed)?;
    let address = code.module().get_finalized_function(function).cast_mut().cast();
    Ok((code, address))
}

/// The graph of a program as code is made of it.
fn rewritten(program: &Program) -> Result<Graph, NativeError> {
    let mut graph = Graph::new(program.plain());
    if graph.is_acyclic() {
        graph.reload();
        facts::thread_jumps(&mut graph);
        graph.merge_equal();
        runs::make_sets(&mut graph);
    }
    let blocks = graph.order().len();
    if blocks > BLOCKS_MAX {
        return Err(NativeError::TooLarge { blocks, blocks_max: BLOCKS_MAX });
    }
    Ok(graph)
}

/// This machine's processor, as Cranelift makes code for it.
fn processor() -> Result<OwnedTargetIsa, NativeError> {
    static PROCESSOR: OnceLock<Result<OwnedTargetIsa, NativeError>> = OnceLock::new();
    PROCESSOR.get_or_init(find_processor).clone()
}

fn find_processor() -> Result<OwnedTargetIsa, NativeError> {
    let refused = |cause: &dyn std::fmt::Display| NativeError::Processor(cause.to_string());
    if cfg!(target_endian = "big") {
        return Err(refused(&"words are big-endian"));
    }
    let mut flags = settings::builder();
    for (flag, value) in
        [("opt_level", "none"), ("enable_verifier", "false"), ("is_pic", "false"), ("unwind_info", "false")]
    {
        flags.set(flag, value).map_err(|error| refused(&error))?;
    }
    let isa = cranelift_native::builder().map_err(|cause| refused(&cause))?;
    isa.finish(settings::Flags::new(flags)).map_err(|error| refused(&error))
}

fn failed(error: cranelift_module::ModuleError) -> NativeError {
    NativeError::Failed(error.to_string())
}
