//! What is answered in a grace, and which reclaims count: asked through the backend.

use std::time::{Duration, Instant};

use fairlock::admin::LockKind;
use fairlock::backend::{
    Acquired, Backend, BackendErrorKind, Hold, Place, Renew, Renewal, RequestId, Wait, Withdrawn, only,
};
use fairlock::{FencingToken, RedisBackend};
use fairlock_tests::Proxy;

use super::support::*;
use Renewal::{Lost, Renewed};

const POOL: LockKind = LockKind::Semaphore { permits: 2 };

/// A permit that was released in the grace stays released, whether the server knew of it or not.
#[test]
fn a_reclaim_of_a_permit_after_its_release_is_refused() {
    let server = known();
    let raw = Raw::of(backend(&server), "pool", POOL);
    let [first, second] = [0, 1].map(|number| raw.gets(number));
    server.query::<()>(&["FLUSHALL"]);
    raw.releases(0, first);
    raw.renews(1, second, Renewed);
    raw.renews(0, first, Lost);
    raw.releases(1, second);
    raw.renews(1, second, Lost);
    let state = raw.backend.inspect(&raw.lock, 0..0).unwrap();
    assert!(state.holder().is_none(), "{state:?}");
}

/// Of the permits that end in a grace, the last hundred are remembered whole, whatever the length of a token: the tokens of the
/// year 2286 have 17 digits.
#[test]
fn the_last_hundred_permits_of_a_grace_are_remembered() {
    let server = known();
    let raw = Raw::of(backend(&server), "pool", POOL);
    server.query::<()>(&["FLUSHALL"]);
    let tokens: Vec<u64> = (0..103).map(|number| 10_000_000_000_000_000 + 2 * number).collect();
    tokens.iter().for_each(|token| raw.releases(0, FencingToken::new(*token)));
    let ended: String = server.query(&["HGET", "fairlock_record:{pool}", "ended"]);
    let ended: Vec<u64> = ended.split(' ').skip(1).map(|token| token.parse().unwrap()).collect();
    assert_eq!(ended, tokens[3..]);
}

/// A reclaim that the network held back was sent before the server forgot: its hold is over, and its units were granted to others. It
/// makes room for them. What was heard in this grace makes room for nothing.
#[test]
fn a_reclaim_of_a_former_life_gives_way_to_live_ones() {
    let server = known();
    let proxy = Proxy::start(server.port());
    // However slow the machine is, no attempt ends here.
    let builder = RedisBackend::builder(&proxy.url()).response_timeout(BOUND);
    let raw = Raw::of(builder.durable(durability()).connect().unwrap(), "pool", POOL);
    let first = raw.gets(0);
    proxy.record("pool");
    raw.renews(0, first, Renewed);
    let early = proxy.recorded().remove(0);
    raw.releases(0, first);
    let live = [1, 2].map(|number| raw.gets(number));
    server.query::<()>(&["FLUSHALL"]);
    let forgotten = Instant::now();
    let held = || {
        let holders = raw.backend.inspect(&raw.lock, 0..0).unwrap().holders;
        let mut tokens: Vec<_> = holders.iter().map(|holder| holder.token.unwrap()).collect();
        tokens.sort_unstable();
        tokens
    };
    proxy.replay(&early);
    assert_eq!(held(), [first]);
    let renew_all = || (1..).zip(live).for_each(|(number, token)| raw.renews(number, token, Renewed));
    renew_all();
    // The start of a life does not count, for as long as the skew of 100 ms, since a clock may have jumped.
    while forgotten.elapsed() < Duration::from_millis(300) {
        renew_all();
    }
    assert_eq!(held(), live);
    proxy.replay(&early);
    assert_eq!(held(), live);
    // In the next grace the holds are in the file, and one call renews both.
    server.query::<()>(&["DEL", LIFE]);
    let forgotten = Instant::now();
    let owners = [1, 2].map(|number| raw.owner(number));
    let hold = |at: usize| Hold::new(&raw.lock, &owners[at], RequestId::new(at as u64 + 1), live[at]);
    let both = [0, 1].map(|at| Renew::Hold { hold: hold(at), holds: 1, lease: TRUST });
    while forgotten.elapsed() < Duration::from_millis(300) {
        let renewed = raw.backend.renew(raw.client, &both);
        assert!(renewed.iter().all(|answer| matches!(answer, Ok(Renewed))), "{renewed:?}");
    }
    proxy.replay(&early);
    assert_eq!(held(), live);
    (1..).zip(live).for_each(|(number, token)| raw.releases(number, token));
}

/// The adopter that the server has forgotten may still believe in the hold.
#[test]
fn no_hold_of_an_old_file_is_adopted_in_a_grace() {
    let server = known();
    let raw = Raw::new(&server, "adopted");
    let token = raw.gets(0);
    let [former, adopter, third] = [0, 1, 2].map(|number| raw.owner(number));
    let hold = Hold::new(&raw.lock, &former, RequestId::new(0), token);
    let adopt = |owner| raw.backend.adopt(&hold, owner, TRUST).map_err(|error| error.kind());
    server.query::<()>(&["COPY", "adopted", "old"]);
    assert_eq!(adopt(&adopter), Ok(Renewed));
    server.query::<()>(&["DEL", LIFE]);
    assert_eq!(adopt(&adopter), Ok(Renewed), "the server knows of it");
    assert_eq!(adopt(&third), Err(BackendErrorKind::Unavailable));
    server.query::<()>(&["RENAME", "old", "adopted"]);
    assert_eq!([adopt(&adopter), adopt(&third)], [Err(BackendErrorKind::Unavailable); 2]);
    let adopted = Renew::Hold {
        hold: Hold::new(&raw.lock, &adopter, RequestId::new(0), token),
        holds: 1,
        lease: TRUST,
    };
    assert_eq!(
        only(raw.backend.renew(raw.client, &[adopted])).unwrap(),
        Lost,
        "nobody knows which is the later"
    );
    raw.backend.force_release(&raw.lock).unwrap();
}

