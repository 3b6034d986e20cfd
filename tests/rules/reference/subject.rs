//! The comparison with the model.

use std::fmt::Write as _;

use fairlock_core::backend::{Acquired, LockState, Released, Renewal, RequestId};
use fairlock_core::{ClientId, OwnerId};
use fairlock_tests::reference::line_clock::LineClock;
use fairlock_tests::reference::{Answer, ClientNumber, Kind, Lock, Member, Millis, Push};
use std::time::Duration;

use crate::cast::Cast;
use crate::commands::{Command, LOCKS, Scale, Step};
use crate::model::Model;

/// The outcome of a command: its answers (a heartbeat has one per place), and the pushes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) answers: Vec<Answer>,
    pub(crate) pushes: Vec<Push>,
}

/// A lock as `inspect` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) holders: Vec<SeenHolder>,
    pub(crate) line: Vec<SeenPlace>,
    pub(crate) absent: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenHolder {
    pub(crate) owner: (ClientNumber, u64),
    pub(crate) takes: u32,
    pub(crate) count: u32,
    pub(crate) token: u64,
    pub(crate) left: Millis,
    pub(crate) label: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenPlace {
    pub(crate) member: Member,
    pub(crate) takes: u32,
    pub(crate) waiting: Millis,
    pub(crate) left: Millis,
    pub(crate) label: String,
}

/// An implementation of the model's rules.
pub(crate) trait Subject {
    /// `expected` is the model's outcome; a subject with its own tokens learns from it.
    fn run(&mut self, command: &Command, expected: &Outcome) -> Result<Outcome, String>;

    /// The lock as `inspect` shows it.
    fn seen(&mut self, lock: usize, expected: &Seen) -> Seen;

    /// The lock as stored, if that can be read.
    fn kept(&mut self, _lock: usize) -> Option<Lock> {
        None
    }
}

/// Runs the steps on both, and returns the first difference with the steps before it.
pub(crate) fn differ(subject: &mut dyn Subject, scale: Scale, steps: &[Step]) -> Result<(), String> {
    let (mut both, mut cast) = (Both::new(subject, scale.kind), Cast::new(scale));
    for step in steps.iter().flat_map(|step| step.parts(scale)) {
        for command in cast.commands(step, &both.model) {
            let outcome = both.run(&command)?;
            cast.learn(&command, &outcome);
        }
    }
    Ok(())
}

/// The model and a subject, side by side.
pub(crate) struct Both<'a> {
    pub(crate) model: Model,
    subject: &'a mut dyn Subject,
    story: String,
}

impl<'a> Both<'a> {
    pub(crate) fn new(subject: &'a mut dyn Subject, kind: Kind) -> Both<'a> {
        Both { model: Model::new(kind), subject, story: String::new() }
    }

    /// Gives both the command. Returns the model's outcome, or the difference.
    pub(crate) fn run(&mut self, command: &Command) -> Result<Outcome, String> {
        let Both { model, subject, story } = self;
        let outcome = model.run(command);
        let _ = writeln!(story, "  {command:?}\n    -> {outcome:?}");
        let got = subject.run(command, &outcome).map_err(|what| format!("{story}  but: {what}"))?;
        if got != outcome {
            return Err(format!("{story}  but it was\n    -> {got:?}"));
        }
        for lock in 0..LOCKS {
            let expected = model.seen(lock);
            let got = subject.seen(lock, &expected);
            if got != expected {
                return Err(format!(
                    "{story}  lock {lock} should be\n    {expected:?}\n  but is\n    {got:?}"
                ));
            }
            let expected = relative(model.kept(lock), model.now);
            let got = subject.kept(lock).map(|got| relative(got, model.now));
            if let Some(got) = got.filter(|got| *got != expected) {
                return Err(format!(
                    "{story}  lock {lock} should be stored as\n    {expected:?}\n  but is stored as\n    {got:?}"
                ));
            }
        }
        Ok(outcome)
    }
}

/// The lock with the times of its line as distances from the line clock. The clock of an empty line judges only
/// how much longer a line rests, and that is compared; when a wait began is compared in `seen`.
fn relative(mut lock: Lock, now: Millis) -> Lock {
    const AHEAD: Millis = 1 << 52;
    let clock = lock.line_clock.at(now);
    for place in &mut lock.line.places {
        (place.deadline, place.since) = (place.deadline + AHEAD - clock, 0);
    }
    lock.rests_until = lock.rests_until.saturating_sub(clock);
    lock.line_clock = match lock.line.is_empty() {
        true => LineClock::default(),
        false => {
            let ttl_until = lock.line_clock.ttl_until.saturating_sub(clock);
            LineClock { shown: None, ttl_until, ..lock.line_clock }
        }
    };
    lock
}

impl Outcome {
    /// The tokens in it, in order.
    pub(crate) fn tokens(&mut self) -> Vec<&mut u64> {
        let answered = self.answers.iter_mut().filter_map(|answer| match answer {
            Answer::Granted { token, .. } | Answer::WasGranted { token, .. } => Some(token),
            _ => None,
        });
        let pushed = self.pushes.iter_mut().map(|push| match push {
            Push::Granted { token, .. } | Push::Taken { token, .. } => token,
        });
        answered.chain(pushed).collect()
    }

