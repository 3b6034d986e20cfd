//! `durable` behind sentinels: a request is sent only to a master that a majority of the sentinels names.

use std::time::{Duration, Instant};

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{Acquire, Acquired, Backend, LockId, Place, Renew, Renewal, RequestId, only};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::settings::{Durability, RedisBuilder};
use fairlock::{Client, Error, RedisBackend};
use fairlock_tests::errors::assert_says;
use fairlock_tests::locks::{grace_with_majority, request, take_now as take};
use fairlock_tests::sentinel::MASTER;
use fairlock_tests::{Alone, RedisServer, Sentinels, assert_no_residue, eventually, look_until};

use super::{BOUND, builder};

const TRUST: Duration = Duration::from_secs(4);
const SKEW: Duration = Duration::from_millis(100);
/// Three quarters of the trust.
const LONGEST: Duration = Duration::from_secs(3);
const LIFE: &str = "fairlock_life";

fn grace() -> Duration {
    grace_with_majority(TRUST, SKEW)
}

fn durability() -> Durability {
    Durability::default().trust(TRUST).skew(SKEW)
}

fn durable(sentinels: &Sentinels) -> RedisBuilder {
    builder(sentinels).durable(durability())
}

/// Three sentinels of a master whose past is known, as an operator says. The master is never replaced.
fn known() -> Sentinels {
    let sentinels = Sentinels::builder().steady().start();
    when_they_count(&sentinels).begin_life().unwrap();
    sentinels
}

/// They count once they have been up for long enough.
fn when_they_count(sentinels: &Sentinels) -> RedisBackend {
    look_until(BOUND, || durable(sentinels).connect().ok()).expect("the sentinels count")
}

fn client(sentinels: &Sentinels) -> Client {
    Client::builder(durable(sentinels).connect().unwrap()).outage_limit(BOUND).build().unwrap()
}

fn is_granted(client: &Client, name: &str) -> bool {
    client.fair_lock(name).unwrap().try_lock().is_ok_and(|tried| tried.granted().is_some())
}

fn refusal(client: &Client, name: &str) -> Option<Error> {
    client.fair_lock(name).unwrap().try_lock().map(drop).err()
}

/// For how long the server keeps a hold.
fn kept(master: &RedisServer, name: &str) -> Duration {
    Duration::from_millis(master.query(&["PTTL", name]))
}

/// Without a majority of sentinels nothing is granted, and holds end in time.
#[test]
fn without_a_majority_of_sentinels_nothing_is_granted() {
    let _alone = Alone::here();
    let sentinels = known();
    let [ours, theirs] = [client(&sentinels), client(&sentinels)];
    let guard = take(&ours, "minority");
    assert!(guard.renew().is_ok());
    // The master works, and one sentinel does.
    let (silent, since) = (&sentinels.sentinels[1..], Instant::now());
    silent.iter().for_each(RedisServer::stop);
    let error = look_until(BOUND, || refusal(&theirs, "other")).expect("a request is refused");
    assert_says(&error, &["no majority: 1 of 3 sentinels named it", "other"]);
    eventually("the hold is lost", || guard.is_lost());
    // The sentinels were last asked before they fell silent.
    assert!(since.elapsed() < TRUST + Duration::from_secs(1), "{:?}", since.elapsed());
    assert!(sentinels.servers[0].query::<bool>(&["EXISTS", "minority"]), "kept for longer than that");
    silent.iter().for_each(RedisServer::cont);
    drop(guard);
    eventually("the other client gets the lock", || is_granted(&theirs, "minority"));
    // The release of the last attempt may have been refused as well. The watchdog repeats it.
    let other = || sentinels.servers[0].query::<bool>(&["EXISTS", "other"]);
    eventually("what was granted is given back", || !other());
    drop((ours, theirs));
    assert_no_residue(&sentinels.servers[0], &[]);
}

