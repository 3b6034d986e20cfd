//! Histories of worker processes on one lock: without faults, and with killed or stopped processes. Each is checked for
//! violations. The first two are replayed by the rules.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use fairlock::{Client, PostgresBackend};
use fairlock_tests::history::{
    Event, Recorder, Rules, What, check_call_bounds, check_overlap, check_token_order, check_wake_up_gaps,
    count, now_ns, read, replay,
};
use fairlock_tests::soak::Dice;
use fairlock_tests::{Alone, PostgresServer, WorkDir, Worker, eventually, signals};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
const SOON: Duration = Duration::from_secs(20);
/// How late a timed event may be, with many processes on a busy machine.
const SLACK: Duration = Duration::from_secs(2);
/// The outage limit of the workers.
const OUTAGE: Duration = Duration::from_secs(10);
/// More turns than a run has.
const ENDLESS: u32 = 1_000_000;

/// A server, and workers that take turns on the lock `turns`.
struct Run {
    server: PostgresServer,
    dir: WorkDir,
}

impl Run {
    fn new() -> Run {
        let server = PostgresServer::start();
        let table = "create table test_counter (turns bigint not null); insert into test_counter values (0)";
        server.con().batch_execute(table).unwrap();
        Run { server, dir: WorkDir::new() }
    }

    fn history(&self) -> PathBuf {
        self.dir.file("history")
    }

    /// What happened, without violations: waiters were granted the lock within `gap` of its release, calls ended in time.
    fn judged(&self, gap: Duration, late: Duration) -> Vec<Event> {
        let events = read(&self.history()).unwrap();
        check_overlap(&events).unwrap();
        check_token_order(&events).unwrap();
        check_wake_up_gaps(&events, gap + SLACK).unwrap();
        check_call_bounds(&events, OUTAGE, late + SLACK).unwrap();
        events
    }

    /// Starts `n` workers with holds of 3 ms. All are connected before the first one goes.
    fn workers(&self, n: usize, turns: u32, lease: Duration, place: Duration) -> Vec<Worker> {
        let words = format!(
            "turns postgres {} turns {turns} 3 {} {} 0 {}",
            self.server.url(),
            lease.as_millis(),
            place.as_millis(),
            self.history().display()
        );
        let words: Vec<&str> = words.split(' ').collect();
        let mut workers: Vec<Worker> = (0..n).map(|_| Worker::start(PROGRAM, &words)).collect();
        workers.iter_mut().for_each(Worker::go);
        workers
    }

    /// How many turns were taken so far.
    fn progress(&self) -> usize {
        let row = self.server.con().query_one("select turns from test_counter", &[]).unwrap();
        usize::try_from(row.get::<_, i64>(0)).unwrap()
    }

    fn until_progress(&self, turns: usize) {
        let until = self.progress() + turns;
        eventually(SOON, "the workers go on", || self.progress() >= until);
    }

    fn kill(&self, mut worker: Worker) {
        worker.kill();
        let recorder = Recorder::open(&self.history()).unwrap();
        recorder.gone(worker.child().id(), now_ns());
    }

    /// Waits until the lock's row is that of an unused lock, which stays for a day. Dead waiters keep their tickets for two minutes.
    fn assert_unused(&self) {
        let in_use = "select 1 from fairlock.lock where h_ends > fairlock.micros() or dead_at > fairlock.micros() + 86520000000";
        eventually(SOON, "no hold is left", || self.server.con().query(in_use, &[]).unwrap().is_empty());
    }
}

/// Dice whose seed is printed; FAIRLOCK_TEST_SEED gives one.
fn dice() -> Dice {
    let given = std::env::var("FAIRLOCK_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(now_ns);
    println!("FAIRLOCK_TEST_SEED={seed}");
    Dice::new(seed)
}

/// Eight processes take exclusive turns, in order and without polling.
#[test]
fn eight_processes_take_turns_in_order_without_polling() {
    let _alone = Alone::here();
    let (run, [lease, place]) = (Run::new(), [30, 5].map(Duration::from_secs));
    let workers = run.workers(8, 60, lease, place);
    for worker in &workers {
        let all_well = "granted 60 failed 0 unknown 0 lost 0 polled 0 places_lost 0";
        worker.expect(all_well, Duration::from_secs(60));
    }
    assert_eq!(run.progress(), 480);
    let events = run.judged(Duration::ZERO, Duration::ZERO);
    let done = replay(&events, "turns", Rules::Queue, lease, place).unwrap();
    assert!(done.grants == 480 && done.handed_over > 300 && done.unseen == 0, "{done:?}");
    // The same with two grants out of order.
    let is_grant = |event: &Event| matches!(event.what, What::Granted { .. });
    let granted: Vec<usize> = (0..events.len()).filter(|&at| is_grant(&events[at])).collect();
    for pair in granted.windows(2).step_by(60) {
        let mut swapped = events.clone();
        (swapped[pair[0]].what, swapped[pair[1]].what) = (events[pair[1]].what, events[pair[0]].what);
        assert!(replay(&swapped, "turns", Rules::Queue, lease, place).is_err(), "{:?}", swapped[pair[0]]);
    }
    drop(workers);
    run.assert_unused();
}

/// Randomly killed workers cost one place or lease each, and no order.
#[test]
fn randomly_killed_workers_cost_one_place_or_lease_each() {
    const TIME: Duration = Duration::from_millis(1500);
    let _alone = Alone::here();
    let (run, mut dice) = (Run::new(), dice());
    let mut workers = run.workers(10, ENDLESS, TIME, TIME);
    for _ in 0..7 {
        run.until_progress(3 + usize::try_from(dice.roll(20)).unwrap());
        run.kill(workers.swap_remove(dice.index(workers.len())));
    }
    run.until_progress(40);
    workers.into_iter().for_each(|worker| run.kill(worker));
    // A place and a lease have the same length here; a death costs one of them.
    let events = run.judged(TIME, Duration::ZERO);
    let done = replay(&events, "turns", Rules::Queue, TIME, TIME).unwrap();
    assert_eq!(done.grants, count(&events, "turns"));
    // Afterwards the lock is free.
    let lock = Client::new(PostgresBackend::connect(&run.server.url()).unwrap()).unwrap();
    let lock = lock.fair_lock("turns").unwrap();
    lock.try_lock_for(TIME * 2 + SLACK).unwrap().guard().expect("in time").unlock().unwrap();
    run.assert_unused();
}

/// No replay: that does not know of processes that stand still, whose places end and come back.
#[test]
fn stopped_workers_never_hold_beside_others() {
    const TIME: Duration = Duration::from_millis(1500);
    let _alone = Alone::here();
    let (run, mut dice) = (Run::new(), dice());
    let workers = run.workers(8, ENDLESS, TIME, TIME);
    for _ in 0..4 {
        run.until_progress(3 + usize::try_from(dice.roll(20)).unwrap());
        let stopped = workers[dice.index(workers.len())].child();
        signals::stop(stopped);
        thread::sleep(TIME * 4 / 3); // the fault itself: longer than its lease and its place
        signals::cont(stopped);
    }
    run.until_progress(20);
    workers.into_iter().for_each(|worker| run.kill(worker));
    run.judged(TIME, TIME);
    run.assert_unused();
}
