//! Rounds until the targets are reached, and the summary.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::nemesis::{CALM, Done, Fault, Nemesis};
use super::remains::{self, Peaks};
use super::verdict::judge;
use super::{Dice, SLACK};
use crate::RedisServer;
use crate::history::{Event, What, read};
use crate::oracle::{Finding, Promise};

/// The targets of a run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The program, which is also the worker.
    pub program: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// The minimum duration.
    pub time: Duration,
    /// The minimum number of acquisitions.
    pub acquisitions: u64,
    /// The minimum number of faults.
    pub faults: u64,
    /// The limit, whatever is missing.
    pub limit: Duration,
    /// The plant of one worker, which must be found.
    pub plant: Option<String>,
    /// Worker processes, and threads of each.
    pub workers: (usize, usize),
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Grants.
    acquisitions: u64,
    /// Grants in the calm of each round.
    in_peace: u64,
    rounds: u64,
    faults: BTreeMap<Fault, u64>,
    findings: BTreeMap<Promise, u64>,
    /// Holds that were lost, as their holders report; calls without an answer; and those that ended without the lock.
    told: [u64; 3],
    /// Grants found by polling, of each client that came to rest.
    polled: BTreeMap<String, u64>,
    /// The highest usage of a worker.
    peaks: Peaks,
    /// Commands that were repeated.
    replays: u64,
    /// What was not reached before the limit.
    missing: Option<String>,
}

impl Summary {
    /// Whether all targets were reached without a finding.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.missing.is_none()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.in_peace / (self.rounds * CALM.as_secs()).max(1);
        let [lost, unknown, failed] = self.told;
        let polled: u64 = self.polled.values().sum();
        let Peaks { memory, threads, descriptors } = self.peaks;
        writeln!(f, "acquisitions {}, {rate} a second in peace", self.acquisitions)?;
        writeln!(f, "faults {}: {:?}", self.faults.values().sum::<u64>(), self.faults)?;
        writeln!(f, "findings: {:?}", self.findings)?;
        writeln!(
            f,
            "told: holds lost {lost}, no answer {unknown}, without the lock {failed}; found by polling {polled}"
        )?;
        write!(
            f,
            "peak of a worker: memory {} MB, threads {threads}, descriptors {descriptors}",
            memory / 1024
        )?;
        self.missing.as_ref().map_or(Ok(()), |missing| write!(f, "\nMISSING: {missing}"))
    }
}

/// Runs it. On a finding, the histories of that round are kept, and their dir is printed.
pub fn run(wanted: &Wanted) -> Summary {
    println!("seed {}", wanted.seed);
    // A killed server loses nothing: what it acknowledged was written, and the system keeps it.
    let server = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "no").start();
    let (workers, threads) = wanted.workers;
    let mut crew =
        Crew::start(&wanted.program, &server, workers, threads, wanted.seed, wanted.plant.as_deref());
    let (mut dice, mut summary) = (Dice::new(wanted.seed), Summary::default());
    let base = std::env::temp_dir().join(format!("fairlock-soak-{}", std::process::id()));
    let started = Instant::now();
    for number in 0.. {
        let (acquisitions, faults) = (summary.acquisitions, summary.faults.values().sum::<u64>());
        let enough = acquisitions >= wanted.acquisitions && faults >= wanted.faults;
        if number > 0 && enough && started.elapsed() >= wanted.time {
            break;
        }
        if started.elapsed() >= wanted.limit {
            summary.missing = Some(format!(
                "after {:?}: {acquisitions} acquisitions of {}, {faults} faults of {}",
                wanted.limit, wanted.acquisitions, wanted.faults
            ));
            break;
        }
        let dir = base.join(number.to_string());
        fs::create_dir_all(&dir).expect("a dir can be made");
        summary.round(&server, &mut crew, &mut dice, &dir);
        println!(
            "round {number}: {} acquisitions so far, {} s",
            summary.acquisitions,
            started.elapsed().as_secs()
        );
        if !summary.findings.is_empty() {
            println!("FOUND with seed {}; the histories are in {}", wanted.seed, dir.display());
            return summary;
        }
        fs::remove_dir_all(&dir).expect("our own dir can be removed");
    }
    let _ = fs::remove_dir(&base);
    summary
}

impl Summary {
    fn round(&mut self, server: &RedisServer, crew: &mut Crew, dice: &mut Dice, dir: &Path) {
        crew.go(dir);
        let mut nemesis = Nemesis::new(server, crew, dir);
        nemesis.rage(dice, Duration::from_secs(10));
        self.replays += nemesis.replays;
        let (done, mut events) = (nemesis.done, nemesis.gone);
        // Calm before the end.
        std::thread::sleep(CALM); // the run itself
        let (peaks, mut left) = remains::excess(crew);
        self.peaks = self.peaks.or(peaks);
        let (rests, hung) = crew.rest();
        left.extend(hung);
        if left.is_empty() {
            left.extend(remains::residue(server, &rests, self.replays));
        }
        for file in fs::read_dir(dir).expect("our own dir can be read") {
            events.extend(read(&file.expect("an entry").path()).expect("a history can be read"));
        }
        events.sort_by_key(|event| (event.at, event.what));
        let (acquisitions, findings) = judge(&events, &done);
        let count = |is: &dyn Fn(&Event) -> bool| events.iter().filter(|event| is(event)).count() as u64;
        let calm = events.first().map_or(0, |event| event.at) + nanos(CALM);
        self.acquisitions += acquisitions;
        self.in_peace += count(&|event| matches!(event.what, What::Granted { .. }) && event.at < calm);
        self.rounds += 1;
        for (told, what) in self.told.iter_mut().zip([What::Lost, What::Unknown, What::Failed]) {
            *told += count(&|event| event.what == what);
        }
        done.iter().for_each(|done| *self.faults.entry(done.fault).or_default() += 1);
        self.polled.extend(rests.iter().map(|rest| (rest.client.clone(), rest.polled)));
        let broken = findings.iter().map(|finding| finding.promise);
        for promise in broken.chain(left.iter().map(|_| Promise::Residue)) {
            *self.findings.entry(promise).or_default() += 1;
        }
        left.iter().for_each(|sentence| println!("LEFT: {sentence}"));
        findings.iter().take(5).for_each(|finding| explain(finding, &events, &done));
    }
}

/// Prints the faults and the events around a finding.
fn explain(finding: &Finding, events: &[Event], done: &[Done]) {
    const AROUND: usize = 15;
    println!("{:?}: {}", finding.promise, finding.sentence);
    let (from, until) = (finding.from.saturating_sub(nanos(2 * SLACK)), finding.until + nanos(2 * SLACK));
    for fault in done.iter().filter(|done| done.from <= until && done.until >= from) {
        println!("  {fault:?}");
    }
    let of_lock: Vec<&Event> = events.iter().filter(|event| event.lock == finding.lock).collect();
    let place = of_lock.partition_point(|event| event.at < finding.from);
    for event in &of_lock[place.saturating_sub(AROUND)..(place + AROUND).min(of_lock.len())] {
        println!("  {} {} {} {:?}", event.at, event.pid, event.who, event.what);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("it is short")
}
