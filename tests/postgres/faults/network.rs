//! Lost, late, slow and cut traffic, and servers that fall silent.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use fairlock::{Client, Error, PostgresBackend, TryLock};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, eventually, look_until};
use postgres::NoTls;

use super::support::{
    ANSWER, IDLE, LEASE, OUTAGE, PLACE, SLACK, SOON, client, granted, left, ms, patient, request, server,
    take, through, until_in_queue, until_nothing_left, within,
};

/// No cycle below has more flights.
const FLIGHTS: usize = 24;

/// All that a client does with one lock; `ours` may have a bad network.
fn cycle(ours: &Client, theirs: &Client, name: &str) {
    let first = take(&ours.fair_lock(name).unwrap());
    let waiting = request(theirs, name);
    // What is asked only once may fail; then it is asked again here.
    eventually("renewed", || first.renew().is_ok());
    let first_token = first.token();
    first.unlock().unwrap();
    let second = granted(waiting, SOON);
    assert!(second.token() > first_token);
    let left = request(ours, name);
    let third = request(ours, name);
    drop(left);
    second.unlock().unwrap();
    let third = granted(third, SOON);
    let inner = ours.fair_lock(name).unwrap();
    let tried = look_until(SOON, || theirs.fair_lock(name).unwrap().try_lock().ok());
    assert!(tried.expect("it was answered").granted().is_none());
    eventually("looked", || inner.admin().inspect().is_ok_and(|state| state.holder().is_some()));
    third.unlock().unwrap();
}

/// The reply to each trip of each call, of the COMMIT too, is lost once. Or it comes when the call has long given it up; until then all
/// is silent, new connections too, and the server ends what keeps the row. Each call is repeated and has its effect once.
#[test]
fn every_reply_can_be_lost_once_and_no_turn_is() {
    let _alone = Alone::here();
    let theirs = &patient(&server().url());
    for is_late in [false, true] {
        let flights: usize = thread::scope(|scope| {
            let cycle = |number| scope.spawn(move || usize::from(struck_cycle(theirs, number, is_late)));
            let cycles: Vec<_> = (0..FLIGHTS).map(cycle).collect();
            cycles.into_iter().map(|cycle| cycle.join().unwrap()).sum()
        });
        assert!((10..FLIGHTS).contains(&flights), "{flights} flights");
        until_nothing_left(server());
    }
}

/// Whether there was a reply to be lost, or late.
fn struck_cycle(theirs: &Client, number: usize, is_late: bool) -> bool {
    let (proxy, name) = (Proxy::start(server().port()), &format!("{is_late}:{number}"));
    let ours = patient(&through(server(), &proxy));
    if !is_late {
        proxy.lose_later_reply_to(name, number);
        cycle(&ours, theirs, name);
        return proxy.lost() > 0;
    }
    proxy.silence_from(name, number);
    thread::scope(|scope| {
        let cycling = scope.spawn(|| cycle(&ours, theirs, name));
        eventually("silence, or the end", || proxy.is_silent() || cycling.is_finished());
        let was_silent = proxy.is_silent();
        if was_silent {
            thread::sleep(ANSWER + ms(200)); // the silence under test
        }
        proxy.set_all(&Traffic::ALL, Rule::Pass);
        cycling.join().unwrap();
        // An attempt that waited for its row may still begin a hold. The client withdraws that, if it lives longer than the attempt.
        thread::sleep(ANSWER + IDLE + SLACK);
        was_silent
    })
}

/// A waiter of the same process hears of a hand-over whose reply was lost. The repeat of the release grants nothing, so the
/// repeat tells nothing.
#[test]
fn a_waiter_hears_of_a_hand_over_whose_reply_was_lost() {
    let _alone = Alone::here();
    let proxy = Proxy::start(server().port());
    let ours = patient(&through(server(), &proxy));
    for number in 0..3 {
        let name = format!("handed:{number}");
        let first = take(&ours.fair_lock(&name).unwrap());
        let waiting = request(&ours, &name);
        until_in_queue(&ours, &name, 1);
        proxy.lose_later_reply_to(&name, number);
        let began = Instant::now();
        first.unlock().unwrap();
        granted(waiting, SOON).unlock().unwrap();
        // Its next heartbeat is due in 20 s.
        assert!(began.elapsed() < ms(5000), "{number}: {:?}", began.elapsed());
    }
    until_nothing_left(server());
}

