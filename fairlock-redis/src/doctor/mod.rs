//! A thorough check of the servers: are locks safe there, and if not, what has to change?

mod durable;
mod life;
mod rights;
mod sentinels;
mod slots;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, Hold, LockId, Place, RequestId, Wait,
};
use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
use redis::{Cmd, Value, cmd};

use crate::inner::RedisBackend;
use crate::keys::Keys;
use crate::net::advice::{Topic, advice};
use crate::net::commands::Pool;
use crate::net::connection::Failure;
use crate::net::topology::Route;
use crate::reply::{field, items, number, text};

/// How many round trips are measured.
const ROUND_TRIPS: usize = 20;
/// A longer round trip is worth a note: it adds to every hand-over.
const SLOW: Duration = Duration::from_millis(50);
/// A server's clock may be off by this much without a note.
const OFF: Duration = Duration::from_secs(1);

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The server that was checked, without user and password.
    pub server: String,
    /// What was checked: `version`, `role`, `eviction`, `replicas`, `persistence`, `clock`, `round trip`, `scripts`,
    /// `rights`, `life`, `slots` (one of a cluster that is on its way), `sentinel` (one of them), `sentinels` (all), `durable`, `trial`.
    pub topic: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// What was found and, if it is not good, what to change.
    pub text: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good.
    Good,
    /// Locks work, but an operator should know this.
    Note,
    /// Locks don't work, or can be lost, until this is changed.
    Unsafe,
    /// The check could not run.
    Unknown,
}

impl RedisBackend {
    /// Checks each server that keeps locks: its version, role, eviction policy, replicas, persistence, clock and round trips,
    /// whether it runs scripts, and whether this user has the right to each command, key and channel that this backend's
    /// discipline needs; then what each sentinel says, and which faults a hold survives as all this is set up. The rights are checked inside a MULTI that is never executed, which takes the right to MULTI.
    ///
    /// With the name of a lock, the rights are those to this lock, which is not touched. Without a name, a lock of a random
    /// name (`fairlock-doctor:…`) stands for all, and is acquired and released at the end, unless a grace is running.
    ///
    /// # Errors
    /// `Unavailable` or `Denied` when no server can be reached; `InvalidName` for a name that is a key of another lock. Any
    /// later failure is a finding.
    pub fn doctor(&self, lock: Option<&LockName>) -> Result<Vec<Finding>, BackendError> {
        let known = lock.map(|name| LockId::new(name.clone(), LockKind::Fair));
        let probe = known.clone().unwrap_or_else(probe);
        Keys::of(&probe)?;
        let servers = self.0.servers.servers().map_err(|trouble| trouble.explain("looking"))?;
        let mut findings = Vec::new();
        for server in &servers {
            server.pool.check()?;
            let mut visit = Visit { backend: self, server, pool: &server.pool, findings: &mut findings };
            visit.info();
            visit.clock();
            visit.round_trips();
            visit.scripts();
            visit.life();
            visit.open_slots();
            visit.rights(&probe);
        }
        self.survey(&mut findings);
        let is_waiting = |found: &Finding| found.topic == "life" && found.verdict != Verdict::Good;
        if known.is_some() || self.0.settings.durability.is_some() && findings.iter().any(is_waiting) {
            return Ok(findings);
        }
        let (verdict, text) = match self.trial(&probe) {
            Ok(()) => (Verdict::Good, "a lock was taken and given back".to_owned()),
            Err(error) => (Verdict::Unsafe, format!("a lock can't be taken and given back: {error}")),
        };
        findings.push(Finding { server: self.0.servers.to_string(), topic: "trial", verdict, text });
        Ok(findings)
    }

