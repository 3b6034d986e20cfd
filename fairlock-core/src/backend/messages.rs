//! The questions that core asks a backend, and the answers it can get.

use std::fmt;
use std::time::Duration;

use crate::{FencingToken, LockKind, LockName, OwnerId};

/// Names one attempt to get a lock; a repeat carries the same number. Nobody else can guess it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// Takes the number as it is.
    pub const fn new(value: u64) -> RequestId {
        RequestId(value)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RequestId {
    /// Sixteen lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A lock as a backend sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockId {
    /// Its name.
    pub name: LockName,
    /// Fair or plain.
    pub kind: LockKind,
}

impl LockId {
    /// The lock `name` of this kind.
    pub fn new(name: LockName, kind: LockKind) -> LockId {
        LockId { name, kind }
    }
}

/// How long the caller will wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: one attempt that leaves nothing behind.
    No,
    /// So long, counted from the first attempt of the request.
    UpTo(Duration),
    /// Without limit.
    Forever,
}

/// One owner's request for one lock: a waiter's position in the line.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Place<'a> {
    /// The lock.
    pub lock: &'a LockId,
    /// Who asks.
    pub owner: &'a OwnerId,
    /// Which attempt; the same number in each repeat.
    pub request: RequestId,
    /// How long the caller will wait.
    pub wait: Wait,
    /// How long the place stays without a word from its client.
    pub ttl: Duration,
    /// The ticket that the request was told, 0 if none: a waiter says it with each repeat. If the place is gone it is put
    /// back there, so that nothing a store forgets costs a waiter its turn.
    pub ticket: u64,
}

impl<'a> Place<'a> {
    /// A place with [`Wait::Forever`], a time to live of 5 s and no ticket yet.
    pub fn new(lock: &'a LockId, owner: &'a OwnerId, request: RequestId) -> Place<'a> {
        Place { lock, owner, request, wait: Wait::Forever, ttl: Duration::from_secs(5), ticket: 0 }
    }
}

/// Asks for a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquire<'a> {
    /// Who asks, and for what.
    pub place: Place<'a>,
    /// The lease of the hold.
    pub lease: Duration,
    /// A person's idea of who asks, for [`inspect`](super::Backend::inspect).
    pub label: &'a str,
}

impl<'a> Acquire<'a> {
    /// Asks for `place` with this lease and no label.
    pub fn new(place: Place<'a>, lease: Duration) -> Acquire<'a> {
        Acquire { place, lease, label: "" }
    }
}

/// Names one hold and no other.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Hold<'a> {
    /// The lock.
    pub lock: &'a LockId,
    /// Who holds it.
    pub owner: &'a OwnerId,
    /// The request that was granted.
    pub request: RequestId,
    /// The token that it was granted with.
    pub token: FencingToken,
}

impl<'a> Hold<'a> {
    /// The hold that `request` was granted as `token`.
    pub fn new(lock: &'a LockId, owner: &'a OwnerId, request: RequestId, token: FencingToken) -> Hold<'a> {
        Hold { lock, owner, request, token }
    }
}

/// One item of [`renew`](super::Backend::renew).
#[derive(Clone, Copy, Debug)]
pub enum Renew<'a> {
    /// Prolong this hold to `lease` from now, and say how often it is held.
    Hold {
        /// The hold.
        hold: Hold<'a>,
        /// Its hold count.
        holds: u32,
        /// What it has left from now on.
        lease: Duration,
    },
    /// I still wait; `lease` is what the hold gets if the lock is granted now.
    Place {
        /// The place.
        place: Place<'a>,
        /// The lease of the hold.
        lease: Duration,
    },
}

