//! The life of the servers: whether one has a new past, and how an operator ends its grace.

use std::time::Duration;

use fairlock_core::backend::BackendError;
use redis::{Value, cmd};

use super::{Verdict, Visit};
use crate::durability::Durability;
use crate::inner::RedisBackend;
use crate::net::connection::Failure;
use crate::net::topology::Route;
use crate::reply::{items, number, text};
use crate::resp::millis;
use crate::scripts;

/// The most hash slots that are asked about in one round trip.
const MOST_LIVES: usize = 128;

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
        for server in self.0.servers.servers().map_err(|trouble| trouble.explain("looking"))? {
            let lives = self.lives(&server, Some(grace));
            let lives = lives.map_err(|failure| failure.explain(server.pool.address(), "life.lua"))?;
            let left = lives.iter().map(|life| life.left.unwrap_or(grace)).max();
            longest = longest.max(left.unwrap_or_default());
        }
        Ok(longest)
    }

    /// The life of the server; in a cluster, of each hash slot that it keeps.
    fn lives(&self, server: &Route, end_it: Option<Duration>) -> Result<Vec<Life>, Failure> {
        let (script, mut lives) = (scripts::LOOK_AT_LIFE, Vec::new());
        server.pool.call(cmd("SCRIPT").arg("LOAD").arg(script).get_packed_command())?;
        let asks_quorum =
            self.0.settings.durability.is_some_and(|durability| durability.proof_age().is_some());
        let (sha, epoch) = (redis::Script::new(script), if asks_quorum { server.epoch } else { 0 });
        let pack = |key: &String| {
            let mut command = cmd("EVALSHA");
            command.arg(sha.get_hash()).arg(1).arg(key).arg(epoch).arg(end_it.map(millis));
            command.get_packed_command()
        };
        for keys in self.0.servers.lives(server).chunks(MOST_LIVES) {
            let packed: Vec<_> = keys.iter().map(pack).collect();
            let packed: Vec<_> = packed.iter().map(Vec::as_slice).collect();
            for reply in server.pool.call_many(&packed) {
                lives.push(Life::read(&reply?).map_err(|error| Failure::Broken(error.to_string()))?);
            }
        }
        Ok(lives)
    }
}

/// What a server knows of its past, or of that of a hash slot.
struct Life {
    /// What is left of its grace. None: the first request of a durable client begins it.
    left: Option<Duration>,
    /// How long the grace is. None if no durable client was ever seen.
    grace: Option<String>,
}

impl Life {
    fn read(reply: &Value) -> Result<Life, BackendError> {
        let row = items(reply)?;
        let left = row.first().map_or(Ok(-1), number)?;
        let grace = row.get(1).and_then(|grace| text(grace).ok()).map(str::to_owned);
        Ok(Life { left: u64::try_from(left).ok().map(Duration::from_millis), grace })
    }
}

impl Visit<'_> {
    /// Without durable clients it is no concern of theirs, and the user may lack the rights.
    pub(super) fn life(&mut self) {
        let durability = self.backend.0.settings.durability;
        let lives = match self.backend.lives(self.server, None) {
            Ok(lives) => lives,
            Err(_) if durability.is_none() => return,
            Err(failure) => return self.say("life", Verdict::Unknown, failure.to_string()),
        };
        let Some(ours) = durability.map(|durability| millis(durability.grace()).to_string()) else {
            if lives.iter().any(|life| life.grace.is_some()) {
                let what = "other clients of this server are durable, and this one is not: it grants locks in a grace; set \
                            `durable` for all";
                self.say("life", Verdict::Unsafe, what);
            }
            return;
        };
        if let Some(theirs) =
            lives.iter().filter_map(|life| life.grace.as_ref()).find(|grace| **grace != ours)
        {
            let what = format!(
                "the grace is {theirs} ms here, and {ours} ms for this client, which is refused: give all clients the same \
                 times"
            );
            return self.say("life", Verdict::Unsafe, what);
        }
        let counted = |count: usize| match lives.len() {
            1 => String::new(),
            all => format!(" in {count} of {all} hash slots"),
        };
        let (begun, unbegun): (Vec<_>, Vec<_>) =
            lives.iter().map(|life| life.left).partition(Option::is_some);
        let running: Vec<Duration> = begun.into_iter().flatten().filter(|left| !left.is_zero()).collect();
        if let Some(longest) = running.iter().max() {
            let place = counted(running.len());
            let what = format!("a new past{place}: it grants nothing for {longest:.1?} more");
            self.say("life", Verdict::Note, what);
        }
        if !unbegun.is_empty() {
            let what = format!(
                "a new past{}: with the first request it begins to grant nothing for {ours} ms; on a new server, end that \
                 with `fairlock doctor --begin-life`",
                counted(unbegun.len())
            );
            self.say("life", Verdict::Note, what);
        }
        if running.is_empty() && unbegun.is_empty() {
            self.say("life", Verdict::Good, "its past is known");
        }
    }
}
