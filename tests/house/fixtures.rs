//! The fixtures of the other tests work.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows #[test] functions, not their helpers"
)]

use fairlock_tests::{
    RedisServer, WorkDir, assert_no_residue, eventually, keys_without_ttl, look_until, our_threads,
    wait_until_no_threads,
};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// Connects as a client under test would, and pings.
fn ping(url: &str) -> redis::RedisResult<String> {
    redis::cmd("PING").query(&mut redis::Client::open(url)?.get_connection_with_timeout(SOON)?)
}

fn alive(pid: u32) -> bool {
    Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status().unwrap().success()
}

fn message_of(panics: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(panics)).expect_err("should have panicked");
    *payload.downcast::<String>().unwrap()
}

#[test]
fn a_server_starts_empty_and_is_gone_after_its_drop() {
    let server = RedisServer::start();
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
    assert_eq!(server.query::<i64>(&["DBSIZE"]), 0);
    assert_eq!(server.query::<(String, String)>(&["CONFIG", "GET", "save"]), ("save".into(), String::new()));
    assert_eq!(
        server.query::<(String, String)>(&["CONFIG", "GET", "appendonly"]),
        ("appendonly".into(), "no".into())
    );
    let (pid, port, dir) = (server.pid(), server.port(), server.dir().to_owned());
    assert!(alive(pid) && dir.exists());
    drop(server);
    assert!(!alive(pid) && !dir.exists());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn servers_started_together_get_different_ports() {
    let servers: Vec<RedisServer> = thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(RedisServer::start)).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let ports: BTreeSet<u16> = servers.iter().map(RedisServer::port).collect();
    assert_eq!(ports.len(), servers.len());
    for server in &servers {
        let said: String = server.query(&["INFO", "server"]);
        assert!(said.contains(&format!("tcp_port:{}\r\n", server.port())));
    }
}

#[test]
fn a_restart_keeps_the_port_and_loses_the_data() {
    let server = RedisServer::start();
    server.query::<()>(&["SET", "x", "1"]);
    let (pid, port) = (server.pid(), server.port());
    server.restart();
    assert_ne!(server.pid(), pid);
    assert_eq!(server.port(), port);
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
    assert_eq!(server.query::<Option<String>>(&["GET", "x"]), None);
}

#[test]
fn a_restart_with_an_append_only_file_keeps_the_data() {
    let server = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always").start();
    server.query::<()>(&["SET", "x", "1"]);
    server.restart();
    assert_eq!(server.query::<Option<String>>(&["GET", "x"]).as_deref(), Some("1"));
}

#[test]
fn a_killed_server_answers_nobody_until_its_restart() {
    let server = RedisServer::start();
    server.kill();
    server.kill();
    assert!(ping(&server.url()).unwrap_err().is_connection_refusal());
    assert!(server.try_query::<String>(&["PING"]).is_err());
    server.restart();
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
}

#[test]
fn a_stopped_server_keeps_its_connections_and_answers_when_it_goes_on() {
    let server = RedisServer::start();
    let mut con = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    con.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    server.stop();
    server.stop(); // harmless
    let error = redis::cmd("PING").query::<String>(&mut con).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let (sender, answers) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| sender.send(ping(&server.url())).unwrap());
        assert!(answers.recv_timeout(Duration::from_millis(100)).is_err());
        server.cont();
        assert_eq!(answers.recv_timeout(SOON).unwrap().unwrap(), "PONG");
    });
    con.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(redis::cmd("PING").query::<String>(&mut con).unwrap(), "PONG");
}

#[test]
fn a_stopped_server_is_gone_after_its_drop() {
    let server = RedisServer::start();
    let pid = server.pid();
    server.stop();
    drop(server);
    assert!(!alive(pid));
}

#[test]
fn a_password_is_required_and_part_of_the_url() {
    let server = RedisServer::builder().requirepass("pass word/\"#€@:").start();
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
    let without = ping(&format!("redis://127.0.0.1:{}/", server.port())).unwrap_err();
    assert_eq!(without.code(), Some("NOAUTH"));
    assert_eq!(ping(&server.url_as("", "wrong")).unwrap_err().kind(), redis::ErrorKind::AuthenticationFailed);
    // The side connection does not depend on it, nor on the default user.
    server.query::<()>(&["ACL", "SETUSER", "default", "off"]);
    assert_eq!(server.query::<String>(&["PING"]), "PONG");
}

