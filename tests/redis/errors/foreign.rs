//! A hash of another program under a lock's name: no waiter waits for it, and nothing deletes it. A hash of Redisson's is a holder.

use fairlock::admin::LockKind;
use fairlock::settings::Discipline;
use fairlock::{Client, Error, Result, TryLock};
use fairlock_tests::errors::{assert_corrupt, assert_says};
use fairlock_tests::locks::lock_of;
use fairlock_tests::{Alone, CleanServer, RedisServer, eventually};

use super::{BOUND, DISCIPLINES, all_calls, client, client_at, locks};

/// The fields and values of hashes that no lock has written. The last one is more than a script reads.
fn foreign_hashes() -> Vec<String> {
    let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let few = [
        "theirs|x",
        "name|anna|age|42",
        "user:17|1",
        "mode|dark|6e3814a1-e847-452b-a982-45baf93a1df2:57|many",
        "mode|1 is great",
    ];
    few.into_iter().map(str::to_owned).chain([many.join("|")]).collect()
}

/// As Redisson writes them: a lock, one that was entered again, and read-write locks, the last with many readers.
fn hashes_of_redisson() -> Vec<String> {
    let many = (0..200).map(|reader| format!("|6e3814a1-e847-452b-a982-45baf93a1df2:{reader}|1"));
    let few = [
        "6e3814a1-e847-452b-a982-45baf93a1df2:57|1",
        "6e3814a1-e847-452b-a982-45baf93a1df2:-9007199254740993|12",
        "mode|write|6e3814a1-e847-452b-a982-45baf93a1df2:57:write|1",
        "mode|read|6e3814a1-e847-452b-a982-45baf93a1df2:57|2|0b3814a1-e847-452b-a982-45baf93a1df2:1|1",
    ];
    few.into_iter().map(str::to_owned).chain(["mode|read".to_owned() + &many.collect::<String>()]).collect()
}

fn put(server: &RedisServer, hash: &str) {
    server.query::<()>(&["HSET", "orders"].into_iter().chain(hash.split('|')).collect::<Vec<_>>());
}

/// What each way to ask for a lock with several holders says.
fn ask_for_units(client: &Client) -> Vec<Result<()>> {
    let (table, pool) = (client.rw_lock("orders").unwrap(), client.semaphore("orders", 3).unwrap());
    vec![table.try_read().map(drop), table.try_write().map(drop), pool.try_acquire().map(drop)]
}

#[test]
fn a_hash_without_a_holder_is_named_and_left_alone() {
    let server = CleanServer::start();
    let parts = [
        "lock `orders` can't be read: ",
        &server.address(),
        "on key `orders` of type hash",
        "something that is not ours",
        "no field of the hash is a holder",
        "give the lock another name",
    ];
    let clients = DISCIPLINES.map(|discipline| client(&server, discipline));
    for hash in foreign_hashes() {
        put(&server, &hash);
        let dump = server.query::<Vec<u8>>(&["DUMP", "orders"]);
        let [hand_off, redisson] = &clients;
        let [mut said, others] = [hand_off, redisson].map(|client| {
            let locks = [LockKind::Fair, LockKind::Plain].map(|kind| lock_of(client, kind, "orders"));
            locks.iter().flat_map(all_calls).collect::<Vec<_>>()
        });
        let table = hand_off.rw_lock("orders").unwrap();
        said.extend(others.into_iter().chain(ask_for_units(hand_off)));
        said.extend([
            table.read().map(drop),
            table.admin().inspect().map(drop),
            table.admin().force_unlock().map(drop),
        ]);
        said.into_iter().for_each(|said| assert_corrupt(said, &parts));
        assert_eq!(server.query::<Vec<u8>>(&["DUMP", "orders"]), dump, "{hash:?}");
        server.query::<()>(&["DEL", "orders"]);
        for lock in locks(&clients, "orders") {
            lock.try_lock().unwrap().granted().expect("it works again").unlock().unwrap();
        }
    }
}

/// It was put there while they waited.
#[test]
fn waiters_for_a_hash_without_a_holder_end() {
    let _alone = Alone::here();
    for discipline in DISCIPLINES {
        for kind in [LockKind::Fair, LockKind::Plain] {
            let server = RedisServer::start();
            let [holder, waiter] = [(); 2].map(|()| client_at(&server.url(), discipline).unwrap());
            let lock_of = |client: &Client| lock_of(client, kind, "orders");
            let guard = lock_of(&holder).lock().unwrap();
            let mut request = lock_of(&waiter).request().unwrap();
            eventually("it waits", || waiter.waiting().len() == 1);
            server.query::<()>(&["DEL", "orders"]);
            put(&server, "theirs|x");
            let error = request.wait_for(2 * BOUND).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{discipline:?}, {kind}: {error}");
            assert_says(&error, &["lock `orders` can't be read: ", "something that is not ours"]);
            drop(guard);
        }
    }
}

#[test]
fn a_hash_of_redissons_is_waited_for() {
    let server = CleanServer::start();
    for discipline in DISCIPLINES {
        let client = client(&server, discipline);
        for hash in hashes_of_redisson() {
            put(&server, &hash);
            for lock in [LockKind::Fair, LockKind::Plain].map(|kind| lock_of(&client, kind, "orders")) {
                assert!(matches!(lock.try_lock(), Ok(TryLock::Busy(_))), "{hash}");
                let timed = lock.try_lock_for(std::time::Duration::from_millis(30));
                assert!(matches!(timed, Ok(TryLock::Busy(_))), "{hash}");
            }
            let seen =
                client.fair_lock("orders").unwrap().admin().inspect().unwrap().holder().cloned().unwrap();
            assert!(
                seen.owner.as_str().starts_with("6e3814a1-") || hash.starts_with("mode|read"),
                "{seen:?}"
            );
            if discipline == Discipline::HandOff {
                for answer in ask_for_units(&client) {
                    assert!(matches!(answer, Err(Error::Mismatch { .. })), "{answer:?}");
                }
            }
            server.query::<()>(&["DEL", "orders"]);
        }
    }
}

/// A client whose calls were refused for the lock has nothing to settle.
#[test]
fn a_client_whose_calls_were_refused_settles_nothing() {
    let server = CleanServer::start().allow(&["orders", "string"]);
    put(&server, "theirs|x");
    server.query::<()>(&["SET", "string", "theirs"]);
    for discipline in DISCIPLINES {
        for name in ["fairlock_record:x", "string", "orders"] {
            for kind in [LockKind::Fair, LockKind::Plain] {
                for call in 0..3 {
                    let client = client(&server, discipline);
                    let lock = lock_of(&client, kind, name);
                    let asked = match call {
                        0 => lock.try_lock().map(drop),
                        1 => lock.try_lock_for(BOUND).map(drop),
                        _ => lock.lock().map(drop),
                    };
                    let error = asked.unwrap_err();
                    assert!(matches!(error, Error::Corrupt { .. } | Error::InvalidName { .. }), "{error}");
                    client.shutdown().unwrap_or_else(|unsettled| panic!("{name}, {error}: {unsettled}"));
                }
            }
        }
    }
}
