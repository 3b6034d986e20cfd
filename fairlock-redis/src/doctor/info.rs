//! What INFO tells of a server: what it is, and whether locks are safe there.
//!
//! A backend reads INFO when it connects; it refuses a sentinel, and otherwise only warns: what can't work shows at the first call,
//! and a user may lack the right to INFO. The doctor says the same, and more.

use fairlock_core::backend::{BackendError, BackendErrorKind};
use redis::cmd;

use super::{Text, Verdict, Visit};
use crate::net::value::{field, items, text};
use crate::net::{Arrangement, Servers};

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
