//! Scripts are never half executed: every operation of every discipline, with keys in every state, on servers that
//! refuse in every way. Either the whole effect is there or none of it, and the error names the cause.
//!
//! | file | what it has |
//! | --- | --- |
//! | `scripts/world.rs` | one lock on one server: its owners, and its keys |
//! | `scripts/scenes.rs` | the rows: an operation, and the situation before it |
//! | `scripts/states.rs` | the columns: what others have done to a key |
//! | `scripts/refusals.rs` | the third dimension: the server's reason to refuse |
//! | `scripts/table.rs` | runs the table |
//! | `scripts/disciplines.rs` | mixed disciplines on one lock |
//! | `scripts/batches.rs` | many holds in one call |

mod batches;
mod disciplines;
mod refusals;
mod scenes;
mod states;
mod table;
mod world;
