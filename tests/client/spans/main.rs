//! Feature `tracing`: which spans a subscriber sees, with which fields.

mod recorder;
mod traceparents;

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::owner::Owner;
use fairlock::{AsyncGuard, Client, Guard, Lock, MemoryBackend, Result};
use fairlock_tests::files::root;
use fairlock_tests::locks::patient;
use fairlock_tests::{Alone, RedisServer, eventually};
use futures::executor::block_on;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

use recorder::Recorder;

const SOON: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(20);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Thread,
    Task,
}

enum Held {
    Thread(Guard),
    Task(AsyncGuard),
}

impl Held {
    fn token(&self) -> u64 {
        match self {
            Held::Thread(guard) => guard.token().get(),
            Held::Task(guard) => guard.token().get(),
        }
    }

    fn is_lost(&self) -> bool {
        match self {
            Held::Thread(guard) => guard.is_lost(),
            Held::Task(guard) => guard.is_lost(),
        }
    }

    fn unlock(self) -> Result<()> {
        match self {
            Held::Thread(guard) => guard.unlock(),
            Held::Task(guard) => block_on(guard.unlock()),
        }
    }
}

impl Form {
    fn lock(self, lock: &Lock) -> Result<Held> {
        match self {
            Form::Thread => lock.lock().map(Held::Thread),
            Form::Task => block_on(lock.to_async().lock()).map(Held::Task),
        }
    }

    fn lock_for(self, lock: &Lock, time: Duration) -> Result<Option<Held>> {
        match self {
            Form::Thread => lock.try_lock_for(time).map(|lock| lock.granted().map(Held::Thread)),
            Form::Task => {
                block_on(lock.to_async().try_lock_for(time)).map(|lock| lock.granted().map(Held::Task))
            }
        }
    }

    /// Asks, and gives up the request in the queue.
    fn ask_and_drop(self, lock: &Lock) {
        let wait = lock.to_async();
        match self {
            Form::Thread => drop(lock.request().unwrap()),
            Form::Task => block_on(async {
                let mut wait = wait.lock();
                let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut wait).poll(context))).await;
                assert!(polled.is_pending());
            }),
        }
    }
}

/// What becomes of waits and holds of `ours`, on a lock that `other` wants as well.
fn story(form: Form, ours: &Lock, other: &Lock<Owner>) {
    let recorder = Recorder::default();
    with_default(recorder.clone(), || {
        let from = |from| recorder.since(from);
        let granted =
            |token| format!("fairlock.wait kind=fair lock=orders outcome=granted rank=0 token={token}");
        let hold = |token, rest| format!("fairlock.hold kind=fair lock=orders {rest}token={token}");
        let ended = |outcome| format!("fairlock.wait kind=fair lock=orders outcome={outcome}");

        let guard = form.lock(ours).unwrap();
        let token = guard.token();
        assert_eq!(from(0), [granted(token), hold(token, "") + "*"], "{form:?}");
        guard.unlock().unwrap();
        assert_eq!(from(0), [granted(token), hold(token, "outcome=released ")]);

        // After a wait.
        let at = recorder.count();
        let theirs = with_default(tracing::subscriber::NoSubscriber::default(), || other.lock().unwrap());
        let guard = thread::scope(|scope| {
            scope.spawn(|| {
                eventually("it waits", || other.admin().inspect().unwrap().queue_length == 1);
                assert_eq!(recorder.since(at), ["fairlock.wait kind=fair lock=orders*"]);
                theirs.unlock().unwrap();
            });
            form.lock(ours).unwrap()
        });
        let token = guard.token();
        drop(guard);
        eventually("it is free", || !other.is_locked().unwrap());
        assert_eq!(from(at), [granted(token), hold(token, "outcome=released ")]);

        // Without the lock.
        let at = recorder.count();
        let theirs = with_default(tracing::subscriber::NoSubscriber::default(), || other.lock().unwrap());
        assert!(form.lock_for(ours, Duration::ZERO).unwrap().is_none());
        assert!(form.lock_for(ours, MOMENT).unwrap().is_none());
        form.ask_and_drop(ours);
        let nobody_waits =
            || eventually("no request is left", || other.admin().inspect().unwrap().queue_length == 0);
        nobody_waits(); // the cancel would take that request for the next one
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                eventually("it waits", || other.admin().inspect().unwrap().queue_length == 1);
                cancel.cancel();
            });
            assert!(form.lock(&ours.cancelled_by(&cancel)).is_err());
        });
        let spans = from(at);
        assert_eq!(spans[0], ended("busy"), "{form:?}");
        // The former request may still stand in the queue, which learns of its end a moment later.
        let unranked = (0..3).fold(spans[1..].join("\n"), |all, n| all.replace(&format!(" rank={n}"), ""));
        assert_eq!(
            unranked.split('\n').collect::<Vec<_>>(),
            [ended("timed_out"), ended("cancelled"), ended("cancelled")]
        );
        theirs.unlock().unwrap();
        nobody_waits();

        // Lost.
        let at = recorder.count();
        let guard = form.lock(ours).unwrap();
        let token = guard.token();
        assert!(other.admin().force_unlock().unwrap());
        eventually("it is lost", || guard.is_lost());
        assert_eq!(from(at), [granted(token), hold(token, "") + "*"], "the program works on");
        guard.unlock().unwrap_err();
        assert_eq!(from(at), [granted(token), hold(token, "outcome=lost ")]);
    });
}

