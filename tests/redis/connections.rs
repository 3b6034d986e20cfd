//! Connections, settings, and servers that are unreachable, silent, closing or coming back. Nothing is lost, and
//! every call ends in its time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, LockKind, ManualClock, RedisBackend, TryLock};
use fairlock_tests::errors::{assert_denied, assert_says, assert_unavailable};
use fairlock_tests::tls::Flaw;
use fairlock_tests::{RedisServer, assert_no_residue, eventually, wait_until_no_residue};

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(15);
const OUTAGE_LIMIT: Duration = Duration::from_millis(1500);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client_at(url: &str) -> Client {
    Client::builder(RedisBackend::connect(url).unwrap()).outage_limit(OUTAGE_LIMIT).build().unwrap()
}

#[track_caller]
fn within<T>(bound: Duration, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = call();
    let took = start.elapsed();
    assert!(took < bound, "it took {took:?}, {bound:?} are allowed");
    result
}

#[test]
fn a_server_that_is_down_is_named_at_connect() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    server.kill();
    let refused = within(ms(2500), || RedisBackend::connect(&server.url()));
    let parts = ["Redis at ", &server.address(), "connecting", "refused", "; is Redis running there?"];
    assert_unavailable(refused, &parts);
    // A frozen server accepts connections and says nothing.
    server.restart();
    server.stop();
    let silent = within(ms(2500), || RedisBackend::connect(&server.url()));
    let late = "no answer within 1s (connect_timeout)";
    assert_unavailable(silent, &["Redis at ", &server.address(), late]);
    let nowhere = within(ms(2500), || RedisBackend::connect("unix:///nowhere/redis.sock"));
    let parts = ["Redis at /nowhere/redis.sock", "No such file", "; is Redis running there?"];
    assert_unavailable(nowhere, &parts);
}

#[test]
fn a_wrong_login_is_refused_at_connect() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::builder().requirepass("right").start();
    let connect = |url: &str| RedisBackend::connect(url).map(|_| ());
    let at = server.address();
    let denied = "the server denies access: Redis at ";
    assert_denied(connect(&server.url_as("", "WRONG")), &[denied, &at, "wrong user or password"]);
    assert_denied(connect(&server.url_as("nobody", "right")), &[denied, &at, "wrong user or password"]);
    assert_denied(connect(&server.url_as("", "")), &[denied, &at, "the server asks for a password"]);
    connect(&server.url()).unwrap();
    // An unneeded password is refused as well: the operator means another server.
    let open = RedisServer::start();
    assert_denied(connect(&open.url_as("", "WRONG")), &[denied, "a password, but the server has none"]);
}

#[test]
fn an_outage_is_an_error_in_bounded_time_and_its_end_is_noticed() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let client = client_at(&server.url());
    let lock = client.fair_lock("orders").unwrap();
    let held = client.fair_lock("held").unwrap().lock().unwrap();
    server.kill();
    let parts = ["(lock `orders`)", "Redis at ", &server.address(), "refused"];
    let waited = Instant::now();
    let bound = OUTAGE_LIMIT + ms(3000);
    assert_unavailable(within(bound, || lock.owned_by(&client.new_owner()).unwrap().lock()), &parts);
    assert!(waited.elapsed() >= OUTAGE_LIMIT, "the call gave up after {:?}", waited.elapsed());
    assert_unavailable(within(bound, || lock.owned_by(&client.new_owner()).unwrap().try_lock()), &parts);
    assert_unavailable(
        within(ms(2500), || lock.owned_by(&client.new_owner()).unwrap().try_lock_for(ms(200))),
        &parts,
    );
    assert_unavailable(within(bound, || lock.inspect()), &parts);
    assert_unavailable(within(bound, || lock.force_unlock()), &parts);
    assert_unavailable(within(bound, || held.unlock()), &["(lock `held`)", &server.address(), "refused"]);

    server.restart();
    eventually(BOUND, "the same lock works again", || match lock.try_lock() {
        Ok(tried) => tried.guard().expect("no other client holds the lock").unlock().is_ok(),
        Err(_) => false,
    });
    within(BOUND, || lock.lock()).unwrap().unlock().unwrap();
    // Also for an owner whose release did not reach the server.
    within(BOUND, || client.fair_lock("held").unwrap().lock()).unwrap().unlock().unwrap();
    wait_until_no_residue(&server);
}

