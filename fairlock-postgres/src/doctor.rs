//! A thorough check of the server and the database: are locks safe there, and if not, what has to change? `doctor.sql` has the
//! checks that only ask; this file has the checks that measure and try, and `doctor.md` what these say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::ClientId;
use fairlock_core::backend::{BackendError, BackendErrorKind, Facts, Finding, LockId, Table, Text, Verdict};
use fairlock_core::backend::{probe, trial};
use fairlock_net::Endpoint;

use crate::backend::{PostgresBackend, PostgresBuilder};
use crate::clients::{Clients, channel_of};
use crate::net::statement::NOTIFY;
use crate::net::{Connection, Failure, Pool, Row, Statement, check, log_in_at, open};
use crate::store::Store;

const QUERIES: &str = include_str!("../sql/doctor.sql");
const TABLE: Table = Table(include_str!("doctor.md"));
const ROUND_TRIPS: usize = 20;
const COMMITS: usize = 5;
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
        self.trial(&lock);
        Ok(())
    }

    /// Adds what the table says of these facts. The result of a check that the server refuses is "unknown".
    fn check(
        &mut self,
        topic: &'static str,
        facts: impl FnOnce(&mut Self) -> Result<Facts, Failure>,
    ) -> Result<(), Failure> {
        let server = self.endpoint.to_string();
        match facts(self) {
            Ok(facts) => self.findings.extend(TABLE.findings(&server, topic, &facts)),
            Err(failure) => {
                // Ends the transaction of the failed check.
                let deadline = self.soon();
                if !failure.keeps_connection() || self.con.script("rollback", deadline).is_err() {
                    self.con = log_in_at(self.endpoint, &self.backend.0.pool.address, deadline)?;
                }
                let error = BackendError::from(failure);
                self.findings.push(Finding::new(server, topic, Verdict::Unknown, &error));
            }
        }
        Ok(())
    }

    /// The checks of `doctor.sql` with these topics. Each answers with its verdict and the text.
    fn ask(&mut self, topics: &[&'static str]) -> Result<(), Failure> {
        topics.iter().try_for_each(|topic| {
            let query = |block: &&str| block.starts_with(&format!("-- {topic}\n"));
            let sql = QUERIES.split("\n\n").find(query).unwrap_or_default();
            self.check(topic, |visit| {
                let row = visit.row(sql)?;
                let (verdict, text) = row.text(0)?.split_once(": ").ok_or_else(Failure::senseless)?;
                Ok(Facts::of(verdict, text))
            })
        })
    }

    fn soon(&self) -> Instant {
        self.backend.0.pool.deadline()
    }

    fn row(&mut self, sql: &'static str) -> Result<Row, Failure> {
        self.con.row(Statement::made_up(sql), self.backend.0.pool.deadline())
    }

    /// Locks go by the server's clock alone. A difference shows a clock without NTP, and tokens that would jump in a fail-over.
    fn clock(&mut self) -> Result<Facts, Failure> {
        Facts::of_clock(None, || {
            let row = self.row("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")?;
            Ok(Duration::from_micros(row.number(0)?.max(0).cast_unsigned()))
        })
    }

    fn round_trips(&mut self) -> Result<Facts, Failure> {
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
    ) -> Result<Facts, Failure> {
        let times = (0..n).map(|_| measure(self)).collect::<Result<_, _>>()?;
        Ok(Facts::of_times(times, self.backend.0.pool.timeouts.response, quicker))
    }

    /// Behind a pooler in transaction mode two connections share one session, or a connection gets a second session because the
    /// other connection has taken the first.
    fn pooler(&mut self) -> Result<Facts, Failure> {
        const PID: &str = "select pg_backend_pid()";
        let (listen_at, pool) = (&self.backend.0.clients.listen_at, &self.backend.0.pool);
        let before = self.row(PID)?.count(0)?;
        let mut other = log_in_at(self.endpoint, &pool.address, Instant::now() + pool.timeouts.connect)?;
        other.script("begin", self.soon())?;
        let of_other = other.row(Statement::made_up(PID), self.soon())?.count(0)?;
        let is_pooled = of_other == before || self.row(PID)?.count(0)? != before;
        drop(other); // until here its session was taken
        let has_other = listen_at.endpoints != pool.address.endpoints;
        Ok(Facts::default().when("pooled", is_pooled).when("other", has_other))
    }

    /// One session sends, another hears.
    fn wake_ups(&mut self) -> Result<Facts, Failure> {
        let channel = channel_of(&ClientId::random().to_string());
        let store = &self.backend.0;
        let mut hears = open(&store.clients.listen_at, Instant::now() + store.pool.timeouts.connect)?;
        hears.script(&format!("listen {channel}"), self.soon())?;
        let sent = Instant::now();
        self.con.row(Statement::new(NOTIFY, [channel.as_str().into(), "".into()]), store.pool.deadline())?;
        if hears.listen(sent + HEARD)?.is_empty() {
            hears.script("unlisten *", self.soon())?; // a pooler keeps the session
            return Ok(Facts::default());
        }
        Ok(Facts::of("heard", Finding::shown(sent.elapsed())))
    }

    fn layout(&mut self) -> Result<Facts, Failure> {
        let deadline = self.soon();
        let Err(failure) = check(&mut self.con, deadline) else { return Ok(Facts::default()) };
        match failure.kind {
            BackendErrorKind::InvalidConfig | BackendErrorKind::Unsupported => {
                Ok(Facts::of("why", &BackendError::from(failure)))
            }
            _ => Err(failure),
        }
    }

    /// Measures a small write to the row of the trial.
    fn commit_time(&mut self, lock: &LockId) -> Result<Facts, Failure> {
        let write = "insert into fairlock.lock (name) values ($1) on conflict (name) do update set rev = lock.rev + 1";
        self.times(COMMITS, "a disk that syncs faster is quicker", |visit| {
            let (name, deadline) = ([lock.name.as_str().as_bytes().into()], visit.soon());
            visit.con.flight(&[Statement::new("begin", []), Statement::new(write, name)], deadline)?;
            let sent = Instant::now();
            visit.con.script("commit", deadline)?;
            Ok(sent.elapsed())
        })
    }

    /// The lock goes from one client to another. The other client has a store of its own, as in another process: within a process no
    /// message is sent. At the end its row is deleted; without the right it stays for a day.
    fn trial(&mut self, lock: &LockId) {
        let Store { pool, clients, .. } = &*self.backend.0;
        let of_other = Clients::new(clients.listen_at.clone(), clients.wake_ups);
        let pool = Pool::new(pool.address.clone(), pool.timeouts, 2);
        let other = PostgresBackend(Arc::new(Store::new(pool, of_other)));
        let without = "see `wake-ups` above, and behind a pooler set the server's address for them";
        let without = Text::from(without).about_setting("listen_on");
        let server = self.endpoint.to_string();
        let found = trial(&server, [self.backend, &other], lock, without, || {
            let (name, deadline) = ([lock.name.as_str().as_bytes().into()], self.soon());
            let delete = Statement::new("delete from fairlock.lock where name = $1", name);
            let _ = self.con.flight(&[delete], deadline);
            Ok(())
        });
        self.findings.extend(found);
    }
}
