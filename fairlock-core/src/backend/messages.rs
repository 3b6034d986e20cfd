//! The questions that core asks a backend, and the answers it can get.

use std::time::Duration;

use crate::ids::{FencingToken, LockKind, LockName, OwnerId, RequestId};

/// A lock as a backend sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockId {
    /// The lock's name.
    pub name: LockName,
    /// How many units the lock has, and whether it is fair.
    pub kind: LockKind,
}

impl LockId {
    /// The lock `name` of this kind.
    pub fn new(name: LockName, kind: LockKind) -> LockId {
        LockId { name, kind }
    }
}

/// How long the caller waits for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: one attempt that leaves nothing behind.
    No,
    /// For this time, counted from the first attempt of the request.
    UpTo(Duration),
    /// Without limit.
    Forever,
}

/// One owner's request for one lock: a waiter's position in the queue.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Place<'a> {
    /// The lock.
    pub lock: &'a LockId,
    /// The owner that asks.
    pub owner: &'a OwnerId,
    /// Which request; the same number in each attempt.
    pub request: RequestId,
    /// How long the caller will wait.
    pub wait: Wait,
    /// How long the server keeps the place without hearing from its client.
    pub ttl: Duration,
    /// The ticket from an earlier answer; 0 without one. The waiter repeats the ticket with each ask. If the place is gone, the
    /// ask puts it back at this ticket: no waiter loses its turn when a store forgets.
    pub ticket: u64,
    /// How many of the lock's units the request takes, from 1 to its [capacity](LockKind::capacity); the same in each repeat.
    pub units: u32,
}

impl<'a> Place<'a> {
    /// A place with [`Wait::Forever`], a time to live of 5 s and no ticket yet, which takes one unit.
    pub fn new(lock: &'a LockId, owner: &'a OwnerId, request: RequestId) -> Place<'a> {
        Place { lock, owner, request, wait: Wait::Forever, ttl: Duration::from_secs(5), ticket: 0, units: 1 }
    }
}

/// Asks for a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquire<'a> {
    /// The request, and the lock that it is for.
    pub place: Place<'a>,
    /// The lease of the hold.
    pub lease: Duration,
    /// A readable name of the client, and perhaps a traceparent. Of no meaning to a store, which keeps it whole: in
    /// [`inspect`](super::Backend::inspect), [`Holder::set_label`] and [`Waiter::set_label`] take it apart.
    pub label: &'a str,
}

impl<'a> Acquire<'a> {
    /// Asks for `place` with this lease and no label.
    pub fn new(place: Place<'a>, lease: Duration) -> Acquire<'a> {
        Acquire { place, lease, label: "" }
    }
}

/// Names exactly one hold.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Hold<'a> {
    /// The lock.
    pub lock: &'a LockId,
    /// The owner that holds it.
    pub owner: &'a OwnerId,
    /// The request that was granted.
    pub request: RequestId,
    /// The token that it was granted with.
    pub token: FencingToken,
    /// How many of the lock's units the hold takes. Only a [renewal](super::Backend::renew) has to name this.
    pub units: u32,
}

impl<'a> Hold<'a> {
    /// The hold of one unit that `request` was granted with `token`.
    pub fn new(lock: &'a LockId, owner: &'a OwnerId, request: RequestId, token: FencingToken) -> Hold<'a> {
        Hold { lock, owner, request, token, units: 1 }
    }
}

/// One item of [`renew`](super::Backend::renew).
#[derive(Clone, Copy, Debug)]
pub enum Renew<'a> {
    /// Prolongs this hold to `lease` from now, and tells its hold count.
    Hold {
        /// The hold.
        hold: Hold<'a>,
        /// Its hold count.
        holds: u32,
        /// The lease from now on.
        lease: Duration,
    },
    /// Keeps this place.
    Place {
        /// The place.
        place: Place<'a>,
        /// The lease of the hold, if the lock is granted now.
        lease: Duration,
    },
}

