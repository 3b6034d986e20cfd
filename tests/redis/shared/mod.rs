//! Locks with several holders on a real server, asked through the backend: units, ends, what clients are told, and names in use.

mod ends;
mod messages;
mod names;
mod spoilt;
mod support;
mod units;
