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
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, HoldCountSet, HoldKept,
    LockId, LockState, Place, Released, Renew, Renewal, RequestId, Subscription, Wait, Wake, WakeSink,
    Withdrawn, only,
};
use fairlock_core::{Client, ClientId, FencingToken, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::{MemoryBackend, Operation};

#[path = "../../../fairlock-core/src/tests/names.rs"]
mod names;

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

/// Calls in the third person: the call, and its usual answer.
macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident($($with:ident: $of:ty)?) { $($call:tt)+ })+) => {$(
        $(#[$doc])*
        #[track_caller]
        pub(crate) fn $name(&self $(, $with: $of)?) -> By {
            self.$($call)+
        }
    )+};
}

/// What a call may come to.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident$(($with:ident))? $text:literal)+) => {$(
        $(#[$doc])*
        #[track_caller]
        pub(crate) fn $name(self $(, $with: u64)?) -> By {
            self.is(&format!($text))
        }
    )+};
}

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
    takes: u32,
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
            Request { name, client: 0, owner, id, takes: 1, ticket: 0, sends_ticket: false, tokens };
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
        lose_line(self) { self.backend.faults().lose_line("orders") }
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
            let line = self.seen().line;
            let found: Vec<_> = line.iter().map(|one| self.name(&one.owner, one.request)).collect();
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
        (place.ttl, place.ticket, place.takes) = (self.state().ttl, request.ticket, request.takes);
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

/// One who asks for the lock.
#[derive(Clone)]
pub(crate) struct By {
    story: Story,
    at: usize,
    /// The token that its next call names, if it is not its own last one.
    names: Option<FencingToken>,
}

impl Deref for By {
    type Target = Story;

    fn deref(&self) -> &Story {
        &self.story
    }
}

/// The request.
impl By {
    fn then(&self) -> By {
        self.clone()
    }

    fn request(&self) -> Request {
        self.state().requests[self.at].clone()
    }

    fn change(&self, change: impl FnOnce(&mut Request)) -> By {
        change(&mut self.story.change().requests[self.at]);
        self.clone()
    }

    /// It is of this client. `a2` has the owner of `a`.
    pub(crate) fn of_client(&self, number: usize) -> By {
        let id = self.client_id(number);
        self.change(|request| {
            let owner = if request.name.len() == 2 { &request.name[..1] } else { &request.name };
            (request.client, request.owner) = (number, OwnerId::new(&format!("{id}:{owner}")));
        })
    }

    pub(crate) fn units(&self, takes: u32) -> By {
        self.change(|request| request.takes = takes)
    }

    /// Each repeat sends the ticket that it was told.
    pub(crate) fn with_ticket(&self) -> By {
        self.change(|request| request.sends_ticket = true)
    }

    /// It sends this ticket, which it was not told.
    pub(crate) fn forges(&self, ticket: u64) -> By {
        self.change(|request| request.ticket = ticket)
    }

    pub(crate) fn ticket(&self) -> u64 {
        self.request().ticket
    }

    /// Its next call names the last token of that one.
    pub(crate) fn naming(&self, name: &str) -> By {
        By { names: self.story.by(name).request().tokens.last().copied(), ..self.clone() }
    }

    /// Its next call names the first of its own tokens.
    pub(crate) fn naming_its_first(&self) -> By {
        By { names: self.request().tokens.first().copied(), ..self.clone() }
    }
}

/// Calls. Those in the third person are answered as usual.
impl By {
    /// It asks for the lock, and waits.
    pub(crate) fn ask(&self) -> Said {
        self.asked("asks", Wait::Forever)
    }

    /// It asks for the lock, and does not wait.
    pub(crate) fn try_once(&self) -> Said {
        self.asked("tries", Wait::No)
    }

    pub(crate) fn acquire(&self, wait: Wait) -> Result<Acquired, BackendError> {
        let (request, lock, lease) = (self.request(), self.lock(), self.state().lease);
        let mut ask = Acquire::new(self.place(&request, &lock), lease);
        (ask.place.wait, ask.label) = (wait, "a test");
        only(self.backend.acquire(&[ask]))
    }

