//! The faults of a run by its seed, the table of what they led to, and the control.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fairlock_tests::dice::Dice;
use fairlock_tests::word::word;

use crate::Wanted;
use crate::clocks::Clock;
use crate::deployment::{Deployment, Kind, Servers};
use crate::faults::{Fault, MENU};
use crate::judge::Verdict;
use crate::postgres::Pair;
use crate::round::{self, Cell};
use crate::setting::{LEASE, PLACE, SLACK, Setting};
use crate::side_by_side::{Watch, caught, each};

/// From this many rounds on, the control must have led to an overlap, however slow they were.
const JUDGED: usize = 20;
/// From this many quick rounds on, each fault of the control must have led to an overlap, and so must each kind of lock.
const JUDGED_ALONE: usize = 5;
/// A round whose servers granted no lock for longer than this had no room for an overlap: the holder believes for a lease, and
/// a queue that was lost rests for a place's time.
const ROOM: Duration = LEASE.saturating_sub(PLACE.saturating_mul(2));
/// On PostgreSQL, how many rounds follow one of the control.
const CONTROL: usize = 10;
/// How many overlaps of a round are printed.
const SHOWN: usize = 3;

/// What all rounds of one cell led to.
#[derive(Clone, Debug, Default)]
struct Row {
    rounds: usize,
    /// Of these, the rounds in which the machine stood still for long.
    disturbed: usize,
    /// The rounds in which locks were granted again while the first holder still believed.
    quick: usize,
    /// The rounds in which holds overlapped.
    overlapping: usize,
    overlaps: usize,
    longest_overlap: Duration,
    longest_gap: Duration,
    findings: usize,
}

impl Row {
    fn add(&mut self, cell: Cell, ended: &Ended) {
        self.rounds += 1;
        self.disturbed += usize::from(ended.is_disturbed());
        self.findings += ended.findings(cell).len();
        let Ok(verdict) = &ended.verdict else { return };
        // On PostgreSQL the holder goes on at the old primary.
        self.quick += usize::from(verdict.longest_gap < ROOM || cell.kind == Kind::Postgres);
        self.overlapping += usize::from(!verdict.overlaps.is_empty());
        self.overlaps += verdict.overlaps.len();
        let longest = verdict.overlaps.iter().map(|overlap| overlap.lasted()).max().unwrap_or_default();
        self.longest_overlap = self.longest_overlap.max(longest);
        self.longest_gap = self.longest_gap.max(verdict.longest_gap);
    }
}

/// Runs all rounds and prints the table. Returns whether nothing was found and the control saw what it must.
pub(crate) fn run(wanted: &Wanted, program: &str) -> Result<bool, Box<dyn Error>> {
    let rounds = rounds(wanted);
    if rounds.is_empty() {
        return Err("no fault of that name there".into());
    }
    let (started, watch) = (Instant::now(), Watch::start());
    let base = std::env::temp_dir().join(format!("fairlock-failover-{}", std::process::id()));
    let rows: Mutex<BTreeMap<Cell, Row>> = Mutex::default();
    each(&rounds, wanted, |number, (cell, clock)| {
        let (began, dir) = (Instant::now(), base.join(number.to_string()));
        let verdict = caught(|| {
            loop {
                // The histories of a round that is made once more.
                let _ = fs::remove_dir_all(&dir);
                let all: Box<dyn Servers> = match cell.kind {
                    Kind::Postgres => Box::new(Pair::start(*cell, number)),
                    kind => Box::new(Deployment::start(kind)),
                };
                if let Some(verdict) = round::run(*cell, &*all, *clock, program, &dir) {
                    return verdict;
                }
                println!(
                    "{number}: the machine stood still, and server 0 was replaced before the fault: once more"
                );
            }
        });
        let stood = watch.stood_still_since(began);
        let ended = Ended { verdict, stood, took: began.elapsed() };
        rows.lock().unwrap_or_else(PoisonError::into_inner).entry(*cell).or_default().add(*cell, &ended);
        // In one piece: other rounds print as well.
        let mut report = ended.report(number, *cell, *clock);
        if ended.findings(*cell).is_empty() {
            // It may never have been made.
            let _ = fs::remove_dir_all(&dir);
        } else {
            report += &format!("  the histories are in {}\n", dir.display());
        }
        print!("{report}");
    });
    // Fails if histories were kept.
    let _ = fs::remove_dir(&base);
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    print(&rows);
    let findings: usize = rows.values().map(|row| row.findings).sum();
    let done: usize = rows.values().map(|row| row.rounds).sum();
    println!(
        "seed {}: {done} of {} rounds, {findings} findings, {} s",
        wanted.seed,
        rounds.len(),
        started.elapsed().as_secs()
    );
    Ok(control_is_fine(&rows) && findings == 0)
}

