//! The scripts alone, on order: hand-offs in a line that keeps its length, whose places have no threads; with a line of
//! none, uncontended cycles. By the interface of the backend, so that the scripts may change.
//!
//! It says `ready`, and does as many as each line says, then says `did`; an empty line ends it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, RequestId, Wake, WakeSink,
};
use fairlock::{ClientId, Discipline, FencingToken, LockKind, LockName, OwnerId, RedisBackend};

use crate::Outcome;
use crate::say::{hear, say};
use crate::workload::Order;

/// No place and no hold ends while the line is used.
const LONG: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(10);
/// Threads that fill the line.
const FILLERS: usize = 8;

struct Grants(Sender<Held>);

/// The order of the owner, its request and its token.
struct Held {
    number: u64,
    request: RequestId,
    token: FencingToken,
}

impl WakeSink for Grants {
    fn wake(&self, wake: Wake<'_>) {
        if let Wake::Granted { owner, request, token, .. } = wake {
            let number = owner.rsplit(':').next().and_then(|number| number.parse().ok());
            // The line may be gone already.
            let _ = number.map(|number| self.0.send(Held { number, request, token }));
        }
    }
}

struct Line {
    backend: RedisBackend,
    client: ClientId,
    lock: LockId,
    grants: Receiver<Held>,
    held: Held,
    requests: u64,
    is_empty: bool,
}

pub fn run(url: &str, order: &Order) -> Outcome {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff).connect()?;
    let client = ClientId::random();
    let (sender, grants) = channel();
    let _subscription = backend.subscribe(client, Arc::new(Grants(sender)))?;
    let lock = LockId::new(LockName::new(&order.name)?, LockKind::Fair);
    let held = granted(0, 0, ask(&backend, &lock, client, 0, 0)?)?;
    let places = order.count as u64;
    std::thread::scope(|threads| {
        let all: Vec<_> = (0..FILLERS as u64)
            .map(|first| {
                let (backend, lock) = (&backend, &lock);
                threads.spawn(move || -> Outcome {
                    for number in (1..=places).skip(first as usize).step_by(FILLERS) {
                        queued(ask(backend, lock, client, number, number)?)?;
                    }
                    Ok(())
                })
            })
            .collect();
        all.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread has panicked")?)
    })?;
    let mut line = Line { backend, client, lock, grants, held, requests: places, is_empty: places == 0 };
    say("ready")?;
    loop {
        let steps = hear()?;
        if steps.trim().is_empty() {
            return Ok(());
        }
        for _ in 0..steps.trim().parse()? {
            line.step()?;
        }
        say("did")?;
    }
}

impl Line {
    /// The holder releases the lock and asks again: it gets the lock if there is no line, else a place at its tail.
    fn step(&mut self) -> Outcome {
        let Held { number, request, token } = self.held;
        let owner = owner(self.client, number);
        let hold = Hold::new(&self.lock, &owner, request, token);
        let Released::Released = self.backend.release(&hold)? else { return Err("not held".into()) };
        self.requests += 1;
        if self.is_empty {
            let answer = ask(&self.backend, &self.lock, self.client, number, self.requests)?;
            self.held = granted(number, self.requests, answer)?;
            return Ok(());
        }
        self.held = self.grants.recv_timeout(PATIENCE)?;
        queued(ask(&self.backend, &self.lock, self.client, number, self.requests)?)
    }
}

fn owner(client: ClientId, number: u64) -> OwnerId {
    OwnerId::new(&format!("{client}:{number}"))
}

fn ask(
    backend: &RedisBackend,
    lock: &LockId,
    client: ClientId,
    number: u64,
    request: u64,
) -> Outcome<Acquired> {
    let owner = owner(client, number);
    let mut place = Place::new(lock, &owner, RequestId::new(request));
    place.ttl = LONG;
    Ok(backend.acquire(&Acquire::new(place, LONG))?)
}

fn granted(number: u64, request: u64, answer: Acquired) -> Outcome<Held> {
    match answer {
        Acquired::Granted { token, .. } => Ok(Held { number, request: RequestId::new(request), token }),
        answer => Err(format!("not granted: {answer:?}").into()),
    }
}

fn queued(answer: Acquired) -> Outcome {
    match answer {
        Acquired::Queued { .. } => Ok(()),
        answer => Err(format!("not queued: {answer:?}").into()),
    }
}
