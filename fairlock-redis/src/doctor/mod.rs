//! A thorough check of the servers: are locks safe there, and if not, what has to change? `findings.md` has what is said; here and in
//! `sentinels.rs` are the facts.
//!
//! A backend reads INFO when it connects; it refuses a sentinel, and otherwise only warns: what can't work shows at the first call,
//! and a user may lack the right to INFO. The doctor says the same, and more.

mod sentinels;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, BackendErrorKind, Facts, Finding, LockId, Table, Text, Verdict};
use fairlock_core::backend::{probe, trial};
use fairlock_core::{ClientId, LockKind, LockName};
use redis::{Cmd, Value, cmd};

use crate::backend::{RedisBackend, by_rules};
use crate::durable::{Durability, lives_of};
use crate::net::{Arrangement, Failure, Route, Servers, dry_run, field, items, micros, text};
use crate::script::scripts::{Keys, client_channel};

const TABLE: Table = Table(include_str!("findings.md"));
/// How many round trips are measured.
const ROUND_TRIPS: usize = 20;
/// The oldest version that is tested.
const OLDEST: (u32, u32) = (6, 2);

impl RedisBackend {
    /// Checks each server that keeps locks: version, role, eviction policy, replicas, persistence, clock, round trips and
    /// scripts, and whether this user has the right to each command, key and channel of this backend's discipline. Then the
    /// answers of the sentinels, and which faults a hold survives in this set-up. The rights are checked inside a MULTI that is
    /// never executed, which takes the right to MULTI.
    ///
    /// A lock of a random name (`fairlock-doctor:…`) stands for all, and is acquired, released, handed from one client to another ten times,
    /// and deleted at the end, unless a grace is running. A user whose rights end at the names of its locks has none to this lock: then a
    /// finding `Unknown` says what was not tried.
    ///
    /// Topics: `version`, `role`, `eviction`, `replicas`, `persistence`, `clock`, `round trip`, `scripts`, `rights`, `life`,
    /// `slots` (a moving slot of a cluster), `sentinel` (each), `sentinels` (all), `durable`, `trial`, `hand-overs`.
    ///
    /// # Errors
    /// `Unavailable` or `Denied` when no server can be reached. Any later failure is a finding.
    pub fn doctor(&self) -> fairlock_core::Result<Vec<Finding>> {
        self.look(None)
    }

    /// As [`doctor`](Self::doctor), with the rights to this lock, which is not touched.
    ///
    /// # Errors
    /// As `doctor`; `InvalidName` for a name that is a key of another lock.
    pub fn doctor_for(&self, lock: &LockName) -> fairlock_core::Result<Vec<Finding>> {
        self.look(Some(lock))
    }

    fn look(&self, lock: Option<&LockName>) -> fairlock_core::Result<Vec<Finding>> {
        let probe = lock.map_or_else(probe, |name| LockId::new(name.clone(), LockKind::Fair));
        Keys::of(&probe)?;
        let all = &self.0.scripts.servers;
        let (mut findings, mut is_tried) = (Vec::new(), lock.is_none());
        for server in &all.servers().map_err(|failure| failure.explain(all, "looking"))? {
            server.pool.check()?;
            let mut visit = Visit { backend: self, server, findings: &mut findings };
            visit.look(&["version", "role", "eviction", "replicas", "persistence"], Visit::info);
            visit.look(&["clock"], Visit::clock);
            visit.look(&["round trip"], Visit::round_trips);
            visit.look(&["scripts"], Visit::scripts);
            visit.look(&["life"], Visit::life);
            visit.open_slots();
            let is_in_reach = lock.is_some() || visit.may_use(&probe);
            is_tried &= is_in_reach;
            visit.rights(&probe, is_in_reach);
        }
        self.survey(&mut findings);
        let is_waiting = |found: &Finding| found.topic == "life" && found.verdict != Verdict::Good;
        if is_tried && !(self.0.calls.durability().is_some() && findings.iter().any(is_waiting)) {
            let without = "see to the rights to PUBLISH and SUBSCRIBE, and to what the service says of both";
            let (servers, forget) = (all.to_string(), || self.forget(&probe));
            findings.extend(trial(&servers, [self, self], &probe, without, forget));
            if let Some(why) = self.0.scripts.untold.refusal_of_scripts() {
                let facts = Facts::of("untold", why);
                findings.extend(TABLE.findings(&servers, "hand-overs", &facts));
            }
        }
        Ok(findings)
    }

