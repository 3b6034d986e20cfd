//! The server itself pauses, restarts, forgets, loads, refuses for a time, is busy, or cuts off slow readers.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Error, LostCause, RedisBackend};
use fairlock_tests::errors::assert_unavailable;
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::server_state::{listeners, queue};
use fairlock_tests::{Alone, CleanServer, Proxy, RedisServer, Worker, eventually, signals};

use crate::looks::info;
use crate::scene::{ends_on_time, held_and_wanted, try_once};
use crate::support::*;

/// D1, D2. A pause ends a hold before the server's lease, and keeps the order. A pause of writes is treacherous, because reads
/// still work.
#[test]
fn a_pause_ends_a_hold_before_the_servers_lease() {
    let _alone = Alone::here();
    thread::scope(|scope| {
        scope.spawn(|| outlives_a_pause("WRITE"));
        scope.spawn(|| outlives_a_pause("ALL"));
    });
}

fn outlives_a_pause(mode: &str) {
    let server = RedisServer::start();
    let (holder, waiter, guard, first) = held_and_wanted(&server, "paused");
    let second = request(&waiter, "paused");
    let paused = Instant::now();
    server.query::<()>(&["CLIENT", "PAUSE", "4500", mode]);
    // The lease runs on while nothing can be renewed. A server that answers nothing can't be asked for it.
    if mode == "WRITE" {
        ends_on_time(&server, &guard);
    }
    eventually("the hold is lost", || guard.is_lost());
    assert!(paused.elapsed() < Duration::from_millis(4500), "{mode}: the clock ended it, not an answer");
    let told = guard.lost().recv_timeout(2 * ANSWER + SLACK).unwrap();
    assert_eq!(told.cause, LostCause::NotRenewed);
    let first = granted(first, SOON);
    assert!(first.token() > guard.token());
    assert!(second.decided().try_recv().is_err(), "{mode}: the second was granted before the first");
    let token = first.token();
    first.unlock().unwrap();
    let second = granted(second, SOON);
    assert!(second.token() > token);
    second.unlock().unwrap();
    assert!(guard.unlock().is_err());
    drop((holder, waiter));
    assert_nothing_is_left_but_late_places(&server, &[]);
}

/// D1. The server answers nothing to one client, and its watchdog waits for an answer while the leases end. Each loss
/// is still reported before the next holder has the lock, allowing for slow threads on a busy machine.
#[test]
fn a_loss_is_reported_on_time_while_an_answer_is_pending() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let waiter = client(&server);
    let holders = [2200, 2600, 3000, 3400, 3800].map(|lease| {
        let backend = RedisBackend::builder(&proxy.url()).discipline(Discipline::HandOff);
        let backend = backend.connect().unwrap(); // an answer may take a second
        let holder = Client::builder(backend).lease(Duration::from_millis(lease)).build().unwrap();
        let name = format!("told-{lease}");
        let guard = take(&holder, &name);
        let (tell, called) = channel();
        holder.on_lost(move |_| _ = tell.send(Instant::now()));
        (guard, request(&waiter, &name), called, holder)
    });
    proxy.set(Traffic::Replies, Rule::Swallow);
    thread::scope(|scope| {
        for (guard, waiting, called, _) in holders {
            scope.spawn(move || {
                let next = scope.spawn(|| (granted(waiting, SOON), Instant::now()));
                guard.lost().recv_timeout(SOON).unwrap();
                let told = Instant::now();
                let called = called.recv_timeout(SOON).unwrap();
                let (next, since) = next.join().unwrap();
                for (way, at) in [("the channel", told), ("the callback", called)] {
                    let late = at.saturating_duration_since(since);
                    assert!(
                        late < Duration::from_millis(250),
                        "{way} reported it {late:?} after the next grant"
                    );
                }
                next.unlock().unwrap();
            });
        }
    });
    proxy.set(Traffic::Replies, Rule::Pass);
    drop(waiter);
    assert_nothing_is_left_but_late_places(&server, &[]);
}

