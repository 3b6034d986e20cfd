//! A hash of another program under a lock's name: no waiter waits for it, and nothing deletes it. A hash of Redisson's is a holder.

use fairlock::{Client, Discipline, Error, LockKind, Result};
use fairlock_tests::errors::{assert_corrupt, assert_says};
use fairlock_tests::{Alone, RedisServer, eventually};

use super::{BOUND, DISCIPLINES, client, client_at};

/// What no lock has written.
fn foreign_hashes() -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    vec![
        words(&["theirs", "x"]),
        words(&["name", "anna", "age", "42"]),
        words(&["user:17", "1"]),
        words(&["mode", "dark", "6e3814a1-e847-452b-a982-45baf93a1df2:57", "many"]),
        words(&["mode", "1 is great"]),
        // More than a script reads.
        (0..1000).map(|number| number.to_string()).collect(),
    ]
}

/// As Redisson writes them: a lock, one that was entered again, and read-write locks.
const REDISSONS: [&[&str]; 4] = [
    &["6e3814a1-e847-452b-a982-45baf93a1df2:57", "1"],
    &["6e3814a1-e847-452b-a982-45baf93a1df2:-9007199254740993", "12"],
    &["mode", "write", "6e3814a1-e847-452b-a982-45baf93a1df2:57:write", "1"],
    &[
        "mode",
        "read",
        "6e3814a1-e847-452b-a982-45baf93a1df2:57",
        "2",
        "0b3814a1-e847-452b-a982-45baf93a1df2:1",
        "1",
    ],
];

fn put(server: &RedisServer, hash: &[impl AsRef<str>]) {
    let words: Vec<&str> = ["HSET", "orders"].into_iter().chain(hash.iter().map(AsRef::as_ref)).collect();
    server.query::<()>(&words);
}

const KINDS: [LockKind; 4] =
    [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 3 }];

/// Each way to ask for the lock, once: whether it is granted.
fn ask(client: &Client, kind: LockKind) -> Vec<Result<bool>> {
    let rw_lock = client.rw_lock("orders");
    match kind {
        LockKind::Fair | LockKind::Plain => {
            let lock =
                if kind == LockKind::Fair { client.fair_lock("orders") } else { client.plain_lock("orders") };
            let lock = lock.unwrap();
            let millis = std::time::Duration::from_millis(30);
            vec![
                lock.try_lock().map(|tried| tried.guard().is_some()),
                lock.try_lock_for(millis).map(|tried| tried.guard().is_some()),
            ]
        }
        LockKind::ReadWrite => {
            let lock = rw_lock.unwrap();
            vec![
                lock.try_read().map(|tried| tried.guard().is_some()),
                lock.try_write().map(|tried| tried.guard().is_some()),
            ]
        }
        _ => {
            let semaphore = client.semaphore("orders", 3).unwrap();
            vec![semaphore.try_acquire().map(|tried| tried.guard().is_some())]
        }
    }
}

#[test]
fn a_hash_without_a_holder_is_named_and_left_alone() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let parts = [
        "lock `orders` can't be read: ",
        &server.address(),
        "on key `orders` of type hash",
        "something that is not ours",
        "no field of the hash is a holder",
        "give the lock another name",
    ];
    for discipline in DISCIPLINES {
        let client = client(&server, discipline);
        for hash in foreign_hashes() {
            put(&server, &hash);
            let dump = server.query::<Vec<u8>>(&["DUMP", "orders"]);
            for kind in KINDS {
                if kind.is_shared() && discipline == Discipline::Redisson {
                    continue; // it has none
                }
                for answer in ask(&client, kind) {
                    assert_corrupt(answer, &parts);
                }
            }
            for lock in [client.fair_lock("orders").unwrap(), client.plain_lock("orders").unwrap()] {
                assert_corrupt(lock.lock(), &parts);
                assert_corrupt(lock.inspect(), &parts);
                assert_corrupt(lock.force_unlock(), &parts);
            }
            if discipline == Discipline::HandOff {
                let lock = client.rw_lock("orders").unwrap();
                assert_corrupt(lock.read(), &parts);
                assert_corrupt(lock.inspect(), &parts);
                assert_corrupt(lock.force_unlock(), &parts);
            }
            assert_eq!(server.query::<Vec<u8>>(&["DUMP", "orders"]), dump, "{hash:?}");
            server.query::<()>(&["DEL", "orders"]);
            for kind in KINDS.into_iter().filter(|kind| !kind.is_shared()) {
                assert!(ask(&client, kind).into_iter().all(Result::unwrap), "it works again");
            }
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
            let lock_of = |client: &Client| fairlock_tests::locks::lock_of(client, kind, "orders");
            let guard = lock_of(&holder).lock().unwrap();
            let mut request = lock_of(&waiter).request().unwrap();
            eventually(BOUND, "it waits", || waiter.waiting().len() == 1);
            server.query::<()>(&["DEL", "orders"]);
            put(&server, &["theirs", "x"]);
            let error = request.wait_for(2 * BOUND).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{discipline:?}, {kind}: {error}");
            assert_says(&error, &["lock `orders` can't be read: ", "something that is not ours"]);
            drop(guard);
        }
    }
}

#[test]
fn a_hash_of_redissons_is_waited_for() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    for discipline in DISCIPLINES {
        let client = client(&server, discipline);
        let readers = (0..200)
            .flat_map(|reader| [format!("6e3814a1-e847-452b-a982-45baf93a1df2:{reader}"), "1".to_owned()]);
        let many = ["mode".to_owned(), "read".to_owned()].into_iter().chain(readers).collect();
        let hashes = REDISSONS.iter().map(|hash| hash.iter().map(|word| (*word).to_owned()).collect());
        for hash in hashes.chain([many]) {
            let hash: Vec<String> = hash;
            put(&server, &hash);
            for kind in [LockKind::Fair, LockKind::Plain] {
                assert!(ask(&client, kind).into_iter().all(|answer| !answer.unwrap()), "{hash:?}");
            }
            let seen = client.fair_lock("orders").unwrap().inspect().unwrap().holder().cloned().unwrap();
            assert!(seen.owner.as_str().starts_with("6e3814a1-") || hash.len() > 4, "{seen:?}");
            if discipline == Discipline::HandOff {
                for answer in [LockKind::ReadWrite, KINDS[3]].into_iter().flat_map(|kind| ask(&client, kind))
                {
                    assert!(matches!(answer, Err(Error::Mismatch { .. })), "{answer:?}");
                }
            }
            server.query::<()>(&["DEL", "orders"]);
        }
    }
}

#[test]
fn a_client_whose_calls_were_refused_for_the_lock_has_nothing_to_settle() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    put(&server, &["theirs", "x"]);
    server.query::<()>(&["SET", "string", "theirs"]);
    for discipline in DISCIPLINES {
        for name in ["fairlock_record:x", "string", "orders"] {
            for plain in [false, true] {
                for call in 0..3 {
                    let client = client(&server, discipline);
                    let lock = if plain { client.plain_lock(name) } else { client.fair_lock(name) }.unwrap();
                    let error = match call {
                        0 => lock.try_lock().map(drop).unwrap_err(),
                        1 => lock.try_lock_for(BOUND).map(drop).unwrap_err(),
                        _ => lock.lock().map(drop).unwrap_err(),
                    };
                    assert!(matches!(error, Error::Corrupt { .. } | Error::InvalidName { .. }), "{error}");
                    client.shutdown().unwrap_or_else(|unsettled| panic!("{name}, {error}: {unsettled}"));
                }
            }
        }
    }
}
