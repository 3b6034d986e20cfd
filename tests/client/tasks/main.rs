//! Locks for tasks, on every executor and over every backend: waits and releases that block no thread.

mod calls;
mod crowds;
mod executors;
#[cfg(feature = "night")]
mod faults;
mod paused;
#[cfg(feature = "night")]
mod servers;
mod support;
mod work;