/// The answer of [`acquire`](super::Backend::acquire).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The caller holds the lock. The rest of the lease counts from no earlier than the request was sent.
    Granted {
        /// The fencing token.
        token: FencingToken,
        /// The rest of the lease.
        lease: Duration,
    },
    /// The caller has a place in the queue.
    Queued {
        /// How many are ahead; 0 is next.
        rank: u64,
        /// When to ask again without a wake-up; `Duration::MAX` for no earlier than the next renewal.
        recheck_in: Duration,
        /// The number that orders places. If the request named another ticket, its place is lost, and the request stands at the tail.
        /// 0 if the store can't put places back.
        ticket: u64,
        /// The latest token or ticket at that moment. A grant to this place has a greater token; a push with no greater token is for
        /// an earlier place of the request. 0 if the store pushes no grants.
        latest: u64,
    },
    /// Another owner holds the lock, and the caller has no place.
    Busy {
        /// When to ask again without a wake-up.
        recheck_in: Duration,
    },
}

/// The answer of [`release`](super::Backend::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The hold is given up.
    Released,
    /// The lock was not held, or not by this hold. A place of the hold's own request is removed.
    NotHeld,
}

/// The answer of [`keep`](super::Backend::keep).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKept {
    /// The units stay taken.
    Kept,
    /// The lock was not held, or not by this hold.
    NotHeld,
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
        /// When to ask without a wake-up; zero for now.
        recheck_in: Duration,
        /// The latest token or ticket, as in [`Acquired::Queued`].
        latest: u64,
    },
    /// The place has become a hold.
    Granted {
        /// The fencing token.
        token: FencingToken,
        /// The rest of the lease.
        lease: Duration,
    },
    /// The hold is over; or the place is gone and was not put back, and has to be asked for again.
    Lost,
}

/// The answer of [`withdraw`](super::Backend::withdraw).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// Nothing of the request is left.
    Left,
    /// The request had been granted the lock, and still holds it.
    WasGranted {
        /// The fencing token.
        token: FencingToken,
        /// The rest of the lease.
        lease: Duration,
    },
}

/// The answer of [`force_release`](super::Backend::force_release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceReleased {
    /// The lock was held, and the hold was taken away.
    Taken,
    /// The lock was not held.
    NotHeld,
}

impl From<Released> for ForceReleased {
    /// The answer for this result of a release, by order of an operator.
    fn from(released: Released) -> ForceReleased {
        match released {
            Released::NotHeld => ForceReleased::NotHeld,
            Released::Released => ForceReleased::Taken,
        }
    }
}

/// The holders and the waiters of a lock, as the server saw them at one moment. Its `Display` is a block of lines to read, the first
/// ten of each. With feature `serde` it can be serialized.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockState {
    /// How many units a read-write lock or a semaphore has. None for a lock of one holder, and for a name that is not in use.
    pub capacity: Option<u32>,
    /// The holders whose leases end first, in the order of their tokens: [`MOST_INSPECTED`](super::MOST_INSPECTED) at most. A fair or
    /// plain lock has one at most.
    pub holders: Vec<Holder>,
    /// How many more holders there are.
    pub unlisted_holders: u64,
    /// How many units those unlisted holders take together.
    pub unlisted_units: u32,
    /// How many places the queue has, with those of absent waiters. A plain lock has no queue.
    pub queue_length: u64,
    /// How many of these places are known to be of absent waiters: all that others have passed, and the silent ones among the first
    /// [`MOST_INSPECTED`](super::MOST_INSPECTED) of the rest. A look that lists no waiter (`0..0`) examines none.
    pub absent: u64,
    /// The part of the queue that was asked for, first in front; `queue_length` counts all of it.
    pub queue: Vec<Waiter>,
}

