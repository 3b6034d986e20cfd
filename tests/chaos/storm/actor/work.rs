//! How an actor works under a lock: in a closure, or as a task, whose future it may drop.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::FencingToken;

use super::Actor;
use crate::bounds::{Call, Limit};
use crate::handles::{Handle, How, work_as_task};
use crate::judge::Reasons;
use crate::life::Life;
use crate::program::{Ask, Wait, What};
use crate::server::name_of;
use crate::task;
use crate::world::{Promise, Using, World, locked};

/// What is known of the work of one call.
pub struct Site {
    world: Arc<World>,
    actor: usize,
    life: Arc<Life>,
    ask: Ask,
    /// How long the call may take before and after the work.
    limit: Limit,
    owners: RefCell<Vec<String>>,
    /// Of the last work: whether its loss was told before its end.
    ended: Cell<Option<(bool, FencingToken)>>,
}

/// Work that goes on until this is dropped, by its end or with its future.
pub struct Work<'a> {
    site: &'a Site,
    token: FencingToken,
}

impl Site {
    /// How long the work that has begun takes. Each further term takes half the time: under a lease too short for the first term a campaign
    /// would never end otherwise.
    pub fn lasts(&self, first: Duration) -> Duration {
        first / (1 << (self.owners.borrow().len() - 1).min(30))
    }

    pub fn begin(&self, owner: &str, token: FencingToken) -> Work<'_> {
        let Site { world, actor, ask, .. } = self;
        locked(&world.calls)[*actor] = None;
        world.count(if ask.by_task { "works of tasks" } else { "closures" });
        world.note(format_args!("a{actor} works with {ask:?}, token {token}"));
        self.owners.borrow_mut().push(owner.to_owned());
        locked(&world.holds).guard_made(&self.life, &name_of(ask.lock), owner, token, ask.terms);
        Work { site: self, token }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let Work { site: Site { world, actor, life, ask, limit, ended, .. }, token } = self;
        ended.set(Some((locked(&world.holds).guard_ends(&name_of(ask.lock), *token), *token)));
        let what = format!("end of work with {ask:?}, token {token}");
        let (life, began, cancel) = (Arc::clone(life), world.now(), CancelToken::new());
        locked(&world.calls)[*actor] = Some(Call { what, life, began, limit: *limit, cancel });
    }
}

impl Actor {
    pub(super) fn with(&mut self, ask: Ask, wait: Wait, lasts: Duration, dropped: Option<Duration>) {
        let Some(using) = self.world.client(self.client) else { return };
        let wait = self.patience(ask, wait, &using.life);
        let what = format!("{:?}", What::With { ask, wait, lasts, dropped });
        self.work(using, ask, (How::With(wait), wait.limit(), Limit::AtOnce), lasts, dropped, what);
    }

    pub(super) fn lead(&mut self, ask: Ask, lasts: Duration, dropped: Option<Duration>) {
        let Some(using) = self.world.client(self.client) else { return };
        if self.patience(ask, Wait::Forever, &using.life) != Wait::Forever {
            return self.with(ask, Wait::Forever, lasts, dropped);
        }
        let what = format!("{:?}", What::Lead { ask, lasts, dropped });
        self.work(using, ask, (How::Lead, Limit::Campaign, Limit::Campaign), lasts, dropped, what);
    }

    fn work(
        &mut self,
        using: Using,
        ask: Ask,
        (how, before, limit): (How, Limit, Limit),
        lasts: Duration,
        dropped: Option<Duration>,
        what: String,
    ) {
        let (world, life, cancel) = (Arc::clone(&self.world), Arc::clone(&using.life), self.cancel());
        self.forget_answers(&using, ask);
        let began = world.now();
        let site = Site {
            world: Arc::clone(&world),
            actor: self.number,
            life: Arc::clone(&life),
            ask,
            limit,
            owners: RefCell::default(),
            ended: Cell::new(None),
        };
        let got = self.call(what, &life, before, &cancel, || {
            let handle = Handle::of(&using, ask, &cancel)?;
            if !ask.by_task {
                return handle.work(&world, how, lasts, &site).map(Some);
            }
            let work = work_as_task(&world, handle.for_tasks(ask)?, how, lasts, &site);
            self.await_or_drop(&life, &[name_of(ask.lock)], work, dropped).transpose()
        });
        let lock = name_of(ask.lock);
        match got {
            Ok(Some(Some(()))) => {
                if let Some((true, token)) = site.ended.get() {
                    let what = format!("{lock}: the loss of {token} was told, and {how:?} says Ok");
                    world.found(Promise::Answer, what);
                }
            }
            Ok(Some(None)) => {
                if let How::With(wait) = how {
                    self.is_busy(&using, ask, began, wait);
                }
            }
            Ok(None) if world.manual().is_some() => {
                let mut holds = locked(&world.holds);
                site.owners.take().into_iter().for_each(|owner| holds.has_nothing(&life, owner));
            }
            Ok(None) => {}
            Err(error) if how == How::Lead && error.is_transient() => {
                world.found(Promise::Answer, format!("{lock}: a campaign ends by {error}"));
            }
            Err(error) => {
                let lost = how != How::Lead && site.ended.get().is_some();
                self.judge(&error, (began, &cancel), &life, "with", Reasons { lost, ..self.reasons(ask) });
            }
        }
    }

    /// Waits for a future that is about these locks, or drops it after this time.
    pub(super) fn await_or_drop<F: Future>(
        &self,
        life: &Arc<Life>,
        locks: &[String],
        future: F,
        dropped: Option<Duration>,
    ) -> Option<F::Output> {
        let mut future = Box::pin(future);
        let done = task::wait(&self.world, &mut future, dropped);
        if done.is_none() {
            self.say(format_args!("drops its future"));
            self.world.count("futures dropped");
            let end = || {
                let mut holds = locked(&self.world.holds);
                locks.iter().for_each(|lock| holds.a_task_ends(life, lock));
            };
            end();
            drop(future);
            end(); // with a real clock its hold may have been seen only now
        }
        done
    }
}
