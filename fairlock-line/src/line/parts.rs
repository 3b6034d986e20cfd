//! The line taken apart, for a model.

use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::RequestId;

use super::clock::LineClock;
use super::{KeptPlace, Line};
use crate::turn::Moment;

/// All of a line.
pub struct LineParts {
    /// The places: those that are present by ticket, then the parked ones.
    pub places: Vec<PlaceParts>,
    /// The first and the last ticket; 0 before there was one.
    pub tickets: (u64, u64),
    /// The places that were lost.
    pub lost: Vec<(OwnerId, RequestId, u64)>,
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
    pub takes: u32,
    /// The requested lease.
    pub lease: Duration,
    /// On the line's clock.
    pub deadline: Moment,
    /// It was absent at its turn.
    pub is_parked: bool,
}

/// The line's clock, where all places have the same time to live.
pub struct ClockParts {
    /// Its value at the last heartbeat.
    pub value: Moment,
    /// The store's time of that.
    pub pulse: Moment,
    /// The time to live.
    pub ttl: Duration,
}

impl From<Line> for LineParts {
    fn from(line: Line) -> LineParts {
        let Line { present, parked, clock, first_ticket, last_ticket, lost, rests_until, .. } = line;
        let Line { tickets: _, ranks: _, kicked: _, swept_in: _, .. } = Line::default(); // a model has no kicks
        let LineClock { value, pulse, least_ttl: ttl, least_ttl_until: _, longest_ttl: _ } = clock;
        let place = |is_parked| {
            move |(ticket, place): (u64, KeptPlace)| {
                let KeptPlace { owner, request, takes, lease, deadline, .. } = place;
                let KeptPlace { label: _, asked_in: _, joined: _, .. } = place;
                PlaceParts { ticket, owner, request, takes, lease, deadline, is_parked }
            }
        };
        let parked = parked.into_iter().map(place(true));
        LineParts {
            places: present.into_iter().map(place(false)).chain(parked).collect(),
            tickets: (first_ticket, last_ticket),
            lost,
            rests_until,
            clock: ClockParts { value, pulse, ttl },
        }
    }
}

impl From<LineParts> for Line {
    fn from(parts: LineParts) -> Line {
        let LineParts { places, tickets: (first_ticket, last_ticket), lost, rests_until, clock } = parts;
        let ClockParts { value, pulse, ttl } = clock;
        let clock =
            LineClock { value, pulse, least_ttl: ttl, least_ttl_until: value + ttl, longest_ttl: ttl };
        let mut line = Line { clock, first_ticket, last_ticket, lost, rests_until, ..Line::default() };
        for PlaceParts { ticket, owner, request, takes, lease, deadline, is_parked } in places {
            line.tickets.insert((owner.clone(), request), ticket);
            let (label, joined) = Default::default();
            let place = KeptPlace { owner, request, label, takes, lease, asked_in: 0, joined, deadline };
            if is_parked {
                line.parked.insert(ticket, place);
            } else {
                line.ranks.add(ticket);
                line.present.insert(ticket, place);
            }
        }
        line
    }
}
