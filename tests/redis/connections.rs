//! Connections, settings, and servers that are unreachable, silent, closing or coming back. Nothing is lost, and every call ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::admin::LockKind;
use fairlock::owner::Owner;
use fairlock::settings::{ClientBuilder, Discipline, Login, RedisBuilder};
use fairlock::testing::ManualClock;
use fairlock::{Client, Error, Lock, RedisBackend};
use fairlock_tests::connecting::connects_after;
use fairlock_tests::errors::{assert_denied, assert_says, assert_unavailable};
use fairlock_tests::locks::{lock_of, patient, request, take_now};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::{CleanServer, RedisServer, eventually, wait_until_no_residue, wait_until_no_threads};
use log::LevelFilter;
use redis::IntoConnectionInfo;

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);
const OUTAGE_LIMIT: Duration = Duration::from_millis(1500);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client_at(url: &str) -> Client {
    Client::new(patient(url).connect().unwrap()).unwrap()
}

#[test]
fn a_server_that_is_down_is_named_at_connect() {
    let server = CleanServer::start();
    server.kill();
    let refused = RedisBackend::connect(&server.url());
    let parts = ["Redis at ", &server.address(), "connecting", "refused", "; is Redis running there?"];
    assert_unavailable(refused, &parts);
    // A frozen server accepts connections and says nothing.
    server.restart();
    server.stop();
    let silent = RedisBackend::connect(&server.url());
    let late = "no answer within 1s (connect_timeout)";
    assert_unavailable(silent, &["Redis at ", &server.address(), late]);
    let nowhere = RedisBackend::connect("unix:///nowhere/redis.sock");
    let parts = ["Redis at /nowhere/redis.sock", "No such file", "; is Redis running there?"];
    assert_unavailable(nowhere, &parts);
}

#[test]
fn a_wrong_login_is_refused_at_connect() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::builder().requirepass("canary").start();
    let connect = |url: &str| patient(url).connect().map(drop);
    let at = server.address();
    let denied = "the store denies access: Redis at ";
    assert_denied(connect(&server.url_as("", "WRONG")), &[denied, &at, "wrong user or password"]);
    assert_denied(connect(&server.url_as("nobody", "canary")), &[denied, &at, "wrong user or password"]);
    assert_denied(connect(&server.url_as("", "")), &[denied, &at, "the server asks for a password"]);
    connect(&server.url()).unwrap();
    // An unneeded password is refused as well: the operator means another server.
    let open = RedisServer::start();
    assert_denied(connect(&open.url_as("", "WRONG")), &[denied, "a password, but the server has none"]);
}

/// Address, login and database, over TCP and over a socket; TLS is in `tls.rs`.
#[test]
fn a_client_of_the_crate_redis_names_the_server() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::builder().acl("user ann on >canary ~* &* +@all").start();
    let of_socket = format!("unix://{}?user=ann&pass=canary&db=3", server.socket().display());
    for url in [format!("{}3", server.url_as("ann", "canary")), of_socket] {
        let theirs = redis::Client::open(url).unwrap();
        let builder = RedisBackend::builder_from(theirs.get_connection_info());
        assert!(!format!("{builder:?}").contains("canary"));
        let client = Client::new(builder.connect_timeout(BOUND).connect().unwrap()).unwrap();
        let guard = take_now(&client, "orders");
        let size: i64 = redis::cmd("DBSIZE").query(&mut server.con_to_db(3)).unwrap();
        assert!(size > 0 && server.query::<i64>(&["DBSIZE"]) == 0);
        assert!(server.clients().iter().all(|line| line.contains(" user=ann ")), "{:?}", server.clients());
        guard.unlock().unwrap();
        wait_until_no_residue(&server);
    }
}

