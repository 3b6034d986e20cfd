//! Requests for units that are repeated after lost answers take effect once. These cases call the backend itself.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, ForceReleased, Place, Released, Renew, Renewal, Wait, Withdrawn, only,
};
use fairlock_core::{FencingToken, LockKind, OwnerId};

use super::shared::{benches, is_kept};
use super::{DEAD, Harness, LEASE, PATIENCE, SLACK, client_with, until};
use crate::requests::Bench;

/// All units of a lock of any kind.
const ALL: u32 = u32::MAX;

impl Bench {
    fn place_of<'a>(&'a self, owner: &'a OwnerId, request: u64, units: u32) -> Place<'a> {
        let mut place = self.place(owner, request);
        place.units = units;
        place
    }

    fn ask_for(&self, owner: &OwnerId, request: u64, units: u32) -> Acquired {
        only(self.backend.acquire(&[Acquire::new(self.place_of(owner, request, units), LEASE)])).unwrap()
    }

    #[track_caller]
    fn token_of(&self, owner: &OwnerId, request: u64, units: u32) -> FencingToken {
        match self.ask_for(owner, request, units) {
            Acquired::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn queues(&self, owner: &OwnerId, request: u64, units: u32, rank: u64) {
        let asked = self.ask_for(owner, request, units);
        assert!(matches!(asked, Acquired::Queued { rank: at, .. } if at == rank), "{asked:?}");
    }

    fn taken(&self) -> u32 {
        self.backend.inspect(&self.lock, 0..0).unwrap().taken()
    }
}

/// Also the grant that a release made, and beside other holders.
pub fn a_repeated_grant_takes_its_units_once(harness: &impl Harness) {
    for bench in benches(harness, "grant") {
        let (one, two, all) = (bench.owner(), bench.owner(), bench.lock.kind.capacity());
        let first = bench.token_of(&one, 1, 1);
        assert_eq!(bench.token_of(&one, 1, 1), first);
        let second = bench.token_of(&two, 2, 1);
        assert_eq!((bench.token_of(&one, 1, 1), bench.token_of(&two, 2, 1)), (first, second));
        assert!(first < second && bench.taken() == 2);
        // The same with a hand-over.
        let large = bench.owner();
        bench.queues(&large, 3, all, 0);
        bench.queues(&large, 3, all, 0);
        assert_eq!(bench.release(&one, 1, first), Released::Released);
        bench.queues(&large, 3, all, 0);
        assert_eq!(bench.release(&two, 2, second), Released::Released);
        let third = bench.token_of(&large, 3, all);
        assert_eq!(bench.token_of(&large, 3, all), third);
        let state = bench.backend.inspect(&bench.lock, 0..10).unwrap();
        assert_eq!((state.holders.len(), state.queue_length), (1, 0), "{state:?}");
        assert_eq!(bench.release(&large, 3, third), Released::Released);
        assert_eq!(bench.taken(), 0);
        harness.assert_nothing_is_left(bench.lock.name.as_str());
    }
}

/// A release that names no hold, or an old one, frees nothing of any other.
pub fn a_repeated_release_frees_once(harness: &impl Harness) {
    for bench in benches(harness, "release") {
        let (one, two, large) = (bench.owner(), bench.owner(), bench.owner());
        let all = bench.lock.kind.capacity();
        let (first, second) = (bench.token_of(&one, 1, 1), bench.token_of(&two, 2, 1));
        bench.queues(&large, 3, all, 0);
        assert_eq!(bench.release(&one, 1, first), Released::Released);
        for (owner, request, token) in
            [(&one, 1, first), (&one, 2, second), (&two, 2, first), (&two, 1, second)]
        {
            assert_eq!(bench.release(owner, request, token), Released::NotHeld);
            let hold = bench.hold(owner, request, token);
            assert_eq!(bench.backend.take_hold(&hold).unwrap(), ForceReleased::NotHeld);
        }
        assert_eq!(bench.taken(), 1);
        bench.queues(&large, 3, all, 0);
        // An owner that is back since: the old token takes nothing from it.
        assert_eq!(only(bench.backend.withdraw(&[bench.place_of(&large, 3, all)])).unwrap(), Withdrawn::Left);
        let back = bench.token_of(&one, 4, 1);
        assert_eq!(bench.release(&one, 1, first), Released::NotHeld);
        assert_eq!(bench.taken(), 2);
        assert_eq!(bench.release(&one, 4, back), Released::Released);
        let hold = bench.hold(&two, 2, second);
        assert_eq!(bench.backend.take_hold(&hold).unwrap(), ForceReleased::Taken);
        assert_eq!(bench.backend.take_hold(&hold).unwrap(), ForceReleased::NotHeld);
        assert_eq!(bench.taken(), 0);
        harness.assert_nothing_is_left(bench.lock.name.as_str());
    }
}

/// The waiters that fit are granted by each of them, and not by a repeat.
pub fn releases_that_go_together_let_the_others_in_once(harness: &impl Harness) {
    for bench in benches(harness, "together") {
        let (one, two, large, small) = (bench.owner(), bench.owner(), bench.owner(), bench.owner());
        let all = bench.lock.kind.capacity();
        let (first, second) = (bench.token_of(&one, 1, 1), bench.token_of(&two, 2, 1));
        bench.queues(&large, 3, all, 0);
        bench.queues(&small, 4, 1, 1);
        let holds = [bench.hold(&one, 1, first), bench.hold(&two, 2, second)];
        for answer in [Released::Released, Released::NotHeld] {
            let answers: Vec<_> = bench.backend.release(&holds).into_iter().map(Result::unwrap).collect();
            assert_eq!(answers, [answer; 2]);
            let state = bench.backend.inspect(&bench.lock, 0..10).unwrap();
            assert_eq!((state.taken(), state.queue_length), (all, 1), "{state:?}");
        }
        let third = bench.token_of(&large, 3, all);
        assert_eq!(bench.release(&large, 3, third), Released::Released);
        let fourth = bench.token_of(&small, 4, 1);
        assert_eq!(bench.release(&small, 4, fourth), Released::Released);
        harness.assert_nothing_is_left(bench.lock.name.as_str());
    }
}

/// The request that left blocked the others. They are granted by the withdrawal, not by its repeat.
pub fn a_repeated_withdrawal_lets_the_others_in_once(harness: &impl Harness) {
    for bench in benches(harness, "withdraw") {
        let (one, large, two, after) = (bench.owner(), bench.owner(), bench.owner(), bench.owner());
        let all = bench.lock.kind.capacity();
        let first = bench.token_of(&one, 1, 1);
        bench.queues(&large, 2, all, 0);
        bench.queues(&two, 3, 1, 1);
        bench.queues(&after, 4, all, 2);
        for _ in 0..2 {
            assert_eq!(
                only(bench.backend.withdraw(&[bench.place_of(&large, 2, all)])).unwrap(),
                Withdrawn::Left
            );
            let state = bench.backend.inspect(&bench.lock, 0..10).unwrap();
            assert_eq!((state.taken(), state.queue_length), (2, 1), "{state:?}");
        }
        let second = bench.token_of(&two, 3, 1);
        for _ in 0..2 {
            match only(bench.backend.withdraw(&[bench.place_of(&two, 3, 1)])).unwrap() {
                Withdrawn::WasGranted { token, lease } => assert!(token == second && lease <= LEASE),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bench.taken(), 2);
        assert_eq!(only(bench.backend.withdraw(&[bench.place_of(&after, 4, all)])).unwrap(), Withdrawn::Left);
        assert_eq!(bench.release(&one, 1, first), Released::Released);
        assert_eq!(bench.release(&two, 3, second), Released::Released);
        harness.assert_nothing_is_left(bench.lock.name.as_str());
    }
}

/// It has ended, whether or not any call has come since: a late renewal or release changes nothing, and a late ask is a new grant.
pub fn an_expired_hold_is_not_renewed(harness: &impl Harness) {
    let benches = benches(harness, "expired");
    let holds: Vec<_> = benches.iter().map(|bench| (bench.owner(), bench.owner())).collect();
    let tokens = benches.iter().zip(&holds).map(|(bench, (dead, live))| {
        let short = Acquire::new(bench.place_of(dead, 1, 1), DEAD);
        match only(bench.backend.acquire(&[short])).unwrap() {
            Acquired::Granted { token, .. } => (token, bench.token_of(live, 2, 1)),
            other => panic!("{other:?}"),
        }
    });
    let tokens: Vec<_> = tokens.collect();
    let renew = |bench: &Bench, owner, request, token| {
        let item = Renew::Hold { hold: bench.hold(owner, request, token), holds: 1, lease: LEASE };
        bench.backend.renew(bench.client, &[item]).remove(0).unwrap()
    };
    for ((bench, (_, live)), (_, lives)) in benches.iter().zip(&holds).zip(&tokens) {
        assert_eq!(renew(bench, live, 2, *lives), Renewal::Renewed, "this one alone");
    }
    if !benches.is_empty() {
        harness.pass(DEAD + SLACK);
    }
    for ((bench, (dead, live)), (token, lives)) in benches.iter().zip(&holds).zip(tokens) {
        assert_eq!(renew(bench, dead, 1, token), Renewal::Lost);
        assert_eq!(renew(bench, live, 2, lives), Renewal::Renewed);
        assert_eq!(bench.release(dead, 1, token), Released::NotHeld);
        assert_eq!(bench.taken(), 1);
        let again = bench.token_of(dead, 1, 1);
        assert!(again > lives);
        assert_eq!(bench.release(dead, 1, token), Released::NotHeld);
        assert_eq!(bench.release(dead, 1, again), Released::Released);
        assert_eq!(bench.release(live, 2, lives), Released::Released);
    }
    benches.iter().for_each(|bench| harness.assert_nothing_is_left(bench.lock.name.as_str()));
}

/// The holder is dead. A call about many grants all that fit, in the order of the queue and not of the items. So does an ask,
/// which may leave the queue empty and units free.
pub fn heartbeats_and_asks_grant_all_that_fit(harness: &impl Harness) {
    let (of_heartbeats, of_asks) = (benches(harness, "heartbeats"), benches(harness, "asks"));
    let stand = |benches: &[Bench], units: &[u32]| -> Vec<_> {
        benches.iter().map(|bench| stand_behind_a_dead_holder(bench, units)).collect()
    };
    let (queues, short) = (stand(&of_heartbeats, &[1, 1, ALL, 1]), stand(&of_asks, &[1]));
    if !of_asks.is_empty() {
        harness.pass(LEASE + SLACK);
    }
    for (bench, waiters) in of_asks.iter().zip(short) {
        let (owner, _) = &waiters[0];
        let token = bench.token_of(owner, 0, 1);
        assert_eq!(bench.taken(), 1, "it takes them once");
        assert_eq!(bench.release(owner, 0, token), Released::Released);
        assert_eq!(bench.taken(), 0);
    }
    for (bench, waiters) in of_heartbeats.iter().zip(queues) {
        let place = |at: usize| bench.place_of(&waiters[at].0, at as u64, waiters[at].1);
        let items = [3, 2, 1, 0].map(|at| Renew::Place { place: place(at), lease: LEASE });
        let answers = bench.backend.renew(bench.client, &items);
        let [Ok(fourth), Ok(third), Ok(second), Ok(first)] = answers[..] else { panic!("{answers:?}") };
        let granted = |renewal| match renewal {
            Renewal::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        };
        let (first, second) = (granted(first), granted(second));
        assert!(first < second);
        assert!(matches!(third, Renewal::Waiting { rank: 0, .. }), "{third:?}");
        assert!(matches!(fourth, Renewal::Waiting { rank: 1, .. }), "{fourth:?}");
        assert_eq!(bench.taken(), 2);
        for at in [3, 2] {
            assert_eq!(only(bench.backend.withdraw(&[place(at)])).unwrap(), Withdrawn::Left);
        }
        assert_eq!(bench.release(&waiters[0].0, 0, first), Released::Released);
        assert_eq!(bench.release(&waiters[1].0, 1, second), Released::Released);
    }
    let benches = of_heartbeats.iter().chain(&of_asks);
    benches.for_each(|bench| harness.assert_nothing_is_left(bench.lock.name.as_str()));
}

/// Waiters for this many units, numbered by their requests. The holder lives until they stand there.
fn stand_behind_a_dead_holder(bench: &Bench, units: &[u32]) -> Vec<(OwnerId, u32)> {
    let dead = bench.owner();
    let all = Acquire::new(bench.place(&dead, 9), LEASE);
    assert!(matches!(only(bench.backend.acquire(&[all])).unwrap(), Acquired::Granted { .. }));
    let capacity = bench.lock.kind.capacity();
    let waiters: Vec<_> = units.iter().map(|units| (bench.owner(), capacity.min(*units))).collect();
    for (number, (owner, units)) in (0..).zip(&waiters) {
        bench.queues(owner, number, *units, number);
    }
    waiters
}

/// It takes what is free, or leaves nothing behind.
pub fn an_attempt_for_units_leaves_no_place(harness: &impl Harness) {
    for bench in benches(harness, "attempt") {
        let (one, two, all) = (bench.owner(), bench.owner(), bench.lock.kind.capacity());
        let first = bench.token_of(&one, 1, 1);
        let attempt = |units| {
            let mut place = bench.place_of(&two, 2, units);
            place.wait = Wait::No;
            only(bench.backend.acquire(&[Acquire::new(place, LEASE)])).unwrap()
        };
        for _ in 0..2 {
            assert!(matches!(attempt(all), Acquired::Busy { .. }));
            assert_eq!((bench.taken(), bench.queue()), (1, 0));
        }
        let Acquired::Granted { token, .. } = attempt(1) else { panic!("a unit is free") };
        let repeated = attempt(1);
        assert!(matches!(repeated, Acquired::Granted { token: same, .. } if same == token), "{repeated:?}");
        assert_eq!(bench.taken(), 2);
        assert_eq!(bench.release(&two, 2, token), Released::Released);
        assert_eq!(bench.release(&one, 1, first), Released::Released);
        harness.assert_nothing_is_left(bench.lock.name.as_str());
    }
}

/// The server tells only the first waiter of each client when to look.
pub fn the_next_of_a_client_looks_when_its_first_has_left(harness: &impl Harness) {
    let kind = LockKind::Semaphore { permits: 2 };
    if !is_kept(harness, kind) {
        return;
    }
    let bench = Bench::of_kind(harness, kind, "look");
    let (dead, live) = (bench.owner(), bench.owner());
    // No heartbeat is due, which would find the free permit as well.
    let client = client_with(harness, Duration::from_secs(120));
    let semaphore = client.semaphore("look", 2).unwrap();
    let token = bench.token_of(&live, 1, 1);
    let short = Acquire::new(bench.place_of(&dead, 2, 1), DEAD);
    assert!(matches!(only(bench.backend.acquire(&[short])).unwrap(), Acquired::Granted { .. }));
    let (first, second) = (semaphore.request_many(2).unwrap(), semaphore.request().unwrap());
    drop(first);
    until("the first has left", || bench.queue() == 1);
    harness.pass(DEAD + SLACK);
    second.decided().recv_timeout(PATIENCE).expect("at the end of the dead holder's lease");
    second.wait().unwrap().unlock().unwrap();
    assert_eq!(bench.release(&live, 1, token), Released::Released);
    harness.assert_nothing_is_left("look");
}
