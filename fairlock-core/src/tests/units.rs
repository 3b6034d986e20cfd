//! Handles of read-write locks and semaphores: what is refused and why, what is told of them, and whom a claim passes its look to.

use super::store::{LEASE, Op, queued};
use super::support::{S, World};
use crate::backend::{Acquired, Holder, Renewal, RequestId, Wake};
use crate::{Error, FencingToken, LockKind, OwnerId, Result};

const FIVE: LockKind = LockKind::Semaphore { permits: 5 };

/// Its store keeps all kinds.
fn world() -> World {
    let world = World::new();
    world.store.plan().keeps_shared = true;
    world
}

fn error_of<T>(result: Result<T>) -> String {
    let Err(error) = result else { panic!("it is refused") };
    error.to_string()
}

/// A kind that the backend does not keep is refused with its name and the locks.
#[test]
fn a_kind_that_the_backend_does_not_keep_is_refused() {
    let world = World::new();
    let read_write = world.client.rw_lock("prices");
    assert!(matches!(&read_write, Err(Error::Unsupported { .. })));
    let message = "lock `prices` can't be used: you asked for a read-write lock, and the backend has fair and plain locks only";
    assert_eq!(error_of(read_write), message);
    let semaphore = world.client.semaphore("mails", 5);
    assert!(matches!(&semaphore, Err(Error::Unsupported { .. })));
    let message = "lock `mails` can't be used: you asked for a semaphore of 5 permits, and the backend has fair and plain locks only";
    assert_eq!(error_of(semaphore), message);
    assert!(world.client.fair_lock("prices").is_ok() && world.store.ops().is_empty());
}

/// A number of permits that can not be is refused before any call.
#[test]
fn an_impossible_number_of_permits_is_refused() {
    let world = world();
    for permits in [0, 1_000_001, u32::MAX] {
        let refused = world.client.semaphore("mails", permits);
        assert!(matches!(&refused, Err(Error::InvalidConfig { .. })), "{refused:?}");
        let message = error_of(refused);
        assert!(message.contains("`mails`") && message.contains(&permits.to_string()), "{message}");
    }
    let mails = world.client.semaphore("mails", 5).unwrap();
    assert_eq!(
        (mails.permits(), world.client.semaphore("most", 1_000_000).unwrap().permits()),
        (5, 1_000_000)
    );
    let one = world.client.semaphore("one", 1).unwrap().try_acquire_many(2);
    assert!(error_of(one).ends_with("which is a semaphore of 1 permit: ask for 1"));
    for n in [0, 6, u32::MAX] {
        let refused = [
            mails.acquire_many(n).map(drop),
            mails.try_acquire_many(n).map(drop),
            mails.try_acquire_many_for(n, S).map(drop),
            mails.request_many(n).map(drop),
        ];
        for refused in refused {
            assert!(matches!(&refused, Err(Error::InvalidConfig { .. })), "{refused:?}");
            let message = error_of(refused);
            let is = "permits of `mails`, which is a semaphore of 5 permits: ask for 1 to 5";
            assert_eq!(message, format!("invalid configuration: {n} {is}"));
        }
    }
    assert!(world.store.ops().is_empty() && world.client.waiting().is_empty());
}

/// Two kinds of one owner and name are a mismatch that says both.
#[test]
fn two_kinds_of_one_name_are_a_mismatch_that_says_both() {
    let world = world();
    let (client, owner) = (&world.client, world.client.new_owner());
    let five = client.semaphore("api", 5).unwrap().owned_by(&owner).unwrap();
    let held = five.acquire().unwrap();
    let one = client.semaphore("api", 1).unwrap().owned_by(&owner).unwrap().try_acquire();
    let read = client.rw_lock("api").unwrap().owned_by(&owner).unwrap().try_read();
    let fair = client.fair_lock("api").unwrap().owned_by(&owner).unwrap().try_lock();
    for (refused, asked) in [
        (one, "asked for a semaphore of 1 permit"),
        (read, "asked for a read-write lock"),
        (fair, "asked for an exclusive lock"),
    ] {
        assert!(matches!(&refused, Err(Error::Mismatch { .. })), "{refused:?}");
        let message = error_of(refused);
        assert!(
            ["`api`", "semaphore of 5 permits", asked].iter().all(|part| message.contains(part)),
            "{message}"
        );
    }
    assert_eq!(world.store.ops(), [Op::Acquire], "the server need not be asked");
    held.unlock().unwrap();
    assert!(client.fair_lock("api").unwrap().owned_by(&owner).unwrap().lock().is_ok(), "the name is free");
}

