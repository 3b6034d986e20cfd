//! Any request may be repeated after a lost answer, and takes effect once. These cases call the backend itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, Renew, Renewal, RequestId, Subscription, Wait,
    Wake, WakeSink, Withdrawn, only,
};
use fairlock_core::{ClientId, FencingToken, LockKind, LockName, OwnerId};

use super::{Harness, LEASE, Promise};

/// The backend, and a subscribed client, whose owners count as present. A [`fairlock_core::Client`] would release each grant to
/// an unknown request.
pub(super) struct Bench {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) client: ClientId,
    pub(super) lock: LockId,
    owners: AtomicU64,
    _subscription: Subscription,
}

/// A request that takes the whole lock, whatever its kind.
pub(super) fn place_of_all<'a>(lock: &'a LockId, owner: &'a OwnerId, request: u64) -> Place<'a> {
    let mut place = Place::new(lock, owner, RequestId::new(request));
    place.units = lock.kind.capacity();
    place
}

struct HearsNothing;

impl WakeSink for HearsNothing {
    fn wake(&self, _: Wake<'_>) {}
}

impl Bench {
    pub(super) fn new(harness: &impl Harness, name: &str) -> Bench {
        Bench::of_kind(harness, harness.kind(), name)
    }

    pub(super) fn of_kind(harness: &impl Harness, kind: LockKind, name: &str) -> Bench {
        let lock = LockId::new(LockName::new(name).unwrap(), kind);
        let (backend, client) = (harness.backend(), ClientId::random());
        let _subscription = backend.subscribe(client, Arc::new(HearsNothing)).unwrap();
        Bench { backend, client, lock, owners: AtomicU64::new(1), _subscription }
    }

    pub(super) fn owner(&self) -> OwnerId {
        let number = self.owners.fetch_add(1, Ordering::Relaxed);
        OwnerId::new(&format!("{}:{number}", self.client))
    }

    /// A request for all units.
    pub(super) fn place<'a>(&'a self, owner: &'a OwnerId, request: u64) -> Place<'a> {
        place_of_all(&self.lock, owner, request)
    }

    pub(super) fn ask(&self, owner: &OwnerId, request: u64) -> Acquired {
        only(self.backend.acquire(&[Acquire::new(self.place(owner, request), LEASE)])).unwrap()
    }