/// A round that has ended.
#[derive(Debug)]
struct Ended {
    /// Or why it broke off.
    verdict: Result<Verdict, String>,
    /// For how long the machine stood still meanwhile, in all.
    stood: Duration,
    took: Duration,
}

impl Ended {
    /// Whether the machine stood still too long for a call's bound, or a fail-over's time.
    fn is_disturbed(&self) -> bool {
        self.stood >= SLACK
    }

    /// Whether holds must not overlap. A further master that was deposed is its own fault.
    fn is_safe(&self, cell: Cell) -> bool {
        let is_deposed = self.verdict.as_ref().is_ok_and(|verdict| verdict.deposed);
        !cell.setting.is_control() && (cell.setting == Setting::Durable || !is_deposed)
    }

    /// A sentence for each thing that must not be. No stall makes holds overlap, or tokens fall.
    fn findings(&self, cell: Cell) -> Vec<String> {
        let mut found = Vec::new();
        match &self.verdict {
            Ok(Verdict { overlaps, findings, late, .. }) => {
                if self.is_safe(cell) && !overlaps.is_empty() {
                    found.push(format!("holds overlapped, and with {} they must not", word(&cell.setting)));
                }
                found.extend(findings.iter().cloned());
                found.extend(late.iter().filter(|_| !self.is_disturbed()).cloned());
            }
            Err(_) if self.is_disturbed() => {}
            Err(message) => found.push(format!("the round broke off: {message}")),
        }
        found
    }

    fn report(&self, number: usize, cell: Cell, clock: Option<Clock>) -> String {
        let Cell { kind, fault, held, setting } = cell;
        let clock = clock.map(|clock| format!(", clock {clock}")).unwrap_or_default();
        let names = [word(&kind), word(&fault), word(&held), word(&setting)].join(" ");
        let mut report = format!("{number}: {names}{clock}: ");
        match &self.verdict {
            Ok(Verdict { overlaps, longest_gap, grants, deposed, .. }) => {
                if *deposed {
                    report += "a further fail-over, ";
                }
                report += &format!(
                    "{} overlaps, no lock for {}, {grants} grants",
                    overlaps.len(),
                    seconds(*longest_gap)
                );
            }
            Err(message) => report += &format!("broke off: {message}"),
        }
        report += &format!(", took {}, stood still for {}\n", seconds(self.took), seconds(self.stood));
        let overlaps = self.verdict.iter().flat_map(|verdict| verdict.overlaps.iter().take(SHOWN));
        overlaps.for_each(|overlap| report += &format!("  {}\n", overlap.sentence));
        self.findings(cell).iter().for_each(|finding| report += &format!("  FOUND: {finding}\n"));
        report
    }
}

