//! What a client reports: its stats, its holds and requests, and one log line for each event.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fairlock_core::{Cancel, Client, Error, ManualClock};
use fairlock_memory::MemoryBackend;
use log::kv::{Key, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};

const S: Duration = Duration::from_secs(1);

/// A client on a clock that the test moves.
fn client() -> (Client, MemoryBackend, ManualClock) {
    let clock = ManualClock::new();
    let backend = MemoryBackend::with_clock(clock.clone());
    let client =
        Client::builder(backend.clone()).clock(clock.clone()).label("orders-worker-3").build().unwrap();
    (client, backend, clock)
}

#[test]
fn a_client_lists_its_holds_and_requests() {
    let (client, _, clock) = client();
    let lock = client.fair_lock("insight:list").unwrap();
    let (owner, other) = (client.new_owner(), client.new_owner());
    let guard = lock.owned_by(&owner).unwrap().lock().unwrap();
    lock.owned_by(&owner).unwrap().lock().unwrap().leak();
    let waiting = lock.owned_by(&other).unwrap().request().unwrap();
    clock.advance(2 * S);

    let held = client.held();
    assert_eq!(held.len(), 1);
    assert_eq!(
        (held[0].lock.as_str(), &held[0].owner, held[0].token),
        ("insight:list", owner.id(), guard.token())
    );
    assert_eq!((held[0].hold_count, held[0].leaked, held[0].held_for), (2, 1, 2 * S));
    assert!(held[0].valid_for > 20 * S && held[0].valid_for < 30 * S);
    let waiting_now = client.waiting();
    assert_eq!(waiting_now.len(), 1);
    assert_eq!(
        (&waiting_now[0].owner, waiting_now[0].rank, waiting_now[0].waiting_for),
        (other.id(), Some(0), 2 * S)
    );
    assert_eq!(client.stats().waiting, waiting_now, "stats tell of the positions as well");
    let label = lock.inspect().unwrap().holder().cloned().unwrap().label.unwrap();
    assert!(
        label.starts_with("orders-worker-3 (") && label.ends_with(&format!(":{})", std::process::id())),
        "{label}"
    );

    guard.unlock().unwrap();
    lock.owned_by(&owner).unwrap().unlock().unwrap();
    drop(waiting.wait().unwrap());
    assert!(client.held().is_empty() && client.waiting().is_empty());
    let stats = client.stats();
    assert_eq!((stats.waits.count, stats.waits.longest, stats.waits.p99), (2, 2 * S, 2 * S));
    assert_eq!(stats.waits.median, Duration::ZERO);
}

#[test]
fn holds_are_counted_when_they_are_given_back_passed_on_or_lost() {
    let (client, backend, clock) = client();
    let lock = client.fair_lock("insight:holds").unwrap();
    let guard = lock.lock().unwrap();
    lock.lock().unwrap().unlock().unwrap(); // a re-entry is no separate hold
    clock.advance(S);
    guard.unlock().unwrap();
    let guard = lock.lock().unwrap();
    let other = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
    clock.advance(2 * S);
    let watched = lock.clone();
    let taken = std::thread::spawn(move || {
        let taken = other.wait().unwrap();
        // Until the holder stands in the queue again: else it would get the free lock, and for a full lease. The client counts it as
        // waiting before it has asked.
        while watched.inspect().unwrap().queue_length == 0 {
            std::thread::yield_now();
        }
        taken.unlock()
    });
    guard.unlock().unwrap();
    let guard = lock.lock().unwrap();
    taken.join().unwrap().unwrap();
    backend.faults().lose_hold("insight:holds");
    clock.advance(12 * S);
    assert!(guard.unlock().is_err());
    let stats = client.stats();
    assert_eq!((stats.holds.count, stats.holds.longest, stats.lost), (4, 2 * S, 1), "{stats}");
}

