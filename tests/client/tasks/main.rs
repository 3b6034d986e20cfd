//! Locks for tasks, on every executor and over every backend: waits and releases that block no thread.

mod calls;
mod crowds;
mod ends;
mod executors;
mod paused;
mod support;
mod work;
