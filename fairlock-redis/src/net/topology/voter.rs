//! What a voter, one of those whose majority counts, says of itself: which run of its process answers, and since when.
//!
//! A voter that has lost its file names what it had given up. While its former vote is part of a proof for one server, it must not
//! be part of one for another. So it counts only once every proof that it may have been part of has ended, a trust after its
//! start.

use redis::{Cmd, Value, cmd};

use crate::net::connection::Failure;
use crate::net::value::field;
use crate::net::value::text;

/// How much of a run's id is told to the servers: enough to tell the runs of a few processes apart.
const DIGITS: usize = 12;

/// One run of a voter's process.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Another one after each restart, with or without a file.
    pub(super) id: String,
    /// By the voter's wall clock, in seconds. Both ends were rounded down, so it may have been up for a second less.
    pub(super) uptime: u64,
}

/// Asked in one round trip with the vote.
pub(super) fn question() -> Cmd {
    cmd("INFO").arg("server").to_owned()
}

impl Run {
    /// Reads the reply to [`question`].
    pub(super) fn read(reply: &Value) -> Result<Run, Failure> {
        let unintelligible = || Failure::Broken("an unintelligible answer to INFO".to_owned());
        let info = text(reply).map_err(|_| unintelligible())?;
        let id = field(info, "run_id").and_then(|id| id.get(..DIGITS));
        let id = id.filter(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let uptime = field(info, "uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
        match (id, uptime) {
            (Some(id), Some(uptime)) => Ok(Run { id: id.to_owned(), uptime }),
            _ => Err(unintelligible()),
        }
    }
}