#[test]
fn a_gap_in_the_wake_ups_counts_as_a_reconnect() {
    let (client, backend, _) = client();
    backend.faults().cut_off(client.id());
    backend.faults().bring_back(client.id());
    let stats = client.stats();
    assert_eq!((stats.gaps, stats.reconnects), (1, 1));
}

#[test]
fn calls_without_the_lock_are_counted_by_kind_and_outcome() {
    let client = Client::builder(MemoryBackend::new()).stats_per_lock(1).build().unwrap();
    let other = client.new_owner();
    let (fair, plain) = (client.fair_lock("fair").unwrap(), client.plain_lock("plain").unwrap());
    let (shared, permits) = (client.rw_lock("shared").unwrap(), client.semaphore("permits", 1).unwrap());
    let (_a, _b) = (fair.lock().unwrap(), plain.lock().unwrap());
    let (_c, _d) = (shared.write().unwrap(), permits.acquire().unwrap());
    let busy = fair.owned_by(&other).unwrap().try_lock().unwrap();
    let time = Duration::from_millis(5);
    let late = plain.owned_by(&other).unwrap().try_lock_for(time).unwrap();
    assert!(busy.guard().is_none() && late.guard().is_none());
    let cancel = Cancel::new();
    cancel.cancel();
    let reader = shared.owned_by(&other).unwrap();
    assert!(matches!(reader.cancelled_by(&cancel).read(), Err(Error::Cancelled { .. })));
    assert!(matches!(client.semaphore("permits", 2).unwrap().try_acquire(), Err(Error::Mismatch { .. })));
    let stats = client.stats();
    let counts = stats.not_granted;
    assert_eq!(counts.total().total(), 4);
    assert_eq!((counts.fair.busy, counts.plain.timed_out), (1, 1));
    assert_eq!((counts.read_write.cancelled, counts.semaphore.refused), (1, 1));
    assert_eq!((stats.failed_waits.count, stats.holding), (3, 4), "who does not wait has no wait");
    assert!(stats.failed_waits.longest >= time);
    let of_fair = client.stats_of(&fair).unwrap();
    assert_eq!((of_fair.not_granted.total().busy, of_fair.holding), (1, 1));
}

#[test]
fn stats_are_a_block_of_lines() {
    let (client, _, clock) = client();
    let lock = client.fair_lock("insight:block").unwrap();
    let nothing = client.stats().to_string();
    assert!(
        nothing.contains("waits     none\n")
            && nothing.contains("  waits   none\nholds     none\n")
            && nothing.ends_with("holding   0\nwaiting   0"),
        "{nothing}"
    );
    let owners: Vec<_> = (0..14).map(|_| lock.owned_by(&client.new_owner()).unwrap()).collect();
    let guard = owners[0].lock().unwrap();
    let requests: Vec<_> = owners[1..].iter().map(|owner| owner.request().unwrap()).collect();
    clock.advance(3 * S / 2);
    guard.unlock().unwrap();
    let block = client.stats().to_string();
    let lines: Vec<&str> = block.lines().collect();
    let expected = [
        "granted   2: 1 at once, 1 by a wake-up, 0 by polling",
        "waits     2: median 0.0ns, 95 % within 1.5s, 99 % within 1.5s, longest 1.5s",
        "failed    0: 0 busy, 0 timed out, 0 cancelled, 0 unavailable, 0 refused",
        "  waits   none",
        "holds     1: median 1.5s, 95 % within 1.5s, 99 % within 1.5s, longest 1.5s",
        "renewals  0, 0 of them late",
        "lost      holds: 0, places: 0",
        "wake-ups  ignored: 0, gaps: 0, reconnects: 0",
        "holding   1",
        "waiting   12",
    ];
    assert_eq!(lines[..10], expected, "{block}");
    assert!(lines[10].starts_with("          lock `insight:block` for 1.5s, "), "{block}");
    assert_eq!((lines.len(), lines[20]), (21, "          and 2 more"), "{block}");
    drop(requests);
}

