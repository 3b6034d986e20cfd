//! What a scene knows of a caller: its lock, its guards, and the call that it makes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::support::{Running, S, World};
use super::super::tasks::Polled;
use super::told::{End, Guard, Told};
use crate::claim::Claim;
use crate::{AsyncLock, CancelToken, FencingToken, Owner, Request};

/// What the scene knows of a caller.
pub(super) struct Caller {
    pub(super) lock: Lock,
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) cancel: CancelToken,
    pub(super) guards: Vec<Guard>,
    pub(super) request: Option<Request<Owner>>,
    pub(super) call: Option<Call>,
    pub(super) claim: Option<Arc<Claim>>,
    /// The last one.
    pub(super) error: String,
    pub(super) took: Duration,
    /// The first poll of its task has said what the call came to, and nobody has asked whether.
    pub(super) at_once: bool,
}

#[derive(Clone)]
pub(super) enum Lock {
    /// Made after the client's end, which gives out no lock.
    Ended,
    OfThread(crate::Lock<Owner>),
    OfTask(AsyncLock),
}

impl Lock {
    pub(super) fn of_thread(self) -> crate::Lock<Owner> {
        let Lock::OfThread(lock) = self else { panic!("only a thread makes this call") };
        lock
    }
}

pub(super) enum Call {
    Runs(Running<Told>),
    Waits(Polled<Told>, Instant),
    Over(End),
}

impl Caller {
    /// A caller of the lock with this name, for its own owner or for that of the first caller.
    pub(super) fn new(world: &World, name: &str, is_task: bool, first: Option<&Caller>) -> Caller {
        let owner = first.map_or_else(|| world.client.new_owner(), |first| first.owner.clone());
        let lock = match (first, world.client.fair_lock(name)) {
            (Some(first), _) => first.lock.clone(),
            (None, Ok(fair)) if is_task => Lock::OfTask(fair.to_async()),
            (None, Ok(fair)) => Lock::OfThread(fair.owned_by(&owner).unwrap()),
            (None, Err(_)) => Lock::Ended,
        };
        let name = first.map_or(name, |first| &first.name).to_owned();
        let (cancel, guards, error, took) = Default::default();
        let (request, call, claim, at_once) = (None, None, None, false);
        Caller { lock, name, owner, cancel, guards, request, call, claim, error, took, at_once }
    }

    /// Its claim stays known when it is over. One that has asked for nothing stands for another owner's claim.
    pub(super) fn learn(&mut self, world: &World) {
        let is_its =
            |claim: &Claim| !matches!(self.lock, Lock::OfThread(_)) || claim.owner == *self.owner.id();
        let find = |is_it: &dyn Fn(&Claim) -> bool| world.shared.ledger.registry.any(&self.name, is_it);
        if let Some(claim) = find(&is_its).or_else(|| find(&|_| self.claim.is_none())) {
            self.claim = Some(claim);
        }
    }

    /// What nobody has asked for: a call that goes on, and a result that is no success.
    pub(super) fn untold(&self) -> Option<String> {
        match self.call.as_ref()? {
            Call::Over(end) if end.is_success() => None,
            Call::Over(end) => Some(format!("{end:?}")),
            Call::Runs(_) | Call::Waits(..) => Some("it goes on".to_owned()),
        }
    }

    pub(super) fn token(&self) -> FencingToken {
        match self.guards.last().expect("it has a guard") {
            Guard::OfThread(guard) => guard.token(),
            Guard::OfTask(guard) => guard.token(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        match self.guards.last().expect("it has a guard") {
            Guard::OfThread(guard) => guard.is_lost(),
            Guard::OfTask(guard) => guard.is_lost(),
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        match (&self.request, &self.call) {
            (Some(request), _) => request.decided().try_recv().is_ok(),
            (None, Some(Call::Waits(task, _))) => task.woken() > 0,
            _ => panic!("nothing waits"),
        }
    }

    /// A task that was woken is over.
    pub(super) fn notice(&mut self, world: &World) {
        if matches!(&self.call, Some(Call::Waits(task, _)) if task.woken() > 0) {
            self.call = Some(Call::Over(self.end(world)));
        }
    }

    /// Moves the clock until the call has ended, and says what it came to.
    pub(super) fn end(&mut self, world: &World) -> End {
        match self.call.take().expect("it has made a call") {
            Call::Over(end) => end,
            Call::Runs(running) => {
                let (told, took) = world.finish(&running);
                self.take(told, took)
            }
            Call::Waits(task, began) => {
                let limit = began + 1000 * S;
                while task.woken() == 0 && world.clock.now() < limit {
                    world.clock.step(limit - world.clock.now());
                }
                self.take(task.ended(), world.clock.now() - began)
            }
        }
    }

    pub(super) fn take(&mut self, told: Told, took: Duration) -> End {
        self.guards.extend(told.guard);
        self.request = told.request.or(self.request.take());
        if !told.error.is_empty() {
            self.error = told.error;
        }
        self.took = took;
        told.end
    }
}
