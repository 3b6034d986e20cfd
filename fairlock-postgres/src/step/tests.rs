//! Swaps of two stores, whose rows are stale now and then, beside steps under the row lock: the same commands to two locks. Same answers,
//! same rows, up to the clock. And how many round trips a call takes.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, RequestId, Wait, Withdrawn, only,
};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use fairlock_tests::{Proxy, eventually};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::PostgresBackend;
use crate::clients::key_of;
use crate::combiner::Call;
use crate::command::{Answer, Command as Asked};
use crate::net::{Connection, Failure, Statement};
use crate::step::ask as ask_all;
use crate::test_server::{SERVER, new_database, pooled};
use crate::tests::{
    LEASE, STANDING_CLOCK, ask, hold, lock, number, pass, patient, session, soon, stage, take, trips,
};

mod crash;
mod renewals;
mod traps;

const OWNERS: [&str; 3] = ["a:1", "b:1", "c:1"];
const LEASES: [Duration; 2] = [Duration::from_secs(100), Duration::from_secs(1000)];

const NEVER_DEAD: u64 = 9_000_000_000_000_000;

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
    Leave {
        owner: usize,
        request: u64,
    },
    /// The lease of the hold ends now.
    Ends,
    /// The clock was set back by a minute since the last number was drawn.
    ClockGoesBack,
}

fn command() -> impl Strategy<Value = Command> {
    let wait = prop_oneof![1 => Just(Wait::No), 3 => Just(Wait::Forever)];
    let kind = prop_oneof![4 => Just(LockKind::Fair), 1 => Just(LockKind::Plain)];
    let ask = (0..OWNERS.len(), 1..3_u64, wait, any::<bool>(), 0..LEASES.len(), kind);
    let spoilt = prop_oneof![4 => Just((None, 0, 0)), 1 => (Just(None), 1..2_u64, 0..2_u64), 1 => (0..OWNERS.len())
        .prop_map(|owner| (Some(owner), 0, 0))];
    prop_oneof![
        8 => ask.prop_map(|(owner, request, wait, has_ticket, lease, kind)| Command::Ask {
            owner, request, wait, has_ticket, lease, kind
        }),
        8 => (0..2_usize, spoilt).prop_map(|(latest, (owner, request, token))| Command::Release {
            latest, owner, request, token
        }),
        2 => (0..OWNERS.len(), 1..3_u64).prop_map(|(owner, request)| Command::Leave { owner, request }),
        1 => Just(Command::Ends),
        1 => Just(Command::ClockGoesBack),
    ]
}

/// One of the two locks.
struct Way<'a> {
    /// None: under the row lock.
    stores: Option<&'a [PostgresBackend; 2]>,
    general: &'a PostgresBackend,
    name: LockName,
    /// All numbers in the order in which they were seen, and the grants.
    numbers: Vec<u64>,
    grants: Vec<(OwnerId, RequestId, FencingToken)>,
    tickets: Vec<((usize, u64), u64)>,
    /// How many commands took one trip, and how many took more.
    calls: [usize; 2],
}

