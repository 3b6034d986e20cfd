//! Slow waits, however many there are: one look a second, and one line.

use super::logger::{install, lines_about};
use super::store::{Store, queued};
use super::support::{S, ms, polled_once};
use crate::backend::{Holder, RequestId, Wake};
use crate::{Client, ManualClock};

/// Neither waits that begin later nor the answers to repeated asks lead to a look before the second is over.
#[test]
fn what_happens_meanwhile_brings_no_look_forward() {
    install();
    let clock = ManualClock::new();
    let store = Store::new(clock.clone().into());
    let client = Client::builder(store.clone()).clock(clock.clone()).slow_wait(ms(100)).build().unwrap();
    let id = format!(": {}:", client.id());
    let lines = || lines_about(&id).iter().filter(|(_, line)| line.contains(" has waited for ")).count();
    let begin = |n| {
        store.plan().acquire.push_back(queued(0));
        let request = client.fair_lock(format!("slow:{n}")).unwrap().request().unwrap();
        clock.advance(ms(150));
        request
    };
    let _requests = [0, 1, 2, 3].map(begin);
    assert_eq!(lines(), 1, "after later waits");
    for waiting in client.waiting() {
        store.plan().acquire.push_back(queued(0));
        store.wake(Wake::Recheck { lock: waiting.lock.as_str(), owner: Some(waiting.owner.as_str()) });
        clock.advance(ms(10));
    }
    assert_eq!(lines(), 1, "after repeated asks");
    for explained in 2..=4 {
        clock.advance(S);
        assert_eq!(lines(), explained);
    }
    clock.advance(9 * S);
    assert_eq!(lines(), 4, "each once");
}

/// Each waiter that is shown makes a store examine hundreds, to count the absent ones; on files by a call of the system for each.
#[test]
fn a_look_at_a_slow_wait_examines_no_waiter() {
    let clock = ManualClock::new();
    let store = Store::new(clock.clone().into());
    let client = Client::builder(store.clone()).clock(clock.clone()).slow_wait(ms(100)).build().unwrap();
    store.plan().acquire.push_back(queued(3));
    let _request = client.fair_lock("x").unwrap().request().unwrap();
    clock.advance(ms(150));
    assert_eq!(store.plan().inspected.iter().collect::<Vec<_>>(), [&(0..0)]);
}

/// Another process would be looked for in vain.
#[test]
fn a_wait_for_its_own_client_says_so() {
    install();
    let clock = ManualClock::new();
    let store = Store::new(clock.clone().into());
    let client = Client::builder(store.clone()).clock(clock.clone()).slow_wait(ms(100)).build().unwrap();
    let mut holder = Holder::new(client.new_owner().id().clone(), 1);
    holder.label = Some("host-7:4123".to_owned());
    store.plan().state.holders.push(holder);
    store.plan().acquire.extend([queued(0), queued(0)]);
    let (lock, said) = (client.fair_lock("x").unwrap(), || lines_about(&format!(": {}:", client.id())));
    let request = lock.request().unwrap();
    clock.advance(ms(150));
    assert!(said()[0].1.ends_with("held by this client itself"), "{:?}", said());
    drop(request);
    let mut wait = lock.to_async().lock();
    assert!(polled_once(&mut wait).is_pending());
    clock.advance(2 * S);
    let last = said().pop().unwrap().1;
    assert!(last.ends_with("held by this client itself (a task's wait never re-enters)"), "{last}");
}

/// The grant's message is under way. What an owner's former request still has is no grant.
#[test]
fn a_wait_does_not_wait_for_its_own_hold() {
    install();
    for (is_own, lines) in [(true, 0), (false, 1)] {
        let clock = ManualClock::new();
        let store = Store::new(clock.clone().into());
        let client = Client::builder(store.clone()).clock(clock.clone()).slow_wait(ms(100)).build().unwrap();
        store.plan().acquire.push_back(queued(0));
        let _request = client.fair_lock("x").unwrap().request().unwrap();
        let claim = client.0.ledger.registry.all().remove(0);
        let mut holder = Holder::new(claim.owner.clone(), 1);
        holder.request = Some(if is_own { claim.request } else { RequestId::fresh() });
        store.plan().state.holders.push(holder);
        clock.advance(ms(150));
        let said = lines_about(&format!(": {}:", client.id()));
        let said = said.iter().filter(|(_, line)| line.contains(" has waited for ")).count();
        assert_eq!((said, claim.busy().slow_wait.is_some()), (lines, lines == 1));
    }
}
