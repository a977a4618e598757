//! Filter text to predicate, and templates that a hit fills.
//!
//! | module | what it holds |
//! |---|---|
//! | [`filter`] | [`Filter`]: one text for all link types, [`Predicate`]: its programs for one, the VLAN rule |
//! | [`input`] | [`FilterInput`]: a packet as predicates see it, one or a batch |
//! | [`table`] | [`KeyTable`]: which of very many filters a packet's key leaves open, by one look-up |
//! | [`flows`] | [`FlowFilter`]: which records of flows a filter matches, by a frame that is made of each |
//! | [`template`] | [`Template`]: dump filters and holdoff keys with `$srcIP` and the like, filled from the packet that fired |
//! | [`screen`] | [`Screen`]: what the key entries of all packets have in common that a filter matches |
//! | [`meaning`] | what a text means where libpcap's language surprises, in words |
//! | [`assembly`] | programs as `tcpdump -d` prints them |
//! | [`kernel`] | when the kernel may evaluate a filter first, and with which program |
//! | `choice` | which of a filter's programs is evaluated for a packet |
//! | `listing` | a text's programs for one link type and each number of VLAN tags |
//! | `cooked` | the same behind VLAN tags in Linux cooked captures |
//! | [`error`] | why a text is refused, with the place and a caret under it |
//! | `excerpt` | a refused text's line, with a mark below the place |
//! | `guess` | what was probably meant by a text that isn't a filter |
//! | `words` | the language's tokens; refuses names of hosts and nets |
//! | `names` | names of ports and protocols become numbers: libpcap looks nothing up |
//! | `pieces` | compiles long texts piece by piece |
//! | `place` | finds the token at which libpcap's "syntax error" begins |
//! | `bpf` | classic BPF programs, checked once, and their interpreter |
//! | `native` | the programs as machine code |
//! | `libpcap` | the few functions of libpcap that are called |
//!
//! The language and its meaning are libpcap's. Nothing here ever looks a name up in the system's name service
//! or the network. Absent on purpose: any knowledge of triggers, dumps or sockets.

pub mod assembly;
mod bpf;
mod choice;
mod cooked;
pub mod error;
mod excerpt;
pub mod filter;
pub mod flows;
mod guess;
pub mod input;
pub mod kernel;
mod libpcap;
mod listing;
pub mod meaning;
mod names;
mod native;
mod pieces;
mod place;
mod reach;
pub mod screen;
#[cfg(test)]
mod specimens;
pub mod table;
pub mod template;
#[cfg(test)]
mod tests;
mod words;

pub use error::FilterError;
pub use excerpt::excerpt;
pub use filter::{Filter, FilterEngine, Predicate, VlanRule};
pub use flows::{FlowFilter, FlowKey};
pub use input::{FILTER_INPUTS_MAX, FilterInput};
pub use libpcap::libpcap_version;
pub use native::NativeError;
pub use screen::Screen;
pub use table::KeyTable;
pub use template::{
    BadGiven, Given, GivenName, NameKind, NoFilter, Shape, Template, TemplateError, Unfilled, Values,
    host_pair_default, host_pair_filter, host_pair_shape, host_pair_values,
};
pub use words::is_filter_word;
