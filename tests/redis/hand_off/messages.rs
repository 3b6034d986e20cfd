//! A message on a client's channel is believed only for exactly the request that waits.

use std::time::Duration;

use fairlock_tests::proxy::{Rule, Traffic};

use crate::support::*;

/// A waiter for a plain lock is notified when the fair one is free.
#[test]
fn a_plain_waiter_is_notified_when_the_fair_lock_is_free() {
    let server = CleanServer::start();
    let (holder, waiter) = (client(&server.url()), client(&server.url()));
    let lock = holder.fair_lock("both").unwrap();
    for by_force in [false, true] {
        let guard = take(&holder, "both");
        let plain = waiter.plain_lock("both").unwrap();
        let waiting = plain.owned_by(&waiter.new_owner()).unwrap().request().unwrap();
        let unlocked = if by_force { lock.force_unlock().map(drop) } else { guard.unlock() };
        unlocked.unwrap();
        served(waiting); // its heartbeats would come later
    }
    assert_eq!(waiter.stats().granted_by_polling, 0);
}

/// The late message of a grant that has ended is not believed by a request that asked again. A process may read such a message
/// after a pause.
#[test]
fn the_late_message_of_an_ended_grant_is_not_believed() {
    let server = CleanServer::start();
    let proxy = Proxy::start(server.port());
    let (holder, ours) = (client(&server.url()), with_places(&proxy.url(), Duration::from_millis(900)));
    let guard = take(&holder, "late");
    let waiting = request(&ours, "late");
    let member = queue(&server, "late").remove(0);
    // Nothing passes between the waiter and the server. Meanwhile the waiter is granted the lock, and the grant ends.
    proxy.set_all(&Traffic::ALL, Rule::Hold);
    guard.unlock().unwrap();
    assert!(server.query::<bool>(&["HEXISTS", "late", &member]), "the waiter was granted the lock");
    let token = token_at(&server, "late").unwrap();
    eventually(SOON, "the grant has ended", || !server.query::<bool>(&["EXISTS", "late"]));
    let guard = take(&holder, "late");
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    eventually(SOON, "the waiter has asked again", || queue(&server, "late") == [member.clone()]);
    eventually(SOON, "the waiter has the answer", || waiting.rank() == Some(0));
    eventually(SOON, "the waiter is subscribed", || {
        let message = format!("granted {member} {token} late");
        server.query::<i64>(&["PUBLISH", &format!("fairlock:{}", ours.id()), &message]) == 1
    });
    // When the waiter asks because of the message, it would have believed it by now.
    let asked = scripts_run(&server);
    eventually(SOON, "the waiter asks", || scripts_run(&server) > asked);
    assert!(waiting.decided().try_recv().is_err(), "the waiter believes in another owner's hold");
    assert!(!guard.is_lost() && guard.renew().is_ok());
    guard.unlock().unwrap();
    let guard = granted(waiting, SOON);
    assert!(guard.token().get() > token);
    guard.unlock().unwrap();
}
