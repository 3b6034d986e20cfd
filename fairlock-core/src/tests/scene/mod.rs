//! Scenes with one client: what its callers and tasks do, what the store answers, what each is told, and what is seen then.
//!
//! A scene is a list of sentences with semicolons or line ends between them; parentheses are for the reader. A name that is no word
//! of the language is a caller, with its own thread and a lock of its name: `b@a` is another owner that wants the lock of a, and `a'`
//! is another caller of a's owner.
//!
//! `a locks` begins a call, and waits until it sleeps or has ended. `a gets 9 1s` moves the clock until it has ended, and tells what
//! it has come to and how long that took; `a locks gets 9 1s` is both. A scene ends when all calls have ended, and each one without
//! success was told. Times at the end of a sentence may be left out; `...` stands for all that follows, and `1s..2s` for what is in
//! between.
//!
//! | sentence | meaning |
//! | --- | --- |
//! | `a locks`, `tries`, `tries-for 5s`, `requests`, `waits`, `waits-for 5s`, `leaves`, `unlocks`, `drops`, `renews`, `keeps 9s`, `leaks`, `unleaks`; tasks also `listens` for a loss, and `polls` | a call |
//! | `x shuts-down`, `shuts-down-within 1s`, `drains 20s`, `locks-all a,b`, `tries-all a,b`, `tries-all-for-5s a,b` | a call of the client; the locks are released at once |
//! | `a locks gets 9 1s`, `a gets 9`, `gets-all`, `is-busy`, `done`, `asks`, `sure 5s`, `lost Taken`, `fails Denied`, `drained a/1001/4s` | what a call has come to; `at-once` before it if the first poll of a task says so |
//! | `a told no answer` | its last error has these words |
//! | `a is plain`, `task`, `fixed 3s`, `capped 70s`, `cancellable` | its lock, before the first call |
//! | `acquire says rank/0 busy got/9 down*3` | the next answers; later ones are the usual ones |
//! | `release takes 1s`, `a takes 1s`, `renew panics 2`, `renew is-down`, `is-up`, `a is-cut`, `is-back` | the next call, or the next about a's lock; and all from now on |
//! | `pass 5s`, `jump 5s` | the clock moves step by step, or at once |
//! | `a is-pushed 9`, `is-woken`, `is-taken`, `loses`, `is-cancelled`; `stray 9 a`, `hint a`, `gap` | a message, or another event |
//! | `asked acquire release/9@1s:a!tasks` | all calls since the last such sentence: number, time, lock and thread may be left out |
//! | `called release 2`, `called release a 1`, `at renew 0s 1s` | how many calls there were since then, and when |
//! | `stats lost 1`, `held a`, `waiting nobody`, `chores 0`, `claims 0` | the statistics, and other state of the client |
//! | `in order` | nothing was lost, nothing is left, and the client's threads have ended |
//! | `log 1 outage` | how many warnings with these words the client has logged |
//! | `a holds 2`, `token 9`, `rank 3`, `is-held`, `is-lost`, `check ok`, `hears Taken`, `decided`, `pending`, `valid 9s` | what a caller sees of its lock, its last guard or its request |

pub(crate) mod answers;
mod calls;
mod told;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use calls::Caller;
use log::Level;
use words::{fits, op_of, text_of, time_of};

use super::logger::lines_about;
use super::store::Store;
use super::support::World;
use crate::backend::{RequestId, Wake};
use crate::shared::Shared;
use crate::{Client, FencingToken, LostCause, ManualClock};

/// Who is in a scene.
pub(super) struct Cast {
    world: fn() -> World,
    /// Whether its callers are tasks.
    ways: &'static [bool],
}