impl LockState {
    /// The only holder of a fair or plain lock, and the listed holder with the least token of another lock; none if the lock is free.
    pub fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }

    /// How many requests wait, without those of waiters that are known to be absent.
    pub fn waiting(&self) -> u64 {
        self.queue_length.saturating_sub(self.absent)
    }

    /// How many units all holders take together.
    pub fn taken(&self) -> u32 {
        self.holders.iter().fold(self.unlisted_units, |taken, holder| taken.saturating_add(holder.units))
    }
}

/// A holder of a lock.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Holder {
    /// The owner, as the server spells it.
    pub owner: OwnerId,
    /// How many units the holder has.
    pub units: u32,
    /// The hold count; 0 if the lock is only [kept](crate::Guard::keep_for) taken.
    pub hold_count: u32,
    /// The request, where the discipline keeps it.
    pub request: Option<RequestId>,
    /// The fencing token; a peer such as Redisson has none.
    pub token: Option<FencingToken>,
    /// The rest of the lease; none when the hold has no end.
    pub lease_left: Option<Duration>,
    /// For how long it has been held, where the discipline keeps it.
    pub held_for: Option<Duration>,
    /// A readable name of the holder, where the discipline keeps one.
    pub label: Option<String>,
    /// The W3C traceparent of the span in which the holder asked, if its program has set `ClientBuilder::traceparent` (feature `tracing`).
    pub traceparent: Option<String>,
}

impl Holder {
    /// A holder of one unit, of which nothing else is known.
    pub fn new(owner: OwnerId, hold_count: u32) -> Holder {
        Holder {
            owner,
            units: 1,
            hold_count,
            request: None,
            token: None,
            lease_left: None,
            held_for: None,
            label: None,
            traceparent: None,
        }
    }
}

/// A waiter for a lock.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Waiter {
    /// The owner, as the server spells it.
    pub owner: OwnerId,
    /// The request, where the discipline keeps it.
    pub request: Option<RequestId>,
    /// How many units the waiter wants.
    pub units: u32,
    /// For how long it has waited, where the discipline keeps it.
    pub waiting: Option<Duration>,
    /// How long until the place counts as abandoned; zero if it does.
    pub place_left: Option<Duration>,
    /// A readable name of the waiter, where the discipline keeps one.
    pub label: Option<String>,
    /// The W3C traceparent of the span in which the waiter asked, if its program has set `ClientBuilder::traceparent` (feature `tracing`).
    pub traceparent: Option<String>,
}

impl Waiter {
    /// A waiter for one unit, of which nothing else is known.
    pub fn new(owner: OwnerId) -> Waiter {
        Waiter {
            owner,
            request: None,
            units: 1,
            waiting: None,
            place_left: None,
            label: None,
            traceparent: None,
        }
    }

    /// Whether others go first until this waiter is heard again: it was silent for its place's time, or has lost its connection for
    /// wake-ups and was passed. As a rule its process is dead.
    pub fn is_absent(&self) -> bool {
        self.place_left == Some(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiters that are absent do not wait, and the units of unlisted holders count.
    #[test]
    fn absent_waiters_do_not_wait_and_unlisted_units_count() {
        let owner = OwnerId::new("c:1");
        let mut state = LockState { queue_length: 5, absent: 2, unlisted_units: 3, ..LockState::default() };
        assert_eq!((state.waiting(), state.taken(), state.holder().is_none()), (3, 3, true));
        state.absent = 6; // a call came between two of the store's counts
        assert_eq!(state.waiting(), 0);
        for units in [2, 4] {
            state.holders.push(Holder { units, ..Holder::new(owner.clone(), 1) });
        }
        assert_eq!((state.taken(), state.holder().map(|holder| holder.units)), (9, Some(2)));
        state.unlisted_units = u32::MAX;
        assert_eq!(state.taken(), u32::MAX);
        let mut waiter = Waiter::new(owner);
        for (place_left, is_absent) in
            [(None, false), (Some(Duration::from_millis(1)), false), (Some(Duration::ZERO), true)]
        {
            waiter.place_left = place_left;
            assert_eq!(waiter.is_absent(), is_absent);
        }
    }
}
