//! Clients with short times, and what a server has of their locks.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use fairlock::settings::ClientBuilder;
use fairlock::{Client, PostgresBackend};
pub(crate) use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::{PostgresServer, Proxy, eventually, look_until};

/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(15);
/// How late a timed event may be, on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// The lease here.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The places' time to live.
pub(crate) const PLACE: Duration = Duration::from_millis(1200);
/// Connecting, and each answer.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);
/// For how long a call asks again.
pub(crate) const OUTAGE: Duration = Duration::from_secs(1);
/// For how long the server keeps a row for a client that says nothing.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// A server that no test ends, stops or sets up.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
    &SERVER
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn builder(url: &str) -> ClientBuilder {
    let backend = PostgresBackend::builder(url).connect_timeout(ANSWER).response_timeout(ANSWER);
    let backend = backend.connect_within(SOON); // a busy machine may need more than one attempt
    Client::builder(backend.connect().unwrap()).lease(LEASE).place_ttl(PLACE).outage_limit(OUTAGE)
}

pub(crate) fn client(url: &str) -> Client {
    builder(url).build().unwrap()
}

/// A client whose calls ask again for as long as a restart takes, and whose places and leases outlive it.
pub(crate) fn patient(url: &str) -> Client {
    let long = Duration::from_secs(60);
    builder(url).lease(long).place_ttl(long).outage_limit(SOON).build().unwrap()
}

/// The URL of the server's first database through this proxy.
pub(crate) fn through(server: &PostgresServer, proxy: &Proxy) -> String {
    server.url().replace(&server.address(), &format!("127.0.0.1:{}", proxy.port()))
}

/// Waits until this many stand in the queue.
pub(crate) fn until_in_queue(client: &Client, name: &str, waiters: u64) {
    let lock = client.fair_lock(name).unwrap();
    eventually("the waiters stand in the queue", || {
        lock.admin().inspect().is_ok_and(|state| state.queue_length == waiters)
    });
}

/// Who holds a lock or waits for it, or did so when the lock was last used; and transactions that are open.
pub(crate) fn left(server: &PostgresServer) -> Vec<String> {
    let sql = "select convert_from(name, 'UTF8') || ': ' || coalesce(h_owner, 'nobody') || ', ' || encode(state, 'hex') from fairlock.lock
               where state <> '' or h_owner is not null
               union all select 'open: ' || query from pg_stat_activity where state like 'idle in transaction%'";
    server.con().query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// Waits until only the last numbers are left, and no transaction is open.
#[track_caller]
pub(crate) fn until_nothing_left(server: &PostgresServer) {
    let gone = look_until(SOON, || left(server).is_empty().then_some(()));
    assert!(gone.is_some(), "left behind: {:#?}", left(server));
}

/// Runs this, and panics unless it ends in time.
#[track_caller]
pub(crate) fn within<T>(bound: Duration, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = call();
    let took = start.elapsed();
    assert!(took < bound, "it took {took:?}, {bound:?} are allowed");
    result
}
