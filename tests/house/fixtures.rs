//! What the other tests rely on and can't see: that checks find what is left.

use fairlock_tests::{
    RedisServer, assert_no_residue, keys_without_ttl, look_until, our_threads, wait_until_no_threads,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

fn message_of(panics: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(panics)).expect_err("should have panicked");
    *payload.downcast::<String>().unwrap()
}

#[test]
fn every_leftover_is_found_and_nothing_else() {
    let server = RedisServer::start();
    assert_no_residue(&server, &[]);
    server.query::<()>(&["SET", "fairlock_record:{orders}", "1", "PX", "60000"]);
    server.query::<()>(&["SET", "fairlock_record_raw:a{b}", "1", "PX", "60000"]);
    assert_no_residue(&server, &[]);

    server.query::<()>(&["HSET", "orders", "owner", "1"]);
    server.query::<()>(&["SET", "fairlock_record:{bills}", "1"]);
    server.query::<()>(&["SET", "fairlock_queue:{orders}", "1", "PX", "60000"]);
    server.query::<()>(&["RPUSH", "redisson_lock_queue:{orders}", "owner"]);
    let mut other = server.con_to_db(3);
    redis::cmd("SET").arg("far\naway").arg(1).exec(&mut other).unwrap();
    let message = message_of(|| assert_no_residue(&server, &[]));
    for part in [
        "`orders` (no TTL)",
        "`fairlock_record:{bills}` (no TTL)",
        "`fairlock_queue:{orders}` (TTL ",
        "`redisson_lock_queue:{orders}` (no TTL)",
        "`far\\naway` in database 3 (no TTL)",
    ] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    assert_eq!(message.matches("TTL").count(), 5, "{message}");
    let without = ["fairlock_record:{bills}", "far\naway", "orders", "redisson_lock_queue:{orders}"];
    assert_eq!(keys_without_ttl(&server), without);

    // Keys that the caller allows may stay, but our own still need a TTL.
    let message =
        message_of(|| assert_no_residue(&server, &["orders", "*:{orders}", "far*", "fairlock_record:*"]));
    assert_eq!(message, "left behind: `fairlock_record:{bills}` (no TTL)");
    server.query::<()>(&["DEL", "fairlock_record:{bills}"]);
    assert_no_residue(&server, &["orders", "*:{orders}", "far*"]);
}

#[test]
#[cfg(target_os = "linux")]
fn our_threads_are_counted_by_name() {
    wait_until_no_threads(SOON);
    let (stop, stopped) = mpsc::channel::<()>();
    let dog = thread::Builder::new().name("fairlock-dog".into()).spawn(move || stopped.recv()).unwrap();
    let names = look_until(SOON, || Some(our_threads()).filter(|names| !names.is_empty()));
    assert_eq!(names.unwrap(), ["fairlock-dog"]);
    let message = message_of(|| wait_until_no_threads(Duration::from_millis(20)));
    assert_eq!(message, "threads left after 20ms: fairlock-dog");
    drop(stop);
    assert!(dog.join().unwrap().is_err());
    wait_until_no_threads(SOON);
}