#[test]
fn a_request_that_would_wait_for_its_own_hold_says_so() {
    let world = world();
    let owner = world.client.new_owner();
    let prices = world.client.rw_lock("prices").unwrap().owned_by(&owner).unwrap();
    let reading = prices.read().unwrap();
    let message = error_of(prices.write());
    assert!(
        message.contains("`prices`") && message.contains("release the read lock first, then write"),
        "{message}"
    );
    let mails = world.client.semaphore("mails", 5).unwrap().owned_by(&owner).unwrap();
    let two = mails.acquire_many(2).unwrap();
    let refused = mails.try_acquire_many(3);
    assert!(matches!(&refused, Err(Error::Misuse { .. })));
    let message = error_of(refused);
    assert!(message.contains("`mails`") && message.contains("would wait for its own hold"), "{message}");
    assert_eq!(prices.reader().hold_count(), 1, "what was refused counts for nothing");
    reading.unlock().unwrap();
    two.unlock().unwrap();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire, Op::Release, Op::Release]);
}

#[test]
fn each_acquire_of_a_semaphore_is_an_owner_of_its_own() {
    let world = world();
    let mails = world.client.semaphore("mails", 5).unwrap();
    let (one, other) = (mails.acquire().unwrap(), mails.acquire_many(4).unwrap());
    assert!(one.owner() != other.owner() && one.token() != other.token());
    let stranger = self::world().client.new_owner();
    assert!(matches!(mails.owned_by(&stranger), Err(Error::Misuse { .. })));
}

#[test]
fn what_is_held_and_waited_for_tells_kind_and_units() {
    let world = world();
    let client = &world.client;
    let _reading = client.rw_lock("prices").unwrap().read().unwrap();
    let _two = client.semaphore("mails", 5).unwrap().acquire_many(2).unwrap();
    let mut held: Vec<_> = client.held().iter().map(|hold| (hold.units, hold.kind)).collect();
    held.sort_by_key(|(units, _)| *units);
    assert_eq!(held, [(1, LockKind::ReadWrite), (2, FIVE)]);
    world.store.plan().acquire.push_back(queued(0));
    let _writer = client.rw_lock("other").unwrap().writer().request().unwrap();
    let waiting: Vec<_> = client.waiting().iter().map(|request| (request.kind, request.units)).collect();
    assert_eq!(waiting, [(LockKind::ReadWrite, u32::MAX)]);
}

#[test]
fn one_holder_is_taken_by_its_request_and_token() {
    let world = world();
    let mails = world.client.semaphore("mails", 5).unwrap();
    let [known, unknown, stranger] = ["known:1", "unknown:1", "stranger:1"].map(OwnerId::new);
    let mut holder = Holder::new(known.clone(), 1);
    (holder.request, holder.token) = (Some(RequestId::new(7)), Some(FencingToken::new(70)));
    // Of a peer, such as Redisson's, there is no hold to name.
    world.store.plan().state.holders = vec![Holder::new(unknown.clone(), 1), holder];
    assert!(mails.admin().force_unlock_of(&known).unwrap());
    let asked = world.store.asked();
    assert!(matches!(asked[..], [ref take] if take.op == Op::TakeHold && take.number == 70), "{asked:?}");
    assert!(
        !mails.admin().force_unlock_of(&unknown).unwrap()
            && !mails.admin().force_unlock_of(&stranger).unwrap()
    );
    let prices = world.client.rw_lock("prices").unwrap();
    assert!(prices.admin().force_unlock_of(&known).unwrap());
    assert_eq!(world.store.ops(), [Op::TakeHold]);
}

#[test]
fn a_waiter_that_leaves_passes_its_look_on_whatever_the_kind() {
    let world = world();
    let mails = world.client.semaphore("mails", 5).unwrap();
    let first = Acquired::Queued { rank: 0, recheck_in: S, ticket: 1, latest: 1 };
    world.store.plan().acquire.extend([Ok(first), queued(1)]);
    let (first, second) = (mails.request_many(5).unwrap(), mails.request().unwrap());
    drop(first);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire, Op::Withdraw]);
    let granted = Renewal::Granted { token: FencingToken::new(9), lease: LEASE };
    world.store.plan().renew.push_back(Ok(granted));
    world.clock.advance(S);
    assert_eq!(world.store.ops(), [Op::Renew], "before its heartbeat is due");
    second.decided().try_recv().unwrap();
}

#[test]
fn a_grant_of_an_unknown_request_is_released_once() {
    let world = world();
    let (request, token) = (RequestId::new(1), FencingToken::new(9));
    world.store.wake(Wake::Granted { lock: "mails", owner: "x:1", request, token });
    world.settle();
    let asked = world.store.asked();
    assert!(asked.iter().all(|asked| asked.op == Op::Release && asked.number == 9));
    assert_eq!(asked.len(), 1, "whatever kind of lock it is");
    world.clock.advance(LEASE);
    assert!(world.store.ops().is_empty());
}