/// A message that the server refuses costs a third of a place, and within a process nothing. NOTIFY stands behind the commit, so
/// what the server says to it fails no hand-over. A full queue would refuse it as a missing right does.
#[test]
fn a_refused_message_costs_a_third_of_a_place() {
    let _alone = Alone::here();
    let url = server().new_database();
    let mut admin = postgres::Client::connect(&url, NoTls).unwrap();
    let rights = "usage on schema fairlock to mute; grant all on all tables in schema fairlock to mute";
    admin.batch_execute(&format!("create role mute login; grant {rights}")).unwrap();
    let url = url.replace("fairlock@", "mute@");
    let (ours, theirs) = (patient(&url), client(&url));
    let (near, far) = (take(&ours.fair_lock("near").unwrap()), take(&ours.fair_lock("far").unwrap()));
    let (nearby, afar) = (request(&ours, "near"), request(&theirs, "far"));
    admin.batch_execute("revoke execute on function pg_notify from public").unwrap();
    far.unlock().unwrap();
    granted(afar, PLACE / 3 + SLACK).unlock().unwrap();
    near.unlock().unwrap();
    granted(nearby, SLACK).unlock().unwrap(); // its next heartbeat is due in 20 s
    assert_eq!([&ours, &theirs].map(|client| client.stats().granted_by_polling), [0, 1]);
}

/// The command itself is late: it arrives when its call, and perhaps its repeat, have ended. Then its connection ends.
#[test]
fn a_command_that_arrives_late_takes_nothing_away() {
    let _alone = Alone::here();
    let (server, proxy) = (server(), Proxy::start(server().port()));
    let (ours, theirs) = (patient(&through(server, &proxy)), patient(&server.url()));
    let (ghost, lock) = (ours.fair_lock("late").unwrap(), theirs.fair_lock("late").unwrap());
    for is_free in [false, true] {
        take(&ghost).unlock().unwrap();
        proxy.set_all(&Traffic::OUTWARD, Rule::Hold);
        let began = Instant::now();
        let error = within(OUTAGE + ANSWER * 4 + SLACK, || ghost.try_lock_for(ms(100))).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        let guard = take(&lock);
        // Later than this no attempt has any effect: the lock may be free.
        thread::sleep((ANSWER + IDLE + ms(100)).saturating_sub(began.elapsed()));
        let held = if is_free { guard.unlock().map(|()| None).unwrap() } else { Some(guard) };
        proxy.set_all(&Traffic::ALL, Rule::Pass);
        let next = request(&ours, "late");
        if let Some(guard) = held {
            guard.renew().unwrap();
            guard.unlock().unwrap();
        }
        granted(next, SOON).unlock().unwrap();
        until_nothing_left(server);
    }
}

/// Each phase of a call meets a server that accepts and says nothing: look-up, login, check, first trip, second trip.
#[test]
fn no_call_hangs_whatever_the_server_leaves_unsaid() {
    let _alone = Alone::here();
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("postgres://fairlock@{}/fairlock", silent.local_addr().unwrap());
    let connecting = || PostgresBackend::builder(&url).connect_timeout(ANSWER).connect();
    let error = within(ANSWER + SLACK, connecting).unwrap_err();
    assert!(
        matches!(error, Error::Unavailable { .. }) && error.to_string().contains("(connect_timeout)"),
        "{error}"
    );
    thread::scope(|scope| {
        let calls = |number| scope.spawn(move || calls_in_time(number));
        let silenced: Vec<_> = (0..FLIGHTS).map(calls).collect();
        assert!(silenced.into_iter().any(|calls| !calls.join().unwrap()), "there was silence");
    });
    assert!(calls_in_time(usize::MAX), "no call asks for more than is said");
    // What could not be given back is over soon: an attempt that waited for its row may even begin a hold now. A queue remembers for a
    // minute who waited.
    let client = patient(&server().url());
    eventually("nobody holds anything", || {
        for number in 0..FLIGHTS {
            take(&client.fair_lock(format!("silent:{number}")).unwrap()).unlock().unwrap();
        }
        left(server()).iter().all(|one| one.contains(": nobody, "))
    });
    server().con().batch_execute("delete from fairlock.lock").unwrap(); // those lines
}

