//! Requests and holds that own what they name, for questions that another thread may decide.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, Hold, LockId, Place, Renew, Renewal, RequestId, Wait,
};
use fairlock_core::{FencingToken, OwnerId};
use fairlock_line::{LockEntry, Turn};

/// See [`Place`].
struct OwnedPlace {
    lock: LockId,
    owner: OwnerId,
    request: RequestId,
    wait: Wait,
    ttl: Duration,
    ticket: u64,
    takes: u32,
}

/// See [`Hold`].
struct OwnedHold {
    lock: LockId,
    owner: OwnerId,
    request: RequestId,
    token: FencingToken,
}

/// See [`Renew`].
enum OwnedRenew {
    Hold { hold: OwnedHold, holds: u32, lease: Duration },
    Place { place: OwnedPlace, lease: Duration },
}

impl OwnedPlace {
    fn of(place: &Place<'_>) -> OwnedPlace {
        let Place { lock, owner, request, wait, ttl, ticket, takes, .. } = *place;
        OwnedPlace { lock: lock.clone(), owner: owner.clone(), request, wait, ttl, ticket, takes }
    }

    /// Its time counts from this much later on.
    fn get(&self, late: Duration) -> Place<'_> {
        let OwnedPlace { lock, owner, request, wait, ttl, ticket, takes } = self;
        let mut place = Place::new(lock, owner, *request);
        (place.wait, place.ticket, place.takes, place.ttl) =
            (*wait, *ticket, *takes, ttl.saturating_add(late));
        place
    }
}

impl OwnedHold {
    fn of(hold: &Hold<'_>) -> OwnedHold {
        let Hold { lock, owner, request, token, .. } = *hold;
        OwnedHold { lock: lock.clone(), owner: owner.clone(), request, token }
    }

    fn get(&self) -> Hold<'_> {
        Hold::new(&self.lock, &self.owner, self.request, self.token)
    }
}

impl OwnedRenew {
    fn of(item: &Renew<'_>) -> OwnedRenew {
        match *item {
            Renew::Hold { ref hold, holds, lease } => {
                OwnedRenew::Hold { hold: OwnedHold::of(hold), holds, lease }
            }
            Renew::Place { ref place, lease } => OwnedRenew::Place { place: OwnedPlace::of(place), lease },
        }
    }

    /// Their times count from this much later on.
    fn get(&self, late: Duration) -> Renew<'_> {
        match self {
            OwnedRenew::Hold { hold, holds, lease } => {
                Renew::Hold { hold: hold.get(), holds: *holds, lease: lease.saturating_add(late) }
            }
            OwnedRenew::Place { place, lease } => {
                Renew::Place { place: place.get(late), lease: lease.saturating_add(late) }
            }
        }
    }
}

/// How a step decides this request, when the clock was read that long before it was made at most.
pub(crate) fn acquire(
    ask: &Acquire<'_>,
) -> impl Fn(&mut LockEntry, &mut Turn<'_>, Duration) -> Result<Acquired, BackendError> + use<> {
    let (place, lease, label) = (OwnedPlace::of(&ask.place), ask.lease, ask.label.to_owned());
    move |entry, turn, late| {
        let mut ask = Acquire::new(place.get(late), lease.saturating_add(late));
        ask.label = &label;
        let mut acquired = entry.acquire(turn, &ask)?;
        let (Acquired::Granted { lease: time, .. }
        | Acquired::Queued { recheck_in: time, .. }
        | Acquired::Busy { recheck_in: time }) = &mut acquired;
        *time = time.saturating_sub(late);
        Ok(acquired)
    }
}

/// The same for a question about a hold.
pub(crate) fn about<T, D: Fn(&mut LockEntry, &mut Turn<'_>, &Hold<'_>, Duration) -> T>(
    hold: &Hold<'_>,
    decide: D,
) -> impl Fn(&mut LockEntry, &mut Turn<'_>, Duration) -> T + use<T, D> {
    let hold = OwnedHold::of(hold);
    move |entry, turn, late| decide(entry, turn, &hold.get(), late)
}

/// About a place.
pub(crate) fn about_place<T, D: Fn(&mut LockEntry, &mut Turn<'_>, &Place<'_>) -> T>(
    place: &Place<'_>,
    decide: D,
) -> impl Fn(&mut LockEntry, &mut Turn<'_>, Duration) -> T + use<T, D> {
    let place = OwnedPlace::of(place);
    move |entry, turn, late| decide(entry, turn, &place.get(late))
}

/// For items of one lock.
pub(crate) fn renew(
    items: &[Renew<'_>],
) -> impl Fn(&mut LockEntry, &mut Turn<'_>, Duration) -> Vec<Renewal> + use<> {
    let items: Vec<_> = items.iter().map(OwnedRenew::of).collect();
    move |entry, turn, late| {
        let items: Vec<_> = items.iter().map(|item| item.get(late)).collect();
        let mut renewals = entry.renew(turn, &items);
        for renewal in &mut renewals {
            if let Renewal::Granted { lease: time, .. } | Renewal::Waiting { recheck_in: time, .. } = renewal
            {
                *time = time.saturating_sub(late);
            }
        }
        renewals
    }
}
