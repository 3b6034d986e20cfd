//! A thorough check of the server and the database: are locks safe there, and if not, what has to change? `doctor.sql` has the
//! checks that only ask; this file has the checks that measure and try.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlock_core::ClientId;
use fairlock_core::backend::{
    BackendError, BackendErrorKind, Finding, LockId, Text, Verdict, hand_over, probe, try_out,
};
use fairlock_net::Endpoint;

use crate::backend::PostgresBackend;
use crate::builder::PostgresBuilder;
use crate::clients::{Clients, channel_of};
use crate::net::pool::Pool;
use crate::net::schema::check;
use crate::net::statement::NOTIFY;
use crate::net::{Connection, Failure, Row, Statement, log_in_at, open};
use crate::store::Store;

const QUERIES: &str = include_str!("../sql/doctor.sql");
const ROUND_TRIPS: usize = 20;
const COMMITS: usize = 5;
/// A server's clock may be off by this much without a note.
const OFF: Duration = Duration::from_secs(1);
/// The time that a message should take at most.
const HEARD: Duration = Duration::from_secs(1);

impl PostgresBackend {
    /// Checks the server and the database. The topics are, in this order:
    ///
    /// - `role`, for each host of the address; `version`; `commits`: what a crash or a fail-over forgets; `isolation`;
    ///   `connections` that are left;
    /// - what slows hand-overs: `listeners`, old `snapshots` and `slots`, `autovacuum`;
    /// - `clock`; `round trip`; `pooler`; `wake-ups`: a message to itself;
    /// - the tables: `layout`; `rights` of this user; `rows`: dead ones, and the share of HOT updates; `commit time`; and `trial`:
    ///   a lock of a random name (`fairlock-doctor:…`) is acquired and released; `hand-overs`: the lock goes from one client to
    ///   another and back, ten times in all. Its row is deleted.
    ///
    /// # Errors
    /// `Unavailable`, `Denied` or `InvalidConfig` when no session can be had. Any later failure is a finding.
    pub fn doctor(&self) -> fairlock_core::Result<Vec<Finding>> {
        let (pool, mut roles, mut best, mut failed) = (&self.0.pool, Vec::new(), None, None);
        for endpoint in &pool.address.endpoints {
            match log_in_at(endpoint, &pool.address, Instant::now() + pool.timeouts.connect) {
                Ok(con) => {
                    let mut visit = Visit { backend: self, con, endpoint, findings: Vec::new() };
                    let answered = visit.ask(&["role"]);
                    roles.append(&mut visit.findings);
                    let takes_writes = roles.last().is_some_and(|role| role.verdict == Verdict::Good);
                    if answered.is_ok() && best.as_ref().is_none_or(|(best, _)| takes_writes && !best) {
                        best = Some((takes_writes, visit));
                    }
                }
                Err(failure) => {
                    let error = BackendError::from(failure);
                    roles.push(Finding::new(endpoint.to_string(), "role", Verdict::Unsafe, &error));
                    failed = Some(error);
                }
            }
        }
        let Some((takes_writes, mut visit)) = best else {
            return Err(failed.unwrap_or_else(|| Failure::senseless().into()).into());
        };
        for role in roles.iter_mut().filter(|role| takes_writes && role.verdict == Verdict::Unsafe) {
            role.verdict = Verdict::Note; // the backend passes it over
        }
        if let Err(failure) = visit.all() {
            let (server, error) = (visit.endpoint.to_string(), BackendError::from(failure));
            visit.findings.push(Finding::new(server, "round trip", Verdict::Unsafe, &error));
        }
        roles.append(&mut visit.findings);
        Ok(roles)
    }
}

impl PostgresBuilder {
    /// As [`PostgresBackend::doctor`], even if `connect` is refused: by a standby, or since tables are missing.
    ///
    /// # Errors
    /// As there; `InvalidConfig` for a setting that is out of range.
    pub fn doctor(self) -> fairlock_core::Result<Vec<Finding>> {
        self.unchecked()?.doctor()
    }
}

/// The check of one server, by one session.
struct Visit<'a> {
    backend: &'a PostgresBackend,
    con: Connection,
    endpoint: &'a Endpoint,
    findings: Vec<Finding>,
}

/// What a check has found, and its text.
type Found = Result<(Verdict, Text), Failure>;

