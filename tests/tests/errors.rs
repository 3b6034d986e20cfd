//! What can be wrong with rights, keys and names: which error says so, in which words, and what is left at the server.
//! `connections.rs` has servers that can't be reached, log-ins and settings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, Lock, OwnedGuard, Owner, RedisBackend};
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

/// Far more than anything here takes, on a machine that is busy.
const BOUND: Duration = Duration::from_secs(10);

/// Every command that the library needs, but SELECT for a database other than 0. (CLIENT SETNAME and SETINFO only
/// make CLIENT LIST readable, and may be refused.)
const COMMANDS: &str = "ping evalsha script|load publish subscribe unsubscribe time exists del pexpire pttl \
    hget hmget hset hkeys hgetall lindex lpop lpos lrange lrem llen rpush zadd zscore zrem zrange zcard";

/// How a user is refused: `rules` are words of ACL SETUSER.
fn user(server: &RedisServer, name: &str, rules: &[&str]) -> String {
    server.query::<()>(&[&["ACL", "SETUSER", name, "reset", "on", ">pw"], rules].concat());
    server.url_as(name, "pw")
}

fn client_at(url: &str) -> Result<Client, Error> {
    Client::builder(RedisBackend::connect(url)?).lease(Duration::from_millis(900)).build()
}

fn client(server: &RedisServer) -> Client {
    client_at(&server.url()).unwrap()
}

#[track_caller]
fn assert_says(error: &impl Display, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(!message.contains('\n'), "more than a line: {message}");
}

#[track_caller]
fn assert_denied<T: Debug>(result: Result<T, Error>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert_says(&error, parts);
}

#[track_caller]
fn assert_corrupt<T: Debug>(result: Result<T, Error>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert_says(&error, parts);
}

fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = server.query(&["KEYS", "*"]);
    keys.sort();
    keys
}

/// A withdrawal may still be under way in the background.
#[track_caller]
fn assert_nothing_is_left(server: &RedisServer) {
    eventually(BOUND, "everything is withdrawn", || {
        keys(server).iter().all(|key| key.starts_with("fairlock_token"))
    });
    assert_no_residue(server, &[]);
}