    /// Deletes what a release keeps for a day: nobody asks for this lock again. All that a trial leaves ends by itself as well.
    fn forget(&self, lock: &LockId) -> Result<(), BackendError> {
        let (servers, keys) = (&self.0.scripts.servers, Keys::of(lock)?);
        let delete = cmd("DEL").arg(keys.lock()).arg(keys.record()).get_packed_command();
        let deleted = servers.call(keys.lock(), |route| route.call(&delete));
        deleted.map(drop).map_err(|failed| failed.explain("deleting it"))
    }

    /// Ends the grace of each server by hand: each server counts as one with a known past, and grants locks at once. Returns what was
    /// left of the longest grace; zero if no grace was running, and the whole grace if it had not begun.
    ///
    /// **Two clients can hold one lock then**, if the server has forgotten a hold whose client still believes in it. Safe when no
    /// lock was held: on a new server, or when all workers were stopped.
    ///
    /// # Errors
    /// As [`doctor`](RedisBackend::doctor) without a name.
    pub fn begin_life(&self) -> fairlock_core::Result<Duration> {
        let (servers, calls) = (&self.0.scripts.servers, &self.0.calls);
        let usual = || Durability::default().among(servers.arrangement());
        let grace = calls.durability().unwrap_or_else(usual).grace();
        let mut longest = Duration::ZERO;
        for server in servers.servers().map_err(|failure| failure.explain(servers, "looking"))? {
            let lives = lives_of(servers, &server, calls.confirms_messages(), Some(grace));
            let lives = lives.map_err(|failure| failure.explain(server.pool.address(), "life.lua"))?;
            let left = lives.iter().map(|life| life.left.unwrap_or(grace)).max();
            longest = longest.max(left.unwrap_or_default());
        }
        Ok(longest)
    }
}

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
                for text in advice(info, servers) {
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

/// What makes locks unsafe, and what to change.
fn advice(info: &str, servers: &Servers) -> Vec<Text> {
    let facts = facts_of(info, servers);
    let said = ["version", "eviction", "role"].into_iter().flat_map(|topic| TABLE.say(topic, &facts));
    said.filter(|(verdict, _)| *verdict == Verdict::Unsafe).map(|(_, text)| text).collect()
}

/// Each field of INFO; and what follows from them.
fn facts_of(info: &str, servers: &Servers) -> Facts {
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let none = Facts::of("connected_slaves", "0").with("aof_enabled", "0"); // where INFO does not say
    let facts = fields.fold(none, |facts, (name, value)| facts.with(name, value));
    let mut version = field(info, "redis_version").unwrap_or_default().split('.').map(str::parse::<u32>);
    let is_old = matches!((version.next(), version.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST);
    let facts = facts.when("old", is_old).with("mode", mode(info).unwrap_or_default());
    facts.when("single", servers.arrangement() == Arrangement::Single)
}

/// Standalone, sentinel or cluster. Valkey has another name for it.
fn mode(info: &str) -> Option<&str> {
    field(info, "redis_mode").or_else(|| field(info, "server_mode"))
}

/// The check of one server.
struct Visit<'a> {
    backend: &'a RedisBackend,
    server: &'a Route,
    findings: &'a mut Vec<Finding>,
}

impl Visit<'_> {
    fn say(&mut self, topic: &'static str, facts: &Facts) {
        self.findings.extend(TABLE.findings(&self.server.pool.address().to_string(), topic, facts));
    }

    fn look(&mut self, topics: &[&'static str], facts: impl FnOnce(&Self) -> Result<Facts, Text>) {
        let facts = facts(self).unwrap_or_else(|why| Facts::of("why", why));
        let facts = facts.when("durable", self.durability().is_some());
        topics.iter().for_each(|topic| self.say(topic, &facts));
    }

    fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        self.server.pool.call(command.get_packed_command())
    }

    fn servers(&self) -> &Servers {
        &self.backend.0.scripts.servers
    }

    fn durability(&self) -> Option<Durability> {
        self.backend.0.calls.durability()
    }

    fn info(&self) -> Result<Facts, Text> {
        let reply = self.ask(&cmd("INFO"))?;
        let info = text(&reply).map_err(|error| Text::from(&error))?;
        Ok(self.old_file(info, facts_of(info, self.servers())))
    }

    /// Whether a restart loads a file although no file is ever saved: an earlier file, or a full copy at a replica. Nothing is known if the
    /// user may not look at the settings.
    fn old_file(&self, info: &str, facts: Facts) -> Facts {
        let setting = |name: &str| {
            let reply = self.ask(cmd("CONFIG").arg("GET").arg(name)).ok()?;
            text(items(&reply).ok()?.get(1)?).ok().map(str::to_owned)
        };
        let number = |name: &str| field(info, name).and_then(|number| number.parse::<u64>().ok());
        if field(info, "aof_enabled") == Some("1")
            || setting("save").is_none_or(|save| !save.is_empty())
            || setting("rdb-del-sync-files").is_none_or(|deletes| deletes != "no")
        {
            return facts;
        }
        let (Some(now), Some(up)) = (number("server_time_usec"), number("uptime_in_seconds")) else {
            return facts;
        };
        let is_over_zero = |name| number(name).unwrap_or(0) > 0;
        let is_loaded = is_over_zero("rdb_last_load_keys_loaded");
        let is_saved = number("rdb_last_save_time").unwrap_or(0) > (now / 1_000_000).saturating_sub(up) + 1;
        let is_there = is_saved || is_loaded || is_over_zero("connected_slaves");
        facts.when("old_file", is_there).when("saved", is_saved).when("loaded", is_loaded)
    }

    /// Locks go by the server's clock alone, so a difference does no harm here. But it shows a clock without NTP, and tokens
    /// that would jump in a fail-over. A grace has to be long enough on each server's wall clock.
    fn clock(&self) -> Result<Facts, Text> {
        let skew = self.durability().map(|durability| durability.skew);
        Facts::of_clock(skew, || {
            let theirs = micros(&self.ask(&cmd("TIME"))?);
            theirs.map(Duration::from_micros).map_err(|error| Text::from(&error))
        })
    }

    fn round_trips(&self) -> Result<Facts, Text> {
        let trip = |_| {
            let sent = Instant::now();
            self.ask(&cmd("PING")).map(|_| sent.elapsed())
        };
        let trips = (0..ROUND_TRIPS).map(trip).collect::<Result<_, Failure>>()?;
        let limit = self.servers().timeouts().response;
        Ok(Facts::of_times(trips, limit, "a server that is nearer is quicker"))
    }

    fn scripts(&self) -> Result<Facts, Text> {
        const SCRIPT: &str = "return 1";
        self.ask(cmd("SCRIPT").arg("LOAD").arg(SCRIPT))?;
        let said = self.ask(cmd("EVALSHA").arg(redis::Script::new(SCRIPT).get_hash()).arg(0))?;
        Ok(Facts::of("said", format!("{said:?}")))
    }

    /// Whether the server, or a hash slot of a cluster, has a new past.
    fn life(&self) -> Result<Facts, Text> {
        let confirms = self.backend.0.calls.confirms_messages();
        let lives = lives_of(self.servers(), self.server, confirms, None)?;
        let mut graces = lives.iter().filter_map(|life| life.grace.clone());
        let Some(durability) = self.durability() else {
            return Ok(Facts::default().when("others", graces.next().is_some()));
        };
        let ours = durability.grace().as_millis().to_string();
        let theirs = graces.find(|grace| *grace != ours);
        let running = || lives.iter().filter_map(|life| life.left).filter(|left| !left.is_zero());
        let unbegun = lives.iter().filter(|life| life.left.is_none()).count();
        let facts = Facts::of("ours", ours).known("theirs", theirs).shown("slots", lives.len());
        let facts = facts.known("running", running().max().map(Finding::shown));
        let facts = facts.shown("running_in", running().count());
        Ok(facts.known("unbegun", (unbegun > 0).then(|| unbegun.to_string())))
    }

    /// Slots whose move to another node has begun, and is neither finished nor given up.
    fn open_slots(&mut self) {
        if self.servers().arrangement() != Arrangement::Cluster {
            return;
        }
        // The user may lack this right, which no other check needs.
        let Ok(reply) = self.ask(cmd("CLUSTER").arg("NODES")) else { return };
        let own = |line: &&str| line.split(' ').nth(2).is_some_and(|flags| flags.contains("myself"));
        let line = text(&reply).ok().and_then(|nodes| nodes.lines().find(own)).unwrap_or_default();
        // `[93->-ID]` is on its way to that node, `[93-<-ID]` from it.
        for open in line.split(' ').filter_map(|word| word.strip_prefix('[')?.strip_suffix(']')) {
            let to = open.split_once("->-").map(|(slot, id)| (slot, format!("to {id}")));
            let from = || open.split_once("-<-").map(|(slot, id)| (slot, format!("from {id}")));
            let (slot, way) = to.or_else(from).unwrap_or((open, String::new()));
            let before = self.backend.0.calls.before_a_move_is_given_up(slot);
            self.say("slots", &Facts::of("slot", slot).with("way", way).with("before", before));
        }
    }

    /// Whether this user has the right to the key of a lock with a made-up name. EXISTS needs the right to the key, and changes
    /// nothing.
    fn may_use(&mut self, lock: &LockId) -> bool {
        let Ok(keys) = Keys::of(lock) else { return true };
        let refusal = self.ask(cmd("EXISTS").arg(keys.lock())).err();
        let is_in_reach = !refusal
            .is_some_and(|refusal| refusal.code() == Some("NOPERM") && !concerns_the_command(&refusal));
        if !is_in_reach {
            self.say("rights", &Facts::of("out_of_reach", ""));
        }
        is_in_reach
    }

    /// Each command is tried in its full form, and none is executed. `is_in_reach`: what [`may_use`](Self::may_use) says. If not, a refusal
    /// of a key or channel of this lock says nothing.
    fn rights(&mut self, lock: &LockId, is_in_reach: bool) {
        let [needed, by_several] = match self.needed(lock) {
            Ok(needed) => needed,
            Err(error) => return self.say("rights", &Facts::of("why", &error)),
        };
        let all = || needed.iter().chain(&by_several);
        let commands: Vec<Cmd> = all().map(|words| Cmd::new().arg(words).to_owned()).collect();
        let answers = match dry_run(self.server.pool.address(), self.servers().timeouts(), &commands) {
            Ok(answers) => answers,
            Err(failure) => return self.say("rights", &Facts::of("no_multi", failure.text())),
        };
        let mut has_all = true;
        for (at, (words, answer)) in all().zip(answers).enumerate() {
            let is_of_lock = words.iter().any(|word| word.contains(lock.name.as_str()));
            let counts = |failure: &Failure| {
                let is_told = is_in_reach || !is_of_lock || concerns_the_command(failure);
                failure.code() == Some("NOPERM") && is_told
            };
            if let Some(failure) = answer.err().filter(counts) {
                has_all = false;
                let facts = Facts::of("missing", shown(words)).with("refusal", failure.text());
                self.say("rights", &facts.when("several", at >= needed.len()));
            }
        }
        if has_all {
            self.say("rights", &Facts::default().shown("all", commands.len()).when("in_reach", is_in_reach));
        }
    }

    /// Each command once, as the scripts and the connections use it, on keys and channels of a lock; and one for each key that only
    /// locks with several holders have.
    fn needed(&self, lock: &LockId) -> Result<[Vec<Vec<String>>; 2], BackendError> {
        /// In the place of a word in capitals behind the command stands a key or channel.
        const COMMANDS: &str = "PING, EVALSHA 0000000000000000000000000000000000000000 0, SCRIPT LOAD 1, PUBLISH CLIENT 1, \
             PUBLISH CHANNEL 1, SUBSCRIBE CLIENT, SUBSCRIBE CHANNEL, UNSUBSCRIBE CLIENT, TIME, EXISTS KEY, DEL KEY, \
             PEXPIRE KEY 1, PEXPIRE RECORD 1, PTTL KEY, HGET KEY a, HMGET RECORD a, HSET KEY a 1, HSET RECORD a 1, \
             HGETALL KEY, HLEN KEY";
        let (inner, keys) = (&self.backend.0, Keys::of(lock)?);
        let client = client_channel(ClientId::random());
        let word = |word| match word {
            "CLIENT" => &client,
            "CHANNEL" => keys.channel(),
            "KEY" => keys.lock(),
            "RECORD" => keys.record(),
            word => word,
        };
        let [of_queue, by_several] = by_rules!(inner.fair, needed(&keys, &client));
        let all = COMMANDS.split(", ").map(|command| command.split(' ').map(word).collect()).chain(of_queue);
        let all = all.chain(inner.scripts.servers.commands().iter().map(|words| words.to_vec()));
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        let all = all.map(owned).chain(inner.calls.needed(&keys)).collect();
        Ok([all, by_several.into_iter().map(owned).collect()])
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