impl Visit<'_> {
    /// # Errors
    /// If the connection broke, and there is no other.
    fn all(&mut self) -> Result<(), Failure> {
        self.ask(&["version", "commits", "isolation", "connections"])?;
        self.ask(&["listeners", "snapshots", "slots", "autovacuum"])?;
        self.check("clock", Visit::clock)?;
        self.check("round trip", Visit::round_trips)?;
        self.check("pooler", Visit::pooler)?;
        self.check("wake-ups", Visit::wake_ups)?;
        self.check("layout", Visit::layout)?;
        if self.findings.last().is_some_and(|layout| layout.verdict == Verdict::Unsafe) {
            return Ok(());
        }
        self.ask(&["rights", "rows"])?;
        let lock = probe();
        self.check("commit time", |visit| visit.commit_time(&lock))?;
        self.check("trial", |visit| visit.trial(&lock))?;
        if self.findings.last().is_some_and(|trial| trial.verdict == Verdict::Good) {
            self.check("hand-overs", |visit| visit.hand_overs(&lock))?;
        }
        Ok(())
    }

    /// Adds what a check has found. The result of a check that the server refuses is "unknown".
    fn check(&mut self, topic: &'static str, check: impl FnOnce(&mut Self) -> Found) -> Result<(), Failure> {
        let (verdict, text) = match check(self) {
            Ok(found) => found,
            Err(failure) => {
                // Ends the transaction of the failed check.
                let deadline = self.soon();
                if !failure.keeps_connection() || self.con.script("rollback", deadline).is_err() {
                    self.con = log_in_at(self.endpoint, &self.backend.0.pool.address, deadline)?;
                }
                (Verdict::Unknown, (&BackendError::from(failure)).into())
            }
        };
        self.findings.push(Finding::new(self.endpoint.to_string(), topic, verdict, text));
        Ok(())
    }

    /// The checks of `doctor.sql` with these topics.
    fn ask(&mut self, topics: &[&'static str]) -> Result<(), Failure> {
        for topic in topics {
            let query = |block: &&str| block.starts_with(&format!("-- {topic}\n"));
            let sql = QUERIES.split("\n\n").find(query).unwrap_or_default();
            self.check(topic, |visit| {
                let row = visit.row(sql)?;
                let (verdict, text) = row.text(0)?.split_once(": ").ok_or_else(Failure::senseless)?;
                let verdict = match verdict {
                    "good" => Verdict::Good,
                    "note" => Verdict::Note,
                    _ => Verdict::Unsafe,
                };
                Ok((verdict, text.into()))
            })?;
        }
        Ok(())
    }

    fn soon(&self) -> Instant {
        self.backend.0.pool.deadline()
    }

    fn row(&mut self, sql: &'static str) -> Result<Row, Failure> {
        self.con.row(Statement::made_up(sql), self.backend.0.pool.deadline())
    }

    /// Locks go by the server's clock alone. A difference shows a clock without NTP, and tokens that would jump in a fail-over.
    fn clock(&mut self) -> Found {
        let sent = SystemTime::now();
        let row = self.row("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")?;
        let trip = sent.elapsed().unwrap_or_default();
        let theirs = Duration::from_micros(row.number(0)?.max(0).cast_unsigned());
        let ours = sent.duration_since(UNIX_EPOCH).unwrap_or_default() + trip / 2;
        let (off, text) = Finding::of_clocks(ours, theirs, trip);
        if off <= OFF + trip {
            return Ok((Verdict::Good, text.into()));
        }
        let then = "; locks go by the server's clock alone, but see that it is kept (NTP)";
        Ok((Verdict::Note, (text + then).into()))
    }

    fn round_trips(&mut self) -> Found {
        self.times(ROUND_TRIPS, "a server that is nearer is quicker", |visit| {
            let sent = Instant::now();
            visit.row("select 1")?;
            Ok(sent.elapsed())
        })
    }

    fn times(
        &mut self,
        n: usize,
        quicker: &str,
        measure: impl Fn(&mut Self) -> Result<Duration, Failure>,
    ) -> Found {
        let times = (0..n).map(|_| measure(self)).collect::<Result<_, _>>()?;
        Ok(Finding::of_times(times, self.backend.0.pool.timeouts.response, quicker))
    }

    /// Behind a pooler in transaction mode two connections share one session, or a connection gets a second session because the
    /// other connection has taken the first.
    fn pooler(&mut self) -> Found {
        const PID: &str = "select pg_backend_pid()";
        let (listen_at, pool) = (&self.backend.0.clients.listen_at, &self.backend.0.pool);
        let before = self.row(PID)?.count(0)?;
        let mut other = log_in_at(self.endpoint, &pool.address, Instant::now() + pool.timeouts.connect)?;
        other.script("begin", self.soon())?;
        let of_other = other.row(Statement::made_up(PID), self.soon())?.count(0)?;
        let is_pooled = of_other == before || self.row(PID)?.count(0)? != before;
        drop(other); // until here its session was taken
        let (verdict, text) = match (is_pooled, listen_at.endpoints == pool.address.endpoints) {
            (false, _) => return Ok((Verdict::Good, "none: each connection has a session".into())),
            (true, false) => (Verdict::Good, "in transaction mode; there is another address for wake-ups"),
            (true, true) => {
                let text = "in transaction mode: locks work, but wake-ups need a session, so set the server's address for them";
                (Verdict::Note, text)
            }
        };
        Ok((verdict, Text::from(text).about_setting("listen_on")))
    }

    /// One session sends, another hears.
    fn wake_ups(&mut self) -> Found {
        let channel = channel_of(&ClientId::random().to_string());
        let store = &self.backend.0;
        let mut hears = open(&store.clients.listen_at, Instant::now() + store.pool.timeouts.connect)?;
        hears.script(&format!("listen {channel}"), self.soon())?;
        let sent = Instant::now();
        self.con.row(Statement::new(NOTIFY, [channel.as_str().into(), "".into()]), store.pool.deadline())?;
        let heard = hears.listen(sent + HEARD)?;
        if heard.is_empty() {
            hears.script("unlisten *", self.soon())?; // a pooler keeps the session
            let text = "a message was not heard in 1 s: waiters ask again and again; behind a pooler set the server's address for \
                        wake-ups";
            return Ok((Verdict::Note, Text::from(text).about_setting("listen_on")));
        }
        Ok((Verdict::Good, format!("a message was heard after {}", Finding::shown(sent.elapsed())).into()))
    }

    fn layout(&mut self) -> Found {
        let deadline = self.soon();
        let Err(failure) = check(&mut self.con, deadline) else {
            return Ok((Verdict::Good, "this version can use the tables".into()));
        };
        match failure.kind {
            BackendErrorKind::InvalidConfig | BackendErrorKind::Unsupported => {
                Ok((Verdict::Unsafe, (&BackendError::from(failure)).into()))
            }
            _ => Err(failure),
        }
    }

    /// Measures a small write to the row of the trial.
    fn commit_time(&mut self, lock: &LockId) -> Found {
        let write = "insert into fairlock.lock (name) values ($1) on conflict (name) do update set rev = lock.rev + 1";
        self.times(COMMITS, "a disk that syncs faster is quicker", |visit| {
            let (name, deadline) = ([lock.name.as_str().as_bytes().into()], visit.soon());
            visit.con.flight(&[Statement::new("begin", []), Statement::new(write, name)], deadline)?;
            let sent = Instant::now();
            visit.con.script("commit", deadline)?;
            Ok(sent.elapsed())
        })
    }

    fn trial(&mut self, lock: &LockId) -> Found {
        let tried = try_out(self.backend, lock);
        self.forget(lock);
        let failed = |why: &str| format!("a lock can't be taken and given back: {why}");
        Ok(match tried {
            Ok(()) => (Verdict::Good, "a lock was taken and given back".into()),
            Err(error) => (Verdict::Unsafe, Text::from(&error).reworded(failed)),
        })
    }

    /// Hands the lock from one client to another, and times that. The other client has a store of its own, as in another process:
    /// within a process no message is sent.
    fn hand_overs(&mut self, lock: &LockId) -> Found {
        let Store { pool, clients, .. } = &*self.backend.0;
        let of_other = Clients::new(clients.listen_at.clone(), clients.wake_ups);
        let other = Store::new(Pool::new(pool.address.clone(), pool.timeouts, 2), of_other);
        let without = "see `wake-ups` above, and behind a pooler set the server's address for them";
        let without = Text::from(without).about_setting("listen_on");
        let found = hand_over([self.backend, &PostgresBackend(Arc::new(other))], lock, without);
        self.forget(lock);
        let failed = |why: &str| format!("a lock was not handed over: {why}");
        Ok(found.unwrap_or_else(|error| (Verdict::Unknown, Text::from(&error).reworded(failed))))
    }

    /// Deletes the row of the lock. Without the right it stays for a day.
    fn forget(&mut self, lock: &LockId) {
        let (name, deadline) = ([lock.name.as_str().as_bytes().into()], self.soon());
        let delete = Statement::new("delete from fairlock.lock where name = $1", name);
        let _ = self.con.flight(&[delete], deadline);
    }
}
