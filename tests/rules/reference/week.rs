//! A week in virtual time: locks that are waited for without a pause, locks that are used once a day, and ten thousand names that are
//! used once. Nothing in use ends, and of each name is left what `fairlock-redis/scripts/KEYS.md` tells, for as long as it tells.

use std::collections::{BTreeMap, VecDeque};

use fairlock_core::LockKind;
use redis::Value;

use crate::KINDS;
use crate::commands::{CLIENTS, Command};
use crate::lua::{IN_TIME, LuaServer, LuaSubject, Parts};
use crate::lua_calls::call_of;
use crate::lua_replies::{answers, number};
use crate::rules::{Kept, START};
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

/// A store in virtual time, with locks by name.
trait Store {
    fn pass(&mut self, by: Millis);
    fn now(&self) -> Millis;
    /// The answers to commands that come at once, each of the lock with this name.
    fn run(&mut self, commands: &[(String, LockKind, Command)]) -> Vec<Answer>;
    /// All that is not over: for each name what, and until when. Removes the rest.
    fn left(&mut self) -> BTreeMap<(String, What), Millis>;
    /// How much is kept of a name.
    fn size(&mut self, name: &str) -> usize;
    /// What a lock needs that is waited for, and what one needs that was used a day ago.
    fn needs(&self, kind: LockKind) -> (Vec<What>, Vec<What>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Lock,
    Ends,
    Queue,
    Record,
    /// Of a database.
    Row,
}

impl What {
    /// How long after the last use of a name it may be left.
    fn stays_for(self) -> Millis {
        match self {
            What::Lock | What::Ends => LEASE + MINUTE + 1000,
            What::Queue | What::Record => DAY + RAISED_EVERY,
            // Waiters that were not heard in 12 times their time to live are gone.
            What::Row => DAY + 12 * TTL,
        }
    }
}

struct Redis<'a>(LuaSubject<'a>);

/// What the server would remove by itself, and then each key with its end.
const LEFT: &str = "
    local now = tonumber(redis.call('GET', 'virtual:clock'))
    local all, left = redis.call('HGETALL', 'virtual:ends'), {}
    for at = 1, #all, 2 do
        if tonumber(all[at + 1]) < now then redis.call('DEL', all[at]) redis.call('HDEL', 'virtual:ends', all[at]) end
    end
    for _, key in ipairs(redis.call('KEYS', '*')) do
        if string.sub(key, 1, 8) ~= 'virtual:' then
            left[#left + 1] = { key, redis.call('HGET', 'virtual:ends', key) or 'never' }
        end
    end
    return left";

impl Store for Redis<'_> {
    fn pass(&mut self, by: Millis) {
        (self.0.now, self.0.micros) = (self.0.now + by, 0);
    }

    fn now(&self) -> Millis {
        self.0.now
    }

    fn run(&mut self, commands: &[(String, LockKind, Command)]) -> Vec<Answer> {
        self.0.micros += 1;
        let mut pipe = self.0.begin();
        for (name, kind, command) in commands {
            let call = call_of(*kind, &self.0.say_deaf, IN_TIME, command).expect("a script");
            let mut keys = keys(*kind, name);
            if call.script == "hand_off/renew_holds" {
                keys.drain(1..3);
            }
            self.0.call(&mut pipe, &call.script, &keys, &call.arguments);
        }
        let replies: Vec<Value> = pipe.query(&mut self.0.con).unwrap();
        let answers =
            replies.iter().zip(commands).flat_map(|(reply, (_, _, command))| answers(command, Some(reply)));
        answers.collect()
    }

    fn left(&mut self) -> BTreeMap<(String, What), Millis> {
        let mut pipe = self.0.begin();
        pipe.cmd("EVAL").arg(LEFT).arg(0);
        let (left,): (Vec<(String, String)>,) = pipe.query(&mut self.0.con).unwrap();
        let of = |(key, ends): (String, String)| {
            let what = [("queue", What::Queue), ("record", What::Record), ("ends", What::Ends)];
            let named = what.into_iter().find_map(|(word, what)| {
                let name = key.strip_prefix(&format!("fairlock_{word}:{{"))?.strip_suffix('}')?;
                Some((name.to_owned(), what))
            });
            let ends = ends.parse().unwrap_or_else(|_| panic!("{key} ends {ends}"));
            (named.unwrap_or((key, What::Lock)), ends)
        };
        left.into_iter().map(of).collect()
    }

    fn size(&mut self, name: &str) -> usize {
        let [_, queue, record, ends] = &keys(LockKind::ReadWrite, name)[..] else { panic!("four keys") };
        let mut pipe = redis::pipe();
        pipe.cmd("ZCARD").arg(queue).cmd("HLEN").arg(record).cmd("ZCARD").arg(ends).cmd("HLEN").arg(name);
        pipe.query::<Vec<Value>>(&mut self.0.con).unwrap().iter().map(number::<usize>).sum()
    }

    fn needs(&self, kind: LockKind) -> (Vec<What>, Vec<What>) {
        let ends = kind.is_shared().then_some(What::Ends).filter(|_| units(kind) < kind.capacity());
        let waited_for = [What::Lock, What::Queue, What::Record].into_iter().chain(ends);
        (waited_for.collect(), vec![What::Record])
    }
}

