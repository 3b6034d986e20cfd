//! What the server and the processes keep when all rest.

use std::fs;

use super::crew::{Crew, Rest};
use fairlock::LockKind;

use super::{LEASE, LOCKS, PLACE, SLACK, kind_of};
use crate::{RedisServer, keys_without_ttl, look_until};

/// The highest usage seen of a worker process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    /// Memory in use (kB).
    pub memory: u64,
    /// Threads.
    pub threads: u64,
    /// Open files and connections.
    pub descriptors: u64,
}

/// What one process uses now, according to the system.
fn usage(pid: u32) -> Option<Peaks> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let of = |word: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(word))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some(Peaks { memory: of("VmRSS")?, threads: of("Threads")?, descriptors })
}

impl Peaks {
    /// The maximum of each.
    pub fn or(self, other: Peaks) -> Peaks {
        Peaks {
            memory: self.memory.max(other.memory),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }
}

/// The memory limit of a worker in megabytes, whatever the faults.
const MEMORY: u64 = 128;
/// Standard input and output, the history, eight command connections and a subscription, and one more of each while the
/// old ones close.
const DESCRIPTORS: u64 = 24;
/// The main thread, the watchdog, the listener, and a new listener while the old one ends.
const THREADS: u64 = 4;

/// Processes that use too much.
pub fn excess(crew: &Crew) -> (Peaks, Vec<String>) {
    let (mut peaks, mut found) = (Peaks::default(), Vec::new());
    for pid in crew.pids() {
        let Some(used) = usage(pid) else { continue };
        peaks = peaks.or(used);
        let threads = THREADS + crew.threads() as u64;
        if used.memory > MEMORY * 1024 || used.threads > threads || used.descriptors > DESCRIPTORS {
            found.push(format!("process {pid} uses {used:?}"));
        }
    }
    (peaks, found)
}

/// What the server keeps for live clients that hold nothing. `ghosts` is the number of repeated commands, which may
/// each have left a place. Places of dead clients expire.
pub fn residue(server: &RedisServer, rests: &[Rest], ghosts: u64) -> Vec<String> {
    let mut found = Vec::new();
    // Releases or withdrawals left to the watchdog, and holds of dead processes.
    let held = || LOCKS.iter().filter(|lock| server.query::<bool>(&["EXISTS", lock])).collect::<Vec<_>>();
    if look_until(LEASE + PLACE + 2 * SLACK, || held().is_empty().then_some(())).is_none() {
        found.push(format!("still held though all rest: {:?}", held()));
    }
    let places = || -> Vec<String> {
        let lines = LOCKS.iter().filter(|lock| kind_of(lock) != LockKind::Plain);
        let lines = lines.map(|lock| format!("fairlock_queue:{{{lock}}}"));
        let members = lines.flat_map(|line| server.query::<Vec<String>>(&["ZRANGE", &line, "0", "-1"]));
        members.filter(|member| rests.iter().any(|rest| member.starts_with(&rest.client))).collect()
    };
    let few = || (places().len() as u64 <= ghosts).then_some(());
    if look_until(PLACE + 2 * SLACK, few).is_none() {
        found.push(format!("in the queue though all rest: {:?}", places()));
    }
    found.extend(keys_without_ttl(server).into_iter().map(|key| format!("`{key}` has no time to live")));
    // Command connections and a subscription each: two, and eight if faults have made the server seem far away.
    let connections = || server.clients().len();
    if look_until(SLACK, || (connections() <= 9 * rests.len()).then_some(())).is_none() {
        found.push(format!("{} connections of {} clients", connections(), rests.len()));
    }
    found
}
