//! The way between one client and the server: calls and wake-ups suffer the program's faults, and the server's side of
//! each is recorded by `arrival`.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock::admin::LockState;
use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, LockId, Place, Released,
    Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock::owner::{ClientId, OwnerId};

use crate::arrival::Arrival;
use crate::ear::Ear;
use crate::late::{self, Late, Message};
use crate::life::Life;
use crate::program::Hurt;
use crate::weather::Trip;
use crate::world::{Promise, World, locked};

/// More calls of one client at one moment are a loop that no time passes in.
const SPIN: u64 = 500;

thread_local! {
    static HURT: Cell<Option<Hurt>> = const { Cell::new(None) };
    /// Lock and owner.
    static ASKED: Cell<Option<(String, String)>> = const { Cell::new(None) };
}

/// The next call of this thread suffers so, or none does.
pub fn hurt_next(hurt: Option<Hurt>) {
    HURT.set(hurt);
}

/// For which lock, and as which owner, this thread has asked last.
pub fn asked_last() -> Option<(String, String)> {
    let asked = ASKED.take();
    ASKED.set(asked.clone());
    asked
}

/// What it has asked for before is of no interest any more.
pub fn forget_asked() {
    ASKED.set(None);
}

pub type Answer<T> = Result<T, BackendError>;

pub struct Link {
    world: Arc<World>,
    life: Arc<Life>,
    store: Arc<dyn Backend>,
}

impl Link {
    pub fn new(world: Arc<World>, life: Arc<Life>, store: Arc<dyn Backend>) -> Link {
        Link { world, life, store }
    }

    /// Carries a call about many requests out: it arrives as a whole, and so do its answers.
    fn together<T>(
        &self,
        about: &[Place<'_>],
        operation: &'static str,
        message: impl FnOnce() -> Message,
        operate: impl FnOnce(Arrival<'_>) -> Vec<Answer<T>>,
    ) -> Vec<Answer<T>> {
        let answers = self.travel(operation, message, |arrival| Ok(operate(arrival)));
        let answers = answers.unwrap_or_else(|error| about.iter().map(|_| Err(error.clone())).collect());
        for (place, answer) in about.iter().zip(&answers) {
            self.answered(place, answer.is_ok());
        }
        answers
    }

    fn asks(&self, place: &Place<'_>) {
        locked(&self.life.fate).answered.entry(key_of(place)).or_default().request = Some(place.request);
    }

    fn answered(&self, place: &Place<'_>, is_answered: bool) {
        let now = self.world.now();
        let mut state = locked(&self.life.fate);
        let entry = state.answered.entry(key_of(place)).or_default();
        if entry.request.is_some_and(|request| request != place.request) {
            return;
        }
        if is_answered {
            (entry.answered, entry.failed) = (Some(now), None);
        } else {
            entry.failed.get_or_insert(now);
        }
    }

    /// What the client learns from the answer to an ask.
    fn learns(&self, ask: &Acquire<'_>, answer: &Answer<Acquired>) {
        let Ok(answer) = answer else { return };
        let knows_when = matches!(answer, Acquired::Queued { recheck_in, .. } if *recheck_in < Duration::MAX);
        locked(&self.life.fate).knows_when.insert(key_of(&ask.place), knows_when);
    }

    /// Carries a call out as far as the faults let it.
    fn travel<T>(
        &self,
        operation: &'static str,
        message: impl FnOnce() -> Message,
        operate: impl FnOnce(Arrival<'_>) -> Answer<T>,
    ) -> Answer<T> {
        let nth = self.count(operation);
        self.stand_still();
        let world = &self.world;
        let response = world.program.response;
        let sent = world.now();
        let mut fate = world.weather.fate(self.life.client, operation, sent, nth);
        if let Some(hurt) = HURT.take().or_else(|| self.hurt_of_tasks()) {
            world.weather.hurt(self.life.client, sent, hurt);
            match hurt {
                Hurt::HoldsBack(by) => fate.request = Trip::HeldBack(by),
                Hurt::LosesRequest => fate.request = Trip::Lost,
                Hurt::LosesReply => fate.reply = Trip::Lost,
            }
        }
        let patience = |world: &World| response.saturating_sub(world.now().saturating_sub(sent));
        if !fate.there.is_zero() {
            world.clock.sleep(fate.there.min(response));
            self.stand_still();
        }
        // A fault that began on the way hits it too.
        let refused = match fate.request {
            Trip::Arrives => world.weather.fate(self.life.client, operation, world.now(), nth).request,
            trip => trip,
        };
        match refused {
            Trip::Arrives => {}
            Trip::Refused => return Err(unavailable("refused")),
            // The proxy holds the bytes back, and the call hears nothing by itself.
            Trip::HeldBack(by) if world.store().is_none() => {
                if let Some(mark) = message().mark() {
                    self.note(format_args!("sends what arrives after {by:?}: {mark:?}"));
                    world.hold_back_bytes(self.life.client, &mark, by);
                    locked(&self.life.fate).sends_late = true;
                }
            }
            Trip::HeldBack(by) => {
                let message = message();
                self.note(format_args!("sends what arrives after {by:?}: {message:?}"));
                world.hold_back(Late { at: sent + by, sent, life: Arc::clone(&self.life), message });
                world.clock.sleep(patience(world));
                self.stand_still();
                return Err(unavailable("no answer, the request is on its way"));
            }
            Trip::Lost => {
                world.clock.sleep(patience(world));
                self.stand_still();
                return Err(unavailable("no answer, the request was lost"));
            }
        }
        // A real server does many things at once, and is not looked into.
        let server = world.store().map(|_| locked(&world.server));
        let answer = operate(Arrival { world, life: &self.life, store: &*self.store, server });
        if fate.reply == Trip::Lost {
            world.clock.sleep(patience(world));
            self.stand_still();
            return Err(unavailable("no answer, the reply was lost"));
        }
        if !fate.back.is_zero() {
            let late = fate.back > patience(world);
            world.clock.sleep(fate.back.min(patience(world)));
            self.stand_still();
            if late {
                return Err(unavailable("no answer in time"));
            }
        }
        answer
    }

    /// What the next call of a thread for tasks suffers.
    fn hurt_of_tasks(&self) -> Option<Hurt> {
        let is_for_tasks = thread::current().name() == Some("fairlock-tasks");
        is_for_tasks.then(|| locked(&self.life.fate).hurt_of_tasks.take()).flatten()
    }

    /// Counts the call, and puts a brake on a loop in which no time passes, so that the run comes to its end.
    fn count(&self, operation: &str) -> u64 {
        let now = self.world.now();
        let mut state = locked(&self.life.fate);
        state.in_minute += 1;
        if state.at_moment.0 != now {
            state.at_moment = (now, 0);
        }
        state.at_moment.1 += 1;
        let nth = state.at_moment.1;
        drop(state);
        if nth > SPIN {
            if nth == SPIN + 1 {
                let what = format!("{} makes {SPIN} calls at one moment, the last is {operation}", self.life);
                self.world.found(Promise::Noise, what);
            }
            self.world.clock.sleep(Duration::from_secs(1));
        }
        nth
    }

    fn stand_still(&self) {
        while let Some(until) = self.world.weather.stopped_until(self.life.client, self.world.now()) {
            self.world.sleep_until(until);
        }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.note(format_args!("  {} {what}", self.life));
    }
}

/// Its lock and owner.
fn key_of(place: &Place<'_>) -> (String, String) {
    (place.lock.name.as_str().to_owned(), place.owner.as_str().to_owned())
}

fn unavailable(what: &str) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, what)
}

/// It tells no response time-out: here leases may be shorter than a client can be built with beside a real server.
impl Backend for Link {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Answer<Acquired>> {
        let about: Vec<_> = asks.iter().map(|ask| ask.place).collect();
        ASKED.set(about.last().map(key_of));
        about.iter().for_each(|place| self.asks(place));
        let message = || Message::Acquire(asks.iter().map(late::ask).collect());
        self.together(&about, "acquire", message, |mut arrival| {
            // The oracle looks after each step.
            let step = |ask| {
                let answer = arrival.acquire(ask);
                self.learns(ask, &answer);
                answer
            };
            asks.iter().map(step).collect()
        })
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Answer<Released>> {
        let message = || Message::Release(holds.iter().map(late::hold).collect());
        let answers = self.travel("release", message, |mut arrival| {
            // The oracle looks after each step.
            Ok(holds.iter().map(|hold| arrival.release(hold)).collect())
        });
        answers.unwrap_or_else(|error| vec![Err(error); holds.len()])
    }