#[test]
fn an_insecure_client_of_the_crate_redis_is_refused() {
    let addr = |insecure| redis::ConnectionAddr::TcpTls {
        host: "127.0.0.1".to_owned(),
        port: 1,
        insecure,
        tls_params: None,
    };
    let info = |insecure| "redis://:canary@h".into_connection_info().unwrap().set_addr(addr(insecure));
    let refused = RedisBackend::builder_from(&info(true)).connect().map(drop).unwrap_err();
    assert!(matches!(refused, Error::InvalidConfig { .. }), "{refused:?}");
    assert_says(&refused, &["the client's TLS can't be used: it does not check certificates; `tls` gives"]);
    assert_unavailable(RedisBackend::builder_from(&info(false)).connect(), &["127.0.0.1:1", "refused"]);
}

/// The function is slow, fails and panics, and none of that costs a hold or a thread.
#[test]
fn a_login_function_in_trouble_is_an_outage_at_connect() {
    let server = CleanServer::of(RedisServer::builder().requirepass("canary"));
    let url = format!("redis://{}", server.address());
    let connect_in = |time, login: fn() -> Result<Login, &'static str>| {
        RedisBackend::builder(&url).connect_timeout(time).login(login).connect()
    };
    // A panic takes its time on a busy machine: it prints a backtrace.
    let connect = |login| connect_in(BOUND, login);
    let no_login = "no login: ";
    assert_unavailable(connect(|| Err("the vault is sealed")), &[&server.address(), no_login, "is sealed"]);
    assert_unavailable(connect(|| panic!("planned")), &[no_login, "panicked"]);
    static HAS_GIVEN_UP: AtomicBool = AtomicBool::new(false);
    let slow = || {
        eventually("the caller has given up", || HAS_GIVEN_UP.load(Ordering::SeqCst));
        Err("late")
    };
    assert_unavailable(connect_in(ms(1000), slow), &[no_login, "none within 1s (connect_timeout)"]);
    HAS_GIVEN_UP.store(true, Ordering::SeqCst);
    wait_until_no_threads(BOUND);
    let parts = [&*server.address(), "wrong user or password", "user `default`"];
    assert_denied(connect(|| Ok(Login::new("WRONG"))), &parts);
    connect(|| Ok(Login::new("canary"))).unwrap();
}

#[test]
fn a_server_full_after_connect_is_waited_for_by_build() {
    let server = CleanServer::start();
    let builder = |time| patient(&server.url()).connections(1).connect_within(time);
    let [once, briefly, long] = [Duration::ZERO, ms(200), BOUND].map(|time| builder(time).connect().unwrap());
    // There is room for what has connected, and not for a connection for wake-ups.
    let mut others = [(); 2].map(|()| server.con());
    eventually("no more are connected", || {
        let listed: String = redis::cmd("CLIENT").arg("LIST").query(&mut others[0]).unwrap();
        listed.lines().count() == 3 + others.len()
    });
    redis::cmd("CONFIG").arg(&["SET", "maxclients", "5"]).exec(&mut others[0]).unwrap();
    for (backend, at_least) in [(&once, Duration::ZERO), (&briefly, ms(200))] {
        let asked = Instant::now();
        let parts = ["subscribing to wake-ups", "max number of clients reached"];
        assert_unavailable(Client::new(backend.clone()), &parts);
        assert!(asked.elapsed() >= at_least, "{:?}", asked.elapsed());
    }
    let mut built = None;
    connects_after(|| Client::new(long).map(|client| built = Some(client)), || drop(others));
    take_now(&built.unwrap(), "orders").unlock().unwrap();
    server.query::<()>(&["CONFIG", "SET", "maxclients", "100"]);
    // A right that is missing would be missing the next time.
    server.query::<()>(&["ACL", "SETUSER", "deaf", "on", ">canary", "~*", "+@all", "resetchannels"]);
    let deaf = patient(&server.url_as("deaf", "canary")).connect_within(BOUND).connect().unwrap();
    assert_denied(Client::new(deaf), &["subscribing to wake-ups", "lacks a right"]);
}

