//! One lock on one server: its owners, and its keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, RequestId, Subscription, Wait, Wake, WakeSink,
    Withdrawn, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::settings::Discipline;
use fairlock::{FencingToken, RedisBackend};
use fairlock_tests::RedisServer;
use fairlock_tests::locks::patient;
use redis::Connection;

pub(crate) const NAME: &str = "orders";
/// Long enough that nothing expires during a cell.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const PLACE_TTL: Duration = Duration::from_secs(20);

/// The rules of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    HandOff,
    /// The hand-off of a semaphore, of which each request takes more than half: holds that take a part.
    Parts,
    /// The same, and each request takes all permits, as a writer does.
    All,
    Redisson,
    Plain,
}

impl Rules {
    /// The keys of the lock, the lock itself first.
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Rules::HandOff => &[NAME, "fairlock_queue:{orders}", "fairlock_record:{orders}"],
            Rules::Parts | Rules::All => {
                &[NAME, "fairlock_queue:{orders}", "fairlock_record:{orders}", "fairlock_ends:{orders}"]
            }
            Rules::Redisson => &[
                NAME,
                "redisson_lock_queue:{orders}",
                "redisson_lock_timeout:{orders}",
                "fairlock_record:{orders}",
            ],
            Rules::Plain => &[NAME, "fairlock_record:{orders}"],
        }
    }

    pub(crate) fn connect(self, url: &str) -> RedisBackend {
        let discipline = match self {
            Rules::HandOff | Rules::Parts | Rules::All => Discipline::HandOff,
            Rules::Redisson | Rules::Plain => Discipline::Redisson,
        };
        patient(url).discipline(discipline).connections(1).connect().unwrap()
    }

    /// The units that each request takes.
    pub(crate) fn units(self) -> u32 {
        match self {
            Rules::Parts => 2,
            Rules::All => 3,
            _ => 1,
        }
    }

    pub(crate) fn lock(self) -> LockId {
        let kind = match self {
            Rules::Plain => LockKind::Plain,
            Rules::Parts | Rules::All => LockKind::Semaphore { permits: 3 },
            Rules::HandOff | Rules::Redisson => LockKind::Fair,
        };
        LockId::new(LockName::new(NAME).unwrap(), kind)
    }
}

/// Ignores pushes: their effect is read from the keys.
struct Deaf;

impl WakeSink for Deaf {
    fn wake(&self, _: Wake<'_>) {}
}

/// An owner with a request. Requests consist of letters only, so that they are never taken for a number that differs
/// between runs.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
}

impl Person {
    fn new(client: ClientId, number: u64, request: u64) -> Person {
        Person { owner: OwnerId::new(&format!("{client}:{number}")), request: RequestId::new(request) }
    }
}

/// A lock with its owners.
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) lock: LockId,
    /// A backend of a user with all rights.
    pub(crate) backend: RedisBackend,
    con: std::cell::RefCell<Connection>,
    /// Holds the lock, or held it.
    pub(crate) anna: Person,
    /// Waits, and is subscribed.
    pub(crate) ben: Person,
    /// Waits behind Ben, and is deaf.
    pub(crate) cleo: Person,
    /// A newcomer.
    pub(crate) dora: Person,
    /// Anna's new request, while the old one holds.
    pub(crate) anna_again: Person,
    _heard: Subscription,
}

impl World {
    pub(crate) fn new(server: &RedisServer, rules: Rules) -> World {
        let backend = rules.connect(&server.url());
        let (client, silent) = (ClientId::random(), ClientId::random());
        let heard = backend.subscribe(client, Arc::new(Deaf)).unwrap();
        World {
            rules,
            lock: rules.lock(),
            backend,
            con: server.con().into(),
            anna: Person::new(client, 1, 0xaaaa_aaaa_aaaa_aaaa),
            ben: Person::new(client, 2, 0xbbbb_bbbb_bbbb_bbbb),
            cleo: Person::new(silent, 3, 0xcccc_cccc_cccc_cccc),
            dora: Person::new(client, 4, 0xdddd_dddd_dddd_dddd),
            anna_again: Person::new(client, 1, 0xeeee_eeee_eeee_eeee),
            _heard: heard,
        }
    }

    pub(crate) fn place<'a>(&'a self, who: &'a Person, wait: Wait) -> Place<'a> {
        let mut place = Place::new(&self.lock, &who.owner, who.request);
        place.wait = wait;
        place.ttl = PLACE_TTL;
        place.units = self.rules.units();
        place
    }

    pub(crate) fn ask<'a>(&'a self, who: &'a Person, wait: Wait) -> Acquire<'a> {
        Acquire::new(self.place(who, wait), LEASE)
    }