/// The usual client, with threads that call it.
pub(super) const THREADS: Cast = Cast { world: World::new, ways: &[false] };
/// The usual client, with tasks.
pub(super) const TASKS: Cast = Cast { world: World::new, ways: &[true] };
/// One after the other.
pub(super) const BOTH: Cast = Cast { world: World::new, ways: &[false, true] };
/// Only callers ask the store.
pub(super) const UNWATCHED: Cast = Cast { world: World::without_watchdog, ways: &[false] };
/// The same with tasks.
pub(super) const UNWATCHED_TASKS: Cast = Cast { world: World::without_watchdog, ways: &[true] };
/// Tasks, which ask the store themselves.
pub(super) const QUICK_TASKS: Cast = Cast {
    world: || {
        let world = World::new();
        world.store.is_quick();
        world
    },
    ways: &[true],
};
/// The store may begin what an unanswered attempt asks for up to six seconds later.
pub(super) const LATE: Cast =
    Cast { world: || World::with_late_attempts(Duration::from_secs(6)), ways: &[false] };
/// The same with tasks.
pub(super) const LATE_TASKS: Cast = Cast { ways: &[true], ..LATE };
/// The same store names places by their owners.
pub(super) const LATE_BY_OWNER: Cast = Cast {
    world: || {
        let world = (LATE.world)();
        world.store.plan().keeps_place_by_owner = true;
        world
    },
    ways: &[false],
};

/// Tests that are a scene or two.
macro_rules! scenes {
    ($($(#[$doc:meta])* fn $name:ident() { $($cast:ident $scene:literal)+ })*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $($crate::tests::scene::play(&$crate::tests::scene::$cast, $scene);)+
        }
    )*};
}
pub(super) use scenes;

/// Plays a scene with this cast.
#[track_caller]
pub(super) fn play(cast: &Cast, scene: &str) {
    for &tasks in cast.ways {
        let mut played = Scene { world: (cast.world)(), tasks, callers: BTreeMap::new() };
        played.play(scene);
        played.ends();
    }
}

pub(super) struct Scene {
    pub(super) world: World,
    tasks: bool,
    callers: BTreeMap<String, Caller>,
}

impl Scene {
    pub(super) fn of(cast: &Cast) -> Scene {
        Scene { world: (cast.world)(), tasks: cast.ways[0], callers: BTreeMap::new() }
    }

    /// With another client of this world's store.
    pub(super) fn of_client(world: World, client: Client) -> Scene {
        let world = World { shared: Arc::clone(&client.0), client, ..world };
        Scene { world, tasks: false, callers: BTreeMap::new() }
    }

    /// All handles of the client are dropped.
    pub(super) fn without_handles(self) -> (Store, ManualClock, Weak<Shared>) {
        drop(self.callers);
        self.world.without_handles()
    }

    #[track_caller]
    pub(super) fn play(&mut self, scene: &str) {
        for sentence in scene.split([';', '\n']) {
            let sentence = sentence.split('(').next().unwrap_or_default();
            let words: Vec<&str> = sentence.split_whitespace().collect();
            let seen = if words.is_empty() { String::new() } else { self.run(&words) };
            if !fits(&words, &seen) {
                std::mem::forget(std::mem::take(&mut self.callers)); // their drops may wait for the clock
                panic!("`{}`, but `{seen}`, in: {scene:.600}", words.join(" "));
            }
        }
    }

    /// Every call has ended, and each one that failed was told.
    #[track_caller]
    pub(super) fn ends(self) {
        for (name, caller) in &self.callers {
            let untold = caller.untold();
            assert!(untold.is_none(), "nobody asks what comes of {name}: {untold:?}");
        }
    }

