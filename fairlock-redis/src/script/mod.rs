//! From a lock and an operation to the bytes of a script, and from a reply to its meaning.
//!
//! ```text
//! run, key_at_fault     runs a script on the server that keeps the lock; puts a refusal into words
//! answers, reply        what the replies mean
//! scripts               the Lua, one file an operation
//! keys, kept_keys       how a lock's keys are spelled
//! arguments             how a command is written
//! ```

pub(crate) mod answers;
pub(crate) mod arguments;
pub(crate) mod kept_keys;
mod key_at_fault;
pub(crate) mod keys;
pub(crate) mod reply;
pub(crate) mod run;
pub(crate) mod scripts;
