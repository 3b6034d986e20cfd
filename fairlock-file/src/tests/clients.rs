//! Clients of one backend: whom it knows, what their waiters watch and are told, and what it renews for them.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[cfg(feature = "servers")]
use fairlock_core::backend::Released;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendErrorKind, Hold, LockId, Place as Asked, Renew, Renewal, RequestId,
    Wake, WakeSink, only,
};
use fairlock_core::{ClientId, LockKind, LockName, OwnerId, TryLock};
use fairlock_rules::{WakeUp, WakeUpKind};

use super::store::Place;
use crate::FileBackend;
use crate::wake_ups;

const LEASE: Duration = Duration::from_secs(30);

fn lock(name: &str) -> LockId {
    LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
}

fn ask(backend: &FileBackend, lock: &LockId, owner: &OwnerId) -> Acquired {
    only(backend.acquire(&[Acquire::new(Asked::new(lock, owner, RequestId::new(1)), LEASE)])).unwrap()
}

/// A client that counts its messages.
#[derive(Default)]
pub(super) struct Count(AtomicUsize);

impl WakeSink for Count {
    fn wake(&self, _: Wake<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A client that reads one message.
#[derive(Default)]
struct Stuck {
    is_called: AtomicBool,
    mutex: Mutex<()>,
}

impl WakeSink for Stuck {
    fn wake(&self, _: Wake<'_>) {
        self.is_called.store(true, Ordering::SeqCst);
        drop(self.mutex.lock());
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_backend_knows_its_clients_until_they_end() {
    let place = Place::new();
    let backend = place.open();
    let [first, second, third] = [(); 3].map(|()| ClientId::random());
    let subscribe = |client| backend.subscribe(client, Arc::new(Count::default())).unwrap();
    let ending = subscribe(first);
    let _second = subscribe(second);
    assert!(backend.presence(first).is_some() && backend.presence(second).is_some());
    drop(ending);
    // Its thread has the listener for a moment longer.
    eventually("the first client ends", || backend.presence(first).is_none());
    let _third = subscribe(third);
    assert!(!format!("{backend:?}").contains(&first.to_string()), "{backend:?}");
}

/// The holder is killed after it. The waiter's client did not listen before.
#[test]
fn a_heartbeat_watches_who_stands_ahead() {
    let (place, sink, lock) = (Place::new(), Arc::new(Count::default()), lock("x"));
    let backend = place.open();
    let (dead, client) = (ClientId::random(), ClientId::random());
    let [holder, waiter] = [dead, client].map(|client| OwnerId::new(&format!("{client}:1")));
    ask(&backend, &lock, &holder);
    ask(&backend, &lock, &waiter);
    let _subscription = backend.subscribe(client, Arc::clone(&sink) as _).unwrap();
    let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let path = place.0.join(format!("{dead}.here"));
    fs::write(&path, process.id().to_string()).unwrap();
    let presence = File::open(&path).unwrap();
    presence.lock().unwrap();
    let heartbeat = Renew::Place { place: Asked::new(&lock, &waiter, RequestId::new(1)), lease: LEASE };
    assert!(matches!(only(backend.renew(client, &[heartbeat])), Ok(Renewal::Waiting { .. })));
    drop(presence);
    process.kill().unwrap();
    process.wait().unwrap();
    eventually("the waiter is told", || sink.0.load(Ordering::SeqCst) > 0);
}

/// One of two holds is of a damaged lock, whichever of them is renewed first.
#[test]
fn a_damaged_lock_keeps_no_other_from_being_renewed() {
    for (damaged, whole) in [(0, 1), (1, 0)] {
        let (place, owner) = (Place::new(), OwnerId::new("a:1"));
        let backend = place.open();
        let locks = [lock("0"), lock("1")];
        let renewals = locks.each_ref().map(|lock| {
            let Acquired::Granted { token, .. } = ask(&backend, lock, &owner) else { panic!() };
            Renew::Hold { hold: Hold::new(lock, &owner, RequestId::new(1), token), holds: 1, lease: LEASE }
        });
        fs::write(place.0.join(format!("{damaged}.lock")), "x").unwrap();
        let answers = backend.renew(ClientId::random(), &renewals);
        assert_eq!(answers[damaged].as_ref().unwrap_err().kind(), BackendErrorKind::Corrupt);
        assert_eq!(answers[whole].as_ref().unwrap(), &Renewal::Renewed);
    }
}

/// Another process stands still in a step on one of them, whichever is asked about first.
#[cfg(feature = "servers")] // takes seconds of real time
#[test]
fn a_lock_that_is_stuck_costs_the_others_nothing() {
    let (place, owner) = (Place::new(), OwnerId::new("a:1"));
    let backend = place.open();
    let locks = [(); 4].map(|()| lock(&ClientId::random().to_string()));
    let holds = locks.each_ref().map(|lock| {
        let Acquired::Granted { token, .. } = ask(&backend, lock, &owner) else { panic!() };
        Hold::new(lock, &owner, RequestId::new(1), token)
    });
    let renewals = holds.map(|hold| Renew::Hold { hold, holds: 1, lease: LEASE });
    let asks = locks.each_ref().map(|lock| Acquire::new(Asked::new(lock, &owner, RequestId::new(1)), LEASE));
    let others = locks.each_ref().map(|lock| Asked::new(lock, &owner, RequestId::new(2)));
    for stuck in &locks {
        let file = File::open(backend.files.dir.lock(&stuck.name)).unwrap();
        file.lock().unwrap();
        let failed = |which: Vec<bool>| {
            assert_eq!(which, locks.each_ref().map(|lock| lock == stuck));
        };
        failed(backend.renew(ClientId::random(), &renewals).iter().map(Result::is_err).collect());
        failed(backend.acquire(&asks).iter().map(Result::is_err).collect());
        failed(backend.withdraw(&others).iter().map(Result::is_err).collect());
    }
    let file = File::open(backend.files.dir.lock(&locks[0].name)).unwrap();
    file.lock().unwrap();
    assert!(
        backend.release(&holds)[1..].iter().all(|released| *released.as_ref().unwrap() == Released::Released)
    );
}

#[test]
fn each_client_gets_its_own_wake_ups() {
    let (place, sinks) = (Place::new(), [(); 2].map(|()| Arc::new(Count::default())));
    let backend = place.open();
    let clients = [(); 2].map(|()| ClientId::random());
    let _subscriptions =
        [0, 1].map(|at| backend.subscribe(clients[at], Arc::clone(&sinks[at]) as _).unwrap());
    let wake_ups = clients.map(|client| WakeUp {
        lock: lock("x").name,
        owner: OwnerId::new(&format!("{client}:1")),
        kind: WakeUpKind::Recheck,
    });
    wake_ups::send(&backend.files.dir, &wake_ups);
    for sink in sinks {
        eventually("each client is told", || sink.0.load(Ordering::SeqCst) == 1);
    }
}

/// Its message is waited for. A client that may look at anything has been told by what fills its socket.
#[test]
fn a_waiter_with_a_full_socket_is_given_time() {
    let (place, client) = (Place::new(), ClientId::random().to_string());
    let dir = &place.open().files.dir;
    let _full = UnixDatagram::bind(dir.wake(&client)).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"x", dir.wake(&client)).is_ok() {}
    let (lock, owner) = (lock("x").name, OwnerId::new(&format!("{client}:1")));
    let started = Instant::now();
    wake_ups::send(dir, &[WakeUp { lock, owner, kind: WakeUpKind::Recheck }]);
    assert!(started.elapsed() > Duration::from_millis(2)); // of 5: the system counts in ticks
}

/// Its thread stands still, as in a long sweep.
#[test]
fn a_full_socket_holds_up_no_waiter() {
    let (place, client, sink) = (Place::new(), ClientId::random(), Arc::new(Stuck::default()));
    let backend = place.open();
    let _held = place.client().fair_lock("x").unwrap().lock().unwrap();
    let is_stuck = sink.mutex.lock().unwrap();
    let _subscription = backend.subscribe(client, Arc::clone(&sink) as _).unwrap();
    let (lock, owner) = (lock("x"), OwnerId::new(&format!("{client}:1")));
    let wake_up = WakeUp { lock: lock.name.clone(), owner: owner.clone(), kind: WakeUpKind::Recheck };
    let socket = UnixDatagram::unbound().unwrap();
    socket.set_nonblocking(true).unwrap();
    let send = || socket.send_to(wake_up.to_string().as_bytes(), place.0.join(format!("{client}.wake")));
    send().unwrap();
    eventually("the thread reads a message", || sink.is_called.load(Ordering::SeqCst));
    while send().is_ok() {}
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| done.send(ask(&backend, &lock, &owner)).unwrap());
        let answer = is_done.recv_timeout(Duration::from_secs(60));
        drop(is_stuck);
        assert!(matches!(answer, Ok(Acquired::Queued { .. })), "{answer:?}");
    });
}

