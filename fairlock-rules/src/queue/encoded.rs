//! The waiters as bytes, for stores that keep bytes; and in parts, for a model.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;
#[cfg(feature = "model")]
use std::time::Duration;

use fairlock_core::OwnerId;
#[cfg(feature = "model")]
use fairlock_core::backend::RequestId;

use super::{Clock, Interest, Queue, QueuedPlace, count};
use crate::bytes::{Coded, read, read_list, read_text, write_text};
#[cfg(feature = "model")]
use crate::context::Moment;

/// About how many bytes a place takes.
const A_PLACE: usize = 128;

impl Coded for Queue {
    fn write(&self, out: &mut Vec<u8>) {
        let Queue { places, clock, served, rests_until } = self;
        clock.write(out);
        served.write(out);
        rests_until.write(out);
        (places.len() as u64).write(out);
        out.reserve(places.len() * A_PLACE);
        for (ticket, place) in places {
            ticket.write(out);
            place.write(out);
        }
    }

    fn read(from: &mut &[u8]) -> Option<Queue> {
        let (clock, served, rests_until) = read(from)?;
        let length: u64 = read(from)?;
        let (bytes, mut last) = (Arc::new(from.to_vec()), None);
        // Bounded by the bytes: a damaged length may be any number.
        let mut places = VecDeque::with_capacity(count(length).min(from.len() / A_PLACE * 2));
        for _ in 0..length {
            let ticket: u64 = read(from)?;
            if last.replace(ticket) >= Some(ticket) {
                return None;
            }
            places.push_back((ticket, QueuedPlace::read(from, &bytes)?));
        }
        // As a rule their random numbers alone tell that no request has two places.
        let queued = places.iter().map(|(_, place)| place);
        let is_each_once = is_each_once(queued.clone().map(|place| place.request.get()))
            || is_each_once(queued.map(|place| (place.request.get(), place.owner.bytes())));
        is_each_once.then_some(Queue { places, clock, served, rests_until })
    }
}

fn is_each_once<T: Ord>(all: impl Iterator<Item = T>) -> bool {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all.windows(2).all(|pair| pair[0] != pair[1])
}

impl QueuedPlace {
    fn write(&self, out: &mut Vec<u8>) {
        let QueuedPlace { owner, request, label, units, lease, is_heard, joined, deadline, .. } = self;
        let QueuedPlace { asked_in: _, capacity: _, .. } = self; // `LockEntry::encode` writes the capacity
        owner.write(out);
        request.write(out);
        label.write(out);
        units.write(out);
        u32::from(*is_heard).write(out);
        [lease, joined, deadline].into_iter().for_each(|time| time.write(out));
    }

    /// The place that stands next. `from` is the end of these bytes.
    fn read(from: &mut &[u8], bytes: &Arc<Vec<u8>>) -> Option<QueuedPlace> {
        let (owner, request, label) = (Text::read(from, bytes)?, read(from)?, Text::read(from, bytes)?);
        let (units, heard) = read::<(u32, u32)>(from)?;
        let (lease, joined, deadline) = read(from)?;
        let is_heard = heard == 1;
        (heard <= 1 && units > 0).then_some(QueuedPlace {
            owner,
            request,
            label,
            units,
            capacity: 0,
            lease,
            asked_in: 0,
            is_heard,
            joined,
            deadline,
        })
    }
}

impl Coded for Clock {
    fn write(&self, out: &mut Vec<u8>) {
        let Clock { value, pulse, least_ttl, longest_ttl, held_back: _ } = self;
        [value, pulse, least_ttl, longest_ttl].into_iter().for_each(|time| time.write(out));
    }

    fn read(from: &mut &[u8]) -> Option<Clock> {
        let (value, pulse) = read(from)?;
        let (least_ttl, longest_ttl) = read(from)?;
        Some(Clock { value, pulse, least_ttl, longest_ttl, held_back: None })
    }
}

impl Coded for Interest {
    /// In its own order, so that equal states are equal bytes.
    fn write(&self, out: &mut Vec<u8>) {
        let mut requests: Vec<_> = self.requests.iter().collect();
        requests.sort_by_key(|((owner, request), _)| (owner.as_str(), request.get()));
        (requests.len() as u64).write(out);
        for ((owner, request), until) in requests {
            owner.write(out);
            request.write(out);
            until.write(out);
        }
    }

