//! Many holds in one call: one script renews them, and each has the answer and the effect of its own call.

use std::collections::BTreeMap;

use fairlock::admin::LockName;
use fairlock::backend::{
    Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Renew, Renewal, only,
};
use fairlock::owner::ClientId;
use fairlock::{FencingToken, RedisBackend};
use fairlock_tests::Alone;

use super::refusals::{self, Refusal};
use super::world::{LEASE, Rules, World};

/// The locks of a call, and what became of Anna's hold of each.
const LOCKS: [(&str, Fate); 6] = [
    ("first", Fate::Held),
    ("vanished", Fate::Vanished),
    ("second", Fate::Held),
    ("theirs", Fate::OtherType),
    ("taken", Fate::Taken),
    ("last", Fate::Held),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Held,
    /// The lock's key was deleted.
    Vanished,
    /// A string lies there.
    OtherType,
    /// Dora took it by force.
    Taken,
}

/// Holds of one client on one server.
struct Batch<'a> {
    world: &'a World,
    locks: Vec<LockId>,
    tokens: Vec<FencingToken>,
}

/// What else a renewal may touch.
fn keys_beside(name: &str) -> [String; 2] {
    ["record", "ends"].map(|what| format!("fairlock_{what}:{{{name}}}"))
}

type Answer = Result<Renewal, (BackendErrorKind, String)>;

impl<'a> Batch<'a> {
    fn arrange(world: &'a World) -> Batch<'a> {
        let kind = world.rules.lock().kind;
        let locks = LOCKS.map(|(name, _)| LockId::new(LockName::new(name).unwrap(), kind)).to_vec();
        let mut tokens = Vec::new();
        for (lock, (name, fate)) in locks.iter().zip(LOCKS) {
            let [record, ends] = keys_beside(name);
            world.query::<()>(&["DEL", name, &record, &ends]);
            let acquire = |who| {
                let mut ask = world.ask(who, fairlock::backend::Wait::Forever);
                ask.place.lock = lock;
                match only(world.backend.acquire(&[ask])).unwrap() {
                    Acquired::Granted { token, .. } => token,
                    other => panic!("{other:?}"),
                }
            };
            tokens.push(acquire(&world.anna));
            match fate {
                Fate::Held => {}
                Fate::Vanished => world.query(&["DEL", name]),
                Fate::OtherType => {
                    world.query::<()>(&["DEL", name]);
                    world.query(&["SET", name, "theirs"])
                }
                Fate::Taken => {
                    world.backend.force_release(lock).unwrap();
                    acquire(&world.dora);
                }
            }
        }
        Batch { world, locks, tokens }
    }

    /// `counts[n]` is the count of the hold of lock `n`.
    fn items(&self, counts: [u32; LOCKS.len()]) -> Vec<Renew<'_>> {
        let anna = &self.world.anna;
        let item = |((lock, token), holds)| Renew::Hold {
            hold: Hold::new(lock, &anna.owner, anna.request, token),
            holds,
            lease: 2 * LEASE,
        };
        self.locks.iter().zip(self.tokens.iter().copied()).zip(counts).map(item).collect()
    }

    /// Type, lease in tens of seconds and content of each lock's key.
    fn keys(&self) -> BTreeMap<&'static str, (String, i64, Vec<String>)> {
        let key = |(name, _): &(&'static str, Fate)| {
            let kind: String = self.world.query(&["TYPE", name]);
            let left: i64 = self.world.query(&["PTTL", name]);
            let read: &[&str] = if kind == "hash" { &["HGETALL", name] } else { &["KEYS", name] };
            let mut content: Vec<String> = self.world.query(read);
            // The tokens differ between runs.
            content.iter_mut().for_each(|value| {
                value.truncate(value.find(' ').unwrap_or(value.len()));
            });
            content.sort();
            (*name, (kind, (left + 3000) / 10_000, content))
        };
        LOCKS.iter().map(key).collect()
    }
}

fn plainly(answer: Result<Renewal, BackendError>) -> Answer {
    answer.map_err(|error| (error.kind(), error.message().to_owned()))
}

/// Holds in one call have the answers and effects of calls of their own.
#[test]
fn holds_in_one_call_are_answered_as_in_calls_of_their_own() {
    let _alone = Alone::here();
    let server = refusals::server();
    let keys = LOCKS.map(|(name, _)| {
        let [record, ends] = keys_beside(name);
        [name.to_owned(), record, ends]
    });
    let keys = keys.concat();
    for rules in [Rules::HandOff, Rules::Parts, Rules::All, Rules::Redisson, Rules::Plain] {
        let world = World::new(&server, rules);
        for refusal in refusals_of(rules) {
            let url = refusals::user(&server, refusal, keys.iter().map(String::as_str));
            let (one_by_one, all_at_once) = (rules.connect(&url), rules.connect(&url));
            // First without any other count than that of a grant, which a script need not look at then.
            for counts in [[1; 6], [2, 1, 1, 2, 1, 2], [1; 6]] {
                let run = |backend: &RedisBackend, at_once: usize| {
                    let batch = Batch::arrange(&world);
                    let items = batch.items(counts);
                    refusal.begin(&world);
                    let calls = items.chunks(at_once).map(|some| backend.renew(ClientId::random(), some));
                    let answers: Vec<Answer> = calls.flatten().map(plainly).collect();
                    refusal.end(&world);
                    (answers, batch.keys())
                };
                let (alone, together) = (run(&one_by_one, 1), run(&all_at_once, LOCKS.len()));
                assert_eq!(alone, together, "{rules:?}, {refusal:?}, {counts:?}");
                if refusal == Refusal::None {
                    assert_is_as_the_fates_say(&together.0);
                }
            }
        }
    }
}

fn assert_is_as_the_fates_say(answers: &[Answer]) {
    for (answer, (name, fate)) in answers.iter().zip(LOCKS) {
        match fate {
            Fate::Held => assert_eq!(*answer, Ok(Renewal::Renewed), "{name}"),
            Fate::Vanished | Fate::Taken => assert_eq!(*answer, Ok(Renewal::Lost), "{name}"),
            Fate::OtherType => {
                assert!(matches!(answer, Err((BackendErrorKind::Corrupt, _))), "{name}: {answer:?}");
            }
        }
    }
}

/// The server's reasons, each command of the scripts, and the keys of one lock.
fn refusals_of(rules: Rules) -> Vec<Refusal> {
    let mut all = vec![Refusal::None, Refusal::Full, Refusal::Alone, Refusal::CantSave];
    all.extend(["hget", "hmget", "pttl", "pexpire", "hset"].map(Refusal::Command));
    all.push(Refusal::Key("second"));
    match rules {
        Rules::HandOff => {}
        Rules::Parts | Rules::All => {
            all.extend(["zadd", "zscore"].map(Refusal::Command));
            all.push(Refusal::Key("fairlock_ends:{second}"));
        }
        Rules::Redisson | Rules::Plain => all.push(Refusal::Key("fairlock_record:{second}")),
    }
    all
}
