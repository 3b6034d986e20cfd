//! Which first attempts go beside each other, on which threads, and in which order.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::support::ms;
use crate::backlog::{Batch, Cleanup, FirstAttempt, FirstAttempts, Next};
use crate::claim::Claim;
use crate::ids::LockName;
use crate::timers::TASK_THREADS;

const DROP: FirstAttempt = FirstAttempt::CleanUp(Cleanup::Release);
const LEAVE: FirstAttempt = FirstAttempt::CleanUp(Cleanup::Withdraw);

/// The list, and what each thread has in hand.
struct Threads {
    list: FirstAttempts,
    in_hand: [Option<Batch>; TASK_THREADS],
    /// Threads that are to look.
    called: Vec<usize>,
    made: u32,
    now: Instant,
}

impl Threads {
    fn new() -> Threads {
        Threads {
            list: FirstAttempts::default(),
            in_hand: [const { None }; TASK_THREADS],
            called: Vec::new(),
            made: 0,
            now: Instant::now(),
        }
    }

    /// The same, with a server that is this far away.
    fn with_server(trip: Duration) -> Threads {
        let mut threads = Threads::new();
        threads.wants("first", FirstAttempt::Ask);
        threads.look();
        threads.answers(0, trip);
        threads
    }

    fn claim(&mut self, lock: &str) -> Arc<Claim> {
        self.made += 1;
        Claim::of_tests(&LockName::new(lock).unwrap(), &format!("u:{}", self.made))
    }

    fn wants(&mut self, lock: &str, attempt: FirstAttempt) -> Arc<Claim> {
        let claim = self.claim(lock);
        self.adds(&claim, attempt);
        claim
    }

    /// A task asks, and leaves before a thread looks.
    fn leaves(&mut self, lock: &str) -> Arc<Claim> {
        let claim = self.wants(lock, FirstAttempt::Ask);
        claim.retire();
        self.list.left(&claim);
        claim
    }

    fn adds(&mut self, claim: &Arc<Claim>, attempt: FirstAttempt) {
        self.called.extend(self.list.add(claim, attempt, Arc::new(())));
    }

    /// Returns when the thread is to look again, if it has to keep to the pace.
    fn looks_once(&mut self, thread: usize) -> Option<Instant> {
        match self.list.next(thread, Some(self.now)) {
            Next::Make(batch, wakes) => {
                self.in_hand[thread] = Some(batch);
                self.called.extend(wakes);
                None
            }
            Next::LookAt(at) => Some(at),
            Next::Sleep => None,
        }
    }

    /// If the thread has to keep to the pace, time goes on.
    fn looks(&mut self, thread: usize) {
        while let Some(at) = self.looks_once(thread) {
            assert!(self.now < at, "it would look for ever");
            self.now = at;
        }
    }

    /// All threads that were called look.
    fn look(&mut self) {
        while let Some(thread) = self.called.pop() {
            assert!(self.in_hand[thread].is_none(), "it sleeps");
            self.looks(thread);
        }
    }

    /// The thread's calls are answered, and it looks again.
    fn answers(&mut self, thread: usize, trip: Duration) {
        let batch = self.in_hand[thread].take().expect("it is at work");
        self.list.made(thread, &batch, Some(trip));
        self.looks(thread);
        self.look();
    }

    fn asks(&self) -> Vec<Arc<Claim>> {
        self.in_hand.iter().flatten().flat_map(|batch| batch.asks.iter().cloned()).collect()
    }

    fn cleanups(&self) -> Vec<Arc<Claim>> {
        let batches = self.in_hand.iter().flatten();
        batches.flat_map(|batch| batch.cleanups.iter().flatten().cloned()).collect()
    }

    fn at_work(&self) -> usize {
        self.in_hand.iter().flatten().count()
    }
}

fn are(claims: &[Arc<Claim>], expected: &[&Arc<Claim>]) {
    let requests =
        |claims: &mut dyn Iterator<Item = &Arc<Claim>>| claims.map(|claim| claim.request).collect::<Vec<_>>();
    assert_eq!(requests(&mut claims.iter()), requests(&mut expected.iter().copied()));
}