/// The server falls silent after this many commands. Whether all calls were answered; all end in time.
fn calls_in_time(number: usize) -> bool {
    let proxy = Proxy::start(server().port());
    proxy.silence_from("", number);
    let url = through(server(), &proxy);
    let connecting =
        || PostgresBackend::builder(&url).connect_timeout(ANSWER).response_timeout(ANSWER).connect();
    let Ok(backend) = within(ANSWER * 2 + SLACK, connecting) else { return false };
    let client = Client::builder(backend).lease(LEASE).place_ttl(PLACE).outage_limit(OUTAGE).build().unwrap();
    let (lock, bound) = (client.fair_lock(format!("silent:{number}")).unwrap(), OUTAGE + ANSWER * 4 + SLACK);
    let mut were_answered = within(bound, || lock.admin().inspect()).is_ok();
    if let Ok(TryLock::Granted(guard)) = within(bound, || lock.try_lock()) {
        let waiting = within(bound, || lock.owned_by(&client.new_owner()).unwrap().try_lock_for(ms(50)));
        were_answered &= waiting.is_ok();
        were_answered &= within(bound, || guard.renew()).is_ok();
        were_answered &= within(bound, || guard.unlock()).is_ok();
    }
    within(bound, || client.shutdown()).is_ok() && were_answered
}

/// Two groups, one of them always silent, slow or cut for longer than a lease and a place live. A holder that is not lost is the latest.
#[test]
fn groups_that_are_cut_off_by_turns_have_one_holder_at_most() {
    let _alone = Alone::here();
    let proxies = [0, 1].map(|_| Proxy::start(server().port()));
    let (latest, turns, ended) = (&AtomicU64::new(0), &AtomicU64::new(0), &AtomicBool::new(false));
    let mut served = 0;
    thread::scope(|scope| {
        for number in 0..6 {
            let client = client(&through(server(), &proxies[number % 2]));
            scope.spawn(move || {
                let lock = client.fair_lock("swap").unwrap();
                let bound = OUTAGE + ANSWER * 8 + SLACK;
                while !ended.load(Ordering::Acquire) {
                    let tried = within(bound, || lock.try_lock_for(ms(500)));
                    let Ok(TryLock::Granted(guard)) = tried else { continue };
                    let token = guard.token().get();
                    latest.fetch_max(token, Ordering::AcqRel);
                    thread::sleep(ms(3)); // the work
                    let newest = latest.load(Ordering::Acquire);
                    assert!(guard.is_lost() || newest == token, "{newest} beside {token}");
                    turns.fetch_add(1, Ordering::AcqRel);
                    let _ = within(bound, || guard.unlock());
                }
                // A drop tells the server once of what it did not answer. On a busy machine the answer may not come in time, and the place
                // or the hold stays until its time is over and somebody asks.
                client.shutdown_within(SOON).unwrap();
            });
        }
        let rules = [Rule::Hold, Rule::Delay(ms(100)), Rule::Hold, Rule::Slow(5000)];
        for (number, rule) in rules.into_iter().enumerate() {
            let (bad, whole) = (&proxies[number % 2], &proxies[(number + 1) % 2]);
            whole.set_all(&Traffic::ALL, Rule::Pass);
            bad.set_all(&Traffic::ALL, rule);
            let (began, before) = (Instant::now(), turns.load(Ordering::Acquire));
            let has_had_turns = || turns.load(Ordering::Acquire) > before + 2;
            while began.elapsed() < LEASE + ms(200) || !has_had_turns() && began.elapsed() < SOON {
                thread::sleep(ms(300)); // the fault under test
                whole.cut();
            }
            served += usize::from(has_had_turns());
        }
        proxies.iter().for_each(|proxy| proxy.set_all(&Traffic::ALL, Rule::Pass));
        ended.store(true, Ordering::Release);
    });
    until_nothing_left(server());
    assert_eq!(served, 4, "the others have their turns beside each fault");
}
