//! The way between one client and the server: calls and wake-ups suffer the program's faults, and the server's side of
//! each is recorded.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, HoldCountSet, LockId,
    LockState, Place, Released, Renew, Renewal, Subscription, Wake, WakeSink, Withdrawn,
};
use fairlock::{ClientId, OwnerId};

use crate::life::{Letter, Life};
use crate::program::Hurt;
use crate::server::Server;
use crate::weather::Trip;
use crate::world::{Promise, World, locked};

/// More calls of one client at one moment are a loop that no time passes in.
const SPIN: u64 = 500;

thread_local!(static HURT: Cell<Option<Hurt>> = const { Cell::new(None) });

/// The next call of this thread suffers so, or none does.
pub fn hurt_next(hurt: Option<Hurt>) {
    HURT.set(hurt);
}

type Answer<T> = Result<T, BackendError>;

pub struct Link {
    world: Arc<World>,
    life: Arc<Life>,
    store: Arc<dyn Backend>,
}

impl Link {
    pub fn new(world: Arc<World>, life: Arc<Life>, store: Arc<dyn Backend>) -> Link {
        Link { world, life, store }
    }

    /// Carries a call out as far as the faults let it. `about`: lock and owner.
    fn call<T>(
        &self,
        operation: &'static str,
        about: Option<(&str, &str)>,
        operate: impl FnOnce(&dyn Backend, Option<&mut Server>) -> Answer<T>,
    ) -> Answer<T> {
        let answer = self.travel(operation, operate);
        if let Some((lock, owner)) = about {
            self.answered(lock, owner, answer.is_ok());
        }
        answer
    }

    /// Carries a call about many requests out: it arrives as a whole, and so do its answers.
    fn together<T>(
        &self,
        about: &[(LockId, OwnerId)],
        operation: &'static str,
        operate: impl FnOnce(&dyn Backend, Option<&mut Server>) -> Vec<Answer<T>>,
    ) -> Vec<Answer<T>> {
        let answers = match self.travel(operation, |store, server| Ok(operate(store, server))) {
            Ok(answers) => answers,
            Err(error) => about.iter().map(|_| Err(error.clone())).collect(),
        };
        for ((lock, owner), answer) in about.iter().zip(&answers) {
            self.answered(lock.name.as_str(), owner.as_str(), answer.is_ok());
        }
        answers
    }

    fn answered(&self, lock: &str, owner: &str, is_answered: bool) {
        let now = self.world.now();
        let mut state = locked(&self.life.fate);
        let entry = state.answered.entry((lock.to_owned(), owner.to_owned())).or_default();
        if is_answered {
            *entry = (Some(now), None);
        } else {
            entry.1.get_or_insert(now);
        }
    }

    fn asked(&self, ask: &Acquire<'_>, answer: &Acquired, server: Option<&mut Server>) {
        let Place { lock, owner, request, .. } = ask.place;
        self.note(format_args!("asks for {} as {request}: {answer:?}", lock.name));
        let knows_when = matches!(answer, Acquired::Queued { recheck_in, .. } if *recheck_in < Duration::MAX);
        let key = (lock.name.as_str().to_owned(), owner.as_str().to_owned());
        locked(&self.life.fate).knows_when.insert(key, knows_when);
        if let Some(server) = server {
            server.asked(&self.world, &self.life, ask, answer);
        }
    }

    fn withdrawn(&self, place: &Place<'_>, answer: &Withdrawn, server: Option<&mut Server>) {
        let whose = self.world.name_of(place.owner.as_str());
        self.note(format_args!("withdraws {} of {whose} for {}: {answer:?}", place.request, place.lock.name));
        if let Some(server) = server {
            server.withdrawn(&self.world, place);
        }
    }

    fn travel<T>(
        &self,
        operation: &'static str,
        operate: impl FnOnce(&dyn Backend, Option<&mut Server>) -> Answer<T>,
    ) -> Answer<T> {
        let nth = self.count(operation);
        self.stand_still();
        let world = &self.world;
        let response = world.program.response;
        let sent = world.now();
        let mut fate = world.weather.fate(self.life.client, operation, sent, nth);
        if let Some(hurt) = HURT.take() {
            world.weather.hurt(self.life.client, sent);
            match hurt {
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
            Trip::Lost => {
                world.clock.sleep(patience(world));
                self.stand_still();
                return Err(unavailable("no answer, the request was lost"));
            }
        }
        // A real server does many things at once, and is not looked into.
        let answer = match world.store() {
            Some(_) => operate(&*self.store, Some(&mut *locked(&world.server))),
            None => operate(&*self.store, None),
        };
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

fn unavailable(what: &str) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, what)
}

/// It tells no response time-out: here leases may be shorter than a client can be built with beside a real server.
impl Backend for Link {
    fn acquire(&self, ask: &Acquire<'_>) -> Answer<Acquired> {
        let Place { lock, owner, .. } = ask.place;
        self.call("acquire", Some((lock.name.as_str(), owner.as_str())), |store, server| {
            let answer = store.acquire(ask)?;
            self.asked(ask, &answer, server);
            Ok(answer)
        })
    }

