//! The faults of a run by its seed, the table of what they led to, and the control.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_tests::soak::Dice;

use crate::Wanted;
use crate::deployment::Deployment;
use crate::faults::MENU;
use crate::judge::Verdict;
use crate::round::{self, Cell};
use crate::setting::Setting;

/// From so many rounds on, each fault of the control must have led to an overlap.
const JUDGED_ALONE: usize = 5;
/// How many overlaps of a round are printed.
const SHOWN: usize = 3;

/// What all rounds of one cell led to.
#[derive(Clone, Debug, Default)]
struct Row {
    rounds: usize,
    /// The rounds in which holds overlapped.
    overlapping: usize,
    overlaps: usize,
    longest_overlap: Duration,
    longest_gap: Duration,
    findings: usize,
}

impl Row {
    fn add(&mut self, verdict: &Verdict) {
        self.rounds += 1;
        self.overlapping += usize::from(!verdict.overlaps.is_empty());
        self.overlaps += verdict.overlaps.len();
        let longest = verdict.overlaps.iter().map(|overlap| overlap.lasted).max().unwrap_or_default();
        self.longest_overlap = self.longest_overlap.max(longest);
        self.longest_gap = self.longest_gap.max(verdict.longest_gap);
        self.findings += verdict.findings.len();
    }
}

/// Runs all rounds and prints the table. Returns whether nothing was found and the control saw what it must.
pub(crate) fn run(wanted: &Wanted, program: &str) -> Result<bool, Box<dyn Error>> {
    let cells = cells(wanted);
    if cells.is_empty() {
        return Err("no fault of that name there".into());
    }
    let started = Instant::now();
    let base = std::env::temp_dir().join(format!("fairlock-failover-{}", std::process::id()));
    let mut rows: BTreeMap<Cell, Row> = BTreeMap::new();
    let start = |cell: &Cell| {
        let kind = cell.kind;
        thread::spawn(move || Deployment::start(kind))
    };
    // The next deployment starts during a round.
    let mut next = cells.first().map(start);
    for (number, cell) in cells.iter().enumerate() {
        let mut all =
            next.take().expect("it was started").join().map_err(|_| "a deployment does not start")?;
        while all.master() != Some(0) {
            println!(
                "{number}: the machine stood still, and server 0 was replaced before the round: another start"
            );
            all = Deployment::start(cell.kind);
        }
        next = cells.get(number + 1).map(start);
        let dir = base.join(number.to_string());
        let verdict = round::run(*cell, &all, program, &dir);
        drop(all);
        rows.entry(*cell).or_default().add(&verdict);
        let Cell { kind, fault, setting } = cell;
        let Verdict { overlaps, longest_gap, grants, findings } = &verdict;
        println!(
            "{number}: {kind} {fault} {setting}: {} overlaps, no lock for {}, {grants} grants, {} s",
            overlaps.len(),
            seconds(*longest_gap),
            started.elapsed().as_secs()
        );
        if fault.is_safe(*setting) && !overlaps.is_empty() {
            println!("  FOUND: holds overlapped, and with {setting} they must not");
        }
        overlaps.iter().take(SHOWN).for_each(|overlap| println!("  {}", overlap.sentence));
        findings.iter().for_each(|finding| println!("  FOUND: {finding}"));
        if findings.is_empty() {
            fs::remove_dir_all(&dir)?;
        } else {
            println!("  the histories are in {}", dir.display());
        }
    }
    // Fails if histories were kept.
    let _ = fs::remove_dir(&base);
    print(&rows);
    let findings: usize = rows.values().map(|row| row.findings).sum();
    let unsafe_cells =
        rows.iter().filter(|(cell, row)| cell.fault.is_safe(cell.setting) && row.overlapping > 0).count();
    let findings = findings + unsafe_cells;
    println!("seed {}: {} faults, {findings} findings", wanted.seed, cells.len());
    Ok(control_is_fine(&rows) && findings == 0)
}

/// The same faults with each setting: all of the menu in an order by the seed, then again.
fn cells(wanted: &Wanted) -> Vec<Cell> {
    let mut dice = Dice::new(wanted.seed);
    let mut menu = MENU.to_vec();
    menu.retain(|(kind, fault)| {
        wanted.on.is_none_or(|on| on == *kind)
            && wanted.only.as_ref().is_none_or(|only| *only == fault.to_string())
    });
    let mut faults = Vec::new();
    while faults.len() < wanted.kills && !menu.is_empty() {
        let mut left = menu.clone();
        while !left.is_empty() && faults.len() < wanted.kills {
            faults.push(left.swap_remove(dice.index(left.len())));
        }
    }
    let with = |setting: &Setting| {
        let setting = *setting;
        faults.clone().into_iter().map(move |(kind, fault)| Cell { kind, fault, setting })
    };
    wanted
        .settings
        .iter()
        .flat_map(with)
        .filter(|cell| cell.fault.is_possible(cell.kind, cell.setting))
        .collect()
}

fn print(rows: &BTreeMap<Cell, Row>) {
    println!(
        "\n| servers | fault | setting | rounds | with overlaps | overlaps | longest overlap | longest time without a grant |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (Cell { kind, fault, setting }, row) in rows {
        let Row { rounds, overlapping, overlaps, longest_overlap, longest_gap, .. } = row;
        println!(
            "| {kind} | {fault} | {setting} | {rounds} | {overlapping} | {overlaps} | {} | {} |",
            seconds(*longest_overlap),
            seconds(*longest_gap)
        );
    }
    println!();
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Without a protection, holds overlap under the faults of the control: a run that does not see it proves nothing. A
/// fail-over may take longer than the rest of a lease, so a fault is judged alone from some rounds on.
fn control_is_fine(rows: &BTreeMap<Cell, Row>) -> bool {
    let control: Vec<(&Cell, &Row)> = rows
        .iter()
        .filter(|(cell, _)| cell.setting == Setting::None && cell.fault.is_control(cell.kind))
        .collect();
    let sees_any = control.is_empty() || control.iter().any(|(_, row)| row.overlapping > 0);
    if !sees_any {
        println!("CONTROL: no holds overlapped, and without a protection they must");
    }
    let is_blind = |row: &Row| row.rounds >= JUDGED_ALONE && row.overlapping == 0;
    let mut sees_each = true;
    for (Cell { kind, fault, .. }, Row { rounds, .. }) in control.into_iter().filter(|(_, row)| is_blind(row))
    {
        println!(
            "CONTROL: no holds overlapped in {rounds} rounds of {kind} {fault}, and without a protection they must"
        );
        sees_each = false;
    }
    sees_any && sees_each
}
