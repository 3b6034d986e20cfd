//! Threads of several clients, through the handles that users have: never more units than there are, and nothing left.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, RedisServer, eventually, wait_until_no_residue};

const TIME: Duration = Duration::from_millis(1500);

fn client(server: &RedisServer) -> Client {
    client_at(&server.url())
}

fn client_at(url: &str) -> Client {
    let backend = RedisBackend::builder(url).response_timeout(Duration::from_secs(1)).connect().unwrap();
    // Leases and places are renewed several times during the test.
    let builder = Client::builder(backend).lease(Duration::from_secs(2)).place_ttl(Duration::from_secs(1));
    builder.build().unwrap()
}

/// Small numbers that differ, without a generator of random ones.
fn dice(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 40
}

#[test]
fn no_more_permits_than_there_are_are_held_whoever_comes_and_leaves() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (taken, turns) = (AtomicI64::new(0), AtomicU64::new(0));
    let clients = [(); 3].map(|()| client(&server));
    thread::scope(|scope| {
        for number in 0..12 {
            let (client, taken, turns) = (&clients[number % 3], &taken, &turns);
            scope.spawn(move || {
                let (pool, until) = (client.semaphore("pool", 5).unwrap(), Instant::now() + TIME);
                let mut seed = number as u64;
                while Instant::now() < until {
                    let permits = u32::try_from(1 + dice(&mut seed) % 5).unwrap();
                    let guard = match dice(&mut seed) % 4 {
                        0 => pool.try_acquire_many(permits).unwrap().guard(),
                        1 => {
                            let patience = Duration::from_millis(dice(&mut seed) % 20);
                            pool.try_acquire_many_for(permits, patience).unwrap().guard()
                        }
                        2 => {
                            drop(pool.request_many(permits).unwrap());
                            None
                        }
                        _ => Some(pool.acquire_many(permits).unwrap()),
                    };
                    let Some(guard) = guard else { continue };
                    let now = taken.fetch_add(permits.into(), Ordering::SeqCst) + i64::from(permits);
                    assert!(now <= 5, "{now} permits");
                    thread::sleep(Duration::from_micros(dice(&mut seed) % 2000));
                    taken.fetch_sub(permits.into(), Ordering::SeqCst);
                    guard.unlock().unwrap();
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(turns.into_inner() > 50);
    drop(clients);
    wait_until_no_residue(&server);
}

#[test]
fn a_writer_is_alone_and_waits_for_one_batch_of_readers() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (readers, together, writes) = (AtomicI64::new(0), AtomicI64::new(0), AtomicU64::new(0));
    let clients = [(); 3].map(|()| client(&server));
    thread::scope(|scope| {
        for number in 0..10 {
            let (client, readers, together, writes) = (&clients[number % 3], &readers, &together, &writes);
            scope.spawn(move || {
                let (table, until) = (client.rw_lock("table").unwrap(), Instant::now() + TIME);
                while Instant::now() < until {
                    if number == 0 {
                        let guard = table.write().unwrap();
                        assert_eq!(readers.swap(-1000, Ordering::SeqCst), 0);
                        assert_eq!(readers.swap(0, Ordering::SeqCst), -1000);
                        guard.unlock().unwrap();
                        writes.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let guard = table.read().unwrap();
                        let now = readers.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now > 0, "beside a writer");
                        together.fetch_max(now, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(2));
                        readers.fetch_sub(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                }
            });
        }
    });
    let (together, writes) = (together.into_inner(), writes.into_inner());
    assert!(together > 1 && writes > 10, "{together} readers together, {writes} writes among them");
    drop(clients);
    wait_until_no_residue(&server);
}

/// P3: the server sees that their connections are gone. They count for half a place's time all the same, and then a heartbeat of the
/// reader finds out.
#[test]
fn dead_writers_behind_a_reader_delay_the_next_one_by_half_a_place_and_a_heartbeat_in_total() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let (live, dying) = (client(&server), client_at(&proxy.url()));
    let place = Duration::from_secs(1);
    let (table, theirs) = (live.rw_lock("table").unwrap(), dying.rw_lock("table").unwrap());
    let reader = table.read().unwrap();
    let writers: Vec<_> =
        (0..20).map(|_| theirs.owned_by(&dying.new_owner()).unwrap().writer().request().unwrap()).collect();
    eventually(TIME, "they wait", || table.inspect().unwrap().line_length == 20);
    proxy.set_all(&Traffic::ALL, Rule::Hold); // also of new connections
    proxy.cut();
    let died = Instant::now();
    let owner = live.new_owner();
    let next =
        table.owned_by(&owner).unwrap().try_read_for(4 * place).unwrap().guard().expect("it is let in");
    let delay = died.elapsed();
    assert!(delay < place / 2 + place / 3 + Duration::from_millis(250), "{delay:?}");
    next.unlock().unwrap();
    reader.unlock().unwrap();
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    drop(writers);
    drop((table, theirs, live, dying));
    wait_until_no_residue(&server);
}
