//! What a server tells of itself by INFO, whether locks are safe there, and whether the user has the right to each command, key and channel.
//!
//! A backend reads INFO when it connects; it refuses a sentinel, and otherwise only warns: what can't work shows at the first call,
//! and a user may lack the right to INFO. The doctor says the same, and more.

use fairlock_core::ClientId;
use fairlock_core::backend::{BackendError, BackendErrorKind, LockId};
use redis::{Cmd, cmd};

use super::{Text, Verdict, Visit};
use crate::net::value::{field, items, text};
use crate::net::{Arrangement, Failure, Servers, dry_run};
use crate::script::keys::{Keys, client_channel};

/// The oldest version that is tested.
const OLDEST: (u32, u32) = (6, 2);

/// Reads INFO from each server and logs what should be changed.
///
/// # Errors
/// `InvalidConfig` if the only server is a sentinel.
pub(crate) fn check(servers: &Servers) -> Result<(), BackendError> {
    for (address, answer) in servers.each(&cmd("INFO")) {
        match answer.as_ref().map(text) {
            Ok(Ok(info)) if mode(info) == Some("sentinel") => {
                let message = format!(
                    "Redis at {address}, connecting: it is a sentinel, which keeps no locks; \
                     write redis+sentinel://{address}/MASTER"
                );
                return Err(BackendError::new(BackendErrorKind::InvalidConfig, message));
            }
            Ok(Ok(info)) => {
                for (_, text) in advice(info, servers) {
                    log::warn!(
                        target: "fairlock::net",
                        event = "advice", server:% = address;
                        "Redis at {address}: {text}"
                    );
                }
            }
            unread => {
                let why = unread.map_or_else(ToString::to_string, |_| "it can't be read".to_owned());
                log::debug!(
                    target: "fairlock::net",
                    event = "no advice", server:% = address, error = why.as_str();
                    "Redis at {address}: no INFO: {why}"
                );
            }
        }
    }
    Ok(())
}

/// Standalone, sentinel or cluster. Valkey has another name for it.
fn mode(info: &str) -> Option<&str> {
    field(info, "redis_mode").or_else(|| field(info, "server_mode"))
}