/// The answer of [`acquire`](super::Backend::acquire).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is the caller's; what is left of its lease is counted from no earlier than the request was sent.
    Granted {
        /// The fencing token.
        token: FencingToken,
        /// What is left of the lease.
        lease: Duration,
    },
    /// The caller has a place in the line.
    Queued {
        /// How many are ahead; 0 is next.
        rank: u64,
        /// When asking again makes sense without a wake-up; `Duration::MAX` for "when renewed".
        recheck_in: Duration,
        /// The number by which places are ordered. Another one than the request has named says that its place is lost,
        /// and that it stands at the tail. 0 where a place can't be put back.
        ticket: u64,
        /// The latest token or ticket at that moment. Whatever is granted to this place has a greater token, and a push
        /// with another one is of an earlier place of the request. 0 where no grants are pushed.
        latest: u64,
    },
    /// Somebody else has it, and the caller has no place.
    Busy {
        /// When asking again makes sense without a wake-up.
        recheck_in: Duration,
    },
}

/// The answer of [`set_hold_count`](super::Backend::set_hold_count).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldCountSet {
    /// Done, or it rides on the next renewal.
    Set,
    /// The hold is not the caller's any more.
    Lost,
}

/// The answer of [`release`](super::Backend::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was held and is given up.
    Released,
    /// It was not held, or not as this hold, and of the request of `again` nothing is there either. A place of the hold's
    /// own request is removed.
    NotHeld,
    /// Only with `again`: nobody waits, or the lock is plain and has no line, so the hold stays.
    Kept,
    /// Only with `again`: given up, and this is how the new request stands, as [`acquire`](super::Backend::acquire)
    /// would say it. A repeat says how it stands by then: in line still, or granted.
    Again(Acquired),
}

/// The answer to one item of [`renew`](super::Backend::renew).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The hold is prolonged.
    Renewed,
    /// The place is kept.
    Waiting {
        /// How many are ahead; 0 is next.
        rank: u64,
        /// When asking makes sense without a wake-up; zero for now.
        recheck_in: Duration,
        /// The latest token or ticket, as in [`Acquired::Queued`].
        latest: u64,
    },
    /// The place has become a hold.
    Granted {
        /// The fencing token.
        token: FencingToken,
        /// What is left of the lease.
        lease: Duration,
    },
    /// The hold is over, or the place is gone and was not put back: it is to be asked for again.
    Lost,
}

/// The answer of [`withdraw`](super::Backend::withdraw).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// Nothing of the request is left.
    Left,
    /// The lock had been granted to it, and still is.
    WasGranted {
        /// The fencing token.
        token: FencingToken,
        /// What is left of the lease.
        lease: Duration,
    },
}

/// The answer of [`force_release`](super::Backend::force_release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceReleased {
    /// It was held, and was taken away.
    Taken,
    /// Nobody held it.
    NotHeld,
}

/// Who holds a lock and who waits for it, as the server saw it at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LockState {
    /// The holder, if any.
    pub holder: Option<Holder>,
    /// How many wait in line. A plain lock has no line.
    pub line_length: u64,
    /// Those of the line who were asked for, first in front; `line_length` counts the others too.
    pub line: Vec<Waiter>,
}

/// Who holds a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The owner, as the server spells it.
    pub owner: OwnerId,
    /// How often it is held.
    pub hold_count: u32,
    /// The fencing token; a peer (Redisson) has none.
    pub token: Option<FencingToken>,
    /// What is left of the lease; none when the hold has no end.
    pub lease_left: Option<Duration>,
    /// For how long it has been held, where the discipline keeps it.
    pub held_for: Option<Duration>,
    /// A person's idea of the holder, where the discipline keeps one.
    pub label: Option<String>,
}

impl Holder {
    /// A holder of whom no more is known.
    pub fn new(owner: OwnerId, hold_count: u32) -> Holder {
        Holder { owner, hold_count, token: None, lease_left: None, held_for: None, label: None }
    }
}

/// Who waits for a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// The owner, as the server spells it.
    pub owner: OwnerId,
    /// The request, where the discipline keeps it.
    pub request: Option<RequestId>,
    /// For how long it has waited, where the discipline keeps it.
    pub waiting: Option<Duration>,
    /// What is left until the place counts as abandoned.
    pub place_left: Option<Duration>,
    /// A person's idea of the waiter, where the discipline keeps one.
    pub label: Option<String>,
}

impl Waiter {
    /// A waiter of whom no more is known.
    pub fn new(owner: OwnerId) -> Waiter {
        Waiter { owner, request: None, waiting: None, place_left: None, label: None }
    }
}
