//! Tokens grow after any fault of the server, and are exact.

use fairlock::{Client, Discipline, RedisBackend};

use crate::support::*;

/// Of a lock with one holder, and of a semaphore.
#[test]
fn tokens_grow_over_an_emptied_and_over_a_restarted_server() {
    let server = CleanServer::start();
    let ours = client(&server.url());
    let pool = ours.semaphore("pool", 2).unwrap();
    let mut last = [0; 2];
    let mut next = || {
        let (guard, permit) = (take(&ours, "grow"), pool.acquire().unwrap());
        let tokens = [guard.token().get(), permit.token().get()];
        assert_eq!(token_at(&server, "grow"), Some(tokens[0]));
        assert!(tokens[0] > last[0] && tokens[1] > last[1], "{tokens:?} after {last:?}");
        last = tokens;
        guard.unlock().unwrap();
        permit.unlock().unwrap();
    };
    next();
    server.query::<()>(&["FLUSHALL"]);
    next();
    server.restart(); // without persistence: it comes back empty
    eventually("the client has reconnected", || pool.inspect().is_ok());
    next();
    server.query::<()>(&["DEL", "fairlock_record:{grow}", "fairlock_record:{pool}"]);
    next();
}

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;
/// Times to live are raised every 2.8 hours, and are longer by as much.
const MORE: u64 = 10_000_000;

/// The last number is kept for a day after the clock has caught up with it, as after a clock that was three days ahead and was
/// corrected. If the sequence were forgotten before the clock has caught up, the next number would be smaller than the last.
#[test]
fn the_last_number_is_kept_a_day_past_the_clock() {
    let server = CleanServer::start();
    let redisson = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    let (ours, theirs) = (client(&server.url()), Client::new(redisson).unwrap());
    for (name, lock) in [
        ("hand-off", ours.fair_lock("hand-off").unwrap()),
        ("redisson", theirs.fair_lock("redisson").unwrap()),
        ("plain", ours.plain_lock("plain").unwrap()),
    ] {
        let lasts = || server.query::<u64>(&["PTTL", &format!("fairlock_record:{{{name}}}")]);
        lock.lock().unwrap().unlock().unwrap();
        assert!((DAY..=DAY + MORE).contains(&lasts()), "{name}: {} ms without a jump", lasts());

        let ahead = (u64::try_from(server.time_ms()).unwrap() + 3 * DAY) * 1000;
        set_last_number(&server, name, ahead);
        let guard = lock.lock().unwrap();
        assert_eq!(guard.token().get(), ahead + 1);
        let expected = 4 * DAY..=4 * DAY + MORE + 1;
        assert!(expected.contains(&lasts()), "{name}: {} ms after a grant", lasts());
        // A ticket takes a number too.
        let waiting = (name == "hand-off").then(|| request(&ours, name));
        assert!(expected.contains(&lasts()), "{name}: {} ms after a ticket", lasts());
        guard.unlock().unwrap();
        waiting.into_iter().for_each(served);
        assert!(expected.contains(&lasts()), "{name}: {} ms at the end", lasts());
    }
}
