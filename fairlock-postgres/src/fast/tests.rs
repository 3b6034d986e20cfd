//! The fast parts beside the general part: the same commands to two locks, of which one has no fast part. Same answers, same rows, up
//! to the clock. And how many round trips a call takes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::slice::from_ref;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, Hold, LockId, Place, Released, RequestId, Wait,
};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::PostgresBackend;
use crate::net::address::Address;
use crate::net::{Connection, Statement, open};
use crate::presence::key_of;
use crate::test_server::{Server, new_database};
use crate::tests::soon;

const OWNERS: [&str; 3] = ["a:1", "b:1", "c:1"];
const LEASES: [Duration; 2] = [Duration::from_secs(100), Duration::from_secs(1000)];
const DAY: i64 = 86_400_000_000;

/// A command to both locks.
#[derive(Clone, Copy, Debug)]
enum Command {
    Ask {
        owner: usize,
        request: u64,
        wait: Wait,
        has_ticket: bool,
        lease: usize,
        kind: LockKind,
    },
    /// One of the latest grants, maybe with another owner, request or token.
    Release {
        latest: usize,
        owner: Option<usize>,
        request: u64,
        token: u64,
    },
    Withdraw {
        owner: usize,
        request: u64,
    },
    Kick {
        owner: usize,
        request: u64,
    },
    /// The lease of the hold ends now.
    Ends,
    /// The clock was set back by a minute since the last number was drawn.
    ClockGoesBack,
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let wait = prop_oneof![1 => Just(Wait::No), 3 => Just(Wait::Forever)];
    let kind = prop_oneof![4 => Just(LockKind::Fair), 1 => Just(LockKind::Plain)];
    let ask = (0..OWNERS.len(), 1..3_u64, wait, any::<bool>(), 0..LEASES.len(), kind);
    let spoilt = prop_oneof![4 => Just((None, 0, 0)), 1 => (Just(None), 1..2_u64, 0..2_u64), 1 => (0..OWNERS.len())
        .prop_map(|owner| (Some(owner), 0, 0))];
    let member = || (0..OWNERS.len(), 1..3_u64);
    let command = prop_oneof![
        8 => ask.prop_map(|(owner, request, wait, has_ticket, lease, kind)| Command::Ask {
            owner, request, wait, has_ticket, lease, kind
        }),
        8 => (0..2_usize, spoilt).prop_map(|(latest, (owner, request, token))| Command::Release {
            latest, owner, request, token
        }),
        1 => member().prop_map(|(owner, request)| Command::Withdraw { owner, request }),
        1 => member().prop_map(|(owner, request)| Command::Kick { owner, request }),
        1 => Just(Command::Ends),
        1 => Just(Command::ClockGoesBack),
    ];
    vec(command, 1..25)
}

/// One of the two locks.
struct Way<'a> {
    backend: &'a PostgresBackend,
    is_fast: bool,
    name: LockName,
    /// All numbers in the order in which they were seen, and the grants.
    numbers: Vec<u64>,
    grants: Vec<(OwnerId, RequestId, FencingToken)>,
    tickets: Vec<((usize, u64), u64)>,
    fast_grants: usize,
    fast_releases: usize,
}