/// D3. The empty server grants the lock again, which can't be prevented. Until the next renewal there are two
/// holders, and the tokens show their order.
#[test]
fn a_restart_without_data_is_noticed_by_the_next_renewal() {
    let server = CleanServer::start().allow(&["fairlock_queue:*", "fairlock_record:*"]);
    let (_holder, _waiter, guard, waiting) = held_and_wanted(&server, "forgotten");
    server.restart();
    let back = Instant::now();
    let later = granted(waiting, SOON);
    // The connections come back with pauses of at most a second, and then the queue rests.
    let bound = heartbeat_bound() + Duration::from_secs(1) + PLACE;
    assert_within(back, bound, "the grant after the restart");
    assert!(later.token() > guard.token());
    assert_loses(guard, Instant::now());
    assert!(!later.is_lost());
    later.unlock().unwrap();
    assert_nothing_is_left_but_late_places(&server, &[]);
}

/// D4. `kill -9` loses nothing that the server acknowledged: the hold, and the queue. The clients are back one by one: until then
/// nobody passes over a waiter whose client is not back. (Only a power loss would show the effect of `appendfsync`.)
#[test]
fn a_restart_with_data_passes_over_no_waiter() {
    let server = CleanServer::of(RedisServer::builder().arg("appendonly", "yes"))
        .allow(&["fairlock_queue:*", "fairlock_record:*"]);
    let proxy = Proxy::start(server.port());
    // Their places outlast the test.
    let [holder, slow, quick] = [&server.url(), &proxy.url(), &server.url()]
        .map(|url| builder(url).place_ttl(4 * LEASE).lease(4 * LEASE).build().unwrap());
    let guard = take(&holder, "kept");
    let [first, second] = [&slow, &quick].map(|client| request(client, "kept"));
    let places = queue(&server, "kept");
    proxy.set_all(&[Traffic::Commands, Traffic::Subscriptions], Rule::Swallow);
    server.restart();
    eventually("the holder has reconnected", || guard.renew().is_ok());
    assert!(!guard.is_lost());
    eventually("the subscriptions of the others are back", || listeners(&server) == 2);
    assert_eq!(queue(&server, "kept"), places);
    guard.unlock().unwrap();
    assert_eq!(queue(&server, "kept"), places[1..], "the first has the lock");
    proxy.set_all(&[Traffic::Commands, Traffic::Subscriptions], Rule::Pass);
    granted(first, SOON).unlock().unwrap();
    granted(second, SOON).unlock().unwrap();
    assert_eq!(slow.stats().places_lost, 0);
    // Of waiters that have come since the server knows which are gone.
    let guard = take(&holder, "kept");
    let mut gone = Worker::start(PROGRAM, &["wait", "hand_off", &server.url(), "kept", "1", "60000"]);
    gone.go();
    gone.expect("waiting", SOON);
    let live = request(&quick, "kept");
    gone.kill();
    eventually("the server sees that the waiter is gone", || listeners(&server) == 3);
    guard.unlock().unwrap();
    assert_eq!(queue(&server, "kept").len(), 1, "the dead waiter is passed over");
    granted(live, SOON).unlock().unwrap();
    drop((holder, slow, quick));
    assert_nothing_is_left_but_late_places(&server, &[]);
}

