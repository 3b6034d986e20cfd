//! Group C: silent, slow, split, forgotten and repeated connections.

use std::thread;
use std::time::Instant;

use fairlock::{Error, TryLock};
use fairlock_tests::history::{Event, What};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::turns::{Habits, Turns};
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually};

use crate::support::{
    ANSWER, LEASE, PLACE, SLACK, SOON, believed_for, client, granted, lock, ms, patient, queue, request,
    take, unhurried, until_free, warm_server,
};

fn world() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

/// C1, C2. A holder in a black hole knows its loss before the next grant. Neither end is told, and all calls end.
#[test]
fn a_holder_in_a_black_hole_knows_its_loss_in_time() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (ours, theirs) = (client(&proxy.url()), client(&server.url()));
    let guard = take(&ours.fair_lock("hole").unwrap());
    let waiting = request(&theirs, "hole");
    proxy.set_all(&Traffic::ALL, Rule::Hold);
    let silent = Instant::now();
    let asked = ours.fair_lock("other").unwrap();
    let error = asked.try_lock().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(silent.elapsed() < ANSWER * 6 + SLACK, "{:?}", silent.elapsed());
    let lost = believed_for(&guard, silent);
    let next = granted(waiting, SOON);
    let replaced = silent.elapsed();
    assert!(lost < LEASE, "{lost:?}");
    assert!(lost < replaced && replaced < LEASE + SLACK, "lost {lost:?}, replaced {replaced:?}");
    let error = guard.unlock().unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");
    // The held traffic arrives after the repair, and takes nothing from the next holder.
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    eventually("the client is back", || asked.try_lock().is_ok_and(|tried| tried.guard().is_some()));
    assert!(next.renew().is_ok() && !next.is_lost());
    next.unlock().unwrap();
    until_free(&server, "hole");
    until_free(&server, "other");
    assert_no_residue(&server, &[]);
}

/// C4. One-way silence, from or to the server, costs a lease and no more.
#[test]
fn one_way_silence_costs_a_lease_and_no_more() {
    let _alone = Alone::here();
    for traffic in [&Traffic::INWARD[..], &Traffic::OUTWARD] {
        let (server, proxy) = world();
        let (ours, theirs) = (client(&proxy.url()), client(&server.url()));
        let guard = take(&ours.fair_lock("way").unwrap());
        let waiting = request(&theirs, "way");
        proxy.set_all(traffic, Rule::Hold);
        let silent = Instant::now();
        let believed = believed_for(&guard, silent);
        assert!(believed < LEASE, "{believed:?}");
        // The watchdog reports it when its pending call ends: after connecting and two answers at the latest.
        guard.lost().recv_timeout(ANSWER * 3 + SLACK).unwrap();
        // Its renewals arrive, as it was not told to stop; once it has given up the hold, it sends none.
        granted(waiting, SOON).unlock().unwrap();
        assert!(silent.elapsed() < 2 * LEASE + SLACK, "{:?}", silent.elapsed());
        proxy.set_all(traffic, Rule::Pass);
        drop(guard);
        until_free(&server, "way");
        assert_no_residue(&server, &[]);
    }
}

/// C7: a router has forgotten the connections. Only a client that uses them finds out, by the silence.
#[test]
fn forgotten_idle_connections_cost_one_answer_and_one_reconnect() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (ours, theirs) = (client(&proxy.url()), client(&server.url()));
    let (lock, busy) = (ours.fair_lock("idle").unwrap(), theirs.fair_lock("idle").unwrap());
    take(&lock).unlock().unwrap();
    proxy.forget_connections();
    let asked = Instant::now();
    take(&lock).unlock().unwrap();
    assert!(asked.elapsed() < ANSWER * 4 + SLACK, "{:?}", asked.elapsed());
    // The subscription gets no word either; the waiter still gets the lock.
    let guard = take(&busy);
    let waiting = request(&ours, "idle");
    proxy.forget_connections();
    guard.unlock().unwrap();
    let released = Instant::now();
    granted(waiting, SOON).unlock().unwrap();
    assert!(released.elapsed() < PLACE + ANSWER * 4 + SLACK, "{:?}", released.elapsed());
    drop((ours, theirs));
    assert_no_residue(&server, &[]);
}