#[test]
fn asks_for_one_lock_keep_their_order() {
    let mut threads = Threads::with_server(ms(10));
    let first = threads.wants("a", FirstAttempt::Ask);
    threads.look();
    let second = threads.wants("a", FirstAttempt::Ask);
    let third = threads.wants("a", FirstAttempt::Ask);
    let other = threads.wants("b", FirstAttempt::Ask);
    threads.look();
    are(&threads.asks(), &[&first, &other]);
    threads.answers(0, ms(10));
    are(&threads.asks(), &[&second, &third, &other]);
}

/// Near, by a second thread; far, by the last one, however many asks there are.
#[test]
fn a_release_never_waits_behind_an_ask() {
    for trip in [ms(0), ms(10)] {
        let mut threads = Threads::with_server(trip);
        for nth in 0..1000 {
            threads.wants(&format!("lock {nth}"), FirstAttempt::Ask);
            threads.look();
        }
        let asking = threads.at_work();
        assert_eq!(asking, if trip == ms(0) { 1 } else { TASK_THREADS - 1 });
        let release = threads.wants("lock 0", FirstAttempt::Unlock);
        threads.look();
        are(&threads.cleanups(), &[&release]);
        assert_eq!(threads.at_work(), asking + 1);
    }
}

/// One quick answer makes the server near, while the threads that it was far for still wait.
#[test]
fn a_release_goes_beside_asks_to_a_server_that_was_far() {
    let mut threads = Threads::with_server(ms(10));
    for lock in ["a", "b", "c"] {
        threads.wants(lock, FirstAttempt::Ask);
        threads.look();
    }
    threads.answers(0, ms(0));
    let release = threads.wants("held", FirstAttempt::Unlock);
    threads.look();
    are(&threads.cleanups(), &[&release]);
}

/// Once half of the threads are on their way, the next batch leaves at its time, with all that has come until then.
#[test]
fn batches_to_a_far_server_are_paced() {
    let mut threads = Threads::with_server(ms(16));
    for nth in 0..4 {
        threads.wants(&format!("lock {nth}"), FirstAttempt::Ask);
        threads.look();
    }
    let began = threads.now;
    assert_eq!(threads.at_work(), 4);
    threads.wants("late", FirstAttempt::Ask);
    let thread = threads.called.pop().expect("a thread is called");
    assert!(matches!(threads.list.next(thread, Some(began)), Next::LookAt(at) if at == began + ms(1)));
    threads.wants("later", FirstAttempt::Ask);
    assert!(threads.called.is_empty(), "the thread takes it along");
    threads.looks(thread);
    assert_eq!(threads.in_hand[thread].as_ref().map(|batch| batch.asks.len()), Some(2));
    let began = threads.now;
    threads.wants("next", FirstAttempt::Ask);
    let thread = threads.called.pop().expect("a thread is called");
    assert!(matches!(threads.list.next(thread, Some(began)), Next::LookAt(_)));
    threads.answers(0, ms(16));
    assert_eq!((threads.at_work(), threads.now), (4, began), "the thread that waits takes what is left");
    // A thread that gives up all that is left, since the server is silent, keeps to no pace.
    assert!(matches!(threads.list.next(thread, None), Next::Make(..)));
}

#[test]
fn a_far_server_gets_the_larger_part_first() {
    let mut threads = Threads::with_server(ms(10));
    let release = threads.wants("held", FirstAttempt::Unlock);
    let asks = ["a", "b"].map(|lock| threads.wants(lock, FirstAttempt::Ask));
    let thread = threads.called.pop().expect("a thread is called");
    threads.looks(thread);
    are(&threads.asks(), &asks.each_ref());
    threads.look();
    are(&threads.cleanups(), &[&release]);
    // The last thread takes the release, however many asks there are: no thread comes after it.
    for lock in ["c", "d", "e", "f", "g"] {
        threads.wants(lock, FirstAttempt::Ask);
        threads.look();
    }
    assert_eq!(threads.at_work(), TASK_THREADS - 1);
    let last = threads.wants("held", FirstAttempt::Unlock);
    for lock in ["h", "i"] {
        threads.wants(lock, FirstAttempt::Ask);
    }
    threads.look();
    are(&threads.cleanups(), &[&release, &last]);
}