    /// Each store has its own tickets and its own latest number. Returns the pairs of tickets.
    pub(crate) fn take_tickets_of(&mut self, expected: &Outcome) -> Vec<(u64, u64)> {
        let mut tickets = Vec::new();
        for pair in self.answers.iter_mut().zip(&expected.answers) {
            match pair {
                (
                    Answer::Queued { ticket: own, latest: own_latest, .. },
                    Answer::Queued { ticket, latest, .. },
                ) => {
                    tickets.push((*ticket, *own));
                    (*own, *own_latest) = (*ticket, *latest);
                }
                (Answer::Waiting { latest: own, .. }, Answer::Waiting { latest, .. }) => *own = *latest,
                _ => {}
            }
        }
        tickets
    }
}

impl Seen {
    /// The tokens in it.
    pub(crate) fn tokens(&mut self) -> Vec<&mut u64> {
        self.holders.iter_mut().map(|holder| &mut holder.token).collect()
    }
}

/// The clients' ids at the backend.
#[derive(Debug)]
pub(crate) struct Names(pub(crate) Vec<ClientId>);

impl Names {
    pub(crate) fn owner(&self, member: Member) -> OwnerId {
        OwnerId::new(&format!("{}:{}", self.0[member.client], member.owner))
    }

    pub(crate) fn member(&self, owner: &str, request: RequestId) -> Member {
        let (client, owner) = self.of(owner);
        Member { client, owner, request: request.get() }
    }

    pub(crate) fn seen(&self, state: LockState) -> Seen {
        let holders = state.holders.into_iter().map(|holder| SeenHolder {
            owner: self.of(holder.owner.as_str()),
            takes: holder.takes,
            count: holder.hold_count,
            token: holder.token.unwrap().get(),
            left: millis(holder.lease_left.unwrap()),
            label: holder.label.unwrap_or_default(),
        });
        assert_eq!(state.line_length, state.line.len() as u64);
        let line = state.line.into_iter().map(|waiter| SeenPlace {
            member: self.member(waiter.owner.as_str(), waiter.request.unwrap()),
            takes: waiter.takes,
            waiting: millis(waiter.waiting.unwrap()),
            left: millis(waiter.place_left.unwrap()),
            label: waiter.label.unwrap_or_default(),
        });
        Seen { holders: holders.collect(), line: line.collect(), absent: state.absent }
    }

    pub(crate) fn of(&self, owner: &str) -> (ClientNumber, u64) {
        let (client, number) = owner.rsplit_once(':').unwrap();
        let client = self.0.iter().position(|id| id.to_string() == client).unwrap();
        (client, number.parse().unwrap())
    }
}

pub(crate) fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap()
}

fn recheck(time: Duration) -> Option<Millis> {
    (time != Duration::MAX).then(|| millis(time))
}

pub(crate) fn acquired(answer: Acquired) -> Answer {
    match answer {
        Acquired::Granted { token, lease } => Answer::Granted { token: token.get(), left: millis(lease) },
        Acquired::Queued { rank, recheck_in, ticket, latest } => {
            Answer::Queued { rank: rank as usize, recheck: recheck(recheck_in), ticket, latest }
        }
        Acquired::Busy { recheck_in } => Answer::Busy { left: millis(recheck_in) },
    }
}

pub(crate) fn renewed(answer: Renewal) -> Answer {
    match answer {
        Renewal::Renewed => Answer::Renewed,
        Renewal::Lost => Answer::Lost,
        Renewal::Granted { token, lease } => Answer::Granted { token: token.get(), left: millis(lease) },
        Renewal::Waiting { rank, recheck_in, latest } => {
            Answer::Waiting { rank: rank as usize, recheck: recheck(recheck_in), latest }
        }
    }
}

pub(crate) fn released(answer: Released) -> Answer {
    match answer {
        Released::Released => Answer::Released,
        Released::NotHeld => Answer::NotHeld,
    }
}