    fn acquire_all(&self, asks: &[Acquire<'_>]) -> Vec<Answer<Acquired>> {
        let about = |ask: &Acquire<'_>| (ask.place.lock.clone(), ask.place.owner.clone());
        self.together(&asks.iter().map(about).collect::<Vec<_>>(), "acquire", |store, mut server| {
            // The oracle looks after each step.
            let mut step = |ask| {
                let answer = store.acquire(ask)?;
                self.asked(ask, &answer, server.as_deref_mut());
                Ok(answer)
            };
            asks.iter().map(&mut step).collect()
        })
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Answer<HoldCountSet> {
        self.call("set_hold_count", None, |store, server| {
            let answer = store.set_hold_count(hold, holds)?;
            if let Some(server) = server {
                server.observe(&self.world, hold.lock);
            }
            Ok(answer)
        })
    }

    fn release(&self, hold: &Hold<'_>) -> Answer<Released> {
        self.call("release", None, |store, server| {
            let answer = store.release(hold)?;
            self.note(format_args!("releases {}: {answer:?}", hold.lock.name));
            if let Some(server) = server {
                server.released(&self.world, hold);
            }
            Ok(answer)
        })
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Answer<Renewal>> {
        let answer = self.call("renew", None, |store, server| {
            let answers = store.renew(client, items).into_iter().collect::<Answer<Vec<_>>>()?;
            let Some(server) = server else { return Ok(answers) };
            for (item, answer) in items.iter().zip(&answers) {
                server.renewed(&self.world, &self.life, item, answer);
            }
            Ok(answers)
        });
        for item in items {
            if let Renew::Place { place, .. } = item {
                self.answered(place.lock.name.as_str(), place.owner.as_str(), answer.is_ok());
            }
        }
        match answer {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); items.len()],
        }
    }

    fn withdraw(&self, place: &Place<'_>) -> Answer<Withdrawn> {
        let about = Some((place.lock.name.as_str(), place.owner.as_str()));
        self.call("withdraw", about, |store, server| {
            let answer = store.withdraw(place)?;
            self.withdrawn(place, &answer, server);
            Ok(answer)
        })
    }

    fn withdraw_all(&self, places: &[Place<'_>]) -> Vec<Answer<Withdrawn>> {
        let about = |place: &Place<'_>| (place.lock.clone(), place.owner.clone());
        self.together(&places.iter().map(about).collect::<Vec<_>>(), "withdraw", |store, mut server| {
            // The oracle looks after each step.
            let mut step = |place| {
                let answer = store.withdraw(place)?;
                self.withdrawn(place, &answer, server.as_deref_mut());
                Ok(answer)
            };
            places.iter().map(&mut step).collect()
        })
    }

    fn kick(&self, place: &Place<'_>) -> Answer<Withdrawn> {
        self.call("kick", None, |store, server| {
            let answer = store.kick(place)?;
            let whose = self.world.name_of(place.owner.as_str());
            self.note(format_args!("kicks {} of {whose} for {}: {answer:?}", place.request, place.lock.name));
            if let Some(server) = server {
                server.withdrawn(&self.world, place);
            }
            Ok(answer)
        })
    }

    fn force_release(&self, lock: &LockId) -> Answer<ForceReleased> {
        self.call("force_release", None, |store, server| {
            let mut server = server;
            if let Some(server) = &mut server {
                server.will_be_forced(&self.world, lock);
            }
            // Before it and after it: the server may do it late, or without an answer.
            self.world.force(&lock.name);
            let answer = store.force_release(lock);
            self.world.force(&lock.name);
            let answer = answer?;
            self.note(format_args!("forces {}: {answer:?}", lock.name));
            if let Some(server) = server {
                server.observe(&self.world, lock);
            }
            Ok(answer)
        })
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Answer<LockState> {
        self.call("inspect", None, |store, _| store.inspect(lock, part))
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Answer<Subscription> {
        self.world.introduce(&self.life, client);
        locked(&self.life.fate).sink = Some(Arc::clone(&sink));
        self.store
            .subscribe(client, Arc::new(Ear { world: Arc::clone(&self.world), life: Arc::clone(&self.life) }))
    }
}

/// Takes the wake-ups of a client, and delivers what the faults leave of them.
struct Ear {
    world: Arc<World>,
    life: Arc<Life>,
}

impl WakeSink for Ear {
    fn wake(&self, wake: Wake<'_>) {
        let now = self.world.now();
        let letter = Letter::of(wake);
        let mut state = locked(&self.life.fate);
        state.wake_ups += 1;
        let nth = state.wake_ups;
        let late = match letter {
            Letter::Gap => Some(Duration::ZERO), // made by the driver, when a cut is over
            _ => self.world.weather.wake_up(self.life.client, now, nth),
        };
        let Some(late) = late else {
            state.missed = true;
            drop(state);
            return self.world.note(format_args!("  {} does not hear {letter:?}", self.life));
        };
        let stopped = self.world.weather.stopped_until(self.life.client, now);
        let at = (now + late).max(stopped.unwrap_or_default());
        if at > now {
            // In the order in which they were sent, as on one connection.
            let at = state.mail.back().map_or(at, |(before, _)| at.max(*before));
            state.mail.push_back((at, letter));
            return;
        }
        let sink = state.sink.clone();
        let waiting = state.mail.back().map(|(before, _)| *before);
        if let Some(before) = waiting {
            state.mail.push_back((before, letter));
            return;
        }
        drop(state);
        self.world.note(format_args!("  {} hears {letter:?}", self.life));
        if let Some(sink) = sink {
            letter.deliver(&*sink);
        }
    }
}