#[test]
fn waits_and_holds_are_spans_on_memory_and_redis() {
    let _alone = Alone::here();
    let (server, memory) = (RedisServer::start(), MemoryBackend::new());
    let clients = |connect: &dyn Fn() -> Client| [connect(), connect()];
    for [ours, other] in [
        clients(&|| Client::new(memory.clone()).unwrap()),
        clients(&|| Client::new(patient(&server.url()).connect().unwrap()).unwrap()),
    ] {
        let ours = ours.fair_lock("orders").unwrap();
        let other = other.fair_lock("orders").unwrap().owned_by(&other.new_owner()).unwrap();
        for form in [Form::Thread, Form::Task] {
            story(form, &ours, &other);
        }
    }
}

/// Re-entries and the other callers of an owner share the spans of the first.
#[test]
fn each_kind_has_its_name_and_a_reentry_has_no_span() {
    let _alone = Alone::here();
    let client = Client::new(MemoryBackend::new()).unwrap();
    let recorder = Recorder::default();
    with_default(recorder.clone(), || {
        let lock = client.fair_lock("a").unwrap();
        let (first, second) = (lock.lock().unwrap(), lock.lock().unwrap());
        drop(first);
        let hold = format!("fairlock.hold kind=fair lock=a token={}*", second.token());
        assert_eq!(recorder.since(1), [hold]);
        drop(second);
        drop(client.plain_lock("b").unwrap().lock().unwrap());
        drop(client.rw_lock("c").unwrap().read().unwrap());
        drop(client.semaphore("d", 3).unwrap().acquire_many(2).unwrap());
        drop(client.lock_all(&["e"]).unwrap());
    });
    let spans = recorder.since(0);
    let kinds = [("fair", "a"), ("plain", "b"), ("read_write", "c"), ("semaphore", "d"), ("fair", "e")];
    for (spans, (kind, lock)) in spans.chunks(2).zip(kinds) {
        let wait = format!("fairlock.wait kind={kind} lock={lock} outcome=granted ");
        let hold = format!("fairlock.hold kind={kind} lock={lock} outcome=released ");
        assert!(spans[0].starts_with(&wait) && spans[1].starts_with(&hold), "{spans:?}");
    }
    assert_eq!(spans.len(), 2 * kinds.len());
}