fn keys(kind: LockKind, name: &str) -> Vec<String> {
    let own = |what| format!("fairlock_{what}:{{{name}}}");
    let keys = [name.to_owned(), own("queue"), own("record"), own("ends")];
    keys[..if kind.is_shared() { 4 } else { 3 }].to_vec()
}

/// Rows of bytes, as in PostgreSQL.
struct Rows {
    rows: BTreeMap<String, Kept>,
    now: Millis,
    micros: u64,
}

impl Store for Rows {
    fn pass(&mut self, by: Millis) {
        (self.now, self.micros) = (self.now + by, 0);
    }

    fn now(&self) -> Millis {
        self.now
    }

    fn run(&mut self, commands: &[(String, LockKind, Command)]) -> Vec<Answer> {
        self.micros += 1;
        let mut answers = Vec::new();
        for (name, kind, command) in commands {
            let row = self.rows.entry(name.clone()).or_insert_with(|| Kept::new(name, *kind));
            answers.extend(row.run((self.now, self.micros), &(0..CLIENTS).collect(), command).answers);
            *row = row.clone();
        }
        answers
    }

    fn left(&mut self) -> BTreeMap<(String, What), Millis> {
        let ends = |row: &Kept| -> Millis {
            row.entry.forget_at(row.last).as_micros().div_ceil(1000).try_into().unwrap()
        };
        self.rows.retain(|_, row| ends(row) > self.now);
        self.rows.iter().map(|(name, row)| ((name.clone(), What::Row), ends(row))).collect()
    }

    fn size(&mut self, name: &str) -> usize {
        self.rows[name].entry.encode().len()
    }

    fn needs(&self, _: LockKind) -> (Vec<What>, Vec<What>) {
        (vec![What::Row], vec![What::Row])
    }
}

/// What a request takes: the unit of a fair lock, most of a semaphore's, all of a read-write lock's.
fn units(kind: LockKind) -> u32 {
    match kind {
        LockKind::Semaphore { permits } => permits - 1,
        kind => kind.capacity(),
    }
}

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
        let ask = Ask { member, lease: LEASE, ttl: TTL, label: "", ticket, units: units(kind) };
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

/// Commands of one store, and when each name was used last.
struct Week<S> {
    store: S,
    used: BTreeMap<String, Millis>,
    requests: u64,
}

impl<S: Store> Week<S> {
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

fn daily(kind: LockKind, is_waited_for: bool) -> String {
    format!("daily:{}:{is_waited_for}", kind.capacity())
}

fn passes(store: impl Store) {
    let mut week = Week { store, used: BTreeMap::new(), requests: 0 };
    let mut busy: Vec<Busy> = Vec::new();
    for kind in KINDS {
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
            for (kind, [alone, waited_for]) in KINDS.into_iter().zip(&mut tokens) {
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

#[test]
fn after_a_week_redis_keeps_what_is_in_use_and_nothing_else() {
    let lua = LuaServer::start(Parts::Both);
    passes(Redis(LuaSubject::new(&lua, LockKind::Fair)));
}

/// After a week, a database keeps what is in use, and nothing else.
#[test]
fn after_a_week_a_database_keeps_only_what_is_in_use() {
    passes(Rows { rows: BTreeMap::new(), now: START, micros: 0 });
}