/// What makes locks unsafe: the topic of a finding, and what to change.
fn advice(info: &str, servers: &Servers) -> Vec<(&'static str, String)> {
    let field = |name: &str| field(info, name);
    let mut advice = Vec::new();
    let mut say = |topic, text| advice.push((topic, text));
    if let Some(version) = field("redis_version")
        && numbers(version).is_some_and(|version| version < OLDEST)
    {
        let (major, minor) = OLDEST;
        say("version", format!("its version is {version}; update it to {major}.{minor} or later"));
    }
    if let Some(policy) = field("maxmemory_policy")
        && policy != "noeviction"
    {
        let text =
            format!("maxmemory-policy is {policy}: an evicted lock is a lost one; set it to noeviction");
        say("eviction", text);
    }
    if servers.arrangement() == Arrangement::Single {
        if field("role") == Some("slave") {
            say("role", "it is a replica, which takes no writes; connect to its master".to_owned());
        }
        if mode(info) == Some("cluster") {
            say(
                "role",
                "it is a node of a cluster; its address has to begin with redis+cluster://".to_owned(),
            );
        }
    }
    advice
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Visit<'_> {
    pub(super) fn info(&mut self) {
        let reply = self.ask(&cmd("INFO"));
        let info = match reply.as_ref().map(text) {
            Ok(Ok(info)) => info,
            Ok(Err(error)) => return self.say("version", Verdict::Unknown, error.to_string()),
            Err(failure) => {
                let what = format!(
                    "INFO says nothing of version, role, eviction, replicas and persistence: {failure}"
                );
                return self.say("version", Verdict::Unknown, what);
            }
        };
        let advice = advice(info, &self.backend.0.shared.servers);
        for (topic, key) in [("version", "redis_version"), ("role", "role"), ("eviction", "maxmemory_policy")]
        {
            match advice.iter().find(|(about, _)| *about == topic) {
                Some((_, text)) => self.say(topic, Verdict::Unsafe, &**text),
                None => self.say(topic, Verdict::Good, field(info, key).unwrap_or("unknown")),
            }
        }
        match field(info, "connected_slaves") {
            Some("0") | None => {
                let what = "none: no server takes over when it fails; consider a replica with sentinels, or a cluster";
                self.say("replicas", Verdict::Note, what);
            }
            Some(count) => {
                let then = if self.is_durable() { "is reclaimed" } else { "lets others in" };
                let what = Text::from(format!("{count}; what a fail-over forgets {then}"));
                self.say("replicas", Verdict::Good, what.about_setting("durable"));
            }
        }
        self.persistence(info);
    }

    fn persistence(&mut self, info: &str) {
        if field(info, "rdb_last_bgsave_status") == Some("err") {
            let what = "the last save failed: it may refuse writes (MISCONF); look at its log and its disk";
            self.say("persistence", Verdict::Unsafe, what);
        } else {
            let has_file = field(info, "aof_enabled") == Some("1");
            let (verdict, then) = match self.is_durable() {
                true => (Verdict::Good, "; none is needed: what a restart forgets is reclaimed"),
                false if has_file => (Verdict::Good, ""),
                false => {
                    let then = ": a restart forgets locks that are held, and lets others in; set appendonly to yes, or start it \
                                again only when the longest lease is over";
                    (Verdict::Note, then)
                }
            };
            let (no, old_file) = if has_file { ("", None) } else { ("no ", self.old_file(info)) };
            let verdict = if old_file.is_some() { Verdict::Note } else { verdict };
            let text = format!("{no}append-only file{then}{}", old_file.unwrap_or_default());
            self.say("persistence", verdict, text);
        }
    }

    /// A finding about the file that a restart loads although no file is ever saved: an earlier file, or a full copy at a replica.
    /// No finding if the user may not look at the settings.
    fn old_file(&self, info: &str) -> Option<String> {
        let setting = |name: &str| {
            let reply = self.ask(cmd("CONFIG").arg("GET").arg(name)).ok()?;
            text(items(&reply).ok()?.get(1)?).ok().map(str::to_owned)
        };
        let number = |name: &str| field(info, name).and_then(|number| number.parse::<u64>().ok());
        let saves_nothing = setting("save")?.is_empty();
        let is_kept = setting("rdb-del-sync-files")? == "no";
        if !saves_nothing || !is_kept {
            return None;
        }
        let had_keys = number("rdb_last_load_keys_loaded").unwrap_or(0) > 0;
        let started = number("server_time_usec")? / 1_000_000 - number("uptime_in_seconds")?;
        let was_saved = number("rdb_last_save_time")? > started + 1;
        let what = match (had_keys, was_saved, number("connected_slaves").unwrap_or(0)) {
            (_, true, _) => "a file was saved since it started",
            (true, false, _) => "it started with a file",
            (false, false, 0) => return None,
            (false, false, _) => "a full copy leaves a file at the replica",
        };
        let covered = if self.is_durable() { " (the grace covers that)" } else { "" };
        Some(format!(
            "; `save \"\"` does not mean that a restart is empty: {what}, and an old one is loaded{covered}; set \
             rdb-del-sync-files to yes, and delete the file"
        ))
    }

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

    /// Each command is tried in its full form, and none is executed. `is_in_reach`: what [`may_use`](Self::may_use) says. If not, a refusal of a key or channel of this lock says nothing.
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

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::test_server::TestServer;

    fn single(server: &TestServer) -> Servers {
        server.connect("")
    }

    fn said(server: &TestServer) -> Vec<String> {
        let servers = single(server);
        let described = servers.each(&cmd("INFO"));
        let [(_, Ok(info))] = &described[..] else { panic!("{described:?}") };
        advice(text(info).expect("a text"), &servers).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn what_should_be_changed_is_said() {
        let server = TestServer::start();
        assert_eq!(said(&server), [""; 0]);
        server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        assert!(said(&server)[0].contains("set it to noeviction"), "{:?}", said(&server));
        server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        assert!(said(&server)[0].contains("connect to its master"), "{:?}", said(&server));
        let node = TestServer::start_with(&["--cluster-enabled", "yes"]);
        assert!(said(&node)[0].contains("redis+cluster://"), "{:?}", said(&node));
    }

    #[test]
    fn only_old_versions_get_advice() {
        let server = TestServer::start();
        let servers = single(&server);
        let of = |version: &str| advice(&format!("# Server\r\nredis_version:{version}\r\n"), &servers).len();
        for (version, count) in
            [("6.0.16", 1), ("5.0.3", 1), ("6.2.0", 0), ("7.0", 0), ("10.0.1", 0), ("x", 0), ("", 0)]
        {
            assert_eq!(of(version), count, "{version}");
        }
    }

    #[test]
    fn a_user_without_the_right_to_info_is_not_refused() {
        let server = TestServer::start();
        server.command(&["ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-info"]);
        check(&server.connect("blind:pw@")).expect("no sentinel");
    }
}
