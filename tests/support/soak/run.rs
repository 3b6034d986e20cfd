//! Rounds until the targets are reached, and the summary.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::nemesis::{CALM, Done, Fault, Nemesis, by_kind};
use super::remains::{self, Peaks};
use super::verdict::{Finding, Kind, judge};
use super::{Dice, SLACK};
use crate::RedisServer;
use crate::history::{Event, What, read};

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
    pub acquisitions: u64,
    /// Grants in the calm of each round.
    pub in_peace: u64,
    /// The number of rounds.
    pub rounds: u64,
    /// The injected faults.
    pub faults: BTreeMap<Fault, u64>,
    /// The findings, by promise.
    pub findings: BTreeMap<Kind, u64>,
    /// Sentences about what was left behind.
    pub residue: u64,
    /// Holds that were lost, as their holders report.
    pub lost: u64,
    /// Calls without an answer.
    pub unknown: u64,
    /// Calls that ended without the lock.
    pub failed: u64,
    /// Grants found by polling, of each client that came to rest.
    pub polled: BTreeMap<String, u64>,
    /// The highest usage of a worker.
    pub peaks: Peaks,
    /// Errors that ended the run.
    pub missing: Vec<String>,
}

impl Summary {
    /// Whether all targets were reached without a finding.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.residue == 0 && self.missing.is_empty()
    }

    fn count(&self, kind: Kind) -> u64 {
        self.findings.get(&kind).copied().unwrap_or(0)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        let kinds: Vec<String> =
            self.faults.iter().map(|(fault, count)| format!("{fault:?} {count}")).collect();
        let rate = self.in_peace / (self.rounds * CALM.as_secs()).max(1);
        writeln!(f, "acquisitions {}, {rate} a second in peace", self.acquisitions)?;
        writeln!(f, "faults {faults}: {}", kinds.join(", "))?;
        writeln!(
            f,
            "overlaps {}, inversions {}, lost wake-ups {}, tokens that did not grow {}, stuck {}, late calls {}",
            self.count(Kind::Overlap),
            self.count(Kind::Inversion),
            self.count(Kind::LostWakeUp),
            self.count(Kind::Token),
            self.count(Kind::Stuck),
            self.count(Kind::Call)
        )?;
        writeln!(f, "residue {}", self.residue)?;
        writeln!(
            f,
            "told: holds lost {}, no answer {}, without the lock {}; found by polling {}",
            self.lost,
            self.unknown,
            self.failed,
            self.polled.values().sum::<u64>()
        )?;
        let Peaks { memory, threads, descriptors } = self.peaks;
        write!(
            f,
            "peak of a worker: memory {} MB, threads {threads}, descriptors {descriptors}",
            memory / 1024
        )?;
        self.missing.iter().try_for_each(|missing| write!(f, "\nMISSING: {missing}"))
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
    let mut replays = 0;
    for number in 0.. {
        let faults: u64 = summary.faults.values().sum();
        let enough = summary.acquisitions >= wanted.acquisitions && faults >= wanted.faults;
        if number > 0 && enough && started.elapsed() >= wanted.time {
            break;
        }
        if started.elapsed() >= wanted.limit {
            summary.missing.push(format!(
                "after {:?}: {} acquisitions of {}, {faults} faults of {}",
                wanted.limit, summary.acquisitions, wanted.acquisitions, wanted.faults
            ));
            break;
        }
        let dir = base.join(number.to_string());
        fs::create_dir_all(&dir).expect("a dir can be made");
        let found = round(&server, &mut crew, &mut dice, &dir, &mut summary, &mut replays);
        println!(
            "round {number}: {} acquisitions so far, {} s",
            summary.acquisitions,
            started.elapsed().as_secs()
        );
        if found {
            println!("FOUND with seed {}; the histories are in {}", wanted.seed, dir.display());
            return summary;
        }
        fs::remove_dir_all(&dir).expect("our own dir can be removed");
    }
    let _ = fs::remove_dir(&base);
    summary
}

/// One round; returns whether anything was found.
fn round(
    server: &RedisServer,
    crew: &mut Crew,
    dice: &mut Dice,
    dir: &Path,
    summary: &mut Summary,
    replays: &mut u64,
) -> bool {
    crew.go(dir);
    let (done, gone) = {
        let mut nemesis = Nemesis::new(server, crew, dir);
        nemesis.rage(dice, Duration::from_secs(10));
        *replays += nemesis.replays;
        (nemesis.done, nemesis.gone)
    };
    // Calm before the end.
    std::thread::sleep(CALM); // the run itself
    let (peaks, mut sentences) = remains::excess(crew);
    summary.peaks = summary.peaks.or(peaks);
    let (rests, hung) = crew.rest();
    sentences.extend(hung);
    if sentences.is_empty() {
        sentences.extend(remains::residue(server, &rests, *replays));
    }
    let mut events = gone;
    for file in files(dir) {
        events.extend(read(&file).expect("a history can be read"));
    }
    events.sort_by_key(|event| (event.at, event.what));
    let (acquisitions, findings) = judge(&events, &done);
    summary.acquisitions += acquisitions;
    for (fault, count) in by_kind(&done) {
        *summary.faults.entry(fault).or_insert(0) += count;
    }
    let first = events.first().map_or(0, |event| event.at);
    let calm = first + u64::try_from(CALM.as_nanos()).expect("it is short");
    let granted = |event: &&Event| matches!(event.what, What::Granted { .. }) && event.at < calm;
    summary.in_peace += events.iter().filter(granted).count() as u64;
    summary.rounds += 1;
    let told = |what: What| events.iter().filter(|event| event.what == what).count() as u64;
    summary.lost += told(What::Lost);
    summary.unknown += told(What::Unknown);
    summary.failed += told(What::Failed);
    summary.polled.extend(rests.iter().map(|rest| (rest.client.clone(), rest.polled)));
    summary.residue += sentences.len() as u64;
    for finding in &findings {
        *summary.findings.entry(finding.kind).or_insert(0) += 1;
    }
    for sentence in &sentences {
        println!("LEFT: {sentence}");
    }
    for finding in findings.iter().take(5) {
        explain(finding, &events, &done);
    }
    !sentences.is_empty() || !findings.is_empty()
}

/// Prints the events around a finding.
fn explain(finding: &Finding, events: &[Event], done: &[Done]) {
    const AROUND: usize = 15;
    println!("{:?}: {}", finding.kind, finding.sentence);
    let margin = u64::try_from((2 * SLACK).as_nanos()).expect("it is short");
    for done in
        done.iter().filter(|done| done.from <= finding.at + margin && done.until + margin >= finding.at)
    {
        println!("  fault {:?} {:?} from {} until {}", done.fault, done.whom, done.from, done.until);
    }
    let of_lock: Vec<&Event> = events.iter().filter(|event| event.lock == finding.lock).collect();
    let place = of_lock.partition_point(|event| event.at < finding.at);
    for event in &of_lock[place.saturating_sub(AROUND)..(place + AROUND).min(of_lock.len())] {
        println!("  {} {} {} {:?}", event.at, event.pid, event.who, event.what);
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("our own dir can be read");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