#[test]
fn an_owner_that_asks_again_in_an_outage_gets_the_error_again() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let client = client_at(&server.url());
    let (lock, owner) = (client.fair_lock("orders").unwrap(), client.new_owner());
    lock.owned_by(&owner).unwrap().lock().unwrap().unlock().unwrap();
    server.kill();
    let parts = ["(lock `orders`)", &server.address()];
    let bound = OUTAGE_LIMIT + ms(3000);
    assert_unavailable(within(bound, || lock.owned_by(&owner).unwrap().lock()), &parts);
    assert_unavailable(within(ms(2500), || lock.owned_by(&owner).unwrap().try_lock_for(ms(200))), &parts);
    assert_unavailable(within(bound, || lock.owned_by(&owner).unwrap().try_lock()), &parts);
    assert_unavailable(within(bound, || lock.owned_by(&owner).unwrap().lock()), &parts);
    server.restart();
    eventually(BOUND, "the owner gets the lock", || {
        lock.owned_by(&owner).unwrap().try_lock().is_ok_and(|tried| tried.guard().is_some())
    });
    wait_until_no_residue(&server);
}

#[test]
fn a_server_that_stands_still_costs_no_more_than_the_bounds() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let backend = RedisBackend::builder(&server.url()).connect_timeout(ms(300)).response_timeout(ms(300));
    let builder = Client::builder(backend.connect().unwrap()).lease(ms(1000)).outage_limit(ms(1000));
    let client = builder.build().unwrap();
    let lock = client.fair_lock("orders").unwrap();
    let held = client.fair_lock("held").unwrap().lock().unwrap();
    let unlocked = client.fair_lock("unlocked").unwrap().lock().unwrap();
    server.stop();
    let late = "no answer within 300ms (response_timeout); whether it was carried out is not known";
    assert_unavailable(lock.inspect(), &["(lock `orders`)", late]);
    let parts = ["(lock `orders`)", "Redis at ", &server.address(), "no answer within 300ms ("];
    let (bound, owner) = (ms(1000 + 3000), || client.new_owner());
    thread::scope(|scope| {
        scope.spawn(|| assert_unavailable(within(bound, || lock.owned_by(&owner()).unwrap().lock()), &parts));
        scope.spawn(|| {
            assert_unavailable(within(bound, || lock.owned_by(&owner()).unwrap().try_lock()), &parts)
        });
        scope.spawn(|| {
            assert_unavailable(
                within(ms(2500), || lock.owned_by(&owner()).unwrap().try_lock_for(ms(200))),
                &["`orders`"],
            )
        });
        scope.spawn(|| assert_unavailable(within(bound, || lock.inspect()), &["`orders`"]));
        let error = within(bound, || unlocked.unlock()).unwrap_err();
        assert_says(&error, &["lock `unlocked`"]);
        eventually(bound, "the hold is known to be lost", || held.is_lost());
    });
    server.cont();
    let lost = held.unlock().unwrap_err();
    assert!(matches!(lost, Error::Lost(_)), "{lost:?}");
    assert_says(&lost, &["lock `held` was lost", "its lease could not be renewed in time"]);
    for name in ["orders", "held", "unlocked"] {
        let lock = client.fair_lock(name).unwrap();
        let mut again = None;
        eventually(BOUND, name, || {
            again = lock.try_lock().ok().and_then(TryLock::guard);
            again.is_some()
        });
        again.unwrap().unlock().unwrap();
    }
    wait_until_no_residue(&server);
}

#[test]
fn a_connection_that_is_cut_loses_nothing() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    for (connection, kind) in [
        ("normal", LockKind::Fair),
        ("normal", LockKind::Plain),
        ("pubsub", LockKind::Fair),
        ("pubsub", LockKind::Plain),
    ] {
        let (first, second) = (client_at(&server.url()), client_at(&server.url()));
        let lock_of = |client: &Client| fairlock_tests::locks::lock_of(client, kind, "orders");
        let cut = || {
            let cut: i64 = server.query(&["CLIENT", "KILL", "TYPE", connection]);
            cut > 0
        };
        let guard = lock_of(&first).lock().unwrap();
        let token = guard.token();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = within(BOUND, || lock_of(&second).lock()).unwrap();
                let token = guard.token();
                guard.unlock().unwrap();
                token
            });
            eventually(BOUND, "the waiter waits", || {
                if kind == LockKind::Fair {
                    return lock_of(&first).inspect().is_ok_and(|state| state.line.len() == 1);
                }
                let channel = "redisson_lock__channel:{orders}";
                server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", channel]).len() == 1
            });
            assert!(cut());
            assert_eq!(
                lock_of(&first)
                    .inspect()
                    .or_else(|_| lock_of(&first).inspect())
                    .unwrap()
                    .holder()
                    .unwrap()
                    .token,
                Some(token)
            );
            assert!(!guard.is_lost());
            eventually(BOUND, "the hold can be renewed", || guard.renew().is_ok());
            eventually(BOUND, "the connections are back, and cut again", cut);
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap() > token);
        });
    }
    wait_until_no_residue(&server);
}