    fn read(from: &mut &[u8]) -> Option<Interest> {
        let mut interest = Interest::default();
        read_list(from, |(request, until)| {
            interest.requests.insert(request, until);
            Some(())
        })?;
        Some(interest)
    }
}

/// A text of a place. As it was read, it stays among the bytes of its queue until somebody asks for it: a store that keeps bytes reads and
/// writes a long queue as a whole in each step, and looks at few of its waiters.
#[derive(Clone)]
pub(crate) struct Text<T> {
    made: OnceCell<T>,
    /// The bytes of the queue, and where the text begins and ends in them.
    read: Option<(Arc<Vec<u8>>, [u32; 2])>,
}

impl<T: Made> Text<T> {
    pub(super) fn new(made: T) -> Text<T> {
        Text { made: OnceCell::from(made), read: None }
    }

    pub(crate) fn get(&self) -> &T {
        self.made.get_or_init(|| T::of(str::from_utf8(self.bytes()).unwrap_or_default()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let read =
            || self.read.as_ref().map_or(&[][..], |(bytes, [from, to])| &bytes[*from as usize..*to as usize]);
        self.made.get().map_or_else(read, |made| made.as_ref().as_bytes())
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_text(self.bytes(), out);
    }

    /// The text that stands next. `from` is the end of these bytes.
    fn read(from: &mut &[u8], bytes: &Arc<Vec<u8>>) -> Option<Text<T>> {
        let length = read_text(from)?.len() as u32;
        let end = u32::try_from(bytes.len() - from.len()).ok()?;
        Some(Text { made: OnceCell::new(), read: Some((Arc::clone(bytes), [end - length, end])) })
    }
}

/// What a text is made into for who asks.
pub(crate) trait Made: AsRef<str> {
    fn of(text: &str) -> Self;
}

impl Made for OwnerId {
    fn of(text: &str) -> OwnerId {
        OwnerId::new(text)
    }
}

impl Made for Arc<str> {
    fn of(text: &str) -> Arc<str> {
        text.into()
    }
}

/// All of a queue, for a model.
#[cfg(feature = "model")]
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
#[cfg(feature = "model")]
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
#[cfg(feature = "model")]
pub struct ClockParts {
    /// Its value at the last operation.
    pub value: Moment,
    /// The store's time then.
    pub pulse: Moment,
    /// The time to live.
    pub ttl: Duration,
}

#[cfg(feature = "model")]
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

#[cfg(feature = "model")]
impl From<QueueParts> for Queue {
    fn from(parts: QueueParts) -> Queue {
        let QueueParts { places, served, rests_until, clock: ClockParts { value, pulse, ttl } } = parts;
        let clock = Clock { value, pulse, least_ttl: ttl, longest_ttl: ttl, held_back: None };
        let mut queue = Queue { clock, served, rests_until, ..Queue::default() };
        for PlaceParts { ticket, owner, request, units, capacity, lease, is_heard, deadline } in places {
            let place = QueuedPlace {
                owner: Text::new(owner),
                request,
                label: Text::new(Arc::default()),
                units,
                capacity,
                lease,
                asked_in: 0,
                is_heard,
                joined: Moment::ZERO,
                deadline,
            };
            queue.insert(ticket, place);
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    use fairlock_core::backend::RequestId;

    use super::*;

    #[test]
    fn two_places_of_a_ticket_or_of_a_request_are_damaged() {
        let is_queue = |places: &[(u64, &str)], heard: u32| {
            let mut bytes = Vec::new();
            Clock::default().write(&mut bytes);
            [0, 0, places.len() as u64].into_iter().for_each(|number| number.write(&mut bytes));
            for (ticket, owner) in places {
                (*ticket).write(&mut bytes);
                OwnerId::new(owner).write(&mut bytes);
                (RequestId::new(1)).write(&mut bytes);
                [0, 1, heard, 0, 0, 0].into_iter().for_each(|number: u32| number.write(&mut bytes));
            }
            read::<Queue>(&mut &bytes[..]).is_some()
        };
        assert!(is_queue(&[(1, "a"), (2, "b"), (3, "c")], 0) && is_queue(&[(1, "a")], 1));
        assert!(!is_queue(&[(1, "a"), (2, "a")], 0), "one request");
        assert!(!is_queue(&[(1, "a"), (1, "b")], 0), "one ticket");
        assert!(!is_queue(&[(1, "a")], 2), "neither heard nor not");
    }
}