/// Its hold lasts for its lease. Only a presence file that nobody has locked says that a process has ended.
#[test]
fn a_client_that_ended_well_or_never_began_is_not_gone() {
    for name in ["ended well", "never began"] {
        let (place, client) = (Place::new(), ClientId::random());
        let backend = place.open();
        if name == "ended well" {
            drop(backend.subscribe(client, Arc::new(Count::default())).unwrap());
        }
        let answer = ask(&backend, &lock("x"), &OwnerId::new(&format!("{client}:1")));
        assert!(matches!(answer, Acquired::Granted { .. }));
        let tried = place.client().fair_lock("x").unwrap().try_lock().unwrap();
        assert!(matches!(tried, TryLock::Busy(_)), "{name}");
    }
}

/// It stands ahead of a waiter that comes later, which would look again and again if it were told each time.
#[test]
fn a_gone_waiter_ahead_keeps_no_newcomer_looking() {
    let (place, sink, lock) = (Place::new(), Arc::new(Count::default()), lock("x"));
    let backend = place.open();
    let ask = |owner: &str| ask(&backend, &lock, &OwnerId::new(owner));
    let (dead, newcomer) = (ClientId::random(), ClientId::random());
    ask("holder:1");
    ask(&format!("{dead}:1"));
    fs::write(place.0.join(format!("{dead}.here")), "1").unwrap();
    let _subscription = backend.subscribe(newcomer, Arc::clone(&sink) as _).unwrap();
    let told = || sink.0.load(Ordering::SeqCst);
    let asks = || ask(&format!("{newcomer}:1"));
    eventually("it is told", || {
        asks();
        told() > 0
    });
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        asks();
    }
    // Once; and again if the thread looked for another reason before the newcomer had asked again.
    assert!(told() < 5, "{} times", told());
}
