//! Re-entries are counted in the lock's hash.

use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock::settings::Discipline;
use fairlock_tests::eventually;
use fairlock_tests::locks::lock_of;

use crate::world::{World, word};

/// Java reads the counts of `Redisson` in the owner's field, and `HandOff` has them in its own field: both are written with the next
/// renewal.
#[test]
fn our_re_entries_are_counted_in_the_locks_hash() {
    let world = World::new();
    let ways = [
        (Discipline::Redisson, LockKind::Fair),
        (Discipline::Redisson, LockKind::Plain),
        (Discipline::HandOff, LockKind::Fair),
    ];
    for (number, (discipline, kind)) in ways.into_iter().enumerate() {
        let name = format!("counts-{number}");
        let in_our_field = || {
            let fields: Vec<(String, String)> = world.server.query(&["HGETALL", &name]);
            let hold = fields.into_iter().find(|(field, _)| field.contains(':'));
            hold.and_then(|(_, hold)| hold.split(' ').nth(2).map(str::to_owned))
        };
        let lock = lock_of(&world.client_with(discipline, Duration::from_millis(2400)), kind, &name);
        let outermost = lock.lock().unwrap();
        let read = format!("hget {name} {}", outermost.owner());
        let is_counted = |count: &str| {
            let counted = || match discipline {
                Discipline::HandOff => in_our_field(),
                _ => world.server.query(&["HGET", &name, outermost.owner().as_str()]),
            };
            eventually("the next renewal", || counted().as_deref() == Some(count));
        };
        is_counted("1");
        let inner = lock.lock().unwrap();
        is_counted("2");
        let innermost = lock.try_lock().unwrap().granted().expect("we hold the lock");
        is_counted("3");
        innermost.unlock().unwrap();
        inner.unlock().unwrap();
        is_counted("1");
        world.java.expect("j", &format!("trylock {} {name}", word(kind)), "false");
        outermost.unlock().unwrap();
        world.java.expect("j", &read, "null");
        assert_eq!(in_our_field(), None);
    }
}

#[test]
fn javas_re_entries_are_counted_where_we_read_them() {
    let world = World::new();
    for kind in [LockKind::Fair, LockKind::Plain] {
        let (name, lock) = (word(kind), world.lock(kind, word(kind)));
        let owner = world.java.owner("j");
        let count = || {
            let holder = lock.admin().inspect().unwrap().holder().cloned()?;
            assert_eq!(holder.owner.as_str(), owner);
            assert_eq!(world.server.query::<u32>(&["HGET", name, &owner]), holder.hold_count);
            Some(holder.hold_count)
        };
        for (verb, counted) in [
            ("lock", Some(1)),
            ("lock", Some(2)),
            ("trylock", Some(3)),
            ("unlock", Some(2)),
            ("unlock", Some(1)),
        ] {
            world.java.ask("j", &format!("{verb} {name} {name}"));
            assert_eq!(count(), counted);
            assert!(lock.try_lock().unwrap().granted().is_none());
        }
        world.java.expect("j", &format!("unlock {name} {name}"), "ok");
        assert_eq!(count(), None);
        lock.try_lock().unwrap().granted().expect("the lock is free").unlock().unwrap();
    }
}
