//! Leader election: of all processes that run this, one leads. When it ends, hangs or is killed, the next one in the queue leads.
//!
//! ```text
//! cargo run --example leader -- --redis redis://127.0.0.1:6379 --label one    # in several terminals: two, three
//! ```
//!
//! Ctrl-C ends a process in order, and the next one leads at once. After `kill -9`, or `kill -STOP`, it leads when the lease is over.

mod common;

use std::error::Error as StdError;
use std::process::{self, ExitCode};
use std::thread;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::{Error, FencingToken, Lock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A dead leader is replaced after this time.
const LEASE: Duration = Duration::from_secs(3);
/// Between two acts of the leader, and between two looks at who leads.
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn StdError>> {
    let label = common::option("--label").unwrap_or_else(|| format!("process {}", process::id()));
    let client = common::builder()?.lease(LEASE).label(&label).build()?;
    let stop = CancelToken::new();
    let lock = client.fair_lock("lock:example-leader")?.cancelled_by(&stop);

    let (mut signals, ended) = (Signals::new([SIGTERM, SIGINT])?, stop.clone());
    thread::spawn(move || {
        signals.forever().next();
        ended.cancel();
    });
    let name = label.clone();
    client.on_lost(move |lost| println!("{name} does not lead: {lost}"));
    thread::scope(|scope| {
        scope.spawn(|| watch(&lock, &stop, &label));
        let ended = campaign(&lock, &label);
        stop.cancel();
        match ended {
            Err(Error::Cancelled { .. }) => Ok(()),
            ended => ended,
        }
    })?;
    println!("{label} ends");
    client.shutdown()?; // until the server has heard that the place in the queue is given up
    Ok(())
}

/// Leads whenever it is this process's turn, until the lock's `CancelToken` ends it.
fn campaign(lock: &Lock, label: &str) -> fairlock::Result<()> {
    lock.lead(|term| -> fairlock::Result<()> {
        println!("{label} leads, token {}", term.token());
        loop {
            act(label, term.token());
            term.sleep(PAUSE)?; // ends early, with an error, if the term is over
        }
    })?
    .unwrap_or(Ok(())) // a drain has ended the campaign in order
}

/// What only the leader may do. A real act hands the token to its resource, which refuses a smaller one.
fn act(label: &str, token: FencingToken) {
    println!("{label} acts, token {token}");
}

/// Says who leads whenever that changes. Any process may look, not only candidates.
fn watch(lock: &Lock, stop: &CancelToken, label: &str) {
    let mut leader = None;
    while !stop.is_cancelled() {
        match lock.admin().inspect() {
            Ok(state) => {
                let seen = state.holder().and_then(|holder| holder.label.clone());
                if seen.is_some() && seen != leader {
                    println!("{label} sees that {} leads", seen.as_deref().unwrap_or_default());
                    leader = seen;
                }
            }
            Err(error) => println!("{label} can't see who leads: {error}"),
        }
        thread::sleep(PAUSE);
    }
}
