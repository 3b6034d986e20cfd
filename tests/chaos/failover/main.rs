//! Servers that fail over, under real faults, while workers of several processes hold locks: `tests/chaos/failover/run`.
//!
//! ```text
//! failover [--kills N] [--seed N] [--setting none,durable|all] [--only FAULT,FAULT] [--on sentinels|cluster|postgres] [--clocks]
//!          [--held fair,rw,semaphore,lock-all] [--at-once N] [--minutes N]
//! ```
//!
//! | file | topic |
//! | --- | --- |
//! | `network.rs` | gates in front of all servers: each link can be cut and delayed |
//! | `deployment.rs` | a master with replicas and sentinels, or a cluster, behind gates |
//! | `faults.rs` | what is done to them |
//! | `clocks.rs` | wrong clocks of the servers that follow |
//! | `setting.rs` | the clients' setting, and all times |
//! | `worker.rs` | the processes that hold and wait |
//! | `held.rs`, `kept.rs` | what they hold, and what a server knows of it |
//! | `round.rs`, `judge.rs` | one fault, and what the workers believed |
//! | `schedule.rs` | faults by the seed, the table, and the control |
//! | `side_by_side.rs` | rounds at the same time, and a machine that stands still |
//! | `postgres.rs` | a primary and its standby |
#![forbid(unsafe_code)]

mod clocks;
mod deployment;
mod faults;
mod held;
mod judge;
mod kept;
mod network;
mod postgres;
mod round;
mod schedule;
mod setting;
mod side_by_side;
mod worker;

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use fairlock_tests::history::now_ns;
use fairlock_tests::word::variant;

use crate::deployment::Kind;
use crate::held::Held;
use crate::setting::Setting;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["worker", rest @ ..] = &words[..] {
        return worker::work(rest).map(|()| ExitCode::SUCCESS);
    }
    let wanted = Wanted::parse(&words)?;
    println!("seed {}", wanted.seed);
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    Ok(if schedule::run(&wanted, &program)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arguments.
#[derive(Clone, Debug)]
struct Wanted {
    seed: u64,
    /// The faults with each setting.
    kills: usize,
    settings: Vec<Setting>,
    /// These faults; all if there are none.
    only: Vec<String>,
    on: Option<Kind>,
    /// What is held, in turns.
    held: Vec<Held>,
    /// With each fault the clock of the server that follows is wrong.
    clocks: bool,
    /// How many rounds run at the same time; two a core.
    at_once: usize,
    /// No round begins later.
    time: Option<Duration>,
}

impl Wanted {
    fn parse(words: &[&str]) -> Result<Wanted, Box<dyn Error>> {
        let mut wanted = Wanted {
            seed: now_ns(),
            kills: 20,
            settings: vec![Setting::None],
            only: Vec::new(),
            on: None,
            held: Held::ALL.to_vec(),
            clocks: false,
            at_once: 2 * thread::available_parallelism()?.get(),
            time: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match *word {
                "--seed" => wanted.seed = value()?.parse()?,
                "--kills" => wanted.kills = value()?.parse()?,
                "--only" => wanted.only = value()?.split(',').map(str::to_owned).collect(),
                "--at-once" => wanted.at_once = value()?.parse::<NonZeroUsize>()?.get(),
                "--minutes" => wanted.time = Some(Duration::from_secs(60 * value()?.parse::<u64>()?)),
                "--clocks" => wanted.clocks = true,
                "--on" => {
                    let kinds = [Kind::Sentinels, Kind::Cluster, Kind::Postgres];
                    wanted.on = Some(variant(&kinds, value()?).ok_or("no such servers")?);
                }
                "--held" => wanted.held = variants(&Held::ALL, value()?)?,
                "--setting" => wanted.settings = variants(&Setting::OF_REDIS, value()?)?,
                _ => return Err(format!("not understood: {word}").into()),
            }
        }
        Ok(wanted)
    }
}

/// Those of these names, or all.
fn variants<T: Copy + fmt::Debug>(all: &[T], words: &str) -> Result<Vec<T>, String> {
    if words == "all" {
        return Ok(all.to_vec());
    }
    words.split(',').map(|word| variant(all, word).ok_or(format!("none of {all:?}: {word}"))).collect()
}
