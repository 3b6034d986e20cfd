//! The worker for fairlock, the baselines and the peers in Rust. It does what `bench/drive/workloads.py` asks.
//!
//! ```text
//! worker PEER MODE NAME COUNT SECONDS HOLD_MS LEASE_MS WARM_SECONDS
//! worker memory SECONDS
//! worker memory-alone SECONDS
//! ```

mod fair;
mod memory;
mod peer;
mod raw;
mod recorded;
mod rs_lock;
mod say;
mod steps;
mod workload;

use std::error::Error;

use workload::Order;

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["memory", seconds] = words[..] {
        return memory::run(seconds.parse()?);
    }
    if let ["memory-alone", seconds] = words[..] {
        return memory::alone(seconds.parse()?);
    }
    let [peer, mode, name, count, seconds, hold, lease, warm] = words[..] else {
        return Err("see the usage in bench/src/main.rs".into());
    };
    let order = Order::new(mode, name, [count, seconds, hold, lease, warm])?;
    let url = redis_url()?;
    match peer {
        "fairlock" if mode == "steps" => steps::run(&url, &order)?,
        "fairlock" => workload::run(&fair::Fair::connect(&url, &order)?, &order)?,
        "rslock" => workload::run(&rs_lock::RsLock::connect(&url, &order)?, &order)?,
        "raw-ping" | "raw-scripts" | "raw-setnx" => {
            workload::run(&&raw::Raw::new(peer, &url, &order)?, &order)?
        }
        "raw-push" => raw::push(&url, &order)?,
        _ => return Err(format!("no peer {peer}").into()),
    }
    std::process::exit(0) // as in the other workers: waiting threads don't matter
}

fn redis_url() -> Outcome<String> {
    Ok(std::env::var("BENCH_REDIS")?)
}
