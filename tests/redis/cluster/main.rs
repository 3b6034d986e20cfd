//! A cluster: the conformance suite, dead and frozen primaries, moved slots, and names that it can't keep.

mod conformance;
mod durable;
mod moves;
mod nodes;
mod support;
