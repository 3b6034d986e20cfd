//! The commands of a bump that arrive late: the holder works on, and the one that came after it still waits.

use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue};

use super::support::{Kind, calls};
use crate::support::{SOON, granted};

/// C10: nobody waited, so the lock was granted to its holder again. Then another one queues, and the bump arrives once more.
#[test]
fn a_late_bump_does_not_hand_over_what_its_repeat_kept() {
    let _alone = Alone::here();
    for kind in [Kind::Fair, Kind::Writer, Kind::Reader, Kind::Permit] {
        let server = RedisServer::start();
        kind.warm(&server);
        let proxy = Proxy::start(server.port());
        let (ours, theirs) = (kind.client(&proxy.url()), kind.client(&server.url()));
        let mut guard = kind.take(&ours, "bumped");
        proxy.record("bumped");
        guard.bump().unwrap();
        let bump = calls(&proxy);
        let (token, other) = (guard.token(), if kind == Kind::Reader { Kind::Writer } else { kind });
        let waiting = other.request(&theirs, "bumped");
        assert_eq!(kind.waiting(&theirs, "bumped"), 1);
        // In order, and the other way round.
        for call in bump.iter().chain(bump.iter().rev()) {
            proxy.replay(call);
            assert!(waiting.decided().try_recv().is_err(), "{kind:?}: two hold the lock");
            assert_eq!(kind.waiting(&theirs, "bumped"), 1, "{kind:?}: the other one waits");
            guard.renew().unwrap();
            assert!(!guard.is_lost() && guard.token() == token, "{kind:?}");
        }
        guard.unlock().unwrap();
        granted(waiting, SOON).unlock().unwrap();
        assert_no_residue(&server, &[]);
    }
}
