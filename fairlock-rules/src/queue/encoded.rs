//! The queue as bytes.

use std::collections::VecDeque;

use super::clock::Clock;
use super::{Queue, QueuedPlace};
use crate::bytes::{Coded, read, read_list};

impl Coded for Queue {
    fn write(&self, out: &mut Vec<u8>) {
        let Queue { places, clock, served, rests_until } = self;
        clock.write(out);
        served.write(out);
        rests_until.write(out);
        (places.len() as u64).write(out);
        for (ticket, place) in places {
            ticket.write(out);
            place.write(out);
        }
    }

    fn read(from: &mut &[u8]) -> Option<Queue> {
        let (clock, served, rests_until) = read(from)?;
        let mut places: VecDeque<(u64, QueuedPlace)> = VecDeque::new();
        read_list(from, |place: (u64, QueuedPlace)| {
            let is_later = places.back().is_none_or(|last| last.0 < place.0);
            places.push_back(place);
            is_later.then_some(())
        })?;
        Some(Queue { places, clock, served, rests_until })
    }
}

impl Coded for QueuedPlace {
    fn write(&self, out: &mut Vec<u8>) {
        let QueuedPlace { owner, request, label, units, lease, asked_in: _, is_heard, joined, deadline } =
            self;
        owner.write(out);
        request.write(out);
        label.write(out);
        units.write(out);
        u32::from(*is_heard).write(out);
        [lease, joined, deadline].into_iter().for_each(|time| time.write(out));
    }

    fn read(from: &mut &[u8]) -> Option<QueuedPlace> {
        let (owner, request, label) = read(from)?;
        let (units, heard) = read::<(u32, u32)>(from)?;
        let (lease, joined, deadline) = read(from)?;
        let is_heard = heard == 1;
        (heard <= 1 && units > 0).then_some(QueuedPlace {
            owner,
            request,
            label,
            units,
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
        let Clock { value, pulse, least_ttl, longest_ttl, is_held_back: _ } = self;
        [value, pulse, least_ttl, longest_ttl].into_iter().for_each(|time| time.write(out));
    }

    fn read(from: &mut &[u8]) -> Option<Clock> {
        let (value, pulse) = read(from)?;
        let (least_ttl, longest_ttl) = read(from)?;
        Some(Clock { value, pulse, least_ttl, longest_ttl, is_held_back: false })
    }
}

#[cfg(test)]
mod tests {
    use fairlock_core::OwnerId;
    use fairlock_core::backend::RequestId;

    use super::*;

    #[test]
    fn two_places_of_a_ticket_are_damaged() {
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
        assert!(!is_queue(&[(1, "a"), (1, "b")], 0), "one ticket");
        assert!(!is_queue(&[(1, "a")], 2), "neither heard nor not");
    }
}
