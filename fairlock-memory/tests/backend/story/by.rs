//! Those who ask for the lock: their requests, their calls, and what they are told.

use std::ops::Deref;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, HoldCountSet, HoldKept,
    Released, Renew, Renewal, RequestId, Wait, Withdrawn, only,
};
use fairlock_core::{FencingToken, OwnerId};

use super::names::{Names, words};
use super::{Answer, Heard, Request, Story};

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

/// One who asks for the lock.
#[derive(Clone)]
pub(crate) struct By {
    pub(super) story: Story,
    pub(super) at: usize,
    /// The token that its next call names, if it is not its own last one.
    pub(super) names: Option<FencingToken>,
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

    pub(super) fn request(&self) -> Request {
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

    pub(crate) fn units(&self, units: u32) -> By {
        self.change(|request| request.units = units)
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

    pub(super) fn beaten(&self, answer: Answer<Renewal>) -> String {
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
            assert_eq!((hold.units, hold.lease_left, hold.hold_count), (request.units, Some(lease), count));
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
        /// In the queue with another ticket than the one that it sent.
        waits_anew(rank) "waits anew {rank}"
        busy "busy"
        done "done"
        /// It has nothing that the call is about.
        gone "gone"
        /// It has the lock, and can't leave the queue.
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