impl<'a> Way<'a> {
    fn new(backend: &'a PostgresBackend, name: &str, is_fast: bool) -> Way<'a> {
        let (numbers, grants, tickets) = Default::default();
        let name = LockName::new(&format!("{name} {is_fast}")).unwrap();
        Way { backend, is_fast, name, numbers, grants, tickets, fast_grants: 0, fast_releases: 0 }
    }

    fn acquire(&mut self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        let store = &self.backend.0;
        if !self.is_fast {
            return store
                .step(None, &self.name, store.pool.deadline(), |entry, turn| entry.acquire(turn, ask))?;
        }
        store.recent.forget_busy();
        let before = trips(self.backend);
        let answer = store.acquire_all(from_ref(ask)).pop().unwrap();
        self.fast_grants += usize::from(trips(self.backend) == before + 1);
        answer
    }

    fn release(&mut self, hold: &Hold<'_>) -> Released {
        let store = &self.backend.0;
        if !self.is_fast {
            let deadline = store.pool.deadline();
            return store.step(None, &self.name, deadline, |entry, turn| entry.release(turn, hold)).unwrap();
        }
        store.recent.forget_busy();
        let before = trips(self.backend);
        let answer = store.release_all(from_ref(hold)).pop().unwrap();
        self.fast_releases += usize::from(trips(self.backend) == before + 1);
        answer.unwrap()
    }

    /// As the how-manieth number it was seen.
    fn nth(&mut self, number: u64) -> usize {
        let seen = self.numbers.iter().position(|seen| *seen == number);
        seen.unwrap_or_else(|| {
            self.numbers.push(number);
            self.numbers.len() - 1
        })
    }

    /// The answer in words.
    fn run(&mut self, command: Command, con: &mut Connection) -> String {
        let member = |owner: usize, request: u64| (OwnerId::new(OWNERS[owner]), RequestId::new(request));
        let lock = LockId::new(self.name.clone(), LockKind::Fair);
        match command {
            Command::Ask { owner, request, wait, has_ticket, lease, kind } => {
                let ticket =
                    self.tickets.iter().rev().find(|(member, _)| *member == (owner, request) && has_ticket);
                let ticket = ticket.map_or(0, |(_, ticket)| *ticket);
                let (lock, (owner_id, id)) = (LockId::new(self.name.clone(), kind), member(owner, request));
                let mut ask = Acquire::new(Place::new(&lock, &owner_id, id), LEASES[lease]);
                (ask.place.wait, ask.place.ticket, ask.label) = (wait, ticket, OWNERS[owner]);
                match self.acquire(&ask).unwrap() {
                    Acquired::Granted { token, lease } => {
                        self.grants.push((owner_id, id, token));
                        format!("granted {} for {}", self.nth(token.get()), lease.as_secs().div_ceil(50))
                    }
                    Acquired::Queued { rank, ticket, .. } => {
                        self.tickets.push(((owner, request), ticket));
                        format!("queued {rank} {}", self.nth(ticket))
                    }
                    Acquired::Busy { .. } => "busy".to_owned(),
                }
            }
            Command::Release { latest, owner, request, token } => {
                let Some((holder, id, granted)) = self.grants.iter().rev().nth(latest).cloned() else {
                    return String::new();
                };
                let owner = owner.map_or(holder, |owner| OwnerId::new(OWNERS[owner]));
                let (id, token) =
                    (RequestId::new(id.get() + request), FencingToken::new(granted.get() + token));
                format!("{:?}", self.release(&Hold::new(&lock, &owner, id, token)))
            }
            Command::Withdraw { owner, request } => {
                let (owner, request) = member(owner, request);
                let withdrawn = self.backend.withdraw(&Place::new(&lock, &owner, request)).unwrap();
                format!("{withdrawn:?}").split(' ').next().unwrap().to_owned()
            }
            Command::Kick { owner, request } => {
                let (owner, request) = member(owner, request);
                let kicked = self.backend.kick(&Place::new(&lock, &owner, request)).unwrap();
                format!("{kicked:?}").split(' ').next().unwrap().to_owned()
            }
            Command::Ends => self.change("h_ends = least(h_ends, fairlock.micros())", con),
            Command::ClockGoesBack => self.change("last = last + 60000000", con),
        }
    }

    fn change(&self, what: &str, con: &mut Connection) -> String {
        let sql = format!("update fairlock.lock set {what} where name = '{}'", self.name.as_str());
        con.script(&sql, soon()).unwrap();
        String::new()
    }

    /// All that stands in the row.
    fn row(&mut self, con: &mut Connection) -> String {
        let sql = "select coalesce(h_owner, ''), coalesce(h_request, 0), coalesce(h_token, 0), coalesce(h_count, 0), \
                   coalesce(h_ends - h_since, 0), coalesce(h_label, ''), rev, last, dead_at - greatest(last, h_ends), heads, state = '', \
                   coalesce(fairlock.micros() - h_since, 0) from fairlock.lock where name = $1";
        let name = [self.name.as_str().as_bytes().into()];
        let rows = con.flight(&[Statement::new(sql, name)], soon()).unwrap();
        let Some(row) = rows[0].first() else { return "none".to_owned() };
        let number = |at| row.number(at).unwrap();
        let (token, last) = (number(2).cast_unsigned(), number(7).cast_unsigned());
        let greatest = self.numbers.iter().max().copied().unwrap_or_default();
        assert!((0..60_000_000).contains(&number(11)), "{row:?}");
        format!(
            "{} {} {} {} {} {} rev {} last {} {} dead {} {:?} {}",
            row.text(0).unwrap(),
            number(1),
            if token == 0 { 0 } else { self.nth(token) + 1 },
            row.count(3).unwrap(),
            number(4) / 50_000_000,
            row.text(5).unwrap(),
            number(6),
            last == token,
            last > greatest,
            number(8) == DAY,
            row.numbers(9).unwrap(),
            row.flag(10).unwrap(),
        )
    }

    fn line(&self) -> Vec<String> {
        let state = self.backend.inspect(&LockId::new(self.name.clone(), LockKind::Fair), 0..9).unwrap();
        state.line.iter().map(|waiter| format!("{} {:?}", waiter.owner, waiter.request)).collect()
    }
}

/// How many round trips there were.
fn trips(backend: &PostgresBackend) -> u64 {
    let pool = &backend.0.pool;
    pool.lend(pool.deadline(), |con| Ok(con.trips)).unwrap()
}

/// A backend with one connection, and a session in which all owners are present.
fn stage() -> (PostgresBackend, Connection) {
    let url = new_database();
    let mut con = open(&Address::parse(&url).unwrap(), soon()).unwrap();
    for client in ["a", "b", "c"] {
        let present = [Statement::new("select pg_advisory_lock($1)", [key_of(client).into()])];
        con.flight(&present, soon()).unwrap();
    }
    (PostgresBackend::builder(&url).connections(1).connect().unwrap(), con)
}

fn ask(owner: usize, request: u64) -> Command {
    Command::Ask { owner, request, wait: Wait::Forever, has_ticket: true, lease: 0, kind: LockKind::Fair }
}

const RELEASE: Command = Command::Release { latest: 0, owner: None, request: 0, token: 0 };

/// What chance seldom comes to.
fn scenes() -> Vec<Vec<Command>> {
    let all_wait = [ask(0, 1), ask(1, 1), ask(2, 1)];
    let kick = Command::Kick { owner: 1, request: 1 };
    vec![
        vec![ask(0, 1), RELEASE, RELEASE, ask(0, 1), ask(0, 1), RELEASE],
        vec![ask(0, 1), Command::Release { latest: 0, owner: None, request: 1, token: 0 }, RELEASE],
        vec![ask(0, 1), Command::Release { latest: 0, owner: Some(1), request: 0, token: 0 }, RELEASE],
        vec![ask(0, 1), Command::Ends, RELEASE, ask(0, 1), Command::Ends, ask(1, 1), RELEASE],
        vec![ask(0, 1), RELEASE, Command::ClockGoesBack, ask(1, 1), RELEASE, ask(2, 1)],
        vec![ask(0, 1), Command::ClockGoesBack, RELEASE, Command::ClockGoesBack, ask(0, 1)],
        [&all_wait[..], &[RELEASE, ask(0, 1), RELEASE, RELEASE, RELEASE, ask(0, 2), RELEASE]].concat(),
        [&all_wait[..2], &[RELEASE, Command::Ends, ask(2, 1), RELEASE]].concat(),
        [&all_wait[..2], &[Command::Ends, ask(2, 1), RELEASE, RELEASE]].concat(),
        [&all_wait[..2], &[kick, ask(1, 1), RELEASE, RELEASE, ask(1, 1)]].concat(),
    ]
}

#[test]
fn the_fast_parts_do_what_the_general_part_does() {
    let (backend, con) = stage();
    let (con, cases) = (std::cell::RefCell::new(con), std::cell::Cell::new((0, 0, 0)));
    let differ = |commands: Vec<Command>| {
        let (case, grants, releases) = cases.get();
        cases.set((case + 1, grants, releases)); // a case that fails is followed by smaller ones
        let [mut fast, mut general] =
            [true, false].map(|is_fast| Way::new(&backend, &format!("{case}"), is_fast));
        let con = &mut *con.borrow_mut();
        if case % 4 > 0 {
            let sql = format!("insert into fairlock.lock (name) values ('{case} true'), ('{case} false')");
            con.script(&sql, soon()).unwrap();
        }
        for (at, command) in commands.iter().enumerate() {
            let mut outcome = |way: &mut Way<'_>| (way.run(*command, con), way.row(con), way.line());
            let outcomes = [outcome(&mut fast), outcome(&mut general)];
            prop_assert_eq!(&outcomes[0], &outcomes[1], "after {:?}", &commands[..=at]);
        }
        cases.set((case + 1, grants + fast.fast_grants, releases + fast.fast_releases));
        Ok(())
    };
    for scene in scenes() {
        differ(scene).unwrap_or_else(|difference| panic!("{difference}"));
    }
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    runner.run(&commands(), differ).unwrap_or_else(|difference| panic!("{difference}"));
    let (cases, grants, releases) = cases.get();
    assert!(
        grants > cases && releases > cases / 4,
        "of {cases} cases {grants} grants and {releases} releases were fast"
    );
}

#[test]
fn an_attempt_that_arrives_late_begins_nothing() {
    let (backend, _con) = stage();
    let store = &backend.0;
    let mut way = Way::new(&backend, "x", true);
    let (lock, owner) = (LockId::new(way.name.clone(), LockKind::Fair), OwnerId::new("a:1"));
    let ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(1)), LEASES[0]);
    let Acquired::Granted { token, .. } = way.acquire(&ask).unwrap() else { panic!("it is free") };
    way.release(&Hold::new(&lock, &owner, RequestId::new(1), token));
    let attempt = store.fast_acquire(&ask, Instant::now()).unwrap();
    let arrives = || {
        store.pool.lend(store.pool.deadline(), |con| con.flight(from_ref(&attempt), store.pool.deadline()))
    };
    let is_held = || backend.inspect(&lock, 0..0).unwrap().holder().is_some();
    thread::sleep(super::MARGIN + Duration::from_millis(1));
    assert_eq!((arrives().unwrap()[0].len(), is_held()), (0, false));
}