    fn asked(&self, verb: &'static str, wait: Wait) -> Said {
        let said = match self.acquire(wait) {
            Ok(Acquired::Granted { token, lease }) => self.granted(token, lease),
            Ok(Acquired::Queued { rank, recheck_in, ticket, latest }) => {
                let request = self.request();
                let greatest = self.state().greatest;
                assert!(ticket <= latest && greatest.is_none_or(|token| token.get() <= latest));
                let is_moved = request.sends_ticket && ![0, ticket].contains(&request.ticket);
                if request.sends_ticket {
                    self.forges(ticket);
                }
                self.story.change().told = recheck_in;
                format!("waits{} {rank}", if is_moved { " anew" } else { "" })
            }
            Ok(Acquired::Busy { recheck_in }) => {
                self.story.change().told = recheck_in;
                "busy".to_owned()
            }
            Err(error) => failed(&error),
        };
        self.said(verb, said)
    }

    /// A heartbeat of its place.
    pub(crate) fn beat_once(&self) -> Said {
        let answer = self.renew_places(std::slice::from_ref(self)).remove(0);
        self.said("beats", self.beaten(answer))
    }

    fn beaten(&self, answer: Answer<Renewal>) -> String {
        match answer {
            Ok(Renewal::Granted { token, lease }) => self.granted(token, lease),
            Ok(Renewal::Waiting { rank, recheck_in, .. }) => {
                self.story.change().told = recheck_in;
                format!("waits {rank}")
            }
            Ok(_) => "gone".to_owned(),
            Err(error) => failed(&error),
        }
    }

    fn granted(&self, token: FencingToken, lease: Duration) -> String {
        self.story.change().told = lease;
        self.learns(token).to_owned()
    }

