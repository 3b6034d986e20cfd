//! Waiters keep their order through a fail-over: fifty of several processes, over a hundred fail-overs.
//!
//! The order before is that of the queue at the old master, just before it is killed. The order after is that of the grants,
//! by their tokens.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fairlock::{Lock, LockGuard};
use fairlock_tests::dice::Dice;
use fairlock_tests::history::{Event, check_order, grants, read};
use fairlock_tests::word::word;
use fairlock_tests::{Bound, WorkDir, Worker, look_until};

use crate::Wanted;
use crate::deployment::{Deployment, Kind, Servers};
use crate::network::Node;
use crate::setting::{BOUND, LEASE, OF_ORDER, Setting};
use crate::side_by_side::{Watch, caught, each};

/// The processes that wait, by their numbers.
const CROWD: std::ops::RangeInclusive<u8> = 1..=5;
/// The number of this process, which holds the lock, and reads the queue.
const HOLDER: u8 = 0;
/// Longer than all waits of a fail-over together.
const LONGEST: Duration = Duration::from_secs(300);

/// What the new master knows of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// The hold and all waiters.
    All,
    /// The hold, and the waiters that came first.
    Some,
    /// Neither the hold nor any waiter.
    Nothing,
}

/// When the holder releases the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Released {
    /// As soon as the master is dead: the release arrives at the new one before most waiters do.
    AtOnce,
    /// Once the sentinels name the new master.
    Later,
}

/// The cast of one fail-over.
struct Theatre {
    // Ends after those that use it.
    crowd: Vec<Worker>,
    lock: Lock,
    dir: WorkDir,
    all: Deployment,
    waiters: usize,
}

/// Runs all fail-overs and prints how many kept the order. Returns whether all did.
pub(crate) fn run(wanted: &Wanted, program: &str) -> bool {
    let mut dice = Dice::new(wanted.seed);
    let setting = wanted.settings.first().copied().unwrap_or(Setting::None);
    let waiters = wanted.waiters / CROWD.count() * CROWD.count();
    let kinds: Vec<(Known, Released)> = (0..wanted.fail_overs)
        .map(|_| {
            let known = dice.pick(&[Known::All, Known::Some, Known::Nothing]);
            (known, dice.pick(&[Released::AtOnce, Released::Later]))
        })
        .collect();
    let (started, watch) = (Instant::now(), Watch::start());
    let rows: Mutex<BTreeMap<(Known, Released), [usize; 2]>> = Mutex::default();
    each(&kinds, wanted, |number, (known, released)| {
        let began = Instant::now();
        let faults = caught(|| {
            loop {
                let all = Deployment::start(Kind::Sentinels);
                let theatre = Theatre::open(all, waiters, setting, program);
                if let Some(faults) = theatre.fail_over(*known, *released) {
                    return faults;
                }
                println!(
                    "{number}: the machine stood still, and the master was replaced too early: once more"
                );
            }
        });
        let (order, faults) = match faults {
            Ok(faults) if faults.is_empty() => ("order kept", faults),
            Ok(faults) => ("ORDER LOST", faults),
            Err(message) => ("BROKEN OFF", vec![message]),
        };
        let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
        let [total, kept] = rows.entry((*known, *released)).or_default();
        *total += 1;
        *kept += usize::from(faults.is_empty());
        let (time, stood) = (started.elapsed().as_secs(), watch.stood_still_since(began));
        let kind = format!("{}, released {}", word(known), word(released));
        println!("{number}: the new master knows {kind}: {order}, {time} s, stood still for {stood:.2?}");
        faults.iter().for_each(|fault| println!("  {fault}"));
    });
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\n| the new master knows | released | fail-overs | order kept |\n| --- | --- | --- | --- |");
    for ((known, released), [total, kept]) in &rows {
        println!("| {} | {} | {total} | {kept} |", word(known), word(released));
    }
    let [total, kept] =
        rows.values().fold([0, 0], |[totals, all], [total, kept]| [totals + total, all + kept]);
    println!(
        "\nseed {}: {kept} of {total} fail-overs kept the order of {waiters} waiters (setting {})",
        wanted.seed,
        word(&setting)
    );
    kept == total && total > 0
}

