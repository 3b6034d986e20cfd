//! The hand-off in plain Rust: what every backend with this discipline does, with no store, no I/O and no clock.
//!
//! It is meant to be read. Time is given with each question, in milliseconds; the model of a lock is a value that
//! answers and changes. `tests/reference/` holds the memory backend and the Lua on a real server against it, answer by
//! answer and state by state.
//!
//! | file | topic |
//! | --- | --- |
//! | [`words`] | what is asked, answered and told |
//! | [`lock`] | **the rules**: each operation, step by step, and the one way in which a lock is handed on |
//! | [`mod@line`] | places: who is present, who is absent, who is forgotten |
//! | [`line_clock`] | the clock that judges only whether a waiter is present |
//! | [`sequence`] | the numbers that only grow |
//!
//! Locks share nothing, so one lock is enough.

pub mod line;
pub mod line_clock;
pub mod lock;
pub mod sequence;
pub mod words;

pub use line::{Line, Place, Presence};
pub use lock::{Hold, Lock, Turn};
pub use words::{Answer, Ask, ClientNumber, Member, Millis, Patience, Push};
