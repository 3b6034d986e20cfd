//! Group C: what a network held back arrives late. Here what its repeat has done already; `refused.rs` has what comes after its end,
//! `kept.rs` what comes for a kept lock.

mod kept;
mod refused;
mod support;

use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Lock, LockKind, RedisBackend};
use fairlock_tests::locks::lock_of;
use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually};

use self::support::{Kind, calls, ending};
use crate::support::{ANSWER, LEASE, SLACK, SOON, ms, take};

/// Longer than the test: only a replay brings the attempt to the server.
const NEVER: Duration = Duration::from_secs(3600);
/// After this an attempt begins nothing, as its client counts: the response time-out, five seconds, and one for drift.
const ATTEMPT: Duration = ANSWER.saturating_add(Duration::from_secs(6));

/// Beside Redisson, where places and holds are named by owners.
fn lock(url: &str, kind: LockKind) -> Lock {
    let backend = RedisBackend::builder(url).discipline(Discipline::Redisson).response_timeout(ANSWER);
    // A holder that does not look before the test is over.
    let client = Client::builder(backend.connect().unwrap()).lease(SOON * 6).build().unwrap();
    lock_of(&client, kind, "mine")
}

/// C10: the old request of the holder asks for a short lease. It was granted before, and its hold was released.
#[test]
fn a_late_acquire_of_the_holder_itself_makes_no_second_holder() {
    let _alone = Alone::here();
    for kind in [LockKind::Plain, LockKind::Fair] {
        for waits in [false, true] {
            let server = RedisServer::start();
            let proxy = Proxy::start(server.port());
            let (ours, theirs) = (lock(&proxy.url(), kind), lock(&server.url(), kind));
            take(&ours).unlock().unwrap(); // loads the scripts
            let short = ours.fixed_lease(ms(100));
            proxy.record("mine");
            if waits { take(&short) } else { short.try_lock().unwrap().guard().unwrap() }.unlock().unwrap();
            let acquire = proxy.recorded().remove(0);
            let guard = take(&ours);
            proxy.replay(&ending(&server, &acquire, 60_000_000)); // however slow the machine is
            let second = theirs.try_lock_for(LEASE).unwrap().guard();
            assert!(second.is_none() || guard.is_lost(), "{kind}: two hold the lock, both certain");
            assert!(second.is_none());
            guard.renew().unwrap();
            guard.unlock().unwrap();
            if waits && kind == LockKind::Fair {
                // It has a place, as that of any owner would.
                let places = ["redisson_lock_queue:{mine}", "redisson_lock_timeout:{mine}"];
                assert_eq!(server.query::<Vec<String>>(&["LRANGE", places[0], "0", "-1"]).len(), 1);
                server.query::<()>(&["DEL", places[0], places[1]]);
            }
            take(&theirs).unlock().unwrap();
            assert_no_residue(&server, &[]);
        }
    }
}

/// F1: the client has read the clock when it connected. One trip tells it of the step, and the repeat is granted.
#[test]
fn a_clock_that_was_stepped_forward_costs_one_trip() {
    let _alone = Alone::here();
    for kind in Kind::ALL {
        let server = RedisServer::start();
        kind.warm(&server);
        let proxy = Proxy::start(server.port());
        proxy.set_clock_behind(Duration::from_secs(3600));
        let ours = kind.client(&proxy.url());
        let refused = || {
            let errors: String = server.query(&["INFO", "errorstats"]);
            let late = errors.lines().find_map(|line| line.strip_prefix("errorstat_LATE:count="));
            late.map_or(0, |count| count.parse::<u64>().unwrap())
        };
        let trips = || (scripts_run(&server), refused());
        let (scripts, _) = trips();
        let guard = kind.take(&ours, "stepped");
        assert_eq!(trips(), (scripts + 2, 1), "{kind:?}: one trip more");
        proxy.set_clock_behind(Duration::ZERO);
        guard.unlock().unwrap();
        kind.take(&ours, "stepped").unlock().unwrap();
        assert_eq!(trips(), (scripts + 5, 1), "{kind:?}: and none later");
        assert_no_residue(&server, &[]);
    }
}

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
        (ours, name)
    };
    let ghosts: Vec<_> = Kind::ALL.into_iter().map(ghost).collect();
    for (_, name) in &ghosts {
        eventually(name, || !server.query::<bool>(&["EXISTS", name]));
    }
    for kind in Kind::ALL {
        kind.try_once(&kind.client(&server.url()), &format!("{kind:?}")).unlock().unwrap();
    }
    drop(ghosts);
    assert_no_residue(&server, &[]);
}