impl Theatre {
    fn open(all: Deployment, waiters: usize, setting: Setting, program: &str) -> Theatre {
        let [name, _, _] = all.locks();
        let dir = WorkDir::new();
        let threads = waiters / CROWD.count();
        let crowd = CROWD.map(|number| {
            let history = dir.file(&number.to_string());
            let (setting, threads) = (word(&setting), threads.to_string());
            Worker::start(
                program,
                &["crowd", &setting, &all.url(number), &history.to_string_lossy(), &name, &threads],
            )
        });
        let crowd = crowd.collect();
        let lock = look_until(BOUND, || setting.lock(&all.url(HOLDER), OF_ORDER, &name).ok())
            .expect("the servers answer in time");
        Theatre { crowd, lock, dir, all, waiters }
    }

    /// One fail-over. Returns what is wrong with the order; nothing if the sentinels replaced the master before it was killed.
    fn fail_over(mut self, known: Known, released: Released) -> Option<Vec<String>> {
        let _bound = Bound::here(LONGEST);
        let old = self.all.master().expect("there is a master");
        let others: Vec<usize> = (0..self.all.servers.len()).filter(|number| *number != old).collect();
        if known == Known::Nothing {
            self.cut_replicas(old);
        }
        let guard = self
            .lock
            .try_lock_for(BOUND)
            .expect("the servers answer")
            .guard()
            .expect("the lock is free soon");
        // Those of several processes ask at the same time.
        let first = if known == Known::Some { self.crowd.len() / 2 } else { self.crowd.len() };
        self.queue(0..first);
        if known == Known::Some {
            self.all.wait_until_copied(old, others.len());
            self.cut_replicas(old);
            self.queue(first..self.crowd.len());
        }
        if known == Known::All {
            self.all.wait_until_copied(old, others.len());
        }
        if self.all.master() != Some(old) {
            return None;
        }
        let queue = self.lock.inspect_queue(0..500).expect("the queue can be read").queue;
        let before: Vec<String> = queue.iter().map(|waiter| waiter.owner.as_str().to_owned()).collect();
        assert_eq!(before.len(), self.waiters, "all stand in the queue");

        self.all.servers[old].server.kill();
        if released == Released::AtOnce {
            release(guard);
            self.all.wait_for_other_than(old);
        } else {
            self.all.wait_for_other_than(old);
            release(guard);
        }
        let mut faults = Vec::new();
        for worker in &self.crowd {
            let said = worker.next_or_none(BOUND + LEASE);
            if said.as_deref().is_none_or(|said| !said.ends_with(" 0")) {
                faults.push(format!("a process says {said:?}, and not that all its waiters were served"));
            }
        }
        faults.extend(self.inversions(&before));
        Some(faults)
    }

    /// The processes of this part of the crowd take their places.
    fn queue(&mut self, part: std::ops::Range<usize>) {
        self.crowd[part.clone()].iter_mut().for_each(|worker| worker.say("wait"));
        self.crowd[part].iter().for_each(|worker| worker.expect("in the queue", BOUND));
    }

    /// The replicas of this master hear nothing more of it.
    fn cut_replicas(&self, master: usize) {
        let node = |number: usize| Node::Server(u8::try_from(number).expect("there are few"));
        for replica in (0..self.all.servers.len()).filter(|number| *number != master) {
            self.all.network.cut(node(master), node(replica));
        }
    }

    /// What is wrong with the order of the grants, by their tokens.
    fn inversions(&self, before: &[String]) -> Vec<String> {
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let events = CROWD.flat_map(|number| read(&self.dir.file(&number.to_string())).expect("a history"));
        let events: Vec<Event> = events.filter(|event| before.contains(&event.who.as_str())).collect();
        let mut grants = grants(&events, self.lock.name());
        grants.sort_by_key(|grant| grant.token);
        check_order(&grants, &before).err().map(|found| found.0).unwrap_or_default()
    }
}

/// The new master may not know the hold. Then the release says that the hold was lost, and the queue goes on all the same.
fn release(guard: LockGuard) {
    let _ = guard.unlock();
}
