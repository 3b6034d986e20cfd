//! From a lock and an operation to the bytes of a script, and from a reply to its meaning.
//!
//! ```text
//! run, key_at_fault     runs a script on the server that keeps the lock; puts a refusal into words
//! answers, reply        what the replies mean
//! scripts               the Lua, one file an operation
//! keys, key_cache       how a lock's keys are spelled
//! arguments             how a command is written
//! ```

pub(crate) mod answers;
pub(crate) mod arguments;
mod key_at_fault;
pub(crate) mod key_cache;
pub(crate) mod keys;
pub(crate) mod reply;
pub(crate) mod run;
pub(crate) mod scripts;
