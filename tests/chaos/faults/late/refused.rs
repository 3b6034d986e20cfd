//! What arrives after its end: it is refused, and nothing at the server changes.

use fairlock::{Client, Durability, RedisBackend};
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually};

use super::support::{Kind, Scene, all_keys, assert_refused, calls, ending, first_other};
use crate::support::{SOON, granted, ms};

const NAME: &str = "over";

/// C10: it was granted, and its hold was released. The lock is free, and stays free.
#[test]
fn an_ask_after_its_end_takes_no_free_lock() {
    Scene::each(&Kind::ALL, |Scene { kind, server, proxy, ours, .. }| {
        for once in [false, true] {
            proxy.record(NAME);
            if once { kind.try_once(ours, NAME) } else { kind.take(ours, NAME) }.unlock().unwrap();
            let ask = calls(proxy).remove(0);
            assert_refused(server, proxy, &ask, &format!("{kind:?}, once: {once}"));
            // Its form is right: before its end it is granted, for nobody.
            let answer = proxy.replay(&ending(server, &ask, 60_000_000));
            assert!(answer.starts_with(':') || answer.contains("granted"), "{kind:?}: {answer}");
            assert!(kind.force_unlock(ours, NAME));
        }
    });
}

/// C10: it was in the queue, and left. Nobody stands there for it again.
#[test]
fn an_ask_after_its_end_takes_no_place() {
    let kinds = [Kind::Fair, Kind::Writer, Kind::Reader, Kind::Permit, Kind::Redisson];
    Scene::each(&kinds, |Scene { kind, server, proxy, ours, theirs }| {
        let guard = kind.block(theirs, NAME);
        proxy.record(NAME);
        drop(kind.request(ours, NAME));
        first_other(proxy, "withdrawal");
        eventually("its place is gone", || kind.waiting(theirs, NAME) == 0);
        assert_refused(server, proxy, &calls(proxy)[0], &format!("{kind:?}"));
        guard.unlock().unwrap();
        kind.take(theirs, NAME).unlock().unwrap();
    });
}

/// C10: the heartbeat found its place. Then the request left, and its place stays gone, even if the server forgets all places.
#[test]
fn a_heartbeat_after_its_end_puts_no_place_back() {
    let _alone = Alone::here();
    for kind in Kind::HAND_OFF {
        let Scene { server, proxy, theirs, .. } = Scene::new(kind);
        let ours = kind.client_with_heartbeats(&proxy.url());
        let guard = kind.block(&theirs, NAME);
        proxy.record(NAME);
        let waiting = kind.request(&ours, NAME);
        let heartbeat = first_other(&proxy, "heartbeat");
        drop(waiting);
        eventually("the place is gone", || kind.waiting(&theirs, NAME) == 0);
        let before = all_keys(&server);
        let is_lost = |end| {
            let answer = proxy.replay(&ending(&server, &heartbeat, end));
            assert!(answer.contains("lost"), "{kind:?}, {end}: {answer}");
            assert!(
                !all_keys(&server).keys().any(|key| key.starts_with("fairlock_queue")),
                "{kind:?}, {end}"
            );
            assert_eq!(all_keys(&server)[NAME].0, before[NAME].0, "{kind:?}, {end}");
        };
        is_lost(-1);
        is_lost(60_000_000); // the server knows that the place was removed
        for record in before.keys().filter(|key| key.starts_with("fairlock_record")) {
            server.query::<()>(&["DEL", record]);
        }
        is_lost(-1);
        // Nor does it put a forgotten place back before its end: only an ask does.
        is_lost(60_000_000);
        guard.unlock().unwrap();
        drop((ours, theirs));
    }
}

/// C10: it took the hold of its time, and not the next one.
#[test]
fn a_force_after_its_end_takes_no_later_hold() {
    Scene::each(&Kind::ALL, |Scene { kind, server, proxy, ours: operator, theirs }| {
        let stuck = kind.take(theirs, NAME);
        proxy.record(NAME);
        assert!(kind.force_unlock(operator, NAME));
        eventually("the holder hears of it", || stuck.is_lost());
        let force = calls(proxy).remove(0);
        let guard = kind.take(theirs, NAME);
        assert_refused(server, proxy, &force, &format!("{kind:?}"));
        guard.renew().unwrap();
        // Before its end it would take that one as well.
        assert!(proxy.replay(&ending(server, &force, 60_000_000)).contains("taken"), "{kind:?}");
        eventually("that holder hears of it", || guard.is_lost());
    });
}

/// C10. A withdrawal after its end takes no place of the owner's next request. Beside Redisson a place has its owner's name only,
/// and is that of the owner's next request by now.
#[test]
fn a_late_withdrawal_takes_no_place_of_the_next_request() {
    Scene::each(&[Kind::Redisson], |Scene { kind, server, proxy, ours, theirs }| {
        let guard = kind.take(theirs, NAME);
        let lock = ours.fair_lock(NAME).unwrap().owned_by(&ours.new_owner()).unwrap();
        proxy.record(NAME);
        drop(lock.request().unwrap());
        let withdrawal = first_other(proxy, "withdrawal");
        let waiting = lock.request().unwrap();
        eventually("the next one is in the queue", || kind.waiting(theirs, NAME) == 1);
        assert_refused(server, proxy, &withdrawal, "withdraw");
        guard.unlock().unwrap();
        granted(waiting, SOON).unlock().unwrap();
    });
}

/// C10: the server forgot a hold, and its holder claimed it and released it. Then the server forgets that as well.
#[test]
fn a_claim_after_its_end_brings_no_hold_back() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let durability = Durability::default().trust(SOON).skew(ms(100));
    let backend = RedisBackend::builder(&proxy.url()).durable(durability).connect().unwrap();
    backend.begin_life().unwrap();
    let ours = Client::new(backend).unwrap();
    let guard = Kind::Fair.take(&ours, NAME);
    server.query::<()>(&["FLUSHALL"]);
    proxy.record(NAME);
    guard.renew().unwrap();
    let claim = calls(&proxy).pop().expect("a claim");
    guard.unlock().unwrap();
    server.query::<()>(&["FLUSHALL"]);
    let lock = ours.fair_lock(NAME).unwrap();
    assert!(lock.try_lock().unwrap().guard().is_none(), "a grace begins");
    assert_refused(&server, &proxy, &claim, "claim");
    // Before its end it would be believed.
    assert!(proxy.replay(&ending(&server, &claim, 60_000_000)).contains("renewed"));
    assert!(lock.force_unlock().unwrap());
    assert_no_residue(&server, &[]);
}
