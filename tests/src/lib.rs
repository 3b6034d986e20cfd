//! Support for the whole-system tests: real servers, and the checks that hold for every run.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`redis_server`] | a redis-server of the test's own: start, stop, kill, restart, ask |
//! | [`cluster`] | a cluster of several nodes, and slots that move |
//! | [`sentinel`] | a master, a replica and three sentinels |
//! | [`locks`] | takes a lock, asks for it, waits for the grant |
//! | [`errors`] | checks which error it is, and what its message says |
//! | [`server_state`] | a line's members, listeners, how often commands were carried out |
//! | [`residue`] | is anything left behind in the server? |
//! | [`threads`] | is any thread of fairlock left in this process? |
//! | [`history`] | what several processes saw, in one order of time, and the checkers for it |
//! | [`monitor`] | what the server did with one line, and the checker of its order |
//! | [`proxy`] | loses, delays and cuts what clients and server say |
//! | [`soak`] | a long run under faults that follow from a seed, and its checkers |
//! | [`bound`] | ends a test that hangs, by name |
//! | [`mod@eventually`] | the only place where a test waits by looking again |
//! | [`waiter`] | someone who waits in a thread of his own |
//! | [`workdir`] | a temp dir that goes away, with the processes noted in it, even if this process is killed |
//! | [`signals`] | stop and continue a child process |
//! | [`port`] | a port that no other test takes |
//! | [`tls`] | throw-away certificates |
//! | [`mod@reference`] | the hand-off as a model that can be read: what every backend with this discipline does |
//! | [`percent`] | any text as one word, for URLs and history lines |
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a fixture that can't work ends the test with a sentence"
)]

pub mod bound;
pub mod cluster;
pub mod errors;
pub mod eventually;
pub mod history;
pub mod locks;
pub mod monitor;
pub mod percent;
pub mod port;
pub mod proxy;
pub mod redis_server;
pub mod reference;
pub mod residue;
pub mod sentinel;
pub mod server_state;
pub mod signals;
pub mod soak;
pub mod threads;
pub mod tls;
pub mod waiter;
pub mod workdir;
pub mod worker;

pub use bound::Bound;
pub use cluster::Cluster;
pub use eventually::{eventually, look_until};
pub use monitor::Monitor;
pub use proxy::Proxy;
pub use redis_server::{RedisServer, RedisServerBuilder};
pub use residue::{assert_no_residue, keys_without_ttl, wait_until_no_residue};
pub use sentinel::Sentinels;
pub use threads::{Alone, our_threads, wait_until_no_threads};
pub use waiter::Waiter;
pub use workdir::WorkDir;
pub use worker::Worker;
