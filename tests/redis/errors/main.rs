//! Errors about rights, keys and names: their kind, their words, and what stays at the server; `messages` has the mistakes
//! of new users. `connections.rs` has unreachable servers, logins and settings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod advice;
mod foreign;
mod messages;
mod rights;
mod rustc;

use std::error::Error as StdError;
use std::sync::{Mutex, Once};
use std::time::Duration;

use fairlock::{Client, Discipline, Error, RedisBackend};
use fairlock_tests::errors::{assert_corrupt, assert_says};
use fairlock_tests::{RedisServer, eventually, wait_until_no_residue};

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(10);

const DISCIPLINES: [Discipline; 2] = [Discipline::HandOff, Discipline::Redisson];

fn client_at(url: &str, discipline: Discipline) -> Result<Client, Error> {
    let lease = Duration::from_millis(900);
    let backend = RedisBackend::builder(url).discipline(discipline).response_timeout(lease / 2).connect()?;
    Client::builder(backend).lease(lease).build()
}

fn client(server: &RedisServer, discipline: Discipline) -> Client {
    client_at(&server.url(), discipline).unwrap()
}

fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = server.query(&["KEYS", "*"]);
    keys.sort();
    keys
}

// The log of this process, of all tests together.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}: {}", record.level(), record.target(), record.args());
        LINES.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

fn capture_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Capture).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

fn logged(part: &str) -> Vec<String> {
    LINES.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
}

#[test]
fn a_key_of_another_type_is_named_and_left_alone() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let [hand_off, redisson] = DISCIPLINES.map(|discipline| client(&server, discipline));
    let locks = [
        hand_off.fair_lock("orders").unwrap(),
        redisson.fair_lock("orders").unwrap(),
        redisson.plain_lock("orders").unwrap(),
    ];
    let keys_of = [
        &["orders", "fairlock_line:{orders}", "fairlock_record:{orders}", "fairlock_record:{orders}"][..],
        &[
            "orders",
            "redisson_lock_queue:{orders}",
            "redisson_lock_timeout:{orders}",
            "fairlock_record:{orders}",
        ],
        &["orders", "fairlock_record:{orders}"],
    ];
    let each = locks.iter().zip(keys_of).flat_map(|(lock, keys)| keys.iter().map(move |key| (*key, lock)));
    for (key, lock) in each {
        for foreign in
            [&["SET", key, "theirs"][..], &["GEOADD", key, "1", "2", "theirs"], &["RPUSH", key, "theirs"]]
        {
            let own_type = match foreign[0] {
                "GEOADD" => key.contains("_timeout") || key.starts_with("fairlock_line"), // a sorted set
                "RPUSH" => key.starts_with("redisson_lock_queue"),
                _ => false,
            };
            if own_type {
                continue;
            }
            server.query::<()>(foreign);
            let dump = server.query::<Vec<u8>>(&["DUMP", key]);
            let at = format!("on key `{key}` of type {}", server.query::<String>(&["TYPE", key]));
            let parts = [
                "lock `orders` can't be read: ",
                &server.address(),
                &at,
                "something that is not ours",
                "WRONGTYPE",
                "give the lock another name",
            ];
            assert_corrupt(lock.try_lock(), &parts);
            assert_corrupt(lock.try_lock_for(BOUND), &parts);
            assert_corrupt(lock.lock(), &parts);
            assert_corrupt(lock.force_unlock(), &parts);
            assert_corrupt(lock.inspect(), &parts);
            assert_eq!(
                (keys(&server), server.query::<Vec<u8>>(&["DUMP", key])),
                (vec![key.to_string()], dump)
            );
            server.query::<()>(&["DEL", key]);
            lock.lock().unwrap().unlock().unwrap(); // it works again
            server.query::<()>(&["FLUSHALL"]);
        }
    }
}

