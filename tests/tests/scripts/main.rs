//! Scripts can't be half done: every operation of every discipline, on keys in every state, at servers that refuse in
//! every way. Either all of the effect is there or nothing of it, and the error says what was wrong.
//!
//! | file | what it has |
//! | --- | --- |
//! | `scripts/world.rs` | one lock at one server: who has what, and what lies in its keys |
//! | `scripts/scenes.rs` | the rows: an operation, and how things stand before it |
//! | `scripts/states.rs` | the columns: what somebody else has done to a key |
//! | `scripts/refusals.rs` | the third dimension: why the server refuses |
//! | `scripts/table.rs` | runs the table |
//! | `scripts/leaving.rs` | who is next when somebody leaves a line whose lock is free |
//! | `scripts/words.rs` | what a user of the library gets to hear |
//! | `scripts/disciplines.rs` | disciplines that are mixed on one lock |
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod disciplines;
mod leaving;
mod refusals;
mod scenes;
mod states;
mod table;
mod words;
mod world;
