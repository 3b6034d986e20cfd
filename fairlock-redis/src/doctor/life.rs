//! The life of the servers: whether one has a new past, and how an operator ends its grace.

use std::time::Duration;

use fairlock_core::backend::BackendError;
use redis::cmd;

use super::{Verdict, Visit};
use crate::durability::Durability;
use crate::inner::RedisBackend;
use crate::keys::LIFE;
use crate::net::commands::Pool;
use crate::net::connection::Failure;
use crate::reply::{items, number, text};
use crate::resp::millis;
use crate::scripts;

impl RedisBackend {
    /// Ends the grace of each server by hand: it counts as one with a known past, and grants locks at once. Returns what was left
    /// of the longest grace; zero if none was running, and the whole grace if one had not begun.
    ///
    /// **Two clients can hold one lock then**, if the server has forgotten a hold whose client still believes in it. Safe when no
    /// lock was held: on a new server, or when all workers were stopped.
    ///
    /// # Errors
    /// As [`doctor`](RedisBackend::doctor) without a name.
    pub fn begin_life(&self) -> Result<Duration, BackendError> {
        let grace = self.0.settings.durability.unwrap_or_else(Durability::life).grace();
        let mut longest = Duration::ZERO;
        for pool in self.0.servers.servers().map_err(|trouble| trouble.explain("looking"))? {
            let life =
                look(&pool, Some(grace)).map_err(|failure| failure.explain(pool.address(), "life.lua"))?;
            longest = longest.max(life.left.unwrap_or(grace));
        }
        Ok(longest)
    }
}

/// What a server knows of its past.
struct Life {
    /// What is left of its grace. None: the first request of a durable client begins it.
    left: Option<Duration>,
    /// How long the grace is. None if no durable client was ever seen.
    grace: Option<String>,
}

fn look(pool: &Pool, end_it: Option<Duration>) -> Result<Life, Failure> {
    let script = scripts::LOOK_AT_LIFE;
    pool.call(cmd("SCRIPT").arg("LOAD").arg(script).get_packed_command())?;
    let mut command = cmd("EVALSHA");
    command.arg(redis::Script::new(script).get_hash()).arg(1).arg(LIFE).arg(end_it.map(millis));
    let reply = pool.call(command.get_packed_command())?;
    let row = items(&reply).map_err(garbled)?;
    let left = row.first().map_or(Ok(-1), number).map_err(garbled)?;
    let grace = row.get(1).and_then(|grace| text(grace).ok()).map(str::to_owned);
    Ok(Life { left: u64::try_from(left).ok().map(Duration::from_millis), grace })
}

fn garbled(error: BackendError) -> Failure {
    Failure::Broken(error.to_string())
}

impl Visit<'_> {
    /// Without durable clients it is no concern of theirs, and the user may lack the rights.
    pub(super) fn life(&mut self) {
        let durability = self.backend.0.settings.durability;
        let life = match look(self.pool, None) {
            Ok(life) => life,
            Err(_) if durability.is_none() => return,
            Err(failure) => return self.say("life", Verdict::Unknown, failure.to_string()),
        };
        let ours = durability.map(|durability| millis(durability.grace()).to_string());
        match (ours, life.grace, life.left) {
            (None, None, _) => {}
            (None, Some(_), _) => {
                let what = "other clients of this server are durable, and this one is not: it grants locks in a grace; set \
                            `durable` for all";
                self.say("life", Verdict::Unsafe, what);
            }
            (Some(ours), Some(theirs), _) if ours != theirs => {
                let what = format!(
                    "the grace is {theirs} ms here, and {ours} ms for this client, which is refused: give all clients the same \
                     times"
                );
                self.say("life", Verdict::Unsafe, what);
            }
            (Some(_), _, Some(Duration::ZERO)) => self.say("life", Verdict::Good, "its past is known"),
            (Some(_), _, Some(left)) => {
                let what = format!("a new past: it grants nothing for {left:.1?} more");
                self.say("life", Verdict::Note, what);
            }
            (Some(ours), _, None) => {
                let what = format!(
                    "a new past: with the first request it begins to grant nothing for {ours} ms; on a new server, end that \
                     with `fairlock doctor --begin-life`"
                );
                self.say("life", Verdict::Note, what);
            }
        }
    }
}