#[test]
fn a_ghost_at_the_head_of_the_list_does_not_block() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    server.query::<()>(&["RPUSH", "redisson_lock_queue:{orders}", "6e3814a1-e847-452b-a982-45baf93a1df2:57"]);
    let guard =
        client(&server, Discipline::Redisson).fair_lock("orders").unwrap().try_lock_for(BOUND).unwrap();
    guard.guard().expect("the ghost is removed").unlock().unwrap();
    wait_until_no_residue(&server);
}

#[test]
fn a_queue_and_set_that_disagree_are_repaired_with_a_warning() {
    let _alone = fairlock_tests::Alone::here();
    capture_logs();
    let server = RedisServer::start();
    let client = client(&server, Discipline::Redisson);
    for (name, in_list) in [("only-in-the-set", false), ("only-in-the-list", true)] {
        let (lock, owner) = (client.fair_lock(name).unwrap(), client.new_owner());
        let guard = lock.lock().unwrap();
        let other = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
        if in_list {
            let queue = format!("redisson_lock_queue:{{{name}}}");
            server.query::<()>(&["RPUSH", &queue, owner.id().as_str()]);
        } else {
            let set = format!("redisson_lock_timeout:{{{name}}}");
            server.query::<()>(&["ZADD", &set, "9999999999999", owner.id().as_str()]);
        }
        let request = lock.owned_by(&owner).unwrap().request().unwrap();
        assert_eq!(request.rank(), Some(1), "{name}: one place, at the tail");
        let lines = logged(&format!("`{name}`")).into_iter().filter(|line| line.contains("disagreed"));
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("WARN fairlock::acquire: "), "{lines:?}");
        assert_says(&lines[0], &[&server.address(), owner.id().as_str()]);
        guard.unlock().unwrap();
        other.wait().unwrap().unlock().unwrap();
        request.wait().unwrap().unlock().unwrap();
    }
    wait_until_no_residue(&server);
}

#[test]
fn waiting_beside_redissons_line_is_warned_of_once_per_lock() {
    let _alone = fairlock_tests::Alone::here();
    capture_logs();
    let server = RedisServer::start();
    let [hand_off, redisson] = DISCIPLINES.map(|discipline| client(&server, discipline));
    let lock = hand_off.fair_lock("two-lines").unwrap();
    let warned = || logged("lock `two-lines`: clients wait for it in Redisson's line").len();
    // The other line is looked at in every fourth turn.
    (0..3).for_each(|_| lock.lock().unwrap().unlock().unwrap());
    let guard = lock.lock().unwrap();
    let ask = || drop(lock.owned_by(&hand_off.new_owner()).unwrap().request().unwrap());
    ask();
    assert_eq!(warned(), 0, "no other client is in a line");
    let theirs =
        redisson.fair_lock("two-lines").unwrap().owned_by(&redisson.new_owner()).unwrap().request().unwrap();
    ask();
    ask();
    assert_eq!(warned(), 1);
    drop(theirs);
    guard.unlock().unwrap();
    wait_until_no_residue(&server);
}

