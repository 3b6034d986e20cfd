//! What happens with `pg_advisory_lock` and `sqlx::PgAdvisoryLock` in a pool, and what happens here instead: each test shows both.
//! The guide's page "From `pg_advisory_lock` and `sqlx::PgAdvisoryLock`" names them.

use std::sync::LazyLock;
use std::time::Duration;

use fairlock::{AsyncLock, Client, PostgresBackend, TryLock};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{PgBouncer, PostgresServer, Proxy};
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockKey, PgPool, PgPoolOptions};
use sqlx::{Connection, Either, Error, PgConnection};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};

/// The limit for anything immediate, on a busy machine.
const SOON: Duration = Duration::from_secs(15);
/// After which a caller gives up.
const PATIENCE: Duration = Duration::from_millis(300);
const KEY: i64 = 7;

static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

/// The tests' own client blocks, and has a runtime of its own.
fn new_database() -> String {
    block_in_place(|| SERVER.new_database())
}

async fn pool(url: &str, connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(connections).acquire_timeout(PATIENCE).connect(url).await.unwrap()
}

/// A lock of a client of its own, as another process has it.
fn lock(url: &str) -> AsyncLock {
    Client::new(PostgresBackend::connect(url).unwrap()).unwrap().fair_lock("orders").unwrap().to_async()
}

async fn try_advisory(con: &mut PgConnection, key: i64) -> bool {
    sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(key).fetch_one(con).await.unwrap()
}

/// How many sessions have the lock of this key, and how many wait for it.
async fn sessions(con: &mut PgConnection, key: i64) -> (i64, i64) {
    let sql = "select count(*) filter (where granted), count(*) filter (where not granted) from pg_locks
               where locktype = 'advisory' and objid = $1::bigint::oid and database = (select oid from pg_database where datname = current_database())";
    sqlx::query_as(sql).bind(key).fetch_one(con).await.unwrap()
}

async fn until_sessions(con: &mut PgConnection, key: i64, expected: (i64, i64)) {
    let began = Instant::now();
    while sessions(con, key).await != expected {
        assert!(began.elapsed() < SOON, "{:?}, not {expected:?}", sessions(con, key).await);
        sleep(Duration::from_millis(5)).await;
    }
}

/// The future waits with a time-out, and is dropped. The server goes on, and grants the lock to a session that lies in the pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_future_leaves_its_lock_in_the_pool() {
    let url = new_database();
    let mut other = PgConnection::connect(&url).await.unwrap();
    assert!(try_advisory(&mut other, KEY).await);
    let pool = pool(&url, 2).await;
    let wait = sqlx::query("select pg_advisory_lock($1)").bind(KEY).execute(&pool);
    assert!(timeout(PATIENCE, wait).await.is_err());
    sqlx::query("select pg_advisory_unlock($1)").bind(KEY).execute(&mut other).await.unwrap();
    until_sessions(&mut other, KEY, (1, 0)).await;
    sleep(PATIENCE).await;
    assert!(!try_advisory(&mut other, KEY).await, "nobody wants it, and nobody else gets it");

    let (holds, waits, third) = (lock(&url), lock(&url), lock(&url));
    let guard = holds.lock().await.unwrap();
    assert!(timeout(PATIENCE, waits.lock()).await.is_err());
    guard.unlock().await.unwrap();
    drop(timeout(SOON, third.lock()).await.unwrap().unwrap());
}

/// The same with `PgAdvisoryLock`: its guard is made when the answer has come.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_try_leaves_its_lock_in_the_pool() {
    let url = new_database();
    let proxy = Proxy::start(SERVER.port());
    let slow = proxy.in_place_of_server(&url);
    let mut other = PgConnection::connect(&url).await.unwrap();
    let advisory = PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(KEY));
    let pool = pool(&slow, 1).await;
    let Either::Left(first) = advisory.try_acquire(pool.acquire().await.unwrap()).await.unwrap() else {
        panic!("it is free")
    };
    first.release_now().await.unwrap(); // the statements are prepared
    let con = pool.acquire().await.unwrap();
    proxy.set_all(&Traffic::INWARD, Rule::Hold);
    assert!(timeout(PATIENCE, advisory.try_acquire(con)).await.is_err());
    proxy.set_all(&Traffic::INWARD, Rule::Pass);
    until_sessions(&mut other, KEY, (1, 0)).await;
    sleep(PATIENCE).await;
    assert!(!try_advisory(&mut other, KEY).await, "it stays in the pool");

    let (tries, then) = (lock(&slow), lock(&url));
    tries.lock().await.unwrap().unlock().await.unwrap();
    proxy.set_all(&Traffic::INWARD, Rule::Hold);
    assert!(timeout(PATIENCE, tries.try_lock()).await.is_err());
    proxy.set_all(&Traffic::INWARD, Rule::Pass);
    drop(timeout(SOON, then.lock()).await.unwrap().unwrap()); // the grant whose answer nobody waited for is withdrawn
}

/// Behind a pooler in transaction mode two clients are one session, which enters its own lock again.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_transaction_mode_has_two_holders() {
    let url = new_database();
    let pooler = block_in_place(|| PgBouncer::start(&SERVER));
    let pooled = url.replace(&SERVER.address(), &pooler.address());
    let connect = async || {
        let (client, driven) = tokio_postgres::connect(&pooled, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(driven);
        client
    };
    let (one, two) = (connect().await, connect().await);
    let sql = "select pg_try_advisory_lock(7)::text";
    let got = async |client: &tokio_postgres::Client| {
        let said = client.simple_query(sql).await.unwrap();
        let row = said.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        row == Some("true")
    };
    assert!(got(&one).await && got(&two).await, "both have it");

    let (ours, theirs) = (lock(&pooled), lock(&pooled));
    let guard = ours.lock().await.unwrap();
    assert!(matches!(theirs.try_lock().await.unwrap(), TryLock::Busy(_)));
    guard.unlock().await.unwrap();
    drop(timeout(SOON, theirs.lock()).await.unwrap().unwrap());
}

