//! The connections: commands go out over shared lanes, wake-ups come in through one ear a client.
//!
//! `Topology` (`Sentinel`, `Cluster`) → `Lanes` → `Lane` → `open` → the server; and back: the server → `listener` → `Ear` →
//! whoever listens. Only this
//! folder knows sockets and broken links; outside it there are replies and [`Failure`]s.

mod address;
mod backoff;
mod channels;
mod cluster;
mod connection;
mod ear;
mod failure;
mod hash_slot;
mod lane;
mod lanes;
mod listener;
mod look;
mod names;
mod rehearsal;
mod sentinel;
mod slot;
mod slot_map;
mod socket;
mod stations;
mod survey;
mod target;
#[cfg(test)]
mod test_server;
#[cfg(feature = "tls-rustls")]
mod tls;
mod topology;
mod wire;

pub(crate) use address::Address;
pub(crate) use cluster::Cluster;
pub(crate) use connection::Timeouts;
pub(crate) use ear::{Ear, Heard};
pub(crate) use failure::Failure;
pub(crate) use lanes::{Fleet, Lanes};
pub(crate) use look::{Topic, advice, field, look};
pub(crate) use rehearsal::rehearse;
pub(crate) use sentinel::Sentinel;
pub(crate) use stations::Stations;
pub(crate) use target::Target;
pub(crate) use topology::{Listeners, Route, Topology, Trouble};