/// C7 with the eight connections of a far server: one time-out is enough for all of them.
#[test]
fn eight_forgotten_connections_cost_no_more_than_one() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    proxy.set(Traffic::Replies, Rule::Delay(ms(2))); // from the first answer on: a quick one shows that the server is near
    let far = client(&proxy.url());
    let lock = far.fair_lock("far").unwrap();
    let commands = || server.clients().iter().filter(|line| line.contains(" sub=0 ")).count();
    let all_open = || {
        eventually("eight connections are open", || {
            thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(|| lock.inspect().unwrap()))));
            commands() == 8
        });
    };
    let guard = take(&lock);
    all_open();
    proxy.forget_connections();
    thread::sleep(LEASE + LEASE / 2); // nothing but renewals
    guard.check().unwrap();
    guard.unlock().unwrap();
    all_open();
    proxy.forget_connections();
    let asked = Instant::now();
    take(&lock).unlock().unwrap();
    assert!(asked.elapsed() < ANSWER * 3 + SLACK / 2, "{:?}", asked.elapsed());
    drop((lock, far));
    assert_no_residue(&server, &[]);
}

/// C7: the server closes idle connections, and the clients see it.
#[test]
fn a_server_that_closes_idle_connections_is_not_noticed() {
    let _alone = Alone::here();
    let server = RedisServer::builder().arg("timeout", "1").start();
    let lock = lock(&server.url(), "closes");
    take(&lock).unlock().unwrap();
    let commands = || server.clients().iter().filter(|line| line.contains(" sub=0 ")).count();
    eventually("the server has closed what was idle", || commands() == 0);
    lock.try_lock().unwrap().guard().expect("the lock is free").unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// C8, B12: the lease has ended when the grant arrives. It is never reported as a hold.
#[test]
fn a_grant_that_arrives_after_its_lease_is_refused() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let short = lock(&proxy.url(), "over").fixed_lease(ms(100));
    proxy.set(Traffic::Replies, Rule::Delay(ms(200)));
    let asked = Instant::now();
    let result = short.try_lock_for(ms(1500));
    assert!(!matches!(result, Ok(TryLock::Granted(_))), "{result:?}");
    assert!(asked.elapsed() < ms(1500) + ANSWER * 4 + SLACK, "{:?}", asked.elapsed());
    proxy.set(Traffic::Replies, Rule::Pass);
    until_free(&server, "over");
    take(&short).unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// C8, C9: ten waiters take turns over such connections.
#[test]
fn torn_and_slow_traffic_is_the_same_traffic() {
    let _alone = Alone::here();
    // A command has some 300 bytes.
    for rule in [Rule::Bytes, Rule::Slow(20_000), Rule::Delay(ms(20))] {
        let server = warm_server();
        let proxy = Proxy::start(server.port());
        let (ours, theirs) = (unhurried(&proxy.url()), unhurried(&proxy.url()));
        proxy.set_all(&Traffic::ALL, rule);
        let requests: Vec<_> =
            (0..10).map(|number| request(if number % 2 == 0 { &ours } else { &theirs }, "torn")).collect();
        let mut before = 0;
        for request in requests {
            let guard = granted(request, 4 * SOON);
            assert!(guard.token().get() > before, "{rule:?}");
            before = guard.token().get();
            guard.unlock().unwrap();
        }
        assert_eq!(ours.stats().places_lost + theirs.stats().places_lost, 0, "{rule:?}");
        proxy.set_all(&Traffic::ALL, Rule::Pass);
        until_free(&server, "torn");
        drop((ours, theirs));
        assert_no_residue(&server, &[]);
    }
}

/// C9: the connection ends in the middle of a reply.
#[test]
fn a_truncated_reply_is_no_reply() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let lock = lock(&proxy.url(), "half");
    take(&lock).unlock().unwrap();
    proxy.set(Traffic::Replies, Rule::Slow(100));
    thread::scope(|scope| {
        let asking = scope.spawn(|| take(&lock).token().get());
        // A reply of some 60 bytes takes half a second.
        eventually("the command is executed", || server.query(&["EXISTS", "half"]));
        proxy.cut();
        proxy.set(Traffic::Replies, Rule::Pass);
        eventually("the call ends", || asking.is_finished());
        assert!(asking.join().unwrap() > 0);
    });
    until_free(&server, "half");
    assert_no_residue(&server, &[]);
}

