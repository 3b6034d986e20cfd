//! The lines between a worker and the program that drives it.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Outcome;

/// Writes a line and flushes it.
pub fn say(line: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits for a line.
pub fn hear() -> Outcome<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line)
}

pub fn handshake() -> Outcome {
    say("ready")?;
    hear().map(drop)
}

/// Nanoseconds since 1970, so that the times of all workers can be compared.
pub fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}