fn at(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

// What is logged in this process, by all tests together.
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
fn a_user_without_scripts_is_refused_at_the_first_call() {
    let server = RedisServer::start();
    let url = user(&server, "bob", &["~*", "&*", "+@all", "-evalsha"]);
    let lock = client_at(&url).unwrap().fair_lock("orders").unwrap();
    let parts = ["(lock `orders`)", &at(&server), "the user lacks a right", "evalsha"];
    assert_denied(lock.try_lock(), &parts);
    assert_denied(lock.try_lock_for(BOUND), &parts);
    assert_denied(lock.lock(), &parts);
    assert_denied(lock.inspect(), &parts);
    assert_denied(lock.force_unlock(), &parts);
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn a_user_who_may_not_hear_wake_ups_is_refused_when_the_client_is_made() {
    let server = RedisServer::start();
    let url = user(&server, "bob", &["~*", "&redisson_lock__channel:*", "+@all"]);
    let backend = RedisBackend::connect(&url).unwrap();
    let denied = "the user lacks a right";
    assert_denied(
        Client::new(backend),
        &["subscribing to wake-ups", &at(&server), denied, "channel fairlock:"],
    );
}

#[test]
fn a_user_who_may_not_hear_the_locks_channel_is_refused_when_he_would_wait() {
    let server = RedisServer::start();
    let bob = client_at(&user(&server, "bob", &["~*", "&fairlock:*", "+@all"])).unwrap();
    let alice = client(&server);
    for lock_of in [Client::fair_lock, Client::plain_lock] {
        let (his, hers) = (lock_of(&bob, "orders").unwrap(), lock_of(&alice, "orders").unwrap());
        his.lock().unwrap().unlock().unwrap(); // a free lock needs no channel
        let guard = hers.lock().unwrap();
        assert!(his.try_lock().unwrap().is_none());
        let parts = ["(lock `orders`)", "lacks a right", "channel redisson_lock__channel:{orders}"];
        assert_denied(his.lock(), &parts);
        assert_denied(his.try_lock_for(BOUND), &parts);
        eventually(BOUND, "his place is given up", || hers.inspect().unwrap().line.is_empty());
        guard.unlock().unwrap();
    }
    assert_nothing_is_left(&server);
}

/// Two owners use a fair and a plain lock of that name in every way there is. What went wrong is collected.
fn use_in_every_way(url: &str, name: &str) -> Vec<Error> {
    let client = match client_at(url) {
        Ok(client) => client,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    for lock in [client.fair_lock(name).unwrap(), client.plain_lock(name).unwrap()] {
        errors.extend(take_turns(&client, &lock).err());
        let force = || -> Result<(), Error> {
            let guard = lock_in_time(&lock, &client.new_owner())?;
            let forced = lock.force_unlock();
            eventually(BOUND, "the holder knows", || forced.is_err() || guard.is_lost());
            drop(guard);
            forced.map(|forced| assert!(forced))
        };
        errors.extend(force().err());
        errors.extend(lock.inspect().err());
    }
    errors
}

fn lock_in_time(lock: &Lock, owner: &Owner) -> Result<OwnedGuard, Error> {
    lock.try_lock_for_as(owner, BOUND)
        .map(|guard| guard.unwrap_or_else(|| panic!("{} is not granted in time", lock.name())))
}

fn take_turns(client: &Client, lock: &Lock) -> Result<(), Error> {
    let (a, b) = (client.new_owner(), client.new_owner());
    let guard = lock_in_time(lock, &a)?;
    let again = lock_in_time(lock, &a)?;
    again.unlock()?;
    guard.renew()?;
    assert!(lock.try_lock_for_as(&b, Duration::from_millis(30))?.is_none());
    let mut request = lock.request_as(&b)?;
    // Longer than a lease: the hold and the place are renewed.
    let waited = thread::scope(|scope| {
        let waiter = scope.spawn(|| request.wait_for(BOUND));
        eventually(BOUND, "the lease ran out or a renewal kept it", || {
            let certain = guard.valid_for();
            certain.is_zero() || certain < Duration::from_millis(650)
        });
        eventually(BOUND, "a renewal", || guard.is_lost() || guard.valid_for() > Duration::from_millis(750));
        let unlocked = guard.unlock();
        let waited = waiter.join().unwrap();
        unlocked.and(waited)
    });
    waited?.expect("granted in time").unlock()
}

#[test]
fn the_least_rights_are_enough_and_each_of_them_is_needed() {
    capture_logs();
    let server = RedisServer::start();
    let all: Vec<&str> = COMMANDS.split_whitespace().collect();
    // The keys and channels of one lock, and no others.
    let user_without = |missing: &str| {
        let name = format!("no-{}", missing.replace('|', "-"));
        let places = ["", "redisson_lock_queue:", "redisson_lock_timeout:", "fairlock_token:"];
        let key = |prefix: &&str| {
            if prefix.is_empty() { format!("~{name}") } else { format!("~{prefix}{{{name}}}") }
        };
        let mut rules: Vec<String> = places.iter().map(key).collect();
        rules.extend([format!("&redisson_lock__channel:{{{name}}}*"), "&fairlock:*".to_owned()]);
        rules.extend(all.iter().filter(|command| **command != missing).map(|command| format!("+{command}")));
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        (user(&server, &name, &rules), name)
    };
    let (url, name) = user_without("nothing");
    let errors = use_in_every_way(&url, &name); // and this loads the scripts, so that the others need not
    assert!(errors.is_empty(), "{errors:?}");
    assert_nothing_is_left(&server);

    // Without these all goes on, if slower: messages are missing, or too many.
    let optional = ["script|load", "publish", "unsubscribe"];
    thread::scope(|scope| {
        for missing in all.iter().filter(|command| !optional.contains(command)) {
            let (url, name) = user_without(missing);
            let server = &server;
            scope.spawn(move || {
                let errors = use_in_every_way(&url, &name);
                // What the watchdog does in the background is refused in the log.
                let refused =
                    || logged(&format!("lock `{name}`")).iter().any(|line| line.contains("lacks a right"));
                assert!(!errors.is_empty() || refused(), "{missing} is not needed");
                for error in errors {
                    let lost = matches!(error, Error::Lost(_)); // nobody could renew it
                    assert!(matches!(error, Error::Denied { .. }) || lost, "without {missing}: {error:?}");
                    assert!(
                        lost || error.to_string().contains("lacks a right"),
                        "without {missing}: {error}"
                    );
                }
                // The lock itself never stays for good.
                let pttl = || server.query::<i64>(&["PTTL", &name]);
                eventually(BOUND, &format!("without {missing} the lock has an end"), || pttl() != -1);
            });
        }
    });
}

#[test]
fn a_missing_right_to_write_is_found_before_anything_is_written() {
    let server = RedisServer::start();
    for missing in ["-hset", "-pexpire"] {
        let bob = client_at(&user(&server, "bob", &["~*", "&*", "+@all", missing])).unwrap();
        let lock = bob.fair_lock("orders").unwrap();
        assert_denied(lock.lock(), &["(lock `orders`)", &at(&server), "the user lacks a right"]);
        assert_eq!(keys(&server), [""; 0], "{missing}");
    }
    let _guard = client(&server).fair_lock("orders").unwrap().lock().unwrap();
    let before = keys(&server);
    for missing in ["-zadd", "-rpush"] {
        let bob = client_at(&user(&server, "bob", &["~*", "&*", "+@all", missing])).unwrap();
        let lock = bob.fair_lock("orders").unwrap();
        assert_denied(lock.lock(), &["(lock `orders`)", &at(&server), "the user lacks a right"]);
        eventually(BOUND, &format!("with {missing} nothing is left"), || keys(&server) == before);
    }
}

#[test]
fn a_key_of_another_type_is_named_and_left_alone() {
    let server = RedisServer::start();
    let client = client(&server);
    let fair = [
        "orders",
        "redisson_lock_queue:{orders}",
        "redisson_lock_timeout:{orders}",
        "fairlock_token:{orders}",
    ];
    let plain = ["orders", "fairlock_token:{orders}"];
    let fair = fair.map(|key| (key, client.fair_lock("orders").unwrap()));
    let plain = plain.map(|key| (key, client.plain_lock("orders").unwrap()));
    for (key, lock) in fair.iter().chain(&plain) {
        for foreign in
            [&["SET", key, "theirs"][..], &["GEOADD", key, "1", "2", "theirs"], &["RPUSH", key, "theirs"]]
        {
            let own_type = match foreign[0] {
                "GEOADD" => key.contains("_timeout"), // a sorted set
                "RPUSH" => key.contains("_queue"),
                _ => false,
            };
            if own_type {
                continue;
            }
            server.query::<()>(foreign);
            let dump = server.query::<Vec<u8>>(&["DUMP", key]);
            let parts =
                ["lock `orders` can't be read: ", &at(&server), "something that is not ours", "WRONGTYPE"];
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
            lock.lock().unwrap().unlock().unwrap(); // and all is well again
            server.query::<()>(&["FLUSHALL"]);
        }
    }
}

#[test]
fn a_ghost_at_the_head_of_the_list_does_not_block() {
    let server = RedisServer::start();
    server.query::<()>(&["RPUSH", "redisson_lock_queue:{orders}", "6e3814a1-e847-452b-a982-45baf93a1df2:57"]);
    let guard = client(&server).fair_lock("orders").unwrap().try_lock_for(BOUND).unwrap();
    guard.expect("the ghost is removed").unlock().unwrap();
    assert_nothing_is_left(&server);
}

#[test]
fn queue_and_set_that_disagree_about_us_are_repaired_and_it_is_logged() {
    capture_logs();
    let server = RedisServer::start();
    let client = client(&server);
    for (name, in_list) in [("only-in-the-set", false), ("only-in-the-list", true)] {
        let (lock, owner) = (client.fair_lock(name).unwrap(), client.new_owner());
        let guard = lock.lock().unwrap();
        let other = lock.request_as(&client.new_owner()).unwrap();
        if in_list {
            let queue = format!("redisson_lock_queue:{{{name}}}");
            server.query::<()>(&["RPUSH", &queue, owner.id().as_str()]);
        } else {
            let set = format!("redisson_lock_timeout:{{{name}}}");
            server.query::<()>(&["ZADD", &set, "9999999999999", owner.id().as_str()]);
        }
        let request = lock.request_as(&owner).unwrap();
        assert_eq!(request.rank(), Some(1), "{name}: one place, at the tail");
        let lines = logged(&format!("`{name}`")).into_iter().filter(|line| line.contains("disagreed"));
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("WARN fairlock::acquire: "), "{lines:?}");
        assert_says(&lines[0], &[&at(&server), owner.id().as_str()]);
        guard.unlock().unwrap();
        other.wait().unwrap().unlock().unwrap();
        request.wait().unwrap().unlock().unwrap();
    }
    assert_nothing_is_left(&server);
}

#[test]
fn names_that_cant_be_used_are_refused_with_the_reason() {
    let server = RedisServer::start();
    let client = client(&server);
    let refusal = |error: Error, parts: &[&str]| {
        assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
        assert_says(&error, parts);
    };
    refusal(client.fair_lock("").unwrap_err(), &["invalid lock name ``: it is empty"]);
    refusal(client.plain_lock(&"ü".repeat(257)).unwrap_err(), &["it has 514 bytes, 512 are allowed"]);
    refusal(client.fair_lock(&"x".repeat(513)).unwrap_err(), &["…`: it has 513 bytes, 512 are allowed"]);
    let taken = [
        "fairlock_queue",
        "fairlock_places",
        "fairlock_token",
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
    let server = RedisServer::start();
    let client = client(&server);
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
        "lock:fairlock_token",
        &longest,
    ] {
        for lock_of in [Client::fair_lock, Client::plain_lock] {
            let lock = lock_of(&client, name).unwrap();
            let guard = lock.lock().unwrap();
            assert_eq!(guard.name(), name);
            assert_eq!(server.query::<i64>(&["HLEN", name]), 1, "{name:?}");
            let request = lock.request_as(&client.new_owner()).unwrap();
            guard.unlock().unwrap();
            request.wait().unwrap().unlock().unwrap();
        }
        assert_nothing_is_left(&server);
    }
}

/// Everything that can be shown of an error.
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
    let request = lock.request_as(&client.new_owner()).unwrap();
    seen.push(format!(
        "{client:?} {lock:#?} {guard:#?} {request:?} {:?} {:?}",
        lock.inspect(),
        client.stats()
    ));

    // Wrong, not encoded, and in places where it does not belong.
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
        seen.extend([shown(&error), shown(&Error::from(error))]);
    }

    server.kill();
    seen.push(shown(&RedisBackend::connect(&url).unwrap_err()));
    drop(request);
    seen.push(shown(&lock.try_lock_as(&client.new_owner()).unwrap_err()));
    seen.push(shown(&lock.lock_as(&client.new_owner()).unwrap_err()));
    seen.push(shown(&guard.renew().unwrap_err()));
    seen.push(shown(&guard.unlock().unwrap_err()));
    eventually(BOUND, "the loss of the server is logged", || !logged(&at(&server)).is_empty());
    assert!(!logged("`treasure`").is_empty(), "calls are logged");
    seen.extend(client.shutdown().err().map(|error| shown(&error)));
    for text in &seen {
        assert!(!text.contains("kanarie"), "{text}");
    }
    assert_eq!(logged("kanarie"), [""; 0]);
}
