//! A thorough check of the servers: are locks safe there, and if not, what has to change?

mod durable;
mod info;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlock_core::backend::{BackendError, Finding, LockId, Text, Verdict, hand_over, probe, try_out};
use fairlock_core::{LockKind, LockName};
use redis::{Cmd, Value, cmd};

pub(crate) use info::check as check_info;

use crate::backend::RedisBackend;
use crate::durable::Durability;
use crate::net::value::{micros, text};
use crate::net::{Arrangement, Failure, Pool, Route};
use crate::script::keys::Keys;

/// How many round trips are measured.
const ROUND_TRIPS: usize = 20;
/// A server's clock may be off by this much without a note.
const OFF: Duration = Duration::from_secs(1);

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
        let known = lock.map(|name| LockId::new(name.clone(), LockKind::Fair));
        let probe = known.clone().unwrap_or_else(probe);
        Keys::of(&probe)?;
        let all = &self.0.shared.servers;
        let servers = all.servers().map_err(|failure| failure.explain(all, "looking"))?;
        let mut findings = Vec::new();
        let mut is_tried = known.is_none();
        for server in &servers {
            server.pool.check()?;
            let mut visit = Visit { backend: self, server, pool: &server.pool, findings: &mut findings };
            visit.info();
            visit.clock();
            visit.round_trips();
            visit.scripts();
            visit.life();
            visit.open_slots();
            let is_in_reach = known.is_some() || visit.may_use(&probe);
            is_tried &= is_in_reach;
            visit.rights(&probe, is_in_reach);
        }
        self.survey(&mut findings);
        let is_waiting = |found: &Finding| found.topic == "life" && found.verdict != Verdict::Good;
        if !is_tried || self.0.shared.calls.durability().is_some() && findings.iter().any(is_waiting) {
            return Ok(findings);
        }
        let tried = try_out(self, &probe);
        let handed = tried.is_ok().then(|| self.hand_overs(&probe));
        let (verdict, text) = match tried.and(self.forget(&probe)) {
            Ok(()) => (Verdict::Good, "a lock was taken and given back".into()),
            Err(error) => {
                let text = |error: &str| format!("a lock can't be taken and given back: {error}");
                (Verdict::Unsafe, Text::from(&error).reworded(text))
            }
        };
        findings.push(Finding::new(all.to_string(), "trial", verdict, text));
        findings
            .extend(handed.map(|(verdict, text)| Finding::new(all.to_string(), "hand-overs", verdict, text)));
        Ok(findings)
    }

    /// Hands the lock from one client to another, and times that.
    fn hand_overs(&self, lock: &LockId) -> (Verdict, Text) {
        let without = "see to the rights to PUBLISH and SUBSCRIBE, and to what the service says of both";
        let found = hand_over([self, self], lock, without);
        match (found, self.0.shared.wake_ups.untold.refusal_of_scripts()) {
            (Ok((_, text)), Some(why)) => {
                let then =
                    "scripts may not publish, so the client sends each message itself, one round trip later";
                (Verdict::Note, text.reworded(|text| format!("{text}; {then}: {why}")))
            }
            (Ok(found), None) => found,
            (Err(error), _) => {
                let text = |error: &str| format!("a lock was not handed over: {error}");
                (Verdict::Unknown, Text::from(&error).reworded(text))
            }
        }
    }

    /// Deletes what a release keeps for a day: nobody asks for this lock again. All that a trial leaves ends by itself as well.
    fn forget(&self, lock: &LockId) -> Result<(), BackendError> {
        let (servers, keys) = (&self.0.shared.servers, Keys::of(lock)?);
        let delete = cmd("DEL").arg(keys.lock()).arg(keys.record()).get_packed_command();
        let deleted = servers.call(keys.lock(), |route| route.call(&delete));
        deleted.map(drop).map_err(|failed| failed.explain("deleting it"))
    }
}

/// The check of one server.
struct Visit<'a> {
    backend: &'a RedisBackend,
    server: &'a Route,
    pool: &'a Pool,
    findings: &'a mut Vec<Finding>,
}

