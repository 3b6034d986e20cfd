//! What most tests do with a lock: take it, ask for it, wait for the grant.

use std::time::{Duration, Instant};

use fairlock::admin::LockKind;
use fairlock::owner::Owner;
use fairlock::settings::RedisBuilder;
use fairlock::waits::Request;
use fairlock::{Client, FencingToken, Guard, Lock, RedisBackend};

/// Far longer than anything needs that has nothing to wait for, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A backend whose connections and answers may take as long as a busy machine needs. The leases of its clients are twice as long.
pub fn patient(url: &str) -> RedisBuilder {
    let patience = Duration::from_secs(10);
    RedisBackend::builder(url).connect_timeout(patience).response_timeout(patience)
}

/// The response time-out for a client with this lease, which has to be twice as long: the default, or half of a short lease.
pub fn response_timeout_for(lease: Duration) -> Duration {
    Duration::from_secs(1).min(lease / 2)
}

/// The grace of durable clients of a single server.
pub fn grace(trust: Duration, skew: Duration) -> Duration {
    trust + trust / 100 + Duration::from_millis(2) + skew
}

/// The grace where a majority names the server. The longest lease is three quarters of the trust.
pub fn grace_with_majority(trust: Duration, skew: Duration) -> Duration {
    grace(trust - trust / 4 + trust, skew)
}

/// The lock of this kind and name.
#[track_caller]
pub fn lock_of(client: &Client, kind: LockKind, name: &str) -> Lock {
    match kind {
        LockKind::Fair => client.fair_lock(name).unwrap(),
        LockKind::Plain => client.plain_lock(name).unwrap(),
        shared => panic!("{name} is a {shared}"),
    }
}

/// Takes a lock that is free, or free soon.
#[track_caller]
pub fn take(lock: &Lock) -> Guard {
    lock.try_lock_for(SOON).unwrap().granted().expect("the lock is free soon")
}

/// Takes the fair lock for a new owner; it is free.
#[track_caller]
pub fn take_now(client: &Client, name: &str) -> Guard<Owner> {
    let lock = client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap();
    lock.try_lock().unwrap().granted().expect("it is free")
}

/// Takes the fair lock for a new owner; it is free soon.
#[track_caller]
pub fn take_soon(client: &Client, name: &str) -> Guard<Owner> {
    let lock = client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap();
    lock.try_lock_for(SOON).unwrap().granted().expect("the lock is free soon")
}

/// A request for the fair lock by a new owner.
#[track_caller]
pub fn request(client: &Client, name: &str) -> Request<Owner> {
    client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap().request().unwrap()
}

/// Waits for the grant, for at most `bound`.
#[track_caller]
pub fn granted(mut request: Request<Owner>, bound: Duration) -> Guard<Owner> {
    let start = Instant::now();
    let waited = request.wait_for(bound).unwrap();
    waited.granted().unwrap_or_else(|| panic!("not granted within {:?}", start.elapsed()))
}

/// The waiter gets the lock soon, and gives it back.
#[track_caller]
pub fn served(request: Request<Owner>) {
    granted(request, SOON).unlock().unwrap();
}

/// Each waiter gets the lock, and with a greater token than the one before, of which the first is given. Had one been passed over,
/// another would hold the lock, and keep it.
#[track_caller]
pub fn in_turn(requests: impl IntoIterator<Item = Request<Owner>>, mut last: FencingToken) {
    for (number, request) in requests.into_iter().enumerate() {
        let guard = granted(request, SOON);
        assert!(guard.token() > last, "waiter {number} was passed");
        last = guard.token();
        guard.unlock().unwrap();
    }
}
