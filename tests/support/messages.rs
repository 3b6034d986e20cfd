//! Each kind of message once, for stores of several servers, where each has to reach the one that has the lock. No lease ends meanwhile.

use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock::settings::{Discipline, RedisBuilder};
use fairlock::{Client, Lock};

use crate::eventually;
use crate::locks::lock_of;

const LONG: Duration = Duration::from_secs(600);

/// Three clients of this discipline, by the way to the servers that `builder` has, pass the messages. `name` gives the name of a lock.
pub fn every_message(
    builder: &dyn Fn() -> RedisBuilder,
    discipline: Discipline,
    name: &dyn Fn(&str) -> String,
) {
    let client = || {
        let backend = builder().discipline(discipline).response_timeout(LONG / 20).connect().unwrap();
        Client::builder(backend).lease(LONG).place_ttl(LONG).build().unwrap()
    };
    let clients = [client(), client(), client()];
    for kind in [LockKind::Fair, LockKind::Plain] {
        let name = name(&format!("{kind}:"));
        pass(clients.each_ref().map(|client| lock_of(client, kind, &name)));
    }
    if discipline == Discipline::HandOff {
        let name = name("writer:");
        let writer = |client: &Client| client.rw_lock(&name).unwrap().writer().clone();
        pass(clients.each_ref().map(writer));
    }
}

fn pass([ours, theirs, hasty]: [Lock; 3]) {
    let name = ours.name();
    let guard = ours.lock().unwrap();
    guard.renew().unwrap();
    ours.lock().unwrap().unlock().unwrap();
    let waiting = theirs.request().unwrap();
    drop(hasty.request().unwrap());
    eventually("the other request has left", || ours.admin().inspect().unwrap().queue_length <= 1);
    assert!(waiting.decided().try_recv().is_err(), "{name}");
    guard.unlock().unwrap();
    let _guard = waiting.wait().unwrap();
    assert!(ours.try_lock().unwrap().granted().is_none(), "{name}");
    assert!(ours.admin().force_unlock().unwrap(), "{name}");
    ours.try_lock().unwrap().granted().expect("it is free").unlock().unwrap();
}
