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
//! The meaning is the interpreter's, to the last bit. Pages of code are written first and made executable afterwards, never both
//! at once (`cranelift-jit` maps them writable and then changes them to readable and executable); they are given back when the
//! last user of the predicate is gone. Making code takes some 0.1 to 5 ms: whoever has packets waiting leaves it to others.

mod emit;
mod facts;
mod graph;
mod runs;
mod table;

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cranelift_codegen::ir::{AbiParam, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};

use crate::bpf::Program;
use graph::Graph;
use table::Table;

/// Largest program, in blocks as they are left after rewriting, of which code is made; larger ones are interpreted.
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

/// Whether the packet with so many captured bytes at `data` and so many original ones is accepted.
type Entry = unsafe extern "C" fn(data: *const u8, captured_bytes: usize, original_bytes: u32) -> bool;

/// Machine code of `N` programs.
pub(crate) struct Native<const N: usize> {
    entries: [Entry; N],
    _code: Code,
}

/// What the entries need: code pages, and the tables that the code looks into.
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

    /// Makes the code of one program, which can be called once all are made and finished.
    fn define(&mut self, at: usize, graph: &Graph) -> Result<FuncId, NativeError> {
        let mut context = self.module().make_context();
        let signature = &mut context.func.signature;
        signature.params.extend([types::I64, types::I64, types::I32].map(AbiParam::new));
        signature.returns.push(AbiParam::new(types::I8));
        let id = self.module().declare_function(&format!("filter{at}"), Linkage::Local, signature).map_err(failed)?;
        let mut reusable = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut context.func, &mut reusable);
        emit::emit(graph, &mut builder, &mut self.tables);
        builder.finalize(self.module().target_config());
        self.module().define_function(id, &mut context).map_err(failed)?;
        Ok(id)
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the module is taken once, here, and not used afterwards.
        let module = unsafe { ManuallyDrop::take(&mut self.module) };
        let module = module.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the entries live beside this in `Native`, are private to it and called by its borrowers only: none is left.
        unsafe { module.free_memory() }
    }
}

impl<const N: usize> Native<N> {
    /// Makes code of `programs`; of the same program given twice, once.
    ///
    /// # Errors
    /// Where the processor isn't known, a program is too large, or the system gives no memory for code.
    pub fn new(programs: &[Arc<Program>; N]) -> Result<Native<N>, NativeError> {
        let mut code = Code::new(processor()?);
        let mut functions: Vec<FuncId> = Vec::with_capacity(N);
        for (at, program) in programs.iter().enumerate() {
            let same = programs[..at].iter().position(|earlier| Arc::ptr_eq(earlier, program));
            functions.push(match same {
                Some(earlier) => functions[earlier],
                None => code.define(at, &rewritten(program)?)?,
            });
        }
        code.module().finalize_definitions().map_err(failed)?;
        let entries = std::array::from_fn(|at| {
            let address = code.module().get_finalized_function(functions[at]);
            // SAFETY: at this address stands a finished function, which `define` gave the signature of `Entry`.
            unsafe { std::mem::transmute::<*const u8, Entry>(address) }
        });
        Ok(Native { entries, _code: code })
    }

    /// Whether the program at `index` accepts a packet with captured bytes `data`.
    #[inline]
    pub fn accepts(&self, index: usize, data: &[u8], original_bytes: u32) -> bool {
        // SAFETY: the code lives as long as `self`. It reads inside the captured bytes only, whose number is that of `data`:
        // every load is checked against it before, see `emit`.
        unsafe { self.entries[index](data.as_ptr(), data.len(), original_bytes) }
    }
}

impl<const N: usize> std::fmt::Debug for Native<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native").field("entries", &self.entries).finish_non_exhaustive()
    }
}

/// The graph of a program as code is made of it.
fn rewritten(program: &Program) -> Result<Graph, NativeError> {
    let mut graph = Graph::new(program.plain());
    if graph.is_acyclic() {
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
    for (flag, value) in [("opt_level", "none"), ("enable_verifier", "false"), ("is_pic", "false"), ("unwind_info", "false")] {
        flags.set(flag, value).map_err(|error| refused(&error))?;
    }
    let isa = cranelift_native::builder().map_err(|cause| refused(&cause))?;
    isa.finish(settings::Flags::new(flags)).map_err(|error| refused(&error))
}

fn failed(error: cranelift_module::ModuleError) -> NativeError {
    NativeError::Failed(error.to_string())
}
