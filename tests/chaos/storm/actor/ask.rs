//! How an actor asks for locks: it waits, or leaves a request; for one lock or for several at once.

use std::sync::Arc;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::admin::LockKind;

use super::{Actor, Guard, Request};
use crate::bounds::Limit;
use crate::handles::{Handle, get_all, get_all_as_task};
use crate::in_hand::{AnyGuard, asked_as, begin_as_task, owner_of, thread_owner};
use crate::judge::{self, Reasons};
use crate::life::Life;
use crate::link;
use crate::program::{Ask, Several, Terms, Wait, What};
use crate::server::name_of;
use crate::world::{Promise, Using, locked};

impl Wait {
    pub(super) fn limit(self) -> Limit {
        match self {
            Wait::No => Limit::AtOnce,
            Wait::UpTo(time) => Limit::Timed(time),
            Wait::Forever => Limit::Patient,
        }
    }

    /// When it is over, for "busy".
    fn until(self, began: Duration) -> Duration {
        if let Wait::UpTo(time) = self { began + time } else { began }
    }
}

impl Actor {
    pub(super) fn take(&mut self, ask: Ask, wait: Wait, listens: bool) {
        let Some(using) = self.world.client(self.client) else { return };
        let wait = self.patience(ask, wait, &using.life);
        let cancel = self.cancel();
        let life = Arc::clone(&using.life);
        self.forget_answers(&using, ask);
        let what = format!("{:?}", What::Take { ask, wait, listens });
        let began = self.world.now();
        let got = self.call(what, &life, wait.limit(), &cancel, || {
            Handle::of(&using, ask, &cancel)?.get(&self.world, ask, wait)
        });
        match got {
            Ok(Some(guard)) => self.keep(guard, ask, using, listens),
            Ok(None) => {
                self.world.count("take: none");
                self.is_busy(&using, ask, began, wait);
            }
            Err(error) => self.judge(&error, (began, &cancel), &life, "take", self.reasons(ask)),
        }
    }

    /// The caller was told that it is busy.
    pub(super) fn is_busy(&self, using: &Using, ask: Ask, began: Duration, wait: Wait) {
        if let Some(owner) = asked_as(using, ask) {
            let about = (&*name_of(ask.lock), &*owner);
            judge::busy(&self.world, &using.life, about, began, wait.until(began));
        }
    }

    /// All of these locks, or none. A task may drop the future after some time.
    pub(super) fn take_all(
        &mut self,
        locks: Several,
        wait: Wait,
        listens: bool,
        (by_task, dropped): (bool, Option<Duration>),
    ) {
        let Some(using) = self.world.client(self.client) else { return };
        // Each hold of a task has its own owner.
        let owner = if by_task { None } else { thread_owner(&using).ok() };
        if owner.is_none() && !by_task {
            return;
        }
        let wait = self.patience_for_all(locks, wait);
        let (life, began, cancel) = (Arc::clone(&using.life), self.world.now(), CancelToken::new());
        let asks = locks.iter().map(|lock| Ask {
            lock,
            kind: LockKind::Fair,
            units: 1,
            terms: Terms::Renewed,
            owner: None,
            by_task,
            unless: None,
        });
        let asks: Vec<Ask> = asks.collect();
        asks.iter().for_each(|ask| self.forget_answers(&using, *ask));
        let names: Vec<String> = locks.iter().map(name_of).collect();
        locked(&self.world.holds).collects(&life, self.number, owner.clone(), &names);
        let what = format!("{:?}", What::TakeAll { locks, wait, listens, by_task, dropped });
        let got = self.call(what, &life, wait.limit(), &cancel, || {
            if !by_task {
                return get_all(&using.client, locks, wait);
            }
            let client = using.client.to_async();
            let future = get_all_as_task(&client, locks, wait);
            self.await_or_drop(&life, &names, future, dropped).unwrap_or(Ok(None))
        });
        let misuse = !by_task && self.has_as_thread().any(|lock| locks.iter().any(|other| other == lock));
        match got {
            Ok(Some(guard)) => {
                self.world.count("lock_all: guards");
                self.keep(guard, asks[0], using, listens);
                return locked(&self.world.holds).has_collected(self.number);
            }
            Ok(None) => {
                self.world.count("lock_all: none");
                // The one that was asked for last was busy.
                if let (Some(owner), Some((lock, asker))) = (&owner, link::asked_last())
                    && asker == *owner
                {
                    judge::busy(&self.world, &life, (&lock, owner), began, wait.until(began));
                }
            }
            Err(error) => {
                let mismatch = locks.iter().any(|lock| self.world.program.mixes(lock));
                let reasons = Reasons { lost: true, misuse, mismatch };
                self.judge(&error, (began, &cancel), &life, "lock_all", reasons);
            }
        }
        locked(&self.world.holds).has_collected(self.number);
        if let Some(owner) = owner {
            self.has_none_more(&using, &owner, locks);
        }
    }

