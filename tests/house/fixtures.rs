//! What the other tests rely on and can't see: that checks find what is left, and that nothing of a killed test is.

use fairlock_tests::{
    PostgresServer, RedisServer, WorkDir, assert_no_residue, eventually, keys_without_ttl, look_until,
    our_threads, wait_until_no_threads,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

fn alive(pid: u32) -> bool {
    Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status().unwrap().success()
}

fn message_of(panics: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(panics)).expect_err("should have panicked");
    *payload.downcast::<String>().unwrap()
}

#[test]
fn a_setting_that_the_server_refuses_is_shown() {
    let message = message_of(|| drop(RedisServer::builder().arg("no-such-setting", "1").start()));
    assert!(
        message.contains("redis-server ended at once") && message.contains("no-such-setting"),
        "{message}"
    );
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

/// Set in the process that `a_killed_test_process_leaves_nothing_behind` starts and kills: this test again.
const VICTIM: &str = "FAIRLOCK_TEST_VICTIM";

/// What the killed process tells of a server: its process and its dir.
fn told(line: &str) -> Option<(u32, String)> {
    let (pid, dir) = line.strip_prefix("server ")?.strip_suffix('\n')?.split_once(' ')?;
    Some((pid.parse().ok()?, dir.to_owned()))
}

/// The memory of System V that the server in this dir has. It outlives a `kill -9`, until the machine has no more for any server.
fn shared_memory(dir: &str) -> String {
    let said = std::fs::read_to_string(Path::new(dir).join("data/postmaster.pid")).unwrap();
    said.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

fn is_there(memory: &str) -> bool {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    all.lines().any(|line| line.split_whitespace().nth(1) == Some(memory))
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_test_process_leaves_nothing_behind() {
    if std::env::var_os(VICTIM).is_some() {
        let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
        println!("\nserver {} {}", redis.pid(), redis.dir().display());
        println!("server {} {}", postgres.pid(), postgres.dir().display());
        loop {
            thread::park();
        }
    }
    let dir = WorkDir::new();
    let said = dir.file("said");
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["a_killed_test_process_leaves_nothing_behind", "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    dir.note(&victim);
    let servers = look_until(SOON * 6, || {
        let text = std::fs::read_to_string(&said).ok()?;
        // Only whole lines: the file may be half written.
        let servers: Vec<_> = text.split_inclusive('\n').filter_map(told).collect();
        (servers.len() == 2).then_some(servers)
    });
    let servers = servers.expect("the process names its servers");
    assert!(servers.iter().all(|(pid, left)| alive(*pid) && Path::new(left).exists()));
    let memory = shared_memory(&servers[1].1);
    assert!(is_there(&memory));
    dir.forget(&victim);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let is_left = |(pid, left): &(u32, String)| alive(*pid) || Path::new(left).exists();
    let is_clean = || !servers.iter().any(is_left) && !is_there(&memory);
    eventually("servers, dirs and memory are gone", is_clean);
}
