//! What arrives late for a hold whose lock is kept.

use std::time::Duration;

use fairlock::OwnedGuard;
use fairlock_tests::{Proxy, RedisServer, eventually};

use super::support::{Kind, Scene, all_keys, assert_refused, assert_unchanged, calls, ending};
use crate::support::{SOON, ms};

const NAME: &str = "kept";
/// So long that a late renewal would cut it, as what a clock that was set back has left.
const HOUR: Duration = Duration::from_secs(3600);

/// All keys, under other names.
fn save(server: &RedisServer) -> Vec<String> {
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    for key in &keys {
        assert!(server.query::<bool>(&["COPY", key, &format!("saved:{key}")]));
    }
    keys
}

fn restore(server: &RedisServer, keys: &[String]) {
    for key in keys {
        assert!(server.query::<bool>(&["COPY", &format!("saved:{key}"), key, "REPLACE"]));
        server.query::<()>(&["DEL", &format!("saved:{key}")]);
    }
}

/// C10: a renewal, the attempt that kept it, and the same after its end.
#[test]
fn what_arrives_late_changes_nothing_of_a_kept_lock() {
    Scene::each(&Kind::ALL, |Scene { kind, server, proxy, ours, .. }| {
        proxy.record(NAME);
        let guard: OwnedGuard = kind.take(ours, NAME);
        guard.renew().unwrap();
        let renewal = calls(proxy).pop().unwrap();
        let saved = save(server);
        guard.keep_for(HOUR).unwrap();
        let keep = calls(proxy).pop().unwrap();
        let is_kept = |key: &str| server.query::<i64>(&["PTTL", key]) > 3_500_000;
        assert!(is_kept(NAME), "{kind:?}");
        restore(server, &saved);
        assert_refused(server, proxy, &keep, &format!("{kind:?}"));
        let answer = proxy.replay(&ending(server, &keep, 60_000_000));
        assert!(answer.contains("kept") && is_kept(NAME), "{kind:?}: {answer}");
        let before = all_keys(server);
        for (what, call) in [("renewal", &renewal), ("attempt", &keep)] {
            proxy.replay(call);
            assert_unchanged(server, &before, &format!("{kind:?}, {what}"));
        }
        assert!(kind.force_unlock(ours, NAME));
        let answer = proxy.replay(&ending(server, &keep, 60_000_000));
        assert!(answer.contains("not_held"), "{kind:?}: {answer}");
        kind.take(ours, NAME).unlock().unwrap();
    });
}

/// C10: the repeat has kept it by then, or it was kept and the answer was lost.
#[test]
fn an_attempt_that_is_repeated_keeps_the_lock_no_longer() {
    Scene::each(&Kind::ALL, |Scene { kind, server, theirs, .. }| {
        kind.take(theirs, NAME).keep_for(HOUR).unwrap(); // loads the script
        assert!(kind.force_unlock(theirs, NAME));
        for is_late in [true, false] {
            let proxy = Proxy::start(server.port());
            let ours = kind.hasty_client(&proxy.url(), ms(300));
            let guard: OwnedGuard = kind.take(&ours, NAME);
            if is_late {
                proxy.hold_back(NAME, ms(1500))
            } else {
                proxy.lose_reply_to(NAME)
            }
            guard.keep_for(SOON).unwrap();
            let left = || server.query::<i64>(&["PTTL", NAME]);
            let before = left();
            assert!(before > 8000 && before <= 11_010, "{kind:?}: {before} ms"); // of parts the key lasts a second longer
            eventually("it has arrived", || proxy.held_back() == 0);
            assert_eq!(u32::from(!is_late), proxy.lost());
            assert!(left() <= before && ours.stats().lost == 0, "{kind:?}: {} ms", left());
            assert!(kind.force_unlock(theirs, NAME));
        }
    });
}
