//! The callers of a scene: the calls they make, and what each comes to.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::super::names::words;
use super::super::support::World;
use super::super::tasks::Polled;
use super::Scene;
use super::caller::{Call, Caller, Lock};
use super::told::{End, Guard, Kind, Tell, Told};
use super::words::Span;
use crate::backend::Wake;
use crate::claim::Claim;
use crate::{Client, FencingToken, LostCause, Owner, Request};

/// One who calls the client, by its own thread or as a task.
#[derive(Clone)]
pub(in crate::tests) struct By {
    pub(super) scene: Scene,
    pub(super) name: String,
}

impl Deref for By {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

impl By {
    pub(super) fn with<T>(&self, does: impl FnOnce(&World, &mut Caller) -> T) -> T {
        let mut callers = self.scene.callers();
        does(self, callers.get_mut(&self.name).expect("it is in the scene"))
    }

    fn then(&self) -> By {
        self.settle();
        self.clone()
    }

    fn its_claim(&self) -> Arc<Claim> {
        self.with(|_, caller| caller.claim.clone()).expect("it has asked for its lock")
    }

    fn lock(&self) -> Lock {
        self.with(|_, caller| caller.lock.clone())
    }

    fn take_guard(&self) -> Guard {
        self.with(|world, caller| {
            caller.notice(world);
            caller.guards.pop().expect("it has a guard")
        })
    }

    fn take_thread_guard(&self) -> crate::Guard<Owner> {
        let Guard::OfThread(guard) = self.take_guard() else { panic!("only a thread makes this call") };
        guard
    }

    fn take_request(&self) -> Request<Owner> {
        self.with(|_, caller| caller.request.take()).expect("it has a request")
    }

    fn change_lock(&self, change: impl FnOnce(&World, &Caller) -> Lock) {
        self.with(|world, caller| caller.lock = change(world, caller));
    }

    #[track_caller]
    fn begin(&self) {
        let untold = self.with(|world, caller| {
            caller.notice(world);
            caller.untold()
        });
        assert_eq!(untold, None, "nobody has asked what came of the last call of {}", self.name);
    }

    /// Begins a call on its own thread, and waits until it sleeps or has ended.
    #[track_caller]
    fn thread(&self, call: impl FnOnce() -> Told + Send + 'static) {
        self.begin();
        self.with(|world, caller| {
            let running = world.begin(call);
            caller.call = Some(match running.is_over() {
                Some((told, took)) => Call::Over(caller.take(told, took)),
                None => Call::Runs(running),
            });
        });
    }

    /// Polls a future once, before any answer.
    #[track_caller]
    fn task<T: Tell>(&self, future: impl Future<Output = T> + Send + 'static) {
        self.begin();
        self.with(|world, caller| {
            let began = world.clock.now();
            let future: Pin<Box<dyn Future<Output = Told> + Send>> = Box::pin(async { future.await.told() });
            let mut polled = Polled::new(future);
            let first = world.before_the_answer(|| polled.poll());
            caller.at_once = first.is_ready();
            caller.call = Some(match first {
                Poll::Pending => Call::Waits(polled, began),
                Poll::Ready(told) => Call::Over(caller.take(told, Duration::ZERO)),
            });
        });
    }

    fn client_call<T: Tell>(&self, call: impl FnOnce(&Client) -> T + Send + 'static) {
        let client = self.client.clone();
        self.thread(move || call(&client).told());
    }

    /// What its call has come to. The clock moves until then.
    #[track_caller]
    fn is(&self, is: impl FnOnce(&End) -> bool, expected: &dyn std::fmt::Debug) {
        let (end, at_once) =
            self.with(|world, caller| (caller.end(world), std::mem::take(&mut caller.at_once)));
        assert!(is(&end), "{} {end:?}, but expected was {expected:?}", self.name);
        assert!(!at_once, "the first poll of {} says so", self.name);
    }

