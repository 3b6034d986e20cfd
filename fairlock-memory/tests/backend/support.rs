//! One lock of a store with its own clock, asked through the `Backend` trait by numbered requests, each of an owner of its own.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, Hold, LockId, Place, Released, Renew, Renewal, RequestId,
    Subscription, Wait, Wake, WakeSink, only,
};
use fairlock_core::{Client, ClientId, FencingToken, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::MemoryBackend;

pub(crate) const S: Duration = Duration::from_secs(1);
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// The time to live of all places.
pub(crate) const TTL: Duration = Duration::from_secs(5);

pub(crate) type Answer<T> = Result<T, BackendError>;

/// A request is a number: those below this one are of the first client, the others of the second.
pub(crate) const OF_SECOND: u64 = 1_000_000;

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) backend: MemoryBackend,
    pub(crate) lock: LockId,
    clients: [(ClientId, Receiver<String>, Option<Subscription>); 2],
}

struct Ear(Sender<String>);

impl WakeSink for Ear {
    fn wake(&self, wake: Wake<'_>) {
        let number = |owner: &str| owner.rsplit(':').next().unwrap().to_owned();
        _ = self.0.send(match wake {
            Wake::Granted { owner, .. } => format!("granted {}", number(owner)),
            Wake::Taken { owner, .. } => format!("taken {}", number(owner)),
            Wake::Recheck { owner: None, .. } => "recheck".to_owned(),
            Wake::Recheck { owner: Some(owner), .. } => format!("recheck {}", number(owner)),
            Wake::Gap => "gap".to_owned(),
            other => format!("{other:?}"),
        });
    }
}

impl World {
    pub(crate) fn of(kind: LockKind) -> World {
        let clock = ManualClock::new();
        let backend = MemoryBackend::with_clock(clock.clone());
        let clients = [(); 2].map(|()| {
            // Only core's clients have ids: this one's client used another store, and is gone at once.
            let id = Client::new(MemoryBackend::new()).unwrap().id();
            let (sender, told) = channel();
            (id, told, Some(backend.subscribe(id, Arc::new(Ear(sender))).unwrap()))
        });
        World { clock, backend, lock: LockId::new(LockName::new("orders").unwrap(), kind), clients }
    }

    /// The next calls take it for a lock of this kind.
    pub(crate) fn as_kind(&mut self, kind: LockKind) {
        self.lock.kind = kind;
    }

    pub(crate) fn client(&self, number: usize) -> ClientId {
        self.clients[number].0
    }

    pub(crate) fn hangs_up(&mut self, client: usize) {
        self.clients[client].2 = None;
    }

    pub(crate) fn owner(&self, number: u64) -> OwnerId {
        OwnerId::new(&format!("{}:{number}", self.client(usize::from(number >= OF_SECOND))))
    }

    pub(crate) fn place<'a>(&'a self, owner: &'a OwnerId, units: u32) -> Place<'a> {
        let number = owner.as_str().rsplit(':').next().unwrap().parse().unwrap();
        let mut place = Place::new(&self.lock, owner, RequestId::new(number));
        (place.units, place.ttl) = (units, TTL);
        place
    }

    pub(crate) fn ask(&self, number: u64, units: u32, wait: Wait) -> Answer<Acquired> {
        let owner = self.owner(number);
        let mut place = self.place(&owner, units);
        place.wait = wait;
        only(self.backend.acquire(&[Acquire::new(place, LEASE)]))
    }

    #[track_caller]
    pub(crate) fn granted(&self, number: u64, units: u32) -> FencingToken {
        match self.ask(number, units, Wait::Forever).unwrap() {
            Acquired::Granted { token, .. } => token,
            other => panic!("{number}: {other:?}"),
        }
    }

    /// Returns the rank and when to look.
    #[track_caller]
    pub(crate) fn queued(&self, number: u64, units: u32) -> (u64, Duration) {
        match self.ask(number, units, Wait::Forever).unwrap() {
            Acquired::Queued { rank, recheck_in, .. } => (rank, recheck_in),
            other => panic!("{number}: {other:?}"),
        }
    }

    pub(crate) fn with_hold<T>(
        &self,
        (number, token): (u64, FencingToken),
        act: impl FnOnce(&MemoryBackend, Hold<'_>) -> T,
    ) -> T {
        let owner = self.owner(number);
        act(&self.backend, Hold::new(&self.lock, &owner, RequestId::new(number), token))
    }

    pub(crate) fn release(&self, number: u64, token: FencingToken) -> Answer<Released> {
        self.with_hold((number, token), |backend, hold| only(backend.release(&[hold])))
    }

    #[track_caller]
    pub(crate) fn releases(&self, number: u64, token: FencingToken) {
        assert_eq!(self.release(number, token).unwrap(), Released::Released);
    }

    pub(crate) fn renew(&self, number: u64, token: FencingToken) -> Answer<Renewal> {
        self.with_hold((number, token), |backend, hold| {
            backend.renew(self.client(0), &[Renew::Hold { hold, holds: 1, lease: LEASE }]).remove(0)
        })
    }

    /// One call renews the places of these.
    pub(crate) fn beat(&self, numbers: &[u64]) -> Vec<Answer<Renewal>> {
        let owners: Vec<OwnerId> = numbers.iter().map(|number| self.owner(*number)).collect();
        let items: Vec<_> =
            owners.iter().map(|owner| Renew::Place { place: self.place(owner, 1), lease: LEASE }).collect();
        self.backend.renew(self.client(usize::from(numbers[0] >= OF_SECOND)), &items)
    }

    /// The numbers of the holders and of the waiters.
    pub(crate) fn seen(&self) -> (Vec<u64>, Vec<u64>) {
        let state = self.backend.inspect(&self.lock, 0..u64::MAX).unwrap();
        let number = |owner: &OwnerId| owner.as_str().rsplit(':').next().unwrap().parse().unwrap();
        let holders = state.holders.iter().map(|holder| number(&holder.owner)).collect();
        (holders, state.queue.iter().map(|waiter| number(&waiter.owner)).collect())
    }

    /// All that the client was told since it was asked last.
    pub(crate) fn told(&self, client: usize) -> Vec<String> {
        self.clients[client].1.try_iter().collect()
    }
}
