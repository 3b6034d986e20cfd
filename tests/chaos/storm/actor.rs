//! A thread of the program: makes its calls when their time has come, and judges what each returns.

mod ask;
mod give;
mod operate;
mod work;

use std::sync::Arc;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::{Error, FencingToken};

use crate::bounds::Limit;
use crate::in_hand::{AnyGuard, ClientEnd, Pending, call};
use crate::judge::{self, Reasons};
use crate::life::Life;
use crate::link;
use crate::program::{Ask, End, Several, Wait, What};
use crate::world::{Using, World, locked};

/// Where an actor may not wait without limit, since others may wait for what it has, it waits for this time; with a real
/// clock for a tenth of it.
const CAREFUL: Duration = Duration::from_secs(20);

pub use work::Site;

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
    /// What was asked for; of several locks, the first.
    ask: Ask,
    /// One hold, or one of each of several locks.
    holds: Vec<(usize, FencingToken)>,
    using: Using,
}

struct Request {
    request: Pending,
    ask: Ask,
    since: Duration,
    cancel: CancelToken,
    /// As far as it can be known.
    owner: Option<String>,
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
            if op.hurt.is_some() && self.is_by_task(op.what) {
                if let Some(using) = world.client(self.client) {
                    locked(&using.life.fate).hurt_of_tasks = op.hurt;
                }
            } else {
                link::hurt_next(op.hurt);
            }
            self.act(op.what);
            link::hurt_next(None);
        }
        while !self.requests.is_empty() {
            self.act(What::Withdraw(0));
        }
        while !self.guards.is_empty() {
            let end = if self.guards.len().is_multiple_of(2) { End::Drop } else { End::Unlock };
            self.act(What::GiveBack { guard: 0, end });
        }
        while !self.leaks.is_empty() {
            self.act(What::Unleak(0));
        }
        world.note(format_args!("a{} has ended", self.number));
    }

    /// Whether the call is made for it by a thread for tasks.
    fn is_by_task(&self, what: What) -> bool {
        match what {
            What::Take { ask, .. } | What::With { ask, .. } | What::Lead { ask, .. } | What::Request(ask) => {
                ask.by_task
            }
            What::TakeAll { by_task, .. } => by_task,
            What::GiveBack { guard, .. } => {
                let guard = self.guards.get(guard % self.guards.len().max(1));
                guard.is_some_and(|guard| matches!(guard.guard, AnyGuard::Task(_) | AnyGuard::AllOfTask(_)))
            }
            What::Await { request, .. } | What::Withdraw(request) => {
                let request = self.requests.get(request % self.requests.len().max(1));
                request.is_some_and(|request| request.ask.by_task)
            }
            _ => false,
        }
    }

    fn act(&mut self, what: What) {
        let guards = self.guards.len().max(1);
        let requests = self.requests.len().max(1);
        match what {
            What::Take { ask, wait, listens } => self.take(ask, wait, listens),
            What::With { ask, wait, lasts, dropped } => self.with(ask, wait, lasts, dropped),
            What::Lead { ask, lasts, dropped } => self.lead(ask, lasts, dropped),
            What::TakeAll { locks, wait, listens, by_task, dropped } => {
                self.take_all(locks, wait, listens, (by_task, dropped));
            }
            What::GiveBack { guard, end } if !self.guards.is_empty() => {
                let guard = self.guards.remove(guard % guards);
                self.give_back(guard, end);
            }
            What::Unleak(nth) if !self.leaks.is_empty() => {
                let chosen = &self.leaks[nth % self.leaks.len()];
                // An `unlock` takes the live hold, its owner's newest.
                let like = self.leaks.iter().enumerate().filter(|(_, leak)| leak.is_like(chosen));
                let (newest, _) = like.max_by_key(|(_, leak)| leak.token).expect("the chosen one");
                let leak = self.leaks.remove(newest);
                self.unleak(&leak);
            }
            What::Renew(guard) if !self.guards.is_empty() => self.renew(guard % guards),
            What::Outlive(guard) if !self.guards.is_empty() => self.outlive(guard % guards),
            What::Request(ask) => self.request(ask),
            What::Await { request, wait } if !self.requests.is_empty() => {
                self.wait_on(request % requests, wait);
            }
            What::Withdraw(request) if !self.requests.is_empty() => self.withdraw(request % requests),
            What::Cancel(actor) => self.cancel_of(actor),
            What::Force(lock) => self.force(lock),
            What::ForceOne { lock, nth } => self.force_one(lock, nth),
            What::Look(lock) => self.look(lock),
            What::Shutdown => self.end_client(ClientEnd::Shutdown),
            What::Drain(at_most) => self.end_client(ClientEnd::Drain(at_most)),
            What::DropClient => {
                self.say(format_args!("drops its client"));
                self.world.drop_client(self.client);
            }
            What::Restart => self.world.restart(self.client),
            _ => {}
        }
    }

    /// Calls, and the call can be seen meanwhile.
    fn call<T>(
        &self,
        what: String,
        life: &Arc<Life>,
        limit: Limit,
        cancel: &CancelToken,
        act: impl FnOnce() -> T,
    ) -> T {
        call(&self.world, self.number, what, life, limit, cancel, act)
    }

    /// Of a call that began then, and could be cancelled.
    fn judge(
        &self,
        error: &Error,
        (began, cancel): (Duration, &CancelToken),
        life: &Arc<Life>,
        what: &str,
        reasons: Reasons,
    ) {
        self.say(format_args!("hears from {what}: {error}"));
        self.world.count(&format!("{what}: {}", judge::kind(error)));
        judge::error(&self.world, error, (began, cancel), life, what, reasons);
    }

    /// What may be wrong with this ask.
    fn reasons(&self, ask: Ask) -> Reasons {
        // An owner that has fewer units, or waits for fewer, or by another number of permits. Other actors share the owners that have numbers.
        let may_differ = (ask.units > 1 || self.world.program.resizes(ask.lock)) && !ask.is_anonymous();
        let misuse = may_differ && (ask.owner.is_some() || self.has_as_thread().any(|lock| lock == ask.lock));
        Reasons { misuse, mismatch: self.world.program.mixes(ask.lock), ..Reasons::default() }
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.world.note(format_args!("a{} {what}", self.number));
    }

    /// What its requests and leaks keep from others.
    fn others(&self) -> impl Iterator<Item = usize> {
        let requests = self.requests.iter().map(|request| request.ask.lock);
        requests.chain(self.leaks.iter().map(|leak| leak.ask.lock))
    }

    /// The locks that this thread itself holds or waits for.
    fn has_as_thread(&self) -> impl Iterator<Item = usize> {
        let is_its_own = |ask: &Ask| ask.owner.is_none() && !ask.is_anonymous();
        let guards = self.guards.iter().filter(move |guard| is_its_own(&guard.ask));
        let guards = guards.flat_map(|guard| guard.holds.iter().map(|(lock, _)| *lock));
        let requests = self.requests.iter().map(|request| &request.ask);
        let others = requests.chain(self.leaks.iter().map(|leak| &leak.ask));
        guards.chain(others.filter(move |ask| is_its_own(ask)).map(|ask| ask.lock))
    }

    /// A wait without limit only where no circle can come of it: for a lock above all that it has, or for one that it
    /// has as this owner and nothing above it.
    fn patience(&self, ask: Ask, wait: Wait, life: &Arc<Life>) -> Wait {
        let has = self.guards.iter().flat_map(|guard| {
            let again = !ask.is_anonymous()
                && guard.ask.owner == ask.owner
                && !guard.ask.is_anonymous()
                && Arc::ptr_eq(&guard.using.life, life);
            guard.holds.iter().map(move |(lock, _)| (*lock, again))
        });
        let mut all = has.chain(self.others().map(|lock| (lock, false)));
        self.at_most(wait, all.all(|(lock, again)| lock < ask.lock || lock == ask.lock && again))
    }

    /// The same for several locks: they are above all that it has.
    fn patience_for_all(&self, locks: Several, wait: Wait) -> Wait {
        let has = self.guards.iter().flat_map(|guard| guard.holds.iter().map(|(lock, _)| *lock));
        let first = locks.iter().next();
        self.at_most(wait, has.chain(self.others()).all(|lock| Some(lock) < first))
    }

    fn at_most(&self, wait: Wait, without_limit: bool) -> Wait {
        match wait {
            Wait::Forever if !without_limit => {
                Wait::UpTo(if self.world.manual().is_some() { CAREFUL } else { CAREFUL / 10 })
            }
            wait => wait,
        }
    }

    /// The one that is not cancelled yet.
    fn cancel(&self) -> CancelToken {
        let mut cancel = locked(&self.world.cancels[self.number]);
        if cancel.0.is_cancelled() {
            *cancel = (CancelToken::new(), None);
        }
        cancel.0.clone()
    }
}
