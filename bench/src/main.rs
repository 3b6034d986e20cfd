//! The worker for fairlock, the baselines and the peers in Rust. It does what `bench/drive/workloads.py` asks.
//!
//! ```text
//! worker PEER MODE NAME COUNT SECONDS HOLD_MS LEASE_MS WARM_SECONDS
//! worker postgres-tables URL
//! worker file ROUNDS
//! ```

mod fair;
mod file;
mod peer;
#[cfg(feature = "postgres")]
mod postgres;
mod raw;
mod recorded;
mod say;
mod shared;
mod steps;
mod tasks;
mod workload;

use std::error::Error;

use fairlock::settings::Durability;
use workload::Order;

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["file", rounds] = words[..] {
        return file::run(rounds.parse()?);
    }
    if let ["file-partner", peer, dir] = words[..] {
        return file::partner(peer, dir.as_ref());
    }
    #[cfg(feature = "postgres")]
    if let ["postgres-tables", url] = words[..] {
        fairlock::PostgresBackend::migrate(url)?;
        return postgres::make_table(url);
    }
    let [peer, mode, name, count, seconds, hold, lease, warm] = words[..] else {
        return Err("see the usage in bench/src/main.rs".into());
    };
    let order = Order::new(mode, name, [count, seconds, hold, lease, warm])?;
    #[cfg(feature = "postgres")]
    if let Some(peer) = peer.strip_prefix("postgres-") {
        return on_postgres(peer, &order);
    }
    let url = redis_url()?;
    match peer {
        "memory" => {
            let client = fairlock::Client::new(fairlock::MemoryBackend::new())?;
            workload::run(&fair::Fair(client), &order)?
        }
        "fairlock" if mode.starts_with("steps") => steps::run(&url, &order)?,
        "fairlock" => workload::run(&fair::Fair::connect(&url, &order, None)?, &order)?,
        "fairlock-life" => {
            workload::run(&fair::Fair::connect(&url, &order, Some(Durability::default()))?, &order)?
        }
        "fairlock-quorum" => {
            let sentinels = std::env::var("BENCH_SENTINELS")?;
            workload::run(&fair::Fair::connect(&sentinels, &order, Some(Durability::default()))?, &order)?
        }
        "fairlock-rw" => {
            workload::run(&shared::ReadWrite(fair::Fair::connect(&url, &order, None)?.0), &order)?
        }
        "fairlock-permits" => {
            workload::run(&shared::Permits(fair::Fair::connect(&url, &order, None)?.0), &order)?
        }
        "raw-ping" | "raw-scripts" | "raw-setnx" => {
            workload::run(&&raw::Raw::new(peer, &url, &order)?, &order)?
        }
        "raw-push" => raw::push(&url, &order)?,
        _ => tasks::run(peer, &url, &order)?,
    }
    std::process::exit(0) // as in the other workers: waiting threads don't matter
}

/// A peer whose commits are asynchronous; with `-sync` at its end, synchronous.
#[cfg(feature = "postgres")]
fn on_postgres(peer: &str, order: &Order) -> Outcome {
    let (peer, url) = match peer.strip_suffix("-sync") {
        Some(peer) => (peer, std::env::var("BENCH_POSTGRES_SYNC")?),
        None => (peer, std::env::var("BENCH_POSTGRES")?),
    };
    match peer {
        "fairlock" if order.mode == "locked rows" => postgres::beside_locked_rows(&url, order)?,
        "fairlock" => workload::run(&fair::Fair::connect_to_postgres(&url, order)?, order)?,
        "advisory" => workload::run(&&postgres::Postgres::new(&url, postgres::What::Advisory, order), order)?,
        "naive" => workload::run(&&postgres::Postgres::new(&url, postgres::What::Naive, order), order)?,
        _ => return Err(format!("no peer {peer} on PostgreSQL").into()),
    }
    std::process::exit(0)
}

fn redis_url() -> Outcome<String> {
    Ok(std::env::var("BENCH_REDIS")?)
}
