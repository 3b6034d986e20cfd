//! A message on a client's channel is believed only for exactly the request that waits.

use std::time::Duration;

use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually};

use crate::support::{LONG, SOON, all_calls, client, granted, line, request, take, token_at};

#[test]
fn grants_that_are_forged_late_or_repeated_are_ignored_and_counted() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (holder, ours) = (client(&server.url(), LONG), client(&server.url(), LONG));
    let id = ours.id();
    let channel = format!("fairlock:{id}");
    let mut ignored = 0;
    let mut say = |message: &str| {
        assert_eq!(server.query::<i64>(&["PUBLISH", &channel, message]), 1);
        ignored += 1;
        eventually(SOON, "the message is counted", || ours.stats().wake_ups_ignored == ignored);
    };
    let owner = ours.new_owner();
    let lock = ours.fair_lock("forged").unwrap();
    let number = owner.id().as_str().rsplit_once(':').unwrap().1.to_owned();
    let request_of = |member: &str| member.rsplit_once(':').unwrap().1.to_owned();

    let guard = take(&holder.fair_lock("forged").unwrap());
    let token = guard.token().get();
    let earlier = lock.owned_by(&owner).unwrap().request().unwrap();
    let old = request_of(&line(&server, "forged")[0]);
    drop(earlier);
    eventually(SOON, "the request has left", || line(&server, "forged").is_empty());
    let waiting = lock.owned_by(&owner).unwrap().request().unwrap();
    let new = request_of(&line(&server, "forged")[0]);
    assert_ne!(old, new);

    // An unknown request number, that of an earlier request, another owner, another lock.
    say(&format!("granted {id}:{number}:0123456789abcdef {} forged", token + 1));
    say(&format!("granted {id}:{number}:{old} {} forged", token + 1));
    say(&format!("granted {id}:999999:{new} {} forged", token + 1));
    say(&format!("granted {id}:{number}:{new} {} else", token + 1));
    assert!(waiting.decided().try_recv().is_err());
    assert!(!guard.is_lost() && guard.renew().is_ok());

    guard.unlock().unwrap();
    let guard = granted(waiting, SOON);
    let token = guard.token().get();
    // The same again, and a later one, for a granted request.
    say(&format!("granted {id}:{number}:{new} {token} forged"));
    say(&format!("granted {id}:{number}:{new} {} forged", token + 5));
    assert_eq!(guard.token().get(), token);
    guard.unlock().unwrap();
    say(&format!("granted {id}:{number}:{new} {token} forged"));
    assert!(lock.inspect().unwrap().holder().is_none());
    assert_eq!(ours.stats().granted_by_wake_up, 1);
    drop(request(&ours, "forged")); // everything still works
    eventually(SOON, "the lock is free", || server.query::<i64>(&["EXISTS", "forged"]) == 0);
    assert_no_residue(&server, &[]);
}

#[test]
fn a_waiter_for_a_plain_lock_is_notified_when_the_fair_one_is_free() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server.url(), LONG), client(&server.url(), LONG));
    let lock = holder.fair_lock("both").unwrap();
    for by_force in [false, true] {
        let guard = take(&lock);
        let waiting =
            waiter.plain_lock("both").unwrap().owned_by(&waiter.new_owner()).unwrap().request().unwrap();
        let unlocked = if by_force { lock.force_unlock().map(drop) } else { guard.unlock() };
        unlocked.unwrap();
        granted(waiting, SOON).unlock().unwrap(); // its heartbeats would come later
    }
    assert_eq!(waiter.stats().granted_by_polling, 0);
    assert_no_residue(&server, &[]);
}

/// After a pause, a process may read the message of a grant that ended long ago, after it has asked again.
#[test]
fn the_late_message_of_an_ended_grant_is_not_believed_by_a_request_that_asked_again() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let (holder, ours) = (client(&server.url(), LONG), client(&proxy.url(), Duration::from_millis(900)));
    let guard = take(&holder.fair_lock("late").unwrap());
    let waiting = request(&ours, "late");
    let member = line(&server, "late").remove(0);
    // Nothing passes between the waiter and the server. Meanwhile the waiter is granted the lock, and the grant ends.
    proxy.set_all(&Traffic::ALL, Rule::Hold);
    guard.unlock().unwrap();
    let hold: String = server.query(&["HGET", "late", "mode"]);
    assert!(hold.starts_with(&format!("1 {member} ")), "the waiter was granted the lock: {hold}");
    let token = token_at(&server, "late").unwrap();
    eventually(SOON, "the grant has ended", || !server.query::<bool>(&["EXISTS", "late"]));
    let guard = take(&holder.fair_lock("late").unwrap());
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    eventually(SOON, "the waiter has asked again", || line(&server, "late") == [member.clone()]);
    eventually(SOON, "the waiter has the answer", || waiting.rank() == Some(0));
    eventually(SOON, "the waiter is subscribed", || {
        let message = format!("granted {member} {token} late");
        server.query::<i64>(&["PUBLISH", &format!("fairlock:{}", ours.id()), &message]) == 1
    });
    // When the waiter asks because of the message, it would have believed it by now.
    let asked = all_calls(&server)["evalsha"];
    eventually(SOON, "the waiter asks", || all_calls(&server)["evalsha"] > asked);
    assert!(waiting.decided().try_recv().is_err(), "the waiter believes in another owner's hold");
    assert!(!guard.is_lost() && guard.renew().is_ok());
    guard.unlock().unwrap();
    let guard = granted(waiting, SOON);
    assert!(guard.token().get() > token);
    guard.unlock().unwrap();
    drop((holder, ours));
    assert_no_residue(&server, &[]);
}
