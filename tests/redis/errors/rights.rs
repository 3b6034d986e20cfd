//! Rights: a missing one is named, nothing is written before it is noticed, and the minimal set is enough.

use std::thread;
use std::time::Duration;

use fairlock::owner::Owner;
use fairlock::settings::Discipline;
use fairlock::{Client, Error, Guard, Lock, RedisBackend};
use fairlock_tests::errors::assert_denied;
use fairlock_tests::log_lines::log_lines;
use fairlock_tests::{CleanServer, RedisServer, eventually, wait_until_no_residue};

use super::{BOUND, DISCIPLINES, capture_logs};

/// With a short lease, since a renewal needs rights as well.
fn client_at(url: &str, discipline: Discipline) -> Result<Client, Error> {
    let lease = Duration::from_millis(900);
    let backend = RedisBackend::builder(url).discipline(discipline).response_timeout(lease / 2).connect()?;
    Client::builder(backend).lease(lease).build()
}

/// Every command that a discipline and the plain lock need, except SELECT for a database other than 0. CLIENT SETNAME
/// and SETINFO only make CLIENT LIST readable, and may be refused.
fn commands(discipline: Discipline) -> Vec<&'static str> {
    let both = "ping evalsha script|load publish subscribe unsubscribe time exists del pexpire pttl \
        hget hmget hset hgetall hlen zadd zrem zrange zcard";
    let of_its_own = match discipline {
        Discipline::HandOff => "hdel zrank pubsub|numsub",
        _ => "zscore lindex lpop lpos lrange lrem llen rpush",
    };
    both.split_whitespace().chain(of_its_own.split_whitespace()).collect()
}

/// Makes a user; `rules` are words of ACL SETUSER.
fn user(server: &RedisServer, name: &str, rules: &[&str]) -> String {
    server.query::<()>(&[&["ACL", "SETUSER", name, "reset", "on", ">canary"], rules].concat());
    server.url_as(name, "canary")
}

#[test]
fn a_user_without_wake_ups_is_refused_when_the_client_is_built() {
    let server = CleanServer::start();
    let url = user(&server, "bob", &["~*", "&redisson_lock__channel:*", "+@all"]);
    let backend = RedisBackend::connect(&url).unwrap();
    let denied = "the user lacks a right";
    let parts = ["subscribing to wake-ups", &server.address(), denied, "channel fairlock:"];
    assert_denied(Client::new(backend), &parts);
}

#[test]
fn a_user_without_the_locks_channel_is_refused_before_waiting() {
    let server = CleanServer::start();
    let bob =
        client_at(&user(&server, "bob", &["~*", "&fairlock:*", "+@all"]), Discipline::Redisson).unwrap();
    let alice = client_at(&server.url(), Discipline::Redisson).unwrap();
    for lock_of in [Client::fair_lock, Client::plain_lock] {
        let (first, second) = (lock_of(&bob, "orders").unwrap(), lock_of(&alice, "orders").unwrap());
        first.lock().unwrap().unlock().unwrap(); // a free lock needs no channel
        let guard = second.lock().unwrap();
        assert!(first.try_lock().unwrap().granted().is_none());
        let parts = ["(lock `orders`)", "lacks a right", "channel redisson_lock__channel:{orders}"];
        assert_denied(first.lock(), &parts);
        assert_denied(first.try_lock_for(BOUND), &parts);
        eventually("the first user's place is given up", || {
            second.admin().inspect().unwrap().queue.is_empty()
        });
        guard.unlock().unwrap();
    }
    wait_until_no_residue(&server);
}