/// Each way to ask is told of the outage.
#[track_caller]
fn asks_in_time(lock: &Lock, owner: impl Fn() -> Owner, parts: &[&str]) {
    let asker = || lock.owned_by(&owner()).unwrap();
    let waited = Instant::now();
    assert_unavailable(asker().lock(), parts);
    assert!(waited.elapsed() >= OUTAGE_LIMIT, "the call gave up after {:?}", waited.elapsed());
    assert_unavailable(asker().try_lock_for(ms(200)), parts);
    assert_unavailable(asker().try_lock(), parts);
}

#[test]
fn an_outage_is_an_error_in_bounded_time_and_its_end_is_noticed() {
    let server = CleanServer::start();
    let client = Client::builder(patient(&server.url()).connect().unwrap()).outage_limit(OUTAGE_LIMIT);
    let client = client.build().unwrap();
    let lock = client.fair_lock("orders").unwrap();
    server.kill();
    let parts = ["(lock `orders`)", "Redis at ", &server.address(), "refused"];
    asks_in_time(&lock, || client.new_owner(), &parts);
    // An owner that asks again gets the error again.
    let owner = client.new_owner();
    (0..2).for_each(|_| asks_in_time(&lock, || owner.clone(), &parts));
    assert_unavailable(lock.admin().inspect(), &parts);
    assert_unavailable(lock.admin().force_unlock(), &parts);

    server.restart();
    eventually("the same lock works again", || match lock.try_lock() {
        Ok(tried) => tried.granted().expect("no other client holds the lock").unlock().is_ok(),
        Err(_) => false,
    });
    eventually("and for the owner that was refused", || {
        lock.owned_by(&owner).unwrap().lock().is_ok_and(|guard| guard.unlock().is_ok())
    });
    wait_until_no_residue(&server);
}

/// How many scripts were run at the server.
fn scripts(server: &RedisServer) -> u64 {
    let stats: String = server.query(&["INFO", "commandstats"]);
    let of_scripts = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    of_scripts.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Each call is told, so none needs a line.
#[test]
fn calls_after_a_password_was_rotated_write_no_line_each() {
    let _alone = fairlock_tests::Alone::here();
    keep_log_lines(LevelFilter::Info);
    let server = RedisServer::builder().acl("user rotated on >canary-old ~* &* +@all").start();
    let client = client_at(&server.url_as("rotated", "canary-old"));
    take_now(&client, "rotated").unlock().unwrap();
    let _: String = server.query(&["ACL", "SETUSER", "rotated", "resetpass", ">canary-new"]);
    let _: i64 = server.query(&["CLIENT", "KILL", "USER", "rotated"]);
    let lock = client.fair_lock("rotated").unwrap();
    for number in 0..200 {
        let tried = lock.owned_by(&client.new_owner()).unwrap().try_lock();
        assert!(number < 2 || matches!(tried, Err(Error::Denied { .. })), "{number}: {tried:?}");
    }
    let _: String = server.query(&["ACL", "SETUSER", "rotated", ">canary-old"]);
    eventually("the same lock works again", || {
        lock.try_lock().is_ok_and(|tried| tried.granted().expect("it is free").unlock().is_ok())
    });
    client.shutdown().unwrap();
    // The first call's attempt may have been sent, on a connection that was open.
    let said = log_lines("");
    assert!(
        said.len() < 5 && log_lines("refused, and repeated").len() <= 1,
        "{} lines: {:?}",
        said.len(),
        said.first()
    );
    let scripts = scripts(&server);
    assert!(scripts < 20, "{scripts} scripts");
}

/// The bounds are those of real time-outs and of a real lease.
#[cfg(feature = "night")]
#[test]
fn a_server_that_stands_still_costs_no_more_than_the_bounds() {
    let server = CleanServer::start();
    let [backend, other] = [(); 2].map(|()| {
        let builder = RedisBackend::builder(&server.url()).connect_timeout(ms(300)).response_timeout(ms(300));
        builder.connect().unwrap()
    });
    let client = Client::builder(backend).lease(ms(1000)).outage_limit(ms(1000)).build().unwrap();
    // Of a client that renews nothing meanwhile: its connection is free.
    let idle = Client::new(other).unwrap().fair_lock("orders").unwrap();
    let lock = client.fair_lock("orders").unwrap();
    let held = client.fair_lock("held").unwrap().lock().unwrap();
    let unlocked = client.fair_lock("unlocked").unwrap().lock().unwrap();
    idle.admin().inspect().unwrap();
    server.stop();
    let late = "no answer within 300ms; whether it was carried out is not known (response_timeout)";
    assert_unavailable(idle.admin().inspect(), &["(lock `orders`)", late]);
    let parts = ["(lock `orders`)", "Redis at ", &server.address(), "no answer within 300ms"];
    let asker = || lock.owned_by(&client.new_owner()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert_unavailable(asker().lock(), &parts));
        scope.spawn(|| assert_unavailable(asker().try_lock(), &parts));
        scope.spawn(|| assert_unavailable(asker().try_lock_for(ms(200)), &["`orders`"]));
        scope.spawn(|| assert_unavailable(lock.admin().inspect(), &["`orders`"]));
        let error = unlocked.unlock().unwrap_err();
        assert_says(&error, &["lock `unlocked`"]);
        eventually("the hold is known to be lost", || held.is_lost());
    });
    server.cont();
    let lost = held.unlock().unwrap_err();
    assert!(matches!(lost, Error::Lost(_)), "{lost:?}");
    assert_says(&lost, &["lock `held` was lost", "its lease could not be renewed in time"]);
    for name in ["orders", "held", "unlocked"] {
        let lock = client.fair_lock(name).unwrap();
        eventually(name, || {
            lock.try_lock().is_ok_and(|tried| tried.granted().is_some_and(|guard| guard.unlock().is_ok()))
        });
    }
    wait_until_no_residue(&server);
}

