//! Stories about one lock: who asks, waits and leaves, what each is told, and what is seen then.
//!
//! `fair().a().gets().b().waits(0).a().releases().b().hears()` is a story about a fair lock. A name begins a request, which is of
//! client 0 and takes one unit until it says otherwise: `b().of_client(1).units(2)`. What it does behind that is a call with the
//! answer that has to come: `releases()`, or `release().gone()` for another answer than the usual one. Names, and the words about the
//! lock, the clock and the clients, may follow on each other in any order. At the end of a story each message was heard.

use std::cell::{Ref, RefCell, RefMut};
use std::ops::Deref;
use std::panic::Location;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlock_core::backend::{
    Backend, BackendError, BackendErrorKind, ForceReleased, LockId, LockState, Place, Renew, Renewal,
    RequestId, Subscription, Wake, WakeSink,
};
use fairlock_core::{Client, ClientId, FencingToken, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::{MemoryBackend, Operation};

mod by;
#[path = "../../../../fairlock-core/src/tests/names.rs"]
mod names;

pub(crate) use by::By;
pub(crate) use names::*;

/// All units of a read-write lock: a writer.
pub(crate) const ALL: u32 = u32::MAX;
pub(crate) const EVER: Duration = Duration::MAX;

type Answer<T> = Result<T, BackendError>;

/// What a client hears beside its grants.
pub(crate) const RECHECK: &str = "recheck";
pub(crate) const RECHECK_OF_ONE: &str = "recheck of one";
pub(crate) const GAP: &str = "gap";
pub(crate) const NOTHING: &str = "nothing";

/// A store with one lock, its clients, and their requests.
#[derive(Clone)]
pub(crate) struct Story(Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) clock: ManualClock,
    pub(crate) backend: MemoryBackend,
    state: RefCell<State>,
    begun: &'static Location<'static>,
}

struct State {
    lock: LockId,
    lease: Duration,
    ttl: Duration,
    clients: Vec<TestClient>,
    requests: Vec<Request>,
    greatest: Option<FencingToken>,
    /// The time that the last answer told.
    told: Duration,
}

struct TestClient {
    id: ClientId,
    heard: Arc<Recorder>,
    _subscription: Option<Subscription>,
}

#[derive(Clone)]
struct Request {
    name: String,
    client: usize,
    owner: OwnerId,
    id: RequestId,
    units: u32,
    ticket: u64,
    sends_ticket: bool,
    tokens: Vec<FencingToken>,
}

