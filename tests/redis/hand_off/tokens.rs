//! Tokens grow although the server has forgotten the last one.

use fairlock::settings::Discipline;
use fairlock::{Client, FencingToken};

use super::support::*;

/// Of each discipline's locks with one holder, and of a semaphore.
#[test]
fn tokens_grow_over_an_emptied_and_over_a_restarted_server() {
    let server = CleanServer::start();
    let redisson = patient(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    let (ours, theirs) = (client(&server.url()), Client::new(redisson).unwrap());
    let pool = ours.semaphore("pool", 2).unwrap();
    let locks =
        [ours.fair_lock("fair"), ours.plain_lock("plain"), theirs.fair_lock("redisson")].map(Result::unwrap);
    let mut last = [FencingToken::new(0); 4];
    let mut next = || {
        let (guards, permit) = (locks.each_ref().map(|lock| lock.lock().unwrap()), pool.acquire().unwrap());
        let [one, two, three] = guards.each_ref().map(|guard| guard.token());
        let tokens = [one, two, three, permit.token()];
        assert!(tokens.iter().zip(&last).all(|(token, last)| token > last), "{tokens:?} after {last:?}");
        last = tokens;
        guards.into_iter().for_each(|guard| guard.unlock().unwrap());
        permit.unlock().unwrap();
    };
    next();
    server.query::<()>(&["FLUSHALL"]);
    next();
    server.restart(); // without persistence: it comes back empty
    eventually("the clients have reconnected", || {
        pool.admin().inspect().is_ok() && locks.iter().all(|lock| lock.admin().inspect().is_ok())
    });
    next();
    for name in ["fair", "plain", "redisson", "pool"] {
        server.query::<()>(&["DEL", &format!("fairlock_record:{{{name}}}")]);
    }
    next();
}
