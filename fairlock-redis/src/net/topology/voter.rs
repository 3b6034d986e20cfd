//! What a voter, one of those whose majority counts, says of itself: which run of its process answers, and since when.
//!
//! A voter whose file was lost may name a server that the voter had given up. While its former vote is part of a proof for one server,
//! the voter must not count for another server. So a voter counts only a trust after its start: every earlier proof has then ended.
//! The voter's clock tells its start; after that clock was set back, the client's first meeting with this run of the voter does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};

use crate::net::connection::Failure;
use crate::net::value::field;
use crate::net::value::text;

/// How much of a run's id is told to the servers: enough to tell the runs of a few processes apart.
const DIGITS: usize = 12;

/// One run of a voter's process.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The id of the run, which changes with each restart, with or without a file.
    pub(super) id: String,
    /// How long the voter has been up by its wall clock, in seconds. Both ends were rounded down, so it may be a second less. 0 if the
    /// clock was set back to before the start.
    pub(super) uptime: u64,
}

/// The question about the run, asked in one round trip with the vote.
pub(super) fn question() -> Cmd {
    cmd("INFO").arg("server").to_owned()
}

impl Run {
    /// Reads the reply to [`question`].
    pub(super) fn read(reply: &Value) -> Result<Run, Failure> {
        let unintelligible = || Failure::Broken("an unintelligible answer to INFO".into());
        let info = text(reply).map_err(|_| unintelligible())?;
        let id = field(info, "run_id").and_then(|id| id.get(..DIGITS));
        let id = id.filter(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let uptime = field(info, "uptime_in_seconds").and_then(|seconds| seconds.parse::<i64>().ok());
        match (id, uptime) {
            (Some(id), Some(uptime)) => Ok(Run { id: id.to_owned(), uptime: uptime.try_into().unwrap_or(0) }),
            _ => Err(unintelligible()),
        }
    }
}

/// The present run of each voter that a client has met, and since when it knows that run.
#[derive(Default)]
pub(super) struct Runs(HashMap<String, (String, Instant)>);

impl Runs {
    /// Whether a run lasts for longer than this, as the voter says, or as the client has seen.
    pub(super) fn is_older(&mut self, voter: &str, run: &Run, least: Duration, now: Instant) -> bool {
        let (known, since) = self.0.entry(voter.to_owned()).or_insert_with(|| (run.id.clone(), now));
        if *known != run.id {
            (*known, *since) = (run.id.clone(), now);
        }
        Duration::from_secs(run.uptime) > least || now.saturating_duration_since(*since) > least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_old_by_its_clock_or_by_that_of_the_client() {
        const LEAST: Duration = Duration::from_secs(10);
        let read = |id: char, uptime: i64| {
            let id: String = [id; 12].iter().collect();
            let info = format!("run_id:{id}\r\nuptime_in_seconds:{uptime}\r\n");
            Run::read(&Value::BulkString(info.into_bytes())).expect("a run")
        };
        let (mut runs, begin) = (Runs::default(), Instant::now());
        let mut is_old = |id, uptime, after| {
            runs.is_older("voter", &read(id, uptime), LEAST, begin + Duration::from_secs(after))
        };
        assert!(is_old('a', 11, 0));
        assert!(!is_old('b', 10, 0));
        // The voter's clock was set back to before its start.
        assert!(!is_old('b', -3600, 10));
        assert!(is_old('b', -3600, 11));
        assert!(!is_old('c', -3600, 12), "another run");
        assert!(!is_old('b', -3600, 13), "it is not that one any more");
    }
}
