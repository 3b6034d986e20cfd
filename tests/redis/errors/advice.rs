//! Each error says what to do: the exact words, against a real server; and a server that will go on refusing says so at once.

use fairlock::settings::Discipline;
use fairlock::{Client, Error};
use fairlock_tests::{Alone, CleanServer, RedisServer, assert_no_residue, eventually, locks};

use super::{BOUND, client};

#[test]
fn a_hold_that_the_server_lost_names_the_ways_to_lose_it() {
    let server = CleanServer::start();
    let client = client(&server, Discipline::HandOff);
    let guard = client.fair_lock("orders").unwrap().lock().unwrap();
    server.query::<()>(&["DEL", "orders"]);
    let ways = ": the store no longer has it: taken by force, deleted, evicted, or forgotten in a restart or fail-over";
    let error = guard.unlock().unwrap_err();
    assert!(error.to_string().ends_with(ways), "{error}");
}

/// All ways to ask, of which none waits for the end of the outage limit.
fn refused(client: &Client) -> Vec<Error> {
    let lock = client.fair_lock("orders").unwrap();
    let asks: [&dyn Fn() -> Result<(), Error>; 5] = [
        &|| lock.lock().map(drop),
        &|| lock.try_lock().map(drop),
        &|| lock.try_lock_for(BOUND).map(drop),
        &|| lock.request().and_then(|request| request.wait()).map(drop),
        &|| client.semaphore("api", 5).unwrap().acquire().map(drop),
    ];
    let ask = |ask: &dyn Fn() -> Result<(), Error>| ask().unwrap_err();
    let mut errors: Vec<Error> = asks.into_iter().map(ask).collect();
    // Tasks, which are asked for together.
    let lock = lock.to_async();
    let tasks: Vec<_> = (0..30).map(|_| lock.lock()).collect();
    errors.extend(tasks.into_iter().map(|task| futures::executor::block_on(task).unwrap_err()));
    client.shutdown().expect("nothing was begun");
    errors
}

fn until_info(server: &RedisServer, section: &str, says: &str) {
    eventually(says, || server.query::<String>(&["INFO", section]).contains(says));
}

fn patient(server: &RedisServer) -> Client {
    let backend = locks::patient(&server.url()).connect().unwrap();
    Client::builder(backend).outage_limit(60 * BOUND).build().unwrap()
}

/// A replica of a master that is well says at once where the master is.
#[test]
fn a_replica_names_its_healthy_master() {
    let _alone = Alone::here();
    let master = RedisServer::start();
    let of_master = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::builder().arg("replicaof", &of_master).start();
    until_info(&replica, "replication", "master_link_status:up");
    let (at, its_master) = (replica.address(), master.address());
    for error in refused(&patient(&replica)) {
        assert!(matches!(error, Error::InvalidConfig { .. }) && !error.is_transient(), "{error:?}");
        let is = format!("the server is a replica, it takes no writes (REPLICA of {its_master})");
        let then = "; connect to its master, or name the sentinels (redis+sentinel://HOSTS/MASTER)";
        let text = error.to_string();
        assert!(text.starts_with("invalid configuration: lock `"), "{text}");
        assert!(text.contains(&format!("Redis at {at}, ")) && text.ends_with(&(is + then)), "{text}");
    }
    // Its master is gone: it may be about to be promoted, and is waited for.
    master.kill();
    until_info(&replica, "replication", "master_link_status:down");
    let client = patient(&replica);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.fair_lock("orders").unwrap().lock().map(drop));
        eventually("it waits", || client.waiting().len() == 1);
        let error = client.fair_lock("mails").unwrap().try_lock().unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("(READONLY "), "{error}");
        replica.query::<()>(&["REPLICAOF", "NO", "ONE"]);
        waiter.join().unwrap().expect("granted once it is a master");
    });
    assert_no_residue(&replica, &[]);
}

/// A server that takes no writes for now refuses a newcomer at once, and the newcomer may try again.
#[test]
fn a_server_without_writes_refuses_newcomers_for_now() {
    let server = CleanServer::start();
    // Before: a server that can't save refuses a PING, too.
    let [first, second] = [(); 2].map(|()| patient(&server));
    let full = "the server is out of memory (OOM ";
    let then = "; free some, or raise its maxmemory; locks that are held or waited for go on";
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    may_try_again(&first, full, then);
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    // A directory is in the way of the file.
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    server.query::<()>(&["CONFIG", "SET", "save", "86400 1"]);
    server.query::<()>(&["BGSAVE"]);
    until_info(&server, "persistence", "rdb_last_bgsave_status:err");
    let then = "; its log has the reason, often a full disk or a missing right to write there";
    may_try_again(&second, "the server can't save its data and refuses writes (MISCONF ", then);
    server.query::<()>(&["CONFIG", "SET", "save", ""]);
    let client = client(&server, Discipline::HandOff);
    client.fair_lock("orders").unwrap().lock().unwrap().unlock().unwrap();
}

#[track_caller]
fn may_try_again(client: &Client, is: &str, then: &str) {
    for error in refused(client) {
        assert!(matches!(error, Error::Unavailable { .. }) && error.is_transient(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(is) && text.ends_with(then), "{text}");
    }
}