/// A thread pauses after a panic in the backend. It is called from its pause: no other may be left.
#[test]
fn after_a_panic_an_attempt_finds_a_thread() {
    struct InHand<'a>(&'a mut Threads);
    impl Drop for InHand<'_> {
        fn drop(&mut self) {
            let batch = self.0.in_hand[0].take().expect("it is at work");
            self.0.list.made(0, &batch, None);
        }
    }
    for trip in [ms(0), ms(10)] {
        let mut threads = Threads::with_server(trip);
        threads.wants("a", FirstAttempt::Ask);
        threads.look();
        let hand = InHand(&mut threads);
        let panics = AssertUnwindSafe(move || {
            let _hand = hand;
            panic!("planted");
        });
        catch_unwind(panics).expect_err("it panics");
        threads.wants("b", FirstAttempt::Ask);
        assert_eq!(threads.called, [0]);
    }
}

#[test]
fn an_ask_waits_for_what_was_given_up_before() {
    for cleanup in [DROP, LEAVE] {
        let mut threads = Threads::with_server(ms(10));
        let given_up = threads.wants("a", cleanup);
        threads.look();
        let early = threads.wants("a", FirstAttempt::Ask);
        let other = threads.wants("b", FirstAttempt::Ask);
        let unlocked = threads.wants("a", FirstAttempt::Unlock);
        let later = threads.wants("a", cleanup);
        threads.look();
        are(&threads.cleanups()[..1], &[&given_up]);
        are(&threads.asks(), &[&other]);
        threads.answers(0, ms(10));
        let (asks, cleanups) = (threads.asks(), threads.cleanups());
        assert!(asks.iter().any(|claim| Arc::ptr_eq(claim, &early)), "not for {later:?} nor {unlocked:?}");
        assert!(cleanups.iter().any(|claim| Arc::ptr_eq(claim, &later)));
    }
}

/// Its task left while it was asked for: the server has to see the ask first.
#[test]
fn a_withdrawal_is_put_off_until_its_ask_is_answered() {
    let mut threads = Threads::with_server(ms(10));
    let left = threads.wants("a", FirstAttempt::Ask);
    threads.look();
    threads.adds(&left, LEAVE);
    let again = threads.wants("a", FirstAttempt::Ask);
    threads.look();
    assert_eq!((threads.cleanups().len(), threads.at_work()), (0, 1));
    let other = threads.wants("a", FirstAttempt::Unlock); // the watchdog asks for it
    threads.look();
    are(&threads.cleanups(), &[&other]);
    threads.answers(1, ms(10));
    threads.answers(0, ms(10));
    are(&threads.cleanups(), &[&left]);
    assert!(threads.asks().is_empty());
    threads.answers(0, ms(10));
    are(&threads.asks(), &[&again]);
    threads.answers(0, ms(10));
    assert!(threads.list.is_idle() && threads.list.take_client().is_none());
}