impl<'a> Way<'a> {
    fn new(general: &'a PostgresBackend, name: &str, stores: Option<&'a [PostgresBackend; 2]>) -> Way<'a> {
        let name = LockName::new(&format!("{name} {}", stores.is_some())).unwrap();
        let (numbers, grants, tickets, calls) = Default::default();
        Way { stores, general, name, numbers, grants, tickets, calls }
    }

    fn ask<A: TryFrom<Answer, Error = Failure>>(&mut self, by: usize, command: Asked) -> A {
        let asked = [(&self.name, command)];
        let Some(stores) = self.stores else {
            let (call, questions) = Call::asking(asked, soon());
            assert!(super::make(&self.general.0, questions, Some(1), false).is_empty());
            return A::try_from(call.answers().remove(0).unwrap()).unwrap();
        };
        let before = trips(&stores[by]);
        let answer = only(ask_all(&stores[by].0, asked, soon())).unwrap();
        self.calls[usize::from(trips(&stores[by]) > before + 1)] += 1;
        answer
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
    fn run(&mut self, by: usize, command: Command, con: &mut Connection) -> String {
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
                match self.ask(by, Asked::acquire(&ask)) {
                    Acquired::Granted { token, lease } => {
                        self.grants.push((owner_id, id, token));
                        format!("granted {} for {}", self.nth(token.get()), lease.as_secs().div_ceil(50))
                    }
                    Acquired::Queued { rank, ticket, .. } => {
                        self.tickets.push(((owner, request), ticket));
                        format!("queued {rank} {}", self.nth(ticket))
                    }
                    Acquired::Busy { .. } => "busy".to_owned(),
                    other => panic!("{other:?}"),
                }
            }
            Command::Release { latest, owner, request, token } => {
                let Some((holder, id, granted)) = self.grants.iter().rev().nth(latest).cloned() else {
                    return String::new();
                };
                let owner = owner.map_or(holder, |owner| OwnerId::new(OWNERS[owner]));
                let (id, token) =
                    (RequestId::new(id.get() + request), FencingToken::new(granted.get() + token));
                let hold = Hold::new(&lock, &owner, id, token);
                format!("{:?}", self.ask::<Released>(by, Asked::Release((&hold).into())))
            }
            Command::Leave { owner, request } => {
                let (owner, request) = member(owner, request);
                let place = Place::new(&lock, &owner, request);
                format!("{:?}", self.ask::<Withdrawn>(by, Asked::Withdraw((&place).into())))
                    .split(' ')
                    .next()
                    .unwrap()
                    .to_owned()
            }
            // Only that of a hold: `least` of a null and a time is the time.
            Command::Ends => self.change("h_ends = h_ends - greatest(h_ends - fairlock.micros(), 0)", con),
            // The row stays for a day after that number, too.
            Command::ClockGoesBack => {
                let later =
                    "last = last + 60000000, dead_at = greatest(dead_at, last + 60000000 + 86400000000)";
                self.change(later, con)
            }
        }
    }

    fn change(&self, what: &str, con: &mut Connection) -> String {
        let sql =
            format!("update fairlock.lock set rev = rev + 1, {what} where name = '{}'", self.name.as_str());
        con.script(&sql, soon()).unwrap();
        String::new()
    }

    /// All that stands in the row.
    fn row(&mut self, con: &mut Connection) -> String {
        let sql = "select format('%s %s %s %s %s rev %s dead %s %s %s %s', h_owner, h_request, h_count, (h_ends - h_since) / 50000000, \
                   h_label, 0, dead_at - greatest(last, h_ends) between 86400000000 and 86410000000, heads, state = '', last = coalesce(h_token, 0)), \
                   coalesce(h_token, 0), last, coalesce(fairlock.micros() - h_since, 0) from fairlock.lock where name = $1";
        let name = [self.name.as_str().as_bytes().into()];
        let rows = con.flight(&[Statement::new(sql, name)], soon()).unwrap();
        let Some(row) = rows[0].first() else { return "none".to_owned() };
        let [token, last] = [1, 2].map(|at| row.number(at).unwrap().cast_unsigned());
        assert!((0..60_000_000).contains(&row.number(3).unwrap()), "{row:?}");
        let greatest = self.numbers.iter().max().copied().unwrap_or_default();
        let token = if token == 0 { 0 } else { self.nth(token) + 1 };
        format!("{} {token} {}", row.text(0).unwrap(), last > greatest)
    }

    fn queue(&self) -> Vec<String> {
        let state = self.general.inspect(&LockId::new(self.name.clone(), LockKind::Fair), 0..9).unwrap();
        state.queue.iter().map(|waiter| format!("{} {:?}", waiter.owner, waiter.request)).collect()
    }
}

fn asks(owner: usize, request: u64) -> Command {
    Command::Ask { owner, request, wait: Wait::Forever, has_ticket: true, lease: 0, kind: LockKind::Fair }
}

const RELEASE: Command = Command::Release { latest: 0, owner: None, request: 0, token: 0 };

