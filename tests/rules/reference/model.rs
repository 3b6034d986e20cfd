//! The model of a whole world: some locks, the subscribed clients, and the time.

use std::collections::BTreeSet;

use fairlock_tests::reference::{ClientNumber, Hold, Kind, Lock, Millis, Presence, Push, Turn};

use crate::commands::{CLIENTS, Command, LOCKS};
use crate::subject::{Outcome, Seen, SeenHolder, SeenPlace};

/// November 2023: tokens are microseconds of it.
pub(crate) const START: Millis = 1_700_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) now: Millis,
    /// The microseconds of this millisecond.
    micros: u64,
    pub(crate) hearing: BTreeSet<ClientNumber>,
    pub(crate) locks: [Lock; LOCKS],
}

impl Model {
    pub(crate) fn new(kind: Kind) -> Model {
        let locks = std::array::from_fn(|_| Lock { kind, ..Lock::default() });
        Model { now: START, micros: 0, hearing: (0..CLIENTS).collect(), locks }
    }

    pub(crate) fn run(&mut self, command: &Command) -> Outcome {
        pass(&mut self.now, &mut self.micros, command);
        let Model { now, micros, hearing, locks } = self;
        let mut pushes: Vec<Push> = Vec::new();
        let mut turn = Turn { now: *now, micros: *micros, hearing, pushes: &mut pushes };
        let answer = match command {
            Command::Acquire { lock, ask, patience } => locks[*lock].acquire(&mut turn, ask, *patience),
            Command::RenewPlaces { lock, ttl, places } => {
                let answers = locks[*lock].renew_places(&mut turn, *ttl, places);
                return Outcome { answers, pushes };
            }
            Command::RenewHold { lock, member, token, count, lease } => {
                locks[*lock].renew_hold(&turn, *member, *token, *count, *lease)
            }
            Command::Release { lock, member, token } => locks[*lock].release(&mut turn, *member, *token),
            Command::Withdraw { lock, member } => locks[*lock].withdraw(&mut turn, *member),
            Command::Kick { lock, member } => locks[*lock].kick(&mut turn, *member),
            Command::ForceRelease { lock } => locks[*lock].force_release(&mut turn),
            Command::TakeHold { lock, member, token } => locks[*lock].take_hold(&mut turn, *member, *token),
            happening => {
                match happening {
                    Command::LoseHold { lock } => locks[*lock].lose_hold(),
                    Command::LoseLine { lock } => locks[*lock].lose_line(),
                    Command::GoesDeaf(client) => _ = hearing.remove(client),
                    Command::Hears(client) => _ = hearing.insert(*client),
                    _ => {}
                }
                return Outcome::default();
            }
        };
        // Deaf clients get no pushes.
        pushes.retain(|push| self.hearing.contains(&push.client()));
        Outcome { answers: vec![answer], pushes }
    }

    /// The lock as stored.
    pub(crate) fn kept(&self, lock: usize) -> Lock {
        let mut kept = self.locks[lock].clone();
        kept.drop_expired(self.now);
        kept
    }

    /// The lock as shown by `inspect`.
    pub(crate) fn seen(&self, lock: usize) -> Seen {
        let (kept, now) = (self.kept(lock), self.now);
        let clock = kept.line_clock.seen_at(now);
        let holder = |hold: &Hold| SeenHolder {
            owner: (hold.member.client, hold.member.owner),
            takes: hold.takes,
            count: hold.count,
            token: hold.token,
            left: hold.ends - now,
            label: hold.label.to_owned(),
        };
        let place = |place: &fairlock_tests::reference::Place| SeenPlace {
            member: place.member,
            takes: place.takes,
            waiting: now - place.since,
            left: match place.presence {
                Presence::Present => place.deadline.saturating_sub(clock),
                Presence::Parked => 0,
            },
            label: place.label.to_owned(),
        };
        let line: Vec<_> = kept.line.in_order().map(place).collect();
        let absent = line.iter().filter(|place| place.left == 0).count() as u64;
        Seen { holders: kept.holds.iter().map(holder).collect(), line, absent }
    }
}

/// The time at which a command comes: a microsecond after the one before, so that most draw a new number.
pub(crate) fn pass(now: &mut Millis, micros: &mut u64, command: &Command) {
    match command {
        Command::Advance(by) => (*now, *micros) = (*now + by, 0),
        _ => *micros = (*micros + 1).min(999),
    }
}
