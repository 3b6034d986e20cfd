//! Fencing: the resource keeps the greatest token beside the data, and refuses a write with a smaller one. One module for each kind of
//! resource.

pub mod http;
pub mod objects;
pub mod postgres;
pub mod redis;
pub mod sqlite;

/// The outcome of a fenced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// No newer hold has written: the write is done, or may go on.
    Passed,
    /// A newer hold has written: this hold is over, and nothing was written.
    Stale,
}
