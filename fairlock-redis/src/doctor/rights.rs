//! Checks the user's right to each command, key and channel.
//!
//! Each command is tried in its full form, and none is executed.

use fairlock_core::ClientId;
use fairlock_core::backend::{BackendError, LockId};
use redis::{Cmd, cmd};

use super::{Verdict, Visit};
use crate::net::{Failure, dry_run};
use crate::script::keys::{Keys, client_channel};

impl Visit<'_> {
    /// Whether this user has the right to the key of a lock with a made-up name. EXISTS needs the right to the key, and changes
    /// nothing.
    pub(super) fn may_use(&mut self, lock: &LockId) -> bool {
        let Ok(keys) = Keys::of(lock) else { return true };
        let refusal = self.ask(cmd("EXISTS").arg(keys.lock())).err();
        let is_in_reach = refusal.as_ref().and_then(Failure::code) != Some("NOPERM")
            || refusal.is_some_and(|refusal| concerns_the_command(&refusal));
        if !is_in_reach {
            let text = "keys and channels: not tried, since this user has no right to a lock named fairlock-doctor:…, which \
                        stands for all; name one of its own locks (doctor NAME)";
            self.say("rights", Verdict::Unknown, text);
        }
        is_in_reach
    }

    /// `is_in_reach`: what [`may_use`](Self::may_use) says. If not, a refusal of a key or channel of this lock says nothing.
    pub(super) fn rights(&mut self, lock: &LockId, is_in_reach: bool) {
        let [needed, by_several] = match self.needed(lock) {
            Ok(needed) => needed,
            Err(error) => return self.say("rights", Verdict::Unknown, error.to_string()),
        };
        let all = || needed.iter().chain(&by_several);
        let commands: Vec<Cmd> = all().map(|words| Cmd::new().arg(words).to_owned()).collect();
        let timeouts = self.backend.0.shared.servers.timeouts();
        let answers = match dry_run(self.pool.address(), timeouts, &commands) {
            Ok(answers) => answers,
            Err(failure) => {
                let text = format!(
                    "they can be checked only with the right to MULTI: {failure}; grant +multi for now"
                );
                return self.say("rights", Verdict::Unknown, text);
            }
        };
        let mut has_all = true;
        for (at, (words, answer)) in all().zip(answers).enumerate() {
            let Some(failure) = answer.err().filter(|failure| failure.code() == Some("NOPERM")) else {
                continue;
            };
            let is_of_lock = words.iter().any(|word| word.contains(lock.name.as_str()));
            if !is_in_reach && is_of_lock && !concerns_the_command(&failure) {
                continue;
            }
            has_all = false;
            let (verdict, what) = match at < needed.len() {
                true => (Verdict::Unsafe, ""),
                false => (Verdict::Note, "for semaphores and read-write locks, "),
            };
            let text = format!("{what}{}: {failure}; grant it with ACL SETUSER", shown(words));
            self.say("rights", verdict, text);
        }
        if has_all {
            let with = if is_in_reach { ", with their keys and channels" } else { "" };
            let text = format!("all {} commands{with}", commands.len());
            self.say("rights", Verdict::Good, text);
        }
    }

    /// Each command once, as the scripts and the connections use it, on keys and channels of a lock; and one for each key that only
    /// locks with several holders have.
    fn needed(&self, lock: &LockId) -> Result<[Vec<Vec<String>>; 2], BackendError> {
        let (inner, keys) = (&self.backend.0, Keys::of(lock)?);
        let client = client_channel(ClientId::random());
        let (key, record, channel) = (keys.lock(), keys.record(), keys.channel());
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
            vec!["PEXPIRE", record, "1"],
            vec!["PTTL", key],
            vec!["HGET", key, "a"],
            vec!["HMGET", record, "a"],
            vec!["HSET", key, "a", "1"],
            vec!["HSET", record, "a", "1"],
            vec!["HGETALL", key],
            vec!["HLEN", key],
        ];
        let [of_queue, by_several] = inner.fair.needed(&keys, &client);
        all.extend(of_queue);
        all.extend(inner.shared.servers.commands().iter().map(|words| words.to_vec()));
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        let [mut all, by_several]: [Vec<_>; 2] =
            [all, by_several].map(|commands| commands.into_iter().map(owned).collect());
        all.extend(inner.shared.calls.needed(&keys));
        Ok([all, by_several])
    }
}

/// Otherwise the right to a key or a channel is missing.
fn concerns_the_command(refusal: &Failure) -> bool {
    refusal.to_string().contains("permissions to run")
}

/// The command, and the key or channel that the right concerns.
fn shown(words: &[String]) -> String {
    let is_told = |(at, word): &(usize, &String)| *at < 2 || word.len() > 1;
    let told = words.iter().take(3).enumerate().filter(is_told).map(|(_, word)| word.as_str());
    told.collect::<Vec<_>>().join(" ")
}
