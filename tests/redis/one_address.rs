//! One address before several servers: HAProxy, or a name that leads to another host. After a fail-over the address leads to the new
//! master, while the connections of running programs still lead to the old one, a replica now.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use fairlock::{Client, RedisBackend};
use fairlock_tests::haproxy::Sessions;
use fairlock_tests::locks::{in_turn, request, take_now};
use fairlock_tests::{Alone, HaProxy, Pair, RedisServer, WorkDir, assert_no_residue, eventually};

/// Short, so that a hold that is not renewed is soon lost.
const LEASE: Duration = Duration::from_secs(2);

fn client(url: &str) -> Client {
    Client::builder(RedisBackend::connect(url).unwrap()).lease(LEASE).build().unwrap()
}

/// How many of our connections lead to this server.
fn connections(server: &RedisServer) -> usize {
    server.clients().iter().filter(|line| line.contains(" name=fairlock ")).count()
}

/// A holder, waiters and tasks while `fail_over` happens. The hold outlives its lease, and each one has its turn.
#[track_caller]
fn survives(url: &str, pair: &Pair, fail_over: impl FnOnce()) {
    let [holder, waiter, other] = [(); 3].map(|()| client(url));
    let (guard, of_tasks) = (take_now(&holder, "lock:a"), take_now(&holder, "lock:b"));
    let waiters = [request(&waiter, "lock:a"), request(&other, "lock:a"), request(&waiter, "lock:a")];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks = [&waiter, &other, &waiter, &other].map(|client| {
        let lock = client.fair_lock("lock:b").unwrap().to_async();
        runtime.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    });
    eventually("the tasks wait", || waiter.waiting().len() + other.waiting().len() == 7);

    fail_over();

    thread::sleep(LEASE + LEASE / 2);
    for guard in [&guard, &of_tasks] {
        guard.check().unwrap();
    }
    let channel = format!("fairlock:{}", waiter.id());
    eventually("a waiter listens at the new master", || {
        pair.second.query::<(String, i64)>(&["PUBSUB", "NUMSUB", &channel]).1 == 1
    });
    let token = guard.token();
    guard.unlock().unwrap();
    in_turn(waiters, token);
    of_tasks.unlock().unwrap();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    for client in [&holder, &waiter, &other] {
        let stats = client.stats();
        assert_eq!((stats.lost, stats.failed_waits.count), (0, 0), "{stats:?}");
    }
    drop((holder, waiter, other));
    eventually("nothing leads to the old master", || connections(&pair.first) == 0);
    assert_no_residue(&pair.second, &[]);
}

#[test]
fn all_go_on_at_the_master_that_the_proxy_leads_to() {
    let _alone = Alone::here();
    thread::scope(|scope| {
        for sessions in [Sessions::Stay, Sessions::AreCut] {
            scope.spawn(move || {
                let pair = Pair::start();
                let proxy = HaProxy::start(&[&pair.first, &pair.second], sessions);
                survives(&proxy.url(), &pair, || pair.fail_over());
            });
        }
    });
}

/// Set in the second process, whose names this file has.
const HOSTS: &str = "FAIRLOCK_TEST_HOSTS";

/// In a mount namespace of its own, in which the test writes the file of hosts.
#[test]
fn all_go_on_at_the_host_that_the_name_leads_to() {
    if let Some(hosts) = std::env::var_os(HOSTS) {
        let leads_to = |host: &str| fs::write(&hosts, format!("{host} locks.test\n")).unwrap();
        leads_to("127.0.0.1");
        let pair = Pair::at_one_port();
        return survives(&format!("redis://locks.test:{}/", pair.first.port()), &pair, || {
            pair.fail_over();
            leads_to("127.0.0.2");
        });
    }
    let _alone = Alone::here();
    let dir = WorkDir::new();
    let (hosts, this) = (dir.file("hosts"), std::env::current_exe().unwrap());
    fs::write(&hosts, "").unwrap();
    let test = "all_go_on_at_the_host_that_the_name_leads_to";
    let mut inner = Command::new("unshare");
    inner.args([
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        "mount --bind \"$1\" /etc/hosts && exec \"$0\" --exact \"$2\" --nocapture",
    ]);
    let done = inner.arg(this).arg(&hosts).arg(test).env(HOSTS, &hosts).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{done:?}");
}
