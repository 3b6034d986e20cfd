//! Discipline `Redisson` key by key and field by field, as its documents describe it: the worked example, each
//! numbered step of the acquire and release scripts, and re-ordering of the queue.

mod scores;
mod world;

use std::time::Duration;

use fairlock::Client;
use fairlock::backend::{Acquired, Backend, Released};
use fairlock_tests::{assert_no_residue, eventually};

use world::{CHANNEL, NAME, World, assert_near, listen};

const MINUTES: i64 = 60_000;

#[test]
fn the_worked_example_has_the_documented_keys() {
    let world = World::new();
    world.take("UUID1:ThreadID1");
    world.set_lease(20_000);
    let ten_o_clock = world.server.time_ms();
    assert_eq!((world.rank("UUID2:ThreadID2"), world.rank("UUID3:ThreadID3")), (0, 1));

    assert_eq!(world.holder(), ["UUID1:ThreadID1", "1"]);
    assert!((19_001..=20_000).contains(&world.lease_left()));
    assert_eq!(world.queue(), ["UUID2:ThreadID2", "UUID3:ThreadID3"]);
    let scores = world.scores();
    let [(_, first), (_, second)] = scores[..] else { panic!("{scores:?}") };
    assert_near(first, ten_o_clock + 20_000 + 5 * MINUTES); // 10:05:20
    assert_near(second, first + 5 * MINUTES); // five minutes after the one before

    // 10:00:15, with five seconds of the lease left: asking again moves nothing.
    world.set_lease(5_000);
    let Acquired::Queued { rank: 0, recheck_in, .. } = world.ask("UUID2:ThreadID2") else { panic!() };
    assert!(recheck_in > Duration::from_millis(4_000) && recheck_in <= Duration::from_millis(5_001));
    assert_eq!((world.scores(), world.queue().len()), (scores, 2));
}

#[test]
fn acquire_step_1_removes_overdue_waiters() {
    let world = World::new();
    let token = world.take("a:1");
    for owner in ["b:2", "c:3", "d:4"] {
        world.ask(owner);
    }
    world.set_score("b:2", -1);
    world.set_score("c:3", -1);
    world.ask("e:5");
    assert_eq!(world.queue(), ["d:4", "e:5"]);
    // Waiters behind a live head stay, however old: only the head can be removed.
    world.set_score("e:5", -1);
    world.ask("f:6");
    assert_eq!(world.queue(), ["d:4", "e:5", "f:6"]);
    assert_eq!(world.release("a:1", token), Released::Released);
}

/// Redisson: `testAcquireFailedTimeoutDrift_Descrete`, where the first one gets it after the unlock.
#[test]
fn acquire_step_2_grants_a_free_lock_only_to_the_first() {
    let world = World::new();
    let token = world.take("a:1");
    world.ask("b:2");
    world.ask("c:3");
    let before = world.score("c:3");
    world.release("a:1", token);
    assert_eq!(world.rank("c:3"), 1, "the second in the queue asks first");
    world.assert_busy("d:4"); // so does a newcomer
    assert_eq!(world.queue(), ["b:2", "c:3"], "which leaves no trace");
    world.take("b:2");
    assert_eq!(world.queue(), ["c:3"]);
    assert_eq!(world.holder(), ["b:2", "1"]);
    assert_eq!(world.score("c:3"), before - 5 * MINUTES, "waiters behind move up by the winner's wait");
    assert_near(world.lease_left(), 30_000);
}

/// Step 3 of `acquire` counts no repeat, and `set_hold_count` counts a re-entry.
#[test]
fn acquire_step_3_counts_no_repeat() {
    let world = World::new();
    let token = world.take("a:1");
    assert_eq!(world.take("a:1"), token);
    assert_eq!(world.holder(), ["a:1", "1"], "a repeat of the same request is not a re-entry");
    world.release("a:1", token);
    let lock = world.client();
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    let is_counted = |count: &str| assert_eq!(world.holder(), [outer.owner().as_str(), count]);
    is_counted("2");
    inner.unlock().unwrap();
    is_counted("1");
}

