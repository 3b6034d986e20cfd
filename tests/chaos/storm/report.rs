//! What is printed: the failing seed, what was found, the smallest program, what happened; and the sum of it all.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::program::Program;
use crate::run::Outcome;
use crate::shrink::shrink;
use crate::{Kind, number};

/// How many of the last lines of the journal are shown.
const LINES: usize = 120;

/// The sum of all runs.
#[derive(Default)]
pub struct Sum {
    programs: u64,
    simulated: Duration,
    counts: BTreeMap<String, u64>,
}

impl Sum {
    pub fn add(&mut self, outcome: &Outcome) {
        self.programs += 1;
        self.simulated += outcome.simulated;
        for (what, count) in &outcome.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        let counts: Vec<_> = self.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
        write!(f, "storm: {} programs, {hours:.1} simulated hours; {}", self.programs, counts.join(", "))
    }
}

/// So that a run that hangs names its seed.
pub fn about(seed: u64) {
    if std::env::var_os("FAIRLOCK_STORM_VERBOSE").is_some() {
        eprintln!("storm: seed {seed}");
    }
}

/// Prints all of it and fails, if anything was found.
pub fn judge(kind: &Kind<'_>, program: &Program, outcome: Outcome) {
    if outcome.findings.is_empty() {
        return;
    }
    let seed = program.seed;
    println!(
        "storm: seed {seed} breaks a promise; alone: tests/chaos/storm/run{} --seed {seed}",
        kind.option
    );
    show(&outcome);
    let budget = number("FAIRLOCK_STORM_SHRINK").unwrap_or(30);
    let (smallest, outcome) = shrink(kind, program, outcome, Duration::from_secs(budget));
    println!("made smaller, from {} to {} calls and faults:\n{smallest}", program.size(), smallest.size());
    show(&outcome);
    let skipped = outcome.journal.len().saturating_sub(LINES);
    println!("what happened{}:", if skipped > 0 { ", at last" } else { "" });
    outcome.journal[skipped..].iter().for_each(|line| println!("{line}"));
    let first = outcome.findings.first().map(ToString::to_string);
    panic!("seed {seed} breaks a promise: {}", first.unwrap_or_default());
}

fn show(outcome: &Outcome) {
    for finding in outcome.findings.iter().take(5) {
        println!("  {finding}");
    }
}
