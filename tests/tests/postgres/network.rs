//! Lost, late, slow and cut traffic, and servers that fall silent.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, PostgresBackend, TryLock};
use fairlock_tests::history::{
    Recorder, What, check_call_bounds, check_overlap, check_token_order, count, now_ns, read,
};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, PostgresServer, Proxy, WorkDir, eventually};

use crate::support::{
    ANSWER, LEASE, OUTAGE, SLACK, SOON, builder, client, granted, ms, patient, request, take, through,
    until_in_line, until_nothing_left, within,
};

/// No cycle below has more flights.
const FLIGHTS: usize = 60;

fn world() -> (PostgresServer, Proxy) {
    let server = PostgresServer::start();
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

/// All that a client does with one lock; `ours` may have a bad network.
fn cycle(ours: &Client, theirs: &Client, name: &str) {
    let first = take(&ours.fair_lock(name).unwrap());
    let waiting = request(theirs, name);
    // What is asked only once may fail; then it is asked again here.
    eventually(SOON, "renewed", || first.renew().is_ok());
    let first_token = first.token();
    first.unlock().unwrap();
    let second = granted(waiting, SOON);
    assert!(second.token() > first_token);
    let left = request(ours, name);
    let third = request(ours, name);
    drop(left);
    second.unlock().unwrap();
    let third = granted(third, SOON);
    let inner = ours.fair_lock(name).unwrap();
    assert!(theirs.fair_lock(name).unwrap().try_lock().unwrap().guard().is_none());
    eventually(SOON, "looked", || inner.inspect().is_ok_and(|state| state.holder().is_some()));
    third.unlock().unwrap();
}

/// The reply to each trip of each call is lost once, of the COMMIT too. Each call is repeated and has its effect once.
#[test]
fn every_reply_can_be_lost_once_and_no_turn_is() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (ours, theirs) = (patient(&through(&server, &proxy)), patient(&server.url()));
    let mut lost = 0;
    for number in 0..FLIGHTS {
        let name = format!("lost:{number}");
        proxy.lose_later_reply_to(&name, number);
        cycle(&ours, &theirs, &name);
        until_nothing_left(&server);
        if proxy.lost() == lost {
            assert!(number > 10, "only {number} flights");
            return;
        }
        lost = proxy.lost();
    }
    panic!("a cycle has more than {FLIGHTS} flights");
}

/// The server has executed the trip, and its reply comes when the call has long given it up.
#[test]
fn a_reply_that_comes_after_the_time_out_is_no_reply() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (ours, theirs) = (patient(&through(&server, &proxy)), patient(&server.url()));
    for number in 0..FLIGHTS {
        let name = format!("late:{number}");
        proxy.silence_from(&name, number);
        let was_silent = thread::scope(|scope| {
            let cycling = scope.spawn(|| cycle(&ours, &theirs, &name));
            eventually(SOON, "silence, or the end", || proxy.is_silent() || cycling.is_finished());
            let was_silent = proxy.is_silent();
            if was_silent {
                thread::sleep(ANSWER + ms(200)); // the silence under test
            }
            proxy.set_all(&Traffic::ALL, Rule::Pass);
            cycling.join().unwrap();
            was_silent
        });
        until_nothing_left(&server);
        if !was_silent {
            assert!(number > 10, "only {number} flights");
            return;
        }
    }
    panic!("a cycle has more than {FLIGHTS} flights");
}
