//! A store on a manual clock, its clients, and their requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, Hold, LockId, LockState, Place, Released, Renew, Renewal,
    RequestId, Subscription, Wait, Wake, WakeSink, Withdrawn,
};
use fairlock_core::{Client, ClientId, FencingToken, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::{Faults, MemoryBackend};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// The wake-ups of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Granted(OwnerId, RequestId, FencingToken),
    Recheck,
    Taken(OwnerId, FencingToken),
    Gap,
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Heard>>);

impl WakeSink for Recorder {
    fn wake(&self, wake: Wake<'_>) {
        let heard = match wake {
            Wake::Granted { owner, request, token, .. } => {
                Heard::Granted(OwnerId::new(owner), request, token)
            }
            Wake::Recheck { owner, .. } => {
                assert_eq!(owner, None);
                Heard::Recheck
            }
            Wake::Taken { owner, token, .. } => Heard::Taken(OwnerId::new(owner), token),
            Wake::Gap => Heard::Gap,
        };
        self.0.lock().unwrap().push(heard);
    }
}

/// A store with one lock.
pub(crate) struct Fixture {
    pub(crate) clock: ManualClock,
    pub(crate) backend: MemoryBackend,
    pub(crate) lock: LockId,
}

impl Fixture {
    pub(crate) fn fair() -> Fixture {
        Fixture::with(LockKind::Fair)
    }

    pub(crate) fn plain() -> Fixture {
        Fixture::with(LockKind::Plain)
    }

    pub(crate) fn semaphore(permits: u32) -> Fixture {
        Fixture::with(LockKind::Semaphore { permits })
    }

    pub(crate) fn read_write() -> Fixture {
        Fixture::with(LockKind::ReadWrite)
    }

    fn with(kind: LockKind) -> Fixture {
        let clock = ManualClock::new();
        let backend = MemoryBackend::with_clock(clock.clone());
        Fixture { clock, backend, lock: LockId::new(LockName::new("orders").unwrap(), kind) }
    }

    /// A subscribed client.
    pub(crate) fn client(&self) -> TestClient {
        // Only core's clients have ids: this one's client used another store, and is gone at once.
        let id = Client::new(MemoryBackend::new()).unwrap().id();
        let recorder = Arc::new(Recorder::default());
        let subscription = self.backend.subscribe(id, recorder.clone()).unwrap();
        TestClient { id, recorder, subscription: Some(subscription) }
    }

    /// A request of a new owner.
    pub(crate) fn request<'a>(&'a self, client: &TestClient, number: u64) -> Asker<'a> {
        let owner = OwnerId::new(&format!("{}:{number}", client.id));
        self.request_of(client, owner, number)
    }

    pub(crate) fn request_of<'a>(&'a self, client: &TestClient, owner: OwnerId, request: u64) -> Asker<'a> {
        let request = RequestId::new(request);
        let Fixture { backend, lock, .. } = self;
        Asker { backend, lock, client: client.id, owner, request, ticket: 0, takes: 1 }
    }

    pub(crate) fn requests<'a, const N: usize>(&'a self, client: &TestClient) -> [Asker<'a>; N] {
        std::array::from_fn(|number| self.request(client, number as u64))
    }

    pub(crate) fn faults(&self) -> Faults {
        self.backend.faults()
    }

    pub(crate) fn inspect(&self) -> LockState {
        self.backend.inspect(&self.lock, 0..u64::MAX).unwrap()
    }

    /// The owners that hold it, and the units that they take together.
    pub(crate) fn holders(&self) -> (Vec<OwnerId>, u32) {
        let state = self.inspect();
        let taken = state.taken();
        (state.holders.into_iter().map(|holder| holder.owner).collect(), taken)
    }

    pub(crate) fn holder(&self) -> Option<OwnerId> {
        self.inspect().holder().cloned().map(|holder| holder.owner)
    }

    pub(crate) fn line(&self) -> Vec<OwnerId> {
        self.inspect().line.into_iter().map(|waiter| waiter.owner).collect()
    }

    /// Moves the clock in short steps, and renews the places of all these in between.
    pub(crate) fn advance_with(&self, by: Duration, alive: &[&Asker<'_>]) {
        let end = self.clock.now() + by;
        while self.clock.now() < end {
            self.clock.advance((end - self.clock.now()).min(TTL / 3));
            for asker in alive {
                asker.renew_place().unwrap();
            }
        }
    }
}

