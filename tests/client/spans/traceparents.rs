//! A waiter learns of the span that it waits for.

use fairlock::settings::ClientBuilder;
use fairlock::{Client, FileBackend, MemoryBackend, PostgresBackend};
use fairlock_tests::locks::patient;
use fairlock_tests::{Alone, PostgresServer, RedisServer, WorkDir, eventually};
use tracing::subscriber::with_default;

use crate::recorder::Recorder;
use crate::{MOMENT, TRACE};

/// Two clients of one store.
type Two = (&'static str, [ClientBuilder; 2]);

fn stores(redis: &RedisServer, postgres: &PostgresServer, files: &WorkDir) -> [Two; 4] {
    let memory = MemoryBackend::new();
    let redis = || Client::builder(patient(&redis.url()).connect().unwrap());
    let postgres = || Client::builder(PostgresBackend::connect(&postgres.url()).unwrap());
    let file = || Client::builder(FileBackend::open(files.file("locks")).unwrap());
    [
        ("memory", [Client::builder(memory.clone()), Client::builder(memory)]),
        ("redis", [redis(), redis()]),
        ("postgres", [postgres(), postgres()]),
        ("file", [file(), file()]),
    ]
}

#[test]
fn a_waiter_learns_of_the_span_it_waits_for_on_every_store() {
    let _alone = Alone::here();
    let (redis, postgres, files) = (RedisServer::start(), PostgresServer::start(), WorkDir::new());
    for (store, [holder, waiter]) in stores(&redis, &postgres, &files) {
        let holder = holder.label("the holder").traceparent(|| Some(TRACE.to_owned())).build().unwrap();
        let waiter = waiter
            .label("the waiter")
            .slow_wait(MOMENT)
            .traceparent(|| Some(TRACE.replace("-01", "-00")))
            .build()
            .unwrap();
        let (holds, waits) = (holder.fair_lock("orders").unwrap(), waiter.fair_lock("orders").unwrap());
        let guard = holds.lock().unwrap();
        let recorder = Recorder::default();
        let request = with_default(recorder.clone(), || waits.request().unwrap());
        eventually("the wait names its holder's span", || recorder.value("holder.trace_id").is_some());
        let token = guard.token().to_string();
        for (field, value) in [
            ("holder.token", &*token),
            ("holder.traceparent", TRACE),
            ("holder.trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ] {
            assert_eq!(recorder.value(field).as_deref(), Some(value), "{store}: {field}");
        }
        let is = |label: Option<&str>, given: &str| {
            label.is_some_and(|label| label.starts_with(&format!("{given} (")))
        };
        assert!(is(recorder.value("holder").as_deref(), "the holder"), "{store}");
        let state = waits.admin().inspect().unwrap();
        let (seen, asks) = (state.holder().unwrap(), &state.queue[0]);
        assert!(
            is(seen.label.as_deref(), "the holder") && is(asks.label.as_deref(), "the waiter"),
            "{store}"
        );
        assert_eq!(seen.traceparent.as_deref(), Some(TRACE), "{store}");
        assert_eq!(asks.traceparent.as_deref(), Some(&*TRACE.replace("-01", "-00")), "{store}");
        guard.unlock().unwrap();
        // Its hold has its traceparent, also after a hand-over.
        let guard = request.wait().unwrap();
        let handed = holds.admin().inspect().unwrap().holder().unwrap().clone();
        assert_eq!(handed.traceparent, asks.traceparent, "{store}");
        guard.unlock().unwrap();
    }
}

#[test]
fn what_is_no_traceparent_is_not_sent() {
    let _alone = Alone::here();
    let store = MemoryBackend::new();
    let given = [
        None,
        Some(String::new()),
        Some("00-0-0-00".to_owned()),
        Some(format!("{TRACE}-more")),
        Some("x".repeat(1 << 20)),
        Some(TRACE.to_uppercase()),
    ];
    for given in given {
        let client =
            Client::builder(store.clone()).label("me").traceparent(move || given.clone()).build().unwrap();
        let lock = client.fair_lock("orders").unwrap();
        let guard = lock.lock().unwrap();
        let holder = lock.admin().inspect().unwrap().holder().unwrap().clone();
        assert!(holder.label.unwrap().starts_with("me (") && holder.traceparent.is_none());
        drop(guard);
    }
}
