//! The network: silent, forgotten, cut and split connections.

use std::thread;
use std::time::Instant;

use fairlock::Error;
use fairlock_tests::history::{Event, What};
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::turns::{Habits, Turns};
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually};

use crate::support::{ANSWER, LEASE, SLACK, SOON, believed_for, client, ms, until_free};

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
    let lost = believed_for(&guard, silent);
    let next = granted(waiting, SOON);
    let replaced = silent.elapsed();
    assert!(lost < LEASE, "{lost:?}");
    assert!(lost < replaced && replaced < LEASE + SLACK, "lost {lost:?}, replaced {replaced:?}");
    let asked = ours.fair_lock("other").unwrap();
    let error = asked.try_lock().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = guard.unlock().unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");
    // The held traffic arrives after the repair, and takes nothing from the next holder.
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    eventually("the client is back", || asked.try_lock().is_ok_and(|tried| tried.granted().is_some()));
    assert!(next.renew().is_ok() && !next.is_lost());
    next.unlock().unwrap();
    until_free(&server, "hole");
    until_free(&server, "other");
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
            thread::scope(|scope| {
                (0..16).for_each(|_| drop(scope.spawn(|| lock.admin().inspect().unwrap())))
            });
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
    for number in 0..2 {
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
