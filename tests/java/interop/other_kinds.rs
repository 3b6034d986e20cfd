//! Redisson's read-write lock and semaphore on our names: kinds that the two sides don't share. Each side stays out, or says
//! what lies there; nothing is destroyed or left behind.

use std::collections::BTreeMap;

use fairlock::owner::Owner;
use fairlock::settings::Discipline;
use fairlock::{Client, Error};

use crate::world::{FAILED_WAIT, LONG, World};

/// Java's kinds with the interface of a lock that we do not have.
const THEIRS: [&str; 2] = ["read", "write"];

/// What we hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ours {
    Fair,
    Plain,
    Redissons,
    Reads,
    Writes,
    Permit,
    AllPermits,
}

const OURS: [Ours; 7] =
    [Ours::Fair, Ours::Plain, Ours::Redissons, Ours::Reads, Ours::Writes, Ours::Permit, Ours::AllPermits];

enum Guard {
    Thread(fairlock::Guard),
    Owned(fairlock::Guard<Owner>),
}

impl Ours {
    fn client(self, world: &World) -> Client {
        let discipline = match self {
            Ours::Redissons => Discipline::Redisson,
            _ => Discipline::HandOff,
        };
        world.client_with(discipline, LONG)
    }

    fn ask(self, client: &Client, name: &str) -> fairlock::Result<Option<Guard>> {
        let semaphore = || client.semaphore(name, 3);
        Ok(match self {
            Ours::Fair | Ours::Redissons => client.fair_lock(name)?.try_lock()?.granted().map(Guard::Thread),
            Ours::Plain => client.plain_lock(name)?.try_lock()?.granted().map(Guard::Thread),
            Ours::Reads => client.rw_lock(name)?.try_read()?.granted().map(Guard::Thread),
            Ours::Writes => client.rw_lock(name)?.try_write()?.granted().map(Guard::Thread),
            Ours::Permit => semaphore()?.try_acquire()?.granted().map(Guard::Owned),
            Ours::AllPermits => semaphore()?.try_acquire_many(3)?.granted().map(Guard::Owned),
        })
    }

    fn is_exclusive(self) -> bool {
        self == Ours::Fair || self.is_as_javas()
    }

    /// The hash is one of Redisson's own locks, which its read-write lock does not respect either.
    fn is_as_javas(self) -> bool {
        matches!(self, Ours::Plain | Ours::Redissons)
    }
}

impl Guard {
    /// The hold is where it was.
    #[track_caller]
    fn assert_held(&self) {
        let left = match self {
            Guard::Thread(guard) => guard.renew(),
            Guard::Owned(guard) => guard.renew(),
        };
        left.unwrap();
    }

    fn unlock(self) {
        match self {
            Guard::Thread(guard) => guard.unlock().unwrap(),
            Guard::Owned(guard) => guard.unlock().unwrap(),
        }
    }
}

/// All that lies under a name that is a hash.
fn hash(world: &World, name: &str) -> BTreeMap<String, String> {
    world.server.query(&["HGETALL", name])
}

/// The error of a name that is in use otherwise: it names the lock, and says what lies there.
#[track_caller]
fn assert_refused(asked: fairlock::Result<Option<Guard>>, name: &str, says: &str) {
    let error = asked.err().expect("it is refused");
    assert!(matches!(error, Error::Mismatch { .. } | Error::Corrupt { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(name) && text.contains(says), "{text}");
}

#[test]
fn a_hold_of_ours_keeps_javas_read_write_lock_and_semaphore_out() {
    let world = World::new();
    for ours in OURS.into_iter().filter(|ours| !ours.is_as_javas()) {
        let name = format!("ours-{ours:?}");
        let java = |verb: &str, kind: &str, more: &str| format!("{verb} {kind} {name}{more}");
        let client = ours.client(&world);
        let guard = ours.ask(&client, &name).unwrap().expect("it is free");
        let before = hash(&world, &name);
        for theirs in THEIRS {
            world.java.expect("j", &java("trylock", theirs, ""), "false");
            world.java.expect("j", &java("trylock", theirs, &format!(" {FAILED_WAIT}")), "false");
            world.java.expect_not_held("j", &java("unlock", theirs, ""));
            assert_eq!(hash(&world, &name), before, "{ours:?} and {theirs}");
        }
        for call in [format!("permits {name} 5"), format!("trypermit {name}")] {
            let result = world.java.ask("j", &call).result;
            assert!(result.contains("WRONGTYPE"), "{call}: {result}");
        }
        assert_eq!(hash(&world, &name), before, "{ours:?} and a semaphore");
        guard.assert_held();
        guard.unlock();
        for theirs in THEIRS {
            world.java.expect("j", &java("trylock", theirs, ""), "true");
            world.java.expect("j", &java("unlock", theirs, ""), "ok");
        }
    }
}

/// A read-write lock of Java keeps ours out until its last holder has left. For our exclusive lock, Java's reader or writer is a
/// holder like any other.
#[test]
fn a_read_write_lock_of_java_keeps_ours_out() {
    let world = World::new();
    for ours in OURS {
        for theirs in THEIRS {
            let name = format!("{theirs}-{ours:?}");
            let client = ours.client(&world);
            let holders: &[&str] = if theirs == "read" { &["j1", "j2"] } else { &["j1"] };
            for thread in holders {
                world.java.expect(thread, &format!("trylock {theirs} {name}"), "true");
            }
            for thread in holders {
                let before = hash(&world, &name);
                if ours.is_exclusive() {
                    assert!(ours.ask(&client, &name).unwrap().is_none(), "{ours:?} beside {theirs}");
                    let state = client.fair_lock(&name).unwrap().admin().inspect().unwrap();
                    assert!(state.holder().unwrap().owner.as_str().starts_with(&before_colon(&world)));
                } else {
                    assert_refused(ours.ask(&client, &name), &name, "an exclusive lock");
                }
                assert_eq!(hash(&world, &name), before, "{ours:?} beside {theirs}");
                world.java.expect(thread, &format!("unlock {theirs} {name}"), "ok");
            }
            ours.ask(&client, &name).unwrap().expect("all have left").unlock();
        }
    }
}

/// The UUID of Java's client.
fn before_colon(world: &World) -> String {
    world.java.owner("j1").split(':').next().unwrap().to_owned()
}

/// A semaphore of Java is refused to ours, with the key and its type. Its permits are a number under the name.
#[test]
fn javas_semaphore_is_refused_with_its_key_and_type() {
    let world = World::new();
    world.java.expect("j", "permits number 3", "true");
    for ours in OURS {
        let client = ours.client(&world);
        assert_refused(ours.ask(&client, "number"), "number", "key `number` of type string");
        assert_eq!(world.server.query::<String>(&["GET", "number"]), "3", "{ours:?}");
    }
    world.java.expect("j", "trypermit number", "true");
    // Java keeps it for ever.
    world.server.query::<()>(&["DEL", "number"]);
}