    /// Does what the words say, and says what is seen.
    fn run(&mut self, words: &[&str]) -> String {
        let world = &self.world;
        match *words {
            ["pass", time] => world.clock.advance(time_of(time)),
            ["jump", time] => world.clock.jump(time_of(time)),
            ["hint", lock] => world.store.wake(Wake::Recheck { lock, owner: None }),
            ["gap"] => world.store.wake(Wake::Gap),
            ["stray", token, lock] => {
                let (request, token) = (RequestId::new(1), FencingToken::new(token.parse().unwrap()));
                world.store.wake(Wake::Granted { lock, owner: "stray:1", request, token });
            }
            ["asked", ref expected @ ..] => return words::seen_of(&world.store.asked(), expected),
            ["at", op, ..] => {
                let times: Vec<_> = world.store.times(op_of(op)).into_iter().map(text_of).collect();
                return format!("at {op} {}", times.join(" "));
            }
            ["called", op, _] => return format!("called {op} {}", world.store.times(op_of(op)).len()),
            ["called", op, lock, _] => {
                return format!("called {op} {lock} {}", world.store.calls_about(lock, op_of(op)));
            }
            ["held", ..] => return words::names("held", world.client.held().iter().map(|one| &one.lock)),
            ["waiting", ..] => {
                return words::names("waiting", world.client.waiting().iter().map(|one| &one.lock));
            }
            ["chores", _] => return format!("chores {}", world.shared.chores.len()),
            ["claims", _] => return format!("claims {}", world.shared.ledger.registry.all().len()),
            ["stats", what, _] => {
                return format!("stats {what} {}", words::counted(&world.client.stats(), what));
            }
            ["in", "order"] => return words::in_order(world),
            ["log", _, ref text @ ..] => {
                let lines = lines_about(world.label()).into_iter();
                let said =
                    lines.filter(|(level, line)| *level <= Level::Warn && line.contains(&text.join(" ")));
                return format!("log {} {}", said.count(), text.join(" "));
            }
            [op, "says", ref next @ ..] => answers::plan(&mut world.store.plan(), op, next),
            [op, "panics", times] => world.store.panic_next(op_of(op), times.parse().unwrap()),
            [op, "is-down"] => world.store.take_down(op_of(op)),
            [op, "is-up"] => world.store.bring_up(op_of(op)),
            [lock, "is-cut"] => world.store.cut(lock),
            [lock, "is-back"] => world.store.restore(lock),
            [what, "takes", time] => {
                let (time, times) = time.split_once('*').unwrap_or((time, "1"));
                match words::find_op(what) {
                    Some(op) => {
                        (0..times.parse().unwrap()).for_each(|_| world.store.delay(op, time_of(time)))
                    }
                    None => world.store.delay_about(what, time_of(time)),
                }
            }
            [who, verb, ..] => return self.act(who, verb, words),
            _ => panic!("it is no sentence: {words:?}"),
        }
        self.settle();
        words.join(" ")
    }

    /// All threads sleep, and each caller knows its claim.
    fn settle(&mut self) {
        self.world.settle();
        for caller in self.callers.values_mut() {
            caller.learn(&self.world);
        }
    }

    fn act(&mut self, who: &str, verb: &str, words: &[&str]) -> String {
        let name = who.split('@').next().unwrap();
        if !self.callers.contains_key(name) {
            let first = name.strip_suffix('\'').map(|first| &self.callers[first]);
            let mut caller = Caller::new(&self.world, who, self.tasks, first);
            caller.learn(&self.world);
            self.callers.insert(name.to_owned(), caller);
        }
        let (world, caller) = (&self.world, self.callers.get_mut(name).unwrap());
        let seen = match (verb, &words[2..]) {
            ("is", kind) => {
                caller.is(world, kind);
                return words.join(" ");
            }
            ("is-pushed", [token]) => {
                world.push(caller.claim(), token.parse().unwrap());
                words[1..].join(" ")
            }
            ("is-woken", []) => {
                world.recheck(caller.claim());
                words[1..].join(" ")
            }
            ("is-taken", [..]) => {
                let (lock, owner) = (caller.claim().lock.name.as_str(), caller.claim().owner.as_str());
                let token = words.get(2).map_or_else(|| caller.token(), |token| token.parse().unwrap());
                world.store.wake(Wake::Taken { lock, owner, token: FencingToken::new(token) });
                words[1..].join(" ")
            }
            ("loses", cause) => {
                let cause = if cause.is_empty() { LostCause::Taken } else { LostCause::NotRenewed };
                world.shared.ledger.lose(&caller.claim().clone(), cause);
                words[1..].join(" ")
            }
            ("is-cancelled", []) => {
                caller.cancel.cancel();
                words[1..].join(" ")
            }
            ("told", text) => {
                let is_said = caller.error.contains(&text.join(" "));
                if is_said { words[1..].join(" ") } else { format!("told {}", caller.error) }
            }
            _ => match caller.seen(verb) {
                Some(seen) => seen,
                None => caller.call(world, &words[1..]),
            },
        };
        self.settle();
        format!("{who} {seen}")
    }
}
