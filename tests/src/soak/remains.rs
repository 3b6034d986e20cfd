//! What is left when all rest: in the server, and in the processes.

use std::fs;

use super::crew::{Crew, Rest};
use super::{LEASE, LOCKS, PLACE, SLACK, is_fair};
use crate::{RedisServer, keys_without_ttl, look_until};

/// The most that was ever seen of a worker process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    /// Memory in use (kB).
    pub memory: u64,
    /// Threads.
    pub threads: u64,
    /// Open files and connections.
    pub descriptors: u64,
}

/// What one process uses now, as the system says.
pub fn usage(pid: u32) -> Option<Peaks> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let of = |word: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(word))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some(Peaks { memory: of("VmRSS")?, threads: of("Threads")?, descriptors })
}

impl Peaks {
    /// The greater of each.
    pub fn or(self, other: Peaks) -> Peaks {
        Peaks {
            memory: self.memory.max(other.memory),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }
}

/// The most that a worker may use in megabytes, whatever was done to it.
const MEMORY: u64 = 128;
/// Standard input and output, the history, two lanes and an ear, one more of each while the old ones go.
const DESCRIPTORS: u64 = 16;
/// The main thread, watchdog and ear, and a new ear's while the old one goes.
const THREADS: u64 = 4;

/// What is wrong with what the processes use.
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

/// What is left in the server of clients that live and hold nothing. `ghosts` places may be there, which stand for
/// commands that were said again; those of the dead end by themselves.
pub fn residue(server: &RedisServer, rests: &[Rest], ghosts: u64) -> Vec<String> {
    let mut found = Vec::new();
    // What a release or a withdrawal has left to the watchdog, and what a dead one held.
    let held = || LOCKS.iter().filter(|lock| server.query::<bool>(&["EXISTS", lock])).collect::<Vec<_>>();
    if look_until(LEASE + PLACE + 2 * SLACK, || held().is_empty().then_some(())).is_none() {
        found.push(format!("still held though all rest: {:?}", held()));
    }
    let places = || -> Vec<String> {
        let fair = LOCKS.iter().filter(|lock| is_fair(lock));
        let members = fair.flat_map(|lock| {
            server.query::<Vec<String>>(&["ZRANGE", &format!("fairlock_queue:{{{lock}}}"), "0", "-1"])
        });
        members.filter(|member| rests.iter().any(|rest| member.starts_with(&rest.client))).collect()
    };
    let few = || (places().len() as u64 <= ghosts).then_some(());
    if look_until(PLACE + 2 * SLACK, few).is_none() {
        found.push(format!("in line though all rest: {:?}", places()));
    }
    found.extend(keys_without_ttl(server).into_iter().map(|key| format!("`{key}` has no time to live")));
    // Two lanes and an ear each.
    let connections = || server.clients().len();
    if look_until(SLACK, || (connections() <= 3 * rests.len()).then_some(())).is_none() {
        found.push(format!("{} connections of {} clients", connections(), rests.len()));
    }
    found
}
