//! Support for the whole-system tests: real servers, and checks for every run.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`redis_server`] | a redis-server of the test's own: start, stop, kill, restart, query |
//! | [`clean_server`] | the one server of a test, at which nothing may be left when the test ends |
//! | [`postgres_server`] | a PostgreSQL server of the test's own: start, stop, kill, restart, standby; PgBouncer and Pgpool-II |
//! | [`cluster`] | a cluster of several nodes, and slots that move |
//! | [`messages`] | each kind of message once, for stores of several servers |
//! | [`pair`] | a master and a replica that takes its place by hand |
//! | [`sentinel`] | a master, a replica and three sentinels |
//! | [`managed`] | a server that behaves like the managed ones |
//! | [`connecting`] | connects to a server that can't take it yet |
//! | [`locks`] | takes a lock, requests it, waits for the grant |
//! | [`mod@log_lines`] | keeps what this process logs |
//! | [`errors`] | checks the kind and the message of an error |
//! | [`mod@secrets`] | looks for passwords in what is printed |
//! | [`server_state`] | the members of a queue, what a key has, listeners, command counts |
//! | [`residue`] | checks that nothing is left in the server |
//! | [`threads`] | checks that no thread of fairlock is left in this process |
//! | [`history`] | what several processes saw, in one order of time |
//! | [`oracle`] | what a history shows of the promises |
//! | [`proxy`] | loses, delays and cuts the traffic between clients and server |
//! | [`turns`] | worker processes that take turns, and the verdict on what they recorded |
//! | [`dice`] | random choices that follow from a seed |
//! | [`bound`] | ends a test that hangs, and names it |
//! | [`mod@eventually`] | waits for a condition; the only place that polls |
//! | [`waiter`] | waits for a lock in its own thread |
//! | [`workdir`] | a temp dir that is removed with the processes noted in it, even if this process is killed |
//! | [`wall_clock`] | wall clocks of programs that are wrong |
//! | [`signals`] | stops and continues a child process |
//! | [`port`] | a port that no other test takes |
//! | [`tls`] | throw-away certificates |
//! | [`files`] | the files of the repository |
//! | [`mod@word`] | the names of variants in arguments and tables |
//! | [`percent`] | any text as one word, for URLs and history lines |
#![forbid(unsafe_code)]

/// The chapters of the guide that need tokio. The others are doctests of `fairlock`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/async.md")]
#[doc = include_str!("../../docs/testing.md")]
struct Async;

pub mod bound;
pub mod clean_server;
pub mod cluster;
pub mod connecting;
pub mod dice;
pub mod errors;
pub mod eventually;
pub mod files;
pub mod history;
pub mod locks;
pub mod log_lines;
pub mod managed;
pub mod messages;
pub mod oracle;
pub mod pair;
pub mod percent;
pub mod port;
pub mod postgres_server;
pub mod proxy;
pub mod redis_server;
pub mod residue;
pub mod secrets;
pub mod sentinel;
pub mod server_state;
pub mod signals;
pub mod threads;
pub mod tls;
pub mod turns;
pub mod waiter;
pub mod wall_clock;
pub mod word;
pub mod workdir;
pub mod worker;

pub use bound::Bound;
pub use clean_server::CleanServer;
pub use cluster::Cluster;
pub use eventually::{eventually, look_until};
pub use managed::Managed;
pub use pair::Pair;
pub use postgres_server::{PgBouncer, PgPool, PostgresServer, PostgresServerBuilder};
pub use proxy::Proxy;
pub use redis_server::{RedisServer, RedisServerBuilder};
pub use residue::{assert_no_residue, keys_without_ttl, wait_until_no_residue};
pub use sentinel::Sentinels;
pub use threads::{Alone, by_threads, our_threads, wait_until_no_threads};
pub use waiter::Waiter;
pub use wall_clock::set_wall_clock;
pub use workdir::WorkDir;
pub use worker::Worker;
