//! The rules of fairlock-rules in a whole world: some locks, the subscribed clients, and the time.

use std::collections::BTreeSet;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Declined, ForceReleased, Hold, LockId, Place, Released, Renewal, RequestId, Since,
    Wait, Withdrawn,
};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use fairlock_rules::{LockEntry, OperationContext, Presence, StoreContext, WakeUp, WakeUpKind};

use crate::commands::{CLIENTS, Command, LOCKS, kind_of};
use crate::words::{
    Answer, Ask, ClientNumber, Condition, Member, Millis, Outcome, Patience, Push, Renew, Seen, SeenHolder,
    SeenPlace,
};

/// November 2023: tokens are microseconds of it.
pub(crate) const START: Millis = 1_700_000_000_000;

#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) now: Millis,
    /// The microseconds of this millisecond.
    micros: u64,
    pub(crate) hearing: BTreeSet<ClientNumber>,
    locks: [Kept; LOCKS],
}

/// A lock, and the last number that it has drawn.
pub(crate) struct Kept {
    id: LockId,
    pub(crate) entry: LockEntry,
    pub(crate) last: u64,
}

/// By its bytes.
impl Clone for Kept {
    fn clone(&self) -> Kept {
        let entry = LockEntry::decode(&self.entry.encode(), self.last).unwrap();
        Kept { id: self.id.clone(), entry, last: self.last }
    }
}

impl Kept {
    pub(crate) fn new(name: &str, kind: LockKind) -> Kept {
        let id = LockId::new(LockName::new(name).unwrap(), kind);
        Kept { id, entry: LockEntry::default(), last: 0 }
    }

    /// At this millisecond and its microsecond.
    pub(crate) fn run(
        &mut self,
        (now, micros): (Millis, u64),
        hearing: &BTreeSet<ClientNumber>,
        command: &Command,
    ) -> Outcome {
        let Kept { id, entry, last } = self;
        let id = &LockId::new(id.name.clone(), kind_of(id.kind, command.request()));
        // The rules know one clock. Here holds and places end in whole milliseconds, as on Redis, and numbers are microseconds.
        let before = (now * 1000 + micros - 1).max(*last);
        let mut store_context = StoreContext::after(before);
        let presence =
            |owner: &OwnerId| Presence::if_listening(hearing.contains(&owner_of(owner.as_str()).0));
        let mut context = store_context.operation(&id.name, Duration::from_millis(now), &presence);
        let mut answers = answers(command, id, entry, &mut context);
        if store_context.last_number() > before {
            *last = store_context.last_number();
        }
        for answer in &mut answers {
            if let Answer::Queued { latest, .. } | Answer::Waiting { latest, .. } = answer {
                *latest = *last;
            }
        }
        let mut pushes: Vec<Push> = store_context.take_wake_ups().iter().filter_map(push).collect();
        pushes.retain(|push| hearing.contains(&push.client()));
        Outcome { answers, pushes }
    }
}

impl Rules {
    pub(crate) fn new(kind: LockKind) -> Rules {
        let locks = std::array::from_fn(|number| Kept::new(&number.to_string(), kind));
        Rules { now: START, micros: 0, hearing: (0..CLIENTS).collect(), locks }
    }

    pub(crate) fn run(&mut self, command: &Command) -> Outcome {
        pass(&mut self.now, &mut self.micros, command);
        match command {
            Command::GoesDeaf(client) => _ = self.hearing.remove(client),
            Command::Hears(client) => _ = self.hearing.insert(*client),
            _ => {}
        }
        match command.lock() {
            Some(lock) => self.locks[lock].run((self.now, self.micros), &self.hearing, command),
            None => Outcome::default(),
        }
    }

    /// The last number that the lock has drawn.
    pub(crate) fn last_number(&self, lock: usize) -> u64 {
        self.locks[lock].last
    }

    /// Until when the note of the lock is kept at least.
    pub(crate) fn note_ends(&self, lock: usize) -> Millis {
        millis(self.locks[lock].entry.note_ends())
    }

    /// The owners of the waiters, the first in the queue first.
    #[allow(dead_code, reason = "the program `promises` asks for them, `reference` does not")]
    pub(crate) fn heads(&self, lock: usize) -> impl Iterator<Item = (ClientNumber, u64)> {
        self.locks[lock].entry.heads().map(|owner| owner_of(owner.as_str()))
    }