    fn adopt(&self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Answer<Renewal> {
        let message = || Message::Adopt(late::hold(hold), owner.clone(), lease);
        self.travel("adopt", message, |mut arrival| arrival.adopt(hold, owner, lease))
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Answer<Renewal>> {
        let message = || Message::Renew(client, items.iter().map(late::item).collect());
        let answers = self.travel("renew", message, |mut arrival| Ok(arrival.renew(client, items)));
        let answers = answers.unwrap_or_else(|error| vec![Err(error); items.len()]);
        for (item, answer) in items.iter().zip(&answers) {
            if let Renew::Place { place, .. } = item {
                self.answered(place, answer.is_ok());
            }
        }
        answers
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Answer<Withdrawn>> {
        let message = || Message::Withdraw(places.iter().map(late::place).collect());
        self.together(places, "withdraw", message, |mut arrival| {
            // The oracle looks after each step.
            places.iter().map(|place| arrival.withdraw(place)).collect()
        })
    }

    fn force_release(&self, lock: &LockId) -> Answer<ForceReleased> {
        let message = || Message::ForceRelease(lock.clone());
        self.travel("force_release", message, |mut arrival| arrival.force_release(lock))
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Answer<ForceReleased> {
        let message = || Message::TakeHold(late::hold(hold));
        self.travel("take_hold", message, |mut arrival| arrival.take_hold(hold))
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Answer<LockState> {
        self.travel("inspect", || Message::Inspect, |arrival| arrival.store.inspect(lock, part))
    }

    fn supports(&self, kind: LockKind) -> bool {
        self.store.supports(kind)
    }

    fn attempt_ttl(&self) -> Option<Duration> {
        match self.world.store() {
            Some(_) => Some(self.world.weather.attempt_ttl()),
            None => self.store.attempt_ttl(),
        }
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Answer<Subscription> {
        self.world.introduce(&self.life, client);
        locked(&self.life.fate).sink = Some(Arc::clone(&sink));
        self.store
            .subscribe(client, Arc::new(Ear { world: Arc::clone(&self.world), life: Arc::clone(&self.life) }))
    }
}