/// What chance seldom comes to.
fn scenes() -> Vec<Vec<Command>> {
    let all_wait = [asks(0, 1), asks(1, 1), asks(2, 1)];
    let leave = Command::Leave { owner: 1, request: 1 };
    vec![
        vec![asks(0, 1), RELEASE, RELEASE, asks(0, 1), asks(0, 1), RELEASE],
        vec![asks(0, 1), Command::Release { latest: 0, owner: None, request: 1, token: 0 }, RELEASE],
        vec![asks(0, 1), Command::Release { latest: 0, owner: Some(1), request: 0, token: 0 }, RELEASE],
        vec![asks(0, 1), Command::Ends, RELEASE, asks(0, 1), Command::Ends, asks(1, 1), RELEASE],
        vec![asks(0, 1), RELEASE, Command::Ends, Command::Ends, RELEASE],
        vec![asks(0, 1), RELEASE, Command::ClockGoesBack, Command::Ends, RELEASE],
        vec![asks(0, 1), RELEASE, Command::ClockGoesBack, asks(1, 1), RELEASE, asks(2, 1)],
        vec![asks(0, 1), Command::ClockGoesBack, RELEASE, Command::ClockGoesBack, asks(0, 1)],
        [&all_wait[..], &[RELEASE, asks(0, 1), RELEASE, RELEASE, RELEASE, asks(0, 2), RELEASE]].concat(),
        [&all_wait[..2], &[RELEASE, Command::Ends, asks(2, 1), RELEASE]].concat(),
        [&all_wait[..2], &[Command::Ends, asks(2, 1), RELEASE, RELEASE]].concat(),
        [&all_wait[..2], &[leave, asks(1, 1), RELEASE, RELEASE, asks(1, 1)]].concat(),
    ]
}

#[test]
fn swaps_of_stale_rows_do_what_a_row_lock_does() {
    let url = new_database();
    let mut con = session(&url);
    con.script(STANDING_CLOCK, soon()).unwrap();
    for client in ["a", "b", "c"] {
        let present = [Statement::new("select pg_advisory_lock($1)", [key_of(client).into()])];
        con.flight(&present, soon()).unwrap();
    }
    // One of them behind a pooler.
    let connect = |url: &str| patient(url).connections(1).connect().unwrap();
    let (stores, general) = ([connect(&url), connect(&pooled(&url))], connect(&url));
    let all = [&stores[0], &stores[1], &general];
    all.iter().for_each(|backend| backend.0.recent.stands.store(true, Ordering::Relaxed));
    let (con, cases) = (std::cell::RefCell::new(con), std::cell::Cell::new((0, [0; 2])));
    let differ = |commands: Vec<(usize, Command)>| {
        let (case, calls) = cases.get();
        cases.set((case + 1, calls)); // a case that fails is followed by smaller ones
        let mut swaps = Way::new(&general, &format!("{case}"), Some(&stores));
        let mut locks = Way::new(&general, &format!("{case}"), None);
        let con = &mut *con.borrow_mut();
        if case % 4 > 0 {
            // With such a `dead_at` the sweeper leaves them alone.
            let rows = format!("('{case} true', {NEVER_DEAD}), ('{case} false', {NEVER_DEAD})");
            let sql = format!("insert into fairlock.lock (name, dead_at) values {rows}");
            con.script(&sql, soon()).unwrap();
        }
        for (at, (by, command)) in commands.iter().enumerate() {
            let now = pass(con, Duration::from_millis(1));
            all.iter().for_each(|backend| backend.0.recent.heard(now, Instant::now()));
            let mut outcome = |way: &mut Way<'_>| (way.run(*by, *command, con), way.row(con), way.queue());
            let outcomes = [outcome(&mut swaps), outcome(&mut locks)];
            prop_assert_eq!(&outcomes[0], &outcomes[1], "after {:?}", &commands[..=at]);
            // An unused row stays for a day after its last number.
            let [(answer, row, _), _] = outcomes;
            prop_assert!(
                answer != "Released" || !row.contains(" dead f {} t "),
                "{row} after {:?}",
                &commands[..=at]
            );
        }
        cases.set((case + 1, [calls[0] + swaps.calls[0], calls[1] + swaps.calls[1]]));
        Ok(())
    };
    for scene in scenes() {
        for turns in [1, 2] {
            let scene = scene.iter().enumerate().map(|(at, command)| (at / turns % 2, *command));
            differ(scene.collect()).unwrap_or_else(|difference| panic!("{difference}"));
        }
    }
    let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    runner
        .run(&vec((0..2_usize, command()), 1..25), differ)
        .unwrap_or_else(|difference| panic!("{difference}"));
    let (cases, [once, again]) = cases.get();
    assert!(once > cases && again > cases, "of {cases} cases {once} calls took a trip, and {again} more");
}