/// Has another thread of the owner take the lock while the first one's wait begins.
struct Overtaken(Recorder, Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Subscriber for Overtaken {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let overtake = self.1.lock().unwrap().take();
        if let Some(overtake) = overtake {
            overtake();
        }
        self.0.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.0.record(span, values);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn try_close(&self, span: Id) -> bool {
        self.0.try_close(span)
    }
}

#[test]
fn a_wait_ends_though_another_caller_has_the_lock_before() {
    let _alone = Alone::here();
    let client = Client::new(MemoryBackend::new()).unwrap();
    let lock = client.fair_lock("a").unwrap().owned_by(&client.new_owner()).unwrap();
    let (recorder, theirs) = (Recorder::default(), Arc::new(Mutex::new(None)));
    let (other, place) = (lock.clone(), Arc::clone(&theirs));
    let take = move || *place.lock().unwrap() = thread::spawn(move || other.lock().unwrap()).join().ok();
    with_default(Overtaken(recorder.clone(), Mutex::new(Some(Box::new(take)))), || {
        let ours = lock.lock().unwrap();
        let wait = format!("fairlock.wait kind=fair lock=a outcome=granted rank=0 token={}", ours.token());
        assert_eq!(recorder.since(0), [wait]);
        drop((ours, theirs.lock().unwrap().take()));
    });
}

/// The call ends in the moment of the grant to another caller, or to the request that keeps its place.
#[test]
fn a_call_that_leaves_a_wait_to_others_does_not_end_its_span() {
    let _alone = Alone::here();
    let client = Client::new(MemoryBackend::new()).unwrap();
    let own = || client.fair_lock("a").unwrap().owned_by(&client.new_owner()).unwrap();
    let (lock, other) = (own(), own());
    let recorder = Recorder::default();
    for turn in 0..200 {
        let at = recorder.count();
        let theirs = with_default(tracing::subscriber::NoSubscriber::default(), || other.lock().unwrap());
        let guard = thread::scope(|scope| {
            with_default(recorder.clone(), || {
                let mut request = lock.request().unwrap();
                scope.spawn(|| theirs.unlock().unwrap());
                loop {
                    if turn % 2 == 0 {
                        if let Some(guard) = request.wait_for(Duration::ZERO).unwrap().granted() {
                            break guard;
                        }
                    } else if lock.try_lock().unwrap().granted().is_some() {
                        break request.wait().unwrap();
                    }
                }
            })
        });
        let token = guard.token();
        drop(guard);
        let wait = format!("fairlock.wait kind=fair lock=a outcome=granted rank=0 token={token}");
        let hold = format!("fairlock.hold kind=fair lock=a outcome=released token={token}");
        assert_eq!(recorder.since(at), [wait, hold], "turn {turn}");
    }
}

/// A subscriber that asks the client at each event, and panics at every third.
#[derive(Clone, Default)]
struct Nosy(Arc<Asked>);

#[derive(Default)]
struct Asked {
    of: Mutex<Option<(Client, Lock)>>,
    events: AtomicU64,
    /// The events that a look at a slow wait makes.
    looks: AtomicU64,
}

impl Nosy {
    fn event(&self) {
        let of = self.0.of.lock().unwrap().clone();
        if let Some((client, lock)) = of {
            drop((client.stats(), client.held(), client.waiting(), lock.admin().inspect()));
        }
        assert!(self.0.events.fetch_add(1, Ordering::SeqCst) % 3 != 2, "planned");
    }
}

impl Subscriber for Nosy {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.event();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        if thread::current().name() == Some("fairlock-slow") {
            self.0.looks.fetch_add(1, Ordering::SeqCst);
        }
        self.event();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        self.event();
        true
    }
}

/// The subscriber would deadlock under one of our mutexes, and its panic would end a thread or a call.
#[test]
fn a_subscriber_may_call_the_client_and_may_panic() {
    let _alone = Alone::here();
    let (done, ended) = channel();
    let run = move || {
        let (nosy, reads) = (Nosy::default(), Nosy::default());
        let asks = reads.clone();
        with_default(nosy.clone(), || {
            let client = Client::builder(MemoryBackend::new())
                .slow_wait(Duration::from_millis(10))
                .traceparent(move || {
                    asks.event();
                    Some(TRACE.to_owned())
                })
                .build()
                .unwrap();
            let lock = client.fair_lock("nosy").unwrap();
            for subscriber in [&nosy, &reads] {
                *subscriber.0.of.lock().unwrap() = Some((client.clone(), lock.clone()));
            }
            let own = || lock.owned_by(&client.new_owner()).unwrap();
            for _ in 0..8 {
                let guard = own().lock().unwrap();
                let request = own().request().unwrap();
                assert!(block_on(lock.to_async().try_lock()).unwrap().granted().is_none());
                guard.unlock().unwrap();
                let guard = request.wait().unwrap();
                assert!(lock.admin().force_unlock().unwrap());
                guard.lost().recv_timeout(SOON).unwrap();
                drop(guard);
                drop(block_on(lock.to_async().lock()).unwrap());
            }
            // The looks at slow waits go on after a panic: every third event is one.
            for turn in 1..=4 {
                let guard = own().lock().unwrap();
                let request = own().request().unwrap();
                eventually("a slow wait is looked at", || nosy.0.looks.load(Ordering::SeqCst) >= turn);
                drop((guard, request));
            }
            for subscriber in [&nosy, &reads] {
                subscriber.0.of.lock().unwrap().take(); // the client would own itself
            }
        });
        done.send(nosy.0.events.load(Ordering::SeqCst)).unwrap();
    };
    thread::spawn(run);
    let events = ended.recv_timeout(3 * SOON).expect("no call hangs");
    assert!(events > 8 * 12, "{events}");
}

#[test]
fn only_the_feature_brings_the_crate_tracing() {
    for (features, is_there) in [("redis,postgres,metrics,serde", false), ("tracing", true)] {
        let tree = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--quiet", "--prefix", "none", "--edges", "normal", "-p", "fairlock"])
            .args(["--features", features])
            .current_dir(root())
            .output()
            .unwrap();
        let crates = String::from_utf8_lossy(&tree.stdout);
        assert!(tree.status.success() && crates.contains("fairlock-core"), "{tree:?}");
        assert_eq!(crates.lines().any(|line| line.starts_with("tracing")), is_there, "{crates}");
    }
}
