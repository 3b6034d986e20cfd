//! Workers of this version and of an earlier one take turns on one lock, on each store. `tests/upgrade/run` builds the earlier worker,
//! and names it in `FAIRLOCK_OLD_WORKER`.

use std::env;
use std::thread;
use std::time::Duration;

use fairlock::PostgresBackend;
use fairlock_tests::dice::Dice;
use fairlock_tests::history::{check_overlap, count};
use fairlock_tests::turns::{Habits, Store, Turns};
use fairlock_tests::{Alone, PostgresServer, RedisServer, WorkDir, Worker};

const NEW: &str = env!("CARGO_BIN_EXE_lock_worker");
/// The lease and the place TTL of workers that are killed.
const TIME: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(60);
/// How many workers a fleet has.
const FLEET: usize = 4;

fn old() -> String {
    env::var("FAIRLOCK_OLD_WORKER").expect("tests/upgrade/run names the worker of the earlier version")
}

/// A store, and another place of the store: a lock of the same name there is another lock.
struct Beside<'a, S> {
    store: &'a S,
    discipline: &'static str,
    elsewhere: String,
}

impl<S: Store> Beside<'_, S> {
    fn check(&self) {
        self.a_fleet_in_two_places_is_found();
        self.both_hand_the_lock_to_each_other();
        self.a_fleet_is_upgraded_and_taken_back();
    }

    /// In order, and by messages alone: nobody polls. First a worker of this version begins, then a worker of the earlier version.
    fn both_hand_the_lock_to_each_other(&self) {
        let (address, habits) = (self.store.address(), Habits::new(self.discipline, 40));
        for first in [NEW, &old()] {
            let run = Turns::new(NEW, self.store, habits);
            let others = [old(), NEW.to_owned()].into_iter().cycle().take(FLEET - 1);
            let programs = [first.to_owned()].into_iter().chain(others);
            let mut all: Vec<Worker> =
                programs.map(|program| run.worker_of(&program, &address, &habits)).collect();
            all[0].go();
            run.until_more(1);
            all[1..].iter_mut().for_each(Worker::go);
            for worker in &all {
                worker.expect("granted 40 failed 0 unknown 0 lost 0 polled 0 places_lost 0", SOON);
            }
            let events = run.judged(Duration::ZERO, Duration::ZERO);
            assert_eq!(count(&events, "turns"), 40 * FLEET);
            assert!(run.in_order(&events) > 20 * FLEET);
        }
    }

    /// Each worker in turn is killed, wherever it is, and one of the other version takes its place.
    fn a_fleet_is_upgraded_and_taken_back(&self) {
        let (address, habits) = (self.store.address(), Habits::endless(self.discipline, TIME));
        let (run, mut dice) = (Turns::new(NEW, self.store, habits), Dice::of_this_test());
        let start = |program: &str| {
            let mut worker = run.worker_of(program, &address, &habits);
            worker.go();
            worker
        };
        let mut fleet: Vec<Worker> = (0..FLEET).map(|_| start(&old())).collect();
        for program in [NEW, &old()] {
            for worker in &mut fleet {
                run.until_more(2 + dice.roll(10));
                run.kill(std::mem::replace(worker, start(program)));
            }
        }
        run.until_more(20);
        fleet.into_iter().for_each(|worker| run.kill(worker));
        run.in_order(&run.judged(TIME, Duration::ZERO));
    }

    /// The judge can fail: the versions do not meet, as if they had different keys.
    fn a_fleet_in_two_places_is_found(&self) {
        let habits = Habits::new(self.discipline, 100);
        let run = Turns::new(NEW, self.store, habits);
        let mut fleet = [(NEW, &self.store.address()), (&old(), &self.elsewhere)]
            .map(|(program, address)| run.worker_of(program, address, &habits));
        fleet.iter_mut().for_each(Worker::go);
        fleet.iter().for_each(|worker| _ = worker.next(SOON));
        let events = run.events();
        assert!(count(&events, "turns") == 200 && check_overlap(&events).is_err());
    }
}

#[test]
fn two_versions_share_a_lock_on_each_store() {
    let _alone = Alone::for_as_long(SOON * 3);
    let (redis, postgres, dir) = (RedisServer::start(), PostgresServer::start(), WorkDir::new());
    PostgresBackend::migrate(&postgres.url()).unwrap();
    let database = postgres.new_database();
    let mut con = postgres.con_to(database.rsplit('/').next().unwrap());
    con.batch_execute("create table test_counter as select 0::bigint as turns").unwrap();
    let other_dir = dir.file("elsewhere").to_str().unwrap().to_owned();
    let on_redis = Beside { store: &redis, discipline: "hand_off", elsewhere: format!("{}/1", redis.url()) };
    let on_postgres = Beside { store: &postgres, discipline: "postgres", elsewhere: database };
    let on_files = Beside { store: &dir, discipline: "file", elsewhere: other_dir };
    thread::scope(|scope| {
        scope.spawn(|| on_redis.check());
        scope.spawn(|| on_postgres.check());
        on_files.check();
    });
}