#[test]
fn a_connection_that_is_cut_loses_nothing() {
    let server = CleanServer::start();
    let rules = [
        (Discipline::HandOff, LockKind::Fair),
        (Discipline::HandOff, LockKind::Plain),
        (Discipline::Redisson, LockKind::Fair),
    ];
    for (connection, (discipline, kind)) in
        ["normal", "pubsub"].into_iter().flat_map(|of| rules.map(|rules| (of, rules)))
    {
        let client =
            || Client::new(patient(&server.url()).discipline(discipline).connect().unwrap()).unwrap();
        let clients = [client(), client()];
        let [first, second] = clients.each_ref().map(|client| lock_of(client, kind, "orders"));
        let cut = || server.query::<i64>(&["CLIENT", "KILL", "TYPE", connection]) > 0;
        let guard = first.lock().unwrap();
        let token = guard.token();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = second.lock().unwrap();
                let token = guard.token();
                guard.unlock().unwrap();
                token
            });
            // Those of Redisson's rules wait by a channel of the lock, others by that of their client.
            let is_by_lock = (discipline, kind) != (Discipline::HandOff, LockKind::Fair);
            let hears = || {
                let channels = ["PUBSUB", "CHANNELS", "redisson_lock__channel:{orders}*"];
                !is_by_lock || server.query::<Vec<String>>(&channels).len() == 1
            };
            eventually("the waiter waits", || {
                let is_queued = || first.admin().inspect().is_ok_and(|state| state.queue.len() == 1);
                hears() && (kind == LockKind::Plain || is_queued())
            });
            assert!(cut());
            let seen = first.admin().inspect().or_else(|_| first.admin().inspect()).unwrap();
            assert_eq!(seen.holder().unwrap().token, Some(token));
            assert!(!guard.is_lost());
            eventually("the hold can be renewed", || guard.renew().is_ok());
            eventually("the connections are back, and cut again", cut);
            eventually("the waiter hears again", hears);
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap() > token);
        });
    }
    wait_until_no_residue(&server);
}

#[test]
fn reconnects_and_gaps_are_counted() {
    let server = CleanServer::start();
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
    eventually("the subscription is back", || client.stats().gaps == 1);
    assert_eq!(client.stats().reconnects, made_anew + 1);
    drop((lock, client));
    wait_until_no_residue(&server);
}

