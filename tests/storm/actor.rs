//! A thread of the program: makes its calls when their time has come, and judges what each returns.

use std::sync::Arc;
use std::time::Duration;

use fairlock::{Cancel, Error, FencingToken, Lock, Result};

use crate::in_hand::{AnyGuard, Pending, call, get, handle, owner_of, shut_down};
use crate::judge;
use crate::life::Life;
use crate::link;
use crate::program::{Ask, End, Terms, Wait, What};
use crate::server::name_of;
use crate::world::{Limit, Promise, Using, World, locked};

/// Where an actor may not wait without limit, since others may wait for what it has, it waits for so long; with a real
/// clock for a tenth of it.
const CAREFUL: Duration = Duration::from_secs(20);

pub struct Actor {
    world: Arc<World>,
    number: usize,
    client: usize,
    guards: Vec<Guard>,
    requests: Vec<Request>,
    leaks: Vec<Leak>,
}

// Fields are dropped in this order: the client's user last.
struct Guard {
    guard: AnyGuard,
    ask: Ask,
    token: FencingToken,
    using: Using,
}

struct Request {
    request: Pending,
    ask: Ask,
    since: Duration,
    cancel: Cancel,
    owner: String,
    using: Using,
}

struct Leak {
    ask: Ask,
    token: FencingToken,
    life: Arc<Life>,
}

impl Leak {
    /// Whether one `unlock` may take either.
    fn is_like(&self, other: &Leak) -> bool {
        (self.ask.lock, self.ask.owner) == (other.ask.lock, other.ask.owner)
            && Arc::ptr_eq(&self.life, &other.life)
    }
}

impl Actor {
    pub fn new(world: Arc<World>, number: usize) -> Actor {
        let client = world.program.actors[number].client;
        Actor { world, number, client, guards: Vec::new(), requests: Vec::new(), leaks: Vec::new() }
    }

    /// All its calls, and then it gives up what it has.
    pub fn run(mut self) {
        let world = Arc::clone(&self.world);
        for op in world.program.actors[self.number].ops.clone() {
            if op.at > world.now() && !world.is_over() {
                world.sleep_until(op.at);
            }
            while let Some(until) = world.weather.stopped_until(self.client, world.now()) {
                world.sleep_until(until);
            }
            if world.is_over() {
                break;
            }
            link::hurt_next(op.hurt);
            self.act(op.what);
            link::hurt_next(None);
        }
        while !self.requests.is_empty() {
            self.act(What::Withdraw { request: 0 });
        }
        while !self.guards.is_empty() {
            let end = if self.guards.len().is_multiple_of(2) { End::Drop } else { End::Unlock };
            self.act(What::GiveBack { guard: 0, end });
        }
        while !self.leaks.is_empty() {
            self.act(What::Unleak { nth: 0 });
        }
        world.note(format_args!("a{} has ended", self.number));
    }

    fn act(&mut self, what: What) {
        let guards = self.guards.len().max(1);
        let requests = self.requests.len().max(1);
        match what {
            What::Take { ask, wait, listens } => self.take(ask, wait, listens),
            What::GiveBack { guard, end } if !self.guards.is_empty() => {
                let guard = self.guards.remove(guard % guards);
                self.give_back(guard, end);
            }
            What::Unleak { nth } if !self.leaks.is_empty() => {
                let chosen = &self.leaks[nth % self.leaks.len()];
                // An `unlock` takes the hold that lives, which is the newest of its owner.
                let like = self.leaks.iter().enumerate().filter(|(_, leak)| leak.is_like(chosen));
                let (newest, _) = like.max_by_key(|(_, leak)| leak.token).expect("the chosen one");
                let leak = self.leaks.remove(newest);
                self.unleak(&leak);
            }
            What::Bump { guard } if !self.guards.is_empty() => self.bump(guard % guards),
            What::Renew { guard } if !self.guards.is_empty() => self.renew(guard % guards),
            What::Outlive { guard } if !self.guards.is_empty() => self.outlive(guard % guards),
            What::Request { ask } => self.request(ask),
            What::Await { request, wait } if !self.requests.is_empty() => {
                self.wait_on(request % requests, wait)
            }
            What::Withdraw { request } if !self.requests.is_empty() => {
                let Request { request, ask, owner, using, .. } = self.requests.remove(request % requests);
                let ends = || locked(&self.world.holds).request_ends(&using.life, &name_of(ask.lock), &owner);
                ends();
                self.call(format!("drop request {ask}"), &using.life, Limit::AtOnce, &Cancel::new(), || {
                    drop(request);
                });
                if self.world.manual().is_none() {
                    ends(); // its hold may have been seen only now
                }
            }
            What::Cancel { actor } => {
                self.say(format_args!("cancels a{actor}"));
                let mut cancel = locked(&self.world.cancels[actor]);
                cancel.1.get_or_insert(self.world.now());
                cancel.0.cancel();
            }
            What::Force { lock } => {
                self.operate(lock, "force_unlock", |lock| lock.force_unlock().map(|_| ()));
            }
            What::Kick { lock, nth } => self.operate(lock, "kick", |lock| {
                let line = lock.inspect()?.line;
                let Some(waiter) = line.get(nth % line.len().max(1)) else { return Ok(()) };
                lock.kick(waiter).map(|_| ())
            }),
            What::Look { lock } => self.operate(lock, "inspect", |lock| {
                lock.is_locked()?;
                lock.inspect().map(|_| ())
            }),
            What::Shutdown => self.shutdown(),
            What::DropClient => {
                self.say(format_args!("drops its client"));
                self.world.drop_client(self.client);
            }
            What::Restart => self.world.restart(self.client),
            _ => {}
        }
    }