/// Each fault with each setting: all of the menu in an order by the seed, then again. What is held takes turns, so that a fault that is
/// drawn again has another kind. With wrong clocks, each round with one.
fn rounds(wanted: &Wanted) -> Vec<(Cell, Option<Clock>)> {
    let mut dice = Dice::new(wanted.seed);
    let mut menu = MENU.to_vec();
    menu.retain(|(kind, fault)| {
        wanted.on.map_or(*kind != Kind::Postgres, |on| on == *kind)
            && (wanted.only.is_empty() || wanted.only.contains(&word(fault)))
    });
    let mut faults = Vec::new();
    for pass in 0.. {
        let mut left: Vec<_> = menu.iter().enumerate().collect();
        while !left.is_empty() && faults.len() < wanted.kills {
            let (place, fault) = left.swap_remove(dice.index(left.len()));
            faults.push((pass + place, *fault));
        }
        if faults.len() == wanted.kills || menu.is_empty() {
            break;
        }
    }
    let first = dice.index(wanted.held.len());
    let controls: Vec<_> = menu.iter().filter(|(kind, fault)| fault.is_control(*kind)).collect();
    let mut cells = Vec::new();
    for (number, (turn, (kind, fault))) in faults.into_iter().enumerate() {
        let held = wanted.held[(first + turn) % wanted.held.len()];
        if kind != Kind::Postgres {
            cells.extend(wanted.settings.iter().map(|setting| Cell { kind, fault, held, setting: *setting }));
            continue;
        }
        if number % CONTROL == 0 && !controls.is_empty() {
            let (_, fault) = *controls[number / CONTROL % controls.len()];
            cells.push(Cell { kind, fault, held, setting: Setting::Asynchronous });
        }
        cells.push(Cell { kind, fault, held, setting: Setting::Synchronous });
    }
    let mut clock_of = |cell: &Cell| {
        let clock = Clock::pick(&mut dice);
        // Forgetful sentinels take most of a minute.
        let is_long = matches!(cell.fault, Fault::SentinelForgets | Fault::SentinelsForget);
        if is_long { clock.at_the_usual_rate() } else { clock }
    };
    cells.into_iter().map(|cell| (cell, wanted.clocks.then(|| clock_of(&cell)))).collect()
}

fn print(rows: &BTreeMap<Cell, Row>) {
    println!(
        "\n| servers | fault | held | setting | rounds | disturbed | quick | with overlaps | overlaps | longest overlap | longest time without a grant |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (Cell { kind, fault, held, setting }, row) in rows {
        let names = [word(kind), word(fault), word(held), word(setting)];
        let counts = [row.rounds, row.disturbed, row.quick, row.overlapping, row.overlaps];
        let times = [row.longest_overlap, row.longest_gap].map(seconds);
        let counts = counts.map(|count| count.to_string());
        println!("| {} |", [&names[..], &counts, &times].concat().join(" | "));
    }
    println!();
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Without a protection, holds overlap under the faults of the control: a run that does not see it proves nothing. On a machine
/// that stands still a fail-over takes longer than the rest of a lease, so only quick rounds count, and a fault is judged alone
/// from some of them on.
fn control_is_fine(rows: &BTreeMap<Cell, Row>) -> bool {
    let control: Vec<(&Cell, &Row)> = rows
        .iter()
        .filter(|(cell, _)| cell.setting.is_control() && cell.fault.is_control(cell.kind))
        .collect();
    let (rounds, quick) =
        control.iter().fold((0, 0), |(rounds, quick), (_, row)| (rounds + row.rounds, quick + row.quick));
    let overlapped = control.iter().any(|(_, row)| row.overlapping > 0);
    if rounds > 0 && !overlapped {
        println!("CONTROL: no holds overlapped in {rounds} rounds, of which {quick} had room for it");
    }
    // A few slow rounds say nothing of the control.
    let sees_any = rounds == 0 || overlapped || quick == 0 && rounds < JUDGED;
    let mut parts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (Cell { kind, fault, held, .. }, row) in control {
        for part in [format!("{} {}", word(kind), word(fault)), word(held)] {
            let [quick, overlapping] = parts.entry(part).or_default();
            *quick += row.quick;
            *overlapping += row.overlapping;
        }
    }
    parts.retain(|_, [quick, overlapping]| *quick >= JUDGED_ALONE && *overlapping == 0);
    for (part, [quick, _]) in &parts {
        println!(
            "CONTROL: no holds overlapped in {quick} quick rounds of {part}, and without a protection they must"
        );
    }
    sees_any && parts.is_empty()
}