    /// The verb of a grant with this token.
    fn learns(&self, token: FencingToken) -> &'static str {
        if self.request().tokens.last() == Some(&token) {
            return "keeps";
        }
        let is_known = self.state().requests.iter().any(|request| request.tokens.contains(&token));
        assert!(!is_known, "each grant has its own token");
        self.change(|request| request.tokens.push(token));
        let greatest = self.state().greatest;
        self.story.change().greatest = greatest.max(Some(token));
        if Some(token) > greatest { "gets" } else { "finds" }
    }

    /// It renews its hold, and says how often it is held.
    pub(crate) fn renew(&self, holds: u32) -> Said {
        let (client, lease) = (self.request().client, self.state().lease);
        let renewed = self.with_hold(|hold| {
            self.backend.renew(self.client_id(client), &[Renew::Hold { hold, holds, lease }]).remove(0)
        });
        self.said_of("renews", renewed, &Renewal::Renewed)
    }

    pub(crate) fn count(&self, holds: u32) -> Said {
        self.said_of(
            "counts",
            self.with_hold(|hold| self.backend.set_hold_count(&hold, holds)),
            &HoldCountSet::Set,
        )
    }

    pub(crate) fn release(&self) -> Said {
        self.said_of(
            "releases",
            self.with_hold(|hold| only(self.backend.release(&[hold]))),
            &Released::Released,
        )
    }

    /// An operator takes its hold.
    pub(crate) fn take(&self) -> Said {
        self.said_of("is taken", self.with_hold(|hold| self.backend.take_hold(&hold)), &ForceReleased::Taken)
    }

    pub(crate) fn leave(&self) -> Said {
        let (request, lock) = (self.request(), self.lock());
        self.said_left("leaves", only(self.backend.withdraw(&[self.place(&request, &lock)])))
    }

    /// An operator sends it to the tail.
    pub(crate) fn kick(&self) -> Said {
        let (request, lock) = (self.request(), self.lock());
        self.said_left("is kicked", self.backend.kick(&self.place(&request, &lock)))
    }

    fn with_hold<T>(&self, call: impl FnOnce(Hold<'_>) -> T) -> T {
        let (request, lock) = (self.request(), self.lock());
        let token = self.names.or(request.tokens.last().copied()).unwrap_or(FencingToken::new(1));
        call(Hold::new(&lock, &request.owner, request.id, token))
    }

    fn said_of<T: PartialEq>(&self, verb: &'static str, answer: Answer<T>, usual: &T) -> Said {
        let said = answer.map(|answer| if answer == *usual { "done" } else { "gone" }.to_owned());
        self.said(verb, said.unwrap_or_else(|error| failed(&error)))
    }

    fn said_left(&self, verb: &'static str, answer: Answer<Withdrawn>) -> Said {
        let said = match answer {
            Ok(Withdrawn::Left) => "done".to_owned(),
            Ok(Withdrawn::WasGranted { token, lease }) if self.request().tokens.last() == Some(&token) => {
                self.story.change().told = lease;
                "holding".to_owned()
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => failed(&error),
        };
        self.said(verb, said)
    }

    fn said(&self, verb: &'static str, said: String) -> Said {
        Said { by: By { names: None, ..self.clone() }, verb, said }
    }

    verbs! {
        gets() { ask().gets() }
        keeps() { ask().keeps() }
        waits(rank: u64) { ask().waits(rank) }
        /// Another one has the plain lock: it waits without a place.
        knocks() { ask().busy() }
        tries() { try_once().gets() }
        is_busy() { try_once().busy() }
        beats(rank: u64) { beat_once().waits(rank) }
        renews(holds: u32) { renew(holds).done() }
        counts(holds: u32) { count(holds).done() }
        releases() { release().done() }
        leaves() { leave().done() }
        is_kicked() { kick().done() }
        is_taken() { take().done() }
    }

    /// Its hold ends then, and is another request's.
    #[track_caller]
    pub(crate) fn stays(&self, time: Duration) -> By {
        self.said_of("stays", self.keep(time), &HoldKept::Kept).done()
    }

    pub(crate) fn keep(&self, time: Duration) -> Answer<HoldKept> {
        self.with_hold(|hold| self.backend.keep(&hold, RequestId::new(999), time))
    }
}

/// What it is told, and what is seen.
impl By {
    words! {
        /// The next message to its client grants it the lock.
        hears(self) { assert_eq!(self.next_grant(), "gets", "{} hears of a grant", self.request().name) }
        /// The same with a token that is not the greatest.
        hears_late(self) {
            assert_eq!(self.next_grant(), "finds", "{} hears of a grant", self.request().name);
        }
        /// The next message says that its hold was taken.
        hears_taken(self) {
            let (request, message) = (self.request(), self.next_message(self.request().client));
            let is_so = matches!(&message, Some(Heard::Taken(owner, token))
                if *owner == request.owner && request.tokens.last() == Some(token));
            assert!(is_so, "{} hears that it was taken, but {message:?}", request.name);
        }
        /// What is left of its lease, and its count.
        has(self, lease: Duration, count: u32) {
            let request = self.request();
            let hold = self.seen().holders.into_iter().find(|hold| hold.request == Some(request.id));
            let hold = hold.unwrap_or_else(|| panic!("{} holds nothing", request.name));
            assert_eq!((&hold.owner, hold.token), (&request.owner, request.tokens.last().copied()));
            assert_eq!((hold.takes, hold.lease_left, hold.hold_count), (request.takes, Some(lease), count));
        }
        /// The lease that it was just granted.
        lasting(self, lease: Duration) {
            assert_eq!(self.state().told, lease, "the lease of {}", self.request().name);
        }
        /// When it has to look again, as it was just told.
        looking_in(self, time: Duration) {
            assert_eq!(self.state().told, time, "when {} looks again", self.request().name);
        }
    }

    fn next_grant(&self) -> String {
        let request = self.request();
        match self.next_message(request.client) {
            Some(Heard::Granted(owner, id, token)) if owner == request.owner && id == request.id => {
                self.learns(token).to_owned()
            }
            other => format!("{other:?}"),
        }
    }
}

/// An answer to a call.
#[must_use]
pub(crate) struct Said {
    by: By,
    verb: &'static str,
    said: String,
}

impl Said {
    answers! {
        /// Granted, with a token greater than all before.
        gets "gets"
        /// Granted with its last token.
        keeps "keeps"
        /// Granted with a token of which it had not heard, though a greater one is known.
        finds "finds"
        waits(rank) "waits {rank}"
        /// In line with another ticket than the one that it sent.
        waits_anew(rank) "waits anew {rank}"
        busy "busy"
        done "done"
        /// It has nothing that the call is about.
        gone "gone"
        /// It has the lock, and can't leave the line.
        holding "holding"
    }

    #[track_caller]
    pub(crate) fn fails(self, kind: BackendErrorKind) -> By {
        self.is(&format!("fails {kind:?}"))
    }

    #[track_caller]
    fn is(self, expected: &str) -> By {
        assert_eq!(self.said, expected, "{} {}", self.by.request().name, self.verb);
        self.by
    }
}

fn failed(error: &BackendError) -> String {
    format!("fails {:?}", error.kind())
}
