//! Many holds in one call: one script renews them, and each has the answer and the effect of its own call.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fairlock::backend::{Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Renew, Renewal};
use fairlock::{ClientId, FencingToken, LockName, OwnerId, RedisBackend};
use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{Alone, RedisServer, assert_no_residue};

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
                match world.backend.acquire(&ask).unwrap() {
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

#[test]
fn holds_in_one_call_have_the_answers_and_effects_of_calls_of_their_own() {
    let _alone = Alone::here();
    let server = refusals::server();
    for rules in [Rules::HandOff, Rules::Parts, Rules::All, Rules::Redisson, Rules::Plain] {
        let world = World::new(&server, rules);
        for refusal in refusals_of(rules) {
            let url = user(&server, refusal);
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
    let mut all = vec![Refusal::None, Refusal::Full, Refusal::Replica, Refusal::CantSave];
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

/// The address for a user with all rights but one.
fn user(server: &RedisServer, refusal: Refusal) -> String {
    let mut words: Vec<String> =
        ["ACL", "SETUSER", "bob", "reset", "on", ">pw", "&*", "+@all"].map(str::to_owned).to_vec();
    let keys = LOCKS.iter().flat_map(|(name, _)| {
        let [record, ends] = keys_beside(name);
        [(*name).to_owned(), record, ends]
    });
    words.extend(
        keys.filter(|key| !matches!(refusal, Refusal::Key(denied) if denied == key))
            .map(|key| format!("~{key}")),
    );
    if let Refusal::Command(command) = refusal {
        words.push(format!("-{command}"));
    }
    server.query::<()>(&words.iter().map(String::as_str).collect::<Vec<_>>());
    server.url_as("bob", "pw")
}

#[test]
fn a_hundred_holds_are_one_script_and_one_that_is_refused_does_not_fail_the_others() {
    const HOLDS: usize = 250;
    let _alone = Alone::here();
    let server = RedisServer::start();
    for rules in [Rules::HandOff, Rules::Redisson, Rules::Plain] {
        let backend = rules.connect(&server.url());
        let (client, kind_of_lock) = (ClientId::random(), rules.lock().kind);
        let owner = OwnerId::new(&format!("{client}:1"));
        let request = fairlock::backend::RequestId::new(7);
        let locks: Vec<LockId> = (0..HOLDS)
            .map(|number| LockId::new(LockName::new(&format!("hold-{number}")).unwrap(), kind_of_lock))
            .collect();
        let grant = |lock| {
            let place = fairlock::backend::Place::new(lock, &owner, request);
            match backend.acquire(&fairlock::backend::Acquire::new(place, LEASE)).unwrap() {
                Acquired::Granted { token, .. } => Hold::new(lock, &owner, request, token),
                other => panic!("{other:?}"),
            }
        };
        let holds: Vec<Hold<'_>> = locks.iter().map(grant).collect();
        let items: Vec<Renew<'_>> =
            holds.iter().map(|hold| Renew::Hold { hold: *hold, holds: 1, lease: LEASE }).collect();
        let renew = |backend: &RedisBackend| {
            let before = scripts_run(&server);
            let answers: Vec<Answer> = backend.renew(client, &items).into_iter().map(plainly).collect();
            (answers, scripts_run(&server) - before)
        };
        let all_but = |answers: &[Answer], at: usize| {
            let others = answers.iter().enumerate().filter(|(index, _)| *index != at);
            assert_eq!(others.filter(|(_, answer)| **answer == Ok(Renewal::Renewed)).count(), HOLDS - 1);
        };

        renew(&backend); // the server may not know the script yet
        let (answers, scripts) = renew(&backend);
        assert_eq!(scripts, 3, "{rules:?}");
        assert!(answers.iter().all(|answer| *answer == Ok(Renewal::Renewed)), "{rules:?}");

        server.query::<()>(&["DEL", "hold-120"]);
        let (answers, scripts) = renew(&backend);
        assert_eq!((scripts, &answers[120]), (3, &Ok(Renewal::Lost)), "{rules:?}");
        all_but(&answers, 120);

        // Only the refused one is asked for alone, for the reason.
        server.query::<()>(&["SET", "hold-120", "theirs"]);
        let (answers, scripts) = renew(&backend);
        let (kind, error) = answers[120].as_ref().unwrap_err();
        assert_eq!((scripts, *kind), (4, BackendErrorKind::Corrupt), "{rules:?}: {error}");
        all_but(&answers, 120);
        server.query::<()>(&["DEL", "hold-120"]);

        // A right that is missing for one key is missing for the whole script: its hundred are asked for one by one.
        let mut words = vec!["ACL", "SETUSER", "bob", "reset", "on", ">pw", "&*", "+@all"];
        let keys: Vec<String> = (0..HOLDS)
            .filter(|number| *number != 120)
            .flat_map(|number| [format!("~hold-{number}"), format!("~fairlock_record:{{hold-{number}}}")])
            .collect();
        words.extend(keys.iter().map(String::as_str));
        server.query::<()>(&words);
        let (answers, scripts) = renew(&rules.connect(&server.url_as("bob", "pw")));
        let (kind, error) = answers[120].as_ref().unwrap_err();
        assert_eq!((scripts, *kind), (2 + 99, BackendErrorKind::Denied), "{rules:?}: {error}");
        all_but(&answers, 120);

        // A server that does not know the script has run none of it.
        server.query::<()>(&["SCRIPT", "FLUSH"]);
        let (answers, _) = renew(&backend);
        assert_eq!(answers[120], Ok(Renewal::Lost), "{rules:?}");
        all_but(&answers, 120);

        // Without an answer the outcome of all is unknown, and none is asked for again.
        server.stop();
        let asked = Instant::now();
        let answers = backend.renew(client, &items);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        assert!(
            answers.iter().all(|answer| {
                matches!(answer, Err(error) if error.kind() == BackendErrorKind::Unavailable)
            })
        );
        server.cont();
        let (answers, _) = renew(&rules.connect(&server.url()));
        all_but(&answers, 120);
        server.query::<()>(&["FLUSHALL"]);
    }
    assert_no_residue(&server, &[]);
}
