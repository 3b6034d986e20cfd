//! Histories of worker processes on one lock by discipline `HandOff`: without faults, with killed processes, and with
//! cut connections. Each is checked for violations. Those without cut connections are replayed by the rules.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::history::{Event, Recorder, Recording, Replayed, Rules, What, now_ns, read, replay};
use fairlock_tests::monitor::{self, Queue, Seen};
use fairlock_tests::oracle::{check_all, count};
use fairlock_tests::soak::Dice;
use fairlock_tests::{Alone, Monitor, RedisServer, WorkDir, Worker, assert_no_residue, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
const SOON: Duration = Duration::from_secs(20);
/// How late a timed event may be, with sixteen processes on a busy machine with two cores.
const SLACK: Duration = Duration::from_secs(2);
/// The outage limit of the workers.
const OUTAGE: Duration = Duration::from_secs(10);

/// A server, and workers that take turns on the lock `turns`.
struct Run {
    server: RedisServer,
    monitor: Monitor,
    dir: WorkDir,
}

/// The settings of the workers.
struct Habits {
    turns: u32,
    lease_ms: u32,
    place_ms: u32,
    limit_ms: u32,
}

impl Run {
    fn new() -> Run {
        let server = RedisServer::start();
        Run { monitor: Monitor::start(&server), server, dir: WorkDir::new() }
    }

    fn history(&self) -> PathBuf {
        self.dir.file("history")
    }

    /// What the workers recorded, without violations: waiters were granted the lock within `gap` of its release.
    fn judged(&self, gap: Duration) -> Vec<Event> {
        let events = read(&self.history()).unwrap();
        check_all(&events, gap + SLACK, OUTAGE, SLACK).unwrap();
        events
    }

    /// What the server did.
    fn seen(&self) -> Vec<Seen> {
        monitor::read(&self.monitor.until_now(&self.server), Queue::HandOff, "turns")
    }

    /// Starts `n` workers with holds of 3 ms. All are connected before the first one goes.
    fn workers(&self, n: usize, habits: &Habits) -> Vec<Worker> {
        let Habits { turns, lease_ms, place_ms, limit_ms } = habits;
        let words = format!(
            "turns hand_off {} turns {turns} 3 {lease_ms} {place_ms} {limit_ms} {}",
            self.server.url(),
            self.history().display()
        );
        let words: Vec<&str> = words.split(' ').collect();
        let mut workers: Vec<Worker> = (0..n).map(|_| Worker::start(PROGRAM, &words)).collect();
        workers.iter_mut().for_each(Worker::go);
        workers
    }

    /// How many turns were taken so far.
    fn progress(&self) -> u32 {
        self.server.query::<Option<u32>>(&["GET", "test:counter"]).unwrap_or(0)
    }

    fn until_progress(&self, turns: u32) {
        let until = self.progress() + turns;
        eventually(SOON, "the workers go on", || self.progress() >= until);
    }
}

/// Dice whose seed is printed; FAIRLOCK_TEST_SEED gives one.
fn dice() -> Dice {
    let given = std::env::var("FAIRLOCK_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(now_ns);
    println!("FAIRLOCK_TEST_SEED={seed}");
    Dice::new(seed)
}

/// What the rules say of a history, with the workers' lease and place TTL.
fn replayed(events: &[Event], lease_ms: u64, place_ms: u64) -> Replayed {
    let [lease, place] = [lease_ms, place_ms].map(Duration::from_millis);
    replay(events, "turns", Rules::HandOff, lease, place).unwrap()
}

fn refused(events: &[Event]) -> bool {
    let [lease, place] = [30, 5].map(Duration::from_secs);
    replay(events, "turns", Rules::HandOff, lease, place).is_err()
}

fn token(event: &Event) -> Option<u64> {
    if let What::Granted { token } = event.what { Some(token) } else { None }
}

/// Sixteen processes take a hundred exclusive turns each, in order and without polling.
#[test]
fn sixteen_processes_take_turns_in_order_without_polling() {
    let _alone = Alone::here();
    let run = Run::new();
    let workers = run.workers(16, &Habits { turns: 100, lease_ms: 30_000, place_ms: 5000, limit_ms: 0 });
    for worker in &workers {
        let all_well = "granted 100 failed 0 unknown 0 lost 0 polled 0 places_lost 0";
        worker.expect(all_well, Duration::from_secs(120));
    }
    assert_eq!(run.progress(), 1600);
    let (events, seen) = (run.judged(Duration::ZERO), run.seen());
    assert_eq!((count(&events, "turns"), monitor::grants(&seen)), (1600, 1600));
    let done = replayed(&events, 30_000, 5000);
    assert!(done.grants == 1600 && done.handed_over > 1000 && done.unseen == 0, "{done:?}");
    // The same with one wrong event.
    let granted: Vec<usize> = (0..events.len()).filter(|&at| token(&events[at]).is_some()).collect();
    for pair in granted.windows(2).step_by(100) {
        let (mut swapped, mut held) = (events.clone(), events.clone());
        (swapped[pair[0]].what, swapped[pair[1]].what) = (events[pair[1]].what, events[pair[0]].what);
        assert!(
            refused(&swapped),
            "with tokens {:?} and {:?} swapped",
            token(&events[pair[0]]),
            token(&events[pair[1]])
        );
        let is_its_release =
            |event: &&mut Event| event.who == events[pair[0]].who && event.what == What::Release;
        let release = held[pair[0]..].iter_mut().find(is_its_release).unwrap();
        release.at = events[pair[1]].at + 1;
        assert!(refused(&held), "with a hold of token {:?} that lasts too long", token(&events[pair[0]]));
    }
    monitor::check_order(&seen).unwrap();
    assert!(monitor::without_a_turn(&seen).is_empty(), "a waiter was passed over");
    drop(workers);
    assert_no_residue(&run.server, &["test:counter"]);
}

/// Waits that time out among hand-offs end on time, and leave nothing.
#[test]
fn waits_that_time_out_among_hand_offs_end_on_time() {
    let _alone = Alone::here();
    let run = Run::new();
    let workers = run.workers(8, &Habits { turns: 150, lease_ms: 30_000, place_ms: 5000, limit_ms: 20 });
    let (mut granted, mut failed) = (0, 0);
    for worker in &workers {
        let said = worker.next(Duration::from_secs(60));
        let words: Vec<&str> = said.split(' ').collect();
        granted += words[1].parse::<usize>().unwrap();
        failed += words[3].parse::<usize>().unwrap();
        assert!(said.contains(" unknown 0 lost 0 polled 0 places_lost 0"), "{said}");
    }
    assert!(granted + failed == 8 * 150 && failed > 50, "{granted} granted, {failed} failed");
    let (events, seen) = (run.judged(Duration::ZERO), run.seen());
    assert_eq!(count(&events, "turns"), granted);
    assert_eq!(replayed(&events, 30_000, 5000).grants, granted);
    monitor::check_order(&seen).unwrap();
    drop(workers);
    assert_no_residue(&run.server, &["test:counter"]);
}

/// Randomly killed workers cost one place or lease each, and no order.
#[test]
fn randomly_killed_workers_cost_one_place_or_lease_each() {
    const LEASE: Duration = Duration::from_millis(1500);
    let _alone = Alone::here();
    let (run, mut dice) = (Run::new(), dice());
    let mut workers =
        run.workers(14, &Habits { turns: 1_000_000, lease_ms: 1500, place_ms: 1500, limit_ms: 0 });
    let recorder = Recorder::open(&run.history()).unwrap();
    let kill = |mut worker: Worker| {
        worker.kill();
        let pid = worker.child().id();
        recorder.gone(pid, now_ns());
        pid
    };
    let mut victims = BTreeSet::new();
    for _ in 0..10 {
        run.until_progress(u32::try_from(3 + dice.roll(20)).unwrap());
        victims.insert(kill(workers.swap_remove(dice.index(workers.len()))));
    }
    run.until_progress(40);
    // Only dead waiters were passed over. The rest are killed after this.
    let seen = run.seen();
    for worker in workers {
        kill(worker);
    }
    // A place and a lease have the same length here; a death costs one of them.
    let events = run.judged(LEASE);
    let clients = events.iter().filter(|event| victims.contains(&event.pid)).map(|event| event.who.clone());
    let clients: BTreeSet<String> = clients.collect();
    for who in monitor::without_a_turn(&seen) {
        assert!(clients.contains(who.split(':').next().unwrap()), "{who} lives and was passed over");
    }
    monitor::check_order_so_far(&seen).unwrap();
    assert_eq!(replayed(&events, 1500, 1500).grants, count(&events, "turns"));
    // Afterwards the lock is free.
    let backend = RedisBackend::builder(&run.server.url()).discipline(Discipline::HandOff).connect().unwrap();
    let lock = Client::builder(backend).build().unwrap().fair_lock("turns").unwrap();
    lock.try_lock_for(LEASE * 2 + SLACK).unwrap().guard().expect("in time").unlock().unwrap();
    let left = ["test:counter", "fairlock_queue:{turns}", "fairlock_record:{turns}"];
    assert_no_residue(&run.server, &left);
}

/// Cut connections and forgotten scripts cost no turn, no place and no order.
#[test]
fn cut_connections_and_forgotten_scripts_cost_no_turn() {
    const PLACE: Duration = Duration::from_millis(1500);
    let _alone = Alone::here();
    let (run, mut dice) = (Run::new(), dice());
    let workers = run.workers(8, &Habits { turns: 60, lease_ms: 30_000, place_ms: 1500, limit_ms: 0 });
    let cut = |subscribed: bool| {
        // Neither MONITOR nor the workers' counting connections.
        let ours = |line: &&String| !line.contains(" name=side ") && !line.contains(" cmd=monitor ");
        for line in run.server.clients().iter().filter(ours) {
            if line.contains(" sub=1 ") == subscribed {
                let id = line.split(' ').next().unwrap().trim_start_matches("id=").to_owned();
                // It may have gone meanwhile.
                run.server.query::<i64>(&["CLIENT", "KILL", "ID", &id]);
            }
        }
    };
    let mut cuts = 0;
    for _ in 0..10 {
        run.until_progress(u32::try_from(5 + dice.roll(30)).unwrap());
        match dice.roll(3) {
            0 => cut(false),
            1 => {
                cuts += workers.len();
                cut(true);
            }
            _ => run.server.query::<()>(&["SCRIPT", "FLUSH"]),
        }
    }
    for worker in &workers {
        let said = worker.next(Duration::from_secs(60));
        assert!(said.starts_with("granted 60 failed 0 unknown 0 lost 0 "), "{said}");
        assert!(said.ends_with(" places_lost 0"), "{said}");
    }
    assert_eq!(run.progress(), 480);
    let (events, seen) = (run.judged(PLACE / 3), run.seen());
    assert_eq!((count(&events, "turns"), monitor::grants(&seen)), (480, 480));
    monitor::check_order_with_cuts(&seen, cuts).unwrap();
    drop(workers);
    assert_no_residue(&run.server, &["test:counter"]);
}

/// One hold is longer than its lease, and all wait for longer than their places last without a heartbeat.
#[test]
fn a_hold_and_waits_that_are_renewed_are_replayed() {
    const TURNS: usize = 100;
    const TIME: Duration = Duration::from_millis(1500);
    let _alone = Alone::here();
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let history = &dir.file("history");
    thread::scope(|scope| {
        for number in 0..8 {
            let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff);
            let backend = backend.response_timeout(TIME / 3).connect().unwrap();
            let backend = Recording::new(backend, Recorder::open(history).unwrap());
            scope.spawn(move || {
                let client = Client::builder(backend).lease(TIME).place_ttl(TIME).build().unwrap();
                let recorder = Recorder::open(history).unwrap();
                let (lock, who) = (client.fair_lock("turns").unwrap(), client.id().to_string());
                for turn in 0..TURNS {
                    recorder.ask(&who, "turns", None);
                    let guard = lock.lock().unwrap();
                    recorder.granted(&who, "turns", guard.token().get());
                    let work = if (number, turn) == (3, 50) { TIME * 4 / 3 } else { Duration::ZERO };
                    thread::sleep(work);
                    recorder.release(&who, "turns");
                    guard.unlock().unwrap();
                    recorder.released(&who, "turns");
                }
            });
        }
    });
    assert_no_residue(&server, &[]);
    let mut events = read(history).unwrap();
    let done = replayed(&events, 1500, 1500);
    assert!(done.grants == 8 * TURNS && done.handed_over > TURNS && done.unseen == 0, "{done:?}");
    events.retain(|event| !matches!(event.what, What::Renewed { .. }));
    let found = replay(&events, "turns", Rules::HandOff, TIME, TIME).unwrap_err().0;
    assert!(found[0].contains("believed in its hold until"), "{found:?}");
}
