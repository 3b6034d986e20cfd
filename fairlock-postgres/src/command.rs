//! A command about one lock, and its answer. A command owns its data: any thread can decide it for the caller.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Condition, ForceReleased, Hold, LockId, Place, Released, Renew, Renewal, RequestId,
    Wait, Withdrawn,
};
use fairlock_core::{FencingToken, OwnerId};
use fairlock_rules::{LockEntry, OperationContext};

use crate::net::Failure;

/// The operations of a backend on one lock.
pub(crate) enum Command {
    Acquire {
        place: Named,
        lease: Duration,
        label: String,
        condition: Condition,
    },
    Release(Named),
    Adopt(Named, OwnerId, Duration),
    /// The items, with the count of a hold or none for a place, and the lease.
    Renew(Vec<(Named, Option<u32>, Duration)>),
    Withdraw(Named),
    ForceRelease(LockId),
    TakeHold(Named),
}

/// What a [`Place`] or a [`Hold`] names.
pub(crate) struct Named {
    lock: LockId,
    owner: OwnerId,
    request: RequestId,
    token: FencingToken,
    wait: Wait,
    ttl: Duration,
    ticket: u64,
    units: u32,
}

impl Command {
    pub(crate) fn acquire(ask: &Acquire<'_>) -> Command {
        let (lease, label, condition) = (ask.lease, ask.label.to_owned(), ask.condition);
        Command::Acquire { place: (&ask.place).into(), lease, label, condition }
    }

    /// The items are of one lock.
    pub(crate) fn renew<'a>(items: impl Iterator<Item = &'a Renew<'a>>) -> Command {
        let named = |item: &Renew<'_>| match item {
            Renew::Hold { hold, holds, lease } => (hold.into(), Some(*holds), *lease),
            Renew::Place { place, lease } => (place.into(), None, *lease),
        };
        Command::Renew(items.map(named).collect())
    }

    /// Whether an answer that changes nothing may be read from a row as it was committed last. Other answers are written, so they wait
    /// for the transaction that has the row locked: it may be an earlier attempt of the same request, on its way to its commit.
    pub(crate) fn may_be_read(&self) -> bool {
        matches!(self, Command::Acquire { .. } | Command::Release(_) | Command::Renew(_))
    }

    /// Whether the decision is made on a row that was read just now: one of an earlier time might be in the period before, and so decline
    /// the only ask of this period.
    pub(crate) fn needs_the_time(&self) -> bool {
        matches!(self, Command::Acquire { condition, .. } if condition.not_granted.is_some())
    }

    /// Whether the request names a ticket. What became of that ticket stands in the row: a decision without the row would take the queue for
    /// lost, and have all waiters rest for one place TTL.
    pub(crate) fn names_a_ticket(&self) -> bool {
        matches!(self, Command::Acquire { place, .. } if place.ticket > 0)
    }

    /// Decides. `late`: how much earlier than the request the time of the decision is, at most. The times of the request and of the answer
    /// count from there.
    pub(crate) fn decide(
        &self,
        entry: &mut LockEntry,
        context: &mut OperationContext<'_>,
        late: Duration,
    ) -> Result<Answer, Failure> {
        let mut answer: Answer = match self {
            Command::Acquire { place, lease, label, condition } => {
                let mut ask = Acquire::new(place.place(late), lease.saturating_add(late));
                (ask.label, ask.condition) = (label, *condition);
                entry.acquire(context, &ask).map_err(Failure::by_rules)?.into()
            }
            Command::Release(hold) => entry.release(context, &hold.hold()).into(),
            Command::Adopt(hold, owner, lease) => entry
                .adopt(context, &hold.hold(), owner, lease.saturating_add(late))
                .map_err(Failure::by_rules)?
                .into(),
            Command::Renew(items) => {
                let items = items.iter().map(|(named, holds, lease)| match lease.saturating_add(late) {
                    lease if holds.is_none() => Renew::Place { place: named.place(late), lease },
                    lease => Renew::Hold { hold: named.hold(), holds: holds.unwrap_or_default(), lease },
                });
                entry.renew(context, &items.collect::<Vec<_>>()).into()
            }
            Command::Withdraw(place) => entry.withdraw(context, &place.place(late)).into(),
            Command::ForceRelease(lock) => {
                entry.force_release(context, lock).map_err(Failure::by_rules)?.into()
            }
            Command::TakeHold(hold) => entry.take_hold(context, &hold.hold()).into(),
        };
        answer.shorten(late);
        Ok(answer)
    }
}