#[derive(Debug)]
enum Heard {
    Granted(OwnerId, RequestId, FencingToken),
    Taken(OwnerId, FencingToken),
    Other(&'static str),
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Heard>>);

impl WakeSink for Recorder {
    fn wake(&self, wake: Wake<'_>) {
        self.0.lock().unwrap().push(match wake {
            Wake::Granted { owner, request, token, .. } => {
                Heard::Granted(OwnerId::new(owner), request, token)
            }
            Wake::Taken { owner, token, .. } => Heard::Taken(OwnerId::new(owner), token),
            Wake::Recheck { owner: None, .. } => Heard::Other(RECHECK),
            Wake::Recheck { .. } => Heard::Other(RECHECK_OF_ONE),
            Wake::Gap => Heard::Other(GAP),
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for client in self.state.get_mut().clients.iter().filter(|_| !std::thread::panicking()) {
            let left = client.heard.0.lock().unwrap();
            assert!(left.is_empty(), "nobody hears {left:?} in the story that begins at {}", self.begun);
        }
    }
}

impl Deref for Story {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

#[track_caller]
pub(crate) fn fair() -> Story {
    Story::of(LockKind::Fair)
}

#[track_caller]
pub(crate) fn plain() -> Story {
    Story::of(LockKind::Plain)
}

#[track_caller]
pub(crate) fn read_write() -> Story {
    Story::of(LockKind::ReadWrite)
}

#[track_caller]
pub(crate) fn semaphore(permits: u32) -> Story {
    Story::of(LockKind::Semaphore { permits })
}

impl Names for Story {
    type One = By;

    fn by(&self, name: &str) -> By {
        let known = self.state().requests.iter().position(|one| one.name == name);
        if let Some(at) = known {
            return By { story: self.clone(), at, names: None };
        }
        let at = self.state().requests.len();
        let (id, owner) = (RequestId::new(at as u64 + 1), OwnerId::new(name));
        let (name, tokens) = (name.to_owned(), Vec::new());
        let request =
            Request { name, client: 0, owner, id, units: 1, ticket: 0, sends_ticket: false, tokens };
        self.change().requests.push(request);
        By { story: self.clone(), at, names: None }.of_client(0)
    }
}

/// The lock, the clock and the clients.
impl Story {
    words! {
            /// Nobody is asked now.
        story(self) {}
        /// The next calls take it for a lock of this kind.
        as_kind(self, kind: LockKind) { self.change().lock.kind = kind }
        as_fair(self) { self.as_kind(LockKind::Fair) }
        as_plain(self) { self.as_kind(LockKind::Plain) }
        as_semaphore(self, permits: u32) { self.as_kind(LockKind::Semaphore { permits }) }
        /// What the next requests ask for.
        lease(self, lease: Duration) { self.change().lease = lease }
        /// The time of the next places.
        ttl(self, ttl: Duration) { self.change().ttl = ttl }
        /// The clock moves step by step.
        pass(self, time: Duration) { self.clock.advance(time) }
        /// The same while these renew their places.
        pass_with(self, time: Duration, alive: &[&str]) {
            let end = self.clock.now() + time;
            while self.clock.now() < end {
                self.clock.advance((end - self.clock.now()).min(self.state().ttl / 3));
                for one in alive.iter().map(|name| self.by(name)) {
                    self.renew_places(&[one]).remove(0).unwrap();
                }
            }
        }
        /// The clock moves at once.
        jump(self, time: Duration) { self.clock.jump(time) }
        fail(self, operation: Operation, times: usize) { self.backend.faults().fail_next(operation, times) }
        lose_hold(self) { self.backend.faults().lose_hold("orders") }
        lose_queue(self) { self.backend.faults().lose_queue("orders") }
        lose_message(self) { self.backend.faults().lose_wake_ups(1) }
        lose_reply(self, operation: Operation) { self.backend.faults().lose_reply(operation, 1) }
        /// An operator takes all holds.
        forced(self) { self.force(Ok(ForceReleased::Taken)) }
        force_finds_nothing(self) { self.force(Ok(ForceReleased::NotHeld)) }
        force_fails(self, kind: BackendErrorKind) { self.force(Err(kind)) }
        held_by(self, names: &[&str]) {
            let holders = self.seen().holders;
            let found: Vec<_> = holders.iter().map(|one| self.name(&one.owner, one.request)).collect();
            assert_eq!(found, names, "who holds the lock");
        }
        queue(self, names: &[&str]) {
            let queue = self.seen().queue;
            let found: Vec<_> = queue.iter().map(|one| self.name(&one.owner, one.request)).collect();
            assert_eq!(found, names, "who is in the queue");
        }
        /// How many units are taken.
        taken(self, units: u32) { assert_eq!(self.seen().taken(), units, "the units that are taken") }
        /// One call renews the places of these, with these answers.
        beat(self, names: &[&str], expected: &[&str]) {
            let all: Vec<By> = names.iter().map(|name| self.by(name)).collect();
            let answers = self.renew_places(&all);
            let said: Vec<String> = all.iter().zip(answers).map(|(one, answer)| one.beaten(answer)).collect();
            assert_eq!(said, expected, "what {names:?} are told in one call");
        }
    }

    #[track_caller]
    pub(crate) fn of(kind: LockKind) -> Story {
        let clock = ManualClock::new();
        let backend = MemoryBackend::with_clock(clock.clone());
        let lock = LockId::new(LockName::new("orders").unwrap(), kind);
        let [lease, ttl] = [30, 5].map(Duration::from_secs);
        let (clients, requests, told) = Default::default();
        let state = RefCell::new(State { lock, lease, ttl, clients, requests, greatest: None, told });
        Story(Rc::new(Inner { clock, backend, state, begun: Location::caller() }))
    }

    fn then(&self) -> Story {
        self.clone()
    }

    fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    fn change(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    pub(crate) fn lock(&self) -> LockId {
        self.state().lock.clone()
    }

    /// An operator takes all holds.
    #[track_caller]
    fn force(&self, expected: Result<ForceReleased, BackendErrorKind>) {
        let answer = self.backend.force_release(&self.lock()).map_err(|error| error.kind());
        assert_eq!(answer, expected, "an operator takes all holds");
    }

    fn renew_places(&self, all: &[By]) -> Vec<Answer<Renewal>> {
        let (requests, lock): (Vec<Request>, _) = (all.iter().map(By::request).collect(), self.lock());
        let lease = self.state().lease;
        let items: Vec<_> =
            (requests.iter()).map(|one| Renew::Place { place: self.place(one, &lock), lease }).collect();
        self.backend.renew(self.client_id(requests[0].client), &items)
    }

    fn place<'a>(&self, request: &'a Request, lock: &'a LockId) -> Place<'a> {
        let mut place = Place::new(lock, &request.owner, request.id);
        (place.ttl, place.ticket, place.units) = (self.state().ttl, request.ticket, request.units);
        place
    }

    pub(crate) fn seen(&self) -> LockState {
        self.backend.inspect(&self.lock(), 0..u64::MAX).unwrap()
    }

    /// The greatest token of all grants.
    pub(crate) fn greatest(&self) -> FencingToken {
        self.state().greatest.expect("there was a grant")
    }

    fn name(&self, owner: &OwnerId, id: Option<RequestId>) -> String {
        let all = &self.state().requests;
        let found = all.iter().find(|one| one.owner == *owner && Some(one.id) == id);
        found.map_or_else(|| "a stranger".to_owned(), |one| one.name.clone())
    }

    /// A subscribed client.
    pub(crate) fn client(&self, number: usize) -> TheClient {
        while self.state().clients.len() <= number {
            // Only core's clients have ids: this one's client used another store, and is gone at once.
            let id = Client::new(MemoryBackend::new()).unwrap().id();
            let heard = Arc::new(Recorder::default());
            let _subscription = Some(self.backend.subscribe(id, heard.clone()).unwrap());
            self.change().clients.push(TestClient { id, heard, _subscription });
        }
        TheClient { story: self.clone(), number }
    }

    pub(crate) fn client_id(&self, number: usize) -> ClientId {
        _ = self.client(number);
        self.state().clients[number].id
    }

    fn next_message(&self, client: usize) -> Option<Heard> {
        let heard = Arc::clone(&self.state().clients[client].heard);
        let mut heard = heard.0.lock().unwrap();
        (!heard.is_empty()).then(|| heard.remove(0))
    }
}

/// A client's subscription and its connection.
pub(crate) struct TheClient {
    story: Story,
    number: usize,
}

impl TheClient {
    pub(crate) fn hangs_up(&self) -> Story {
        let subscription = self.story.change().clients[self.number]._subscription.take();
        drop(subscription);
        self.story.clone()
    }

    pub(crate) fn is_cut_off(&self) -> Story {
        self.story.backend.faults().cut_off(self.story.client_id(self.number));
        self.story.clone()
    }

    pub(crate) fn is_back(&self) -> Story {
        self.story.backend.faults().bring_back(self.story.client_id(self.number));
        self.story.clone()
    }

    /// All messages that came.
    pub(crate) fn hears_whatever(&self) {
        while self.story.next_message(self.number).is_some() {}
    }

    /// The next message to it, which is no grant.
    #[track_caller]
    pub(crate) fn hears(&self, expected: &str) -> Story {
        let message = self.story.next_message(self.number).unwrap_or(Heard::Other(NOTHING));
        let is_so = matches!(message, Heard::Other(what) if what == expected);
        assert!(is_so, "client {} hears {expected}, but {message:?}", self.number);
        self.story.clone()
    }
}
