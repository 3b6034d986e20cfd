//! The whole conformance suite, and what it can't know.

mod clients;
mod conformance;
mod crafted;
mod files;
mod others;
mod store;
