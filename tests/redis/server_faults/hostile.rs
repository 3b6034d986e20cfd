//! Floods, poison and guessing: what other users of the server can do to a lock, and what they can't.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock::owner::ClientId;
use fairlock::settings::Discipline;
use fairlock_tests::cluster::Replicas;
use fairlock_tests::locks;
use fairlock_tests::server_state::{add_dead_places, queue, scripts_run, until_in_queue};
use fairlock_tests::{Alone, CleanServer, Cluster, RedisServer, eventually};

use super::looks::{info, memory, queue_bytes};
use super::support::*;

const QUEUE: &str = "fairlock_queue:{poisoned}";
const RECORD: &str = "fairlock_record:{poisoned}";

fn patients(server: &RedisServer) -> [Client; 2] {
    [(); 2].map(|()| client(server))
}

/// Members of a queue that none of our clients has written.
fn poison() -> Vec<Vec<u8>> {
    let huge = vec![b'x'; 1_000_000];
    let small: [&[u8]; 8] = [
        b"\0\0:\0:\0",
        b"\xff\xfe",
        b"one",
        b"one:two",
        b"::",
        b"",
        b"a\r\nDEL b:1:2",
        b"00000000-0000-4000-8000-000000000000:1:0123456789abcdef",
    ];
    small.map(<[u8]>::to_vec).into_iter().chain([huge.clone(), [&huge[..], b":1:1"].concat()]).collect()
}

/// The second client waits for the lock that the first holds, and this is done to the keys; it gets the waiter's member. The waiter has
/// the lock at once all the same, its member and senseless ones ahead of the others are gone, and a newcomer is not delayed either.
#[track_caller]
fn survives(server: &RedisServer, clients: &[Client; 2], what: &str, spoil: impl FnOnce(&[u8])) {
    let [holder, waiter] = clients;
    let guard = take(holder, "poisoned");
    let waiting = request(waiter, "poisoned");
    let ours = queue_bytes(server, "poisoned").pop().unwrap();
    spoil(&ours);
    let token = guard.token();
    assert!(guard.renew().is_ok(), "{what}");
    guard.unlock().unwrap();
    let later = granted(waiting, SOON);
    assert!(later.token() > token, "{what}");
    later.unlock().unwrap();
    let left = queue_bytes(server, "poisoned");
    assert!(!left.contains(&ours), "{what}");
    // Members behind all others are removed when a call reaches them.
    let ahead = |member: &Vec<u8>| {
        let score: f64 = redis::cmd("ZSCORE").arg(QUEUE).arg(member).query(&mut server.con()).unwrap();
        score < 4_503_599_627_370_496.0
    };
    assert!(!left.iter().any(ahead), "{} are left", left.len());
    take(waiter, "poisoned").unlock().unwrap();
    assert_eq!(waiter.stats().granted_by_polling, 0, "{what}: no heartbeat is waited for");
}

/// G3, G4. Malformed members are removed. A possible waiter of an unknown client leaves, too, and delays no other.
#[test]
fn poison_in_a_queue_is_passed_over_and_removed() {
    let server = CleanServer::start();
    let clients = patients(&server);
    // Members without an end: no place, an unreadable one, and one that never expires.
    for place in [None, Some(&b"\0garbage"[..]), Some(b"1e400 nan -1 x"), Some(GOOD_FOR_EVER)] {
        passes_poison_over(&server, &clients, place, &poison());
    }
    // More than one call examines, with tickets ahead of all others wherever they are put.
    let member = |number: u32| format!("00000000-0000-4000-8000-000000000000:{number}:0123456789abcdef");
    let many: Vec<_> = (0..2000).map(|number| member(number).into_bytes()).collect();
    passes_poison_over(&server, &clients, Some(GOOD_FOR_EVER), &many);
}

/// The same where the server can't know who listens, so that every valid place counts. A member without a readable
/// owner is not one of them. (A complete forgery would be granted the lock.)
#[test]
fn poison_in_a_queue_of_a_cluster_is_removed() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let clients = [(); 2].map(|()| patient(cluster.builder()));
    let senseless: Vec<_> = poison().into_iter().filter(|member| !is_well_formed(member)).collect();
    passes_poison_over(cluster.owner_of("poisoned"), &clients, Some(GOOD_FOR_EVER), &senseless);
    drop(clients);
    cluster.assert_no_residue();
}

const GOOD_FOR_EVER: &[u8] = b"1 1 4503599627370494 4503599627370495 60000 -- theirs";

fn is_well_formed(member: &[u8]) -> bool {
    member.iter().filter(|byte| **byte == b':').count() >= 2
}

#[track_caller]
fn passes_poison_over(
    server: &RedisServer,
    clients: &[Client; 2],
    place: Option<&[u8]>,
    members: &[Vec<u8>],
) {
    survives(server, clients, "poison in the queue", |_| {
        let mut pipe = redis::pipe();
        for (score, member) in ["1", "2", "-5", "0.5", "-inf", "+inf"].iter().cycle().zip(members) {
            pipe.cmd("ZADD").arg(QUEUE).arg(score).arg(member).ignore();
            if let Some(place) = place {
                pipe.cmd("HSET").arg(RECORD).arg(member).arg(place).ignore();
            }
        }
        pipe.exec(&mut server.con()).unwrap();
        // `inspect` can read the queue.
        clients[0].fair_lock("poisoned").unwrap().admin().inspect().unwrap();
    });
    server.query::<()>(&["DEL", QUEUE, RECORD]);
}