impl From<&Place<'_>> for Named {
    fn from(place: &Place<'_>) -> Named {
        let Place { lock, owner, request, wait, ttl, ticket, units, .. } = *place;
        let (lock, owner, token) = (lock.clone(), owner.clone(), FencingToken::new(0));
        Named { lock, owner, request, token, wait, ttl, ticket, units }
    }
}

impl From<&Hold<'_>> for Named {
    fn from(hold: &Hold<'_>) -> Named {
        let place = Place::new(hold.lock, hold.owner, hold.request);
        Named { token: hold.token, ..Named::from(&place) }
    }
}

impl Named {
    /// The command with its time counted from this much later.
    fn place(&self, late: Duration) -> Place<'_> {
        let mut place = Place::new(&self.lock, &self.owner, self.request);
        (place.wait, place.ticket, place.units) = (self.wait, self.ticket, self.units);
        place.ttl = self.ttl.saturating_add(late);
        place
    }

    fn hold(&self) -> Hold<'_> {
        Hold::new(&self.lock, &self.owner, self.request, self.token)
    }
}

macro_rules! answers {
    ($($name:ident($answer:ty))*) => {
        pub(crate) enum Answer {
            $($name($answer),)*
        }

        $(
            impl From<$answer> for Answer {
                fn from(answer: $answer) -> Answer {
                    Answer::$name(answer)
                }
            }

            impl TryFrom<Answer> for $answer {
                type Error = Failure;

                fn try_from(answer: Answer) -> Result<$answer, Failure> {
                    match answer {
                        Answer::$name(answer) => Ok(answer),
                        _ => Err(Failure::senseless()),
                    }
                }
            }
        )*
    };
}

answers! {
    Acquired(Acquired)
    Released(Released)
    Adopted(Renewal)
    Renewed(Vec<Renewal>)
    Withdrawn(Withdrawn)
    ForceReleased(ForceReleased)
}

impl Answer {
    /// Whether the answer is a promise: its caller may believe in a hold. A deposed primary must make no promise, so a promise is written
    /// even if it changes nothing.
    pub(crate) fn is_promise(&self) -> bool {
        match self {
            Answer::Acquired(Acquired::Granted { .. })
            | Answer::Withdrawn(Withdrawn::WasGranted { .. })
            | Answer::Adopted(Renewal::Renewed) => true,
            Answer::Renewed(renewals) => {
                renewals.iter().any(|renewal| matches!(renewal, Renewal::Renewed | Renewal::Granted { .. }))
            }
            _ => false,
        }
    }

    /// The answer with its times counted from this much earlier.
    pub(crate) fn shorten(&mut self, late: Duration) {
        let shorten = |time: &mut Duration| *time = time.saturating_sub(late);
        match self {
            Answer::Acquired(
                Acquired::Granted { lease: time, .. }
                | Acquired::Queued { recheck_in: time, .. }
                | Acquired::Busy { recheck_in: time },
            )
            | Answer::Withdrawn(Withdrawn::WasGranted { lease: time, .. }) => shorten(time),
            Answer::Renewed(renewals) => {
                for renewal in renewals {
                    if let Renewal::Granted { lease: time, .. } | Renewal::Waiting { recheck_in: time, .. } =
                        renewal
                    {
                        shorten(time);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
