//! Models of fairlock's rules, and their checks. `fairlock-model/run NAME…` runs the checks whose names contain one of these;
//! `--whole`: each in every state.
//!
//! | folder | what it has |
//! | --- | --- |
//! | `queue` | the model of one server's queue |
//! | `fail_over` | the model of several servers that may forget |
//! | `checks` | the checks of both |
//! | `ranks` | numbers of which only the order counts |

mod checks;
mod fail_over;
mod queue;
mod ranks;

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).filter(|word| word != checks::WHOLE).collect();
    let mut checks = checks::queue::all();
    checks.extend(checks::fail_over::all());
    checks.retain(|check| names.is_empty() || names.iter().any(|name| check.name.contains(name)));
    let (all, is_one) = (checks.len(), checks.len() == 1);
    let (checks, failed) = (Mutex::new(checks.into_iter()), Mutex::new(Vec::new()));
    let next = || checks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(check) = next() {
            match (check.run)() {
                Ok((seen, path)) if is_one => println!("{seen}\n{path}"),
                Ok((seen, _)) => println!("{seen}"),
                Err(what) => {
                    println!("FAILED: {}: {what}", check.name);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).push(check.name);
                }
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(run)));
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} checks passed, {} failed", all - failed.len(), failed.len());
    failed.iter().for_each(|name| println!("failed: {name}"));
    if failed.is_empty() && all > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