    /// Acquires a lock that no other client knows, and releases it.
    fn trial(&self, lock: &LockId) -> Result<(), BackendError> {
        let (client, request) = (ClientId::random(), RequestId::new(1));
        let owner = OwnerId::new(&format!("{client}:1"));
        let mut place = Place::new(lock, &owner, request);
        place.wait = Wait::No;
        let lease = Duration::from_secs(5).min(self.longest_lease().unwrap_or(Duration::MAX));
        match self.acquire(&Acquire::new(place, lease))? {
            Acquired::Granted { token, .. } => {
                self.release(&Hold::new(lock, &owner, request, token)).map(drop)
            }
            Acquired::Busy { .. } | Acquired::Queued { .. } => Err(crate::reply::missing()),
        }
    }
}

/// A lock that no other client knows.
fn probe() -> LockId {
    let name = format!("fairlock-doctor:{}", ClientId::random());
    let name = LockName::new(&name).unwrap_or_else(|_| unreachable!("it is short"));
    LockId::new(name, LockKind::Fair)
}

/// The check of one server.
struct Visit<'a> {
    backend: &'a RedisBackend,
    server: &'a Route,
    pool: &'a Pool,
    findings: &'a mut Vec<Finding>,
}

impl Visit<'_> {
    fn say(&mut self, topic: &'static str, verdict: Verdict, text: impl Into<String>) {
        let server = self.pool.address().to_string();
        self.findings.push(Finding { server, topic, verdict, text: text.into() });
    }

    fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        self.pool.call(command.get_packed_command())
    }

    fn info(&mut self) {
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
        let advice = advice(info, &self.backend.0.servers);
        for (topic, name, key) in [
            (Topic::Version, "version", "redis_version"),
            (Topic::Role, "role", "role"),
            (Topic::Eviction, "eviction", "maxmemory_policy"),
        ] {
            match advice.iter().find(|advice| advice.topic == topic) {
                Some(advice) => self.say(name, Verdict::Unsafe, &advice.text),
                None => self.say(name, Verdict::Good, field(info, key).unwrap_or("unknown")),
            }
        }
        match field(info, "connected_slaves") {
            Some("0") | None => {
                let what = "none: no server takes over when it fails; consider a replica with sentinels, or a cluster";
                self.say("replicas", Verdict::Note, what);
            }
            Some(count) => {
                let then =
                    if self.is_durable() { "is claimed" } else { "lets others in, unless all are `durable`" };
                let what = format!("{count}; what a fail-over forgets {then}");
                self.say("replicas", Verdict::Good, what);
            }
        }
        self.persistence(info);
    }

    fn persistence(&mut self, info: &str) {
        if field(info, "rdb_last_bgsave_status") == Some("err") {
            let what = "the last save failed: it may refuse writes (MISCONF); look at its log and its disk";
            self.say("persistence", Verdict::Unsafe, what);
        } else {
            let (verdict, text) = match (field(info, "aof_enabled") == Some("1"), self.is_durable()) {
                (true, false) => (Verdict::Good, "append-only file"),
                (true, true) => (
                    Verdict::Good,
                    "append-only file; `durable` needs none: what a restart forgets is claimed",
                ),
                (false, true) => (
                    Verdict::Good,
                    "no append-only file; `durable` needs none: what a restart forgets is claimed",
                ),
                (false, false) => {
                    let text = "no append-only file: a restart forgets locks that are held, and lets others in; set appendonly \
                                to yes, or start it again only when the longest lease is over";
                    (Verdict::Note, text)
                }
            };
            let old_file = if field(info, "aof_enabled") == Some("1") { None } else { self.old_file(info) };
            let verdict = if old_file.is_some() { Verdict::Note } else { verdict };
            self.say("persistence", verdict, format!("{text}{}", old_file.unwrap_or_default()));
        }
    }

    /// The file that a restart loads although no file is ever saved: one of before, or of a full copy at a replica. Says
    /// nothing if the user may not look at the settings.
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

    fn is_durable(&self) -> bool {
        self.backend.0.settings.durability.is_some()
    }

    /// Locks go by the server's clock alone, so a difference does no harm here. But it shows a clock without NTP, and tokens
    /// that would jump in a fail-over. A grace has to be long enough on each server's wall clock.
    fn clock(&mut self) {
        let sent = SystemTime::now();
        let reply = self.ask(&cmd("TIME"));
        let trip = sent.elapsed().unwrap_or_default();
        let micros = |reply: &Value| -> Result<u64, BackendError> {
            let [seconds, micros] = items(reply)? else { return Err(crate::reply::unintelligible(reply)) };
            let micros = number(seconds)?.saturating_mul(1_000_000).saturating_add(number(micros)?);
            Ok(u64::try_from(micros).unwrap_or(0))
        };
        let theirs = match reply.map_err(|failure| failure.to_string()).map(|reply| micros(&reply)) {
            Ok(Ok(theirs)) => Duration::from_micros(theirs),
            Ok(Err(error)) => return self.say("clock", Verdict::Unknown, error.to_string()),
            Err(what) => return self.say("clock", Verdict::Unknown, what),
        };
        let ours = sent.duration_since(UNIX_EPOCH).unwrap_or_default() + trip / 2;
        let (off, word) = if theirs > ours { (theirs - ours, "ahead of") } else { (ours - theirs, "behind") };
        let text = format!("{off:.1?} {word} ours, give or take {:.1?}", trip / 2);
        if let Some(durability) = self.backend.0.settings.durability {
            let skew = durability.skew;
            let (verdict, then) = if off > skew + trip {
                let then = "more than the skew of {}: see that both are kept (NTP), or raise it for all clients; else two clients \
                            can hold a lock after a fail-over";
                (Verdict::Note, then)
            } else {
                (Verdict::Good, "less than the skew of {}, by which servers may differ and their clocks jump")
            };
            let text = format!("{text}; {}", then.replace("{}", &format!("{skew:?}")));
            self.say("clock", verdict, text);
        } else if off > OFF + trip {
            let text = format!("{text}; locks go by the server's clock alone, but see that it is kept (NTP)");
            self.say("clock", Verdict::Note, text);
        } else {
            self.say("clock", Verdict::Good, text);
        }
    }

    fn round_trips(&mut self) {
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let sent = Instant::now();
            if let Err(failure) = self.ask(&cmd("PING")) {
                return self.say(
                    "round trip",
                    Verdict::Unsafe,
                    format!("it does not answer in time: {failure}"),
                );
            }
            trips.push(sent.elapsed());
        }
        trips.sort_unstable();
        let (middle, longest) = (trips[ROUND_TRIPS / 2], trips[ROUND_TRIPS - 1]);
        let text = format!("half of {ROUND_TRIPS} within {middle:.1?}, all within {longest:.1?}");
        let limit = self.backend.0.settings.timeouts.response;
        if longest > limit / 2 {
            let text = format!(
                "{text}; the response time-out is {limit:?}: raise it, or find out what holds the server up"
            );
            self.say("round trip", Verdict::Note, text);
        } else if middle > SLOW {
            self.say(
                "round trip",
                Verdict::Note,
                format!("{text}; each hand-over takes one: a server that is nearer is quicker"),
            );
        } else {
            self.say("round trip", Verdict::Good, text);
        }
    }

    fn scripts(&mut self) {
        const SCRIPT: &str = "return 1";
        let run = || -> Result<Value, Failure> {
            self.ask(cmd("SCRIPT").arg("LOAD").arg(SCRIPT))?;
            self.ask(cmd("EVALSHA").arg(redis::Script::new(SCRIPT).get_hash()).arg(0))
        };
        match run() {
            Ok(Value::Int(1)) => self.say("scripts", Verdict::Good, "it loads and runs them"),
            Ok(other) => self.say("scripts", Verdict::Unsafe, format!("one said {other:?} in place of 1")),
            Err(failure) => {
                let text = format!("it does not run them: {failure}; it needs SCRIPT LOAD and EVALSHA");
                self.say("scripts", Verdict::Unsafe, text);
            }
        }
    }
}
