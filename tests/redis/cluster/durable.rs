//! `durable` in a cluster: each hash slot has its own past, and a majority of all nodes names its keeper.

use std::time::{Duration, Instant};

use fairlock::admin::Verdict;
use fairlock::owner::Owner;
use fairlock::settings::Durability;
use fairlock::{Client, Error, Guard, RedisBackend};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::errors::assert_says;
use fairlock_tests::locks::{grace_with_majority, take_now as take};
use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{Alone, Cluster, RedisServer, eventually};

use super::support::BOUND;

/// A hold survives if its node can't be asked for two thirds of it, less the time-outs: the machine may be busy.
const TRUST: Duration = Duration::from_secs(8);
const ANSWER: Duration = Duration::from_millis(500);
const SKEW: Duration = Duration::from_millis(100);

fn durability() -> Durability {
    Durability::default().trust(TRUST).skew(SKEW)
}

fn grace() -> Duration {
    grace_with_majority(TRUST, SKEW)
}

fn backend(cluster: &Cluster) -> RedisBackend {
    cluster
        .builder()
        .connect_timeout(ANSWER)
        .response_timeout(ANSWER)
        .durable(durability())
        .connect()
        .unwrap()
}

/// For an operator, who can wait.
fn patient(cluster: &Cluster) -> RedisBackend {
    cluster.builder().response_timeout(BOUND).durable(durability()).connect().unwrap()
}

fn client(cluster: &Cluster) -> Client {
    Client::builder(backend(cluster)).outage_limit(ANSWER).build().unwrap()
}

/// The nodes count once they have been up for long enough.
fn until_they_count(client: &Client, name: &str) {
    eventually("a request is answered", || client.fair_lock(name).unwrap().try_lock().is_ok());
}

/// A cluster whose past is known, and two clients.
fn known(replicas: Replicas) -> (Cluster, Client, Client) {
    let cluster = Cluster::start(replicas);
    let [ours, theirs] = [(); 2].map(|()| client(&cluster));
    until_they_count(&ours, "any");
    patient(&cluster).begin_life().unwrap();
    (cluster, ours, theirs)
}

/// Whether it is granted now. While a node is replaced it can't be asked.
fn try_lock(client: &Client, name: &str) -> bool {
    client.fair_lock(name).unwrap().try_lock().is_ok_and(|tried| tried.granted().is_some())
}

/// No other client gets the locks for longer than a grace, and the holds stay.
fn stay(guards: &[Guard<Owner>], theirs: &Client) {
    let since = Instant::now();
    while since.elapsed() < grace() + ANSWER {
        for guard in guards {
            assert!(!guard.is_lost(), "{} lost after {:?}", guard.name(), since.elapsed());
            let name = guard.name().to_string();
            assert!(!try_lock(theirs, &name), "{name} granted after {:?}", since.elapsed());
        }
    }
}

fn pass_on(guard: Guard<Owner>, theirs: &Client) {
    let (name, token) = (guard.name().to_string(), guard.token());
    guard.unlock().unwrap();
    // A grace begins with the first command about a slot.
    let lock = theirs.fair_lock(&name).unwrap().owned_by(&theirs.new_owner()).unwrap();
    let next = lock.try_lock_for(BOUND).unwrap().granted().expect("it is free");
    assert!(next.token() > token);
    next.unlock().unwrap();
}