/// A sentinel that restarts without its file counts later, and as another sentinel. A sentinel that lost its file may name a
/// master that it has helped to depose. It does not count before every client has stopped to believe in what it said before, and
/// then the master begins a new life: it may have been deposed meanwhile.
#[test]
fn a_sentinel_without_its_file_counts_later_as_another() {
    let _alone = Alone::here();
    let sentinels = known();
    let [ours, theirs] = [client(&sentinels), client(&sentinels)];
    let guard = take(&ours, "forgotten");
    // Without the third one, two of three have to count.
    sentinels.sentinels[2].stop();
    let restarted = Instant::now();
    sentinels.sentinels[1].restart();
    let error = look_until(BOUND, || refusal(&theirs, "other")).expect("a request is refused");
    assert_says(
        &error,
        &["no majority: 1 of 3 sentinels named it, and 1 may have forgotten: up for less than"],
    );
    eventually("the hold is lost", || guard.is_lost());
    eventually("there is a quorum", || refusal(&theirs, "other").is_none());
    assert!(restarted.elapsed() > TRUST, "{:?}", restarted.elapsed());
    let counts = Instant::now();
    drop(guard);
    eventually("the grace is over", || is_granted(&theirs, "forgotten"));
    assert!(counts.elapsed() > grace() - Duration::from_millis(500), "{:?}", counts.elapsed());
    // The same ones go on, with one that is known by now or without it.
    sentinels.sentinels[2].cont();
    let again = take(&theirs, "again");
    again.unlock().unwrap();
    let voters: String = sentinels.servers[0].query(&["HGET", LIFE, "voters"]);
    let words: Vec<&str> = voters.split(' ').collect();
    assert!(words[0] == "2" && words.len() >= 3 && words[1..].iter().all(|run| run.len() == 12), "{voters}");
    drop((ours, theirs));
    assert_no_residue(&sentinels.servers[0], &[]);
}

/// As an operator does who removes a sentinel for good.
#[test]
fn a_sentinel_that_the_others_have_forgotten_counts_no_more() {
    let _alone = Alone::here();
    let sentinels = known();
    let ours = client(&sentinels);
    let [one, other, removed] = &sentinels.sentinels[..] else { panic!("there are three") };
    // The client knows of three, wherever it asks.
    assert!(is_granted(&ours, "counted"));
    removed.stop();
    for sentinel in [one, other] {
        assert_eq!(sentinel.query::<u32>(&["SENTINEL", "RESET", MASTER]), 1);
    }
    let others = |sentinel: &RedisServer| {
        sentinel.query::<Vec<redis::Value>>(&["SENTINEL", "SENTINELS", MASTER]).len()
    };
    eventually("the two know each other again", || others(one) == 1 && others(other) == 1);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(12) {
        let _ = ours.fair_lock("counted").unwrap().try_lock();
    }
    // Of two, two are needed, so it has no say any more.
    other.stop();
    let error = look_until(BOUND, || refusal(&ours, "other")).expect("a request is refused");
    assert_says(&error, &["no majority: 1 of 2 sentinels named it"]);
    other.cont();
    removed.cont();
    // It is heard of again, and counts as before.
    eventually("they know the third one again", || others(one) == 2 && others(other) == 2);
    other.stop();
    eventually("two of three are enough", || is_granted(&ours, "counted"));
    other.cont();
    drop(ours);
    assert_no_residue(&sentinels.servers[0], &[]);
}

/// A server that was deposed meanwhile may not have heard of what another one granted.
#[test]
fn a_higher_epoch_is_a_new_life_and_a_lower_one_is_refused() {
    let _alone = Alone::here();
    let sentinels = known();
    let master = &sentinels.servers[0];
    let ours = client(&sentinels);
    let guard = take(&ours, "epochs");
    let epoch: u64 = master.query(&["HGET", LIFE, "epoch"]);
    master.query::<()>(&["HSET", LIFE, "epoch", &(epoch + 1).to_string()]);
    assert_says(&refusal(&ours, "refused").unwrap(), &["OLDEPOCH", &(epoch + 1).to_string()]);
    master.query::<()>(&["HSET", LIFE, "epoch", "-1"]);
    let began = Instant::now();
    assert!(refusal(&ours, "rests").is_none());
    assert!(!master.query::<bool>(&["EXISTS", "rests"]), "nothing is granted");
    assert_eq!(master.query::<u64>(&["HGET", LIFE, "epoch"]), epoch);
    assert!(guard.renew().is_ok(), "reclaimed");
    eventually("the grace is over", || is_granted(&ours, "rests"));
    assert!(began.elapsed() + Duration::from_millis(50) > grace(), "{:?}", began.elapsed());
    guard.unlock().unwrap();
    assert_no_residue(master, &[]);
}