pub(crate) struct TestClient {
    pub(crate) id: ClientId,
    recorder: Arc<Recorder>,
    subscription: Option<Subscription>,
}

impl TestClient {
    /// The wake-ups since the last call.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.recorder.0.lock().unwrap())
    }

    /// The connection is gone.
    pub(crate) fn hangs_up(&mut self) {
        self.subscription = None;
    }
}

/// One request of one owner.
#[derive(Clone)]
pub(crate) struct Asker<'a> {
    backend: &'a MemoryBackend,
    lock: &'a LockId,
    client: ClientId,
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    /// The place that it sends.
    pub(crate) ticket: u64,
    pub(crate) takes: u32,
}

impl Asker<'_> {
    /// The same request, for this many units.
    pub(crate) fn taking(self, takes: u32) -> Self {
        Asker { takes, ..self }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        let mut place = Place::new(self.lock, &self.owner, self.request);
        place.ttl = TTL;
        place.ticket = self.ticket;
        place.takes = self.takes;
        place
    }

    pub(crate) fn ask(&self, wait: Wait) -> Acquire<'_> {
        let mut place = self.place();
        place.wait = wait;
        let mut ask = Acquire::new(place, LEASE);
        ask.label = "a test";
        ask
    }

    pub(crate) fn hold(&self, token: FencingToken) -> Hold<'_> {
        Hold::new(self.lock, &self.owner, self.request, token)
    }

    pub(crate) fn acquire(&self, wait: Wait) -> Result<Acquired, BackendError> {
        self.backend.acquire(&self.ask(wait))
    }

    /// Asks, and gets the lock.
    pub(crate) fn gets_it(&self) -> FencingToken {
        match self.acquire(Wait::Forever).unwrap() {
            Acquired::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and gets a place with this rank.
    pub(crate) fn queues(&self, rank: u64) {
        match self.acquire(Wait::Forever).unwrap() {
            Acquired::Queued { rank: got, .. } => assert_eq!(got, rank),
            other => panic!("{other:?}"),
        }
    }

    /// Asks, gets a place with this rank, and sends its ticket from now on.
    pub(crate) fn queues_and_knows(&mut self, rank: u64) {
        match self.acquire(Wait::Forever).unwrap() {
            Acquired::Queued { rank: got, ticket, .. } => {
                assert_eq!(got, rank);
                self.ticket = ticket;
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn renew_place(&self) -> Result<Renewal, BackendError> {
        let item = Renew::Place { place: self.place(), lease: LEASE };
        self.backend.renew(self.client, &[item]).remove(0)
    }

    pub(crate) fn renew_hold(&self, token: FencingToken, holds: u32) -> Result<Renewal, BackendError> {
        let item = Renew::Hold { hold: self.hold(token), holds, lease: LEASE };
        self.backend.renew(self.client, &[item]).remove(0)
    }

    pub(crate) fn release(&self, token: FencingToken) -> Result<Released, BackendError> {
        self.backend.release(&self.hold(token))
    }

    pub(crate) fn withdraw(&self) -> Withdrawn {
        self.try_withdraw().unwrap()
    }

    pub(crate) fn try_withdraw(&self) -> Result<Withdrawn, BackendError> {
        self.backend.withdraw(&self.place())
    }

    /// The token in the only wake-up of its client, a grant.
    pub(crate) fn told_by(&self, client: &TestClient) -> FencingToken {
        match client.heard().as_slice() {
            [Heard::Granted(owner, request, token)] if *owner == self.owner && *request == self.request => {
                *token
            }
            other => panic!("{other:?}"),
        }
    }
}
