//! A server forgets, in each way: holds survive, and no other client gets their locks before they are released.

use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::Proxy;
use fairlock_tests::locks::in_turn;
use fairlock_tests::proxy::{Rule, Traffic};

use super::support::*;

/// The ways in which a server forgets.
#[derive(Clone, Copy, Debug)]
enum Forgets {
    Flush,
    RestartEmpty,
    RestartWithAnOldFile,
}

const WAYS: [Forgets; 3] = [Forgets::Flush, Forgets::RestartEmpty, Forgets::RestartWithAnOldFile];

impl Forgets {
    /// Called before the holds that are forgotten.
    fn prepare(self, server: &RedisServer) {
        if let Forgets::RestartWithAnOldFile = self {
            server.query::<()>(&["SAVE"]);
        }
    }

    fn forget(self, server: &RedisServer) {
        match self {
            Forgets::Flush => server.query(&["FLUSHALL"]),
            Forgets::RestartEmpty | Forgets::RestartWithAnOldFile => server.restart(),
        }
    }
}

/// Else nobody would get a lock for a grace after there is room again.
#[test]
fn a_grace_ends_on_time_on_a_server_that_is_full() {
    let server = known();
    let ours = client(&server);
    server.query::<()>(&["FLUSHALL"]);
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let is_granted = |name| {
        let tried = ours.fair_lock(name).unwrap().try_lock();
        tried.is_ok_and(|tried| tried.granted().is_some())
    };
    assert!(!is_granted("full"));
    let began = Instant::now();
    while began.elapsed() < grace() {
        assert!(!is_granted("full"));
    }
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    let room = Instant::now();
    eventually("the lock is granted", || is_granted("full"));
    assert!(room.elapsed() < grace() / 2, "{:?}", room.elapsed());
}

/// A lock, several holders of a semaphore, a writer, and the locks of `lock_all`, also beside what an old file has of them.
#[test]
fn several_holders_survive_a_server_that_forgets_them() {
    for way in WAYS {
        let server = known();
        let (ours, theirs) = (client(&server), client(&server));
        let pool = |client: &Client| client.semaphore("pool", 3).unwrap();
        let earlier = pool(&ours).acquire_many(2).unwrap();
        let reading = ours.rw_lock("rw").unwrap().read().unwrap();
        way.prepare(&server);
        earlier.unlock().unwrap();
        reading.unlock().unwrap();
        let guard = take(&ours, "kept");
        let permits = [pool(&theirs).acquire_many(2).unwrap(), pool(&ours).acquire().unwrap()];
        let writing = ours.rw_lock("rw").unwrap().write().unwrap();
        let both = ours.lock_all(&["one", "other"]).unwrap();
        way.forget(&server);
        let lost = Instant::now();
        while lost.elapsed() < grace() + TRUST {
            let is_granted = pool(&theirs).try_acquire().unwrap().granted().is_some()
                || theirs.rw_lock("rw").unwrap().reader().try_lock().unwrap().granted().is_some()
                || ["kept", "one", "other"].iter().any(|name| try_lock(&theirs, name));
            assert!(!is_granted, "{way:?}: granted after {:?}", lost.elapsed());
            let is_lost = permits.iter().any(|guard| guard.is_lost()) || writing.is_lost() || both.is_lost();
            assert!(!is_lost && !guard.is_lost(), "{way:?}: lost after {:?}", lost.elapsed());
        }
        assert!(guard.renew().is_ok());
        let state = pool(&ours).admin().inspect().unwrap();
        assert_eq!((state.taken(), state.holders.len(), state.capacity), (3, 2, Some(3)), "{way:?}");
        let tokens =
            (guard.token(), permits.each_ref().map(|guard| guard.token()).into_iter().max().unwrap());
        permits.into_iter().for_each(|guard| guard.unlock().unwrap());
        writing.unlock().unwrap();
        both.unlock().unwrap();
        guard.unlock().unwrap();
        let (next, permits) = (take(&theirs, "kept"), pool(&ours).acquire_many(3).unwrap());
        assert!(next.token() > tokens.0 && permits.token() > tokens.1, "{way:?}");
        next.unlock().unwrap();
        permits.unlock().unwrap();
        theirs.rw_lock("rw").unwrap().read().unwrap().unlock().unwrap();
    }
}

