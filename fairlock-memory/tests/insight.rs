//! What a client reports: its stats, its holds and requests, and one log line for each event.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fairlock_core::{Client, Lock, ManualClock};
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
    let label = lock.admin().inspect().unwrap().holder().cloned().unwrap().label.unwrap();
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

/// Only what is about the lock, and only by this client.
#[test]
fn the_numbers_of_a_lock_are_those_of_no_other() {
    let store = MemoryBackend::new();
    let client = Client::builder(store).stats_per_lock(2).build().unwrap();
    let [one, other] = ["one", "other"].map(|name| client.fair_lock(name).unwrap());
    let (owner, waiter) = (client.new_owner(), client.new_owner());
    let _held = one.owned_by(&owner).unwrap().lock().unwrap();
    let _waits = one.owned_by(&waiter).unwrap().request().unwrap();
    let counted = |lock: &Lock| {
        let stats = lock.stats().unwrap();
        (stats.holding, stats.waiting.len(), stats.holds.count)
    };
    assert_eq!((counted(&one), counted(&other)), ((1, 1, 0), (0, 0, 0)));
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
    let text = format!(" after 0.0ns, {token} ({})", owner.id());
    let text = text.replace("token=", "token ");
    assert_eq!(
        with(&[
            "fairlock::acquire event=granted",
            &who,
            &token,
            "by=at_once",
            "waited_ms=0",
            ": lock `insight:log` granted to orders-worker-3 (",
            &text
        ]),
        1,
        "{lines:?}"
    );
    let text = ": lock `insight:log` released by orders-worker-3 (";
    assert_eq!(
        with(&[
            "fairlock::release event=released",
            &who,
            &token,
            "held_ms=1000",
            text,
            ") after 1.0s, token "
        ]),
        1,
        "{lines:?}"
    );
    assert_eq!(with(&["fairlock::watchdog event=lost", &who, &lost_token, "cause=Taken"]), 1, "{lines:?}");
}
