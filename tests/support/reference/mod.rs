//! The hand-off in plain Rust: what every backend with this discipline does, without a store, I/O or a clock.
//!
//! It is meant to be read. Each question carries the time in milliseconds; the model of a lock is a value that
//! answers and changes. `tests/rules/reference/` compares the memory backend and the Lua on a real server with it, answer
//! by answer and state by state; `history::replay` asks whether it could have done what processes saw.
//!
//! | file | topic |
//! | --- | --- |
//! | [`words`] | questions, answers and pushes |
//! | [`lock`] | **the rules**: each operation, step by step, and the one way to hand a lock on |
//! | [`holds`] | the holds, their units and their ends |
//! | [`mod@line`] | places: present, absent, forgotten |
//! | [`line_clock`] | the clock that only judges whether a waiter is present |
//! | [`sequence`] | the growing numbers |
//!
//! Locks share nothing, so the model of one lock is enough.

pub mod holds;
pub mod line;
pub mod line_clock;
pub mod lock;
pub mod sequence;
pub mod words;

pub use holds::{Hold, Kind};
pub use line::{Line, Place, Presence};
pub use lock::{KEPT_FOR, Lock, Turn};
pub use words::{Answer, Ask, ClientNumber, Member, Millis, Patience, Push, Renew};
