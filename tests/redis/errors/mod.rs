//! Errors about rights, keys and names: their kind, their words, and what stays at the server; `messages` has the mistakes
//! of new users. `connections.rs` has unreachable servers, logins and settings.

mod advice;
mod foreign;
mod messages;
#[cfg(feature = "night")]
mod rights;
mod rustc;

use std::error::Error as StdError;
use std::time::Duration;

use fairlock::settings::{Discipline, Login};
use fairlock::{Client, Error, Lock, PostgresBackend, RedisBackend};
use fairlock_tests::errors::{assert_corrupt, assert_says};
use fairlock_tests::locks::patient;
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::{CleanServer, RedisServer, eventually};

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

const DISCIPLINES: [Discipline; 2] = [Discipline::HandOff, Discipline::Redisson];

fn client_at(url: &str, discipline: Discipline) -> Result<Client, Error> {
    Client::new(patient(url).discipline(discipline).connect()?)
}

fn client(server: &RedisServer, discipline: Discipline) -> Client {
    client_at(&server.url(), discipline).unwrap()
}

/// A fair lock by the hand-off, one by Redisson's rules, and a plain lock.
fn locks(clients: &[Client; 2], name: &str) -> [Lock; 3] {
    let [hand_off, redisson] = clients;
    [hand_off.fair_lock(name), redisson.fair_lock(name), redisson.plain_lock(name)].map(Result::unwrap)
}

/// What each call about the lock says.
fn all_calls(lock: &Lock) -> [Result<(), Error>; 5] {
    [
        lock.try_lock().map(drop),
        lock.try_lock_for(BOUND).map(drop),
        lock.lock().map(drop),
        lock.admin().force_unlock().map(drop),
        lock.admin().inspect().map(drop),
    ]
}

fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = server.query(&["KEYS", "*"]);
    keys.sort();
    keys
}

fn capture_logs() {
    keep_log_lines(log::LevelFilter::Trace);
}

#[test]
fn a_key_of_another_type_is_named_and_left_alone() {
    let server = CleanServer::start();
    let clients = DISCIPLINES.map(|discipline| client(&server, discipline));
    let keys_of = [
        "orders fairlock_queue:{orders} fairlock_record:{orders}",
        "orders redisson_lock_queue:{orders} redisson_lock_timeout:{orders} fairlock_record:{orders}",
        "orders fairlock_record:{orders}",
    ];
    let locks = locks(&clients, "orders");
    let each = locks.iter().zip(keys_of).flat_map(|(lock, keys)| keys.split(' ').map(move |key| (key, lock)));
    for (key, lock) in each {
        let is_sorted_set = key.contains("_timeout") || key.starts_with("fairlock_queue");
        let is_list = key.starts_with("redisson_lock_queue");
        for (foreign, is_own_type) in [
            (&["SET", key, "theirs"][..], false),
            (&["GEOADD", key, "1", "2", "theirs"], is_sorted_set),
            (&["RPUSH", key, "theirs"], is_list),
        ] {
            if is_own_type {
                continue;
            }
            server.query::<()>(foreign);
            let dump = || (keys(&server), server.query::<Vec<u8>>(&["DUMP", key]));
            let before = dump();
            let at = format!("on key `{key}` of type {}", server.query::<String>(&["TYPE", key]));
            let (address, name) = (server.address(), "give the lock another name");
            let not_ours = "something that is not ours";
            let parts = ["lock `orders` can't be read: ", &address, &at, not_ours, "WRONGTYPE", name];
            all_calls(lock).into_iter().for_each(|said| assert_corrupt(said, &parts));
            assert_eq!(dump(), before);
            assert_eq!(before.0, [key]);
            server.query::<()>(&["DEL", key]);
            lock.lock().unwrap().unlock().unwrap(); // it works again
            server.query::<()>(&["FLUSHALL"]);
        }
    }
}