/// The end of its call is that by the server's clock, which the first answer tells. The lock has a row, or is new.
#[test]
fn an_attempt_that_arrives_late_begins_nothing() {
    for is_new in [false, true] {
        let ((backend, mut con), [x, y], ann) = (stage(), ["x", "y"].map(lock), OwnerId::new("a:1"));
        only(backend.release(&[hold(&x, &ann, take(&backend, &x, &ann))])).unwrap();
        let lock = if is_new { y } else { x };
        let later = "create or replace function fairlock.micros() returns bigint language sql volatile \
                     as $$ select (date_part('epoch', clock_timestamp() + interval '20 s') * 1000000)::bigint $$";
        con.script(later, soon()).unwrap(); // by that clock the call is over
        let before = trips(&backend);
        let asked = [(&lock.name, Asked::acquire(&ask(&lock, &ann, 2)))];
        let (call, questions) = Call::asking(asked, soon());
        assert!(super::make(&backend.0, questions, None, false).is_empty());
        let answer = call.answers().remove(0);
        assert!(matches!(answer, Ok(Answer::Acquired(Acquired::Granted { lease: LEASE, .. }))));
        assert_eq!(trips(&backend) - before, 2, "the first does nothing");
    }
}

/// Its connection ends while the row is locked, and its client with it. Then the row is free.
#[test]
fn no_attempt_waits_for_a_row_and_takes_the_lock_for_nobody() {
    let (url, lock, ann) = (new_database(), lock("x"), OwnerId::new("a:1"));
    let (proxy, mut con) = (Proxy::start(SERVER.port()), session(&url));
    let [locked, written] = ["select from fairlock.lock for share", "update fairlock.lock set rev = rev + 1"];
    for (meanwhile, is_known) in [(locked, true), (written, true), (written, false)] {
        let backend =
            PostgresBackend::connect(&url.replace(&SERVER.address(), &format!("127.0.0.1:{}", proxy.port())))
                .unwrap();
        only(backend.release(&[hold(&lock, &ann, take(&backend, &lock, &ann))])).unwrap();
        if !is_known {
            backend.0.recent.saw(&lock.name, None);
        }
        con.script(&format!("begin; {meanwhile}"), soon()).unwrap();
        thread::scope(|scope| {
            let asked = scope.spawn(|| only(backend.acquire(&[ask(&lock, &ann, 2)])));
            let waits = "select count(*) from pg_locks where not granted and transactionid = pg_current_xact_id()::xid";
            eventually("it waits for the row", || number(&mut con, waits) > 0);
            proxy.cut();
            assert!(!asked.join().unwrap().unwrap_err().is_unsent());
        });
        drop(backend);
        con.script("commit", soon()).unwrap();
        let others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
        eventually("its sessions end", || number(&mut con, others) == 0);
        assert_eq!(
            number(&mut con, "select count(*) from fairlock.lock where h_owner is not null"),
            0,
            "{meanwhile}"
        );
    }
}

