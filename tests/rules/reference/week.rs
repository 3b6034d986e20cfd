//! A week in virtual time: locks that are waited for without a pause, locks that are used once a day, and ten thousand names that are
//! used once. Nothing in use ends, and of each name is left what `fairlock-redis/scripts/KEYS.md` tells, for as long as it tells.

mod redis;

use std::collections::{BTreeMap, VecDeque};

use fairlock_core::LockKind;

use self::redis::{Redis, units};
use crate::KINDS;
use crate::commands::{CLIENTS, Command};
use crate::lua::{LuaServer, LuaSubject, Parts};
use crate::words::{Answer, Ask, Member, Millis, Patience, Renew};

const MINUTE: Millis = 60_000;
const DAY: Millis = 24 * 60 * MINUTE;
/// Queue and record may live for so much longer than a day: their times to live are not raised by each command.
const RAISED_EVERY: Millis = 10_000_000;
/// The lock changes hands so often. Waiters are heard as often.
const ROUND: Millis = 20 * MINUTE;
const LEASE: Millis = 60 * MINUTE;
const TTL: Millis = 3 * ROUND;
const ROUNDS: Millis = 7 * DAY / ROUND;
/// They are used in the first three days.
const ONCE: u64 = 10_000;

/// A request, and what it was told.
#[derive(Clone, Copy)]
struct Request {
    kind: LockKind,
    member: Member,
    ticket: u64,
    token: u64,
}

impl Request {
    fn new(kind: LockKind, number: u64) -> Request {
        let client = usize::try_from(number).unwrap() % CLIENTS;
        Request { kind, member: Member { client, owner: 0, request: number }, ticket: 0, token: 0 }
    }

    fn ask(self) -> Command {
        let Request { kind, member, ticket, .. } = self;
        let ask =
            Ask { member, lease: LEASE, ttl: TTL, label: "", ticket, units: units(kind), condition: None };
        Command::Acquire { lock: 0, ask, patience: Patience::Wait }
    }

    fn release(self) -> Command {
        Command::Release { lock: 0, member: self.member, token: self.token, units: units(self.kind) }
    }

    fn renew(self) -> Command {
        let Request { member, token, .. } = self;
        Command::RenewHold { lock: 0, member, token, count: 1, lease: LEASE }
    }

    fn renew_place(self) -> Command {
        let Request { kind, member, ticket, .. } = self;
        let place = Renew { member, lease: LEASE, ticket, units: units(kind) };
        Command::RenewPlaces { lock: 0, ttl: TTL, places: vec![place] }
    }

    #[track_caller]
    fn is_granted(&mut self, answer: Answer, after: u64) {
        let Answer::Granted { token, .. } = answer else { panic!("{} {answer:?}", self.kind) };
        assert!(token > after, "{}: {token} after {after}", self.kind);
        self.token = token;
    }

    #[track_caller]
    fn is_queued(&mut self, answer: Answer) {
        let Answer::Queued { ticket, .. } = answer else { panic!("{} {answer:?}", self.kind) };
        self.ticket = ticket;
    }
}

/// Commands, and when each name was used last.
struct Week<'a> {
    store: Redis<'a>,
    used: BTreeMap<String, Millis>,
    requests: u64,
}

