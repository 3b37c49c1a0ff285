//! Text for a terminal or a log: the leak trace, the live heap, what keeps objects alive.
//!
//! No line is longer than 100 characters, but for the table of processes.

mod cycles;
mod diff;
mod heap;
mod processes;
mod retention;

pub(super) use cycles::{body, occasion};
pub use cycles::{colored_trace, one_line, trace};
pub use diff::diff;
pub use heap::{heap, table};
pub use processes::table_of_processes;
pub(super) use processes::{mib, mib_of, process_name};
pub use retention::retention;