#[test]
fn invalid_names_are_refused_with_the_reason() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let client = client(&server, Discipline::default());
    let refusal = |error: Error, parts: &[&str]| {
        assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
        assert_says(&error, parts);
    };
    refusal(client.fair_lock("").unwrap_err(), &["invalid lock name ``: it is empty"]);
    refusal(client.plain_lock(&"ü".repeat(257)).unwrap_err(), &["it has 514 bytes, 512 are allowed"]);
    refusal(client.fair_lock(&"x".repeat(513)).unwrap_err(), &["…`: it has 513 bytes, 512 are allowed"]);
    let taken = [
        "fairlock_line",
        "fairlock_record",
        "fairlock_record",
        "redisson_lock_queue",
        "redisson_lock_timeout",
    ];
    for prefix in taken {
        for lock_of in [Client::fair_lock, Client::plain_lock] {
            let lock = lock_of(&client, &format!("{prefix}:{{a}}\n\u{1b}\0")).unwrap();
            let name = format!("`{prefix}:{{a}}\\n\\u{{1b}}\\0`");
            let reason = format!("{name}: names that begin with {prefix} are keys of other locks");
            refusal(lock.lock().unwrap_err(), &[&reason]);
            refusal(lock.try_lock().unwrap_err(), &[&reason]);
            refusal(lock.inspect().unwrap_err(), &[&reason]);
        }
    }
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn any_other_name_is_a_lock_and_leaves_nothing() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let [hand_off, redisson] = DISCIPLINES.map(|discipline| client(&server, discipline));
    let longest = "x".repeat(512);
    for name in [
        "a",
        "{a}",
        "{a",
        "a}",
        "}{",
        "{}",
        "{a}{b}",
        "a:{b}:c",
        "\n",
        "a\r\nDEL a",
        "\"'`",
        "\0",
        "a b",
        " ",
        "%s%d$1\\",
        "*",
        "é",
        "鎖🔒",
        "\u{202e}",
        "lock:fairlock_record",
        &longest,
    ] {
        for (client, lock) in [
            (&hand_off, hand_off.fair_lock(name).unwrap()),
            (&redisson, redisson.fair_lock(name).unwrap()),
            (&redisson, redisson.plain_lock(name).unwrap()),
        ] {
            let guard = lock.lock().unwrap();
            assert_eq!(guard.name(), name);
            assert_eq!(server.query::<i64>(&["HLEN", name]), 1, "{name:?}");
            let request = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
            guard.unlock().unwrap();
            request.wait().unwrap().unlock().unwrap();
        }
        wait_until_no_residue(&server);
    }
}

/// All text of an error.
fn shown(error: &(dyn StdError + 'static)) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    text
}

#[test]
fn no_password_is_shown_anywhere() {
    let _alone = fairlock_tests::Alone::here();
    capture_logs();
    let server = RedisServer::builder().requirepass("a/kanarie@1").start();
    let mut seen = Vec::new();
    let builder = RedisBackend::builder(&server.url());
    seen.push(format!("{builder:?} {builder:#?}"));
    let backend = builder.connect().unwrap();
    seen.push(format!("{backend:?} {backend:#?}"));
    let builder = Client::builder(backend).outage_limit(Duration::from_millis(300));
    seen.push(format!("{builder:?} {builder:#?}"));
    let client = builder.build().unwrap();
    let lock = client.fair_lock("treasure").unwrap();
    let guard = lock.lock().unwrap();
    let request = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
    seen.push(format!(
        "{client:?} {lock:#?} {guard:#?} {request:?} {:?} {:?}",
        lock.inspect(),
        client.stats()
    ));

    // Wrong passwords, unencoded ones, and ones in the wrong place.
    let (url, port) = (server.url(), server.port());
    let mut urls = vec![
        server.url_as("", "kanarie"),
        server.url_as("kanarie", "kanarie"),
        url.replace("redis", "kanarie"),
    ];
    for login in [":kanarie/1@", ":kanarie#1@", ":kanarie?1@", "kanarie:kanarie:kanarie@", ":%ffkanarie@"] {
        urls.push(format!("redis://{login}127.0.0.1:{port}/"));
    }
    for url in &urls {
        seen.push(format!("{:?}", RedisBackend::builder(url)));
        let error = RedisBackend::connect(url).expect_err(url);
        seen.push(shown(&error));
    }

    server.kill();
    seen.push(shown(&RedisBackend::connect(&url).unwrap_err()));
    drop(request);
    seen.push(shown(&lock.owned_by(&client.new_owner()).unwrap().try_lock().unwrap_err()));
    seen.push(shown(&lock.owned_by(&client.new_owner()).unwrap().lock().unwrap_err()));
    seen.push(shown(&guard.renew().unwrap_err()));
    seen.push(shown(&guard.unlock().unwrap_err()));
    eventually(BOUND, "the loss of the server is logged", || !logged(&server.address()).is_empty());
    assert!(!logged("`treasure`").is_empty(), "calls are logged");
    seen.extend(client.shutdown().err().map(|error| shown(&error)));
    for text in &seen {
        assert!(!text.contains("kanarie"), "{text}");
    }
    assert_eq!(logged("kanarie"), [""; 0]);
}
