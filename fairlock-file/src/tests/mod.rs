//! The whole conformance suite, and what it can't know.

mod adopted;
mod clients;
mod conformance;
mod crafted;
mod files;
mod noted;
mod others;
mod store;