#[test]
fn two_databases_are_two_namespaces() {
    let server = CleanServer::of(RedisServer::builder().acl("user app on >canary/b@c ~* &* +@all"));
    let url = server.url_as("app", "canary/b@c");
    let (two, three) = (client_at(&format!("{url}2")), client_at(&format!("{url}3")));
    let here = two.fair_lock("orders").unwrap().lock().unwrap();
    let there = take_now(&three, "orders"); // another database, another lock
    let counts = || {
        [0, 2, 3]
            .map(|db| redis::cmd("EXISTS").arg("orders").query::<i64>(&mut server.con_to_db(db)).unwrap())
    };
    assert_eq!(counts(), [0, 1, 1]);
    let users = server.clients();
    assert!(users.iter().all(|client| client.contains(" user=app ")), "{users:?}");
    // Channels have no databases: a release here wakes waiters there for nothing.
    let waiter = request(&two, "orders");
    there.unlock().unwrap();
    here.unlock().unwrap();
    waiter.wait().unwrap().unlock().unwrap();
    assert_eq!(counts(), [0, 0, 0]);
}

#[test]
fn an_invalid_setting_is_named_in_the_error() {
    let server = CleanServer::start();
    let zero = Duration::ZERO;
    let backend = |url: &str| RedisBackend::builder(url).connect_timeout(BOUND);
    let of_client = |set: fn(ClientBuilder) -> ClientBuilder| {
        set(Client::builder(backend(&server.url()).connect().unwrap())).build().map(drop)
    };
    let of_backend = |set: fn(RedisBuilder) -> RedisBuilder| set(backend(&server.url())).connect().map(drop);
    let of_url = |url: &str| backend(url).connect().map(drop);
    let lock = client_at(&server.url()).fair_lock("orders").unwrap();
    let twice = "the time is 1.999 s, it has to be from 2 s to 100 years: twice the backend's response_timeout of 1 s or more";
    for (result, setting, part) in [
        (of_client(|it| it.lease(ms(0))), "lease", "the time is 0 s, it has to be from 2 s to 100 years"),
        (of_client(|it| it.lease(ms(1999))), "lease", twice),
        (
            of_client(|it| it.place_ttl(ms(100))),
            "place_ttl",
            "the time is 100 ms, it has to be from 500 ms to 100 years",
        ),
        (of_client(|it| it.outage_limit(ms(0))), "outage_limit", "the time is 0 s"),
        (
            of_client(|it| it.clock(ManualClock::new())),
            "clock",
            "the client has a manual clock, but its leases",
        ),
        (lock.fixed_lease(zero).lock().map(drop), "fixed_lease", "the time is 0 s"),
        (lock.max_hold(ms(1)).try_lock().map(drop), "max_hold", "the time is 1 ms"),
        (of_backend(|it| it.connections(0)), "connections", "the number is 0, it has to be from 1 to 8"),
        (of_backend(|it| it.connections(9)), "connections", "the number is 9, it has to be from 1 to 8"),
        (of_backend(|it| it.thread_wait(ms(0))), "thread_wait", "the time is 0 s"),
        (of_backend(|it| it.thread_wait(ms(5000))), "thread_wait", "it is a setting of Redisson's queue"),
        (of_backend(|it| it.response_timeout(ms(0))), "response_timeout", "the time is 0 s"),
        (of_backend(|it| it.connect_timeout(Duration::MAX)), "connect_timeout", "the time is"),
        (of_url("127.0.0.1:6379"), "", "it has no scheme such as redis://"),
        (of_url("redis://127.0.0.1:66666"), "", "port"),
        (of_url(&format!("{}99", server.url())), "", "the server has no such database"),
    ] {
        let error = result.expect_err(part);
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        assert_says(&error, &["invalid configuration: ", part]);
        assert_eq!(error.setting().unwrap_or_default(), setting, "{error}");
    }
}