/// G3. Owners and labels that are not text belong to others. They are shown escaped, and hide no other lock.
#[test]
fn an_owner_that_is_not_text_is_shown_and_hides_nothing() {
    let server = CleanServer::start();
    for discipline in [Discipline::HandOff, Discipline::Redisson] {
        let backend = locks::patient(&server.url()).discipline(discipline).connect().unwrap();
        let client = Client::new(backend.clone()).unwrap();
        let guard = take(&client, "good");
        let mut pipe = redis::pipe();
        pipe.cmd("HSET").arg("poisoned").arg(b"\xfe:1").arg(2).ignore();
        pipe.cmd("HSET").arg(RECORD).arg(&[&b"grant"[..], b"\xfe:1:ab 7 a\xfd"]).ignore();
        pipe.cmd("ZADD").arg(QUEUE).arg(1).arg(b"\xff:1:2").ignore();
        pipe.cmd("HSET").arg(RECORD).arg(b"\xff:1:2").arg(b"1 1 1 4503599627370495 60000 -- \xfc").ignore();
        pipe.cmd("RPUSH").arg("redisson_lock_queue:{poisoned}").arg(b"\xff:1").ignore();
        pipe.exec(&mut server.con()).unwrap();

        let state = client.fair_lock("poisoned").unwrap().admin().inspect().unwrap();
        let holder = state.holder().cloned().unwrap();
        assert_eq!((holder.owner.as_str(), holder.label.as_deref()), ("\\xfe:1", Some("a\\xfd")));
        assert_eq!((state.queue_length, state.queue[0].owner.as_str()), (1, "\\xff:1"));
        if discipline == Discipline::HandOff {
            assert_eq!(state.queue[0].label.as_deref(), Some("\\xfc"));
        }
        let locks = backend.locks(None).unwrap();
        let seen: Vec<_> = locks.iter().map(|(name, state)| (name.as_str(), state.queue_length)).collect();
        assert_eq!(seen, [("good", 0), ("poisoned", 1)]);
        guard.unlock().unwrap();
        server.query::<()>(&["FLUSHALL"]);
    }
}

/// G4. A live waiter whose ticket was changed keeps a place, at the tail, from its next heartbeat on.
#[test]
fn a_waiter_with_a_spoilt_ticket_still_gets_its_turn() {
    let server = CleanServer::start();
    let clients = patients(&server);
    for ticket in ["+inf", "-inf", "-5", "1e300", "9007199254740992", "4503599627370496", "0.5"] {
        survives(&server, &clients, ticket, |ours| {
            redis::cmd("ZADD").arg(QUEUE).arg(ticket).arg(ours).exec(&mut server.con()).unwrap();
        });
        assert!(queue(&server, "poisoned").is_empty(), "{ticket}");
    }
    assert_eq!(clients[1].stats().places_lost, 0);
}

/// G3, G4. The same for the description of the latest grant and for the queue's clock.
#[test]
fn poison_in_the_description_of_a_grant_stops_no_client() {
    let server = CleanServer::start();
    let clients = patients(&server);
    let huge = "9".repeat(1_000_000);
    let fields = ["grant", "last", "queue"].map(|field| (field, None));
    // Each number of the queue: the last ticket that had its turn, pulse, clock, least TTL, and until when it rests.
    for (field, word) in fields.into_iter().chain((0..5).map(|word| ("queue", Some(word)))) {
        for value in ["", "\0", "nan", "-1", "1e300", "99999999999999999999", "4503599627370495", &huge] {
            if field == "last" && value == "4503599627370495" {
                continue; // the greatest number has no successor: see `tests/chaos/faults/servers.md`
            }
            let what = format!("{field}, {word:?} = {:?}", &value[..value.len().min(60)]);
            survives(&server, &clients, &what, |_| {
                let mut poison = value.to_owned();
                if let Some(word) = word {
                    let numbers: String = server.query(&["HGET", RECORD, field]);
                    let mut words: Vec<&str> = numbers.split(' ').collect();
                    words[word] = value;
                    poison = words.join(" ");
                }
                server.query::<()>(&["HSET", RECORD, field, &poison]);
            });
        }
    }
    // A queue clock beside the greatest number overflows once, and costs a place, which is requested again.
    let stats = clients[1].stats();
    assert!(stats.places_lost <= 1, "{stats:?}");
}

