//! The scripts alone, on order, of requests without threads: in each step the oldest holder releases the lock and asks again. By the
//! interface of the backend, so that the scripts may change.
//!
//! | mode | lock | who takes turns | beside them, for good |
//! | --- | --- | --- | --- |
//! | `steps` | fair | one, and COUNT in the queue | |
//! | `steps-reader` | read-write | a reader | COUNT readers |
//! | `steps-writer` | read-write | a writer, and COUNT in the queue | |
//! | `steps-batch` | read-write | four readers, and a writer in the queue | |
//! | `steps-permit` | 32 permits | a holder of one | COUNT others |
//! | `steps-full` | 4 permits | four holders of one, and COUNT in the queue | |
//!
//! It says `ready`, and does as many as each line says, then says `did`; an empty line ends it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, RequestId, Wake, WakeSink, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::settings::Discipline;
use fairlock::{FencingToken, RedisBackend};

use crate::Outcome;
use crate::say::{hear, say};
use crate::workload::Order;

/// No place and no hold ends while the queue is used.
const LONG: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(10);
/// Threads that fill the queue.
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
            // The queue may be gone already.
            let _ = number.map(|number| self.0.send(Held { number, request, token }));
        }
    }
}

/// Who asks, in this order.
struct Scene {
    kind: LockKind,
    /// Units of each that holds for good.
    beside: Vec<u32>,
    /// Of each that takes turns and begins as a holder.
    holders: Vec<u32>,
    /// Of each that waits first.
    waiters: Vec<u32>,
}

impl Scene {
    fn of(mode: &str, count: usize) -> Outcome<Scene> {
        let all = LockKind::ReadWrite.capacity();
        let (kind, beside, holders, waiters) = match mode {
            "steps" => (LockKind::Fair, vec![], vec![1], vec![1; count]),
            "steps-reader" => (LockKind::ReadWrite, vec![1; count], vec![1], vec![]),
            "steps-writer" => (LockKind::ReadWrite, vec![], vec![all], vec![all; count]),
            "steps-batch" => (LockKind::ReadWrite, vec![], vec![1; 4], vec![all]),
            "steps-permit" => (LockKind::Semaphore { permits: 32 }, vec![1; count], vec![1], vec![]),
            "steps-full" => (LockKind::Semaphore { permits: 4 }, vec![], vec![1; 4], vec![1; count]),
            _ => return Err(format!("no mode {mode}").into()),
        };
        Ok(Scene { kind, beside, holders, waiters })
    }
}

/// All that ask, by their numbers.
struct Crowd {
    backend: RedisBackend,
    client: ClientId,
    lock: LockId,
    /// The units of each.
    units: Vec<u32>,
}

struct Line {
    crowd: Crowd,
    grants: Receiver<Held>,
    /// The oldest first.
    held: VecDeque<Held>,
    requests: u64,
}

pub fn run(url: &str, order: &Order) -> Outcome {
    let Scene { kind, beside, holders, waiters } = Scene::of(&order.mode, order.count)?;
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff).connect()?;
    let client = ClientId::random();
    let (sender, grants) = channel();
    let _subscription = backend.subscribe(client, Arc::new(Grants(sender)))?;
    let lock = LockId::new(LockName::new(&order.name)?, kind);
    let (first, last) = (beside.len(), beside.len() + holders.len());
    let units = [beside, holders, waiters].concat();
    let requests = units.len() as u64;
    let crowd = Crowd { backend, client, lock, units };
    let mut held = VecDeque::new();
    for number in 0..last as u64 {
        held.push_back(granted(number, number, crowd.ask(number, number)?)?);
    }
    held.drain(..first); // kept for good
    std::thread::scope(|threads| {
        let all: Vec<_> = (0..FILLERS)
            .map(|filler| {
                let crowd = &crowd;
                threads.spawn(move || -> Outcome {
                    for number in (last as u64..requests).skip(filler).step_by(FILLERS) {
                        let Acquired::Queued { .. } = crowd.ask(number, number)? else {
                            return Err("it has to wait".into());
                        };
                    }
                    Ok(())
                })
            })
            .collect();
        all.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread has panicked")?)
    })?;
    let mut line = Line { crowd, grants, held, requests };
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
    /// The oldest holder releases the lock and asks again: it gets the lock at once, or a place at the tail.
    fn step(&mut self) -> Outcome {
        self.held.extend(self.grants.try_iter());
        let oldest = self.held.pop_front().map_or_else(|| self.grants.recv_timeout(PATIENCE), Ok);
        let Held { number, request, token } = oldest?;
        let owner = owner(self.crowd.client, number);
        let hold = Hold::new(&self.crowd.lock, &owner, request, token);
        let Released::Released = only(self.crowd.backend.release(&[hold]))? else { return Err("not held".into()) };
        self.requests += 1;
        match self.crowd.ask(number, self.requests)? {
            Acquired::Queued { .. } => {}
            answer => self.held.push_back(granted(number, self.requests, answer)?),
        }
        Ok(())
    }
}

impl Crowd {
    fn ask(&self, number: u64, request: u64) -> Outcome<Acquired> {
        let owner = owner(self.client, number);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(request));
        (place.ttl, place.units) = (LONG, self.units[number as usize]);
        Ok(only(self.backend.acquire(&[Acquire::new(place, LONG)]))?)
    }
}

fn owner(client: ClientId, number: u64) -> OwnerId {
    OwnerId::new(&format!("{client}:{number}"))
}

fn granted(number: u64, request: u64, answer: Acquired) -> Outcome<Held> {
    match answer {
        Acquired::Granted { token, .. } => Ok(Held { number, request: RequestId::new(request), token }),
        answer => Err(format!("not granted: {answer:?}").into()),
    }
}
