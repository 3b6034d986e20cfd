//! The mistakes of new users: each message says what is wrong, where, and what to do, in one line and without a secret.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use fairlock::{Client, MemoryBackend, RedisBackend};
use fairlock_tests::errors::{assert_denied, assert_says};
use fairlock_tests::{Alone, CleanServer, RedisServer, WorkDir};

use super::rustc::compile;
use super::{BOUND, all_calls, client_at};

/// The longest message, with a server's address and a lock's name of some letters.
const LONGEST: usize = 350;

/// What is said of a port where nothing listens.
const REFUSED: &str =
    "Redis at 127.0.0.1:1, connecting: Connection refused (os error 111); is Redis running there?";

#[track_caller]
fn assert_helps(error: &impl ToString, parts: &[&str]) {
    let message = error.to_string();
    assert_says(&message, parts);
    assert!(!message.contains("canary") && message.len() < LONGEST, "{message}");
}

/// Answers each connection as a web server answers what is no HTTP. Returns its port.
fn http_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Ends with the process, since it waits for connections.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    port
}

#[test]
fn what_answers_at_an_address_and_how_it_should_be_written() {
    let _alone = Alone::here();
    let (open, locked) = (RedisServer::start(), RedisServer::builder().requirepass("canary").start());
    let (sentinel, http) = (RedisServer::builder().sentinel().start(), http_server());
    let (open, locked, sentinel) = (open.address(), locked.address(), sentinel.address());
    let no_tls = "if this port has no TLS, write redis for rediss in the address";
    let only_user = "a password without a user is written :PASSWORD@HOST";
    let no_answer = "the TLS handshake failed: no answer within 500ms; ";
    let no_user = "the address has a user and no password";
    let of_sentinel = format!("write redis+sentinel://{sentinel}/MASTER");
    let not_redis = ("not a Redis server", "check host and port");
    for (url, (what, to_do)) in [
        (format!("redis://127.0.0.1:{http}"), not_redis),
        (format!("redis+sentinel://127.0.0.1:{http}/m"), not_redis),
        (format!("redis://{sentinel}"), ("it is a sentinel", &*of_sentinel)),
        (
            format!("redis+sentinel://{open}/m"),
            ("no sentinel answers there", "name the sentinels' port (26379)"),
        ),
        (format!("redis+cluster://{open}"), ("not in cluster mode", "redis:// in place of redis+cluster://")),
        (format!("rediss://{open}"), (no_answer, no_tls)),
        (format!("rediss+sentinel://{open}/m"), (no_answer, no_tls)),
        (format!("rediss://127.0.0.1:{http}"), ("the TLS handshake failed", no_tls)),
        (
            format!("redis://:canary@{open}"),
            ("a password, but the server has none", "leave the password out"),
        ),
        (format!("redis://canary@{locked}"), (no_user, only_user)),
        (format!("redis://canary@{open}"), (no_user, only_user)),
    ] {
        let silent = what.contains("no answer");
        let time = if silent { BOUND / 120 } else { BOUND };
        let error = RedisBackend::builder(&url).connect_timeout(time).connect().expect_err(&url);
        let at = url.rsplit(['@', '/']).find(|part| part.contains(':')).unwrap();
        assert_helps(&error, &["Redis at ", at, what, to_do]);
        assert_eq!(error.is_transient(), silent, "{error:?}");
    }
    for (url, character, written) in [
        ("redis://:can#ary@h:1", "#", "%23"),
        ("redis://canary:1#canary@h:1/2", "#", "%23"),
        ("redis://:can/ary@h:1", "/", "%2F"),
        ("redis://canary:1/canary@h", "/", "%2F"),
        ("rediss://:can?ary@h:1", "?", "%3F"),
        ("redis+sentinel://:can#ary@h1,h2/m", "#", "%23"),
        ("redis+cluster://:can/ary@h1,h2", "/", "%2F"),
    ] {
        let error = RedisBackend::connect(url).expect_err(url);
        let what =
            format!("there is a {character} before the @; in a user or password it is written {written}");
        assert_helps(&error, &["invalid configuration: the server", "can't be read: ", &what]);
    }
    let not_read = "invalid configuration: the server's address can't be read";
    for (url, says) in [
        ("", format!("{not_read}: it is empty")),
        ("redis://127.0.0.1/abc", format!("{not_read}: the database \"abc\" is not a number")),
        ("redis://127.0.0.1:1", format!("the store is unavailable: {REFUSED}")),
    ] {
        let error = RedisBackend::connect(url).expect_err(url);
        assert_eq!(error.to_string(), says, "nothing about what was sent");
    }
}

/// A client of the user bob, who may do this.
fn bob(server: &RedisServer, may: &str) -> Client {
    let rules = format!("ACL SETUSER bob reset on >canary &* +@all {may}");
    server.query::<()>(&rules.split(' ').collect::<Vec<_>>());
    client_at(&server.url_as("bob", "canary"), Default::default()).unwrap()
}