    #[track_caller]
    fn ends(&self, expected: End) {
        self.is(|end| *end == expected, &expected);
    }
}

/// Its lock, before the first call.
impl By {
    words! {
        /// It wants the lock of this name, as another owner.
        on(self, lock: &str) {
            let caller = Caller::new(self, lock, self.scene.0.tasks, None);
            self.with(|world, it| {
                *it = caller;
                it.learn(world);
            });
        }
        if_few_wait(self) {
            self.change_lock(|_, caller| match &caller.lock {
                Lock::OfThread(lock) => Lock::OfThread(lock.most_waiting(1).unwrap().into_lock()),
                Lock::OfTask(lock) => Lock::OfTask(lock.most_waiting(1).unwrap().into_lock()),
                Lock::Ended => Lock::Ended,
            });
        }
        plain(self) {
            self.change_lock(|world, caller| {
                let plain = world.client.plain_lock(&caller.name).unwrap();
                match &caller.lock {
                    Lock::OfTask(_) => Lock::OfTask(plain.to_async()),
                    _ => Lock::OfThread(plain.owned_by(&caller.owner).unwrap()),
                }
            });
        }
        cancellable(self) {
            self.change_lock(|world, caller| match &caller.lock {
                Lock::OfTask(_) => {
                    let fair = world.client.fair_lock(&caller.name).unwrap();
                    Lock::OfTask(fair.cancelled_by(&caller.cancel).to_async())
                }
                lock => Lock::OfThread(lock.clone().of_thread().cancelled_by(&caller.cancel)),
            });
        }
        fixed(self, lease: Duration) {
            self.change_lock(|_, caller| Lock::OfThread(caller.lock.clone().of_thread().fixed_lease(lease)));
        }
        capped(self, limit: Duration) {
            self.change_lock(|_, caller| Lock::OfThread(caller.lock.clone().of_thread().max_hold(limit)));
        }
        as_task(self) {
            self.change_lock(|_, caller| Lock::OfTask(caller.lock.clone().of_thread().to_async()));
        }
    }
}

/// Calls. Each begins, and lasts until it sleeps or has ended; what it came to is the next word.
impl By {
    words! {
        locks(self) {
            match self.lock() {
                Lock::OfTask(lock) => self.task(lock.lock()),
                lock => self.thread(move || lock.of_thread().lock().told()),
            }
        }
        tries(self) {
            match self.lock() {
                Lock::OfTask(lock) => self.task(lock.try_lock()),
                lock => self.thread(move || lock.of_thread().try_lock().told()),
            }
        }
        tries_for(self, time: Duration) {
            match self.lock() {
                Lock::OfTask(lock) => self.task(lock.try_lock_for(time)),
                lock => self.thread(move || lock.of_thread().try_lock_for(time).told()),
            }
        }
        requests(self) {
            let lock = self.lock().of_thread();
            self.thread(move || lock.request().told());
        }
        waits(self) {
            let request = self.take_request();
            self.thread(move || request.wait().told());
        }
        waits_for(self, time: Duration) {
            let mut request = self.take_request();
            self.thread(move || {
                let told = request.wait_for(time).told();
                Told { request: Some(request), ..told }
            });
        }
        leaves(self) {
            let request = self.take_request();
            self.thread(move || request.withdraw().told());
        }
        /// Its future, its guard or its request.
        drops(self) {
            if self.with(|_, caller| caller.call.take_if(|call| matches!(call, Call::Waits(..)))).is_some() {
                return self.then();
            }
            let request = self.with(|_, caller| caller.request.take_if(|_| caller.guards.is_empty()));
            let guard = if request.is_none() { Some(self.take_guard()) } else { None };
            self.thread(move || {
                drop((request, guard));
                End::Done.told()
            });
        }
        unlocks(self) {
            match self.take_guard() {
                Guard::OfThread(guard) => self.thread(move || guard.unlock().told()),
                Guard::OfTask(guard) => self.task(guard.unlock()),
            }
        }
        renews(self) {
            let guard = self.take_thread_guard();
            self.thread(move || {
                let told = guard.renew().told();
                Told { guard: Some(Guard::OfThread(guard)), ..told }
            });
        }
        /// It leaves its hold to another client.
        hands_over(self) {
            let guard = self.take_thread_guard();
            self.thread(move || guard.hand_over().map(drop).told());
        }
        leaks(self) {
            let guard = self.take_thread_guard();
            self.thread(move || {
                guard.leak();
                End::Done.told()
            });
        }
        /// It unlocks what was leaked.
        unleaks(self) {
            let lock = self.lock().of_thread();
            self.thread(move || lock.unlock().told());
        }
        /// It waits for the loss of its hold.
        listens(self) {
            let lost = self.with(|_, caller| match caller.guards.last() {
                Some(Guard::OfTask(guard)) => guard.lost(),
                _ => panic!("only a task listens"),
            });
            self.task(lost);
        }
        /// Its task is polled once more, before any answer, and is ready.
        polls(self) { assert!(self.poll(), "{} is pending", self.name) }
        polls_pending(self) { assert!(!self.poll(), "{} is ready", self.name) }
        shuts_down(self) { self.client_call(Client::shutdown) }
        shuts_down_within(self, time: Duration) { self.client_call(move |client| client.shutdown_within(time)) }
        drains(self, time: Duration) { self.client_call(move |client| client.drain(time)) }
        /// Its locks are released at once.
        locks_all(self, names: &'static [&'static str]) { self.client_call(|client| client.lock_all(names)) }
        tries_all(self, names: &'static [&'static str]) { self.client_call(|client| client.try_lock_all(names)) }
        tries_all_for(self, time: Duration, names: &'static [&'static str]) {
            self.client_call(move |client| client.try_lock_all_for(names, time));
        }
    }

    fn poll(&self) -> bool {
        self.with(|world, caller| {
            let Some(Call::Waits(task, _)) = &mut caller.call else { panic!("no task waits") };
            let Poll::Ready(told) = world.before_the_answer(|| task.poll()) else { return false };
            caller.call = Some(Call::Over(caller.take(told, Duration::ZERO)));
            true
        })
    }
}

