//! Text for a terminal or a log: the leak trace, the live heap, what keeps objects alive, what grows, why memory
//! ran out.
//!
//! No line is longer than 100 characters, but for the table of processes, what grows, and why memory ran out.

mod cycles;
mod device_memory;
mod diff;
mod growth;
mod heap;
mod post_mortem;
mod processes;
mod retention;

pub(super) use cycles::{body, occasion};
pub use cycles::{colored_trace, command, one_line, trace, warning};
pub use device_memory::device_memory;
pub use diff::diff;
pub use growth::{grown, growth, paragraph};
pub use heap::{heap, table};
pub use post_mortem::post_mortem;
pub use processes::table_of_processes;
pub(super) use processes::{mib, mib_of, process_name, with_most};
pub use retention::retention;

pub use super::growth_sentences::growth_headline;
