//! The whole conformance suite, each case on a database for itself, whose clock the cases move; and some cases through PgBouncer in
//! transaction mode. CONTRIBUTING.md says how to run all cases through PgBouncer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairlock_conformance::time::{Moved, pass_beside};
use fairlock_conformance::{Harness, Promise};
use fairlock_core::backend::Backend;
use fairlock_core::{Clock, LockKind, ManualClock};
use parking_lot::Mutex;

use crate::net::{Connection, Statement};
use crate::store::Store;
use crate::test_server::{new_database, pooled};
use crate::tests::{STANDING_CLOCK, pass, patient, session, soon};
use crate::{PostgresBackend, WakeUps};

/// `FAIRLOCK_POSTGRES_WAY` names one of the others.
const CHOSEN: u8 = 0;
/// Commands through PgBouncer, wake-ups from the server itself.
const POOLED: u8 = 1;
/// Through PgBouncer alone.
const POLLED: u8 = 2;
/// Directly, and the cases take plain locks.
const PLAIN: u8 = 3;

struct Database<const WAY: u8> {
    url: String,
    clock: ManualClock,
    /// Moves the clock of the database.
    con: Mutex<Connection>,
    /// They hear each new time.
    stores: Mutex<Vec<Weak<Store>>>,
}

impl<const WAY: u8> Database<WAY> {
    fn connect(&self) -> PostgresBackend {
        let builder = match way(WAY) {
            POOLED => patient(&pooled(&self.url)).listen_on(&self.url),
            POLLED => {
                let every = Duration::from_millis(5);
                patient(&pooled(&self.url)).wake_ups(WakeUps::Poll(every))
            }
            _ => patient(&self.url),
        };
        let backend = builder.connect().unwrap();
        backend.0.recent.stands.store(true, Ordering::Relaxed);
        backend
    }
}

fn way(way: u8) -> u8 {
    match std::env::var("FAIRLOCK_POSTGRES_WAY").as_deref() {
        _ if way != CHOSEN => way,
        Err(_) => CHOSEN,
        Ok("pooled") => POOLED,
        Ok("polled") => POLLED,
        Ok("plain") => PLAIN,
        Ok(other) => panic!("FAIRLOCK_POSTGRES_WAY is {other}: it has to be pooled, polled or plain"),
    }
}

impl<const WAY: u8> Harness for Database<WAY> {
    fn new() -> Self {
        let url = new_database();
        let mut con = session(&url);
        con.script(STANDING_CLOCK, soon()).unwrap();
        Database { url, clock: ManualClock::new(), con: Mutex::new(con), stores: Mutex::default() }
    }

    fn kind(&self) -> LockKind {
        if way(WAY) == PLAIN { LockKind::Plain } else { LockKind::Fair }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        let backend = self.connect();
        self.stores.lock().push(Arc::downgrade(&backend.0));
        Moved::new(backend)
    }

    fn clock(&self) -> Clock {
        self.clock.clone().into()
    }

    fn pass(&self, time: Duration) {
        let mut con = self.con.lock();
        pass_beside(&self.clock, time, |step| {
            let now = pass(&mut con, step);
            let stores = self.stores.lock();
            stores.iter().filter_map(Weak::upgrade).for_each(|store| store.recent.heard(now, Instant::now()));
        });
    }

    fn lose_hold(&self, name: &str) {
        let sql = "update fairlock.lock set rev = rev + 1, h_owner = null, h_request = null, h_token = null, h_count = null, \
                   h_since = null, h_ends = null, h_label = null where name = $1 returning true";
        self.con.lock().row(Statement::new(sql, [name.as_bytes().into()]), soon()).unwrap();
    }

    fn promises(&self, promise: Promise) -> bool {
        self.kind() != LockKind::Plain || promise == Promise::BothKinds
    }

    fn tells_unasked(&self) -> bool {
        way(WAY) != POLLED
    }

    fn assert_nothing_is_left(&self, name: &str) {
        let backend = self.connect();
        let pool = &backend.0.pool;
        let sql =
            "select count(*) from fairlock.lock where name = $1 and (state <> '' or h_owner is not null)";
        let statement = [Statement::new(sql, [name.as_bytes().into()])];
        let deadline = pool.deadline();
        let rows = pool.lend(deadline, |con| con.flight(&statement, deadline)).unwrap();
        assert_eq!(rows[0][0].number(0).unwrap(), 0, "more than the last number is left of {name}");
    }
}

mod suite {
    fairlock_conformance::conformance_tests!(super::Database<{ super::CHOSEN }>);
}

macro_rules! some_cases {
    ($way:expr) => {
        fairlock_conformance::conformance_tests! { super::Database<{ $way }>:
            a_hold_can_be_taken_by_force_and_its_holder_is_told
            a_wake_up_is_enough_and_nothing_is_found_by_polling
            a_dead_waiter_delays_the_others_by_one_place_at_most
            renewal_answers_each_item_for_itself
            a_release_grants_all_that_fit
            threads_of_many_clients_never_overlap
        }
    };
}

mod through_pgbouncer {
    some_cases!(super::POOLED);
}

mod polling_through_pgbouncer {
    some_cases!(super::POLLED);
}