/// G7. One call examines 256 members, so none is long: that behind a hundred thousand dead places some four hundred follow each other
/// until the lock is granted.
#[test]
fn a_hundred_thousand_dead_places_cause_no_long_call() {
    let server = CleanServer::start().allow(&["fairlock_queue:{flooded}", "fairlock_record:{flooded}"]);
    let (holder, waiter) = (client(&server), client(&server));
    let guard = take(&holder, "flooded");
    add_dead_places(&server, "flooded", 1..=100_000, Duration::from_secs(3600));
    let waiting = request(&waiter, "flooded");
    let rank = waiting.rank().unwrap();
    assert!((99_000..=100_000).contains(&rank), "{rank}"); // each repeated ask has passed 256 of the dead
    let before = scripts_run(&server);
    guard.unlock().unwrap();
    let guard = waiting.wait().unwrap();
    let calls = scripts_run(&server) - before;
    assert!((350..2000).contains(&calls), "{calls} calls");
    guard.unlock().unwrap();
    let before = scripts_run(&server);
    take(&waiter, "flooded").unlock().unwrap();
    let calls = scripts_run(&server) - before;
    assert!(calls < 50, "{calls} calls: the dead places are not examined again");
}

/// G8, G9. A flood of wake-ups is survived, and forged wake-ups are not believed. Publishing on our channel can make a client
/// ask, one question after the other. It can't make it believe or store anything.
#[test]
fn a_flood_of_wake_ups_is_survived() {
    let server = CleanServer::start();
    let [holder, waiter] = patients(&server);
    let (guard, waiting) = (take(&holder, "flood"), request(&waiter, "flood"));
    let member = queue(&server, "flood").pop().unwrap();
    let [uuid, number, _] = member.split(':').collect::<Vec<_>>()[..] else { panic!("{member}") };
    let channel = format!("fairlock:{}", waiter.id());
    let storm = |messages: &[String], count: usize| {
        let mut con = server.con();
        for round in 0..count / 1000 {
            let mut pipe = redis::pipe();
            (0..1000).for_each(|at| {
                _ = pipe.cmd("PUBLISH").arg(&channel).arg(&messages[(round + at) % messages.len()]).ignore()
            });
            pipe.exec(&mut con).unwrap();
        }
    };
    let heard = || {
        eventually("all messages are received", || {
            let clients = server.clients();
            let mut listeners = clients.iter().filter(|line| line.contains("sub=1"));
            listeners.all(|line| line.contains(" oll=0 ") && line.contains(" obl=0 "))
        })
    };
    let before = memory();

    // Malformed messages, and those without a waiter, cause no question.
    let quiet = scripts_run(&server);
    let since = Instant::now();
    let token = guard.token().get() + 1;
    storm(
        &[
            "x".repeat(200),
            "\0".to_owned(),
            format!("granted {uuid}:{number}:0123456789abcdef {token} flood"),
            format!("granted {uuid}:{number}:zzz {token} flood"),
            format!("taken {number} {token} flood"),
            "look 999999 flood".to_owned(),
            format!("look {number} elsewhere"),
        ],
        100_000,
    );
    heard();
    // Heartbeats, renewals, and no more.
    let asked = scripts_run(&server) - quiet;
    assert!(asked <= 20 + 4 * since.elapsed().as_secs(), "{asked} questions in {:?}", since.elapsed());
    assert!(waiting.decided().try_recv().is_err() && !guard.is_lost());

    // "Look", to a waiter: it asks one question at a time, however many messages arrive meanwhile.
    storm(&[format!("look {number} flood")], 100_000);
    heard();
    let asked_before = scripts_run(&server);
    assert!(asked_before - quiet < 50_000, "{} questions", asked_before - quiet);
    assert!(waiting.decided().try_recv().is_err() && !guard.is_lost());
    assert!(memory() < before + 50_000, "{} kB more", memory() - before);

    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
}

/// G10. A client id has 122 random bits and a request number 64; each bit must take both values.
#[test]
fn client_and_request_ids_cannot_be_guessed() {
    let ids: HashSet<String> = (0..2000).map(|_| ClientId::random().to_string()).collect();
    assert_eq!(ids.len(), 2000);
    let bits = |text: &str| u128::from_str_radix(&text.replace('-', ""), 16).unwrap();
    let (all, any) = ids.iter().fold((u128::MAX, 0), |(all, any), id| (all & bits(id), any | bits(id)));
    // Version 4 of variant 1: the standard fixes these six bits.
    let fixed: u128 = 0xf << 76 | 0b11 << 62;
    assert_eq!((all & fixed, all & !fixed, any | fixed), (0x4 << 76 | 0b10 << 62, 0, u128::MAX));

    let server = CleanServer::start();
    let ours = client(&server);
    let guard = take(&ours, "drawn");
    let requests: Vec<_> = (0..200).map(|_| request(&ours, "drawn")).collect();
    let number = |member: String| u64::from_str_radix(member.rsplit(':').next().unwrap(), 16).unwrap();
    let numbers: Vec<u64> = queue(&server, "drawn").into_iter().map(number).collect();
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 200);
    assert_eq!(numbers.iter().fold((u64::MAX, 0), |(all, any), bit| (all & bit, any | bit)), (0, u64::MAX));
    drop(requests);
    guard.unlock().unwrap();
    until_in_queue(&server, "drawn", 0);
    eventually("the last hold has ended", || info(&server, "keyspace", "db0:keys=") == 1);
}
