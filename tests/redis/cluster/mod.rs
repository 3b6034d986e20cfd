//! A cluster: each kind of message, announced addresses, dead and frozen primaries, moved slots, and names that it can't keep.

mod announced;
mod durable;
mod messages;
mod moves;
mod nodes;
mod support;