#[test]
fn a_cycle_is_two_round_trips_and_a_hand_off_two_for_each_side() {
    let (url, [ann, bob, carl]) = (new_database(), ["a:1", "b:1", "c:1"].map(OwnerId::new));
    let (backend, mut con) = (patient(&url).connections(1).connect().unwrap(), session(&url));
    let (one, other) = (lock("one"), lock("other"));
    let of = |call: &dyn Fn()| {
        let before = trips(&backend);
        call();
        trips(&backend) - before
    };
    let token = std::cell::Cell::new(FencingToken::new(1));
    let taking = |lock: &LockId| of(&|| token.set(take(&backend, lock, &ann)));
    let releasing = |lock: &LockId| {
        let hold = hold(lock, &ann, token.get());
        of(&|| assert!(matches!(only(backend.release(&[hold])), Ok(Released::Released))))
    };
    let queueing = |owner: &OwnerId, request| {
        of(&|| {
            assert!(matches!(
                only(backend.acquire(&[ask(&other, owner, request)])),
                Ok(Acquired::Queued { .. })
            ))
        })
    };
    let withdrawing = |owner: &OwnerId, request| {
        let place = Place::new(&other, owner, RequestId::new(request));
        of(&|| assert!(matches!(only(backend.withdraw(&[place])), Ok(Withdrawn::Left))))
    };
    let forget = |lock: &LockId| backend.0.recent.saw(&lock.name, None);
    assert_eq!((taking(&one), releasing(&one)), (2, 1), "the clock is new");
    assert_eq!((taking(&one), releasing(&one)), (1, 1));
    assert_eq!(taking(&other), 1, "the lock is new");
    assert_eq!(queueing(&bob, 1), 1);
    assert_eq!(releasing(&other), 1, "the row was seen since");
    assert_eq!(withdrawing(&ann, 9), 1, "it finds nothing, and writes");
    forget(&other);
    assert_eq!(withdrawing(&ann, 9), 2, "under the row lock");
    forget(&other);
    assert_eq!(queueing(&ann, 1), 2, "it was taken for free");
    let busy = || {
        let mut ask = ask(&other, &carl, 1);
        ask.place.wait = Wait::No;
        of(&|| assert!(matches!(only(backend.acquire(&[ask])), Ok(Acquired::Busy { .. }))))
    };
    assert_eq!([busy(), busy()], [1, 1], "it only reads");
    forget(&other);
    assert_eq!(withdrawing(&bob, 9), 2, "under the row lock, with a queue");
    assert_eq!(withdrawing(&bob, 9), 1, "that lock is no other's");
    let theirs = patient(&url).connections(1).connect().unwrap();
    taking(&one);
    only(theirs.acquire(&[ask(&one, &bob, 1)])).unwrap();
    assert_eq!(releasing(&one), 2, "another process has written the row");
    let next = "select count(*) from fairlock.lock where name = 'one' and h_owner = 'b:1'";
    assert_eq!(number(&mut con, next), 1);
    forget(&one);
    con.script("begin; select from fairlock.lock where name = 'one' for share", soon()).unwrap();
    let refused = of(&|| {
        assert!(only(backend.acquire(&[ask(&one, &ann, 2)])).unwrap_err().message().contains("55P03"))
    });
    assert_eq!(refused, 4, "two swaps passed over the row, a step has waited for it, and was rolled back");
    forget(&one);
    let place = Place::new(&one, &ann, RequestId::new(9));
    let refused = of(&|| assert!(only(backend.withdraw(&[place])).unwrap_err().message().contains("55P03")));
    assert_eq!(refused, 2, "a lone question about an unknown row waits for the row at once");
    con.script("rollback", soon()).unwrap();
    // Many in one trip, new ones with them.
    let locks: Vec<_> = (0..64).map(|n| lock(&format!("{n}"))).collect();
    for lock in &locks[2..] {
        only(backend.release(&[hold(lock, &ann, take(&backend, lock, &ann))])).unwrap();
    }
    let asks: Vec<_> = locks.iter().map(|lock| ask(lock, &ann, 1)).collect();
    let before = trips(&backend);
    let answers = backend.acquire(&asks);
    assert_eq!(trips(&backend) - before, 1);
    let granted = |(lock, answer): (_, &Result<_, _>)| match answer {
        Ok(Acquired::Granted { token, .. }) => hold(lock, &ann, *token),
        other => panic!("{other:?}"),
    };
    let holds: Vec<_> = locks.iter().zip(&answers).map(granted).collect();
    for (at, holds) in holds.chunks(32).enumerate() {
        if at == 1 {
            locks.iter().for_each(forget);
        }
        let before = trips(&backend);
        assert!(backend.release(holds).iter().all(|answer| matches!(answer, Ok(Released::Released))));
        assert_eq!(trips(&backend) - before, [1, 2][at], "of unknown rows many are read at once");
    }
}

/// As behind a pooler that does not show, or after DISCARD ALL.
#[test]
fn a_session_that_does_not_know_a_statement_costs_one_call() {
    let ((backend, _con), lock, ann) = (stage(), lock("x"), OwnerId::new("a:1"));
    take(&backend, &lock, &ann);
    backend.0.pool.lend(soon(), |con| con.script("deallocate all", soon())).unwrap();
    let before = trips(&backend);
    let _ = only(backend.acquire(&[ask(&lock, &ann, 1)]));
    take(&backend, &lock, &ann);
    assert!(trips(&backend) > before, "on the same connection");
}
