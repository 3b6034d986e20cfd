//! Group C: what a network held back arrives late. Here beside Redisson, where places and holds are named by owners.

mod bumps;
mod clock;
mod ghosts;
mod kept;
mod refused;
mod support;

use fairlock::{Client, Discipline, Lock, LockKind, RedisBackend};
use fairlock_tests::locks::lock_of;
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue};

use self::support::ending;
use crate::support::{ANSWER, LEASE, SOON, ms, take};

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