#[test]
fn a_queue_and_set_that_disagree_are_repaired_with_a_warning() {
    let server = CleanServer::start();
    capture_logs();
    let client = client(&server, Discipline::Redisson);
    for (name, words) in [
        ("only-in-the-set", &["ZADD", "redisson_lock_timeout:{only-in-the-set}", "9999999999999"][..]),
        ("only-in-the-list", &["RPUSH", "redisson_lock_queue:{only-in-the-list}"]),
    ] {
        let (lock, owner) = (client.fair_lock(name).unwrap(), client.new_owner());
        let guard = lock.lock().unwrap();
        let other = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
        server.query::<()>(&[words, &[owner.id().as_str()]].concat());
        let request = lock.owned_by(&owner).unwrap().request().unwrap();
        assert_eq!(request.rank(), Some(1), "{name}: one place, at the tail");
        let mut lines = log_lines(&format!("`{name}`"));
        lines.retain(|line| line.contains("disagreed"));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with("WARN fairlock::acquire: "), "{line}");
        assert_says(line, &[&server.address(), owner.id().as_str()]);
        guard.unlock().unwrap();
        other.wait().unwrap().unlock().unwrap();
        request.wait().unwrap().unlock().unwrap();
    }
}

#[test]
fn waiting_beside_redissons_queue_is_warned_of_once_per_lock() {
    let server = CleanServer::start();
    capture_logs();
    let [hand_off, redisson] = DISCIPLINES.map(|discipline| client(&server, discipline));
    let lock = hand_off.fair_lock("two-lines").unwrap();
    let warned = || log_lines("lock `two-lines`: clients wait for it in Redisson's queue").len();
    let guard = redisson.fair_lock("two-lines").unwrap().lock().unwrap();
    let theirs = fairlock_tests::locks::request(&redisson, "two-lines");
    let ask = || drop(lock.owned_by(&hand_off.new_owner()).unwrap().request().unwrap());
    ask();
    ask();
    eventually("the warning", || warned() == 1);
    drop(theirs);
    guard.unlock().unwrap();
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
    let login = || Ok::<_, String>(Login::new("kanarie").with_user("ann"));
    let by_login = RedisBackend::builder(&server.url()).login(login).sentinel_login("bob", "kanarie");
    let of_postgres = "postgres://ann:kanarie@h/db";
    let of_postgres = PostgresBackend::builder(of_postgres).listen_on(of_postgres).login(login);
    seen.push(format!("{by_login:?} {of_postgres:?} {:?}", login()));
    let builder = RedisBackend::builder(&server.url());
    seen.push(format!("{builder:?} {builder:#?}"));
    let backend = builder.connect().unwrap();
    seen.push(format!("{backend:?} {backend:#?}"));
    let builder = Client::builder(backend).outage_limit(Duration::from_secs(3));
    seen.push(format!("{builder:?} {builder:#?}"));
    let client = builder.build().unwrap();
    let lock = client.fair_lock("treasure").unwrap();
    let guard = lock.lock().unwrap();
    let request = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
    let (state, stats) = (lock.admin().inspect(), client.stats());
    seen.push(format!("{client:?} {lock:#?} {guard:#?} {request:?} {state:?} {stats:?}"));

    // Wrong passwords, unencoded ones, and ones in the wrong place.
    let (url, port) = (server.url(), server.port());
    let logins = [
        "kanarie:@",
        ":kanarie/1@",
        ":kanarie#1@",
        ":kanarie?1@",
        "kanarie:kanarie:kanarie@",
        ":%ffkanarie@",
    ];
    let wrong =
        [server.url_as("", "kanarie"), server.url_as("kanarie", "kanarie"), url.replace("redis", "kanarie")];
    for url in wrong.into_iter().chain(logins.map(|login| format!("redis://{login}127.0.0.1:{port}/"))) {
        seen.push(format!("{:?}", RedisBackend::builder(&url)));
        seen.push(shown(&RedisBackend::connect(&url).expect_err(&url)));
    }

    server.kill();
    drop(request);
    let other = || lock.owned_by(&client.new_owner()).unwrap();
    let errors = [
        RedisBackend::connect(&url).map(drop),
        other().try_lock().map(drop),
        other().lock().map(drop),
        guard.renew().map(drop),
        guard.unlock(),
    ];
    seen.extend(errors.map(|error| shown(&error.unwrap_err())));
    eventually("the loss of the server is logged", || !log_lines(&server.address()).is_empty());
    assert!(!log_lines("`treasure`").is_empty(), "calls are logged");
    seen.extend(client.shutdown().err().map(|error| shown(&error)));
    for text in &seen {
        assert!(!text.contains("kanarie"), "{text}");
    }
    assert_eq!(log_lines("kanarie"), [""; 0]);
}