    /// The lock as `inspect` shows it.
    pub(crate) fn seen(&self, lock: usize) -> Seen {
        let Kept { id, entry, .. } = &self.locks[lock];
        let mut store_context = StoreContext::default();
        let context =
            store_context.operation(&id.name, Duration::from_millis(self.now), &|_| Presence::Present);
        let state = entry.inspect(&context, id, 0..u64::MAX).unwrap();
        let holders = state.holders.into_iter().map(|holder| SeenHolder {
            member: member(&holder.owner, holder.request.unwrap()),
            units: holder.units,
            count: holder.hold_count,
            token: holder.token.unwrap().get(),
            left: millis(holder.lease_left.unwrap()),
            label: holder.label.unwrap_or_default(),
        });
        let queue = state.queue.into_iter().map(|waiter| SeenPlace {
            member: member(&waiter.owner, waiter.request.unwrap()),
            units: waiter.units,
            capacity: waiter.capacity.unwrap_or(1),
            waiting: millis(waiter.waiting.unwrap()),
            left: millis(waiter.place_left.unwrap()),
            label: waiter.label.unwrap_or_default(),
        });
        Seen { holders: holders.collect(), queue: queue.collect(), absent: state.absent }
    }
}

/// The time at which a command comes: a microsecond after the one before, so that most draw a new number.
pub(crate) fn pass(now: &mut Millis, micros: &mut u64, command: &Command) {
    match command {
        Command::Advance(by) => (*now, *micros) = (*now + by, 0),
        _ => *micros = (*micros + 1).min(999),
    }
}

fn answers(
    command: &Command,
    id: &LockId,
    entry: &mut LockEntry,
    context: &mut OperationContext<'_>,
) -> Vec<Answer> {
    let answer = match command {
        Command::Acquire { ask, patience, .. } => {
            let owner = owner(ask.member);
            acquired(entry.acquire(context, &acquire(id, &owner, ask, *patience)).unwrap())
        }
        Command::RenewPlaces { ttl, places, .. } => {
            let owners: Vec<OwnerId> = places.iter().map(|place| owner(place.member)).collect();
            let item = |(renew, owner)| renewal(id, owner, *ttl, renew);
            let items: Vec<_> = places.iter().zip(&owners).map(item).collect();
            return entry.renew(context, &items).into_iter().map(renewed).collect();
        }
        Command::RenewHold { member, token, count, lease, .. } => {
            let (owner, lease) = (owner(*member), Duration::from_millis(*lease));
            let hold = hold(id, &owner, *member, *token);
            let item = fairlock_core::backend::Renew::Hold { hold, holds: *count, lease };
            renewed(entry.renew(context, &[item]).remove(0))
        }
        Command::Release { member, token, .. } => {
            match entry.release(context, &hold(id, &owner(*member), *member, *token)) {
                Released::Released => Answer::Released,
                Released::NotHeld => Answer::NotHeld,
                other => panic!("{other:?}"),
            }
        }
        Command::Adopt { member, token, adopter, lease, .. } => {
            let (former, lease) = (owner(*member), Duration::from_millis(*lease));
            let hold = hold(id, &former, *member, *token);
            renewed(entry.adopt(context, &hold, &owner(*adopter), lease).unwrap())
        }
        Command::Withdraw { member, .. } => withdrawn(
            entry.withdraw(context, &Place::new(id, &owner(*member), RequestId::new(member.request))),
        ),
        Command::ForceRelease { .. } => taken(entry.force_release(context, id).unwrap()),
        Command::TakeHold { member, token, .. } => {
            taken(entry.take_hold(context, &hold(id, &owner(*member), *member, *token)))
        }
        Command::LoseHold { .. } => {
            entry.lose_hold();
            return Vec::new();
        }
        Command::LoseQueue { .. } => {
            entry.lose_queue();
            return Vec::new();
        }
        Command::GoesDeaf(_) | Command::Hears(_) | Command::Harm(_) | Command::Advance(_) => {
            return Vec::new();
        }
    };
    vec![answer]
}