/// Holds survive forgetful nodes and moved slots, and end without a majority.
#[test]
fn holds_survive_forgetful_nodes_and_moved_slots() {
    const MANY: usize = 200;
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let moving = cluster.name_at(from, "moving:");
    let [there, elsewhere] = [from, &cluster.nodes[2]].map(|node| cluster.name_at(node, "lock:"));
    let slot = cluster.slot_of(&moving);

    // Nothing is known of a new cluster.
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let backend = patient(&cluster);
    until_they_count(&ours, &there);
    assert!(!try_lock(&ours, &there));
    let findings = backend.doctor().unwrap();
    let says =
        |what| findings.iter().any(|found| found.verdict == Verdict::Note && found.text.contains(what));
    assert!(says("in 1 of 5461 hash slots: it grants nothing for"), "{findings:?}");
    assert!(says("in 5460 of 5461 hash slots: with the first request"), "{findings:?}");
    assert_eq!(backend.begin_life().unwrap(), grace());
    let lives = |node: &RedisServer| node.query::<Vec<String>>(&["KEYS", "fairlock_life:{*"]).len();
    assert_eq!(cluster.nodes.iter().map(lives).sum::<usize>(), 16384);

    let first = [take(&ours, &moving), take(&ours, &elsewhere)];
    let many: Vec<_> = (0..MANY).map(|number| take(&ours, &format!("many:{number}"))).collect();
    // Some of the keys of a lock without waiters don't exist, so it can't be used while its slot is on its way.
    cluster.begin_move(slot, from, to);
    assert!(cluster.move_keys(slot, from, to, 100).contains(&moving));
    let error = theirs.fair_lock(&moving).unwrap().try_lock().map(drop).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_says(&error, &["the lock is being moved between servers"]);
    cluster.end_move(slot, to);
    assert!(try_lock(&theirs, &there), "the past of another slot is known");
    cluster.nodes[2].query::<()>(&["FLUSHALL"]);
    stay(&first, &theirs);
    assert!(many.iter().all(|guard| !guard.is_lost()));
    first.into_iter().chain(many).for_each(|guard| pass_on(guard, &theirs));
    cluster.assert_no_residue();

    let guard = take(&ours, &there);
    cluster.nodes[1..].iter().for_each(RedisServer::stop);
    let stopped = Instant::now();
    eventually("there is no proof any more", || guard.renew().is_err());
    let sent = scripts_run(from);
    let error = theirs.fair_lock(&there).unwrap().try_lock().map(drop).unwrap_err();
    assert_says(&error, &["no majority: 1 of 3 nodes named it"]);
    eventually("the hold has ended", || guard.is_lost());
    assert!(stopped.elapsed() < TRUST + ANSWER, "{:?}", stopped.elapsed());
    assert_eq!(scripts_run(from), sent);
    cluster.nodes[1..].iter().for_each(RedisServer::cont);
}

#[test]
fn the_slots_of_a_promoted_replica_rest_and_the_others_do_not() {
    let _alone = Alone::here();
    let (cluster, ours, theirs) = known(Replicas::One);
    let (old, new) = (&cluster.nodes[0], &cluster.nodes[3]);
    let [kept, free] = ["kept:", "free:"].map(|prefix| cluster.name_at(old, prefix));
    let elsewhere = cluster.name_at(&cluster.nodes[1], "lock:");
    let guard = take(&ours, &kept);
    eventually("the replica has the hold", || !new.query::<Vec<String>>(&["KEYS", &kept]).is_empty());
    old.kill();
    new.query::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    let promoted = Instant::now();
    eventually("all name it", || cluster.try_owner_of(&kept).is_some_and(|owner| owner.port() == new.port()));
    assert!(try_lock(&theirs, &elsewhere), "the past of other slots is known");
    assert!(!try_lock(&theirs, &free));
    let guard = [guard];
    stay(&guard, &theirs);
    eventually("the grace is over", || try_lock(&theirs, &free));
    assert!(promoted.elapsed() >= grace());
    guard.into_iter().for_each(|guard| pass_on(guard, &theirs));
}

/// The lock's key has moved, the life of its slot has not, and the slot stays: the node has forgotten the hold.
#[test]
fn a_move_that_is_broken_off_lets_no_other_client_in() {
    let _alone = Alone::here();
    let (cluster, ours, theirs) = known(Replicas::None);
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let name = cluster.name_at(from, "broken off:");
    let slot = cluster.slot_of(&name);
    let guard = [take(&ours, &name)];
    cluster.begin_move(slot, from, to);
    let moved: String = from.query(&["MIGRATE", "127.0.0.1", &to.port().to_string(), &name, "0", "5000"]);
    assert_eq!(moved, "OK");
    assert!(!try_lock(&theirs, &name), "the lock is on its way");
    for node in [from, to] {
        node.query::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]);
    }
    stay(&guard, &theirs);
    guard.into_iter().for_each(|guard| pass_on(guard, &theirs));
    // An operator sees a move that is open. Not before: that takes its time, in which the hold can't be renewed.
    cluster.begin_move(slot, from, to);
    let findings = patient(&cluster).doctor().unwrap();
    let open = findings.iter().filter(|found| found.topic == "slots" && found.verdict == Verdict::Note);
    assert!(
        open.clone().count() == 2 && open.clone().all(|found| found.text.contains(&slot.to_string())),
        "{findings:?}"
    );
}