    fn take(&mut self, ask: Ask, wait: Wait, listens: bool) {
        let Some(using) = self.world.client(self.client) else { return };
        let wait = self.patience(ask, wait, &using.life);
        let cancel = self.cancel();
        let life = Arc::clone(&using.life);
        self.forget_answers(&using, ask);
        let limit = match wait {
            Wait::No => Limit::AtOnce,
            Wait::UpTo(time) => Limit::Timed(time),
            Wait::Forever => Limit::Patient,
        };
        let what = What::Take { ask, wait, listens }.to_string();
        let began = self.world.now();
        let until = if let Wait::UpTo(time) = wait { began + time } else { began };
        let got = self.call(what, &life, limit, &cancel, || {
            let lock = handle(&using, ask)?.cancelled_by(&cancel);
            match ask.owner.and_then(|owner| life.owner(owner)) {
                Some(owner) => Ok(get(&lock.owned_by(owner)?, wait)?.map(AnyGuard::Owned)),
                None => Ok(get(&lock, wait)?.map(AnyGuard::Thread)),
            }
        });
        match got {
            Ok(Some(guard)) => self.keep(guard, ask, using, listens),
            Ok(None) => {
                self.world.count("take: none");
                if let Ok(owner) = owner_of(&using, ask) {
                    judge::busy(&self.world, &life, (&name_of(ask.lock), &owner), began, until);
                }
            }
            Err(error) => self.judge(&error, began, &life, &cancel, "take"),
        }
    }

    fn request(&mut self, ask: Ask) {
        let Some(using) = self.world.client(self.client) else { return };
        let cancel = self.cancel();
        let (life, began) = (Arc::clone(&using.life), self.world.now());
        self.forget_answers(&using, ask);
        let got = self.call(What::Request { ask }.to_string(), &life, Limit::AtOnce, &cancel, || {
            let lock = handle(&using, ask)?.cancelled_by(&cancel);
            let name = owner_of(&using, ask)?;
            let request = match ask.owner.and_then(|owner| life.owner(owner)) {
                Some(owner) => Pending::Owned(lock.owned_by(owner)?.request()?),
                None => Pending::Thread(lock.request()?),
            };
            Ok((request, name))
        });
        match got {
            Ok((request, owner)) => {
                self.world.count("requests");
                self.requests.push(Request { request, ask, since: began, cancel, owner, using });
            }
            Err(error) => self.judge(&error, began, &life, &cancel, "request"),
        }
    }

    fn wait_on(&mut self, number: usize, wait: Wait) {
        let Request { request, ask, since, cancel, owner, using } = self.requests.remove(number);
        let wait = self.patience(ask, wait, &using.life);
        let life = Arc::clone(&using.life);
        let limit = match wait {
            Wait::No => Limit::AtOnce,
            Wait::UpTo(time) => Limit::Timed(time),
            Wait::Forever => Limit::Patient,
        };
        self.forget_answers(&using, ask);
        let what = format!("await {wait:?} {ask}");
        let time = match wait {
            Wait::No => Duration::ZERO,
            Wait::UpTo(time) => time,
            Wait::Forever => Duration::MAX,
        };
        let got = self.call(what, &life, limit, &cancel, || match (request, wait) {
            (Pending::Thread(request), Wait::Forever) => Ok((Some(AnyGuard::Thread(request.wait()?)), None)),
            (Pending::Owned(request), Wait::Forever) => Ok((Some(AnyGuard::Owned(request.wait()?)), None)),
            (Pending::Thread(mut request), _) => {
                let guard = request.wait_for(time)?.guard();
                Ok((guard.map(AnyGuard::Thread), Some(Pending::Thread(request))))
            }
            (Pending::Owned(mut request), _) => {
                let guard = request.wait_for(time)?.guard();
                Ok((guard.map(AnyGuard::Owned), Some(Pending::Owned(request))))
            }
        });
        match got {
            Ok((Some(guard), _)) => self.keep(guard, ask, using, false),
            Ok((None, Some(request))) => {
                self.requests.push(Request { request, ask, since, cancel, owner, using });
            }
            Ok((None, None)) => {}
            Err(error) => {
                locked(&self.world.holds).request_ends(&life, &name_of(ask.lock), &owner);
                // It may have failed long before a caller waited on it.
                self.judge(&error, since, &life, &cancel, "await");
            }
        }
    }