#[test]
fn each_of_the_first_locks_has_stats_of_its_own() {
    let client = Client::builder(MemoryBackend::new()).stats_per_lock(2).build().unwrap();
    let locks: Vec<_> = ["a", "b", "c"].map(|name| client.fair_lock(name).unwrap()).into();
    assert_eq!(client.stats_of(&locks[2]), Some(client.stats_of(&locks[0]).unwrap()), "not decided yet");
    for lock in &locks {
        lock.lock().unwrap().unlock().unwrap();
    }
    let guard = locks[0].lock().unwrap();
    let request = locks[0].owned_by(&client.new_owner()).unwrap().request().unwrap();
    let counts = |at: usize| {
        client.stats_of(&locks[at]).map(|stats| (stats.waits.count, stats.holds.count, stats.waiting.len()))
    };
    assert_eq!([counts(0), counts(1), counts(2)], [Some((2, 1, 1)), Some((1, 1, 0)), None]);
    assert_eq!(client.stats().holds.count, 3);
    assert_eq!(
        client.stats_of(&client.plain_lock("a").unwrap()).unwrap().waits.count,
        2,
        "it goes by the name"
    );
    drop((guard, request));
    let client = Client::new(MemoryBackend::new()).unwrap();
    assert_eq!(client.stats_of(&client.fair_lock("a").unwrap()), None, "nothing was asked for");
}

/// Keeps what is logged about locks, as `target key=value …`.
struct Kept(Mutex<Vec<String>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Log for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fairlock::")
    }

    fn log(&self, record: &Record<'_>) {
        struct Pairs(Vec<String>);
        impl<'kvs> VisitSource<'kvs> for Pairs {
            fn visit_pair(
                &mut self,
                key: Key<'kvs>,
                value: log::kv::Value<'kvs>,
            ) -> Result<(), log::kv::Error> {
                self.0.push(format!("{key}={value}"));
                Ok(())
            }
        }
        let mut pairs = Pairs(vec![record.target().to_owned()]);
        record.key_values().visit(&mut pairs).unwrap();
        pairs.0.push(format!(": {}", record.args()));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pairs.0.join(" "));
    }

    fn flush(&self) {}
}

#[test]
fn each_event_is_one_line_with_key_values_under_its_target() {
    log::set_logger(&KEPT).unwrap();
    log::set_max_level(LevelFilter::Debug);
    let (client, backend, clock) = client();
    let lock = client.fair_lock("insight:log").unwrap();
    let owner = client.new_owner();
    let guard = lock.owned_by(&owner).unwrap().lock().unwrap();
    let token = guard.token();
    clock.advance(S);
    guard.unlock().unwrap();
    let lost = lock.owned_by(&owner).unwrap().lock().unwrap();
    let lost_token = lost.token();
    backend.faults().lose_hold("insight:log");
    clock.advance(12 * S);
    assert!(lost.is_lost());

    let lines = KEPT.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let with =
        |words: &[&str]| lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count();
    let who = format!("lock=insight:log owner={}", owner.id());
    let (token, lost_token) = (format!("token={token}"), format!("token={lost_token}"));
    let text =
        format!(": lock `insight:log` granted to orders-worker-3 after 0.0ns, {token} ({})", owner.id());
    let text = text.replace("token=", "token ");
    assert_eq!(
        with(&["fairlock::acquire event=granted", &who, &token, "by=at_once", "waited_ms=0", &text]),
        1,
        "{lines:?}"
    );
    let text = ": lock `insight:log` released by orders-worker-3 after 1.0s, token ";
    assert_eq!(
        with(&["fairlock::release event=released", &who, &token, "held_ms=1000", text]),
        1,
        "{lines:?}"
    );
    assert_eq!(with(&["fairlock::watchdog event=lost", &who, &lost_token, "cause=Taken"]), 1, "{lines:?}");
}