#[test]
fn an_acl_rule_holds_for_its_user() {
    let server = RedisServer::builder().acl("user alice on >secret ~orders* &* +@all -flushall").start();
    let mut con = redis::Client::open(server.url_as("alice", "secret")).unwrap().get_connection().unwrap();
    let mut ask = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).query::<redis::Value>(&mut con);
    ask(&["SET", "orders:1", "1"]).unwrap();
    assert_eq!(ask(&["SET", "bills", "1"]).unwrap_err().code(), Some("NOPERM"));
    assert_eq!(ask(&["FLUSHALL"]).unwrap_err().code(), Some("NOPERM"));
    assert_eq!(
        ping(&server.url_as("alice", "wrong")).unwrap_err().kind(),
        redis::ErrorKind::AuthenticationFailed
    );
}

#[test]
fn a_unix_socket_is_reached_by_its_url() {
    let server = RedisServer::builder().unix_socket().requirepass("pass & word/=").start();
    assert!(server.url().starts_with("unix:///"), "{}", server.url());
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
    assert_eq!(ping(&server.url_as("", "wrong")).unwrap_err().kind(), redis::ErrorKind::AuthenticationFailed);
    server.query::<()>(&["ACL", "SETUSER", "alice", "on", ">x&y", "~*", "+@all"]);
    assert_eq!(ping(&server.url_as("alice", "x&y")).unwrap(), "PONG");
}

/// Sends PING over TLS with the openssl command, trusting only `ca`.
fn ping_over_tls(port: u16, ca: &Path) -> Output {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-verify_ip", "127.0.0.1", "-CAfile"])
        .arg(ca)
        .args(["-connect", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // If openssl refuses the certificate, it may have ended already.
    let _ = client.stdin.take().unwrap().write_all(b"PING\r\nQUIT\r\n");
    client.wait_with_output().unwrap()
}

#[test]
fn a_tls_server_shows_a_certificate_of_its_own_authority() {
    let server = RedisServer::builder().tls().start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}/", server.port()));
    let trusted = ping_over_tls(server.port(), server.ca_file());
    assert_eq!(String::from_utf8_lossy(&trusted.stdout), "+PONG\r\n+OK\r\n");

    let stranger = RedisServer::builder().tls().start();
    let refused = ping_over_tls(server.port(), stranger.ca_file());
    assert!(!refused.status.success() && refused.stdout.is_empty());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("certificate verify failed"));

    assert!(ping(&format!("redis://127.0.0.1:{}/", server.port())).is_err(), "plain text was answered");
    assert_eq!(server.query::<String>(&["PING"]), "PONG");
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
fn only_connections_of_the_clients_under_test_are_listed() {
    let server = RedisServer::start();
    let _side = server.con();
    assert_eq!(server.clients(), [""; 0]);
    let con = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    assert_eq!(server.clients().len(), 1);
    drop(con);
    eventually(SOON, "the connection is gone", || server.clients().is_empty());
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
    server.query::<()>(&["SET", "fairlock_line:{orders}", "1", "PX", "60000"]);
    server.query::<()>(&["RPUSH", "redisson_lock_queue:{orders}", "owner"]);
    let mut other = server.con_to_db(3);
    redis::cmd("SET").arg("far\naway").arg(1).exec(&mut other).unwrap();
    let message = message_of(|| assert_no_residue(&server, &[]));
    for part in [
        "`orders` (no TTL)",
        "`fairlock_record:{bills}` (no TTL)",
        "`fairlock_line:{orders}` (TTL ",
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
fn all_of_many_keys_are_checked() {
    let server = RedisServer::start();
    let mut fill = redis::pipe();
    for number in 0..5000 {
        fill.set(format!("key{number}"), 1).ignore();
    }
    fill.exec(&mut server.con()).unwrap();
    assert_eq!(keys_without_ttl(&server).len(), 5000);
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

#[test]
fn a_killed_test_process_leaves_nothing_behind() {
    if std::env::var_os(VICTIM).is_some() {
        let server = RedisServer::start();
        println!("\nserver {} {}", server.pid(), server.dir().display());
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
    let server = look_until(SOON, || {
        let text = std::fs::read_to_string(&said).ok()?;
        // Only a whole line: the file may be half written.
        let line =
            text.split_inclusive('\n').find_map(|line| line.strip_prefix("server ")?.strip_suffix('\n'))?;
        let (pid, dir) = line.split_once(' ')?;
        Some((pid.parse::<u32>().ok()?, dir.to_owned()))
    });
    let (pid, left) = server.expect("the process names its server");
    assert!(alive(pid) && Path::new(&left).exists());
    dir.forget(&victim);
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually(SOON, "server and dir are gone", || !alive(pid) && !Path::new(&left).exists());
}