/// D8. A server without its replica ends holds on time, and is retried. A server that requires a replica and has none refuses all
/// writes, even DEL and PEXPIRE.
#[test]
fn a_server_without_its_replica_ends_holds_on_time() {
    let server = CleanServer::start().allow(&["fairlock_queue:*", "fairlock_record:*"]);
    let (holder, waiter) = (client(&server), client(&server));
    let missing = |replicas: &str| server.query::<()>(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    let guard = take(&holder, "alone");
    missing("1");
    assert_unavailable(try_once(&waiter, "other"), &["too few replicas are connected"]);
    ends_on_time(&server, &guard);
    missing("0");
    // A shortage shorter than a lease goes unnoticed: a call outlives it.
    let guard = take(&holder, "alone");
    missing("1");
    thread::scope(|scope| {
        let release = scope.spawn(|| guard.unlock());
        let calling = scope.spawn(|| take(&waiter, "alone"));
        eventually("both were refused", || info(&server, "errorstats", "errorstat_NOREPLICAS:count=") > 3);
        missing("0");
        // The release is repeated in the background, or was executed.
        let told = release.join().unwrap();
        assert!(told.is_ok() || matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
        calling.join().unwrap().unlock().unwrap();
    });
    assert_nothing_is_left_but_late_places(&server, &[]);
}

/// D12. While another client's script runs, the server answers BUSY to everything, at once.
#[test]
fn a_busy_server_is_retried_without_a_storm() {
    let server = CleanServer::of(RedisServer::builder().arg("lua-time-limit", "200"))
        .allow(&["fairlock_queue:*", "fairlock_record:*"]);
    let (_holder, waiter, guard, waiting) = held_and_wanted(&server, "busy");
    let busy = |error: &str| error.contains("BUSY") || error.contains("busy with a script");
    thread::scope(|scope| {
        let endless = scope.spawn(|| server.try_query::<()>(&["EVAL", "while true do end", "0"]));
        eventually("the server is busy", || {
            server.try_query::<String>(&["PING"]).is_err_and(|error| busy(&error.to_string()))
        });
        let since = Instant::now();
        let error = try_once(&waiter, "other").unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }) && busy(&error.to_string()), "{error:?}");
        assert_within(since, ANSWER + SLACK, "try_lock");
        let calling = scope.spawn(|| take(&waiter, "other"));
        thread::sleep(Duration::from_millis(1200)); // busy for less than a lease
        server.query::<()>(&["SCRIPT", "KILL"]);
        assert!(endless.join().unwrap().is_err());
        let calling = calling.join().unwrap();
        let error_replies = info(&server, "errorstats", "errorstat_BUSY:count=");
        assert!(error_replies < 200, "{error_replies} attempts within two seconds");
        calling.unlock().unwrap();
    });
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    assert_eq!(waiter.stats().places_lost, 0);
    assert_nothing_is_left_but_late_places(&server, &[]);
}

/// D16. The server cuts off a client that does not read its messages. The client comes back without a loss.
#[test]
fn a_slow_listener_is_cut_off_and_still_finds_its_grant() {
    let server = RedisServer::builder().arg("client-output-buffer-limit", "pubsub 20000 0 0");
    let server = CleanServer::of(server).allow(&["fairlock_*", "slow"]); // it may be killed before its release
    let holder = client(&server);
    let guard = take(&holder, "slow");
    let mut slow = Worker::start(PROGRAM, &["try", "hand_off", &server.url(), "slow", "60000"]);
    slow.go();
    eventually("the waiter is in the queue", || queue(&server, "slow").len() == 1);
    let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS", "fairlock:*"]);
    let its = channels.iter().find(|channel| !channel.contains(&holder.id().to_string())).unwrap();
    signals::stop(slow.child());
    let nothing = "x".repeat(1_000_000);
    eventually("the server closes the connection", || {
        server.query::<i64>(&["PUBLISH", its, &nothing]);
        listeners(&server) == 1
    });
    signals::cont(slow.child());
    eventually("the client is subscribed again", || listeners(&server) == 2);
    let released = Instant::now();
    guard.unlock().unwrap();
    slow.expect("got", SOON);
    // The place lives five seconds: a lost message can cost at most a third of it.
    assert_within(released, Duration::from_secs(5) / 3 + SLACK, "the hand-over");
}

/// D20. A server that loads its data after a start answers LOADING meanwhile.
#[test]
fn a_loading_server_is_waited_for() {
    let server = RedisServer::builder().arg("appendonly", "yes").arg("key-load-delay", "250");
    let server = CleanServer::of(server).allow(&["filler*", "fairlock_queue:*", "fairlock_record:*"]);
    // Every thousand commands it serves its clients.
    server.query::<()>(&["EVAL", "for i = 1, 6000 do redis.call('SET', 'filler' .. i, i) end", "0"]);
    let (_holder, waiter, guard, waiting) = held_and_wanted(&server, "loaded");
    let token = guard.token();
    thread::scope(|scope| {
        let restart = scope.spawn(|| server.restart());
        eventually("the server is loading", || {
            let error = try_once(&waiter, "other").err();
            error.is_some_and(|error| error.is_transient() && error.to_string().contains("loading"))
        });
        let call = scope.spawn(|| take(&waiter, "other"));
        restart.join().unwrap();
        call.join().unwrap().unlock().unwrap();
    });
    eventually("the client has reconnected", || guard.renew().is_ok() || guard.is_lost());
    if !guard.is_lost() {
        guard.unlock().unwrap();
    }
    let later = granted(waiting, SOON);
    assert!(later.token() > token);
    later.unlock().unwrap();
    assert_nothing_is_left_but_late_places(&server, &["filler*"]);
}
