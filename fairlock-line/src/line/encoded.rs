//! The line as bytes.

use super::clock::LineClock;
use super::{KeptPlace, Line};
use crate::bytes::{Coded, read, read_list, write_list};

/// No ticket is greater: there is room for as many that come after it.
const LAST_TICKET: u64 = u64::MAX / 2;

impl Coded for Line {
    fn write(&self, out: &mut Vec<u8>) {
        // `tickets` and `ranks` come from the places.
        let Line { present, parked, tickets: _, ranks: _, clock, .. } = self;
        let Line { first_ticket, last_ticket, lost, rests_until, kicked, swept_in: _, .. } = self;
        clock.write(out);
        [first_ticket, last_ticket].into_iter().for_each(|ticket| ticket.write(out));
        write_list(lost.iter(), out);
        rests_until.write(out);
        write_list(kicked.iter(), out);
        for places in [present, parked] {
            (places.len() as u64).write(out);
            for (ticket, place) in places {
                ticket.write(out);
                place.write(out);
            }
        }
    }

    fn read(from: &mut &[u8]) -> Option<Line> {
        let clock = read(from)?;
        let (first_ticket, last_ticket) = read(from)?;
        let mut line = Line { clock, first_ticket, last_ticket, ..Line::default() };
        read_list(from, |place| {
            line.lost.push(place);
            Some(())
        })?;
        line.rests_until = read(from)?;
        read_list(from, |kick| {
            line.kicked.push_back(kick);
            Some(())
        })?;
        for is_present in [true, false] {
            read_list(from, |(ticket, place)| line.put_back(ticket, place, is_present))?;
        }
        (last_ticket <= LAST_TICKET).then_some(line)
    }
}

impl Line {
    /// Not if another place has the ticket or is of that request, or the line can't have given that ticket out.
    fn put_back(&mut self, ticket: u64, place: KeptPlace, is_present: bool) -> Option<()> {
        let request = (place.owner.clone(), place.request);
        let is_new = self.tickets.insert(request, ticket).is_none() && !self.present.contains_key(&ticket);
        let is_of_line = (self.first_ticket..=self.last_ticket).contains(&ticket);
        if is_present {
            self.ranks.add(ticket);
        }
        let places = if is_present { &mut self.present } else { &mut self.parked };
        (places.insert(ticket, place).is_none() && is_new && is_of_line).then_some(())
    }
}

impl Coded for KeptPlace {
    fn write(&self, out: &mut Vec<u8>) {
        let KeptPlace { owner, request, label, takes, lease, asked_in: _, joined, deadline } = self;
        owner.write(out);
        request.write(out);
        label.write(out);
        takes.write(out);
        [lease, joined, deadline].into_iter().for_each(|time| time.write(out));
    }

    fn read(from: &mut &[u8]) -> Option<KeptPlace> {
        let (owner, request) = read(from)?;
        let (label, takes) = read(from)?;
        let (lease, joined, deadline) = read(from)?;
        Some(KeptPlace { owner, request, label, takes, lease, asked_in: 0, joined, deadline })
    }
}

impl Coded for LineClock {
    fn write(&self, out: &mut Vec<u8>) {
        let LineClock { value, pulse, least_ttl, least_ttl_until, longest_ttl } = self;
        [value, pulse, least_ttl, least_ttl_until, longest_ttl].into_iter().for_each(|time| time.write(out));
    }

    fn read(from: &mut &[u8]) -> Option<LineClock> {
        let (value, pulse) = read(from)?;
        let (least_ttl, least_ttl_until, longest_ttl) = read(from)?;
        Some(LineClock { value, pulse, least_ttl, least_ttl_until, longest_ttl })
    }
}

#[cfg(test)]
mod tests {
    use fairlock_core::OwnerId;
    use fairlock_core::backend::RequestId;

    use super::*;

    #[test]
    fn two_places_of_a_ticket_or_of_a_request_are_damaged() {
        let place = |&(ticket, owner): &(u64, &str)| {
            let (owner, request, label) = (OwnerId::new(owner), RequestId::new(1), "".into());
            let (joined, deadline, lease) = Default::default();
            (ticket, KeptPlace { owner, request, label, takes: 1, lease, asked_in: 0, joined, deadline })
        };
        let is_line = |present: &[(u64, &str)], parked: &[(u64, &str)]| {
            let (present, parked) = [present, parked].map(|places| places.iter().map(place).collect()).into();
            let mut bytes = Vec::new();
            Line { present, parked, first_ticket: 1, last_ticket: 3, ..Line::default() }.write(&mut bytes);
            read::<Line>(&mut &bytes[..]).is_some()
        };
        assert!(is_line(&[(1, "a"), (2, "b")], &[(3, "c")]));
        assert!(!is_line(&[(1, "a"), (2, "a")], &[]), "one request");
        assert!(!is_line(&[(1, "a")], &[(1, "b")]), "one ticket");
        assert!(!is_line(&[(4, "a")], &[]) && !is_line(&[], &[(0, "a")]), "no ticket of this line");
    }
}