impl Week<'_> {
    fn request(&mut self, kind: LockKind) -> Request {
        self.requests += 1;
        Request::new(kind, self.requests)
    }

    fn run(&mut self, name: &str, kind: LockKind, command: Command) -> Answer {
        self.run_all(vec![(name.to_owned(), kind, command)]).remove(0)
    }

    fn run_all(&mut self, commands: Vec<(String, LockKind, Command)>) -> Vec<Answer> {
        let now = self.store.now();
        self.used.extend(commands.iter().map(|(name, ..)| (name.clone(), now)));
        self.store.run(&commands)
    }

    /// The lock changes hands; the former holder asks anew; of three rounds one ends a wait, too.
    fn change_hands(&mut self, round: Millis, busy: &mut Busy) {
        let Busy { name, kind, holder, waiters } = busy;
        let (name, kind) = (name.clone(), *kind);
        let heard = waiters.iter().map(|waiter| waiter.renew_place()).chain([holder.renew()]);
        for answer in self.run_all(heard.map(|command| (name.clone(), kind, command)).collect()) {
            assert!(matches!(answer, Answer::Waiting { .. } | Answer::Renewed), "{kind} {answer:?}");
        }
        if round.is_multiple_of(3) {
            let leaves = waiters.pop_back().unwrap();
            let withdraw = Command::Withdraw { lock: 0, member: leaves.member };
            assert_eq!(self.run(&name, kind, withdraw), Answer::Left);
            let mut comes = self.request(kind);
            comes.is_queued(self.run(&name, kind, comes.ask()));
            waiters.push_back(comes);
        }
        assert_eq!(self.run(&name, kind, holder.release()), Answer::Released, "{kind}");
        let mut next = waiters.pop_front().unwrap();
        next.is_granted(self.run(&name, kind, next.ask()), holder.token);
        let mut comes = self.request(kind);
        comes.is_queued(self.run(&name, kind, comes.ask()));
        waiters.push_back(comes);
        *holder = next;
    }

    /// One takes the lock, and another after that if somebody waits. Returns the last token.
    fn use_daily(&mut self, name: &str, kind: LockKind, is_waited_for: bool, last: u64) -> u64 {
        let (mut first, mut second) = (self.request(kind), self.request(kind));
        first.is_granted(self.run(name, kind, first.ask()), last);
        if is_waited_for {
            second.is_queued(self.run(name, kind, second.ask()));
        }
        assert_eq!(self.run(name, kind, first.release()), Answer::Released);
        if !is_waited_for {
            return first.token;
        }
        second.is_granted(self.run(name, kind, second.ask()), first.token);
        assert_eq!(self.run(name, kind, second.release()), Answer::Released);
        second.token
    }

    /// Of fifty, one holder and one waiter end without a word.
    fn use_once(&mut self, numbers: std::ops::Range<u64>) {
        let mut requests: Vec<(u64, Request)> =
            numbers.map(|number| (number, self.request(KINDS[number as usize % 3]))).collect();
        let of = |(number, Request { kind, .. }): (u64, Request), command| {
            (format!("once:{number}"), kind, command)
        };
        let asks = requests.iter().map(|request| of(*request, request.1.ask())).collect();
        for ((_, request), answer) in requests.iter_mut().zip(self.run_all(asks)) {
            request.is_granted(answer, 0);
        }
        let then = requests.iter().map(|request| match request.0 % 50 {
            0 => of(*request, Request::new(request.1.kind, ONCE * 100 + request.0).ask()),
            _ => of(*request, request.1.release()),
        });
        for answer in self.run_all(then.collect()) {
            assert!(matches!(answer, Answer::Released | Answer::Queued { .. }), "{answer:?}");
        }
    }

    fn check(&mut self, busy: &[Busy]) {
        let (left, now) = (self.store.left(), self.store.now());
        for ((name, what), ends) in &left {
            let used = self.used.get(name).unwrap_or_else(|| panic!("{name} was never used"));
            assert!(*ends <= used + what.stays_for(), "{what:?} of {name}, used at {used}, ends at {ends}");
        }
        for Busy { name, kind, .. } in busy {
            let (of_busy, of_daily) = self.store.needs(*kind);
            let of_daily =
                |is_waited_for| of_daily.iter().map(move |what| (daily(*kind, is_waited_for), *what));
            let of_busy = of_busy.into_iter().map(|what| (name.clone(), what));
            for (name, what) in of_busy.chain(of_daily(true)).chain(of_daily(false)) {
                assert!(left.get(&(name.clone(), what)) > Some(&now), "{what:?} of {name} is gone");
            }
        }
    }
}

/// A lock with a holder and waiters.
struct Busy {
    name: String,
    kind: LockKind,
    holder: Request,
    waiters: VecDeque<Request>,
}

/// Each request of a lock here names the same number of permits.
fn kinds() -> impl Iterator<Item = LockKind> {
    KINDS.into_iter().take(3)
}

fn daily(kind: LockKind, is_waited_for: bool) -> String {
    format!("daily:{}:{is_waited_for}", kind.capacity())
}

#[test]
fn after_a_week_redis_keeps_what_is_in_use_and_nothing_else() {
    let lua = LuaServer::start(Parts::Both);
    let store = Redis(LuaSubject::new(&lua, LockKind::Fair));
    let mut week = Week { store, used: BTreeMap::new(), requests: 0 };
    let mut busy: Vec<Busy> = Vec::new();
    for kind in kinds() {
        let name = format!("busy:{}", kind.capacity());
        let (mut holder, mut waiters) = (week.request(kind), VecDeque::new());
        holder.is_granted(week.run(&name, kind, holder.ask()), 0);
        for _ in 0..3 {
            let mut waiter = week.request(kind);
            waiter.is_queued(week.run(&name, kind, waiter.ask()));
            waiters.push_back(waiter);
        }
        busy.push(Busy { name, kind, holder, waiters });
    }
    let (mut tokens, mut once, mut sizes) = ([[0; 2]; 3], 0, Vec::new());
    for round in 0..ROUNDS {
        if round.is_multiple_of(DAY / ROUND) {
            for (kind, [alone, waited_for]) in kinds().zip(&mut tokens) {
                *alone = week.use_daily(&daily(kind, false), kind, false, *alone);
                *waited_for = week.use_daily(&daily(kind, true), kind, true, *waited_for);
            }
        }
        let until = (ONCE * (round + 1)).div_ceil(3 * DAY / ROUND).min(ONCE);
        week.use_once(once..until);
        once = until;
        week.store.pass(ROUND);
        busy.iter_mut().for_each(|busy| week.change_hands(round, busy));
        if (round + 1).is_multiple_of(DAY / ROUND) {
            week.check(&busy);
            sizes.push(busy.iter().map(|busy| week.store.size(&busy.name)).sum::<usize>());
        }
    }
    assert_eq!((once, sizes.len()), (ONCE, 7));
    // A number may have another digit.
    assert!(sizes.iter().all(|size| *size < sizes[0] + 50), "a lock grows: {sizes:?}");
    // Then nobody comes any more.
    week.store.pass(2 * DAY);
    assert_eq!(week.store.left(), BTreeMap::new());
}
