//! Executed commands whose replies are lost: a repeat changes nothing more.

use std::time::Duration;

use fairlock::Error;
use fairlock_tests::monitor::{self, Line, Seen};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Monitor, Proxy, RedisServer, assert_no_residue, eventually};

use crate::support::{
    LONG, SOON, client, granted, join, line, lock, request, short_lease, take, token_at, until_in_line,
};

/// A server that knows every script: a lost NOSCRIPT reply would mean that nothing was executed.
fn world() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let ours = client(&server.url(), LONG);
    let mut guard = take(&ours.fair_lock("warm").unwrap());
    guard.bump().unwrap();
    guard.renew().unwrap();
    drop(request(&ours, "warm"));
    until_in_line(&server, "warm", 0);
    guard.unlock().unwrap();
    ours.fair_lock("warm").unwrap().inspect().unwrap();
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

/// The grants in the server's own record.
fn grants(monitor: &Monitor, server: &RedisServer, name: &str) -> Vec<String> {
    let seen = monitor::read(&monitor.until_now(server), Line::HandOff, name);
    let winner = |event| if let Seen::Granted(who) = event { Some(who) } else { None };
    seen.into_iter().filter_map(winner).collect()
}

#[test]
fn an_acquire_whose_reply_is_lost_is_one_hold_with_one_token() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let ours = client(&proxy.url(), LONG).fair_lock("acquire").unwrap();
    let monitor = Monitor::start(&server);
    proxy.lose_reply_to("acquire");
    let guard = take(&ours);
    assert_eq!(proxy.lost(), 1);
    // Granted once; the repeat got the same grant.
    assert_eq!(grants(&monitor, &server, "acquire").len(), 1);
    assert_eq!(token_at(&server, "acquire"), Some(guard.token().get()));
    assert_eq!(ours.inspect().unwrap().holder().unwrap().hold_count, 1);
    guard.unlock().unwrap();
    assert_eq!(server.query::<i64>(&["EXISTS", "acquire"]), 0);
    assert_no_residue(&server, &[]);
}

#[test]
fn a_place_whose_reply_is_lost_is_one_place() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (holder, ours) = (lock(&server, "place"), client(&proxy.url(), LONG));
    let guard = take(&holder);
    proxy.lose_reply_to("place");
    let waiting = request(&ours, "place");
    until_in_line(&server, "place", 1);
    let behind = request(&ours, "place");
    eventually(SOON, "the request was repeated", || behind.rank() == Some(1) && waiting.rank() == Some(0));
    assert_eq!((proxy.lost(), line(&server, "place").len()), (1, 2));
    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    granted(behind, SOON).unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_release_whose_reply_is_lost_takes_nothing_from_the_next_holder() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let ours = client(&proxy.url(), LONG).fair_lock("release").unwrap();
    let theirs = client(&server.url(), LONG);
    let guard = take(&ours);
    let waiting = request(&theirs, "release");
    let monitor = Monitor::start(&server);
    proxy.lose_reply_to("release");
    guard.unlock().unwrap();
    assert_eq!(proxy.lost(), 1);
    let next = granted(waiting, SOON);
    assert_eq!(token_at(&server, "release"), Some(next.token().get()));
    next.renew().unwrap();
    next.unlock().unwrap();
    assert_eq!(grants(&monitor, &server, "release").len(), 1);
    assert_no_residue(&server, &[]);
}

#[test]
fn a_release_whose_reply_is_lost_leaves_the_lock_free() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let ours = client(&proxy.url(), LONG).fair_lock("free").unwrap();
    let guard = take(&ours);
    proxy.lose_reply_to("free");
    guard.unlock().unwrap();
    assert_eq!((proxy.lost(), server.query::<i64>(&["EXISTS", "free"])), (1, 0));
    assert_no_residue(&server, &[]);
}

#[test]
fn a_renewal_whose_reply_is_lost_loses_no_lock() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let ours = client(&proxy.url(), LONG).fair_lock("renew").unwrap();
    let guard = take(&ours);
    let again = take(&ours);
    let token = guard.token();
    proxy.lose_reply_to("renew");
    let unanswered = guard.renew();
    assert!(matches!(unanswered, Err(Error::Unavailable { .. })), "{unanswered:?}");
    assert_eq!(proxy.lost(), 1);
    assert!(!guard.is_lost() && guard.token() == token);
    guard.renew().unwrap();
    assert_eq!(ours.inspect().unwrap().holder().unwrap().hold_count, 2);
    again.unlock().unwrap();
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// Its renewals are executed and their replies lost: the client gives up the hold while the server keeps it.
#[test]
fn an_owner_that_gave_up_a_hold_asks_again_behind_all_waiters() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let ours = short_lease(&proxy.url(), Duration::from_millis(1500));
    let ours = ours.fair_lock("anew").unwrap();
    let theirs = client(&server.url(), LONG);
    let guard = take(&ours);
    let waiting = request(&theirs, "anew");
    proxy.set(Traffic::Replies, Rule::Swallow);
    guard.lost().recv_timeout(SOON).unwrap();
    proxy.set(Traffic::Replies, Rule::Pass);
    eventually(SOON, "the client has reconnected", || ours.is_locked().is_ok());
    assert!(ours.try_lock().unwrap().guard().is_none(), "the caller passed a waiter");
    drop(guard);
    let next = granted(waiting, SOON);
    assert!(ours.try_lock().unwrap().guard().is_none());
    next.unlock().unwrap();
    take(&ours).unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_withdrawal_whose_reply_is_lost_leaves_no_ghost_and_no_lost_lock() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let (holder, ours) = (lock(&server, "leave"), client(&proxy.url(), LONG));
    let guard = take(&holder);
    let waiting = request(&ours, "leave");
    proxy.lose_reply_to("leave");
    drop(waiting);
    eventually(SOON, "the reply is lost", || proxy.lost() == 1);
    assert!(line(&server, "leave").is_empty());
    guard.unlock().unwrap();
    // The same owner may ask again, and so may all others.
    granted(request(&ours, "leave"), SOON).unlock().unwrap();
    take(&holder).unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_bump_whose_release_was_not_answered_is_one_place_behind_the_others() {
    let _alone = Alone::here();
    let (server, proxy) = world();
    let ours = client(&proxy.url(), LONG).fair_lock("bump").unwrap();
    let theirs = client(&server.url(), LONG);
    std::thread::scope(|scope| {
        let monitor = Monitor::start(&server);
        let mut guard = take(&ours);
        let before = guard.token().get();
        let waiting = request(&theirs, "bump");
        proxy.lose_reply_to("bump"); // of the release
        let next = scope.spawn(|| {
            let next = granted(waiting, SOON);
            let token = next.token().get();
            eventually(SOON, "the reply is lost", || proxy.lost() == 1);
            eventually(SOON, "the bumped request is in line", || line(&server, "bump").len() == 1);
            next.unlock().unwrap();
            token
        });
        guard.bump().unwrap();
        let between = join(next);
        assert!(before < between && between < guard.token().get());
        assert_eq!(token_at(&server, "bump"), Some(guard.token().get()));
        assert_eq!(grants(&monitor, &server, "bump").len(), 3);
        assert!(line(&server, "bump").is_empty());
        guard.unlock().unwrap();
    });
    assert_no_residue(&server, &[]);
}
