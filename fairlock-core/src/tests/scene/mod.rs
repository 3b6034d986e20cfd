//! Scenes with one client: what its callers and tasks do, what the store answers, what each is told, and what is seen then.
//!
//! `threads().a().locks().gets(1001).unlocks().done()` is a scene with a thread. A name begins a caller with a lock of its name, and
//! `a2` is another caller of a's owner. A call begins, and waits until it sleeps or has ended; a word for its end moves the clock until
//! then. `acquire().says([rank(0), got(9)])` plans the next answers of the store: later ones are the usual ones. Names, and the words
//! about the client, the store and the clock, may follow on each other in any order. At the end of a scene all calls have ended, and
//! somebody has asked for the end of each that did not succeed.

mod answers;
mod caller;
mod calls;
mod told;
mod words;

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::panic::Location;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use caller::Caller;
use log::Level;

pub(crate) use answers::*;
pub(super) use calls::By;
pub(super) use told::Kind::*;
pub(super) use words::*;

use super::logger::lines_about;
pub(super) use super::names::*;
use super::store::{Op, Store};
use super::support::World;
pub(super) use crate::LostCause::{self, LeaseOver, NotRenewed, Taken};
pub(super) use crate::backend::BackendErrorKind;
use crate::backend::{RequestId, Wake};
use crate::shared::Shared;
use crate::stats::Stats;
use crate::{Client, FencingToken, HeldLock, LockName, ManualClock, WaitingRequest};

pub(super) const EVER: Duration = Duration::MAX;

/// The usual client, with threads that call it.
#[track_caller]
pub(super) fn threads() -> Scene {
    Scene::with(World::new(), false)
}

/// The usual client, with tasks.
#[track_caller]
pub(super) fn tasks() -> Scene {
    Scene::with(World::new(), true)
}

/// One after the other.
#[track_caller]
pub(super) fn both<T>(play: impl Fn(Scene) -> T) {
    play(threads());
    play(tasks());
}

/// Only callers ask the store.
#[track_caller]
pub(super) fn unwatched() -> Scene {
    Scene::with(World::without_watchdog(), false)
}

/// The same with tasks.
#[track_caller]
pub(super) fn unwatched_tasks() -> Scene {
    Scene::with(World::without_watchdog(), true)
}

/// Tasks, which ask the store themselves.
#[track_caller]
pub(super) fn quick_tasks() -> Scene {
    let world = World::new();
    world.store.is_quick();
    Scene::with(world, true)
}

/// The store may begin what an unanswered attempt asks for up to six seconds later.
#[track_caller]
pub(super) fn late() -> Scene {
    Scene::with(World::with_late_attempts(6 * S), false)
}

/// The same with tasks.
#[track_caller]
pub(super) fn late_tasks() -> Scene {
    Scene::with(World::with_late_attempts(6 * S), true)
}

/// The same store names places by their owners.
#[track_caller]
pub(super) fn late_by_owner() -> Scene {
    let scene = late();
    scene.store.plan().keeps_place_by_owner = true;
    scene
}

macro_rules! ops {
    ($($name:ident $op:ident)+) => {$(
        /// What the store does with these calls.
        pub(super) fn $name(&self) -> OfOp {
            OfOp { scene: self.clone(), op: Op::$op }
        }
    )+};
}

#[derive(Clone)]
pub(super) struct Scene(Rc<Inner>);

struct Inner {
    world: World,
    /// Whether its callers are tasks.
    tasks: bool,
    callers: Callers,
}

struct Callers {
    all: RefCell<BTreeMap<String, Caller>>,
    begun: &'static Location<'static>,
}

impl Drop for Callers {
    fn drop(&mut self) {
        let callers = self.all.get_mut();
        if std::thread::panicking() {
            return std::mem::forget(std::mem::take(callers)); // their drops may wait for the clock
        }
        for (name, caller) in callers {
            let untold = caller.untold();
            let begun = self.begun;
            assert!(untold.is_none(), "nobody asks what comes of {name} in the scene at {begun}: {untold:?}");
        }
    }
}

impl Deref for Scene {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0.world
    }
}

impl Names for Scene {
    type One = By;

    fn by(&self, name: &str) -> By {
        if !self.callers().contains_key(name) {
            let mut callers = self.callers();
            let first = name.strip_suffix('2').filter(|first| first.len() == 1);
            let first = first.and_then(|first| callers.get(first));
            let mut caller = Caller::new(self, name, self.0.tasks, first);
            caller.learn(self);
            callers.insert(name.to_owned(), caller);
        }
        By { scene: self.clone(), name: name.to_owned() }
    }
}

impl Scene {
    #[track_caller]
    fn with(world: World, tasks: bool) -> Scene {
        let callers = Callers { all: RefCell::default(), begun: Location::caller() };
        Scene(Rc::new(Inner { world, tasks, callers }))
    }

    /// With threads that call the client of this world.
    #[track_caller]
    pub(super) fn of(world: World) -> Scene {
        Scene::with(world, false)
    }

    /// With threads that call another client of this world's store.
    #[track_caller]
    pub(super) fn of_client(world: World, client: Client) -> Scene {
        Scene::with(World { shared: Arc::clone(&**client.0), client, ..world }, false)
    }

    /// All handles of the client are dropped.
    pub(super) fn without_handles(self) -> (Store, ManualClock, Weak<Shared>) {
        let Ok(Inner { world, callers, .. }) = Rc::try_unwrap(self.0) else { panic!("the scene goes on") };
        drop(callers);
        world.without_handles()
    }