#[test]
fn reconnects_and_gaps_are_counted() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let client = client_at(&server.url());
    let lock = client.fair_lock("lock:counted").unwrap();
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!((client.stats().reconnects, client.stats().gaps), (0, 0));
    let cut: u64 = server.query(&["CLIENT", "KILL", "TYPE", "normal"]);
    lock.lock().unwrap().unlock().unwrap();
    let made_anew = client.stats().reconnects;
    assert!((1..=cut).contains(&made_anew), "{made_anew} of {cut}");
    assert_eq!(client.stats().gaps, 0);
    let cut: i64 = server.query(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(cut, 1);
    eventually(BOUND, "the subscription is back", || client.stats().gaps == 1);
    assert_eq!(client.stats().reconnects, made_anew + 1);
    drop((lock, client));
    wait_until_no_residue(&server);
}

#[test]
fn two_databases_are_two_namespaces() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::builder().acl("user app on >a/b@c ~* &* +@all").start();
    let url = server.url_as("app", "a/b@c");
    let (two, three) = (client_at(&format!("{url}2")), client_at(&format!("{url}3")));
    let here = two.fair_lock("orders").unwrap().lock().unwrap();
    let there = three
        .fair_lock("orders")
        .unwrap()
        .try_lock()
        .unwrap()
        .guard()
        .expect("another database, another lock");
    let counts = || {
        [0, 2, 3]
            .map(|db| redis::cmd("EXISTS").arg("orders").query::<i64>(&mut server.con_to_db(db)).unwrap())
    };
    assert_eq!(counts(), [0, 1, 1]);
    let users = server.clients();
    assert!(users.iter().all(|client| client.contains(" user=app ")), "{users:?}");
    // Channels have no databases: a release here wakes waiters there for nothing.
    let waiter = two.fair_lock("orders").unwrap().owned_by(&two.new_owner()).unwrap().request().unwrap();
    there.unlock().unwrap();
    here.unlock().unwrap();
    waiter.wait().unwrap().unlock().unwrap();
    assert_eq!(counts(), [0, 0, 0]);
    assert_no_residue(&server, &[]);
}

#[test]
fn a_unix_socket_works_like_a_port() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::builder().unix_socket().requirepass("a/b&c").start();
    let lock = client_at(&server.url()).fair_lock("orders").unwrap();
    let guard = lock.lock().unwrap();
    assert_eq!(server.query::<i64>(&["EXISTS", "orders"]), 1);
    guard.unlock().unwrap();
    server.kill();
    let error = lock.try_lock().unwrap_err();
    assert_says(&error, &["(lock `orders`)", "redis.sock"]);
}

/// Set in the second process of the certificate tests.
const TLS_URL: &str = "FAIRLOCK_TEST_TLS_URL";

/// Runs this test again in a process that trusts the server's authority, and returns its output. This process can't
/// change its own environment without unsafe code.
fn in_a_process_that_trusts(server: &RedisServer, test: &str) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(TLS_URL, server.url())
        .env("SSL_CERT_FILE", server.ca_file())
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    String::from_utf8_lossy(&child.stdout).into_owned()
}

#[test]
fn a_certificate_of_a_trusted_authority_is_accepted() {
    let _alone = fairlock_tests::Alone::here();
    if let Ok(url) = std::env::var(TLS_URL) {
        let client = client_at(&url);
        let lock = client.fair_lock("orders").unwrap();
        let guard = lock.lock().unwrap();
        let waiter = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
        guard.unlock().unwrap();
        waiter.wait().unwrap().unlock().unwrap();
        println!("over TLS: done");
        return;
    }
    let server = RedisServer::builder().tls().requirepass("secret").start();
    let said = in_a_process_that_trusts(&server, "a_certificate_of_a_trusted_authority_is_accepted");
    assert!(said.contains("over TLS: done"), "{said}");
    let token: Vec<String> = server.query(&["KEYS", "*"]);
    assert_eq!(token, ["fairlock_record:{orders}"], "it was this server");
}

