//! The queue taken apart, for a model.

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::RequestId;

use super::{Clock, Queue, QueuedPlace, Text};
use crate::context::Moment;

/// All of a queue.
pub struct QueueParts {
    /// The places, by ticket.
    pub places: Vec<PlaceParts>,
    /// Tickets up to this one have had their turn.
    pub served: u64,
    /// No waiter is next before this.
    pub rests_until: Moment,
    /// Its clock.
    pub clock: ClockParts,
}

/// A place. Its label, and since when it waits, are only shown to operators.
pub struct PlaceParts {
    /// The ticket.
    pub ticket: u64,
    /// Whose it is.
    pub owner: OwnerId,
    /// The request.
    pub request: RequestId,
    /// The units.
    pub units: u32,
    /// The capacity that the waiter names.
    pub capacity: u32,
    /// The requested lease.
    pub lease: Duration,
    /// The waiter has named its ticket.
    pub is_heard: bool,
    /// When the place's time is over, on the queue's clock.
    pub deadline: Moment,
}

/// The queue's clock, where all places have the same time to live.
pub struct ClockParts {
    /// Its value at the last operation.
    pub value: Moment,
    /// The store's time then.
    pub pulse: Moment,
    /// The time to live.
    pub ttl: Duration,
}

impl From<Queue> for QueueParts {
    fn from(queue: Queue) -> QueueParts {
        let Queue { places, clock, served, rests_until } = queue;
        let Clock { value, pulse, least_ttl: ttl, longest_ttl: _, held_back: _ } = clock;
        let place = |(ticket, place): (u64, QueuedPlace)| {
            let QueuedPlace { owner, request, units, capacity, lease, is_heard, deadline, .. } = place;
            let QueuedPlace { label: _, asked_in: _, joined: _, .. } = place;
            let owner = owner.get().clone();
            PlaceParts { ticket, owner, request, units, capacity, lease, is_heard, deadline }
        };
        let places = places.into_iter().map(place).collect();
        QueueParts { places, served, rests_until, clock: ClockParts { value, pulse, ttl } }
    }
}

impl From<QueueParts> for Queue {
    fn from(parts: QueueParts) -> Queue {
        let QueueParts { places, served, rests_until, clock: ClockParts { value, pulse, ttl } } = parts;
        let clock = Clock { value, pulse, least_ttl: ttl, longest_ttl: ttl, held_back: None };
        let mut queue = Queue { clock, served, rests_until, ..Queue::default() };
        for PlaceParts { ticket, owner, request, units, capacity, lease, is_heard, deadline } in places {
            let (owner, label, joined) = (Text::new(owner), Text::new(Arc::default()), Moment::ZERO);
            let asked_in = 0;
            queue.insert(
                ticket,
                QueuedPlace {
                    owner,
                    request,
                    label,
                    units,
                    capacity,
                    lease,
                    asked_in,
                    is_heard,
                    joined,
                    deadline,
                },
            );
        }
        queue
    }
}