/// C10: every command of a client is repeated after all of them.
#[test]
fn commands_repeated_late_take_nothing_away() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (ours, theirs) = (patient(&proxy.url()), patient(&server.url()));
    let lock = ours.fair_lock("again").unwrap();
    take(&lock).unlock().unwrap(); // loads the scripts
    proxy.record("EVALSHA");
    let guard = take(&lock);
    guard.renew().unwrap();
    guard.unlock().unwrap();
    drop(request(&ours, "again"));
    until_free(&server, "again");
    let commands = proxy.recorded();
    assert!(commands.len() >= 4, "{}", commands.len());
    // Now there is another holder and a waiter.
    let guard = take(&theirs.fair_lock("again").unwrap());
    let waiting = request(&theirs, "again");
    for command in &commands {
        proxy.replay(command);
    }
    guard.renew().unwrap();
    guard.unlock().unwrap();
    let next = granted(waiting, SOON);
    for command in commands.iter().rev() {
        proxy.replay(command);
    }
    next.renew().unwrap();
    next.unlock().unwrap();
    // A late `acquire` may leave a ghost of a place or a hold, which ends with its time. Here that takes a minute, so
    // an administrator ends it.
    assert!(queue(&server, "again").len() <= 2, "{:?}", queue(&server, "again"));
}

/// C10: a ghost delays others by its own time and no longer.
#[test]
fn a_late_acquire_is_a_ghost_for_one_lease_at_most() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (ours, theirs) = (client(&proxy.url()), client(&server.url()));
    let lock = ours.fair_lock("ghost").unwrap();
    take(&lock).unlock().unwrap();
    proxy.record("ghost");
    take(&lock).unlock().unwrap();
    let acquire = proxy.recorded().remove(0);
    proxy.replay(&acquire);
    assert!(server.query::<bool>(&["EXISTS", "ghost"]));
    let said = Instant::now();
    granted(request(&theirs, "ghost"), SOON).unlock().unwrap();
    assert!(said.elapsed() < LEASE + SLACK, "{:?}", said.elapsed());
    drop((ours, theirs, lock));
    assert_no_residue(&server, &[]);
}

/// C11: two processes, one of them always cut off for longer than a lease and a place live.
#[test]
fn partitions_that_swap_leave_one_holder_at_most() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let habits = Habits::endless("hand_off", LEASE);
    let run = Turns::new(env!("CARGO_BIN_EXE_lock_worker"), &server, habits);
    let seats = [(); 2].map(|()| {
        let proxy = Proxy::start(server.port());
        let mut worker = run.worker(&proxy.url(), &habits);
        worker.go();
        (proxy, worker)
    });
    run.until_more(10);
    for number in 0..4 {
        let [cut, whole] = [number % 2, (number + 1) % 2].map(|seat| &seats[seat].0);
        whole.set_all(&Traffic::ALL, Rule::Pass);
        cut.set_all(&Traffic::ALL, Rule::Hold);
        thread::sleep(LEASE * 2); // the silence under test
        run.until_more(10);
    }
    seats.iter().for_each(|(proxy, _)| proxy.set_all(&Traffic::ALL, Rule::Pass));
    run.until_more(10);
    let pids = seats.each_ref().map(|(_, worker)| worker.child().id());
    seats.into_iter().for_each(|(_, worker)| run.kill(worker));
    let events = run.judged(LEASE * 2, ANSWER * 4);
    for pid in pids {
        let is_grant = |event: &&Event| event.pid == pid && matches!(event.what, What::Granted { .. });
        let grants = events.iter().filter(is_grant).count();
        assert!(grants > 20, "{grants}");
    }
}