/// In any order of events nothing is forgotten, one thread asks for a lock at a time, and in the order of the tasks.
#[test]
fn no_attempt_is_forgotten_or_overtakes() {
    for seed in 1..200_u64 {
        let mut state = seed;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut threads = Threads::with_server(if seed % 2 == 0 { ms(0) } else { ms(10) });
        let mut wanted: HashMap<LockName, VecDeque<Arc<Claim>>> = HashMap::new();
        let (mut left, mut asked) = (0_usize, 0_usize);
        let mut check = |threads: &Threads,
                         thread: usize,
                         wanted: &mut HashMap<LockName, VecDeque<Arc<Claim>>>| {
            for claim in threads.in_hand[thread].iter().flat_map(|batch| &batch.asks) {
                let first = wanted.get_mut(&claim.lock.name).and_then(VecDeque::pop_front).unwrap();
                assert!(Arc::ptr_eq(&first, claim), "seed {seed}: {claim:?} overtakes");
                let asks = |batch: &&Batch| batch.asks.iter().any(|other| other.lock.name == claim.lock.name);
                let threads = threads.in_hand.iter().flatten().filter(asks).count();
                assert_eq!(threads, 1, "seed {seed}: {claim:?} is asked for beside another");
                asked += 1;
            }
        };
        for step in 0..400 {
            if step < 300 && draw(2) == 0 {
                let lock = format!("lock {}", draw(3));
                let attempt =
                    [FirstAttempt::Ask, FirstAttempt::Ask, DROP, LEAVE, FirstAttempt::Unlock][draw(5)];
                let claim = threads.wants(&lock, attempt);
                if attempt == FirstAttempt::Ask {
                    wanted.entry(claim.lock.name.clone()).or_default().push_back(claim);
                    left += 1;
                }
            } else if !threads.called.is_empty() {
                let thread = threads.called.swap_remove(draw(threads.called.len()));
                // A thread that keeps to the pace looks again at some time, also too early.
                let is_paced = threads.looks_once(thread).is_some();
                threads.called.extend(is_paced.then_some(thread));
                threads.now += ms(1) / 10;
                check(&threads, thread, &mut wanted);
            } else if let Some(thread) =
                (0..TASK_THREADS).cycle().skip(draw(8)).take(8).find(|at| threads.in_hand[*at].is_some())
            {
                let batch = threads.in_hand[thread].take().unwrap();
                // An answer that comes at once makes the server near for long.
                threads.list.made(thread, &batch, Some(ms(if draw(60) == 0 { 0 } else { 10 })));
                threads.called.push(thread); // it wakes tasks, and looks then
            }
        }
        for _ in 0..2000 {
            while let Some(thread) = threads.called.pop() {
                threads.looks(thread);
                check(&threads, thread, &mut wanted);
            }
            let Some(thread) = threads.in_hand.iter().position(Option::is_some) else { break };
            let batch = threads.in_hand[thread].take().unwrap();
            threads.list.made(thread, &batch, None);
            threads.looks(thread);
            check(&threads, thread, &mut wanted);
        }
        assert_eq!(asked, left, "seed {seed}");
        assert!(threads.list.is_idle(), "seed {seed}: something is forgotten");
    }
}

/// A thread has the first ask in hand, and the server is silent. What a task asks and leaves meanwhile, again and again, is not kept.
#[test]
fn an_ask_whose_task_has_left_leaves_the_list() {
    let mut threads = Threads::with_server(ms(1));
    threads.wants("a", FirstAttempt::Ask);
    threads.look();
    let stays = threads.wants("a", FirstAttempt::Ask);
    let left: Vec<_> = (0..1000).map(|_| threads.leaves("a")).collect();
    let kept = left.iter().filter(|claim| Arc::strong_count(claim) > 1).count();
    assert!(kept <= 2, "{kept} are kept");
    threads.answers(0, ms(1));
    are(&threads.asks(), &[&stays]);
    threads.answers(0, ms(1));
    threads.leaves("b"); // of whose lock no other is left
    threads.look();
    assert!(threads.list.is_idle() && threads.list.take_client().is_none());
}

/// The first thread runs, or the task would have failed: the threads before a refused one do all the work.
#[test]
fn threads_that_the_system_refuses_get_no_work() {
    for refused in 0..TASK_THREADS {
        let mut threads = Threads::with_server(ms(10));
        threads.wants("first", FirstAttempt::Ask);
        threads.called.retain(|thread| *thread != refused);
        threads.called.extend(threads.list.there_is_no(refused));
        for nth in 0..100 {
            threads.wants(&format!("lock {nth}"), FirstAttempt::Ask);
            threads.look();
        }
        threads.wants("lock 0", FirstAttempt::Unlock);
        threads.look();
        assert_eq!(threads.at_work(), refused.max(1));
    }
}