/// What a call came to. The clock moves until then.
impl By {
    words! {
        done(self) { self.ends(End::Done) }
        gets(self, token: impl Into<Span<u64>>) {
            let tokens = token.into();
            self.is(|end| matches!(end, End::Gets(token) if tokens.has(token)), &tokens);
        }
        gets_all(self) { self.ends(End::GetsAll) }
        is_busy(self) { self.ends(End::IsBusy) }
        /// For how long the hold is certain.
        sure_for(self, time: Duration) { self.ends(End::Sure(time)) }
        sure(self) { self.is(|end| matches!(end, End::Sure(_)), &"sure") }
        lost(self, cause: LostCause) { self.ends(End::Lost(cause)) }
        fails(self, kind: Kind) { self.ends(End::Fails(kind)) }
        /// What was still held: the lock, the token, and for how long it was held.
        drained(self, held: &[(&str, u64, Duration)]) {
            let held = held.iter().map(|&(lock, token, time)| (lock.to_owned(), token, time));
            self.ends(End::Drained(held.collect()));
        }
        /// The first poll of the task says what comes now.
        at_once(self) {
            let at_once = self.with(|_, caller| std::mem::take(&mut caller.at_once));
            assert!(at_once, "the first poll of {} is pending", self.name);
        }
        /// How long the call took.
        after(self, time: impl Into<Span<Duration>>) {
            let took = self.with(|_, caller| caller.took);
            time.into().check(&took, "how long the call took");
        }
        /// Its last error has these words.
        told(self, text: &str) {
            let error = self.with(|_, caller| caller.error.clone());
            assert!(error.contains(text), "{} was told {error:?}, and not {text:?}", self.name);
        }
    }
}

/// What happens to it.
impl By {
    words! {
        is_pushed(self, token: u64) { self.push(&self.its_claim(), token) }
        /// It is told to look whether the lock is free.
        is_woken(self) { self.recheck(&self.its_claim()) }
        is_taken(self) { self.is_taken_with(self.with(|_, caller| caller.token().get())) }
        is_taken_with(self, token: u64) {
            let (claim, token) = (self.its_claim(), FencingToken::new(token));
            let (lock, owner) = (claim.lock.name.as_str(), claim.owner.as_str());
            self.store.wake(Wake::Taken { lock, owner, token });
        }
        loses(self, cause: LostCause) { self.shared.ledger.lose(&self.its_claim(), cause) }
        is_cancelled(self) { self.with(|_, caller| caller.cancel.clone()).cancel() }
        /// The next call about the lock of its name sleeps first.
        takes(self, time: Duration) { self.store.delay_about(&self.name, time) }
        /// No call about the lock of its name is answered.
        is_cut(self) { self.store.cut(&self.name) }
        is_denied(self) { self.store.deny(&self.name) }
        is_back(self) { self.store.restore(&self.name) }
    }
}

/// What it sees of its lock, its last guard or its request.
impl By {
    words! {
        holds(self, count: u32) { assert_eq!(self.lock().of_thread().hold_count(), count) }
        is_held(self) { assert!(!self.with(|_, caller| caller.is_lost()), "the hold of {} is lost", self.name) }
        is_lost(self) { assert!(self.with(|_, caller| caller.is_lost()), "{} holds the lock", self.name) }
        /// The check of its hold finds nothing.
        checks(self) {
            let checked = self.with(|_, caller| match caller.guards.last().expect("it has a guard") {
                Guard::OfThread(guard) => guard.check(),
                Guard::OfTask(guard) => guard.check(),
            });
            assert!(checked.is_ok(), "{}: {checked:?}", self.name);
        }
        valid(self, time: Duration) {
            let valid_for = self.with(|_, caller| match caller.guards.last().expect("it has a guard") {
                Guard::OfThread(guard) => guard.valid_for(),
                Guard::OfTask(guard) => guard.valid_for(),
            });
            assert_eq!(valid_for, time, "for how long the hold of {} is certain", self.name);
        }
        /// The loss that its guard tells.
        hears(self, cause: LostCause) {
            let heard = self.with(|_, caller| match caller.guards.last() {
                Some(Guard::OfThread(guard)) => guard.lost().try_recv().map(|lost| lost.cause),
                _ => panic!("no thread has a guard"),
            });
            assert_eq!(heard, Ok(cause), "what {} hears", self.name);
        }
        rank(self, rank: u64) {
            let seen = self.with(|_, caller| caller.request.as_ref().expect("it has a request").rank());
            assert_eq!(seen, Some(rank), "the rank of {}", self.name);
        }
        /// Its request or its task has an end.
        decided(self) { assert!(self.with(|_, caller| caller.is_decided()), "{} waits", self.name) }
        pending(self) { assert!(!self.with(|_, caller| caller.is_decided()), "{} is decided", self.name) }
        is_asking(self) { assert!(self.its_claim().is_asking(), "nobody asks for {}", self.name) }
        is_renewing(self) { assert!(self.its_claim().is_renewing(), "nobody renews for {}", self.name) }
    }
}