/// Each waiter has a connection. The holder, who would end the wait, finds none for its work.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_use_up_the_pool_that_the_holder_needs() {
    let url = new_database();
    let mut look = PgConnection::connect(&url).await.unwrap();
    let few = pool(&url, 3).await;
    let advisory = PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(KEY));
    let holder = advisory.acquire(few.acquire().await.unwrap()).await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..2 {
        let (con, advisory) = (few.acquire().await.unwrap(), advisory.clone());
        waiters.push(tokio::spawn(async move { advisory.acquire(con).await.map(drop) }));
    }
    until_sessions(&mut look, KEY, (1, 2)).await;
    let work = sqlx::query("select 1").execute(&few).await;
    assert!(matches!(work, Err(Error::PoolTimedOut)), "{work:?}");
    holder.release_now().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }

    let few = pool(&url, 1).await;
    let ours = lock(&url);
    let guard = ours.lock().await.unwrap();
    let waiters: Vec<_> = (0..20).map(|_| tokio::spawn(ours.lock())).collect();
    let lock = Client::new(PostgresBackend::connect(&url).unwrap()).unwrap().fair_lock("orders").unwrap();
    let began = Instant::now();
    while lock.admin().inspect().unwrap().queue_length < 20 {
        assert!(began.elapsed() < SOON);
        sleep(Duration::from_millis(5)).await;
    }
    sqlx::query("select 1").execute(&few).await.unwrap(); // the program's pool has no part in the waits
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().unlock().await.unwrap();
    }
}

/// A network that drops everything: the server keeps a silent session, and its locks, until TCP gives up.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_network_is_gone_keeps_its_lock() {
    let url = new_database();
    let proxy = Proxy::start(SERVER.port());
    let through = proxy.in_place_of_server(&url);
    let mut gone = PgConnection::connect(&through).await.unwrap();
    assert!(try_advisory(&mut gone, KEY).await);
    let second = Duration::from_secs(1);
    let short = PostgresBackend::builder(&through).response_timeout(second / 2).connect().unwrap();
    let holder = Client::builder(short).lease(second).build().unwrap();
    let guard = holder.fair_lock("orders").unwrap().to_async().lock().await.unwrap();
    proxy.set_all(&Traffic::ALL, Rule::Hold);
    let began = Instant::now();
    let taken = timeout(SOON, lock(&url).lock()).await.unwrap().unwrap();
    let waited = began.elapsed();
    assert!(
        guard.is_lost() && taken.token() > guard.token(),
        "its holder knows, and a later write can be refused"
    );
    let mut other = PgConnection::connect(&url).await.unwrap();
    sleep(waited).await;
    assert!(!try_advisory(&mut other, KEY).await, "after twice that time");
}

/// A session that was ended has lost its lock, and its guard says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_outlives_its_session_and_says_nothing() {
    let url = new_database();
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let advisory = PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(KEY));
    let guard = advisory.acquire(PgConnection::connect(&url).await.unwrap()).await.unwrap();
    let (ours, theirs) = (lock(&url), lock(&url));
    let held = ours.lock().await.unwrap();
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()";
    sqlx::query(end).execute(&mut admin).await.unwrap();
    until_sessions(&mut admin, KEY, (0, 0)).await;
    assert!(try_advisory(&mut admin, KEY).await, "two have it, and the guard has no word for that");
    drop(guard);

    let again = PostgresBackend::builder(&url).connect_within(SOON).connect().unwrap();
    let again = Client::new(again).unwrap().fair_lock("orders").unwrap();
    assert!(matches!(again.try_lock().unwrap(), TryLock::Busy(_)), "the hold is a row, not a session");
    assert!(!held.is_lost());
    held.unlock().await.unwrap();
    drop(timeout(SOON, theirs.lock()).await.unwrap().unwrap());
}

/// A program that keeps its connections asks by `pg_try_advisory_lock`, again and again: then the session that asks next gets the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_tries_has_no_order() {
    let url = new_database();
    let connect = async || PgConnection::connect(&url).await.unwrap();
    let (mut holder, mut early, mut late) = (connect().await, connect().await, connect().await);
    assert!(try_advisory(&mut holder, KEY).await);
    for _ in 0..5 {
        assert!(!try_advisory(&mut early, KEY).await, "it asks all the time");
    }
    sqlx::query("select pg_advisory_unlock($1)").bind(KEY).execute(&mut holder).await.unwrap();
    assert!(try_advisory(&mut late, KEY).await, "it asks for the first time");
    assert!(!try_advisory(&mut early, KEY).await);

    let (holds, first, newcomer) = (lock(&url), lock(&url), lock(&url));
    let guard = holds.lock().await.unwrap();
    let waits = tokio::spawn(first.lock());
    let look = Client::new(PostgresBackend::connect(&url).unwrap()).unwrap().fair_lock("orders").unwrap();
    let began = Instant::now();
    while look.admin().inspect().unwrap().queue_length < 1 {
        assert!(began.elapsed() < SOON);
        sleep(Duration::from_millis(5)).await;
    }
    guard.unlock().await.unwrap();
    assert!(matches!(newcomer.try_lock().await.unwrap(), TryLock::Busy(_)));
    waits.await.unwrap().unwrap().unlock().await.unwrap();
}