/// Step 3 of `acquire` takes over no hold whose record is missing or names another owner.
#[test]
fn acquire_step_3_takes_over_no_hold_of_another_record() {
    // As clients name their owners: without the record only that shows a holder.
    const ANNA: &str = "6e3814a1-e847-452b-a982-45baf93a1df2:1";
    let world = World::new();
    let token = world.take(ANNA);
    world.server.query::<i64>(&["HSET", "fairlock_record:{myLock}", "grant", "b:2:7 7 "]);
    world.assert_busy(ANNA); // another's
    world.server.query::<i64>(&["DEL", "fairlock_record:{myLock}"]);
    world.assert_busy(ANNA); // none
    assert_eq!(world.rank(ANNA), 0);
    assert_eq!(
        (world.holder().as_slice(), world.queue().as_slice()),
        (&[ANNA, "1"].map(str::to_owned)[..], &[ANNA.to_owned()][..])
    );
    assert_near(world.lease_left(), 30_000);
    assert_eq!(world.release(ANNA, token), Released::Released, "the token is its own");
    assert!(world.take(ANNA) > token);
}

#[test]
fn acquire_step_4_keeps_the_place_of_a_waiter_in_queue() {
    let world = World::new();
    world.take("a:1");
    world.ask("b:2");
    world.ask("c:3");
    let queue = || (world.scores(), world.queue());
    let before = queue();
    for _ in 0..3 {
        assert!(matches!(world.ask("c:3"), Acquired::Queued { rank: 1, recheck_in: Duration::MAX, .. }));
    }
    assert_eq!(queue(), before);
}

/// Step 5 of `acquire` puts newcomers at the tail, with their own wait.
#[test]
fn acquire_step_5_puts_newcomers_at_the_tail() {
    let world = World::new();
    world.take("a:1");
    world.set_lease(10_000);
    let start = world.server.time_ms();
    for (owner, seconds, ahead) in [("b:2", 5, 15_000), ("c:3", 7, 22_000)] {
        world.ask_for(owner, seconds);
        assert_near(world.score(owner), start + ahead);
    }
    assert_eq!(world.queue(), ["b:2", "c:3"]);
}

#[test]
fn release_deletes_the_lock_keeps_the_head_and_notifies_only_it() {
    let world = World::new();
    let token = world.take("a:1");
    let channels = ["b:2", "c:3"].map(|owner| {
        world.ask(owner);
        format!("{CHANNEL}:{owner}")
    });
    let mut con = world.server.con();
    let mut ear = listen(&mut con, &channels);
    assert_eq!(world.release("a:1", token), Released::Released);
    let message = ear.get_message().unwrap();
    assert_eq!((message.get_channel_name(), message.get_payload_bytes()), (channels[0].as_str(), &b"0"[..]));
    assert!(world.holder().is_empty());
    assert_eq!(world.queue(), ["b:2", "c:3"], "the head removes itself when it acquires");
    // If it withdraws instead, the next one is notified.
    world.withdraw("b:2");
    assert_eq!(ear.get_message().unwrap().get_channel_name(), channels[1]);
}

#[test]
fn release_removes_dead_waiters_and_notifies_the_first_live_one() {
    let world = World::new();
    let token = world.take("a:1");
    world.ask("b:2");
    world.ask("c:3");
    world.set_score("b:2", -1);
    assert_eq!(world.release("a:1", token), Released::Released);
    assert_eq!(world.queue(), ["c:3"]);
    world.take("c:3");
}

/// A release by a stranger is refused, and the release of a lock that has vanished notifies the head.
#[test]
fn release_by_a_stranger_is_refused() {
    let world = World::new();
    let token = world.take("a:1");
    assert_eq!(world.release("b:2", token), Released::NotHeld);
    assert_eq!(world.holder(), ["a:1", "1"]);
    world.ask("b:2");
    world.server.query::<i64>(&["DEL", NAME]);
    let mut con = world.server.con();
    let mut ear = listen(&mut con, &[format!("{CHANNEL}:b:2")]);
    assert_eq!(world.release("a:1", token), Released::NotHeld);
    assert_eq!(ear.get_message().unwrap().get_payload_bytes(), b"0");
}