#[test]
fn a_cycle_is_two_round_trips_and_a_hand_off_two_for_each_side() {
    let (backend, _con) = stage();
    let [one, other] = ["one", "other"].map(|name| LockId::new(LockName::new(name).unwrap(), LockKind::Fair));
    let [ann, bob] = ["a:1", "b:1"].map(OwnerId::new);
    let ask = |lock: &LockId, owner: &OwnerId| {
        let before = trips(&backend);
        let answer =
            backend.acquire(&Acquire::new(Place::new(lock, owner, RequestId::new(1)), LEASES[0])).unwrap();
        (answer, trips(&backend) - before)
    };
    let grant = |lock: &LockId, owner: &OwnerId| match ask(lock, owner) {
        (Acquired::Granted { token, .. }, trips) => (token, trips),
        (other, _) => panic!("{other:?}"),
    };
    let release = |lock: &LockId, owner: &OwnerId, token| {
        let before = trips(&backend);
        assert_eq!(
            backend.release(&Hold::new(lock, owner, RequestId::new(1), token)).unwrap(),
            Released::Released
        );
        trips(&backend) - before
    };
    let (token, first) = grant(&one, &ann);
    assert_eq!((first, release(&one, &ann, token)), (3, 1), "the lock is new, and its name");
    let (token, taken) = grant(&one, &ann);
    assert_eq!((taken, release(&one, &ann, token)), (1, 1));
    let (token, first) = grant(&other, &ann);
    assert_eq!(first, 4, "an attempt before");
    assert!(matches!(ask(&other, &bob), (Acquired::Queued { .. }, 3)));
    backend.0.recent.is_busy(&other.name); // also if that was longer ago on a busy machine
    assert_eq!(release(&other, &ann, token), 2, "it was busy just now");
    backend.0.recent.is_busy(&other.name);
    assert!(matches!(ask(&other, &ann), (Acquired::Queued { .. }, 2)));
    backend.0.recent.forget_busy();
    // Many in one trip, each for itself: what was not fast is two more.
    let locks: Vec<_> =
        (0..64).map(|n| LockId::new(LockName::new(&format!("{n}")).unwrap(), LockKind::Fair)).collect();
    for lock in &locks[1..] {
        let (token, _) = grant(lock, &ann);
        release(lock, &ann, token);
    }
    let asks: Vec<_> =
        locks.iter().map(|lock| Acquire::new(Place::new(lock, &ann, RequestId::new(7)), LEASES[0])).collect();
    let before = trips(&backend);
    let answers = backend.acquire_all(&asks);
    assert_eq!(trips(&backend) - before, 1 + 3);
    let hold = |(lock, answer): (_, &Result<_, _>)| match answer {
        Ok(Acquired::Granted { token, .. }) => Hold::new(lock, &ann, RequestId::new(7), *token),
        other => panic!("{other:?}"),
    };
    let holds: Vec<_> = locks.iter().zip(&answers).map(hold).collect();
    let before = trips(&backend);
    assert!(backend.release_all(&holds).iter().all(|answer| matches!(answer, Ok(Released::Released))));
    assert_eq!(trips(&backend) - before, 1);
}