impl Visit<'_> {
    fn say(&mut self, topic: &'static str, verdict: Verdict, text: impl Into<Text>) {
        let server = self.pool.address().to_string();
        self.findings.push(Finding::new(server, topic, verdict, text));
    }

    fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        self.pool.call(command.get_packed_command())
    }

    fn durability(&self) -> Option<Durability> {
        self.backend.0.shared.calls.durability()
    }

    fn is_durable(&self) -> bool {
        self.durability().is_some()
    }

    /// Locks go by the server's clock alone, so a difference does no harm here. But it shows a clock without NTP, and tokens
    /// that would jump in a fail-over. A grace has to be long enough on each server's wall clock.
    fn clock(&mut self) {
        let sent = SystemTime::now();
        let reply = self.ask(&cmd("TIME"));
        let trip = sent.elapsed().unwrap_or_default();
        let read = |reply: Value| micros(&reply).map_err(|error| error.to_string());
        let theirs = match reply.map_err(|failure| failure.to_string()).and_then(read) {
            Ok(theirs) => Duration::from_micros(theirs),
            Err(what) => return self.say("clock", Verdict::Unknown, what),
        };
        let ours = sent.duration_since(UNIX_EPOCH).unwrap_or_default() + trip / 2;
        let (off, text) = Finding::of_clocks(ours, theirs, trip);
        let (verdict, then) = match self.durability().map(|durability| durability.skew) {
            Some(skew) if off > skew + trip => {
                let then = format!(
                    "; more than the skew of {}: see that both are kept (NTP), or raise it for all clients; else two \
                     clients can hold a lock after a fail-over",
                    Finding::shown(skew)
                );
                (Verdict::Note, then)
            }
            Some(skew) => {
                let then = format!(
                    "; less than the skew of {}, by which servers may differ and their clocks jump",
                    Finding::shown(skew)
                );
                (Verdict::Good, then)
            }
            None if off > OFF + trip => {
                let then = "; locks go by the server's clock alone, but see that it is kept (NTP)";
                (Verdict::Note, then.to_owned())
            }
            None => (Verdict::Good, String::new()),
        };
        self.say("clock", verdict, text + &then);
    }

    fn round_trips(&mut self) {
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let sent = Instant::now();
            if let Err(failure) = self.ask(&cmd("PING")) {
                let what = failure.text().reworded(|failure| format!("it does not answer: {failure}"));
                return self.say("round trip", Verdict::Unsafe, what);
            }
            trips.push(sent.elapsed());
        }
        let limit = self.backend.0.shared.servers.timeouts().response;
        let (verdict, text) = Finding::of_times(trips, limit, "a server that is nearer is quicker");
        self.say("round trip", verdict, text);
    }

    fn scripts(&mut self) {
        const SCRIPT: &str = "return 1";
        let run = || -> Result<Value, Failure> {
            self.ask(cmd("SCRIPT").arg("LOAD").arg(SCRIPT))?;
            self.ask(cmd("EVALSHA").arg(redis::Script::new(SCRIPT).get_hash()).arg(0))
        };
        let (verdict, text) = match run() {
            Ok(Value::Int(1)) => (Verdict::Good, "it loads and runs them".to_owned()),
            Ok(other) => (Verdict::Unsafe, format!("one said {other:?} in place of 1")),
            Err(failure) => {
                let text = format!("it does not run them: {failure}; it needs SCRIPT LOAD and EVALSHA");
                (Verdict::Unsafe, text)
            }
        };
        self.say("scripts", verdict, text);
    }

    /// Slots whose move to another node has begun, and is neither finished nor given up.
    fn open_slots(&mut self) {
        if self.backend.0.shared.servers.arrangement() != Arrangement::Cluster {
            return;
        }
        // The user may lack this right, which no other check needs.
        let Ok(reply) = self.ask(cmd("CLUSTER").arg("NODES")) else { return };
        let own = |line: &&str| line.split(' ').nth(2).is_some_and(|flags| flags.contains("myself"));
        let line = text(&reply).ok().and_then(|nodes| nodes.lines().find(own)).unwrap_or_default();
        // `[93->-ID]` is on its way to that node, `[93-<-ID]` from it.
        let inside = |word: &str| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned());
        for open in line.split(' ').filter_map(inside) {
            let (slot, to_or_from) = match open.split_once("->-") {
                Some((slot, id)) => (slot, format!("to {id}")),
                None => open
                    .split_once("-<-")
                    .map_or((&*open, String::new()), |(slot, id)| (slot, format!("from {id}"))),
            };
            let what = format!(
                "hash slot {slot} is on its way {to_or_from}: its locks can't be used; finish the move, or before it is given up \
                 (CLUSTER SETSLOT {slot} STABLE) {}",
                self.backend.0.shared.calls.before_a_move_is_given_up(slot)
            );
            self.say("slots", Verdict::Note, what);
        }
    }
}