/// No call of any kind grants a lock in the grace.
#[test]
fn nothing_is_granted_in_the_grace() {
    let server = known();
    let raw = Raw::new(&server, "quiet");
    let token = raw.gets(0);
    server.query::<()>(&["FLUSHALL"]);
    let holds = || server.query::<bool>(&["EXISTS", "quiet"]);
    // Free as far as the server knows: for a newcomer, for a waiter, for its repeat.
    assert!(matches!(raw.ask(1, Wait::No), Acquired::Busy { .. }) && !holds());
    raw.backend.inspect(&raw.lock, 0..1).unwrap();
    assert!(raw.backend.grace_left().is_some(), "a look says nothing of the grace");
    for number in [2, 2, 3] {
        let Acquired::Queued { recheck_in, .. } = raw.ask(number, Wait::Forever) else { panic!("{number}") };
        assert!(recheck_in > Duration::ZERO && recheck_in <= grace(), "{recheck_in:?}");
        assert!(!holds());
    }
    // A heartbeat, a withdrawal, and an operator.
    let [second, third] = [2, 3].map(|number| raw.owner(number));
    let place = Place::new(&raw.lock, &second, RequestId::new(2));
    let beat = raw.backend.renew(raw.client, &[Renew::Place { place, lease: TRUST }]).remove(0).unwrap();
    assert!(matches!(beat, Renewal::Waiting { rank: 0, .. }) && !holds(), "{beat:?}");
    assert_eq!(only(raw.backend.withdraw(&[place])).unwrap(), Withdrawn::Left);
    let other = Raw::new(&server, "other");
    other.backend.force_release(&other.lock).unwrap();
    assert!(!server.query::<bool>(&["EXISTS", "other"]));
    // The reclaim, and the release after it, although a live waiter is first in the queue.
    let place = Place::new(&raw.lock, &third, RequestId::new(3));
    assert_eq!(only(raw.backend.withdraw(&[place])).unwrap(), Withdrawn::Left);
    let theirs = client(&server);
    let waiting = request(&theirs, "quiet");
    raw.renews(0, token, Renewed);
    assert!(holds());
    raw.releases(0, token);
    assert!(!holds());
    waiting.wait().unwrap().unlock().unwrap();
    assert_eq!(server.query::<i64>(&["HGET", LIFE, "grace"]), 2122);
}

/// A reclaim that comes after the release, after a later holder's reclaim, or after the grace.
#[test]
fn a_late_reclaim_is_refused() {
    let server = known().allow(&["late"]);
    let raw = Raw::new(&server, "late");
    let first = raw.gets(0);
    raw.releases(0, first);
    let second = raw.gets(1);
    server.query::<()>(&["FLUSHALL"]);
    // The first hold was over, and a renewal of it is still on its way. It does no harm before the reclaim that counts…
    raw.renews(0, first, Renewed);
    raw.renews(1, second, Renewed);
    // … nor after it, nor after that one's release.
    raw.renews(0, first, Lost);
    raw.renews(1, second, Renewed);
    raw.releases(1, second);
    raw.renews(0, first, Lost);
    raw.renews(1, second, Lost);
    assert!(!server.query::<bool>(&["EXISTS", "late"]));
    // A release without a reclaim ends the hold as well.
    let other = Raw::new(&server, "other");
    server.query::<()>(&["DEL", LIFE]);
    other.releases(7, second);
    other.renews(7, second, Lost);
    // So does one where the server has an older hold, which was over.
    let stale = Raw::new(&server, "stale");
    stale.renews(3, first, Renewed);
    stale.releases(4, second);
    stale.renews(4, second, Lost);
    eventually("the grace is over", || raw.try_get(2).is_some());
    other.renews(8, second, Lost);
}

/// A lock that is taken by force in a grace is not reclaimed again. The holder hears of it with its next renewal, and can't reclaim
/// what was taken.
#[test]
fn a_lock_forced_in_a_grace_is_not_reclaimed_again() {
    let server = known().allow(&["all"]);
    let [all, one] = ["all", "one"].map(|name| Raw::new(&server, name));
    let tokens = [&all, &one].map(|raw| raw.gets(0));
    server.query::<()>(&["FLUSHALL"]);
    all.backend.force_release(&all.lock).unwrap();
    let owner = one.owner(0);
    one.backend.take_hold(&Hold::new(&one.lock, &owner, RequestId::new(0), tokens[1])).unwrap();
    for (raw, token) in [&all, &one].into_iter().zip(tokens) {
        raw.renews(0, token, Lost);
        assert!(!server.query::<bool>(&["EXISTS", raw.lock.name.as_ref()]));
    }
    eventually("the grace is over", || all.try_get(1).is_some());
}

/// A hold that is released in a grace has a smaller token than the next hold. The server has forgotten the last token, and its
/// clock is behind it. A release in the grace tells it.
#[test]
fn a_hold_released_in_a_grace_has_a_smaller_token() {
    let server = known().allow(&["ahead"]);
    let raw = Raw::new(&server, "ahead");
    let hour = 3_600_000_000;
    let ahead = FencingToken::new(raw.gets(0).get() + hour);
    server.query::<()>(&["FLUSHALL"]);
    raw.releases(0, ahead);
    let next = fairlock_tests::look_until(BOUND, || raw.try_get(1));
    assert!(next.expect("the grace is over") > ahead);
}