    /// What is known of what this owner asked for before is of no interest any more.
    fn forget_answers(&self, using: &Using, ask: Ask) {
        let Ok(owner) = owner_of(using, ask) else { return };
        let key = (name_of(ask.lock), owner);
        let joins = using
            .client
            .waiting()
            .iter()
            .any(|waiting| waiting.lock.as_str() == key.0 && waiting.owner.as_str() == key.1);
        let mut fate = locked(&using.life.fate);
        fate.answered.remove(&key);
        if !joins {
            fate.kinds.insert(key, ask.kind);
        }
    }

    fn keep(&mut self, guard: AnyGuard, ask: Ask, using: Using, listens: bool) {
        let (token, owner) = (guard.token(), guard.owner());
        self.world.count("guards");
        self.say(format_args!("has {ask}, token {token}"));
        let mut holds = locked(&self.world.holds);
        holds.guard_made(&using.life, &name_of(ask.lock), &owner, token);
        if listens {
            holds.listens(&name_of(ask.lock), token, guard.lost());
        }
        drop(holds);
        self.guards.push(Guard { guard, ask, token, using });
    }

    fn give_back(&mut self, guard: Guard, end: End) {
        let Guard { guard, ask, token, using } = guard;
        let (life, began) = (Arc::clone(&using.life), self.world.now());
        let lock = name_of(ask.lock);
        if end == End::Leak {
            self.world.count("leaks");
            self.say(format_args!("leaks {ask}, token {token}"));
            guard.leak();
            self.leaks.push(Leak { ask, token, life });
            return;
        }
        let was_told = locked(&self.world.holds).guard_ends(&lock, token);
        let what = format!("{end:?} {ask}, token {token}");
        let result = self.call(what, &life, Limit::AtOnce, &Cancel::new(), || match end {
            End::Unlock => guard.unlock(),
            End::Drop | End::Leak => {
                drop(guard);
                Ok(())
            }
        });
        if end == End::Unlock {
            judge::end(&self.world, result, (&lock, token), began, &life, was_told);
        }
    }

    fn unleak(&mut self, leak: &Leak) {
        let Leak { ask, token, life } = leak;
        let Some(using) = self.world.using(life) else { return };
        let (lock, began) = (name_of(ask.lock), self.world.now());
        let was_told = locked(&self.world.holds).guard_ends(&lock, *token);
        let what = format!("unlock leaked {ask}, token {token}");
        let result = self.call(what, life, Limit::AtOnce, &Cancel::new(), || {
            let handle = handle(&using, *ask)?;
            match ask.owner.and_then(|owner| life.owner(owner)) {
                Some(owner) => handle.owned_by(owner)?.unlock(),
                None => handle.unlock(),
            }
        });
        match result {
            // What was lost may have been replaced by a new hold of the same owner, or forgotten.
            Err(Error::NotHeld { .. } | Error::Lost(_)) if was_told => {}
            Err(Error::Shutdown { .. }) if life.is_shut_down() => {}
            Ok(()) if was_told => {}
            result => judge::end(&self.world, result, (&lock, *token), began, life, was_told),
        }
    }

