//! Locks that survive a forgetful server, beside locks that don't: one room around scripts and replies.
//!
//! ```text
//! calls        how a durable client calls a script, and how another client does
//! lives        the keys of the lives, the text around a script, and what a server tells of its life
//! graces       which servers are in a grace
//! beside       whether other clients are durable, for a client that is not
//! durability   the settings, and the times that follow from them
//! ```
//!
//! `scripts/lib/life.lua` has the rules.

mod calls;
mod durability;
mod graces;
mod lives;
mod peers;

pub(crate) use calls::Calls;
pub use durability::Durability;
pub(crate) use lives::lives_of;
