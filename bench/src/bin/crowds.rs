//! What a hand-over costs on PostgreSQL where many wait, and where many sessions listen: the time of a release with the former
//! holder's joining again, and the server's processor time. `docs/pictures/draw.py` draws what it prints.
//!
//! Needs the URL of a superuser in BENCH_POSTGRES, of a server on this machine; makes databases there, and leaves them.
//!
//! ```sh
//! cargo run --release --bin crowds
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement fails by panicking")]

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, RequestId, Subscription, Wake, WakeSink, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::{FencingToken, PostgresBackend};
use postgres::NoTls;

const WAITERS: [usize; 5] = [2, 8, 32, 128, 512];
const LISTENERS: [usize; 4] = [0, 10, 50, 100];
/// Each size has this many turns, one after the other, of this many hand-overs; the quickest turn counts, since other work makes all slower.
const TURNS: usize = 40;
const HAND_OVERS: u32 = 25;
/// Longer than all of it takes.
const LONG: Duration = Duration::from_secs(3600);

/// A hold, as a message tells of it.
#[derive(Clone)]
struct Granted {
    owner: OwnerId,
    request: RequestId,
    token: FencingToken,
}

struct Heard(Sender<Granted>);

impl WakeSink for Heard {
    fn wake(&self, wake: Wake<'_>) {
        if let Wake::Granted { owner, request, token, .. } = wake {
            let _ = self.0.send(Granted { owner: OwnerId::new(owner), request, token });
        }
    }
}

/// Owners that take turns on one lock, and sessions that listen beside them.
struct Crowd {
    lock: LockId,
    /// Who speaks for an owner: its backend by its client.
    backends: Vec<(String, PostgresBackend)>,
    heard: Receiver<Granted>,
    holder: Granted,
    requests: u64,
    /// Microseconds of each turn's hand-over, and of the server's processors.
    turns: Vec<[f64; 2]>,
    _listen: Vec<(PostgresBackend, Subscription)>,
}

fn lock(name: &str) -> LockId {
    LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
}

fn ask(backend: &PostgresBackend, lock: &LockId, owner: &OwnerId, request: u64) -> Acquired {
    let mut place = Place::new(lock, owner, RequestId::new(request));
    place.ttl = LONG;
    only(backend.acquire(&[Acquire::new(place, LONG)])).unwrap()
}

impl Crowd {
    /// `clients` have their backends each, and together `waiters` in the queue; `listeners` wait for another lock.
    fn gather(server: &Server, clients: usize, waiters: usize, listeners: usize) -> Crowd {
        let url = server.new_database();
        let connect = || PostgresBackend::connect(&url).unwrap();
        let (sender, heard) = channel();
        let (lock, other, mut listen) = (lock("x"), lock("other"), Vec::new());
        let backends: Vec<_> = (0..clients)
            .map(|_| {
                let (client, backend) = (ClientId::random(), connect());
                let subscription = backend.subscribe(client, Arc::new(Heard(sender.clone()))).unwrap();
                listen.push((backend.clone(), subscription));
                (client.to_string(), backend)
            })
            .collect();
        ask(&backends[0].1, &other, &OwnerId::new("nobody:1"), 1);
        let backend = connect();
        for number in 0..listeners {
            let (client, (unheard, _)) = (ClientId::random(), channel());
            let subscription = backend.subscribe(client, Arc::new(Heard(unheard))).unwrap();
            ask(&backend, &other, &OwnerId::new(&format!("{client}:{number}")), 1);
            listen.push((backend.clone(), subscription));
        }
        let mut holder = None;
        for number in 0..=waiters {
            let (client, backend) = &backends[number % clients];
            let owner = OwnerId::new(&format!("{client}:{number}"));
            if let Acquired::Granted { token, .. } = ask(backend, &lock, &owner, 1) {
                holder = Some(Granted { owner, request: RequestId::new(1), token });
            }
        }
        let holder = holder.expect("the first one");
        Crowd { lock, backends, heard, holder, requests: 1, turns: Vec::new(), _listen: listen }
    }

    fn backend_of(&self, owner: &OwnerId) -> &PostgresBackend {
        &self.backends.iter().find(|(client, _)| client == owner.client()).unwrap().1
    }

    /// The holder releases, and joins at the tail when the next one knows that it holds.
    fn hand_over(&mut self) {
        self.requests += 1;
        let Granted { owner, request, token } = self.holder.clone();
        let backend = self.backend_of(&owner);
        only(backend.release(&[Hold::new(&self.lock, &owner, request, token)])).unwrap();
        let next = self.heard.recv_timeout(Duration::from_secs(10)).unwrap();
        ask(backend, &self.lock, &owner, self.requests);
        self.holder = next;
    }

    fn turn(&mut self, server: &Server) {
        let (began, spent) = (Instant::now(), server.processor_time());
        (0..HAND_OVERS).for_each(|_| self.hand_over());
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(HAND_OVERS);
        self.turns.push([each(began.elapsed()), each(server.processor_time() - spent)]);
    }

    fn quickest(&self) -> [f64; 2] {
        [0, 1].map(|at| self.turns.iter().map(|turn| turn[at]).fold(f64::INFINITY, f64::min))
    }
}

/// A server on this machine, by the URL of one of its databases.
struct Server(String);

impl Server {
    fn query(&self, sql: &str) -> Vec<postgres::Row> {
        postgres::Client::connect(&self.0, NoTls).unwrap().query(sql, &[]).unwrap()
    }

    /// The URL of a new database with fairlock's tables.
    fn new_database(&self) -> String {
        let name = format!("crowd_{}", ClientId::random()).replace('-', "_");
        self.query(&format!("create database {name}"));
        let url = format!("{}/{name}", self.0.rsplit_once('/').expect("a URL").0);
        PostgresBackend::migrate(&url).unwrap();
        url
    }

    /// What all sessions have used since they began.
    fn processor_time(&self) -> Duration {
        let used = |row: &postgres::Row| {
            let stat =
                fs::read_to_string(format!("/proc/{}/schedstat", row.get::<_, i32>(0))).unwrap_or_default();
            stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
        };
        let sessions = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
        Duration::from_nanos(self.query(sessions).iter().map(used).sum())
    }
}

fn measure(server: &Server, what: &str, sizes: &[usize], gather: impl Fn(usize) -> Crowd) {
    let mut crowds: Vec<_> = sizes.iter().map(|size| gather(*size)).collect();
    for _ in 0..TURNS {
        crowds.iter_mut().for_each(|crowd| crowd.turn(server));
    }
    println!("| {what} | a hand-over, µs | of the server's processors, µs |\n| --- | --- | --- |");
    for (size, crowd) in sizes.iter().zip(&crowds) {
        let [time, server] = crowd.quickest();
        println!("| {size} | {time:.0} | {server:.0} |");
    }
}

fn main() {
    let server = Server(std::env::var("BENCH_POSTGRES").expect("BENCH_POSTGRES"));
    measure(&server, "in the queue", &WAITERS, |waiters| Crowd::gather(&server, 1, waiters, 0));
    measure(&server, "listening beside", &LISTENERS, |listeners| Crowd::gather(&server, 2, 1, listeners));
}