#[test]
fn an_expired_certificate_or_one_for_another_host_is_refused() {
    let _alone = fairlock_tests::Alone::here();
    if let Ok(url) = std::env::var(TLS_URL) {
        let error = within(ms(2500), || RedisBackend::connect(&url)).map(|_| ()).unwrap_err();
        println!("refused: {:?}", error);
        return;
    }
    for (flaw, word) in [(Flaw::Expired, "Expired"), (Flaw::WrongHost, "not valid for name")] {
        let server = RedisServer::builder().flawed_tls(flaw).requirepass("kanarie").start();
        let said =
            in_a_process_that_trusts(&server, "an_expired_certificate_or_one_for_another_host_is_refused");
        for part in ["refused: ", &server.address(), "certificate is not trusted", word, "InvalidConfig"] {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
        assert!(!said.contains("kanarie"), "{said}");
        assert!(server.clients().is_empty());
    }
}

#[test]
fn an_untrusted_certificate_is_refused_and_tls_is_never_given_up() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::builder().tls().requirepass("kanarie").start();
    let error = within(ms(2500), || RedisBackend::connect(&server.url())).unwrap_err();
    assert_says(&error, &["Redis at ", &server.address(), "the server's certificate is not trusted"]);
    assert!(matches!(error, Error::InvalidConfig { .. }));
    assert!(server.clients().is_empty());
    // Neither side falls back to plain text.
    let plain = within(ms(2500), || RedisBackend::connect(&server.url().replace("rediss", "redis")));
    assert_unavailable(plain, &[&server.address()]);
    let without = RedisServer::start();
    let tls = within(ms(2500), || RedisBackend::connect(&without.url().replace("redis", "rediss")));
    assert_unavailable(tls, &[&without.address()]);
    assert_eq!(without.query::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}

#[test]
fn an_invalid_setting_is_named_in_the_error() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let (zero, ms) = (Duration::ZERO, Duration::from_millis);
    let client = || Client::builder(RedisBackend::connect(&server.url()).unwrap());
    let redis = || RedisBackend::builder(&server.url());
    let backend = |result: Result<RedisBackend, Error>| result.map(drop);
    let lock = client().build().unwrap().fair_lock("orders").unwrap();
    let cases = [
        (client().lease(zero).build().map(|_| ()), "lease is 0ns, it has to be from 2s to 100 years"),
        (
            client().place_ttl(ms(100)).build().map(|_| ()),
            "place_ttl is 100ms, it has to be from 500ms to 100 years",
        ),
        (client().outage_limit(zero).build().map(|_| ()), "outage_limit is 0ns"),
        (lock.fixed_lease(zero).lock().map(|_| ()), "fixed_lease is 0ns"),
        (lock.max_hold(ms(1)).try_lock().map(|_| ()), "max_hold is 1ms"),
        (backend(redis().connections(0).connect()), "connections is 0, it has to be from 1 to 8"),
        (backend(redis().connections(9).connect()), "connections is 9, it has to be from 1 to 8"),
        (backend(redis().thread_wait(zero).connect()), "thread_wait is 0ns"),
        (backend(redis().response_timeout(zero).connect()), "response_timeout is 0ns"),
        (backend(redis().thread_wait(ms(5000)).connect()), "thread_wait is a setting of Redisson's line"),
        (backend(redis().refresh_on_retry(true).connect()), "else leave refresh_on_retry out"),
        (
            client().lease(ms(1999)).build().map(|_| ()),
            "lease is 1.999s, it has to be from 2s to 100 years: twice the backend's response_timeout of 1s or more",
        ),
        (
            client().clock(ManualClock::new()).build().map(|_| ()),
            "the client has a manual clock, but its leases",
        ),
        (backend(redis().connect_timeout(Duration::MAX).connect()), "connect_timeout is"),
        (backend(RedisBackend::connect("127.0.0.1:6379")), "it has no scheme such as redis://"),
        (backend(RedisBackend::connect("redis://127.0.0.1:66666")), "port"),
        (backend(RedisBackend::connect(&format!("{}99", server.url()))), "the server has no such database"),
    ];
    for (result, part) in cases {
        let error = result.expect_err(part);
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        assert_says(&error, &["invalid configuration: ", part]);
    }
}
