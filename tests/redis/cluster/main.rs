//! A cluster: the conformance suite, announced addresses, dead and frozen primaries, moved slots, and names that it can't keep.

mod announced;
mod conformance;
mod durable;
mod moves;
mod nodes;
mod support;