/// The holder releases the lock in the grace. No waiter gets it before the grace is over, and then they do in their order.
#[test]
fn waiters_keep_their_order_and_are_served_after_the_grace() {
    for way in WAYS {
        let server = known();
        let clients: Vec<_> = (0..5).map(|_| client(&server)).collect();
        let guard = take(&clients[0], "queue");
        way.prepare(&server);
        let requests: Vec<_> = clients.iter().map(|client| request(client, "queue")).collect();
        way.forget(&server);
        let forgotten = Instant::now();
        // A restart breaks the connections, so the first attempt may fail.
        eventually("it is reclaimed", || guard.renew().is_ok());
        let held = guard.token();
        guard.unlock().unwrap();
        // A newcomer stands behind all of them.
        let newcomer = request(&clients[0], "queue");
        let mut requests = requests.into_iter().chain([newcomer]);
        let first = requests.next().unwrap().wait().unwrap();
        assert!(forgotten.elapsed() >= grace(), "{way:?}: {:?}", forgotten.elapsed());
        let token = first.token();
        assert!(token > held, "{way:?}");
        first.unlock().unwrap();
        in_turn(requests, token);
    }
}

/// The same without `durable`: the tests above can see an overlap.
#[test]
fn without_it_a_flush_lets_another_client_in() {
    let server = CleanServer::start();
    let [ours, theirs] =
        [(); 2].map(|()| Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap());
    let guard = take(&ours, "overlap");
    server.query::<()>(&["FLUSHALL"]);
    let other = take(&theirs, "overlap");
    assert!(guard.valid_for() > Duration::ZERO && !guard.is_lost());
    other.unlock().unwrap();
    assert!(!server.query::<bool>(&["EXISTS", LIFE]));
}

/// A holder that is cut off from the server that has forgotten it stops to believe before the grace is over.
#[test]
fn a_holder_that_is_cut_off_stops_to_believe_in_time() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    backend(&server).begin_life().unwrap();
    let proxy = Proxy::start(server.port());
    let cut_off = RedisBackend::builder(&proxy.url()).durable(durability()).connect().unwrap();
    let cut_off = Client::builder(cut_off).build().unwrap();
    let guard = take(&cut_off, "cut off");
    let theirs = client(&server);
    assert!(guard.renew().is_ok()); // as late as can be
    proxy.set_all(&Traffic::ALL, Rule::Hold);
    server.query::<()>(&["FLUSHALL"]);
    // A newcomer: a queue that comes back would rest for a while.
    let next = request(&theirs, "cut off").wait().unwrap();
    assert!(guard.is_lost(), "{:?}", guard.valid_for());
    next.unlock().unwrap();
    assert!(guard.unlock().is_err());
}

/// It is granted to others when no client can believe in it any more.
#[test]
fn the_hold_of_a_dead_process_ends_with_the_grace() {
    let server = known();
    Raw::new(&server, "dead").gets(0);
    server.query::<()>(&["FLUSHALL"]);
    let (theirs, forgotten) = (client(&server), Instant::now());
    let guard = request(&theirs, "dead").wait().unwrap();
    let took = forgotten.elapsed();
    assert!(took >= grace() && took < grace() + Duration::from_secs(3), "{took:?}");
    guard.unlock().unwrap();
}

/// A replica that is promoted has another past, although it has all the data.
#[test]
fn a_promoted_replica_grants_nothing_until_the_grace_is_over() {
    let _alone = Alone::here();
    let master = RedisServer::builder().arg("repl-diskless-sync-delay", "0").start();
    backend(&master).begin_life().unwrap();
    let replica = RedisServer::builder().arg("replicaof", &format!("127.0.0.1 {}", master.port())).start();
    eventually("the replica follows", || {
        replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    });
    eventually("it has the life", || replica.query::<bool>(&["EXISTS", LIFE]));
    master.kill();
    replica.query::<()>(&["REPLICAOF", "NO", "ONE"]);
    let (theirs, promoted) = (client(&replica), Instant::now());
    assert!(!try_lock(&theirs, "never held"), "what this server was not told of can't be known");
    request(&theirs, "never held").wait().unwrap().unlock().unwrap();
    assert!(promoted.elapsed() >= grace());
}
