//! Workers take turns under faults, for as long as you like: `tests/chaos/faults/soak --minutes 120`.
//!
//! ```text
//! soak [--minutes N] [--acquisitions N] [--faults N] [--limit-minutes N] [--seed N] [--workers N] [--threads N]
//!      [--plant overlap|permits|token|order|gap|residue]
//! ```
//!
//! It runs until the minutes, acquisitions and faults are all reached. Reaching the limit first is a failure.
//! `--plant` makes one worker misbehave, which the run must find. The program starts `soak worker …` processes
//! itself.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use fairlock_tests::history::now_ns;
use fairlock_tests::soak::run::{Wanted, run};
use fairlock_tests::soak::worker::{Plant, work};
use fairlock_tests::word::variant;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["worker", url, threads, seed, plant] = words[..] {
        work(url, threads.parse()?, seed.parse()?, variant(&Plant::ALL, plant))?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = wanted(&words)?;
    let summary = run(&wanted);
    println!("{summary}");
    Ok(if summary.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wanted(words: &[&str]) -> Result<Wanted, Box<dyn Error>> {
    let mut wanted = Wanted {
        program: std::env::current_exe()?.to_string_lossy().into_owned(),
        seed: now_ns(),
        time: Duration::ZERO,
        acquisitions: 0,
        faults: 0,
        limit: Duration::MAX,
        plant: None,
        workers: (6, 4),
    };
    let minutes = |word: &str| word.parse::<u64>().map(|minutes| Duration::from_secs(60 * minutes));
    for pair in words.chunks(2) {
        match *pair {
            ["--minutes", value] => wanted.time = minutes(value)?,
            ["--acquisitions", value] => wanted.acquisitions = value.parse()?,
            ["--faults", value] => wanted.faults = value.parse()?,
            ["--limit-minutes", value] => wanted.limit = minutes(value)?,
            ["--seed", value] => wanted.seed = value.parse()?,
            ["--workers", value] => wanted.workers.0 = value.parse()?,
            ["--threads", value] => wanted.workers.1 = value.parse()?,
            ["--plant", value] => {
                wanted.plant =
                    Some(variant(&Plant::ALL, value).map(|_| value.to_owned()).ok_or("no such plant")?)
            }
            _ => return Err(format!("not understood: {}", pair.join(" ")).into()),
        }
    }
    Ok(wanted)
}