/// The holder may have reclaimed it at a new master, while another client trusts this one.
#[test]
fn a_hold_is_kept_for_longer_than_its_holder_believes() {
    let _alone = Alone::here();
    let sentinels = known();
    let master = &sentinels.servers[0];
    let [ours, theirs] = [client(&sentinels), client(&sentinels)];
    // Not all of it: time passes.
    let at_least = grace() - Duration::from_millis(700);
    let is_kept = |name: &str| {
        let left = kept(master, name);
        assert!(left > at_least && left <= grace(), "{left:?}");
    };
    let guard = take(&ours, "kept");
    is_kept("kept");
    assert!(guard.valid_for() <= LONGEST);
    assert!(guard.renew().is_ok());
    is_kept("kept");
    let next = request(&theirs, "kept");
    guard.unlock().unwrap(); // a hand-off
    is_kept("kept");
    let guard = next.wait().unwrap();
    assert!(guard.valid_for() <= LONGEST);
    guard.unlock().unwrap();
    assert_no_residue(master, &[]);
}

/// A heartbeat in a grace does not raise a hold that is only kept. Its holder no longer believes in it, and a refused question
/// must not keep it from the others for longer.
#[test]
fn a_heartbeat_in_a_grace_does_not_raise_a_kept_hold() {
    let _alone = Alone::here();
    let sentinels = known();
    let master = &sentinels.servers[0];
    let backend = durable(&sentinels).connect().unwrap();
    let (id, lock) = (ClientId::random(), LockId::new(LockName::new("kept").unwrap(), LockKind::Fair));
    let owner = OwnerId::new(&format!("{id}:1"));
    let place = Place::new(&lock, &owner, RequestId::new(1));
    let asked = only(backend.acquire(&[Acquire::new(place, LONGEST)])).unwrap();
    assert!(matches!(asked, Acquired::Granted { .. }), "{asked:?}");
    // Less than what is kept behind a lease; and a new life.
    master.query::<()>(&["PEXPIRE", "kept", "2000"]);
    master.query::<()>(&["HSET", LIFE, "epoch", "-1"]);
    let beat = backend.renew(id, &[Renew::Place { place, lease: LONGEST }]).remove(0);
    assert_eq!(beat.unwrap(), Renewal::Lost);
    assert!(kept(master, "kept") <= Duration::from_secs(2), "{:?}", kept(master, "kept"));
}

/// It may come from a master that was deposed.
#[test]
fn a_message_grants_nothing() {
    let _alone = Alone::here();
    let sentinels = known();
    let master = &sentinels.servers[0];
    let [ours, theirs] = [client(&sentinels), client(&sentinels)];
    let guard = take(&ours, "message");
    let mut waiting = request(&theirs, "message");
    let place = master.query::<Vec<String>>(&["ZRANGE", "fairlock_queue:{message}", "0", "0"]).remove(0);
    let client_id = place.split(':').next().unwrap();
    let token = guard.token().get() + 1_000_000; // later than its ticket
    let said = format!("granted {place} {token} message");
    assert_eq!(master.query::<u32>(&["PUBLISH", &format!("fairlock:{client_id}"), &said]), 1);
    let waited = waiting.wait_for(Duration::from_millis(500)).unwrap();
    assert!(waited.granted().is_none(), "believed");
    drop(waiting);
    // The watchdog withdraws it. Before that the unlock would grant it, and a client that ends gives nothing back.
    let queue = || master.query::<u64>(&["ZCARD", "fairlock_queue:{message}"]);
    eventually("the request has left the queue", || queue() == 0);
    guard.unlock().unwrap();
    drop((ours, theirs));
    assert_no_residue(master, &[]);
}