#[test]
fn an_overdue_waiter_goes_to_the_tail_when_it_comes_back() {
    let world = World::new();
    let token = world.take("a:1");
    for owner in ["b:2", "c:3", "d:4"] {
        world.ask(owner);
    }
    world.set_score("b:2", -1);
    assert_eq!(world.rank("b:2"), 2);
    assert_eq!(world.queue(), ["c:3", "d:4", "b:2"]);
    world.release("a:1", token);
    world.take("c:3");
}

/// A waiter whose time is over is shown as absent and not counted, by Redisson's rule. The other waiter's time is not over, and
/// whether its process lives is not Redisson's business.
#[test]
fn a_waiter_whose_time_is_over_is_absent_and_not_counted() {
    let world = World::new();
    world.take("holder");
    world.ask("dead");
    world.ask("alive");
    world.set_score("dead", -1);
    let state = world.backend.inspect(&world.lock, 0..9).unwrap();
    let absent: Vec<_> =
        state.queue.iter().map(|waiter| (waiter.owner.as_str(), waiter.is_absent())).collect();
    assert_eq!(absent, [("dead", true), ("alive", false)]);
    assert_eq!((state.queue_length, state.absent, state.waiting()), (2, 1, 1));
    world.server.query::<()>(&["DEL", NAME]);
    world.set_score("alive", -1);
    assert!(world.backend.locks(None).unwrap().is_empty(), "a queue of absent waiters alone is none");
}

#[test]
fn a_live_waiter_raises_its_time_before_half_of_it_is_gone() {
    let world = World::with(|builder| builder.thread_wait(Duration::from_secs(4)));
    let guard = world.client().lock().unwrap();
    let request = world.client().request().unwrap();
    let owner = world.queue().pop().unwrap();
    world.set_score(&owner, 1_500);
    eventually("a heartbeat raises the time", || world.score(&owner) > world.server.time_ms() + 3_000);
    guard.unlock().unwrap();
    request.wait().unwrap().unlock().unwrap();
    assert_no_residue(&world.server, &[]);
}

#[test]
fn moving_up_never_makes_a_live_waiter_overdue() {
    let world = World::new();
    let token = world.take("a:1");
    world.set_lease(100);
    world.ask("b:2"); // with five minutes
    world.set_lease(60_000); // the holder keeps working
    world.ask_for("c:3", 10);
    world.release("a:1", token);
    // b's wait is subtracted from c's time, which was built on it, but c keeps at least one heartbeat.
    world.set_score("c:3", 5 * MINUTES);
    world.take("b:2");
    assert!(world.score("c:3") >= world.server.time_ms() + 4_000);
}

#[test]
fn the_plain_lock_uses_the_same_hash_and_notifies_one_channel() {
    let world = World::new();
    let client = Client::new(world.backend.clone()).unwrap();
    let mut con = world.server.con();
    let mut ear = listen(&mut con, &[CHANNEL.to_owned()]);
    let guard = client.plain_lock(NAME).unwrap().lock().unwrap();
    assert_eq!(world.holder(), [guard.owner().as_str(), "1"]);
    assert_near(world.lease_left(), 30_000);
    guard.unlock().unwrap();
    assert_eq!(ear.get_message().unwrap().get_payload_bytes(), b"0");
    assert_no_residue(&world.server, &[]);
}

#[test]
fn tokens_grow_on_an_emptied_server() {
    let world = World::new();
    let client = Client::new(world.backend.clone()).unwrap();
    for lock in [client.fair_lock("fair").unwrap(), client.plain_lock("plain").unwrap()] {
        let mut last = None;
        for _ in 0..3 {
            let guard = lock.lock().unwrap();
            assert!(last.replace(guard.token()) < Some(guard.token()));
            guard.unlock().unwrap();
            world.server.query::<()>(&["FLUSHALL"]);
        }
    }
}
