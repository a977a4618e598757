//! `tools_read_all`: every kind of file that the program writes, through the programs that people use on captures.

use crate::place::Place;
use crate::table::Table;

/// The row, and the bar.
pub const ROW: &str = "tools_read_all";
/// Kinds of files.
pub const KINDS: [&str; 8] = [
    "a dump",
    "a dump of two interfaces",
    "a dump of two link types",
    "a dump with late packets",
    "a pcap dump",
    "-w FILE",
    "-w -",
    "a ring file",
];
/// Makes and checks one file, or two, of each kind.
pub fn measure(_place: &Place, table: &mut Table) {
    for kind in KINDS {
        table.leave_out(ROW, kind, "", "not measured yet");
    }
}
