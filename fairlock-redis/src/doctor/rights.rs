//! Checks the user's right to each command, key and channel.
//!
//! Each command is tried in its full form, and none is executed.

use fairlock_core::ClientId;
use fairlock_core::backend::{BackendError, LockId};
use redis::Cmd;

use super::{Verdict, Visit};
use crate::keys::{Keys, LIFE, client_channel};
use crate::net::commands::dry_run;
use crate::net::connection::Failure;
use crate::net::topology::Topology;
use crate::settings::Discipline;

impl Visit<'_> {
    pub(super) fn rights(&mut self, lock: &LockId) {
        let needed = match self.needed(lock) {
            Ok(needed) => needed,
            Err(error) => return self.say("rights", Verdict::Unknown, error.to_string()),
        };
        let commands: Vec<Cmd> = needed.iter().map(|words| command(words)).collect();
        let timeouts = self.backend.0.settings.timeouts;
        let answers = match dry_run(self.pool.address(), timeouts, &commands) {
            Ok(answers) => answers,
            Err(failure) => {
                let text = format!(
                    "they can be checked only with the right to MULTI: {failure}; grant +multi for now"
                );
                return self.say("rights", Verdict::Unknown, text);
            }
        };
        let refused = |answer: &Result<redis::Value, Failure>| {
            answer.as_ref().err().filter(|failure| failure.code() == Some("NOPERM")).map(ToString::to_string)
        };
        let missing: Vec<String> = needed
            .iter()
            .zip(&answers)
            .filter_map(|(words, answer)| Some((words, refused(answer)?)))
            .map(|(words, why)| format!("{}: {why}", shown(words)))
            .collect();
        if missing.is_empty() {
            let text = format!("all {} commands, with their keys and channels", needed.len());
            return self.say("rights", Verdict::Good, text);
        }
        for text in missing {
            self.say("rights", Verdict::Unsafe, format!("{text}; grant it with ACL SETUSER"));
        }
    }

    /// Each command once, as the scripts and the connections use it, on keys and channels of a lock.
    fn needed(&self, lock: &LockId) -> Result<Vec<Vec<String>>, BackendError> {
        let keys = Keys::of(lock)?;
        let client = client_channel(ClientId::random());
        let channel = keys.channel().text();
        let (key, token) = (keys.lock().text(), keys.token().text());
        let discipline = self.backend.0.settings.discipline;
        let (line, places) = match discipline {
            Discipline::HandOff => (keys.line().text(), keys.places().text()),
            Discipline::Redisson => (keys.timeouts().text(), keys.queue().text()),
        };
        let mut all = vec![
            vec!["PING"],
            vec!["EVALSHA", "0000000000000000000000000000000000000000", "0"],
            vec!["SCRIPT", "LOAD", "return 1"],
            vec!["PUBLISH", &client, ""],
            vec!["PUBLISH", channel, ""],
            vec!["SUBSCRIBE", &client],
            vec!["SUBSCRIBE", channel],
            vec!["UNSUBSCRIBE", &client],
            vec!["TIME"],
            vec!["EXISTS", key],
            vec!["DEL", key],
            vec!["PEXPIRE", key, "1"],
            vec!["PEXPIRE", token, "1"],
            vec!["PTTL", key],
            vec!["HGET", key, "a"],
            vec!["HMGET", token, "a"],
            vec!["HSET", key, "a", "1"],
            vec!["HSET", token, "a", "1"],
            vec!["HGETALL", key],
            vec!["ZADD", line, "XX", "0", "a"],
            vec!["ZSCORE", line, "a"],
            vec!["ZREM", line, "a"],
            vec!["ZRANGE", line, "0", "0"],
            vec!["ZCARD", line],
        ];
        match discipline {
            Discipline::HandOff => all.extend([
                vec!["HDEL", places, "a"],
                vec!["HLEN", places],
                vec!["ZRANK", line, "a"],
                vec!["PUBSUB", "NUMSUB", &client],
            ]),
            Discipline::Redisson => all.extend([
                vec!["LINDEX", places, "0"],
                vec!["LPOP", places],
                vec!["LPOS", places, "a"],
                vec!["LRANGE", places, "0", "0"],
                vec!["LREM", places, "0", "a"],
                vec!["LLEN", places],
                vec!["RPUSH", places, "a"],
            ]),
        }
        match self.backend.0.servers.as_ref() {
            Topology::Single(_) => {}
            Topology::Sentinel(_) => all.push(vec!["ROLE"]),
            Topology::Cluster(_) => all.extend([vec!["CLUSTER", "SLOTS"], vec!["ASKING"]]),
        }
        if self.backend.0.settings.durability.is_some() {
            all.extend([vec!["INFO", "replication"], vec!["HMGET", LIFE, "a"], vec!["HSET", LIFE, "a", "1"]]);
        }
        if self.backend.0.settings.replicas.is_some() {
            all.push(vec!["WAIT", "0", "1"]);
        }
        Ok(all.into_iter().map(|words| words.into_iter().map(str::to_owned).collect()).collect())
    }
}

fn command(words: &[String]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

/// The command, and the key or channel that the right concerns.
fn shown(words: &[String]) -> String {
    let is_told = |(at, word): &(usize, &String)| *at < 2 || word.len() > 1;
    let told = words.iter().take(3).enumerate().filter(is_told).map(|(_, word)| word.as_str());
    told.collect::<Vec<_>>().join(" ")
}
