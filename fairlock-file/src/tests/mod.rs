//! The whole conformance suite, and what it can't know.

mod conformance;
mod store;