    pub(crate) fn hold<'a>(&'a self, who: &'a Person, token: FencingToken) -> Hold<'a> {
        Hold::new(&self.lock, &who.owner, who.request, token)
    }

    pub(crate) fn query<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut *self.con.borrow_mut()).unwrap_or_else(|e| panic!("{}: {e}", words.join(" ")))
    }

    /// All owners leave, Anna with this token.
    pub(crate) fn everybody_leaves(&self, token: FencingToken) {
        for owner in [&self.anna.owner, &self.dora.owner] {
            only(self.backend.release(&[Hold::new(&self.lock, owner, self.anna.request, token)])).unwrap();
        }
        for who in [&self.anna, &self.anna_again, &self.ben, &self.cleo, &self.dora] {
            if let Withdrawn::WasGranted { token, .. } =
                only(self.backend.withdraw(&[self.place(who, Wait::Forever)])).unwrap()
            {
                only(self.backend.release(&[self.hold(who, token)])).unwrap();
            }
        }
    }

    /// An ordinary lock and unlock by another owner.
    pub(crate) fn next_one_gets_it(&self) -> Result<(), String> {
        let next = Person::new(ClientId::random(), 9, 0xffff_ffff_ffff_ffff);
        match only(self.backend.acquire(&[self.ask(&next, Wait::Forever)])) {
            Ok(Acquired::Granted { token, .. }) => {
                let released = only(self.backend.release(&[self.hold(&next, token)]));
                if matches!(released, Ok(Released::Released)) { Ok(()) } else { Err(format!("{released:?}")) }
            }
            other => Err(format!("{other:?}, with {:#?}", self.keys())),
        }
    }

    /// The content of the lock's keys, read at one moment.
    pub(crate) fn keys(&self) -> Keys {
        let names = self.rules.keys();
        let mut look = redis::cmd("EVAL");
        look.arg(LOOK).arg(names.len()).arg(names);
        let found: Vec<(i64, Vec<String>)> = look.query(&mut *self.con.borrow_mut()).unwrap();
        let keys = names.iter().zip(found).filter_map(|(name, (ttl, content))| {
            let lasts = match ttl {
                -2 => return None,
                -1 => Lasts::ForEver,
                // The operations change the lease; the other TTLs don't matter.
                ms if *name == NAME => Lasts::TensOfSeconds(tens(ms.unsigned_abs())),
                _ => Lasts::ForAWhile,
            };
            let mut content: Vec<_> = content
                .chunks(2)
                .map(|pair| (pair[0].clone(), pair.get(1).cloned().unwrap_or_default()))
                .collect();
            if !name.contains("queue") && !name.contains("queue") {
                content.sort();
            }
            Some((*name, Key { lasts, content }))
        });
        keys.collect()
    }
}

/// For each key: its TTL, and fields and values, members and scores, items without values, or a string.
const LOOK: &str = r"
local found = {}
for at, key in ipairs(KEYS) do
  local kind, content = redis.call('TYPE', key).ok, {}
  if kind == 'hash' then content = redis.call('HGETALL', key) end
  if kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  if kind == 'string' then content = { redis.call('GET', key) } end
  if kind == 'list' then
    for _, item in ipairs(redis.call('LRANGE', key, 0, -1)) do
      content[#content + 1] = item
      content[#content + 1] = ''
    end
  end
  found[at] = { redis.call('PTTL', key), content }
end
return found";

pub(crate) type Keys = BTreeMap<&'static str, Key>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) lasts: Lasts,
    /// Fields and values, members and scores, or items.
    pub(crate) content: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    ForEver,
    ForAWhile,
    TensOfSeconds(u64),
}

/// Milliseconds in tens of seconds. The leases here start at 5, 20, 60 and 120 s. Each may be 3 s older and is still
/// distinct. A spoilt end leaves a rest of years, which goes down by one during some of the comparisons: all these are alike.
pub(crate) fn tens(millis: u64) -> u64 {
    const MORE: u64 = 100;
    ((millis + 3000) / 10_000).min(MORE)
}

/// The same without times and tokens, which differ between runs.
pub(crate) fn told_apart_from_time(keys: &Keys) -> Keys {
    let mut keys = keys.clone();
    for key in keys.values_mut() {
        key.content.iter_mut().for_each(|(_, value)| *value = without_times(value));
    }
    keys
}

/// Replaces numbers of ten digits and more by `#`.
fn without_times(text: &str) -> String {
    let word = |word: &str| match word.parse::<f64>() {
        Ok(number) if number >= 1e9 => "#".to_owned(),
        _ => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
