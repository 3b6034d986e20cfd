//! The worker processes, each behind its own proxy.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use super::{LEASE, LONGEST_FAULT, OUTAGE, SLACK};
use crate::{Proxy, RedisServer, Worker};

/// A process and its proxy. A killed process is replaced in its seat.
#[derive(Debug)]
pub struct Seat {
    /// The proxy to the server.
    pub proxy: Proxy,
    /// The process.
    pub worker: Worker,
}

/// A worker's report when it rests.
#[derive(Clone, Debug)]
pub struct Rest {
    /// Its client id.
    pub client: String,
    /// Grants found by polling since its start.
    pub polled: u64,
}

/// All workers.
#[derive(Debug)]
pub struct Crew {
    /// The seats.
    pub seats: Vec<Seat>,
    /// The seat with the plant, if there is one. No fault hits it, so that the plant can finish.
    pub liar: Option<usize>,
    program: String,
    threads: usize,
    seed: u64,
    started: u64,
}

impl Crew {
    /// Starts the processes, one of them with the plant.
    pub fn start(
        program: &str,
        server: &RedisServer,
        seats: usize,
        threads: usize,
        seed: u64,
        plant: Option<&str>,
    ) -> Crew {
        let mut crew = Crew {
            seats: Vec::new(),
            liar: plant.map(|_| 0),
            program: program.to_owned(),
            threads,
            seed,
            started: 0,
        };
        for number in 0..seats {
            let proxy = Proxy::start(server.port());
            let worker = crew.worker(&proxy, plant.filter(|_| crew.liar == Some(number)));
            crew.seats.push(Seat { proxy, worker });
        }
        crew
    }

    fn worker(&mut self, proxy: &Proxy, plant: Option<&str>) -> Worker {
        self.started += 1;
        let (threads, seed) = (self.threads.to_string(), self.seed.wrapping_add(self.started).to_string());
        Worker::start(&self.program, &["worker", &proxy.url(), &threads, &seed, plant.unwrap_or("-")])
    }

    /// The threads of each process.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Kills the process in this seat (SIGKILL) and returns its id. [`refill`](Self::refill) starts another one.
    pub fn kill(&mut self, seat: usize) -> u32 {
        let worker = &mut self.seats[seat].worker;
        worker.kill();
        worker.child().id()
    }

    /// Starts another process in that seat, which works at once.
    pub fn refill(&mut self, seat: usize, round: &Path) {
        let proxy = Proxy::start(self.seats[seat].proxy.server_port());
        let mut worker = self.worker(&proxy, None);
        worker.say(&go(round, &worker));
        self.seats[seat] = Seat { proxy, worker };
    }

    /// Starts work in all processes, with histories in that dir.
    pub fn go(&mut self, round: &Path) {
        for Seat { worker, .. } in &mut self.seats {
            let line = go(round, worker);
            worker.say(&line);
        }
    }

    /// Brings all processes to rest. Returns a sentence for each that does not rest in time.
    pub fn rest(&mut self) -> (Vec<Rest>, Vec<String>) {
        self.seats.iter_mut().for_each(|seat| seat.worker.say("rest"));
        // A call ends at the outage limit at the latest, or waits for a dead holder's lease.
        let bound = LEASE + LONGEST_FAULT + OUTAGE + 5 * SLACK;
        let ends = Instant::now() + bound;
        let (mut rests, mut found) = (Vec::new(), Vec::new());
        for Seat { worker, .. } in &self.seats {
            let pid = worker.child().id();
            match worker.next_or_none(ends.saturating_duration_since(Instant::now())).as_deref().map(parse) {
                Some(Some(rest)) => rests.push(rest),
                Some(None) => found.push(format!("process {pid} sent a malformed report")),
                None => {
                    found.push(format!("process {pid} did not come to rest within {bound:?}: a call hangs"))
                }
            }
        }
        (rests, found)
    }

    /// The ids of the live processes.
    pub fn pids(&self) -> BTreeSet<u32> {
        self.seats.iter().map(|seat| seat.worker.child().id()).collect()
    }
}

fn go(round: &Path, worker: &Worker) -> String {
    format!("go {}", round.join(worker.child().id().to_string()).display())
}

fn parse(line: &str) -> Option<Rest> {
    let (client, polled) = line.strip_prefix("resting ")?.split_once(' ')?;
    Some(Rest { client: client.to_owned(), polled: polled.parse().ok()? })
}