    fn bump(&mut self, number: usize) {
        let is_highest = |lock: usize| {
            let others = self.guards.iter().enumerate().filter(|(other, _)| *other != number);
            others.map(|(_, guard)| guard.ask.lock).chain(self.others()).all(|other| other < lock)
        };
        if !is_highest(self.guards[number].ask.lock) {
            return;
        }
        let Guard { mut guard, ask, token, using } = self.guards.remove(number);
        let (life, began, lock) = (Arc::clone(&using.life), self.world.now(), name_of(ask.lock));
        let owner = guard.owner();
        let is_last = locked(&self.world.holds).guard_bumps(&lock, token);
        let result =
            self.call(format!("bump {ask}, token {token}"), &life, Limit::Patient, &Cancel::new(), || {
                guard.bump()
            });
        match result {
            Ok(()) => {
                let new = guard.token();
                self.world.count(if new == token { "bump: held twice" } else { "bump: back again" });
                self.say(format_args!("has bumped {ask}, token {token}, now {new}"));
                locked(&self.world.holds).bumped(&life, &lock, &owner, token, new, is_last);
                self.guards.push(Guard { guard, ask, token: new, using });
            }
            Err(error) => {
                locked(&self.world.holds).bump_failed(&lock, token);
                self.judge(&error, began, &life, &Cancel::new(), "bump");
            }
        }
    }

    fn renew(&mut self, number: usize) {
        let Guard { guard, ask, token, using } = self.guards.remove(number);
        let (life, began) = (Arc::clone(&using.life), self.world.now());
        let what = format!("renew {ask}, token {token}");
        let result = self.call(what, &life, Limit::AtOnce, &Cancel::new(), || guard.renew());
        match result {
            Ok(left) if left.is_zero() => {
                self.world.found(Promise::Answer, format!("renew of {ask}, token {token}, says Ok(0 s)"));
            }
            Ok(_) => {}
            Err(error) => self.judge(&error, began, &life, &Cancel::new(), "renew"),
        }
        self.guards.push(Guard { guard, ask, token, using });
    }

    /// Others may ask, too, at the moment at which its hold is over, and before it is told of the loss.
    fn outlive(&mut self, number: usize) {
        let ask = self.guards[number].ask;
        if ask.terms == Terms::Renewed {
            return;
        }
        let left = self.guards[number].guard.valid_for();
        self.world.clock.sleep(left);
        self.take(ask, Wait::No, true);
    }

    fn operate(&self, lock: usize, what: &str, act: impl FnOnce(&Lock) -> Result<()>) {
        let Some(using) = self.world.client(self.client) else { return };
        let began = self.world.now();
        let none = Cancel::new();
        let result = self.call(format!("{what} L{lock}"), &using.life, Limit::AtOnce, &none, || {
            act(&using.client.fair_lock(&name_of(lock))?)
        });
        if let Err(error) = result {
            self.judge(&error, began, &using.life, &none, what);
        }
    }

    fn shutdown(&self) {
        let Some(using) = self.world.client(self.client) else { return };
        shut_down(&self.world, &using, self.number);
    }

    /// Calls, and the call can be seen meanwhile.
    fn call<T>(
        &self,
        what: String,
        life: &Arc<Life>,
        limit: Limit,
        cancel: &Cancel,
        act: impl FnOnce() -> T,
    ) -> T {
        call(&self.world, self.number, what, life, limit, cancel, act)
    }

    fn judge(&self, error: &Error, began: Duration, life: &Arc<Life>, cancel: &Cancel, what: &str) {
        self.say(format_args!("hears from {what}: {error}"));
        self.world.count(&format!("{what}: {}", judge::kind(error)));
        judge::error(&self.world, error, began, life, cancel, what);
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.world.note(format_args!("a{} {what}", self.number));
    }

    /// What its requests and leaks keep from others.
    fn others(&self) -> impl Iterator<Item = usize> {
        let requests = self.requests.iter().map(|request| request.ask.lock);
        requests.chain(self.leaks.iter().map(|leak| leak.ask.lock))
    }

    /// A wait without limit only where no circle can come of it: for a lock above all that it has, or for one that it
    /// has as this owner and nothing above it.
    fn patience(&self, ask: Ask, wait: Wait, life: &Arc<Life>) -> Wait {
        if wait != Wait::Forever {
            return wait;
        }
        let has = self.guards.iter().map(|guard| {
            let again = guard.ask.owner == ask.owner && Arc::ptr_eq(&guard.using.life, life);
            (guard.ask.lock, again)
        });
        let mut all = has.chain(self.others().map(|lock| (lock, false)));
        if all.all(|(lock, again)| lock < ask.lock || lock == ask.lock && again) {
            return Wait::Forever;
        }
        Wait::UpTo(if self.world.manual().is_some() { CAREFUL } else { CAREFUL / 10 })
    }

    /// The one that is not cancelled yet.
    fn cancel(&self) -> Cancel {
        let mut cancel = locked(&self.world.cancels[self.number]);
        if cancel.0.is_cancelled() {
            *cancel = (Cancel::new(), None);
        }
        cancel.0.clone()
    }
}