    /// After a failed call for several locks the thread holds what it held before, and no more.
    fn has_none_more(&self, using: &Using, owner: &str, locks: Several) {
        for hold in using.client.held() {
            let Some(lock) = locks.iter().find(|lock| name_of(*lock) == hold.lock.as_str()) else { continue };
            let has = self.has_as_thread().filter(|other| *other == lock).count();
            if hold.owner.as_str() == owner && hold.hold_count as usize > has {
                let what = format!(
                    "{}: lock_all failed, and {} has it {} times instead of {has}",
                    hold.lock,
                    self.world.name_of(owner),
                    hold.hold_count
                );
                self.world.found(Promise::Answer, what);
            }
        }
    }

    pub(super) fn request(&mut self, ask: Ask) {
        let Some(using) = self.world.client(self.client) else { return };
        let cancel = self.cancel();
        let (life, began) = (Arc::clone(&using.life), self.world.now());
        self.forget_answers(&using, ask);
        let got = self.call(format!("{:?}", What::Request(ask)), &life, Limit::AtOnce, &cancel, || {
            let handle = Handle::of(&using, ask, &cancel)?;
            if ask.by_task {
                let (begun, owner) = begin_as_task(&using, || handle.request(&self.world, ask));
                return Ok((begun?, owner));
            }
            Ok((handle.request(&self.world, ask)?, asked_as(&using, ask)))
        });
        match got {
            Ok((request, owner)) => {
                self.world.count("requests");
                self.requests.push(Request { request, ask, since: began, cancel, owner, using });
            }
            Err(error) => self.judge(&error, (began, &cancel), &life, "request", self.reasons(ask)),
        }
    }

    pub(super) fn wait_on(&mut self, number: usize, wait: Wait) {
        let Request { request, ask, since, cancel, owner, using } = self.requests.remove(number);
        let wait = self.patience(ask, wait, &using.life);
        let life = Arc::clone(&using.life);
        self.forget_answers(&using, ask);
        let what = format!("await {wait:?} {ask:?}");
        let got = self.call(what, &life, wait.limit(), &cancel, || request.wait(&self.world, wait));
        match got {
            Ok((Some(guard), _)) => self.keep(guard, ask, using, false),
            Ok((None, Some(request))) => {
                self.requests.push(Request { request, ask, since, cancel, owner, using });
            }
            Ok((None, None)) => {}
            Err(error) => {
                self.request_ends(&life, ask, owner.as_deref());
                // It may have failed long before a caller waited on it.
                self.judge(&error, (since, &cancel), &life, "await", self.reasons(ask));
            }
        }
    }

    /// Gives a request up.
    pub(super) fn withdraw(&mut self, number: usize) {
        let Request { request, ask, owner, using, .. } = self.requests.remove(number);
        let life = Arc::clone(&using.life);
        self.request_ends(&life, ask, owner.as_deref());
        self.call(format!("drop request {ask:?}"), &life, Limit::AtOnce, &CancelToken::new(), || {
            drop(request);
        });
        if self.world.manual().is_none() {
            self.request_ends(&life, ask, owner.as_deref()); // its hold may have been seen only now
        } else if let Some(owner) = owner.filter(|_| ask.by_task) {
            locked(&self.world.holds).has_nothing(&life, owner);
        }
    }

    fn request_ends(&self, life: &Arc<Life>, ask: Ask, owner: Option<&str>) {
        let mut holds = locked(&self.world.holds);
        match owner {
            // It may have asked anew, as another owner.
            _ if ask.by_task => holds.a_task_ends(life, &name_of(ask.lock)),
            Some(owner) => holds.request_ends(life, &name_of(ask.lock), owner),
            None => {}
        }
    }

    /// What is known of what this owner asked for before is of no interest any more.
    pub(super) fn forget_answers(&self, using: &Using, ask: Ask) {
        link::forget_asked();
        let Ok(Some(owner)) = owner_of(using, ask) else { return };
        locked(&using.life.fate).answered.remove(&(name_of(ask.lock), owner));
    }

    pub(super) fn keep(&mut self, guard: AnyGuard, ask: Ask, using: Using, listens: bool) {
        let made = guard.holds(ask.lock);
        let owner = guard.owner().or_else(|| thread_owner(&using).ok()).unwrap_or_default();
        self.world.count(match ask.kind {
            LockKind::ReadWrite if ask.writes() => "guards of writers",
            LockKind::ReadWrite => "guards of readers",
            LockKind::Semaphore { .. } => "guards of permits",
            _ => "guards",
        });
        if ask.by_task {
            self.world.count("guards of tasks");
        }
        let mut holds = locked(&self.world.holds);
        for (lock, token) in &made {
            self.say(format_args!("has L{lock} by {ask:?}, token {token}"));
            holds.guard_made(&using.life, &name_of(*lock), &owner, *token, ask.terms);
        }
        if let Some(channel) = guard.lost().filter(|_| listens) {
            holds.listens(&made, channel);
        }
        drop(holds);
        self.guards.push(Guard { guard, ask, holds: made, using });
    }
}
