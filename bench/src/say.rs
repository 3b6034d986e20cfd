//! What a worker and the program that drives it say to each other: a line each.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Outcome;

/// Says a line, at once.
pub fn say(line: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits for a line.
pub fn hear() -> Outcome {
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

pub fn handshake() -> Outcome {
    say("ready")?;
    hear()
}

/// Times of all workers are compared with each other: ns since 1970.
pub fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}