/// As behind a pooler that does not show, or after DISCARD ALL.
#[test]
fn a_session_that_does_not_know_a_statement_costs_one_call() {
    let (backend, _con) = stage();
    let mut way = Way::new(&backend, "x", true);
    let (lock, owner) = (LockId::new(way.name.clone(), LockKind::Fair), OwnerId::new("a:1"));
    let ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(1)), LEASES[0]);
    way.acquire(&ask).unwrap();
    let pool = &backend.0.pool;
    pool.lend(pool.deadline(), |con| con.script("deallocate all", pool.deadline())).unwrap();
    let before = trips(&backend);
    let _ = way.acquire(&ask);
    assert!(matches!(way.acquire(&ask), Ok(Acquired::Granted { .. })));
    assert!(trips(&backend) > before, "on the same connection");
}

/// The bounds are shorter than in the schema, and a server that was just made counts as any other.
const SHORTER: &str = "do $$ begin execute replace(replace(replace(pg_get_functiondef('fairlock.grace_ends()'::regprocedure), \
                       '30 s', '5 s'), '30000000', '5000000'), '+ 10 ', '+ 0 '); end $$";

#[test]
fn after_a_crash_that_forgets_holds_nothing_is_granted_until_they_are_over() {
    let server = Server::start("-crash", &["wal_writer_delay=10s"]);
    let url = server.url("postgres");
    PostgresBackend::migrate(&url).unwrap();
    let connect = |url: &str| open(&Address::parse(url).unwrap(), soon());
    let mut con = connect(&url).unwrap();
    con.script(SHORTER, soon()).unwrap();
    let unsynced = format!("{url}&options=-c%20synchronous_commit%3Doff");
    let backend = PostgresBackend::connect(&unsynced).unwrap();
    assert_eq!(backend.longest_lease(), Some(Duration::from_secs(30)));
    let [ann, bob] = ["a:1", "b:1"].map(OwnerId::new);
    let lock_of = |n: usize| LockId::new(LockName::new(&format!("{n}")).unwrap(), LockKind::Fair);
    let token_of = |backend: &PostgresBackend, lock: &LockId, owner: &OwnerId| {
        let mut ask = Acquire::new(Place::new(lock, owner, RequestId::new(1)), Duration::from_secs(30));
        ask.place.wait = Wait::No;
        match backend.acquire(&ask) {
            Ok(Acquired::Granted { token, .. }) => Some(token.get()),
            _ => None,
        }
    };
    // The first may have to wait for the end of the grace after initdb. Rows are there for the fast part, and on the disk.
    for lock in (0..50).map(lock_of) {
        let token = FencingToken::new(eventually(|| token_of(&backend, &lock, &ann)));
        backend.release(&Hold::new(&lock, &ann, RequestId::new(1), token)).unwrap();
    }
    con.script("update fairlock.meta set layout = layout", soon()).unwrap();
    for lock in (0..50).map(lock_of) {
        token_of(&backend, &lock, &ann).unwrap();
    }
    let grace_ends = || {
        let rows =
            connect(&unsynced).ok()?.flight(&[Statement::new("select fairlock.grace_ends()", [])], soon());
        Some(rows.ok()?[0][0].number(0).unwrap().cast_unsigned())
    };
    let before = eventually(grace_ends);
    let rows = con.flight(&[Statement::new("select pg_backend_pid()", [])], soon()).unwrap();
    let pid = rows[0][0].count(0).unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let grace_ends = eventually(|| grace_ends().filter(|ends| *ends > before));
    let is_free = |lock: &LockId| eventually(|| backend.inspect(lock, 0..0).ok()).holder().is_none();
    let forgotten: Vec<_> = (0..50).map(lock_of).filter(is_free).collect();
    assert!(!forgotten.is_empty(), "the crash forgot nothing, so this shows nothing");
    for lock in &forgotten {
        let token = eventually(|| token_of(&backend, lock, &bob));
        assert!(token >= grace_ends, "{token} was granted {} us too early", grace_ends - token);
    }
}

fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let give_up_at = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(outcome) = attempt() {
            return outcome;
        }
        assert!(Instant::now() < give_up_at, "not within 30 s");
        thread::sleep(Duration::from_millis(20));
    }
}
