//! Servers that fail over, under real faults, while workers of several processes hold locks: `tests/failover/run`.
//!
//! ```text
//! failover [--kills N] [--seed N] [--setting none|replicas|life|all] [--only FAULT] [--on sentinels|cluster]
//! failover --order [--fail-overs N] [--waiters N] [--seed N] [--setting none|replicas|life]
//! ```
//!
//! | file | topic |
//! | --- | --- |
//! | `network.rs` | gates in front of all servers: each link can be cut and delayed |
//! | `deployment.rs` | a master with replicas and sentinels, or a cluster, behind gates |
//! | `faults.rs` | what is done to them |
//! | `setting.rs` | the clients' setting, and all times |
//! | `worker.rs`, `crowd.rs` | the processes that hold and wait |
//! | `round.rs`, `judge.rs` | one fault, and what the workers believed |
//! | `schedule.rs` | faults by the seed, the table, and the control |
//! | `order.rs` | the order of the waiters over many fail-overs |
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken run ends with a message"
)]

mod crowd;
mod deployment;
mod faults;
mod judge;
mod network;
mod order;
mod round;
mod schedule;
mod setting;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use fairlock_tests::history::now_ns;

use crate::deployment::Kind;
use crate::setting::Setting;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["worker", rest @ ..] = &words[..] {
        worker::work(rest)?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = Wanted::parse(&words)?;
    println!("seed {}", wanted.seed);
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let is_clean =
        if wanted.order { order::run(&wanted, &program) } else { schedule::run(&wanted, &program)? };
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arguments.
#[derive(Clone, Debug)]
struct Wanted {
    seed: u64,
    /// The faults with each setting.
    kills: usize,
    settings: Vec<Setting>,
    only: Option<String>,
    on: Option<Kind>,
    /// The test of the order, instead of the faults.
    order: bool,
    fail_overs: usize,
    waiters: usize,
}

impl Wanted {
    fn parse(words: &[&str]) -> Result<Wanted, Box<dyn Error>> {
        let mut wanted = Wanted {
            seed: now_ns(),
            kills: 20,
            settings: vec![Setting::None],
            only: None,
            on: None,
            order: false,
            fail_overs: 100,
            waiters: 50,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match *word {
                "--order" => wanted.order = true,
                "--seed" => wanted.seed = value()?.parse()?,
                "--kills" => wanted.kills = value()?.parse()?,
                "--fail-overs" => wanted.fail_overs = value()?.parse()?,
                "--waiters" => wanted.waiters = value()?.parse()?,
                "--only" => wanted.only = Some((*value()?).to_owned()),
                "--on" => {
                    wanted.on = match *value()? {
                        "sentinels" => Some(Kind::Sentinels),
                        "cluster" => Some(Kind::Cluster),
                        _ => return Err("--on is for sentinels or cluster".into()),
                    }
                }
                "--setting" => {
                    wanted.settings = match *value()? {
                        "all" => vec![Setting::None, Setting::Replicas, Setting::Life],
                        setting => vec![Setting::parse(setting).ok_or("no such setting")?],
                    }
                }
                _ => return Err(format!("not understood: {word}").into()),
            }
        }
        Ok(wanted)
    }
}