/// Two owners use a fair and a plain lock of that name in every way. Errors are collected.
fn use_in_every_way(url: &str, discipline: Discipline, name: &str) -> Vec<Error> {
    let client = match client_at(url, discipline) {
        Ok(client) => client,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    for lock in [client.fair_lock(name).unwrap(), client.plain_lock(name).unwrap()] {
        errors.extend(take_turns(&client, &lock).err());
        let force = || -> Result<(), Error> {
            let guard = lock_in_time(&lock, &client.new_owner())?;
            let forced = lock.admin().force_unlock();
            eventually("the holder knows", || forced.is_err() || guard.is_lost());
            drop(guard);
            forced.map(|forced| assert!(forced))
        };
        errors.extend(force().err());
        errors.extend(lock.admin().inspect().err());
    }
    // A place that can't be given up would be in the way.
    if errors.is_empty() {
        errors.extend(line_up(&client, discipline, &client.fair_lock(name).unwrap()).err());
    }
    errors
}

fn lock_in_time(lock: &Lock, owner: &Owner) -> Result<Guard<Owner>, Error> {
    lock.owned_by(owner)
        .unwrap()
        .try_lock_for(BOUND)
        .map(|tried| tried.granted().unwrap_or_else(|| panic!("{} is not granted in time", lock.name())))
}

fn take_turns(client: &Client, lock: &Lock) -> Result<(), Error> {
    let (a, b) = (client.new_owner(), client.new_owner());
    let guard = lock_in_time(lock, &a)?;
    let again = lock_in_time(lock, &a)?;
    again.unlock()?;
    guard.renew()?;
    assert!(lock.owned_by(&b)?.try_lock_for(Duration::from_millis(30))?.granted().is_none());
    let mut request = lock.owned_by(&b)?.request()?;
    // Longer than a lease: the hold and the place are renewed.
    let waited = thread::scope(|scope| {
        let waiter = scope.spawn(|| request.wait_for(BOUND));
        eventually("the lease ran out or a renewal kept it", || {
            let certain = guard.valid_for();
            certain.is_zero() || certain < Duration::from_millis(650)
        });
        eventually("a renewal", || guard.is_lost() || guard.valid_for() > Duration::from_millis(750));
        let unlocked = guard.unlock();
        let waited = waiter.join().unwrap();
        unlocked.and(waited)
    });
    waited?.granted().expect("granted in time").unlock()
}

/// Three owners of a fair lock, one behind the other.
fn line_up(client: &Client, discipline: Discipline, lock: &Lock) -> Result<(), Error> {
    let guard = lock_in_time(lock, &client.new_owner())?;
    let mut first = lock.owned_by(&client.new_owner())?.request()?;
    let mut second = lock.owned_by(&client.new_owner())?.request()?;
    assert!(lock.owned_by(&client.new_owner())?.try_lock()?.granted().is_none(), "others wait");
    if discipline == Discipline::HandOff {
        assert_eq!(lock.admin().inspect()?.queue.len(), 2);
    }
    guard.unlock()?;
    first.wait_for(BOUND)?.granted().expect("granted in time").unlock()?;
    second.wait_for(BOUND)?.granted().expect("granted in time").unlock()
}

/// The least rights are enough for the hand-off, and each of them is needed.
#[test]
fn hand_off_works_with_the_least_rights_and_needs_each() {
    the_least_rights_are_enough_and_each_of_them_is_needed(Discipline::HandOff);
}

/// The least rights are enough for Redisson's discipline, and each of them is needed.
#[test]
fn redisson_works_with_the_least_rights_and_needs_each() {
    the_least_rights_are_enough_and_each_of_them_is_needed(Discipline::Redisson);
}

fn the_least_rights_are_enough_and_each_of_them_is_needed(discipline: Discipline) {
    let server = CleanServer::start().allow(&["no-*", "fairlock_*", "redisson_lock_*:{no-*"]); // for want of the right to delete
    capture_logs();
    let all = commands(discipline);
    let keys_of = match discipline {
        Discipline::HandOff => &["fairlock_queue:", "fairlock_record:"][..],
        _ => &["redisson_lock_queue:", "redisson_lock_timeout:", "fairlock_record:"],
    };
    // The keys and channels of one lock, and no others.
    let user_without = |missing: &str| {
        let name = format!("no-{}", missing.replace('|', "-"));
        let mut rules: Vec<String> = keys_of.iter().map(|prefix| format!("~{prefix}{{{name}}}")).collect();
        rules.push(format!("~{name}"));
        rules.extend([format!("&redisson_lock__channel:{{{name}}}*"), "&fairlock:*".to_owned()]);
        rules.extend(all.iter().filter(|command| **command != missing).map(|command| format!("+{command}")));
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        (user(&server, &name, &rules), name)
    };
    let (url, name) = user_without("nothing");
    let errors = use_in_every_way(&url, discipline, &name); // this also loads the scripts, so that the other users need not
    assert!(errors.is_empty(), "{errors:?}");
    wait_until_no_residue(&server);

    // Without these everything works, if slower: messages are missing or superfluous, or deafness goes unnoticed.
    let optional = ["script|load", "publish", "unsubscribe", "pubsub|numsub"];
    thread::scope(|scope| {
        for missing in all.iter().filter(|command| !optional.contains(command)) {
            let (url, name) = user_without(missing);
            let server = &server;
            scope.spawn(move || {
                let errors = use_in_every_way(&url, discipline, &name);
                // A refusal in the watchdog's background work is logged.
                let refused =
                    || log_lines(&format!("lock `{name}`")).iter().any(|line| line.contains("lacks a right"));
                eventually(&format!("{missing} is needed"), || !errors.is_empty() || refused());
                for error in errors {
                    let lost = matches!(error, Error::Lost(_)); // no renewal was possible
                    // Of a request that was answered before, for which it is an outage.
                    let refused = matches!(error, Error::Denied { .. } | Error::Unavailable { .. });
                    assert!(refused || lost, "without {missing}: {error:?}");
                    assert!(
                        lost || error.to_string().contains("lacks a right"),
                        "without {missing}: {error}"
                    );
                }
                // The lock itself never stays for good.
                let pttl = || server.query::<i64>(&["PTTL", &name]);
                eventually(&format!("without {missing} the lock has an end"), || pttl() != -1);
            });
        }
    });
}

/// The least rights are enough for a semaphore, and `doctor` notes the rights that are missing.
#[test]
fn a_semaphore_works_with_the_least_rights() {
    let server = CleanServer::start();
    let all = ["fairlock_ends:", "fairlock_queue:", "fairlock_record:"].map(|key| format!("~{key}{{pool}}"));
    let of_user = |name: &str, keys: &[String]| {
        let rest = ["~pool", "&redisson_lock__channel:{pool}*", "&fairlock:*", "+zscore", "+multi"]
            .map(str::to_owned);
        let commands = commands(Discipline::HandOff).into_iter().map(|command| format!("+{command}"));
        let rules: Vec<String> = rest.into_iter().chain(keys.iter().cloned()).chain(commands).collect();
        user(&server, name, &rules.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let url = of_user("all", &all);
    let client = client_at(&url, Discipline::HandOff).unwrap();
    let pool = client.semaphore("pool", 2).unwrap();
    let guard = pool.acquire_many(2).unwrap();
    guard.renew().unwrap();
    let mut request = pool.request().unwrap();
    eventually("it waits", || pool.admin().inspect().unwrap().queue_length == 1);
    guard.unlock().unwrap();
    let guard = request.wait_for(BOUND).unwrap().granted().unwrap();
    assert!(pool.admin().force_unlock().unwrap());
    eventually("the holder is told", || guard.is_lost());
    drop(guard);
    let missing = &all[0][1..];
    let backend = RedisBackend::connect(&of_user("some", &all[1..])).unwrap();
    let found = backend.doctor_for(&fairlock::admin::LockName::new("pool").unwrap()).unwrap();
    let found = found.iter().find(|found| found.topic == "rights").unwrap();
    assert_eq!(found.verdict, fairlock::admin::Verdict::Note, "{found:?}");
    assert!(found.text.starts_with("for semaphores and read-write locks, "), "{found:?}");
    assert!(found.text.contains(missing), "{found:?}");
    let pool = Client::new(backend).unwrap().semaphore("pool", 2).unwrap();
    assert_denied(pool.try_acquire(), &["(lock `pool`)", "the user lacks a right", missing]);
}

#[test]
fn without_the_right_to_publish_the_lock_still_works() {
    let server = CleanServer::start();
    for discipline in DISCIPLINES {
        let url = user(&server, "bob", &["~*", "&*", "+@all", "-publish"]);
        let backend = RedisBackend::builder(&url).discipline(discipline).connect().unwrap();
        // A grant is found a third of a place TTL (5 s) after it was made, and then has to last for a while.
        let client = Client::builder(backend).lease(Duration::from_secs(4)).build().unwrap();
        for lock in [client.fair_lock("orders").unwrap(), client.plain_lock("orders").unwrap()] {
            let guard = lock_in_time(&lock, &client.new_owner()).unwrap();
            let mut request = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
            guard.unlock().unwrap();
            request.wait_for(BOUND).unwrap().granted().expect("found by looking").unlock().unwrap();
        }
    }
    wait_until_no_residue(&server);
}