    pub(super) fn token(&self, owner: &OwnerId, request: u64) -> FencingToken {
        match self.ask(owner, request) {
            Acquired::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn hold<'a>(&'a self, owner: &'a OwnerId, request: u64, token: FencingToken) -> Hold<'a> {
        Hold::new(&self.lock, owner, RequestId::new(request), token)
    }

    pub(super) fn release(&self, owner: &OwnerId, request: u64, token: FencingToken) -> Released {
        only(self.backend.release(&[self.hold(owner, request, token)])).unwrap()
    }

    pub(super) fn queue(&self) -> u64 {
        self.backend.inspect(&self.lock, 0..0).unwrap().queue_length
    }
}

/// The token is the same, and one release ends the hold.
pub fn a_repeated_acquire_is_granted_once(harness: &impl Harness) {
    let bench = Bench::new(harness, "repeat");
    let owner = bench.owner();
    let token = bench.token(&owner, 1);
    assert_eq!(bench.token(&owner, 1), token);
    assert_eq!(bench.backend.inspect(&bench.lock, 0..0).unwrap().holder().unwrap().hold_count, 1);
    assert_eq!(bench.release(&owner, 1, token), Released::Released);
    assert_eq!(bench.release(&owner, 1, token), Released::NotHeld);
    harness.assert_nothing_is_left("repeat");
}

/// It keeps the place however often it asks.
pub fn a_repeated_request_keeps_its_one_place(harness: &impl Harness) {
    let bench = Bench::new(harness, "places");
    let (holder, first, second) = (bench.owner(), bench.owner(), bench.owner());
    let token = bench.token(&holder, 1);
    for _ in 0..3 {
        for owner in [&first, &second] {
            assert!(matches!(bench.ask(owner, 2), Acquired::Queued { .. } | Acquired::Busy { .. }));
        }
    }
    if harness.promises(Promise::Order) {
        assert_eq!(bench.queue(), 2);
        assert!(matches!(bench.ask(&second, 2), Acquired::Queued { rank: 1, .. }));
    }
    for owner in [&first, &second, &second] {
        assert_eq!(only(bench.backend.withdraw(&[bench.place(owner, 2)])).unwrap(), Withdrawn::Left);
    }
    assert_eq!(bench.release(&holder, 1, token), Released::Released);
    harness.assert_nothing_is_left("places");
}

/// The release may name another owner, an old request or an old token.
pub fn a_release_that_names_an_old_hold_touches_nothing(harness: &impl Harness) {
    let bench = Bench::new(harness, "old");
    let owner = bench.owner();
    let old = bench.token(&owner, 1);
    assert_eq!(bench.release(&owner, 1, old), Released::Released);
    let new = bench.token(&owner, 2);
    assert!(new > old);
    assert_eq!(bench.release(&owner, 1, old), Released::NotHeld);
    assert_eq!(bench.release(&owner, 2, old), Released::NotHeld);
    assert_eq!(bench.release(&bench.owner(), 2, new), Released::NotHeld);
    let old = Renew::Hold { hold: bench.hold(&owner, 1, old), holds: 5, lease: Duration::from_secs(1) };
    assert!(matches!(bench.backend.renew(bench.client, &[old])[..], [Ok(Renewal::Lost)]));
    assert_eq!(bench.backend.inspect(&bench.lock, 0..0).unwrap().holder().unwrap().hold_count, 1);
    assert_eq!(bench.release(&owner, 2, new), Released::Released);
    harness.assert_nothing_is_left("old");
}

/// The store can't know which of two requests is late. So no request takes over its owner's hold: it waits, like any other
/// request.
pub fn a_request_takes_over_no_hold_of_its_owner(harness: &impl Harness) {
    let bench = Bench::new(harness, "anew");
    let (owner, other) = (bench.owner(), bench.owner());
    let old = bench.token(&owner, 1);
    let mut once = bench.place(&owner, 2);
    once.wait = Wait::No;
    let short = Duration::from_millis(50);
    let busy = only(bench.backend.acquire(&[Acquire::new(once, short)])).unwrap();
    assert!(matches!(busy, Acquired::Busy { .. }), "{busy:?}");
    for _ in 0..2 {
        let waits = only(bench.backend.acquire(&[Acquire::new(bench.place(&owner, 3), short)])).unwrap();
        assert!(matches!(waits, Acquired::Queued { .. } | Acquired::Busy { .. }), "{waits:?}");
    }
    if harness.promises(Promise::Order) {
        assert!(matches!(bench.ask(&owner, 3), Acquired::Queued { rank: 0, .. }));
        assert!(matches!(bench.ask(&other, 4), Acquired::Queued { rank: 1, .. }));
        assert_eq!(only(bench.backend.withdraw(&[bench.place(&other, 4)])).unwrap(), Withdrawn::Left);
    }
    let state = bench.backend.inspect(&bench.lock, 0..0).unwrap();
    assert_eq!(state.holder().unwrap().token, Some(old));
    assert!(state.holder().unwrap().lease_left > Some(LEASE / 2), "{state:?}");
    assert_eq!(bench.release(&owner, 1, old), Released::Released);
    let new = bench.token(&owner, 3);
    assert!(new > old);
    assert_eq!(bench.release(&owner, 3, new), Released::Released);
    harness.assert_nothing_is_left("anew");
}

/// The hold may have been renewed since, with a longer lease.
pub fn a_repeat_shortens_no_lease(harness: &impl Harness) {
    let bench = Bench::new(harness, "long");
    let owner = bench.owner();
    let token = bench.token(&owner, 1);
    let short = Duration::from_millis(50);
    let lasts = || {
        let left = bench.backend.inspect(&bench.lock, 0..0).unwrap().holder().unwrap().lease_left;
        assert!(left > Some(LEASE / 2), "{left:?}");
    };
    match only(bench.backend.acquire(&[Acquire::new(bench.place(&owner, 1), short)])).unwrap() {
        Acquired::Granted { token: same, .. } => assert_eq!(same, token),
        other => panic!("{other:?}"),
    }
    lasts();
    let heartbeat = Renew::Place { place: bench.place(&owner, 1), lease: short };
    match bench.backend.renew(bench.client, &[heartbeat]).remove(0).unwrap() {
        Renewal::Granted { token: same, .. } => assert_eq!(same, token),
        other => panic!("{other:?}"),
    }
    lasts();
    assert_eq!(bench.release(&owner, 1, token), Released::Released);
    harness.assert_nothing_is_left("long");
}

/// So no lock stays with a caller that has left.
pub fn a_withdrawal_after_the_grant_says_so(harness: &impl Harness) {
    let bench = Bench::new(harness, "granted");
    let owner = bench.owner();
    let token = bench.token(&owner, 1);
    match only(bench.backend.withdraw(&[bench.place(&owner, 1)])).unwrap() {
        Withdrawn::WasGranted { token: same, lease } => assert!(same == token && lease <= LEASE),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.release(&owner, 1, token), Released::Released);
    assert_eq!(only(bench.backend.withdraw(&[bench.place(&owner, 1)])).unwrap(), Withdrawn::Left);
    harness.assert_nothing_is_left("granted");
}

/// The heartbeat was sent before the withdrawal, and took long.
pub fn a_heartbeat_after_the_withdrawal_leaves_nothing(harness: &impl Harness) {
    let bench = Bench::new(harness, "withdrawn");
    let (holder, waiter) = (bench.owner(), bench.owner());
    let token = bench.token(&holder, 1);
    let mut place = bench.place(&waiter, 2);
    place.wait = Wait::Forever;
    let asked = only(bench.backend.acquire(&[Acquire::new(place, LEASE)])).unwrap();
    assert!(!matches!(asked, Acquired::Granted { .. }), "{asked:?}");
    assert_eq!(only(bench.backend.withdraw(&[place])).unwrap(), Withdrawn::Left);
    let late = bench.backend.renew(bench.client, &[Renew::Place { place, lease: LEASE }]).remove(0).unwrap();
    assert!(!matches!(late, Renewal::Granted { .. }), "{late:?}");
    assert_eq!(bench.queue(), 0);
    assert_eq!(bench.release(&holder, 1, token), Released::Released);
    let state = bench.backend.inspect(&bench.lock, 0..0).unwrap();
    assert!(state.holder().is_none(), "{state:?}");
    harness.assert_nothing_is_left("withdrawn");
}

/// Holds and places, valid ones and others, in one call and in order.
pub fn renewal_answers_each_item_for_itself(harness: &impl Harness) {
    let bench = Bench::new(harness, "items");
    let (holder, waiter, stranger) = (bench.owner(), bench.owner(), bench.owner());
    let token = bench.token(&holder, 1);
    bench.ask(&waiter, 2);
    let hold =
        |owner, request| Renew::Hold { hold: bench.hold(owner, request, token), holds: 3, lease: LEASE };
    let place = |owner, request| Renew::Place { place: bench.place(owner, request), lease: LEASE };
    let items =
        [hold(&stranger, 9), hold(&holder, 1), place(&waiter, 2), hold(&holder, 9), place(&holder, 1)];
    let answers: Vec<_> = bench.backend.renew(bench.client, &items).into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.len(), items.len());
    assert_eq!([answers[0], answers[1], answers[3]], [Renewal::Lost, Renewal::Renewed, Renewal::Lost]);
    assert!(matches!(answers[2], Renewal::Waiting { rank: 0, .. }), "{answers:?}");
    assert!(matches!(answers[4], Renewal::Granted { token: same, .. } if same == token), "{answers:?}");
    assert_eq!(bench.backend.inspect(&bench.lock, 0..0).unwrap().holder().unwrap().hold_count, 3);
    if harness.promises(Promise::Order) {
        let gone = bench.backend.renew(bench.client, &[place(&stranger, 9)]).remove(0).unwrap();
        assert_eq!(gone, Renewal::Lost);
    }
    assert_eq!(only(bench.backend.withdraw(&[bench.place(&waiter, 2)])).unwrap(), Withdrawn::Left);
    assert_eq!(bench.release(&holder, 1, token), Released::Released);
    harness.assert_nothing_is_left("items");
}

/// A call about many requests answers each as if it had been asked alone, even when it is repeated.
pub fn requests_that_go_together_are_answered_each_for_itself(harness: &impl Harness) {
    let bench = Bench::new(harness, "together");
    let owners = [(); 3].map(|()| bench.owner());
    let places = [0, 1, 2].map(|at: usize| bench.place(&owners[at], at as u64 + 1));
    let asks = places.map(|place| Acquire::new(place, LEASE));
    let ask = || bench.backend.acquire(&asks).into_iter().map(Result::unwrap).collect::<Vec<_>>();
    let token = bench.token(&owners[0], 1);
    for _ in 0..2 {
        let answers = ask();
        assert!(matches!(answers[0], Acquired::Granted { token: same, .. } if same == token), "{answers:?}");
        for (answer, place) in answers[1..].iter().zip(0..) {
            match answer {
                Acquired::Queued { rank, .. } => assert!(!harness.promises(Promise::Order) || *rank == place),
                Acquired::Busy { .. } => assert!(!harness.promises(Promise::Order)),
                _ => panic!("{answers:?}"),
            }
        }
        assert_eq!(answers.len(), 3);
    }
    for _ in 0..2 {
        let answers: Vec<_> = bench.backend.withdraw(&places).into_iter().map(Result::unwrap).collect();
        assert!(
            matches!(answers[0], Withdrawn::WasGranted { token: same, .. } if same == token),
            "{answers:?}"
        );
        assert_eq!(answers[1..], [Withdrawn::Left, Withdrawn::Left]);
        assert_eq!(bench.queue(), 0);
    }
    assert!(bench.backend.withdraw(&[]).is_empty() && bench.backend.acquire(&[]).is_empty());
    assert_eq!(bench.release(&owners[0], 1, token), Released::Released);
    harness.assert_nothing_is_left("together");
}

/// Holds of several locks, valid ones and others, in one call and in order. Each lock that was given back is free.
pub fn holds_that_go_together_are_released_each_for_itself(harness: &impl Harness) {
    let benches = ["together:1", "together:2", "together:3"].map(|name| Bench::new(harness, name));
    let owners = benches.each_ref().map(Bench::owner);
    let tokens = [0, 1, 2].map(|at: usize| benches[at].token(&owners[at], 1));
    let hold = |at: usize, request| benches[at].hold(&owners[at], request, tokens[at]);
    let release_all = |holds: &[Hold<'_>]| {
        let answers = benches[0].backend.release(holds).into_iter();
        answers.map(Result::unwrap).collect::<Vec<_>>()
    };
    let next = benches[0].owner();
    benches[0].ask(&next, 2);
    let stranger = benches[1].owner();
    let answers = release_all(&[
        hold(0, 1),
        benches[1].hold(&stranger, 1, tokens[1]),
        hold(1, 2),
        hold(2, 1),
        hold(1, 1),
    ]);
    use Released::{NotHeld, Released as Given};
    assert_eq!(answers, [Given, NotHeld, NotHeld, Given, Given]);
    assert!(release_all(&[]).is_empty());
    let new = benches[0].token(&next, 2); // by the release, or now
    assert!(new > tokens[0]);
    assert_eq!(benches[0].release(&next, 2, new), Released::Released);
    benches.iter().for_each(|bench| harness.assert_nothing_is_left(bench.lock.name.as_str()));
}

/// The owners may hold the locks anew by then.
pub fn a_repeated_release_of_many_touches_no_later_hold(harness: &impl Harness) {
    let benches = ["again:1", "again:2"].map(|name| Bench::new(harness, name));
    let owners = benches.each_ref().map(Bench::owner);
    let tokens = |request| [0, 1].map(|at: usize| benches[at].token(&owners[at], request));
    let release_all = |request, tokens: [FencingToken; 2]| {
        let holds = [0, 1].map(|at: usize| benches[at].hold(&owners[at], request, tokens[at]));
        let answers = benches[0].backend.release(&holds).into_iter();
        answers.map(Result::unwrap).collect::<Vec<_>>()
    };
    let old = tokens(1);
    assert_eq!(release_all(1, old), [Released::Released; 2]);
    assert_eq!(release_all(1, old), [Released::NotHeld; 2]);
    let new = tokens(2);
    assert_eq!(release_all(1, old), [Released::NotHeld; 2]);
    for (bench, token) in benches.iter().zip(new) {
        let state = bench.backend.inspect(&bench.lock, 0..0).unwrap();
        assert_eq!(state.holder().unwrap().token, Some(token));
    }
    assert_eq!(release_all(2, new), [Released::Released; 2]);
    benches.iter().for_each(|bench| harness.assert_nothing_is_left(bench.lock.name.as_str()));
}