#[test]
fn a_missing_right_to_a_key_names_the_key_and_a_way_to_see_all() {
    let server = CleanServer::start();
    for (keys, missing) in [
        ("~other", "orders"),
        ("~orders", "fairlock_queue:{orders}"),
        ("~orders ~fairlock_queue:*", "fairlock_record:{orders}"),
    ] {
        let bob = bob(&server, keys);
        let lock = bob.fair_lock("orders").unwrap();
        let key = format!("on key `{missing}`: the user lacks a right");
        let doctor = "`fairlock doctor NAME` lists the rights that lock NAME needs";
        let parts = ["(lock `orders`)", &server.address(), &key, doctor];
        for error in
            [lock.lock().unwrap_err(), lock.try_lock().unwrap_err(), lock.admin().inspect().unwrap_err()]
        {
            assert_helps(&error, &parts);
            assert_denied::<()>(Err(error), &parts);
        }
    }
}

#[test]
fn a_type_that_the_user_may_not_ask_for_is_left_out() {
    let server = CleanServer::start().allow(&["orders"]);
    let bob = bob(&server, "~* -type");
    // A hash of another program, too.
    for words in [&["SET", "orders", "theirs"][..], &["HSET", "orders", "theirs", "x"]] {
        server.query::<()>(words);
        for error in all_calls(&bob.fair_lock("orders").unwrap()).map(Result::unwrap_err) {
            let parts = ["lock `orders` can't be read: ", "something that is not ours", "another name"];
            assert_helps(&error, &parts);
            assert!(words[0] == "HSET" || !error.to_string().contains("of type"), "{error}");
        }
        server.query::<()>(&["DEL", "orders"]);
    }
}

/// `unlock` on another thread names the owner that leaked the hold.
#[test]
fn unlock_on_another_thread_names_the_leaked_owner() {
    let _alone = Alone::here();
    let client = Client::builder(MemoryBackend::new()).label("worker 3").build().unwrap();
    let lock = client.fair_lock("orders").unwrap();
    lock.lock().unwrap().leak();
    let holder = lock.admin().inspect().unwrap().holder().cloned().unwrap().owner;
    let error = thread::scope(|scope| scope.spawn(|| lock.unlock().unwrap_err()).join().unwrap());
    let where_it_is = format!("another thread or `Owner` of this client holds it, {holder}; unlock it there");
    assert_helps(&error, &["lock `orders` is not held by `worker 3 (", &where_it_is]);
    lock.unlock().unwrap();
    let error = lock.unlock().unwrap_err();
    let says = format!(")` ({holder}): it was never locked here, or is already unlocked");
    assert_helps(&error, &["lock `orders` is not held by `worker 3 (", &says]);
}

/// The compiler says what to use when a guard or request is sent to a thread.
#[test]
fn the_compiler_says_what_to_send_instead_of_a_guard() {
    let _alone = Alone::here();
    let dir = WorkDir::new();
    for (taken, sent) in [("lock", "Guard"), ("request", "waits::Request")] {
        let program = format!(
            "fn main() -> fairlock::Result<()> {{
                let client = fairlock::Client::new(fairlock::MemoryBackend::new())?;
                let taken: fairlock::{sent} = client.fair_lock(\"orders\")?.{taken}()?;
                std::thread::spawn(move || drop(taken)).join().unwrap();
                Ok(())
            }}"
        );
        let (_, said) = compile(dir.path(), &program);
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        let first = said.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        let parts = ["E0277", "else_an_Owner", "cannot be sent between threads safely"];
        assert!(parts.iter().all(|part| first.contains(part)) && !said.contains("MutexGuard"), "{said}");
    }
}

/// The compiler names `to_async` when a thread's guard is held over an await. The compiler says "future cannot be sent", and what
/// in it can't be.
#[test]
fn the_compiler_names_to_async_for_a_guard_over_await() {
    let _alone = Alone::here();
    let dir = WorkDir::new();
    let program = r#"fn spawn(_: impl Future + Send) {}
        async fn work(lock: fairlock::Lock) -> fairlock::Result<()> {
            let guard = lock.lock()?;
            std::future::ready(()).await;
            guard.unlock()
        }
        fn main() -> fairlock::Result<()> {
            let client = fairlock::Client::new(fairlock::MemoryBackend::new())?;
            spawn(work(client.fair_lock("orders")?));
            Ok(())
        }"#;
    let (_, said) = compile(dir.path(), program);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let parts = [
        "future cannot be sent between threads safely",
        "BoundToItsThread_in_a_task_use_to_async_else_an_Owner",
    ];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn the_readmes_program_prints_its_error_for_people() {
    let _alone = Alone::here();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let program = readme.split("```rust,no_run\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(program.contains("redis://127.0.0.1:6379"));
    let dir = WorkDir::new();
    let (path, said) = compile(dir.path(), &program.replace(":6379", ":1"));
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let ran = Command::new(path).output().unwrap();
    let message = format!("Error: the store is unavailable: {REFUSED}\n");
    assert_eq!((String::from_utf8_lossy(&ran.stderr).as_ref(), ran.status.code()), (&*message, Some(1)));
}