fn acquire<'a>(id: &'a LockId, owner: &'a OwnerId, ask: &'a Ask, patience: Patience) -> Acquire<'a> {
    let mut place = Place::new(id, owner, RequestId::new(ask.member.request));
    (place.ttl, place.ticket, place.units) = (Duration::from_millis(ask.ttl), ask.ticket, ask.units);
    place.wait = if patience == Patience::Once { Wait::No } else { Wait::Forever };
    let mut acquire = Acquire::new(place, Duration::from_millis(ask.lease));
    acquire.label = ask.label;
    match ask.condition {
        None => {}
        Some(Condition::Every(period)) => {
            acquire.condition.not_granted = Some(Since::PeriodBegan(Duration::from_millis(period)));
        }
        Some(Condition::NotWithin(time)) => {
            acquire.condition.not_granted = Some(Since::Ago(Duration::from_millis(time)));
        }
        Some(Condition::Behind(most)) => acquire.condition.most_ahead = Some(most),
    }
    acquire
}

fn renewal<'a>(
    id: &'a LockId,
    owner: &'a OwnerId,
    ttl: Millis,
    renew: &Renew,
) -> fairlock_core::backend::Renew<'a> {
    let mut place = Place::new(id, owner, RequestId::new(renew.member.request));
    (place.ttl, place.ticket, place.units) = (Duration::from_millis(ttl), renew.ticket, renew.units);
    fairlock_core::backend::Renew::Place { place, lease: Duration::from_millis(renew.lease) }
}

fn hold<'a>(id: &'a LockId, owner: &'a OwnerId, member: Member, token: u64) -> Hold<'a> {
    Hold::new(id, owner, RequestId::new(member.request), FencingToken::new(token))
}

fn acquired(answer: Acquired) -> Answer {
    match answer {
        Acquired::Granted { token, lease } => Answer::Granted { token: token.get(), left: millis(lease) },
        Acquired::Queued { rank, recheck_in, ticket, latest } => {
            Answer::Queued { rank, recheck: recheck(recheck_in), ticket, latest }
        }
        Acquired::Busy { recheck_in } => Answer::Busy { left: millis(recheck_in) },
        Acquired::Declined(Declined::Granted(time)) => {
            Answer::DeclinedSince { granted: u64::try_from(time.as_micros()).unwrap() }
        }
        Acquired::Declined(Declined::Ahead(ahead)) => Answer::DeclinedBehind { ahead },
        other => panic!("{other:?}"),
    }
}

fn renewed(answer: Renewal) -> Answer {
    match answer {
        Renewal::Renewed => Answer::Renewed,
        Renewal::Lost => Answer::Lost,
        Renewal::Granted { token, lease } => Answer::Granted { token: token.get(), left: millis(lease) },
        Renewal::Waiting { rank, recheck_in, latest } => {
            Answer::Waiting { rank, recheck: recheck(recheck_in), latest }
        }
        other => panic!("{other:?}"),
    }
}

fn withdrawn(answer: Withdrawn) -> Answer {
    match answer {
        Withdrawn::Left => Answer::Left,
        Withdrawn::WasGranted { token, lease } => {
            Answer::WasGranted { token: token.get(), left: millis(lease) }
        }
        other => panic!("{other:?}"),
    }
}

fn taken(answer: ForceReleased) -> Answer {
    match answer {
        ForceReleased::Taken => Answer::Taken,
        ForceReleased::NotHeld => Answer::NotHeld,
        other => panic!("{other:?}"),
    }
}

fn push(wake_up: &WakeUp) -> Option<Push> {
    match wake_up.kind {
        WakeUpKind::Granted { request, token } => {
            Some(Push::Granted { to: member(&wake_up.owner, request), token: token.get() })
        }
        WakeUpKind::Taken { token } => {
            let (client, owner) = owner_of(wake_up.owner.as_str());
            Some(Push::Taken { client, owner, token: token.get() })
        }
        WakeUpKind::Recheck | WakeUpKind::RecheckAny => None,
    }
}

fn owner(member: Member) -> OwnerId {
    OwnerId::new(&format!("{}:{}", member.client, member.owner))
}

fn owner_of(owner: &str) -> (ClientNumber, u64) {
    let (client, number) = owner.split_once(':').unwrap();
    (client.parse().unwrap(), number.parse().unwrap())
}

fn member(owner: &OwnerId, request: RequestId) -> Member {
    let (client, owner) = owner_of(owner.as_str());
    Member { client, owner, request: request.get() }
}

fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap()
}

fn recheck(time: Duration) -> Option<Millis> {
    (time != Duration::MAX).then(|| millis(time))
}
