//! What arrives before its end, and after all was answered: it is granted to nobody, and given back soon.

use std::time::{Duration, Instant};

use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually};

use super::support::{Kind, calls};
use crate::support::{ANSWER, SLACK};

/// Longer than the test: only a replay brings the attempt to the server.
const NEVER: Duration = Duration::from_secs(3600);
/// After this an attempt begins nothing, as its client counts: the response time-out, five seconds, and one for drift.
const ATTEMPT: Duration = ANSWER.saturating_add(Duration::from_secs(6));

/// C10: the first attempt got no answer, the second was granted, and its hold was released. Then the first one arrives. The lease
/// is a minute.
#[test]
fn a_grant_to_nobody_is_given_back_when_the_attempt_has_ended() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let ghost = |kind: Kind| {
        kind.warm(&server);
        let (ours, name) = (kind.hasty_client(&proxy.url(), ANSWER), format!("{kind:?}"));
        proxy.record(&name);
        proxy.hold_back(&name, NEVER);
        kind.take(&ours, &name).unlock().unwrap();
        assert!(proxy.held_back() > 0, "{kind:?}");
        let answer = proxy.replay(&calls(&proxy)[0]);
        assert!(answer.starts_with(':') || answer.contains("granted"), "{kind:?}: {answer}");
        assert!(server.query::<bool>(&["EXISTS", &name]), "{kind:?}");
        (ours, name, Instant::now())
    };
    let ghosts: Vec<_> = Kind::ALL.into_iter().map(ghost).collect();
    for (_, name, began) in &ghosts {
        let left = (*began + ATTEMPT + 2 * SLACK).saturating_duration_since(Instant::now());
        eventually(left, name, || !server.query::<bool>(&["EXISTS", name]));
    }
    for kind in Kind::ALL {
        kind.try_once(&kind.client(&server.url()), &format!("{kind:?}")).unlock().unwrap();
    }
    drop(ghosts);
    assert_no_residue(&server, &[]);
}