    fn callers(&self) -> RefMut<'_, BTreeMap<String, Caller>> {
        self.0.callers.all.borrow_mut()
    }

    /// All threads sleep, and each caller knows its claim.
    pub(super) fn settle(&self) {
        self.0.world.settle();
        self.callers().values_mut().for_each(|caller| caller.learn(self));
    }

    fn then(&self) -> Scene {
        self.settle();
        self.clone()
    }

    ops! { acquire Acquire release Release renew Renew withdraw Withdraw }

    words! {
        /// Nobody is called now.
        scene(self) {}
        /// The clock moves step by step.
        pass(self, time: Duration) { self.clock.advance(time) }
        /// The clock moves at once.
        jump(self, time: Duration) { self.clock.jump(time) }
        /// A message for any waiter of this lock.
        hint(self, lock: &str) { self.store.wake(Wake::Recheck { lock, owner: None }) }
        /// Messages may have been lost.
        gap(self) { self.store.wake(Wake::Gap) }
        /// A grant of which no request knows.
        stray(self, token: u64, lock: &str) {
            let (request, token) = (RequestId::new(1), FencingToken::new(token));
            self.store.wake(Wake::Granted { lock, owner: "stray:1", request, token });
        }
        /// All calls since the last such word.
        asked(self, calls: impl AsRef<[Call]>) { check_calls(&self.store.asked(), calls.as_ref(), false) }
        asked_nothing(self) { check_calls(&self.store.asked(), &[], false) }
        /// The first calls since then.
        asked_first(self, calls: impl AsRef<[Call]>) { check_calls(&self.store.asked(), calls.as_ref(), true) }
        forget_asked(self) { self.store.asked() }
        /// How many calls of this kind, or of this kind about this lock, came since then.
        called(self, call: Call, times: impl Into<Span<usize>>) {
            let came = match &call.lock {
                Some(lock) => self.store.calls_about(lock, call.op),
                None => self.store.times(call.op).len(),
            };
            times.into().check(&came, &format!("calls of {call:?}"));
        }
        /// When all calls of this kind came since then.
        at(self, call: Call, times: impl IntoIterator<Item = impl Into<Span<Duration>>>) {
            let (came, times) = (self.store.times(call.op), Vec::from_iter(times));
            assert_eq!(came.len(), times.len(), "{:?} came at {came:?}", call.op);
            self.at_first(call, times);
        }
        /// When the first of them came.
        at_first(self, call: Call, times: impl IntoIterator<Item = impl Into<Span<Duration>>>) {
            let mut came = self.store.times(call.op).into_iter();
            for time in times {
                time.into().check(&came.next().expect("there are so many calls"), "the time of a call");
            }
        }
        stats(self, of: fn(&Stats) -> u64, count: impl Into<Span<u64>>) {
            count.into().check(&of(&self.client.stats()), "a number of the statistics");
        }
        held(self, locks: &[&str]) { assert_eq!(sorted(self.client.held(), |one: &HeldLock| &one.lock), locks) }
        waiting(self, locks: &[&str]) {
            assert_eq!(sorted(self.client.waiting(), |one: &WaitingRequest| &one.lock), locks);
        }
        backlog(self, count: usize) { assert_eq!(self.shared.backlog.len(), count) }
        claims(self, count: usize) { assert_eq!(self.shared.ledger.registry.all().len(), count) }
        /// Nothing was lost, nothing is left, and the client's threads have ended.
        in_order(self) {
            self.stats(|s| s.lost, 0).backlog(0).held(&[]).waiting(&[]);
            assert!(self.shared.timers.is_gone(), "the client's threads run");
        }
        /// How many warnings with these words the client has logged.
        log(self, count: impl Into<Span<usize>>, text: &str) {
            let lines = lines_about(self.label());
            let said = lines.iter().filter(|(level, line)| *level <= Level::Warn && line.contains(text));
            count.into().check(&said.count(), &format!("warnings with {text:?} of {lines:?}"));
        }
    }
}

fn sorted<T>(all: Vec<T>, lock: impl Fn(&T) -> &LockName) -> Vec<String> {
    let mut names: Vec<String> = all.iter().map(|one| lock(one).as_str().to_owned()).collect();
    names.sort_unstable();
    names
}

/// What the store does with calls of one kind.
pub(super) struct OfOp {
    scene: Scene,
    op: Op,
}

impl OfOp {
    fn then(&self, does: impl FnOnce(&Store)) -> Scene {
        does(&self.scene.store);
        self.scene.then()
    }

    /// The next answers.
    pub(super) fn says(&self, answers: impl AsRef<[Says]>) -> Scene {
        self.then(|store| answers::plan(&mut store.plan(), self.op, answers.as_ref()))
    }

    /// The next call sleeps before it is carried out.
    pub(super) fn takes(&self, time: Duration) -> Scene {
        self.takes_each(time, 1)
    }

    /// The next calls sleep, this many.
    pub(super) fn takes_each(&self, time: Duration, times: usize) -> Scene {
        self.then(|store| (0..times).for_each(|_| store.delay(self.op, time)))
    }

    /// The next calls panic, this many.
    pub(super) fn panics(&self, times: u32) -> Scene {
        self.then(|store| store.panic_next(self.op, times))
    }

    /// No call is answered.
    pub(super) fn is_down(&self) -> Scene {
        self.then(|store| store.take_down(self.op))
    }

    pub(super) fn is_up(&self) -> Scene {
        self.then(|store| store.bring_up(self.op))
    }
}
